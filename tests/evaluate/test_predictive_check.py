"""Posterior predictive check of scores: exact distributions, calibration, power, bits."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from items import intercept_bank, probability, respond
from parts import csr_of
from scipy.stats import chi2

import irt_dask as irt
from irt_dask.errors import EstimationError, InputError
from irt_dask.evaluate.predictive_check import _discrepancies


def known(a, d, n_draws=100, sd=0.0, seed=0):
    """A posterior about these items; with sd = 0, all draws are the same."""
    g = np.random.default_rng(seed)
    shape = (n_draws, len(a))
    a_d = {
        "item_discrimination_draw": a * np.exp(sd * g.normal(size=shape)),
        "item_intercept_draw": d + sd * g.normal(size=shape),
    }
    ids = [str(j) for j in range(len(a))]
    draws = {k: (("draw", "items"), v) for k, v in a_d.items()}
    return xr.Dataset(draws, {"item_id": ("items", ids)})


def some_items(m, seed=1):
    g = np.random.default_rng(seed)
    return g.lognormal(0, 0.3, m), g.normal(0, 1, m)


def of_abilities(n, a, d, seed, ability=np.random.Generator.standard_normal, guessing=0.0):
    g = np.random.default_rng(seed)
    return respond(g, ability(g, n), a, d, guessing)


def bimodal(g, n):
    return np.where(g.random(n) < 0.5, 1.0, -1.0) + 0.3 * g.standard_normal(n)


def lord_wingersky(a, d, c=0.0):
    """Distribution of the number right, abilities N(0, 1) by Gauss-Hermite quadrature."""
    x, w = np.polynomial.hermite_e.hermegauss(101)
    p = probability(x, a, d, c)
    score = np.zeros((x.size, len(a) + 1))
    score[:, 0] = 1.0
    for j in range(len(a)):
        score[:, 1:] = score[:, 1:] * (1 - p[:, [j]]) + score[:, :-1] * p[:, [j]]
        score[:, 0] *= 1 - p[:, j]
    return (w / w.sum()) @ score


def test_replicates_follow_the_exact_distribution_of_scores():
    """A chi-square test of 100 replicates of 400 persons, false-alarm rate 1e-4."""
    a, d = some_items(7)
    y = of_abilities(400, a, d, 2)
    check = irt.predictive_check(y, known(a, d), n_replicates=100)
    got = check["score_count_expected"].values * 100
    want = lord_wingersky(a, d) * 400 * 100
    assert ((got - want) ** 2 / want).sum() < chi2.isf(1e-4, 7)
    np.testing.assert_array_equal(check["score_count"], np.bincount(y.sum(axis=1), minlength=8))
    np.testing.assert_array_equal(check["score"], np.arange(8))
    assert check["score_count_expected"].sum() == pytest.approx(400)


def test_a_bank_with_guessing_has_replicates_under_its_estimates():
    """The exact distribution of scores (rate 1e-4), some items without guessing."""
    a, d = some_items(7)
    c = np.array([0.2, 0.0, 0.35, 0.1, 0.25, 0.0, 0.3])
    y = of_abilities(400, a, d, 2, guessing=c)
    check = irt.predictive_check(y, intercept_bank(a, d, c), n_replicates=100)
    want = lord_wingersky(a, d, c) * 400 * 100
    got = check["score_count_expected"].values * 100
    assert ((got - want) ** 2 / want).sum() < chi2.isf(1e-4, 7)
    assert check.attrs["n_item_draws"] == 0
    assert check.attrs["p_value"] > 0.01
    without = irt.predictive_check(y, intercept_bank(a, d, 0.0 * c), n_replicates=100)
    assert without.attrs["p_value"] == pytest.approx(1 / 101)


def test_replicates_have_the_same_missing_responses():
    """Three booklets, one of them empty: a mixture of exact distributions (rate 1e-4)."""
    a, d = some_items(8)
    y = of_abilities(600, a, d, 3)
    y[:300, 5:] = -1
    y[300:500, :6] = -1
    y[500:] = -1
    check = irt.predictive_check(y, known(a, d), n_replicates=60)
    want = np.zeros(6)
    want += lord_wingersky(a[:5], d[:5]) * 300 * 60
    want[:3] += lord_wingersky(a[6:], d[6:]) * 200 * 60
    got = check["score_count_expected"].values * 60
    assert ((got - want) ** 2 / want).sum() < chi2.isf(1e-4, 5)
    assert check.attrs["n_persons"] == 500
    assert check["score_count"].sum() == 500


@pytest.mark.slow
def test_data_of_the_model_pass():
    """60 data sets: the p-values' mean is within 4 of its SD of a half, and few are small.

    The bands hold 95% of the counts, a little more where counts are small whole numbers.
    """
    a, d = some_items(6)
    posterior = known(a, d, sd=0.02)
    p, inside = [], []
    for k in range(60):
        y = of_abilities(300, *(posterior[name].values[k] for name in posterior.data_vars), 100 + k)
        check = irt.predictive_check(y, posterior, seed=k)
        p.append(check.attrs["p_value"])
        low, high = check["score_count_lower"].values, check["score_count_upper"].values
        inside.append(((check["score_count"] >= low) & (check["score_count"] <= high)).mean())
    assert abs(np.mean(p) - 0.52) < 4 * np.sqrt(1 / 12 / 60)
    assert np.sum(np.array(p) < 0.05) <= 10  # expected 2.4: binomial, rate 1e-4
    assert 0.90 < np.mean(inside) < 0.99


@pytest.mark.parametrize("wrong", [{"ability": bimodal}, {"guessing": 0.25}])
def test_data_of_another_model_are_flagged(wrong):
    a, d = some_items(20)
    y = of_abilities(1500, a, d, 4, **wrong)
    check = irt.predictive_check(y, known(a, d, sd=0.05))
    assert check.attrs["p_value"] == pytest.approx(1 / 51)
    assert check.attrs["discrepancy"] > 5 * check.attrs["discrepancy_expected"]


@pytest.mark.slow
def test_with_fitted_items():
    # Fitted to the data themselves, which makes p conservative: 0.05 is passed by chance in less
    # than 5 of 100 data sets of the model; two populations are seen nevertheless.
    a, d = some_items(20, seed=5)
    for ability, flagged in ((np.random.Generator.standard_normal, False), (bimodal, True)):
        r = irt.from_array(of_abilities(2000, a, d, 6, ability=ability))
        fit = irt.fit_bayes(r, n_draws=400, n_warmup=150)
        assert (irt.predictive_check(r, fit).attrs["p_value"] < 0.05) == flagged


def test_blocks_layouts_and_workers_do_not_matter(client, bits):
    a, d = some_items(9)
    y = of_abilities(80, a, d, 7)
    y[np.random.default_rng(8).random(y.shape) < 0.3] = -1
    posterior = known(a, d, sd=0.1)
    options = {"n_replicates": 10, "seed": 3, "item_blocks": list("abcabcaab")}
    want = irt.predictive_check(y, posterior, **options)
    stored = csr_of(y)
    others = [irt.from_array(y, rows_per_block=k) for k in (1, 7)]
    others.append(irt.from_array(stored, observed="stored", rows_per_block=13))
    assert others[-1].layout == "csr"
    for other in others:
        got = irt.predictive_check(other, posterior, **options)
        assert bits(got) == bits(want)
        assert got.attrs == want.attrs
    on_workers = irt.predictive_check(others[1], posterior, client=client, **options)
    assert bits(on_workers) == bits(want)
    other = irt.predictive_check(y, posterior, n_replicates=10, seed=4)
    assert bits(other) != bits(want)


def test_scores_of_long_tests_are_put_in_classes():
    a, d = some_items(450)
    y = of_abilities(50, a, d, 9)
    check = irt.predictive_check(y, known(a, d, 10), n_replicates=10)
    assert (check.attrs["score_width"], check.sizes["score"]) == (3, 151)
    np.testing.assert_array_equal(check["score"], np.arange(0, 451, 3))
    count = np.bincount(y.sum(axis=1) // 3, minlength=151)
    np.testing.assert_array_equal(check["score_count"], count)
    assert check.attrs["level"] == pytest.approx(9 / 11)
    few = np.where(np.arange(450) < 20, y, -1)  # of many items, few each: classes of one score
    check = irt.predictive_check(few, known(a, d, 10), n_replicates=10)
    assert (check.attrs["score_width"], check.sizes["score"]) == (1, 21)


def test_discrepancy_by_hand():
    # Means 1, 3, 6, 2, 8 are pooled from below to 10, 10 (at least 5 each).
    classes = np.array([[0, 4, 6, 2, 8], [2, 2, 6, 2, 8], [1, 3, 3, 5, 8], [1, 3, 9, -1, 8]])
    p, value, n = _discrepancies(classes)
    assert n == 2
    np.testing.assert_allclose(value, [0.0, 0.0, 1.8, 1.8])
    assert p == 1.0
    p, value, n = _discrepancies(classes[[2, 0, 1, 3]])
    np.testing.assert_allclose(value, [1.8, 0.0, 0.0, 1.8])
    assert p == 0.5
    p, _, n = _discrepancies(np.array([[1, 2], [2, 1]]))
    assert np.isnan(p)
    assert n == 1


def test_mistakes_are_named():
    a, d = some_items(4)
    r = irt.from_array(of_abilities(20, a, d, 1))
    posterior = known(a, d, 20)
    with pytest.raises(InputError, match="n_replicates=50 exceeds the 20 draws of posterior"):
        irt.predictive_check(r, posterior)
    with pytest.raises(InputError, match="n_replicates=9 must be a whole number of at least 10"):
        irt.predictive_check(r, posterior, n_replicates=9)
    with pytest.raises(InputError, match="posterior has neither item_intercept nor"):
        irt.predictive_check(r, posterior.drop_vars("item_intercept_draw"), n_replicates=10)
    with pytest.raises(InputError, match="not in posterior, draw 1: 3"):
        irt.predictive_check(r, posterior.isel(items=[0, 1, 2]), n_replicates=10)
    weighted = irt.from_array(r.read_block(0).data.values, persons={"weight": np.ones(20)})
    with pytest.raises(InputError, match="predictive_check does not support person weights"):
        irt.predictive_check(weighted, posterior, n_replicates=10)
    with pytest.raises(EstimationError, match="no observed response"):
        irt.predictive_check(irt.from_array(np.full((3, 4), -1)), posterior, n_replicates=10)
