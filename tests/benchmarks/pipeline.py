"""A whole run, from a CSV file to scores and the report: time and memory of each stage.

    python tests/benchmarks/pipeline.py [--persons 1000000] [--workers 2] [KIND ...]

KIND is ``default`` (60 right or wrong items, LS-WASP), ``marginal`` (the same by marginal maximum
likelihood) or ``mixed`` (30 right or wrong, 20 of three and 10 of four categories, by marginal
maximum likelihood).  Each person answers three of six booklets of ten items.  ``irt-dask run`` runs
in a process of its own; stages are those that it says, memory is the largest resident set of each
process while a stage lasts, looked at four times a second.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
from pyarrow import csv
from results import Table

N_ITEMS, N_BOOKLETS, AT_ONCE = 60, 6, 50_000
#: Categories of the items, and what the pipeline says of them.
KINDS = {
    "default": ([2] * 60, ""),
    "marginal": ([2] * 60, '[calibrate]\nmethod = "marginal"\n'),
    "mixed": (
        [2, 3, 2, 4, 2, 3] * 10,
        '[calibrate]\nmethod = "marginal"\n[marginal]\nmodel = "2pl+gpcm"\n',
    ),
}


def write_csv(path: Path, n: int, categories: list[int]) -> None:
    """Responses under partial credit, with empty cells where an item is in no booklet."""
    rng = np.random.default_rng(1)
    k, m = np.array(categories), N_ITEMS
    slope = np.exp(rng.normal(0.0, 0.3, m))
    step = np.sort(rng.normal(size=(m, 3)), axis=1) + rng.normal(0.0, 0.5, (m, 1))
    step[np.arange(3) >= k[:, None] - 1] = np.inf  # no category beyond the last
    names = ["person", *(f"q{j + 1:02d}" for j in range(m))]
    schema = pa.schema([(name, pa.int32() if name == "person" else pa.int8()) for name in names])
    booklet = np.arange(m) * N_BOOKLETS // m
    with csv.CSVWriter(path, schema) as writer:
        for start in range(0, n, AT_ONCE):
            size = min(AT_ONCE, n - start)
            theta = rng.standard_normal((size, 1, 1))
            logit = np.cumsum(slope[:, None] * (theta - step), axis=2)
            weight = np.exp(np.concatenate([np.zeros((size, m, 1)), logit], axis=2))
            sums = weight.cumsum(axis=2)
            y = (rng.random((size, m, 1)) * sums[..., -1:] > sums).sum(axis=2).astype(np.int8)
            missing = (booklet - rng.integers(0, N_BOOKLETS, (size, 1))) % N_BOOKLETS >= 3
            persons = np.arange(start, start + size, dtype=np.int32)
            columns = [pa.array(persons)]
            columns += [pa.array(y[:, j], mask=missing[:, j]) for j in range(m)]
            writer.write_table(pa.table(columns, schema=schema))


class Largest:
    """Largest resident sets of a command and the processes that it starts, GiB."""

    def __init__(self, pid: int) -> None:
        self.driver, self.worker = 0.0, 0.0
        self._process = psutil.Process(pid)

    def look(self) -> None:
        """Take note of what they have now."""
        try:
            self.driver = max(self.driver, self._process.memory_info().rss / 2**30)
            for child in self._process.children(recursive=True):
                self.worker = max(self.worker, child.memory_info().rss / 2**30)
        except psutil.NoSuchProcess:  # one that has just ended
            return


def measured(table: Table, folder: Path, kind: str, n: int, workers: int) -> None:
    """Add a row for each stage, and one for the whole command."""
    categories, more = KINDS[kind]
    source, target = folder / f"{kind}.csv", folder / kind
    write_csv(source, n, categories)
    data = f'[data]\nsource = "{source}"\n' + (
        'categories = "data"\n' if max(categories) > 2 else ""
    )
    file = folder / f"{kind}.toml"
    file.write_text(
        f'seed = 1\ndirectory = "{target}"\n{data}[cluster]\nworkers = {workers}\n{more}'
    )
    begun = time.perf_counter()
    command = [sys.executable, "-m", "irt_dask.cli", "run", str(file), "--quiet"]
    with subprocess.Popen(command) as process:
        stages: dict[str, Largest] = {}
        while process.poll() is None:
            done = []
            if (target / "run.json").exists():
                done = list(json.loads((target / "run.json").read_text())["stages"])
            stages.setdefault(f"{len(done)}", Largest(process.pid)).look()
            time.sleep(0.25)
    assert process.returncode == 0, process.returncode
    seconds = time.perf_counter() - begun
    described = json.loads((target / "run.json").read_text())["stages"]
    for k, (name, stage) in enumerate(described.items()):
        most = stages.get(str(k))
        table.add(
            kind=kind, stage=name, seconds=float(stage["seconds"]),
            driver_gib=most.driver if most else float("nan"),
            worker_gib=most.worker if most else float("nan"),
        )  # fmt: skip
    table.add(
        kind=kind, stage="whole command", seconds=seconds,
        driver_gib=max(x.driver for x in stages.values()),
        worker_gib=max(x.worker for x in stages.values()),
    )  # fmt: skip


def main() -> None:
    table = Table()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", metavar="KIND", choices=[[], *KINDS])
    parser.add_argument("--persons", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_intermixed_args()
    with table, tempfile.TemporaryDirectory() as folder:
        for kind in options.kinds or KINDS:
            measured(table, Path(folder), kind, options.persons, options.workers)


if __name__ == "__main__":
    main()
