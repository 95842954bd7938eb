"""The graph and the scheduler at scale: 200 workers, 100,000 blocks, tasks that only sleep.

    python tests/benchmarks/scheduler.py [--workers 200] [--threads 1] [--blocks 100000]
        [--milliseconds 4] [--rounds 5]
        [--chains 200] [--segments 10] [--segment-seconds 1] [--profile FILE]

Workers are threads of one process, so that all overhead is that of driver and scheduler, on one
core: the other side of it, that of worker processes, is left out.  A round is a pass over all
blocks, of which each takes ``--milliseconds``, as if its sums were computed; the ideal is blocks x
milliseconds / workers.  "balance" is what the best order of the round's tasks would take, next to
the ideal: the rest is overhead.  Chains are those of ``fit_bayes``, one task a segment, one after
the other; the ideal is segments x seconds x chains / workers.
"""

import argparse
import contextlib
import cProfile
import dataclasses
import math
import resource
import threading
import time
import warnings

import dask
import numpy as np
import psutil
from distributed import Client, LocalCluster

from irt_dask.engine import Chain, Checkpoint, Engine, executors, run_chains
from irt_dask.kernels.responses.layouts import Dense
from irt_dask.store import Block, Responses

EMPTY = Dense(np.zeros((1, 1), dtype=np.int8))
#: What each worker process does by itself all the time; 200 of them in one would do little else.
OWN = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "60s",
    "distributed.admin.tick.interval": "60s",
    "distributed.admin.tick.limit": "600s",
    "distributed.admin.tick.cycle": "60s",
    "distributed.worker.memory.monitor-interval": "60s",
}
#: A thread sleeps when it owes so many seconds: waking it for every block would be the measurement.
_NAP = 0.05
_owed = threading.local()


@dataclasses.dataclass(frozen=True)
class Pretended:
    """A block that is not there, with the fields that travel with one that is."""

    path: str
    checksum: str
    part: str
    index: int
    columns: tuple[str, ...] = ("person_id",)

    @property
    def start(self):
        return self.index

    @property
    def cache_key(self):
        return None  # what is not kept is made anew, at no cost

    def read(self):
        return Block(self.index, self.index, EMPTY)


class Many:
    """The blocks of a store, made when asked for, as those of a real one are."""

    def __init__(self, n):
        self.n = n

    def _one(self, k):
        return Pretended("/data/assessment/responses.store", "0" * 64, "part-00000", k)

    def __len__(self):
        return self.n

    def __getitem__(self, k):
        if isinstance(k, slice):
            return [self._one(i) for i in range(*k.indices(self.n))]
        return self._one(k)

    def __iter__(self):
        return map(self._one, range(self.n))


def sleep(seconds):
    """Sleep so long on average: debts of a thread are paid together."""
    _owed.seconds = getattr(_owed, "seconds", 0.0) + seconds
    if _owed.seconds >= _NAP:
        begun = time.perf_counter()
        time.sleep(_owed.seconds)
        _owed.seconds -= time.perf_counter() - begun


def work(block, seconds, value):
    """A pass over a block; its result depends on what the driver sent."""
    sleep(seconds)
    return (np.full(500, block.index * value, dtype=np.int64),)


def whole(ref, seconds):
    sleep(seconds)
    return ref.index


def segment(seconds, refs, state):
    """A segment of a chain, with draws of 40 items."""
    time.sleep(seconds)
    step = int(state["step"]) + 1
    return {**state, "step": np.array(step)}, {"draws": np.full((20, 2, 40), float(step))}


class SleepingSegment:
    """What the engine takes for a segment; picklable."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __call__(self, refs, state):
        return segment(self.seconds, refs, state)


def balance(n_blocks, n_workers):
    """Time of the tasks in the best order, next to the ideal."""
    wanted, size = int(executors.TASKS_PER_THREAD * n_workers), 1
    while -(-n_blocks // size) > wanted:
        size *= 2
    n_tasks = -(-n_blocks // size)
    return n_tasks, math.ceil(n_tasks / n_workers) * size * n_workers / n_blocks


def rounds(engine, n, workers, seconds, n_rounds):
    ideal = n * seconds / workers
    n_tasks, best = balance(n, workers)
    print(
        f"{n:,} blocks of {seconds * 1e3:g} ms: ideal {ideal:.2f} s a round; {n_tasks} tasks, "
        f"balance {best:.2f}"
    )
    process = psutil.Process()
    for k in range(1, n_rounds + 1):
        cpu, begun = sum(process.cpu_times()[:2]), time.perf_counter()
        (total,) = engine.map_reduce(work, seconds, k)
        taken = time.perf_counter() - begun
        cpu = sum(process.cpu_times()[:2]) - cpu
        assert (total == k * n * (n - 1) // 2).all()
        print(
            f"map_reduce {k}: {taken:6.2f} s, {taken / ideal:5.2f} times the ideal, overhead "
            f"{taken - best * ideal:5.2f} s, CPU {cpu:5.2f} s, {cpu / n_tasks * 1e3:.1f} ms a task",
            flush=True,
        )
    begun = time.perf_counter()
    found = engine.map_refs(whole, seconds)
    taken = time.perf_counter() - begun
    assert found == list(range(n))
    print(f"map_refs    : {taken:6.2f} s, {taken / ideal:5.2f} times the ideal", flush=True)


def chains(engine, n_chains, n_segments, seconds, workers):
    every = [Chain(f"chain-{k}", {"step": np.array(0), "k": np.array(k)}) for k in range(n_chains)]
    ideal = n_segments * seconds * math.ceil(n_chains / workers)
    process = psutil.Process()
    cpu, begun = sum(process.cpu_times()[:2]), time.perf_counter()
    done = run_chains(
        engine, every, SleepingSegment(seconds), n_segments, Checkpoint(None, {}), refs=[]
    )
    taken = time.perf_counter() - begun
    cpu = sum(process.cpu_times()[:2]) - cpu
    assert all(len(c.outputs) == n_segments for c in done)
    n = n_chains * n_segments
    print(
        f"{n_chains} chains of {n_segments} segments of {seconds:g} s: {taken:.2f} s, "
        f"{taken / ideal:.2f} times the ideal, CPU {cpu:.1f} s, {cpu / n * 1e3:.1f} ms a segment",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1, help="of each worker")
    parser.add_argument("--blocks", type=int, default=100_000)
    parser.add_argument("--milliseconds", type=float, nargs="+", default=[4.0, 0.6])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--chains", type=int, default=200)
    parser.add_argument("--segments", type=int, default=10)
    parser.add_argument("--segment-seconds", type=float, default=1.0)
    parser.add_argument("--profile", help="write a profile of the driver's thread there")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    n, workers = options.blocks, options.workers
    threads = workers * options.threads
    responses = Responses(Many(n), n, ("item",), "pretended")
    begun = time.perf_counter()
    with contextlib.ExitStack() as stack:
        stack.enter_context(dask.config.set(OWN))
        cluster = stack.enter_context(
            LocalCluster(
                n_workers=workers, threads_per_worker=options.threads, processes=False,
                memory_limit=0, dashboard_address=None,
            )
        )  # fmt: skip
        client = stack.enter_context(Client(cluster))
        print(f"{len(client.nthreads())} workers started in {time.perf_counter() - begun:.0f} s")
        if options.profile:
            profile = stack.enter_context(cProfile.Profile())
            stack.callback(lambda: profile.dump_stats(options.profile))
        engine = stack.enter_context(
            Engine(responses, client=client, progress=False, stage="scheduler")
        )
        engine._refs = responses.refs  # as of a store: they travel with the tasks
        for milliseconds in options.milliseconds:
            rounds(engine, n, threads, milliseconds / 1e3, options.rounds)
        if options.chains:
            chains(engine, options.chains, options.segments, options.segment_seconds, threads)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"largest memory of driver, scheduler and workers together: {most:.2f} GiB")


if __name__ == "__main__":
    import scheduler  # by name: functions of the main module would travel with every task

    scheduler.main()
