"""Omitted and not reached, from the file to scores, as it is typed."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import irt_dask as irt

N, M = 400, 8
PIPELINE = """
directory = "run"
[data]
source = "f.csv"
recode = {{ O = "omitted", R = "not reached" }}
{data}
[calibrate]
method = "marginal"
[marginal]
model = "1pl"
[score]
omitted = "wrong"
[check]
replicates = 0
"""


@pytest.fixture(scope="module")
def text():
    """A wide file in which one response in ten is omitted, and ends are not reached."""
    rng = np.random.default_rng(1)
    z = rng.normal(size=(N, 1)) - np.linspace(-1.0, 1.0, M)
    y = (rng.random((N, M)) < 1.0 / (1.0 + np.exp(-z))).astype(int).astype(str).astype(object)
    y[rng.random((N, M)) < 0.1] = "O"
    for i, last in enumerate(rng.integers(4, 3 * M, size=N)):
        y[i, last:] = "R"
    rows = [",".join([f"p{i}", *row]) for i, row in enumerate(y)]
    return "\n".join([",".join(["person", *(f"q{j}" for j in range(M))]), *rows]) + "\n"


@pytest.fixture
def shell(text, tmp_path, typed):
    (tmp_path / "f.csv").write_text(text)
    return typed


def abilities(folder):
    table = pd.read_parquet(folder)
    return table.set_index("person_id")["person_ability"].sort_index()


@pytest.mark.cluster
def test_a_store_that_is_scored_as_wrong_what_was_omitted(shell):
    recode = ("--recode", "O=omitted", "--recode", "R=not reached")
    assert "omitted" in shell("check", "f.csv", *recode).out
    shell("ingest", "f.csv", "s", *recode)
    assert "true" in shell("info", "s", "--json").out
    shell("calibrate", "s", "--out", "bank.csv", "--method", "marginal", "--model", "1pl")
    shell("score", "s", "bank.csv", "--out", "scores", "--omitted", "wrong")
    shell("score", "s", "bank.csv", "--out", "again", "--omitted", "wrong", "--cluster", "local")
    np.testing.assert_array_equal(abilities("again"), abilities("scores"))
    r, bank = irt.open_responses("s"), irt.read_items("bank.csv")
    scored = irt.score(r.select(omitted="wrong"), bank, progress=False)
    by_person = dict(zip(scored["person_id"].values, scored["person_ability"].values, strict=True))
    got = abilities("scores")
    np.testing.assert_array_equal(got, [by_person[i] for i in got.index])
    wrong = ("--omitted", "wrong", "--not-reached", "wrong")
    shell("calibrate", "s", "--out", "other.csv", "--method", "marginal", "--model", "1pl", *wrong)
    harder = irt.read_items("other.csv")["item_difficulty"] - bank["item_difficulty"]
    assert (harder > 0.1).all()


@pytest.mark.parametrize("data", ["", 'not_reached = "wrong"'])
def test_a_run_scores_as_wrong_what_it_calibrates_as_missing(shell, data, tmp_path, no_pictures):
    (tmp_path / "p.toml").write_text(PIPELINE.format(data=data))
    shell("run", "p.toml", "--cluster", "none")
    r = irt.open_responses("run/responses")
    as_said = {"not_reached": "wrong"} if data else {}
    fit = irt.fit_marginal(r.select(**as_said) if data else r, model="1pl", progress=False)
    items = irt.read_items("run/items.csv")
    np.testing.assert_allclose(items["item_difficulty"], fit["item_difficulty"], atol=1e-9)
    scored = irt.score(r.select(omitted="wrong", **as_said), fit, progress=False)
    by_person = dict(zip(scored["person_id"].values, scored["person_ability"].values, strict=True))
    got = abilities("run/scores")
    np.testing.assert_allclose(got, [by_person[i] for i in got.index], atol=1e-9)


def test_a_store_that_does_not_know(shell):
    shell("ingest", "f.csv", "s", "--missing", "O", "--missing", "R")
    shell("calibrate", "s", "--out", "bank.csv", "--method", "marginal", "--model", "1pl")
    error = shell("score", "s", "bank.csv", "--out", "scores", "--omitted", "wrong", code=2).err
    assert "does not say what was omitted or not reached" in error
    assert "--recode 9=omitted" in error
