"""The Bradley-Terry model of comparisons of items, ``P(i wrong, j right | they differ) =
sigma(b_i - b_j)``: likelihood, Newton's method, and the covariance of its maximum.

The Hessian is minus the Laplacian of the graph of items whose edges weigh ``n p (1 - p)``.  It does
not see constants; all solutions and inverses here have mean 0 (pseudo-inverses).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator, cg
from scipy.special import expit

from irt_dask.arrays import Floats, Ints
from irt_dask.kernels.base.compiled import jit

#: Up to so many items Newton's equations are solved by Cholesky; beyond, by conjugate gradients.
_DENSE_ITEMS = 2_000
_CG_TOLERANCE, _CG_ITERATIONS = 1e-8, 5_000
#: Newton's decrement is the distance to the maximum in standard errors of the worst contrast.
_DECREMENT = 1e-9
_ITERATIONS, _HALVINGS = 100, 40
#: A Newton step moves no difficulty farther, and may lose so much of the objective to rounding.
_LONGEST_STEP, _ROUNDING = 4.0, 1e-13


class Comparisons(NamedTuple):
    """Pairs of items that were compared, ``first < second``.

    ``harder`` counts how often the first was wrong and the second right, ``total`` all comparisons
    (whole numbers).  Shapes (pairs,).
    """

    first: Ints
    second: Ints
    harder: Floats
    total: Floats
    n_items: int


def comparisons(code: Ints, times: Ints, n_items: int) -> Comparisons:
    """Collect both directions of each pair from counts of comparisons (``wrong m + right``)."""
    wrong, right = np.divmod(code, n_items)
    forward = wrong < right
    pair, at = np.unique(np.where(forward, code, right * n_items + wrong), return_inverse=True)
    harder = _sums(at, np.where(forward, times, 0), pair.size)
    first, second = np.divmod(pair, n_items)
    return Comparisons(first, second, harder, _sums(at, times, pair.size), n_items)


def _sums(place: Ints, weight: Floats | Ints, n: int) -> Floats:
    """Sum weights by place, shape (n,)."""
    return np.asarray(np.bincount(place, weight, minlength=n), dtype=np.float64)


def log_likelihood(c: Comparisons, b: Floats) -> float:
    """Log-likelihood of the comparisons at difficulties b."""
    z = b[c.first] - b[c.second]
    return float((c.harder * z - c.total * np.logaddexp(0.0, z)).sum())


def gradient(c: Comparisons, b: Floats) -> Floats:
    """Derivative of the log-likelihood, shape (items,); sums to 0."""
    rest = c.harder - c.total * expit(b[c.first] - b[c.second])
    return _sums(c.first, rest, c.n_items) - _sums(c.second, rest, c.n_items)


def information(c: Comparisons, b: Floats) -> Floats:
    """Weights ``n p (1 - p)`` of the pairs."""
    z = b[c.first] - b[c.second]
    return c.total * expit(z) * expit(-z)


def laplacian(c: Comparisons, weight: Floats) -> Floats:
    """Minus the Hessian of the log-likelihood as a dense matrix, shape (items, items)."""
    out = np.zeros((c.n_items, c.n_items))
    out[c.first, c.second] = out[c.second, c.first] = -weight
    np.fill_diagonal(out, _degree(c, weight))
    return out


def _degree(c: Comparisons, weight: Floats) -> Floats:
    return _sums(c.first, weight, c.n_items) + _sums(c.second, weight, c.n_items)


def _factor(c: Comparisons, weight: Floats) -> Floats:
    """Lower Cholesky factor of the Laplacian, raised along constants to make it invertible."""
    matrix = laplacian(c, weight)
    matrix += matrix.trace() / c.n_items**2
    return scipy.linalg.cholesky(matrix, lower=True, overwrite_a=True, check_finite=False)


def solve(c: Comparisons, weight: Floats, rhs: Floats) -> tuple[Floats, bool]:
    """Solve ``Laplacian x = rhs`` for x of mean 0 (rhs sums to 0); tell whether it was solved."""
    if c.n_items <= _DENSE_ITEMS:
        try:
            x = scipy.linalg.cho_solve((_factor(c, weight), True), rhs, check_finite=False)
        except np.linalg.LinAlgError:
            return np.zeros_like(rhs), False
        return x - x.mean(), True
    m, degree = c.n_items, _degree(c, weight)
    upper = csr_array((weight, (c.first, c.second)), shape=(m, m))
    both, raised = (upper + upper.T).tocsr(), degree.mean()

    def raised_laplacian(x: Floats) -> Floats:  # else rounding errors along constants would grow
        return degree * x - both @ x + raised * x.mean()

    x, failed = cg(
        LinearOperator((m, m), matvec=raised_laplacian, dtype=float),
        rhs - rhs.mean(),
        rtol=_CG_TOLERANCE,
        maxiter=_CG_ITERATIONS,
        M=LinearOperator((m, m), matvec=lambda x: x / degree, dtype=float),
    )
    return x - x.mean(), failed == 0


class Maximum(NamedTuple):
    """Difficulties of mean 0 at the end of Newton's method, and how it ended."""

    difficulty: Floats
    objective: float
    n_iterations: int
    converged: bool


def maximise(c: Comparisons) -> Maximum:
    """Maximise the likelihood, which must have a maximum (a strongly connected graph).

    Newton's method with step halving from 0.  It ends when the decrement ``sqrt(g' L^+ g)`` says
    that every difference of difficulties is within 1e-9 of its standard error.
    """
    b = np.zeros(c.n_items)
    value = log_likelihood(c, b)
    for iteration in range(_ITERATIONS):
        slope = gradient(c, b)
        step, solved = solve(c, information(c, b), slope)
        if solved and math.sqrt(max(float(slope @ step), 0.0)) <= _DECREMENT:
            return Maximum(b, value, iteration, True)
        longest = np.abs(step).max()
        if longest == 0.0:  # the equations could not be solved at all
            return Maximum(b, value, iteration, False)
        step *= min(1.0, _LONGEST_STEP / longest)
        for _ in range(_HALVINGS):
            new = log_likelihood(c, b + step)
            if new >= value - _ROUNDING * abs(value):
                break
            step *= 0.5
        else:
            return Maximum(b, value, iteration, False)
        b, value = b + step, new
        b -= b.mean()
    return Maximum(b, value, _ITERATIONS, False)


# --- covariance -----------------------------------------------------------------------------------


def centred(matrix: Floats) -> Floats:
    """Project a symmetric matrix on vectors of sum 0, from both sides; symmetric to the bit."""
    mean = matrix.mean(axis=1)
    matrix = matrix - mean[:, None] - mean[None, :] + mean.mean()
    return 0.5 * (matrix + matrix.T)


def pseudo_inverse(c: Comparisons, weight: Floats) -> Floats:
    """Pseudo-inverse of the Laplacian, shape (items, items).

    Raises numpy.linalg.LinAlgError if it has more than one eigenvalue 0 to working precision.
    """
    factor = _factor(c, weight)
    inverse, failed = scipy.linalg.lapack.dpotri(factor, lower=True, overwrite_c=True)
    if failed:
        raise np.linalg.LinAlgError("a diagonal element of the Cholesky factor is 0")
    inverse = np.tril(inverse)
    return centred(inverse + np.tril(inverse, -1).T)


def sandwich(inverse: Floats, scores: Floats) -> Floats:
    """Covariance of the maximum where persons, not comparisons, are independent.

    ``scores`` is the sum over persons of ``u u'``, u the person's part of the gradient.
    """
    return centred(inverse @ scores @ inverse)


# --- comparisons of estimates ---------------------------------------------------------------------


@jit
def largest_differences(draws: Any, one_by_se: Any) -> Any:
    """Return, for each draw, the largest ``|x_i - x_j| / se_ij``; draws are (items, draws)."""
    m, n = draws.shape
    largest = np.zeros(n)
    for i in range(m):
        for j in range(i + 1, m):
            w = one_by_se[i, j]
            for d in range(n):
                largest[d] = max(largest[d], abs(draws[i, d] - draws[j, d]) * w)
    return largest
