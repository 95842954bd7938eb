"""Time and memory of ingest, against pyarrow's CSV reader alone, on an unsorted long file.

    python tests/benchmarks/ingest.py [rows] [persons] [items] [--json FILE]

Each run is a process of its own; the two alternate, three times.  pyarrow has read the file once
before, so that its threads and memory are there: else it takes .26 to .36 s, not .16.  Memory is
the peak of the process and of the largest of its children.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv
from results import Table

MEASURE = """
import json, resource, sys, time
{imports}
source, store = sys.argv[1:]
begun = time.perf_counter()
{call}
seconds = time.perf_counter() - begun
kinds = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
print(json.dumps([seconds, sum(resource.getrusage(k).ru_maxrss for k in kinds) / 2**20]))
"""
PROGRAMS = {
    "pyarrow.csv.read_csv": MEASURE.format(
        imports="from pyarrow import csv\ncsv.read_csv(sys.argv[1])",
        call="table = csv.read_csv(source)",
    ),
    "irt.ingest": MEASURE.format(
        imports="import irt_dask as irt, irt_dask.ingest.run",
        call="irt.ingest(source, store, progress=False)",
    ),
}


def write_source(path, n_rows, n_persons, n_items):
    """Write distinct pairs of person and item in random order."""
    rng = np.random.default_rng(0)
    cells = rng.choice(n_persons * n_items, n_rows, replace=False, shuffle=True)
    person, item = np.divmod(cells, n_items)
    names = [pa.array([f"{kind}{k}" for k in range(n)]) for kind, n in
             (("person-", n_persons), ("item-", n_items))]  # fmt: skip
    columns = {
        "person": names[0].take(pa.array(person)),
        "item": names[1].take(pa.array(item)),
        "response": pa.array(rng.integers(0, 2, n_rows, dtype=np.int8)),
    }
    csv.write_csv(pa.table(columns), path, csv.WriteOptions(quoting_style="none"))


def measure(program, source, store):
    shutil.rmtree(store, ignore_errors=True)
    done = subprocess.run(
        [sys.executable, "-c", program, str(source), str(store)], stdout=subprocess.PIPE, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def size_of(folder):
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


def main():
    table = Table()
    given = [int(float(x)) for x in sys.argv[1:]]
    n_rows, n_persons, n_items = given + [10**7, 200_000, 500][len(given) :]
    with tempfile.TemporaryDirectory() as name:
        source, store = Path(name) / "responses.csv", Path(name) / "store"
        write_source(source, n_rows, n_persons, n_items)
        taken = {program: [] for program in PROGRAMS}
        for _ in range(3):
            for program, text in PROGRAMS.items():
                taken[program].append(measure(text, source, store))
        sizes = source.stat().st_size / 1e6, size_of(store) / 1e6
    cores = len(os.sched_getaffinity(0))
    print(f"{n_rows} rows of {n_persons} persons x {n_items} items, unsorted; {cores} cores")
    print(f"source {sizes[0]:.0f} MB, store {sizes[1]:.0f} MB; medians of three")
    base = statistics.median(s for s, _ in taken["pyarrow.csv.read_csv"])
    with table:
        for program, runs in taken.items():
            seconds, memory = (statistics.median(column) for column in zip(*runs, strict=True))
            table.add(
                program=program, seconds=seconds, ratio=seconds / base,
                million_rows_a_second=n_rows / seconds / 1e6, peak_gib=memory,
            )  # fmt: skip
    print("all times (s): " + "; ".join(
        f"{program} {', '.join(f'{s:.2f}' for s, _ in runs)}" for program, runs in taken.items()
    ))  # fmt: skip


if __name__ == "__main__":
    main()
