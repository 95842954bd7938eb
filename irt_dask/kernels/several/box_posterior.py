"""Posteriors of up to three abilities, each measured by items of its own, on boxes of nodes.

The likelihood is a product of functions of one ability each; the prior is normal with precision K.
With t_d the distance of ability d from a node near the mode, the log density is

    b_0(t_0) + b_1(t_1) + b_2(t_2) - K_01 t_0 t_1 - K_02 t_0 t_2 - K_12 t_1 t_2,

b_d being the log density along the axis d through that node.  Slices of equal t_0 are summed one by
one.  In each t_1 and t_2 are taken from nodes near its own mode; with c the root of K_11 / K_22 and
s the sign of K_12 their product is then -|K_12| ((c t_1 + s t_2 / c)^2 / 2 - c^2 t_1^2 / 2 - ...),
so that the factors of one ability stay those of a normal density, and the others, which lie in a
table that all persons share, are below 1: no number is large, however high correlations are.

A person's box reaches over so many standard deviations of the normal approximation, and further
while its faces have mass; one that would go beyond an end of the grid is not used, so that where
grids end never changes a bit.

Fewer abilities are the last ones of three; the others have one node, 0, and no precision.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.several.box_mode import climb
from irt_dask.kernels.several.box_shape import DIMS, Box, Room, room

#: Standard deviations that a box reaches at first.
_REACH = 5.6
#: Share of the mass that a slice at a face of the box may have.
_FACE = 1e-7
#: How a person's box ended: well; beyond an end of the grid; beyond what numbers hold.
DONE, BEYOND, TOO_STEEP = 0, 1, 2


@jit
def _widths(g: Box, variance: Floats, r: Room) -> None:
    """Make the box from the variances of the normal approximation."""
    for d in range(3):
        half = int(_REACH * math.sqrt(variance[d]) / g.spacing[d]) + 1 if n_of(g, d) > 1 else 0
        r.low[d], r.high[d] = r.mode[d] - half, r.mode[d] + half + 1


@jit
def n_of(g: Box, d: int) -> int:
    """Nodes of an ability."""
    return g.nodes[d].size


@jit
def _inside(g: Box, r: Room) -> bool:
    """Whether the box is within the grid."""
    outside = 0
    for d in range(3):
        outside += r.low[d] < 0 or r.high[d] > g.nodes[d].size
    return outside == 0


@jit
def _along(
    b: Floats, low: int, high: int, mode: int, h: float, tilt: float, centre: int, bend: float,
    out: Floats,
) -> float:  # fmt: skip
    """Factors of an ability in a slice, 1 at its centre; the log density there."""
    at = b[centre] - tilt * (centre - mode) * h
    for q in range(low, high):
        t = (q - centre) * h
        out[q] = math.exp(b[q] - tilt * (q - mode) * h - at + bend * t * t)
    return at


@jit
def fill_slice(g: Box, group: int, r: Room, q0: int, t0: float) -> None:
    """Fill in the centre of the slice at ``t0``, its log density there, and its factors."""
    k, h, bend = g.precision[group], g.spacing, g.bend[group]
    for a in range(2):
        d = a + 1
        at = r.mode[d] + round(r.lean[a] * t0 / h[d])
        r.centre[q0, a] = min(max(at, r.low[d]), r.high[d] - 1)
    c1 = (r.centre[q0, 0] - r.mode[1]) * h[1]
    c2 = (r.centre[q0, 1] - r.mode[2]) * h[2]
    at1 = _along(
        r.b[1], r.low[1], r.high[1], r.mode[1], h[1], k[0, 1] * t0 + k[1, 2] * c2,
        r.centre[q0, 0], bend[0], r.e1[q0],
    )  # fmt: skip
    at2 = _along(
        r.b[2], r.low[2], r.high[2], r.mode[2], h[2], k[0, 2] * t0 + k[1, 2] * c1,
        r.centre[q0, 1], bend[1], r.e2[q0],
    )  # fmt: skip
    r.log_slice[q0] = at1 + at2 + k[1, 2] * c1 * c2


@jit
def _factors(g: Box, group: int, r: Room) -> None:
    """Fill in all slices of the box."""
    for q0 in range(r.low[0], r.high[0]):
        fill_slice(g, group, r, q0, (q0 - r.mode[0]) * g.spacing[0])
        r.log_slice[q0] += r.b[0, q0]


@jit
def _add_slices(
    e1: Floats, c12: Floats, t1: Floats, s0: Floats, s1: Floats, s2: Floats
) -> None:  # fmt: skip
    """Add the slices of the middle ability to sums by the last one, four at a time."""
    n, k = e1.size, 0
    while k < n:
        last = n - 1
        k1, k2, k3 = min(k + 1, last), min(k + 2, last), min(k + 3, last)
        a0, a1, a2, a3 = e1[k], e1[k1], e1[k2], e1[k3]
        if k + 1 > last:
            a1 = 0.0
        if k + 2 > last:
            a2 = 0.0
        if k + 3 > last:
            a3 = 0.0
        b0, b1, b2, b3 = a0 * t1[k], a1 * t1[k1], a2 * t1[k2], a3 * t1[k3]
        d0, d1, d2, d3 = b0 * t1[k], b1 * t1[k1], b2 * t1[k2], b3 * t1[k3]
        r0, r1, r2, r3 = c12[k], c12[k1], c12[k2], c12[k3]
        for q in range(s0.size):
            x0, x1, x2, x3 = r0[q], r1[q], r2[q], r3[q]
            s0[q] += (a0 * x0 + a1 * x1) + (a2 * x2 + a3 * x3)
            s1[q] += (b0 * x0 + b1 * x1) + (b2 * x2 + b3 * x3)
            s2[q] += (d0 * x0 + d1 * x1) + (d2 * x2 + d3 * x3)
        k += 4


@jit
def table_of(g: Box, group: int, r: Room, q0: int) -> Floats:
    """Factors of both abilities of a slice on the box."""
    first1 = r.low[1] - r.centre[q0, 0] + g.nodes[1].size - 1
    first2 = r.low[2] - r.centre[q0, 1] + g.nodes[2].size - 1
    n1, n2 = r.high[1] - r.low[1], r.high[2] - r.low[2]
    return g.cross[group, first1 : first1 + n1, first2 : first2 + n2]


@jit
def _fill(g: Box, group: int, r: Room) -> float:
    """Fill in the masses of slices; their total."""
    lo1, hi1, lo2, hi2 = r.low[1], r.high[1], r.low[2], r.high[2]
    t1 = np.empty(hi1 - lo1)
    for q in range(t1.size):
        t1[q] = (lo1 + q - r.mode[1]) * g.spacing[1]
    top = r.log_slice[r.low[0]]
    for q0 in range(r.low[0], r.high[0]):
        top = max(top, r.log_slice[q0])
    total = 0.0
    for q0 in range(r.low[0], r.high[0]):
        weight = math.exp(r.log_slice[q0] - top)
        e1, e2 = r.e1[q0, lo1:hi1], r.e2[q0, lo2:hi2]
        for q in range(e2.size):
            e2[q] *= weight
        s0, s1, s2 = r.sums[q0, 0, lo2:hi2], r.sums[q0, 1, lo2:hi2], r.sums[q0, 2, lo2:hi2]
        s0[:], s1[:], s2[:] = 0.0, 0.0, 0.0
        _add_slices(e1, table_of(g, group, r, q0), t1, s0, s1, s2)
        for q in range(e2.size):
            s0[q] *= e2[q]
            s1[q] *= e2[q]
            s2[q] *= e2[q]
            total += s0[q]
    r.peak[1] = top
    return total


@jit
def slice_of_second(g: Box, group: int, r: Room, q1: int) -> float:
    """Mass of a slice of the middle ability."""
    mass = 0.0
    for q0 in range(r.low[0], r.high[0]):
        row, own = table_of(g, group, r, q0)[q1 - r.low[1]], 0.0
        for q in range(row.size):
            own += row[q] * r.e2[q0, r.low[2] + q]
        mass += own * r.e1[q0, q1]
    return mass


@jit
def _face(g: Box, group: int, r: Room, d: int, q: int) -> float:
    """Mass of the slice at a face."""
    if d == 1:
        return slice_of_second(g, group, r, q)
    mass = 0.0
    if d == 0:
        for q2 in range(r.low[2], r.high[2]):
            mass += r.sums[q, 0, q2]
    else:
        for q0 in range(r.low[0], r.high[0]):
            mass += r.sums[q0, 0, q]
    return mass


@jit
def _grow(g: Box, group: int, r: Room, most: float) -> bool:
    """Make the box larger where a slice at a face has more than this mass; whether any has."""
    low, high, grown = r.low.copy(), r.high.copy(), False
    for d in range(3):  # all faces of the box that is filled, before it changes
        if g.nodes[d].size == 1:
            continue
        more = (high[d] - low[d]) // 6 + 1
        if _face(g, group, r, d, r.low[d]) > most:
            low[d], grown = low[d] - more, True
        if _face(g, group, r, d, r.high[d] - 1) > most:
            high[d], grown = high[d] + more, True
    r.low[:], r.high[:] = low, high
    return grown


@jit
def weigh(
    f0: Floats, f1: Floats, f2: Floats, g: Box, group: int, mean: Floats, r: Room
) -> tuple[int, float]:
    """Find a person's box and masses; how it ended, and the total of the masses."""
    k = g.precision[group]
    _widths(g, climb(f0, f1, f2, g, k, mean, r), r)
    while True:
        if not _inside(g, r):
            return BEYOND, 1.0
        _factors(g, group, r)
        total = _fill(g, group, r)
        if not 0.0 < total < np.inf:
            return TOO_STEEP, 1.0
        if not _grow(g, group, r, _FACE * total):
            return DONE, total


@jit
def _moments(
    f0: Floats, f1: Floats, f2: Floats, g: Box, group: Ints, mean: Floats, out: Floats, how: Ints
) -> None:  # fmt: skip
    r = room(g)
    h0, h2 = g.spacing[0], g.spacing[2]
    for i in range(f2.shape[0]):
        how[i], total = weigh(f0[i], f1[i], f2[i], g, group[i], mean[i], r)
        if how[i] != DONE:
            continue
        m0 = m1 = m2 = v00 = v01 = v02 = v11 = v12 = v22 = 0.0
        for q0 in range(r.low[0], r.high[0]):
            t0 = (q0 - r.mode[0]) * h0
            a = b = c = d = e = x = 0.0
            for q2 in range(r.low[2], r.high[2]):
                t2 = (q2 - r.mode[2]) * h2
                s0, s1 = r.sums[q0, 0, q2], r.sums[q0, 1, q2]
                a += s0
                b += s0 * t2
                c += s0 * t2 * t2
                d += s1
                e += s1 * t2
                x += r.sums[q0, 2, q2]
            m0 += a * t0
            v00 += a * t0 * t0
            m1 += d
            v01 += d * t0
            m2 += b
            v02 += b * t0
            v11 += x
            v12 += e
            v22 += c
        m0, m1, m2 = m0 / total, m1 / total, m2 / total
        out[i, 0] = g.nodes[0][r.mode[0]] + m0
        out[i, 1] = g.nodes[1][r.mode[1]] + m1
        out[i, 2] = g.nodes[2][r.mode[2]] + m2
        out[i, 3], out[i, 4] = v00 / total - m0 * m0, v01 / total - m0 * m1
        out[i, 5], out[i, 6] = v02 / total - m0 * m2, v11 / total - m1 * m1
        out[i, 7], out[i, 8] = v12 / total - m1 * m2, v22 / total - m2 * m2
        out[i, 9] = r.peak[0] + r.peak[1] + math.log(total) + g.constant[group[i]]


def moments(
    log_likelihood: list[Floats], g: Box, group: Ints, mean: Floats
) -> tuple[Floats, Floats, Floats, Ints]:
    """Posterior means (persons, D), covariances (persons, D, D), log marginals, how boxes ended.

    ``log_likelihood`` has (persons, nodes) of each ability, ``mean`` the prior means (persons, D).
    """
    n, dims = mean.shape
    f, own = filled(log_likelihood), np.zeros((n, DIMS))
    own[:, DIMS - dims :] = mean
    out, how = np.empty((n, 10)), np.empty(n, dtype=np.int64)
    _moments(*f, g, group, own, out, how)
    i, j = np.triu_indices(DIMS)
    covariance = np.empty((n, DIMS, DIMS))
    covariance[:, i, j] = covariance[:, j, i] = out[:, 3:9]
    first = DIMS - dims
    return (
        np.ascontiguousarray(out[:, first:DIMS]),
        np.ascontiguousarray(covariance[:, first:, first:]),
        out[:, 9].copy(),
        how,
    )


def filled(log_likelihood: list[Floats]) -> Any:
    """Log-likelihoods of three abilities: 0 at the only node of those that are none."""
    n = len(log_likelihood[0])
    return (*(np.zeros((n, 1)) for _ in range(DIMS - len(log_likelihood))), *log_likelihood)
