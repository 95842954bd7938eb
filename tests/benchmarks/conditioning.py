"""Time and memory of a conditioning model and plausible values of three domains.

    python tests/benchmarks/conditioning.py [--persons 600000] [--components 200] [--values 10]
                                            [--groups] [--cluster] [--json FILE]

150 items of three domains in booklets, 40 covariates of six levels, 80 countries; two worker
processes of 2 GiB with --cluster, else the threads of this process.  The reference is one pass of
EM as one would write it in NumPy, sums over all nodes of a grid of 40 x 40 x 40, for 200 persons,
times the persons.
"""

import argparse
import shutil
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import xarray as xr
from results import Table

import irt_dask as irt

ITEMS, COVARIATES, COUNTRIES, DOMAINS = 150, 40, 80, ("maths", "reading", "science")


def bank(rng):
    a, d = rng.uniform(0.7, 1.6, ITEMS), rng.normal(size=ITEMS)
    return xr.Dataset(
        {"item_discrimination": ("items", a), "item_intercept": ("items", d)},
        coords={"item_id": ("items", [f"i{j}" for j in range(ITEMS)])}, attrs={"model": "2pl"},
    )  # fmt: skip


def store(items, n, folder, rng):
    """Responses of n persons, with their covariates, countries and weights."""
    of, ids = np.arange(ITEMS) % 3, items["item_id"].values
    a, d = items["item_discrimination"].values, items["item_intercept"].values
    codes = rng.integers(0, 6, (n, COVARIATES)).astype(float)
    codes[rng.random(codes.shape) < 0.03] = np.nan
    slopes = rng.normal(size=(COVARIATES, 3)) * 0.06
    residual = 0.5 * (0.8 + 0.2 * np.eye(3))
    country = np.sort(rng.integers(0, COUNTRIES, n))
    theta = np.nan_to_num(codes - 2.5) @ slopes + rng.multivariate_normal(np.zeros(3), residual, n)
    theta += 0.4 * rng.normal(size=(COUNTRIES, 1))[country]
    person = np.array([f"p{i}" for i in range(n)])
    writer = None
    for lo in range(0, n, 50_000):
        rows = slice(lo, min(lo + 50_000, n))
        z = a * theta[rows][:, of] + d
        y = (rng.random(z.shape) < 1.0 / (1.0 + np.exp(-z))).astype(np.int8)
        booklet = rng.integers(0, 6, len(y))[:, None]
        cluster = np.arange(ITEMS) // 25
        absent = (cluster != booklet) & (cluster != (booklet + 1) % 6)
        columns = {i: pa.array(y[:, j], mask=absent[:, j]) for j, i in enumerate(ids)}
        table = pa.table({"person": person[rows], **columns})
        writer = writer or pq.ParquetWriter(folder / "responses.parquet", table.schema)
        writer.write_table(table)
    writer.close()
    persons = pd.DataFrame({f"c{k}": codes[:, k] for k in range(COVARIATES)})
    persons.insert(0, "person", person)
    persons["group"], persons["weight"] = [f"k{k:02d}" for k in country], rng.uniform(0.5, 1.5, n)
    persons.to_parquet(folder / "persons.parquet")
    irt.ingest(
        folder / "responses.parquet", folder / "store", shape="wide",
        persons=folder / "persons.parquet",
    )  # fmt: skip
    return irt.open_responses(folder / "store")


def plain(persons=200, nodes=40):
    """Seconds a person of a pass that sums over all nodes."""
    rng, x = np.random.default_rng(1), np.linspace(-6.0, 6.0, nodes)
    mesh = np.stack(np.meshgrid(x, x, x, indexing="ij"), axis=-1).reshape(-1, 3)
    precision = np.linalg.inv(0.5 * (0.8 + 0.2 * np.eye(3)))
    prior = -0.5 * np.einsum("ni,ij,nj->n", mesh, precision, mesh)
    f = rng.normal(size=(persons, 3, nodes))
    begun = time.perf_counter()
    for one in f:
        w = prior + (one[0][:, None, None] + one[1][:, None] + one[2]).ravel()
        w = np.exp(w - w.max())
        w /= w.sum()
        mean = w @ mesh
        (mesh * w[:, None]).T @ mesh - np.outer(mean, mean)
    return (time.perf_counter() - begun) / persons


class Watch(threading.Thread):
    """Largest memory of one process, of this one and its children."""

    def __init__(self):
        super().__init__(daemon=True)
        self.peak, self.done = 0, False

    def run(self):
        while not self.done:
            mine = psutil.Process()
            for process in [mine, *mine.children(recursive=True)]:
                try:
                    self.peak = max(self.peak, process.memory_info().rss)
                except psutil.Error:
                    continue
            time.sleep(0.5)


def main():
    table = Table()
    parser = argparse.ArgumentParser()
    parser.add_argument("--persons", type=int, default=600_000)
    parser.add_argument("--components", type=int, default=200)
    parser.add_argument("--values", type=int, default=10)
    parser.add_argument("--groups", action="store_true")
    parser.add_argument("--cluster", action="store_true")
    options = parser.parse_args()
    rng, folder = np.random.default_rng(3), Path(tempfile.mkdtemp())
    client = None
    if options.cluster:
        from dask.distributed import Client, LocalCluster

        client = Client(LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit="2GiB", dashboard_address=None
        ))  # fmt: skip
    try:
        items = bank(rng)
        responses = store(items, options.persons, folder, rng)
        ids = items["item_id"].values
        domains = {name: ids[k::3].tolist() for k, name in enumerate(DOMAINS)}
        watch = Watch()
        watch.start()
        begun = time.perf_counter()
        population = irt.fit_population(
            responses, items, covariates=" + ".join(f"C(c{k})" for k in range(COVARIATES)),
            n_components=options.components, domains=domains, by_group=options.groups,
            client=client, progress=False,
        )  # fmt: skip
        fitted = time.perf_counter()
        irt.score(
            responses, items, prior=population, n_plausible=options.values,
            store=folder / "scores", client=client, progress=False,
        )  # fmt: skip
        drawn = time.perf_counter()
        watch.done = True
        passes, peak = int(population.attrs["n_iterations"]), watch.peak / 2**30
        with table:
            table.add(step="conditioning model", seconds=fitted - begun, passes=passes, gib=peak)
            table.add(step="EAPs and values", seconds=drawn - fitted, passes=1, gib=peak)
            of_plain = plain() * options.persons
            table.add(step="a pass in NumPy, all nodes", seconds=of_plain, passes=1, gib=0.0)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
