"""Posterior of a general ability and one ability for each block of items (bifactor).

Answers to an item depend on the general ability x and on that of the item's block, z_b, all of them
independent N(0, 1) before the data.  Given x the abilities of blocks are independent, so that

    P(y) = int phi(x) prod_b [ int phi(z) P(y_b | x, z) dz ] dx

(Gibbons and Hedeker 1992): sums over planes of (general node, node of the block), one a block,
however many blocks there are.  Rows of a plane that have weight, and columns of each block that
have any in these rows, are found at every ``STRIDE``-th node first; the others are left out.

A person who answered all items of a block, or none, needs no table of items: logs of 1 + e^logit
are then summed once for all such persons.  Where some items of a block were answered, tables of
those that were, or of those that were not, whichever are fewer, are added or taken off.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irt_dask.arrays import Floats, Ints
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.base.exponential import LOG_NEGLIGIBLE
from irt_dask.kernels.posterior.person_weights import normal
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.kernels.responses.rows import item, n_rows

#: Nodes looked at first.  The spacing is at most 3/4 of a posterior SD, so this is three of them.
STRIDE = 4
#: What lies further below the largest at these nodes has no weight: sums over z at distances of
#: three SDs are off by a quarter at most in each block.
NO_WEIGHT = LOG_NEGLIGIBLE - 8.0


class Planes(NamedTuple):
    """What depends on the items and the grid but on no person."""

    slopes: Floats  # (3, items): on the general ability, on the block's, and the intercept
    order: Ints  # items, block by block
    first: Ints  # where blocks begin among these, (blocks + 1,)
    nodes: Floats  # of the general ability, (n,)
    block_nodes: Floats  # of the others, (k,)
    prior: Floats  # log masses at the nodes, (n,)
    block_prior: Floats  # (k,)
    whole: Floats  # block_prior less all log(1 + e^logit) of a block's items, (blocks, n, k)
    row: Ints  # row of an item in the table below, -1 for none
    wrong: Floats  # -log(1 + e^logit), (rows, n, k), of blocks that some answered in part

    @property
    def nbytes(self) -> int:
        """Memory held, bytes."""
        return sum(x.nbytes for x in self)


class Room(NamedTuple):
    """What is found of a person."""

    y: NDArray[np.int8]  # responses, (items,)
    sums: Floats  # of slopes and intercepts of the items with answer 1, (blocks, 3)
    n: Ints  # answers in each block
    coarse: Floats  # (blocks, few nodes, few block nodes)
    w: Floats  # of block nodes given a general node, the largest 1, (blocks, n, k)
    total: Floats  # their sums, (blocks, n)
    log: Floats  # log weights of general nodes, then weights that sum to 1, (n,)
    low: Ints  # first column of each block that has weight
    high: Ints  # and the one after the last
    mean: Floats  # of the block abilities


@jit
def room(g: Planes) -> Room:
    """Room for what is found of a person."""
    b, n, k = g.first.size - 1, g.nodes.size, g.block_nodes.size
    few, some = (n - 1) // STRIDE + 1, (k - 1) // STRIDE + 1
    return Room(
        np.empty(g.order.size, np.int8), np.empty((b, 3)), np.empty(b, np.int64),
        np.empty((b, few, some)), np.empty((b, n, k)), np.empty((b, n)), np.empty(n),
        np.empty(b, np.int64), np.empty(b, np.int64), np.empty(b),
    )  # fmt: skip


@jit
def log_wrong(z: float) -> float:
    """``-log(1 + e^z)``."""
    return -(max(z, 0.0) + math.log1p(math.exp(-abs(z))))


@jit
def _fill_tables(g: Planes) -> None:
    for b in range(g.first.size - 1):
        for p in range(g.nodes.size):
            to = g.whole[b, p]
            to[:] = g.block_prior
            for j in g.order[g.first[b] : g.first[b + 1]]:
                a, s, d = g.slopes[0, j], g.slopes[1, j], g.slopes[2, j]
                at, row = a * g.nodes[p] + d, g.row[j]
                for q in range(to.size):
                    value = log_wrong(at + s * g.block_nodes[q])
                    to[q] += value
                    if row >= 0:
                        g.wrong[row, p, q] = value


def planes(
    slopes: Floats, order: Ints, first: Ints, row: Ints, nodes: Floats, block_nodes: Floats
) -> Planes:
    """Tables of items (3, items) on grids; ``row`` says which have tables of their own."""
    size = nodes.size, block_nodes.size
    whole, wrong = np.empty((first.size - 1, *size)), np.empty((int(row.max()) + 1, *size))
    prior, block_prior = (normal(x)[0] for x in (nodes, block_nodes))
    g = Planes(
        slopes, order, first, nodes, block_nodes, prior, block_prior, whole, row, wrong
    )  # fmt: skip
    _fill_tables(g)
    return g


# --- one person -----------------------------------------------------------------------------------


@jit
def read(items: Any, row: Any, g: Planes, r: Room) -> int:
    """Take a person's responses, and sums of them by block; the number of responses."""
    r.y[:] = -1
    for k in range(row.size):
        r.y[item(items, k)] = row[k]
    r.sums[:], r.n[:] = 0.0, 0
    for b in range(r.n.size):
        for j in g.order[g.first[b] : g.first[b + 1]]:
            r.n[b] += r.y[j] >= 0
            if r.y[j] == 1:
                for c in range(3):
                    r.sums[b, c] += g.slopes[c, j]
    return r.n.sum()


@jit
def _fill(g: Planes, r: Room, b: int, at: Any, w: Floats) -> None:
    """Log weights of a block's plane; ``at``: rows and columns from and to, distance of nodes."""
    p0, p1, q0, q1, stride = at
    items = g.order[g.first[b] : g.first[b + 1]]
    by_whole = 2 * r.n[b] > items.size
    for p in range(p0, p1):
        to, x = w[p], r.sums[b, 0] * g.nodes[p * stride]
        base = g.whole[b, p * stride] if by_whole else g.block_prior
        for q in range(q0, q1):
            to[q] = base[q * stride] + (x + r.sums[b, 1] * g.block_nodes[q * stride])
    if r.n[b] == items.size:
        return
    sign = -1.0 if by_whole else 1.0
    for j in items:
        if (r.y[j] < 0) == by_whole:
            table = g.wrong[g.row[j]]
            for p in range(p0, p1):
                to, add = w[p], table[p * stride]
                for q in range(q0, q1):
                    to[q] += sign * add[q * stride]


@jit
def _sum_row(w: Floats, q0: int, q1: int) -> tuple[float, float]:
    """Replace log weights by weights next to the largest; that one's log, and the sum."""
    peak = w[q0]
    for q in range(q0, q1):
        peak = max(peak, w[q])
    total = 0.0
    for q in range(q0, q1):
        w[q] = math.exp(w[q] - peak)
        total += w[q]
    return peak, total


@jit
def _window(g: Planes, r: Room, cut: float) -> tuple[int, int]:
    """Rows that have weight, and the end; fills in the columns of blocks."""
    few, some = r.coarse.shape[1], r.coarse.shape[2]
    log = np.empty(few)
    for p in range(few):
        log[p] = g.prior[p * STRIDE]
    for b in range(r.n.size):
        if r.n[b] > 0:
            _fill(g, r, b, (0, few, 0, some, STRIDE), r.coarse[b])
            for p in range(few):
                peak, total = _sum_row(r.coarse[b, p], 0, some)
                log[p] += peak + math.log(total)
    peak, lo, hi, least = log.max(), few, -1, math.exp(cut)
    for p in range(few):
        if log[p] - peak > cut:
            lo, hi = min(lo, p), max(hi, p)
    # Up to the nodes around that are known to have none.
    lo, hi = max(lo - 1, 0), min(hi + 1, few - 1)
    for b in range(r.n.size):
        first, last = some, -1
        for p in range(lo, hi + 1):
            for q in range(some):
                if r.n[b] > 0 and r.coarse[b, p, q] > least:
                    first, last = min(first, q), max(last, q)
        r.low[b] = max(0, (first - 1) * STRIDE)
        r.high[b] = min(g.block_nodes.size, (last + 1) * STRIDE + 1)
    return lo * STRIDE, min(g.nodes.size, hi * STRIDE + STRIDE + 1)


@jit
def weigh(g: Planes, r: Room, cut: float) -> tuple[int, int, float]:
    """Weights of general nodes, and in each block those of its nodes given them.

    What lies further below the largest than ``cut``, a logarithm, is left out.  Returns the first
    general node with weight, the end, and the log marginal likelihood.
    """
    p0, p1 = _window(g, r, cut)
    value = 0.0
    for p in range(p0, p1):
        r.log[p] = g.prior[p]
    for b in range(r.n.size):
        if r.n[b] == 0:
            continue
        value += r.sums[b, 2]
        _fill(g, r, b, (p0, p1, r.low[b], r.high[b], 1), r.w[b])
        for p in range(p0, p1):
            peak, r.total[b, p] = _sum_row(r.w[b, p], r.low[b], r.high[b])
            r.log[p] += peak + math.log(r.total[b, p])
    peak, total = _sum_row(r.log, p0, p1)
    for p in range(p0, p1):
        r.log[p] /= total
    return p0, p1, value + peak + math.log(total)


@jit
def means(g: Planes, r: Room, p0: int, p1: int) -> float:
    """Fill in the means of block abilities; that of the general one."""
    mean = 0.0
    for p in range(p0, p1):
        mean += r.log[p] * g.nodes[p]
    for b in range(r.n.size):
        r.mean[b] = 0.0
        for p in range(p0, p1):
            own = 0.0
            if r.n[b] > 0:
                for q in range(r.low[b], r.high[b]):
                    own += r.w[b, p, q] * g.block_nodes[q]
                r.mean[b] += r.log[p] * own / r.total[b, p]
    return mean


# --- moments --------------------------------------------------------------------------------------


@jit
def _moments(
    indptr: Any, indices: Any, values: Any, g: Planes, mean: Floats, variance: Floats,
    log_marginal: Floats,
) -> None:  # fmt: skip
    r = room(g)
    for i in range(n_rows(indptr, values)):
        items, row = rows.row(indptr, indices, values, i)
        mean[i], variance[i], log_marginal[i] = 0.0, 1.0, 0.0
        if read(items, row, g, r) == 0:
            continue
        p0, p1, log_marginal[i] = weigh(g, r, NO_WEIGHT)
        mean[i, 0] = means(g, r, p0, p1)
        variance[i, 0] = 0.0
        for p in range(p0, p1):
            variance[i, 0] += r.log[p] * (g.nodes[p] - mean[i, 0]) ** 2
        for b in range(r.n.size):
            mean[i, b + 1] = r.mean[b]
            if r.n[b] == 0:
                continue
            variance[i, b + 1] = 0.0
            for p in range(p0, p1):
                own = 0.0
                for q in range(r.low[b], r.high[b]):
                    own += r.w[b, p, q] * (g.block_nodes[q] - r.mean[b]) ** 2
                variance[i, b + 1] += r.log[p] * own / r.total[b, p]


def moments(data: Layout, g: Planes) -> tuple[Floats, Floats, Floats]:
    """Means and variances (persons, 1 + blocks), of the general ability first; log marginals.

    Who answered nothing has the prior's.
    """
    n, b = data.shape[0], g.first.size
    mean, variance, value = np.empty((n, b)), np.empty((n, b)), np.empty(n)
    _moments(*rows.arrays(data), g, mean, variance, value)
    return mean, variance, value


# --- how far out ----------------------------------------------------------------------------------


@jit
def share_at_ends(g: Planes, r: Room, p0: int, p1: int) -> float:
    """Largest density that an ability has at an end of its grid, next to its highest."""
    n, k, found, peak = g.nodes.size, g.block_nodes.size, 0.0, r.log[p0:p1].max()
    if p0 == 0:
        found = max(found, r.log[0] / peak)
    if p1 == n:
        found = max(found, r.log[n - 1] / peak)
    for b in range(r.n.size):
        if r.n[b] == 0 or (r.low[b] > 0 and r.high[b] < k):
            continue
        own = np.zeros(k)
        for p in range(p0, p1):
            for q in range(r.low[b], r.high[b]):
                own[q] += r.log[p] * r.w[b, p, q] / r.total[b, p]
        found = max(found, max(own[0], own[k - 1]) / own.max())
    return found


@jit
def _largest_share(values: NDArray[np.int8], g: Planes) -> float:
    r, found = room(g), 0.0
    for i in range(values.shape[0]):
        read(None, values[i], g, r)
        p0, p1, _ = weigh(g, r, NO_WEIGHT)
        found = max(found, share_at_ends(g, r, p0, p1))
    return found


def largest_share(values: NDArray[np.int8], g: Planes) -> float:
    """The largest :func:`share_at_ends` of patterns of responses to all items."""
    return float(_largest_share(values, g))


@jit
def _information(slopes: Floats, place: Ints, x: Floats, out: Floats) -> None:
    for j in range(place.size):
        a, s, d, to = slopes[0, j], slopes[1, j], slopes[2, j], out[:, place[j]]
        for p in range(x.size):
            for q in range(x.size):
                e = math.exp(-abs(a * x[p] + s * x[q] + d))
                pq = e / ((1.0 + e) * (1.0 + e))
                to[0, p, q] += a * a * pq
                to[1, p, q] += a * s * pq
                to[2, p, q] += s * s * pq


def information(slopes: Floats, place: Ints, n_planes: int, x: Floats) -> Floats:
    """Information of planes' items at pairs of nodes: of x, both, z, (3, planes, n, n)."""
    out = np.zeros((3, n_planes, x.size, x.size))
    _information(np.ascontiguousarray(slopes), place, x, out)
    return out
