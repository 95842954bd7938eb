"""Draws of the correlation matrix of normal variables, given the variables."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irt_dask.kernels.compiled import jit
from irt_dask.kernels.small_normals import conditional_mean, factorise, solve_lower

Floats = NDArray[np.float64]


@jit
def _log_density(r: Floats, scatter: Floats, n: int, factor: Floats, column: Floats) -> float:
    """Log density, up to a constant, of n draws of N(0, r) with sum of squares ``scatter``."""
    factor[:] = r
    factorise(factor)
    value = 0.0
    for q in range(r.shape[0]):
        if not factor[q, q] > 0.0:
            return -math.inf
        value -= n * math.log(factor[q, q])
    for q in range(r.shape[0]):  # trace of r^-1 scatter: columns of r^-1 by two solutions
        column[:] = 0.0
        column[q] = 1.0
        solve_lower(factor, column)
        for i in range(r.shape[0] - 1, -1, -1):
            column[i] = conditional_mean(factor, column, column, i)
        for i in range(r.shape[0]):
            value -= 0.5 * column[i] * scatter[max(i, q), min(i, q)]
    return value


@jit
def _correlations(scatter: Floats, n: int, rng: Any, correlation: Floats) -> None:
    n_dims = correlation.shape[1]
    factor, column = np.empty((n_dims, n_dims)), np.empty(n_dims)
    for g in range(correlation.shape[0]):
        r, s = correlation[g], scatter[g]
        for i in range(n_dims):
            for j in range(i):
                level = _log_density(r, s, n, factor, column) - rng.standard_exponential()
                current, low, high = r[i, j], -1.0, 1.0
                while True:
                    x = low + (high - low) * rng.random()
                    r[i, j] = r[j, i] = x
                    if x == current or _log_density(r, s, n, factor, column) >= level:
                        break
                    if x < current:
                        low = x
                    else:
                        high = x


def draw_correlations(
    scatter: Floats, n: int, rng: np.random.Generator, correlation: Floats
) -> None:
    """One slice-sampling step for each correlation in turn, in place.

    The prior is uniform over correlation matrices (LKJ(1)).  ``scatter`` (groups, Q, Q), lower
    triangles, is the sum of theta theta' over a group's n persons.  The bracket starts as [-1, 1],
    which holds every slice, and shrinks towards the current value (Neal 2003): exact, and nothing
    to tune.  A matrix that is not positive definite has density 0.
    """
    _correlations(scatter, n, rng, correlation)
