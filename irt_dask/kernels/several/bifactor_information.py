"""What unknown abilities take away from the information on items of a bifactor model (Louis 1982).

It is the sum over persons of posterior covariances of their scores, the derivatives of log
probabilities by slopes and intercepts: within each block those given the general ability, and over
all blocks those of the means that scores have given it.  Both are sums of squares of rows, one a
node, whose factors are rounded to whole multiples of a unit: exact in any order of persons.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.base.exact_products import Units, bound_above
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.kernels.several.bifactor_posterior import NO_WEIGHT, Planes, Room, read, room, weigh

#: Weights below this share take no part.
_CUT = 1e-12
#: Rows whose products are summed at a time, and their bytes.
_ROWS, _BYTES = 4096, 1 << 25
#: Products of rows up to which they are computed in two slices.  Beyond, the rounding errors of one
#: slice average out.
_FINE = 2e9


class Lost(NamedTuple):
    """Whole numbers: sums over persons, in the order of ``planes.order``, three numbers an item."""

    between: Ints  # covariances of means given the general ability, slices of (3 items, 3 items)
    within: tuple[Ints, ...]  # by block, the covariances about these
    squares: Ints  # means, of squared weights, as ``between``; of no size if not wanted

    def plus(self, other: Lost) -> Lost:
        """These persons and others."""
        within = tuple(a + b for a, b in zip(self.within, other.within, strict=True))
        return Lost(self.between + other.between, within, self.squares + other.squares)

    def times(self, k: int) -> Lost:
        """Every person k times."""
        return Lost(k * self.between, tuple(k * w for w in self.within), k * self.squares)


def _bounds(g: Planes) -> Floats:
    """Powers of two above deviations of scores by a, s and d, (3,): abilities times residuals."""
    x, z = float(np.abs(g.nodes).max()), float(np.abs(g.block_nodes).max())
    return bound_above(2.0 * np.array([x, z, 1.0]))


def shares(g: Planes) -> Floats:
    """Probability of a 1 on each item at pairs of nodes, in their order, (items, n, k)."""
    out = np.empty((g.order.size, g.nodes.size, g.block_nodes.size))
    _shares(g, out)
    return out


@jit
def _shares(g: Planes, out: Floats) -> None:
    for i in range(g.order.size):
        j = g.order[i]
        for p in range(g.nodes.size):
            at = g.slopes[0, j] * g.nodes[p] + g.slopes[2, j]
            for q in range(g.block_nodes.size):
                logit = at + g.slopes[1, j] * g.block_nodes[q]
                e = math.exp(-abs(logit))
                out[i, p, q] = (1.0 if logit >= 0.0 else e) / (1.0 + e)


def units_for(n_persons: int, g: Planes, parameters: int) -> Units:
    """How the sums are counted; rows hold the general nodes of a person, and a row of a block."""
    n, k = g.nodes.size, g.block_nodes.size
    fit = max(n, k, min(_ROWS, _BYTES // (8 * max(parameters, 1))))
    fine = float(n_persons) * n * float(parameters) ** 2 < _FINE
    return Units.of(n_persons, fit, fine=fine)


@jit
def _means_given(
    g: Planes, right: Floats, r: Room, b: int, i: int, p: int, to: Floats
) -> None:  # fmt: skip
    """Mean score of the item at place i, of block b, given the general ability at node p, (3,)."""
    y, some, one, z = float(r.y[g.order[i]]), 0.0, 0.0, 0.0
    for q in range(r.low[b], r.high[b]):
        own = r.w[b, p, q] * (y - right[i, p, q])
        one += own
        z += own * g.block_nodes[q]
        some += r.w[b, p, q]
    to[0], to[1], to[2] = g.nodes[p] * one / some, z / some, one / some


@jit
def _person(
    indptr: Any, indices: Any, values: Any, i: int, g: Planes, r: Room
) -> tuple[int, int]:  # fmt: skip
    """General nodes that have weight; none of somebody without answers."""
    items, row = rows.row(indptr, indices, values, i)
    if read(items, row, g, r) == 0:
        return 0, 0
    p0, p1, _ = weigh(g, r, NO_WEIGHT)
    while r.log[p0] <= _CUT:
        p0 += 1
    while r.log[p1 - 1] <= _CUT:
        p1 -= 1
    return p0, p1


@jit
def _rounded(row: Floats, low: Floats, unit: float) -> None:
    """A row as whole numbers, and what they leave in units of its own, if that has room."""
    for c in range(row.size):
        scaled = row[c] * unit
        row[c] = np.rint(scaled)
        if low.size > 0:
            low[c] = np.rint((scaled - row[c]) * unit)


@jit
def _between(
    indptr: Any, indices: Any, values: Any, who: Ints, weight: Floats, g: Planes, right: Floats,
    begin: int, bound: Floats, unit: float, spread: Floats, low: Floats, mean: Floats,
) -> tuple[int, int, int]:  # fmt: skip
    """Fill rows with deviations of means given the general ability, others with means of these."""
    r, n_spread, n_mean, of_item = room(g), 0, 0, np.empty(3)
    for w in range(begin, who.size):
        i = who[w]
        if weight[i] == 0.0:
            continue
        p0, p1 = _person(indptr, indices, values, i, g, r)
        if p1 == 0:
            continue
        if n_spread + p1 - p0 > spread.shape[0] or n_mean == mean.shape[0]:
            return w, n_spread, n_mean
        average = mean[n_mean]
        average[:] = 0.0
        sum_w = r.log[p0:p1].sum()
        for p in range(p0, p1):
            to = spread[n_spread + p - p0]
            to[:] = 0.0
            for b in range(r.n.size):
                for k in range(g.first[b], g.first[b + 1]):
                    if r.y[g.order[k]] >= 0:
                        _means_given(g, right, r, b, k, p, of_item)
                        for c in range(3):
                            to[3 * k + c] = of_item[c] / bound[c]
            average += r.log[p] / sum_w * to
        for p in range(p0, p1):
            to = spread[n_spread + p - p0]
            to -= average
            to *= math.sqrt(weight[i] * r.log[p] / sum_w)
            _rounded(to, low[n_spread + p - p0 if low.shape[0] > 0 else 0], unit)
        average *= weight[i]
        n_spread += p1 - p0
        n_mean += 1
    return who.size, n_spread, n_mean


@jit
def _within(
    indptr: Any, indices: Any, values: Any, who: Ints, weight: Floats, g: Planes, right: Floats,
    b: int, begin: int, node: int, bound: Floats, unit: float, spread: Floats, low: Floats,
) -> tuple[int, int, int]:  # fmt: skip
    """Fill rows with deviations of a block's scores from their means given the general ability.

    From general node ``node`` of the person at ``begin`` on; returns where to go on, and the number
    of rows filled.
    """
    r, n, of_item = room(g), 0, np.empty(3)
    first, last = g.first[b], g.first[b + 1]
    for w in range(begin, who.size):
        i = who[w]
        if weight[i] == 0.0:
            continue
        p0, p1 = _person(indptr, indices, values, i, g, r)
        if p1 == 0 or r.n[b] == 0:
            continue
        for p in range(max(p0, node if w == begin else 0), p1):
            if n + r.high[b] - r.low[b] > spread.shape[0]:
                return w, p, n
            some = r.w[b, p, r.low[b] : r.high[b]].sum()
            begun = n
            for q in range(r.low[b], r.high[b]):
                share = r.log[p] * r.w[b, p, q] / some
                if share <= _CUT:
                    continue
                root = math.sqrt(weight[i] * share)
                to = spread[n]
                for k in range(first, last):
                    y, at = r.y[g.order[k]], 3 * (k - first)
                    left = float(y) - right[k, p, q] if y >= 0 else 0.0
                    to[at] = root * (left * g.nodes[p] / bound[0])
                    to[at + 1] = root * (left * g.block_nodes[q] / bound[1])
                    to[at + 2] = root * (left / bound[2])
                n += 1
            _about_means(g, right, r, b, p, weight[i], spread[begun:n], bound, of_item)
            for row in range(begun, n):
                _rounded(spread[row], low[row if low.shape[0] > 0 else 0], unit)
    return who.size, 0, n


@jit
def _about_means(
    g: Planes, right: Floats, r: Room, b: int, p: int, weight: float, some: Floats, bound: Floats,
    of_item: Floats,
) -> None:  # fmt: skip
    """Take the means given the general ability at node p off rows of a person, in their order."""
    total, first = r.w[b, p, r.low[b] : r.high[b]].sum(), g.first[b]
    for k in range(first, g.first[b + 1]):
        if r.y[g.order[k]] < 0:
            continue
        _means_given(g, right, r, b, k, p, of_item)
        row = 0
        for q in range(r.low[b], r.high[b]):
            share = r.log[p] * r.w[b, p, q] / total
            if share > _CUT:
                root = math.sqrt(weight * share)
                for c in range(3):
                    some[row, 3 * (k - first) + c] -= root * of_item[c] / bound[c]
                row += 1


def lost(
    data: Layout, who: Ints, g: Planes, right: Floats, weight: Floats, u: Units, squares: bool
) -> Lost:
    """Sums over the persons ``who``; ``weight`` (persons of the block,) is at most 1.

    ``right`` are :func:`shares`.  A person costs some n k (3 items of a block)^2 products in each
    block, n and k the nodes that have weight.
    """
    arrays, bound = rows.arrays(data), _bounds(g)
    size, n_rows = 3 * g.order.size, max(u.rows, g.nodes.size)
    spread, mean = np.empty((n_rows, size)), np.empty((max(1, n_rows // 8), size))
    low = np.empty((n_rows if u.fine else 1, size if u.fine else 0))
    nothing = [np.zeros((3 if u.fine else 1, m, m), dtype=np.int64) for m in
               (size, *(3 * np.diff(g.first)), size if squares else 0)]  # fmt: skip
    between, within, of_means = nothing[0], nothing[1:-1], nothing[-1]
    begin = 0
    while begin < who.size:
        begin, n, n_mean = _between(
            *arrays, who, weight, g, right, begin, bound, u.unit, spread, low, mean
        )
        between += u.gram(spread[:n], low[:n] if u.fine else None)
        if squares:
            of_means += u.gram(*u.slices(mean[:n_mean]))
    for b, out in enumerate(within):
        own = out.shape[1]
        if own == 0:
            continue
        spread = np.empty((max(n_rows, g.block_nodes.size), own))
        low = np.empty((len(spread) if u.fine else 1, own if u.fine else 0))
        begin, node = 0, 0
        while begin < who.size:
            begin, node, n = _within(
                *arrays, who, weight, g, right, b, begin, node, bound, u.unit, spread, low
            )
            out += u.gram(spread[:n], low[:n] if u.fine else None)
    return Lost(between, tuple(within), of_means)


def value(sums: Lost, g: Planes, largest: float, u: Units) -> tuple[Floats, Floats]:
    """Lost information and sums of squares of means, (3 items, 3 items), a, s, d of each item.

    ``largest`` is what weights were divided by.
    """
    bound = np.tile(_bounds(g), g.order.size)
    units = np.multiply.outer(bound, bound)
    out = u.value(sums.between) * units
    for b, own in enumerate(sums.within):
        at = slice(3 * g.first[b], 3 * g.first[b + 1])
        out[at, at] += u.value(own) * units[at, at]
    of_means = u.value(sums.squares)
    if of_means.size:
        of_means = of_means * units * largest**2
    return _in_order(out * largest, g.order), _in_order(of_means, g.order)


def _in_order(matrix: Floats, order: Ints) -> Floats:
    """Items as they were, in place of block by block."""
    if not matrix.size:
        return matrix
    at = (3 * np.argsort(order)[:, None] + np.arange(3)).ravel()
    return matrix[np.ix_(at, at)]
