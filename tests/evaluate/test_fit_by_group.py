"""Fit of items that were given to groups of other ability: vertical scales, booklets by grade."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss
from scipy.stats import kstest

import irt_dask as irt
from irt_dask.errors import DataWarning, InputError

M, N = 12, 1600
GROUP = np.repeat(["young", "old"], N // 2)
A, B = np.full(M, 1.2), np.linspace(-1.5, 1.5, M)


def answers(seed, booklets=True):
    g = np.random.default_rng(seed)
    theta = g.standard_normal(N) + np.where(GROUP == "old", 1.0, -1.0)
    y = (g.random((N, M)) < 1.0 / (1.0 + np.exp(-A * (theta[:, None] - B)))).astype(np.int8)
    if booklets:
        y[: N // 2, 8:] = -1
        y[N // 2 :, :4] = -1
    return y


def responses(y, group=GROUP, **more):
    return irt.from_array(y, persons={"group": group}, **more)


@pytest.fixture(scope="module")
def bank():
    r = responses(answers(0))
    true = {"item_discrimination": A, "item_difficulty": B, "item_intercept": -A * B}
    fit = irt.fit_marginal(r, standard_errors=False)
    return fit.assign({k: ("items", v) for k, v in true.items()})


@pytest.mark.slow
def test_items_that_fit_are_not_rejected(bank):
    """True items, 20 data sets: p-values are uniform (a false alarm in 1 of 1,000).

    About one normal distribution of all persons six in ten items of one group alone had p < .05,
    and infit was 1.08.
    """
    p, infit = [], []
    for seed in range(20):
        found = irt.item_fit(responses(answers(seed)), bank, fitted=False)
        p.append(found["item_chi2_p_value"].values)
        infit.append(found["item_infit"].values)
    assert kstest(np.ravel(p), "uniform").pvalue > 1e-3
    np.testing.assert_allclose(np.mean(infit, axis=0), 1.0, atol=0.02)
    together = irt.item_fit(responses(answers(0)), bank, fitted=False, groups=False)
    assert (together["item_chi2_p_value"].values < 0.05).sum() > M / 3


def test_mean_squares_by_brute_force(bank):
    """Infit of one item, each response predicted from the others by Gauss-Hermite quadrature."""
    y = answers(1)
    found = irt.item_fit(responses(y, rows_per_block=333), bank, fitted=False)
    assert found["group_label"].values.tolist() == ["old", "young"]
    x, w = hermegauss(60)
    j, square, variance = 5, 0.0, 0.0
    for k, name in enumerate(("old", "young")):
        mean, sd = float(found["group_mean"][k]), float(found["group_sd"][k])
        assert mean == pytest.approx(1.0 if name == "old" else -1.0, abs=0.15)
        theta = mean + sd * x
        log = -np.logaddexp(0.0, -A[:, None] * (theta - B[:, None]))
        log_wrong = log - A[:, None] * (theta - B[:, None])
        for row in y[name == GROUP]:
            others = [i for i in range(M) if row[i] >= 0 and i != j]
            v = w * np.exp(sum(log[i] if row[i] else log_wrong[i] for i in others))
            p = (v * np.exp(log[j])).sum() / v.sum()
            square += (row[j] - p) ** 2
            variance += p * (1.0 - p)
    assert float(found["item_infit"][j]) == pytest.approx(square / variance, abs=1e-4)
    assert found.attrs["ability_mean"] == pytest.approx(
        float(found["group_mean"].mean()), abs=1e-12
    )


def test_s_x2_expects_what_each_group_does(bank):
    """Complete data: the counts that are expected are sums over groups."""
    p = [
        irt.item_fit(responses(answers(seed, booklets=False)), bank, fitted=False)[
            "item_sx2_p_value"
        ].values
        for seed in range(12)
    ]
    assert kstest(np.ravel(p), "uniform").pvalue > 1e-3


def test_one_group_is_everybody_and_who_answers_nothing_counts_nothing(bank):
    y = answers(2)
    plain = irt.item_fit(irt.from_array(y), bank)
    one = irt.item_fit(responses(y, np.repeat("all", N)), bank)
    for name in ("item_infit", "item_outfit_z", "item_chi2"):
        np.testing.assert_array_equal(plain[name], one[name])
    silent = np.concatenate([y, np.full((5, M), -1, dtype=np.int8)])
    found = irt.item_fit(responses(silent, np.append(GROUP, ["none"] * 5)), bank)
    assert np.isnan(found["group_mean"].values).tolist() == [True, False, False]
    without = irt.item_fit(responses(y), bank)
    np.testing.assert_allclose(found["item_chi2"], without["item_chi2"], rtol=1e-9)
    assert found.attrs["ability_sd"] == pytest.approx(without.attrs["ability_sd"], rel=1e-12)


def test_more_categories(bank):
    g = np.random.default_rng(3)
    theta = g.standard_normal(N) + np.where(GROUP == "old", 1.0, -1.0)
    z = theta[:, None, None] - np.linspace(-1.5, 1.5, M)[:, None] - np.array([-0.5, 0.5])
    weight = np.exp(np.concatenate([np.zeros((N, M, 1)), z.cumsum(axis=2)], axis=2))
    share = (weight / weight.sum(axis=2, keepdims=True)).cumsum(axis=2)
    y = (g.random((N, M, 1)) > share).sum(axis=2).astype(np.int8)
    y[: N // 2, 8:], y[N // 2 :, :4] = -1, -1
    r = responses(y, categories=3)
    fit = irt.fit_marginal(r, model="gpcm", standard_errors=False)
    p = irt.item_fit(r, fit)["item_chi2_p_value"].values
    assert (p < 0.01).sum() <= 1  # of 12: two in 1 of 160 data sets
    assert (irt.item_fit(r, fit, groups=False)["item_chi2_p_value"].values < 0.01).sum() >= 4


def test_what_is_refused(bank):
    with pytest.raises(InputError, match="no person_group"):
        irt.item_fit(irt.from_array(answers(0)), bank, groups=True)
    with pytest.raises(InputError, match="ability= says where all"):
        irt.item_fit(responses(answers(0)), bank, groups=True, ability=(0.0, 1.0))
    given = irt.item_fit(responses(answers(0)), bank, ability=(0.0, 1.0))
    assert "group_label" not in given


def test_many_groups_are_one_with_a_warning(bank):
    many = responses(answers(0), np.array([f"school {k // 5}" for k in range(N)]))
    with pytest.warns(DataWarning, match="320 labels.*one normal distribution"):
        found = irt.item_fit(many, bank)
    quiet = irt.item_fit(many, bank, groups=False)
    np.testing.assert_array_equal(found["item_chi2"], quiet["item_chi2"])
    with pytest.raises(InputError, match="at most 200"):
        irt.item_fit(many, bank, groups=True)


def test_suspect_items_are_not_those_of_one_group_alone():
    """Six in ten items that fit had a misfit."""
    r = responses(answers(3))
    fit = irt.fit_marginal(r, positive="none")
    found = irt.suspect_items(r, fit)
    assert not (found["item_misfit_q_value"].values < 0.01).any()
    wanted = irt.item_fit(r, fit)
    np.testing.assert_array_equal(found["item_chi2"], wanted["item_chi2"])
