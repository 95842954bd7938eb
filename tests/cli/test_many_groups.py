"""Concurrent calibration in the shell."""

import json

import numpy as np
import pandas as pd


def test_items_freed_in_groups(typed, tmp_path):
    rng = np.random.default_rng(4)
    group = np.repeat(["a", "b", "c"], 500)
    y = (rng.normal(size=(1500, 1)) + rng.logistic(size=(1500, 6)) > 0.0).astype(int)
    y[1000::2, 2] = 0
    table = pd.DataFrame(y, columns=[f"q{j}" for j in range(6)]).assign(
        country=group, id=range(1500)
    )
    table.to_csv(tmp_path / "answers.csv", index=False)
    typed(
        "ingest",
        "answers.csv",
        "s",
        "--column",
        "group=country",
        "--column",
        "person=id",
        "--cluster",
        "none",
    )
    how = ("calibrate", "s", "--method", "concurrent", "--out")
    text = typed(*how, "bank.csv", "--fit", "fit.nc", "--cluster", "none").out
    assert "n freed         1" in text
    assert "Items freed in groups, by RMSD, all:" in text
    bank = pd.read_csv(tmp_path / "bank.csv")
    assert bank["item"].tolist() == [*(f"q{j}" for j in range(6)), "q2@c"]
    said = typed(*how, "other.csv", "--free", "0.9", "--cluster", "none", "--json").out
    found = json.loads(said)
    assert (found["free"], found["n_freed"]) == (0.9, 0)
    assert "rate" not in found


def test_items_freed_in_sets(typed, tmp_path):
    rng = np.random.default_rng(4)
    group = np.repeat(["a", "b", "c", "d"], 400)
    y = (rng.normal(size=(1600, 1)) + rng.logistic(size=(1600, 6)) > 0.0).astype(int)
    y[800::3, 2] = 0
    table = pd.DataFrame(y, columns=[f"q{j}" for j in range(6)]).assign(
        country=group, id=range(1600)
    )
    table.to_csv(tmp_path / "answers.csv", index=False)
    columns = ("--column", "group=country", "--column", "person=id")
    typed("ingest", "answers.csv", "s", *columns, "--cluster", "none")
    (tmp_path / "sets.csv").write_text("group,set\nc,late\nd,late\n")
    how = ("calibrate", "s", "--method", "concurrent", "--cluster", "none", "--sets", "sets.csv")
    text = typed(*how, "--out", "bank.csv").out
    assert "n freed         1" in text
    assert "Items freed in sets of groups, by RMSD, all:" in text
    part = [line.split() for line in text.splitlines() if line.startswith(("item ", "q2 "))]
    assert part[0][:3] == ["item", "set", "groups"]
    assert part[1][:4] == ["q2", "late", "c,", "d"]
    bank = pd.read_csv(tmp_path / "bank.csv", keep_default_na=False)
    assert bank["item"].tolist() == [*(f"q{j}" for j in range(6)), "q2@late"]
    assert bank["set_groups"].tolist() == [""] * 6 + ['["c", "d"]']
    found = json.loads(typed(*how, "--out", "other.csv", "--json").out)["freed"]
    assert [(x["item"], x["set"], x["groups"]) for x in found] == [("q2", "late", ["c", "d"])]
    scored = ("score", "s", "bank.csv", "--prior", "groups", "--cluster", "none", "--out")
    typed(*scored, "scores")
    wrong = {
        "group,set\nc,late\nc,late\n": "has the group 'c' twice",
        "group,set\nzz,late\n": "--sets names 1 group(s) that the responses do not have: 'zz'",
        "group\nc\n": "has no column set",
        "group,set\n": "has a row without a group, or no row",
        "group,set\nc,\n": "--sets names no set for 1 group(s): 'c'",
    }
    for text, said in wrong.items():
        (tmp_path / "sets.csv").write_text(text)
        assert said in typed(*how, "--out", "no.csv", code=2).err
