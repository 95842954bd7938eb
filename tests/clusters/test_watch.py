"""The watch over a cluster: what makes it complain, and what does not."""

from __future__ import annotations

import asyncio
import time
import warnings
from typing import Any

import pytest
from distributed.comm import CommClosedError

from irt_dask.clusters import checks
from irt_dask.clusters.checks import check_versions
from irt_dask.engine import executors, watch
from irt_dask.errors import ClusterError, StallWarning


class Cluster:
    """A client whose scheduler says what a test tells it to."""

    def __init__(self) -> None:
        self.workers: dict[str, int] = {"w1": 1, "w2": 1}
        self.running: dict[str, int] = dict(self.workers)
        self.tasks: dict[str, tuple[str, ...]] = {"w1": ("t",), "w2": ()}
        self.silent = False
        self.aside: int | None = None  # tasks put aside; None: it runs no functions
        self.offered = 0  # how often they were
        self.set_back = 0.0  # seconds, of this machine's clock
        self.scheduler: Any = self

    def ncores(self) -> Any:
        return self.workers

    def ncores_running(self) -> Any:
        return self.running

    def processing(self) -> Any:
        return self.tasks

    def run_on_scheduler(self, function: Any, *, callback_timeout: float) -> int:
        assert 0.0 < callback_timeout < 120.0
        if self.aside is None:
            raise ValueError("not allowed")
        self.offered += 1
        if self.aside:
            self.tasks = {"w1": ("t",), "w2": ()}
        return self.aside

    def sync(self, function: Any, *, workers: None, callback_timeout: float) -> Any:
        assert 0.0 < callback_timeout < 120.0  # no wait is for ever
        if self.silent:
            raise TimeoutError
        return function()


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A cluster, its watch, and a function that lets seconds pass, with a look every five."""
    now = [1000.0]
    monkeypatch.setattr(watch.time, "monotonic", lambda: now[0])
    cluster = Cluster()
    monkeypatch.setattr(watch.time, "time", lambda: 1e9 + now[0] - cluster.set_back)
    monkeypatch.setattr(watch, "_clock", [])
    over = watch.Watch(cluster)

    def passes(seconds: float) -> None:
        for _ in range(int(seconds // 5)):
            now[0] += 5.0
            over.look()

    return cluster, over, passes


def test_a_long_task_is_told_of_and_not_ended(watched: Any) -> None:
    _, over, passes = watched
    passes(595)
    with pytest.warns(StallWarning, match=r"for 10 minutes; 2 workers, at work w1 \(1 tasks\)"):
        passes(10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        over.progressed()
        passes(595)


@pytest.mark.parametrize(
    "state, message",
    [
        ({"workers": {}, "running": {}}, "no worker for 65 seconds"),
        ({"running": {}}, "all 2 workers have been paused .*memory is used up"),
        ({"tasks": {"w1": ()}}, "no worker has had a task.*end at the same time"),
        ({"tasks": {"w1": ()}, "aside": 0}, "no worker has had a task.*end at the same time"),
        ({"silent": True}, "scheduler has not answered for 65 seconds"),
    ],
)
def test_nothing_can_go_on(watched: Any, state: dict[str, Any], message: str) -> None:
    cluster, over, passes = watched
    passes(30)
    vars(cluster).update(state)
    passes(55)  # it may pass
    over.progressed()
    passes(60)
    with pytest.raises(ClusterError, match=message):
        passes(5)


def test_tasks_put_aside_are_offered_again(watched: Any) -> None:
    cluster, _, passes = watched
    cluster.aside = 2
    for _ in range(20):
        cluster.tasks = {"w1": ()}
        passes(5)
        assert cluster.tasks["w1"]
        passes(5)


def test_tasks_put_aside_do_not_wait_until_others_are_done(watched: Any) -> None:
    cluster, _, passes = watched
    passes(5)
    cluster.aside, cluster.offered = 1, 0
    cluster.tasks = {"w1": ("t",)}
    passes(60)
    assert cluster.offered == 0
    cluster.workers["w3"] = cluster.running["w3"] = 1  # a worker joins
    passes(5)
    assert cluster.offered == 1


def test_results_may_take_long_to_bring(watched: Any) -> None:
    """No worker has a task meanwhile; it does have to have one where tasks are to be repeated."""
    cluster, over, passes = watched
    cluster.tasks, cluster.aside = {"w1": ()}, 0
    passes(50)
    over.look(bringing=True)
    passes(60)
    cluster.aside = None  # not known
    over.progressed()
    passes(60)
    with pytest.raises(ClusterError, match="no worker has had a task"):
        passes(5)


def test_a_clock_that_went_backwards(watched: Any) -> None:
    """Dask holds messages back for as long as it was set back: of late, by much, and all wait."""
    cluster, over, passes = watched
    passes(300)
    cluster.set_back = 50.0  # they come within a minute
    passes(300)
    cluster.set_back += 86400.0
    cluster.tasks = {"w1": ()}  # that no worker has a task follows from it
    over.progressed()
    passes(60)
    with pytest.raises(ClusterError, match=r"went back by 864\d\d seconds, and no task .* 65"):
        passes(5)
    cluster.tasks = {"w1": ("t",)}
    over.progressed()
    for _ in range(12):  # tasks finish
        passes(55)
        over.progressed()
    with pytest.warns(StallWarning):
        passes(605)  # long ago


def test_workers_that_die_again_and_again(watched: Any) -> None:
    cluster, _, passes = watched

    def dying() -> None:
        for k in range(40):
            cluster.workers = {f"w{k}": 1, f"w{k + 1}": 1}
            passes(5)

    with pytest.raises(ClusterError, match=r"2\d worker processes have come and gone"):
        dying()


class Gone:
    """A client whose scheduler ended: what Dask raises differs by what it was doing."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.scheduler = Cluster()

    def sync(self, function: Any, *, workers: None, callback_timeout: float) -> Any:
        assert 0.0 < callback_timeout < 120.0
        raise self.error


@pytest.mark.parametrize(
    "error, message",
    [
        (OSError("Timed out trying to connect to tcp://127.0.0.1:9 after 30 s"), "went away"),
        (TimeoutError(), "has not answered for 65 seconds"),
        (CommClosedError("ConnectionPool closing."), "went away"),
    ],
)
def test_a_scheduler_that_is_gone_before_the_work_begins_is_named(
    error: Exception, message: str
) -> None:
    for begins in (check_versions, executors.Cluster):
        with pytest.raises(ClusterError, match=rf"scheduler {message}.* start the same command"):
            begins(Gone(error))


def test_workers_that_do_not_answer_are_named() -> None:
    """All are asked once before the work, over connections that may be cut without a word."""

    class Deaf:
        scheduler = Cluster()

        def sync(self, function: Any, *, callback_timeout: float, workers: None = None) -> Any:
            if function == self.scheduler.ncores:
                return {"tcp://a": 1, "tcp://b": 2}
            assert 0.0 < callback_timeout < 600.0
            raise TimeoutError

    with pytest.raises(ClusterError, match=r"not all workers \(tcp://a, tcp://b\) have answered"):
        check_versions(Deaf())


def test_a_first_worker_is_waited_for(watched: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a minute, though the clock is set back by an hour meanwhile."""
    cluster, now = watched[0], watch.time.monotonic()
    began, cluster.workers = now, {}

    def sleep(seconds: float) -> None:
        nonlocal now
        now, cluster.set_back = now + seconds, 3600.0
        if comes is not None and now > began + comes:
            cluster.workers = {"w1": 2}

    monkeypatch.setattr(watch.time, "monotonic", lambda: now)
    monkeypatch.setattr(watch.time, "sleep", sleep)
    for comes in (50.0, None):
        began, cluster.workers = now, {}
        if comes is not None:
            assert watch.awaited(cluster) == {"w1": 2}
            assert 50.0 <= now - began < 51.0
        else:
            with pytest.raises(ClusterError, match="no worker for 60 seconds"):
                watch.awaited(cluster)
            assert 60.0 <= now - began < 61.0


@pytest.mark.parametrize("deaf", ["scheduler", "workers"])
def test_a_cut_while_workers_are_asked_is_noticed_soon(
    deaf: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of slow workers behind a scheduler that answers there is more patience."""
    for name, seconds in (("LOOK", 0.02), ("PATIENCE", 0.1), ("_ANSWER", 1.0)):
        monkeypatch.setattr(checks, name, seconds)
    looks = []

    class Scheduler:
        async def ncores(self, workers: None) -> Any:
            looks.append(time.monotonic())
            if deaf == "scheduler" and len(looks) > 1:  # the first is before anybody is asked
                await asyncio.sleep(60.0)
            return {"tcp://a": 1}

    class Client:
        scheduler = Scheduler()

        async def run(self, *_: Any, on_error: str) -> Any:
            await asyncio.sleep(60.0)

        def sync(self, function: Any, *, callback_timeout: float, **options: Any) -> Any:
            return asyncio.run(asyncio.wait_for(function(**options), callback_timeout))

    began = time.monotonic()
    message = "scheduler has not answered" if deaf == "scheduler" else r"\(tcp://a\) have answered"
    with pytest.raises(ClusterError, match=message):
        check_versions(Client())
    assert (time.monotonic() - began < 0.9) == (deaf == "scheduler")
    assert len(looks) > (1 if deaf == "scheduler" else 5)


def test_an_answer_at_the_last_moment_does_not_keep_anybody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever gives up waiting for workers does, also as the scheduler answers."""
    monkeypatch.setattr(checks, "LOOK", 0.02)

    class Client:
        def __init__(self) -> None:
            self.scheduler = self

        async def ncores(self, workers: None) -> Any:
            if hasattr(self, "asking"):
                self.asking.cancel()
            return {"tcp://a": 1}

        async def run(self, *_: Any, on_error: str) -> Any:
            await asyncio.sleep(60.0)

        def sync(self, function: Any, *, callback_timeout: float, **options: Any) -> Any:
            async def given_up() -> Any:
                if options:  # before anybody is asked
                    return await function(**options)
                self.asking = asyncio.ensure_future(function())
                return (await asyncio.wait({self.asking}, timeout=2.0))[0]

            return asyncio.run(given_up())

    client = Client()
    assert checks._ask(client, checks.versions) == {client.asking}
    assert client.asking.cancelled()
