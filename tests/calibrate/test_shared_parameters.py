"""Posteriors of items that share a slope, or steps: densities, fits against others, refusals."""

from functools import partial

import numpy as np
import pytest
from categories import category_probability
from items import quiet
from scipy.linalg import sqrtm
from scipy.special import expit, log_expit
from scipy.stats import invgamma, multivariate_normal, norm, truncnorm

import irt_dask as irt
from irt_dask.calibrate.bayes import model_posterior, shared_parameters
from irt_dask.calibrate.bayes.common_slope import CommonSlope
from irt_dask.calibrate.bayes.hierarchy import Hierarchy
from irt_dask.calibrate.bayes.item_density import Conditional, Shapes
from irt_dask.calibrate.bayes.shared_space import SharedSpace
from irt_dask.calibrate.shared.shape_priors import guessing_priors
from irt_dask.curves.priors import ItemPrior
from irt_dask.engine import Engine
from irt_dask.errors import (
    ApproximationWarning,
    ConvergenceWarning,
    DataWarning,
    InputError,
    ItemWarning,
)
from irt_dask.items.mixture import mixture_named

fit_quietly = partial(
    quiet, irt.fit_bayes, kinds=(ConvergenceWarning, ItemWarning, ApproximationWarning)
)
HELD = np.array([[0.3, 0.1, 0.0], [0.1, 1.5, 0.0], [0.0, 0.0, 1.1]])
#: Of every kind: slopes of their own, steps of two blocks, one slope.
NAMES = ["2pl", "rating:u", "gpcm", "rating:v", "1pl", "pcm", "rating:u", "rating:v"]
K = [2, 3, 3, 4, 2, 3, 3, 4]


def shapes_of(names, k):
    ids = [str(j) for j in range(len(k))]
    models = mixture_named(dict(zip(ids, names, strict=True)), ids, k)
    return Shapes(models, guessing_priors(models, (5.0, 17.0)))


def responses(kind, n, m, k=2, seed=1):
    """Responses to items of one model, and a slope of 1.2."""
    rng = np.random.default_rng(seed)
    theta, y = rng.standard_normal(n), np.empty((n, m), dtype=np.int8)
    for j, d in enumerate(rng.normal(0.0, 1.0, m)):
        x = [1.2, d]
        if kind == "rating":
            x += [*np.linspace(0.8, 0.3, k - 2)]
        elif kind == "pcm":
            x[1:] = np.cumsum(np.sort(rng.normal(d, 0.7, k - 1))[::-1])
        p = category_probability(kind, theta, x)
        y[:, j] = (rng.random((n, 1)) > p.cumsum(axis=1)[:, :-1]).sum(axis=1)
    return irt.from_array(y, categories=k if k > 2 else None)


# --- densities ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def every_kind():
    rng, shapes = np.random.default_rng(3), shapes_of(NAMES, K)
    y = shapes.models.tied(np.where(shapes.free, 0.4 * rng.standard_normal((4, 8)), 0.0))
    return shapes, y


def test_items_share_what_they_do_in_marginal_fits(every_kind):
    shapes, y = every_kind
    r = irt.from_array(np.random.default_rng(1).integers(0, K, (300, 8)), categories=K)
    model = dict(zip(r.item_id, NAMES, strict=True))
    marginal = quiet(irt.fit_marginal, r, model=model, standard_errors=False)
    slopes = marginal["item_discrimination"].values
    alike = shapes.models.of_all[0] >= 0
    assert np.ptp(slopes[alike]) == 0.0
    assert alike.tolist() == [False, True, False, True, True, True, True, True]
    x = shapes.parameters(y)
    np.testing.assert_array_equal(x[2:, 1], x[2:, 6])
    np.testing.assert_array_equal(x[2:, 3], x[2:, 7])
    assert (x[2, 1] != x[2, 3]).all()


@pytest.mark.parametrize("learned", [False, True])
def test_density_before_the_data_counts_what_is_shared_once(every_kind, learned):
    shapes, y = every_kind
    sharing = shapes.models.of_all[0] >= 0
    prior = CommonSlope.of(Hierarchy(), sharing) if learned else ItemPrior()
    mean = np.array([0.1, -0.2, 0.3])
    state = {"log_a": y[0], "d": y[1], "prior_mean": mean, "prior_covariance": HELD}
    common = shared_parameters.moves(shapes, prior, 1.0, state, np.zeros(0))
    density = Conditional(shapes, [], common)

    def exact(y):
        a, own = np.exp(y[0]), ~sharing
        if learned:
            out = multivariate_normal(mean[:2], HELD[:2, :2]).logpdf(y[:2, own].T).sum()
            out += norm.logpdf(y[0, 1]) + norm.logpdf(y[1, sharing], 0.3, 1.1**0.5).sum()
        else:
            each = np.append(a[own], a[1])
            out = (truncnorm.logpdf(each, -1, np.inf, 1.0) + np.log(each)).sum()
            out += norm.logpdf(y[1], 0.0, 2.0).sum()
        for j in (1, 2, 3, 5):  # step intercepts about their mean; those of 6, 7 are 1's and 3's
            t = np.append(np.append(0.0, y[2 : K[j], j]), 0.0)
            out += norm.logpdf(np.diff(t), 0.0, 2.0).sum()
        return out

    other = shapes.models.tied(
        y + 0.3 * np.where(shapes.free, np.cos(np.arange(32.0)).reshape(4, 8), 0.0)
    )
    found = density.value(other).sum() - density.value(y).sum()
    assert found == pytest.approx(exact(other) - exact(y), rel=1e-9)
    assert set(prior.names if learned else ()) <= {
        "log_discrimination", "intercept", "intercept_of_common_slope"
    }  # fmt: skip


@pytest.mark.parametrize("learned", [False, True])
def test_posterior_on_all_data_by_what_is_shared(learned):
    # The gradient in the coordinates of combinations against differences of the value.
    rng, shapes = np.random.default_rng(3), shapes_of(NAMES, K)
    r = irt.from_array(rng.integers(0, K, (60, 8)), categories=K)
    space = SharedSpace(shapes=shapes)
    prior = ItemPrior()
    if learned:
        prior = CommonSlope.of(Hierarchy(), shapes.models.of_all[0] >= 0).holding(HELD)
    free = space.mask(0, 0)
    assert free.sum() == shapes.models.once.sum()
    x = np.where(free, 0.3 * rng.standard_normal(free.shape), 0.0)
    np.testing.assert_array_equal(space.of_draws(space.parameters(x)), x)
    with Engine(r, client=None, progress=False, stage="test", graded=True) as engine:
        posterior = model_posterior.Posterior(engine, prior, shapes)
        nodes = posterior.nodes(space.parameters(x) + 0.1)
        _, by = posterior(space.parameters(x), nodes)
        found = space.gradient(x, by)
        for row, column in zip(*np.nonzero(free), strict=True):
            value = []
            for step in (1e-3, -1e-3):
                moved = x.copy()
                moved[row, column] += step
                value.append(posterior(space.parameters(moved), nodes)[0])
            assert found[row, column] == pytest.approx(
                (value[0] - value[1]) / 2e-3, rel=2e-4, abs=2e-4
            )


# --- the learned prior ----------------------------------------------------------------------------

SHARING = np.array([True, False, True, True, False, True, False])


@pytest.mark.parametrize("sharing", [SHARING, np.ones(7, dtype=bool)])
def test_learned_prior_by_a_normal_of_all_items(sharing):
    rng, n = np.random.default_rng(4), int(sharing.sum())
    x = np.stack([rng.normal(0.2, 0.4, 7), rng.normal(-0.5, 1.2, 7)])
    x[0, sharing] = x[0, 0]
    plain, mixed = Hierarchy(), not sharing.all()
    held = HELD if mixed else HELD[2:, 2:]
    prior = CommonSlope.of(plain, sharing).holding(held)
    law = multivariate_normal(np.zeros(n), 1.1 * np.eye(n) + 9.0)
    exact = law.logpdf(x[1, sharing]) + norm.logpdf(x[0, 0])
    slope = np.zeros_like(x)
    slope[1, sharing], slope[0, 0] = -np.linalg.solve(law.cov, x[1, sharing]), -x[0, 0]
    if mixed:
        own, by = plain.holding(HELD[:2, :2]).log_density(x[:, ~sharing])
        exact, slope[:, ~sharing] = exact + own, by
    value, found = prior.log_density(x)
    assert value == pytest.approx(exact, rel=1e-11)
    np.testing.assert_allclose(found, slope, atol=1e-10)
    # Weights of draws: the variance integrated out by a fine grid, against that which is held.
    mean = np.array([0.1, -0.2, 0.3]) if mixed else np.array([0.3])
    again = x + np.array([[0.0], [0.4]])
    s2 = np.exp(np.linspace(-6.0, 8.0, 20_001))
    log_weight = []
    for v in (x, again):
        of_d = norm.logpdf(v[1, sharing, None], 0.3, np.sqrt(s2)).sum(axis=0)
        whole = np.log((np.exp(of_d) * invgamma.pdf(s2, 3.5, scale=5.0) * s2).sum())
        own = plain.holding(HELD[:2, :2]).log_weights(v[:, ~sharing], mean[:2]) if mixed else 0.0
        log_weight.append(whole - norm.logpdf(v[1, sharing], 0.3, 1.1**0.5).sum() + own)
    found = prior.log_weights(again, mean) - prior.log_weights(x, mean)
    assert found == pytest.approx(log_weight[1] - log_weight[0], rel=1e-6)


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("sharing", [SHARING, np.ones(7, dtype=bool)])
def test_moves_have_their_density_on_the_orbit(sharing, held):
    """Along a shift the log density is the normal that is drawn from, and that of a stretch."""
    rng, mixed = np.random.default_rng(5), not sharing.all()
    x = np.stack([rng.normal(0.2, 0.4, 7), rng.normal(-0.5, 1.2, 7)])
    x[0, sharing] = x[0, 0]
    covariance = HELD if mixed else HELD[2:, 2:]
    prior = CommonSlope.of(Hierarchy(), sharing)
    power, theta = (0.3, rng.normal(0.2, 1.1, 40)) if held else (1.0, rng.normal(0.2, 1.1, 40))
    if held:
        prior = prior.holding(covariance)
    mean = np.array([0.4, -0.6, 0.7]) if mixed else np.array([0.7])
    sums = theta.size, theta.sum(), (theta**2).sum()

    def log_density(x, mean, theta):
        out = -0.5 * (theta**2).sum() + power * norm.logpdf(x[0, 0])
        out += power * norm.logpdf(x[1, sharing], mean[-1], HELD[2, 2] ** 0.5).sum()
        out += power * norm.logpdf(mean[-1], 0.0, 3.0)
        if mixed:
            law = multivariate_normal(mean[:2], HELD[:2, :2])
            out += power * law.logpdf(x[:, ~sharing].T).sum()
            out += power * norm.logpdf(mean[:2], 0.0, [1.0, 3.0]).sum()
        return out

    at, at_mean, _, _ = prior._shifted(x, mean, covariance, power, sums, 0.0)
    moved = [prior._shifted(x, mean, covariance, power, sums, z) for z in (-2.0, 2.0)]
    values, a = [], np.exp(x[0, 0])
    for y, m, *_ in ((at, at_mean), *moved):
        shift = (y[1, 0] - x[1, 0]) / a
        values.append(log_density(y, m, theta - shift))
    np.testing.assert_allclose(np.array(values[1:]) - values[0], -2.0, rtol=1e-9)
    log_orbit, _ = prior._on_orbit(x, mean, covariance, power, *sums[::2])
    for v in (-0.3, 0.2):
        y, m, _ = prior._stretched(x.copy(), mean.copy(), covariance, v)
        change = log_density(y, m, theta * np.exp(-v)) - log_density(x, mean, theta)
        exact = change - theta.size * v
        assert log_orbit(v) - log_orbit(0.0) == pytest.approx(exact, rel=1e-9)


# --- fits -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fit():
    rng = np.random.default_rng(7)
    theta, y = rng.standard_normal(150), np.empty((150, 8), dtype=np.int8)
    for j, k in enumerate(K):
        p = category_probability("gpcm", theta, [1.1, *(0.3 * np.arange(k - 1, 0, -1))])
        y[:, j] = (rng.random((150, 1)) > p.cumsum(axis=1)[:, :-1]).sum(axis=1)
    r = irt.from_array(y, categories=K)
    model = dict(zip(r.item_id, NAMES, strict=True))
    return r, fit_quietly(r, model=model, n_draws=100, n_warmup=50, n_shards=2, seed=1)


@pytest.mark.slow
def test_a_fit_says_the_same_of_what_is_shared(fit):
    _, f = fit
    alike = [1, 3, 4, 5, 6, 7]
    for end in ("", "_sd", "_rhat", "_ess", "_draw"):
        slopes = f[f"item_discrimination{end}"].values[..., alike]
        assert (slopes == slopes[..., :1]).all()
    d, steps = f["item_intercept_draw"].values, f["item_step_intercept_draw"].values
    for pair in ((1, 6), (3, 7)):
        t = [steps[:, j, : K[j] - 1] - np.multiply.outer(d[:, j], np.arange(1, K[j])) for j in pair]
        np.testing.assert_allclose(*t, atol=1e-12)
    assert f["item_model"].values.tolist() == [n.partition(":")[0] for n in NAMES]
    assert f.attrs["prior_common_slope"] == [0.0, 1.0]
    assert f["item_prior_mean"].sizes == {"coordinate": 3}
    assert f.attrs["method"] == "LS-WASP"
    assert np.isfinite(f["item_step_intercept_ess"].values[7]).all()


@pytest.mark.slow
def test_what_takes_posteriors_takes_it(fit):
    r, f = fit
    scores = irt.score(r, f, n_item_draws=20, n_plausible=2, seed=1)
    assert float(scores["person_ability"].std()) > 0.5
    assert irt.predictive_check(r, f).attrs["n_item_draws"] > 0
    drawn = irt.simulate(50, items=f.isel(draw=3), seed=2)
    assert drawn.n_categories == tuple(K)
    drawn = irt.prior_items(r, model=dict(zip(r.item_id, NAMES, strict=True)), n_draws=50)
    slopes = drawn["item_discrimination_draw"].values[:, [1, 3, 4, 5, 6, 7]]
    assert (slopes == slopes[:, :1]).all()
    fixed = irt.prior_items(["a", "b"], model="1pl", prior=ItemPrior(), n_draws=50)
    assert np.ptp(fixed["item_discrimination_draw"].values, axis=1).max() == 0.0


@pytest.mark.slow
def test_a_category_that_nobody_has():
    # Steps are common: what one item lacks others tell, and nothing is said; in pcm it is.
    r = responses("rating", 300, 10, 3)
    y = r.to_xarray()["response"].values.copy()
    y[y[:, 1] == 2, 1] = 1
    r = irt.from_array(y, categories=3)
    options = {"n_draws": 100, "n_warmup": 50, "prior": ItemPrior()}
    assert np.isfinite(fit_quietly(r, model="rating", **options)["item_step_intercept"]).all()
    with pytest.warns(DataWarning, match=r"have a category that nobody has.*: 1 \(2\)"):
        fit_quietly(r, model="pcm", **options)


@pytest.mark.parametrize(("options", "match"), [
    ({"model": "1pl", "positive": "none"}, "items of 1pl share one slope: use 2pl or gpcm"),
    ({"model": "1pl", "item_blocks": ["a", "a", "b"]}, "those of 1pl share one; use 2pl or gpcm"),
    ({"model": "1pl", "n_dims": 2}, "is for one ability"),
    ({"model": "1pl", "sampler": "polya-gamma"}, "others are for sampler='grid'"),
])  # fmt: skip
def test_what_is_refused(options, match):
    y = np.random.default_rng(1).integers(0, 2, (60, 3))
    with pytest.raises(InputError, match=match):
        irt.fit_bayes(y, n_draws=100, n_warmup=50, **options)


# --- against others -------------------------------------------------------------------------------


def walked(y, learned, n_chains=200, n_steps=1_200):
    """log a and d of the 1PL by random walks on the posterior; persons by quadrature."""
    nodes = np.linspace(-6.0, 6.0, 61)
    mass = norm.pdf(nodes)
    mass /= mass.sum()
    pattern, times = np.unique(y, axis=0, return_counts=True)
    m = y.shape[1]

    def log_posterior(x):
        z = np.exp(x[:, :1, None]) * nodes + x[:, 1 : m + 1, None]
        likely = np.exp(pattern @ log_expit(z) + (1 - pattern) @ log_expit(-z))
        out = np.log(likely @ mass) @ times
        d = x[:, 1 : m + 1]
        if not learned:
            a = np.exp(x[:, 0])
            return out + x[:, 0] - 0.5 * (a - 1.0) ** 2 - 0.125 * (d**2).sum(axis=1)
        log_s2 = x[:, m + 2]
        out += norm.logpdf(d, x[:, m + 1 : m + 2], np.exp(0.5 * log_s2)[:, None]).sum(axis=1)
        out += norm.logpdf(x[:, 0]) + norm.logpdf(x[:, m + 1], 0.0, 3.0)
        return out + invgamma.logpdf(np.exp(log_s2), 3.5, scale=5.0) + log_s2

    rng, size = np.random.default_rng(2), m + 1 + 2 * learned
    x = 0.1 * rng.standard_normal((n_chains, size))
    value, kept, root = log_posterior(x), [], 0.25 * np.eye(size)
    for step in range(n_steps):
        new = x + rng.standard_normal(x.shape) @ root.T
        there = log_posterior(new)
        taken = np.log(rng.random(n_chains)) < there - value
        x, value = np.where(taken[:, None], new, x), np.where(taken, there, value)
        if step == 300:
            root = 2.38 / size**0.5 * np.linalg.cholesky(np.cov(x.T))
        if step > 600:
            kept.append(x.copy())
    return np.concatenate(kept)[:, : m + 1]


# 300 draws of nearly as many effective ones: errors of a mean .06 SD, of an SD 4%; five of each
# are below 4.7 of these: false-alarm rate 3e-5.
@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("learned", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_1pl_by_a_random_walk(learned):
    rng = np.random.default_rng(8)
    theta = rng.standard_normal(60)
    y = (rng.random((60, 4)) < expit(1.3 * theta[:, None] + [-1.0, 0.0, 0.5, 1.5])).astype(np.int8)
    prior = "hierarchical" if learned else ItemPrior()
    f = fit_quietly(irt.from_array(y), model="1pl", prior=prior, n_draws=300, n_warmup=50, seed=2)
    exact = walked(y, learned)
    a, d = (f[f"item_{name}_draw"].values for name in ("discrimination", "intercept"))
    found = np.concatenate([np.log(a[:, :1]), d], axis=1)
    sd = exact.std(axis=0)
    assert np.abs((found.mean(axis=0) - exact.mean(axis=0)) / sd).max() < 0.28
    np.testing.assert_allclose(found.std(axis=0), sd, rtol=0.2)


# Posterior means within .5 SE of the maximum, SDs within 22% of SEs (300 draws: 4% each): five
# errors of the draws, false-alarm rate 1e-5.
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "k"), [
    ("rating", 4), *(pytest.param(*x, marks=pytest.mark.nightly) for x in (("1pl", 2), ("pcm", 4))),
])  # fmt: skip
def test_near_marginal_maximum_likelihood(kind, k):
    r = responses(kind, 2_000, 15, k)
    marginal = irt.fit_marginal(r, model=kind)
    f = fit_quietly(r, model=kind, n_draws=300, n_warmup=60, seed=3)
    names = ["item_discrimination", "item_intercept", *["item_step_intercept"] * (k > 2)]
    for name in names:
        value, se = marginal[name].values, marginal[f"{name}_se"].values
        assert np.abs((f[name].values - value) / se).max() < 0.5
        np.testing.assert_allclose(f[f"{name}_sd"].values, se, rtol=0.22)


def squared_w2(x, y):
    """Squared Wasserstein distance of normals with the moments of draws, over the trace."""
    a, b = np.cov(x.T), np.cov(y.T)
    root = np.real(sqrtm(a))
    cross = np.trace(np.real(sqrtm(root @ b @ root)))
    away = ((x.mean(axis=0) - y.mean(axis=0)) ** 2).sum()
    return (away + np.trace(a) + np.trace(b) - 2.0 * cross) / np.trace(a)


# Three shards of 1,000 x 15 against one chain: 1,500 draws each, whose sampling error makes some
# .01 of W2^2 over the trace; SD ratios of the slope within 8%, of intercepts within 5% on average.
@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize(("kind", "k"), [("1pl", 2), ("pcm", 3), ("rating", 4)])
def test_shards_are_one_posterior(kind, k):
    r = responses(kind, 3_000, 15, k)
    one, few = (
        fit_quietly(r, model=kind, n_draws=1_500, n_warmup=200, n_shards=s, seed=s) for s in (1, 3)
    )
    draws = [
        np.concatenate([
            np.log(f["item_discrimination_draw"].values[:, :1]), f["item_intercept_draw"].values
        ], axis=1)
        for f in (one, few)
    ]  # fmt: skip
    assert squared_w2(*draws) < 0.03
    ratio = draws[1].std(axis=0) / draws[0].std(axis=0)
    assert abs(ratio[0] - 1.0) < 0.08
    assert abs(ratio[1:].mean() - 1.0) < 0.05
    assert few.attrs["prior_efficiency"] > 0.9
