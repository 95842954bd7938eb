"""irt-dask benchmark: what is printed, what is written, and what is refused."""

import json

import pandas as pd
import pytest
from click.testing import CliRunner

import irt_dask as irt
from irt_dask.cli.benchmark import benchmark
from irt_dask.errors import InputError


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    y = irt.simulate(40, 40, seed=4).to_xarray()["response"].values
    y[:, 9] = 1 - y[:, 9]
    path = tmp_path_factory.mktemp("benchmark") / "wide.csv"
    pd.DataFrame(y, columns=[f"q{j}" for j in range(40)]).rename_axis("model").to_csv(path)
    return path


def test_tables_are_printed_and_written(wide, tmp_path):
    out = str(tmp_path / "out")
    ran = CliRunner().invoke(benchmark, [str(wide), "--out", out, "--quiet", "--anchors", "5"])
    assert ran.exit_code == 0, ran.output
    assert "broken questions: 1" in ran.output
    assert len(pd.read_csv(tmp_path / "out" / "anchors.csv")) == 5
    ran = CliRunner().invoke(benchmark, [str(wide), "--out", out, "--quiet", "--json"])
    said = json.loads(ran.stdout)
    assert said["broken_questions"][0]["question"] == "q9"
    assert len(said["leaderboard"]) == 40
    without = ["--exclude", "q9,q3", "--exclude", "q5"]
    ran = CliRunner().invoke(benchmark, [str(wide), "--out", out, "--quiet", "--json", *without])
    board = pd.DataFrame(json.loads(ran.stdout)["leaderboard"]).set_index("model")
    others = pd.read_csv(wide, index_col="model").drop(columns=["q3", "q5", "q9"])
    assert (board["n_answered"] == 37).all()
    right = others.mean(axis=1).rename(str)[board.index]
    assert board["share_right"].to_numpy() == pytest.approx(right.to_numpy())
    assert json.loads(ran.stdout)["broken_questions"] == []


def test_a_users_mistake_is_an_input_error(wide, tmp_path):
    ran = CliRunner().invoke(
        benchmark, [str(wide), "--out", str(tmp_path / "no" / "out"), "--quiet"]
    )
    assert isinstance(ran.exception, InputError)
    ran = CliRunner().invoke(
        benchmark, [str(wide), "--out", str(tmp_path / "out"), "--fdr", "2", "--quiet"]
    )
    assert "fdr=2.0 must be a number between 0 and 1" in str(ran.exception)


@pytest.fixture(scope="module")
def grown(tmp_path_factory):
    """Folder of a board's benchmark, its table before, and when models and questions joined.

    Question q3 has leaked: those who joined have it right.
    """
    folder = tmp_path_factory.mktemp("grown")
    y = irt.simulate(140, 50, seed=7).to_xarray()["response"].values
    y[90:, 3] = 1
    names = [f"q{j}" for j in range(50)]
    whole = pd.DataFrame(y, columns=names, index=[f"m{i}" for i in range(140)])
    whole = whole.rename_axis("model")
    whole.iloc[:90, :40].to_csv(folder / "before.csv")
    whole.to_csv(folder / "after.csv")
    whole.iloc[::-1].to_csv(folder / "turned.csv")
    table, out = str(folder / "before.csv"), str(folder / "before")
    ran = CliRunner().invoke(benchmark, [table, "--out", out, "--quiet"])
    assert ran.exit_code == 0, ran.output
    return folder


@pytest.mark.slow
def test_a_board_that_has_grown(grown):
    bank, out = str(grown / "before" / "items.nc"), str(grown / "after")
    more = [str(grown / "after.csv"), "--out", out, "--bank", bank]
    ran = CliRunner().invoke(benchmark, [*more, "--quiet"])
    assert ran.exit_code == 0, ran.output
    assert "drifted questions: 1 of 40" in ran.output
    drift = pd.read_csv(grown / "after" / "drift.csv")
    assert drift["question"][0] == "q3"
    assert drift["drift"][0] > 2.0
    assert drift["drifted"].sum() == 1
    # what is no longer asked is no anchor; its version for those who joined may be
    assert "q3" not in set(pd.read_csv(grown / "after" / "anchors.csv")["question"])
    before = pd.read_csv(grown / "before" / "items.csv").set_index("item")
    after = pd.read_csv(grown / "after" / "items.csv").set_index("item")
    assert len(after) == 51  # ten new ones, and q3@2
    assert (after.loc[before.index, ["a", "b"]] == before[["a", "b"]]).all(axis=None)
    board = pd.read_csv(grown / "after" / "leaderboard.csv").set_index("model")
    old = pd.read_csv(grown / "before" / "leaderboard.csv").set_index("model")
    assert len(board) == 140
    moved = (board["ability"] - old["ability"]).dropna()
    assert abs(moved).mean() < 0.2  # ten more answers: no other scale
    assert board.loc[old.index, "n_answered"].eq(50).all()
    # a third wave stands on the second
    ran = CliRunner().invoke(
        benchmark,
        [
            str(grown / "after.csv"),
            "--out",
            str(grown / "third"),
            "--bank",
            str(grown / "after" / "items.nc"),
        ],
    )
    assert "no person and no item that the bank does not know" in str(ran.exception)


def test_a_board_that_has_not_grown_but_changed(grown):
    bank, out = str(grown / "before" / "items.nc"), str(grown / "no")
    ran = CliRunner().invoke(
        benchmark, [str(grown / "turned.csv"), "--out", out, "--bank", bank, "--quiet"]
    )
    assert isinstance(ran.exception, InputError)
    assert "not in the order that they had" in str(ran.exception)
    assert not (grown / "no").exists()
    ran = CliRunner().invoke(
        benchmark,
        [str(grown / "after.csv"), "--out", out, "--bank", bank[:-3] + ".csv", "--quiet"],
    )
    assert "give the items.nc" in str(ran.exception)
    ran = CliRunner().invoke(
        benchmark,
        [str(grown / "after.csv"), "--out", out, "--bank", bank, "--trials", "3", "--quiet"],
    )
    assert "has 4 categories, and the bank has it by the model '2pl'" in str(ran.exception)
    before = (grown / "before" / "items.nc").read_bytes()
    ran = CliRunner().invoke(
        benchmark,
        [str(grown / "after.csv"), "--out", str(grown / "before"), "--bank", bank, "--quiet"],
    )
    assert "what was published should stay" in str(ran.exception)
    assert (grown / "before" / "items.nc").read_bytes() == before
