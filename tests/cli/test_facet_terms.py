"""Numbers and covariates of items in facets: the shell and pipelines do what Python does."""

import json

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import irt_dask as irt
from irt_dask.banks.item_tables import read_item_covariates
from irt_dask.errors import InputError
from irt_dask.workflow import RunConfig, run

TERMS = ["number(position)", "number(position):format"]
NAMES = ("facet_effect", "facet_effect_se", "item_difficulty", "parent_difficulty_se")


@pytest.fixture
def answers(tmp_path):
    """A long file of 6 items at 3 positions, and a table of the items."""
    rng = np.random.default_rng(4)
    person, item = (v.ravel() for v in np.mgrid[0:200, 0:6])
    position = (item + person) % 3
    slope = np.where(item < 3, 0.5, 0.1)
    eta = rng.standard_normal(200)[person] - np.linspace(-1, 1, 6)[item] - slope * position
    frame = pd.DataFrame({
        "person": [f"p{i}" for i in person], "item": [f"q{j}" for j in item],
        "position": position, "response": (rng.random(1200) < 1 / (1 + np.exp(-eta))).astype(int),
    })  # fmt: skip
    frame.to_csv(tmp_path / "answers.csv", index=False)
    table = pd.DataFrame({"item": [f"q{j}" for j in range(6)], "format": [*"oooccc"],
                          "words": [1, 2, 3, 4, 5, 6.5]})  # fmt: skip
    table.to_csv(tmp_path / "items.csv", index=False)
    return tmp_path / "answers.csv", table.set_index("item")


def test_the_shell_does_what_python_does(answers, typed):
    path, table = answers
    typed("ingest", path, "a.store", "--facet", "position")
    r = irt.open_responses("a.store")
    args = ("calibrate", "a.store", "--method", "marginal", "--model", "1pl", "--out", "b.csv")
    args += ("--item-table", "items.csv")
    for terms in (TERMS, ["item ~ format + words", "number(position)"]):
        typed_terms = [word for term in terms for word in ("--facet", term)]
        said = typed(*args, *typed_terms, "--fit", "fit.nc", "--json").out
        wanted = irt.fit_marginal(r, model="1pl", facets=terms, item_covariates=table)
        with xr.open_dataset("fit.nc", engine="scipy") as found:
            for name in NAMES:
                np.testing.assert_array_equal(found[name], wanted[name], err_msg=name)
        assert json.loads(said)["effects"]
    assert "goes with facets" in typed(*args, code=2).err
    said = typed(*args, "--facet", "number(position", code=2).err
    assert "'number(position' is no term" in said


def test_a_pipeline_does_what_python_does(answers, tmp_path):
    path, table = answers
    sections = {
        "directory": str(tmp_path / "r"), "calibrate": {"method": "marginal"},
        "data": {"source": str(path), "columns": {"facets": ["position"]}},
        "marginal": {"model": "1pl", "facets": TERMS, "item_table": str(tmp_path / "items.csv")},
        "check": {"replicates": 0},
    }  # fmt: skip
    run(RunConfig.model_validate(sections))
    r = irt.open_responses(tmp_path / "r" / "responses")
    wanted = irt.fit_marginal(r, model="1pl", facets=TERMS, item_covariates=table)
    found = xr.load_dataset(tmp_path / "r" / "marginal.nc", engine="scipy")
    for name in NAMES:
        np.testing.assert_array_equal(found[name], wanted[name], err_msg=name)
    digest = RunConfig.model_validate(sections).digest()
    table.assign(format=[*"ococoo"]).to_csv(tmp_path / "items.csv")
    assert RunConfig.model_validate(sections).digest() != digest  # what it says, not where it is


def test_sections_that_do_not_go_together_are_refused():
    for marginal, said in (
        ({"item_table": "t.csv"}, "which facets name: give facets"),
        ({"facets": ["a:b:c"]}, "is no term"),
    ):
        with pytest.raises(ValueError, match=said):
            RunConfig.model_validate({"calibrate": {"method": "marginal"}, "marginal": marginal})


def test_tables_without_covariates_are_refused(tmp_path, typed):
    (tmp_path / "t.csv").write_text("item\nq1\n")
    with pytest.raises(InputError, match="no column besides item"):
        read_item_covariates(tmp_path / "t.csv")


@pytest.mark.parametrize(
    "cells, said",
    [
        (["1", "1O", "3", "4"], "item q1, column words: '1O' is no number, and 3 of 4 cells"),
        (["0,5", "1", "2,25", ""], "item q0, column words: '0,5' is no number: write it with a"),
        (["1e3", "2", "", "n.a."], "item q3, column words: 'n.a.' is no number, and 2 of 3"),
        (["0,5", "1,5", "2O", "3"], "item q0, column words: '0,5' is no number"),
        (["open", "closed", "1", "open"], None),
        (["1", "2b", "2a", "0,5"], None),
        (["1", "2.5", "", "NA"], None),
    ],
)
def test_one_cell_makes_no_levels_of_numbers(tmp_path, cells, said):
    rows = "".join(f"q{i};{cell}\n" for i, cell in enumerate(cells))
    (tmp_path / "t.csv").write_text("item;words\n" + rows)
    if said is not None:
        with pytest.raises(InputError, match=said):
            read_item_covariates(tmp_path / "t.csv")
        return
    found = read_item_covariates(tmp_path / "t.csv")["item_covariates"]["words"]
    if "NA" in cells:
        np.testing.assert_array_equal(found, [1.0, 2.5, np.nan, np.nan])
    else:
        assert found.tolist() == cells
