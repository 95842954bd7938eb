"""Events of a run for programs: a line of JSON each in ``events.jsonl``, beside the log.

A line is whole or the last of a run that was killed; whoever reads leaves such a one out.  All have
``time`` (UTC), ``event`` and ``run`` (which start of the command it was); the others are listed in
``docs/pipelines.md``.
"""

from __future__ import annotations

import datetime
import json
import math
import os
import secrets
import socket
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from irt_dask._version import __version__
from irt_dask.engine.progress import Progress, ProgressOption
from irt_dask.errors import InputError, IrtDaskError, IrtDaskWarning, without_credentials
from irt_dask.store.manifest import writing
from irt_dask.store.places import open_to_append, read_bytes

NAME = "events.jsonl"
#: Seconds from an event of a round to the next of the same name, and to that of the last round.
EVERY, LAST = 10.0, 1.0

Event = dict[str, Any]


class Events:
    """What happens in a run, written as it happens.

    Parameters
    ----------
    path : file to add to.
    progress : as all functions take it; rounds are shown by it as before.
    log : takes a line for people that says how a run ended, if not well.
    """

    def __init__(
        self, path: Path, progress: ProgressOption = None, log: Callable[[str], None] | None = None
    ) -> None:
        self._path, self._run = path, secrets.token_hex(4)
        self._begun = self._stage_begun = time.monotonic()
        self.stage: str | None = None
        self._log = log or (lambda text: None)
        self.rounds = Rounds(self, progress)
        with writing(path):
            self._mend()

    def _mend(self) -> None:
        """End the line that a killed run left torn."""
        before = read_bytes(self._path) if self._path.exists() else b""
        if before and not before.endswith(b"\n"):
            with open_to_append(self._path) as f:
                f.write(b"\n")

    def write(self, event: str, **said: Any) -> None:
        """Add a line."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        stage = {} if self.stage is None else {"stage": self.stage}
        line = {"time": now, "event": event, "run": self._run, **stage, **said}
        with writing(self._path), open_to_append(self._path) as f:
            f.write(f"{json.dumps(line)}\n".encode())

    def started(self, resumed: bool) -> None:
        """The command begins, or goes on."""
        where = {"host": socket.gethostname(), "pid": os.getpid(), "irt_dask": __version__}
        self.write("run_resumed" if resumed else "run_started", **where)

    @contextmanager
    def run(self) -> Iterator[None]:
        """Say how the run ends, also by an error or an interrupt."""
        try:
            yield
        except BaseException as error:
            with suppress(Exception):  # the disk may be full: the error is what counts
                self._ended(error)
            raise
        self.write("run_finished", seconds=_since(self._begun))

    def _ended(self, error: BaseException) -> None:
        seconds, at = _since(self._begun), "" if self.stage is None else f"{self.stage}: "
        if isinstance(error, KeyboardInterrupt):
            self._log(f"{at}stopped")
            self.write("run_stopped", seconds=seconds)
            return
        said = {"error": type(error).__name__, "message": without_credentials(str(error))}
        self._log(f"{at}error: {said['message'] or said['error']}")
        code = 2 if isinstance(error, InputError) else 1
        ours = isinstance(error, (IrtDaskError, OSError))
        self.write("run_failed", seconds=seconds, **said, exit_code=code, defect=not ours)

    @contextmanager
    def of_stage(self, name: str) -> Iterator[None]:
        """Within it, events are those of a stage."""
        self.stage, self._stage_begun = name, time.monotonic()
        self.write("stage_started")
        try:
            yield
        finally:
            self.rounds.close()
        self.stage = None

    def finished(
        self, name: str, seconds: float, rows: int, files: list[str], n: int, **more: Any
    ) -> None:
        """A stage is done and recorded, with so many warnings."""
        self.write(
            "stage_finished", stage=name, seconds=round(seconds, 3), rows=rows, warnings=n,
            files=files, **more,
        )  # fmt: skip

    def warned(self, caught: list[warnings.WarningMessage]) -> None:
        """Warnings of ours; notices too, under their name."""
        for w in caught:
            if issubclass(w.category, IrtDaskWarning):
                self.write("warning", category=w.category.__name__, message=str(w.message))

    def round(self, name: str, done: int, total: int | None) -> None:
        """A step inside a stage: iterations, blocks or sweeps, as its progress counts them."""
        self.write("round", step=name, round=done, of=total, seconds=_since(self._stage_begun))


class Rounds:
    """A progress option that passes on to another, and writes an event now and then."""

    def __init__(self, events: Events, option: ProgressOption) -> None:
        self._events, self._option = events, option
        self._shown: dict[str, Progress] = {}
        self._last: dict[str, tuple[float, int]] = {}

    def __call__(self, name: str, done: int, total: int | None) -> None:
        """Take what a progress option is called with."""
        at, before = self._last.get(name, (-math.inf, -1))
        if done < before:  # it begins again, and so does its bar
            self._close(name)
        if name not in self._shown:
            self._shown[name] = Progress(self._option, name).__enter__()
        self._shown[name].update(done, total)
        now = time.monotonic()
        if now - at >= (LAST if done == total else EVERY):
            self._last[name] = now, done
            self._events.round(name, done, total)
        else:
            self._last[name] = at, done

    def waiting(self, name: str, seconds: float) -> None:
        """Take that for so long no task has finished."""
        Progress(self._option, name).waiting(seconds)

    def _close(self, name: str) -> None:
        self._shown.pop(name).__exit__()

    def close(self) -> None:
        """End all bars."""
        for name in [*self._shown]:
            self._close(name)
        self._last.clear()


def _since(begun: float) -> float:
    return round(time.monotonic() - begun, 3)


def read(path: Path) -> list[Event]:
    """All whole events of a file, those of earlier runs too; none if it is not there."""
    if not path.exists():
        return []
    found = []
    for line in read_bytes(path).splitlines():
        with suppress(ValueError):
            event = json.loads(line)
            if isinstance(event, dict) and "event" in event:
                found.append(event)
    return found


def of_last_run(events: list[Event]) -> list[Event]:
    """Those of the command that was started last."""
    last = events[-1].get("run") if events else None
    return [e for e in events if e.get("run") == last]
