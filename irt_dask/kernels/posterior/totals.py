"""What persons would score on a whole set of questions of which they answered some.

A response of category k to item j adds ``points[first[j] + k]``.  Under the model what the rest
adds is a sum over the nodes of ability; from the responses without the j-th one the posterior is w
/ P(y_j | node), as in :mod:`irt_dask.kernels.posterior.leave_one_out`, so that leaving each one out
in turn costs a sweep over the nodes and no fit.

Let s be a simple random sample of n among N questions, r = s without j.  Given r, j is any of the
N - n + 1 others with the same chance, and the prediction e_i of question i from r does not know
which: ``(N - n + 1)(y_j - e_j)`` is on average the sum over them of y_i - e_i, however wrong the
predictions.  So

    T_j = sum of y over r + sum of e over the others + (N - n + 1)(y_j - e_j)

is on average the total of all N, and so is the mean of T_j over j in s.  In strata each one's total
is found this way from predictions that all other responses make.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.curves.item_set import ItemSet
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.base.exponential import LOG_NEGLIGIBLE
from irt_dask.kernels.base.lanes import dot, largest, total
from irt_dask.kernels.posterior.person_weights import (
    EVERYBODY,
    Prior,
    Shared,
    Some,
    gather,
    some,
    weigh,
)
from irt_dask.kernels.posterior.tables import Tables
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.kernels.responses.rows import item, n_rows

#: Residuals of the size that the model expects which are added to those that were observed.
PSEUDO_RESIDUALS = 10.0


class Points(NamedTuple):
    """Items of the responses, and what all questions of the bank add at each node."""

    first: Ints  # category k of item j has row first[j] + k
    chance: Floats  # probability of each category, (rows, nodes)
    points: Floats  # what a response of the category adds, (rows,)
    stratum: Ints  # of each item
    expected: Floats  # what the bank's questions add on average, by stratum, (strata, nodes)
    spread: Floats  # variance of what all of them add, given ability, (nodes,)
    size: Ints  # questions of the bank by stratum
    cut: float  # as that of leave_one_out.Inverse

    @property
    def nbytes(self) -> int:
        """Memory held, bytes."""
        return self.chance.nbytes + self.expected.nbytes


def reach_down(items: ItemSet, nodes: Floats) -> float:
    """Logarithm of the share of the largest weight that still matters without some response."""
    return LOG_NEGLIGIBLE + float(items.log_p(nodes[[0, -1]])[~items.empty].min())


@jit
def _moments_of(t: Points, j: int, q: int) -> tuple[float, float]:
    """Mean and variance of what item j adds at node q."""
    mean = square = 0.0
    for k in range(t.first[j] + 1, t.first[j + 1]):
        mean += t.points[k] * t.chance[k, q]
        square += t.points[k] * t.points[k] * t.chance[k, q]
    return mean, square - mean * mean


@jit
def _model(
    indptr: Any, indices: Any, values: Any, g: Any, s: Shared, p: Prior, c: Some, t: Points,
    out: Floats,
) -> None:  # fmt: skip
    rest, noise = np.empty(g.nodes.size), np.empty(g.nodes.size)
    everything = t.size.sum()
    for begin in range(0, n_rows(indptr, values), c.n.size):
        count = gather(indptr, indices, values, g, s, p, EVERYBODY, begin, c)
        weigh(c, count)
        for r in range(count):
            lo, hi = c.lo[r], c.hi[r]
            w = c.w[r, lo:hi]
            its, row = rows.row(indptr, indices, values, c.person[r])
            m, v = rest[: hi - lo], noise[: hi - lo]
            for q in range(w.size):
                m[q], v[q] = 0.0, t.spread[lo + q]
                for h in range(t.size.size):
                    m[q] += t.expected[h, lo + q]
            got = most = 0.0
            for k in range(row.size):
                if row[k] < 0:
                    continue
                j = item(its, k)
                got += t.points[t.first[j] + row[k]]
                most += t.points[t.first[j + 1] - 1]
                for q in range(w.size):
                    mean, variance = _moments_of(t, j, lo + q)
                    m[q] -= mean
                    v[q] -= variance
            i = c.person[r]
            out[0, i], out[3, i] = got, most
            out[1, i] = out[2, i] = 0.0
            if c.n[r] == everything:
                continue
            sum_w = total(w)
            centre = dot(w, m) / sum_w
            for q in range(w.size):
                v[q] = max(v[q], 0.0) + (m[q] - centre) ** 2
            out[1, i], out[2, i] = centre, dot(w, v) / sum_w


def model_moments(data: Layout, g: Tables, s: Shared, p: Prior, t: Points) -> Floats:
    """What persons have, mean and variance of what the rest will add, and the most they could have.

    (4, persons); the last is what the questions that a person answered add at most.
    """
    out = np.empty((4, data.shape[0]))
    _model(*rows.arrays(data), g, s, p, some(*data.shape, g.nodes.size), t, out)
    return out


# --- by design ------------------------------------------------------------------------------------


@jit
def _unseen(row: Any, its: Any, t: Points, lo: int, rest: Floats, got: Floats, n: Ints) -> None:
    """What the questions not answered add at each node, and the points of the others, by stratum.

    ``rest`` is (strata, nodes of the person).
    """
    got[:] = 0.0
    n[:] = 0
    for h in range(rest.shape[0]):
        for q in range(rest.shape[1]):
            rest[h, q] = t.expected[h, lo + q]
    for k in range(row.size):
        if row[k] < 0:
            continue
        j = item(its, k)
        h = t.stratum[j]
        n[h] += 1
        got[h] += t.points[t.first[j] + row[k]]
        for q in range(rest.shape[1]):
            rest[h, q] -= _moments_of(t, j, lo + q)[0]


@jit
def _left_out(
    row: Any, its: Any, t: Points, lo: int, hi: int, w: Floats, rest: Floats, got: Floats, n: Ints,
    u: Floats, sums: Floats,
) -> None:  # fmt: skip
    """Sums over the responses by stratum: T, residual, its square, and its expected square."""
    sums[:] = 0.0
    for k in range(row.size):
        if row[k] < 0:
            continue
        j = item(its, k)
        h = t.stratum[j]
        own = t.chance[t.first[j] + row[k], lo:hi]
        for q in range(w.size):
            u[q] = w[q] / own[q]
        peak = largest(u)  # 1 / P may be as large as doubles go
        for q in range(w.size):
            u[q] /= peak
        sum_u = total(u)
        mean = square = 0.0
        for r_k in range(t.first[j] + 1, t.first[j + 1]):
            share = dot(u, t.chance[r_k, lo:hi]) / sum_u
            mean += t.points[r_k] * share
            square += t.points[r_k] * t.points[r_k] * share
        y = t.points[t.first[j] + row[k]]
        residual, others = y - mean, t.size[h] - n[h] + 1
        unseen = dot(u, rest[h]) / sum_u + mean
        sums[0, h] += (got[h] - y) + unseen + others * residual
        sums[1, h] += residual
        sums[2, h] += residual * residual
        sums[3, h] += max(square - mean * mean, 0.0)


@jit
def design_variance(size: Ints, n: Ints, sums: Floats, pseudo: float) -> float:
    """Variance of the estimate, from :func:`_left_out`'s sums of n answers by stratum.

    It is that of residuals, as a multiple of what the model expects; ``size``: questions by
    stratum.
    """
    ratio, df = pseudo, pseudo
    for h in range(n.size):
        if 0 < n[h] < size[h] and sums[3, h] > 0.0:
            apart = max(sums[2, h] - sums[1, h] ** 2 / n[h], 0.0)
            ratio += apart / (sums[3, h] / n[h])
            df += n[h] - 1
    variance = 0.0
    for h in range(n.size):
        if n[h] > 0:
            share = 1.0 - n[h] / size[h]
            variance += share * size[h] ** 2 / n[h] * (sums[3, h] / n[h]) * (ratio / df)
    return variance


@jit
def _design(
    indptr: Any, indices: Any, values: Any, g: Any, s: Shared, p: Prior, c: Some, t: Points,
    wanted: Ints, pseudo: float, out: Floats, differ: Ints,
) -> None:  # fmt: skip
    n_strata = t.size.size
    room, u = np.empty(n_strata * g.nodes.size), np.empty(g.nodes.size)
    got, n, sums = np.empty(n_strata), np.empty(n_strata, dtype=np.int64), np.empty((4, n_strata))
    for begin in range(0, n_rows(indptr, values), c.n.size):
        count = gather(indptr, indices, values, g, s, p, EVERYBODY, begin, c)
        weigh(c, count)
        for r in range(count):
            i, lo, hi = c.person[r], c.lo[r], c.hi[r]
            w = c.w[r, lo:hi]
            its, row = rows.row(indptr, indices, values, i)
            rest = room[: n_strata * (hi - lo)].reshape((n_strata, hi - lo))
            _unseen(row, its, t, lo, rest, got, n)
            differ[i] = -1
            out[0, i] = out[1, i] = math.nan
            for h in range(n_strata):
                if n[h] == 0 or (wanted[h] >= 0 and n[h] != wanted[h]):
                    differ[i] = h
            if differ[i] >= 0:
                continue
            _left_out(row, its, t, lo, hi, w, rest, got, n, u[: hi - lo], sums)
            estimate = 0.0
            for h in range(n_strata):
                estimate += got[h] if n[h] == t.size[h] else sums[0, h] / n[h]
            out[0, i], out[1, i] = estimate, design_variance(t.size, n, sums, pseudo)


def design_moments(
    data: Layout, g: Tables, s: Shared, p: Prior, t: Points, wanted: Ints
) -> tuple[Floats, Ints]:
    """Estimate and its variance, (2, persons); a stratum of which not ``wanted`` were answered.

    The latter is -1, or the estimate NaN.  Where -1 is wanted any number is right but 0.
    """
    n = data.shape[0]
    out, differ = np.empty((2, n)), np.empty(n, dtype=np.int64)
    c = some(*data.shape, g.nodes.size, t.cut)
    _design(*rows.arrays(data), g, s, p, c, t, wanted, PSEUDO_RESIDUALS, out, differ)
    return out, differ
