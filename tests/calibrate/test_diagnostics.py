"""Split R-hat and effective sample size against closed forms and against ArviZ."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.signal import lfilter

import irt_dask as irt
from irt_dask.kernels.combine.convergence import ess, rank_counts, rhat


def ar1(rho, shape, seed):
    """Stationary AR(1) chains with unit variance, shape (chains, draws, ...)."""
    rng = np.random.default_rng(seed)
    e = rng.standard_normal(shape) * np.sqrt(1.0 - rho**2)
    e[:, 0] /= np.sqrt(1.0 - rho**2)
    return lfilter([1.0], [1.0, -rho], e, axis=1)


@pytest.fixture(scope="module")
def arviz():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return pytest.importorskip("arviz")


@pytest.mark.parametrize("rho", [-0.5, 0.0, 0.5, 0.9, 0.97])
def test_ess_of_an_autoregression_is_its_closed_form(rho):
    # The mean of n draws has variance (1 + rho) / (1 - rho) / n.  Estimates from 2 x 20,000 draws
    # scatter by about 10% at rho = .97; here ten of them are averaged.
    n = 20_000
    got = ess(ar1(rho, (2, n, 10), seed=3))
    assert got.shape == (10,)
    assert np.mean(got) == pytest.approx(2 * n * (1 - rho) / (1 + rho), rel=0.06)


@pytest.mark.parametrize(("rho", "shape"), [
    (0.0, (4, 500)),
    pytest.param(0.7, (1, 999), marks=pytest.mark.slow),
    pytest.param(0.95, (3, 2000), marks=pytest.mark.slow),
])  # fmt: skip
def test_agrees_with_arviz(arviz, rho, shape):
    x = ar1(rho, (*shape, 6), seed=11)
    x[0, :, 3] += 0.3  # a chain that sits elsewhere
    if shape[0] > 1:  # ArviZ has no R-hat for one chain
        theirs = [float(arviz.rhat(x[:, :, k], method="split")) for k in range(6)]
        np.testing.assert_allclose(rhat(x), theirs, rtol=1e-10)
    # The two differ in the lag at which Geyer's sequence ends and in a factor n / (n - 1).
    theirs = [float(arviz.ess(x[:, :, k], method="mean")) for k in range(6)]
    np.testing.assert_allclose(ess(x), theirs, rtol=0.04)


def test_rhat_of_separated_chains_is_its_closed_form():
    # Two chains of variance 1 whose means are 2 delta apart: the four halves have means +-delta,
    # variance 4 delta^2 / 3 between them.
    delta, n = 0.5, 200_000
    x = np.random.default_rng(5).standard_normal((2, n)) + np.array([[-delta], [delta]])
    assert rhat(x) == pytest.approx(np.sqrt(1.0 + 4.0 * delta**2 / 3.0), rel=2e-3)


def test_rhat_sees_a_trend_within_one_chain():
    x = np.random.default_rng(6).standard_normal((1, 1000)) + np.linspace(0.0, 2.0, 1000)
    assert rhat(x) > 1.1
    assert rhat(x - np.linspace(0.0, 2.0, 1000)) < 1.02


def test_chains_far_apart_have_hardly_any_effective_draws():
    x = np.random.default_rng(7).standard_normal((4, 1000)) + 10.0 * np.arange(4)[:, None]
    assert ess(x) < 6


def test_trailing_shape_is_kept_and_parameters_do_not_mix():
    x = ar1(0.5, (2, 400, 2, 3), seed=8)
    for f in (rhat, ess):
        got = f(x)
        assert got.shape == (2, 3)
        assert got[1, 2] == f(x[:, :, 1, 2][..., None])[0]


def test_scale_and_location_do_not_matter():
    x = ar1(0.6, (2, 500, 3), seed=9)
    np.testing.assert_allclose(rhat(1e3 * x - 40.0), rhat(x), rtol=1e-10)
    np.testing.assert_allclose(ess(1e3 * x - 40.0), ess(x), rtol=1e-8)


def test_a_chain_that_never_moves_has_no_ess():
    x = np.ones((2, 100, 1))
    assert np.isnan(ess(x)).all()
    assert np.isnan(rhat(x)).all()


def test_draws_are_counted_by_rank():
    draws = np.random.default_rng(4).normal(size=(3, 40, 2, 2))
    draws[1] += 0.5
    got = rank_counts(draws, 6)
    assert got.shape == (3, 6, 2, 2)
    for a in range(2):
        for b in range(2):
            x = draws[:, :, a, b]
            place = (x[:, :, None, None] > x).sum(axis=(2, 3))  # those below
            for chain in range(3):
                want = np.bincount(place[chain] * 6 // 120, minlength=6)
                np.testing.assert_array_equal(got[chain, :, a, b], want)
    assert (got.sum(axis=(0, 1)) == 120).all()
    assert (got.sum(axis=0) == 20).all()
    one = rank_counts(draws[:1], 4)  # its halves
    np.testing.assert_array_equal(one, rank_counts(draws[0].reshape(2, 20, 2, 2), 4))


@pytest.mark.slow
def test_the_parameters_that_mixed_worst_are_named():
    responses = irt.simulate(300, 6, seed=5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = irt.fit_bayes(responses, n_chains=3, n_shards=2, n_draws=100, n_warmup=50)
    assert fit["ranked_draw_count"].dims == ("ranked", "chains", "rank_bins")
    assert fit["ranked_draw_count"].shape == (8, 3, 20)
    assert (fit["ranked_draw_count"].sum("rank_bins") == 100).all()
    worst = max(float(fit[f"item_{k}_rhat"].max()) for k in ("discrimination", "intercept"))
    kind, item, shard = (
        fit["ranked_parameter"].values[0].replace(" of ", ",").replace(" in shard ", ",").split(",")
    )
    assert float(fit[f"item_{kind}_rhat"][fit["item_id"].values.tolist().index(item)]) == worst
    assert float(fit["shard_max_rhat"][int(shard)]) >= worst
