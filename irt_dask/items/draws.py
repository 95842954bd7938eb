"""Draws of the item parameters for what averages over them: a posterior's, or by their errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray as xr

from irt_dask.arrays import Floats
from irt_dask.curves import MODELS
from irt_dask.curves.item_set import ItemSet
from irt_dask.errors import InputError
from irt_dask.items.parameters import (
    OF_MODELS,
    has_loadings,
    item_loadings,
    item_set,
    refuse_loadings,
)
from irt_dask.items.sampled import sampled, says_errors
from irt_dask.variables import DRAW

#: Parameters of which draws are needed, with one ability and with several.
_ONE = ("item_discrimination", "item_intercept")
#: Of items with more than two categories, and of nominal ones.
_STEPS = ("item_step_intercept", "item_category_score")
_SEVERAL = ("item_loading", "item_intercept")
#: Draws that are averaged over, unless others are asked for.
_USUAL = 20


def has_draws(items: Any) -> bool:
    """Whether these items carry draws of slopes and intercepts, or of loadings.

    One draw that was picked (``posterior.isel(draw=3)``) is items of its own.
    """
    drawn = [f"{name}_draw" for name in (_SEVERAL if has_loadings(items) else _ONE)]
    return isinstance(items, xr.Dataset) and all(
        name in items and DRAW in items[name].dims for name in drawn
    )


def usual_draws(items: xr.Dataset) -> int:
    """Draws of these items to average over, unless others are asked for: 0 if there are none."""
    return min(_USUAL, items.sizes[DRAW]) if has_draws(items) else 0


def _more() -> list[str]:
    """Parameters of items of two categories beyond slopes and intercepts."""
    more = (p.variable for m in MODELS.values() for p in m.parameters if p.variable not in _ONE)
    return list(dict.fromkeys(more))


def item_draws(
    items: xr.Dataset, item_id: tuple[str, ...], n: int, *, option: str, what: str = "items"
) -> list[ItemSet]:
    """Items of ``n`` draws, evenly spaced among those there are, or made by their errors.

    Combined draws stand shard by shard: even spacing takes from each what is its share.  Items are
    matched by identifier.  ``option`` is what asks for them, for the error if there are too few.
    """
    if isinstance(items, xr.Dataset):
        refuse_loadings(items, what)
        if not any(f"{name}_draw" in items for name in (*_ONE, *_STEPS)) and says_errors(items):
            items = sampled(items, n, what)
    there = [name for name in (*_more(), *_STEPS) if name in items or f"{name}_draw" in items]
    draws = spaced(items, n, (*_ONE, *there), option, what)
    return [item_set(one, item_id, what=name) for name, one in draws]


def loading_draws(
    items: xr.Dataset, item_id: tuple[str, ...], n: int, *, option: str, what: str = "items"
) -> list[tuple[Floats, Floats, float]]:
    """Loadings, intercepts and correlation of two abilities in ``n`` draws, as :func:`item_draws`.

    Each draw of the items goes with the correlation that was drawn with it.
    """
    drawn: tuple[str, ...] = _SEVERAL
    if "ability_correlation" in items or "ability_correlation_draw" in items:
        drawn = (*_SEVERAL, "ability_correlation")
    draws = spaced(items, n, drawn, option, what)
    return [item_loadings(one, item_id, what=name) for name, one in draws]


def spaced(
    items: Any, n: int, drawn: tuple[str, ...], option: str, what: str
) -> Iterator[tuple[str, xr.Dataset]]:
    """Yield ``n`` draws, evenly spaced, under the names ``drawn``, and what to call them."""
    names = [f"{name}_draw" for name in drawn]
    lacking = [name for name in names if not isinstance(items, xr.Dataset) or name not in items]
    if lacking:
        other = ", or items with standard errors" if drawn[: len(_ONE)] == _ONE else ""
        which = "" if lacking == names else f" of all parameters ({', '.join(lacking)})"
        raise InputError(
            f"{option}={n}: {what} carry no draws{which}; give a posterior, which has them: the "
            f"result of fit_bayes, or the posterior.nc of a run{other}"
        )
    there = items.sizes[DRAW]
    if n > there:
        raise InputError(f"{option}={n} exceeds the {there} draws of {what}; ask for fewer")
    kept = items[names + [name for name in OF_MODELS if name in items]]
    for k in (2 * np.arange(n) + 1) * there // (2 * n):
        one = kept.isel({DRAW: int(k)}).rename(dict(zip(names, drawn, strict=True)))
        yield f"{what}, draw {k}", one
