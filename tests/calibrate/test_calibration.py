"""Simulation-based calibration (Talts et al. 2018): items drawn from the prior, responses from the
model, then the rank of each item's true value among draws of its posterior is uniform.

Ranks of 500 replications; each check has false-alarm rate 1e-4, at most 30 of them in a test.
"""

from __future__ import annotations

import functools
import math
import warnings
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest
from items import simulated_m2pl
from scipy.stats import chi2, invwishart, norm, truncnorm

REPLICATIONS, KEPT = 500, 50
QUANTILE = norm.isf(0.5e-4)


def drawn_items(m, n_dims, rng):
    """Loadings, intercepts and no more of independent items."""
    a = truncnorm(-1.0, np.inf, loc=1.0).rvs((m, n_dims), random_state=rng)
    a[~np.tril(np.ones((m, n_dims), dtype=bool))] = 0.0
    return a, rng.normal(0.0, 2.0, m), None


def drawn_sample(m, rng):
    """Slopes and intercepts of items that are a sample, and the mean and covariance of it."""
    from irt_dask.calibrate.bayes.hierarchy import Hierarchy

    prior = Hierarchy()
    mean = rng.normal(prior.mean, prior.mean_sd)
    covariance = invwishart(prior.df, np.array(prior.scale)).rvs(random_state=rng)
    x = rng.multivariate_normal(mean, covariance, m)
    return np.exp(x[:, :1]), x[:, 1], np.array([*mean, *covariance[np.tril_indices(2)]])


def replicate(seed, n, m, n_dims, options, learned=False):
    """Ranks (P, items) from 0 to 1 of the true loadings and intercepts; nan where fixed at 0.

    With a prior that is learned one row more holds, in its first five columns, the ranks of its
    mean and covariance.
    """
    import irt_dask as irt

    rng = np.random.default_rng(seed)
    a, d, common = drawn_sample(m, rng) if learned else drawn_items(m, n_dims, rng)
    free = np.tril(np.ones((m, n_dims), dtype=bool))
    options = options if learned else {"prior": irt.ItemPrior(), **options}
    y = simulated_m2pl(n, a, d, rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = irt.fit_bayes(y, n_dims=n_dims, seed=seed, progress=False, **options)
    if n_dims == 1:
        draws = fit.item_discrimination_draw.values[:, :, None]
    else:
        draws = fit.item_loading_draw.values
    x = np.concatenate([draws, fit.item_intercept_draw.values[:, :, None]], axis=2)
    x = x[:: len(x) // KEPT][:KEPT]
    truth = np.concatenate([a, d[:, None]], axis=1)
    rank = ((x < truth).sum(axis=0) + rng.random(truth.shape)) / (KEPT + 1)
    rank[:, :n_dims][~free] = np.nan
    if not learned:
        return rank.T
    at = np.tril_indices(2)
    x = [fit.item_prior_mean_draw.values, fit.item_prior_covariance_draw.values[:, *at]]
    x = np.concatenate(x, axis=1)
    x = x[:: len(x) // KEPT][:KEPT]
    of_prior = np.full(m, np.nan)
    of_prior[:5] = ((x < common).sum(axis=0) + rng.random(5)) / (KEPT + 1)
    return np.vstack([rank.T, of_prior])


def ranks(n, m, n_dims=1, learned=False, **options):
    """Ranks (replications, P, items), computed by two processes."""
    from multiprocessing import get_context

    one = functools.partial(replicate, n=n, m=m, n_dims=n_dims, options=options, learned=learned)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        return np.array(list(pool.map(one, range(REPLICATIONS), chunksize=10)))


def statistics(u):
    """z-scores of location and of spread for each kind of parameter, and p-values of each item.

    Averages over items come first: replications are independent, items of one are not.
    """
    z, p = [], []
    for k in range(u.shape[1]):
        x = u[:, k]
        for value, exact in ((x, 0.5), ((x - 0.5) ** 2, 1.0 / 12.0)):
            mean = np.nanmean(value, axis=1)
            z.append((mean.mean() - exact) / (mean.std(ddof=1) / math.sqrt(len(u))))
        for j in range(u.shape[2]):
            if not np.isnan(x[0, j]):
                count = np.bincount((10 * x[:, j]).astype(int), minlength=10)
                p.append(chi2.sf(((count - len(u) / 10) ** 2).sum() / (len(u) / 10), 9))
    return np.array(z), np.array(p)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("n_dims", [1, 2])
@pytest.mark.parametrize("sampler", ["grid", "polya-gamma"])
def test_ranks_are_uniform(sampler, n_dims):
    if (sampler, n_dims) == ("grid", 2):
        pytest.skip("the grid sampler is for one dimension")
    n, draws = (200, 250) if n_dims == 1 else (100, 400)  # two abilities mix more slowly
    options = {"sampler": sampler, "n_draws": draws, "n_warmup": 100}
    z, p = statistics(ranks(n, 5 + n_dims, n_dims, **options))
    print(sampler, n_dims, np.round(z, 2), p.min())
    assert np.abs(z).max() < QUANTILE
    assert p.min() > 1e-4


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize(("n", "m"), [(200, 6), (60, 90)])
def test_ranks_are_uniform_where_the_prior_is_learned(n, m):
    z, p = statistics(ranks(n, m, learned=True, n_draws=300, n_warmup=150))
    print("learned", n, m, np.round(z, 2), p.min())
    assert np.abs(z).max() < QUANTILE
    assert p.min() > 1e-5  # of up to 185 ranks


@pytest.mark.slow
@pytest.mark.nightly
def test_the_published_powering_is_seen():
    """Two shards whose item conditionals are powered: true values lie too near the middle.

    The second z-score is that of the slopes' squared distance from the middle, the fourth that of
    the intercepts'; a well calibrated posterior has |z| < 4 but for 1 in 10,000.
    """
    options = {"n_shards": 2, "n_draws": 250, "n_warmup": 100, "location": "average"}
    z, _ = statistics(ranks(400, 6, powering="published", **options))
    print("published", np.round(z, 2))
    assert z[1] < -8.0
