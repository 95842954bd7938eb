"""The barycenter against closed forms and minimisation, and combining against known posteriors."""

from __future__ import annotations

import functools
import warnings

import numpy as np
import pytest
from items import simulated_2pl
from scipy.linalg import sqrtm
from scipy.optimize import minimize
from scipy.special import polygamma
from scipy.stats import ortho_group

from irt_dask import fit_bayes
from irt_dask.calibrate.bayes import barycenter, narrowing
from irt_dask.calibrate.bayes.coordinates import Space
from irt_dask.calibrate.bayes.full_data_mode import Refined
from irt_dask.calibrate.bayes.shards import ShardPosterior
from irt_dask.curves.priors import ItemPrior
from irt_dask.errors import ApproximationWarning, EstimationError, InputError
from irt_dask.kernels.combine import wasserstein


def covariance(rng, p, *shape):
    x = rng.standard_normal((*shape, p, p + 3)) * rng.uniform(0.2, 2.0, (*shape, p, 1))
    return x @ np.swapaxes(x, -1, -2) / (p + 3)


def bures(s, c):
    """Squared 2-Wasserstein distance between centred Gaussians, by scipy's Schur square root."""
    return np.trace(s) + np.trace(c) - 2.0 * np.trace(sqrtm(sqrtm(c) @ s @ sqrtm(c))).real


# --- the barycenter -------------------------------------------------------------------------------


def test_one_dimension():
    c, w = np.array([0.5, 2.0, 9.0]), np.array([0.2, 0.5, 0.3])
    got = wasserstein.barycenter(c[:, None, None], w)
    assert got[0, 0] == pytest.approx((w @ np.sqrt(c)) ** 2, rel=1e-9)


def test_commuting_matrices():
    rng = np.random.default_rng(1)
    axes = ortho_group.rvs(6, random_state=rng)
    value, w = rng.uniform(0.01, 5.0, (4, 6)), np.array([0.1, 0.2, 0.3, 0.4])
    got = wasserstein.barycenter((axes * value[:, None, :]) @ axes.T, w)
    np.testing.assert_allclose(got, (axes * (w @ np.sqrt(value)) ** 2) @ axes.T, atol=1e-8)


@pytest.mark.parametrize("seed", range(4))
def test_two_by_two_minimises_the_distances(seed):
    rng = np.random.default_rng(seed)
    c, w = covariance(rng, 2, 3), rng.dirichlet(np.ones(3))

    def cost(x):
        root = np.array([[np.exp(x[0]), 0.0], [x[1], np.exp(x[2])]])
        return sum(wk * bures(root @ root.T, ck) for wk, ck in zip(w, c, strict=True))

    best = minimize(cost, np.zeros(3), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-14,
                                                                      "maxiter": 4000})  # fmt: skip
    root = np.array([[np.exp(best.x[0]), 0.0], [best.x[1], np.exp(best.x[2])]])
    np.testing.assert_allclose(wasserstein.barycenter(c, w), root @ root.T, atol=2e-5)


def test_larger_matrices_satisfy_the_first_order_condition():
    # sum_k w_k T_k = I, T_k the optimal map from the barycenter to C_k, by another square root.
    rng = np.random.default_rng(7)
    c, w = covariance(rng, 8, 5), rng.dirichlet(np.ones(5))
    s = wasserstein.barycenter(c, w)
    total = np.zeros((8, 8))
    for wk, ck in zip(w, c, strict=True):
        root = sqrtm(s).real
        inverse = np.linalg.inv(root)
        total += wk * inverse @ sqrtm(root @ ck @ root).real @ inverse
    np.testing.assert_allclose(total, np.eye(8), atol=1e-6)


def test_blocks_are_separate_and_weights_need_not_sum_to_one():
    rng = np.random.default_rng(8)
    c = covariance(rng, 2, 3, 5)
    w = np.array([1.0, 2.0, 5.0])
    got = wasserstein.barycenter(c, w)
    for b in range(5):
        np.testing.assert_allclose(got[b], wasserstein.barycenter(c[:, b], w / 8.0), atol=1e-9)


def test_equal_covariances_are_their_barycenter():
    c = covariance(np.random.default_rng(9), 5)
    got = wasserstein.barycenter(np.stack([c] * 4), np.arange(1.0, 5.0))
    np.testing.assert_allclose(got, c, atol=1e-9)


def test_transport_carries_source_to_target_along_a_symmetric_positive_map():
    rng = np.random.default_rng(10)
    source, target = covariance(rng, 4, 6), covariance(rng, 4, 6)
    t = wasserstein.transport(source, target)
    np.testing.assert_allclose(t @ source @ np.swapaxes(t, -1, -2), target, atol=1e-9)
    np.testing.assert_array_equal(t, np.swapaxes(t, -1, -2))
    assert np.linalg.eigvalsh(t).min() > 0
    # Cost of the map equals the distance: E |x - T x|^2 = tr (I - T) S (I - T).
    away = np.eye(4) - t[0]
    assert np.trace(away @ source[0] @ away) == pytest.approx(bures(source[0], target[0]))


def test_errors():
    rng = np.random.default_rng(11)
    c = covariance(rng, 4, 3)
    with pytest.raises(EstimationError, match="did not converge"):
        wasserstein.barycenter(c, np.ones(3), max_iterations=1)
    c[1] = np.diag([1.0, 1.0, 1.0, 0.0])
    with pytest.raises(EstimationError, match="not positive definite"):
        wasserstein.barycenter(c, np.ones(3))
    c[1, 3, 3] = np.nan
    with pytest.raises((EstimationError, np.linalg.LinAlgError)):
        wasserstein.barycenter(c, np.ones(3))


# --- combining shards -----------------------------------------------------------------------------


def exact_draws(rng, n, mean, cov):
    """Draws whose sample mean and covariance are exactly these, as (draw, 2, items)."""
    x = rng.standard_normal((n, len(mean)))
    x -= x.mean(0)
    x = np.linalg.solve(np.linalg.cholesky(np.cov(x, rowvar=False)), x.T).T
    x = mean + x @ np.linalg.cholesky(cov).T
    return x.reshape(n, -1, 2).transpose(0, 2, 1)


def shard(draws, n_persons, ess=1e4):
    shape = draws.shape[1:]
    return ShardPosterior(draws, n_persons, np.ones(shape), np.full(shape, ess), 0.9, 0.1)


def flat(combined):
    a, d = combined.data["item_discrimination_draw"], combined.data["item_intercept_draw"]
    return np.stack([np.log(a), d], axis=-1).reshape(len(a), -1)


def block_diagonal(c):
    out = np.zeros_like(c)
    for j in range(0, len(c), 2):
        out[j : j + 2, j : j + 2] = c[j : j + 2, j : j + 2]
    return out


def two_shards(rng, full=True):
    persons = np.array([400, 600])
    c = 0.02 * covariance(rng, 4, 2)
    means = rng.normal(0.0, 0.2, (2, 4))
    parts = [shard(exact_draws(rng, 2000, means[k], c[k]), persons[k], 1e4 if full else 1.0)
             for k in range(2)]  # fmt: skip
    return parts, persons / 1000, means, c


@pytest.mark.parametrize("full", [True, False])
def test_gaussian_shards_give_their_product(full):
    # Shard k of n_k persons: N(m_k, C n / n_k).  The product of the densities is N(sum s_k m_k, C).
    rng = np.random.default_rng(12)
    n_items, persons = 3, np.array([1000, 3000, 6000])
    share = persons / persons.sum()
    c = 0.01 * covariance(rng, 2 * n_items)
    means = rng.normal(0.0, 0.1, (3, 2 * n_items))
    parts = [
        shard(exact_draws(rng, 4000, m, c / s), n, ess=1e4 if full else 10.0)
        for m, s, n in zip(means, share, persons, strict=True)
    ]
    got = barycenter.combine(parts, 4000)
    assert ("item_covariance" in got.data) == full
    x = flat(got)
    assert len(x) == 4000
    sd = np.sqrt(np.diag(c))
    # Thinning the shards' draws to 4,000 leaves sampling error: 0.04 SD is 2.5 standard errors.
    np.testing.assert_allclose((x.mean(0) - share @ means) / sd, 0.0, atol=0.06)
    np.testing.assert_allclose(np.cov(x, rowvar=False) / np.outer(sd, sd), c / np.outer(sd, sd),
                               atol=0.08)  # fmt: skip
    if full:
        np.testing.assert_allclose(got.data["item_covariance"], c, rtol=1e-7, atol=1e-12)
    # Moments come from all draws: no sampling error but that of exp() and the finite sample.
    u, su = (share @ means)[0::2], sd[0::2]
    a, sa = np.exp(u + su**2 / 2), np.exp(u + su**2 / 2) * np.sqrt(np.expm1(su**2))
    np.testing.assert_allclose(got.mean[0], a, rtol=2e-4)
    np.testing.assert_allclose(got.data["item_discrimination_sd"], sa, rtol=0.02)
    np.testing.assert_allclose(got.mean[-1], (share @ means)[1::2], atol=1e-10)
    np.testing.assert_allclose(got.data["item_intercept_sd"], sd[1::2], rtol=1e-3)


@pytest.mark.parametrize("full", [True, False])
def test_location_is_precision_weighted_and_spread_is_the_barycenter(full):
    parts, share, means, c = two_shards(np.random.default_rng(13), full)
    got = barycenter.combine(parts, 2000)
    if not full:
        c = np.stack([block_diagonal(x) for x in c])
    precision = np.linalg.inv(c)
    centre = np.linalg.solve(precision.sum(0), precision[0] @ means[0] + precision[1] @ means[1])
    target = wasserstein.barycenter(c * share[:, None, None], share)
    np.testing.assert_allclose(got.mean[-1], centre[1::2], atol=1e-10)
    np.testing.assert_allclose(
        got.data["item_intercept_sd"], np.sqrt(np.diag(target))[1::2], rtol=1e-3
    )


def test_one_shard_is_left_alone():
    rng = np.random.default_rng(14)
    draws = rng.normal(0.0, 0.1, (300, 2, 4))
    got = barycenter.combine([shard(draws, 500)], 300)
    np.testing.assert_array_equal(got.data["item_intercept_draw"], draws[:, 1])
    np.testing.assert_array_equal(got.data["item_discrimination_draw"], np.exp(draws[:, 0]))
    np.testing.assert_allclose(got.mean[0], np.exp(draws[:, 0]).mean(0))
    np.testing.assert_allclose(
        got.data["item_difficulty"], (-draws[:, 1] / np.exp(draws[:, 0])).mean(0)
    )
    np.testing.assert_allclose(got.data["item_intercept_sd"], draws[:, 1].std(0))


def test_draws_come_from_all_shards_in_proportion():
    rng = np.random.default_rng(15)
    parts = [shard(rng.normal(0, 0.1, (1000, 2, 2)), n) for n in (100, 200, 700)]
    assert len(flat(barycenter.combine(parts, 777))) == 777


def test_few_persons_per_shard_warn():
    rng = np.random.default_rng(16)
    parts = [shard(rng.normal(0, 0.1, (200, 2, 3)), n) for n in (14, 100)]
    with pytest.warns(ApproximationWarning, match="use fewer shards"):
        barycenter.combine(parts, 100)


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("fault", ["a parameter that never moved", "two that move as one"])
def test_singular_shard_is_an_error(fault, full):
    draws = np.random.default_rng(17).normal(0.0, 0.1, (400, 2, 2))
    bad = draws.copy()
    bad[:, 0, 1] = 0.0 if fault.startswith("a param") else 2.0 * bad[:, 1, 1]
    ess = 1e4 if full else 1.0
    with pytest.raises(EstimationError, match="positive definite"):
        barycenter.combine([shard(draws, 500, ess), shard(bad, 500, ess)], 100)


@pytest.mark.parametrize("powering", ["published", "replicate"])
def test_powered_shards_are_not_shrunk(powering):
    parts, share, means, c = two_shards(np.random.default_rng(21))
    got = barycenter.combine(parts, 2000, powering=powering, location="average")
    np.testing.assert_allclose(got.mean[-1], (share @ means)[1::2], atol=1e-10)
    np.testing.assert_allclose(
        got.data["item_covariance"], wasserstein.barycenter(c, share), rtol=1e-7, atol=1e-12
    )


@pytest.mark.parametrize("full", [True, False])
def test_refined_location_is_the_mode_and_the_way_to_the_mean(full):
    # Draws of log a that are minus log-gamma: mean less mode is known for one coordinate.
    rng = np.random.default_rng(22)
    persons, shape = np.array([300, 700]), 40.0
    share = persons / 1000
    parts = []
    for s in share:
        x = rng.normal(0.0, 0.05, (40_000, 2, 2))
        x[:, 0, 0] = -np.log(rng.gamma(shape * s, size=40_000) / (shape * s))
        parts.append(shard(x, int(1000 * s), 1e4 if full else 1.0))
    mode = np.array([[0.3, -0.2], [0.5, 1.0]])
    seen = {}

    def locate(space, start, cov):
        seen["start"], seen["cov"] = start, cov
        return Refined(mode, 2, 1.5, True)

    got = barycenter.combine(parts, 40_000, location="refined", locate=locate)
    assert seen["cov"].shape == (1, 4, 4)
    log_a = np.log(got.data["item_discrimination_draw"])
    # The density of x = -log G is exp(-k x - k e^-x): mode 0 and mean log k - digamma(k), which is
    # 1 / (2 k) to third order, for the product of the shards k = 40.
    assert log_a[:, 0].mean() - 0.3 == pytest.approx(1 / (2 * shape), abs=2e-3)
    assert log_a[:, 1].mean() == pytest.approx(-0.2, abs=2e-3)
    np.testing.assert_allclose(got.mean[-1], mode[1], atol=2e-3)
    assert (got.refined.n_steps, got.refined.first_step) == (2, 1.5)
    # The covariance for the steps has the blocks of the barycenter either way.
    scale = np.diag(seen["cov"][0])[[0, 2]]
    np.testing.assert_allclose(scale, log_a.var(axis=0), rtol=0.03)


@pytest.mark.parametrize("n_shards", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_refined_spread_is_that_of_all_persons(n_shards):
    # x = -log G, G of shape k, has variance trigamma(k); the product of the shards has k = 40, the
    # shrunk variance of a shard is trigamma(40 / K) / K: SDs 0.6% too large for K = 2, 4.5% for 8.
    rng, shape, n_items = np.random.default_rng(27), 40.0, 4
    turn = np.array([[0.8, 0.6], [-0.6, 0.8]])
    parts = []
    for _ in range(n_shards):
        x = -np.log(rng.gamma(shape / n_shards, size=(100_000, n_items, 2)))
        parts.append(shard(0.1 * np.einsum("ab,njb->naj", turn, x), 100))
    got = {}
    for location in ("average", "refined"):
        combined = barycenter.combine(
            parts, 100_000, location=location, locate=lambda _, x, c: Refined(x, 1, 0.1, True)
        )
        x = np.stack([np.log(combined.data["item_discrimination_draw"]),
                      combined.data["item_intercept_draw"]])  # fmt: skip
        got[location] = np.einsum("ab,anj->bnj", turn, x).std(axis=1) / 0.1
    right = np.sqrt(polygamma(1, shape))
    wide = np.sqrt(polygamma(1, shape / n_shards) / n_shards) / right
    np.testing.assert_allclose(got["average"] / right, wide, rtol=0.006)
    # What is left is of second order; 0.006 are 2.5 standard errors of an SD, 16 of their mean.
    np.testing.assert_allclose(got["refined"] / right, 1.0, atol=0.012)
    assert got["refined"].mean() / right == pytest.approx(1.0, abs=0.12 * (wide - 1.0) + 0.001)


def test_excess_spread_of_products_and_of_turned_axes():
    # By numerical integration: exp(-x'x / 2 + third and fourth order), small, and its variances.
    rng = np.random.default_rng(28)
    u = np.linspace(-9.0, 9.0, 361)
    x = np.stack(np.meshgrid(u, u, indexing="ij")).reshape(2, -1)
    third, fourth = 0.02 * rng.standard_normal(4), -0.002 * rng.random(5)
    log_p = -0.5 * (x**2).sum(axis=0)
    log_p += sum(t * x[0] ** k * x[1] ** (3 - k) for k, t in enumerate(third))
    log_p += sum(t * x[0] ** k * x[1] ** (4 - k) for k, t in enumerate(fourth))
    p = np.exp(np.where((x**2).sum(axis=0) < 36.0, log_p, -np.inf))
    drawn = x.T[rng.choice(len(p), size=500_000, p=p / p.sum())]
    drawn += rng.uniform(-0.5, 0.5, drawn.shape) * (u[1] - u[0])
    whole = np.cov(drawn, rowvar=False)
    excess = wasserstein.excess_spread(drawn[:, None], np.array([5e5]))[0]
    root = wasserstein.power(whole, 0.5)
    # The Gaussian at the mode has covariance I; what is left is of second order.
    assert np.abs(whole - np.eye(2)).max() > 0.015
    np.testing.assert_allclose(root @ (np.eye(2) - excess) @ root, np.eye(2), atol=0.008)


def test_excess_spread_of_few_gaussian_draws_is_none():
    # 133 effective draws: without the correction -0.075 on average; 0.013 are 4 standard errors.
    rng, n, r = np.random.default_rng(29), 400, 0.5
    x = rng.standard_normal((n, 1200, 2))
    for t in range(1, n):
        x[t] = r * x[t - 1] + np.sqrt(1.0 - r * r) * x[t]
    excess = wasserstein.excess_spread(x, np.full(1200, n * (1.0 - r) / (1.0 + r)))
    np.testing.assert_allclose(excess.mean(axis=0), 0.0, atol=0.013)


def test_excess_of_single_items_is_pulled_towards_the_mean():
    # Four items of -log G, G of shape 2, the others Gaussian: nearer to the truth than what each
    # item's own draws say, and than one number for all.
    rng, n = np.random.default_rng(30), 2000
    skewed = -np.log(rng.gamma(2.0, size=(500_000, 1, 1)))
    whole = wasserstein.excess_spread(skewed, np.full(1, 5e5))[0, 0, 0]
    right = np.where(np.arange(12) < 4, 0.75 * whole, 0.0)  # of four shards
    errors = []
    for _ in range(40):
        parts = [rng.standard_normal((n, 2, 12)) for _ in range(4)]
        for x in parts:
            x[:, 0, :4] = -np.log(rng.gamma(2.0, size=(n, 4)))
        quarter = np.full(4, 0.25)
        got = narrowing.excess(parts, [np.full((2, 12), float(n))] * 4, quarter, quarter)
        of_each = [
            wasserstein.excess_spread(x.transpose(0, 2, 1), np.full(12, float(n))) for x in parts
        ]
        own = 0.75 * np.mean(of_each, axis=0)
        np.testing.assert_allclose(own.mean(axis=0), got.mean(axis=0), atol=0.05)
        errors.append([got[:, 0, 0] - right, own[:, 0, 0] - right, own[:, 0, 0].mean() - right])
    pulled, alone, together = np.sqrt(np.mean(np.square(errors), axis=(0, 2)))
    assert pulled < 0.9 * alone
    assert pulled < 0.5 * together


def test_a_large_first_step_warns_and_few_persons_do_not():
    rng = np.random.default_rng(23)
    parts = [shard(rng.normal(0, 0.1, (200, 2, 3)), 12) for _ in range(2)]

    def locate(size, space, start, cov):
        return Refined(start, 1, size, True)

    with pytest.warns(ApproximationWarning, match="use fewer shards"):
        barycenter.combine(parts, 100, location="refined", locate=functools.partial(locate, 3.1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        barycenter.combine(parts, 100, location="refined", locate=functools.partial(locate, 2.9))


@pytest.mark.parametrize("log", [True, False])
@pytest.mark.parametrize("full", [True, False])
def test_fixed_loadings_take_no_part(full, log):
    # Two abilities: the free parameters come out as they do alone.
    rng = np.random.default_rng(24)
    free = np.array([[True, True, False], [False, True, True], [True, True, True]])
    parts = []
    for n in (400, 600):
        x = rng.normal(0.2, 0.1, (3000, 3, 3))
        x[:, 1] += 0.5 * x[:, 0]
        x[:, ~free] = -np.inf if n == 400 else 7.0
        parts.append(shard(x, n, 1e4 if full else 1.0))
    space = Space(log=log, free=free)
    got = barycenter.combine(parts, 3000, space=space)
    loading = got.data["item_loading"]
    assert loading.shape == (3, 2)
    np.testing.assert_array_equal(loading[~free[:2].T], 0.0)
    np.testing.assert_array_equal(got.data["item_loading_sd"][~free[:2].T], 0.0)
    assert got.data["item_loading_draw"].shape == (3000, 3, 2)
    np.testing.assert_array_equal(got.mean[:2].T, loading)
    if full:
        flat = np.array([[space.of_draws(p.draws)[:, r, j] for j in range(3) for r in range(3)
                          if free[r, j]] for p in parts])  # fmt: skip
        cov = np.array([np.cov(x) * s for x, s in zip(flat, (0.4, 0.6), strict=True)])
        expect = wasserstein.barycenter(cov, np.array([0.4, 0.6]))
        on = free.T.ravel()
        np.testing.assert_allclose(
            got.data["item_covariance"][np.ix_(on, on)], expect, rtol=1e-6, atol=1e-12
        )
        np.testing.assert_array_equal(got.data["item_covariance"][~on], 0.0)
    else:
        # The item whose second loading is fixed is the pair of the other two.
        pairs = [shard(p.draws[:, ::2, :1], p.n_persons, 1.0) for p in parts]
        alone = barycenter.combine(pairs, 3000, space=Space(log=log))
        np.testing.assert_allclose(loading[0, 0], alone.mean[0][0], rtol=1e-9)
        np.testing.assert_allclose(
            got.data["item_loading_sd"][0, 0], alone.data["item_discrimination_sd"][0], rtol=1e-7
        )


def test_locations():
    assert barycenter.location_for(None, 1) == barycenter.location_for(None, 2) == "refined"
    assert barycenter.location_for(None, 3) == "precision"
    assert barycenter.location_for("average", 3) == "average"
    with pytest.raises(InputError, match="n_dims=3; use location='precision'"):
        barycenter.location_for("refined", 3)
    with pytest.raises(InputError, match="choose one of average, precision, refined"):
        barycenter.location_for("median", 1)


# --- against the full posterior -------------------------------------------------------------------


def compare(full, split):
    """SD ratios of (a, d), and squared W2 distance in (log a, d) over the trace."""
    ratio = np.stack([split[f"item_{p}_sd"] / full[f"item_{p}_sd"]
                      for p in ("discrimination", "intercept")])  # fmt: skip

    def moments(fit):
        x = np.c_[np.log(fit.item_discrimination_draw), fit.item_intercept_draw]
        return x.mean(0), np.cov(x, rowvar=False)

    (m1, c1), (m0, c0) = moments(split), moments(full)
    return ratio, (np.sum((m1 - m0) ** 2) + bures(c1, c0)) / np.trace(c0)


@pytest.mark.slow
@pytest.mark.nightly
def test_six_shards_against_one():
    y = simulated_2pl(6000, 20, seed=18)
    full = fit_bayes(y, n_shards=1, n_draws=4000, n_warmup=300, seed=1)
    split = fit_bayes(y, n_shards=6, n_draws=4000, n_warmup=300, seed=2)
    assert split.attrs["method"] == "LS-WASP"
    assert split.sizes["shards"] == 6
    assert split.shard_n_persons.sum() == 6000
    ratio, distance = compare(full, split)
    # With these seeds: mean ratios 1.006 and 1.010, all in 0.976-1.037, distance 0.005.
    assert ratio.min() > 0.93
    assert ratio.max() < 1.10
    np.testing.assert_allclose(ratio.mean(axis=1), 1.0, atol=0.04)
    assert distance < 0.03


@pytest.mark.slow
def test_two_shards_of_a_small_test():
    # The quick version: 2,000 x 6 in two shards.
    y = simulated_2pl(2000, 6, seed=19)
    full = fit_bayes(y, n_shards=1, n_draws=1000, n_warmup=100, seed=1)
    split = fit_bayes(y, n_shards=2, n_draws=1000, n_warmup=100, seed=2)
    ratio, distance = compare(full, split)
    assert 0.85 < ratio.min() < ratio.max() < 1.25
    np.testing.assert_allclose(ratio.mean(axis=1), 1.0, atol=0.1)
    assert distance < 0.1  # with these seeds 0.007


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the items' priors outvote the persons")
def test_shards_share_the_prior_out():
    # Under a prior so tight that it is the posterior, four shards must not count it four times
    # (the standard deviations would be half as large).
    y = simulated_2pl(800, 4, seed=20)
    prior = ItemPrior(discrimination=(1.7, 0.01), intercept=(-0.6, 0.01))
    fit = fit_bayes(y, n_shards=4, n_draws=1000, n_warmup=100, seed=1, prior=prior)
    np.testing.assert_allclose(fit.item_discrimination, 1.7, atol=0.02)
    np.testing.assert_allclose(fit.item_intercept, -0.6, atol=0.02)
    np.testing.assert_allclose(fit.item_discrimination_sd, 0.01, rtol=0.15)
    np.testing.assert_allclose(fit.item_intercept_sd, 0.01, rtol=0.15)
