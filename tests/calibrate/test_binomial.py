"""Counts of n attempts, the 2PL of each, against brute force; attempts that are alike."""

import numpy as np
import pytest
from scipy.special import expit, gammaln
from scipy.stats import binom

import irt_dask as irt
from irt_dask.errors import InputError

NODES, GAP = np.linspace(-8.0, 8.0, 1601, retstep=True)
MASS = np.exp(-0.5 * NODES**2) * GAP / np.sqrt(2.0 * np.pi)


def log_likelihood(y, n, a, d):
    """Marginal log-likelihood by a sum over nodes, item after item."""
    p = expit(np.multiply.outer(NODES, a) + d)
    of_each = np.ones((len(y), NODES.size))
    for j, k in enumerate(n):
        of_each *= binom.pmf(np.arange(k + 1)[:, None], k, p[:, j])[y[:, j]]
    return float(np.log(of_each @ MASS).sum())


@pytest.fixture(scope="module")
def counts():
    """250 persons, items of 3, 6 and 14 attempts; of the longest many counts nobody has."""
    rng = np.random.default_rng(5)
    n, a, d = np.array([3, 6, 14]), np.array([1.2, 0.8, 1.0]), np.array([0.3, -0.6, 2.8])
    p = expit(np.multiply.outer(rng.standard_normal(250), a) + d)
    y = rng.binomial(n, p).astype(np.int8)
    assert len(set(y[:, 2])) < 15
    return irt.from_array(y, categories=n + 1), y, n


@pytest.fixture(scope="module")
def fit(counts):
    return irt.fit_marginal(counts[0], model="binomial", tolerance=1e-12)


def test_the_maximum_and_its_errors(counts, fit):
    _, y, n = counts
    a, d = fit["item_discrimination"].values, fit["item_intercept"].values
    assert fit.attrs["log_likelihood"] == pytest.approx(log_likelihood(y, n, a, d), rel=1e-10)
    at, h = np.concatenate([a, d]), 1e-3

    def value(x):
        return log_likelihood(y, n, x[:3], x[3:])

    steps = np.eye(6) * h
    gradient = [(value(at + s) - value(at - s)) / (2 * h) for s in steps]
    assert np.abs(gradient).max() < 2e-3  # the error of the difference
    hessian = np.array([
        [sum(u * v * value(at + u * s + v * t) for u in (1, -1) for v in (1, -1)) for t in steps]
        for s in steps
    ]) / (4 * h * h)  # fmt: skip
    se = np.sqrt(np.diag(np.linalg.inv(-hessian)))
    got = [fit["item_discrimination_se"].values, fit["item_intercept_se"].values]
    assert np.allclose(np.concatenate(got), se, rtol=1e-4)
    assert fit.attrs["n_parameters"] == 6


def test_three_items_three_persons():
    """Likelihood of given items on a handful of answers, as a fit that may not move them says."""
    y, n = np.array([[0, 2, 4], [1, 3, 0], [2, 0, 5]]), np.array([2, 3, 5])
    responses = irt.from_array(y.astype(np.int8), categories=n + 1)
    bank = irt.simulate(3, 3, model="binomial", categories=list(n + 1), seed=1).truth
    a, d = bank["item_discrimination"].values, bank["item_intercept"].values
    bank = bank.drop_dims("persons").assign_coords(item_id=("items", list("012")))
    found = irt.score(responses, bank)
    p = expit(np.multiply.outer(NODES, a) + d)
    for row, mean in zip(y, found["person_ability"].values, strict=True):
        weight = MASS * np.prod(binom.pmf(row, n, p), axis=1)
        assert mean == pytest.approx(weight @ NODES / weight.sum(), abs=1e-8)


def test_one_attempt_is_the_2pl(counts):
    y = (counts[1] > np.array([1, 2, 12])).astype(np.int8)
    one, two = (irt.fit_marginal(y, model=m) for m in ("binomial", "2pl"))
    for name in ("item_discrimination", "item_intercept", "item_discrimination_se"):
        assert np.array_equal(one[name], two[name])


def test_likelihood_is_that_of_so_many_items(counts, fit):
    """n equal items of the 2PL, whose order the counts do not tell."""
    _, y, n = counts
    y = y.astype(np.int64)  # of small integers some SciPy's gammaln has six digits
    a, d = (np.repeat(fit[f"item_{k}"].values, n) for k in ("discrimination", "intercept"))
    apart = np.concatenate([np.arange(k) < y[:, j, None] for j, k in enumerate(n)], axis=1)
    p = expit(np.multiply.outer(NODES, a) + d)
    of_each = np.exp(apart @ np.log(p).T + (1.0 - apart) @ np.log1p(-p).T) @ MASS
    ways = (gammaln(n + 1) - gammaln(y + 1) - gammaln(n - y + 1)).sum()
    assert fit.attrs["log_likelihood"] == pytest.approx(np.log(of_each).sum() + ways, rel=1e-10)


def test_banks_scores_and_anchors(counts, fit, tmp_path):
    responses, _, _ = counts
    irt.write_items(fit, tmp_path / "bank.csv")
    bank = irt.read_items(tmp_path / "bank.csv")
    assert bank["item_model"].values.tolist() == ["binomial"] * 3
    for method in ("eap", "wle"):
        one, two = (irt.score(responses, b, method=method) for b in (fit, bank))
        assert np.allclose(one["person_ability"], two["person_ability"], atol=1e-12)
    held = irt.fit_marginal(responses, model="binomial", fixed_items=bank.isel(items=[0]))
    assert np.isclose(held["item_discrimination"][0], fit["item_discrimination"][0])
    other = irt.fit_marginal(responses.select(items=["0"]), model="gpcm", prior=irt.ItemPrior())
    with pytest.raises(InputError, match="no item of model binomial has its curves"):
        irt.fit_marginal(responses, model="binomial", fixed_items=other)


def test_attempts_that_are_alike_show_as_misfit():
    """Ten attempts: independent given ability, or in two answers of five all as the first one.

    With independent ones the smallest of 40 p-values is below 1e-4 in one set of 250.
    """
    rng = np.random.default_rng(8)
    a, d = rng.uniform(0.8, 1.6, 40), rng.normal(0.0, 0.8, 40)
    p = expit(np.multiply.outer(rng.standard_normal(200), a) + d)
    independent, alike = rng.binomial(10, p), 10 * (rng.random(p.shape) < p)
    mixed = np.where(rng.random(p.shape) < 0.4, alike, independent)
    found = []
    for y in (independent, mixed):
        y[0, 0] = -1  # so that S-X2 is not made, which takes long
        r = irt.from_array(y.astype(np.int8), categories=11)
        fit = irt.fit_marginal(r, model="binomial", standard_errors=False)
        found.append(irt.item_fit(r, fit))
    assert found[0]["item_chi2_p_value"].min() > 1e-4
    assert (found[1]["item_chi2_p_value"] < 0.05).mean() > 0.7
    assert abs(found[0]["item_infit"] - 1.0).max() < 0.4
    assert found[1]["item_infit"].min() > 2.0
