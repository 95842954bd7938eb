"""Tests of anchors in marginal fits: derivatives by brute force, known errors, size and power."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from items import bank, respond
from scipy.optimize import minimize
from scipy.stats import chi2
from test_marginal import fit, log_likelihood, with_persons

import irt_dask as irt
from irt_dask.calibrate.marginal import anchors as marginal_anchors
from irt_dask.calibrate.marginal.rounds import LOG_SDS, MEANS
from irt_dask.curves import model_named
from irt_dask.errors import DataWarning, IrtDaskWarning, ItemWarning
from irt_dask.items.mixture import Mixture

K, M = 6, 10


def of_a_group(rng, n, *, one_slope=False, m=M):
    a = np.ones(m) if one_slope else np.exp(rng.normal(0.0, 0.25, m))
    b = rng.normal(size=m)
    return a, b, respond(rng, 0.4 + 1.1 * rng.standard_normal(n), a, -a * b)


@pytest.mark.parametrize("model", ["2pl", "1pl"])
def test_chi_square_is_the_drop_of_a_quadratic_by_brute_force(model):
    """Score and Hessian of the log-likelihood in all parameters, by finite differences."""
    rng = np.random.default_rng(0)
    n, m, k = 200, 4, 2
    a, b, y = of_a_group(rng, n, one_slope=model == "1pl", m=m)
    b[:k] += [0.1, 0.05]  # the bank is a little wrong
    f = fit(y, model=model, fixed_items=bank(a[:k], b[:k]))
    mean, sd = f.group_mean.values[0], f.group_sd.values[0]
    slopes = f.item_discrimination.values[k:]
    free = np.concatenate([slopes[: 1 if model == "1pl" else None], f.item_intercept.values[k:],
                           [mean, np.log(sd)]])  # fmt: skip
    anchors = np.concatenate([a[:k], -(a * b)[:k]])

    def value(t):
        own, rest = t[: 2 * k], t[2 * k :]
        s = np.full(m - k, rest[0]) if model == "1pl" else rest[: m - k]
        slope, intercept = np.append(own[:k], s), np.append(own[k:], rest[-2 - m + k : -2])
        mu, spread = np.full(n, rest[-2]), np.full(n, np.exp(rest[-1]))
        return log_likelihood(y, slope, intercept, np.zeros(m), mu, spread, nodes=91)

    at = np.append(anchors, free)
    h = 2e-3 * np.eye(at.size)
    score = np.array([(value(at + e) - value(at - e)) / 4e-3 for e in h])
    hessian = np.array([
        [
            (value(at + e + g) - value(at + e - g) - value(at - e + g) + value(at - e - g)) / 1.6e-5
            for g in h
        ]
        for e in h
    ])  # fmt: skip
    np.testing.assert_allclose(score[2 * k :], 0.0, atol=2e-2)
    rest = np.arange(2 * k, at.size)
    for j in range(k):
        own = np.array([k + j] if model == "1pl" else [j, k + j])
        information = -hessian[np.ix_(own, own)] + hessian[np.ix_(own, rest)] @ np.linalg.solve(
            hessian[np.ix_(rest, rest)], hessian[np.ix_(rest, own)]
        )
        expected = score[own] @ np.linalg.solve(information, score[own])
        assert f.item_anchor_chi2.values[j] == pytest.approx(expected, rel=5e-3, abs=1e-4)
        p_value = chi2.sf(f.item_anchor_chi2.values[j], own.size)
        assert f.item_anchor_p_value.values[j] == pytest.approx(p_value)
    assert np.isnan(f.item_anchor_chi2.values[k:]).all()
    assert f.attrs["anchor_df"] == (1 if model == "1pl" else 2)


ESTIMATES = (
    "item_discrimination", "item_difficulty", "item_intercept", "group_mean", "group_sd",
)  # fmt: skip


@pytest.mark.parametrize(
    "case", ["2pl", pytest.param("3pl", marks=pytest.mark.slow), "1pl", "two groups", "weights"]
)
def test_errors_of_the_bank_are_in_those_of_the_fit(case):
    """Variances that they add, by fitting again with each parameter of the bank moved."""
    rng = np.random.default_rng(3)
    model = case if case.endswith("pl") else "2pl"
    a, b, y = of_a_group(rng, 600, one_slope=model == "1pl")
    table = {
        "two groups": {"group": np.where(rng.random(600) < 0.5, "a", "b")},
        "weights": {"weight": rng.uniform(0.2, 1.8, 600)},
    }.get(case, {})
    table["person_id"] = list(map(str, range(600)))
    k = np.arange(K)
    se = {
        "item_discrimination_se": np.full(K, 0.0 if model == "1pl" else 0.15),
        "item_difficulty_se": 0.1 + 0.02 * k,
    }

    def fitted(a, b, **se):
        known = bank(a, b, 0.1 if model == "3pl" else None, **se)
        return fit(with_persons(y, table), model=model, fixed_items=known)

    known, unsure = fitted(a[:K], b[:K]), fitted(a[:K], b[:K], **se)
    assert known.attrs["anchor_errors"] == "taken as known: not in the standard errors"
    assert unsure.attrs["anchor_errors"] == "of slopes and difficulties: in the standard errors"
    added = dict.fromkeys(ESTIMATES, 0.0)
    for by in range(1 if model == "1pl" else 0, 2):
        for j in range(K):
            step = 0.1 * list(se.values())[by][j] * np.outer(k[:2] == by, k == j)
            low, high = (fitted(*np.array([a[:K], b[:K]]) + s * step) for s in (-1, 1))
            for name in ESTIMATES:
                added[name] = added[name] + ((high[name] - low[name]).values / 0.2) ** 2
    for name in ESTIMATES:
        got = np.sqrt(unsure[f"{name}_se"].values ** 2 - known[f"{name}_se"].values ** 2)
        free = np.isfinite(known[f"{name}_se"].values)
        assert free.any()
        np.testing.assert_allclose(got[free], np.sqrt(added[name])[free], rtol=0.03, atol=2e-3)


def test_wrong_anchors_are_named():
    """Two of six off by 1.5: before, not a word."""
    rng = np.random.default_rng(1)
    a, b, y = of_a_group(rng, 800)
    wrong = b[:K].copy()
    wrong[[1, 4]] += 1.5
    with pytest.warns(
        DataWarning, match="the data contradict . of 6 anchors .* worst first: [14], "
    ):
        f = fit(y, fixed_items=bank(a[:K], wrong))
    assert set(np.argsort(-f.item_anchor_chi2.values[:K])[:2]) == {1, 4}
    assert f.attrs["anchor_p_value"] < 1e-10
    quiet = fit(y, fixed_items=bank(a[:K], b[:K]))  # a warning is an error
    assert quiet.attrs["anchor_p_value"] > 0.01
    assert quiet.attrs["anchor_df"] == 2 * K - 2
    assert (quiet.item_anchor_rmsd.values[:K] < 0.05).all()
    # Errors of the bank make room.
    se = {f"item_{name}_se": np.full(K, 1.0) for name in ("difficulty", "discrimination")}
    unsure = fit(y, fixed_items=bank(a[:K], wrong, **se))
    assert unsure.attrs["anchor_p_value"] > 0.05


def test_flagged_anchors_are_named():
    rng = np.random.default_rng(7)
    a, b, y = of_a_group(rng, 300)
    flags = np.array(["ok", "few_responses", "at_bound|flat"])
    known = bank(a[:3], b[:3], item_flag=flags)
    with pytest.warns(
        ItemWarning, match=r"1 of 3 items of fixed_items .* given: 2 \(at_bound\|flat\)"
    ):
        fit(y, fixed_items=known)


def test_errors_of_the_bank():
    """The covariance of a and d from the errors of a, d and b."""
    rng = np.random.default_rng(2)
    a, d = 1.2, 0.7
    root = np.array([[0.02, 0.0], [-0.012, 0.03]])
    draws = np.array([a, d]) + rng.standard_normal((400_000, 2)) @ root.T
    sd = {"discrimination": draws[:, 0], "intercept": draws[:, 1],
          "difficulty": -draws[:, 1] / draws[:, 0]}  # fmt: skip
    errors = {f"item_{name}_se": np.array([x.std()]) for name, x in sd.items()}
    models = Mixture.of(model_named("2pl"), 2)
    got = marginal_anchors.bank_errors(bank([a], [-d / a], **errors), ("x", "0"), models)
    np.testing.assert_allclose(got[1], root @ root.T, rtol=0.02)
    assert not got[0].any()


@pytest.mark.parametrize("how", ["weights", "units"])
def test_an_easy_anchor_on_which_nobody_is_wrong_fits(how):
    """Of a sandwich chi-square was half the number of persons, p = 0: all have the same score."""
    rng = np.random.default_rng(5)
    n, options = 1000, {}
    a, b, y = of_a_group(rng, n)
    a[1], b[1], y[:, 1] = 1.6, -6.0, 1
    table = {"person_id": [str(i) for i in range(n)]}
    if how == "weights":
        table["weight"] = rng.uniform(0.5, 2.0, n)
    else:
        options["sampling_unit"] = np.arange(n) // 20
    f = fit(with_persons(y, table), fixed_items=bank(a[:K], b[:K]), **options)
    plain = fit(y, fixed_items=bank(a[:K], b[:K]))
    assert f.item_anchor_chi2.values[1] == pytest.approx(plain.item_anchor_chi2.values[1], rel=0.3)
    assert f.item_anchor_p_value.values[1] > 0.3
    if how == "weights":
        assert f.attrs["anchor_p_value"] > 0.001


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore::irt_dask.errors.DataWarning")
@pytest.mark.parametrize("case", ["2pl", "1pl", "few", "weights", "bank", "groups"])
def test_size_at_five_percent(case):
    """300 data sets, 1,800 tests that depend on each other a little: within .035 and .067, which is
    three of their standard errors (.005); all together within .015 and .1."""
    rng = np.random.default_rng(3)
    each, together = [], []
    for _ in range(300):
        n = 300 if case == "few" else 1000
        a, b, y = of_a_group(rng, n, one_slope=case == "1pl", m=2 * K)
        known = bank(a[:K], b[:K])
        if case == "bank":
            known = fit(respond(rng, rng.standard_normal(1000), a[:K], -(a * b)[:K]))
        table = {"person_id": [str(i) for i in range(n)]}
        if case == "weights":
            table["weight"] = rng.uniform(0.5, 2.0, n)
        if case == "groups":
            table["group"] = np.array(["a", "b"])[rng.integers(0, 2, n)]
        f = fit(with_persons(y, table), model="1pl" if case == "1pl" else "2pl", fixed_items=known)
        each.append((f.item_anchor_p_value.values[:K] < 0.05).mean())
        together.append(f.attrs["anchor_p_value"] < 0.05)
    assert 0.035 < np.mean(each) < 0.067
    assert 0.015 <= np.mean(together) < 0.1


def test_one_slope_beside_anchors_of_another():
    """The common slope is that of the free items; anchors keep theirs and do not pull at it."""
    rng = np.random.default_rng(4)
    n, m = 500, 6
    a, b = np.array([1.5] * 3 + [0.8] * 3), rng.normal(size=m)
    y = respond(rng, 0.3 + 1.2 * rng.standard_normal(n), a, -a * b)
    f = fit(y, model="1pl", fixed_items=bank(a[:3], b[:3]))
    at = np.concatenate([f.item_discrimination.values[3:4], f.item_intercept.values[3:],
                         f.group_mean.values, np.log(f.group_sd.values)])  # fmt: skip

    def loss(t):
        slope, intercept = np.append(a[:3], [t[0]] * 3), np.append(-(a * b)[:3], t[1:4])
        return -log_likelihood(y, slope, intercept, np.zeros(m), np.full(n, t[4]),
                               np.full(n, np.exp(t[5])))  # fmt: skip

    best = minimize(loss, at, method="BFGS")
    assert f.attrs["log_likelihood"] == pytest.approx(-best.fun, abs=1e-5)
    np.testing.assert_allclose(at, best.x, atol=1e-3)
    assert np.isfinite(f.item_discrimination_se.values[3:]).all()
    assert np.isnan(f.item_discrimination_se.values[:3]).all()


@pytest.mark.filterwarnings("error")
def test_anchors_without_guessing_in_a_3pl():
    """They were divided by: c = 0."""
    rng = np.random.default_rng(6)
    a, b, y = of_a_group(rng, 500)
    f = fit(y, model="3pl", fixed_items=bank(a[:K], b[:K]))
    np.testing.assert_array_equal(f.item_guessing.values[:K], 0.0)
    assert (f.item_guessing.values[K:] > 0.0).all()
    assert np.isfinite(f.item_anchor_chi2.values[:K]).all()
    whole = fit(y, fixed_items=bank(a, b))  # no item is free
    assert np.isfinite(whole.group_mean_se.values).all()
    np.testing.assert_array_equal(whole.item_discrimination.values, a)


@pytest.mark.parametrize(("alike", "n"), [(False, 6), (False, 50), (True, 6)])
def test_a_group_that_ends_at_a_bound_is_told(alike, n):
    rng = np.random.default_rng(5)
    _, _, y = of_a_group(rng, 300)
    y[-n:] = y[0] if alike else 1
    group = np.array(["a"] * (300 - n) + ["b"] * n)
    table = {"person_id": [str(i) for i in range(300)], "group": group}
    with pytest.warns(
        DataWarning, match=r"1 group\(s\) ended at a bound of mean or SD.*: b \(mean"
    ):
        f = fit(with_persons(y, table), max_iterations=200)
    assert f.attrs["converged"]
    np.testing.assert_array_equal(f.group_at_bound.values, [False, True])
    assert np.isnan(f.group_sd_se.values[1] if alike else f.group_mean_se.values[1])
    # What is at a bound has no standard error, all else has one.
    (low, high), (least, most) = MEANS, np.exp(LOG_SDS)
    for value, se, ends in (
        (f.group_mean, f.group_mean_se, (low, high)), (f.group_sd, f.group_sd_se, (least, most))
    ):  # fmt: skip
        assert (value.values[1] in ends) == np.isnan(se.values[1])
    assert np.isfinite(f.item_difficulty_se.values).all()
    table["group"] = np.array(["a", "b"])[rng.integers(0, 2, 300)]
    assert not irt.fit_marginal(with_persons(y, table), progress=False).group_at_bound.any()


def test_nothing_left_to_estimate():
    """All items are those of the bank, and everybody has all of them right."""
    a, b = np.ones(4), np.linspace(-1.0, 1.0, 4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        f = fit(np.ones((50, 4), dtype=np.int8), fixed_items=bank(a, b))
    assert "1 group(s) ended at a bound" in "\n".join(str(w.message) for w in caught)
    assert f.group_at_bound.values.all()
    np.testing.assert_array_equal(f.item_discrimination.values, a)


@pytest.mark.parametrize("far", [8.0, 400.0])
def test_an_anchor_that_nobody_can_solve(far):
    """The bank says that nobody near can solve it, and half of them do."""
    rng = np.random.default_rng(6)
    a, b, y = of_a_group(rng, 300)
    wrong = b.copy()
    wrong[1] = far / a[1]
    with pytest.warns(IrtDaskWarning):  # the flag of the item; contradicted
        f = fit(y, fixed_items=bank(a[:4], wrong[:4]))
    found = f.item_anchor_chi2.values[:4]
    assert np.isfinite(found).all()
    assert np.argmax(found) == 1
    assert f.item_anchor_p_value.values[1] < 1e-10
    assert np.isfinite(f.item_difficulty_se.values[4:]).all()
