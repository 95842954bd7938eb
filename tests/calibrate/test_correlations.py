"""Correlations of abilities as coordinates: maps, score, combination, fits of several shards."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from items import quiet, simulated_m2pl
from parts import csr_of
from scipy.optimize import minimize_scalar

import irt_dask as irt
from irt_dask.calibrate.bayes import barycenter, full_data_mode
from irt_dask.calibrate.bayes.coordinates import Space
from irt_dask.calibrate.bayes.shards import ShardPosterior
from irt_dask.curves.priors import ItemPrior
from irt_dask.engine import Engine
from irt_dask.errors import InputError
from irt_dask.kernels.several import correlations

PRIOR = ItemPrior((1.0, 0.5), (0.0, 1.0))


def random_matrices(q, n, seed):
    x = np.random.default_rng(seed).standard_normal((n, q, q + 1))
    c = x @ np.swapaxes(x, -1, -2)
    sd = np.sqrt(np.diagonal(c, axis1=1, axis2=2))
    return c / sd[:, :, None] / sd[:, None, :]


def simple(n_items, q):
    """A mask in which items load on one ability each, in turn."""
    mask = np.zeros((n_items, q), dtype=bool)
    mask[np.arange(n_items), np.arange(n_items) * q // n_items] = True
    return mask


short = functools.partial(quiet, irt.fit_bayes, progress=False, n_draws=100, n_warmup=50)


def of_some_items(n, mask, r, seed):
    rng = np.random.default_rng(seed)
    a = np.where(mask, rng.uniform(0.8, 1.8, mask.shape), 0.0)
    return simulated_m2pl(n, a, rng.normal(0.0, 1.0, len(mask)), rng, r)


def pair(rho):
    return np.array([[1.0, rho], [rho, 1.0]])


# --- the map --------------------------------------------------------------------------------------


@pytest.mark.parametrize("q", [1, 2, 3, 5])
def test_maps_are_inverse_to_each_other(q):
    r = random_matrices(q, 20, q)
    p = correlations.partials(r)
    assert p.shape == (20, q * (q - 1) // 2)
    np.testing.assert_allclose(correlations.matrices(p), r, atol=1e-12)
    free = np.random.default_rng(q).uniform(-0.99, 0.99, (30, q * (q - 1) // 2))
    made = correlations.matrices(free)
    np.testing.assert_array_equal(np.diagonal(made, axis1=1, axis2=2), 1.0)
    np.testing.assert_array_equal(made, np.swapaxes(made, 1, 2))
    assert np.linalg.eigvalsh(made).min() > 0.0
    np.testing.assert_allclose(correlations.partials(made), free, atol=1e-6)


def test_partial_correlations_by_their_formula():
    r = random_matrices(3, 10, 0)
    p = correlations.partials(r)
    np.testing.assert_allclose(p[:, :2], r[:, [1, 2], 0], rtol=1e-12)
    given = np.sqrt((1 - r[:, 1, 0] ** 2) * (1 - r[:, 2, 0] ** 2))
    np.testing.assert_allclose(p[:, 2], (r[:, 2, 1] - r[:, 1, 0] * r[:, 2, 0]) / given, rtol=1e-9)
    two = random_matrices(2, 10, 1)
    np.testing.assert_allclose(correlations.partials(two)[:, 0], two[:, 0, 1], rtol=1e-12)


@pytest.mark.parametrize("q", [2, 3, 4])
@pytest.mark.parametrize("log", [True, False])
def test_space_with_correlations(q, log):
    rng = np.random.default_rng(3)
    m = 2 * q
    free = np.vstack([simple(m, q).T, np.ones((1, m), dtype=bool)])
    plain = Space(log=log, free=free)
    space = plain.with_correlations(q + 1, m)
    draws, r = rng.normal(0.0, 0.3, (7, q + 1, m)), random_matrices(q, 7, 4)
    x = space.of_draws(space.join(draws, r))
    values = space.parameters(x)
    np.testing.assert_allclose(space.correlation(values), r, atol=1e-12)
    np.testing.assert_array_equal(values[..., :m], plain.parameters(plain.of_draws(draws)))
    assert space.mask(q + 1, m).sum() == free.sum() + q * (q - 1) // 2
    np.testing.assert_array_equal(values[:, ~space.free], 0.0)
    at, h = x[0], 1e-6
    for k in zip(*np.nonzero(space.free), strict=True):
        up, down = at.copy(), at.copy()
        up[k] += h
        down[k] -= h
        change = (space.parameters(up) - space.parameters(down))[k] / (2 * h)
        assert space.slope(at)[k] == pytest.approx(change, abs=1e-7)
        volume = (space.volume(up)[0] - space.volume(down)[0]) / (2 * h)
        assert space.volume(at)[1][k] == pytest.approx(volume, abs=1e-7)
    # The log volume is that of the slopes; of two abilities, log(1 - rho^2) for the correlation.
    assert space.volume(at)[0] == pytest.approx(np.log(space.slope(at)[space.free]).sum())
    if q == 2:
        gap = space.volume(at)[0] - plain.volume(at[:, :m])[0]
        assert gap == pytest.approx(np.log(1.0 - r[0, 0, 1] ** 2))
    step = space.within(at, np.where(space.partial, 9.0, 0.0))
    np.testing.assert_array_equal(step, np.where(space.partial, 1.0, 0.0))


# --- the score ------------------------------------------------------------------------------------


def log_posterior(y, x, rho, prior):
    """By Gauss-Hermite quadrature along two independent normals."""
    (ma, sa), (md, sd) = prior.discrimination, prior.intercept
    on = x[:-1] > 0
    value = (-0.5 * ((x[:-1][on] - ma) / sa) ** 2).sum() - 0.5 * (((x[-1] - md) / sd) ** 2).sum()
    node, w = np.polynomial.hermite_e.hermegauss(31)
    z = np.stack(np.meshgrid(node, node), axis=-1).reshape(-1, 2)
    weight = np.outer(w, w).ravel() / w.sum() ** 2
    t = z @ np.linalg.cholesky(pair(rho)).T @ x[:-1] + x[-1]
    log_p, log_q = -np.logaddexp(0.0, -t), -np.logaddexp(0.0, t)
    return value + np.log(np.exp((y == 1) @ log_p.T + (y == 0) @ log_q.T) @ weight).sum()


@pytest.mark.parametrize("rho", [-0.5, 0.7])
def test_gradient_of_the_log_posterior(rho):
    mask = simple(5, 2)
    y = of_some_items(150, mask, pair(0.4), 5)
    y[60:][np.random.default_rng(6).random((90, 5)) < 0.3] = -1
    x = np.vstack([np.where(mask.T, [[0.8, 1.2, 1.5, 0.7, 1.1]], 0.0), np.linspace(-1.0, 1.0, 5)])
    free = np.vstack([mask.T, np.ones((1, 5), dtype=bool)])
    gradients = []
    for rows in (150, 40):
        with Engine(irt.from_array(y, rows_per_block=rows)) as engine:
            f = full_data_mode.Posterior(engine, PRIOR, free)
            at = full_data_mode.with_correlation(x, rho)
            value, gradient = f(at, f.nodes(at))
            gradients.append(np.append(gradient, value))
            without, items = f(x, f.nodes(at))
            nought, both = f(full_data_mode.with_correlation(x, 0.0), f.nodes(at))
    np.testing.assert_array_equal(*gradients)
    assert without == nought
    np.testing.assert_array_equal(items, both[:, :5])
    np.testing.assert_array_equal(gradient[1:, 5], 0.0)
    h, density = 1e-5, functools.partial(log_posterior, y, prior=PRIOR)
    side = density(x, rho + h) - density(x, rho - h)
    assert gradient[0, 5] == pytest.approx(side / (2 * h), abs=2e-3)
    for k in ((0, 0), (1, 4), (2, 2)):
        up, down = x.copy(), x.copy()
        up[k] += h
        down[k] -= h
        side = density(up, rho) - density(down, rho)
        assert gradient[k] == pytest.approx(side / (2 * h), abs=2e-3)


def test_steps_find_the_mode_of_the_correlation():
    # Items that the prior holds where they are: what is left is one dimension, which scipy scans.
    mask = simple(8, 2)
    y = of_some_items(400, mask, pair(0.5), 7)
    held = ItemPrior((1.2, 1e-3), (0.0, 1e-3))
    free = np.vstack([mask.T, np.ones((1, 8), dtype=bool)])
    plain = Space(free=free)
    space = plain.with_correlations(3, 8)
    logs = np.log(np.where(free, [[1.2], [1.2], [1.0]], 1.0))
    x = space.of_draws(space.join(logs[None], pair(-0.3)[None]))[0]
    parameters = space.parameters(x)[:, :8]

    def loss(z):
        return -log_posterior(y, parameters, np.tanh(z), held) - np.log(1.0 - np.tanh(z) ** 2)

    best = minimize_scalar(loss, bounds=(-2, 2), method="bounded", options={"xatol": 1e-6}).x
    cov = np.where(free, 1e-6, 1.0)
    cov[:2] /= 1.2**2
    cov = np.hstack([cov, np.ones((3, 1))])
    h = 1e-3
    cov[0, 8] = 1.2 / ((loss(best + h) - 2 * loss(best) + loss(best - h)) / h**2)
    with Engine(irt.from_array(y)) as engine:
        f = full_data_mode.Posterior(engine, held, free)
        got = full_data_mode.refine(f, space, x, np.diag(cov.T.ravel())[None])
    assert got.converged
    assert got.centre[0, 8] == pytest.approx(best, abs=0.05 * np.sqrt(cov[0, 8]))


# --- the combination ------------------------------------------------------------------------------


def gaussian_shards(shares, mean, sd, n=4000, ess=1e4):
    """Shards whose atanh(rho) follows the first intercept, with the deviations of n_k persons."""
    rng = np.random.default_rng(8)
    parts = []
    for k, s in enumerate(shares):
        z = rng.standard_normal((n, 3, 4))
        z = (z - z.mean(axis=0)) / z.std(axis=0)
        draws = 0.1 / np.sqrt(s) * z
        r = np.tanh(mean[k] + sd / np.sqrt(s) * z[:, 2, 0] + 1e-3 * rng.standard_normal(n))
        matrices = np.stack([np.stack([np.ones(n), r], -1), np.stack([r, np.ones(n)], -1)], -1)
        items = np.ones((3, 4)), np.full((3, 4), ess)
        parts.append(ShardPosterior(draws, int(1000 * s), *items, 1.0, 1.0, matrices, 1.01, ess))
    return parts


def atanh_draws(got):
    return np.arctanh(got.data["ability_correlation_draw"][:, 0, 1])


@pytest.mark.parametrize("ess", [1e4, 1.0])
def test_correlations_are_combined_with_the_items(ess):
    free = np.vstack([simple(4, 2).T, np.ones((1, 4), dtype=bool)])
    parts = gaussian_shards((0.4, 0.6), (0.5, 0.8), 0.05, ess=ess)
    got = barycenter.combine(parts, 4000, space=Space(free=free), location="average")
    z = atanh_draws(got)
    assert z.mean() == pytest.approx(0.4 * 0.5 + 0.6 * 0.8, abs=0.003)
    assert z.std() == pytest.approx(0.05, rel=0.04)
    # Draw i of the correlation is of draw i of the items.
    assert np.corrcoef(z, got.data["item_intercept_draw"][:, 0])[0, 1] > 0.99
    np.testing.assert_allclose(got.data["ability_correlation"], got.data[
        "ability_correlation_draw"].mean(axis=0), atol=3e-3)  # fmt: skip
    assert got.data["ability_correlation_sd"][0, 0] == 0.0
    assert got.data["item_loading_draw"].shape == (4000, 4, 2)
    assert got.mean.shape == (3, 4)
    if ess > 1:
        assert got.data["item_covariance"].shape == (12, 12)
    # Shards that were powered are not shrunk.
    powered = barycenter.combine(parts, 4000, space=Space(free=free), powering="replicate",
                           location="average")  # fmt: skip
    middle = 0.05 * (0.4 / np.sqrt(0.4) + 0.6 / np.sqrt(0.6))  # a barycenter averages SDs
    assert atanh_draws(powered).std() == pytest.approx(middle, rel=0.04)


def test_one_shard_keeps_its_correlations():
    (part,) = gaussian_shards((1.0,), (0.6,), 0.05, n=300)
    got = barycenter.combine([part], 300)
    np.testing.assert_array_equal(got.data["ability_correlation_draw"], part.correlation)
    np.testing.assert_array_equal(got.data["ability_correlation"], part.correlation.mean(axis=0))
    np.testing.assert_array_equal(got.data["ability_correlation_sd"], part.correlation.std(axis=0))
    assert (part.worst_rhat, part.least_ess) == (1.01, 1e4)


# --- fits -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small():
    mask = simple(6, 2)
    y = of_some_items(160, mask, pair(0.5), 9)
    options = {"n_dims": 2, "loadings": mask, "correlated": True, "n_shards": 2, "seed": 1}
    return y, options, short(y, **options)


@pytest.mark.slow
def test_a_fit_of_two_shards(small):
    y, options, fit = small
    r = fit.ability_correlation_draw.values
    assert r.shape == (100, 2, 2)
    assert (np.linalg.eigvalsh(r) > 0).all()
    np.testing.assert_array_equal(np.diagonal(r, axis1=1, axis2=2), 1.0)
    assert 0.0 < float(fit.ability_correlation_sd[0, 1]) < 0.4
    assert fit.shard_ability_correlation.shape == (2, 2, 2)
    assert fit.item_loading.shape == (6, 2)
    assert fit.attrs["location"] == "refined"
    assert fit.attrs["n_location_steps"] >= 1
    assert np.isfinite(fit.attrs["objective"])
    # Moved to where the log posterior is higher than at the shards' mean.
    mean = short(y, **options, location="average")
    assert fit.attrs["objective"] > mean.attrs["objective"]
    np.testing.assert_array_equal(mean.shard_ability_correlation, fit.shard_ability_correlation)
    with pytest.raises(InputError, match="published"):
        short(y, **options, powering="published")


@pytest.mark.slow
def test_a_fit_has_the_same_bits(small, bits, client):
    y, options, fit = small
    sparse = csr_of(y)
    for other in (
        short(irt.from_array(y, rows_per_block=70), **options),
        short(irt.from_array(sparse, observed="stored"), **options),
        short(irt.from_array(y, rows_per_block=90), client=client, **options),
    ):
        assert bits(other) == bits(fit)


@pytest.mark.slow
@pytest.mark.nightly
def test_replicated_shards():
    """Two shards of 600 persons: SDs of the correlation, powered either way, within 30%."""
    mask = simple(8, 2)
    y = of_some_items(600, mask, pair(0.5), 10)
    options = {"n_dims": 2, "loadings": mask, "correlated": True, "n_draws": 400, "n_warmup": 100}
    full = short(y, **options)
    for powering in ("shrink", "replicate"):
        fit = short(y, n_shards=2, powering=powering, **options)
        ratio = fit.ability_correlation_sd[0, 1] / full.ability_correlation_sd[0, 1]
        assert 0.75 < float(ratio) < 1.3


@pytest.mark.slow
@pytest.mark.nightly
def test_four_shards_are_near_the_full_posterior():
    """4,000 x 12, fixed seed; Monte Carlo errors of the mean are about 0.07 SD for each fit, of SDs
    5%: with no error of its own the combination fails with probability 0.003."""
    mask = simple(12, 2)
    y = of_some_items(4000, mask, pair(0.6), 11)
    options = {"n_dims": 2, "loadings": mask, "correlated": True, "n_draws": 800, "n_warmup": 100}
    full, split = short(y, **options), short(y, n_shards=4, **options)
    sd = float(full.ability_correlation_sd[0, 1])
    gap = float(split.ability_correlation[0, 1] - full.ability_correlation[0, 1])
    assert abs(gap) < 0.3 * sd
    assert 0.85 < float(split.ability_correlation_sd[0, 1]) / sd < 1.2


@pytest.mark.slow
@pytest.mark.nightly
def test_three_abilities():
    mask = simple(9, 3)
    r = np.array([[1.0, 0.6, 0.3], [0.6, 1.0, 0.5], [0.3, 0.5, 1.0]])
    y = of_some_items(2000, mask, r, 12)
    fit = short(y, n_dims=3, loadings=mask, correlated=True, n_shards=2, n_draws=300, n_warmup=100)
    assert fit.attrs["location"] == "precision"
    draws = fit.ability_correlation_draw.values
    assert np.linalg.eigvalsh(draws).min() > 0
    lower = np.tril_indices(3, -1)
    z = (fit.ability_correlation.values - r)[lower] / fit.ability_correlation_sd.values[lower]
    assert np.abs(z).max() < 4.5  # and the location keeps some bias
    assert fit.shard_ability_correlation.shape == (2, 3, 3)
