"""irt-dask choose and predict: from a bank to questions, and from their answers to totals."""

import json

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from click.testing import CliRunner

import irt_dask as irt
from irt_dask.banks.saved import write_result
from irt_dask.cli.main import cli


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A bank, the table it was calibrated with, and 30 others who answered everything."""
    folder = tmp_path_factory.mktemp("questions")
    y = irt.simulate(150, 40, seed=3).to_xarray()["response"].values
    names = [f"q{j}" for j in range(40)]
    table = pd.DataFrame(y, columns=names, index=[f"m{i}" for i in range(150)])
    table = table.rename_axis("person")
    table.iloc[:120].to_csv(folder / "calibration.csv")
    table.iloc[120:].to_csv(folder / "others.csv")
    fit = irt.fit_marginal(irt.from_array(y[:120], item_id=names), prior="empirical")
    irt.write_items(fit, folder / "bank.csv")
    topics = pd.DataFrame({"item": names, "stratum": ["easy", "hard"] * 20})
    topics.to_csv(folder / "topics.csv", index=False)
    return folder


def typed(*words, code=0):
    ran = CliRunner().invoke(cli, [str(w) for w in words])
    if code == 0:
        assert ran.exit_code == 0, ran.output
    else:
        assert isinstance(ran.exception, irt.InputError | SystemExit), ran.output
    return ran


def test_the_shell_says_what_python_says(files, tmp_path):
    chosen, out = tmp_path / "q.csv", tmp_path / "t.csv"
    typed("choose", files / "bank.csv", 24, "--strata", files / "topics.csv", "--seed", 5,
          "--out", chosen)  # fmt: skip
    table = pd.read_csv(chosen)
    assert table.groupby("stratum")["selected"].sum().tolist() == [12, 12]
    np.testing.assert_array_equal(table["probability"], 0.6)

    others = pd.read_csv(files / "others.csv", index_col="person")
    picked = table["item"][table["selected"] == 1].tolist()
    others[picked].to_csv(tmp_path / "asked.csv")
    ran = typed(
        "predict",
        tmp_path / "asked.csv",
        files / "bank.csv",
        "--questions",
        chosen,
        "--calibration",
        files / "calibration.csv",
        "--out",
        out,
        "--json",
        "--quiet",
    )
    said = json.loads(ran.stdout)
    assert said["design"] == "stratified random sample"
    assert len(said["persons"]) == 30

    bank = irt.read_items(files / "bank.csv")
    topics = pd.read_csv(files / "topics.csv").set_index("item")["stratum"]
    drawn = irt.choose_items(bank, 24, method="random", strata=topics.to_dict(), seed=5)
    asked = irt.from_array(others[picked].values, item_id=picked)
    calibration = pd.read_csv(files / "calibration.csv", index_col="person")
    want = irt.predict_total(
        asked, bank, inclusion_probability=drawn,
        calibration=irt.from_array(calibration.values, item_id=list(calibration)),
    )  # fmt: skip
    got = pd.read_csv(out)
    assert got["person"].tolist() == others.index.tolist()
    for name in ("total", "total_sd", "total_design", "total_design_lower", "total_design_upper"):
        np.testing.assert_allclose(got[name], want[f"person_{name}"], rtol=1e-12)
    # what it is for: the totals that were not asked for
    inside = others.mean(axis=1).between(
        got.set_index("person")["total_design_lower"], got.set_index("person")["total_design_upper"]
    )
    assert inside.mean() > 0.8


def test_weights_and_a_store(files, tmp_path):
    out = tmp_path / "t.csv"
    weights = pd.DataFrame({"item": [f"q{j}" for j in range(40)], "weight": [1.0, 3.0] * 20})
    weights.to_csv(tmp_path / "w.csv", index=False)
    store = irt.ingest(files / "others.csv", tmp_path / "store")
    typed("predict", tmp_path / "store", files / "bank.csv", "--out", out, "--item-weights",
          tmp_path / "w.csv", "--quiet")  # fmt: skip
    got = pd.read_csv(out)["total"]
    y = store.to_xarray()["response"].values
    np.testing.assert_allclose(got, y @ weights["weight"].values / 80.0, rtol=1e-12)


@pytest.mark.parametrize("words, message", [
    (["--questions", "chosen.csv"], "it is 0: an estimate by design needs a random sample"),
    (["--questions", "bank.csv"], "it takes what 'irt-dask choose --method random' wrote"),
    (["--questions", "none.csv"], "there is no table of items"),
    (["--item-weights", "topics.csv"], "has no column weight"),
    (["--questions", "twice.csv"], "has the item 'q0' twice"),
    (["--level", "1"], "--level 1.0 must be a number between 0 and 1"),
])  # fmt: skip
def test_mistakes(files, tmp_path, words, message):
    typed("choose", files / "bank.csv", 10, "--method", "variance", "--out", files / "chosen.csv")
    twice = pd.read_csv(files / "chosen.csv")
    pd.concat([twice.iloc[:1], twice]).to_csv(files / "twice.csv", index=False)
    words = [str(files / w) if w.endswith(".csv") else w for w in words]
    ran = typed("predict", files / "others.csv", files / "bank.csv", "--out", tmp_path / "t.csv",
                "--quiet", *words, code=2)  # fmt: skip
    assert message in str(ran.exception) + ran.output
    assert not (tmp_path / "t.csv").exists()


def test_a_bank_with_a_question_that_drifted(files, tmp_path):
    """Each question is asked once, under its own name, and counts as what it is now."""
    bank = irt.read_items(files / "bank.csv").drop_dims("parameter")
    again = bank.isel(items=[3]).assign_coords(item_id=("items", ["q3@2"]))
    again["item_difficulty"] = again["item_difficulty"] - 3.0
    again["item_intercept"] = -again["item_discrimination"] * again["item_difficulty"]
    ids = [*bank["item_id"].values.tolist(), "q3@2"]
    grown = xr.concat([bank, again], "items").assign(
        item_origin=("items", [i.partition("@")[0] for i in ids])
    )
    write_result(grown, tmp_path / "items.nc")
    typed("choose", tmp_path / "items.nc", 40, "--out", tmp_path / "q.csv")
    table = pd.read_csv(tmp_path / "q.csv")
    assert sorted(table["item"]) == sorted(bank["item_id"].values.tolist())
    typed("predict", files / "others.csv", tmp_path / "items.nc", "--questions", tmp_path / "q.csv",
          "--out", tmp_path / "t.csv", "--quiet")  # fmt: skip
    share = pd.read_csv(files / "others.csv", index_col="person").mean(axis=1)
    np.testing.assert_allclose(pd.read_csv(tmp_path / "t.csv")["total"], share)
    irt.write_items(grown, tmp_path / "items.csv")
    ran = typed("choose", tmp_path / "items.csv", 4, "--out", tmp_path / "q.csv", code=2)
    assert "give the items.nc" in str(ran.exception)


def test_files_that_are_read_stay(files, tmp_path):
    answers = tmp_path / "a.csv"
    answers.write_bytes((files / "others.csv").read_bytes())
    ran = typed("predict", answers, files / "bank.csv", "--out", answers, code=2)
    assert "the command reads this file" in str(ran.exception)
    assert answers.read_bytes() == (files / "others.csv").read_bytes()
    some = pd.DataFrame({"item": ["q0"], "weight": [2.0]})
    some.to_csv(tmp_path / "w.csv", index=False)
    ran = typed("predict", answers, files / "bank.csv", "--out", tmp_path / "t.csv",
                "--item-weights", tmp_path / "w.csv", code=2)  # fmt: skip
    assert "has no weight for 39 item(s) of the bank" in str(ran.exception)
    irt.ingest(answers, tmp_path / "store")
    ran = typed("predict", tmp_path / "store", files / "bank.csv", "--out", tmp_path / "t.csv",
                "--column", "item=x", code=2)  # fmt: skip
    assert "is a store" in str(ran.exception)
    ran = typed("choose", files / "bank.csv", 41, "--out", tmp_path / "q.csv", code=2)
    assert "N is 41, and BANK has 40 items" in str(ran.exception)


def test_questions_that_the_bank_left_out_are_passed_over(files, tmp_path):
    """As if the answers to them were not there, in both tables; without being told it stops."""
    bank = irt.read_items(files / "bank.csv").isel(items=slice(2, None))
    irt.write_items(bank, tmp_path / "bank.csv")
    words = ["predict", files / "others.csv", tmp_path / "bank.csv", "--calibration",
             files / "calibration.csv", "--quiet"]  # fmt: skip
    said = str(typed(*words, "--out", tmp_path / "t.csv", code=2).exception)
    assert "pass over them: --exclude q0,q1" in said
    typed(*words, "--out", tmp_path / "t.csv", "--exclude", "q0,q1")
    for name in ("others", "calibration"):
        table = pd.read_csv(files / f"{name}.csv", index_col="person")
        table.drop(columns=["q0", "q1"]).to_csv(tmp_path / f"{name}.csv")
    words[1], words[4] = tmp_path / "others.csv", tmp_path / "calibration.csv"
    typed(*words, "--out", tmp_path / "same.csv")
    assert (tmp_path / "t.csv").read_bytes() == (tmp_path / "same.csv").read_bytes()
    said = str(typed(*words, "--out", tmp_path / "u.csv", "--exclude", "q0", code=2).exception)
    assert "--exclude q0: the answers have no such items" in said


def test_several_attempts(files, tmp_path):
    """A table of attempts gives what a store of them gives."""
    right = np.random.default_rng(4).random((60, 12, 3)) < np.linspace(0.2, 0.9, 60)[:, None, None]
    who, item, attempt = np.nonzero(np.ones(right.shape, dtype=bool))
    table = pd.DataFrame({
        "model": [f"m{k}" for k in who], "question": [f"q{k}" for k in item],
        "score": right.ravel().astype(int), "attempt": attempt + 1,
    })  # fmt: skip
    table[who < 50].to_csv(tmp_path / "known.csv", index=False)
    table[(who >= 50) & (item < 5)].to_csv(tmp_path / "new.csv", index=False)
    stores = {n: irt.ingest(tmp_path / f"{n}.csv", tmp_path / n, trials="attempt")
              for n in ("known", "new")}  # fmt: skip
    fit = irt.fit_marginal(stores["known"], model="binomial", prior="empirical")
    write_result(fit, tmp_path / "items.nc")
    words = ["predict", tmp_path / "new.csv", tmp_path / "items.nc", "--out", tmp_path / "t.csv",
             "--calibration", tmp_path / "known.csv", "--quiet"]  # fmt: skip
    assert "has several attempts at an item, say --trials" in str(typed(*words, code=2).exception)
    typed(*words, "--trials", "attempt")
    want = irt.predict_total(stores["new"], fit, calibration=stores["known"])
    np.testing.assert_array_equal(pd.read_csv(tmp_path / "t.csv")["total"], want["person_total"])
    words[1], words[6] = tmp_path / "new", tmp_path / "known"
    said = str(typed(*words, "--trials", "attempt", code=2).exception)
    assert "--trials is of tables" in said
    assert "which has been read" in said
