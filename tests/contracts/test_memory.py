"""Memory of workers: bounded by blocks, shards and the cache's limit, not by the size of the store.

150,000 and then 750,000 persons x 100 items go through the same worker processes, whose cache of
blocks is limited to some megabytes.  A method that held its share of the data would need at least
30 MB more of private memory for the larger ones, in each worker.  Ingest has a limit of its own.
"""

from __future__ import annotations

import ctypes
import threading
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from distributed import Client, LocalCluster
from pyarrow import csv

import irt_dask as irt
from irt_dask.engine import Engine
from irt_dask.ingest.sort import blocks, spill
from irt_dask.ingest.text import lines

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="memory in use is asked of glibc 2.33"
    ),
]

N_PERSONS, N_ITEMS = (150_000, 750_000), 100
#: Persons of a first store, for which everything is compiled.
WARM = 50_000
#: Persons of a shard, whatever the store; items of the chains.
SHARD, CHAIN_ITEMS = 50_000, 40
#: Growth of a worker's peak that is allowed, and what its cache may hold, bytes.
GROWTH, CACHE = 18 << 20, 4 << 20
LIMIT = 2 << 30


# --- on the workers -------------------------------------------------------------------------------


def limit_cache(size: int, limit: int) -> None:
    """Let blocks kept between rounds take so many bytes."""
    from irt_dask.engine import cache

    cache._SHARE = size / limit


def private_memory() -> int:
    """Memory that belongs to this process and no file, bytes."""
    (line,) = (x for x in Path("/proc/self/status").read_text().splitlines() if "RssAnon" in x)
    return int(line.split()[1]) * 1024


class _Mallinfo(ctypes.Structure):
    """glibc's struct mallinfo2."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks",
                     "uordblks", "fordblks", "keepcost")
    ]  # fmt: skip


def memory_in_use() -> int:
    """Memory that is allocated, bytes; not what was freed and is kept for what follows."""
    function = ctypes.CDLL(None).mallinfo2
    function.restype = _Mallinfo
    info = function()
    return info.uordblks + info.hblkhd + pa.total_allocated_bytes()


class Peak:
    """Largest memory while it runs: in use, above that at the beginning; private, all."""

    def __init__(self) -> None:
        self.first = self.in_use = memory_in_use()
        self.most = private_memory()
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def _watch(self) -> None:
        while not self.stop.wait(0.004):
            self.in_use = max(self.in_use, memory_in_use())
            self.most = max(self.most, private_memory())

    def end(self) -> int:
        """Stop; return bytes."""
        self.stop.set()
        self.thread.join()
        return self.in_use - self.first


def begin(dask_worker) -> None:
    """Begin to measure."""
    dask_worker.peak = Peak()


def end(dask_worker) -> tuple[int, int]:
    """Growth since then and the largest memory, bytes."""
    return dask_worker.peak.end(), dask_worker.peak.most


def disk_writes(dask_worker: object) -> int:
    """Results that the worker has put on disk for lack of memory, since it started."""
    counts = dask_worker.data.cumulative_metrics  # type: ignore[attr-defined]
    return sum(int(n) for key, n in counts.items() if key == ("disk-write", "count"))


def put_on_disk(dask_worker) -> None:
    """Make the worker do that with one result, if it has any."""
    if len(dask_worker.data.fast):
        dask_worker.data.evict()


hoard: list[object] = []


def keep_everything(block):
    """What a method must not do."""
    hoard.append(block.data.values.copy())
    return (np.int64(block.n_persons),)


# --- data and methods -----------------------------------------------------------------------------


def write_csv(path: Path, n: int) -> None:
    rng = np.random.default_rng(n)
    difficulty = rng.normal(size=N_ITEMS).astype(np.float32)
    names = ["person", *(f"i{j}" for j in range(N_ITEMS))]
    schema = pa.schema([(name, pa.int32() if name == "person" else pa.int8()) for name in names])
    with csv.CSVWriter(path, schema) as writer:
        for start in range(0, n, 50_000):
            theta = rng.standard_normal((50_000, 1), dtype=np.float32)
            p = 1.0 / (1.0 + np.exp(difficulty - theta))
            y = (rng.random(p.shape, dtype=np.float32) < p).astype(np.int8)
            persons = np.arange(start, start + len(y), dtype=np.int32)
            columns = [pa.array(persons), *(pa.array(c) for c in np.ascontiguousarray(y.T))]
            writer.write_table(pa.table(columns, schema=schema))


def run_all(client: Client, source: Path, folder: Path, n: int) -> dict[str, int]:
    """Every method on the same data; by how much the memory of a worker grows in each, at most."""
    quiet = {"client": client, "progress": False}
    store = folder / "store"
    found = {}

    def measured(name, function):
        client.run(begin)
        result = function()
        grown, most = zip(*client.run(end).values(), strict=True)
        assert max(most) < 0.6 * LIMIT  # where a worker begins to put results on disk
        found[name] = max(grown)
        return result

    r = measured("ingest", lambda: irt.ingest(source, store, rows_per_block=8192, **quiet))
    assert (r.n_persons, r.n_items) == (n, N_ITEMS)
    items = measured("joint", lambda: irt.fit_joint(r, max_iterations=4, tolerance=-1.0, **quiet))
    measured("pairwise", lambda: irt.fit_pairwise(r, standard_errors=False, **quiet))
    measured("pair counts", lambda: irt.pair_counts(r, **quiet))
    some = r.select(items=r.item_id[:CHAIN_ITEMS])
    measured(
        "bayes",
        lambda: irt.fit_bayes(some, n_shards=n // SHARD, n_draws=100, n_warmup=50, **quiet),
    )
    measured("score", lambda: irt.score(r, items, store=folder / "scores", **quiet))
    return found


def test_memory_does_not_grow_with_the_store(tmp_path, monkeypatch):
    # Limits of ingest's tasks, so low that the smaller source reaches them.
    monkeypatch.setattr(spill, "PARTITION", 8 << 20)
    monkeypatch.setattr(blocks, "_STRETCH", 25_000)
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit=LIMIT,
            dashboard_address="127.0.0.1:0", local_directory=str(tmp_path / "dask"),
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
        warnings.catch_warnings(),
    ):  # fmt: skip
        warnings.simplefilter("ignore", irt.ConvergenceWarning)
        client.run(limit_cache, CACHE, LIMIT)
        peaks = []
        for n in (WARM, *N_PERSONS):
            folder = tmp_path / str(n)
            folder.mkdir()
            write_csv(folder / "responses.csv", n)
            peaks.append(run_all(client, folder / "responses.csv", folder, n))
        _, few, many = peaks
        assert max(few["ingest"], many["ingest"]) <= 10 * lines.PIECE  # as its notes say
        more = {name: (many[name] - few[name]) / 2**20 for name in few}
        assert max(more.values()) <= GROWTH / 2**20, f"MiB more for five times the persons: {more}"
        assert set(client.run(disk_writes).values()) == {0}
        _both_measures_can_fail(client, irt.open_responses(tmp_path / str(N_PERSONS[1]) / "store"))


def _both_measures_can_fail(client: Client, r) -> None:
    client.run(begin)
    with Engine(r, client=client, progress=False) as engine:
        engine.map_reduce(keep_everything)
    assert max(grown for grown, _ in client.run(end).values()) > GROWTH + CACHE
    future = client.scatter(np.ones(1000))
    client.run(put_on_disk)
    assert sum(client.run(disk_writes).values()) > 0
    del future
