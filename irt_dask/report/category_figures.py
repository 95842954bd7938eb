"""The figure of the report page that shows categories: of which items, and what it says of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from irt_dask.arrays import Floats, Ints
from irt_dask.items.parameters import item_set
from irt_dask.report import plots
from irt_dask.report.category_plots import MOST_PANELS
from irt_dask.report.common import item_ids, several, short
from irt_dask.report.figures import Image, inline

#: Panels for items that are flagged, at most; half of the others are for those that tell most.
_FLAGGED = MOST_PANELS // 3
_NODES = np.linspace(-4.0, 4.0, 81)
_DENSITY = np.exp(-0.5 * _NODES**2) / np.exp(-0.5 * _NODES**2).sum()


def categories_image(items: xr.Dataset) -> Image | None:
    """Draw the categories of up to twelve items of more than two, or None where there are none.

    Of more items those that are flagged, and those with most and with least information.
    """
    at, information = _drawable(items)
    if not at.size:
        return None
    chosen, why = at, "the items of more than two categories"
    if at.size > MOST_PANELS:
        chosen, why = _chosen(items, at, information)
    panels = plots.categories(items, which=[int(j) for j in chosen])
    caption = f"Probability of each category by ability: {why}."
    alt = f"Category curves of {len(chosen)} items; the item table has their parameters."
    return inline(panels[0], alt, caption)


def _drawable(items: xr.Dataset) -> tuple[Ints, Floats]:
    """Positions of items of more than two categories with curves; mean information of each."""
    if not several(items):
        return np.empty(0, dtype=np.int64), np.empty(0)
    ids = item_ids(items)
    known = item_set(items, tuple(ids), checked=False)
    information = known.information(_NODES) @ _DENSITY
    at = np.flatnonzero((known.n_categories > 2) & np.isfinite(information))
    return at, information[at]


def _chosen(items: xr.Dataset, at: Ints, information: Floats) -> tuple[Ints, str]:
    """Positions of the items to draw, and who they are."""
    flagged = np.zeros(at.size, dtype=bool)
    if "item_flag" in items:
        flagged = items["item_flag"].values[at].astype(str) != "ok"
    first = np.flatnonzero(flagged)[:_FLAGGED]
    order = np.argsort(-information, kind="stable")
    order = order[~np.isin(order, first)]
    n = MOST_PANELS - len(first)
    most, least = order[: n // 2], order[n // 2 - n :]
    said = f"most information on N(0, 1) abilities ({_named(items, at[most])})"
    said += f" and least ({_named(items, at[least])})"
    flags = f"flagged ({_named(items, at[first])}), " if first.size else ""
    return at[np.concatenate([first, most, least])], flags + said


def _named(items: xr.Dataset, at: Sequence[int] | Ints) -> str:
    ids = item_ids(items)
    return ", ".join(short(ids[j]) for j in at)
