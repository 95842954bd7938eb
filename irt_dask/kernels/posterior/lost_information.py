"""What abilities that are not known take away from the information on items (Louis 1982).

A person's complete-data score s(theta) has a posterior covariance; the observed information is the
complete one less the sum of these over persons.  Off the diagonal blocks of items nothing else is
there, so this is also how the estimates of different items depend on each other.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.base.exact_products import Units, bound_above
from irt_dask.kernels.posterior.expected_counts_3pl import Tables3PL
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.kernels.responses.rows import item, n_rows

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Weights below this share of the largest take no part: errors of 1e-12 are far below sampling.
_LOG_CUT = math.log(1e-13)
#: Rows of the matrix whose products are summed at a time, and its bytes.
_ROWS, _BYTES = 4096, 1 << 26
#: Products of rows up to which they are computed in two slices.  Beyond, the rounding errors of one
#: slice average out.
_FINE = 2e9


class Scores(NamedTuple):
    """Scores of items and ability by node.

    ``logit`` and ``guess`` are derivatives of log P (first) and of log(1 - P) (second) by the logit
    and the guessing parameter, (2, items, nodes); ``ability`` those of the log density by mean and
    log SD, (2, nodes).  ``column`` says where each score goes, (3, items) and (2,): -1 is nowhere.
    """

    logit: Floats
    guess: Floats
    ability: Floats
    item_column: Ints
    ability_column: Ints


def item_scores(items: Floats, nodes: Floats) -> tuple[Floats, Floats]:
    """``logit`` and ``guess`` of :class:`Scores`, of items (a, d, c)."""
    a, d, c = items
    z = np.multiply.outer(a, nodes) + d[:, None]
    e = np.exp(-np.abs(z))
    large, small = 1.0 / (1.0 + e), e / (1.0 + e)
    p, q = np.where(z >= 0.0, large, small), np.where(z >= 0.0, small, large)
    chance = c[:, None] + (1.0 - c[:, None]) * p
    by_logit = np.stack([(1.0 - c[:, None]) * p * q / chance, -p])
    by_guess = np.stack([q / chance, np.broadcast_to(-1.0 / (1.0 - c[:, None]), p.shape)])
    return by_logit, by_guess


@jit
def _fill(
    indptr: Any,
    indices: Any,
    values: Any,
    g: Tables3PL,
    s: Scores,
    weight: Floats,
    begin: int,
    unit: Floats,
    low_unit: float,
    spread: Floats,
    low: Floats,
    mean: Floats,
) -> tuple[int, int, int]:
    """Fill rows with weighted deviations of scores, and others with their weighted means.

    Deviations are whole multiples of one over ``unit``, by column; ``low`` is what is left of them,
    in multiples of that again, if it has rows.

    From person ``begin`` on, until one would not fit; returns the next person and the numbers of
    rows filled.
    """
    n = g.nodes.size
    w = np.empty(n)
    n_spread = n_mean = 0
    i = begin
    while i < n_rows(indptr, values) and n_mean < mean.shape[0]:
        items, row = rows.row(indptr, indices, values, i)
        observed = 0
        w[:] = g.prior
        for k in range(row.size):
            if row[k] >= 0:
                observed += 1
                j = item(items, k)
                w += g.wrong[j]
                if row[k] == 1:
                    w += g.gain[j]
        if observed == 0 or weight[i] == 0.0:
            i += 1
            continue
        peak = w.max()
        lo, hi = 0, n
        while w[lo] - peak <= _LOG_CUT:
            lo += 1
        while w[hi - 1] - peak <= _LOG_CUT:
            hi -= 1
        if n_spread + hi - lo > spread.shape[0]:
            break
        total = 0.0
        for q in range(lo, hi):
            w[q] = math.exp(w[q] - peak)
            total += w[q]
        average = mean[n_mean]
        average[:] = 0.0
        for q in range(lo, hi):
            share = w[q] / total
            to = spread[n_spread + q - lo]
            to[:] = 0.0
            for k in range(row.size):
                if row[k] >= 0:
                    j = item(items, k)
                    y = 1 - row[k]
                    slope = s.logit[y, j, q]
                    if s.item_column[0, j] >= 0:
                        to[s.item_column[0, j]] += slope * g.nodes[q]  # 1PL: of all items
                    if s.item_column[1, j] >= 0:
                        to[s.item_column[1, j]] = slope
                    if s.item_column[2, j] >= 0:
                        to[s.item_column[2, j]] = s.guess[y, j, q]
            for k in range(2):
                if s.ability_column[k] >= 0:
                    to[s.ability_column[k]] = s.ability[k, q]
            average += share * to
        for q in range(lo, hi):
            to = spread[n_spread + q - lo]
            root = math.sqrt(weight[i] * w[q] / total)
            for k in range(to.size):
                scaled = root * (to[k] - average[k]) * unit[k]
                to[k] = np.rint(scaled)
                if low.shape[0] > 0:
                    low[n_spread + q - lo, k] = np.rint((scaled - to[k]) * low_unit)
        average *= weight[i]
        n_spread += hi - lo
        n_mean += 1
        i += 1
    return i, n_spread, n_mean


def bounds(nodes: Floats, groups: list[Scores], size: int) -> Floats:
    """Powers of two above deviations of scores from their mean, and above means; (2, columns).

    Groups differ in their scores of ability alone.
    """
    deviation, mean = np.zeros((2, size))
    first = groups[0]
    per_item = (first.logit * nodes, first.logit, first.guess)
    for column, scores in zip(first.item_column, per_item, strict=True):
        kept = column >= 0
        np.add.at(deviation, column[kept], np.ptp(scores, axis=2).max(axis=0)[kept])
        np.add.at(mean, column[kept], np.abs(scores).max(axis=(0, 2))[kept])
    for s in groups:
        for at, scores in zip(s.ability_column, s.ability, strict=True):
            if at >= 0:
                deviation[at], mean[at] = np.ptp(scores), np.abs(scores).max()
    return bound_above(np.stack([deviation, mean]))


def units_for(n_persons: int, n_nodes: int, size: int) -> Units:
    """How the sums of :func:`sums` are counted; rows hold the nodes of one person at least."""
    rows_ = max(2 * n_nodes, min(_ROWS, _BYTES // (8 * max(size, 1))))
    return Units.of(n_persons, rows_, fine=n_persons * n_nodes * float(size) ** 2 < _FINE)


def sums(
    data: Layout,
    g: Tables3PL,
    s: Scores,
    weight: Floats,
    largest: float,
    bound: Floats,
    u: Units,
    squares: bool,
) -> list[Ints]:
    """Exact sums over persons: posterior covariances of scores and, if wanted, squares of means.

    Persons count as often as their weight, next to ``largest``, a bound; in the second sum its
    square does.  ``bound`` is that of :func:`bounds`; :func:`value` gives what these stand for.
    """
    deviation, of_mean = bound
    size = deviation.size
    spread = np.empty((u.rows, size))
    low = np.empty((u.rows if u.fine else 0, size))
    mean = np.empty((max(1, u.rows // 8), size))
    out = [np.zeros((3 if u.fine else 1, size, size), dtype=np.int64) for _ in range(1 + squares)]
    share, begin = weight / largest, 0
    while begin < data.shape[0]:
        begin, k, n = _fill(
            *rows.arrays(data), g, s, share, begin, u.unit / deviation, u.unit, spread, low, mean
        )
        out[0] += u.gram(spread[:k], low[:k] if u.fine else None)
        if squares:
            out[1] += u.gram(*u.slices(mean[:n] / of_mean))
    return out


def value(sums: list[Ints], bound: Floats, largest: float, u: Units) -> list[Floats]:
    """The real numbers that :func:`sums` stand for."""
    return [
        u.value(one) * (largest**k * np.multiply.outer(b, b))
        for k, (one, b) in enumerate(zip(sums, bound, strict=False), start=1)
    ]


def placed(matrix: Floats, column: Ints, size: int) -> Floats:
    """Rows and columns where ``column`` says; those that go to one place are added up."""
    if np.array_equal(column[:size], np.arange(size)) and (column[size:] < 0).all():
        return matrix[:size, :size]
    kept = np.flatnonzero(column >= 0)
    out = np.zeros((size, size))
    np.add.at(out, np.ix_(column[kept], column[kept]), matrix[np.ix_(kept, kept)])
    return out
