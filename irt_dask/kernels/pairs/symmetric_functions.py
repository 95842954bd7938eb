"""Conditional likelihoods of the Rasch model by elementary symmetric functions.

The elementary symmetric functions gamma_r of ``eps_j = exp(-difficulty_j)`` are held as ratios
``q_r = gamma_r / gamma_{r-1}``, which fall in r and neither overflow nor underflow, whatever the
number of items.  Adding an item turns q into ``q_{r-1} (q_r + eps) / (q_{r-1} + eps)``: sums,
products and quotients of positive numbers, whose relative errors do not grow from item to item.

Given the score r an item is right with a probability p_r that follows from its neighbours:
``p_r = (eps / q_r) (1 - p_{r-1})``.  It rises with r.  Upwards from p_0 = 0 the errors do not grow
while p <= 1/2 (then eps <= q_r), downwards from p_k = 1 while p > 1/2 (then q_{r+1} < eps): so the
smaller of p and 1 - p is always the one that is computed, without cancellation.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.responses.item_sets import Sets

#: Two values of eps are close if their quotient is within this of 1.
_CLOSE = 1.0 / 64.0


@jit
def _ratios(eps: Floats, q: Floats) -> None:
    """Fill q[1] .. q[k] for the k items; q has k + 1 places at least."""
    q[:] = 0.0
    for n in range(eps.size):
        e = eps[n]
        for r in range(n + 1, 1, -1):
            q[r] = q[r - 1] * (q[r] + e) / (q[r - 1] + e)
        q[1] += e


@jit
def _inclusion(q: Floats, k: int, e: float, right: Floats, wrong: Floats) -> None:
    """Probabilities, by score 0 .. k, that the item is right, and wrong; q with the item."""
    right[0], wrong[0] = 0.0, 1.0
    right[k], wrong[k] = 1.0, 0.0
    r = 0
    while r < k - 1 and e / q[r + 1] * wrong[r] <= 0.5:
        right[r + 1] = e / q[r + 1] * wrong[r]
        wrong[r + 1] = 1.0 - right[r + 1]
        r += 1
    for s in range(k - 1, r, -1):
        wrong[s] = q[s + 1] / e * right[s + 1]
        right[s] = 1.0 - wrong[s]


@jit
def _set_moments(e: Floats, n: Ints, q: Floats, expected: Floats, covariance: Floats) -> None:
    """Persons expected right on each item of a set; covariances of right answers (i >= j).

    Two items of eps far apart are both right ``(e_i E_j - e_j E_i) / (e_i - e_j)`` times, E the
    expected right answers; of close ones the second is looked up among the others given one point
    less, whose ratios are ``e wrong / right``.
    """
    k = e.size
    seen = np.flatnonzero(n)
    root = np.sqrt(n[seen].astype(np.float64))
    right, wrong, others = np.empty(k + 1), np.empty(k + 1), np.zeros(k + 1)
    second, not_second = np.empty(k + 1), np.empty(k + 1)
    rooted = np.empty((k, seen.size))
    for i in range(k):
        _inclusion(q, k, e[i], right, wrong)
        expected[i] = variance = 0.0
        for s in range(seen.size):
            r = seen[s]
            rooted[i, s] = root[s] * right[r]
            expected[i] += n[r] * right[r]
            variance += n[r] * right[r] * wrong[r]
        for r in range(1, k):
            others[r] = e[i] * wrong[r] / right[r]
        covariance[i, i] = variance
        for j in range(i):
            if abs(e[i] - e[j]) > _CLOSE * min(e[i], e[j]):
                both = (e[i] * expected[j] - e[j] * expected[i]) / (e[i] - e[j])
            else:
                _inclusion(others, k - 1, e[j], second, not_second)
                both = 0.0
                for r in seen:
                    both += n[r] * right[r] * second[r - 1]
            covariance[i, j] = both
    product = np.dot(rooted, rooted.T)
    for i in range(k):
        for j in range(i):
            covariance[i, j] -= product[i, j]


@jit
def _log_gammas(e: Floats, n: Ints, q: Floats) -> float:
    """Return ``sum_r n_r log gamma_r`` of a set; fill its ratios."""
    _ratios(e, q)
    total = log_gamma = 0.0
    for r in range(1, e.size):
        log_gamma += np.log(q[r])
        total += n[r] * log_gamma
    return total


@jit
def _all_log_gammas(indptr: Ints, items: Any, scores: Ints, eps: Floats) -> float:
    q = np.empty(eps.size + 1)
    total = 0.0
    for g in range(indptr.size - 1):
        lo, hi = indptr[g], indptr[g + 1]
        total += _log_gammas(eps[items[lo:hi]], scores[lo + g : hi + g + 1], q)
    return total


@jit
def _all_moments(
    indptr: Ints, items: Any, scores: Ints, eps: Floats, expected: Floats, information: Floats
) -> float:
    q = np.empty(eps.size + 1)
    total = 0.0
    for g in range(indptr.size - 1):
        mine = items[indptr[g] : indptr[g + 1]]
        n = scores[indptr[g] + g : indptr[g + 1] + g + 1]
        k = mine.size
        total += _log_gammas(eps[mine], n, q)
        right, covariance = np.empty(k), np.empty((k, k))
        _set_moments(eps[mine], n, q, right, covariance)
        for i in range(k):
            expected[mine[i]] += right[i]
            for j in range(i + 1):
                information[mine[i], mine[j]] += covariance[i, j]
    return total


def log_likelihood(sets: Sets, b: Floats) -> float:
    """Conditional log-likelihood of the difficulties; sets of informative persons."""
    value = _all_log_gammas(sets.indptr, sets.items, sets.scores, np.exp(-b))
    return -float(b[sets.items] @ sets.right) - value


def derivatives(sets: Sets, b: Floats) -> tuple[float, Floats, Floats]:
    """Conditional log-likelihood, its gradient, and the information (minus its Hessian)."""
    m = b.size
    expected, information = np.zeros(m), np.zeros((m, m))
    value = _all_moments(sets.indptr, sets.items, sets.scores, np.exp(-b), expected, information)
    observed = np.bincount(sets.items, sets.right, minlength=m)
    information += np.tril(information, -1).T
    return -float(b[sets.items] @ sets.right) - value, expected - observed, information
