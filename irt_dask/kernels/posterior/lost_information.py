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

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.base.exact_products import Units, bound_above
from irt_dask.kernels.base.lanes import total
from irt_dask.kernels.posterior.person_weights import (
    Chosen,
    Prior,
    Shared,
    Some,
    gather,
    some,
    weigh,
)
from irt_dask.kernels.posterior.tables import Tables
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Layout

#: Weights below this share of the largest take no part: standard errors change by 1e-11.
CUT = 1e-12
#: Rows of the matrix whose products are summed at a time, and its bytes.
_ROWS, _BYTES = 4096, 1 << 26
#: Numbers that sums by set of items take, at most.
_OF_SETS = 1 << 22
#: Products of rows up to which they are computed in two slices.  Beyond, the rounding errors of one
#: slice average out.
_FINE = 2e9


class Scores(NamedTuple):
    """Derivatives of log probabilities by the parameters, by node.

    ``lowest`` are those of the lowest category of each item, (nodes, items, parameters), ``gain``
    those of the higher ones less these, (nodes, rows, parameters); ``ability`` those of the log
    density by mean and log SD, (groups, 2, nodes).  Columns say where each score goes: -1 is
    nowhere.  ``bound`` are powers of two above deviations of scores from their mean, and above
    means, (2, columns).
    """

    lowest: Floats
    gain: Floats
    ability: Floats
    item_column: Ints  # (items, parameters)
    row_column: Ints  # (rows, parameters)
    ability_column: Ints  # (groups, 2)
    bound: Floats


def scores(
    by_parameter: Floats, first: Ints, ability: Floats, column: Ints, of_ability: Ints
) -> Scores:
    """Scores of items with derivatives (parameters, rows, nodes); item j has rows from first[j].

    ``column`` says where those of the items go, (parameters, items), ``of_ability`` those of
    ability, (2, groups).
    """
    n_categories = np.diff(first)
    of_row = np.repeat(column, n_categories, axis=1)
    used = np.where((of_row >= 0)[:, :, None], by_parameter, 0.0)
    deviation, mean = np.zeros((2, 1 + int(max(column.max(), of_ability.max()))))
    of_items = [np.maximum.reduceat(v, first[:-1], axis=1) for v in
                (np.ptp(used, axis=2), np.abs(used).max(axis=2))]  # fmt: skip
    of_groups = [np.ptp(ability, axis=2).T, np.abs(ability).max(axis=2).T]
    for at, (spread, largest) in ((column, of_items), (of_ability, of_groups)):
        np.add.at(deviation, at[at >= 0], spread[at >= 0])
        np.add.at(mean, at[at >= 0], largest[at >= 0])
    lowest = used[:, first[:-1]]
    higher = np.delete(np.arange(first[-1]), first[:-1])
    of_item = np.repeat(np.arange(n_categories.size), n_categories - 1)
    gain = used[:, higher] - lowest[:, of_item]
    return Scores(
        np.ascontiguousarray(lowest.T), np.ascontiguousarray(gain.T), ability,
        np.ascontiguousarray(column.T), np.ascontiguousarray(column.T[of_item]),
        np.ascontiguousarray(of_ability.T), bound_above(np.stack([deviation, mean])),
    )  # fmt: skip


@jit
def _add(at: Floats, which: NDArray[np.int32], column: Ints, to: Floats) -> None:
    for j in which:
        for k in range(at.shape[1]):
            if column[j, k] >= 0:
                to[column[j, k]] += at[j, k]  # items may share a column


@jit
def _of_sets(observed: Bools, s: Scores, out: Floats) -> None:
    """Sums of the lowest categories of sets of items, (sets, nodes, columns)."""
    for k in range(observed.shape[0]):
        items = np.flatnonzero(observed[k]).astype(np.int32)
        for q in range(out.shape[1]):
            _add(s.lowest[q], items, s.item_column, out[k, q])


def sums_of_sets(observed: Bools, s: Scores, n_nodes: int) -> Floats:
    """Those sums of the first sets, as many as there is room for."""
    size = s.bound.shape[1]
    n_sets = min(len(observed), _OF_SETS // (n_nodes * size))
    out = np.zeros((n_sets, n_nodes, size))
    _of_sets(observed[:n_sets], s, out)
    return out


@jit
def at_node(
    q: int, c: Some, r: int, number: int, group: int, s: Scores, of_sets: Floats, to: Floats
) -> None:
    """Scores of the person in row r at node q, (columns,); ``of_sets`` knows some sets' part."""
    if 0 <= number < of_sets.shape[0]:
        to[:] = of_sets[number, q]
    else:
        to[:] = 0.0
        _add(s.lowest[q], c.items[r, : c.n[r]], s.item_column, to)
    _add(s.gain[q], c.higher[r, : c.n_higher[r]], s.row_column, to)
    for k in range(2):
        if s.ability_column[group, k] >= 0:
            to[s.ability_column[group, k]] = s.ability[group, k, q]


# Loops in place of expressions of arrays, each of which would make an array of its own.
@jit
def _gathered(average: Floats, share: float, to: Floats) -> None:
    for k in range(to.size):
        average[k] += share * to[k]


@jit
def _rounded(to: Floats, average: Floats, root: float, unit: Floats) -> None:
    """Deviations from the average, whole numbers of units."""
    for k in range(to.size):
        to[k] = np.rint(root * (to[k] - average[k]) * unit[k])


@jit
def _sliced(
    to: Floats, average: Floats, root: float, unit: Floats, low: Floats, low_unit: float
) -> None:
    """The same, and what the whole numbers leave in units of its own."""
    for k in range(to.size):
        scaled = root * (to[k] - average[k]) * unit[k]
        to[k] = np.rint(scaled)
        low[k] = np.rint((scaled - to[k]) * low_unit)


@jit
def _fill(
    indptr: Any, indices: Any, values: Any, g: Any, shared: Shared, p: Prior, who: Chosen, c: Some,
    s: Scores, of_sets: Floats, weight: Floats, begin: int, unit: Floats, low_unit: float,
    spread: Floats, low: Floats, mean: Floats,
) -> tuple[int, int, int]:  # fmt: skip
    """Fill rows with weighted deviations of scores, and others with their weighted means.

    Deviations are whole multiples of one over ``unit``, by column; ``low`` is what is left of them,
    in multiples of that again, if it has rows.

    From the chosen person ``begin`` on, until one would not fit; returns the next one and the
    numbers of rows filled.
    """
    n_spread = n_mean = 0
    while begin < who.who.size:
        count = gather(indptr, indices, values, g, shared, p, who, begin, c)
        weigh(c, count)
        for r in range(count):
            i, lo, hi = c.person[r], c.lo[r], c.hi[r]
            if c.n[r] == 0 or weight[i] == 0.0:
                continue
            w = c.w[r]
            while w[lo] <= CUT:
                lo += 1
            while w[hi - 1] <= CUT:
                hi -= 1
            if n_spread + hi - lo > spread.shape[0] or n_mean == mean.shape[0]:
                return begin + r, n_spread, n_mean
            sum_w = total(w[c.lo[r] : c.hi[r]])
            group = p.group[i] if p.group.size > 0 else 0
            average = mean[n_mean]
            average[:] = 0.0
            number = shared.number[i]
            for q in range(lo, hi):
                to = spread[n_spread + q - lo]
                at_node(q, c, r, number, group, s, of_sets, to)
                _gathered(average, w[q] / sum_w, to)
            for q in range(lo, hi):
                to = spread[n_spread + q - lo]
                root = math.sqrt(weight[i] * w[q] / sum_w)
                if low.shape[0] > 0:
                    _sliced(to, average, root, unit, low[n_spread + q - lo], low_unit)
                else:
                    _rounded(to, average, root, unit)
            average *= weight[i]
            n_spread += hi - lo
            n_mean += 1
        begin += count
    return begin, n_spread, n_mean


def units_for(n_persons: int, n_nodes: int, size: int) -> Units:
    """How the sums of :func:`sums` are counted; rows hold the nodes of one person at least."""
    rows_ = max(2 * n_nodes, min(_ROWS, _BYTES // (8 * max(size, 1))))
    return Units.of(n_persons, rows_, fine=n_persons * n_nodes * float(size) ** 2 < _FINE)


def sums(
    data: Layout, g: Tables, shared: Shared, observed: Bools, p: Prior, who: Ints, s: Scores,
    weight: Floats, largest: float, u: Units, squares: bool,
) -> list[Ints]:  # fmt: skip
    """Exact sums over persons: posterior covariances of scores and, if wanted, squares of means.

    Of the persons ``who``, at least one.  They count as often as their weight, next to ``largest``,
    a bound; in the second sum its square does.  ``observed`` are the items of the sets that
    ``shared`` numbers.  :func:`value` gives what these stand for.
    """
    deviation, of_mean = s.bound
    size, of_sets = deviation.size, sums_of_sets(observed, s, g.nodes.size)
    spread = np.empty((u.rows, size))
    low = np.empty((u.rows if u.fine else 0, size))
    mean = np.empty((max(1, u.rows // 8), size))
    out = [np.zeros((3 if u.fine else 1, size, size), dtype=np.int64) for _ in range(1 + squares)]
    arrays, chosen = rows.arrays(data), Chosen(who, np.empty(0))
    room, share, begin = some(who.size, data.shape[1], g.nodes.size), weight / largest, 0
    while begin < who.size:
        begin, k, n = _fill(
            *arrays, g, shared, p, chosen, room, s, of_sets, share, begin, u.unit / deviation,
            u.unit, spread, low, mean,
        )  # fmt: skip
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
