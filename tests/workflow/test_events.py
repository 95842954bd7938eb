"""Events of a run, a line of JSON each, and what status makes of them and of the folder."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from irt_dask.cli import main
from irt_dask.engine.lock import FolderLock, is_held
from irt_dask.errors import DataWarning, InputError, StoreError
from irt_dask.workflow import RunConfig, events, run, stages
from irt_dask.workflow.status import status_of

OF_MARGINAL = ["ingest", "summary", "marginal", "score", "report"]


def configured(folder: Path) -> RunConfig:
    return RunConfig.model_validate(
        {
            "title": "LSAT", "data": {"builtin": "lsat"}, "calibrate": {"method": "marginal"},
            "check": {"replicates": 0}, "score": {"item_draws": 0}, "directory": str(folder),
        }
    )  # fmt: skip


def told(folder: Path) -> list[dict[str, Any]]:
    """Every line of the file, each of which is JSON."""
    return [json.loads(line) for line in (folder / events.NAME).read_text().splitlines()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, without_pictures: None) -> Path:
    folder = tmp_path_factory.mktemp("run") / "r"
    with pytest.MonkeyPatch.context() as m:
        m.setattr(events, "EVERY", 0.0)
        m.setattr(events, "LAST", 0.0)
        run(configured(folder))
    return folder


@pytest.fixture
def finished(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "r")


def shown(capsys: pytest.CaptureFixture[str], *args: Any, code: int = 0) -> str:
    ended: Any = 0
    with pytest.MonkeyPatch.context() as m:
        m.setattr(sys, "argv", ["irt-dask", *map(str, args)])
        try:
            main()
        except SystemExit as error:
            ended = error.code
    assert ended == code
    return capsys.readouterr().out


def test_a_run_says_what_it_did(whole: Path) -> None:
    said = told(whole)
    assert [said[0]["event"], said[-1]["event"]] == ["run_started", "run_finished"]
    assert len({e["run"] for e in said}) == 1
    done = [e for e in said if e["event"] == "stage_finished"]
    assert [e["stage"] for e in done] == OF_MARGINAL
    record = json.loads((whole / "run.json").read_text())["stages"]
    for e in done:
        kept = record[e["stage"]]
        assert (e["seconds"], e["warnings"]) == (kept["seconds"], len(kept["notes"]))
        assert (e["rows"], e["files"]) == (1000, [*kept["files"]])
    rounds = [e for e in said if e["event"] == "round" and e["stage"] == "marginal"]
    climbed = [e["round"] for e in rounds if e["of"] == 500]  # max_iterations
    assert climbed == sorted(climbed)
    assert len(climbed) > 3
    assert all(e["seconds"] >= 0 and e["step"] for e in rounds)
    assert sum(e["seconds"] for e in done) <= said[-1]["seconds"] + 0.01
    warned = [e["stage"] for e in said if e["event"] == "warning"]
    assert {w: warned.count(w) for w in warned} == {
        e["stage"]: e["warnings"] for e in done if e["warnings"]
    }


def test_rounds_are_few_events_and_the_bar_sees_them_all(tmp_path: Path) -> None:
    """One in ten seconds, whatever the number of rounds: a file of events stays small."""
    seen: list[tuple[str, int]] = []
    log = events.Events(tmp_path / "e.jsonl", lambda name, done, total: seen.append((name, done)))
    with log.of_stage("marginal"):
        for k in range(1000):
            log.rounds("EM", k + 1, 1000)
        for k in range(3):
            log.rounds("blocks", k + 1, None)
    assert len(seen) == 1003
    rounds = [(e["step"], e["round"]) for e in events.read(tmp_path / "e.jsonl") if "step" in e]
    assert rounds == [("EM", 1), ("blocks", 1)]


def test_a_run_again_is_told_apart(finished: Path) -> None:
    run(configured(finished))
    last = events.of_last_run(told(finished))
    assert [e["event"] for e in last] == ["run_resumed", *["stage_skipped"] * 5, "run_finished"]
    assert [e["stage"] for e in last[1:-1]] == OF_MARGINAL


@pytest.mark.parametrize(
    "error, what, more",
    [
        (InputError("no such item"), "run_failed", {"exit_code": 2, "defect": False}),
        (StoreError("at s3://me:secret@host/x"), "run_failed", {"exit_code": 1, "defect": False}),
        (ZeroDivisionError("1/0"), "run_failed", {"exit_code": 1, "defect": True}),
        (KeyboardInterrupt(), "run_stopped", {}),
    ],
)
def test_how_a_run_ended(
    finished: Path, error: BaseException, what: str, more: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def fails(context: Any) -> list[str]:
        raise error

    shutil.rmtree(finished / "scores")
    monkeypatch.setitem(stages.STAGES, "score", fails)
    with pytest.raises(type(error)):
        run(configured(finished))
    last = told(finished)[-1]
    assert (last["event"], last["stage"]) == (what, "score")
    assert more.items() <= last.items()
    line = (finished / "log.txt").read_text().splitlines()[-1]
    assert (
        "score: stopped" if what == "run_stopped" else f"score: error: {last['message']}"
    ) in line
    assert "secret" not in (finished / events.NAME).read_text() + line
    found = status_of(finished)
    assert (found["state"], found["stage"]) == (what.removeprefix("run_"), "score")
    assert ("error" in found) == (what == "run_failed")
    if "error" in found:
        assert f"error: {found['error']['message']}" in shown(capsys, "status", finished)
    monkeypatch.undo()
    run(configured(finished))
    assert status_of(finished)["state"] == "finished"


def test_a_killed_run_is_called_so_and_its_torn_line_is_left_out(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(finished / "scores")
    record = json.loads((finished / "run.json").read_text())
    for name in ("score", "report"):
        del record["stages"][name]
    from irt_dask.store.manifest import digest

    content = {k: v for k, v in record.items() if k != "checksum"}
    (finished / "run.json").write_text(json.dumps(content | {"checksum": digest(content)}))
    lines = (finished / events.NAME).read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if '"stage_started", ' in line and "score" in line)
    torn = "\n".join(lines[: at + 1]) + '\n{"time": "2026-'
    (finished / events.NAME).write_text(torn)
    found = status_of(finished)
    assert (found["state"], found["stage"]) == ("killed", "score")
    states = [of["state"] for of in found["stages"]]
    assert states == ["done", "done", "done", "begun", "to do"]
    assert "killed" in shown(capsys, "status", finished)
    run(configured(finished))
    text = (finished / events.NAME).read_text()
    assert text.startswith(torn + "\n{")
    assert status_of(finished)["state"] == "finished"


def test_status_of_a_run_that_works(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Looking takes nothing away: the lock is held before and after."""
    assert not is_held(finished)
    with FolderLock(finished):
        assert is_held(finished)
        assert json.loads(shown(capsys, "status", finished, "--json"))["state"] == "running"
        assert is_held(finished)
    found = json.loads(shown(capsys, "status", finished, "--json"))
    assert found["state"] == "finished"
    assert found["title"] == "LSAT"
    assert [of["rows"] for of in found["stages"]] == [1000] * 5
    table = shown(capsys, "status", finished)
    assert "finished" in table
    assert "marginal" in table


def test_status_says_how_long_a_stage_still_takes(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = events.Events(finished / events.NAME)
    told.started(resumed=True)
    with FolderLock(finished), told.of_stage("marginal"):
        told.write("round", step="marginal ML", round=10, of=500, seconds=20.0)
        assert status_of(finished)["round"]["left"] is None
        told.write("round", step="marginal ML", round=40, of=500, seconds=50.0)
        assert status_of(finished)["round"]["left"] == 460.0
        table = shown(capsys, "status", finished)
        assert "round 40 of 500 of marginal ML, after 50 s, up to 8 min left" in table
    assert "left" not in shown(capsys, "status", finished), "nobody works there"


def test_a_lock_that_somebody_looks_at_is_had(tmp_path: Path) -> None:
    """Who begins a run while another process looks is not turned away."""
    script = (
        "import fcntl, sys, time; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_SH); "
        "print('held', flush=True); time.sleep(0.02)"
    )
    (tmp_path / ".lock").touch()
    looking = [sys.executable, "-c", script, str(tmp_path / ".lock")]
    with subprocess.Popen(looking, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        FolderLock(tmp_path).close()


def test_status_of_scores(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(shown(capsys, "status", whole / "scores", "--json"))
    assert (found["kind"], found["state"], found["n_persons"]) == ("scores", "finished", 1000)
    assert found["files"] == found["n_blocks"]


def test_status_of_something_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="is neither a run directory"):
        status_of(tmp_path)
    shown(capsys, "status", tmp_path, code=2)


def test_warnings_are_events(tmp_path: Path) -> None:
    import warnings

    log = events.Events(tmp_path / "e.jsonl")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.warn("of ours", DataWarning, stacklevel=1)
        warnings.warn("of others", UserWarning, stacklevel=1)
    log.warned(caught)
    (said,) = events.read(tmp_path / "e.jsonl")
    assert (said["category"], said["message"]) == ("DataWarning", "of ours")
