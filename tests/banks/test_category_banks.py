"""Banks of items of any number of categories, and tables in the conventions of other programs."""

from __future__ import annotations

import functools
import json
import warnings

import numpy as np
import pandas as pd
import pytest
from categories import category_probability
from items import bank as bank_of_two

import irt_dask as irt
from irt_dask.banks.anchors import with_errors_of_anchors
from irt_dask.errors import InputError, Notice
from irt_dask.items.parameters import bank_item_ids, item_set

ABILITY = np.linspace(-4.0, 4.0, 33)
MIXED = (2, 2, 3, 4, 2, 5)


@functools.cache
def truth(model, categories=MIXED):
    made = irt.simulate(2, 6, model=model, categories=list(categories), seed=3)
    return made.truth.drop_vars("person_ability")


def curves(items):
    return np.exp(item_set(items, bank_item_ids(items)).log_p(ABILITY))


def write(tmp_path, text, name="b.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def with_errors(items):
    """Some standard error for each number, none where there is no number."""
    out, rng = items.copy(), np.random.default_rng(0)
    for name in map(str, items.data_vars):
        if items[name].dtype.kind == "f" and name != "item_threshold":
            error = np.where(
                np.isnan(items[name]), np.nan, rng.uniform(0.1, 1.0, items[name].shape)
            )
            if name == "item_category_score":
                error[:, 0] = np.nan  # that of the first category is 0
            out[f"{name}_se"] = items[name].dims, error
    two = items["item_n_categories"].values == 2  # one number under two names
    if "item_step_intercept" in items:
        for step, whole in (("step_intercept", "intercept"), ("step_difficulty", "difficulty")):
            out[f"item_{step}_se"][two, 0] = out[f"item_{whole}_se"][two]
    return out


# --- our own files --------------------------------------------------------------------------------


@pytest.mark.parametrize("ext", ["csv", "json"])
@pytest.mark.parametrize(
    "model", ["graded", "gpcm", "pcm", "rating", "nominal", "3pl+gpcm", "2pl+graded"]
)
def test_round_trip(tmp_path, model, ext):
    items = with_errors(truth(model))
    again = irt.read_items(irt.write_items(items, tmp_path / f"b.{ext}"))
    np.testing.assert_allclose(curves(again), curves(items), rtol=0, atol=1e-12)
    assert set(again.variables) == set(items.variables)
    for name in items.variables:
        if items[name].dtype.kind == "f":
            np.testing.assert_allclose(again[name], items[name], rtol=1e-9, atol=1e-9, err_msg=name)
            if name.endswith("_se"):
                np.testing.assert_array_equal(again[name], items[name])
        else:
            assert list(again[name].values) == list(items[name].values)
    first = irt.write_items(again, tmp_path / f"c.{ext}").read_bytes()
    assert (
        irt.write_items(irt.read_items(tmp_path / f"c.{ext}"), tmp_path / f"d.{ext}").read_bytes()
        == first
    )


@pytest.mark.slow
def test_a_fit_comes_back(tmp_path):
    """Flags, standard errors, and what is scored with it."""
    r = irt.simulate(300, 4, model="3pl+gpcm", categories=[2, 3, 2, 4], seed=1)
    fit = irt.fit_marginal(r, model="2pl+graded", progress=False)
    fit["item_flag"] = ("items", ["ok", "extreme", "ok", "flat|large_se"])
    again = irt.read_items(irt.write_items(fit, tmp_path / "b.csv"))
    assert again.attrs["model"] == "2pl+graded"
    assert list(again["item_flag"].values) == list(fit["item_flag"].values)
    for name in ("discrimination", "difficulty", "intercept", "step_intercept", "step_difficulty"):
        np.testing.assert_array_equal(again[f"item_{name}_se"], fit[f"item_{name}_se"])
    np.testing.assert_allclose(
        irt.score(r, again)["person_ability"], irt.score(r, fit)["person_ability"], atol=1e-12
    )


def test_files_are_plain(tmp_path):
    items = truth("3pl+gpcm", (2, 3, 2, 2, 2, 2))
    irt.write_items(items, tmp_path / "b.csv")
    table = pd.read_csv(tmp_path / "b.csv").set_index("item")
    assert list(table) == ["model", "categories", "a", "b", "c", "d", "d1", "d2", "b1", "b2"]
    one, two = table.loc["item1"], table.loc["item2"]
    assert (one["model"], one["categories"], two["model"], two["categories"]) == (
        "3pl",
        2,
        "gpcm",
        3,
    )
    assert one[["d1", "d2", "b1", "b2"]].isna().all()
    assert np.isnan(two["c"])
    np.testing.assert_allclose(
        np.cumsum([two["b1"], two["b2"]]) * -two["a"], [two["d1"], two["d2"]]
    )
    assert two["b"] == pytest.approx((two["b1"] + two["b2"]) / 2)
    irt.write_items(items, tmp_path / "b.json")
    records = json.loads((tmp_path / "b.json").read_text())
    assert list(records[0]) == ["item", "model", "categories", "a", "b", "c", "d"]
    assert list(records[1]) == [
        "item",
        "model",
        "categories",
        "a",
        "b",
        "d",
        "d1",
        "d2",
        "b1",
        "b2",
    ]


def test_banks_of_two_categories_stay_as_they_were(tmp_path):
    """Whatever models they are of: names that say the same curves are no reason for columns."""
    items = bank_of_two([1.0, 2.0], [0.5, -0.5], item_id=("x", "y"))
    expected = "item,model,a,b,c,d\nx,{},1.0,0.5,0.0,-0.5\ny,{},2.0,-0.5,0.0,1.0\n"
    for model, written in (("2pl", "2pl"), ("1pl", "1pl"), ("graded", "2pl"), ("by item", "2pl")):
        irt.write_items(items.assign_attrs(model=model), tmp_path / "b.csv")
        assert (tmp_path / "b.csv").read_text() == expected.format(written, written)
    items = items.assign(item_model=("items", ["1pl", "2pl"]), item_n_categories=("items", [2, 2]))
    irt.write_items(items, tmp_path / "b.csv")
    assert (tmp_path / "b.csv").read_text() == expected.format("1pl", "2pl")
    assert set(irt.read_items(tmp_path / "b.csv").data_vars) == {
        "item_discrimination", "item_difficulty", "item_intercept"
    }  # fmt: skip


def test_banks_made_by_hand(tmp_path):
    text = "item,model,a,b,b1,b2,b3\nx,,1,0.5,,,\ny,gpcm,2,,-1,1,\nz,graded,1,,-1,0,2\n"
    found = irt.read_items(write(tmp_path, text))
    assert list(found["item_n_categories"].values) == [2, 3, 4]
    assert found.attrs["model"] == "by item"
    expected = [("2pl", (1, -0.5)), ("gpcm", (2, 2, 0)), ("graded", (1, 1, 0, -2))]
    p = np.concatenate([category_probability(m, ABILITY, x).T for m, x in expected])
    np.testing.assert_allclose(curves(found), p, atol=1e-12)
    again = irt.read_items(write(tmp_path, "item,model,s1,s2,d1,d2\nx,nominal,-1,2,0.5,0.25\n"))
    p = category_probability("nominal", ABILITY, (-1, 2, 0.5, 0.25)).T
    np.testing.assert_allclose(curves(again), p, atol=1e-12)
    both = irt.read_items(write(tmp_path, "item,a,b,d1,b1\nx,2,0.5,-1,0.5\n"))
    assert both["item_intercept"].item() == -1.0
    text = "item,model,a,d1,d2,d3,b4,s1,u\nx,gpcm,1,1,0,,,,\n"  # columns that no item needs
    assert irt.read_items(write(tmp_path, text))["item_step_intercept"].values.tolist() == [[1, 0]]
    flipped = irt.read_items(write(tmp_path, "item,model,s1,d1\nx,nominal,-1,0.5\n"))
    p = category_probability("nominal", ABILITY, (-1, 0.5)).T
    np.testing.assert_allclose(curves(flipped), p, atol=1e-12)


@pytest.mark.parametrize(
    "text, message",
    [
        ("model,a,d1,d2\ngpcm,1,0,0\n", "no column item"),
        ("item,model,a,d1,d2\n", "lists no item"),
        ("item,a,d1,d2\nx,1,0,0\n", "item x, column model: it has 3 categories, and no model"),
        ("item,model,a,d1,d2\nx,2pl,1,0,0\n", "item x, column model: .*model '2pl' is for two"),
        ("item,model,a,d1,d2\nx,grm,1,0,0\n", "item x, column model: 'grm' is none; known are"),
        ("item,model,a,d1,d2\nx,gpcm,,0,0\n", "item x, column a: nothing stands there"),
        ("item,model,a,d1,d2\nx,gpcm,0,0,0\n", "item x, column a: it must not be 0"),
        ("item,model,a,d1,d2\nx,gpcm,1,0,?\n", r"item x, column d2: '\?' is not a finite number"),
        ("item,model,a,d1,d3\nx,gpcm,1,0,0\n", "item x, column d2: nothing stands there"),
        ("item,model,categories,a,d1\nx,gpcm,3,1,0\n", "item x, column d2: nothing stands there"),
        ("item,model,categories,a\nx,gpcm,3,1\n", "item x, column d1: nothing stands there"),
        ("item,model,categories,a,d1,d2\nx,gpcm,2,1,0,0\n", r"item x, column d2: an item of 2 cat"),
        ("item,model,categories,a,d1\nx,gpcm,2.5,1,0\n", r"item x, column categories: 2\.5 is no"),
        ("item,categories,a\nx,2,1\n", r"item x, column b: nothing stands there \(or in d\)"),
        (
            "item,model,a,c,d1,d2\nx,gpcm,1,.2,0,0\n",
            "item x, column c: items of model gpcm have no",
        ),
        (
            "item,model,a,d,d1\nx,3pl,1,0,0\n",
            "item x, column c: nothing stands .* model 3pl has it",
        ),
        (
            "item,model,a,d1,d2,s1\nx,gpcm,1,0,0,1\n",
            "item x, column s1: only items of model nominal",
        ),
        ("item,model,d1,d2,s1\nx,nominal,0,0,1\n", "item x, column s2: nothing stands there"),
        (
            "item,model,a,d1,d2,b2\nx,gpcm,1,0,0,1\n",
            r"item x, column b2: 1 stands there.* it is -?0",
        ),
        (
            "item,model,a,b,d1,d2\nx,graded,1,1,1,0\n",
            r"item x, column b: 1 stands there.* is -0\.5",
        ),
        ("item,a,d,d1\nx,1,1,0\n", "item x, column d1: 0 stands there.* it is 1"),
        ("item,model,a,d1,d2\nx,graded,1,0,1\n", "item x has .*; .*step intercepts .* falling"),
        ("item,model,a,d1,d2\nx,gpcm,1,0,0\nx,gpcm,1,0,0\n", "listed more than once: x"),
        ("item,model,a,d1,d2,flag\nx,gpcm,1,0,0,odd\n", "item x: item_flag 'odd'"),
    ],
)
def test_bad_banks_name_file_item_and_column(tmp_path, text, message):
    with pytest.raises(InputError, match=rf"(?s)b\.csv.*{message}"):
        irt.read_items(write(tmp_path, text))


@pytest.mark.parametrize("longer", [True, False])
def test_anchors_have_the_errors_of_a_bank_of_more_or_fewer_steps(longer):
    """Items 1 to 3 have three categories at most, the last one five."""
    items = with_errors(truth("gpcm"))
    few = items.isel(items=slice(0, 3), steps=slice(0, 2))
    bank, fit = (items, few) if longer else (few, items)
    fit = fit.copy(deep=True)
    fit["item_step_intercept_se"][:3] = np.nan
    found = with_errors_of_anchors(fit, bank)["item_step_intercept_se"]
    n_items, n_steps = fit["item_step_intercept"].shape
    expected = items["item_step_intercept_se"].values[:n_items, :n_steps]
    np.testing.assert_array_equal(found, expected)


# --- other conventions, by hand -------------------------------------------------------------------

MIRT = """form,group,item,par,est,se
slope-intercept,,x,a1,1.5,0.1
slope-intercept,,x,d,0.5,0.2
slope-intercept,,x,logit(g),-1.3862943611198906,0.5
slope-intercept,,x,logit(u),999,
slope-intercept,,y,a1,1,0.1
slope-intercept,,y,d1,1,0.3
slope-intercept,,y,d2,-1,0.4
slope-intercept,,z,a1,0.5,0.1
slope-intercept,,z,ak0,0,
slope-intercept,,z,ak1,1,
slope-intercept,,z,ak2,2,
slope-intercept,,z,d0,0,
slope-intercept,,z,d1,0.25,0.3
slope-intercept,,z,d2,-0.5,0.4
slope-intercept,,n,a1,0.5,0.1
slope-intercept,,n,ak0,0,
slope-intercept,,n,ak1,3,0.9
slope-intercept,,n,ak2,2,
slope-intercept,,n,d0,0,
slope-intercept,,n,d1,0.25,0.3
slope-intercept,,n,d2,-0.5,0.4
slope-intercept,,r,a1,1,
slope-intercept,,r,b1,-1,0.1
slope-intercept,,r,b2,0.5,0.1
slope-intercept,,r,c,0.25,0.1
slope-intercept,,GroupPars,MEAN_1,0,
slope-intercept,,GroupPars,COV_11,1,
classical,,x,a,1.5,0.1
"""
OF_MIRT = [
    ("3pl", (1.5, 0.5, 0.2)), ("graded", (1, 1, -1)), ("gpcm", (0.5, 0.25, -0.5)),
    ("nominal", (1.5, 1, 0.25, -0.5)), ("gpcm", (1, 1.25, 1)),
]  # fmt: skip


def textbook(items, ability=ABILITY):
    return np.concatenate([category_probability(m, ability, x).T for m, x in items])


def test_mirt_by_hand(tmp_path):
    found = irt.read_items(write(tmp_path, MIRT), convention="mirt")
    np.testing.assert_allclose(curves(found), textbook(OF_MIRT), atol=1e-12)
    assert list(found["item_model"].values) == ["3pl", "graded", "gpcm", "nominal", "rating"]
    assert found["item_guessing_se"].values[0] == pytest.approx(0.2 * 0.8 * 0.5)
    nan = np.nan
    np.testing.assert_array_equal(
        found["item_step_intercept_se"],
        [[0.2, nan], [0.3, 0.4], [0.3, 0.4], [0.3, 0.4], [nan, nan]],
    )
    np.testing.assert_array_equal(found["item_category_score_se"].values[3], [nan, nan, 0.2])


def test_mirt_is_put_on_a_standard_scale(tmp_path):
    """Ability of the table is .5 + 2 theta."""
    text = MIRT.replace("MEAN_1,0,", "MEAN_1,0.5,").replace("COV_11,1,", "COV_11,4,0.3")
    found = irt.read_items(write(tmp_path, text), convention="mirt")
    np.testing.assert_allclose(curves(found), textbook(OF_MIRT, 0.5 + 2.0 * ABILITY), atol=1e-12)
    assert found.attrs["identification"] == "ability N(0, 1), which is N(0.5, 2^2) in the table"
    assert found["item_discrimination_se"].values[0] == pytest.approx(0.2)
    assert "item_step_intercept_se" not in found  # would need a covariance
    alone = MIRT.replace("slope-intercept,,GroupPars,MEAN_1,0,\n", "")
    alone = alone.replace("slope-intercept,,GroupPars,COV_11,1,\n", "")
    again = irt.read_items(write(tmp_path, alone), convention="mirt", ability=(0.5, 2.0))
    np.testing.assert_allclose(curves(again), curves(found), atol=1e-12)


@pytest.mark.parametrize("model", ["graded", "gpcm", "rating", "nominal", "4pl+gpcm"])
def test_what_mirt_is_written_comes_back(tmp_path, model):
    items = with_errors(truth(model))
    path = irt.write_items(items, tmp_path / "m.csv", convention="mirt")
    assert path.read_text().splitlines()[0] == "form,group,item,par,est,se"
    again = irt.read_items(path, convention="mirt")
    np.testing.assert_allclose(curves(again), curves(items), rtol=0, atol=1e-12)
    for name in ("item_discrimination_se", "item_intercept_se", "item_guessing_se"):
        if name in items and name in again:
            known = np.isfinite(again[name].values)
            np.testing.assert_allclose(again[name].values[known], items[name].values[known])
    np.testing.assert_allclose(again["item_step_intercept_se"], items["item_step_intercept_se"])


def test_mirt_has_the_error_of_the_last_score_alone(tmp_path):
    """That of a1 times K - 1, which mirt fixes; those of ak are not in the table."""
    text = "item,model,s1,s2,d1,d2,se_a,se_s1,se_s2\nx,nominal,0.5,2,0,0,0.25,0.3,0.5\n"
    items = irt.read_items(write(tmp_path, text))
    path = irt.write_items(items, tmp_path / "m.csv", convention="mirt")
    again = irt.read_items(path, convention="mirt")
    np.testing.assert_array_equal(again["item_category_score_se"], [[np.nan, np.nan, 0.5]])


def test_what_mirt_has_no_place_for_is_said(tmp_path):
    """Groups of freed items; nothing is said where nothing is left out."""
    bank = irt.simulate(50, 3, seed=1).truth
    freed = bank.assign_coords(item_id=("items", ["q0", "q1", "q0@s"])).assign(
        item_freed_group=("items", ["", "", "s"])
    )
    with pytest.warns(Notice, match=r"no place for the groups that have .* \('q0@s'\): keep"):
        irt.write_items(freed, tmp_path / "m.csv", convention="mirt")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        irt.write_items(bank, tmp_path / "m.csv", convention="mirt")
        irt.write_items(freed, tmp_path / "bank.csv")


@pytest.mark.parametrize("method", ["groups", "conditional", "bayes"])
def test_fits_of_any_kind_are_written_for_mirt(tmp_path, method):
    """Also with errors of what is not over items; ability is said where it is N(0, 1)."""
    r = irt.simulate(300, 6, model="1pl", seed=1)
    if method == "groups":
        y = r.to_xarray()["response"].values
        r = irt.from_array(y, persons={"group": np.repeat(["a", "b"], 150)})
        fit = irt.fit_marginal(r, model="2pl", progress=False)
    elif method == "conditional":
        fit = irt.fit_conditional(r, progress=False)
    else:
        fit = irt.fit_bayes(r, n_warmup=100, n_draws=100, seed=1, progress=False)
    path = tmp_path / "m.csv"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        irt.write_items(fit, path, convention="mirt")
    noted = [str(w.message) for w in caught if issubclass(w.category, Notice)]
    left_out = "mirt's table has no place for the covariance of the parameters, by which link finds"
    assert [left_out in n for n in noted].count(True) == (method != "conditional")
    noted = [n for n in noted if left_out not in n]
    if method == "bayes":
        assert noted == []
        again = irt.read_items(path, convention="mirt")
    else:
        assert len(noted) == 1
        assert "has no item GroupPars" in noted[0]
        with pytest.raises(InputError, match=r"give ability=\(mean, SD\)"):
            irt.read_items(path, convention="mirt")
        again = irt.read_items(path, convention="mirt", ability=(0, 1))
    np.testing.assert_allclose(curves(again), curves(fit), rtol=0, atol=1e-12)


def test_tam_by_hand(tmp_path):
    text = (
        "item,N,M,xsi.item,AXsi_.Cat1,AXsi_.Cat2,B.Cat1.Dim1,B.Cat2.Dim1\n"
        "x,9,.5,0,0.5,NA,2,0\ny,9,.5,0,-1,0.5,0.75,1.5\nz,9,.5,0,-1,0.5,2,1\n"
    )
    found = irt.read_items(write(tmp_path, text), convention="tam")
    expected = [("2pl", (2, -0.5)), ("gpcm", (0.75, 1, -0.5)), ("nominal", (2, 1, 1, -0.5))]
    np.testing.assert_allclose(curves(found), textbook(expected), atol=1e-12)
    assert list(found["item_model"].values) == ["2pl", "gpcm", "nominal"]
    moved = irt.read_items(tmp_path / "b.csv", convention="tam", ability=(1, 2))
    np.testing.assert_allclose(curves(moved), textbook(expected, 1.0 + 2.0 * ABILITY), atol=1e-12)


def test_tam_with_guessing_and_a_first_category_that_is_not_0(tmp_path):
    """tam.mml.3pl has ``guess``; designs of one's own have scores of category 0."""
    text = (
        "item,est.guess,guess,AXsi_.Cat0,AXsi_.Cat1,AXsi_.Cat2,B.Cat0.Dim1,B.Cat1.Dim1,B.Cat2.Dim1"
        "\nx,1,0.2,NA,0.5,NA,0,2,0\ny,0,0,1,0,1.5,1,1.75,2.5\n"
    )
    found = irt.read_items(write(tmp_path, text), convention="tam")
    expected = [("3pl", (2, -0.5, 0.2)), ("gpcm", (0.75, 1, -0.5))]
    np.testing.assert_allclose(curves(found), textbook(expected), atol=1e-12)
    assert list(found["item_model"].values) == ["3pl", "gpcm"]


def test_oplm_by_hand(tmp_path):
    text = "item,a,b1,se_b1,b2,se_b2\nx,3,0.5,0.1,,\ny,2,-1,0.2,0.5,0.3\n"
    found = irt.read_items(write(tmp_path, text), convention="oplm")
    expected = [("2pl", (3, -1.5)), ("gpcm", (2, 2, 1))]
    np.testing.assert_allclose(curves(found), textbook(expected), atol=1e-12)
    np.testing.assert_array_equal(found["item_step_difficulty_se"], [[0.1, np.nan], [0.2, 0.3]])
    assert found["item_difficulty_se"].values[0] == 0.1


def test_naep_by_hand(tmp_path):
    text = "item,a,b,c,d1,d2,se_a,se_b\nx,1,0.5,0.2,,,.1,.2\ny,0.5,1,,1.25,-1.25,.1,.2\n"
    found = irt.read_items(write(tmp_path, text), convention="naep")
    theta = ABILITY[None]
    right = 0.2 + 0.8 / (1 + np.exp(-1.7 * (theta - 0.5)))
    up = np.concatenate(
        [
            0 * theta,
            0.85 * (theta - 1 + 1.25),
            0.85 * (theta - 1 + 1.25) + 0.85 * (theta - 1 - 1.25),
        ]
    )
    p = np.concatenate([1 - right, right, np.exp(up) / np.exp(up).sum(axis=0)])
    np.testing.assert_allclose(curves(found), p, atol=1e-12)
    np.testing.assert_allclose(found["item_step_difficulty"].values[1], [-0.25, 2.25])
    np.testing.assert_allclose(found["item_discrimination_se"], 0.17)
    np.testing.assert_allclose(found["item_difficulty_se"], 0.2)


def test_a_table_of_two_categories_is_a_plain_bank(tmp_path):
    found = irt.read_items(write(tmp_path, "item,a,b,c\nx,1,0,0.2\n"), convention="naep")
    assert set(found.data_vars) == {
        "item_discrimination", "item_difficulty", "item_intercept", "item_guessing"
    }  # fmt: skip
    assert found.attrs["model"] == "3pl"


def lines(*pars):
    return "item,par,est\n" + "".join(f"x,{p}\n" for p in pars) + "GroupPars,COV_11,1\n"


@pytest.mark.parametrize(
    "convention, text, message",
    [
        ("irt", "item\nx\n", "convention='irt' is not available; choose None or 'mirt'"),
        ("mirt", "item,est\nx,1\n", "no column par"),
        ("mirt", "item,par,est\nGroupPars,COV_11,1\n", "lists no item"),
        (
            "mirt",
            "item,form,par,est\nx,IRT,a,1\nx,classical,b,1\n",
            "no item of form 'slope-intercept', .* rows of form 'IRT', 'classical'",
        ),
        (
            "mirt",
            "item,par,est\nx,a1,1\nx,d,0\nx,g,0\n",
            r"no item GroupPars.* give ability=\(mean, SD\)",
        ),
        ("mirt", lines("a1,1", "a1,1"), "item x, column par: a1 stands twice"),
        ("mirt", lines("a1,1", "d,NA"), "item x, column est: nothing stands there, of d"),
        ("mirt", lines("d,0"), "item x, column par: a1 is missing"),
        ("mirt", lines("a1,1", "d1,0", "d3,-1"), "item x, column par: d2 is missing"),
        ("mirt", lines("a1,1"), "item x, column par: d1 is missing"),
        ("mirt", lines("a1,1", "ak0,0", "d0,0"), "item x, column par: ak1 is missing"),
        ("mirt", lines("a1,1", "a2,1", "d,0"), "item x, column par: a2: several abilities"),
        ("mirt", lines("a1,1", "zeta,0"), "item x, column par: 'zeta' is no parameter"),
        ("mirt", lines("a1,1", "d,0"), "item x, column par: d without g and u.* ideal point"),
        (
            "mirt",
            lines("a1,1", "d,0", "g,0", "u,1", "ak0,0", "ak1,1", "d0,0", "d1,1"),
            "item x, column par: ak0 beside a1, d: no model",
        ),
        ("mirt", lines("a1,1", "d1,0", "d2,-1", "g,0"), "item x, column par: g beside a1, d1, d2"),
        ("mirt", lines("a1,1", "d1,0", "d2,-1", "c,0", "b1,0"), "column par: d1 beside a1, c, b1"),
        ("mirt", lines("a1,1", "d1,0", "d2,-1", "c,0"), "item x, column par: b1 is missing"),
        ("mirt", lines("a1,1", "ak0,0", "ak1,1", "d0,0", "d1,1", "d2,1"), "column par: d2 beside"),
        ("mirt", lines("a1,0", "d,0", "g,0"), "item x has discrimination 0"),
        (
            "mirt",
            lines("a1,1", "d,0", "g,0") + "GroupPars,COV_22,1\n",
            "column par: COV_22: several",
        ),
        (
            "mirt",
            lines("a1,1", "d,0", "g,0").replace("COV_11,1", "COV_11,0"),
            "COV_11 is 0, no variance",
        ),
        ("mirt", "item,group,par,est\nx,A,a1,1\nx,B,a1,1\n", "items of 2 groups, A, B"),
        ("tam", "item,xsi\nx,1\n", r"no column AXsi_\.Cat1, B\.Cat1\.Dim1"),
        ("tam", "item,AXsi_.Cat1,B.Cat1.Dim1\nx,0.5,1\n", "all slopes are 1, .* give ability="),
        ("tam", "item,AXsi_.Cat1,B.Cat1.Dim1\nx,0.5,\n", r"item x, column B\.Cat1\.Dim1: nothing"),
        ("tam", "item,AXsi_.Cat1,B.Cat1.Dim1,B.Cat1.Dim2\nx,0,2,1\n", "Dim2: items of several"),
        (
            "tam",
            "item,guess,AXsi_.Cat1,AXsi_.Cat2,B.Cat1.Dim1,B.Cat2.Dim1\nx,.2,0,0,2,4\n",
            "item x, column guess: 0.2: it is for rising items of two",
        ),
        ("oplm", "item,a,b1,c\nx,2,0,.2\n", "item x, column c: 0.2: the convention has no such"),
        ("naep", "item,a,b,u\nx,1,0,.9\n", "item x, column u: 0.9: the convention has no such"),
        ("oplm", "item,a,b1\nx,1.5,0\n", r"item x, column a: 1\.5 is no whole number"),
        ("oplm", "item,a,b1,b2\nx,2,,0\n", "item x, column b1: nothing stands there"),
        ("oplm", "item,a,b1,b3\nx,2,1,0\n", "no column b2"),
        ("naep", "item,a,b,d1,d2\nx,1,0,0.5,0.5\n", "item x, column d1: .* 0.5, 0.5; .* sum 0"),
        ("naep", "item,a,b,c,d1,d2\nx,1,0,.2,0.5,-0.5\n", "item x, column c: 0.2: items with"),
        ("naep", "item,a,b\nx,0,0\n", "item x, column a: it must not be 0"),
        ("naep", "item,a,b\n,1,0\n", "row 1 has no item identifier"),
    ],
)
def test_bad_tables_name_file_item_and_column(tmp_path, convention, text, message):
    with pytest.raises(InputError, match=rf"(?s){message}"):
        irt.read_items(write(tmp_path, text), convention=convention)


def test_options_that_have_no_meaning_are_refused(tmp_path):
    path = write(tmp_path, "item,a,b\nx,1,0\n")
    with pytest.raises(InputError, match=r"ability=.* is for tables of a convention"):
        irt.read_items(path, ability=(0, 1))
    for ability in (1.0, (0, -1), (0, 1, 2), ("0", 1), (0, np.inf)):
        with pytest.raises(InputError, match=r"ability=.*: give .mean, SD."):
            irt.read_items(path, convention="naep", ability=ability)
    with pytest.raises(InputError, match="do not give ability="):
        irt.read_items(write(tmp_path, MIRT), convention="mirt", ability=(0, 1))
    items = bank_of_two([1.0], [0.0])
    with pytest.raises(InputError, match="convention='tam': banks are written by None"):
        irt.write_items(items, path, convention="tam")
    flat = irt.read_items(write(tmp_path, "item,model,s1,s2,d1,d2\nx,nominal,1,0,0,0\n"))
    with pytest.raises(InputError, match="item x is nominal, and its first and last category"):
        irt.write_items(flat, path, convention="mirt")


# --- other programs -------------------------------------------------------------------------------


def log_likelihood(items, table):
    """Sum of log marginal likelihoods under N(0, 1), missing responses left out."""
    theta = np.linspace(-10.0, 10.0, 801)
    weight = np.exp(-0.5 * theta**2) / np.exp(-0.5 * theta**2).sum()
    ids = bank_item_ids(items)
    known, y = item_set(items, ids), table[list(ids)].to_numpy()
    log_p, seen = known.log_p(theta), ~np.isnan(y)
    rows = known.first[:-1] + np.where(seen, y, 0).astype(int)
    patterns, n = np.unique(np.where(seen, rows, -1), axis=0, return_counts=True)
    log = sum(np.where(r[:, None] < 0, 0.0, log_p[r]) for r in patterns.T)
    return float(n @ np.log(np.exp(log) @ weight))


@pytest.mark.parametrize(
    "tag, convention",
    [
        *((f"science_{m}", "mirt") for m in ("grm", "gpcm", "pcm", "rsm", "nominal")),
        *((f"timss_{m}", "mirt") for m in ("2pl_gpcm", "2pl_grm", "pcm")),
        *((f"science_{m}", "tam") for m in ("gpcm", "pcm", "rsm")),
        *((f"timss_{m}", "tam") for m in ("gpcm", "pcm")),
    ],
)
def test_tables_of_other_programs_reach_their_likelihood(tmp_path, real_data, tag, convention):
    """1e-4 of some thousands: they stop iterating at 1e-6 a parameter."""
    folder = real_data / "reference_r"
    if not folder.is_dir():
        pytest.skip(f"the reference values, {folder}, are not here")
    models = pd.read_csv(folder / "models.csv").set_index("tag")
    if convention == "mirt":
        name, path, ability = tag, folder / "params" / f"{tag}.csv", None
    else:
        name, path = f"tam_{tag}", folder / "params" / f"tam_{tag}_item.csv"
        population = (folder / "params" / f"tam_{tag}_pop.txt").read_text().split()
        ability = (0.0, float(population[3]) ** 0.5)
    items = irt.read_items(path, convention=convention, ability=ability)
    said = models.loc[name]
    data = pd.read_csv(folder / said["data"].split("[")[0])
    assert log_likelihood(items, data) == pytest.approx(said["logLik"], abs=1e-4)
    for written in (None, "mirt"):
        again = irt.write_items(items, tmp_path / "b.csv", convention=written)
        again = irt.read_items(again, convention=written)
        np.testing.assert_allclose(curves(again), curves(items), rtol=0, atol=1e-12)
