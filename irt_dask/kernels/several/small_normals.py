"""Draws from small normal distributions by their precision, some coordinates positive; compiled.

A distribution is N(p^-1 l, p^-1) with the Cholesky factor L of p = L L'.  Coordinates are drawn
from the last to the first, each given those after it: their means come from back substitution.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from irt_dask.arrays import Floats
from irt_dask.kernels.base.compiled import jit

#: Proposals of coordinates that must be positive, before a step that needs none.
_TRIES = 32
#: Standard normals are rejected up to this bound of truncation, exponentials are beyond; still
#: farther out, squares overflow.
_FAR, _TOO_FAR = 0.45, 1e100


@jit
def factorise(p: Floats) -> None:
    """Cholesky factor L of p = L L', in its lower triangle; not a number if there is none."""
    for i in range(p.shape[0]):
        for j in range(i + 1):
            value = p[i, j]
            for k in range(j):
                value -= p[i, k] * p[j, k]
            if j < i:
                p[i, j] = value / p[j, j]
            elif value > 0.0:
                p[i, i] = math.sqrt(value)
            else:
                p[i, i] = math.nan


@jit
def solve_lower(factor: Floats, x: Floats) -> None:
    """Replace x by ``L^-1 x``."""
    for i in range(x.size):
        value = x[i]
        for k in range(i):
            value -= factor[i, k] * x[k]
        x[i] = value / factor[i, i]


@jit
def conditional_mean(factor: Floats, u: Floats, x: Floats, i: int) -> float:
    """Mean of x[i] given x[i + 1:], where x is N(P^-1 l, P^-1), P = L L', u = L^-1 l.

    Its standard deviation is 1 / L[i, i].
    """
    value = u[i]
    for k in range(i + 1, u.size):
        value -= factor[k, i] * x[k]
    return value / factor[i, i]


@jit
def positive_normal(mean: float, sd: float, rng: Any) -> float:
    """Draw N(mean, sd^2) given that it is positive, however unlikely that is (Robert 1995).

    Not a number if the mean or the standard deviation is none, or if the former is 1e100 of the
    latter below 0.
    """
    if not sd > 0.0:
        return math.nan
    bound = -mean / sd
    if not -math.inf < bound < _TOO_FAR:
        return math.nan  # the loops below would not end
    if bound < _FAR:
        while True:
            z = rng.standard_normal()
            if z > bound:
                return sd * (z - bound)
    root = math.sqrt(bound * bound + 4.0)
    rate, offset = 0.5 * (bound + root), 2.0 / (bound + root)  # offset = rate - bound
    while True:
        excess = rng.standard_exponential() / rate
        if excess > 0.0 and rng.standard_exponential() > 0.5 * (excess - offset) ** 2:
            return sd * excess


@jit
def _draw_one(mean: float, sd: float, positive: bool, rng: Any) -> float:
    return positive_normal(mean, sd, rng) if positive else mean + sd * rng.standard_normal()


@jit
def hardest(p: Floats, linear: Floats, positive: Any) -> int:
    """Of the ``positive`` coordinates, that whose marginal is least likely positive; -1 of none."""
    k = linear.size
    factor, u, mean = p.copy(), linear.copy(), np.empty(k)
    factorise(factor)
    solve_lower(factor, u)
    for i in range(k - 1, -1, -1):
        mean[i] = conditional_mean(factor, u, mean, i)
    found, least = -1, math.inf
    for i in range(k):
        unit = np.zeros(k)
        unit[i] = 1.0
        solve_lower(factor, unit)
        ratio = mean[i] / math.sqrt((unit * unit).sum())
        if positive[i] and ratio < least:
            found, least = i, ratio
    return found


@jit
def draw_truncated(p: Floats, linear: Floats, positive: Any, rng: Any, x: Floats) -> None:
    """One step of x towards N(p^-1 linear, p^-1) given that the ``positive`` ones are positive.

    Rejection: the last coordinate comes from its marginal, truncated, the others from their
    conditionals, not truncated, until all are in range: an exact draw, most often soon found if the
    last one is the hardest (:func:`hardest`).  If that fails ``_TRIES`` times, each coordinate is
    drawn in turn from its conditional given the others' current values.  Whether it fails does not
    depend on the current values, so the step is a mixture, with fixed weights, of an exact draw and
    a Gibbs step: both keep the law, and so does their mixture.
    """
    k = linear.size
    factor, u, y = p.copy(), linear.copy(), np.empty(k)
    factorise(factor)
    solve_lower(factor, u)
    for _ in range(_TRIES):
        inside = True
        for i in range(k - 1, -1, -1):
            mean, sd = conditional_mean(factor, u, y, i), 1.0 / factor[i, i]
            y[i] = _draw_one(mean, sd, positive[i] and i == k - 1, rng)
            if positive[i] and y[i] <= 0.0:
                inside = False
                break
        if inside:
            x[:] = y
            return
    for i in range(k):
        value = linear[i] + p[i, i] * x[i]
        for j in range(k):
            value -= p[max(i, j), min(i, j)] * x[j]
        x[i] = _draw_one(value / p[i, i], 1.0 / math.sqrt(p[i, i]), positive[i], rng)
