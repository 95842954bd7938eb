"""The Bayesian calibration: speed of its samplers, and what dividing the data does.

    python tests/benchmarks/bayes.py speed        time of a sweep, effective draws a second
    python tests/benchmarks/bayes.py large        600,000 x 30 from a store, 8 shards, 2 workers
    python tests/benchmarks/bayes.py shards       distance to the full posterior
                                                  [data sets [n [variants, the first ones only]]]
    python tests/benchmarks/bayes.py spread       with and without the shards' excess of spread
                                                  [data sets]
    python tests/benchmarks/bayes.py coverage     of 95% intervals                    [data sets]
    python tests/benchmarks/bayes.py abilities    differences of EAPs between K = 10 and K = 1
    python tests/benchmarks/bayes.py bias         bias and RMSE against K (Figures S-1 to S-4)
    python tests/benchmarks/bayes.py many         many items, few persons: scale, place, coverage
                                                  [data sets [persons items [shards]]]
    python tests/benchmarks/bayes.py m2pl         two abilities: errors, SDs (Table S-1)     [K ...]

Each prints one table, with the reference in the same run.  Seeds are fixed.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
import time
import warnings
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.linalg import sqrtm

import irt_dask as irt
from irt_dask.calibrate.bayes import grid_chain, narrowing, polya_gamma_chain
from irt_dask.calibrate.bayes.hierarchy import Hierarchy
from irt_dask.engine.threads import single_threaded
from irt_dask.kernels.combine import convergence
from irt_dask.kernels.responses import layouts
from irt_dask.kernels.several import plane_posterior

ITEMS = ("discrimination", "intercept")


def simulated(n, m, seed, missing=0.0):
    """A test of m items with slopes about 1.1 and N(0, 1) intercepts; responses and truth."""
    rng = np.random.default_rng(seed)
    a, d = rng.lognormal(0.1, 0.35, m), rng.normal(0.0, 1.0, m)
    p = 1.0 / (1.0 + np.exp(-(np.outer(rng.standard_normal(n), a) + d)))
    y = (rng.random((n, m)) < p).astype(np.int8)
    y[rng.random((n, m)) < missing] = -1
    return y, a, d


@contextmanager
def cluster(n_workers=2):
    """A local cluster whose workers have one thread each."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=None) as local,
        Client(local) as client,
    ):
        yield client


def fit(y, **options):
    """fit_bayes without warnings: what they would say is in the tables."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return irt.fit_bayes(y, progress=False, **options)


# --- speed ----------------------------------------------------------------------------------------


def effective(draws):
    """Smallest and median effective draws of (a, d) per sweep."""
    ess = np.ravel(convergence.ess(draws[None])) / len(draws)
    return ess.min(), np.median(ess)


def chain(sampler, y, a, d, sweeps):
    """CPU seconds a sweep, and draws, of one chain that starts at the truth."""
    r = irt.from_array(y)
    common = {
        "fingerprint": f"{sampler} {r.fingerprint}",
        "seed": 1,
        "n_shards": 1,
        "n_warmup": 50,
        "n_draws": sweeps,
        "thin": 1,
        "prior": Hierarchy() if sampler == "grid" else irt.ItemPrior(),
        "n_persons": len(y),
        "sweeps": sweeps + 50,
    }
    if sampler == "grid":
        plan, segment = grid_chain.Plan(**common), grid_chain.segment
        start = grid_chain.first_state(0, 0, a, d, plan)
    else:
        mask = polya_gamma_chain.pack(np.ones((d.size, 1), dtype=bool))
        plan = polya_gamma_chain.Plan(**common, n_dims=1, free=mask, positive=mask)
        segment = polya_gamma_chain.segment
        start = polya_gamma_chain.first_state(0, 0, a[:, None], d, plan)
    segment(replace(plan, n_warmup=2, n_draws=3), r.refs, start)  # compiled, and laid out
    begun = time.process_time()
    _, output = segment(plan, r.refs, start)
    return (time.process_time() - begun) / plan.total, output["draws"]


def speed():
    """CPU time of a sweep and effective draws a CPU second, one thread."""
    n, m = 10_000, 40
    print(f"{n} persons x {m} items, one thread, CPU time")
    print(
        f"{'missing':>8} {'sampler':>12} {'ms a sweep':>11} {'ESS a sweep: min':>17} {'median':>7}"
        f" {'ESS a second: min':>18} {'median':>8}   against Polya-Gamma: sweep, min, median"
    )
    for missing in (0.0, 0.3):
        y, a, d = simulated(n, m, 1, missing)
        rows = {}
        with single_threaded():
            for name, sweeps in (("polya-gamma", 2000), ("grid", 6000)):
                cost, draws = chain(name, y, a, d, sweeps)
                rows[name] = (cost, *effective(draws))
        reference = rows["polya-gamma"]
        for name, (cost, least, middle) in rows.items():
            gains = [reference[0] / cost]
            for ess, theirs in ((least, reference[1]), (middle, reference[2])):
                gains.append(ess / theirs * gains[0])
            print(
                f"{missing:>8.0%} {name:>12} {cost * 1e3:>11.2f} {least:>17.3f} {middle:>7.3f}"
                f" {least / cost:>18.1f} {middle / cost:>8.1f}   "
                + " ".join(f"{r:>6.1f}" for r in gains),
                flush=True,
            )


# --- a large assessment ---------------------------------------------------------------------------


def large():
    """600,000 x 30 from a store, 500 + 2,000 draws, 8 shards, two workers of one thread."""
    folder = Path(tempfile.mkdtemp())
    try:
        r = irt.simulate(600_000, 30, seed=1, store=folder / "store")
        truth, r = r.truth, irt.open_responses(folder / "store")
        with cluster() as client:
            fit(irt.simulate(2000, 30, seed=1), n_draws=100, n_warmup=50, n_shards=2, client=client)
            peak = Peak(client)
            begun = time.perf_counter()
            with peak:
                f = fit(r, n_shards=8, client=client)
            seconds = time.perf_counter() - begun
    finally:
        shutil.rmtree(folder)
    print("600,000 x 30, 8 shards, 500 + 2,000 draws of each, 2 workers")
    thin = f.attrs["thin"]
    print(f"seconds {seconds:.0f}   largest worker {peak.gib:.2f} GiB   sweeps a draw {thin}")
    for p in ITEMS:
        z = (f[f"item_{p}"] - truth[f"item_{p}"]) / f[f"item_{p}_sd"]
        print(
            f"{p:>15}: largest R-hat {float(f[f'item_{p}_rhat'].max()):.3f}, least ESS "
            f"{float(f[f'item_{p}_ess'].min()):.0f}, root mean square of z "
            f"{float((z**2).mean()) ** 0.5:.2f}"
        )


class Peak:
    """Largest memory of a worker, sampled."""

    def __init__(self, client):
        import psutil

        self.gib = 0.0
        self._processes = [psutil.Process(p) for p in client.run(os.getpid).values()]
        self._stop = threading.Event()

    def __enter__(self):
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _watch(self):
        while not self._stop.wait(0.1):
            self.gib = max(self.gib, *(p.memory_info().rss / 2**30 for p in self._processes))


# --- shards against the full posterior ------------------------------------------------------------


def moments(f):
    """Mean and covariance of (log a, d), from all combined draws."""
    x = np.c_[np.log(f.item_discrimination_draw), f.item_intercept_draw]
    return x.mean(0), np.cov(x, rowvar=False)


def distance(f, full):
    """Squared 2-Wasserstein distance of Gaussians over the trace of the full covariance."""
    return _distance(*moments(f), *moments(full))


def gaussian_distance(x, full):
    """The same of draws (draws, coordinates)."""
    return _distance(x.mean(0), np.cov(x, rowvar=False), full.mean(0), np.cov(full, rowvar=False))


def _distance(m1, c1, m0, c0):
    root = sqrtm(c0)
    bures = np.trace(c1) + np.trace(c0) - 2.0 * np.trace(sqrtm(root @ c1 @ root)).real
    return (((m1 - m0) ** 2).sum() + bures) / np.trace(c0)


def ratios(f, full):
    """SDs over those of the full posterior: means over a and d, RMS of logs; least, largest."""
    r = np.array([f[f"item_{p}_sd"] / full[f"item_{p}_sd"] for p in ITEMS])
    return *r.mean(axis=1), (np.log(r) ** 2).mean() ** 0.5, r.min(), r.max()


DRAWS = {"shrink": 10_000, "published": 2_000, "replicate": 1_000}
VARIANTS = (
    {"powering": "shrink", "location": "refined"},
    {"powering": "shrink", "location": "precision"},
    {"powering": "shrink", "location": "average"},
    {"powering": "published", "location": "average"},
    {"powering": "replicate", "location": "refined"},
)


def shards(data_sets=10, only=0, variants=5):
    """Squared W2 distance and SD ratios, averaged over data sets (of so many persons only)."""
    print(
        f"means of {data_sets} data sets; (log a, d); 20,000 draws in full, " + f"a shard {DRAWS}"
    )
    print(
        f"{'persons':>7} {'items':>5} {'K':>3} {'powering':>10} {'location':>10}"
        f" {'W2^2 / trace':>16} {'SD a':>16} {'SD d':>16} {'RMS of log':>16}"
        f" {'least':>6} {'largest':>7}"
    )
    with cluster() as client:
        for n, m, many in ((10_000, 20, (10, 20)), (3_000, 15, (6,))):
            if only not in (0, n):
                continue
            found = {}
            for s in range(data_sets):
                y = simulated(n, m, 100 + s)[0]
                full = fit(y, n_chains=2, n_draws=10_000, seed=s, client=client)
                for k in many:
                    with tempfile.TemporaryDirectory() as folder:
                        for v in VARIANTS[
                            :variants
                        ]:  # locations of the same chains share a checkpoint
                            n_draws = DRAWS[v["powering"]]
                            f = fit(
                                y, n_shards=k, n_draws=n_draws, seed=1000 + s, client=client,
                                checkpoint=Path(folder) / v["powering"], **v,
                            )  # fmt: skip
                            row = (distance(f, full), *ratios(f, full))
                            found.setdefault((k, *v.values()), []).append(row)
            for (k, powering, location), x in found.items():
                print(
                    f"{n:>7} {m:>5} {k:>3} {powering:>10} {location:>10} {averaged(x)}", flush=True
                )


def spread(data_sets=4):
    """The same chains combined with and without what shards have in excess of spread."""
    from unittest.mock import patch

    def nothing(draws, *_):
        return np.zeros((draws[0].shape[2], 2, 2))

    print(f"means of {data_sets} data sets; (log a, d); 20,000 draws in full, a shard 2,000")
    print(
        f"{'persons':>7} {'items':>5} {'K':>3} {'excess':>7} {'W2^2 / trace':>16} {'SD a':>16}"
        f" {'SD d':>16} {'RMS of log':>16} {'least':>6} {'largest':>7}"
    )
    for n, m, k in ((1_200, 15, 10), (3_000, 15, 6), (10_000, 20, 10), (10_000, 20, 20)):
        found = {"kept": [], "taken": []}
        for s in range(data_sets):
            y = simulated(n, m, 100 + s)[0]
            full = fit(y, n_chains=2, n_draws=10_000, seed=s)
            with tempfile.TemporaryDirectory() as folder:
                options = {"n_shards": k, "seed": 1000 + s, "checkpoint": Path(folder) / "c"}
                with patch.object(narrowing, "excess", nothing):
                    f = fit(y, **options)
                found["kept"].append((distance(f, full), *ratios(f, full)))
                f = fit(y, **options)
                found["taken"].append((distance(f, full), *ratios(f, full)))
        for excess, rows in found.items():
            print(f"{n:>7} {m:>5} {k:>3} {excess:>7} {averaged(rows)}", flush=True)


def averaged(rows):
    """Means of distances and ratios with their Monte Carlo errors, and the extreme ratios."""
    mean, error = np.mean(rows, axis=0)[:4], np.std(rows, axis=0)[:4] / len(rows) ** 0.5
    cells = [f"{v:>6.4f} +- {e:.4f}" for v, e in zip(mean, error, strict=True)]
    return " ".join(cells) + f" {np.min(rows, axis=0)[4]:>6.3f} {np.max(rows, axis=0)[5]:>7.3f}"


# --- coverage -------------------------------------------------------------------------------------


def interval_of_b(f):
    """95% interval of b from the combined draws."""
    b = -f.item_intercept_draw / f.item_discrimination_draw
    return np.quantile(b, (0.025, 0.975), axis=0)


def coverage(data_sets=200):
    """Share of 95% intervals with the truth, n = 6,000, J = 15, K = 6."""
    hits = {"a": [], "b": [], "d": []}
    with cluster() as client:
        for s in range(data_sets):
            y, a, d = simulated(6_000, 15, 5000 + s)
            f = fit(y, n_shards=6, n_draws=1000, n_warmup=300, seed=s, client=client)
            low, high = interval_of_b(f)
            hits["b"].append((low < -d / a) & (-d / a < high))
            for name, x, truth in (
                ("a", f.item_discrimination_draw, a),
                ("d", f.item_intercept_draw, d),
            ):
                low, high = np.quantile(x, (0.025, 0.975), axis=0)
                hits[name].append((low < truth) & (truth < high))
    print(f"6,000 x 15, K = 6, {data_sets} data sets: share of 95% intervals that hold the truth")
    for name, x in hits.items():
        share = np.mean(x, axis=1)  # items of a data set are not independent
        print(f"{name}: {share.mean():.4f} (standard error {share.std() / len(x) ** 0.5:.4f})")


# --- many items, few persons ----------------------------------------------------------------------


def standardised(n, m, mean_b, seed):
    """A test whose abilities have mean 0 and SD 1 in the sample."""
    rng = np.random.default_rng(seed)
    a, b = np.exp(0.3 * rng.standard_normal(m)), mean_b + rng.standard_normal(m)
    theta = rng.standard_normal(n)
    theta = (theta - theta.mean()) / theta.std()
    p = 1.0 / (1.0 + np.exp(-a * (theta[:, None] - b)))
    return (rng.random((n, m)) < p).astype(np.int8), a, b


def one_of_many(task):
    """Errors and coverage of one data set."""
    seed, n, m, mean_b, k, prior = task
    y, a, b = standardised(n, m, mean_b, seed)
    given = {} if prior == "hierarchical" else {"prior": irt.ItemPrior()}
    f = fit(y, n_shards=k, n_draws=1000, n_warmup=400, seed=seed, **given)
    drawn = f.item_discrimination_draw.values
    low, high = np.quantile(drawn, (0.025, 0.975), axis=0)
    low_b, high_b = interval_of_b(f)
    return (
        np.log(f.item_discrimination.values / a).mean(), (f.item_difficulty.values - b).mean(),
        np.sqrt(((f.item_difficulty.values - b) ** 2).mean()),
        ((low < a) & (a < high)).mean(), ((low_b < b) & (b < high_b)).mean(),
        f.attrs.get("prior_efficiency", np.nan),
        np.sqrt((np.log(f.item_discrimination.values / a) ** 2).mean()),
        np.sqrt(((f.item_discrimination.values - a) ** 2).mean()),
    )  # fmt: skip


def many(data_sets=100, persons=0, items=0, n_shards=1):
    """Scale and place where items are many: means over data sets, with standard errors."""
    from multiprocessing import get_context

    sizes = [(persons, items)] if persons else [(200, 1000), (1000, 300), (3000, 500)]
    print(f"{data_sets} data sets each, abilities of mean 0 and SD 1 in the sample, K = {n_shards}")
    print(
        f"{'persons':>7} {'items':>5} {'mean b':>6} {'prior':>12} {'log(a / true a)':>17}"
        f" {'b - true b':>17} {'RMSE b':>7} {'cover a':>8} {'cover b':>8} {'efficiency':>10}"
        f" {'RMSE log a':>10} {'RMSE a':>7}"
    )
    with get_context("spawn").Pool(2) as pool:
        for n, m in sizes:
            for mean_b in (0.0, -1.5):
                for prior in ("hierarchical", "fixed"):
                    count = data_sets if prior == "hierarchical" else max(2, data_sets // 20)
                    tasks = [(s, n, m, mean_b, n_shards, prior) for s in range(count)]
                    x = np.array(pool.map(one_of_many, tasks, chunksize=1))
                    mean, error = x.mean(axis=0), x.std(axis=0, ddof=1) / len(x) ** 0.5
                    print(
                        f"{n:>7} {m:>5} {mean_b:>6} {prior:>12} {mean[0]:>8.4f} +- {error[0]:.4f}"
                        f" {mean[1]:>8.4f} +- {error[1]:.4f} {mean[2]:>7.3f} {mean[3]:>8.4f}"
                        f" {mean[4]:>8.4f} {mean[5]:>10.2f} {mean[6]:>10.3f}"
                        f" {mean[7]:>7.3f}",
                        flush=True,
                    )


# --- abilities ------------------------------------------------------------------------------------


def abilities():
    """Differences of EAPs between K shards and one (Figure S-5)."""
    y = simulated(10_000, 20, 100)[0]
    print("10,000 x 20: differences of EAPs to those of K = 1, item uncertainty included")
    print(f"{'K':>3} {'powering':>10} {'location':>10} {'99% below':>10} {'largest':>8}")
    with cluster() as client:
        full = irt.score(y, fit(y, n_chains=2, client=client))["person_ability"].values
        for k in (2, 4, 10, 20):
            for v in VARIANTS[:1] + VARIANTS[3:4]:
                f = fit(y, n_shards=k, seed=3, client=client, **v)
                gap = np.abs(irt.score(y, f)["person_ability"].values - full)
                print(
                    f"{k:>3} {v['powering']:>10} {v['location']:>10}"
                    f" {np.quantile(gap, 0.99):>10.4f} {gap.max():>8.4f}",
                    flush=True,
                )


# --- bias against the number of shards ------------------------------------------------------------


def bias(data_sets=10):
    """Bias and RMSE of item parameters against K for test lengths and sample sizes."""
    print(f"means over items and {data_sets} data sets")
    print(f"{'persons':>7} {'items':>5} {'K':>3}   bias a   RMSE a   bias d   RMSE d   seconds")
    with cluster() as client:
        for n in (2_000, 5_000, 10_000):
            for m in (20, 40):
                for k in (1, 2, 4, 10):
                    gaps, begun = [], time.perf_counter()
                    for s in range(data_sets):
                        y, a, d = simulated(n, m, 9000 + s)
                        f = fit(y, n_shards=k, n_draws=500, n_warmup=200, seed=s, client=client)
                        gaps.append((f.item_discrimination - a, f.item_intercept - d))
                    seconds = (time.perf_counter() - begun) / data_sets
                    x = np.array(gaps)
                    cells = [
                        v for i in (0, 1) for v in (x[:, i].mean(), (x[:, i] ** 2).mean() ** 0.5)
                    ]
                    print(
                        f"{n:>7} {m:>5} {k:>3}  "
                        + " ".join(f"{v:>8.4f}" for v in cells)
                        + f" {seconds:>9.1f}",
                        flush=True,
                    )


# --- two abilities --------------------------------------------------------------------------------


def m2pl(*many):
    """10,000 x 20, two abilities: errors against the truth, SDs against the first K, time, EAPs."""
    rng = np.random.default_rng(1)
    n, m = 10_000, 20
    a, d = rng.uniform(0.4, 1.8, (m, 2)), rng.normal(0.0, 1.0, m)
    a[0] = 1.6, 0.0
    theta = rng.standard_normal((n, 2))
    y = (rng.random((n, m)) < 1.0 / (1.0 + np.exp(-(theta @ a.T + d)))).astype(np.int8)
    free = a > 0
    print(f"{n} x {m}, two abilities, independent; loadings positive, one fixed at 0; 2,000 draws")
    print(
        f"{'K':>3} {'RMSE loadings':>13} {'of K = 1':>8} {'RMSE d':>7} {'SD ratio: loadings':>18}"
        f" {'d':>6} {'least':>6} {'largest':>7} {'EAP 99% below':>13} {'first step':>10}"
        f" {'R-hat':>6} {'seconds':>8}"
    )
    with cluster() as client:
        first = None
        for k in many or (1, 2, 4, 5, 6):
            begun = time.perf_counter()
            f = fit(y, n_dims=2, n_shards=k, n_chains=2 if k == 1 else 1, n_draws=1000 if k == 1
                    else 2000, seed=2, client=client)  # fmt: skip
            seconds = time.perf_counter() - begun
            mean, sd = f.item_loading.values, f.item_loading_sd.values
            grid = plane_posterior.plane_for(mean.T, f.item_intercept.values)
            tables = plane_posterior.plane(mean.T, f.item_intercept.values, grid.nodes, 0.0)
            eap = plane_posterior.expectations(layouts.Dense(y), tables)[0]
            first = first or (mean, sd, f.item_intercept_sd.values, eap)
            error = ((mean - a)[free] ** 2).mean() ** 0.5
            r1, r2 = sd[free] / first[1][free], f.item_intercept_sd.values / first[2]
            both = np.r_[r1, r2]
            print(
                f"{k:>3} {error:>13.4f}"
                f" {error / ((first[0] - a)[free] ** 2).mean() ** 0.5:>8.3f}"
                f" {float(((f.item_intercept - d) ** 2).mean()) ** 0.5:>7.4f}"
                f" {r1.mean():>18.3f} {r2.mean():>6.3f} {both.min():>6.3f} {both.max():>7.3f}"
                f" {np.quantile(np.abs(eap - first[3]), 0.99):>13.4f}"
                f" {f.attrs.get('first_step', 0.0):>10.2f} {float(f.shard_max_rhat.max()):>6.3f}"
                f" {seconds:>8.0f}",
                flush=True,
            )


def main():
    what, *rest = sys.argv[1:] or [""]
    tables = {
        f.__name__: f for f in (speed, large, shards, spread, coverage, abilities, bias, many, m2pl)
    }
    if what not in tables:
        raise SystemExit(__doc__)
    tables[what](*(int(x) for x in rest))


if __name__ == "__main__":
    main()
