"""The 3PL by joint maximum likelihood: against scipy, the truth, and what refuses it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from items import quiet, respond
from scipy import optimize, stats

import irt_dask as irt
from irt_dask.calibrate.joint import fit as joint
from irt_dask.calibrate.joint import item_step
from irt_dask.curves import MODELS
from irt_dask.curves.guessing import ThreeParameters
from irt_dask.curves.logistic import INTERCEPT, SLOPE
from irt_dask.errors import ConvergenceWarning, InputError
from irt_dask.kernels.joint import modes
from irt_dask.kernels.joint.parameters import Items
from irt_dask.kernels.responses.layouts import Dense

FINE = {"max_iterations": 2000, "tolerance": 1e-12}
fit = partial(quiet, irt.fit_joint, kinds=(ConvergenceWarning,), model="3pl")


def simulated_3pl(n, m, seed, missing=0.0):
    """Responses, abilities and (a, b, c)."""
    rng = np.random.default_rng(seed)
    a, b, c = rng.lognormal(0.2, 0.3, m), rng.normal(0, 1, m), rng.uniform(0.1, 0.3, m)
    theta = rng.standard_normal(n)
    return respond(rng, theta, a, -a * b, c, missing), theta, np.stack([a, b, c])


@pytest.fixture
def raw(monkeypatch):
    """The items (3, items) of every fit as they are before the change of scale."""
    seen = []
    original = joint.standardised

    def keeping(model, x, moment):
        seen.append(np.array(x))
        return original(model, x, moment)

    monkeypatch.setattr(joint, "standardised", keeping)
    return seen


# --- brute force ----------------------------------------------------------------------------------


def negative(x, y):
    """Minus the log-likelihood of abilities, slopes, intercepts and guessing; its gradient."""
    n, m = y.shape
    theta, (a, d, c) = x[:n], x[n:].reshape(3, m)
    z = theta[:, None] * a + d
    e = np.exp(-np.abs(z))
    large = 1.0 / (1.0 + e)
    p, q = np.where(z >= 0, large, e * large), np.where(z >= 0, e * large, large)
    right, wrong = y == 1, y == 0
    chance = c + (1 - c) * p
    log_wrong = np.log1p(-c) - np.maximum(z, 0.0) - np.log1p(e)
    ll = np.log(np.where(right, chance, 1.0)).sum() + log_wrong[wrong].sum()
    gz = np.where(right, (1 - c) * p * q / chance, 0.0) - wrong * p
    gc = (np.where(right, q / chance, 0.0) - wrong / (1 - c)).sum(axis=0)
    return -ll, -np.concatenate([gz @ a, theta @ gz, gz.sum(axis=0), gc])


def brute_force(y, start, **precision):
    n, m = y.shape
    bounds = [(-6, 6)] * n + [(1e-3, 5)] * m + [(-6, 6)] * m + [(0.0, 0.4999)] * m
    options = {"maxiter": 5000, "maxfun": 20_000, "ftol": 1e-14, "gtol": 1e-8} | precision
    return optimize.minimize(
        negative, start, args=(y,), jac=True, method="L-BFGS-B", bounds=bounds, options=options
    )


def test_gradient_of_the_brute_force_is_right():
    y, _, _ = simulated_3pl(6, 4, 0, missing=0.2)
    x = np.random.default_rng(0).uniform(0.1, 0.4, 6 + 3 * 4)
    f, gradient = (lambda v: negative(v, y)[0]), (lambda v: negative(v, y)[1])
    assert optimize.check_grad(f, gradient, x) < 1e-5


def is_a_high_maximum(raw, missing, seed, n_starts):
    y, _, _ = simulated_3pl(300, 20, seed, missing)
    n, m = y.shape
    got = fit(y, **FINE)
    x = raw[-1]
    theta, ll = modes.modes(Dense(y), modes.tables(Items.of("3pl", *x), 6.0))
    objective = got.attrs["objective"]
    at = np.concatenate([theta, x.ravel()])
    assert objective == pytest.approx(ll.sum(), rel=1e-10)
    assert objective == pytest.approx(-negative(at, y)[0], rel=1e-10)
    assert objective >= -brute_force(y, at).fun * (1 + 1e-6)  # both are negative
    rng = np.random.default_rng(seed)
    others = []
    for _ in range(n_starts):
        slopes, guesses = rng.uniform(0.5, 2, m), rng.uniform(0.05, 0.4, m)
        start = [rng.normal(size=n), slopes, rng.normal(size=m), guesses]
        others.append(-brute_force(y, np.concatenate(start), maxiter=300).fun)
    assert objective >= np.median(others)
    trace = got["iteration_objective"].values
    assert np.diff(trace).min() >= -1e-12 * abs(trace[-1])


@pytest.mark.slow
def test_fit_is_a_high_maximum(raw):
    is_a_high_maximum(raw, 0.0, seed=0, n_starts=6)


@pytest.mark.nightly
@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("seed", [0, 1])
def test_fit_is_as_high_as_most_of_twenty_starts(raw, missing, seed):
    is_a_high_maximum(raw, missing, seed, n_starts=20)


def test_persons_with_nothing_but_right_answers_are_at_the_bound(tmp_path):
    """Also those who answered one item so easy that the likelihood is 1 to its last digit."""
    y = simulated_3pl(300, 5, seed=2, missing=0.6)[0]
    found = fit(y, max_iterations=8, persons=tmp_path / "persons")
    ability = pd.concat(
        pd.read_parquet(f) for f in sorted((tmp_path / "persons").glob("*.parquet"))
    )["person_ability"].to_numpy()
    right, seen = (y == 1).sum(axis=1), (y >= 0).sum(axis=1)
    for whole, end in ((right == seen, np.nanmax(ability)), (right == 0, np.nanmin(ability))):
        np.testing.assert_array_equal(ability[whole & (seen > 0)], end)
    steep = found["item_discrimination"].values * (np.nanmax(ability) - found["item_difficulty"])
    assert steep.max() > 36.0  # 1 - P of the easiest item below the last digit


@pytest.mark.parametrize("gathered", [False, True], ids=["by items", "counts gathered"])
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_guessing_fits_at_least_as_well_as_none(monkeypatch, missing, gathered):
    if gathered:  # small data as if they were large
        monkeypatch.setattr(item_step, "_SMALL", -1)
    y, _, _ = simulated_3pl(500, 12, 5, missing)
    two = fit(y, model="2pl", max_iterations=30)
    three = fit(y, start=two, max_iterations=30)
    assert three.attrs["objective"] > two.attrs["objective"] + 1


# --- the truth ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large():
    y, _, truth = simulated_3pl(20_000, 30, 7)
    with pytest.MonkeyPatch.context() as m:
        m.setattr(item_step, "_SMALL", -1)  # on the axis: ten times faster
        return y, truth, fit(y, guessing_min=0.05, max_iterations=60)


@pytest.mark.slow
def test_estimates_follow_the_truth(large):
    _, (a, b, c), got = large
    # ranks: an item or two may end at the bound, as in any joint fit with guessing
    assert stats.spearmanr(got["item_discrimination"], a)[0] > 0.88
    assert got["item_at_bound"].values.sum() <= 3
    assert np.corrcoef(got["item_difficulty"], b)[0, 1] > 0.96
    error = got["item_guessing"].values - c
    assert np.abs(error[b > -0.5]).mean() < 0.1  # easy items say little about guessing
    assert np.corrcoef(got["item_guessing"].values[b > 0], c[b > 0])[0, 1] > 0.5


def test_standard_errors_are_positive_and_finite(large):
    y, _, got = large
    for name in ("discrimination", "difficulty", "intercept", "guessing"):
        se = got[f"item_{name}_se"].values
        assert np.isfinite(se).all()
        assert (se > 0).all()
    assert (got["item_guessing_se"].values < 0.5).all()
    np.testing.assert_array_equal(got["item_n_right"], (y == 1).sum(axis=0))


@pytest.mark.slow
def test_guessing_stays_within_its_bounds(large):
    y, _, got = large
    c = got["item_guessing"].values
    assert (c >= 0.05).all()
    assert (c < 0.5).all()
    high = fit(y[:500], guessing_min=0.25, max_iterations=5)["item_guessing"].values
    assert (high >= 0.25).all()
    assert (high < 0.5).all()
    assert high.min() == 0.25


@pytest.mark.slow
def test_only_the_upper_bound_of_guessing_is_reported():
    y, _, _ = simulated_3pl(1500, 15, 8)
    got = fit(y, guessing_min=0.2, max_iterations=30)
    c, a, flag = (got[k].values for k in ("item_guessing", "item_discrimination", "item_at_bound"))
    low = c == 0.2
    assert low.any()
    assert not flag[low & (a < 2)].any()
    assert flag[c >= 0.4999].all()


def test_weights_are_repeated_persons():
    y, _, _ = simulated_3pl(200, 8, 9, missing=0.1)
    w = np.random.default_rng(0).integers(1, 4, len(y))
    options = {"start": fit(y, max_iterations=3), "max_iterations": 5}
    weighted = fit(irt.from_array(y, persons={"weight": w}, weight_kind="frequency"), **options)
    repeated = fit(np.repeat(y, w, axis=0), **options)
    assert weighted.attrs["objective"] == pytest.approx(repeated.attrs["objective"], rel=1e-7)
    np.testing.assert_allclose(weighted["item_intercept"], repeated["item_intercept"], atol=1e-3)


# --- who refuses it -------------------------------------------------------------------------------


def test_methods_without_guessing_say_so():
    y, _, _ = simulated_3pl(200, 8, 10)
    items = fit(y, max_iterations=5, guessing_min=0.1)
    with pytest.raises(InputError, match=r"guessing.*fit the 2PL"):
        irt.fit_bayes(y, start=items, n_draws=100, n_warmup=50)


def test_a_model_without_bounds_is_not_available(monkeypatch):
    guessing = replace(MODELS["3pl"].parameters[2], joint=(-np.inf, np.inf))
    unbounded = type("Unbounded", (ThreeParameters,), {"parameters": (SLOPE, INTERCEPT, guessing)})
    monkeypatch.setitem(MODELS, "unbounded", unbounded())
    with pytest.raises(InputError, match="'unbounded' is not available here"):
        fit(np.eye(4), model="unbounded")


class Slips(ThreeParameters):
    """Those who know are wrong by accident with probability c: the 3PL upside down."""

    name = "slips"
    asymptotes = None  # of the form that is compiled: not in these parameters

    def log_p(self, x, nodes):
        return super().log_p(turned(x), -nodes)[:, ::-1]

    def by_ability(self, x, nodes):
        first, second = super().by_ability(turned(x), -nodes)
        return -first[:, ::-1], second[:, ::-1]

    def by_parameter(self, x, nodes):
        by = super().by_parameter(turned(x), -nodes)[:, :, ::-1]
        return np.stack([by[0], -by[1], by[2]])

    def floor(self, x):
        return np.zeros(x.shape[1])


def turned(x):
    return np.stack([x[0], -x[1], x[2]])


@pytest.mark.slow
def test_any_model_of_two_categories_will_do(monkeypatch):
    """Of the same data with right and wrong exchanged: the same fit, upside down."""
    monkeypatch.setitem(MODELS, "slips", Slips())
    y, _, _ = simulated_3pl(400, 12, 4, missing=0.2)
    options = {"max_iterations": 8, "tolerance": -1.0}
    want = fit(y, **options)
    got = fit(np.where(y < 0, y, 1 - y), model="slips", **options)
    assert got.attrs["objective"] == pytest.approx(want.attrs["objective"], rel=1e-6)
    np.testing.assert_allclose(got["item_guessing"], want["item_guessing"], atol=1e-3)
    np.testing.assert_allclose(got["item_difficulty"], -want["item_difficulty"], atol=1e-2)


@pytest.mark.parametrize("bad", [-0.1, 1.0, np.nan])
def test_impossible_guessing_parameters_are_refused(bad):
    y, _, _ = simulated_3pl(100, 5, 11)
    start = fit(y, max_iterations=2)
    start["item_guessing"][3] = bad
    with pytest.raises(InputError, match="guessing parameters at least 0 and below 1"):
        fit(y, start=start)


def test_two_pl_from_a_three_pl_start_has_no_guessing():
    y, _, _ = simulated_3pl(300, 8, 12)
    got = fit(y, model="2pl", start=fit(y, max_iterations=5), max_iterations=5)
    assert "item_guessing" not in got
    irt.score(y, got)
