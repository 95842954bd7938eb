"""A scoring at night of items of two and four categories, with a bank of marginal ML."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from categories import category_probability

import irt_dask as irt
from irt_dask.cli.main import main

K = {"q1": 2, "q2": 4, "q3": 2, "q4": 4, "q5": 2, "q6": 4}
LABELS = ("never", "seldom", "often", "always")  # of q2 and q4; q6 has numbers
OPTIONS = ("--categories", "q2=4,q4=4,q6=4", "--reverse", "q4", "--recode", "labels.csv")
NIGHT = 'title = "Night"\n[scoring]\nstore = "store"\nbank = "bank.csv"\nout = "scores"\n'


@pytest.fixture
def typed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def run(*args):
        monkeypatch.setattr("sys.argv", ["irt-dask", *map(str, args)])
        code = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code
        text = capsys.readouterr()
        assert code == 0, text.err
        return text

    return run


def write(path, y, first):
    """Persons of a day, in labels; q4 is written the other way round, and half lack two items."""
    rows = pd.DataFrame(y, columns=list(K), dtype=object)
    for item in ("q2", "q4"):
        labels = LABELS if item == "q2" else LABELS[::-1]
        rows[item] = [labels[k] for k in rows[item]]
    rows.loc[::2, "q5"], rows.loc[1::2, "q6"] = "", ""  # booklets
    rows.insert(0, "person", [f"p{first + i}" for i in range(len(rows))])
    rows.to_csv(path, index=False)
    return rows


def by_hand(bank, y):
    """EAPs and SDs: the textbook's probabilities, summed over a fine grid, person by person."""
    theta = np.linspace(-7, 7, 1401)
    at = {str(i): j for j, i in enumerate(bank["item_id"].values)}
    density = np.exp(-0.5 * theta**2)
    curves = {}
    for item, k in K.items():
        one = bank.isel(items=at[item])
        a = float(one["item_discrimination"])
        d = one["item_step_intercept"].values[: k - 1] if k > 2 else [float(one["item_intercept"])]
        model = "gpcm" if k > 2 else "2pl"
        curves[item] = category_probability(model, theta, [a, *map(float, d)])
    found = []
    for row in y:
        p = density.copy()
        for item, code in zip(K, row, strict=True):
            if code >= 0:
                p *= curves[item][:, code]
        mean = p @ theta / p.sum()
        found.append((mean, np.sqrt(p @ (theta - mean) ** 2 / p.sum())))
    return np.array(found)


@pytest.mark.filterwarnings("ignore::irt_dask.errors.IrtDaskWarning")
def test_nights_of_mixed_items(typed, tmp_path):
    """Day one, a night, and a day whose file has a code that nobody knows."""
    rng = np.random.default_rng(2)
    theta = rng.normal(size=420)
    y = np.array([
        [min(int(rng.binomial(k - 1, 1 / (1 + np.exp(-t)))), k - 1) for k in K.values()]
        for t in theta
    ])  # fmt: skip
    seen = y.copy()
    seen[::2, 4], seen[1::2, 5] = -1, -1
    label = [("q2", name, k) for k, name in enumerate(LABELS)]
    label += [("q4", name, k) for k, name in enumerate(LABELS)]
    pd.DataFrame(label, columns=["item", "label", "code"]).to_csv("labels.csv", index=False)
    write("monday.csv", y[:400], 0)
    typed("ingest", "monday.csv", "store", *OPTIONS, "--rows-per-block", "100")
    typed("calibrate", "store", "--method", "marginal", "--model", "2pl+gpcm", "--out", "bank.csv")
    Path("night.toml").write_text(NIGHT)
    typed("run", "night.toml")
    bank = irt.read_items("bank.csv")
    assert {*bank["item_model"].values.tolist()} == {"2pl", "gpcm"}
    table = pd.read_parquet("scores")
    want = irt.score(irt.open_responses("store"), bank)
    assert table["person_ability"].tolist() == want["person_ability"].values.tolist()
    hand = by_hand(bank, seen[:400])
    np.testing.assert_allclose(table["person_ability"], hand[:, 0], atol=1e-5)
    np.testing.assert_allclose(table["person_ability_sd"], hand[:, 1], atol=1e-5)

    tuesday = write("tuesday.csv", y[400:], 400)
    tuesday.loc[3, "q4"], tuesday.loc[8, "q6"], tuesday.loc[11, "q1"] = "sometimes", "4", "3"
    tuesday.to_csv("tuesday.csv", index=False)
    typed("append", "tuesday.csv", "store", *OPTIONS, "--on-error", "quarantine")
    (aside,) = tmp_path.glob("store.quarantine*.csv")
    rows = [*csv.DictReader(aside.open())]
    found = [(r["line"], r["column"], r["value"]) for r in rows]
    assert found == [("5", "q4", "sometimes"), ("10", "q6", "4"), ("13", "q1", "3")]
    assert "'sometimes'; a response is 0 to 3" in rows[0]["reason"]
    assert "the item 'q6' has 4 categories, the codes 0 to 3" in rows[1]["reason"]
    assert "the item 'q1' has 2 categories, the codes 0 to 1" in rows[2]["reason"]
    said = json.loads(typed("run", "night.toml", "--json").out)
    assert (said["n_blocks_scored"], said["n_blocks_kept"]) == (1, 4)
    table = pd.read_parquet("scores")
    good = [400 + i for i in range(20) if i not in (3, 8, 11)]
    assert table["person_id"].tolist()[400:] == [f"p{i}" for i in good]
    want = irt.score(irt.open_responses("store"), bank)
    assert table["person_ability"].tolist() == want["person_ability"].values.tolist()
    np.testing.assert_allclose(
        table["person_ability"][400:], by_hand(bank, seen[good])[:, 0], atol=1e-5
    )


def test_a_new_day_with_an_unknown_code_stops_by_name(typed, tmp_path):
    """Without quarantine nothing is added, and the error has file, line, column and value."""
    Path("monday.csv").write_text("person,q1,q2\na,0,0\nb,1,3\nc,1,1\nd,0,2\n")
    typed("ingest", "monday.csv", "store", "--categories", "q2=4")
    before = irt.open_responses("store").fingerprint
    Path("tuesday.csv").write_text("person,q1,q2\ne,1,3\nf,0,7\n")
    with pytest.raises(irt.errors.InputError, match=r"tuesday\.csv, line 3: column 'q2' .* '7'"):
        irt.append("tuesday.csv", "store")
    assert irt.open_responses("store").fingerprint == before
