"""Two abilities on a grid, against sums over all nodes written from the definition."""

from __future__ import annotations

import numpy as np
import pytest
from items import simulated_m2pl
from parts import both
from scipy.special import expit
from scipy.stats import multivariate_normal

from irt_dask.curves.grids import GRID_BOUND, Grid
from irt_dask.kernels.posterior import expected_counts
from irt_dask.kernels.responses import layouts
from irt_dask.kernels.several import plane_posterior


def case(seed=0, n=60, m=7, missing=0.3):
    rng = np.random.default_rng(seed)
    a, d = rng.lognormal(0.0, 0.5, (2, m)), rng.normal(0.0, 1.0, m)
    a[1, 0] = a[0, m - 1] = 0.0
    some = missing * (np.arange(n) >= n // 3)[:, None]  # a third is complete
    y = simulated_m2pl(n, a.T, d, rng, missing=some)
    y[-1] = -1
    return y, a, d


def points(nodes):
    return np.stack(np.meshgrid(nodes, nodes, indexing="ij"), axis=-1).reshape(-1, 2)


def brute_force(y, a, d, nodes, rho):
    """Posterior of each person on all nodes, and log marginals, from products of probabilities."""
    x = points(nodes)
    p = expit(x @ a + d)
    prior = multivariate_normal([0.0, 0.0], [[1.0, rho], [rho, 1.0]]).pdf(x)
    h2 = (nodes[1] - nodes[0]) ** 2
    like = np.array([np.where(r == 1, p, np.where(r == 0, 1 - p, 1.0)).prod(axis=1) for r in y])
    w = like * prior * h2
    return w / w.sum(axis=1, keepdims=True), np.log(w.sum(axis=1)), x, p


@pytest.mark.parametrize("rho", [pytest.param(0.0, marks=pytest.mark.slow), 0.6])
def test_expectations(rho):
    y, a, d = case()
    nodes = plane_posterior.plane_for(a, d, correlation=rho).nodes
    w, value, x, _ = brute_force(y, a, d, nodes, rho)
    g = plane_posterior.plane(a, d, nodes, rho)
    results = [plane_posterior.expectations(data, g) for data in both(y)]
    for one, two in zip(*results, strict=True):
        np.testing.assert_array_equal(one, two)
    mean, cov, log_marginal = results[0]
    np.testing.assert_allclose(mean, w @ x, atol=1e-10)
    np.testing.assert_allclose(log_marginal, value, atol=1e-10)
    centred = x - mean[:, None]
    for k, (p, q) in enumerate(((0, 0), (0, 1), (1, 1))):
        expect = (w * centred[..., p] * centred[..., q]).sum(axis=1)
        np.testing.assert_allclose(cov[:, k], expect, atol=1e-10)
    np.testing.assert_allclose(mean[-1], 0.0, atol=1e-10)  # no responses: the prior
    np.testing.assert_allclose(cov[-1], [1.0, rho, 1.0], atol=1e-9)
    assert log_marginal[-1] == pytest.approx(0.0, abs=1e-9)


def total(y, a, d, nodes, rho):
    return brute_force(y, a, d, nodes, rho)[1].sum()


@pytest.mark.parametrize("missing", [pytest.param(0.0, marks=pytest.mark.slow), 0.4])
def test_score_is_the_derivative_of_the_log_marginal(missing):
    y, a, d = case(3, missing=missing)
    if not missing:
        y = np.abs(y)
    rho = 0.4
    nodes = Grid(49).nodes
    g, scales = (
        plane_posterior.plane(a, d, nodes, rho),
        expected_counts.scales_for(len(y), GRID_BOUND, 100.0),
    )
    got, rho_score = [], []
    for data in both(y):
        residual, whole, product, value = plane_posterior.sums(data, g, scales, products=True)
        rho_score.append(plane_posterior.correlation_score(product, len(y), rho, scales))
        assert value / scales.log_marginal == pytest.approx(total(y, a, d, nodes, rho), abs=1e-9)
        got.append(plane_posterior.score(residual / scales.weight, whole / scales.weight, g))
    np.testing.assert_array_equal(*got)
    assert rho_score[0] == rho_score[1]
    step = 1e-5
    change = total(y, a, d, nodes, rho + step) - total(y, a, d, nodes, rho - step)
    assert rho_score[0] == pytest.approx(change / (2 * step), abs=2e-6)
    for row in range(3):
        for j in range(d.size):
            x = np.vstack([a, d])
            side = []
            for sign in (1.0, -1.0):
                moved = x.copy()
                moved[row, j] += sign * step
                side.append(total(y, moved[:2], moved[2], nodes, rho))
            assert got[0][row, j] == pytest.approx((side[0] - side[1]) / (2 * step), abs=2e-6)


def test_sums_do_not_depend_on_blocks_or_order():
    y, a, d = case(4)
    g, scales = (
        plane_posterior.plane(a, d, Grid(41).nodes),
        expected_counts.scales_for(len(y), GRID_BOUND, 100.0),
    )
    whole = plane_posterior.sums(layouts.Dense(y), g, scales, products=True)
    order = np.random.default_rng(5).permutation(len(y))
    blocks = [layouts.Dense(y[order[k : k + 11]]) for k in range(0, 60, 11)]
    parts = [plane_posterior.sums(block, g, scales, products=True) for block in blocks]
    for got, expect in zip(zip(*parts, strict=True), whole, strict=True):
        np.testing.assert_array_equal(np.sum(got, axis=0), expect)


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_grid_resolves_the_posteriors(scale):
    # Halving the spacing changes no log marginal.
    y, a, d = case(6, n=30)
    a = a * scale
    grid = plane_posterior.plane_for(a, d, correlation=0.5)
    fine = Grid(2 * grid.n_nodes - 1)
    for rho in (0.0, 0.5):
        coarse = plane_posterior.expectations(
            layouts.Dense(y), plane_posterior.plane(a, d, grid.nodes, rho)
        )
        finer = plane_posterior.expectations(
            layouts.Dense(y), plane_posterior.plane(a, d, fine.nodes, rho)
        )
        for one, two in zip(coarse, finer, strict=True):
            np.testing.assert_allclose(one, two, atol=1e-6)


@pytest.mark.parametrize("n", [1, 1000, 10**9])
def test_products_of_abilities_have_room(n):
    weight = expected_counts.scales_for(n, GRID_BOUND, 1.0).weight
    largest = n * GRID_BOUND**2 * weight / plane_posterior._PRODUCT
    assert largest < 2.0**62
