"""Events of scheduled scorings: every night adds to one file, also one that fails."""

import json

import pandas as pd
import pytest
from click.testing import CliRunner

import irt_dask as irt
from irt_dask.cli.main import cli
from irt_dask.errors import DataWarning, InputError
from irt_dask.workflow import read_scoring, score_store

PIPELINE = """
[scoring]
store = "store"
bank = "bank.csv"
out = "scores"
events = "events.jsonl"
report = "tables.html"
plausible = 2
[[tables]]
out = "all.csv"
values = { ability = "pv*" }
"""


@pytest.fixture
def nightly(tmp_path):
    r = irt.simulate(60, 10, seed=1, store=tmp_path / "store")
    irt.write_items(irt.fit_marginal(r), tmp_path / "bank.csv")
    (tmp_path / "n.toml").write_text(PIPELINE)
    return tmp_path / "n.toml"


def events(nightly):
    lines = (nightly.parent / "events.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def names(found):
    return [e["event"] for e in found if e["event"] not in ("round", "warning")]


def test_every_night_adds_to_one_file(nightly):
    score_store(read_scoring(nightly))
    first = events(nightly)
    assert names(first) == [
        "run_started", "stage_started", "stage_finished", "stage_started", "stage_finished",
        "run_finished",
    ]  # fmt: skip
    scored, tables = (e for e in first if e["event"] == "stage_finished")
    assert (scored["stage"], scored["rows"], scored["n_blocks_scored"]) == ("scoring", 60, 1)
    assert tables["stage"] == "tables"
    assert tables["files"] == [str(nightly.parent / "tables.html")]
    more = irt.simulate(30, 10, seed=2)
    table = pd.DataFrame(more.to_xarray()["response"].values, columns=more.item_id)
    table.insert(0, "person", [f"new{i}" for i in range(30)])
    table.to_csv(nightly.parent / "new.csv", index=False)
    irt.append(nightly.parent / "new.csv", nightly.parent / "store")
    score_store(read_scoring(nightly))
    found = events(nightly)
    assert found[: len(first)] == first
    (scored,) = [e for e in found[len(first) :] if e.get("n_blocks_kept") is not None]
    assert (scored["rows"], scored["n_blocks_scored"], scored["n_blocks_kept"]) == (90, 1, 1)
    assert len({e["run"] for e in found}) == 2


def test_a_night_that_fails_says_so(nightly):
    (nightly.parent / "bank.csv").rename(nightly.parent / "away.csv")
    with pytest.raises(InputError):
        score_store(read_scoring(nightly))
    (nightly.parent / "store").rename(nightly.parent / "elsewhere")
    # before the command knows how large the store is, too
    assert isinstance(CliRunner().invoke(cli, ["run", str(nightly)]).exception, InputError)
    found = events(nightly)
    assert names(found) == ["run_started", "stage_started", "run_failed"] * 2
    for night in (found[2], found[5]):
        assert (night["error"], night["exit_code"], night["defect"]) == ("InputError", 2, False)
    assert "bank.csv" in found[2]["message"]


def test_warnings_are_events_and_warnings(nightly):
    r = irt.open_responses(nightly.parent / "store")
    groups = irt.from_array(
        r.to_xarray()["response"].values, item_id=r.item_id,
        persons=pd.DataFrame({"group": ["a", "b"] * 30}),
    )  # fmt: skip
    irt.write_items(irt.fit_marginal(groups, groups=True), nightly.parent / "bank.json")
    nightly.write_text(PIPELINE.replace("bank.csv", "bank.json"))
    with pytest.warns(DataWarning, match="2 groups of persons"):
        score_store(read_scoring(nightly))
    found = [e for e in events(nightly) if e["event"] == "warning"]
    assert [(e["stage"], e["category"]) for e in found] == [("scoring", "DataWarning")]


def test_without_the_key_there_is_no_file(nightly):
    nightly.write_text(PIPELINE.replace('events = "events.jsonl"\n', ""))
    score_store(read_scoring(nightly))
    assert not list(nightly.parent.glob("*.jsonl"))


@pytest.mark.parametrize("name, message", [
    ("nofolder/ev.jsonl", "there is no folder"),
    ("bank.csv", "is a file of something else"),
    ("scores/ev.jsonl", "there is no folder|among the scores"),
    ("store/ev.jsonl", "lies in the store"),
    ("tables.html", "is the file of a table or a page too"),
    ("all.csv", "is the file of a table or a page too"),
])  # fmt: skip
def test_files_that_are_none_for_events(nightly, name, message):
    before = (nightly.parent / "bank.csv").read_bytes()
    nightly.write_text(PIPELINE.replace("events.jsonl", name))
    with pytest.raises(InputError, match=message):
        score_store(read_scoring(nightly))
    assert (nightly.parent / "bank.csv").read_bytes() == before
