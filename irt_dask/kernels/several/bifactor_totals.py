"""What persons would score on all questions of blocks with abilities of their own (bifactor).

As :mod:`irt_dask.kernels.posterior.totals`, which has the estimate by design, with a posterior of a
general ability x and one z_b for each block.  Given x blocks are independent: what the rest of
block b adds has a mean and a mean square given x, by sums over z_b, and the total's mean and
variance given x are sums over blocks.  Without the response to item j of block b the weights of
that block are w / P(y_j | x, z_b); those of the other blocks given x stay as they are.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.posterior.totals import PSEUDO_RESIDUALS, design_variance
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.kernels.responses.rows import n_rows
from irt_dask.kernels.several.bifactor_posterior import (
    NO_WEIGHT,
    Planes,
    Room,
    log_wrong,
    read,
    room,
)
from irt_dask.kernels.several.bifactor_posterior import weigh as weigh_person

#: Where weights next to the largest are still numbers, as logarithms; and the least divisor.
_LOWEST, _TINY = -700.0, 1e-300


class Points(NamedTuple):
    """Items of the responses, and what all questions of the bank add at pairs of nodes.

    Questions of one stratum in one block are a cell.
    """

    points: Floats  # what a right answer adds, (items,)
    stratum: Ints  # of each item
    place: Ints  # its plane
    cell: Ints  # row of what follows, -1 for none, (strata, planes)
    expected: Floats  # what the bank's questions add on average, (cells, n, k)
    spread: Floats  # variance of what they add, given both abilities, (planes, n, k)
    alone: Floats  # means of expected given the general ability, who answered none, (cells, n)
    square: Floats  # mean of spread and of the square of what is expected, the same, (planes, n)
    size: Ints  # questions of the bank by stratum
    cut: float  # log of the share of the largest weight that matters without some response

    @property
    def nbytes(self) -> int:
        """Memory held, bytes."""
        return self.expected.nbytes + self.spread.nbytes


class Rest(NamedTuple):
    """What the questions that a person did not answer add."""

    mean: Floats  # at pairs of nodes, (cells, n, k)
    spread: Floats  # its variance there, (planes, n, k)
    given: Floats  # mean given the general ability, (cells, n)


@jit
def _right(logit: float) -> float:
    e = math.exp(-abs(logit))
    return (1.0 if logit >= 0.0 else e) / (1.0 + e)


@jit
def _fill(
    slopes: Floats, weights: Floats, stratum: Ints, place: Ints, cell: Ints, nodes: Floats,
    block_nodes: Floats, expected: Floats, spread: Floats,
) -> None:  # fmt: skip
    for j in range(weights.size):
        to, other = expected[cell[stratum[j], place[j]]], spread[place[j]]
        w = weights[j]
        if w == 0.0:
            continue
        for p in range(nodes.size):
            at = slopes[0, j] * nodes[p] + slopes[2, j]
            for q in range(block_nodes.size):
                right = _right(at + slopes[1, j] * block_nodes[q])
                to[p, q] += w * right
                other[p, q] += w * w * right * (1.0 - right)


def points(
    g: Planes, own: tuple[Ints, Ints], slopes: Floats, weights: Floats, stratum: Ints, place: Ints
) -> Points:
    """Tables of the bank's questions on the nodes of ``g``, whose items are those of responses.

    ``own``: which of the bank's these are, and their planes.
    """
    at, own_place = own
    size = np.bincount(stratum)
    cell = np.full((size.size, g.first.size - 1), -1)
    there = np.unique(np.stack([stratum, place]), axis=1)
    cell[there[0], there[1]] = np.arange(there.shape[1])
    shape = g.nodes.size, g.block_nodes.size
    expected, spread = np.zeros((there.shape[1], *shape)), np.zeros((cell.shape[1], *shape))
    slopes = np.ascontiguousarray(slopes)
    _fill(slopes, weights, stratum, place, cell, g.nodes, g.block_nodes, expected, spread)
    mass = np.exp(g.block_prior - g.block_prior.max())
    mass /= mass.sum()
    of_block = np.zeros_like(spread)
    np.add.at(of_block, there[1], expected)
    steep = np.abs(g.slopes)
    far = steep[0] * g.nodes[-1] + steep[1] * g.block_nodes[-1] + steep[2]
    cut = NO_WEIGHT + min((log_wrong(float(v)) for v in far), default=0.0)
    return Points(
        weights[at], stratum[at], own_place, cell, expected, spread, expected @ mass,
        (spread + of_block**2) @ mass, size, max(cut, _LOWEST),
    )  # fmt: skip


# --- one person -----------------------------------------------------------------------------------


@jit
def _room(t: Points) -> Rest:
    return Rest(
        np.empty_like(t.expected), np.empty_like(t.spread), np.empty_like(t.alone)
    )  # fmt: skip


@jit
def _take_off(g: Planes, t: Points, j: int, window: Any, mean: Floats, v: Floats) -> None:
    """Take item j off what is left."""
    p0, p1, q0, q1 = window
    w = t.points[j]
    for p in range(p0, p1):
        at = g.slopes[0, j] * g.nodes[p] + g.slopes[2, j]
        for q in range(q0, q1):
            right = _right(at + g.slopes[1, j] * g.block_nodes[q])
            mean[p, q] -= w * right
            v[p, q] -= w * w * right * (1.0 - right)


@jit
def _rest(g: Planes, r: Room, t: Points, p0: int, p1: int, s: Rest) -> None:
    """What the questions that were not answered add."""
    for b in range(r.n.size):
        q0, q1 = r.low[b], r.high[b]
        for h in range(t.size.size):
            c = t.cell[h, b]
            if c >= 0 and r.n[b] == 0:
                s.given[c, p0:p1] = t.alone[c, p0:p1]
            elif c >= 0:
                s.mean[c, p0:p1, q0:q1] = t.expected[c, p0:p1, q0:q1]
        if r.n[b] == 0:
            continue
        s.spread[b, p0:p1, q0:q1] = t.spread[b, p0:p1, q0:q1]
        for j in g.order[g.first[b] : g.first[b + 1]]:
            if r.y[j] >= 0:
                c = t.cell[t.stratum[j], b]
                _take_off(g, t, j, (p0, p1, q0, q1), s.mean[c], s.spread[b])
        for h in range(t.size.size):
            c = t.cell[h, b]
            if c < 0:
                continue
            for p in range(p0, p1):
                own = 0.0
                for q in range(q0, q1):
                    own += r.w[b, p, q] * s.mean[c, p, q]
                s.given[c, p] = own / r.total[b, p]


@jit
def _given_general(r: Room, t: Points, s: Rest, p: int) -> tuple[float, float]:
    """Mean and variance of what the rest adds, given the general ability of node p."""
    mean = variance = 0.0
    for b in range(r.n.size):
        own = square = 0.0
        for h in range(t.size.size):
            if t.cell[h, b] >= 0:
                own += s.given[t.cell[h, b], p]
        if r.n[b] == 0:
            square = t.square[b, p]
        else:
            for q in range(r.low[b], r.high[b]):
                m = 0.0
                for h in range(t.size.size):
                    if t.cell[h, b] >= 0:
                        m += s.mean[t.cell[h, b], p, q]
                square += r.w[b, p, q] * (max(s.spread[b, p, q], 0.0) + m * m)
            square /= r.total[b, p]
        mean += own
        variance += max(square - own * own, 0.0)
    return mean, variance


@jit
def _got(r: Room, t: Points, got: Floats, n: Ints) -> float:
    """What a person has, and answers, by stratum; the most that these could have given."""
    got[:], n[:], most = 0.0, 0, 0.0
    for j in range(r.y.size):
        if r.y[j] >= 0:
            n[t.stratum[j]] += 1
            got[t.stratum[j]] += r.y[j] * t.points[j]
            most += t.points[j]
    return most


# --- by the model ---------------------------------------------------------------------------------


@jit
def _model(indptr: Any, indices: Any, values: Any, g: Planes, t: Points, out: Floats) -> None:
    r, s, given = room(g), _room(t), np.empty((2, g.nodes.size))
    got, n = np.empty(t.size.size), np.empty(t.size.size, dtype=np.int64)
    for i in range(n_rows(indptr, values)):
        items, row = rows.row(indptr, indices, values, i)
        read(items, row, g, r)
        out[3, i] = _got(r, t, got, n)
        out[0, i], out[1, i], out[2, i] = got.sum(), 0.0, 0.0
        if n.sum() == t.size.sum():
            continue
        p0, p1, _ = weigh_person(g, r, NO_WEIGHT)
        _rest(g, r, t, p0, p1, s)
        for p in range(p0, p1):
            given[0, p], given[1, p] = _given_general(r, t, s, p)
            out[1, i] += r.log[p] * given[0, p]
        for p in range(p0, p1):
            out[2, i] += r.log[p] * (given[1, p] + (given[0, p] - out[1, i]) ** 2)


def model_moments(data: Layout, g: Planes, t: Points) -> Floats:
    """What persons have, mean and variance of what the rest will add, and the most they could have.

    (4, persons), as those of one ability.
    """
    out = np.empty((4, data.shape[0]))
    _model(*rows.arrays(data), g, t, out)
    return out


# --- by design ------------------------------------------------------------------------------------


@jit
def _without(
    g: Planes, r: Room, t: Points, s: Rest, j: int, p0: int, p1: int, all_given: Floats
) -> tuple[float, float]:
    """Chance that j is right and what its stratum's unasked questions add, from the others."""
    b, h = t.place[j], t.stratum[j]
    c, weight, right, unseen = t.cell[h, b], 0.0, 0.0, 0.0
    for p in range(p0, p1):
        at = g.slopes[0, j] * g.nodes[p] + g.slopes[2, j]
        u = by_right = by_mean = 0.0
        for q in range(r.low[b], r.high[b]):
            if r.w[b, p, q] == 0.0:
                continue
            logit = at + g.slopes[1, j] * g.block_nodes[q]
            one = _right(logit)
            own = r.w[b, p, q] / max(one if r.y[j] == 1 else _right(-logit), _TINY)
            u += own
            by_right += own * one
            by_mean += own * s.mean[c, p, q]
        part = r.log[p] / r.total[b, p]
        weight += part * u
        right += part * by_right
        unseen += part * (by_mean + u * (all_given[h, p] - s.given[c, p]))
    return right / weight, unseen / weight


@jit
def _left_out(
    g: Planes, r: Room, t: Points, s: Rest, p0: int, p1: int, got: Floats, n: Ints,
    all_given: Floats, sums: Floats,
) -> None:  # fmt: skip
    """Sums over the responses by stratum: T, residual, its square, and its expected square."""
    sums[:] = 0.0
    all_given[:] = 0.0
    for h in range(t.size.size):
        for b in range(r.n.size):
            if t.cell[h, b] >= 0:
                for p in range(p0, p1):
                    all_given[h, p] += s.given[t.cell[h, b], p]
    for j in range(r.y.size):
        if r.y[j] < 0:
            continue
        h, w = t.stratum[j], t.points[j]
        right, unseen = _without(g, r, t, s, j, p0, p1, all_given)
        y, others = r.y[j] * w, t.size[h] - n[h] + 1
        residual = y - w * right
        sums[0, h] += (got[h] - y) + unseen + w * right + others * residual
        sums[1, h] += residual
        sums[2, h] += residual * residual
        sums[3, h] += w * w * right * (1.0 - right)


@jit
def _design(
    indptr: Any, indices: Any, values: Any, g: Planes, t: Points, wanted: Ints, pseudo: float,
    out: Floats, differ: Ints,
) -> None:  # fmt: skip
    r, s, n_strata = room(g), _room(t), t.size.size
    got, n, sums = np.empty(n_strata), np.empty(n_strata, dtype=np.int64), np.empty((4, n_strata))
    all_given = np.empty((n_strata, g.nodes.size))
    for i in range(n_rows(indptr, values)):
        items, row = rows.row(indptr, indices, values, i)
        read(items, row, g, r)
        _got(r, t, got, n)
        differ[i] = -1
        out[0, i] = out[1, i] = math.nan
        for h in range(n_strata):
            if n[h] == 0 or (wanted[h] >= 0 and n[h] != wanted[h]):
                differ[i] = h
        if differ[i] >= 0:
            continue
        p0, p1, _ = weigh_person(g, r, t.cut)
        _rest(g, r, t, p0, p1, s)
        _left_out(g, r, t, s, p0, p1, got, n, all_given, sums)
        estimate = 0.0
        for h in range(n_strata):
            estimate += got[h] if n[h] == t.size[h] else sums[0, h] / n[h]
        out[0, i], out[1, i] = estimate, design_variance(t.size, n, sums, pseudo)


def design_moments(data: Layout, g: Planes, t: Points, wanted: Ints) -> tuple[Floats, Ints]:
    """As that of one ability."""
    n = data.shape[0]
    out, differ = np.empty((2, n)), np.empty(n, dtype=np.int64)
    _design(*rows.arrays(data), g, t, wanted, PSEUDO_RESIDUALS, out, differ)
    return out, differ
