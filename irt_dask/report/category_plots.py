"""Curves of the categories of items, a panel each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from irt_dask.arrays import Floats, Ints
from irt_dask.errors import InputError
from irt_dask.items.parameters import item_set
from irt_dask.report.common import COLOURS, axes, item_ids, positions, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Panels of a figure, at most, and in a row.
MOST_PANELS, _IN_A_ROW = 12, 4
#: Styles of lines: one for the colours, the next when these are used up.
_STYLES = ("-", (0, (4, 1.5)), (0, (1, 1.2)))
_ABILITY = np.linspace(-4.0, 4.0, 161)


def categories(items: xr.Dataset, *, which: Sequence[int | str] | None = None) -> list[Axes]:
    """Draw category curves, the probability of each category against ability, an item a panel.

    Parameters
    ----------
    items
        A fit or an item bank of one ability.
    which
        One to twelve item identifiers or positions; default: the items of more than two categories,
        the first twelve of them.

    Returns
    -------
    list of Axes, one an item
        All are of one figure, ``ax.figure``.  A category has the same colour in all panels, and
        its number at the highest point of its curve.

    Raises
    ------
    InputError
        Items that are not there or lack a parameter, more than twelve, or none of more than two
        categories and no ``which``.

    Examples
    --------
    >>> import irt_dask as irt
    >>> truth = irt.simulate(2, 5, model="graded", categories=[2, 3, 4, 4, 5], seed=1).truth
    >>> panels = irt.plot.categories(truth, which=["item3", "item5"])
    >>> [ax.get_title() for ax in panels]
    ['item3 (graded)', 'item5 (graded)']
    >>> panels[0].figure.savefig("categories.png")
    """
    from matplotlib.figure import Figure

    ids, chosen = item_ids(items), _chosen(items, which)
    known = item_set(items, tuple(ids[j] for j in chosen), checked=False)
    names, p = _names(items, chosen), np.exp(known.log_p(_ABILITY))
    for k, j in enumerate(chosen):
        if not np.isfinite(p[known.first[k] : known.first[k + 1]]).all():
            raise InputError(f"item {ids[j]} has no curves: a parameter is missing or not finite")
    columns = min(len(chosen), _IN_A_ROW)
    rows = -(-len(chosen) // columns)
    size = (6.4, 3.6) if len(chosen) == 1 else (1.1 + 2.7 * columns, 0.5 + 2.2 * rows)
    figure = Figure(figsize=size, layout="constrained")
    panels = [axes(figure.add_subplot(rows, columns, k + 1)) for k in range(len(chosen))]
    for k, ax in enumerate(panels):
        _draw(ax, p[known.first[k] : known.first[k + 1]])
        ax.set_title(f"{short(ids[chosen[k]])} ({names[k]})", fontsize=9.5).set_parse_math(False)
        ax.tick_params(labelleft=k % columns == 0, labelbottom=k + columns >= len(chosen))
    figure.supxlabel("ability θ", fontsize=10)
    figure.supylabel("P(category)", fontsize=10)
    fullest = panels[int(known.n_categories.argmax())].get_lines()
    numbers = [str(k) for k in range(len(fullest))]
    figure.legend(
        fullest, numbers, title="category", ncols=1 + (len(numbers) > 8),
        loc="outside right upper", frameon=False, fontsize=8.5, title_fontsize=8.5,
    )  # fmt: skip
    return panels


def _chosen(items: xr.Dataset, which: Sequence[int | str] | None) -> Ints:
    """Positions of the items to draw."""
    if which is None:
        ids = item_ids(items)
        several = np.flatnonzero(item_set(items, tuple(ids), checked=False).n_categories > 2)
        if not several.size:
            raise InputError("no item has more than two categories; name items by which=")
        return several[:MOST_PANELS]
    if not 1 <= len(which) <= MOST_PANELS:
        raise InputError(f"which: 1 to {MOST_PANELS} items are drawn, not {len(which)}")
    return positions(items, which)


def _names(items: xr.Dataset, chosen: Ints) -> list[str]:
    """Models of items."""
    if "item_model" in items:
        return list(items["item_model"].values[chosen].astype(str))
    return [str(items.attrs.get("model", "2pl"))] * len(chosen)


def _draw(ax: Axes, p: Floats) -> None:
    """Curves of the categories of an item, (categories, abilities)."""
    for k, curve in enumerate(p):
        colour, style = COLOURS[k % len(COLOURS)], _STYLES[k // len(COLOURS)]
        ax.plot(_ABILITY, curve, color=colour, ls=style, lw=1.7)
        top = int(curve.argmax())
        edges = {0: (3, "left"), len(curve) - 1: (-1, "right")}  # numbers stay inside the frame
        shift, align = edges.get(top, (0, "center"))
        ax.annotate(
            str(k), (_ABILITY[top], curve[top]), xytext=(shift, 2), textcoords="offset points",
            ha=align, va="bottom", fontsize=7.5, color=colour,
        )  # fmt: skip
    ax.set(xlim=(-4, 4), ylim=(0, 1.08), yticks=(0, 0.5, 1), xticks=(-4, -2, 0, 2, 4))
    ax.grid(color="#eceef0", lw=0.7)
