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
