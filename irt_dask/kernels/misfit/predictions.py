"""Residuals of responses for fit statistics (1PL, 2PL, 3PL): on a grid of standardised ability.

A response is predicted from the person's *other* responses: with posterior weights w of all
responses and the likelihood L of this one, ``P(response | others) = sum w / sum (w / L)``.  Given
the others the response is Bernoulli with this probability, so that squared residuals have the
expectation and variance of one exactly, with ability integrated out.  (With an estimate of ability
in its place, which the response itself helped to make, they do not.)
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.kernels.responses.rows import item, n_rows

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Predictions nearer to 0 or 1 count as this: it bounds what one response can add to a sum.
CERTAIN = 1e-6
#: Classes of predictions, even on the logit scale between these bounds.
CLASSES, CLASS_BOUND = 32, 4.0


class Curves(NamedTuple):
    """Items (a, d, c) of standardised ability, and their logarithms of P and 1 - P by node."""

    a: Floats
    d: Floats
    c: Floats
    nodes: Floats
    prior: Floats  # log N(0, 1), without its constant
    log_right: Floats  # (items, nodes)
    log_wrong: Floats

    @property
    def nbytes(self) -> int:
        """Memory held, bytes."""
        return sum(x.nbytes for x in self)


def curves(a: Floats, d: Floats, c: Floats, nodes: Floats) -> Curves:
    """Tables of items and grid."""
    z = np.multiply.outer(a, nodes) + d[:, None]
    log_wrong = np.log1p(-c)[:, None] - np.logaddexp(0.0, z)
    with np.errstate(divide="ignore"):  # log 0: nobody guesses
        chance = np.log(c)[:, None]
    log_right = np.logaddexp(chance, np.log1p(-c)[:, None] - np.logaddexp(0.0, -z))
    return Curves(a, d, c, nodes, -0.5 * nodes**2, log_right, log_wrong)


@jit
def weigh(items: Any, row: NDArray[np.int8], g: Curves, w: Floats) -> tuple[float, int]:
    """Posterior weights relative to the largest, at all nodes; their sum, and the largest's node.

    All nodes count: one that the posterior all but rules out may matter once a surprising response
    is left out.
    """
    for q in range(w.size):
        w[q] = g.prior[q]
    for k in range(row.size):
        if row[k] == 1:
            right = g.log_right[item(items, k)]
            for q in range(w.size):
                w[q] += right[q]
        elif row[k] == 0:
            wrong = g.log_wrong[item(items, k)]
            for q in range(w.size):
                w[q] += wrong[q]
    top = 0
    for q in range(w.size):
        if w[q] > w[top]:
            top = q
    peak = w[top]
    total = 0.0
    for q in range(w.size):
        w[q] = math.exp(w[q] - peak)
        total += w[q]
    return total, top


@jit
def _moments(
    indptr: Any, indices: Any, values: Any, g: Curves, mean: Floats, square: Floats
) -> None:
    w = np.empty(g.nodes.size)
    for i in range(n_rows(indptr, values)):
        items, row = rows.row(indptr, indices, values, i)
        total, _ = weigh(items, row, g, w)
        m1 = 0.0
        m2 = 0.0
        for q in range(w.size):
            m1 += w[q] * g.nodes[q]
            m2 += w[q] * g.nodes[q] * g.nodes[q]
        mean[i] = m1 / total
        square[i] = m2 / total


def moments(data: Layout, g: Curves) -> tuple[Floats, Floats]:
    """Posterior means of ability and of its square, one a person."""
    mean, square = np.empty((2, data.shape[0]))
    _moments(*rows.arrays(data), g, mean, square)
    return mean, square


@jit
def prediction(y: int, table: Floats, w: Floats, total: float) -> float:
    """P(right) given the other responses; ``table`` is the log likelihood of this one."""
    others = 0.0
    for q in range(w.size):
        others += w[q] * table[q]
    p = total / others
    if y == 0:
        p = 1.0 - p
    return min(max(p, CERTAIN), 1.0 - CERTAIN)


@jit
def _items(
    indptr: Any,
    indices: Any,
    values: Any,
    g: Curves,
    inverse_right: Floats,
    inverse_wrong: Floats,
    unit: float,
    wide: float,
    sums: Ints,
    classes: Ints,
) -> None:
    w = np.empty(g.nodes.size)
    for i in range(n_rows(indptr, values)):
        items, row = rows.row(indptr, indices, values, i)
        total, _ = weigh(items, row, g, w)
        for k in range(row.size):
            y = row[k]
            if y < 0:
                continue
            j = item(items, k)
            table = inverse_right[j] if y == 1 else inverse_wrong[j]
            p = prediction(y, table, w, total)
            v = p * (1.0 - p)
            square = (y - p) * (y - p)
            tilt = (1.0 - 2.0 * p) * (1.0 - 2.0 * p)
            sums[0, j] += 1
            sums[1, j] += np.int64(np.rint(square * unit))
            sums[2, j] += np.int64(np.rint(v * unit))
            sums[3, j] += np.int64(np.rint(v * tilt * unit))
            sums[4, j] += np.int64(np.rint(square / v * wide))
            sums[5, j] += np.int64(np.rint(tilt / v * wide))
            place = (math.log(p / (1.0 - p)) + CLASS_BOUND) * (CLASSES / (2.0 * CLASS_BOUND))
            s = min(max(math.floor(place), 0), CLASSES - 1)
            classes[0, j, s] += np.int64(np.rint((y - p) * unit))
            classes[1, j, s] += np.int64(np.rint(v * unit))


def item_sums(data: Layout, g: Curves, unit: float, wide: float) -> tuple[Ints, Ints]:
    """Sums over the persons who answered each item, p their prediction and v = p (1 - p).

    Shape (6, items): persons, (y - p)^2, v, v (1 - 2p)^2 in units of ``1 / unit``, (y - p)^2 / v
    and (1 - 2p)^2 / v in units of ``1 / wide``; and (2, items, classes of p): y - p and v.
    """
    m = data.shape[1]
    sums = np.zeros((6, m), dtype=np.int64)
    classes = np.zeros((2, m, CLASSES), dtype=np.int64)
    inverse = np.exp(-g.log_right), np.exp(-g.log_wrong)
    _items(*rows.arrays(data), g, *inverse, unit, wide, sums, classes)
    return sums, classes


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
