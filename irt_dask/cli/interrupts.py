"""Ctrl-C and SIGTERM: both end a command the same orderly way, whenever they come."""

from __future__ import annotations

import logging
import signal
import sys
from typing import Any, NoReturn, Self

#: Seconds until an interrupt that Python ignored is raised again.
_LATER = 0.1


def silence() -> None:
    """Keep what was broken off from complaining as Python ends.

    That are workers that nobody waits for, and clusters that had not quite started, which Dask
    closes at the very end.
    """
    sys.unraisablehook = lambda what: None
    for name in ("asyncio", "distributed"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def _while_interrupted(error: BaseException) -> bool:
    """Whether an error came up while a KeyboardInterrupt was on its way."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, KeyboardInterrupt):
        seen = seen.__context__  # also of what was raised from something
    return seen is not None


class Interrupts:
    """Within it SIGTERM raises KeyboardInterrupt as Ctrl-C does, and no KeyboardInterrupt is lost.

    Python ignores exceptions in what it calls by itself, such as finalizers and the callback that
    Dask has on garbage collection.  A KeyboardInterrupt that was ignored is raised again.  And what
    fails while something interrupted is put away, such as a cluster that had not quite started, is
    a KeyboardInterrupt too.
    """

    def __init__(self) -> None:
        self.terminated = False
        self._ignored = False

    def __enter__(self) -> Self:
        self._hook = sys.unraisablehook
        self._before = {
            number: signal.signal(number, handler) or signal.SIG_DFL
            for number, handler in (
                (signal.SIGTERM, self._terminate), (signal.SIGALRM, self._interrupt)
            )
        }  # fmt: skip
        sys.unraisablehook = self._unraisable
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        sys.unraisablehook = self._hook
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if isinstance(error, Exception) and _while_interrupted(error):
            raise KeyboardInterrupt from error

    def _terminate(self, number: int, frame: object) -> NoReturn:
        self.terminated = True
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second one ends it at once
        raise KeyboardInterrupt

    def _interrupt(self, number: int, frame: object) -> NoReturn:
        raise KeyboardInterrupt

    def _unraisable(self, what: Any) -> None:
        if issubclass(what.exc_type, KeyboardInterrupt):
            self._ignored = True
            signal.setitimer(signal.ITIMER_REAL, _LATER)
        elif not self._ignored:  # what was broken off may complain until the end
            self._hook(what)
