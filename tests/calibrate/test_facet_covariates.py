"""Covariates of items in facets: brute force, finite differences, and what is not identified."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

import irt_dask as irt
from irt_dask.calibrate.marginal.facets import errors as facet_errors
from irt_dask.errors import DataWarning, EstimationError, InputError

NODES = np.linspace(-7.0, 7.0, 113)
LOG_MASS = -0.5 * NODES**2 - np.log(np.exp(-0.5 * NODES**2).sum())


def quiet(*args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return irt.fit_marginal(*args, progress=False, **options)


def log_likelihood(y, tables):
    """Of persons, from log P (columns, categories, nodes)."""
    total = np.tile(LOG_MASS, (len(y), 1))
    for c, table in enumerate(tables):
        total += np.where((y[:, c] >= 0)[:, None], table[np.maximum(y[:, c], 0)], 0.0)
    top = total.max(axis=1)
    return float((top + np.log(np.exp(total - top[:, None]).sum(axis=1))).sum())


def steps(a, b):
    """log P of a partial credit item with these step difficulties."""
    z = np.concatenate([np.zeros((1, NODES.size)), np.cumsum(a * (NODES - b[:, None]), axis=0)])
    return z - np.log(np.exp(z).sum(axis=0))


def drawn(tables, n, rng):
    """Answers of n persons to each column."""
    theta = np.clip(np.rint((rng.standard_normal(n) + 7.0) * 8.0).astype(int), 0, NODES.size - 1)
    u = rng.random((n, len(tables), 1))
    p = np.exp(np.array([t[:, theta].T for t in tables])).cumsum(axis=2)
    return (u > p.transpose(1, 0, 2)).sum(axis=2)


def hessian_errors(value, z, h=1e-3):
    """Inverse of minus the second differences of a log-likelihood."""
    n, e = z.size, np.eye(z.size) * h
    out = np.empty((n, n))
    for i in range(n):
        for j in range(i, n):
            f = [value(z + p * e[i] + q * e[j]) for p in (1, -1) for q in (1, -1)]
            out[i, j] = out[j, i] = (f[0] - f[1] - f[2] + f[3]) / (4 * h * h)
    return np.linalg.inv(-out)


def is_maximum(value, z, fit):
    """The log-likelihood at z is that of the fit, and no other maximiser finds a higher one."""
    assert fit.attrs["log_likelihood"] == pytest.approx(value(z), abs=1e-6)
    slope = [(value(z + h) - value(z - h)) / 2e-4 for h in np.eye(z.size) * 1e-4]
    assert np.abs(slope).max() < 1e-3
    found = minimize(lambda x: -value(x), z + 0.05, method="L-BFGS-B", options={"ftol": 1e-13})
    assert fit.attrs["log_likelihood"] >= -found.fun - 1e-6
    assert np.abs(found.x - z).max() < 2e-3


# --- interactions ---------------------------------------------------------------------------------

FORMAT = ["open", "open", "closed", "closed"]
TERMS = ["mode", "number(position)", "mode:format", "number(position):format"]


def of_modes(z, names):
    """Tables of item@mode@position: slope, 4 difficulties, and one number for each term."""
    out = []
    for item, mode, position in (n.split("@") for n in names):
        i, m = int(item[1]), 1.0 if mode == "paper" else -1.0
        f = 1.0 if FORMAT[i] == "open" else -1.0
        e = z[5] * m + z[7] * m * f + (z[6] + z[8] * f) * float(position)
        out.append(steps(z[0], np.array([z[1 + i] + e])))
    return out


@pytest.fixture(scope="module")
def modes():
    """160 persons, each of whom has seen every item at one of 2 modes and one of 2 positions."""
    rng = np.random.default_rng(0)
    names = [f"q{i}@{m}@{p}" for i in range(4) for m in ("paper", "screen") for p in ("0", "1.5")]
    truth = np.array([1.2, -0.8, -0.2, 0.3, 0.9, 0.3, 0.2, 0.2, 0.15])
    y = drawn(of_modes(truth, names), 160, rng)
    for i in range(4):
        kept = rng.integers(0, 4, 160)
        y[:, 4 * i : 4 * i + 4][np.arange(4) != kept[:, None]] = -1
    table = pd.DataFrame({"format": FORMAT}, index=[f"q{i}" for i in range(4)])
    return y, names, irt.from_array(y, item_id=names), table


def test_interactions_are_those_of_brute_force(modes):
    y, names, r, table = modes
    fit = quiet(r, model="1pl", facets=TERMS, item_covariates=table)
    e = dict(
        zip(zip(fit["facet"].values, fit["level"].values, strict=True),
            range(fit.sizes["effects"]), strict=True)
    )  # fmt: skip
    at = [
        e["mode", "paper"], e["position", ""], e["mode:format", "paper:open"],
        e["position:format", "open"],
    ]  # fmt: skip
    effect, se = fit["facet_effect"].values, fit["facet_effect_se"].values
    assert effect[e["mode:format", "paper:closed"]] == pytest.approx(-effect[at[2]], abs=1e-9)
    assert effect[e["mode:format", "screen:open"]] == pytest.approx(-effect[at[2]], abs=1e-9)
    assert effect[e["position:format", "closed"]] == pytest.approx(-effect[at[3]], abs=1e-9)
    a = fit["parent_discrimination"].values[:1]
    z = np.concatenate([a, fit["parent_difficulty"].values, effect[at]])

    def value(x):
        return log_likelihood(y, of_modes(x, names))

    is_maximum(value, z, fit)
    cov = hessian_errors(value, z)
    known = np.sqrt(np.diag(cov))
    assert se[at] == pytest.approx(known[5:], rel=1e-4)
    assert se[e["mode:format", "screen:closed"]] == pytest.approx(known[7], rel=1e-4)
    assert fit["parent_difficulty_se"].values == pytest.approx(known[1:5], rel=1e-4)
    sign = np.array([[1.0 if "paper" in n else -1.0, float(n.split("@")[2])] for n in names])
    f = np.array([1.0 if FORMAT[int(n[1])] == "open" else -1.0 for n in names])
    item = np.eye(4)[[int(n[1]) for n in names]]
    of = np.column_stack([np.zeros(16), item, sign, sign * f[:, None]])
    assert fit["item_difficulty"].values == pytest.approx(of @ z, abs=1e-9)
    expected = np.sqrt(np.einsum("ij,jk,ik->i", of, cov, of))
    assert fit["item_difficulty_se"].values == pytest.approx(expected, rel=1e-4)
    assert fit.attrs["n_parameters"] == 9


def test_an_interaction_alone_has_the_main_effects_in_it(modes):
    _, _, r, table = modes
    both = quiet(r, model="1pl", facets=TERMS, item_covariates=table)
    cells = quiet(
        r, model="1pl", facets=["mode:format", "number(position):format"], item_covariates=table
    )
    for name in ("log_likelihood", "n_parameters"):
        assert cells.attrs[name] == pytest.approx(both.attrs[name], abs=1e-6)
    assert cells["item_difficulty"].values == pytest.approx(
        both["item_difficulty"].values, abs=1e-5
    )
    assert cells["item_difficulty_se"].values == pytest.approx(
        both["item_difficulty_se"].values, rel=1e-4
    )
    level = list(zip(cells["facet"].values, cells["level"].values, strict=True))
    e = cells["facet_effect"].values
    paper, screen = (e[level.index(("mode:format", f"{m}:open"))] for m in ("paper", "screen"))
    assert paper + screen == pytest.approx(0.0, abs=1e-9)  # within the format


def test_sparse_errors_are_those_of_a_matrix(modes, monkeypatch):
    _, _, r, table = modes
    for terms in (
        TERMS,
        ["mode", "number(position)", "number(position):format"],
        ["item ~ format", "mode", "number(position)", "mode:format"],
    ):
        dense = quiet(r, model="1pl", facets=terms, item_covariates=table)
        with monkeypatch.context() as m:
            m.setattr(facet_errors, "DENSE", 3)
            sparse = quiet(r, model="1pl", facets=terms, item_covariates=table)
        for name in (n for n in dense if n.endswith("_se")):
            np.testing.assert_allclose(
                sparse[name].values, dense[name].values, rtol=1e-6, err_msg=name
            )


# --- items that covariates make -------------------------------------------------------------------

ITEMS = pd.DataFrame(
    {"words": [0.5, 1.0, 2.0, 1.5, 0.2], "format": ["open", "closed", "open", "mixed", "closed"]},
    index=[f"q{i}" for i in range(5)],
)
#: Constant, words, and format: open, closed and mixed sum to 0.
MADE = np.array(
    [[1, 0.5, 1, 0], [1, 1.0, 0, 1], [1, 2.0, 1, 0], [1, 1.5, -1, -1], [1, 0.2, 0, 1]], dtype=float
)


def of_made(z, k):
    """Tables of 5 items with slopes z[:5]; of 3 categories also half the distance of steps."""
    b = MADE @ z[5:9]
    apart = np.zeros((5, 1)) if k == 2 else np.stack([-z[9:], z[9:]], axis=1)
    return [steps(a, b + d) for a, b, d in zip(z[:5], b, apart, strict=True)]


@pytest.mark.parametrize("k", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_items_of_covariates_are_those_of_brute_force(k):
    truth = np.array([0.8, 1.2, 1.5, 1.0, 1.3, -0.6, 0.5, 0.4, -0.3, 0.8, 0.5, 0.6, 0.7, 0.9])
    truth = truth[: 9 if k == 2 else 14]
    y = drawn(of_made(truth, k), 250, np.random.default_rng(k))
    r = irt.from_array(y, item_id=list(ITEMS.index), categories=k)
    model = "2pl" if k == 2 else "gpcm"
    fit = quiet(r, model=model, facets=["item ~ words + format"], item_covariates=ITEMS)
    assert list(zip(fit["facet"].values, fit["level"].values, strict=True)) == [
        ("item", ""), ("words", ""), ("format", "open"), ("format", "closed"), ("format", "mixed"),
    ]  # fmt: skip
    effect = fit["facet_effect"].values
    assert effect[2:].sum() == pytest.approx(0.0, abs=1e-9)
    z = np.concatenate([fit["parent_discrimination"].values, effect[:4]])
    if k == 3:
        z = np.append(z, np.diff(fit["parent_step_difficulty"].values, axis=1)[:, 0] / 2.0)

    def value(x):
        return log_likelihood(y, of_made(x, k))

    is_maximum(value, z, fit)
    cov = hessian_errors(value, z)
    known = np.sqrt(np.diag(cov))
    assert fit["parent_discrimination_se"].values == pytest.approx(known[:5], rel=1e-4)
    last = np.sqrt(cov[7:9, 7:9].sum())
    assert fit["facet_effect_se"].values == pytest.approx([*known[5:9], last], rel=1e-4)
    of_b = np.sqrt(np.einsum("ij,jk,ik->i", MADE, cov[5:9, 5:9], MADE))
    for name in ("parent_difficulty", "item_difficulty"):
        assert fit[name].values == pytest.approx(MADE @ z[5:9], abs=1e-9)
        assert fit[f"{name}_se"].values == pytest.approx(of_b, rel=1e-4)
    assert fit.attrs["n_parameters"] == z.size


def test_with_one_slope_they_are_columns_of_one_item():
    """The linear logistic test model; here too with groups and a facet of persons' columns."""
    rng = np.random.default_rng(5)
    y = drawn(of_made(np.array([1.0] * 5 + [-0.4, 0.5, 0.4, -0.3]), 2), 300, rng)
    y = np.where(rng.random((300, 5)) < 0.5, y, -1), np.where(rng.random((300, 5)) < 0.5, y, -1)
    names = [f"{i}@{m}" for m in "ab" for i in ITEMS.index]
    r = irt.from_array(
        np.concatenate(y, axis=1), item_id=names, persons={"group": np.arange(300) % 2}
    )
    fit = quiet(r, model="1pl", facets=["item ~ words + format", "mode"], item_covariates=ITEMS)
    item = [n.split("@")[0] for n in names]
    table = ITEMS.loc[item].assign(item="all", mode=[n[-1] for n in names]).set_axis(names)
    one = quiet(r, model="1pl", facets=table)
    assert fit.attrs["log_likelihood"] == pytest.approx(one.attrs["log_likelihood"], abs=1e-7)
    assert fit.attrs["n_parameters"] == one.attrs["n_parameters"]
    constant = one["parent_difficulty"].values[0], one["parent_difficulty_se"].values[0]
    for name, of_all in zip(("facet_effect", "facet_effect_se"), constant, strict=True):
        wanted = [of_all, *one[name].values]
        assert fit[name].values == pytest.approx(wanted, abs=1e-5)
    for name in ("item_difficulty", "item_difficulty_se", "group_mean", "group_sd_se"):
        assert fit[name].values == pytest.approx(one[name].values, abs=1e-5, nan_ok=True)


def test_the_constant_follows_where_the_reference_group_is_moved():
    """The step beyond EM frees the group's mean, which goes into the constant: 6 rounds, not 17."""
    rng, x = np.random.default_rng(1), np.linspace(0, 2, 12)
    table = pd.DataFrame({"x": x}, index=[f"q{j}" for j in range(12)])
    eta = 2.2 - x + rng.standard_normal((2000, 1))
    y = (rng.random((2000, 12)) < 1 / (1 + np.exp(-eta))).astype(int)
    r = irt.from_array(y, item_id=list(table.index))
    fit = quiet(r, model="1pl", facets=["item ~ x"], item_covariates=table, standard_errors=False)
    assert fit.attrs["n_iterations"] < 10
    assert fit["facet_effect"].values == pytest.approx([-2.2, 1.0], abs=0.15)


# --- few answers ----------------------------------------------------------------------------------


def test_cells_with_few_answers_are_shrunk_within_each_format():
    rng = np.random.default_rng(3)
    names = [f"q{i}@r{k}" for k in range(24) for i in range(4)]
    truth = 0.7 * rng.standard_normal((24, 2))
    truth -= truth.mean(axis=0)
    tables = [steps(1.2, np.array([truth[int(n[4:]), int(n[1]) // 2]])) for n in names]
    y = drawn(tables, 100, rng)
    for person in y:
        seen = rng.permutation(24)[:2]
        person.reshape(24, 4)[np.setdiff1d(np.arange(24), seen)] = -1
    table = pd.DataFrame({"format": ["open", "open", "closed", "closed"]},
                         index=[f"q{i}" for i in range(4)])  # fmt: skip
    with pytest.warns(DataWarning, match="levels of rater:format have fewer than 20 answers"):
        fit = irt.fit_marginal(
            irt.from_array(y, item_id=names), model="1pl", facets=["rater:format"],
            item_covariates=table,
        )  # fmt: skip
    assert 0.4 < fit["facet_sd"].values[0] < 1.1
    e = fit["facet_effect"].to_pandas().set_axis(fit["level"].values)
    for f, kind in enumerate(("open", "closed")):
        own = e[e.index.str.endswith(kind)]
        assert own.sum() == pytest.approx(0.0, abs=1e-6)
        true = truth[[int(n[1:].split(":")[0]) for n in own.index], f]
        assert np.corrcoef(own, true)[0, 1] > 0.7


# --- refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "facets, changed, said",
    [
        (["format"], {}, "format is of items alone.*no data can tell.*'item ~ format'"),
        (["mode", "format:words"], {}, "format:words is of items alone"),
        (["item ~ words", "format"], {}, "write it behind 'item ~'"),
        (["item ~ mode"], {}, "no column of item_covariates is 'mode'"),
        (["mode"], {}, "item_covariates has 'words', 'format', and.*names none"),
        (["mode:words:format"], {}, "is no term"),
        (["item ~ words", "item ~ format"], {}, "named once"),
        (["score ~ words"], {}, "is no term"),
        (["mode", "mode"], {}, "'mode' is no name of its own"),
        (["number(mode)", "mode:format"], {}, "'mode' is no name of its own"),
        (["number(mode):format"], {}, "the column 'q0@a' has 'a', which is no number"),
        (["number(format):mode"], {}, "the item 'q0' has 'open', which is no number"),
        (["mode:format"], {"format": [None, *"abab"]}, "says nothing of 'format' for the item 'q0"),
        (["mode:format"], {"format": ["a"] * 5}, "one level alone"),
        (["mode:words"], {"words": [np.inf, 1, 2, 3, 4]}, "not finite"),
    ],
)
def test_terms_that_are_none_are_refused(facets, changed, said):
    y = np.random.default_rng(0).integers(0, 2, (60, 10))
    r = irt.from_array(y, item_id=[f"q{i}@{m}" for m in "ab" for i in range(5)])
    with pytest.raises(InputError, match=said):
        irt.fit_marginal(r, facets=facets, item_covariates=ITEMS.assign(**changed))


def test_tables_that_are_none_are_refused():
    y = np.random.default_rng(0).integers(0, 2, (60, 5))
    r = irt.from_array(y, item_id=list(ITEMS.index))
    made = ["item ~ words"]
    for table, said in (
        (None, "no column of item_covariates is 'words'; there are none"),
        (ITEMS.iloc[:3], "no row for 2 item"),
        (pd.concat([ITEMS, ITEMS]), "several rows of the item 'q0'"),
        ({"words": [1.0]}, "must be a DataFrame"),
    ):
        with pytest.raises(InputError, match=said):
            irt.fit_marginal(r, facets=made, item_covariates=table)
    with pytest.raises(InputError, match="item_covariates goes with facets as a list"):
        irt.fit_marginal(r, facets=ITEMS.assign(item="all"), item_covariates=ITEMS)
    with pytest.raises(InputError, match="item_covariates goes with facets, which name"):
        irt.fit_marginal(r, item_covariates=ITEMS)
    y3 = irt.from_array(y + y[::-1], item_id=list(ITEMS.index), categories=3)
    with pytest.raises(InputError, match="difficulties of graded items are of several"):
        irt.fit_marginal(y3, model="graded", facets=made, item_covariates=ITEMS)


def test_covariates_that_follow_from_each_other_are_refused():
    y = np.random.default_rng(0).integers(0, 2, (60, 5))
    r = irt.from_array(y, item_id=list(ITEMS.index))
    table = ITEMS.assign(letters=5.0 * ITEMS["words"] + 2.0)
    with pytest.raises(EstimationError, match="'item', 'words', 'letters'"):
        irt.fit_marginal(r, facets=["item ~ words + letters"], item_covariates=table)


def test_a_number_that_is_a_text_is_no_level():
    y = np.random.default_rng(0).integers(0, 2, (60, 5))
    r = irt.from_array(y, item_id=list(ITEMS.index))
    words = ITEMS["words"].astype(object)
    words.iloc[1] = "8 words"
    with pytest.raises(InputError, match="item_covariates has '8 words' in 'words' for "):
        irt.fit_marginal(r, facets=["item ~ words"], item_covariates=ITEMS.assign(words=words))


def test_covariates_that_are_not_given_are_asked_for():
    r = irt.from_array(np.ones((4, 2), dtype=int), item_id=["q1@r1", "q1@r2"])
    with pytest.raises(InputError, match="a covariate of items is a column of item_covariates"):
        irt.fit_marginal(r, facets=["rater:format"])
