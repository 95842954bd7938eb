"""Numbers of facets far from 0, or in small units: calendar years, timestamps, their products."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

import irt_dask as irt
from irt_dask.calibrate.marginal.facets import errors as facet_errors
from irt_dask.calibrate.marginal.model import Model
from irt_dask.calibrate.marginal.specification import specified
from irt_dask.errors import DataWarning
from irt_dask.items.mixture import mixture_named

NODES = np.linspace(-7.0, 7.0, 113)
LOG_MASS = -0.5 * NODES**2 - np.log(np.exp(-0.5 * NODES**2).sum())


def strict(*args, **options):
    """A fit that has nothing to say."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return irt.fit_marginal(*args, progress=False, **options)


def log_likelihood(y, a, b):
    """Of persons with a column for each b; -1 is no answer."""
    z = a * (NODES - b[:, None])
    log_p = np.stack([-np.logaddexp(0.0, z), -np.logaddexp(0.0, -z)])
    total = LOG_MASS + sum((y == k).astype(float) @ log_p[k] for k in (0, 1))
    top = total.max(axis=1)
    return float((top + np.log(np.exp(total - top[:, None]).sum(axis=1))).sum())


def brute(y, design, start):
    """Slope and coefficients of a design at the maximum, their covariance, the log-likelihood."""

    def value(z):
        return log_likelihood(y, z[0], design @ z[1:])

    found = minimize(lambda z: -value(z), start, method="BFGS", options={"gtol": 1e-6})
    z, n, h = found.x, start.size, np.eye(start.size) * 1e-3
    hessian = np.empty((n, n))
    for i, j in np.ndindex(n, n):
        f = [value(z + p * h[i] + q * h[j]) for p in (1, -1) for q in (1, -1)]
        hessian[i, j] = (f[0] - f[1] - f[2] + f[3]) / 4e-6
    return z, np.linalg.inv(-hessian), value(z)


def answers(b, n, seed):
    rng = np.random.default_rng(seed)
    theta = rng.standard_normal((n, 1))
    return (rng.random((n, b.size)) < 1 / (1 + np.exp(-(theta - b)))).astype(int)


# --- one number -----------------------------------------------------------------------------------

DIFFICULTY = np.linspace(-1.0, 1.0, 8)


@pytest.mark.parametrize("form", ["names", "table"])
def test_calendar_years_are_years(form):
    y = answers(np.append(DIFFICULTY, DIFFICULTY + 0.4), 1500, 1)
    fits = {}
    for origin in (0, 2018):
        years = (origin, origin + 4)
        names = [f"q{i}@{t}" for t in years for i in range(8)]
        table = pd.DataFrame(
            {"item": [n[:2] for n in names], "year": np.repeat(years, 8)}, index=names
        )
        facets = ["number(year)"] if form == "names" else table
        fits[origin] = strict(irt.from_array(y, item_id=names), model="1pl", facets=facets)
    near, far = fits[0], fits[2018]
    assert 0.08 < near["facet_effect"].values[0] < 0.12  # 0.1 a year
    for name in ("facet_effect", "facet_effect_se", "item_difficulty", "item_intercept_se"):
        assert far[name].values == pytest.approx(near[name].values, abs=1e-6)
    for name in ("log_likelihood", "aic", "n_parameters"):
        assert far.attrs[name] == pytest.approx(near.attrs[name], abs=1e-6)
    drift = float(far["facet_effect"].values[0])
    moved = near["parent_difficulty"].values - 2018 * drift
    assert far["parent_difficulty"].values == pytest.approx(moved, rel=1e-6)
    assert far["parent_intercept"].values == pytest.approx(
        -moved * far["parent_discrimination"].values, rel=1e-6
    )
    assert (far["parent_difficulty_se"].values > 2000 * far["facet_effect_se"].values).all()
    assert (far["item_flag"].values == "ok").all()
    assert not far["item_at_bound"].values.any()
    assert far["facet_effect_n"].values == near["facet_effect_n"].values == y.size


@pytest.mark.parametrize(
    "first, unit", [(2000.0, 1.0), (2.0, 1e-3), (1.7e9, 86400.0), (0.0, 1e-6)],
    ids=["years", "thousands", "timestamps", "millionths"],
)  # fmt: skip
def test_items_of_years_are_those_of_brute_force(first, unit):
    """The linear logistic test model; the constant is the difficulty at 0, wherever that is."""
    x = np.arange(8.0)
    y = answers(0.1 * (x - 3.5) + 0.2, 600, 2)
    of = np.stack([np.ones(8), x - 3.5], axis=1)
    z, cov, log_l = brute(y, of, np.array([1.0, 0.2, 0.1]))
    table = pd.DataFrame({"year": first + unit * x}, index=[f"q{i}" for i in range(8)])
    r = irt.from_array(y, item_id=list(table.index))
    fit = strict(r, model="1pl", facets=["item ~ year"], item_covariates=table)
    to = np.array([[1.0, -3.5 - first / unit], [0.0, 1.0 / unit]])  # constant, coefficient
    se = np.sqrt(np.diag(to @ cov[1:, 1:] @ to.T))
    # Both are multiples of the same slope, nearly: to 1e-4 of an SE.
    assert (fit["facet_effect"].values - to @ z[1:]) / se == pytest.approx([0.0, 0.0], abs=1e-4)
    assert fit["facet_effect_se"].values == pytest.approx(se, rel=1e-4)
    assert fit["facet_effect_fixed_se"].values == pytest.approx(se, rel=1e-4)
    assert fit.attrs["log_likelihood"] == pytest.approx(log_l, abs=1e-6)
    se = np.sqrt(np.einsum("ij,jk,ik->i", of, cov[1:, 1:], of))
    for name in ("parent_difficulty", "item_difficulty"):
        assert fit[name].values == pytest.approx(of @ z[1:], abs=1e-5)
        assert fit[f"{name}_se"].values == pytest.approx(se, rel=1e-4)
    assert not fit["facet_at_bound"].values.any()


# --- products -------------------------------------------------------------------------------------

FORMAT = np.array([1.0, 1.0, -1.0, -1.0])  # open, closed
YEARS, MIDDLE = (2018.0, 2019.5), 2018.7


@pytest.fixture(scope="module")
def modes():
    """300 persons, each of whom has seen every item at one of 2 modes in one of 2 years."""
    rng = np.random.default_rng(4)
    names = [f"q{i}@{m}@{t}" for i in range(4) for m in ("paper", "screen") for t in YEARS]
    parts = [n.split("@") for n in names]
    item = np.array([int(p[0][1]) for p in parts])
    mode = np.array([1.0 if p[1] == "paper" else -1.0 for p in parts])
    year = np.array([float(p[2]) for p in parts]) - MIDDLE
    b = np.array([-0.8, -0.2, 0.3, 0.9])[item] + 0.2 * mode + (0.2 + 0.15 * mode) * year
    y = answers(b + 0.1 * FORMAT[item] * year, 300, 5)
    for i in range(4):
        kept = rng.integers(0, 4, 300)
        y[:, 4 * i : 4 * i + 4][np.arange(4) != kept[:, None]] = -1
    kind = ["open" if f > 0 else "closed" for f in FORMAT]
    table = pd.DataFrame({"format": kind, "words": [510.0, 540.0, 525.0, 500.0]},
                         index=[f"q{i}" for i in range(4)])  # fmt: skip
    return y, irt.from_array(y, item_id=names), table, item, mode, year


def effect(fit, facet, level=""):
    at = (fit["facet"].values == facet) & (fit["level"].values == level)
    return [float(fit[n].values[at][0]) for n in ("facet_effect", "facet_effect_se")]


@pytest.mark.parametrize("sparse", [False, True])
def test_years_times_levels_are_those_of_brute_force(modes, monkeypatch, sparse):
    y, r, table, item, mode, year = modes
    if sparse:
        monkeypatch.setattr(facet_errors, "DENSE", 3)
    terms = ["mode", "number(year)", "number(year):mode", "number(year):format"]
    fit = strict(r, model="1pl", facets=terms, item_covariates=table)
    of_format = FORMAT[item]
    of = np.column_stack([np.eye(4)[item], mode, year, year * mode, year * of_format])
    z, cov, log_l = brute(y, of, np.append(np.ones(1), np.zeros(8)))
    assert fit.attrs["log_likelihood"] == pytest.approx(log_l, abs=1e-6)
    rows = np.zeros((8, 9))  # items, then paper, year, year:paper, year:open as they are given
    rows[:4, 1:5], rows[:4, 6], rows[:4, 8] = np.eye(4), -MIDDLE, -MIDDLE * FORMAT
    rows[4:, 5:] = np.eye(4)
    rows[4, 7] = -MIDDLE
    se = np.sqrt(np.diag(rows @ cov @ rows.T))
    found = [effect(fit, *k) for k in (("mode", "paper"), ("year",), ("year:mode", "paper"),
                                       ("year:format", "open"))]  # fmt: skip
    value = np.append(fit["parent_difficulty"].values, [f[0] for f in found])
    assert (value - rows @ z) / se == pytest.approx(np.zeros(8), abs=1e-4)
    assert fit["parent_difficulty_se"].values == pytest.approx(se[:4], rel=1e-4)
    assert [f[1] for f in found] == pytest.approx(se[4:], rel=1e-4)
    se = np.sqrt(np.einsum("ij,jk,ik->i", of, cov[1:, 1:], of))
    assert fit["item_difficulty"].values == pytest.approx(of @ z[1:], abs=1e-5)
    assert fit["item_difficulty_se"].values == pytest.approx(se, rel=1e-4)
    assert effect(fit, "mode", "screen")[0] == pytest.approx(-value[4])
    assert fit.attrs["n_parameters"] == 9


def test_items_take_what_years_by_format_move(modes):
    """No main effect of years: items have difficulties of their own, and so formats."""
    y, r, table, item, mode, year = modes
    terms = ["mode", "number(year):format"]
    fit = strict(r, model="1pl", facets=terms, item_covariates=table)
    is_open = FORMAT > 0
    of = np.column_stack([np.eye(4)[item], mode, year * is_open[item], year * ~is_open[item]])
    z, cov, log_l = brute(y, of, np.append(np.ones(1), np.zeros(7)))
    assert fit.attrs["log_likelihood"] == pytest.approx(log_l, abs=1e-6)
    rows = np.zeros((7, 8))
    rows[:, 1:] = np.eye(7)
    rows[:4, 6], rows[:4, 7] = -MIDDLE * is_open, -MIDDLE * ~is_open
    se = np.sqrt(np.diag(rows @ cov @ rows.T))
    found = [effect(fit, *k) for k in (("mode", "paper"), ("year:format", "open"),
                                       ("year:format", "closed"))]  # fmt: skip
    value = np.append(fit["parent_difficulty"].values, [f[0] for f in found])
    assert (value - rows @ z) / se == pytest.approx(np.zeros(7), abs=1e-4)
    assert fit["parent_difficulty_se"].values == pytest.approx(se[:4], rel=1e-4)
    assert [f[1] for f in found] == pytest.approx(se[4:], rel=1e-4)


@pytest.mark.parametrize("made", [False, True])
def test_numbers_times_numbers_are_those_of_brute_force(modes, made):
    y, r, table, item, _, year = modes
    terms = ["number(year)", "number(year):words"]
    terms = ["item ~ words", *terms] if made else terms
    by_names = ["mode", *terms]
    words = table["words"].to_numpy()
    fit = strict(r, model="1pl", facets=by_names, item_covariates=table)
    mode, w = modes[4], (words - 520.0) / 10.0
    own = np.stack([np.ones(4), w], axis=1) if made else np.eye(4)
    k = own.shape[1]
    of = np.column_stack([own[item], mode, year, year * w[item]])
    z, cov, log_l = brute(y, of, np.append(np.ones(1), np.zeros(k + 3)))
    assert fit.attrs["log_likelihood"] == pytest.approx(log_l, abs=1e-6)
    # b + e_y (t - m) + e_yw (t - m) (w - 520) / 10, by powers of t and w
    product = np.eye(k + 4)[k + 3] / 10.0
    by_year = np.eye(k + 4)[k + 2] - 520.0 * product
    parents = np.zeros((4, k + 4))
    parents[:, 1 : 1 + k] = own
    parents -= MIDDLE * (by_year + words[:, None] * product)
    rows = [*parents, by_year, product]
    found = [effect(fit, "year"), effect(fit, "year:words")]
    if made:
        of_words = np.eye(k + 4)[2] / 10.0
        constant = np.eye(k + 4)[1] - 520.0 * of_words - MIDDLE * by_year
        rows += [constant, of_words - MIDDLE * product]
        found += [effect(fit, "item"), effect(fit, "words")]
    rows = np.array(rows)
    se = np.sqrt(np.diag(rows @ cov @ rows.T))
    value = np.append(fit["parent_difficulty"].values, [f[0] for f in found])
    assert (value - rows @ z) / se == pytest.approx(np.zeros(len(rows)), abs=1e-4)
    se_found = np.append(fit["parent_difficulty_se"].values, [f[1] for f in found])
    assert se_found == pytest.approx(se, rel=1e-4)


def test_numbers_that_cannot_be_moved_are_named(modes):
    """Slopes by mode alone: another origin would be another model, and years are as given."""
    y, r, _, item, mode, _ = modes
    with pytest.warns(DataWarning) as said:
        fit = irt.fit_marginal(r, model="1pl", facets=["mode:number(year)"], progress=False)
    said = [str(w.message) for w in said]
    assert any("numbers of 'year' lie far from 0 (mean 2018.75, SD 0.75)" in s for s in said)
    assert fit["item_at_bound"].values.any()
    assert any("item_flag): at_bound" in s for s in said)
    names = [n.replace("2018.0", "0").replace("2019.5", "1.5") for n in r.item_id]
    t = np.array([float(n.split("@")[2]) for n in names])
    fit = strict(irt.from_array(y, item_id=names), model="1pl", facets=["mode:number(year)"])
    of = np.column_stack([np.eye(4)[item], t * (mode > 0), t * (mode < 0)])
    z, cov, log_l = brute(y, of, np.append(np.ones(1), np.zeros(6)))
    assert fit.attrs["log_likelihood"] == pytest.approx(log_l, abs=1e-6)
    assert fit["facet_effect"].values == pytest.approx(z[5:], abs=1e-5)
    assert fit["facet_effect_se"].values == pytest.approx(np.sqrt(np.diag(cov))[5:], rel=1e-4)


# --- bounds ---------------------------------------------------------------------------------------


def test_a_parameter_next_to_its_bound_has_ended_there():
    y = answers(DIFFICULTY, 50, 3)
    r = irt.from_array(y)
    models = mixture_named("2pl", r.item_id, [2] * 8)
    model: Model = specified(r, models, (), None, "normal", None, None, "all", None)
    items = np.stack([np.ones(8), np.linspace(-1, 1, 8)])
    items[1, 2], items[1, 5] = 39.99999999, -39.99999999
    ended = np.isin(np.arange(8), [2, 5])
    assert model.at_bound(items).tolist() == ended.tolist()
    assert model.inside(items)[1].tolist() == (~ended).tolist()
    assert model.inside(items)[0].all()
    items[1, [2, 5]] = 39.9, -39.9
    assert not model.at_bound(items).any()
