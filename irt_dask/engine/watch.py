"""Looks after a cluster while the driver waits, so that no run waits for ever."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from irt_dask.errors import ClusterError, StallWarning

#: Seconds between two looks, and that a cluster may be unable to work, or its scheduler silent.
LOOK, PATIENCE = 5.0, 60.0
#: Seconds between two looks for a first worker.
_POLL = 0.1
#: Seconds without a finished task after which the user is told, again and again.
REPORT = 600.0
#: Seconds after which a clock that went backwards is no reason any more.
_FORGOTTEN = 600.0
#: When (monotonic), and how far this machine's clock was before the monotonic one; the latest last.
_clock: list[tuple[float, int]] = []
#: Worker processes that may come and go, for each that there is, while no task finishes.
_STARTS = 10


@contextmanager
def reaching_scheduler() -> Iterator[None]:
    """Turn what Dask raises when it does not reach the scheduler into an error that says so."""
    try:
        yield
    except OSError as error:  # a TimeoutError is one, and a CommClosedError
        raise went_away(error) from error


def threads_of(client: Any) -> dict[str, int]:
    """Threads by worker's address; ClusterError if the scheduler does not answer.

    ``client.nthreads()`` waits for ever on a connection that is cut without a word.
    """
    with reaching_scheduler():
        try:
            found = client.sync(
                client.scheduler.ncores, workers=None, callback_timeout=PATIENCE + LOOK
            )
        except TimeoutError:
            raise silent(PATIENCE + LOOK) from None
    return dict(sorted(found.items()))


def awaited(client: Any, seconds: float = PATIENCE) -> dict[str, int]:
    """As :func:`threads_of`, once there is a worker; ClusterError if none comes.

    ``client.wait_for_workers`` waits by a clock that may be set back.
    """
    deadline = time.monotonic() + seconds
    while not (threads := threads_of(client)):
        if time.monotonic() > deadline:
            raise ClusterError(f"the cluster has had no worker for {seconds:.0f} seconds")
        time.sleep(_POLL)
    return threads


def silent(seconds: float) -> ClusterError:
    """Return the error to raise when the scheduler does not answer."""
    return ClusterError(
        f"the scheduler has not answered for {seconds:.0f} seconds; when it is back, start the "
        f"same command again to go on"
    )


def went_away(error: BaseException) -> ClusterError:
    """Return the error to raise when there is no scheduler any more."""
    why = str(error).partition("\n")[0] or type(error).__name__
    return ClusterError(f"the scheduler went away ({why}); start the same command again to go on")


def _offered_again() -> Callable[..., int]:
    """Return what the scheduler runs to give tasks that no worker has to the workers there are.

    A task that prefers a worker (ours do, where their blocks are) and finds none at all is put
    aside; Dask looks at it again when that very address joins, not for other workers, though the
    task allows them.  Defined inside, so that it is sent whole: a scheduler need not have irt_dask.
    """

    def offered(dask_scheduler: Any) -> int:
        aside = [task for task in dask_scheduler.unrunnable if task.loose_restrictions]
        again = {task.key: "processing" for task in aside}
        dask_scheduler.transitions(again, stimulus_id="irt_dask-offered-again")
        return len(again)

    return offered


def _went_back() -> float:
    """Seconds by which this machine's clock went backwards of late.

    Dask sends messages when the clock has passed a time: after such a step it may keep one back for
    as long as the clock was set back, and all wait.
    """
    now = time.monotonic()
    ahead = round(time.time() - now)  # in seconds, so that few are kept
    _clock[:] = [(when, x) for when, x in _clock if when > now - _FORGOTTEN and x > ahead]
    _clock.append((now, ahead))
    return _clock[0][1] - ahead


class Watch:
    """Complains when no task can finish: no worker, all out of memory, or all dying.

    A task that takes long on a worker that lives is reported by a StallWarning, not ended.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self.progressed()

    def progressed(self) -> None:
        """A task has finished: all is well."""
        _went_back()
        now = time.monotonic()
        self._last_task = self._last_report = self._last_able = self._last_answer = now
        self._seen: set[str] = set()

    def look(self, *, bringing: bool = False) -> None:
        """Ask the scheduler how its workers are, and let it look at tasks that it put aside.

        While results are only being brought, no worker need have a task.

        Raises
        ------
        ClusterError
            Says since when nothing can go on, why, and what to do.
        """
        from distributed.comm import CommClosedError

        now = time.monotonic()
        try:
            workers, running = self._ask("ncores"), self._ask("ncores_running")
            tasks = self._ask("processing")
        except (TimeoutError, OSError, CommClosedError):
            if now - self._last_answer > PATIENCE:
                raise silent(now - self._last_answer) from None
            return
        self._last_answer = time.monotonic()
        joined = not self._seen.issuperset(workers)  # of late, perhaps
        self._seen |= set(workers)
        if (back := _went_back()) > PATIENCE and now - self._last_task > PATIENCE:
            raise ClusterError(
                f"the clock of this machine went back by {back:.0f} seconds, and no task has "
                f"finished for {now - self._last_task:.0f}: Dask may hold messages back until the "
                f"clock is where it was; start the same command again to go on"
            )
        idle = not any(tasks.values())
        aside = self._offer_again() if running and (idle or joined) else 0
        if running and (not idle or (bringing and aside == 0)):
            self._last_able = self._last_answer
        elif now - self._last_able > PATIENCE:
            raise ClusterError(_unable(len(workers), bool(running), now - self._last_able))
        if len(self._seen) > _STARTS * max(len(workers), 1) + len(workers):
            raise ClusterError(
                f"{len(self._seen)} worker processes have come and gone and no task has finished: "
                f"most often too little memory for each (memory = in the cluster's file), else see "
                f"the workers' logs"
            )
        if now - self._last_report > REPORT:
            self._last_report = now
            warnings.warn(
                f"no task has finished for {(now - self._last_task) / 60:.0f} minutes; "
                f"{len(workers)} workers, at work {_named(tasks)}",
                StallWarning,
                stacklevel=2,
            )

    def _offer_again(self) -> int | None:
        """Let tasks that no worker has be given to the workers there are; return how many were.

        None if it is not known: a scheduler may refuse to run functions of clients.
        """
        try:
            found = self._client.run_on_scheduler(_offered_again(), callback_timeout=LOOK)
        except Exception:  # of the scheduler's own as well; then the patience ends in an error
            return None
        return int(found)

    def _ask(self, what: str) -> Any:
        function = getattr(self._client.scheduler, what)
        return self._client.sync(function, workers=None, callback_timeout=LOOK)


def _unable(n_workers: int, running: bool, seconds: float) -> str:
    """Why no task can finish."""
    if n_workers == 0:
        return (
            f"the cluster has had no worker for {seconds:.0f} seconds; start the same command "
            f"again to go on"
        )
    if running:
        return (
            f"for {seconds:.0f} seconds no worker has had a task, though tasks are waiting: the "
            f"scheduler has lost them, as when all workers end at the same time (most often for "
            f"too little memory; memory = in the cluster's file) and it may not be asked to look "
            f"again; start the same command again to go on"
        )
    return (
        f"all {n_workers} workers have been paused for {seconds:.0f} seconds: their memory is used "
        f"up; give them more (memory = in the cluster's file), or make blocks smaller "
        f"(rows_per_block)"
    )


def _named(tasks: dict[str, Any]) -> str:
    busy = [f"{address} ({len(own)} tasks)" for address, own in sorted(tasks.items()) if own]
    return ", ".join(busy[:10])
