"""Independent tasks that are not over blocks: reading, sorting and writing files."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from irt_dask.engine import executors
from irt_dask.engine.progress import Progress, ProgressOption
from irt_dask.engine.threads import single_threaded

#: Tasks that wait or run, for each thread: arguments of some, not of all, lie with the scheduler.
_AHEAD = 8


class Tasks:
    """Runs functions of small arguments on a cluster, or in the threads of this process.

    A task may run twice (a worker that dies, or is believed dead): it must write the same files
    under the same names each time.
    """

    def __init__(self, executor: executors.Executor, progress: ProgressOption) -> None:
        self._executor, self._progress = executor, progress

    @property
    def n_threads(self) -> int:
        """Threads that tasks run in."""
        return self._executor.n_threads

    def run(
        self, stage: str, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]
    ) -> Iterator[Any]:
        """Yield ``function(*task)`` of each task, in order; leaving early drops the rest."""
        n = len(tasks)
        running: deque[Any] = deque()
        try:
            with Progress(self._progress, stage) as progress:
                self._executor.waiting = progress.waiting
                for done in range(n):
                    while len(running) < _AHEAD * self.n_threads and done + len(running) < n:
                        k = done + len(running)
                        running.append(self._executor.submit(k / n, function, *tasks[k]))
                    yield self._executor.result(self._finished(running.popleft()))
                    progress.update(done + 1, n)
        finally:
            for future in running:
                future.cancel()

    def _finished(self, future: Any) -> Any:
        """Wait for a task, and say from time to time that none has finished."""
        finished = self._executor.finished()
        finished.add(future)
        return finished.take()

    @contextmanager
    def shown(self, stage: str) -> Iterator[Callable[[int, int], None]]:
        """A function of (done, total) that shows the progress of work in this process."""
        with Progress(self._progress, stage) as progress:
            yield progress.update


@contextmanager
def run_tasks(client: Any, progress: ProgressOption) -> Iterator[Tasks]:
    """Choose where tasks run: the given client, else the current one, else threads."""
    executor = executors.choose(client)
    try:
        with single_threaded():
            yield Tasks(executor, progress)
    finally:
        executor.close()
