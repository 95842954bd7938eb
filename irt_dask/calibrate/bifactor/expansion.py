"""Steps along what ability makes up for: parameter expansion (Liu, Rubin and Wu 1998).

Let the general ability have any mean and SD, and that of a block any regression on it and any
residual SD.  Bringing them back to independent N(0, 1) changes the items and nothing that is
observed: ``z = m + c x + t z'`` makes slopes ``a + s c`` and ``s t`` and intercepts ``d + s m``,
and ``x = m + t x'`` makes ``a t`` and ``d + a m``.  EM finds these moves in many small steps where
many items tell abilities well; here the moments of abilities, and the prior of items where they
are brought back to, say how far to go at once.  The objective never falls by it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from irt_dask.arrays import Floats

#: Newton steps, and halvings of each.
_STEPS, _HALVINGS = 5, 20

#: Log prior of items (3, items), and its gradient.
Density = Callable[[Floats], tuple[float, Floats]]


def climbed(
    objective: Callable[[Floats], tuple[float, Floats]], curvature: Callable[[Floats], Floats],
    start: Floats,
) -> Floats:  # fmt: skip
    """Newton steps that never lower an objective; its value may be minus infinity."""
    v, (value, gradient) = start, objective(start)
    for _ in range(_STEPS):
        step, t = np.linalg.solve(curvature(v), gradient), 1.0
        for _ in range(_HALVINGS):
            new, there = objective(v + t * step)
            if new >= value:
                break
            t *= 0.5
        else:
            return v
        v, value, gradient = v + t * step, new, there
    return v


def of_block(slopes: Floats, sums: Floats, density: Density, precision: Floats) -> Floats:
    """Items of a block (3, items) after the move that the moments of its abilities ask for.

    ``sums`` are those of 1, x, z, x^2, xz, z^2 over persons; ``precision`` (3, items) bounds how
    sharply the prior bends.
    """
    a, s, d = slopes
    n, x, z, xx, xz, zz = sums

    def moved(v: Floats) -> Floats:
        return np.stack([a + s * v[1], s * np.exp(v[2]), d + s * v[0]])

    def rest(m: float, c: float) -> float:
        return zz - 2 * m * z - 2 * c * xz + m * m * n + 2 * m * c * x + c * c * xx

    def objective(v: Floats) -> tuple[float, Floats]:
        m, c, log_t = v
        to = moved(v)
        if not ((to[0] > 0.0).all() and abs(log_t) < 5.0):
            return -np.inf, np.zeros(3)
        prior, g = density(to)
        by_t, left = np.exp(-2.0 * log_t), rest(m, c)
        gradient = [
            by_t * (z - n * m - c * x) + g[2] @ s,
            by_t * (xz - m * x - c * xx) + g[0] @ s,
            by_t * left - n + g[1] @ to[1],
        ]
        return prior - n * log_t - 0.5 * by_t * left, np.array(gradient)

    def curvature(v: Floats) -> Floats:
        by_t, (pa, ps, pd) = np.exp(-2.0 * v[2]), precision
        tt = 2.0 * by_t * rest(v[0], v[1]) + float(ps @ moved(v)[1] ** 2)
        mc = by_t * x
        return np.array([
            [by_t * n + pd @ s**2, mc, 0.0], [mc, by_t * xx + pa @ s**2, 0.0], [0.0, 0.0, tt]
        ])  # fmt: skip

    return moved(climbed(objective, curvature, np.zeros(3)))


def of_all(slopes: Floats, sums: Floats, density: Density, precision: Floats) -> Floats:
    """All items after the move that the moments of the general ability ask for; see above."""
    a, s, d = slopes
    n, x, _, xx, _, _ = sums

    def moved(v: Floats) -> Floats:
        return np.stack([a * np.exp(v[1]), s, d + a * v[0]])

    def objective(v: Floats) -> tuple[float, Floats]:
        if not abs(v[1]) < 5.0:
            return -np.inf, np.zeros(2)
        to = moved(v)
        prior, g = density(to)
        by_t, left = np.exp(-2.0 * v[1]), xx - 2.0 * v[0] * x + n * v[0] ** 2
        gradient = [by_t * (x - n * v[0]) + g[2] @ a, by_t * left - n + g[0] @ to[0]]
        return prior - n * v[1] - 0.5 * by_t * left, np.array(gradient)

    def curvature(v: Floats) -> Floats:
        by_t, (pa, _, pd) = np.exp(-2.0 * v[1]), precision
        left = xx - 2.0 * v[0] * x + n * v[0] ** 2
        return np.diag([
            by_t * n + pd @ (a - a.mean()) ** 2, 2.0 * by_t * left + pa @ moved(v)[0] ** 2
        ])  # fmt: skip

    return moved(climbed(objective, curvature, np.zeros(2)))


def expanded(model: Any, slopes: Floats, moments: Floats) -> Floats:
    """Items after the moves of all blocks and of the general ability.

    ``moments`` (blocks + 2, 6) are the sums of each block, of items without one, and of all.
    """
    out = slopes.copy()
    k = model.limits(slopes)
    for b in range(model.n_blocks):
        at = np.flatnonzero(model.of_item == b)
        if moments[b, 0] <= 0.0 or not out[1, at].any():
            continue

        def density(own: Floats, at: Any = at) -> tuple[float, Floats]:
            every = out.copy()
            every[:, at] = own
            value, gradient = model.density(every)
            return value, gradient[:, at]

        bend = k.precision[:, at].copy()
        bend[0] /= out[0, at].min() ** 2 if k.of_log else 1.0
        if model.testlet:  # lambdas have no prior
            bend[1] = 0.0
        if model.testlet and k.of_log:  # which is the same wherever abilities have means and SDs
            bend[:] = 0.0
        out[:, at] = of_block(out[:, at], moments[b], density, bend)
    return of_all(out, moments[-1], model.density, k.precision * (not k.of_log))
