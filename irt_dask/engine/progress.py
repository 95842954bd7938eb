"""Progress of long work: events for a program, a bar for a person."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

#: None: a bar when standard error is a terminal; True, False: always, never; or a function that is
#: called with (stage, done, total).
ProgressOption = bool | Callable[[str, int, int | None], None] | None


class Progress:
    """Show or pass on how far a stage is; a bar appears only after two seconds."""

    def __init__(self, option: ProgressOption, stage: str) -> None:
        self.stage = stage
        self._call = option if callable(option) else None
        self._wanted = option is True or (option is None and sys.stderr.isatty())
        self._bar: Any = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def update(self, done: int, total: int | None) -> None:
        """Report that ``done`` of ``total`` steps are finished."""
        if self._call is not None:
            self._call(self.stage, done, total)
        elif self._wanted:
            if self._bar is None:
                from tqdm import tqdm

                self._bar = tqdm(total=total, desc=self.stage, delay=2, file=sys.stderr)
            self._bar.n = done
            self._bar.refresh() if done == total else self._bar.update(0)
