"""Facets of marginal fits: brute force, finite differences, simulation, and what is refused."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize

import irt_dask as irt
from irt_dask.calibrate.marginal.facets import errors as facet_errors
from irt_dask.errors import ConvergenceWarning, DataWarning, EstimationError, InputError
from irt_dask.score import ability

NODES = np.linspace(-8.0, 8.0, 161)
LOG_MASS = -0.5 * NODES**2 - np.log(np.exp(-0.5 * NODES**2).sum())


def simulated(works, raters, items, k=3, per_work=2, seed=0, sd=0.6):
    """Sparse answers of works to item@rater, the names of columns, and the truth."""
    rng = np.random.default_rng(seed)
    theta, severity = rng.standard_normal(works), sd * rng.standard_normal(raters)
    severity -= severity.mean()
    a, b = np.linspace(0.9, 1.5, items), np.linspace(-0.7, 0.7, items)
    d = -np.cumsum(a[:, None] * (b[:, None] + np.linspace(-1, 1, k - 1)), axis=1)
    who = np.array([rng.permutation(raters)[:per_work] for _ in range(works)])
    cells = {}
    for w in range(works):
        for r in who[w]:
            for i in range(items):
                z = np.append(0.0, np.arange(1, k) * a[i] * (theta[w] - severity[r]) + d[i])
                p = np.exp(z - z.max())
                cells[w, r * items + i] = rng.choice(k, p=p / p.sum())
    at, values = np.array(list(cells)), np.array(list(cells.values()))
    used, place = np.unique(at[:, 1], return_inverse=True)
    matrix = sp.csr_matrix((values, (at[:, 0], place)), shape=(works, used.size))
    names = [f"t{u % items}@r{u // items}" for u in used]
    return matrix, names, {"theta": theta, "severity": severity, "b": b}


def responses(matrix, names, k=3, **options):
    return irt.from_array(matrix, observed="stored", item_id=names, categories=k, **options)


def quiet(*args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return irt.fit_marginal(*args, progress=False, **options)


# --- against code that shares nothing -------------------------------------------------------------


class Brute:
    """The marginal log-likelihood of 3 items of 3 categories at 3 raters, by quadrature."""

    def __init__(self, matrix, names, levels, model, weight=1.0):
        self.weight = weight
        c = matrix.tocoo()
        self.answers = np.full(matrix.shape, -1)
        self.answers[c.row, c.col] = c.data
        self.item = [int(n[1]) for n in names]
        self.rater = [levels.index(n.split("@")[1]) for n in names]
        self.model = model

    def split(self, z):
        return z[:3], z[3:9].reshape(3, 2), np.append(z[9:], -z[9:].sum())

    def value(self, z):
        return float((self.weight * self.of_persons(z)).sum())

    def of_persons(self, z):
        a, d, e = self.split(z)
        total = np.tile(LOG_MASS, (len(self.answers), 1))
        for c, (i, r) in enumerate(zip(self.item, self.rater, strict=True)):
            t = NODES - e[r]
            if self.model == "graded":
                s = [np.ones_like(t), *(1 / (1 + np.exp(-(a[i] * t + x))) for x in d[i]), 0 * t]
                log_p = np.log(np.maximum(-np.diff(s, axis=0), 1e-300))
            else:
                z_ = np.stack([0 * t, a[i] * t + d[i, 0], 2 * a[i] * t + d[i, 1]])
                log_p = z_ - np.log(np.exp(z_).sum(axis=0))
            y = self.answers[:, c]
            total += np.where((y >= 0)[:, None], log_p[np.maximum(y, 0)], 0.0)
        top = total.max(axis=1)
        return top + np.log(np.exp(total - top[:, None]).sum(axis=1))

    def covariance(self, z, h=1e-3):
        n, steps = z.size, np.eye(z.size) * h
        hessian = np.empty((n, n))
        for i in range(n):
            for j in range(i, n):
                f = [self.value(z + p * steps[i] + q * steps[j]) for p in (1, -1) for q in (1, -1)]
                hessian[i, j] = hessian[j, i] = (f[0] - f[1] - f[2] + f[3]) / (4 * h * h)
        return np.linalg.inv(-hessian)


@pytest.mark.parametrize("model", ["gpcm", pytest.param("graded", marks=pytest.mark.slow)])
def test_maximum_and_errors_are_those_of_brute_force(model):
    matrix, names, _ = simulated(120, 3, 3, seed=3)
    fit = quiet(responses(matrix, names), model=model, facets=["rater"])
    brute = Brute(matrix, names, list(fit["level"].values), model)
    a, d, e = (
        fit[n].values for n in ("parent_discrimination", "parent_step_intercept", "facet_effect")
    )
    z = np.concatenate([a, d.ravel(), e[:2]])
    assert fit.attrs["log_likelihood"] == pytest.approx(brute.value(z), abs=1e-6)
    found = minimize(
        lambda x: -brute.value(x), z + 0.05, method="L-BFGS-B", options={"ftol": 1e-13}
    )
    assert fit.attrs["log_likelihood"] >= -found.fun - 1e-6
    assert np.abs(found.x - z).max() < 1e-3
    cov = brute.covariance(z)
    se = np.sqrt(np.diag(cov))
    assert fit["parent_discrimination_se"].values == pytest.approx(se[:3], rel=1e-4)
    assert fit["parent_step_intercept_se"].values.ravel() == pytest.approx(se[3:9], rel=1e-4)
    last = np.sqrt(cov[9:, 9:].sum())  # the effects sum to 0
    assert fit["facet_effect_se"].values == pytest.approx([*se[9:], last], rel=1e-4)
    # A column's intercepts d_k - a k e (graded: d_k - a e), by the delta method.
    times = np.ones(2) if model == "graded" else np.arange(1, 3)

    def of_columns(x):
        a, d, e = brute.split(x)
        pairs = zip(brute.item, brute.rater, strict=True)
        return np.array([d[i] - times * a[i] * e[r] for i, r in pairs]).ravel()

    slope = np.array([(of_columns(z + s) - of_columns(z - s)) / 2e-4 for s in np.eye(11) * 1e-4]).T
    expected = np.sqrt(np.einsum("ij,jk,ik->i", slope, cov, slope))
    assert fit["item_step_intercept"].values.ravel() == pytest.approx(of_columns(z), abs=1e-9)
    assert fit["item_step_intercept_se"].values.ravel() == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
def test_sandwich_is_that_of_brute_force():
    matrix, names, _ = simulated(100, 3, 3, seed=3)
    weight = np.random.default_rng(1).lognormal(0.0, 0.5, 100)
    r = responses(matrix, names, persons={"weight": weight})
    fit = quiet(r, model="gpcm", facets=["rater"])
    weight /= weight.mean()
    brute = Brute(matrix, names, list(fit["level"].values), "gpcm", weight)
    of = ("parent_discrimination", "parent_step_intercept", "facet_effect")
    z = np.concatenate([fit[n].values.ravel() for n in of])[:-1]
    assert fit.attrs["log_likelihood"] == pytest.approx(brute.value(z), abs=1e-6)
    steps = np.eye(z.size) * 1e-4
    scores = np.array([(brute.of_persons(z + h) - brute.of_persons(z - h)) / 2e-4 for h in steps])
    assert np.abs(scores @ weight).max() < 1e-4  # a maximum
    inverse = brute.covariance(z)
    cov = inverse @ ((scores * weight**2) @ scores.T) @ inverse * 100 / 99
    se = np.sqrt(np.append(np.diag(cov), cov[9:, 9:].sum()))
    found = np.concatenate([fit[f"{n}_se"].values.ravel() for n in of])
    assert found == pytest.approx(se, rel=1e-4)


def test_columns_are_items_of_a_bank():
    matrix, names, truth = simulated(400, 6, 4, k=2, seed=5)
    r = responses(matrix, names, 2)
    fit = quiet(r, facets=["rater"])
    again = irt.evaluate(r, fit, progress=False)
    assert float(again["log_likelihood"]) == pytest.approx(fit.attrs["log_likelihood"], abs=1e-6)
    scores = irt.score(r, fit, method="eap", progress=False)["person_ability"].values
    assert np.corrcoef(scores, truth["theta"])[0, 1] > 0.75


def test_scores_of_many_columns_rest_on_nodes_for_few_answers(monkeypatch):
    matrix, names, _ = simulated(200, 30, 3, seed=12)  # 6 answers of 90
    r = responses(matrix, names)
    fit = quiet(r, model="pcm", facets=["rater"], standard_errors=False)
    options = {"method": "eap", "n_plausible": 2, "seed": 1, "progress": False}
    one = irt.score(r, fit, **options)
    monkeypatch.setattr(ability, "_MANY_ITEMS", 50)
    other = irt.score(r, fit, **options)
    for name in ("person_ability", "person_ability_sd"):
        assert other[name].values == pytest.approx(one[name].values, abs=1e-9)
        assert (other[name].values != one[name].values).any()  # other nodes


def _designs():
    matrix, names, _ = simulated(300, 8, 6, seed=4)
    table = pd.DataFrame(
        {
            "item": [f"i{int(n[1]) // 3}" for n in names],
            "task": [f"k{int(n[1]) % 3}" for n in names],
            "rater": [n.split("@")[1] for n in names],
            "place": np.random.default_rng(0).normal(size=len(names)),
        },
        index=names,
    )
    return responses(matrix, names), table


def test_sparse_errors_are_those_of_a_matrix(monkeypatch):
    r, table = _designs()
    dense = quiet(r, model="gpcm", facets=table)
    monkeypatch.setattr(facet_errors, "DENSE", 5)
    sparse = quiet(r, model="gpcm", facets=table)
    assert sparse["facet_effect"].values == pytest.approx(dense["facet_effect"].values, abs=1e-8)
    for name in (n for n in dense if n.endswith("_se")):
        np.testing.assert_allclose(sparse[name].values, dense[name].values, rtol=1e-6, err_msg=name)


def test_a_facet_of_two_halves_is_that_of_groups():
    """Levels that each person has one of are groups: their difference is that of means."""
    rng = np.random.default_rng(2)
    theta, half = rng.standard_normal(800), np.arange(800) % 2
    eta = theta[:, None] - 0.4 * half[:, None] + np.linspace(-1, 1, 8)
    y = (rng.random((800, 8)) < 1 / (1 + np.exp(-eta))).astype(int)
    wide = np.full((800, 16), -1)
    for h in (0, 1):
        wide[half == h, 8 * h : 8 * h + 8] = y[half == h]
    names = [f"q{j}@{h}" for h in "ab" for j in range(8)]
    r = irt.from_array(wide, item_id=names)
    with pytest.warns(DataWarning, match="2 sets without persons in common"):
        fit = irt.fit_marginal(r, model="1pl", facets="mode", progress=False)
    assert fit["facet_set"].values.tolist() == [0, 1]
    e = fit["facet_effect"].values
    assert e.sum() == pytest.approx(0.0, abs=1e-12)
    # The same likelihood: a normal distribution for each half, with one SD by construction here.
    shifted = irt.fit_marginal(irt.from_array(y, persons={"group": half}), model="1pl")
    gap = shifted["group_mean"].values[1]
    assert -(e[1] - e[0]) == pytest.approx(gap, abs=0.02)


# --- what does not matter -------------------------------------------------------------------------


def test_blocks_and_checkpoints_change_no_bit(tmp_path):
    matrix, names, _ = simulated(150, 20, 3, seed=8)  # some 15 works a rater; some are shrunk
    one = quiet(responses(matrix, names), model="pcm", facets=["rater"])
    many = quiet(responses(matrix, names, rows_per_block=17), model="pcm", facets=["rater"])
    r = responses(matrix, names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        quiet(r, model="pcm", facets=["rater"], checkpoint=tmp_path / "c", max_iterations=3)
    later = quiet(r, model="pcm", facets=["rater"], checkpoint=tmp_path / "c")
    assert one.drop_attrs().equals(many.drop_attrs())
    assert one.drop_attrs().equals(later.drop_attrs())


def test_weights_count():
    matrix, names, _ = simulated(120, 4, 3, seed=9)
    twice = sp.vstack([matrix, matrix[:60]]).tocsr()
    weight = np.where(np.arange(120) < 60, 2, 1)
    often = responses(matrix, names, persons={"weight": weight}, weight_kind="frequency")
    one = quiet(often, model="pcm", facets=["rater"])
    other = quiet(responses(twice, names), model="pcm", facets=["rater"])
    for name in ("facet_effect", "facet_effect_se", "parent_difficulty_se"):
        assert one[name].values == pytest.approx(other[name].values, rel=1e-6)
    sampled = quiet(
        responses(matrix, names, persons={"weight": weight}), model="pcm", facets=["rater"]
    )
    assert sampled["facet_effect"].values == pytest.approx(one["facet_effect"].values, abs=1e-6)
    assert sampled.attrs["standard_errors"] == "sandwich of persons"
    ratio = sampled["facet_effect_se"].values / one["facet_effect_se"].values
    assert (ratio > 1.0).all()  # 120 persons with unequal weights say less than 180 equal ones


# --- few answers ----------------------------------------------------------------------------------


def test_levels_with_few_answers_are_shrunk():
    matrix, names, truth = simulated(150, 75, 3, seed=1)  # four works, 12 answers each
    with pytest.warns(DataWarning, match="levels of rater have fewer than 20 answers"):
        fit = irt.fit_marginal(responses(matrix, names), model="pcm", facets=["rater"])
    true = truth["severity"][[int(x[1:]) for x in fit["level"].values]]
    e, fixed = fit["facet_effect"].values, fit["facet_effect_fixed"].values
    own = fit["facet_shrunk"].values
    assert own.sum() > 60
    assert "aic" not in fit.attrs
    assert 0.35 < fit["facet_sd"].values[0] < 0.85  # 0.6
    finite = np.isfinite(fixed) & own
    rmse = [np.sqrt(np.mean((x - true)[finite] ** 2)) for x in (e, fixed)]
    assert rmse[0] < 0.85 * rmse[1]
    assert np.abs(e[finite]).sum() < np.abs(fixed[finite]).sum()


def test_a_rater_who_gives_the_highest_to_all():
    matrix, names, _ = simulated(200, 5, 3, seed=6)
    columns = [k for k, n in enumerate(names) if n.endswith("@r2")]
    m = matrix.tolil()
    for c in columns:
        rows = matrix[:, [c]].tocoo()
        stored = matrix.tocsc()
        m[stored.indices[stored.indptr[c] : stored.indptr[c + 1]], c] = 2
        assert rows.shape[1] == 1
    fit = quiet(responses(m.tocsr(), names), model="pcm", facets=["rater"])
    k = list(fit["level"].values).index("r2")
    assert fit["facet_effect_fixed"].values[k] == -np.inf
    assert np.isnan(fit["facet_effect_fixed_se"].values[k])
    assert fit["facet_shrunk"].values.tolist() == [x == k for x in range(5)]
    assert -15.0 < fit["facet_effect"].values[k] < -1.0
    assert np.isfinite(fit["facet_effect_se"].values).all()


@pytest.mark.slow
def test_coverage_of_severities():
    """40 sets of 12 severities: the share has SD .01, and is outside of .92 to .98 once in 300."""
    inside = []
    for seed in range(40):
        matrix, names, truth = simulated(300, 12, 3, k=4, seed=100 + seed)
        fit = quiet(responses(matrix, names, 4), model="gpcm", facets=["rater"])
        true = truth["severity"][[int(x[1:]) for x in fit["level"].values]]
        e, se = fit["facet_effect"].values, fit["facet_effect_se"].values
        inside.append(np.abs(e - true) < 1.96 * se)
    assert 0.92 < np.mean(inside) < 0.98


# --- refused --------------------------------------------------------------------------------------


def test_designs_that_tell_nothing_are_refused():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, (60, 4))
    nested = irt.from_array(y, item_id=["p@x", "q@x", "r@y", "s@y"])
    with pytest.raises(EstimationError, match="cannot tell 2 effect"):
        irt.fit_marginal(nested, facets=["rater"])
    table = pd.DataFrame({"item": list("ppqq"), "l": list("xyxy"), "n": [0.0, 1, 0, 1]},
                         index=["a", "b", "c", "d"])  # fmt: skip
    with pytest.raises(EstimationError, match=r"l x.*l y.*n"):
        irt.fit_marginal(irt.from_array(y, item_id=list("abcd")), facets=table)
    group = np.repeat(["g", "h"], 30)
    apart = np.where((group == "g")[:, None] == [True, False, True, False], y, -1)
    r = irt.from_array(apart, item_id=["p@x", "p@y", "q@x", "q@y"], persons={"group": group})
    with pytest.raises(EstimationError, match="mean of group h"):
        irt.fit_marginal(r, facets=["rater"])


@pytest.mark.parametrize(
    "facets, said",
    [
        (["rater", "day"], "not named item@rater@day"),
        ([], "names no facet"),
        (3, "give names of facets"),
        (["item"], "no name of its own"),
        (pd.DataFrame({"x": [1.0]}, index=["p@x"]), "without a column 'item'"),
        (pd.DataFrame({"item": ["p"], "x": [1.0]}, index=["p@x"]), "no row for 3 of 4"),
        (
            pd.DataFrame({"item": list("ppqq"), "l": list("xxxx")},
                         index=["p@x", "p@y", "q@x", "q@y"]),
            "one level alone",
        ),
        (
            pd.DataFrame({"item": list("ppqq"), "l": ["x", None, "x", "y"]},
                         index=["p@x", "p@y", "q@x", "q@y"]),
            "says nothing of 'l' for 'p@y'",
        ),
    ],
)  # fmt: skip
def test_facets_that_are_none_are_refused(facets, said):
    y = np.random.default_rng(0).integers(0, 2, (60, 4))
    r = irt.from_array(y, item_id=["p@x", "p@y", "q@x", "q@y"])
    with pytest.raises(InputError, match=said):
        irt.fit_marginal(r, facets=facets)


def test_options_that_do_not_go_together_are_refused():
    y = np.random.default_rng(0).integers(0, 2, (60, 4))
    r = irt.from_array(y, item_id=["p@x", "p@y", "q@x", "q@y"], persons={"school": [1.0] * 60})
    bank = irt.fit_marginal(y, model="1pl")
    for options in (
        {"latent": "histogram"}, {"fixed_items": bank}, {"prior": "empirical"},
        {"positive": "none"}, {"start": bank}, {"sampling_unit": "school"},
    ):  # fmt: skip
        with pytest.raises(InputError, match=f"{next(iter(options))}.*facets"):
            irt.fit_marginal(r, facets=["rater"], **options)
    k = irt.from_array(y, item_id=["p@x", "p@y", "q@x", "q@y"], categories=[2, 3, 2, 2])
    with pytest.raises(InputError, match="p@x has 2, another of p has 3"):
        irt.fit_marginal(k, model="pcm", facets=["rater"])
