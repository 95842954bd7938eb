"""What columns are called is said once: it holds in the table of persons too."""

import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import irt_dask as irt
from irt_dask import InputError
from irt_dask.cli.main import cli
from irt_dask.errors import Notice
from irt_dask.workflow import RunConfig, inputs

IDS = [f"P{k:02d}" for k in range(12)]
COLUMNS = {"person": "pupil", "item": "item", "response": "points"}


@pytest.fixture
def files(tmp_path):
    """Responses and persons whose columns have no usual names."""
    rows = [(p, f"M{j}", (k + j) % 2) for k, p in enumerate(IDS) for j in range(3)]
    pd.DataFrame(rows, columns=["pupil", "item", "points"]).to_csv(tmp_path / "y.csv", index=False)
    persons = pd.DataFrame({
        "pupil": IDS[::-1], "region": ["north", "south"] * 6, "size": np.arange(12.0)[::-1] + 1,
    })  # fmt: skip
    persons.to_csv(tmp_path / "persons.csv", index=False)
    return tmp_path


def told(responses):
    """Groups, weights and covariates by person."""
    (ref,) = responses.refs
    ids = ref.person_ids().astype(str)
    return dict(zip(ids, ref.groups(), strict=True)), dict(zip(ids, ref.weights(), strict=True))


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl", "frame"])
def test_names_hold_in_the_table_of_persons(files, kind):
    persons = pd.read_csv(files / "persons.csv")
    given = files / f"persons.{kind}"
    if kind == "parquet":
        persons.to_parquet(given)
    elif kind == "jsonl":
        persons.to_json(given, orient="records", lines=True)
    elif kind == "frame":
        given = persons
    named = COLUMNS | {"group": "region", "weight": "size"}
    r = irt.ingest(files / "y.csv", files / "s", columns=named, persons=given)
    groups, weights = told(r)
    assert groups == dict(zip(persons["pupil"], persons["region"], strict=True))
    assert weights == dict(zip(persons["pupil"], persons["size"], strict=True))
    assert r.covariate_names == ()
    with pytest.warns(Notice, match="adds nothing"):
        irt.append(files / "y.csv", files / "s", columns=named, persons=given, on_duplicate="merge")


def test_the_usual_name_of_the_person_comes_first(files):
    persons = pd.read_csv(files / "persons.csv").drop(columns="region")
    usual = persons.rename(columns={"pupil": "student_id"}).assign(pupil=np.arange(12.0))
    usual.to_csv(files / "p.csv", index=False)
    r = irt.ingest(files / "y.csv", files / "s", columns=COLUMNS, persons=files / "p.csv")
    assert r.covariate_names == ("size", "pupil")
    persons.assign(id=0, subject=1).to_csv(files / "q.csv", index=False)
    r = irt.ingest(files / "y.csv", files / "t", columns=COLUMNS, persons=files / "q.csv")
    assert r.covariate_names == ("size", "id", "subject")  # two usual names: that of the responses


def test_a_name_that_neither_has(files):
    with pytest.raises(InputError, match=r"persons.csv: columns=\{'group': 'regoin'\}: there is no "
                       "such column, nor in the responses; the columns are 'pupil'"):  # fmt: skip
        irt.ingest(files / "y.csv", files / "s", columns=COLUMNS | {"group": "regoin"},
                   persons=files / "persons.csv")  # fmt: skip
    with pytest.raises(
        InputError, match=r"y.csv: columns=\{'group': 'region'\}: there is no such "
    ):
        irt.ingest(files / "y.csv", files / "s", columns=COLUMNS | {"group": "region"})
    pd.read_csv(files / "y.csv").assign(region="x").to_csv(files / "z.csv", index=False)
    with pytest.raises(InputError, match="a covariate is a finite number"):  # that of the responses
        irt.ingest(files / "z.csv", files / "s", columns=COLUMNS | {"group": "region"},
                   persons=files / "persons.csv")  # fmt: skip


def test_all_columns_of_words_are_named_at_once(files):
    persons = pd.read_csv(files / "persons.csv").assign(sex=["f", "m"] * 6)
    persons.to_csv(files / "p.csv", index=False)
    labels, group = r"\{'labels': \['region', 'sex'\]\}", r"\{'group': 'region'\}"
    with pytest.raises(InputError, match=rf"say columns={labels}, or, .*, columns={group}$"):
        irt.ingest(files / "y.csv", files / "s", columns=COLUMNS, persons=files / "p.csv")


def test_the_shell_and_runs_take_the_same_names(files):
    options = [f"--column={k}={v}" for k, v in (COLUMNS | {"group": "region"}).items()]
    persons = ["--persons", str(files / "persons.csv")]
    done = CliRunner().invoke(cli, ["check", str(files / "y.csv"), *options, *persons, "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["covariates"] == ["size"]
    done = CliRunner().invoke(
        cli, ["ingest", str(files / "y.csv"), str(files / "s"), *options, *persons]
    )
    assert done.exit_code == 0, done.output
    assert irt.open_responses(files / "s").has_groups
    config = RunConfig.model_validate({
        "directory": str(files / "run"), "data": {
            "source": str(files / "y.csv"), "persons": str(files / "persons.csv"),
            "columns": COLUMNS | {"group": "region"},
        }, "calibrate": {"method": "marginal"},
    })  # fmt: skip
    inputs.check_input(config)
