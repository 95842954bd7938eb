"""About which residual covariance plausible values have the covariance that abilities have."""

import numpy as np

from irt_dask.arrays import Floats
from irt_dask.population.conditioning_used import _center

RESIDUAL, ERRORS = np.array([[0.6, 0.3], [0.3, 0.6]]), np.diag([0.4, 0.6])


def _bias(n: int, p: int, sets: int, *, about: str) -> Floats:
    """Of the values' second moments, abilities observed with normal errors: no item in it.

    The design has orthogonal columns, so that maximum likelihood is in closed form.
    """
    rng = np.random.default_rng(0)
    x = np.linalg.qr(rng.normal(size=(n, p)))[0] * np.sqrt(n)
    b = 0.1 * rng.normal(size=(p, 2))
    found = []
    for _ in range(sets):
        y = x @ b + rng.multivariate_normal(np.zeros(2), RESIDUAL + ERRORS, n)
        estimate = x.T @ y / n
        left = y - x @ estimate
        total = left.T @ left / n
        likeliest, spread = total - ERRORS, total * p / n
        s = {
            "likeliest": likeliest,
            "corrected": likeliest + spread,
            "center": _center(likeliest, spread, p / n),
        }[about]
        drawn = estimate + rng.multivariate_normal(np.zeros(2), total / n, p)
        reliability = s @ np.linalg.inv(s + ERRORS)
        noise = rng.multivariate_normal(np.zeros(2), s - reliability @ s, n)
        values = x @ drawn + (y - x @ drawn) @ reliability.T + noise
        found.append(values.T @ values / n)
    return np.asarray(np.mean(found, axis=0) - b.T @ b - RESIDUAL)


def test_values_have_the_covariance_of_abilities() -> None:
    """12 persons for a coefficient: standard errors of these biases are .006."""
    assert np.abs(_bias(500, 41, 250, about="center")).max() < 0.016
    assert _bias(500, 41, 150, about="corrected")[0, 0] > 0.04
    assert _bias(500, 41, 150, about="likeliest")[1, 1] > 0.016


def test_a_covariance_stays_one() -> None:
    """Of hardly any persons: two for a coefficient, abilities that are one."""
    one = np.full((2, 2), 0.5) + 1e-3 * np.eye(2)
    center = _center(one, (one + ERRORS) * 0.5, 0.5)
    assert np.linalg.eigvalsh(center)[0] > 0.0
    np.testing.assert_allclose(center, center.T)
    rough = _center(one, 0.9 * one * 0.2, 0.2)  # errors that leave less than abilities' own
    np.testing.assert_allclose(rough, one, rtol=1e-9)
