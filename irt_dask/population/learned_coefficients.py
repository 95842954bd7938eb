"""Coefficients of many components under a normal prior that is learned from them.

Plausible values whose many coefficients are drawn from their likelihood alone vary too much: with p
coefficients of n persons and errors of variance v of a person's responses, the variance of values
is too large by 2 v p / n.  (Of y = theta + error and theta = u b + r, a value is a mean of y and of
a drawn u b; the p directions of the design hold the noise of the estimates and that of the draws.)
With coefficients N(0, w Omega), w a component's share of variance, as those of equal terms would
have, and Omega learned, both are drawn together by as much as they vary by chance.
"""

from __future__ import annotations

import numpy as np

from irt_dask.arrays import Floats

#: Components from which on a prior is learned: of few there is no telling, and they add little.
LEAST = 20
#: EM of the prior's covariance: steps, and the relative change that ends it.
_STEPS, _ENOUGH = 2000, 1e-8


def learned(
    components: Floats, covariance: Floats, variance: Floats
) -> tuple[Floats, Floats, Floats | None]:
    """Posterior mean and covariance of a group's coefficients, and Omega.

    ``components`` (components, domains), the intercept first, with their sampling ``covariance``
    (domains fastest); ``variance`` of the components but the intercept.  Below LEAST of these all
    is as it was, and there is no Omega.
    """
    n, dims = components.shape
    if n - 1 < LEAST:
        return components, covariance, None
    of_each = np.einsum("cdce->cde", covariance.reshape(n, dims, n, dims))[1:]
    omega = _prior(components[1:], of_each, variance)
    inverse = np.linalg.inv(covariance)
    posterior = np.linalg.inv(inverse + prior_precision(omega, variance))
    mean = posterior @ (inverse @ components.ravel())
    return mean.reshape(n, dims), 0.5 * (posterior + posterior.T), omega


def prior_precision(omega: Floats, variance: Floats) -> Floats:
    """Inverse of the prior's covariance, (components x domains, same); 0 of the intercept."""
    dims, n = len(omega), variance.size + 1
    out, inverse = np.zeros((n, dims, n, dims)), np.linalg.inv(omega)
    for k in range(1, n):
        out[k, :, k, :] = inverse / variance[k - 1]
    return out.reshape(n * dims, n * dims)


def _prior(c: Floats, v: Floats, w: Floats) -> Floats:
    """Covariance Omega of highest likelihood of c ~ N(0, w Omega + v), by EM."""
    scale = w[:, None, None]
    floor = 1e-8 * np.trace(v.mean(axis=0)) * np.eye(c.shape[1])
    omega = np.mean((c[:, :, None] * c[:, None, :] + v) / scale, axis=0)
    for _ in range(_STEPS):
        gain = scale * omega @ np.linalg.inv(scale * omega + v)
        mean = np.einsum("kde,ke->kd", gain, c)
        left = scale * omega - gain @ (scale * omega)
        new = np.mean((mean[:, :, None] * mean[:, None, :] + left) / scale, axis=0) + floor
        done = np.abs(new - omega).max() < _ENOUGH * np.abs(new).max()
        omega = 0.5 * (new + new.T)
        if done:
            break
    return np.asarray(omega)
