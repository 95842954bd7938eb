"""Differences, ranks and top items against their definitions and simulated truth."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from scipy.stats import norm

import irt_dask as irt
from irt_dask.errors import InputError, SparseDataWarning


def made_fit(b, cov, level=None):
    m = len(b)
    return xr.Dataset(
        {
            "item_difficulty": ("items", np.asarray(b, dtype=float)),
            "item_difficulty_covariance": (("items", "items_"), np.asarray(cov, dtype=float)),
        },
        coords={"item_id": ("items", [f"item {j}" for j in range(m)])},
        attrs={} if level is None else {"level": level},
    )


def random_covariance(seed, m):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(m, m + 3))
    root -= root.mean(axis=0)
    return 0.01 * root @ root.T


def test_a_difference_by_its_definition():
    cov = random_covariance(0, 5)
    b = [-1.0, 0.2, 0.1, 0.4, 0.3]
    fit = made_fit(b, cov, level=0.9)
    d = irt.compare_items(fit, "item 3", "item 1")
    contrast = np.array([0, -1.0, 0, 1, 0])
    se = np.sqrt(contrast @ cov @ contrast)
    assert float(d["pair_difference"]) == pytest.approx(0.2)
    assert float(d["pair_difference_se"]) == pytest.approx(se)
    assert float(d["pair_z"]) == pytest.approx(0.2 / se)
    assert float(d["pair_p_value"]) == pytest.approx(2 * norm.sf(0.2 / se))
    assert float(d["pair_difference_upper"]) == pytest.approx(0.2 + norm.ppf(0.95) * se)
    assert float(d["pair_difference_lower"]) == pytest.approx(0.2 - norm.ppf(0.95) * se)
    assert d.attrs["level"] == 0.9
    back = irt.compare_items(fit, "item 1", "item 3", level=0.9)
    assert float(back["pair_z"]) == -float(d["pair_z"])
    assert irt.compare_items(made_fit(b, cov), "item 0", "item 1").attrs["level"] == 0.95


def test_levels_of_the_difference_on_lsat():
    fit = irt.fit_pairwise(irt.load_lsat(), pairing="all")
    d = irt.compare_items(fit, "LSAT3", "LSAT2")
    assert float(d["pair_p_value"]) < 1e-6
    assert float(d["pair_difference_lower"]) > 0.4
    d = irt.compare_items(fit, "LSAT2", "LSAT4", level=0.99)
    assert float(d["pair_difference_lower"]) < float(d["pair_difference"])
    assert d.attrs["level"] == 0.99


def test_ranks_by_their_definition():
    b = np.array([0.0, 3.0, 1.0, 0.9, -2.0])
    cov = 0.01 * (np.eye(5) - 0.2)
    fit = made_fit(b, cov)
    top = irt.top_items(fit, 2)
    se = np.sqrt(0.02)
    critical = norm.ppf(1 - 0.05 / (2 * 10))
    assert top.attrs["critical_value"] == pytest.approx(critical)
    np.testing.assert_array_equal(top["item_rank"], [4, 1, 2, 3, 5])
    assert (1.0 - 0.9) / se < critical  # items 2 and 3 are not told apart
    np.testing.assert_array_equal(top["item_rank_lower"], [4, 1, 2, 2, 5])
    np.testing.assert_array_equal(top["item_rank_upper"], [4, 1, 3, 3, 5])
    np.testing.assert_array_equal(top["item_in_top"], [False, True, True, False, False])
    assert [irt.top_items(fit, k).attrs["top_established"] for k in (1, 2, 3, 4)] == [1, 0, 1, 1]


def test_critical_values_for_the_top():
    fit = made_fit(np.arange(6.0), np.eye(6))
    for k in (1, 3, 5):
        top = irt.top_items(fit, k, level=0.9)
        assert top.attrs["critical_value_top"] == pytest.approx(
            norm.ppf(1 - 0.1 / (k * (6 - k) + 1))
        )
        assert top.attrs["critical_value_top"] < top.attrs["critical_value"]


def test_two_items_are_the_ordinary_test():
    fit = made_fit([0.1, -0.1], [[0.01, -0.01], [-0.01, 0.01]])
    top = irt.top_items(fit, 1)
    assert top.attrs["critical_value"] == pytest.approx(norm.ppf(0.975))
    assert top.attrs["critical_value_top"] == pytest.approx(norm.ppf(0.975))


def test_bootstrap_finds_the_quantile_of_the_largest_difference():
    """Two items: the normal quantile.  More: another generator's draws, equal to 0.03."""
    two = irt.top_items(made_fit([0.1, -0.1], np.eye(2)), 1, method="bootstrap")
    assert two.attrs["critical_value"] == pytest.approx(norm.ppf(0.975), abs=0.04)
    cov = random_covariance(1, 6)
    fit = made_fit(np.arange(6.0), cov)
    x = np.random.default_rng(5).multivariate_normal(np.zeros(6), cov, size=100_000, method="svd")
    i, j = np.triu_indices(6, 1)
    se = np.sqrt(cov[i, i] + cov[j, j] - 2 * cov[i, j])
    expected = np.quantile((np.abs(x[:, i] - x[:, j]) / se).max(axis=1), 0.9)
    got = irt.top_items(fit, 2, method="bootstrap", level=0.9)
    assert got.attrs["critical_value"] == pytest.approx(expected, abs=0.03)
    assert got.attrs["critical_value"] < irt.top_items(fit, 2, level=0.9).attrs["critical_value"]
    again = irt.top_items(fit, 2, method="bootstrap", level=0.9)
    assert again.identical(got)
    other = irt.top_items(fit, 2, method="bootstrap", level=0.9, seed=1)
    assert other.attrs["critical_value"] != got.attrs["critical_value"]


@pytest.mark.parametrize("method", ["bonferroni", "bootstrap"])
def test_simultaneous_levels_hold(method):
    """Normal estimates of known covariance: shares of 2,000 sets, standard error 0.7 points.

    Limits: 3.5 standard errors over 10% (one false alarm in 4,000).  The worst cases for the top:
    all items equal, and a tie at the border.
    """
    cov = random_covariance(2, 5)
    rng = np.random.default_rng(6)
    for b in (np.zeros(5), np.array([0.6, 0.2, 0.2, 0.0, -1.0])):
        ranks = np.array([[1 + (b > x).sum(), (b >= x).sum()] for x in b])
        estimates = rng.multivariate_normal(b, cov, size=2000, method="svd")
        one = irt.top_items(made_fit(b, cov), 2, level=0.9, method=method)
        critical, critical_top = one.attrs["critical_value"], one.attrs["critical_value_top"]
        se = np.sqrt(np.add.outer(np.diag(cov), np.diag(cov)) - 2 * cov) + np.eye(5)
        missed = wrong = 0
        for x in estimates:
            z = (x[:, None] - x[None, :]) / se
            lower = 1 + (z > critical).sum(axis=0)
            upper = 5 - (z > critical).sum(axis=1)
            # with ties an item may have any of several ranks: all must be in its set
            missed += bool(((lower > ranks[:, 0]) | (upper < ranks[:, 1])).any())
            at = np.argsort(-x)[:2]
            out = np.setdiff1d(np.arange(5), at)
            right = b[at].min() > b[out].max()
            wrong += bool((z[np.ix_(at, out)] > critical_top).all()) and not right
        assert missed <= 200 + 47
        assert wrong <= 200 + 47


def test_the_rule_of_the_loop_above_is_that_of_the_function():
    cov = random_covariance(3, 5)
    x = np.random.default_rng(7).normal(size=5)
    top = irt.top_items(made_fit(x, cov), 2)
    se = np.sqrt(np.add.outer(np.diag(cov), np.diag(cov)) - 2 * cov) + np.eye(5)
    z = (x[:, None] - x[None, :]) / se
    critical = top.attrs["critical_value"]
    np.testing.assert_array_equal(top["item_rank_lower"], 1 + (z > critical).sum(axis=0))
    np.testing.assert_array_equal(top["item_rank_upper"], 5 - (z > critical).sum(axis=1))


def test_lsat_item_3_is_the_hardest():
    fit = irt.fit_pairwise(irt.load_lsat(), pairing="all")
    for method in ("bonferroni", "bootstrap"):
        top = irt.top_items(fit, 1, method=method)
        assert top.attrs["top_established"] == 1
        np.testing.assert_array_equal(top["item_in_top"], [False, False, True, False, False])
        assert int(top["item_rank_upper"][2]) == 1


def test_refusals():
    fit = made_fit([0.1, 0.0, -0.1], np.eye(3))
    with pytest.raises(InputError, match=r"'item 7' is not an item.*near names: .*item 1"):
        irt.compare_items(fit, "item 7", "item 1")
    with pytest.raises(InputError, match=r"2 is not an item.*are strings\); the first items: item"):
        irt.compare_items(fit, "item 1", 2)
    with pytest.raises(InputError, match="cannot be compared with itself"):
        irt.compare_items(fit, "item 1", "item 1")
    with pytest.raises(InputError, match=r"level=1.5 must be a number between 0 and 1"):
        irt.compare_items(fit, "item 1", "item 2", level=1.5)
    with pytest.raises(InputError, match=r"item_difficulty_covariance.*standard_errors=True"):
        irt.top_items(fit.drop_vars("item_difficulty_covariance"), 1)
    with pytest.raises(InputError, match=r"must be a Dataset with item_difficulty"):
        irt.top_items(fit["item_difficulty"], 1)
    with pytest.raises(InputError, match=r"not finite"):
        irt.top_items(made_fit([np.nan, 0.0], np.eye(2)), 1)
    with pytest.raises(InputError, match=r"a difference has none"):
        irt.top_items(made_fit([1.0, 0.0], np.ones((2, 2))), 1)
    for k in (0, 3, 1.0, True):
        with pytest.raises(InputError, match=r"k=.* must be"):
            irt.top_items(fit, k)
    with pytest.raises(
        InputError, match=r"method='magic' is not available; choose one of bonferroni, bootstrap"
    ):
        irt.top_items(fit, 1, method="magic")
    with pytest.raises(InputError, match=r"seed=-1"):
        irt.top_items(fit, 1, method="bootstrap", seed=-1)


def test_spectral_fits_are_compared_without_their_bias():
    r = irt.simulate(2000, 6, model="1pl", seed=3)
    none, some = (irt.fit_spectral(r, regularization=nu) for nu in (0.0, 5.0))
    plain, corrected = (irt.compare_items(fit, "item1", "item2") for fit in (none, some))
    raw = some["item_difficulty"].values[0] - some["item_difficulty"].values[1]
    gap = abs(corrected["pair_difference"] - plain["pair_difference"])
    assert gap < 0.2 * abs(raw - plain["pair_difference"])
    se = [x["pair_difference_se"].item() for x in (plain, corrected)]
    assert se[1] == pytest.approx(se[0], rel=0.05)
    assert irt.top_items(irt.fit_spectral(irt.load_lsat()), 1).attrs["top_established"] == 1


@pytest.mark.parametrize("method", ["bonferroni", "bootstrap"])
def test_items_without_standard_error_are_told_apart_from_none(method):
    b, cov = np.array([3.0, 1.0, 0.0, -1.0, -3.0]), 1e-4 * np.eye(5)
    whole = irt.top_items(made_fit(b, cov), 2, method=method)
    assert whole.attrs["top_established"] == 1
    assert whole.attrs["n_without_interval"] == 0
    for lost in (0, 4):
        less = cov.copy()
        less[lost] = less[:, lost] = np.nan
        with pytest.warns(SparseDataWarning, match=rf"1 item\(s\) have no .*: item {lost}"):
            top = irt.top_items(made_fit(b, less), 2, method=method)
        assert top.attrs["top_established"] == 0
        assert top.attrs["n_without_interval"] == 1
        rank, other = np.arange(1, 6), np.arange(5) != lost
        np.testing.assert_array_equal(top["item_rank"], rank)
        lower, upper = top["item_rank_lower"].values, top["item_rank_upper"].values
        assert (lower[lost], upper[lost]) == (1, 5)
        np.testing.assert_array_equal(lower[other], (rank - (lost == 0))[other])
        np.testing.assert_array_equal(upper[other], (rank + (lost == 4))[other])
        with pytest.raises(InputError, match=rf"no standard error for item\(s\) item {lost}"):
            irt.compare_items(made_fit(b, less), f"item {lost}", "item 2")
        assert np.isfinite(irt.compare_items(made_fit(b, less), "item 1", "item 2")["pair_z"])


def test_an_item_that_everybody_has_right_is_in_no_established_rank():
    """Of the spectral fit: its difficulty is made by the regularisation alone."""
    r = irt.simulate(1000, 5, model="1pl", seed=4)
    y = np.concatenate([r.read_block(k).data.values for k in range(r.n_blocks)])
    y[:, 2] = 1
    for nu in (None, 1.0):
        with pytest.warns(SparseDataWarning, match=r"no finite difficulty.*: 2\."):
            fit = irt.fit_spectral(y, regularization=nu)
        with pytest.raises(InputError, match=r"no standard error for item\(s\) 2"):
            irt.compare_items(fit, "2", "0")
        with pytest.warns(SparseDataWarning, match="could be any"):
            top = irt.top_items(fit, 4)
        assert top.attrs["top_established"] == 0


def test_items_of_one_group_can_be_compared():
    y = np.full((300, 5), -1)
    rng = np.random.default_rng(9)
    y[:200, :3] = rng.integers(0, 2, (200, 3))
    y[200:, 3:] = rng.integers(0, 2, (100, 2))
    fit = irt.fit_spectral(y, components="each")
    assert np.isfinite(irt.compare_items(fit, "0", "2")["pair_z"])
    for call in (lambda: irt.compare_items(fit, "0", "4"), lambda: irt.top_items(fit, 1)):
        with pytest.raises(InputError, match="not on one scale"):
            call()
