"""Arithmetic of private fits: what one person can change, and estimates from noisy counts.

One person who is right on the items R and wrong on the items W (disjoint) adds 1 to the count of
every pair (i, j), i in R, j in W, that is counted: to as many counts as pairs of the graph are cut
by R and W.  That is at most the largest cut, and at most ``floor(k^2 / 4)`` if at most k responses
of the person are used.  Adding or removing a person changes the counts by such a 0/1 vector x, of
squared length |x|; replacing one changes them by ``x - y``, of squared length
``|x| + |y| - 2 x'y <= |x| + |y|``, attained where right and wrong change places.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from irt_dask.arrays import Floats, Ints, Words
from irt_dask.kernels.base import keyed_random
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Dense, Layout, Sparse

#: Least count, in standard deviations of the noise, and at least 1.
_LEAST_COUNT = 0.1
#: Rate of pairs that are not counted, relative to the least count: too small to matter, and with
#: it no rate is 0, so that no elimination can break down.
_LEAST_RATE = 1e-12
#: Rounds of weights, and the difference of difficulties beyond which weights fall no further.
_ROUNDS, _LARGEST_GAP = 4, 20.0


class Pairs(NamedTuple):
    """Pairs of items of which both orders are counted: ``first < second``."""

    n_items: int
    first: Ints
    second: Ints

    @property
    def n(self) -> int:
        """Number of pairs."""
        return self.first.size

    @property
    def complete(self) -> bool:
        """Whether these are all pairs of items."""
        return self.n == self.n_items * (self.n_items - 1) // 2

    def of(self, matrix: NDArray[Any]) -> NDArray[Any]:
        """Entries of an items x items matrix: first in row, then first in column."""
        return np.concatenate([matrix[self.first, self.second], matrix[self.second, self.first]])


def all_pairs(n_items: int) -> Pairs:
    """Return every pair of items."""
    first, second = np.triu_indices(n_items, 1)
    return Pairs(n_items, first, second)


def random_pairs(n_items: int, p0: float, seed: int) -> Pairs:
    """Erdos-Renyi graph: each pair with probability p0, from the seed alone."""
    every = all_pairs(n_items)
    kept = keyed_random.stream(keyed_random.key(seed, "private", "pairs"), every.n) < p0
    return Pairs(n_items, every.first[kept], every.second[kept])


# --- sensitivity ----------------------------------------------------------------------------------


def squared_sensitivity(pairs: Pairs, max_items: int, adjacency: str) -> int:
    """Bound of the squared length by which one person can change the counts; see the module."""
    most = min(max_items**2 // 4, maxcut_bound(pairs))
    return most if adjacency == "add-remove" else 2 * most


def root(squared: int) -> float:
    """Return the square root, rounded up: its exact square is never below ``squared``."""
    x = math.sqrt(squared)
    while Fraction(x) ** 2 < squared:
        x = math.nextafter(x, math.inf)
    return x


def maxcut_bound(pairs: Pairs) -> int:
    """Proved upper bound of the number of pairs that a partition of the items can cut.

    The number of pairs; ``floor(m^2 / 4)``; and, with L the Laplacian and d the degrees, for every
    t the largest eigenvalue of ``M = 4 m L + t diag(sum(d) - m d)`` over 16: for x in {-1, 1}^m,
    ``x'Mx = 16 m cut(x)``, since the diagonal sums to 0 (Mohar and Poljak; Delorme and Poljak).
    The eigenvalue is not trusted: see :func:`_eigenvalue_bound`.
    """
    m = pairs.n_items
    best = min(pairs.n, m**2 // 4)
    if pairs.complete:
        return best
    degree = np.bincount(np.concatenate([pairs.first, pairs.second]), minlength=m)
    for t in range(5):
        matrix = np.zeros((m, m))
        matrix[pairs.first, pairs.second] = matrix[pairs.second, pairs.first] = -4.0 * m
        np.fill_diagonal(matrix, 4 * m * degree + t * (2 * pairs.n - m * degree))
        best = min(best, math.floor(_eigenvalue_bound(matrix) / 16.0))
    return best


def _eigenvalue_bound(matrix: Floats) -> float:
    """Proved upper bound of the largest eigenvalue of a symmetric matrix of integers.

    ``mu I - matrix`` is exact for an integer mu.  If its Cholesky factorisation runs to completion
    in floating point, no eigenvalue of it is below ``-g / (1 - g)`` times its trace,
    ``g = (m + 1) u / (1 - (m + 1) u)`` (Demmel 1989; Rump 2006), four times which is added here.
    """
    m = len(matrix)
    last = scipy.linalg.eigvalsh(matrix, subset_by_index=[m - 1, m - 1], check_finite=False)
    mu = math.ceil(float(last[0]) * (1.0 + 1e-10)) + 1
    shifted = mu * np.eye(m) - matrix
    try:
        scipy.linalg.cholesky(shifted, check_finite=False)
    except scipy.linalg.LinAlgError:  # not proved: no bound
        return math.inf
    g = (m + 1) * 2.0**-53 / (1.0 - (m + 1) * 2.0**-53)
    return mu + 4.0 * g / (1.0 - g) * float(np.trace(shifted))


# --- at most k responses of a person --------------------------------------------------------------


def limit_items(data: Layout, seeds: Words, most: int) -> Layout:
    """Keep ``most`` responses of each person who has more, all subsets equally likely.

    Which, is decided by the person's seed and the person's own items, in any layout.
    """
    indptr, indices, values = rows.arrays(data)
    kept = np.zeros(values.shape, dtype=np.bool_)
    _choose(indptr, indices, values, seeds, most, kept)
    if isinstance(data, Dense):
        return Dense(np.where(kept, values, np.int8(-1)))
    before = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(kept)])
    return Sparse(before[data.indptr], data.indices[kept], data.values[kept], data.n_items)


@jit
def _choose(indptr: Any, indices: Any, values: Any, seeds: Any, most: int, kept: Any) -> None:
    """Mark what is kept: of `left` to come `room` are taken, so the next is with room / left."""
    for i in range(rows.n_rows(indptr, values)):
        y = rows.row(indptr, indices, values, i)[1]
        take = rows.row(indptr, indices, kept, i)[1]
        left = 0
        for response in y:
            left += response >= 0
        room, state = most, seeds[i]
        for e in range(y.size):
            if y[e] < 0:
                continue
            state += np.uint64(0x9E3779B97F4A7C15)  # splitmix64
            z = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            z = z ^ (z >> np.uint64(31))
            if (z >> np.uint64(11)) * 2.0**-53 * left < room:
                take[e] = True
                room -= 1
            left -= 1


# --- from noisy counts to difficulties ------------------------------------------------------------


def difficulties(noisy: NDArray[Any], pairs: Pairs, sigma: float) -> Floats:
    """Difficulties of mean 0 from noisy counts in the order of :meth:`Pairs.of`: always finite.

    Counts are raised to at least ``max(1, sigma / 10)``, and the stationary distribution of the
    chain with these rates is proportional to exp(difficulty).  The Rasch model's chain is
    reversible: weights that are the same for both orders of a pair leave that distribution alone.
    The balance of a pair, ``pi_i Y_ij - pi_j Y_ji``, has a variance of about F (pi_i + pi_j) from
    persons, F the flow, and sigma^2 (pi_i^2 + pi_j^2) from the noise; weights proportional to the
    share of the former, ``1 / (1 + 2 sigma^2 cosh(b_i - b_j) / T)``, T the mean count of a pair,
    trust pairs of unequal items less, and are all 1 where there is no noise.
    """
    least = max(1.0, _LEAST_COUNT * sigma)
    m = pairs.n_items
    rates = np.zeros((m, m))
    above = np.maximum(noisy, least)
    rates[pairs.first, pairs.second] = above[: pairs.n]
    rates[pairs.second, pairs.first] = above[pairs.n :]
    noise = 2.0 * sigma * (sigma * pairs.n / rates.sum())
    beta = _log_stationary(rates, least)
    for _ in range(_ROUNDS):
        gap = np.clip(beta[:, None] - beta, -_LARGEST_GAP, _LARGEST_GAP)
        weight = (1.0 + noise) / (1.0 + noise * np.cosh(gap))
        beta = _log_stationary(rates * weight, least)
    return beta


def _log_stationary(rates: Floats, least: float) -> Floats:
    """Logarithm of the stationary distribution, centred.

    Every rate is made positive, so that ratios of probabilities are at most m times the ratio of
    the largest to the smallest rate: they neither overflow nor vanish.
    """
    pi = np.log(_eliminate(np.maximum(rates, _LEAST_RATE * least)))
    return pi - pi.mean()


@jit
def _eliminate(p: Any) -> Any:
    """Stationary distribution, unnormalised, by elimination without subtraction.

    Grassmann, Taksar and Heyman (1985): watch the chain on the first n states only.  For positive
    rates nothing can fail, and each probability has relative accuracy.  Overwrites ``p``.
    """
    m = p.shape[0]
    for n in range(m - 1, 0, -1):
        out = 0.0
        for j in range(n):
            out += p[n, j]
        for i in range(n):
            p[i, n] /= out
            f = p[i, n]
            for j in range(n):
                p[i, j] += f * p[n, j]
    pi = np.ones(m)
    for n in range(1, m):
        pi[n] = 0.0
        for i in range(n):
            pi[n] += pi[i] * p[i, n]
    return pi
