"""Scoring: persons a second beside the implementations on PyPI, memory, accuracy, coverage.

    pip install mirt==1.2.0 girth==0.8.0        (for these tables only)
    python tests/benchmarks/scoring.py speed      EAPs of 1,000,000 x 40, in memory and from a store
    python tests/benchmarks/scoring.py large      10,000,000 x 40 from a store: memory
    python tests/benchmarks/scoring.py accuracy   against quadrature and SciPy's optima
    python tests/benchmarks/scoring.py coverage   95% intervals; differences of groups  [FIGURE]

Seeds are fixed; items are known, but for ``coverage``, which says so.
"""

import multiprocessing
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil
from scipy.integrate import quad
from scipy.optimize import brentq, minimize_scalar

import irt_dask as irt
from irt_dask.engine import dataset
from irt_dask.store import StoreWriter

ITEMS = 40
QUIET = {"progress": False}


def bank(m=ITEMS, seed=0):
    rng = np.random.default_rng(seed)
    a, d = np.exp(rng.normal(0.1, 0.3, m)), rng.normal(size=m)
    values = {"item_discrimination": a, "item_intercept": d, "item_difficulty": -d / a}
    return dataset(values, item_id=tuple(f"i{j}" for j in range(m)), attrs={"model": "2pl"})


def respond(items, theta, rng):
    a, d = items["item_discrimination"].values, items["item_intercept"].values
    out = np.empty((len(theta), len(a)), dtype=np.int8)
    for lo in range(0, len(theta), 50_000):
        z = a * theta[lo : lo + 50_000, None] + d
        out[lo : lo + 50_000] = rng.random(z.shape) < 1.0 / (1.0 + np.exp(-z))
    return out


def seconds(function):
    begun = time.perf_counter()
    result = function()
    return time.perf_counter() - begun, result


def median(function, repeat=5):
    return float(np.median([seconds(function)[0] for _ in range(repeat)]))


def write_store(path, items, n, seed=1):
    """A store of n simulated persons, made block by block."""
    from irt_dask.store.writer import default_rows_per_block

    rng = np.random.default_rng(seed)
    rows = default_rows_per_block(ITEMS, n)
    ids = items["item_id"].values
    with StoreWriter(path, item_id=ids, n_persons=n, rows_per_block=rows) as writer:
        for lo in range(0, n, rows):
            size = min(rows, n - lo)
            names = np.array([f"p{i}" for i in range(lo, lo + size)], dtype=object)
            writer.write(respond(items, rng.normal(size=size), rng), person_id=names)
        writer.commit()
    return irt.open_responses(path)


# --- speed ----------------------------------------------------------------------------------------


def speed():
    import girth
    import mirt

    items, n = bank(), 1_000_000
    rng = np.random.default_rng(1)
    y = respond(items, rng.normal(size=n), rng)
    r = irt.from_array(y, item_id=items["item_id"].values)
    irt.score(r.select(persons=slice(0, 100)), items)
    print(f"EAP, {n:,} x {ITEMS} complete, {os.cpu_count()} cores: million persons a second")
    memory = n / median(lambda: irt.score(r, items, **QUIET)) / 1e6
    print(f"{'irt_dask, memory to memory':<34} {memory:>7.2f}", flush=True)
    a, b = items["item_discrimination"].values, items["item_difficulty"].values
    whole = y.astype(int)
    fit = mirt.fit_mirt(whole[:5000], compute_standard_errors=False)  # it scores with fits only
    theirs = n / median(lambda: mirt.fscores(fit, whole, method="EAP"), 3) / 1e6
    print(
        f"{'mirt 1.2, fscores, 49 points':<34} {theirs:>7.3f}   {memory / theirs:.0f} times slower"
    )
    few = whole[:50_000]
    wide = few.T.copy()
    gs = len(few) / median(lambda: girth.ability_eap(wide, b, a), 3) / 1e6
    print(f"{'girth 0.8, ability_eap':<34} {gs:>7.3f}   {memory / gs:.0f} times slower", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        stored = write_store(path / "store", items, n)
        for name, client in (("threads", False), ("LocalCluster", True)):
            times = []
            if client:
                with irt.connect():
                    for k in range(4):
                        out = path / f"{name}{k}"
                        times.append(
                            seconds(lambda o=out: irt.score(stored, items, store=o, **QUIET))[0]
                        )
            else:
                for k in range(4):
                    out = path / f"{name}{k}"
                    times.append(
                        seconds(lambda o=out: irt.score(stored, items, store=o, **QUIET))[0]
                    )
            best = n / float(np.median(times[1:])) / 1e6
            print(f"{'irt_dask, store to Parquet, ' + name:<34} {best:>7.2f}", flush=True)
        again = seconds(lambda: irt.score(stored, items, store=out, **QUIET))[0]
        print(f"{'the same again, seconds':<34} {again:>7.3f}")


# --- memory ---------------------------------------------------------------------------------------


class Peak:
    """Largest memory of this process while it runs, bytes."""

    def __enter__(self):
        self.most, self.stop = 0, threading.Event()
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()
        return self

    def _watch(self):
        process = psutil.Process()
        while not self.stop.wait(0.02):
            self.most = max(self.most, process.memory_info().rss)

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()


def _score_alone(path, out, queue):
    with Peak() as peak:
        taken, _ = seconds(lambda: irt.score(irt.open_responses(path), bank(), store=out, **QUIET))
    queue.put((taken, peak.most))


def large():
    print(
        f"{'persons':>11} {'blocks':>7} {'seconds':>8} {'million/s':>10} {'largest memory GiB':>19}"
    )
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        for n in (1_000_000, 10_000_000):
            path = str(Path(folder) / str(n))
            stored = write_store(path, bank(), n)
            queue = context.Queue()
            process = context.Process(target=_score_alone, args=(path, path + "-scores", queue))
            process.start()
            taken, most = queue.get()
            process.join()
            print(
                f"{n:>11,} {stored.n_blocks:>7} {taken:>8.1f} {n / taken / 1e6:>10.2f} "
                f"{most / 2**30:>19.2f}",
                flush=True,
            )


# --- accuracy -------------------------------------------------------------------------------------


def accuracy():
    items = bank(20)
    a, d = items["item_discrimination"].values, items["item_intercept"].values
    rng = np.random.default_rng(2)
    y = respond(items, rng.normal(size=300), rng)
    r = irt.from_array(y, item_id=items["item_id"].values)

    def log_likelihood(t, row):
        z = a * t + d
        return float((row * z - np.logaddexp(0.0, z)).sum())

    def eap(row):
        peak = max(log_likelihood(t, row) for t in np.linspace(-4, 4, 41))

        def weight(t):
            return np.exp(log_likelihood(t, row) - peak - t * t / 2)

        total = quad(weight, -10, 10, epsabs=0, epsrel=1e-11, limit=200)[0]
        return quad(lambda t: t * weight(t), -10, 10, epsabs=1e-13, limit=200)[0] / total

    def best(row, prior):
        def f(t):
            return -(log_likelihood(t, row) - prior * t * t / 2)

        return minimize_scalar(f, bounds=(-6, 6), method="bounded", options={"xatol": 1e-9}).x

    def warm(row):
        def f(t):
            p = 1.0 / (1.0 + np.exp(-(a * t + d)))
            info, j = (a**2 * p * (1 - p)).sum(), (a**3 * p * (1 - p) * (1 - 2 * p)).sum()
            return (a * (row - p)).sum() + j / (2 * info)

        return brentq(f, -20, 20, xtol=1e-13)

    print("largest difference from quadrature or SciPy, 300 x 20")
    references = {
        "eap": eap,
        "map": lambda row: best(row, 1.0),
        "ml": lambda row: best(row, 0.0),
        "wle": warm,
    }
    for method, reference in references.items():
        got = irt.score(r, items, method=method, **QUIET)["person_ability"].values
        inside = np.abs(got) < 5.99
        want = np.array([reference(row) for row in y])
        print(f"{method:>4} {np.abs(got - want)[inside].max():.1e}", flush=True)


# --- coverage -------------------------------------------------------------------------------------


def coverage(figure=None):
    """Items estimated from 3,000 other persons by Bayes, or known."""
    items, rng = bank(20), np.random.default_rng(3)
    ids = items["item_id"].values
    n = 100_000
    theta = rng.normal(size=n)
    r = irt.from_array(respond(items, theta, rng), item_id=ids)
    few = irt.from_array(respond(items, rng.normal(size=500), rng), item_id=ids)
    fitted = irt.fit_bayes(few, n_draws=2000, n_warmup=500, seed=1, **QUIET)
    print(f"95% intervals of the abilities of {n:,} persons, 20 items")
    for name, bank_, draws in (
        ("items known", items, 0),
        ("items of 500 persons, 20 draws", fitted, 20),
        ("the same, taken as known", fitted, 0),
    ):
        s = irt.score(r, bank_, n_plausible=199, n_item_draws=draws, seed=2, **QUIET)
        mean, sd = s["person_ability"].values, s["person_ability_sd"].values
        normal = np.mean(np.abs(theta - mean) < 1.959964 * sd)
        values = s["person_plausible_value"].values  # 5th and 195th of 199: 95% for one more draw
        low, high = np.quantile(values, [0.025, 0.975], axis=1, method="weibull")
        drawn = np.mean((theta > low) & (theta < high))
        print(f"{name:<34} EAP and SD {normal:.4f}   199 plausible values {drawn:.4f}", flush=True)
    differences(figure)


def differences(figure):
    """A group difference of half an SD, from EAPs and from plausible values, by test length."""
    rng, n = np.random.default_rng(4), 20_000
    group = np.repeat([0, 1], n // 2)
    print("difference of group means, true .500: 20 data sets of 20,000, mean (SE)")
    print(f"{'items':>6} {'EAP, N(0, 1)':>20} {'PVs, N(0, 1)':>20} {'PVs, groups':>20}")
    lengths, rows = (5, 10, 20, 40), []
    for m in lengths:
        items, found = bank(m), []
        for seed in range(20):
            theta = rng.normal(size=n) + 0.5 * group - 0.25
            r = irt.from_array(
                respond(items, theta, rng),
                item_id=items["item_id"].values,
                persons={"group": group.astype(str)},
            )
            plain = irt.score(r, items, n_plausible=5, seed=seed, **QUIET)
            by_group = irt.score(r, items, n_plausible=5, prior="groups", seed=seed, **QUIET)
            values = (
                plain["person_ability"].values,
                plain["person_plausible_value"].values.mean(axis=1),
                by_group["person_plausible_value"].values.mean(axis=1),
            )
            found.append([v[group == 1].mean() - v[group == 0].mean() for v in values])
        mean, se = np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / np.sqrt(20)
        rows.append((mean, se))
        cells = " ".join(f"{x:>11.4f} ({e:.4f})" for x, e in zip(mean, se, strict=True))
        print(f"{m:>6} {cells}", flush=True)
    if figure:
        draw(figure, lengths, np.array(rows))


def draw(path, lengths, rows):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
    labels = ("EAPs", "plausible values, prior N(0, 1)", "plausible values, prior by group")
    for k, label in enumerate(labels):
        ax.errorbar(
            lengths, rows[:, 0, k], 1.96 * rows[:, 1, k], marker="o", capsize=3, label=label
        )
    ax.axhline(0.5, color="0.4", linestyle="--", linewidth=1)
    ax.set(xlabel="items", ylabel="difference of the groups' means", xticks=lengths)
    ax.legend(frameon=False)
    fig.savefig(path, dpi=110)


if __name__ == "__main__":
    part, *rest = sys.argv[1:] or ["speed"]
    {f.__name__: f for f in (speed, large, accuracy, coverage)}[part](*rest)
