"""Barycenters of location-scatter families in 2-Wasserstein distance.

Alvarez-Esteban et al. (2016): the covariance S of the barycenter of weights w_k and covariances C_k
is the fixed point of ``S <- S^{-1/2} (sum_k w_k (S^{1/2} C_k S^{1/2})^{1/2})^2 S^{-1/2}``.
"""

from __future__ import annotations

import numpy as np

from irt_dask.arrays import Floats
from irt_dask.errors import EstimationError

#: Eigenvalues below this share of the largest are rounding: the matrix is singular.
_RELATIVE_ZERO = 1e-13


def _symmetric(c: Floats) -> Floats:
    return 0.5 * (c + np.swapaxes(c, -1, -2))


def power(c: Floats, exponent: float) -> Floats:
    """Symmetric power of positive definite matrices, shape (..., p, p)."""
    value, vector = np.linalg.eigh(_symmetric(c))
    if not (value.min(axis=-1) > _RELATIVE_ZERO * value.max(axis=-1)).all():
        raise EstimationError(
            "a covariance matrix is not positive definite (smallest eigenvalue "
            f"{value.min():.3g}): too few draws for its size, or a chain that did not move"
        )
    return (vector * value[..., None, :] ** exponent) @ np.swapaxes(vector, -1, -2)


def barycenter(
    covariance: Floats, weight: Floats, *, tolerance: float = 1e-10, max_iterations: int = 500
) -> Floats:
    """Covariance of the barycenter; ``covariance`` is (K, ..., p, p), blocks treated separately.

    Raises
    ------
    EstimationError
        When the relative residual of the fixed-point equation stays above ``tolerance``.
    """
    w = (weight / weight.sum()).reshape(-1, *([1] * (covariance.ndim - 1)))
    s = _symmetric((w * covariance).sum(axis=0))
    residual = np.inf
    for _ in range(max_iterations):
        root, inverse = power(s, 0.5), power(s, -0.5)
        middle = (w * power(root @ covariance @ root, 0.5)).sum(axis=0)
        residual = float(np.max(np.abs(middle - s)) / np.max(np.abs(s)))
        if residual < tolerance:
            return s
        s = _symmetric(inverse @ middle @ middle @ inverse)
    raise EstimationError(
        f"the Wasserstein barycenter did not converge: relative residual {residual:.3g} after "
        f"{max_iterations} iterations (tolerance {tolerance:g})"
    )


def transport(source: Floats, target: Floats) -> Floats:
    """Optimal linear map T between centred Gaussians: ``T source T' = target``, T symmetric."""
    root, inverse = power(source, 0.5), power(source, -0.5)
    return _symmetric(inverse @ power(root @ target @ root, 0.5) @ inverse)


def covariances(x: Floats) -> Floats:
    """Covariance of each block of draws (draw, blocks, size), shape (blocks, size, size)."""
    deviation = (x - x.mean(axis=0)).transpose(1, 2, 0)
    return deviation @ deviation.transpose(0, 2, 1) / (len(x) - 1)


def mean_less_mode(x: Floats) -> Floats:
    """Distance of the mean of each block from its mode, to third order, from draws of it.

    For a density exp(-x'Hx/2 + third order) it is half of H^-1 times the third derivatives
    contracted with H^-1, which is ``E[x (x'Hx)] / 2`` to the same order.  Draws (draw, blocks,
    size) give (blocks, size); a coordinate that never moves has distance 0.
    """
    deviation = (x - x.mean(axis=0)).transpose(1, 2, 0)
    inverse = np.linalg.pinv(covariances(x), hermitian=True)
    length = (deviation * (inverse @ deviation)).sum(axis=1, keepdims=True)
    return 0.5 * (deviation * (length - length.mean(axis=2, keepdims=True))).mean(axis=2)


def excess_spread(x: Floats, ess: Floats) -> Floats:
    """Excess of each block's covariance over that of the Gaussian at its mode, from draws of it.

    To second order of exp(-x'Hx/2 + third + fourth order), with x in units of its own spread, it is
    half of ``E[x x' x'x] - (size + 2) I - K K'``, K the third moments: like the distance of mean
    from mode (:func:`mean_less_mode`) it falls like one over the persons.  Draws (draw, blocks,
    size) give (blocks, size, size), relative to the covariance: ``C^1/2 (I - excess) C^1/2`` is
    the Gaussian's.

    Of n independent draws of a Gaussian the estimate would be ``-((size + 2) + 3 size) / n`` times
    I on average, the first part from the covariance, the second from squares of third moments: it
    is added.  ``ess`` (blocks,), of the means, says what n is: in a chain with autocorrelation r
    of x that of Hermite polynomials of degree k is about r^k.
    """
    deviation = (x - x.mean(axis=0)).transpose(1, 2, 0)
    z = power((1.0 - 1.0 / len(x)) * covariances(x), -0.5) @ deviation  # mean square 1
    length = (z**2).sum(axis=1, keepdims=True)
    fourth = (z * length) @ z.transpose(0, 2, 1) / len(x) - (z.shape[1] + 2) * np.eye(z.shape[1])
    pairs = (z[:, :, None] * z[:, None]).reshape(len(z), -1, len(x))
    third = z @ pairs.transpose(0, 2, 1) / len(x)
    size, r = z.shape[1], (len(x) - ess) / (len(x) + ess)
    of_second, of_third = ((1.0 + r**k) / (1.0 - r**k) / len(x) for k in (2, 3))
    lost = (size + 2) * of_second + 3 * size * of_third
    excess = 0.5 * (fourth - third @ third.transpose(0, 2, 1))
    return excess + lost[:, None, None] * np.eye(size)
