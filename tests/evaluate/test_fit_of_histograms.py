"""Fit of items where abilities are skewed, and the fit that was made has their histogram."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import xarray as xr

import irt_dask as irt
from irt_dask.errors import DataWarning
from irt_dask.evaluate.abilities import Known
from irt_dask.items.parameters import item_set
from irt_dask.population import histogram


def skewed(n, m, seed, groups=False):
    g = np.random.default_rng(seed)
    theta = g.exponential(size=n) - 1.0
    label = np.where(np.arange(n) % 2, "b", "a")
    theta += groups * (label == "b") * 0.8
    a, b = g.uniform(0.8, 1.8, m), g.uniform(-1.0, 1.5, m)
    y = (g.random((n, m)) < 1 / (1 + np.exp(-a * (theta[:, None] - b)))).astype(np.int8)
    return y, irt.from_array(y, persons={"group": label} if groups else None)


def shares(fit, row=0):
    share = fit["group_ability_share"].values[row]
    return fit["ability"].values, share / share.sum()


def p_of(fit, at):
    a, d = fit["item_discrimination"].values, fit["item_intercept"].values
    return 1 / (1 + np.exp(-(np.multiply.outer(at, a) + d)))


def test_predictions_are_sums_over_the_histogram():
    y, r = skewed(400, 5, 1)
    fit = irt.fit_marginal(r, latent="histogram", standard_errors=False, tolerance=1e-6)
    tests = irt.item_fit(r, fit)
    at, share = shares(fit)
    p = p_of(fit, at)
    square, variance, z2 = np.zeros(5), np.zeros(5), np.zeros(5)
    for x in y:
        each = np.where(x == 1, p, 1 - p)
        for j in range(5):
            w = share * np.delete(each, j, axis=1).prod(axis=1)
            e = (w * p[:, j]).sum() / w.sum()
            square[j] += (x[j] - e) ** 2
            variance[j] += e * (1 - e)
            z2[j] += (x[j] - e) ** 2 / (e * (1 - e))
    np.testing.assert_allclose(tests["item_infit"], square / variance, rtol=1e-6)
    np.testing.assert_allclose(tests["item_outfit"], z2 / len(y), rtol=1e-6)
    assert tests.attrs["ability_mean"] == pytest.approx(share @ at, abs=1e-12)
    curves = irt.item_curves(r, fit)
    each = np.where(y[:, None, :] == 1, p, 1 - p).prod(axis=2) * share
    post = each / each.sum(axis=1, keepdims=True)
    observed = post.T @ y / post.sum(axis=0)[:, None]
    rmsd = np.sqrt(share @ (observed - p) ** 2)
    np.testing.assert_allclose(curves["group_item_rmsd"].values[0], rmsd, rtol=1e-5)


@pytest.mark.slow
def test_items_that_fit_are_not_rejected():
    """Of 240 tests 5%, give or take 1.4% (chi-squares a little less): false alarm below 1e-4."""
    low = {"normal": [], "histogram": []}
    for seed in range(12):
        _, r = skewed(2000, 20, 100 + seed)
        for latent, found in low.items():
            fit = irt.fit_marginal(r, latent=latent, standard_errors=False, tolerance=1e-6)
            tests = irt.item_fit(r, fit)
            found.append([(tests[f"item_{t}_p_value"] < 0.05).mean() for t in ("chi2", "sx2")])
    assert (np.mean(low["histogram"], axis=0) < 0.11).all()
    assert np.mean(low["normal"], axis=0)[0] > 0.5  # of which docs/fit.md tells


def test_groups_have_their_own():
    _, r = skewed(600, 6, 2, groups=True)
    fit = irt.fit_marginal(r, latent="histogram", standard_errors=False, tolerance=1e-6)
    tests = irt.item_fit(r, fit)
    for row, label in enumerate(("a", "b")):
        at, share = shares(fit, row)
        assert tests["group_label"].values[row] == label
        assert tests["group_mean"].values[row] == pytest.approx(share @ at, abs=1e-12)
    one = irt.fit_marginal(
        r, latent="histogram", groups=False, standard_errors=False, tolerance=1e-6
    )
    assert "group_mean" not in irt.item_fit(r, one)  # as it was fitted
    at, share = shares(one)
    assert irt.item_fit(r, one).attrs["ability_mean"] == pytest.approx(share @ at, abs=1e-12)
    with pytest.warns(DataWarning, match="none of group '[ab]' here"):
        irt.item_fit(r, one, groups=True)


def test_where_there_is_none():
    _, r = skewed(300, 5, 3)
    fit = irt.fit_marginal(r, latent="histogram", standard_errors=False, tolerance=1e-6)
    with pytest.warns(DataWarning, match="give the whole fit"):
        without = irt.item_fit(r, fit.drop_vars("group_ability_share"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        others = irt.item_fit(r, fit, fitted=False)  # other persons: normal
        given = irt.item_fit(r, fit, ability=(0.0, 1.0))
    assert without.attrs["ability_sd"] == pytest.approx(others.attrs["ability_sd"], rel=1e-6)
    assert given.attrs["ability_mean"] == 0.0
    with pytest.warns(DataWarning, match="replicates have normal abilities"):
        irt.item_curves(r, fit, n_replicates=19)


def test_two_histograms_of_one_mean_and_sd_are_told_apart():
    """What workers keep of persons with few answers is of one distribution."""
    y, r = skewed(200, 4, 4)
    fit = irt.fit_marginal(r, latent="histogram", standard_errors=False, tolerance=1e-6)
    at = fit["ability"].values
    items = item_set(fit, r.item_id)
    two, three = np.zeros(at.size), np.zeros(at.size)
    two[[40, 80]], three[[20, 60, 100]] = 0.5, [0.125, 0.75, 0.125]
    found = []
    for share in (two, three):
        shape = histogram.Histogram.of(at, share)
        block = r.read_block(0).data
        found.append(Known.of(items, shape).expectations(block))
        p = p_of(fit, at)
        w = np.where(y[:, None, :] == 1, p, 1 - p).prod(axis=2) * share
        np.testing.assert_allclose(found[-1][0], w @ at / w.sum(axis=1), atol=1e-9)
    assert two @ at == pytest.approx(three @ at)
    assert two @ at**2 == pytest.approx(three @ at**2)
    assert np.abs(found[0][0] - found[1][0]).max() > 0.1


def test_other_statistics_take_it():
    _, r = skewed(300, 6, 5)
    fit = irt.fit_marginal(r, latent="histogram", standard_errors=False, tolerance=1e-6)
    at, share = shares(fit)
    for of in (irt.person_fit, irt.residual_correlations):
        found = of(r, fit)
        assert isinstance(found, xr.Dataset)
        assert found.attrs["ability_mean"] == pytest.approx(share @ at, abs=1e-12)
