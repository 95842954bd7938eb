"""What progress says where there is no terminal, and when nothing finishes."""

import io
import threading

import numpy as np
import pytest

import irt_dask as irt
from irt_dask.engine import Engine, executors, progress
from irt_dask.engine.progress import Progress
from irt_dask.engine.tasks import run_tasks
from irt_dask.workflow.events import Events


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test sets."""
    at = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: at[0])
    return at


def test_a_log_has_a_line_a_minute_with_rate_and_time_left(clock, capsys):
    with Progress(None, "blocks") as shown:
        for done in range(1, 121):
            clock[0] += 1.0
            shown.update(done * 10, 4000)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "blocks: 600 of 4,000 (15%) after 60 s, 10 a second, up to 6 min left",
        "blocks: 1,200 of 4,000 (30%) after 2 min, 10 a second, up to 5 min left",
    ]


@pytest.mark.parametrize(
    ("done", "total", "said"),
    [
        (0, 8, "0 of 8 (0%) after 90 s, 0 a second"),
        (3, 8, "3 of 8 (38%) after 90 s, 30 s each, up to 2 min left"),
        (9, None, "9 after 90 s, 10 s each"),
    ],
)
def test_few_steps_and_unknown_totals(clock, capsys, done, total, said):
    shown = Progress(None, "chains")
    clock[0] += 90.0
    shown.update(done, total)
    assert capsys.readouterr().err == f"chains: {said}\n"


def test_another_loop_of_a_stage_has_a_rate_of_its_own(clock, capsys):
    """A fit that searched for where to begin, 30 steps in a minute, and then takes 3 s a step."""
    shown = Progress(None, "fit")
    for done, seconds in ((30, 50.0), (1, 20.0), (21, 60.0)):
        clock[0] += seconds
        shown.update(done, 30 if done == 30 else 500)
    assert capsys.readouterr().err.splitlines() == [
        "fit: 1 of 500 (0%) after 70 s",
        "fit: 21 of 500 (4%) after 2 min, 3 s each, up to 24 min left",
    ]


def test_quiet_work_and_short_work_say_nothing(clock, capsys):
    for option, seconds in ((False, 1e4), (None, 30.0)):
        shown = Progress(option, "blocks")
        clock[0] += seconds
        shown.update(1, 2)
    Progress(False, "blocks").waiting(100.0)
    Progress(lambda *e: None, "blocks").waiting(100.0)
    assert capsys.readouterr().err == ""


def test_a_notebook_has_a_bar(monkeypatch, capsys):
    class Cell(io.StringIO):
        __module__ = "ipykernel.iostream"

    cell = Cell()
    monkeypatch.setattr(progress.sys, "stderr", cell)
    with Progress(None, "blocks") as shown:
        shown.update(1, 2)
        assert shown._bar is not None


def _slow(block):
    threading.Event().wait(1.0)
    return np.zeros(1)


def test_a_task_that_takes_long_is_told_of(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(executors, "LOOK", 0.05)
    monkeypatch.setattr(executors, "STILL", 0.2)
    r = irt.from_array(np.zeros((4, 2), int))
    with Engine(r, stage="thinking") as engine:
        list(engine.map_blocks(_slow))
    lines = capsys.readouterr().err.splitlines()
    assert 1 <= len(lines) <= 3  # after .2, .4 and .8 s
    assert set(lines) == {"thinking: no task has finished for 0 s; still at work"} | (
        set(lines) & {"thinking: no task has finished for 1 s; still at work"}
    )
    rounds = Events(tmp_path / "events.jsonl").rounds  # of a run: the same
    with Engine(r, stage="thinking", progress=rounds) as engine:
        list(engine.map_blocks(_slow))
    assert "thinking: no task has finished" in capsys.readouterr().err


def test_a_file_that_takes_long_to_read_is_told_of(monkeypatch, capsys):
    monkeypatch.setattr(executors, "LOOK", 0.05)
    monkeypatch.setattr(executors, "STILL", 0.2)
    with run_tasks(None, None) as tasks:
        assert len(list(tasks.run("reading", _slow, [(k,) for k in range(2)]))) == 2
    assert "reading: no task has finished for" in capsys.readouterr().err
