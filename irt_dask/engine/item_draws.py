"""Draws of the item parameters that a posterior carries, for what averages over them."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from irt_dask.engine.inputs import item_parameters, refuse_loadings
from irt_dask.errors import InputError
from irt_dask.variables import DRAW

Floats = NDArray[np.float64]

#: A parameter and its draws.
_DRAWN = {
    "item_discrimination": "item_discrimination_draw",
    "item_intercept": "item_intercept_draw",
}


def has_draws(items: Any) -> bool:
    """Whether these items carry draws of the parameters of the 2PL."""
    return isinstance(items, xr.Dataset) and all(name in items for name in _DRAWN.values())


def item_draws(
    items: xr.Dataset, item_id: tuple[str, ...], n: int, *, option: str, what: str = "items"
) -> list[tuple[Floats, Floats]]:
    """Slopes and intercepts of ``n`` draws, evenly spaced among those there are.

    Combined draws stand shard by shard: even spacing takes from each what is its share.  Items are
    matched by identifier.  ``option`` is what asks for them, for the error if there are too few.
    """
    if isinstance(items, xr.Dataset):
        refuse_loadings(items, what)
    if not has_draws(items):
        raise InputError(
            f"{option}={n}: {what} carry no draws (item_discrimination_draw, item_intercept_draw); "
            f"give the result of fit_bayes"
        )
    there = items.sizes[DRAW]
    if n > there:
        raise InputError(f"{option}={n} exceeds the {there} draws of {what}; ask for fewer")
    kept = [name for name in ("item_guessing",) if name in items]
    drawn = items[[*_DRAWN.values(), *kept]]
    result = []
    for k in (2 * np.arange(n) + 1) * there // (2 * n):
        one = drawn.isel({DRAW: int(k)}).rename({draw: name for name, draw in _DRAWN.items()})
        result.append(item_parameters(one, item_id, what=f"{what}, draw {k}"))
    return result
