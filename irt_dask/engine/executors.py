"""Where tasks run: the threads of this process, or the workers of a Dask cluster."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import queue
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from irt_dask.engine.memory import keep_freed_memory
from irt_dask.engine.threads import n_cores, single_threaded
from irt_dask.engine.watch import (
    LOOK,
    PATIENCE,
    Watch,
    awaited,
    went_away,
)
from irt_dask.errors import ClusterError, starting_threads
from irt_dask.store.blocks import BlockRef

#: Tasks of a round, for each thread of the cluster: enough to balance, few to schedule.
TASKS_PER_THREAD = 4
#: Seconds without a finished task after which it is said, and then after twice as long each time.
STILL = 60.0
#: A task is repeated after this many exceptions (a passing fault of the file system, say).
_RETRIES = 1


class WorkerDiedError(ClusterError):
    """A task took its worker down again and again."""


def _guarded(function: Callable[..., Any], *args: Any) -> Any:
    with single_threaded():
        return function(*args)


def _on_worker(function: Callable[..., Any], *args: Any) -> Any:
    keep_freed_memory()
    return _guarded(function, *args)


class Finished:
    """Hands out futures as they finish; others may join while some are waited for."""

    def __init__(self, watch: Watch | None, waiting: Callable[[float], None]) -> None:
        self._ready: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._watch, self._waiting = watch, waiting
        if watch is not None:
            watch.progressed()

    def add(self, future: Any) -> None:
        """Let a future be handed out when it has finished, once."""
        future.add_done_callback(self._ready.put)

    def take(self) -> Any:
        """Wait for the next one; ClusterError if for a long time none could finish."""
        begun, due = time.monotonic(), STILL
        while True:
            try:
                future = self._ready.get(timeout=LOOK)
                break
            except queue.Empty:
                if self._watch is not None:
                    self._watch.look()
            if (seconds := time.monotonic() - begun) >= due:
                due *= 2
                self._waiting(seconds)
        if self._watch is not None:
            self._watch.progressed()
        return future


def _unheard(seconds: float) -> None:
    """Nobody is told how long a task takes."""


class Threads:
    """The threads of this process, one for each core it may use."""

    #: Partial results the driver adds up itself: all, they are in this process already.
    max_gathered = math.inf

    def __init__(self) -> None:
        self.n_threads = n_cores()
        self.waiting: Callable[[float], None] = _unheard
        self._pool = ThreadPoolExecutor(self.n_threads, thread_name_prefix="irt_dask")

    def hold(self, refs: Sequence[BlockRef]) -> Sequence[Any]:
        """Pass references themselves."""
        return refs

    def submit(self, place: float, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """Start a task in a thread."""
        with starting_threads():
            return self._pool.submit(_guarded, function, *args)

    def submit_all(
        self, function: Callable[..., Any], tasks: Sequence[tuple[float, tuple[Any, ...]]]
    ) -> list[Future[Any]]:
        """Start ``function(*args)`` for each (place, args)."""
        return [self.submit(place, function, *args) for place, args in tasks]

    def finished(self) -> Finished:
        """Return what hands out futures as they finish."""
        return Finished(None, self.waiting)

    def failed(self, future: Future[Any]) -> bool:
        """Whether a finished task has no result."""
        return future.cancelled() or future.exception() is not None

    def result(self, future: Future[Any]) -> Any:
        """Return a finished task's result or raise its error."""
        return future.result()

    def results(self, futures: Sequence[Future[Any]]) -> list[Any]:
        """Return the results of finished tasks or raise the error of one."""
        return [self.result(future) for future in futures]

    def close(self) -> None:
        """Drop waiting tasks and wait for running ones."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def _wanted(record: logging.LogRecord) -> bool:
    """Whether a record of asyncio's log is about anything but a wait that Dask gave up itself.

    Where one of several futures fails, it abandons the others without looking at them again.
    """
    error = record.exc_info[1] if record.exc_info else None
    return type(error).__name__ != "AllExit"  # nothing can be imported once the process ends


def _itself(ref: BlockRef) -> BlockRef:
    return ref


class Cluster:
    """The workers of a Dask cluster."""

    #: Partial results the driver adds up itself; more are first added up by tasks.
    max_gathered = 64.0

    def __init__(self, client: Any) -> None:
        self._client = client
        self._known: tuple[float, dict[str, int]] = (-math.inf, {})
        self.n_threads = sum(self._workers().values())
        self._held: list[Any] = []
        self._watch = Watch(client)
        self.waiting: Callable[[float], None] = _unheard
        logging.getLogger("asyncio").addFilter(_wanted)  # once, however often

    def _workers(self) -> dict[str, int]:
        """Threads by address, as of at most a second ago; waits for a first worker."""
        when, threads = self._known
        if time.monotonic() - when > 1.0:
            threads = awaited(self._client)
            self._known = (time.monotonic(), threads)
        return threads

    def hold(self, refs: Sequence[BlockRef]) -> Sequence[Any]:
        """Send blocks that exist only in this process once, as results that can be recomputed."""
        if all(ref.cache_key is not None for ref in refs):
            return refs  # of a store: small, however many blocks
        n = max(len(refs), 1)
        self._held = [self.submit(k / n, _itself, ref) for k, ref in enumerate(refs)]
        return self._held

    def submit(self, place: float, function: Callable[..., Any], *args: Any) -> Any:
        """Start a task, preferably on the worker that had this place before."""
        return self._client.submit(_on_worker, function, *args, **self._at(place))

    def submit_all(
        self, function: Callable[..., Any], tasks: Sequence[tuple[float, tuple[Any, ...]]]
    ) -> list[Any]:
        """Start ``function(*args)`` for each (place, args), in a message for each worker.

        One for each task would keep the scheduler busy for twice as long.
        """
        if self._held:  # map() does not look for futures deep inside arguments
            return [self.submit(place, function, *args) for place, args in tasks]
        futures: list[Any] = []
        for _, group in itertools.groupby(tasks, key=lambda task: self._at(task[0])["workers"]):
            places, args = zip(*group, strict=True)
            columns = [[function] * len(args), *zip(*args, strict=True)]
            futures += self._client.map(_on_worker, *columns, **self._at(places[0]))
        return futures

    def _at(self, place: float) -> dict[str, Any]:
        """Options of a task with this place."""
        workers = list(self._workers())
        return {
            "workers": [workers[int(place * len(workers))]],
            "allow_other_workers": True,
            "retries": _RETRIES,
            "pure": False,
        }

    def finished(self) -> Finished:
        """Return what hands out futures as they finish."""
        return Finished(self._watch, self.waiting)

    def failed(self, future: Any) -> bool:
        """Whether a finished task has no result."""
        return future.status in ("error", "cancelled")

    def result(self, future: Any) -> Any:
        """Return a finished task's result or raise its error."""
        return self.results([future])[0]

    def results(self, futures: Sequence[Any]) -> list[Any]:
        """Return the results of finished tasks, brought in one message, or raise the error of one.

        What a worker took with it when it ended is computed again.
        """
        from distributed.client import FutureCancelledError
        from distributed.comm import CommClosedError
        from distributed.scheduler import KilledWorker

        self._watch.progressed()
        try:
            while (brought := self._brought(futures)) is None:
                pass  # over a connection that was cut without a word, perhaps: once more
            return brought
        except KilledWorker as error:
            raise WorkerDiedError(
                f"a task ended its worker process {error.allowed_failures + 1} times, the last on "
                f"{error.last_worker.address}: most often too little memory (smaller "
                f"rows_per_block, more memory per worker), else see the worker's log"
            ) from error
        except (FutureCancelledError, CommClosedError) as error:
            raise went_away(error) from error

    def _brought(self, futures: Sequence[Any]) -> list[Any] | None:
        """Return results, or None if they have not come for long though the cluster is well."""

        async def bring() -> list[Any]:
            return await self._client.gather(list(futures), asynchronous=True)

        bringing = asyncio.run_coroutine_threadsafe(bring(), self._client.loop.asyncio_loop)
        try:
            for _ in range(int(PATIENCE / LOOK)):
                if wait([bringing], timeout=LOOK).done:
                    return bringing.result()
                self._watch.look(bringing=True)
            return None
        finally:
            bringing.cancel()

    def close(self) -> None:
        """Let the cluster forget the blocks it was sent."""
        if self._held:
            self._client.cancel(self._held)
        self._held = []


Executor = Threads | Cluster


def completed(executor: Executor, futures: Sequence[Any]) -> Iterator[Any]:
    """Yield futures as they finish."""
    finished = executor.finished()
    for future in futures:
        finished.add(future)
    for _ in range(len(futures)):
        yield finished.take()


def current_client(client: Any) -> Any:
    """Return the client that work goes to: the given one, else the current one, else None."""
    if client is None and "distributed" in sys.modules:
        from distributed import Client

        try:
            return Client.current()
        except ValueError:
            return None
    return client


def choose(client: Any) -> Executor:
    """Return the executor for a client; for None, that of the current client if there is one."""
    client = current_client(client)
    return Threads() if client is None else Cluster(client)
