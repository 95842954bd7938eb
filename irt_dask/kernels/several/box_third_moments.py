"""Third central moments of the posteriors of up to three abilities, on their boxes of nodes."""

from __future__ import annotations

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.several import box_posterior
from irt_dask.kernels.several.box_posterior import DONE
from irt_dask.kernels.several.box_shape import DIMS, Box, Room, room


@jit
def _raw(g: Box, group: int, r: Room, total: float, m: Floats, v: Floats, x: Floats) -> None:
    """Fill in moments about the mode's node: first, second, and third by abilities."""
    m[:], v[:], x[:] = 0.0, 0.0, 0.0
    t = np.empty(3)
    for q0 in range(r.low[0], r.high[0]):
        t[0] = (q0 - r.mode[0]) * g.spacing[0]
        for q2 in range(r.low[2], r.high[2]):
            t[2] = (q2 - r.mode[2]) * g.spacing[2]
            s0, s1, s2 = r.sums[q0, 0, q2], r.sums[q0, 1, q2], r.sums[q0, 2, q2]
            m[1] += s1
            v[1, 1] += s2
            for a in (0, 2):
                m[a] += s0 * t[a]
                v[a, 1] += s1 * t[a]
                x[a, 1, 1] += s2 * t[a]
                for b in (0, 2):
                    v[a, b] += s0 * t[a] * t[b]
                    x[a, b, 1] += s1 * t[a] * t[b]
                    for c in (0, 2):
                        x[a, b, c] += s0 * t[a] * t[b] * t[c]
    for q1 in range(r.low[1], r.high[1]):
        t1 = (q1 - r.mode[1]) * g.spacing[1]
        if t1 != 0.0:
            x[1, 1, 1] += t1**3 * box_posterior.slice_of_second(g, group, r, q1)
    m /= total
    v /= total
    x /= total


@jit
def _third(
    f0: Floats, f1: Floats, f2: Floats, g: Box, group: Ints, mean: Floats, out: Floats
) -> None:
    r = room(g)
    m, v, x = np.empty(3), np.empty((3, 3)), np.empty((3, 3, 3))
    for i in range(f2.shape[0]):
        k = group[i]
        how, total = box_posterior.weigh(f0[i], f1[i], f2[i], g, k, mean[i], r)
        if how != DONE:
            out[i] = np.nan
            continue
        _raw(g, k, r, total, m, v, x)
        for a in range(3):
            for b in range(3):
                for c in range(3):
                    # of equal ones the moment is where the second ability stands last
                    lo, hi = min(a, b, c), max(a, b, c)
                    mid = a + b + c - lo - hi
                    raw = x[1, 1, 1]
                    if not (lo == 1 and hi == 1):
                        n1 = (a == 1) + (b == 1) + (c == 1)
                        if n1 == 2:
                            raw = x[hi if lo == 1 else lo, 1, 1]
                        elif n1 == 1:
                            raw = x[lo if lo != 1 else mid, hi if hi != 1 else mid, 1]
                        else:
                            raw = x[lo, mid, hi]
                    second = m[a] * _of(v, b, c) + m[b] * _of(v, a, c) + m[c] * _of(v, a, b)
                    out[i, a, b, c] = raw - second + 2.0 * m[a] * m[b] * m[c]


@jit
def _of(v: Floats, a: int, b: int) -> float:
    """A raw second moment: of the second ability and another it stands last."""
    return v[b, a] if a == 1 else v[a, b]


def third_moments(log_likelihood: list[Floats], g: Box, group: Ints, mean: Floats) -> Floats:
    """Third central moments of each person's posterior, (persons, D, D, D)."""
    n, dims = mean.shape
    own, out = np.zeros((n, DIMS)), np.empty((n, DIMS, DIMS, DIMS))
    own[:, DIMS - dims :] = mean
    _third(*box_posterior.filled(log_likelihood), g, group, own, out)
    first = DIMS - dims
    return np.ascontiguousarray(out[:, first:, first:, first:])
