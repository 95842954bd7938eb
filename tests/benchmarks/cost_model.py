"""What each method costs, fitted to measurements, checked, and carried on to 10^9 persons.

    python tests/benchmarks/cost_model.py [--workers 1 2] [--repeats 3] [--scale 1.0] [--on 100]

The time of a run is a sum of terms, each known before the run (persons of a worker times passes,
and so on), times coefficients that least squares on relative errors finds (none below 0), from
medians of runs on 1 and 2 worker processes.  Sizes marked "check" are not used for that.  The
predictions are for ``--on`` workers of one core, whose tasks the scheduler hands out one after the
other.  Left out: contention for the network and for storage, its latency, workers of unequal speed,
failures.
"""

import argparse
import functools
import os
import pickle
import statistics
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scaling
from scipy.optimize import nnls

import irt_dask as irt
from irt_dask.calibrate.bayes import barycenter
from irt_dask.calibrate.bayes.shards import ShardPosterior
from irt_dask.calibrate.joint.person_step import N_NODES
from irt_dask.engine import Engine, executors
from irt_dask.kernels.responses.layouts import to_dense
from irt_dask.store import StoreWriter, default_rows_per_block


class Case(NamedTuple):
    """A run: workers, persons in all, items, passes (or sweeps), shards, persons of a block."""

    k: int
    n: int
    m: int
    p: int
    s: int = 1
    rows: int | None = None

    @property
    def blocks(self):
        return -(-self.n // (self.rows or scaling.rows_per_block(self.m)))

    @property
    def pairs(self):
        return self.m * (self.m - 1) / 2

    @property
    def gathered(self):
        """Partial sums that are added one after the other: by the driver, or by a task before."""
        tasks = min(executors.TASKS_PER_THREAD * self.k, self.blocks)
        return tasks if tasks <= executors.Cluster.max_gathered else tasks / 16 + 16


#: Persons of the runs that compile and are not timed.
COMPILED_WITH = 4096
#: Terms: name, unit of the coefficient as printed, factor to it, value from a case.
TERMS = {
    "start": ("ms a run", 1e3, lambda c: 1.0),
    "round": ("ms a pass", 1e3, lambda c: c.p),
    "item step": ("us an item and pass", 1e6, lambda c: c.p * c.m),
    "sweep": ("us a shard and sweep", 1e6, lambda c: c.p * c.s / c.k),
    "item draw": ("us an item, shard and sweep", 1e6, lambda c: c.p * c.m * c.s / c.k),
    "read": ("ns a response", 1e9, lambda c: c.n * c.m / c.k),
    "read by a shard": ("ns a response and shard", 1e9, lambda c: c.n * c.m * c.s / c.k),
    "sums": ("ns a block and pair", 1e9, lambda c: c.blocks * c.pairs / c.k),
    "gathered": ("ns a task and pair", 1e9, lambda c: c.gathered * c.pairs),
    "identifier": ("ns a person", 1e9, lambda c: c.n / c.k),
    "person": ("ns a person and pass", 1e9, lambda c: c.p * c.n / c.k),
    "response": ("ns a response and pass", 1e9, lambda c: c.p * c.n * c.m / c.k),
    "pair": ("ps a person and pair", 1e12, lambda c: c.n * c.pairs / c.k),
}  # fmt: skip


def joint(*args, passes, shards):
    scaling.joint(*args, iterations=passes - 3)


def gibbs(r, truth, folder, client, workers, passes, shards):
    """With 40 items or more, where a draw is one sweep."""
    irt.fit_bayes(
        r, n_shards=shards, n_draws=passes - 50, n_warmup=50, client=client, **scaling.QUIET
    )


def marginal(r, truth, folder, client, workers, passes, shards, model="2pl"):
    fit = irt.fit_marginal(
        r, model=model, max_iterations=passes, tolerance=1e-300, standard_errors=False,
        client=client, **scaling.QUIET,
    )  # fmt: skip
    assert fit.attrs["n_iterations"] == passes or r.n_persons == COMPILED_WITH


def booklets(path, persons, items, rows, categories=2):
    """Six booklets of a half of the items each, an overlapping three of six clusters."""
    model = "2pl" if categories == 2 else "gpcm"
    made = irt.simulate(persons, items, model=model, categories=categories, rows_per_block=rows)
    cluster, begun = np.arange(items) * 6 // items, 0
    with StoreWriter(
        path, item_id=made.item_id, n_persons=persons, rows_per_block=rows,
        categories=categories,
    ) as writer:  # fmt: skip
        for k in range(made.n_blocks):
            y = to_dense(made.read_block(k).data).values.copy()
            person = begun + np.arange(len(y))
            y[(cluster - person[:, None]) % 6 > 2] = -1
            writer.write(y, person_id=[str(i) for i in person])
            begun += len(y)
        writer.commit()


def once(function):
    def run(*args, passes, shards):
        function(*args)

    return run


#: What other data methods are measured on than complete ones of the 2PL.
DATA = {"booklets": booklets, "gpcm": functools.partial(booklets, categories=4)}
#: Terms of an EM algorithm.
OF_EM = ("start", "round", "item step", "read", "person", "response")
#: Of each method: what runs, its terms, sizes to fit and to check, as in Case after the workers.
METHODS = {
    "read": (
        once(scaling.read), ("start", "identifier", "read"),
        [(1 << 21, 20, 1), (1 << 20, 160, 1), (1 << 23, 20, 1), (1 << 21, 80, 1)],
        [(1 << 22, 40, 1)],
    ),
    "joint": (
        joint, ("start", "round", "item step", "read", "person", "response"),
        [(1 << 18, 20, 43), (1 << 18, 160, 23), (1 << 20, 20, 43), (1 << 20, 80, 23),
         (1 << 14, 160, 43)],
        [(1 << 21, 40, 33)],
    ),
    "pair counts": (
        once(scaling.pair_counts), ("start", "gathered", "sums", "read", "pair"),
        [(1 << 21, 125, 1), (1 << 19, 250, 1), (1 << 20, 250, 1, 1, 1 << 14), (1 << 16, 1000, 1),
         (1 << 17, 1000, 1), (1 << 18, 1000, 1, 1, 1 << 13)],
        [(1 << 19, 500, 1), (1 << 20, 500, 1, 1, 1 << 13)],
    ),
    "random pairs": (
        once(scaling.random_pairs), ("start", "identifier", "read"),
        [(1 << 18, 20, 1), (1 << 17, 80, 1), (1 << 19, 20, 1), (1 << 18, 80, 1)],
        [(1 << 19, 40, 1)],
    ),
    **{
        name: (
            functools.partial(marginal, model="gpcm" if name == "gpcm" else "2pl"), OF_EM,
            [(1 << 17, 20, 6), (1 << 17, 80, 3), (1 << 19, 20, 3), (1 << 18, 80, 6),
             (1 << 14, 80, 6), (1 << 16, 160, 3)],
            [(1 << 20, 40, 5), (1 << 18, 120, 4), (1 << 16, 60, 6)],
        )
        for name in ("marginal", *DATA)
    },
    "gibbs": (
        gibbs,
        ("start", "sweep", "item draw", "read", "read by a shard", "person", "response"),
        [(1 << 16, 40, 600, 2), (1 << 16, 40, 1200, 2), (1 << 18, 40, 300, 2),
         (1 << 16, 160, 300, 2), (1 << 18, 40, 150, 8), (1 << 16, 160, 300, 8)],
        [(1 << 18, 80, 400, 2), (1 << 17, 80, 300, 6)],
    ),
    "score": (
        once(scaling.score), ("start", "identifier", "read"),
        [(1 << 19, 20, 1), (1 << 19, 80, 1), (1 << 21, 20, 1), (1 << 20, 80, 1)],
        [(1 << 22, 40, 1)],
    ),
}  # fmt: skip

#: Predictions: items, and passes of a fit; sweeps of fit_bayes's defaults, with a shard a worker.
PREDICTED = {
    "read": (40, 1), "joint": (40, 33), "pair counts": (500, 1), "random pairs": (40, 1),
    "gibbs": (40, 2500), "score": (40, 1), "marginal": (40, 8), "booklets": (60, 8),
    "gpcm": (60, 8),
}  # fmt: skip


# --- measuring ------------------------------------------------------------------------------------


def measure(b, name, sizes, workers, options):
    """Median seconds of every size on every number of workers; they alternate."""
    run = METHODS[name][0]
    wait = functools.partial(scaling.wait_for_quiet, b.pids, options.foreign, options.patience)
    cases = [
        Case(k, max(int(n * options.scale), 1024), *more) for n, *more in sizes for k in workers
    ]
    times = {case: [] for case in cases}

    def once(c, persons):
        return b.timed(
            run, c.k, persons, c.m, rows=c.rows, write=DATA.get(name), passes=c.p, shards=c.s
        )

    for case in cases:
        once(case, COMPILED_WITH)
    for _ in range(options.repeats):
        for case in cases:
            wait()
            times[case].append(once(case, case.n))
    most = max(r.foreign for runs in times.values() for r in _quietest(runs))
    print(f"\n{name}: other programs had up to {most:.2f} cores")
    return {
        c: statistics.median(_seconds(r, options.cpu) for r in _quietest(runs))
        for c, runs in times.items()
    }


def _seconds(run, cpu):
    """Of a run; of the processors, a worker's and after each other the driver's, if asked for."""
    return run.worker + run.driver * run.seconds if cpu else run.seconds


def _quietest(runs):
    """The half of the runs, rounded up, in which other programs had the least."""
    return sorted(runs, key=lambda r: r.foreign)[: -(-len(runs) // 2)]


def row(terms, case):
    return np.array([TERMS[t][2](case) for t in terms])


def fit(terms, times):
    """Coefficients, none below 0, of least squares on relative errors."""
    cases, seconds = list(times), np.array(list(times.values()))
    design = np.array([row(terms, c) for c in cases]) / seconds[:, None]
    size = np.linalg.norm(design, axis=0)
    x, _ = nnls(design / size, np.ones(len(cases)))
    return x / size


def show(what, terms, x, times):
    """Print what the model says of runs next to what they took."""
    for c, seconds in times.items():
        predicted = row(terms, c) @ x
        size = f"{c.n:,} x {c.m}, passes {c.p}, shards {c.s}, {c.blocks} blocks"
        print(
            f"  {what}: {c.k} workers, {size}: {seconds:.2f} s, model {predicted:.2f} "
            f"({predicted / seconds - 1.0:+.1%})",
            flush=True,
        )


# --- messages -------------------------------------------------------------------------------------


def _nothing(block):
    return (np.zeros(4),)


def overhead(b, r, k, n_rounds=20):
    """Seconds of a round that does nothing but exist, and its tasks."""
    with Engine(r, client=b.clients[k], prepare=_empty, progress=False) as engine:
        engine.map_reduce(_nothing)  # what is prepared is kept
        begun = time.perf_counter()
        for _ in range(n_rounds):
            engine.map_reduce(_nothing)
        return (time.perf_counter() - begun) / n_rounds


class _Empty:
    nbytes = 0


def _empty(block):
    return _Empty()


def tasks(b, r, workers):
    """Print what a round costs by its number of tasks; return seconds a task."""
    before, found = executors.TASKS_PER_THREAD, {}
    print("\nrounds without work: tasks, ms a round, tasks a second")
    try:
        for k in workers:
            for per_thread in (4, 16, 64):
                executors.TASKS_PER_THREAD = per_thread
                n = min(k * per_thread, r.n_blocks)
                seconds = overhead(b, r, k)
                found[k, n] = seconds
                print(f"  {k} workers {n:>4} {seconds * 1e3:>8.1f} {n / seconds:>7.0f}", flush=True)
    finally:
        executors.TASKS_PER_THREAD = before
    k = workers[-1]
    counts, seconds = zip(*((n, s) for (at, n), s in found.items() if at == k), strict=True)
    return float(np.polyfit(counts, seconds, 1)[0])


def combination(n_shards, m, n_draws):
    """Seconds in which the driver combines so many shards with draws like those of a posterior."""
    rng = np.random.default_rng(0)
    shards = [
        ShardPosterior(
            rng.normal(size=(n_draws, 2, m)) * 0.01 + [[[0.1], [0.2]]], 10**5,
            rhat=np.ones((2, m)), ess=np.full((2, m), 4.0 * n_draws), acceptance=1.0, spacing=0.0,
        )
        for _ in range(n_shards)
    ]  # fmt: skip
    begun = time.perf_counter()
    barycenter.combine(shards, n_draws)
    return time.perf_counter() - begun


def stored_bytes(r):
    """Bytes on disk a person, in responses and in identifiers, and of a message about a block."""
    root = Path(r.path)

    def size(name):
        return sum(f.stat().st_size for f in (root / "part-00000" / name).rglob("*") if f.is_file())

    refs = r.refs[: r.n_blocks]
    message = len(pickle.dumps(refs)) / r.n_blocks
    return size("response") / r.n_persons, size("person_id") / r.n_persons, message


# --- predictions ----------------------------------------------------------------------------------


def driver_bytes(name, m, n_blocks, workers):
    """Large arrays that the driver holds at once, from what the methods say of themselves."""
    gathered = min(4 * workers, 64 + 16)
    return {
        "read": 8 * gathered,
        "joint": 8 * gathered * (N_NODES + 2 * m + 6) + 8 * N_NODES * m,
        "pair counts": (gathered + 2) * 2 * 8 * m * m,
        "random pairs": gathered * 16 * m * m + 120 * m * m / 2,
        "gibbs": min(8 * 2 * m * 2000 * workers, 512 << 20) * 3,
        "score": 1500 * n_blocks,
        **dict.fromkeys(("marginal", "booklets"), gathered * 8 * m * 2 * 128),
        "gpcm": gathered * 8 * m * 4 * 128,
    }[name] + 600 * n_blocks  # and the manifest


def predictions(models, per_task, disk, options):
    responses, identifiers, message = disk
    k = options.on
    combined = combination(k, PREDICTED["gibbs"][0], 2000)
    print(f"\nthe driver combines {k} shards with 2,000 draws of 40 items in {combined:.1f} s")
    print(f"\npredicted on {k} workers; s; a task costs the scheduler {per_task * 1e3:.2f} ms")
    print(
        f"{'method':<13} {'persons':>13} {'items':>5} {'passes':>6} {'s/pass':>9} {'total':>10} "
        f"{'sched. s':>8} {'store GB':>8} {'read GB':>8} {'sent GB':>8} {'driver MB':>9}"
    )
    for name, (terms, x) in models.items():
        m, p = PREDICTED[name]
        for n in (10**7, 10**8, 10**9):
            case = Case(k, n, m, p, k, default_rows_per_block(m, n))
            seconds, n_blocks = float(row(terms, case) @ x), case.blocks
            rounds = 7 if name == "gibbs" else p  # of its passes over the data; sweeps send nothing
            n_tasks = min(executors.TASKS_PER_THREAD * k, n_blocks)
            scheduler = rounds * n_tasks * per_task
            if name == "gibbs":
                scheduler += k * p / 20 * per_task  # chains are cut after 20 sweeps or more
                seconds += combined
            store = n * (responses * m / 40 + identifiers) / 1e9
            read = n * responses * m / 40 / 1e9 * (k if name == "gibbs" else 1)
            read += n * identifiers / 1e9 if name == "score" else 0.0
            result = {
                "joint": 8 * (N_NODES + 2 * m + 6), "pair counts": 16 * m * m,
                "random pairs": 16 * m * m, "gibbs": 8 * 2 * 600 * m,
                "marginal": 8 * 2 * m * 128, "booklets": 8 * 2 * m * 128, "gpcm": 8 * 4 * m * 128,
            }.get(name, 1000)  # fmt: skip
            sent = rounds * (n_tasks * (result + 1000 + 32 * m) + n_blocks * message) / 1e9
            driver = driver_bytes(name, m, n_blocks, k) / 1e6
            print(
                f"{name:<13} {n:>13,} {m:>5} {p:>6} {(seconds + scheduler) / p:>9.3g} "
                f"{seconds + scheduler:>10.4g} {scheduler:>8.3g} {store:>8.3g} {read:>8.3g} "
                f"{sent:>8.3g} {driver:>9.3g}"
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of persons")
    parser.add_argument("--foreign", type=float, default=0.1, help="cores that others may use")
    parser.add_argument("--patience", type=float, default=20.0, help="seconds to wait for quiet")
    parser.add_argument("--on", type=int, default=100, help="workers to predict for")
    parser.add_argument(
        "--cpu",
        action="store_true",
        help="fit CPU seconds of a worker plus the driver's: where others use the machine too",
    )
    parser.add_argument("--only", nargs="+", choices=METHODS, default=list(METHODS))
    options = parser.parse_args()
    models = {}
    with scaling.bench(options.workers) as b:
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}")
        for name in options.only:
            _, terms, sizes, checks = METHODS[name]
            times = measure(b, name, sizes, options.workers, options)
            x = fit(terms, times)
            show("fitted", terms, x, times)
            for t, value in zip(terms, x, strict=True):
                print(f"  {t:<20} {value * TERMS[t][1]:>10.4g} {TERMS[t][0]}")
            show("check", terms, x, measure(b, name, checks, options.workers, options))
            models[name] = terms, x
            b.drop()
        r, _ = b.store(int((1 << 22) * options.scale), 40)
        disk = stored_bytes(r)
        print(
            f"\non disk {disk[0]:.2f} bytes a person of 40 responses, {disk[1]:.2f} for the "
            f"identifier; a block in a message {disk[2]:.0f} bytes"
        )
        per_task = tasks(b, r, options.workers)
    predictions(models, per_task, disk, options)


if __name__ == "__main__":
    main()
