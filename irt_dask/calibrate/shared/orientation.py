"""Where ability points to, of items whose slopes may have any sign."""

from __future__ import annotations

import numpy as np

from irt_dask.arrays import Floats
from irt_dask.curves.grids import GRID_BOUND
from irt_dask.curves.item_set import ItemSet

_NODES: Floats = np.linspace(-GRID_BOUND, GRID_BOUND, 121)


def rise(items: ItemSet) -> float:
    """Sum over items of cov(ability, response), abilities N(0, 1).

    Responses are shares of the highest category; nominal items, whose codes say nothing of more or
    less, take no part where others are there.  Of all slopes and all slopes turned, with ability
    turned too, which are equally likely, fits return those for which this is positive.
    """
    weight = np.exp(-0.5 * _NODES**2)
    moment = _NODES * weight / weight.sum()
    of_each = items.expected(_NODES) @ moment / (items.n_categories - 1)
    ordered = np.ones(items.n_items, dtype=bool)
    for g in items.groups:
        ordered[g.at] = g.model.name != "nominal"
    return float(of_each[ordered if ordered.any() else ~ordered].sum())
