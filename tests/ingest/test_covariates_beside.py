"""Covariates that stand in the columns of a wide file."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from parts import cells

import irt_dask as irt
from irt_dask.cli.main import cli
from irt_dask.errors import DataWarning, InputError
from irt_dask.workflow import RunConfig, run

N, ITEMS = 400, ["q1", "q2", "q3"]
COLUMNS = {"person": "student", "group": "sex", "covariates": ["books", "age"]}


@pytest.fixture
def frame():
    """Attributes before, between and after the items, not known of some persons."""
    rng = np.random.default_rng(1)
    table = pd.DataFrame(rng.integers(0, 2, (N, 3)), columns=ITEMS)
    table.insert(0, "student", [f"s{i:03d}" for i in rng.permutation(N)])
    table.insert(1, "age", rng.integers(80, 120, N) / 10)
    table.insert(3, "sex", rng.choice(["f", "m"], N))
    table["books"] = rng.integers(0, 100, N).astype(float)
    table.loc[5:9, "books"] = np.nan
    return table


def written(frame, path):
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(frame.to_csv(index=False).encode()))
    else:
        frame.to_csv(path, index=False, sep=";" if "semicolon" in path.name else ",")
    return path


@pytest.mark.filterwarnings("ignore:.*the delimiter is:irt_dask.errors.Notice")
@pytest.mark.parametrize("name", ["d.csv", "d.csv.gz", "d.parquet", "semicolons.csv"])
def test_they_are_what_a_table_of_persons_gives(frame, name, tmp_path):
    r = irt.ingest(written(frame, tmp_path / name), tmp_path / "s", columns=COLUMNS,
                   rows_per_block=64)  # fmt: skip
    persons = frame[["student", "books", "age"]].rename(columns={"student": "person"})
    two = irt.ingest(
        written(frame.drop(columns=["books", "age"]), tmp_path / "alone.csv"), tmp_path / "t",
        columns={"person": "student", "group": "sex"}, persons=persons, rows_per_block=64,
    )  # fmt: skip
    assert r.item_id == tuple(ITEMS)
    assert r.covariate_names == two.covariate_names == ("books", "age")
    assert cells(r).tolist() == cells(two).tolist()
    ordered = frame.sort_values("student").set_index("student")
    found = np.concatenate([r.covariates(k) for k in range(r.n_blocks)])
    ids = np.concatenate([r.person_ids(k) for k in range(r.n_blocks)])
    np.testing.assert_array_equal(found, ordered.loc[list(ids), ["books", "age"]].values)
    more = frame.iloc[:7].assign(student=[f"new{i}" for i in range(7)])
    r = irt.append(written(more, tmp_path / "more.csv"), tmp_path / "s", columns=COLUMNS)
    assert r.n_persons == N + 7
    assert np.concatenate([r.covariates(k) for k in range(r.n_blocks)])[N:, 1].tolist() == (
        more["age"].tolist()
    )


def test_a_row_that_is_put_aside_is_told_of(frame, tmp_path):
    frame["q2"] = frame["q2"].astype(object)
    frame.loc[3, "q2"] = "maybe"
    with pytest.warns(DataWarning, match="1 "):
        r = irt.ingest(written(frame, tmp_path / "d.csv"), tmp_path / "s", columns=COLUMNS,
                       on_error="quarantine")  # fmt: skip
    assert (r.n_persons, r.n_quarantined) == (N - 1, 1)


@pytest.mark.parametrize(
    "columns, message",
    [
        ({"covariates": ["age", "nope"]}, "there is no column 'nope'"),
        ({"covariates": "sex", "group": "sex"}, "the column 'sex' has another role"),
        ({"covariates": ["sex", "age", "books"]}, "'; a covariate is a finite number"),
        ({"covariates": ["q1"], "items": ["q1", "q2"]}, "the column 'q1' has another role"),
        ({"covariates": ["age"], "item": "q1"}, "or 'covariates' (wide) and 'item'"),
        ({"covariates": []}, "is no list of columns"),
    ],
)  # fmt: skip
def test_mistakes(frame, columns, message, tmp_path):
    path = written(frame, tmp_path / "d.csv")
    with pytest.raises(InputError, match=message.replace("(", r"\(").replace(")", r"\)")):
        irt.ingest(path, tmp_path / "s", columns={"person": "student", **columns})
    assert not (tmp_path / "s").exists()


def test_not_with_another_table_nor_in_objects(frame, tmp_path):
    persons = frame[["student", "age"]].rename(columns={"student": "person"})
    with pytest.raises(InputError, match="persons= is a table of others"):
        irt.ingest(written(frame, tmp_path / "d.csv"), tmp_path / "s", columns=COLUMNS,
                   persons=persons)  # fmt: skip
    frame.drop(columns="sex").to_json(tmp_path / "d.jsonl", orient="records", lines=True)
    with pytest.raises(InputError, match="give persons= with JSON"):
        irt.ingest(tmp_path / "d.jsonl", tmp_path / "s",
                   columns={"person": "student", "covariates": ["age"]})  # fmt: skip


def test_in_a_shell_and_in_a_pipeline(frame, tmp_path, monkeypatch, no_pictures):
    monkeypatch.chdir(tmp_path)
    written(frame, tmp_path / "d.csv")
    typed = ["d.csv", "--column", "person=student", "--column", "group=sex", "--column",
             "covariates=books,age"]  # fmt: skip
    said = CliRunner().invoke(cli, ["check", *typed, "--json"])
    assert said.exit_code == 0, said.output
    look = json.loads(said.stdout)
    assert look["columns"]["covariates"] == ["books", "age"]
    assert (look["other_columns"], look["item_id"]) == ([], ITEMS)
    assert CliRunner().invoke(cli, ["init", *typed, "--out", "p.toml"]).exit_code == 0
    assert 'covariates = ["books", "age"]' in (tmp_path / "p.toml").read_text()
    assert CliRunner().invoke(cli, ["ingest", *typed[:1], "s", *typed[1:]]).exit_code == 0
    assert irt.open_responses(tmp_path / "s").covariate_names == ("books", "age")
    config = {
        "directory": str(tmp_path / "r"), "data": {"source": "d.csv", "columns": COLUMNS},
        "calibrate": {"method": "marginal"}, "score": {"prior": "covariates"},
        "check": {"replicates": 0},
    }  # fmt: skip
    with pytest.raises(InputError, match=r"5 person\(s\) have no value"):
        run(RunConfig.model_validate(config))
    assert not (tmp_path / "r" / "marginal.nc").exists()  # before the long stages
    written(frame.dropna(), tmp_path / "d.csv")
    path = run(RunConfig.model_validate(config), fresh=True)
    assert irt.open_responses(path / "responses").covariate_names == ("books", "age")
