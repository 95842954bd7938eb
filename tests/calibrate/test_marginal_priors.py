"""Marginal fits with priors of slopes and intercepts: quadrature, optimisers, posteriors."""

import math
from functools import partial

import numpy as np
import pytest
from items import quiet, respond
from scipy.optimize import minimize
from scipy.stats import multivariate_normal, norm, truncnorm

import irt_dask as irt
from irt_dask.calibrate.marginal import sampling
from irt_dask.calibrate.marginal.specification import _common
from irt_dask.curves.betas import Betas
from irt_dask.curves.priors import ItemPrior
from irt_dask.errors import ConvergenceWarning, DataWarning, InputError, ItemWarning
from irt_dask.items.densities import Common, ItemDensity
from irt_dask.items.mixture import mixture_named

MEAN, COVARIANCE = np.array([0.1, -0.4]), np.array([[0.2, 0.1], [0.1, 1.5]])
maximise = partial(quiet, irt.fit_marginal, kinds=(ConvergenceWarning, ItemWarning, DataWarning))
sample = partial(quiet, irt.fit_bayes, kinds=(ConvergenceWarning, ItemWarning))


def standardised(n, m, seed, mean_d=0.0):
    """Responses of a test whose abilities have mean 0 and SD 1 in the sample, and its items."""
    rng = np.random.default_rng(seed)
    a, d = np.exp(0.35 * rng.standard_normal(m)), mean_d + 1.2 * rng.standard_normal(m)
    theta = rng.standard_normal(n)
    theta = (theta - theta.mean()) / theta.std()
    return respond(rng, theta, a, d), a, d


# --- densities ------------------------------------------------------------------------------------

#: Items of each model: parameters, and d, the mean of the step intercepts.
ITEMS = {
    "2pl": (2, [1.3, -0.4], -0.4), "3pl": (2, [1.3, -0.4, 0.2], -0.4),
    "4pl": (2, [1.3, -0.4, 0.2, 0.9], -0.4), "graded": (4, [1.3, 1.0, 0.1, -0.8], 0.1),
    "gpcm": (4, [1.3, 0.6, 0.9, -0.3], -0.1),
}  # fmt: skip


@pytest.mark.parametrize("log", [True, False])
@pytest.mark.parametrize("name", [*ITEMS])
def test_density_and_its_derivatives(name, log):
    k, x, d = ITEMS[name]
    models = mixture_named(name, ("q",), np.array([k]))
    x = np.array(x)[:, None]
    common = Common.of(models, MEAN, np.linalg.inv(COVARIANCE), log=log, constant=0.3)
    density = ItemDensity(Betas.of(*[(1.0, 1.0)] * 2, *[(3.0, 2.0)] * (len(x) - 2)), common)
    density = ItemDensity(density.betas if k == 2 else Betas.of(*[(1.0, 1.0)] * len(x)), common)
    normal = multivariate_normal(MEAN, COVARIANCE)
    exact = normal.logpdf([math.log(1.3) if log else 1.3, d]) + 0.3
    exact += density.betas.log_density(x)[0]
    assert density.log_density(x)[0] == pytest.approx(exact, rel=1e-12)
    h, gradient = 1e-6, density.gradient(x)
    information = density.information(x)[0]
    for p in range(len(x)):
        step = h * (np.arange(len(x)) == p)[:, None]
        sides = [density.log_density(x + s * step)[0] for s in (1, -1)]
        assert gradient[p, 0] == pytest.approx((sides[0] - sides[1]) / (2 * h), abs=1e-6)
        slopes = [density.gradient(x + s * step)[:, 0] for s in (1, -1)]
        np.testing.assert_allclose(information[p], (slopes[1] - slopes[0]) / (2 * h), atol=1e-5)
    assert density.log_density(np.full_like(x, np.nan))[0] == 0.0  # of an item that is fixed
    assert density.informative


@pytest.mark.parametrize("signed", [False, True])
def test_density_of_a_given_prior(signed):
    prior = ItemPrior(intercept=(0.5, 1.5), loading=(0.0, 0.8)) if signed else ItemPrior()
    models = mixture_named("2pl", ("q", "r"), np.array([2, 2]))
    x = np.array([[0.7, 1.4], [0.3, -1.0]])
    got = _common(prior, models, signed).log_density(x)
    of_a = norm(0.0, 0.8).logpdf(x[0]) if signed else truncnorm(-1, np.inf, 1.0, 1.0).logpdf(x[0])
    exact = of_a + norm(*prior.intercept).logpdf(x[1])
    np.testing.assert_allclose(got, exact, rtol=1e-12)


# --- given priors ---------------------------------------------------------------------------------


def log_posterior(y, of_item, weight=None):
    """Of slopes and intercepts (a..., d...), by quadrature over ability."""
    nodes = np.linspace(-8.0, 8.0, 161)
    mass = norm.pdf(nodes) / norm.pdf(nodes).sum()
    weight = np.ones(len(y)) if weight is None else weight

    def value(x):
        a, d = x.reshape(2, -1)
        z = nodes[:, None] * a + d
        log_p = np.stack([-np.logaddexp(0.0, z), -np.logaddexp(0.0, -z)])
        at = np.ogrid[: len(y), : nodes.size, : a.size][1:]
        each = np.where(y[:, None] >= 0, log_p[y.clip(0)[:, None], *at], 0.0)
        return weight @ np.log(np.exp(each.sum(axis=2)) @ mass) + of_item(a, d)

    return value


def curvature(f, x, h=1e-3):
    """Second derivatives with the sign changed, by central differences."""
    size, out = x.size, np.empty((x.size, x.size))
    e = h * np.eye(size)
    for i in range(size):
        for j in range(size):
            out[i, j] = (
                f(x + e[i] - e[j]) + f(x - e[i] + e[j]) - f(x + e[i] + e[j]) - f(x - e[i] - e[j])
            ) / (4 * h * h)
    return out


def test_mode_and_errors_by_quadrature_and_an_optimiser():
    y, _, _ = standardised(150, 4, 1)
    y = np.where(np.random.default_rng(2).random(y.shape) < 0.2, -1, y).astype(np.int8)
    prior = ItemPrior((0.8, 0.4), (0.3, 0.7))
    fit = maximise(irt.from_array(y), prior=prior, tolerance=1e-12)

    def of_item(a, d):
        low = (0.0 - 0.8) / 0.4
        of_a = truncnorm(low, np.inf, 0.8, 0.4).logpdf(a).sum()
        return of_a + norm(0.3, 0.7).logpdf(d).sum()

    value = log_posterior(y, of_item)
    with np.errstate(invalid="ignore"):  # outside of the prior
        best = minimize(lambda x: -value(x), np.repeat([0.8, 0.3], 4), tol=1e-12)
    got = np.concatenate([fit["item_discrimination"], fit["item_intercept"]])
    np.testing.assert_allclose(got, best.x, atol=2e-4)
    assert fit.attrs["objective"] == pytest.approx(-best.fun, abs=1e-7)
    assert fit.attrs["log_prior"] == pytest.approx(of_item(*got.reshape(2, -1)), rel=1e-9)
    assert fit.attrs["log_likelihood"] == pytest.approx(
        fit.attrs["objective"] - fit.attrs["log_prior"], rel=1e-12
    )
    errors = np.sqrt(np.diag(np.linalg.inv(curvature(value, got))))
    ours = np.concatenate([fit["item_discrimination_se"], fit["item_intercept_se"]])
    np.testing.assert_allclose(ours, errors, rtol=1e-3)
    assert (fit.attrs["prior"], fit.attrs["prior_intercept"]) == ("fixed", [0.3, 0.7])
    assert "aic" not in fit.attrs  # how many parameters a prior stands for nobody knows


def test_large_fits_have_the_same_errors(monkeypatch):
    y, _, _ = standardised(400, 30, 3)
    given = {"prior": ItemPrior((1.0, 0.3), (0.0, 0.8)), "standard_errors": True}
    dense = maximise(irt.from_array(y), **given)
    monkeypatch.setattr(sampling, "MAX_MATRIX", 10)
    large = maximise(irt.from_array(y), **given)
    for name in ("item_discrimination_se", "item_intercept_se"):
        np.testing.assert_allclose(large[name], dense[name], rtol=5e-3)
    np.testing.assert_allclose(large["item_intercept"], dense["item_intercept"], atol=1e-6)


def test_weights_of_persons_and_the_prior():
    """A row that counts twice is two rows; sampling weights widen errors, priors do not."""
    y, _, _ = standardised(200, 6, 4)
    times = np.random.default_rng(5).integers(1, 4, 200)
    persons = {"weight": times.astype(float)}
    counted = maximise(
        irt.from_array(y, persons=persons, weight_kind="frequency"), prior="empirical"
    )
    again = maximise(irt.from_array(np.repeat(y, times, axis=0)), prior="empirical")
    for name in ("item_discrimination", "item_intercept", "item_intercept_se", "item_prior_mean"):
        np.testing.assert_allclose(counted[name], again[name], rtol=1e-6, atol=1e-8)
    sampled = maximise(irt.from_array(y, persons=persons), prior=ItemPrior())
    exact = log_posterior(y, lambda a, d: 0.0, times / times.mean())
    got = np.concatenate([sampled["item_discrimination"], sampled["item_intercept"]])
    assert sampled.attrs["log_likelihood"] == pytest.approx(exact(got), abs=1e-6)


# --- learned priors -------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_learned_prior_is_the_items_own():
    """Mode given mean and covariance by an optimiser; these are those of the items, with errors."""
    y, _, _ = standardised(150, 6, 6)
    fit = maximise(irt.from_array(y), prior="empirical", tolerance=1e-12)
    mean, covariance = fit["item_prior_mean"].values, fit["item_prior_covariance"].values
    law = multivariate_normal(mean, covariance)

    def of_item(a, d):
        return -np.inf if (a <= 0.0).any() else law.logpdf(np.stack([np.log(a), d], 1)).sum()

    value = log_posterior(y, of_item)
    got = np.concatenate([fit["item_discrimination"], fit["item_intercept"]])
    best = minimize(lambda x: -value(x), got, tol=1e-12)
    np.testing.assert_allclose(got, best.x, atol=2e-4)
    assert fit.attrs["objective"] == pytest.approx(-best.fun, abs=1e-7)
    # the covariance: that of the items, and each one's own, with five items' worth of before
    own = np.linalg.inv(curvature(value, got))
    a, d = got.reshape(2, -1)
    x = np.stack([np.log(a), d]) - mean[:, None]
    scale = np.diag([0.75, 10.0]) + x @ x.T
    for j in range(6):
        by = np.diag([1.0 / a[j], 1.0])
        scale += by @ own[np.ix_([j, 6 + j], [j, 6 + j])] @ by
    np.testing.assert_allclose(covariance, scale / (8.0 + 6 - 3.0), rtol=0.03, atol=0.01)
    assert fit["coordinate"].values.tolist() == ["log_discrimination", "intercept"]
    assert fit.attrs["prior"] == "empirical"


@pytest.mark.parametrize("model", ["2pl", pytest.param("graded", marks=pytest.mark.slow)])
def test_it_is_near_the_posterior(model):
    """Of the hierarchical prior; the covariance too, of which the posterior has more."""
    r = irt.simulate(400, 15, model=model, categories=2 if model == "2pl" else 3, seed=7)
    fit = maximise(r, model=model, prior="empirical")
    posterior = sample(r, model=model, n_draws=400, n_warmup=150)
    for name in ("item_discrimination", "item_intercept"):
        sd = posterior[f"{name}_sd"]
        assert np.abs((fit[name] - posterior[name]) / sd).max() < 0.4
        np.testing.assert_allclose(fit[f"{name}_se"], sd, rtol=0.2)
    for name in ("item_prior_mean", "item_prior_covariance"):
        assert np.abs((fit[name] - posterior[name]) / posterior[f"{name}_sd"]).max() < 0.7


@pytest.mark.slow
@pytest.mark.parametrize("mean_d", [0.0, 1.5])
def test_few_persons_and_many_items(mean_d):
    """Persons hold scale and place, and slopes are nearer than those without a prior."""
    y, a, d = standardised(60, 200, 8, mean_d)
    fit = maximise(irt.from_array(y), prior="empirical", standard_errors=False)
    plain = maximise(irt.from_array(y), standard_errors=False)
    log_a = np.log(fit["item_discrimination"] / a)
    assert abs(float(log_a.mean())) < 0.08
    assert abs(float(np.median(fit["item_intercept"] - d))) < 0.15
    known = plain["item_discrimination"].values > 0.05  # others have no logarithm to speak of
    without = np.log(plain["item_discrimination"].values / a)[known]
    assert float((log_a**2).mean()) < 0.4 * (without**2).mean()
    fixed = maximise(irt.from_array(y), prior=ItemPrior(), standard_errors=False)
    assert abs(float(np.log(fixed["item_discrimination"] / a).mean())) > 0.12


def test_signed_slopes_have_a_learned_prior():
    y, a, _ = standardised(500, 15, 9)
    turned = np.arange(15) % 4 == 0
    options = {"prior": "empirical", "positive": "none", "tolerance": 1e-11}
    fit = maximise(irt.from_array(np.where(turned, 1 - y, y).astype(np.int8)), **options)
    np.testing.assert_array_equal(np.sign(fit["item_discrimination"]), np.where(turned, -1, 1))
    assert fit["coordinate"].values.tolist() == ["discrimination", "intercept"]
    assert np.corrcoef(np.abs(fit["item_discrimination"]), a)[0, 1] > 0.8
    # all items the other way round: ability turned, everything else the same
    other = maximise(irt.from_array(np.where(turned, y, 1 - y).astype(np.int8)), **options)
    np.testing.assert_allclose(
        np.abs(other["item_discrimination"]), np.abs(fit["item_discrimination"]), atol=1e-4
    )


def test_a_learned_prior_turns_with_the_items():
    """From a start that points the other way: the same items, prior and objective."""
    y, _, _ = standardised(400, 10, 14)
    options = {"prior": "empirical", "positive": "none", "tolerance": 1e-11}
    fit = maximise(irt.from_array(y), **options)
    turned = fit.assign({f"item_{k}": s * fit[f"item_{k}"] for k, s in
                         (("discrimination", -1.0), ("difficulty", -1.0))})  # fmt: skip
    other = maximise(irt.from_array(y), start=turned, **options)
    for name in ("item_discrimination", "item_intercept", "item_prior_mean"):
        np.testing.assert_allclose(other[name], fit[name], atol=0.02)
    assert other.attrs["objective"] == pytest.approx(fit.attrs["objective"], abs=0.05)
    assert (other["item_prior_mean"][0] > 0.0).all()


def test_groups_and_anchors_with_a_learned_prior():
    rng = np.random.default_rng(10)
    a, d = np.exp(0.3 * rng.standard_normal(20)), rng.standard_normal(20)
    group = np.repeat(["a", "b"], 600)
    y = respond(rng, rng.standard_normal(1200) + 0.8 * (group == "b"), a, d)
    r = irt.from_array(y, persons={"group": group})
    fit = maximise(r, prior="empirical")
    assert fit["group_mean"].values[1] == pytest.approx(0.8, abs=0.2)
    assert np.isfinite(fit["group_mean_se"].values[1])
    bank = fit.isel(items=slice(0, 8))
    joined = maximise(r, prior="empirical", fixed_items=bank)
    np.testing.assert_array_equal(
        joined["item_intercept"][:8], bank["item_intercept"].values.astype(float)
    )
    np.testing.assert_allclose(joined["item_intercept"], fit["item_intercept"], atol=0.1)


@pytest.mark.parametrize(("options", "match"), [
    ({"prior": "hierarchical"}, "'empirical' or an ItemPrior"),
    ({"prior": "empirical", "model": "1pl"}, "not of 1pl"),
    ({"prior": "empirical", "model": "nominal"}, "not of nominal"),
    ({"prior": ItemPrior(), "model": "rating"}, "not of 1pl"),
    ({"prior": "empirical", "latent": "histogram"}, r"on which ability is N\(0, 1\)"),
    ({"prior": ItemPrior((1.0, 0.5)), "positive": "none"}, "is of positive slopes"),
    ({"prior": ItemPrior(loading=(0.3, 1.0)), "positive": "none"}, "has to be 0"),
])  # fmt: skip
def test_priors_that_there_are_not(options, match):
    y, _, _ = standardised(100, 5, 11)
    with pytest.raises(InputError, match=match):
        irt.fit_marginal(y, **options)


def test_a_prior_of_items_with_empty_categories_is_refused():
    y = np.random.default_rng(12).integers(0, 3, (200, 4))
    y[:, 1] = np.where(y[:, 1] == 1, 2, y[:, 1])
    r = irt.from_array(y.astype(np.int8), categories=3)
    for prior in ("empirical", ItemPrior()):
        with pytest.raises(InputError, match="whose categories nobody has"):
            irt.fit_marginal(r, model="gpcm", prior=prior, null_categories="keep")


def test_a_start_without_slopes_and_an_item_that_all_have_right():
    y, _, _ = standardised(200, 8, 13)
    y[:, 2] = 1
    fit = maximise(irt.from_array(y), prior="empirical")
    assert not fit["item_at_bound"].any()
    assert np.isfinite(fit["item_intercept_se"]).all()
    flat = fit.assign(item_discrimination=1e-9 * fit["item_discrimination"])
    again = maximise(irt.from_array(y), prior="empirical", start=flat)
    np.testing.assert_allclose(again["item_intercept"], fit["item_intercept"], atol=0.05)
