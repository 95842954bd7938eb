"""Populations and plausible values of items with any number of categories, by brute force."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from categories import category_probability
from scipy.optimize import minimize
from scipy.stats import kstest, norm

import irt_dask as irt
from irt_dask.kernels.base import keyed_random

K = (2, 3, 4, 3, 5, 3)
#: Models of which tables are made in different ways.
KINDS = {
    "any": ("3pl", "gpcm", "graded", "nominal", "gpcm", "graded"),
    "by score": ("2pl", "gpcm", "gpcm", "nominal", "gpcm", "gpcm"),
}
NAMES = tuple(f"item{j + 1}" for j in range(6))
NODES = np.linspace(-9.0, 9.0, 481)


class Made:
    """Responses of persons whose ability goes with a covariate and a group, and P of each item."""

    def __init__(self, kind: str, n: int, apart: float) -> None:
        model = dict(zip(NAMES, KINDS[kind], strict=True))
        self.bank = irt.simulate(10, 6, model=model, categories=K, seed=5).truth
        self.bank = self.bank.drop_dims("persons")
        rng = np.random.default_rng(3)
        self.x, self.group = rng.normal(size=n), np.array(["north", "south"])[np.arange(n) % 2]
        theta = 0.3 + 0.6 * self.x + np.where(self.group == "south", -0.4, 0.0)
        theta = theta + 0.8 * rng.normal(size=n)
        other = theta + apart * rng.normal(size=n)  # of every second item
        self.y = np.empty((n, 6), dtype=np.int8)
        for j in range(6):
            p = self.p(j, other if j % 2 else theta)
            self.y[:, j] = (rng.random((n, 1)) > p.cumsum(axis=1)[:, :-1]).sum(axis=1)
        self.y[rng.random(self.y.shape) < 0.2] = -1

    def p(self, j: int, theta: Any) -> Any:
        """P(category) of an item, by its textbook formula."""
        model, k = str(self.bank["item_model"].values[j]), K[j]
        steps = self.bank["item_step_intercept"].values[j, : k - 1]
        x = [float(self.bank["item_discrimination"][j]), *steps]
        if model == "3pl":
            x.append(float(self.bank["item_guessing"][j]))
        elif model == "nominal":
            x = [*self.bank["item_category_score"].values[j, 1:k], *steps]
        return category_probability(model, theta, np.array(x))

    @functools.cache  # noqa: B019
    def likelihood(self, items: Any = range(6)) -> Any:
        """Of each person at each node."""
        out = np.ones((len(self.y), NODES.size))
        for j in items:
            seen = self.y[:, j] >= 0
            out[seen] *= self.p(j, NODES)[:, self.y[seen, j]].T
        return out

    def responses(self, **persons: Any) -> irt.Responses:
        return irt.from_array(self.y, categories=K, item_id=NAMES, persons=persons or None)

    def ranks(self, values: Any, mean: Any, sd: Any, items: Any = range(6)) -> Any:
        """Posterior distribution function at a value of each person, prior N(mean_i, sd)."""
        w = self.likelihood(items) * norm.pdf(NODES, np.asarray(mean)[:, None], sd)
        f = np.concatenate([np.zeros((len(w), 1)), np.cumsum(w[:, 1:] + w[:, :-1], axis=1)], axis=1)
        return np.array([np.interp(v, NODES, g / g[-1]) for v, g in zip(values, f, strict=True)])


def highest(likelihood: Any, u: Any) -> tuple[Any, float]:
    """Coefficients and log SD of the largest marginal likelihood, and that.

    ``u`` is the design of the persons' means, residuals are normal.
    """

    def minus(v: Any) -> float:
        density = norm.pdf(NODES, (u @ v[:-1])[:, None], np.exp(v[-1])) * (NODES[1] - NODES[0])
        return -float(np.log((likelihood * density).sum(axis=1)).sum())

    found = minimize(minus, np.zeros(u.shape[1] + 1), method="BFGS", options={"gtol": 1e-6})
    return found.x, -found.fun


@functools.cache
def made(kind: str, n: int = 200, apart: float = 0.0) -> Made:
    return Made(kind, n, apart)


@pytest.mark.parametrize("kind", KINDS)
def test_values_are_quantiles_of_the_posterior(kind: str) -> None:
    """Each is at the share of the posterior that its random number is."""
    data = made(kind)
    r = data.responses()
    out = irt.score(r, data.bank, n_plausible=3, n_item_draws=0, seed=8, progress=False)
    for q, values in enumerate(out["person_plausible_value"].values.T):
        key = keyed_random.key(8, "plausible", q)
        u = keyed_random.uniforms(key, 0, r.n_persons, 1)[:, 0]
        ranks = data.ranks(values, np.zeros(r.n_persons), 1.0)
        np.testing.assert_allclose(ranks, u, atol=0.002)


@pytest.mark.parametrize("kind", KINDS)
def test_regression_is_the_maximum_of_brute_force(kind: str) -> None:
    """By ``score`` and by ``fit_population``, whose residual variance is of n - p."""
    data = made(kind)
    n, south = len(data.x), (data.group == "south") * 1.0
    r = data.responses(x=data.x, south=south)
    u = np.column_stack([np.ones(n), data.x, south])
    best, value = highest(data.likelihood(), u)
    options: dict[str, Any] = {"n_item_draws": 0, "progress": False}
    one = irt.score(r, data.bank, prior=["x", "south"], **options)
    np.testing.assert_allclose(one["regression_coefficient"], best[:3], atol=1e-5)
    assert float(one["residual_sd"]) == pytest.approx(np.exp(best[3]), abs=1e-5)
    assert one.attrs["log_likelihood"] == pytest.approx(value, abs=1e-5)
    other = irt.fit_population(r, data.bank, covariates=["x", "south"], progress=False)
    np.testing.assert_allclose(other["regression_coefficient"].values[0, :, 0], best[:3], atol=1e-5)
    taken = other["component_coefficient_covariance"].values[0].trace() / (1.0 - 3.0 / n)
    square = float(other["residual_sd"].values[0, 0]) ** 2 - taken
    assert np.sqrt(square) == pytest.approx(np.exp(best[3]), abs=1e-5)
    assert other.attrs["log_likelihood"] == pytest.approx(value, abs=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_groups_are_maxima_of_brute_force(kind: str) -> None:
    data = made(kind)
    found = irt.score(data.responses(group=data.group), data.bank, prior="groups",
                      n_item_draws=0, progress=False)  # fmt: skip
    for k, label in enumerate(found["group_label"].values):
        own = data.likelihood()[data.group == label]
        best, _ = highest(own, np.ones((len(own), 1)))
        assert float(found["group_mean"][k]) == pytest.approx(best[0], abs=1e-5)
        assert float(found["group_sd"][k]) == pytest.approx(np.exp(best[1]), abs=1e-5)


def test_values_of_an_estimated_population() -> None:
    """Ranks in posteriors at the estimates are uniform, but for parameters drawn once a value.

    1,500 persons: their errors of .03 move a rank by some .01, Kolmogorov's 1e-4 is .057.  Under
    the standard prior they go with the covariate, of which it knows nothing.
    """
    data = made("any", 1500)
    r = data.responses(x=data.x)
    fit = irt.fit_population(r, data.bank, covariates="x", progress=False)
    (b0, b1), sd = fit["regression_coefficient"].values[0, :, 0], fit["residual_sd"].values[0, 0]
    by_fit = irt.score(r, data.bank, prior=fit, n_plausible=3, seed=2, progress=False)
    by_score = irt.score(r, data.bank, prior=["x"], n_plausible=3, seed=2, n_item_draws=0,
                         progress=False)  # fmt: skip
    values = by_fit["person_domain_plausible_value"].values[..., 0]
    for drawn in (values, by_score["person_plausible_value"].values):
        for q in range(3):
            ranks = data.ranks(drawn[:, q], b0 + b1 * data.x, sd)
            assert kstest(ranks, "uniform").pvalue > 1e-4
            assert abs(np.corrcoef(ranks, data.x)[0, 1]) < 0.12
    other = irt.score(r, data.bank, n_plausible=1, seed=2, n_item_draws=0, progress=False)
    ranks = data.ranks(other["person_plausible_value"].values[:, 0], b0 + b1 * data.x, sd)
    assert np.corrcoef(ranks, data.x)[0, 1] < -0.24


class Two:
    """Marginal likelihood of two domains by sums over a plane of nodes."""

    def __init__(self, likelihoods: Any, u: Any) -> None:
        self.nodes = NODES[::6]
        self.f, self.u = [f[:, ::6] for f in likelihoods], u

    def __call__(self, v: Any) -> float:
        """Less the log likelihood at coefficients (covariates, domains) and a Cholesky factor."""
        p = self.u.shape[1]
        mean, (a, b, c) = self.u @ v[: 2 * p].reshape(p, 2), v[2 * p :]
        root = np.array([[np.exp(a), 0.0], [b, np.exp(c)]])
        x, y = (self.nodes - mean[:, [k]] for k in range(2))
        first = x / root[0, 0]
        second = (y[:, None, :] - root[1, 0] * first[:, :, None]) / root[1, 1]
        density = np.exp(-0.5 * (first[:, :, None] ** 2 + second**2)) * self.f[0][:, :, None]
        each = (density * self.f[1][:, None, :]).sum(axis=(1, 2))
        unit = (self.nodes[1] - self.nodes[0]) ** 2 / (2.0 * np.pi * root[0, 0] * root[1, 1])
        return -float(np.log(each * unit).sum())


@pytest.mark.slow
def test_two_domains_are_the_maximum_of_brute_force() -> None:
    """Coefficients of both, residual SDs and their correlation, residual variances of n - p."""
    data = made("any", 150, apart=0.8)
    n, r = 150, data.responses(x=data.x)
    domains = {"one": NAMES[::2], "two": NAMES[1::2]}
    fit = irt.fit_population(r, data.bank, covariates="x", domains=domains, progress=False)
    u = np.column_stack([np.ones(n), data.x])
    two = Two([data.likelihood(range(k, 6, 2)) for k in range(2)], u)
    b, sd = fit["regression_coefficient"].values[0], fit["residual_sd"].values[0]
    covariance = fit["component_coefficient_covariance"].values[0].reshape(2, 2, 2, 2)
    taken = np.einsum("cdce->de", covariance) / (1.0 - 2.0 / n)
    s = fit["residual_correlation"].values[0] * np.outer(sd, sd) - taken
    start = np.concatenate([[0.3, 0.3, 0.5, 0.5], [-0.2, 0.4, -0.5]])
    best = minimize(two, start, method="BFGS", options={"gtol": 1e-5})
    np.testing.assert_allclose(b.ravel(), best.x[:4], atol=5e-5)
    root = np.array([[np.exp(best.x[4]), 0.0], [best.x[5], np.exp(best.x[6])]])
    np.testing.assert_allclose(s, root @ root.T, atol=5e-5)
    assert fit.attrs["log_likelihood"] == pytest.approx(-best.fun, abs=1e-4)
