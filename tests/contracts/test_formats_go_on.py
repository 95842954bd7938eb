"""Files that an earlier version wrote are gone on with: runs, scores, ledgers and checkpoints.

They lie in ``tests/contracts/formats``; that they open, ``test_formats.py`` says, and what is
promised of each, ``docs/stability.md``.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from test_formats import FORMATS, RUN, RUN_ITEMS, RUN_OPTIONS, STORES, of_blocks

import irt_dask as irt
from irt_dask.engine.checkpoint import Checkpoint
from irt_dask.errors import BudgetError, CheckpointError, StoreError
from irt_dask.kernels.responses.layouts import to_dense
from irt_dask.report import figures
from irt_dask.workflow import RunConfig, identity, run
from irt_dask.workflow.directory import RunDirectory
from irt_dask.workflow.scoring import read_bank

#: Of the ledgers: their budgets, and the release that each has.
LEDGERS: dict[str, Any] = {"ledger-1.json": None, "ledger-2.json": {"rho": 0.5}}
RELEASE = {"rho": 0.3, "seed": 1}

#: Of the checkpoint.
COMPUTATION = {"method": "a method", "options": {"n": 3, "of": ["x", None]}, "data": "0123"}
STATE = {"items": np.linspace(-2.0, 2.0, 5), "draws": np.arange(6, dtype=np.int32).reshape(2, 3)}


def persons() -> irt.Responses:
    return irt.from_array(RUN, item_id=RUN_ITEMS)


@pytest.fixture
def unfinished(tmp_path: Path) -> Path:
    """The run as it was when its check and scores had not been made."""
    folder = shutil.copytree(FORMATS / "run", tmp_path / "run")
    for name in ("check.nc", "scores.nc"):
        (folder / name).unlink()
    shutil.rmtree(folder / "scores")
    return folder


def test_a_run_is_finished(
    unfinished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the same versions; what was done stays, and the rest comes out as it did then."""
    source = tmp_path / "run.csv"
    rows = [f"p{i},{','.join(map(str, y))}" for i, y in enumerate(RUN)]
    source.write_text("\n".join([",".join(("person", *RUN_ITEMS)), *rows]) + "\n")
    config = RunConfig.model_validate(
        {**RUN_OPTIONS, "data": {"source": str(source)}, "directory": str(unfinished)}
    )
    then = RunDirectory.existing(unfinished)
    monkeypatch.setattr(identity, "versions", lambda: then.content["versions"])
    picture = figures.Image("", "", "", 1)  # drawing takes most of the time
    monkeypatch.setattr(figures, "inline", lambda ax, alt, caption: picture)
    said: list[str] = []
    run(config, say=said.append)
    kept = [f"{name}: done before" for name in ("ingest", "summary", "spectral", "joint", "bayes")]
    assert [line for line in said if line.endswith("done before")] == kept
    scores, before = (pd.read_parquet(of / "scores") for of in (unfinished, FORMATS / "run"))
    assert [name for name in scores if name in before] == list(before)  # others may be new
    np.testing.assert_allclose(scores["person_ability"], before["person_ability"], atol=1e-6)
    assert "A run" in (unfinished / "report.html").read_text()
    assert len((unfinished / "log.txt").read_text().splitlines()) > len(
        (FORMATS / "run" / "log.txt").read_text().splitlines()
    )


def test_a_store_of_a_run_grows_and_its_scores_follow(tmp_path: Path) -> None:
    """Scores of before are of an earlier version, or of this one: right after either way."""
    folder = shutil.copytree(FORMATS / "run", tmp_path / "run")
    store, scores = folder / "responses", folder / "scores"
    before = pd.read_parquet(scores)
    more = tmp_path / "more.csv"
    more.write_text(f"person,{','.join(RUN_ITEMS)}\nnew,1,0,1\n")
    grown = irt.append(more, store)
    items = read_bank(folder / "posterior.nc")
    result = irt.score(grown, items, n_item_draws=20, store=scores)
    assert result.attrs["n_persons"] == len(RUN) + 1
    after = pd.read_parquet(scores)
    np.testing.assert_allclose(
        after["person_ability"][: len(RUN)], before["person_ability"], atol=1e-6
    )
    assert list(after["person_id"])[-1] == "new"


@pytest.mark.filterwarnings("ignore::irt_dask.errors.Notice")
@pytest.mark.parametrize("name", [name for name in STORES if "needs" in STORES[name]])
def test_stores_of_version_3_grow(name: str, tmp_path: Path) -> None:
    """By a person who is new; what the store needs, and what it holds, stay."""
    said, store = STORES[name], shutil.copytree(FORMATS / name, tmp_path / "s")
    weighted = said.get("kind") == "frequency"
    more = tmp_path / "more.csv"
    more.write_text("person,item,response,w\nx,q2,1,2\nx,q1,0,2\n")
    irt.append(more, store, columns={"weight": "w"} if weighted else None)
    written = json.loads((store / "manifest.json").read_text())
    assert (written["format_version"], written["needs"]) == (3, said["needs"])
    grown = irt.open_responses(store)
    grown.verify()
    y = of_blocks(grown, lambda k: to_dense(grown.read_block(k).data).values)
    np.testing.assert_array_equal(y[:-1], said["y"])
    assert list(y[-1, :2]) == [0, 1]
    assert (y[-1, 2:] == -1).all()
    if weighted:
        weight = of_blocks(grown, lambda k: grown.read_block(k).weights())
        np.testing.assert_array_equal(weight, [*said["weight"], 2.0])


@pytest.mark.parametrize("name", LEDGERS)
def test_ledgers_are_read_and_added_to(name: str, tmp_path: Path) -> None:
    ledger = Path(shutil.copy(FORMATS / name, tmp_path))
    written = json.loads(ledger.read_text())
    assert written["format_version"] == (1 if LEDGERS[name] is None else 2)
    again = irt.fit_private_spectral(persons(), ledger=ledger, **RELEASE)
    assert json.loads(ledger.read_text()) == written  # a release that is known costs nothing
    entry = written["entries"][0]["release"]
    assert again.attrs["rho"] == RELEASE["rho"]
    values = next(v for v in entry.values() if isinstance(v, list) and len(v) == len(RUN_ITEMS))
    np.testing.assert_array_equal(again["item_difficulty"], values)

    irt.fit_private_spectral(persons(), ledger=ledger, rho=0.1)
    now = json.loads(ledger.read_text())
    assert [e["rho"] for e in now["entries"]] == [0.3, 0.1]
    assert (now["entries"][0], now["key"]) == (written["entries"][0], written["key"])
    assert now["format_version"] == written["format_version"]
    if LEDGERS[name] is not None:
        with pytest.raises(BudgetError, match="nothing was released"):
            irt.fit_private_spectral(persons(), ledger=ledger, rho=0.2)


def test_a_ledger_of_a_later_format_releases_nothing(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.json"
    content = json.loads((FORMATS / "ledger-1.json").read_text())
    ledger.write_text(json.dumps(content | {"format_version": 9}))
    with pytest.raises(StoreError, match="format version 9, this irt_dask reads 1 and 2"):
        irt.fit_private_spectral(persons(), ledger=ledger, **RELEASE)


def test_a_checkpoint_is_read_and_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("irt_dask.engine.checkpoint.__version__", "0.1.0")  # which wrote it
    folder = shutil.copytree(FORMATS / "checkpoint", tmp_path / "checkpoint")
    kept = Checkpoint(folder, COMPUTATION)
    found = kept.load("state")
    assert found is not None
    assert found.keys() == STATE.keys()
    for key, value in STATE.items():
        np.testing.assert_array_equal(found[key], value)
        assert found[key].dtype == value.dtype
    before = (folder / "state.checkpoint").read_bytes()
    kept.save("state", STATE)
    head = before.partition(b" ")[0]
    assert (folder / "state.checkpoint").read_bytes().startswith(head)
    kept.save("next", {"items": np.zeros(2)})
    assert kept.load("next") is not None

    monkeypatch.setattr("irt_dask.engine.checkpoint.__version__", "0.2.0")
    with pytest.raises(CheckpointError, match="seed or version of irt_dask"):
        Checkpoint(folder, COMPUTATION).load("state")


def adaptive_test(bank: Path) -> irt.Session:
    """Two questions answered, the third asked."""
    options = {"criterion": "total", "exploration": 0.5, "max_items": 3, "seed": 4}
    session = irt.Session(bank, person="ann", **options)
    for code in (1, 0):
        session.answer(session.next(), code)
    session.next()
    return session


@pytest.mark.filterwarnings("ignore::irt_dask.errors.IrtDaskWarning")
def test_an_adaptive_test_goes_on() -> None:
    state = (FORMATS / "session-1.json").read_text()
    session, whole = (
        irt.Session.from_json(state, irt.read_items(FORMATS / "bank.json")),
        adaptive_test(FORMATS / "bank.json"),
    )
    assert session.asked == whole.asked == ["q2", "ärger"]
    assert session.next() == whole.next() == "q1"
    for one in (session, whole):
        one.answer("q1", 1)
    assert session.stopped == "bank"
    a, b = session.estimates(), whole.estimates()
    for name in a.data_vars:
        np.testing.assert_allclose(a[name], b[name], rtol=1e-9, err_msg=str(name))
