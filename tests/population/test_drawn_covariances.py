"""About which residual covariance plausible values have the covariance that abilities have."""

import numpy as np

from irt_dask.arrays import Floats
from irt_dask.population.conditioning_em import repaired
from irt_dask.population.conditioning_used import _center, _spread

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


def _draws(mean: Floats, elements: Floats, n: int) -> Floats:
    rng = np.random.default_rng(3)
    return np.stack([_spread(mean, elements, rng) for _ in range(n)])


def test_draws_spread_as_the_errors_of_all_elements_say() -> None:
    """A difference of domains is known much worse than their mean, which no degrees of freedom say.

    Over 20,000 draws errors of Monte Carlo are .7% of standard deviations; the rest of the limits
    are terms of the second order.
    """
    mean = np.array([[0.6, 0.45, 0.4], [0.45, 0.6, 0.5], [0.4, 0.5, 0.7]])
    i, j = np.triu_indices(3)
    root = np.random.default_rng(1).normal(size=(6, 6))
    elements = 4e-5 * root @ root.T
    got = _draws(mean, elements, 20_000)
    np.testing.assert_allclose(got.mean(axis=0), mean, atol=6e-4)
    np.testing.assert_allclose(got, np.swapaxes(got, 1, 2), atol=1e-14)
    sd = np.sqrt(np.diag(elements))
    of_draws = np.cov(got[:, i, j].T)
    np.testing.assert_allclose(np.sqrt(np.diag(of_draws)), sd, rtol=0.04)
    np.testing.assert_allclose(of_draws / np.outer(sd, sd), elements / np.outer(sd, sd), atol=0.07)


def test_draws_are_covariances_whatever_little_is_known() -> None:
    one = np.full((2, 2), 0.5) + 2e-3 * np.eye(2)
    got = _draws(one, np.diag([0.04, 0.03, 0.04]), 2000)
    assert np.linalg.eigvalsh(got)[:, 0].min() > 0.0
    np.testing.assert_allclose(got.mean(axis=0), one, atol=0.1)
    apart = np.array([repaired(x) for x in got])  # posteriors of abilities that are one are no sums
    correlation = apart[:, 0, 1] / np.sqrt(apart[:, 0, 0] * apart[:, 1, 1])
    assert correlation.max() < 0.9901
    assert (got[:, 0, 1] / np.sqrt(got[:, 0, 0] * got[:, 1, 1])).max() > 0.995
