"""Weak scaling: k workers, k times the persons, the same work for each worker.

    python tests/benchmarks/scaling.py [--workers 1 2] [--pairs 5] [--scale 1.0] [--only NAME ...]

Efficiency is T(1 worker, n persons) / T(k workers, k n persons).  Stores on disk; local clusters of
processes with one thread each, started beforehand, kernels compiled and pages read; workers forget
their blocks before each run, so that every run reads its data again.  Iterations and sweeps are
fixed.  Runs of the sizes alternate.  A round begins when other programs take less than
``--foreign`` of a core (or after ``--patience`` seconds) and is repeated if they took more while it
ran or the hypervisor took 2%, three times as many rounds at most; if too few were quiet, the
quietest count, and the last column says how many cores others had in the worst of these.

"machine" is the same for a loop that touches neither memory nor cluster ("cpu") and for one that
streams through memory ("memory"): what the cores themselves lose to each other.  Of each method:
times (medians; the spread of the efficiency over rounds is its smallest and largest), CPU seconds
of a worker relative to one worker's, and the share of the run that driver and scheduler, which are
one process here, were busy and that workers were not.
"""

import argparse
import contextlib
import dataclasses
import functools
import os
import shutil
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import psutil

import irt_dask as irt
from irt_dask.engine import Engine

QUIET = {"progress": False}
#: Share of the time that the hypervisor may have given to others.
STEAL = 0.02


# --- what is measured -----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Method:
    """``run(responses, truth, folder, client, workers)`` on ``persons`` x ``items`` a worker."""

    run: Callable[..., Any]
    persons: int
    items: int


def _read(block):
    return (np.int64(block.n_persons),)


def read(r, truth, folder, client, workers):
    """Every block once: read, decompressed and checked."""
    with Engine(r, client=client, **QUIET) as engine:
        assert engine.map_reduce(_read)[0] == r.n_persons


#: Iterations; sweeps, as many as fit_bayes does by default.
JOINT_ITERATIONS, SWEEPS = 20, 2500


def joint(r, truth, folder, client, workers, iterations=JOINT_ITERATIONS):
    fit = irt.fit_joint(r, max_iterations=iterations, tolerance=-1.0, client=client, **QUIET)
    assert fit.attrs["n_iterations"] == iterations


def pair_counts(r, truth, folder, client, workers):
    irt.pair_counts(r, client=client, **QUIET)


def random_pairs(r, truth, folder, client, workers):
    irt.fit_pairwise(r, n_splits=4, standard_errors=False, client=client, **QUIET)


def gibbs(r, truth, folder, client, workers, sweeps=SWEEPS):
    """Two shards for each worker, combined and refined on all persons; 50 sweeps of warm-up."""
    irt.fit_bayes(
        r, n_shards=2 * workers, n_draws=sweeps - 50, n_warmup=50, client=client, **QUIET
    )  # fmt: skip


def score(r, truth, folder, client, workers):
    """From the store to Parquet files."""
    out = Path(folder) / "scores"
    irt.score(r, truth, store=out, client=client, **QUIET)
    shutil.rmtree(out)


METHODS = {
    "read": Method(read, 1 << 22, 40),
    "joint": Method(joint, 1 << 22, 40),
    "pair counts": Method(pair_counts, 1 << 20, 500),
    "random pairs": Method(random_pairs, 1 << 18, 40),
    "gibbs": Method(gibbs, 1 << 17, 40),
    "score": Method(score, 1 << 22, 40),
}


# --- the machine ----------------------------------------------------------------------------------


@numba.njit(nogil=True)
def _spin(n):
    x = np.uint64(88172645463325252)
    for _ in range(n):
        x ^= x << np.uint64(13)
        x ^= x >> np.uint64(7)
        x ^= x << np.uint64(17)
    return x


def spin(n):
    """CPU alone: a chain of shifts in registers."""
    begun = time.perf_counter()
    _spin(n)
    return time.perf_counter() - begun


def stream(n_times):
    """Memory alone: sums over 256 MiB."""
    x = np.ones(1 << 25)
    begun = time.perf_counter()
    for _ in range(n_times):
        x.sum()
    return time.perf_counter() - begun


CONTROLS = {"cpu": (spin, 1_500_000_000), "memory": (stream, 60)}


def control(client, function, n):
    """Seconds of the slowest of all workers that run it at the same time."""
    return max(client.run(function, n).values())


def forget():
    """Empty the cache of blocks; runs on the workers."""
    from irt_dask.engine import cache

    with cache._lock:
        cache._held.clear()
        cache._size = 0


def compile_and_load():
    """Compile what the controls need, and import what tasks do; runs on the workers."""
    import irt_dask.engine

    spin(10)
    return irt_dask.__file__


@dataclasses.dataclass
class Usage:
    """CPU seconds so far: of the driver, of workers, of the whole machine, and stolen."""

    driver: float
    workers: float
    machine: float
    stolen: float
    when: float

    def __sub__(self, other):
        values = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return Usage(*(a - b for a, b in values))


def usage(pids):
    """Of all clusters' workers (those of the idle ones hardly count).

    Others that are nice give way, and are not counted.
    """

    def seconds(process):
        times = process.cpu_times()
        return times.user + times.system

    t = psutil.cpu_times()
    busy = t.user + t.system + t.irq + t.softirq
    workers = sum(seconds(psutil.Process(p)) for p in pids)
    return Usage(seconds(psutil.Process()), workers, busy, t.steal, time.perf_counter())


def wait_for_quiet(pids, foreign, patience):
    """Wait until others leave the machine alone for a second."""
    begun = time.perf_counter()
    while time.perf_counter() - begun < patience:
        before = usage(pids)
        time.sleep(1.0)
        if Run.of(usage(pids) - before, 1).foreign <= foreign:
            return


@dataclasses.dataclass(frozen=True)
class Run:
    seconds: float
    driver: float  # share of the time that the driver's process was busy
    worker: float  # CPU seconds of a worker
    foreign: float  # cores that other programs had
    stolen: float  # share of the cores' time

    @classmethod
    def of(cls, used, workers):
        """Figures of a run from the differences of two usages."""
        cores = os.cpu_count()
        own = used.driver + used.workers
        return cls(
            used.when,
            used.driver / used.when,
            used.workers / workers,
            max(used.machine - own, 0.0) / used.when,
            used.stolen / (cores * used.when),
        )


# --- clusters and stores --------------------------------------------------------------------------


def rows_per_block(items):
    rows = max(1 << 20, items) // items
    return min(1 << (rows.bit_length() - 1), 1 << 14)


class Bench:
    """Clusters of each size, all started, and stores, made when first asked for."""

    def __init__(self, sizes, folder, stack):
        self.folder, self.clients, self._stores = Path(folder), {}, {}
        self.pids = []
        for k in sizes:
            self.clients[k] = stack.enter_context(irt.connect({"kind": "local", "workers": k}))
            self.clients[k].run(compile_and_load)
            self.pids += list(self.clients[k].run(os.getpid).values())

    def store(self, persons, items, rows=None, write=None):
        """Simulated responses, written once; blocks of as many persons whatever their number.

        ``write(path, persons, items, rows)`` makes others than complete ones of the 2PL.
        """
        key = persons, items, rows or rows_per_block(items), write
        if key not in self._stores:
            path = self.folder / f"{len(self._stores)}-{persons}-{items}"
            if write is None:
                irt.simulate(persons, items, store=path, rows_per_block=key[2])
            else:
                write(path, persons, items, key[2])
            self._stores[key] = irt.open_responses(path), truth(items)
        return self._stores[key]

    def drop(self):
        """Remove all stores."""
        for r, _ in self._stores.values():
            shutil.rmtree(r.path)
        self._stores = {}

    def timed(
        self, method, workers, persons, items, *, cold=True, rows=None, write=None, **options
    ):
        """One run on ``persons`` in all."""
        r, known = self.store(persons, items, rows, write)
        client = self.clients[workers]
        if cold:
            client.run(forget)
        before = usage(self.pids)
        method(r, known, self.folder, client, workers, **options)
        return Run.of(usage(self.pids) - before, workers)


def truth(items):
    """Items to score with; those of all simulations of so many items."""
    return irt.simulate(1, items).truth.drop_vars("person_ability")


@contextlib.contextmanager
def bench(sizes):
    warnings.simplefilter("ignore", irt.ConvergenceWarning)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="scaling-"))
        yield Bench(sizes, folder, stack)


# --- tables ---------------------------------------------------------------------------------------


def rounds_of(run, sizes, options, wait):
    """The rounds that count, each of one run of every size, and the most that others had."""
    done = []

    def disturbed(runs):
        return max(max(r.foreign, r.stolen / STEAL * options.foreign) for r in runs.values())

    for _ in range(3 * options.pairs):
        wait()
        done.append({k: run(k) for k in sizes})
        done.sort(key=disturbed)
        if len(done) >= options.pairs and disturbed(done[options.pairs - 1]) <= options.foreign:
            break
    kept = done[: options.pairs]
    return kept, max(r.foreign for runs in kept for r in runs.values())


def machine(b, sizes, wanted, wait):
    """Efficiency of the cores by themselves."""
    out = {}
    for name, (function, n) in CONTROLS.items():
        found = []
        for _ in range(wanted):
            wait()
            times = {k: control(b.clients[k], function, n) for k in sizes}
            found.append({k: times[sizes[0]] / times[k] for k in sizes})
        out[name] = {k: statistics.median(f[k] for f in found) for k in sizes}
        for k in sizes[1:]:
            spread = sorted(f[k] for f in found)
            print(
                f"machine, {name:<7} {k:>2} processes: efficiency {out[name][k]:.3f} "
                f"({spread[0]:.3f} to {spread[-1]:.3f})",
                flush=True,
            )
    return out


def table(b, names, sizes, options):
    wait = functools.partial(wait_for_quiet, b.pids, options.foreign, options.patience)
    by_itself = machine(b, sizes, options.pairs, wait)
    print(
        f"\n{'method':<13} {'persons/worker':>14} {'items':>5} {'k':>2} {'T(1) s':>7} "
        f"{'T(k) s':>7} "
        f"{'efficiency':>10} {'spread':>13} {'/ cpu':>6} {'CPU':>5} {'driver':>6} {'idle':>5} "
        f"{'others':>6}"
    )
    for name in names:
        m = METHODS[name]
        n = int(m.persons * options.scale)

        def run(k, m=m, n=n):
            return b.timed(m.run, k, k * n, m.items)

        for k in sizes:
            run(k)  # compiles, and reads the files into the system's memory
        found, foreign = rounds_of(run, sizes, options, wait)
        one = [f[sizes[0]] for f in found]
        for k in sizes[1:]:
            more = [f[k] for f in found]
            ratio = [x.seconds / y.seconds for x, y in zip(one, more, strict=True)]
            t1, tk = (statistics.median(r.seconds for r in rs) for rs in (one, more))
            cpu = statistics.median(y.worker / x.worker for x, y in zip(one, more, strict=True))
            idle = statistics.median(1.0 - r.worker / r.seconds for r in more)
            driver = statistics.median(r.driver for r in more)
            print(
                f"{name:<13} {n:>14,} {m.items:>5} {k:>2} {t1:>7.2f} {tk:>7.2f} {t1 / tk:>10.3f} "
                f"{min(ratio):>6.3f}-{max(ratio):<6.3f} {t1 / tk / by_itself['cpu'][k]:>6.3f} "
                f"{cpu:>5.2f} {driver:>6.2f} {idle:>5.2f} {foreign:>6.2f}",
                flush=True,
            )
        b.drop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--pairs", type=int, default=5, help="rounds that count, at least 5")
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of persons")
    parser.add_argument("--foreign", type=float, default=0.1, help="cores that others may use")
    parser.add_argument("--patience", type=float, default=20.0, help="seconds to wait for quiet")
    parser.add_argument("--only", nargs="+", choices=METHODS, default=list(METHODS))
    options = parser.parse_args()
    sizes = sorted(set(options.workers))
    if len(sizes) < 2 or sizes[0] != 1:
        parser.error("--workers: 1 and at least one more, such as 1 2")
    if sizes[-1] > len(os.sched_getaffinity(0)):
        parser.error(f"--workers {sizes[-1]}: this machine has fewer cores")
    with bench(sizes) as b:
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}")
        table(b, options.only, sizes, options)


if __name__ == "__main__":
    main()
