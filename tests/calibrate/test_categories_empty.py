"""Categories that nobody has, kept or collapsed in a marginal fit.

Against fits of data that were recoded by hand, and against brute force: sums over abilities of
products of probabilities that are written out here, and their maximum by scipy.
"""

import dataclasses
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq, minimize

import irt_dask as irt
from irt_dask.errors import (
    CheckpointError,
    ConvergenceWarning,
    DataWarning,
    EstimationError,
    InputError,
)

ABILITY = np.linspace(-8.0, 8.0, 161)
DENSITY = np.exp(-0.5 * ABILITY**2) / np.sqrt(2.0 * np.pi) * (ABILITY[1] - ABILITY[0])
#: Numbers that the codes of items have without their empty categories.
MAPS = [(0, 1, 2, 3), (0, 1, -1, 2), (-1, 0, 1, 2), (0, 1, 2, -1), (0, -1, -1, 1), (0, 1, 2, 3)]
KEPT = [(0, 1, 2, 3), (0, 1, -1, 3), (-1, 0, 1, 2), (0, 1, 2, -1), (0, -1, -1, 3), (0, 1, 2, 3)]
K = [sum(n >= 0 for n in m) for m in MAPS]
#: The same without gaps inside: expected scores are those of recoded data, but for a constant.
ENDS = [(0, 1, 2, 3), (-1, 0, 1, 2), (0, 1, 2, -1), (0, 1, 2, 3), (0, 1, 2, 3), (0, 1, 2, 3)]


def with_empty(maps, seed=1, n=400, missing=0.0, model="gpcm"):
    """Responses without these categories, which go to the next one that there is; recoded."""
    r = irt.simulate(n, len(maps), model=model, categories=4, seed=seed, missing=missing)
    y = r.to_xarray()["response"].values.astype(int)
    z = np.full_like(y, -1)
    for j, numbers in enumerate(maps):
        there = np.flatnonzero(np.array(numbers) >= 0)
        nearest = there[np.abs(there - np.arange(4)[:, None]).argmin(axis=1)]
        seen = y[:, j] >= 0
        y[seen, j] = nearest[y[seen, j]]
        z[seen, j] = np.array(numbers)[y[seen, j]]
    return y, z


def fit(responses, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return irt.fit_marginal(responses, progress=False, **options)


@pytest.fixture(scope="module")
def data():
    """The same responses with and without their empty categories."""
    y, z = with_empty(MAPS)
    return irt.from_array(y, categories=4), irt.from_array(z, categories=K)


@pytest.fixture(scope="module")
def gpcm(data):
    """Both options, and the recoded data."""
    given, recoded = data
    both = {how: fit(given, model="gpcm", null_categories=how) for how in ("keep", "collapse")}
    return both | {"recoded": fit(recoded, model="gpcm")}


def assert_same_items(found, recoded, maps=MAPS, rtol=1e-8):
    """Parameters and errors are those of the recoded data, at the places of the codes."""
    for name in ("item_discrimination", "item_difficulty", "item_intercept"):
        np.testing.assert_allclose(found[name], recoded[name], rtol=rtol, atol=1e-9)
        error = f"{name}_se"  # by differences
        np.testing.assert_allclose(found[error], recoded[error], rtol=1e-6, atol=1e-9)
    names = [n for n in recoded if recoded[n].dims == ("items", "steps")]
    assert names
    for name in names:
        for j, numbers in enumerate(maps):
            there = np.array(numbers[1:]) > 0
            got, want = found[name].values[j], recoded[name].values[j]
            assert np.isnan(got[~there]).all()
            loose = 1e-6 if name.endswith("_se") else rtol
            np.testing.assert_allclose(got[there], want[: there.sum()], rtol=loose, atol=1e-9)


# --- against data recoded by hand -----------------------------------------------------------------


@pytest.mark.parametrize("model", ["graded", "nominal", "pcm"])
def test_collapsed_is_recoded(data, model):
    given, recoded = data
    want = fit(recoded, model=model)
    for how in ("collapse",) if model == "pcm" else ("collapse", "keep"):
        found = fit(given, model=model, null_categories=how)
        assert found.attrs["log_likelihood"] == pytest.approx(
            want.attrs["log_likelihood"], abs=1e-8
        )
        assert found.attrs["n_parameters"] == want.attrs["n_parameters"]
        assert_same_items(found, want)
        np.testing.assert_array_equal(found["item_category_map"], MAPS)


def test_gpcm_collapsed_is_recoded_and_kept_is_not(gpcm):
    found, want = gpcm["collapse"], gpcm["recoded"]
    assert found.attrs["log_likelihood"] == pytest.approx(want.attrs["log_likelihood"], abs=1e-9)
    assert_same_items(found, want)
    np.testing.assert_array_equal(found["item_category_map"], MAPS)
    np.testing.assert_array_equal(gpcm["keep"]["item_category_map"], KEPT)
    assert abs(gpcm["keep"].attrs["log_likelihood"] - want.attrs["log_likelihood"]) > 0.1
    assert "item_category_map" not in want


def test_a_rating_scale_has_the_categories_of_its_block():
    """Nobody has category 2 of the items of one block; of the other block one item lacks 3."""
    y, z = with_empty([(0, 1, -1, 2)] * 3 + [(0, 1, 2, 3)] * 3, model="rating")
    y[:, 4] = z[:, 4] = np.minimum(y[:, 4], 2)
    models = {str(j): "rating:b" if j < 3 else "rating:c" for j in range(6)}
    found = fit(irt.from_array(y, categories=4), model=models, null_categories="collapse")
    want = fit(irt.from_array(z, categories=[3] * 3 + [4] * 3), model=models)
    assert found.attrs["log_likelihood"] == pytest.approx(want.attrs["log_likelihood"], abs=1e-9)
    assert_same_items(found, want, [(0, 1, -1, 2)] * 3 + [(0, 1, 2, 3)] * 3)
    assert found["item_flag"].values.tolist() == ["empty_category"] * 3 + ["ok"] * 3


@pytest.mark.slow
def test_a_category_that_one_group_lacks_is_none_that_nobody_has():
    y, _ = with_empty([(0, 1, 2, 3)] * 5)
    group = np.repeat(["a", "b"], 200)
    y[:200, 0] = np.minimum(y[:200, 0], 2)  # group a alone
    y[:, 1] = np.minimum(y[:, 1], 2)
    persons = pd.DataFrame({"group": group})
    r = irt.from_array(y, categories=4, persons=persons)
    found = fit(r, model="gpcm", null_categories="keep")
    np.testing.assert_array_equal(found["item_category_map"][0], [0, 1, 2, 3])
    np.testing.assert_array_equal(found["item_category_map"][1], [0, 1, 2, -1])
    assert np.isfinite(found["item_step_intercept"][0]).all()
    want = fit(irt.from_array(y, categories=[4, 3, 4, 4, 4], persons=persons), model="gpcm")
    np.testing.assert_allclose(found["group_mean"], want["group_mean"], atol=1e-8)


# --- against brute force --------------------------------------------------------------------------


def brute_force(y, numbers, x, model="gpcm"):
    """Log-likelihood of gpcm items whose codes have these numbers; x by item: a, then d."""
    like = np.ones((len(y), ABILITY.size))
    for j, (own, (a, *d)) in enumerate(zip(numbers, x, strict=True)):
        there = [k for k, n in enumerate(own) if n >= 0]
        u = np.array([n * a * ABILITY for n in own if n >= 0]) + np.array([0.0, *d])[:, None]
        p = np.exp(u) / np.exp(u).sum(axis=0)
        row = np.full(len(own), -1)
        row[there] = np.arange(len(there))
        seen = y[:, j] >= 0
        like[seen] *= p[row[y[seen, j]]]
    return float(np.log(like @ DENSITY).sum())


def test_kept_scores_by_brute_force():
    """The maximum with scores a times 0, 1, 3, and its errors by differences of the likelihood."""
    maps = [(0, 1, -1, 3), (0, 1, -1, 3), (0, 1, 2, 3)]
    y, _ = with_empty(maps, seed=5, n=250, missing=0.1)
    found = fit(irt.from_array(y, categories=4), model="gpcm", null_categories="keep")
    sizes = [3, 3, 4]
    ends = np.cumsum([0, *sizes])

    def value(x):
        return brute_force(y, maps, [x[ends[j] : ends[j + 1]] for j in range(3)])

    def column(suffix=""):
        steps, a = (found[f"item_{n}{suffix}"].values for n in ("step_intercept", "discrimination"))
        return np.concatenate([[a[j], *steps[j][np.isfinite(steps[j])]] for j in range(3)])

    own = column()
    assert value(own) == pytest.approx(found.attrs["log_likelihood"], abs=1e-8)
    best = minimize(lambda x: -value(x), own + 0.2, method="BFGS", options={"gtol": 1e-4})
    assert -best.fun == pytest.approx(found.attrs["log_likelihood"], abs=1e-6)
    np.testing.assert_allclose(best.x, own, atol=2e-3)
    n, h = own.size, 1e-3
    step, hessian = np.eye(n) * h, np.empty((n, n))
    for i in range(n):
        for j in range(i + 1):
            corners = [(1, 1), (1, -1), (-1, 1), (-1, -1)]
            f = [s * t * value(own + s * step[i] + t * step[j]) for s, t in corners]
            hessian[i, j] = hessian[j, i] = sum(f) / (4.0 * h * h)
    error = np.sqrt(np.diag(np.linalg.inv(-hessian)))
    np.testing.assert_allclose(column("_se"), error, rtol=1e-4)


@pytest.mark.parametrize("model", ["pcm", "rating"])
def test_kept_scores_of_one_slope(model):
    """The likelihood is that of the results, and no other parameters nearby have a higher one."""
    maps = [(0, 1, -1, 3)] * 3
    y, _ = with_empty(maps, seed=3, model="rating")
    found = fit(irt.from_array(y, categories=4), model=model, null_categories="keep")
    a, d = found["item_discrimination"].values, found["item_step_intercept"].values[:, [0, 2]]

    def value(a, d):
        return brute_force(y, maps, np.column_stack([a, d]))

    best = found.attrs["log_likelihood"]
    assert value(a, d) == pytest.approx(best, abs=1e-8)
    if model == "rating":  # d_k = n_k d + t_k, t_k common to all, and none of the last
        shift = d[:, 0] - d[:, 1] / 3.0
        np.testing.assert_allclose(shift, shift[0], atol=1e-9)
    moves = [(1.0, 0.0), (0.0, [1.0, 0.0] if model == "pcm" else [1.0, 3.0])]
    for by_a, by_d in moves:
        rise = (value(a + 1e-4 * by_a, d + 1e-4 * np.array(by_d))
                - value(a - 1e-4 * by_a, d - 1e-4 * np.array(by_d))) / 2e-4  # fmt: skip
        assert abs(rise) < 1e-3


# --- what results are good for --------------------------------------------------------------------


def test_scores_are_those_of_recoded_data(data, gpcm):
    given, recoded = data
    for method in ("eap", "ml", "wle", "map"):
        found = irt.score(given, gpcm["collapse"], method=method, progress=False)
        want = irt.score(recoded, gpcm["recoded"], method=method, progress=False)
        np.testing.assert_allclose(
            found["person_ability"], want["person_ability"], rtol=1e-7, atol=1e-8
        )


@pytest.mark.parametrize("ending", ["csv", "json"])
@pytest.mark.parametrize("how", ["keep", "collapse"])
def test_banks_have_the_map(data, gpcm, tmp_path, how, ending):
    path = irt.write_items(gpcm[how], tmp_path / f"bank.{ending}")
    bank = irt.read_items(path)
    np.testing.assert_array_equal(bank["item_category_map"], gpcm[how]["item_category_map"])
    for name in ("item_discrimination", "item_step_intercept", "item_step_difficulty_se"):
        np.testing.assert_allclose(bank[name], gpcm[how][name], rtol=1e-12)
    assert "empty_category" in bank["item_flag"].values[1]
    found, want = (irt.score(data[0], b, progress=False) for b in (bank, gpcm[how]))
    np.testing.assert_allclose(found["person_ability"], want["person_ability"], atol=1e-10)
    again = irt.write_items(bank, tmp_path / f"again.{ending}")
    assert irt.read_items(again).drop_attrs().equals(bank.drop_attrs())


@pytest.mark.parametrize("model", ["graded", "gpcm"])
def test_banks_by_hand_may_give_difficulties(tmp_path, model):
    path = tmp_path / "bank.csv"
    path.write_text(
        "item,model,categories,category_map,a,b1,b2,b3\n"
        f"q1,{model},4,0 1 . 2,1.5,-1,,0.5\nq2,{model},4,,1,-1,0,1\nq3,{model},4,. 0 1 2,1,,2,3\n"
    )
    bank = irt.read_items(path)
    want = [[0, 1, -1, 2], [0, 1, 2, 3], [-1, 0, 1, 2]]
    np.testing.assert_array_equal(bank["item_category_map"], want)
    want = [1.5, np.nan, -0.75] if model == "graded" else [1.5, np.nan, 0.75]
    np.testing.assert_allclose(bank["item_step_intercept"][0], want)
    want = [np.nan, -2.0, -3.0 if model == "graded" else -5.0]
    np.testing.assert_allclose(bank["item_step_intercept"][2], want)
    for wrong in ("0 1 2 4", "0 1 .", "0 x . 2", "0 1 -1 2", "0 2 . 1", "0.5 1 . 2"):
        path.write_text(
            f"item,model,categories,category_map,a,d1,d2,d3\nq1,{model},4,{wrong},1,2,1,0\n"
        )
        if (model, wrong) == ("gpcm", "0 1 2 4"):  # scores as somebody wants them
            irt.read_items(path)
            continue
        with pytest.raises(InputError, match="item q1, column category_map"):
            irt.read_items(path)


def test_nominal_banks(data, tmp_path):
    fitted = fit(data[0], model="nominal", null_categories="keep")
    bank = irt.read_items(irt.write_items(fitted, tmp_path / "bank.csv"))
    for name in ("item_category_score", "item_step_intercept"):
        np.testing.assert_allclose(bank[name], fitted[name], rtol=1e-12)
    np.testing.assert_array_equal(
        np.isnan(fitted["item_category_score"]), np.array(MAPS) < 0
    )  # fmt: skip


def refusals(r, items):
    yield lambda: irt.score(r, items, progress=False)
    yield lambda: irt.item_fit(r, items, progress=False)
    yield lambda: irt.person_fit(r, items, progress=False)
    yield lambda: irt.residual_correlations(r, items, progress=False)
    yield lambda: irt.item_curves(r, items, progress=False)
    yield lambda: irt.predictive_check(r, items, progress=False)
    yield lambda: irt.dif(r, items, reference="a", focal="b", progress=False)
    yield lambda: fit(r, model="gpcm", fixed_items=items)


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_a_response_of_an_empty_category_is_an_error(data, gpcm, layout, tmp_path):
    y = data[0].to_xarray()["response"].values.copy()
    y[300, 1] = 2
    r = irt.from_array(y, categories=4, rows_per_block=256,
                       persons=pd.DataFrame({"group": np.repeat(["a", "b"], 200)}))  # fmt: skip
    if layout == "csr":
        import scipy.sparse

        some = scipy.sparse.csr_array(y + 1)
        some.data -= 1
        r = irt.from_array(some, categories=4, observed="stored", rows_per_block=256,
                           persons=pd.DataFrame({"group": np.repeat(["a", "b"], 200)}))  # fmt: skip
    for call in refusals(r, gpcm["keep"]):
        with pytest.raises(InputError, match=r"item 1 has 1 response\(s\) of category 2"):
            call()
    some = r.select(items=["5", "1", "0"])  # places are those of the selection
    with pytest.raises(InputError, match="item 1 has 1 response"):
        irt.score(some, gpcm["keep"], progress=False)
    assert irt.score(r.select(items=["0", "2", "5"]), gpcm["keep"], progress=False).sizes


def test_scores_in_a_folder_are_kept(data, gpcm, tmp_path):
    """A second run writes nothing; a bank with another map scores all blocks again."""
    for k in (1, 2):
        found = irt.score(data[0], gpcm["keep"], store=tmp_path / "scores", progress=False)
        assert found.attrs["n_blocks_scored"] == (1 if k == 1 else 0)


def test_fixed_items_bring_their_map(data, gpcm):
    """Anchors with empty categories stay as they are, whatever the option says of the others."""
    given, _ = data
    anchors = gpcm["keep"].isel(items=slice(0, 5))
    found = fit(given, model="gpcm", fixed_items=anchors)
    np.testing.assert_array_equal(found["item_category_map"], KEPT)
    np.testing.assert_allclose(
        found["item_step_intercept"], gpcm["keep"]["item_step_intercept"], atol=1e-3
    )
    anchors = gpcm["keep"].isel(items=[0, 2, 4])
    found = fit(given, model="gpcm", fixed_items=anchors, null_categories="collapse")
    want = np.array(MAPS)
    want[4] = KEPT[4]
    np.testing.assert_array_equal(found["item_category_map"], want)
    start = fit(given, model="gpcm", start=gpcm["keep"], null_categories="keep")
    assert start.attrs["log_likelihood"] == pytest.approx(gpcm["keep"].attrs["log_likelihood"])
    with pytest.raises(InputError, match="fixed_items: item 0 is of model gpcm"):
        fit(given, model="graded", fixed_items=anchors)
    with pytest.raises(InputError, match="start: item 1 has the category map 0, 1, -1, 3"):
        fit(given, model="gpcm", start=gpcm["keep"], null_categories="collapse")


@pytest.mark.parametrize("model", ["graded", pytest.param("gpcm", marks=pytest.mark.slow)])
def test_fit_dif_and_curves_are_those_of_recoded_data(model):
    """Where the highest or the lowest category is empty expected scores are the same."""
    y, z = with_empty(ENDS, seed=2)
    persons = pd.DataFrame({"group": np.repeat(["a", "b"], 200)})
    given = irt.from_array(y, categories=4, persons=persons)
    k = [sum(n >= 0 for n in m) for m in ENDS]
    recoded = irt.from_array(z, categories=k, persons=persons)
    how = {"model": model, "groups": False}
    pair = ((given, fit(given, null_categories="keep", **how)), (recoded, fit(recoded, **how)))
    functions = (
        irt.item_fit, irt.person_fit, irt.residual_correlations,
        lambda r, items, **o: irt.dif(r, items, reference="a", focal="b", **o),
    )  # fmt: skip
    for f in functions:
        found, want = (f(*one, progress=False) for one in pair)
        for name in want:
            if want[name].dtype.kind == "f" and "chi2" not in name:  # classes by share of K - 1
                np.testing.assert_allclose(
                    found[name], want[name], rtol=1e-5, atol=1e-7, err_msg=name
                )
    found, want = (irt.item_curves(*one, progress=False)["group_item_rmsd"] for one in pair)
    np.testing.assert_allclose(found, want, atol=1e-7)
    found, want = (irt.information(one[1]) for one in pair)
    for name in want:
        np.testing.assert_allclose(found[name], want[name], rtol=1e-6, atol=1e-9)
    found = irt.predictive_check(*pair[0], n_replicates=20, progress=False)
    assert found.attrs["p_value"] > 0.01


def test_raw_scores_that_nobody_can_have(gpcm):
    one = gpcm["keep"].isel(items=[1])
    table = irt.score_table(one)
    np.testing.assert_array_equal(np.isnan(table["score_ability"]), [False, False, True, False])
    assert table["score_probability"].values[2] == 0.0
    assert table["score_probability"].values.sum() == pytest.approx(1.0)
    assert np.isnan(irt.score_table(one, method="wle")["score_ability"].values[2])
    with pytest.raises(InputError, match="as they are coded"):
        irt.score_table(gpcm["collapse"].isel(items=[1]), method="wle")
    lower = irt.score_table(gpcm["keep"].isel(items=[3]), method="tcc")
    assert np.isnan(lower["score_ability"].values[3])


def test_weighted_likelihood_of_raw_scores_with_gaps():
    """Against the root of Warm's equation, log P written out; every pattern of a score has it."""
    rng = np.random.default_rng(4)
    p = np.exp(np.arange(4) * rng.normal(size=400)[:, None, None] + rng.normal(size=(3, 4)))
    y = (rng.random((400, 3, 1)) > (p / p.sum(-1, keepdims=True)).cumsum(-1)[..., :-1]).sum(-1)
    y[:, 1][y[:, 1] == 2], y[:, 2][y[:, 2] == 0] = 3, 1
    items = fit(irt.from_array(y.astype(np.int8), categories=4), model="pcm",
                null_categories="keep")  # fmt: skip
    a = items["item_discrimination"].values[0]
    there = [[0, 1, 2, 3], [0, 1, 3], [1, 2, 3]]
    steps = [items["item_step_intercept"].values[j] for j in range(3)]
    constants = [
        np.array([0.0, *(steps[j][k - 1] for k in codes[1:])]) for j, codes in enumerate(there)
    ]

    def warm(theta: float, score: int) -> float:
        """Derivative of the log-likelihood plus half of log I: of scores a k I = a^2 Var k."""
        up, variance, third = -1.0 * score, 0.0, 0.0
        for codes, c in zip(there, constants, strict=True):
            w = np.exp(a * theta * np.array(codes) + c)
            w /= w.sum()
            mean = w @ codes
            up += mean
            variance += w @ (codes - mean) ** 2
            third += w @ (codes - mean) ** 3
        return float(a * (-up + 0.5 * third / variance))

    table = irt.score_table(items, method="wle")
    assert np.isnan(table["score_ability"].values).tolist() == [True] + [False] * 9
    for score in range(1, 10):
        want = brentq(warm, -9.0, 9.0, args=(score,), xtol=1e-12)
        assert float(table["score_ability"][score]) == pytest.approx(want, abs=1e-7)


def test_links(data, gpcm):
    """Items with the same map link; with other ones they are refused by name."""
    given, items = data[0], gpcm["keep"]
    moved = fit(given, model="gpcm", null_categories="keep", latent="normal")
    for name, factor in (("item_discrimination", 0.5), ("item_step_difficulty", 2.0)):
        moved[name] = moved[name] * factor
    moved = moved.drop_vars(["item_step_intercept", "item_step_intercept_se"])
    for method in ("haebara", "stocking-lord", "mean-sigma", "mean-mean"):
        linked = irt.link(items, moved, method=method)
        assert linked.attrs["n_used"] == 6
        np.testing.assert_allclose([linked.attrs["A"], linked.attrs["B"]], [0.5, 0.0], atol=1e-6)
        np.testing.assert_allclose(
            linked["item_step_intercept"], items["item_step_intercept"], atol=1e-5
        )
        np.testing.assert_array_equal(linked["item_category_map"], KEPT)
    with pytest.raises(InputError, match=r"2 common item\(s\) have other empty"):
        irt.link(items, gpcm["collapse"])


def test_tables_of_other_programs_have_no_empty_categories(gpcm, tmp_path):
    with pytest.raises(InputError, match="item 1 has an empty category"):
        irt.write_items(gpcm["keep"], tmp_path / "bank.csv", convention="mirt")


def test_plots_and_report_tables(gpcm):
    from irt_dask.report.item_columns import columns_of, item_table

    panels = irt.plot.categories(gpcm["keep"], which=["1", "4"])
    np.testing.assert_array_equal(panels[0].get_lines()[2].get_ydata(), 0.0)
    irt.plot.icc(gpcm["keep"])
    irt.plot.wright_map(gpcm["keep"], None)
    irt.plot.information(irt.information(gpcm["keep"]))
    columns = columns_of(gpcm["keep"], None, None, None, name="ML")
    cells = dataclasses.asdict(item_table(columns))
    assert "3: " in str(cells)


# --- what is said and refused ---------------------------------------------------------------------


def test_what_is_said_of_them(data):
    with pytest.warns(DataWarning, match=r"4 item\(s\) .*'keep'\): 1 \(2\), 2 \(0\), 3 \(3\), 4"):
        found = irt.fit_marginal(data[0], model="graded", null_categories="keep", progress=False)
    flags = found["item_flag"].values
    assert ["empty_category" in f for f in flags] == [False, True, True, True, True, False]


def test_checkpoints_are_of_one_map(data, gpcm, tmp_path):
    """Parameters have the same shape with both options, and a fit does not go on from the other."""
    how = {"model": "gpcm", "checkpoint": tmp_path / "checkpoint"}
    with pytest.warns(ConvergenceWarning):
        fit(data[0], null_categories="keep", max_iterations=3, **how)
    with pytest.raises(CheckpointError, match="belongs to another computation"):
        fit(data[0], null_categories="collapse", **how)
    again = fit(data[0], null_categories="keep", **how)
    assert again.attrs["log_likelihood"] == pytest.approx(gpcm["keep"].attrs["log_likelihood"])


def test_refusals(data):
    given, _ = data
    with pytest.raises(EstimationError, match=r"1 \(2\), 2 \(0\).*null_categories='keep'"):
        fit(given, model="graded")
    with pytest.raises(InputError, match="null_categories='drop'"):
        fit(given, model="graded", null_categories="drop")
    with pytest.raises(EstimationError, match="fit_marginal, which has null_categories="):
        irt.fit_conditional(given, model="pcm", progress=False)
    y = given.to_xarray()["response"].values.copy()
    y[:, 0] = 1
    with pytest.raises(EstimationError, match=r"one category that anybody has, .*: 0"):
        fit(irt.from_array(y, categories=4), model="gpcm", null_categories="collapse")


def test_items_without_empty_categories_are_as_before():
    r = irt.simulate(300, 4, model="gpcm", categories=3, seed=1)
    one, two = (fit(r, model="gpcm", null_categories=how) for how in ("raise", "keep"))
    assert one.identical(two)
    binary = irt.simulate(300, 4, seed=1)
    assert fit(binary).identical(fit(binary, null_categories="collapse"))


def test_pipelines_have_the_key():
    from irt_dask.workflow.config import RunConfig

    content = {"data": {"store": "x.store"}, "calibrate": {"method": "marginal"}}
    plain = RunConfig.model_validate(content)
    assert "null_categories" not in plain.marginal.options()
    assert "null_categories" not in plain.computed()["marginal"]
    given = RunConfig.model_validate(content | {"marginal": {"null_categories": "keep"}})
    assert given.marginal.options()["null_categories"] == "keep"
    assert given.digest() != plain.digest()
