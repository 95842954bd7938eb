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


def test_a_users_mistake_is_an_input_error(wide, tmp_path):
    ran = CliRunner().invoke(
        benchmark, [str(wide), "--out", str(tmp_path / "no" / "out"), "--quiet"]
    )
    assert isinstance(ran.exception, InputError)
    ran = CliRunner().invoke(
        benchmark, [str(wide), "--out", str(tmp_path / "out"), "--fdr", "2", "--quiet"]
    )
    assert "fdr=2.0 must be a number between 0 and 1" in str(ran.exception)
