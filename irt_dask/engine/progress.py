"""Progress of long work: events for a program, a bar for a person, a line a minute for a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

#: None: a bar on a terminal or in a notebook, else a line each minute; True, False: a bar, or
#: nothing, wherever it is; or a function that is called with (stage, done, total).
ProgressOption = bool | Callable[[str, int, int | None], None] | None

#: Seconds from a line of a log to the next, and from the beginning to the first.
LINE = 60.0


class Progress:
    """Show or pass on how far a stage is; a bar appears only after two seconds."""

    def __init__(self, option: ProgressOption, stage: str) -> None:
        self.stage = stage
        self._call = option if callable(option) else None
        self._wanted = option is True or (option is None and _has_bars())
        self._in_lines = option is None and not self._wanted
        self._bar: Any = None
        self._begun = self._said = time.monotonic()
        self._done = 0
        #: Where a loop began, from which rates are taken: time, and steps done before.
        self._loop = self._begun, 0

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def update(self, done: int, total: int | None) -> None:
        """Report that ``done`` of ``total`` steps are finished; fewer than before: another loop."""
        again, self._done = done < self._done, done
        if again:
            self._loop = time.monotonic(), done
        if self._call is not None:
            self._call(self.stage, done, total)
        elif self._wanted:
            if self._bar is None:
                from tqdm import tqdm

                self._bar = tqdm(total=total, desc=self.stage, delay=2, file=sys.stderr)
            if again:
                self._bar.reset(total)
            self._bar.n = done
            self._bar.refresh() if done == total else self._bar.update(0)
        elif self._in_lines and (now := time.monotonic()) - self._said >= LINE:
            self._said = now
            begun, before = self._loop
            rate = (done - before) / (now - begun) if now > begun else 0.0
            known = done > before or not done  # the first step of a further loop tells no rate
            so_far = _so_far(done, total, now - self._begun, rate if known else None)
            _tell(f"{self.stage}: {so_far}")

    def waiting(self, seconds: float) -> None:
        """Say that no task has finished for so long: nothing is wrong yet."""
        if self._call is not None:
            passed_on = getattr(self._call, "waiting", None)
            if passed_on is not None:
                passed_on(self.stage, seconds)
        elif self._wanted or self._in_lines:
            self._said = time.monotonic()
            _tell(f"{self.stage}: no task has finished for {time_in_words(seconds)}; still at work")


def _has_bars() -> bool:
    """Whether standard error is seen by a person: a terminal, or the cell of a notebook."""
    return sys.stderr.isatty() or type(sys.stderr).__module__.startswith("ipykernel")


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _so_far(done: int, total: int | None, seconds: float, rate: float | None) -> str:
    """Steps, their rate if it is known, and the time that the others take at that rate."""
    speed = left = ""
    if rate is not None:
        speed = f", {rate:.3g} a second" if rate >= 1.0 or not rate else f", {1 / rate:.3g} s each"
        if rate and total is not None:  # fits may end earlier
            left = f", up to {time_in_words((total - done) / rate)} left"
    if total is None:
        return f"{done:,} after {time_in_words(seconds)}{speed}"
    share = 100 * done / total if total else 100.0
    return f"{done:,} of {total:,} ({share:.0f}%) after {time_in_words(seconds)}{speed}{left}"


def time_in_words(seconds: float) -> str:
    """A time as people say it."""
    if seconds < 100.0:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000.0 else f"{seconds / 3600:.1f} h"
