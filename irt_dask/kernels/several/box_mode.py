"""Where a person's box is: a node near the mode, and the normal approximation there."""

from __future__ import annotations

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.several.box_shape import Box, Room


@jit
def _axis(f: Floats, nodes: Floats, k: Floats, d: int, tilt: float, r: Room) -> int:
    """Log density along an axis, less a constant, into ``r.b``; the node where it is largest."""
    best = 0
    for q in range(nodes.size):
        x = nodes[q]
        r.b[d, q] = f[q] + x * (tilt - 0.5 * k[d, d] * x)
        if r.b[d, q] > r.b[d, best]:
            best = q
    return best


@jit
def _tilt(g: Box, k: Floats, mean: Floats, d: int, r: Room) -> float:
    """What the prior and the other abilities' modes add to the slope along an axis."""
    tilt = k[d, d] * mean[d]
    for e in range(3):
        if e != d:
            tilt += k[d, e] * (mean[e] - g.nodes[e][r.mode[e]])
    return tilt


@jit
def _one_axis(
    f0: Floats, f1: Floats, f2: Floats, g: Box, k: Floats, mean: Floats, d: int, r: Room
) -> int:
    tilt = _tilt(g, k, mean, d, r)
    if d == 0:
        return _axis(f0, g.nodes[0], k, 0, tilt, r)
    if d == 1:
        return _axis(f1, g.nodes[1], k, 1, tilt, r)
    return _axis(f2, g.nodes[2], k, 2, tilt, r)


@jit
def _log_density(
    f0: Floats, f1: Floats, f2: Floats, g: Box, k: Floats, mean: Floats, at: Ints
) -> float:  # fmt: skip
    """Log density at nodes, but for the prior's constant."""
    out = f0[at[0]] + f1[at[1]] + f2[at[2]]
    for d in range(3):
        t = g.nodes[d][at[d]] - mean[d]
        out -= 0.5 * k[d, d] * t * t
        for e in range(d):
            out -= k[d, e] * t * (g.nodes[e][at[e]] - mean[e])
    return out


@jit
def _along_axes(
    f0: Floats, f1: Floats, f2: Floats, g: Box, k: Floats, mean: Floats, r: Room
) -> None:  # fmt: skip
    """Climb axis by axis until none rises; log densities along the axes there."""
    for _ in range(100):
        moved = False
        for d in range(3):
            best = _one_axis(f0, f1, f2, g, k, mean, d, r)
            if best != r.mode[d]:
                r.mode[d], moved = best, True
        if not moved:
            break
    for d in range(3):  # once more, where all modes are the last ones
        _one_axis(f0, f1, f2, g, k, mean, d, r)


@jit
def _curvature(g: Box, k: Floats, r: Room, p: Floats, slope: Floats) -> None:
    """Precision of the normal approximation at the mode's node, and the slopes there."""
    p[:] = k
    for d in range(3):
        q, n, h = r.mode[d], g.nodes[d].size, g.spacing[d]
        slope[d] = 0.0
        if n == 1:
            p[d, d] = 1.0
        elif 0 < q < n - 1:
            curve = 2.0 * r.b[d, q] - r.b[d, q - 1] - r.b[d, q + 1]
            p[d, d] = max(curve / h**2, k[d, d])
            slope[d] = (r.b[d, q + 1] - r.b[d, q - 1]) / (2.0 * h)


@jit
def _minor(p: Floats, d: int, e: int) -> float:
    """Cofactor of a symmetric matrix of three rows."""
    i, j = (d + 1) % 3, (d + 2) % 3
    m, n = (e + 1) % 3, (e + 2) % 3
    return p[i, m] * p[j, n] - p[i, n] * p[j, m]


@jit
def climb(
    f0: Floats, f1: Floats, f2: Floats, g: Box, k: Floats, mean: Floats, r: Room
) -> Floats:  # fmt: skip
    """Find a node near the mode, and the log densities along the axes there; the variances.

    Where abilities are highly correlated no axis rises far from the mode: Newton's steps go there.
    """
    for d in range(3):
        nodes = g.nodes[d]
        at = round((mean[d] - nodes[0]) / g.spacing[d])
        r.mode[d] = min(max(at, 0), nodes.size - 1)
    p, slope, ahead, variance = np.empty((3, 3)), np.empty(3), np.empty(3, np.int64), np.empty(3)
    for _ in range(50):
        _along_axes(f0, f1, f2, g, k, mean, r)
        _curvature(g, k, r, p, slope)
        det = p[0, 0] * _minor(p, 0, 0) + p[0, 1] * _minor(p, 0, 1) + p[0, 2] * _minor(p, 0, 2)
        same = True
        for d in range(3):
            step = 0.0
            for e in range(3):
                step += _minor(p, d, e) * slope[e] / det
            variance[d] = max(_minor(p, d, d) / det, 0.0)
            n = g.nodes[d].size
            ahead[d] = min(max(r.mode[d] + round(step / g.spacing[d]), 0), n - 1)
            same = same and ahead[d] == r.mode[d]
        if same:
            break
        here = _log_density(f0, f1, f2, g, k, mean, r.mode)
        if not _log_density(f0, f1, f2, g, k, mean, ahead) > here:
            break
        r.mode[:] = ahead
    for d in range(3):
        top = r.b[d, r.mode[d]]
        for q in range(g.nodes[d].size):
            r.b[d, q] -= top
    det = p[1, 1] * p[2, 2] - p[1, 2] * p[1, 2]
    r.lean[0] = (p[1, 2] * p[0, 2] - p[2, 2] * p[0, 1]) / det
    r.lean[1] = (p[1, 2] * p[0, 1] - p[1, 1] * p[0, 2]) / det
    r.peak[0] = _log_density(f0, f1, f2, g, k, mean, r.mode)
    return variance
