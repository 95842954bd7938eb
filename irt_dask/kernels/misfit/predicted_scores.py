"""Moments of each response given the person's others, of items of any number of categories.

As in :mod:`irt_dask.kernels.posterior.leave_one_out`, dividing the posterior weights w by the
likelihood of one response gives those from the others, w / L; the category k then has the
probability ``sum (w / L) P_k / sum w / L``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.base.lanes import dot, total
from irt_dask.kernels.misfit.predictions import CERTAIN, CLASS_BOUND, CLASSES
from irt_dask.kernels.posterior.leave_one_out import Inverse
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


@jit
def _moments(
    indptr: Any, indices: Any, values: Any, g: Any, s: Shared, p: Prior, c: Some, first: Ints,
    inverse: Floats, chance: Floats, out: Floats,
) -> None:  # fmt: skip
    tilted = np.empty(g.nodes.size)
    at = 0
    for begin in range(0, n_rows(indptr, values), c.n.size):
        count = gather(indptr, indices, values, g, s, p, EVERYBODY, begin, c)
        weigh(c, count)
        for r in range(count):
            lo, hi = c.lo[r], c.hi[r]
            w, u = c.w[r, lo:hi], tilted[: hi - lo]
            its, row = rows.row(indptr, indices, values, c.person[r])
            for k in range(row.size):
                if row[k] < 0:
                    continue
                j = item(its, k)
                own = inverse[first[j] + row[k], lo:hi]
                for q in range(w.size):
                    u[q] = w[q] * own[q]
                sum_u = total(u)
                mean = 0.0
                for r_k in range(first[j] + 1, first[j + 1]):
                    mean += (r_k - first[j]) * (dot(u, chance[r_k, lo:hi]) / sum_u)
                variance = fourth = 0.0
                for r_k in range(first[j], first[j + 1]):
                    apart = (r_k - first[j] - mean) ** 2
                    share = dot(u, chance[r_k, lo:hi]) / sum_u
                    variance += share * apart
                    fourth += share * apart * apart
                variance = max(variance, CERTAIN)
                out[0, at] = row[k] - mean
                out[1, at] = variance
                out[2, at] = max(fourth - variance * variance, 0.0)
                at += 1


def moments(
    data: Layout, g: Tables, s: Shared, p: Prior, inverse: Inverse, chance: Floats
) -> Floats:
    """Residuals, variances, and variances of squared residuals, (3, responses), by rows.

    ``chance`` are the probabilities whose inverses ``inverse`` has.  Variances are at least
    ``CERTAIN``.
    """
    out = np.empty((3, data.n_observed))
    room = some(*data.shape, g.nodes.size, inverse.cut)
    _moments(*rows.arrays(data), g, s, p, room, inverse.first, inverse.values, chance, out)
    return out


@jit
def _items(
    indptr: Any, indices: Any, values: Any, given: Floats, steps: Ints, unit: float, wide: float,
    sums: Ints, classes: Ints,
) -> None:  # fmt: skip
    at = 0
    for i in range(n_rows(indptr, values)):
        its, row = rows.row(indptr, indices, values, i)
        for k in range(row.size):
            if row[k] < 0:
                continue
            j = item(its, k)
            residual, v, spread = given[0, at], given[1, at], given[2, at]
            at += 1
            square = residual * residual
            sums[j, 0] += 1
            sums[j, 1] += np.int64(np.rint(square * unit))
            sums[j, 2] += np.int64(np.rint(v * unit))
            sums[j, 3] += np.int64(np.rint(spread * unit))
            sums[j, 4] += np.int64(np.rint(square / v * wide))
            sums[j, 5] += np.int64(np.rint(spread / (v * v) * wide))
            share = min(max((row[k] - residual) / steps[j], CERTAIN), 1.0 - CERTAIN)
            place = (math.log(share / (1.0 - share)) + CLASS_BOUND) * (
                CLASSES / (2.0 * CLASS_BOUND)
            )
            q = min(max(math.floor(place), 0), CLASSES - 1)
            classes[j, q, 0] += np.int64(np.rint(residual * unit))
            classes[j, q, 1] += np.int64(np.rint(v * unit))


def add_item_sums(
    data: Layout, given: Floats, steps: Ints, unit: float, wide: float, sums: Ints, classes: Ints
) -> None:
    """As that of :mod:`irt_dask.kernels.misfit.predictions`, of moments, for scores to ``steps``.

    Classes are those of the expected score as a share of the highest.
    """
    _items(*rows.arrays(data), given, steps, unit, wide, sums, classes)


@jit
def _persons(indptr: Any, indices: Any, values: Any, given: Floats, out: Floats) -> None:
    at = 0
    for i in range(n_rows(indptr, values)):
        _, row = rows.row(indptr, indices, values, i)
        n, square, variance, standard = 0, 0.0, 0.0, 0.0
        for k in range(row.size):
            if row[k] >= 0:
                residual, v = given[0, at], given[1, at]
                at += 1
                n += 1
                square += residual * residual
                variance += v
                standard += residual * residual / v
        out[0, i] = square / variance if n > 0 else math.nan
        out[1, i] = standard / n if n > 0 else math.nan


def mean_squares(data: Layout, given: Floats) -> Floats:
    """Infit and outfit of each person, (2, persons); NaN without responses."""
    out = np.empty((2, data.shape[0]))
    _persons(*rows.arrays(data), given, out)
    return out


# --- by score -------------------------------------------------------------------------------------


@jit
def _by_score(
    indptr: Any, indices: Any, values: Any, first: Ints, counts: Ints, persons: Ints
) -> int:
    incomplete = 0
    for i in range(n_rows(indptr, values)):
        its, row = rows.row(indptr, indices, values, i)
        score = observed = 0
        for k in range(row.size):
            observed += row[k] >= 0
            score += max(row[k], 0)
        if observed < first.size - 1:
            incomplete += 1
            continue
        persons[score] += 1
        for k in range(row.size):
            counts[first[item(its, k)] + row[k], score] += 1
    return incomplete


def by_score(data: Layout, first: Ints) -> tuple[Ints, Ints, np.int64]:
    """Responses by category and sum of the responses, persons by that sum; persons left out.

    Shapes (rows, scores) and (scores,), of those who answered everything; the others are counted.
    Category k of item j has row ``first[j] + k``.
    """
    n_scores = int(first[-1]) - 2 * (first.size - 1) + first.size
    counts, persons = np.zeros((first[-1], n_scores), dtype=np.int64), np.zeros(n_scores, np.int64)
    incomplete = _by_score(*rows.arrays(data), first, counts, persons)
    return counts, persons, np.int64(incomplete)


# --- what is expected by score --------------------------------------------------------------------


@jit
def _with_item(f: Floats, p: Floats) -> Floats:
    """Distribution of a sum f, (scores, nodes), with one more item of probabilities p."""
    out = np.zeros((f.shape[0] + p.shape[0] - 1, f.shape[1]))
    for k in range(p.shape[0]):
        for s in range(f.shape[0]):
            for q in range(f.shape[1]):
                out[s + k, q] += f[s, q] * p[k, q]
    return out


@jit
def _jointly(f: Floats, p: Floats, weight: Floats, out: Floats) -> None:
    """Joint probability of an item's categories and the sum of all, f being that of the others."""
    for k in range(p.shape[0]):
        for s in range(f.shape[0]):
            joint = 0.0
            for q in range(weight.size):
                joint += weight[q] * p[k, q] * f[s, q]
            out[k, s + k] = joint


def expected_by_score(p: Floats, first: Ints, weight: Floats) -> Floats:
    """Probability of each category given the sum of all responses, (rows, scores).

    ``p`` is (rows, nodes), ``weight`` that of the nodes.  The sum of all items but one is found by
    halving the items again and again: what is outside of a half is the outside of the whole and
    the other half (Lord and Wingersky 1984 for each step).  NaN where a score has no probability.
    """
    n_scores = int(first[-1]) - (first.size - 1) + 1
    out = np.zeros((int(first[-1]), n_scores))

    def halve(lo: int, hi: int, outside: Floats) -> None:
        if hi - lo == 1:
            rows_ = slice(first[lo], first[hi])
            _jointly(outside, p[rows_], weight, out[rows_])
            return
        middle = (lo + hi) // 2
        for mine, others in (((lo, middle), (middle, hi)), ((middle, hi), (lo, middle))):
            f = outside
            for j in range(*others):
                f = _with_item(f, p[first[j] : first[j + 1]])
            halve(*mine, f)

    halve(0, first.size - 1, np.ones((1, p.shape[1])))
    total_ = np.add.reduceat(out, first[:-1], axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(out / np.repeat(total_, np.diff(first), axis=0))
