"""Conditional likelihoods of partial credit items: symmetric functions of categories.

Category k of item j has the constant d_jk, d_j0 = 0.  Given the score r on a set of items,
responses x have the probability ``exp(sum_j d_jx) / gamma_r``, and ``gamma_r`` is the coefficient
of z^r in ``prod_j sum_k exp(d_jk) z^k``, whatever the ability.

**As probabilities.**  A person of ability t, any t, has P_jk = exp(d_jk + k t) / Z_j, and the score
r with probability g_r, the coefficients of ``prod_j sum_k P_jk z^k``, so that

    log gamma_r = log g_r + sum_j log Z_j - r t.

Probabilities do not overflow.  Products and sums of positive numbers keep their relative errors, so
g_r is as good as rounding allows until it underflows: a score is looked up at an ability where it
has at least the probability 1e-100.  One ability does for most tests, more for long or steep ones.

**Derivatives.**  Let G_ij be the distribution of the score on the items before j without i, g^j
that of the score on all items before j, and

    w_j(s) = sum_r (n_r / g_r) P(the items from j on sum to r - s),

n_r the persons with score r: ``w_end(r) = n_r / g_r``, ``w_j(s) = sum_k P_jk w_{j+1}(s + k)``.  So

    sum_r n_r P(x_i = k, x_j = l | r) = P_ik P_jl sum_s G_ij(s) w_{j+1}(s + k + l),    i < j,

and of G_i,end, which has all items but i, ``P(x_i = k | r) = P_ik G_i,end(r - k) / g_r``.  A sweep
forwards makes all G_ij from ``G_{i,j+1} = G_ij * P_j`` (convolution) and ``G_jj = g^j``: nothing is
divided, nothing subtracted.  The work is items^2 x highest score x categories.  The Hessian of
sum_r n_r log gamma_r is the sum of the covariances of these indicators, its gradient their mean.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.responses.item_sets import Sets

#: Least probability of a score at the ability where it is looked up; its inverse times that of any
#: other score neither overflows nor loses what counts.
_LEAST = 1e-100
#: Halvings of an interval of abilities; a quarter of them suffices for any two that differ.
_HALVINGS = 200


@jit
def _categories(d: Floats, first: Ints, items: Any, ability: float, p: Floats) -> float:
    """Fill the probabilities (items, categories) at an ability; return ``sum_j log Z_j``."""
    log_z = 0.0
    for i in range(items.size):
        start, steps = first[items[i]], first[items[i] + 1] - first[items[i]]
        highest = 0.0
        for k in range(steps):
            highest = max(highest, d[start + k] + (k + 1) * ability)
        z = p[i, 0] = np.exp(-highest)
        for k in range(steps):
            p[i, k + 1] = np.exp(d[start + k] + (k + 1) * ability - highest)
            z += p[i, k + 1]
        p[i, : steps + 1] /= z
        log_z += highest + np.log(z)
    return log_z


@jit
def _expected_score(p: Floats, steps: Ints) -> float:
    total = 0.0
    for i in range(steps.size):
        for k in range(1, steps[i] + 1):
            total += k * p[i, k]
    return total


@jit
def _ability(d: Floats, first: Ints, items: Any, steps: Ints, score: int, p: Floats) -> float:
    """Return an ability whose expected score is within 1/2 of a score; it need not be exact."""
    low, high, at = -1.0, 1.0, 0.0
    for _ in range(_HALVINGS):
        _categories(d, first, items, low, p)
        if _expected_score(p, steps) <= score:
            break
        low *= 2.0
    for _ in range(_HALVINGS):
        _categories(d, first, items, high, p)
        if _expected_score(p, steps) >= score:
            break
        high *= 2.0
    for _ in range(_HALVINGS):
        at = 0.5 * (low + high)
        _categories(d, first, items, at, p)
        expected = _expected_score(p, steps)
        if abs(expected - score) <= 0.5:
            break
        if expected < score:
            low = at
        else:
            high = at
    return at


@jit
def _with_item(scores: Floats, highest: int, p: Floats, steps: int) -> None:
    """Add an item to a distribution of scores up to ``highest``, in place."""
    for r in range(highest + steps, -1, -1):
        total = 0.0
        for k in range(max(0, r - highest), min(steps, r) + 1):
            total += p[k] * scores[r - k]
        scores[r] = total


@jit
def _reach(
    d: Floats, first: Ints, items: Any, steps: Ints, left: Ints, p: Floats, g: Floats, now: Ints
) -> float:
    """Deal with the scores that an ability in their midst reaches; ``sum n_r log gamma_r``.

    ``left`` are persons by score: those dealt with move to ``now``.  ``p`` and ``g`` are filled.
    """
    seen = np.flatnonzero(left)
    middle = seen[seen.size // 2]
    ability = _ability(d, first, items, steps, middle, p)
    log_z = _categories(d, first, items, ability, p)
    g[:] = 0.0
    g[0] = 1.0
    highest = 0
    for i in range(steps.size):
        _with_item(g, highest, p[i], steps[i])
        highest += steps[i]
    total = 0.0
    now[:] = 0
    for r in seen:
        if g[r] >= _LEAST or r == middle:
            total += left[r] * (np.log(g[r]) + log_z - r * ability)
            now[r], left[r] = left[r], 0
    return total


@jit
def _later(p: Floats, steps: Ints, g: Floats, now: Ints) -> Floats:
    """Return w_j(s) of the text above, (items + 1, scores)."""
    w = np.zeros((steps.size + 1, g.size))
    for r in np.flatnonzero(now):
        w[steps.size, r] = now[r] / g[r]
    highest = g.size - 1
    for j in range(steps.size - 1, -1, -1):
        highest -= steps[j]
        for s in range(highest + 1):
            for k in range(steps[j] + 1):
                w[j, s] += p[j, k] * w[j + 1, s + k]
    return w


@jit
def _pairs(p: Floats, steps: Ints, start: Ints, w: Floats, covariance: Floats) -> Floats:
    """Add persons expected in category k of i and l of j, i < j, at (l of j, k of i).

    Returns the distributions G_i,end of the score without each item, (scores, items).
    """
    n, widest = steps.size, steps.max()
    without, before = np.zeros((w.shape[1], n)), np.zeros(w.shape[1])
    both = np.empty((2 * widest + 1, n))
    before[0] = 1.0
    highest = 0
    for j in range(n):
        both[:] = 0.0
        for s in range(highest + 1):
            for t in range(2, min(widest + steps[j], highest + steps[j] - s) + 1):
                weight = w[j + 1, s + t]
                for i in range(j):
                    both[t, i] += weight * without[s, i]
        for i in range(j):
            for k in range(1, steps[i] + 1):
                for v in range(1, steps[j] + 1):
                    together = p[i, k] * p[j, v] * both[k + v, i]
                    covariance[start[j] + v - 1, start[i] + k - 1] += together
        for r in range(highest + steps[j], -1, -1):
            for i in range(j):
                without[r, i] *= p[j, 0]
            for k in range(1, min(steps[j], r) + 1):
                for i in range(j):
                    without[r, i] += p[j, k] * without[r - k, i]
        without[:, j] = before
        _with_item(before, highest, p[j], steps[j])
        highest += steps[j]
    return without


@jit
def _add_moments(
    p: Floats, steps: Ints, g: Floats, now: Ints, expected: Floats, covariance: Floats
) -> None:
    """Add persons expected in each category above 0, and covariances (of the lower triangle)."""
    start = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(steps)))
    without = _pairs(p, steps, start, _later(p, steps, g, now), covariance)
    seen = np.flatnonzero(now)
    root = np.sqrt(now[seen].astype(np.float64))
    rooted = np.empty((start[-1], seen.size))
    share = np.empty(steps.max() + 1)
    for i in range(steps.size):
        for s in range(seen.size):
            r = seen[s]
            for k in range(steps[i] + 1):
                share[k] = p[i, k] * without[r - k, i] / g[r] if k <= r else 0.0
            for k in range(1, steps[i] + 1):
                others = 0.0  # as 1 - share[k], without cancellation
                for v in range(steps[i] + 1):
                    if v != k:
                        others += share[v]
                at = start[i] + k - 1
                rooted[at, s] = root[s] * share[k]
                expected[at] += now[r] * share[k]
                covariance[at, at] += now[r] * share[k] * others
    product = np.dot(rooted, rooted.T)
    for a in range(start[-1]):
        for c in range(a):
            covariance[a, c] -= product[a, c]


@jit
def _steps(first: Ints, items: Any) -> Ints:
    steps = np.empty(items.size, dtype=np.int64)
    for i in range(items.size):
        steps[i] = first[items[i] + 1] - first[items[i]]
    return steps


@jit
def _all_log_gammas(
    indptr: Ints, items: Any, scores: Ints, of_set: Ints, d: Floats, first: Ints
) -> float:
    total = 0.0
    for g in range(indptr.size - 1):
        mine = items[indptr[g] : indptr[g + 1]]
        steps = _steps(first, mine)
        left = scores[of_set[g] : of_set[g + 1]].copy()
        now, chance = np.empty_like(left), np.empty(left.size)
        p = np.empty((steps.size, steps.max() + 1))
        while left.any():
            total += _reach(d, first, mine, steps, left, p, chance, now)
    return total


@jit
def _all_moments(
    indptr: Ints, items: Any, scores: Ints, of_set: Ints, d: Floats, first: Ints, expected: Floats,
    information: Floats,
) -> float:  # fmt: skip
    total = 0.0
    for g in range(indptr.size - 1):
        mine = items[indptr[g] : indptr[g + 1]]
        steps = _steps(first, mine)
        left = scores[of_set[g] : of_set[g + 1]].copy()
        now, chance = np.empty_like(left), np.empty(left.size)
        p = np.empty((steps.size, steps.max() + 1))
        own, covariance = np.zeros(left.size - 1), np.zeros((left.size - 1, left.size - 1))
        while left.any():
            total += _reach(d, first, mine, steps, left, p, chance, now)
            _add_moments(p, steps, chance, now, own, covariance)
        place = np.empty(own.size, dtype=np.int64)
        at = 0
        for i in range(mine.size):
            for k in range(steps[i]):
                place[at] = first[mine[i]] + k
                at += 1
        for a in range(own.size):
            expected[place[a]] += own[a]
            for c in range(a + 1):
                information[place[a], place[c]] += covariance[a, c]
    return total


def log_likelihood(sets: Sets, n: Ints, first: Ints, d: Floats) -> float:
    """Conditional log-likelihood of the constants d of categories above 0, items after each other.

    Those of item j have the places ``first[j]`` to ``first[j + 1]``; ``n`` are persons by category,
    like d.  All are informative persons, whose score is neither the lowest nor the highest.
    """
    value = _all_log_gammas(sets.indptr, sets.items, sets.scores, sets.first, d, first)
    return float(d @ n) - value


def derivatives(sets: Sets, n: Ints, first: Ints, d: Floats) -> tuple[float, Floats, Floats]:
    """Conditional log-likelihood, its gradient, and the information (minus its Hessian)."""
    expected, information = np.zeros(d.size), np.zeros((d.size, d.size))
    value = _all_moments(
        sets.indptr, sets.items, sets.scores, sets.first, d, first, expected, information
    )
    information += np.tril(information, -1).T
    return float(d @ n) - value, n - expected, information
