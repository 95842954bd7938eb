"""Correlation matrices: drawn given normal variables, and as partial correlations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from irt_dask.arrays import Floats
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.several.small_normals import conditional_mean, factorise, solve_lower


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


def partials(correlation: Floats) -> Floats:
    """Canonical partial correlations (..., Q (Q - 1) / 2) of correlation matrices (..., Q, Q).

    Each variable's with every one before it, given those before that: in pairs (1, 0), (2, 0),
    (2, 1), ...  They are free of each other in (-1, 1) whatever Q, unlike correlations, which must
    make a positive definite matrix (Lewandowski, Kurowicka and Joe 2009).  Of two variables the
    only one is their correlation.
    """
    rows, columns = np.tril_indices(correlation.shape[-1], -1)
    factor = np.linalg.cholesky(correlation)
    left = 1.0 - np.cumsum(factor**2, axis=-1) + factor**2  # of a row's length 1, from column j on
    return factor[..., rows, columns] / np.sqrt(left[..., rows, columns])


def matrices(partial: Floats) -> Floats:
    """Correlation matrices (..., Q, Q) of canonical partial correlations; see :func:`partials`."""
    n_dims = (1 + math.isqrt(1 + 8 * partial.shape[-1])) // 2
    factor = np.zeros((*partial.shape[:-1], n_dims, n_dims))
    k = 0
    for i in range(n_dims):
        left = np.ones(partial.shape[:-1])
        for j in range(i):
            factor[..., i, j] = partial[..., k] * np.sqrt(left)
            left = left * (1.0 - partial[..., k] ** 2)
            k += 1
        factor[..., i, i] = np.sqrt(left)
    out = factor @ np.swapaxes(factor, -1, -2)
    diagonal = np.arange(n_dims)
    out[..., diagonal, diagonal] = 1.0
    return out
