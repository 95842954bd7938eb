"""What a run, or a folder of scores, is at: read from its files, without touching them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from irt_dask.engine import person_files
from irt_dask.engine.lock import is_held
from irt_dask.errors import InputError
from irt_dask.store.documents import from_json
from irt_dask.store.places import local_path, read_bytes
from irt_dask.workflow import events
from irt_dask.workflow.directory import RunDirectory
from irt_dask.workflow.stages import stages_recorded

#: States of a run: a process works in it; all stages are done; an error or a signal ended it; or
#: it neither works nor said how it ended (it was killed, or lost power).
STATES = ("running", "finished", "failed", "stopped", "killed")


def status_of(path: str | Path) -> dict[str, Any]:
    """Return what there is to know of a run directory, or of a folder of scores.

    Raises
    ------
    InputError
        If it is neither.
    RunError
        If the manifest of the run is damaged.
    """
    folder = local_path(path, "a run directory or a folder of scores").absolute()
    if (folder / "run.json").exists():
        return _of_run(folder)
    if any((folder / name).exists() for name in (person_files.DONE, person_files.BEGUN)):
        return _of_scores(folder)
    raise InputError(
        f"{path} is neither a run directory (run.json) nor a folder of scores ({person_files.DONE})"
    )


def _of_run(folder: Path) -> dict[str, Any]:
    record = RunDirectory.existing(folder)
    everything = events.read(folder / events.NAME)
    told = events.of_last_run(everything)
    done, names = record.stages, [*stages_recorded(record.content["config"])]
    last = told[-1] if told else {}
    state = _state(last.get("event"), is_held(folder), all(name in done for name in names))
    ended = {e["stage"] for e in told if e["event"] == "stage_finished"}
    begun = [e["stage"] for e in told if e["event"] == "stage_started"]
    at = next((name for name in reversed(begun) if name not in ended), None)
    rounds = [e for e in told if e["event"] == "round" and e.get("stage") == at]
    rows = {e["stage"]: e["rows"] for e in everything if e["event"] == "stage_finished"}
    found: dict[str, Any] = {
        "kind": "run", "path": str(folder), "title": record.content["title"], "state": state,
        "stage": at, "updated": last.get("time"), "version": record.content["versions"]["irt_dask"],
        "stages": [_stage(name, done.get(name), at, rows.get(name)) for name in names],
        "warnings": [f"{name}: {note}" for name in done for note in done[name]["notes"]],
    }  # fmt: skip
    if rounds:
        found["round"] = {k: rounds[-1][k] for k in ("step", "round", "of", "seconds")}
        found["round"]["left"] = _left([e for e in rounds if e["step"] == rounds[-1]["step"]])
    if state == "failed":
        found["error"] = {k: last[k] for k in ("error", "message", "exit_code")}
    return found


def _left(rounds: list[dict[str, Any]]) -> float | None:
    """Seconds that the other rounds of a step take at the rate of late; fits may end earlier."""
    last, before = rounds[-1], rounds[:-1][-6:]
    first = next((e for e in before if e["round"] < last["round"]), None)
    if first is None or last["of"] is None or last["seconds"] <= first["seconds"]:
        return None
    each = (last["seconds"] - first["seconds"]) / (last["round"] - first["round"])
    return round(each * (last["of"] - last["round"]), 1)


def _state(last: str | None, held: bool, done: bool) -> str:
    """The state of a run by the last event of its last start; before there were events, none."""
    if held:
        return "running"
    if last in ("run_failed", "run_stopped", "run_finished"):
        return last.removeprefix("run_")
    return "finished" if last is None and done else "killed"


def _stage(
    name: str, record: dict[str, Any] | None, at: str | None, rows: int | None
) -> dict[str, Any]:
    """What is known of a stage; no ``rows`` where no event tells."""
    if record is None or name == at:
        return {"stage": name, "state": "begun" if name == at else "to do"}
    seconds, n = record["seconds"], len(record["notes"])
    return {"stage": name, "state": "done", "seconds": seconds, "rows": rows, "warnings": n}


def _of_scores(folder: Path) -> dict[str, Any]:
    """Scores say of themselves what they are when all files are there."""
    unfinished, held = (folder / person_files.BEGUN).exists(), is_held(folder)
    found: dict[str, Any] = {
        "kind": "scores", "path": str(folder),
        "state": "running" if held else "unfinished" if unfinished else "finished",
        "files": len([*folder.glob("part-*.parquet")]),
    }  # fmt: skip
    if (folder / person_files.DONE).exists() and not unfinished:
        said = from_json(read_bytes(folder / person_files.DONE), constants=True)
        keys = ("n_blocks", "n_persons", "method", "prior", "version")
        found |= {k: said[k] for k in keys if k in said}
    return found
