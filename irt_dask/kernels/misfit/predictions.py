"""Sums over residuals of responses that were predicted, each by a probability of its own.

What is predicted is whether a response is right: items have two categories here.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.posterior.at_ability import Between, probabilities
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.kernels.responses.rows import item, n_rows

#: Predictions nearer to 0 or 1 count as this: it bounds what one response can add to a sum.
CERTAIN = 1e-6
#: Classes of predictions, even on the logit scale between these bounds.
CLASSES, CLASS_BOUND = 32, 4.0


@jit
def _at_abilities(
    indptr: Any, indices: Any, values: Any, theta: Floats, g: Any, out: Floats
) -> None:
    w, p = np.empty((3, 6)), np.empty(g.first[-1])
    at = 0
    for i in range(n_rows(indptr, values)):
        items, row = rows.row(indptr, indices, values, i)
        probabilities(items, row, g, theta[i], w, p)
        n = 0
        for k in range(row.size):
            if row[k] >= 0:
                j = item(items, k)
                out[at] = p[n + row[k]]
                at += 1
                n += g.first[j + 1] - g.first[j]


def at_abilities(data: Layout, theta: Floats, g: Between) -> Floats:
    """Probability of each observed response at the person's ability, in the order of the rows."""
    out = np.empty(data.n_observed)
    _at_abilities(*rows.arrays(data), theta, g, out)
    return out


@jit
def prediction(y: int, given: float) -> float:
    """P(right), from the probability of the response that was given."""
    return min(max(given if y == 1 else 1.0 - given, CERTAIN), 1.0 - CERTAIN)


@jit
def _items(
    indptr: Any, indices: Any, values: Any, given: Floats, unit: float, wide: float, sums: Ints,
    classes: Ints,
) -> None:  # fmt: skip
    at = 0
    for i in range(n_rows(indptr, values)):
        items, row = rows.row(indptr, indices, values, i)
        for k in range(row.size):
            y = row[k]
            if y < 0:
                continue
            j = item(items, k)
            p = prediction(y, given[at])
            at += 1
            v = p * (1.0 - p)
            square = (y - p) * (y - p)
            tilt = (1.0 - 2.0 * p) * (1.0 - 2.0 * p)
            sums[j, 0] += 1
            sums[j, 1] += np.int64(np.rint(square * unit))
            sums[j, 2] += np.int64(np.rint(v * unit))
            sums[j, 3] += np.int64(np.rint(v * tilt * unit))
            sums[j, 4] += np.int64(np.rint(square / v * wide))
            sums[j, 5] += np.int64(np.rint(tilt / v * wide))
            place = (math.log(p / (1.0 - p)) + CLASS_BOUND) * (CLASSES / (2.0 * CLASS_BOUND))
            s = min(max(math.floor(place), 0), CLASSES - 1)
            classes[j, s, 0] += np.int64(np.rint((y - p) * unit))
            classes[j, s, 1] += np.int64(np.rint(v * unit))


def add_item_sums(
    data: Layout, given: Floats, unit: float, wide: float, sums: Ints, classes: Ints
) -> None:
    """Add sums over the persons who answered each item; ``given`` as of ``left_out``.

    With p the prediction and v = p (1 - p), ``sums`` (items, 6) has persons, (y - p)^2, v, v (1 -
    2p)^2 in units of ``1 / unit``, (y - p)^2 / v and (1 - 2p)^2 / v in units of ``1 / wide``, and
    ``classes`` (items, classes of p, 2) has y - p and v.
    """
    _items(*rows.arrays(data), given, unit, wide, sums, classes)


@jit
def _by_score(indptr: Any, indices: Any, values: Any, right: Ints, persons: Ints) -> int:
    m = right.shape[0]
    incomplete = 0
    for i in range(n_rows(indptr, values)):
        items, row = rows.row(indptr, indices, values, i)
        score = 0
        observed = 0
        for k in range(row.size):
            observed += row[k] >= 0
            score += row[k] == 1
        if observed < m:
            incomplete += 1
            continue
        persons[score] += 1
        for k in range(row.size):
            right[item(items, k), score] += row[k] == 1
    return incomplete


def by_score(data: Layout) -> tuple[Ints, Ints, np.int64]:
    """Right answers by item and number right, persons by number right; persons left out.

    Shapes (items, items + 1) and (items + 1,), of those who answered everything; the others are
    counted.
    """
    m = data.shape[1]
    right, persons = np.zeros((m, m + 1), dtype=np.int64), np.zeros(m + 1, dtype=np.int64)
    incomplete = _by_score(*rows.arrays(data), right, persons)
    return right, persons, np.int64(incomplete)
