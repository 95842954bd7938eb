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

#: Share of its steepness below which the slope of an item is no unit of shifts.
_LEAST = 0.1


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
        # Nominal slopes are of any sign, and near 0 the shift would be without bounds.
        slope, steep = g.model.slope(g.x)[0], g.model.steepness(g.x)
        slope = np.where(np.abs(slope) < _LEAST * steep, steep, slope)
        shift = g.model.by_ability(g.x, nodes)[0] / slope[:, None, None]
        out[0, rows], out[1, rows] = shift, shift * nodes
        for j, own in enumerate(_left(g.model, g.x)):
            out[2 : 2 + own.size, rows[j]] = by_parameter[own, j]
    return out


def _of_steps(model: ItemModel) -> list[int]:
    """Parameters of steps but the first of each variable, where shift and slope are for those."""
    if model.name in MODELS:
        return []
    steps = [(k, p) for k, p in enumerate(model.parameters) if p.step]
    first = {p.variable: k for k, p in reversed(steps)}
    return [k for k, p in steps if first[p.variable] != k]


def _left(model: ItemModel, x: Floats) -> list[Ints]:
    """Parameters of each item that shift and slope leave to be moved.

    Those are weighted sums of all steps', by category or, nominal, by its score: the step that is
    left out has some weight in them, the largest score.
    """
    if model.name != "nominal":
        return [np.array(_of_steps(model), dtype=np.int64)] * x.shape[1]
    steps = len(x) // 2
    largest = np.abs(x[:steps]).argmax(axis=0)
    return [np.setdiff1d(np.arange(2 * steps), [k, steps + k]) for k in largest]
