"""What the commands fit, dif, information, link and calibrate say: as Python does."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from pyarrow import csv

import irt_dask as irt
from irt_dask.banks.saved import read_bank, write_result
from irt_dask.report import page

GROUPS, N, M = ("a", "b"), 800, 8


def read(path):
    """A file of numbers, each the one that was written."""
    return csv.read_csv(path).to_pandas()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A store of two groups with weights, one item harder for the second, one reversed."""
    folder = tmp_path_factory.mktemp("agency")
    y = irt.simulate(N, M, seed=3).read_block(0).data.values.copy()
    second = np.arange(N) % 2 == 1
    y[second & (np.arange(N) % 3 > 0), 2] = 0
    frame = pd.DataFrame(y, columns=[f"q{j}" for j in range(M)])
    frame.insert(0, "person", [f"p{i}" for i in range(N)])
    frame["weight"] = 1.0 + np.arange(N) % 4
    frame["group"] = np.where(second, "b", "a")
    frame.to_csv(folder / "y.csv", index=False)
    irt.ingest(folder / "y.csv", folder / "s", shape="wide",
               columns={"weight": "weight", "group": "group"})  # fmt: skip
    plain = frame.drop(columns=["weight"])
    plain.to_csv(folder / "plain.csv", index=False)
    unweighted = irt.ingest(folder / "plain.csv", folder / "plain", shape="wide",
                            columns={"group": "group"})  # fmt: skip
    irt.write_items(irt.fit_marginal(unweighted, groups=False), folder / "bank.csv")
    return folder


@pytest.mark.slow
def test_calibrate_learns_priors_of_items(made, typed):
    said = json.loads(typed("calibrate", made / "plain", "--out", "m.csv", "--method", "marginal",
                            "--prior", "empirical", "--json", "--quiet").out)  # fmt: skip
    fit = irt.fit_marginal(irt.open_responses(made / "plain"), prior="empirical")
    assert (said["prior"], said["objective"]) == ("empirical", fit.attrs["objective"])
    assert "aic" not in said
    table = pd.DataFrame({"item": [f"q{j}" for j in range(M)], "block": list("aabbaabb")})
    table["length"] = np.arange(M) % 5
    table.to_csv("t.csv", index=False)
    typed("calibrate", made / "plain", "--out", "b.csv", "--fit", "b.nc", "--draws", "120",
          "--item-table", "t.csv", "--quiet")  # fmt: skip
    with xr.open_dataset("b.nc") as posterior:
        assert posterior["block"].values.tolist() == ["a", "b"]
        assert posterior["covariate"].values.tolist() == ["length"]
    args = ("calibrate", made / "plain", "--out", "c.csv", "--method", "marginal")
    said = typed(*args, "--item-table", "t.csv", code=2).err
    assert "--item-table goes with facets" in said
    assert "learned by --method bayes" in said
    args = ("calibrate", made / "plain", "--out", "c.csv", "--prior", "empirical")
    assert "--prior belongs to --method marginal" in typed(*args, code=2).err


def test_calibrate_keeps_groups_criteria_and_the_whole_fit(made, typed):
    about = typed("calibrate", made / "s", "--out", "bank.csv", "--method", "marginal", "--fit",
                  "fit.nc", "--reference-group", "b", "--json", "--quiet")  # fmt: skip
    said = json.loads(about.out)
    fit = irt.fit_marginal(irt.open_responses(made / "s"), reference_group="b")
    assert [g["group"] for g in said["groups"]] == ["a", "b"]
    assert said["groups"][0]["mean"] == fit["group_mean"].values[0]
    assert said["groups"][0]["mean_se"] == fit["group_mean_se"].values[0] > 0.0
    assert said["groups"][1]["mean"] == 0.0
    assert (said["aic"], said["bic"]) == (fit.attrs["aic"], fit.attrs["bic"])
    assert said["weight_kind"] == "sampling"
    xr.testing.assert_allclose(read_bank("fit.nc"), fit, rtol=1e-15)
    text = typed("calibrate", made / "s", "--out", "again.csv", "--method", "marginal").out
    on = typed("calibrate", made / "s", "--out", "again.csv", "--method", "marginal", "--start",
               "fit.nc", "--reference-group", "b", "--json").out  # fmt: skip
    assert json.loads(on)["n_iterations"] < said["n_iterations"]
    assert json.loads(on)["log_likelihood"] == pytest.approx(said["log_likelihood"], rel=1e-9)
    assert "Ability of the groups:" in text
    assert "mean se" in text
    assert "aic" in text
    assert pd.read_csv("again.csv")["calibration_groups"].eq(2).all()


def test_weights_can_be_ignored(made, typed):
    """The same bits as the store without them has; and what cannot use them says so."""
    for command in ("fit", "dif"):
        options = ("--reference", "a", "--focal", "b") if command == "dif" else ()
        if command == "fit":
            refused = typed(command, made / "s", made / "bank.csv", code=2).err
            assert "does not support person weights" in refused
            assert "have sampling weights; count every person once: --weights ignore" in refused
        both = [
            json.loads(typed(command, made / store, made / "bank.csv", *options, "--weights",
                             "ignore", "--json").out)
            for store in ("s", "plain")
        ]  # fmt: skip
        assert both[0] == both[1]
    banks = []
    for store in ("s", "plain"):
        typed("calibrate", made / store, "--out", f"{store}.csv", "--method", "marginal",
              "--weights", "ignore")  # fmt: skip
        banks.append(Path(f"{store}.csv").read_text())
    assert banks[0] == banks[1]


def test_fit_names_the_items_that_do_not_fit(made, typed):
    printed = typed("fit", made / "plain", made / "bank.csv", "--out", "items.csv", "--persons",
                    "persons").out  # fmt: skip
    r, bank = irt.open_responses(made / "plain"), irt.read_items(made / "bank.csv")
    tests = irt.item_fit(r, bank)
    frame = read("items.csv")
    assert frame["item"].tolist() == list(r.item_id)
    for name in ("infit", "outfit", "sx2", "sx2_p_value"):
        np.testing.assert_array_equal(frame[name], tests[f"item_{name}"].values)
    persons = pd.read_parquet("persons")
    assert len(persons) == N
    typed("fit", made / "plain", made / "bank.csv", "--persons", "persons.csv")
    table = pd.read_csv("persons.csv", dtype={"person_id": str})
    pd.testing.assert_frame_equal(table, persons, rtol=1e-15, atol=1e-15, check_dtype=False)
    assert "there is no folder" in typed("fit", made / "plain", made / "bank.csv", "--persons",
                                         "gone/persons.csv", code=2).err  # fmt: skip
    said = json.loads(typed("fit", made / "plain", made / "bank.csv", "--json").out)
    low = tests["item_sx2_p_value"].values < 0.05 / M
    low |= ((frame[["infit", "outfit"]] - 1.0).abs() > 0.3).any(axis=1).values
    assert said["items_that_do_not_fit"] == low.sum()
    assert ("Items that do not fit" in printed) == low.any()
    shares = irt.person_fit(r, bank).attrs
    assert said["persons_share_below_5"] == shares["share_below_5"]
    assert f"persons share below 5  {shares['share_below_5']}" in printed.replace("   ", "  ")


def test_fit_takes_the_options_of_python(made, typed):
    r, bank = irt.open_responses(made / "plain"), irt.read_items(made / "bank.csv")
    said = json.loads(typed("fit", made / "plain", made / "bank.csv", "--not-fitted", "--ability",
                            "0.5,1.5", "--json").out)  # fmt: skip
    tests = irt.item_fit(r, bank, fitted=False, ability=(0.5, 1.5))
    assert [s["sx2_df"] for s in said["statistics"]] == tests["item_sx2_df"].values.tolist()
    assert (said["ability_mean"], said["ability_sd"]) == (0.5, 1.5)


@pytest.mark.filterwarnings("ignore:anchors='iterate'")
def test_dif_finds_the_item_that_is_harder_for_a_group(made, typed):
    args = ("dif", made / "plain", made / "bank.csv", "--reference", "a", "--focal", "b")
    printed = typed(*args, "--out", "dif.csv")
    assert "warning" not in printed.err
    assert "Items that may favour a group" in printed.out
    frame = read("dif.csv")
    assert frame["item"].tolist() == [f"q{j}" for j in range(M)]
    assert frame["class"][2] == "C"
    assert frame["shift"][2] < -0.5
    r, bank = irt.open_responses(made / "plain"), irt.read_items(made / "bank.csv")
    tests = irt.dif(r, bank, reference="a", focal="b")
    np.testing.assert_array_equal(frame["uniform_p_value"], tests["item_dif_uniform_p_value"])
    said = json.loads(typed(*args, "--json").out)
    assert said["groups"][0]["class_C"] == (frame["class"] == "C").sum()
    for name in ("mean", "sd"):  # of both, on the scale of the bank
        assert said[f"reference_ability_{name}"] == tests.attrs[f"ability_{name}_reference"]
        assert said["groups"][0][f"ability_{name}"] == tests.attrs[f"ability_{name}_focal"]
    assert f"abilities on the scale of {made / 'bank.csv'}" in printed.out
    assert len(said["tests"]) == M
    for anchors, names in (("iterate", "iterate"), ("q0, q1,q5", ["q0", "q1", "q5"])):
        said = json.loads(typed(*args, "--anchors", anchors, "--seed", 3, "--json").out)
        tests = irt.dif(r, bank, reference="a", focal="b", anchors=names, seed=3)
        assert [t["anchor"] for t in said["tests"]] == tests["item_dif_anchor"].values.tolist()
        shift = [t["shift"] for t in said["tests"]]
        np.testing.assert_array_equal(shift, tests["item_dif_shift"])
        assert said["groups"][0]["anchors"] == tests.attrs["n_anchors"] < M
    assert "the groups are a, b" in typed(*args[:-1], "c", code=2).err


def test_dif_uses_weights(made, typed):
    args = ("dif", made / "s", made / "bank.csv", "--reference", "a")
    said = json.loads(typed(*args, "--json").out)
    r, bank = irt.open_responses(made / "s"), irt.read_items(made / "bank.csv")
    tests = irt.dif(r, bank, reference="a", focal="b")
    assert said["weight_kind"] == "sampling"
    assert said["mean_weight"] == tests.attrs["mean_weight"] == 2.5
    shift = [t["shift"] for t in said["tests"]]
    np.testing.assert_array_equal(shift, tests["item_dif_shift"])
    ignored = json.loads(typed(*args, "--weights", "ignore", "--json", "--quiet").out)
    assert np.abs(np.subtract([t["shift"] for t in ignored["tests"]], shift)).max() > 0.01


def test_dif_of_several_groups(made, typed):
    """All but the reference, without a name; the test of all groups stands in each row."""
    frame = pd.read_csv(made / "plain.csv")
    frame["group"] = np.array(["a", "b", "c"])[np.arange(N) % 3]
    frame.to_csv("three.csv", index=False)
    r = irt.ingest("three.csv", "three", shape="wide", columns={"group": "group"})
    args = ("dif", "three", made / "bank.csv", "--reference", "a")
    printed = typed(*args, "--out", "dif.csv")
    rows = read("dif.csv")
    assert rows["focal"].tolist() == ["b"] * M + ["c"] * M
    tests = irt.dif(r, irt.read_items(made / "bank.csv"), reference="a", focal=None)
    for name in ("omnibus_chi2", "omnibus_q_value", "joint_df"):
        np.testing.assert_array_equal(rows[name], np.tile(tests[f"item_dif_{name}"].values, 2))
    for name in ("shift", "joint_p_value"):
        np.testing.assert_array_equal(rows[name], tests[f"item_dif_{name}"].values.ravel())
    assert rows["omnibus_df"].eq(4).all()
    named = typed(*args, "--focal", "b", "--focal", "c")
    assert named.out == printed.out
    assert "focal names b more than once" in typed(*args, *["--focal", "b"] * 2, code=2).err


def test_information_by_ability(made, typed):
    typed("information", made / "bank.csv", "--from", "-2", "--to", "2", "--points", "5", "--out",
          "test.csv", "--items", "items.csv", "--plot", "test.png")  # fmt: skip
    found = irt.information(irt.read_items(made / "bank.csv"), ability=[-2, -1, 0, 1, 2])
    test, items = (read(f) for f in ("test.csv", "items.csv"))
    np.testing.assert_array_equal(test["information"], found["test_information"])
    np.testing.assert_array_equal(test["se"], found["ability_se"])
    of_each = items.pivot(index="item", columns="ability", values="information")
    np.testing.assert_array_equal(of_each.to_numpy(), found["item_information"].values)
    assert Path("test.png").read_bytes()[:4] == b"\x89PNG"
    said = json.loads(typed("information", made / "bank.csv", "--json").out)
    assert len(said["test"]) == 81
    assert said["peaks"][0]["most_information"] >= said["peaks"][1]["most_information"]
    assert "must be below" in typed("information", made / "bank.csv", "--from", 1, "--to", 1,
                                    code=2).err  # fmt: skip
    assert ".png, .svg or .pdf" in typed("information", made / "bank.csv", "--plot", "x.txt",
                                         code=2).err  # fmt: skip


def test_link_puts_a_bank_on_the_scale_of_another(made, typed):
    bank = pd.read_csv(made / "bank.csv")
    other = bank.assign(a=bank["a"] * 2.0, b=(bank["b"] - 0.5) / 2.0).drop(columns="d")
    other[["item", "model", "a", "b"]].to_csv(made / "other.csv", index=False)
    said = json.loads(typed("link", made / "bank.csv", made / "other.csv", "--out", "linked.csv",
                            "--common", "common.csv", "--json").out)  # fmt: skip
    assert (said["A"], said["B"]) == pytest.approx((2.0, 0.5), abs=1e-6)
    np.testing.assert_allclose(pd.read_csv("linked.csv")["b"], bank["b"], atol=1e-6)
    common = pd.read_csv("common.csv")
    assert set(common["item"]) == set(bank["item"])
    assert common["rmsd"].max() < 1e-6
    text = typed("link", made / "bank.csv", made / "other.csv", "--out", "l.csv", "--method",
                 "mean-mean").out  # fmt: skip
    assert "Common items, the farthest apart first" in text
    assert "criterion" not in text  # moments reach none
    assert "nan" not in text
    assert "criterion" in typed("link", made / "bank.csv", made / "other.csv", "--out", "l.csv").out
    said = typed("link", made / "bank.csv", made / "other.csv", "--out", "l.csv", "--method",
                 "mean-mean", "--json").out  # fmt: skip
    assert json.loads(said)["criterion"] is None  # NaN is no JSON


def test_anchors_keep_their_standard_errors(made, typed):
    """Rows of anchors come out as they went in; groups and tests of anchors are printed."""
    bank = pd.read_csv(made / "bank.csv")
    bank.head(5).to_csv("anchors.csv", index=False)
    args = ("calibrate", made / "plain", "--method", "marginal", "--fixed-items", "anchors.csv")
    printed = typed(*args, "--out", "new.csv", "--fit", "new.nc")
    new = pd.read_csv("new.csv")
    columns = ["item", "a", "b", "se_a", "se_b", "se_d"]
    pd.testing.assert_frame_equal(new[columns].head(5), bank[columns].head(5), rtol=1e-12)
    assert new["se_a"].gt(0).all()
    kept = read_bank("new.nc")["item_difficulty_se"]
    np.testing.assert_allclose(
        kept, new["se_b"], rtol=1e-14
    )  # some pandas read to the last bit but one
    assert "Anchors, the worst first" in printed.out
    said = json.loads(typed(*args, "--out", "new.csv", "--json").out)
    assert {a["item"] for a in said["anchors"]} == set(bank["item"].head(5))
    assert all(g["mean_se"] > 0 and g["sd_se"] > 0 for g in said["groups"])
    assert said["anchor_df"] > 0


def test_anchors_keep_their_flags(made, typed):
    """Those of the bank, and what the responses say of them: no second link has them for sound."""
    bank = pd.read_csv(made / "bank.csv").head(5)
    bank["flag"] = ["ok", "at_bound|reversed", "large_se", "ok", "few_responses"]
    bank.loc[3, ["a", "b", "d", "se_a"]] = [0.01, 0.0, 0.0, 0.01]  # flat, as its numbers say
    bank.to_csv("anchors.csv", index=False)
    args = ("calibrate", made / "plain", "--method", "marginal", "--fixed-items", "anchors.csv")
    printed = typed(*args, "--out", "new.csv", "--fit", "new.nc")
    flags = ["ok", "at_bound|reversed", "large_se", "flat", "few_responses", *["ok"] * 3]
    assert pd.read_csv("new.csv")["flag"].tolist() == flags
    assert read_bank("new.nc")["item_flag"].values.tolist() == flags
    assert "at_bound: q1; few_responses: q4; flat: q3; large_se: q2; reversed: q1" in printed.out
    assert "2 of 5 items of --fixed-items are flagged" in printed.err


def test_anchors_by_a_model_that_has_not_their_parameters(made, typed):
    bank = pd.read_csv(made / "bank.csv").head(2).assign(model="3pl", c=[0.0, 0.2])
    bank.to_csv("three.csv", index=False)
    args = ("calibrate", made / "plain", "--method", "marginal", "--out", "n.csv", "--fixed-items")
    said = typed(*args, "three.csv", "--model", "2pl", code=2).err
    assert (
        "--fixed-items: item q1 has the guessing parameter 0.2; choose a model that has it " in said
    )
    assert "(--model 3pl or --model 4pl), or leave this item out of the bank" in said
    said = typed(*args, made / "bank.csv", "--reference-group", "a", code=2).err
    assert "--reference-group has no meaning with --fixed-items, which" in said
    bank.assign(item=["x", "y"], c=0.0).to_csv("others.csv", index=False)
    assert "--fixed-items has none of" in typed(*args, "others.csv", code=2).err


def test_weights_that_are_ignored_are_told_of(made, typed, monkeypatch):
    """By a note, the fit and its page; of weights that are used AIC is no AIC."""
    told = {}
    monkeypatch.setattr(page, "write_report", lambda path, **content: told.update(content) or path)
    args = ("calibrate", made / "s", "--out", "b.csv", "--fit", "fit.nc", "--method", "marginal")
    said = typed(*args, "--weights", "ignore")
    note = "note: the persons' sampling weights are ignored, as --weights ignore asks for: "
    assert said.err.count(note) == 1
    assert "pseudo-likelihood" not in said.err
    assert read_bank("fit.nc").attrs["weight_kind"] == "ignored"
    typed("report", "fit.nc", "--store", made / "s", "--out", "p.html")
    assert dict(told["run"])["Weights"] == "ignored"
    assert typed(*args, "--weights", "ignore", "--quiet").err == ""
    assert "AIC, BIC and likelihood-ratio tests do not have" in typed(*args).err
    typed("report", "fit.nc", "--store", made / "s", "--out", "p.html")
    assert dict(told["run"])["Weights"] == "sampling"
    for command, *more in (("fit",), ("dif", "--reference", "a", "--focal", "b")):
        used = (command, made / "s", made / "bank.csv", *more, "--weights", "ignore")
        assert note in typed(*used).err
    assert "weights are ignored" not in typed(*args[:1], made / "plain", *args[2:], "--weights",
                                              "ignore").err  # fmt: skip


def test_scores_without_weights(made, typed):
    """The bits of the store that has none, by the option and by the key of a file."""
    said = {}
    options = ("--prior", "groups", "--weights", "ignore")
    for store in ("s", "plain"):
        said[store] = typed("score", made / store, made / "bank.csv", *options, "--out", store)
    assert "as --weights ignore asks for" in said["s"].err
    assert "weights" not in said["plain"].err
    one, two = (pd.read_parquet(store) for store in ("s", "plain"))
    pd.testing.assert_frame_equal(one, two)
    Path("p.toml").write_text(
        f'[scoring]\nstore = "{made}/s"\nbank = "{made}/bank.csv"\nout = "by-key"\n'
        f'prior = "groups"\nweights = "ignore"\n'
    )
    assert 'as weights = "ignore" asks for' in typed("run", "p.toml").err
    pd.testing.assert_frame_equal(pd.read_parquet("by-key"), one)


def test_scores_tell_of_groups_and_covariates(made, typed):
    """With what the prior was estimated; means of persons say whether weights count in them."""
    args = ("score", made / "s", made / "bank.csv", "--prior", "groups", "--out", "scores")
    printed, said = typed(*args).out, json.loads(typed(*args, "--json").out)
    result = irt.score(irt.open_responses(made / "s"), irt.read_items(made / "bank.csv"),
                       prior="groups")  # fmt: skip
    assert [g["group"] for g in said["groups"]] == ["a", "b"]
    assert [g["mean"] for g in said["groups"]] == result["group_mean"].values.tolist()
    assert [g["sd_se"] for g in said["groups"]] == result["group_sd_se"].values.tolist()
    assert "Ability of the groups:" in printed
    assert f"mean ability, unweighted  {said['mean_ability']:.9g}" in printed
    assert "as if persons were drawn one by one" in printed
    plain = typed("score", made / "plain", made / "bank.csv", "--out", "plain").out
    assert "unweighted" not in plain
    assert "Ability of" not in plain
    y = np.random.default_rng(1).integers(0, 2, (200, M))
    frame = pd.DataFrame(y, columns=[f"q{j}" for j in range(M)])
    frame.assign(person=range(200)).to_csv("y.csv", index=False)
    ages = pd.DataFrame({"person": range(200), "age": np.arange(200) % 7})
    ages.to_csv("ages.csv", index=False)
    irt.ingest("y.csv", "with-age", shape="wide", persons="ages.csv")
    args = ("score", "with-age", made / "bank.csv", "--prior", "covariates", "--out", "by-age")
    terms = json.loads(typed(*args, "--json").out)["coefficients"]
    assert [t["term"] for t in terms] == ["intercept", "age", "residual SD"]
    assert all(t["se"] > 0 for t in terms)
    assert "Ability by covariates:" in typed(*args).out


def test_scores_as_one_csv_file(made, typed, tmp_path):
    """For spreadsheets and R: all that the folder has, in its order; an error before any work."""
    path, folder = tmp_path / "pupils.csv", tmp_path / "scores"
    args = ("score", made / "s", made / "bank.csv", "--prior", "groups", "--plausible", 2)
    typed(*args, "--out", folder, "--csv", path)
    table = pd.read_parquet(folder)
    got = pd.read_csv(path, dtype={"person_id": str})
    assert got["person_id"].tolist() == table["person_id"].astype(str).tolist()
    for name in ("person_ability", "person_ability_sd", "pv1", "pv2", "n_responses"):
        np.testing.assert_allclose(got[name], table[name], rtol=1e-15, atol=1e-15)
    assert list(got) == list(table)
    wrong = typed(*args, "--out", tmp_path / "x", "--csv", tmp_path / "pupils.xlsx", code=2).err
    assert "the file name must end in .csv" in wrong
    assert not (tmp_path / "x").exists()


def test_items_that_the_bank_lacks_are_left_out(made, typed):
    """As score does: an error that says what to type, or a note; and what the others alone give."""
    bank = pd.read_csv(made / "bank.csv")
    bank.head(6).to_csv("some.csv", index=False)
    few = irt.open_responses(made / "plain").select(items=[f"q{j}" for j in range(6)])
    for command, *more in (("fit",), ("dif", "--reference", "a", "--focal", "b")):
        args = (command, made / "plain", "some.csv", *more)
        assert "q6, q7; calibrate them, or leave them out: --items bank" in typed(*args, code=2).err
        printed = typed(*args, "--items", "bank", "--out", f"{command}.csv")
        assert "2 item(s) of the responses are not in items and are ignored: " in printed.err
    tests = irt.item_fit(few, irt.read_items("some.csv"))
    np.testing.assert_array_equal(read("fit.csv")["infit"], tests["item_infit"])
    assert pd.read_csv("dif.csv")["item"].tolist() == list(few.item_id)


def test_a_page_is_of_the_persons_that_were_fitted(made, typed, monkeypatch):
    """Stores and scores of others with the same items are refused by name."""
    monkeypatch.setattr(page, "write_report", lambda path, **content: path)
    r = irt.open_responses(made / "plain")
    for store, rows in (("half", slice(0, 300)), ("other", slice(None, None, -1))):
        y = r.read_block(0).data.values[rows]
        frame = pd.DataFrame(y, columns=r.item_id).rename_axis("person")
        frame.to_csv("y.csv")
        irt.ingest("y.csv", store, shape="wide")
        typed("score", store, made / "bank.csv", "--out", f"{store}-scores")
    options = ("--out", "b.csv", "--fit", "fit.nc", "--method", "marginal", "--weights", "ignore")
    typed("calibrate", made / "s", *options)
    typed("score", made / "s", "b.csv", "--out", "scores")
    typed("score", made / "s", "b.csv", "--weights", "ignore", "--out", "unweighted")
    args = ("report", "fit.nc", "--out", "p.html")
    for scores in ("scores", "unweighted"):
        typed(*args, "--store", made / "s", "--scores", scores)
    for option, given in (("store", "half"), ("store", "other"), ("scores", "half-scores"),
                          ("scores", "other-scores")):  # fmt: skip
        said = typed(*args, f"--{option}", given, code=2).err
        assert f"--{option} {given}: " in said
        assert "which are not those that fit.nc was fitted to (800 persons)" in said
    irt.fit_marginal(r, groups=False).to_netcdf("python.nc", engine="scipy")  # says persons alone
    args = ("report", "python.nc", "--out", "p.html")
    typed(*args, "--store", made / "plain", "--scores", "scores")
    assert "not those that" in typed(*args, "--store", "half", code=2).err
    assert "not those that" in typed(*args, "--scores", "half-scores", code=2).err
    few = irt.fit_marginal(r.select(items=["q0", "q1", "q2"]), groups=False)
    write_result(few, Path("few.nc"))
    said = typed("report", "few.nc", "--out", "p.html", "--scores", "scores", code=2).err
    assert "scores by items that few.nc does not have: 'q3', " in said


def test_a_page_is_made_of_a_fit_and_says_what_it_is_of(made, typed, monkeypatch):
    """What the page is told; that it shows it is for tests of pages."""
    told = {}
    monkeypatch.setattr(page, "write_report", lambda path, **content: told.update(content) or path)
    typed("calibrate", made / "plain", "--out", "b.csv", "--fit", "fit.nc", "--method", "marginal")
    typed("score", made / "plain", "b.csv", "--prior", "groups", "--out", "scores")
    out = typed("report", "fit.nc", "--store", made / "plain", "--scores", "scores", "--out",
                "page.html", "--title", "Spring").out  # fmt: skip
    assert out == "page.html\n"
    assert told["title"] == "Spring"
    assert told["marginal"]["group_mean"].values[0] == 0.0
    facts = dict(told["run"])
    assert (facts["Persons"], facts["Items"], facts["Responses"]) == ("800", "8", "6,400")
    assert facts["Groups"] == "known"
    ability = pd.read_parquet("scores")["person_ability"]
    count = told["scores"]["ability_count"]
    assert int(count.sum()) == N
    assert int(count.sel(ability=slice(-6.0, 0.0)).sum()) == (ability < 0.0).sum()
    assert "must end in .html" in typed("report", "fit.nc", "--out", "b.csv", code=2).err
    other = irt.simulate(50, 3, store="other", seed=1)
    assert other.n_items == 3
    assert "has other items" in typed("report", "fit.nc", "--store", "other", "--out", "p.html",
                                      code=2).err  # fmt: skip
    write_result(read_bank("fit.nc").assign_attrs(method="spectral"), Path("rasch.nc"))
    assert "of the method 'spectral'" in typed("report", "rasch.nc", "--out", "p.html", code=2).err


def test_a_page_tells_of_tests_if_asked(made, typed, monkeypatch):
    """Those that Python makes of the persons as they counted in the fit."""
    told = {}
    monkeypatch.setattr(page, "write_report", lambda path, **content: told.update(content) or path)
    args = ("--out", "b.csv", "--fit", "fit.nc", "--method", "marginal")
    typed("calibrate", made / "s", *args, "--weights", "ignore")
    tested = ("report", "fit.nc", "--store", made / "s", "--out", "p.html", "--tests")
    typed(*tested)
    r, fit = irt.open_responses(made / "plain"), read_bank("fit.nc")
    expected = irt.item_fit(r, fit)
    for name in ("item_infit", "item_sx2"):
        np.testing.assert_array_equal(told["results"]["Item fit"][name], expected[name])
    seen = irt.item_curves(r, fit)["group_item_observed_score"]
    np.testing.assert_array_equal(told["curves"]["group_item_observed_score"], seen)
    assert told["persons"].attrs["n_lz"] == irt.person_fit(r, fit).attrs["n_lz"]
    assert told["notes"] == ()
    typed(*tested, "--no-groups")
    assert told["curves"].sizes["groups"] == 1
    for name in ("item_infit", "item_sx2"):
        expected = irt.item_fit(r, fit, groups=False)[name]
        np.testing.assert_array_equal(told["results"]["Item fit"][name], expected)
    without = ("report", "fit.nc", "--store", made / "s", "--out", "p.html", "--no-groups")
    assert "of --tests, which is not there" in typed(*without, code=2).err
    typed("calibrate", made / "s", *args)
    assert "have sampling weights, which the tests do not take" in typed(*tested, code=2).err
    said = typed("report", "fit.nc", "--out", "p.html", "--tests", code=2).err
    assert "--tests needs --store" in said


def test_identifiers_do_not_command_the_terminal(tmp_path, typed):
    red, c1 = "\x1b[31mred", "q\x9b2J"
    (tmp_path / "y.csv").write_text(f"person,{red},{c1}\na,1,0\nb,0,1\nc,1,1\n")
    (tmp_path / "bank.csv").write_text(f"item,a,b\n{red},1,0\n{c1},1,1\n")
    (tmp_path / "bad.csv").write_text(f"item,a,b\n{red},x,0\n")
    shown = [
        typed("ingest", "y.csv", "s", "--shape", "wide"), typed("info", "s"),
        typed("information", "bank.csv"), typed("fit", "s", "bank.csv"),
    ]  # fmt: skip
    assert r"\x1b[31mred" in shown[1].out
    assert r"\x9b2J" in shown[1].out
    shown.append(typed("score", "s", "bad.csv", "--out", "o", code=2))
    assert r"item \x1b[31mred" in shown[-1].err
    for said in shown:
        assert not set(said.out + said.err) & {"\x1b", "\x9b"}


@pytest.mark.parametrize(
    "args, message",
    [
        (("calibrate", "s", "--out", "b.csv", "--fit", "f.txt"), "must end in .nc"),
        (("calibrate", "s", "--out", "b.csv", "--fit", "no/f.nc"), "there is no folder"),
        (("calibrate", "s", "--out", "b.csv", "--groups"), "--groups belongs to --method marginal"),
        (("fit", "s", "b.csv", "--out", "o.txt"), "must end in .csv"),
        (("fit", "s", "b.csv", "--ability", "1"), "give mean and SD"),
        (("dif", "s", "b.nc", "--reference", "a", "--focal", "b"), "is not a store"),
        (("report", "gone.nc", "--out", "p.html"), "there is no file gone.nc"),
        (("report", "gone.nc"), "--out PAGE.html is missing"),
        (("report", ".", "--out", "p.html"), "--out: . is no fit"),
        (("information", "gone.nc"), "there is no file gone.nc"),
        (("information", "bad.nc"), "bad.nc is not a fit that was saved"),
        (("link", "a.csv", "b.csv", "--out", "c.csv"), "there is no item bank a.csv"),
    ],
)
def test_mistakes(tmp_path, typed, args, message):
    (tmp_path / "bad.nc").write_bytes(b"no netCDF")
    assert message in typed(*args, code=2).err


def test_calibrate_with_a_category_that_nobody_has(typed):
    """An error names the option; with it the bank has the map."""
    y = irt.simulate(300, 4, model="gpcm", categories=4, seed=1).to_xarray()["response"].values
    table = pd.DataFrame(np.where(y == 2, 3, y), columns=[*"abcd"])
    table.to_csv("y.csv", index_label="person")
    typed("ingest", "y.csv", "s", "--categories", 4, "--null-categories", "keep")
    given = ("calibrate", "s", "--out", "b.csv", "--method", "marginal", "--model", "gpcm")
    given += ("--cluster", "none")
    assert "--null-categories keep or --null-categories collapse" in typed(*given, code=1).err
    assert "a category that nobody has" in typed(*given, "--null-categories", "keep").err
    assert irt.read_items("b.csv")["item_category_map"].values.tolist() == [[0, 1, -1, 3]] * 4
    refused = typed(*given, "--null-categories", "keep", "--method", "joint", code=2).err
    assert "--null-categories belongs to --method marginal" in refused


@pytest.mark.parametrize(
    "name, text, message",
    [
        ("m.csv", "item,model\na,1pl\n'=b,gpcm\n", ""),
        ("m.json", '[{"item": "a", "model": "1pl"}, {"item": "=b", "model": "gpcm"}]', ""),
        ("m.csv", "item,kind\na,1pl\n", "the file of models m.csv has no column model"),
        ("m.csv", "item,model\na,1pl,2\n", "m.csv cannot be read: line 2 has 3 fields"),
        ("m.csv", "item,model\na,1pl\na,2pl\n", "m.csv: the item 'a' is there twice"),
        ("m.csv", "item,model\na,1pl\n,2pl\n", "m.csv: row 2 has no item identifier"),
        ("m.csv", "item,model\na,5pl\n'=b,gpcm\n", "5pl"),
        ("gone.csv", None, "there is no file of models gone.csv"),
    ],
)
def test_models_by_item_in_a_file(typed, name, text, message):
    """Identifiers as banks write them, so that a spreadsheet does not run them."""
    known = irt.simulate(300, 2, model="gpcm", categories=3, seed=1).to_xarray()["response"].values
    y = np.stack([known[:, 0] > 0, known[:, 1]], axis=1).astype(int)
    pd.DataFrame(y, columns=["a", "=b"]).to_csv("y.csv", index_label="person")
    typed("ingest", "y.csv", "s", "--categories", "data")
    if text is not None:
        Path(name).write_text(text)
    given = ("calibrate", "s", "--out", "b.csv", "--method", "marginal", "--model", name)
    said = typed(*given, "--cluster", "none", "--quiet", code=2 if message else 0).err
    assert message in said
    if not message:
        assert irt.read_items("b.csv")["item_model"].values.tolist() == ["1pl", "gpcm"]


def test_fit_of_items_in_groups_or_not(made, typed, tmp_path):
    r, bank = irt.open_responses(made / "plain"), read_bank(made / "bank.csv")
    args = ("fit", made / "plain", made / "bank.csv", "--quiet", "--json")
    said = [json.loads(typed(*args, *more).out) for more in ((), ("--groups",), ("--no-groups",))]
    for told, groups in zip(said, (None, True, False), strict=True):
        expected = irt.item_fit(r, bank, groups=groups)
        found = [row["chi2"] for row in told["statistics"]]
        assert found == expected["item_chi2"].values.tolist()
        assert told["ability_mean"] == expected.attrs["ability_mean"]
    assert said[0] == said[1] != said[2]
    persons = [told["persons_share_below_5"] for told in said]
    assert persons[0] == persons[2]  # fit of persons knows one distribution
    refused = typed(*args, "--groups", "--ability", "0,1", code=2).err
    assert "--groups, but --ability says where all persons come from" in refused


def test_of_many_groups_the_shell_is_told_what_to_type(made, typed):
    frame = pd.read_csv(made / "plain.csv").assign(group=[f"g{i // 2}" for i in range(N)])
    frame.to_csv("many.csv", index=False)
    typed("ingest", "many.csv", "many", "--column", "group=group", "--quiet")
    args = ("fit", "many", made / "bank.csv", "--json")
    assert "--no-groups says that it is meant" in typed(*args).err
    assert "one normal distribution" not in typed(*args, "--no-groups").err
