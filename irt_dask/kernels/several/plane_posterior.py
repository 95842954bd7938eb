"""Posterior of two abilities on a square grid: expectations, the score of the items.

The nodes of each ability are the same; a node of the plane is (first, second), the second fastest.
The prior is normal with unit variances and some correlation.  Weights that lie more than
``LOG_NEGLIGIBLE`` below the largest are left out: in each row of the grid the others are an
interval, because the posterior is log-concave.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.curves.grids import BEYOND, FARTHEST, GRID_BOUND, LARGEST_LOGIT, Grid
from irt_dask.errors import InputError
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.base.exponential import LOG_NEGLIGIBLE
from irt_dask.kernels.posterior.expected_counts import Scales
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.kernels.responses.rows import item, n_rows

#: Nodes looked at first, to find the part of the grid that has weight.  The spacing is at most half
#: a posterior SD, so this is two of them, and weights are negligible nine from the mode.
STRIDE = 4
#: Products of two abilities are counted in this many times larger multiples than abilities: a power
#: of two above GRID_BOUND, so that their sums have room.
_PRODUCT = 8.0
#: Items whose information is added up together when a grid is chosen.
_TOGETHER = 16


class Plane(NamedTuple):
    """What depends on the items and the grid but on no person; nodes are n x n."""

    loading: Floats  # (2, items)
    intercept: Floats
    nodes: Floats  # (n,)
    prior: Floats  # log density without its constant, (n, n)
    total: Floats  # of a person who answered every item: the prior, minus all log(1 + e^z)
    wrong: Floats  # -log(1 + e^z), (items, n, n)
    chance: Floats  # P(right), (items, n, n)
    coarse_prior: Floats  # the same tables at every STRIDE-th node
    coarse_total: Floats
    coarse_wrong: Floats
    constant: float  # log of the normaliser of a sum over nodes

    @property
    def nbytes(self) -> int:
        """Memory held, bytes: two tables of items x nodes."""
        return sum(x.nbytes for x in self[:-1])


def plane_reach(loading: Floats, intercept: Floats, correlation: float) -> float:
    """How far along each ability posteriors go: GRID_BOUND, or as many whole SDs as needed.

    Looked for at every half SD, for the patterns that pull most along either ability and along
    both: an answer is right where the item's loadings point that way.
    """
    reach, towards = GRID_BOUND, np.array([[1, 0], [0, 1], [1, 1], [1, -1]])
    while reach <= FARTHEST:
        x = np.arange(-2 * int(reach), 2 * int(reach) + 1) / 2.0
        first, second = x[:, None], x[None, :]
        prior = first**2 - 2.0 * correlation * first * second + second**2
        log = np.repeat(-0.5 * prior[None] / (1.0 - correlation**2), 2 * len(towards), axis=0)
        for (a1, a2), d in zip(loading.T, intercept, strict=True):
            z = a1 * first + a2 * second + d
            wrong = -np.logaddexp(0.0, z)
            right = towards @ np.array([a1, a2]) > 0.0
            log += np.where(np.append(right, ~right)[:, None, None], wrong + z, wrong)
        edge = np.maximum(log[:, [0, -1]].max(axis=(1, 2)), log[:, :, [0, -1]].max(axis=(1, 2)))
        if (edge - log.max(axis=(1, 2)) < math.log(BEYOND)).all():
            break
        reach += 1.0
    logit = float((np.abs(loading).sum(axis=0) * reach + np.abs(intercept)).max())
    if reach > FARTHEST or (reach > GRID_BOUND and logit > LARGEST_LOGIT):
        raise InputError(
            f"under these items abilities may lie {reach:.0f} standard deviations from their mean, "
            f"with logits of {logit:.0f}; they are computed up to {FARTHEST:.0f} and "
            f"{LARGEST_LOGIT:.0f}: leave items out that are this extreme"
        )
    return reach


def plane_for(
    loading: Floats, intercept: Floats, *, correlation: float = 0.0, margin: float = 1.0,
    bound: float = GRID_BOUND,
) -> Grid:  # fmt: skip
    """Choose the grid along each ability by the rule of :func:`irt_dask.curves.grids.grid_for`.

    Spacing at most half the smallest posterior standard deviation, in any direction, that a person
    who answers every item can have, and at most one over the longest vector of loadings.
    """
    a = np.asarray(loading, dtype=float) * margin
    longest = max(float(np.hypot(a[0], a[1]).max()), 1e-6)
    n_points = math.ceil(2.0 * bound / min(0.25, 0.5 / longest)) + 1
    x = np.linspace(-bound, bound, n_points)
    inside = 1.0 / (1.0 - correlation**2)
    i11 = np.full((n_points, n_points), inside)
    i22, i12 = i11.copy(), np.full_like(i11, -correlation * inside)
    for k in range(0, a.shape[1], _TOGETHER):
        first, second, d = (
            a[0, k : k + _TOGETHER],
            a[1, k : k + _TOGETHER],
            intercept[k:][:_TOGETHER],
        )
        z = (first[:, None] * x)[:, :, None] + (second[:, None] * x)[:, None, :] + d[:, None, None]
        e = np.exp(-np.abs(z))
        slope = e / (1.0 + e) ** 2
        i11 += np.tensordot(first**2, slope, axes=1)
        i22 += np.tensordot(second**2, slope, axes=1)
        i12 += np.tensordot(first * second, slope, axes=1)
    largest = 0.5 * (i11 + i22) + np.hypot(0.5 * (i11 - i22), i12)
    spacing = min(0.5 / math.sqrt(float(largest.max())), 1.0 / longest, 0.5)
    return Grid(2 * math.ceil(bound / spacing) + 1, bound)


def plane(loading: Floats, intercept: Floats, nodes: Floats, correlation: float = 0.0) -> Plane:
    """Tables of items and grid; loadings have shape (2, n_items)."""
    x, y = nodes[:, None], nodes[None, :]
    inside = 1.0 - correlation**2
    prior = -0.5 * (x * x - 2.0 * correlation * x * y + y * y) / inside
    n, m = nodes.size, intercept.size
    wrong, chance, total = np.empty((m, n, n)), np.empty((m, n, n)), prior.copy()
    for j in range(m):
        z = (loading[0, j] * x + loading[1, j] * y) + intercept[j]
        e = np.exp(-np.abs(z))
        wrong[j] = -(np.maximum(z, 0.0) + np.log1p(e))
        chance[j] = np.where(z >= 0.0, 1.0, e) / (1.0 + e)
        total += wrong[j]
    h = float(nodes[1] - nodes[0])
    constant = 2.0 * math.log(h) - math.log(2.0 * math.pi) - 0.5 * math.log(inside)
    loading = np.ascontiguousarray(loading, dtype=float)
    few = [np.ascontiguousarray(x[..., ::STRIDE, ::STRIDE]) for x in (prior, total, wrong)]
    return Plane(
        loading, intercept, nodes, prior, total, wrong, chance, few[0], few[1], few[2], constant
    )


@jit
def _fill(items: Any, row: Any, base: Floats, wrong: Floats, g: Plane, at: Any, w: Floats) -> float:
    """Log weights of one person at rows and columns of a grid; returns the largest.

    ``at`` is the first row and the end, the first column and the end, the distance between them in
    nodes, t_1 and t_2, and whether every item was observed.
    """
    p0, p1, q0, q1, stride, t1, t2, complete = at
    nodes = g.nodes
    for p in range(p0, p1):
        for q in range(q0, q1):
            w[p, q] = base[p, q] + (t1 * nodes[p * stride] + t2 * nodes[q * stride])
    if not complete:
        for k in range(row.size):
            if row[k] >= 0:
                table = wrong[item(items, k)]
                for p in range(p0, p1):
                    to, add = w[p, q0:q1], table[p, q0:q1]
                    for q in range(to.size):
                        to[q] += add[q]
    peak = w[p0, q0]
    for p in range(p0, p1):
        for q in range(q0, q1):
            peak = max(peak, w[p, q])
    return peak


@jit
def weigh(
    items: Any, row: Any, g: Plane, w: Floats, coarse: Floats, first: Ints, last: Ints
) -> Any:
    """Weights of one person, relative to the largest, at nodes ``first[p] .. last[p]`` of row p.

    Every ``STRIDE``-th node of every such row says which part of the grid has any weight.  Returns
    the first and last row of it, the sum of weights, the log marginal likelihood and whether every
    item was observed.
    """
    n = g.nodes.size
    t1 = t2 = intercepts = 0.0
    observed = 0
    for k in range(row.size):
        observed += row[k] >= 0
        if row[k] == 1:
            j = item(items, k)
            t1 += g.loading[0, j]
            t2 += g.loading[1, j]
            intercepts += g.intercept[j]
    complete = observed == g.intercept.size
    few = coarse.shape[0]
    base = g.coarse_total if complete else g.coarse_prior
    at = (0, few, 0, few, STRIDE, t1, t2, complete)
    peak = _fill(items, row, base, g.coarse_wrong, g, at, coarse)
    p0, p1, q0, q1 = few, -1, few, -1
    for p in range(few):
        for q in range(few):
            if coarse[p, q] - peak > LOG_NEGLIGIBLE:
                p0, p1 = min(p0, p), max(p1, p)
                q0, q1 = min(q0, q), max(q1, q)
    # Up to the nodes around that are known to have none.
    p0, p1 = max(0, (p0 - 1) * STRIDE), min(n, (p1 + 1) * STRIDE + 1)
    q0, q1 = max(0, (q0 - 1) * STRIDE), min(n, (q1 + 1) * STRIDE + 1)
    base = g.total if complete else g.prior
    peak = _fill(items, row, base, g.wrong, g, (p0, p1, q0, q1, 1, t1, t2, complete), w)
    total = 0.0
    lo, hi = n, -1
    for p in range(p0, p1):
        first[p], last[p] = n, -1
        for q in range(q0, q1):
            if w[p, q] - peak > LOG_NEGLIGIBLE:
                first[p] = min(first[p], q)
                last[p] = q
        if last[p] < 0:
            continue
        lo, hi = min(lo, p), p
        for q in range(first[p], last[p] + 1):
            w[p, q] = math.exp(w[p, q] - peak)
            total += w[p, q]
    return lo, hi, total, peak + math.log(total) + intercepts + g.constant, complete


@jit
def scratch(n: int) -> Any:
    """Room for :func:`weigh`: weights, coarse ones, and the ends of the rows."""
    few = (n - 1) // STRIDE + 1
    ends = np.empty((2, n), dtype=np.int64)
    return np.empty((n, n)), np.empty((few, few)), ends[0], ends[1]


@jit
def _mean(g: Plane, w: Floats, first: Ints, last: Ints, lo: int, hi: int, total: float) -> Any:
    m1 = m2 = 0.0
    for p in range(lo, hi + 1):
        mass = 0.0
        for q in range(first[p], last[p] + 1):
            mass += w[p, q]
            m2 += w[p, q] * g.nodes[q]
        m1 += mass * g.nodes[p]
    return m1 / total, m2 / total


@jit
def _products(g: Plane, w: Floats, first: Ints, last: Ints, lo: int, hi: int, total: float) -> Any:
    """Expectations of (x^2 + y^2) / 2 and x y."""
    s11 = s12 = s22 = 0.0
    for p in range(lo, hi + 1):
        x = g.nodes[p]
        mass = times_y = times_yy = 0.0
        for q in range(first[p], last[p] + 1):
            y = g.nodes[q]
            mass += w[p, q]
            times_y += w[p, q] * y
            times_yy += w[p, q] * (y * y)
        s11 += mass * (x * x)
        s12 += times_y * x
        s22 += times_yy
    return 0.5 * (s11 + s22) / total, s12 / total


@jit
def _expectations(
    indptr: Any, indices: Any, values: Any, g: Plane, mean: Floats, cov: Floats, value: Floats
) -> None:
    n = g.nodes.size
    w, coarse, first, last = scratch(n)
    for i in range(n_rows(indptr, values)):
        items, row = rows.row(indptr, indices, values, i)
        lo, hi, total, value[i], _ = weigh(items, row, g, w, coarse, first, last)
        m1, m2 = _mean(g, w, first, last, lo, hi, total)
        v11 = v12 = v22 = 0.0
        for p in range(lo, hi + 1):
            x = g.nodes[p] - m1
            for q in range(first[p], last[p] + 1):
                y = g.nodes[q] - m2
                v11 += w[p, q] * x * x
                v12 += w[p, q] * x * y
                v22 += w[p, q] * y * y
        mean[i, 0], mean[i, 1] = m1, m2
        cov[i, 0], cov[i, 1], cov[i, 2] = v11 / total, v12 / total, v22 / total


def expectations(data: Layout, g: Plane) -> tuple[Floats, Floats, Floats]:
    """Posterior means (persons, 2), covariances (11, 12, 22) (persons, 3), log marginals."""
    n = data.shape[0]
    mean, cov, value = np.empty((n, 2)), np.empty((n, 3)), np.empty(n)
    _expectations(*rows.arrays(data), g, mean, cov, value)
    return mean, cov, value


@jit
def _sums(
    indptr: Any, indices: Any, values: Any, g: Plane, scale: float, log_scale: float,
    residual: Ints, whole: Ints, product: Ints,
) -> int:  # fmt: skip
    n = g.nodes.size
    w, coarse, first, last = scratch(n)
    column = np.empty((2, n))
    log_marginal = 0
    for i in range(n_rows(indptr, values)):
        items, row = rows.row(indptr, indices, values, i)
        lo, hi, total, value, complete = weigh(items, row, g, w, coarse, first, last)
        log_marginal += int(np.rint(value * log_scale))
        m1, m2 = _mean(g, w, first, last, lo, hi, total)
        if product.size:
            squares, cross = _products(g, w, first, last, lo, hi, total)
            product[0] += np.int64(np.rint(squares * (scale / _PRODUCT)))
            product[1] += np.int64(np.rint(cross * (scale / _PRODUCT)))
        part = scale / total
        if complete:
            for p in range(lo, hi + 1):
                for q in range(first[p], last[p] + 1):
                    whole[p, q] += np.int64(w[p, q] * part + 0.5)
        for k in range(row.size):
            y = row[k]
            if y < 0 or (complete and y == 0):
                continue
            j = item(items, k)
            e1 = e2 = e0 = 0.0
            if y == 1:
                e1, e2, e0 = m1 * scale, m2 * scale, scale
            if not complete:
                # Sums over rows at each column first: they need not wait for each other.
                column[:] = 0.0
                for p in range(lo, hi + 1):
                    b, e, x = first[p], last[p] + 1, g.nodes[p]
                    mass, times_x = column[0, b:e], column[1, b:e]
                    here, chance = w[p, b:e], g.chance[j, p, b:e]
                    for q in range(here.size):
                        part_right = here[q] * chance[q]
                        mass[q] += part_right
                        times_x[q] += part_right * x
                for q in range(n):
                    e1 -= part * column[1, q]
                    e2 -= part * (column[0, q] * g.nodes[q])
                    e0 -= part * column[0, q]
            residual[0, j] += np.int64(np.rint(e1))
            residual[1, j] += np.int64(np.rint(e2))
            residual[2, j] += np.int64(np.rint(e0))
    return log_marginal


def sums(
    data: Layout, g: Plane, scales: Scales, *, products: bool = False
) -> tuple[Ints, Ints, Ints, np.int64]:
    """Sums over persons from which the scores follow, as integers.

    Returns, as multiples of ``1 / scales.weight``, the sums of ``theta_1 (y - P)``,
    ``theta_2 (y - P)`` and ``y - P`` over the posterior by item, shape (3, n_items), where persons
    who answered every item add only the part of y, and the expected number of these persons at
    each node, (n, n); where ``products`` are asked for, as multiples of ``8 / scales.weight``, the
    sums of the posterior expectations of ``(theta_1^2 + theta_2^2) / 2`` and ``theta_1 theta_2``,
    (2,), else nothing, (0,); and the sum of log marginals, a multiple of
    ``1 / scales.log_marginal``.
    """
    n = g.nodes.size
    residual = np.zeros((3, data.shape[1]), dtype=np.int64)
    whole = np.zeros((n, n), dtype=np.int64)
    product = np.zeros(2 if products else 0, dtype=np.int64)
    value = _sums(*rows.arrays(data), g, *scales, residual, whole, product)
    return residual, whole, product, np.int64(value)


def score(residual: Floats, whole: Floats, g: Plane) -> Floats:
    """Gradient of the log marginal likelihood in (a_1, a_2, d), shape (3, n_items)."""
    out = residual.copy()
    for j in range(out.shape[1]):
        expected = whole * g.chance[j]
        out[0, j] -= float(g.nodes @ expected.sum(axis=1))
        out[1, j] -= float(expected.sum(axis=0) @ g.nodes)
        out[2, j] -= float(expected.sum())
    return out


def correlation_score(product: Ints, n_persons: int, correlation: float, scales: Scales) -> float:
    """Derivative of the log marginal likelihood by the abilities' correlation.

    By Fisher's identity that of the expected log density of the abilities, whose normaliser is part
    of the log marginal.
    """
    squares, cross = product * (_PRODUCT / scales.weight)
    inside = 1.0 - correlation**2
    slope = (1.0 + correlation**2) * cross - 2.0 * correlation * squares
    return float(n_persons * correlation / inside + slope / inside**2)
