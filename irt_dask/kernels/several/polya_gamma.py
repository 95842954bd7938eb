"""One sweep of the Pólya-Gamma Gibbs sampler of the 2PL and of its versions in Q dimensions.

``P(right) = sigma(a_j' theta_i + d_j)``.  Given ``omega ~ PG(1, |z|)`` for each observed response
with predictor z, its likelihood is that of a normal observation ``(y - 1/2) / omega`` of z with
precision omega (Polson, Scott and Windle 2013), so abilities and items have normal conditionals.

A sweep costs one Pólya-Gamma draw per observed response, which is nearly all of its time.  It holds
no more than some thousand of these draws at a time: what the items need of them is sums.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from polyagamma import random_polyagamma

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.errors import ChainError
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.responses.layouts import Sparse
from irt_dask.kernels.several.correlations import draw_correlations
from irt_dask.kernels.several.rotations import Held, rotate
from irt_dask.kernels.several.small_normals import (
    conditional_mean,
    draw_truncated,
    factorise,
    hardest,
    solve_lower,
)

#: Responses whose Pólya-Gamma variables are held together: they fit in a core's cache.
_TOGETHER = 1 << 14
#: Predictors beyond this are a chain that broke down; the library is wrong from 178 on.
_LARGEST_PREDICTOR = 100.0


class Items(NamedTuple):
    """What is known of the items before the data."""

    free: Bools  # (items, Q): loadings that are not fixed at 0
    positive: Bools  # (items, Q): those of them that are positive
    mean: Floats  # (items, Q): of the loadings' normal prior, before it is truncated
    precision: Floats  # (items, Q)
    intercept: Floats  # (2,): mean and precision of the intercepts' normal prior


class State(NamedTuple):
    """Where a chain is; a sweep changes it in place."""

    theta: Floats  # (persons, Q)
    loadings: Floats  # (items, Q)
    intercepts: Floats  # (items,)
    correlation: Floats  # (groups, Q, Q): of the abilities of each group of persons


class Streams(NamedTuple):
    """Random numbers of a sweep, by purpose."""

    omega: np.random.Generator
    ability: np.random.Generator
    item: np.random.Generator
    correlation: np.random.Generator
    rotation: np.random.Generator


def sweep(
    cells: Sparse, items: Items, state: State, streams: Streams, *, power: float = 1.0,
    correlated: bool = False, held: Held | None = None,
) -> None:  # fmt: skip
    """Draw omega, abilities, items and, if ``correlated``, the abilities' correlations, in place.

    With ``held``, the responses that feel a rotation, abilities and items are then turned together
    (:mod:`irt_dask.kernels.several.rotations`): for several uncorrelated abilities and power 1.

    Abilities are N(0, correlation).  Persons form as many groups of equal size, one after the
    other, as there are correlation matrices; a chain has one (several data sets, side by side, make
    one problem of groups).  ``power`` multiplies what the data say in the items' conditionals, and
    there alone.

    Raises
    ------
    ChainError
        If a predictor is not a number or beyond 100 in size.
    """
    n, q = state.theta.shape
    m = state.intercepts.size
    gram, linear = np.zeros((m, q + 1, q + 1)), np.zeros((m, q + 1))
    scatter = np.zeros_like(state.correlation)
    prior = np.linalg.inv(state.correlation)
    a, d = state.loadings, state.intercepts
    for lo, hi in _pieces(cells.indptr, n):
        where = (cells.indptr, cells.indices, lo, hi)
        z = np.empty(cells.indptr[hi] - cells.indptr[lo])
        _predictors(*where, state.theta, a, d, z)
        omega = draw_omega(z, streams.omega)
        _abilities(
            *where, cells.values, omega, a, d, prior, streams.ability,
            state.theta, gram, linear, scatter,
        )  # fmt: skip
    draw_items(items, gram, linear, power, streams.item, a, d)
    if correlated:
        draw_correlations(scatter, n // len(scatter), streams.correlation, state.correlation)
    if held is not None:
        rotate(items, held, state.theta, a, d, streams.rotation)


def _pieces(indptr: Ints, n: int) -> list[tuple[int, int]]:
    """Ranges of persons with about ``_TOGETHER`` responses each, one person at least.

    A rule of the shard alone: the library's draws depend on how many it is asked for at a time.
    """
    starts = np.searchsorted(indptr, np.arange(_TOGETHER, indptr[-1], _TOGETHER))
    ends = np.unique(np.concatenate([[0], starts, [n]]))
    return [(int(lo), int(hi)) for lo, hi in pairwise(ends)]


def draw_omega(z: Floats, rng: np.random.Generator) -> Floats:
    """Draw PG(1, |z|) for each predictor, exactly (Devroye's method).

    Raises
    ------
    ChainError
        If a predictor is not a number (the library would not return) or beyond 100 in size.
    """
    largest = float(np.abs(z).max(initial=0.0))
    if not largest <= _LARGEST_PREDICTOR:
        raise ChainError(
            f"a predictor a'theta + d is {largest:g} in size; Pólya-Gamma draws are exact up to "
            f"{_LARGEST_PREDICTOR:g}: too few persons hold the slopes; use fewer shards, or "
            f"tighter priors (ItemPrior)"
        )
    omega = np.empty_like(z)
    if z.size:
        random_polyagamma(
            1.0, z, out=omega, method="devroye", disable_checks=True, random_state=rng
        )
    return omega


@jit
def _predictors(
    indptr: Any, indices: Any, lo: int, hi: int, theta: Floats, a: Floats, d: Floats, z: Floats
) -> None:
    at = 0
    for i in range(lo, hi):
        for k in range(indptr[i], indptr[i + 1]):
            j = indices[k]
            value = d[j]
            for q in range(theta.shape[1]):
                value += a[j, q] * theta[i, q]
            z[at] = value
            at += 1


# --- abilities ------------------------------------------------------------------------------------


@jit
def _abilities(
    indptr: Any, indices: Any, lo: int, hi: int, values: Any, omega: Floats, a: Floats, d: Floats,
    prior: Floats, rng: Any, theta: Floats, gram: Floats, linear: Floats, scatter: Floats,
) -> None:  # fmt: skip
    """Draw the abilities of persons lo .. hi; add what items and correlations need of them.

    With x = (theta, 1) of a person: ``gram[j] += omega x x'``, ``linear[j] += (y - 1/2) x``, lower
    triangles; ``scatter[group] += theta theta'``.
    """
    n_dims = theta.shape[1]
    group_size = theta.shape[0] // prior.shape[0]
    p, u, x = np.empty((n_dims, n_dims)), np.empty(n_dims), np.ones(n_dims + 1)
    first = indptr[lo]
    for i in range(lo, hi):
        group = i // group_size
        p[:] = prior[group]
        u[:] = 0.0
        for k in range(indptr[i], indptr[i + 1]):
            j, w = indices[k], omega[k - first]
            residual = values[k] - 0.5 - w * d[j]
            for q in range(n_dims):
                u[q] += residual * a[j, q]
                for r in range(q + 1):
                    p[q, r] += w * a[j, q] * a[j, r]
        factorise(p)
        solve_lower(p, u)
        for q in range(n_dims - 1, -1, -1):
            x[q] = conditional_mean(p, u, x[:n_dims], q) + rng.standard_normal() / p[q, q]
        for q in range(n_dims):
            theta[i, q] = x[q]
            for r in range(q + 1):
                scatter[group, q, r] += x[q] * x[r]
        for k in range(indptr[i], indptr[i + 1]):
            j, w = indices[k], omega[k - first]
            for q in range(n_dims + 1):
                linear[j, q] += (values[k] - 0.5) * x[q]
                for r in range(q + 1):
                    gram[j, q, r] += w * x[q] * x[r]


# --- items ----------------------------------------------------------------------------------------


@jit
def _loadings_given(
    items: Items, j: int, gram: Floats, linear: Floats, intercept: tuple[float, float], dims: Any,
    p: Floats, u: Floats,
) -> None:  # fmt: skip
    """Precision p and linear term u of item j's loadings ``dims``, its intercept integrated out.

    ``gram`` and ``linear`` are the item's; ``intercept`` is the intercept's precision and linear
    term at loadings of 0.
    """
    precision_d, linear_d = intercept
    last = linear.size - 1
    for i in range(dims.size):
        q = dims[i]
        u[i] = linear[q] - gram[last, q] * linear_d / precision_d
        u[i] += items.precision[j, q] * items.mean[j, q]
        for k in range(dims.size):
            r = dims[k]
            p[i, k] = gram[max(q, r), min(q, r)] - gram[last, q] * gram[last, r] / precision_d
        p[i, i] += items.precision[j, q]


@jit
def _items(
    items: Items, gram: Floats, linear: Floats, power: float, rng: Any, a: Floats, d: Floats
) -> None:
    n_dims = a.shape[1]
    p_all, u_all, x_all = np.empty((n_dims, n_dims)), np.empty(n_dims), np.empty(n_dims)
    for j in range(d.size):
        dims = np.flatnonzero(items.free[j])
        n = dims.size
        p, u, x = p_all[:n, :n], u_all[:n], x_all[:n]
        g, h = power * gram[j], power * linear[j]
        mean_d, tau_d = items.intercept
        given = (g[n_dims, n_dims] + tau_d, h[n_dims] + tau_d * mean_d)
        _loadings_given(items, j, g, h, given, dims, p, u)
        hard = hardest(p, u, items.positive[j][dims]) if n > 1 else -1
        if 0 <= hard < n - 1:
            dims[hard], dims[n - 1] = dims[n - 1], dims[hard]
            _loadings_given(items, j, g, h, given, dims, p, u)
        x[:] = a[j][dims]
        draw_truncated(p, u, items.positive[j][dims], rng, x)
        linear_d = given[1]
        for i in range(n):
            a[j, dims[i]] = x[i]
            linear_d -= g[n_dims, dims[i]] * x[i]
        d[j] = linear_d / given[0] + rng.standard_normal() / math.sqrt(given[0])


def draw_items(
    items: Items, gram: Floats, linear: Floats, power: float, rng: np.random.Generator,
    loadings: Floats, intercepts: Floats,
) -> None:  # fmt: skip
    """Draw loadings and intercept of each item together, in place.

    ``gram`` (items, Q + 1, Q + 1), lower triangles, and ``linear`` (items, Q + 1) are the sums over
    an item's responses of ``omega x x'`` and ``(y - 1/2) x``, x = (theta, 1); ``power`` multiplies
    both.  The intercept is integrated out of the loadings' conditional, then drawn given them.
    """
    _items(items, gram, linear, power, rng, loadings, intercepts)
