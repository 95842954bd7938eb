"""Ways in which an item may differ between groups: derivatives of log P, a table for each.

The first is uniform DIF, a shift of the item on the logit scale (of the intercept of two
categories, of all steps together where there are more: the derivative by ability over the slope),
the second a change of its slope.  With more than two categories further ones move single steps, so
that all of them together are the item's free parameters but for asymptotes.
"""

from __future__ import annotations

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.curves import MODELS, ItemModel
from irt_dask.curves.item_set import ItemSet


def numbers(items: ItemSet) -> Ints:
    """Directions of each item, (items,)."""
    out = np.empty(items.n_items, dtype=np.int64)
    for g in items.groups:
        out[g.at] = 2 + len(_of_steps(g.model))
    return out


def tables(items: ItemSet, nodes: Floats) -> Floats:
    """Derivatives of log P, (directions, rows, nodes); 0 where an item has fewer."""
    out = np.zeros((int(numbers(items).max()), items.first[-1], nodes.size))
    for g in items.groups:
        rows = items.first[g.at][:, None] + np.arange(g.model.n_categories)
        by_parameter = g.model.by_parameter(g.x, nodes)
        if g.model.name in MODELS:
            out[:2, rows] = by_parameter[1::-1]
            continue
        slope = g.model.slope(g.x)[0]
        slope = np.where(slope == 0.0, g.model.steepness(g.x), slope)  # nominal: of any sign
        shift = g.model.by_ability(g.x, nodes)[0] / slope[:, None, None]
        own = _of_steps(g.model)
        out[0, rows], out[1, rows] = shift, shift * nodes
        out[2 : 2 + len(own), rows] = by_parameter[own]
    return out


def _of_steps(model: ItemModel) -> list[int]:
    """Parameters that move single steps: all but the first of what is an intercept, or a score."""
    if model.name in MODELS:
        return []
    return [k for k, p in enumerate(model.parameters) if p.step > 1]
