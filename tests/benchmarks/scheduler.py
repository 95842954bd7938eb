"""The graph and the scheduler at scale: 200 workers, 100,000 blocks, tasks that only sleep.

    python tests/benchmarks/scheduler.py [--workers 200] [--blocks 100000] [--seconds 0.004]

Workers are threads of one process, so that all overhead is that of driver and scheduler; a block
takes ``--seconds``, as if its sums were computed.  A round is a pass over all blocks; the ideal is
blocks x seconds / workers.
"""

import argparse
import dataclasses
import resource
import time
import warnings

import numpy as np
from distributed import Client, LocalCluster

from irt_dask.engine import Engine
from irt_dask.kernels.layouts import Dense
from irt_dask.store import Block, Responses

EMPTY = Dense(np.zeros((1, 1), dtype=np.int8))


@dataclasses.dataclass(frozen=True)
class Pretended:
    """A block that is not there."""

    index: int

    @property
    def start(self):
        return self.index

    @property
    def cache_key(self):
        return "pretended", self.index

    def read(self):
        return Block(self.index, self.index, EMPTY)


class Many:
    """The blocks of a store, made when asked for, as those of a real one are."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, k):
        if isinstance(k, slice):
            return [Pretended(i) for i in range(*k.indices(self.n))]
        return Pretended(k)

    def __iter__(self):
        return map(Pretended, range(self.n))


def work(block, seconds, value):
    """A pass over a block; its result depends on what the driver sent."""
    time.sleep(seconds)
    return (np.full(100, block.index * value, dtype=np.int64),)


def whole(ref, seconds):
    time.sleep(seconds)
    return ref.index


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--blocks", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=0.004)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    n, seconds = options.blocks, options.seconds
    responses = Responses(Many(n), n, ("item",), "pretended")
    ideal = n * seconds / options.workers
    begun = time.perf_counter()
    with (
        LocalCluster(
            n_workers=options.workers, threads_per_worker=1, processes=False,
            memory_limit=0, dashboard_address=None,
        ) as cluster,
        Client(cluster) as client,
    ):  # fmt: skip
        print(f"{len(client.nthreads())} workers started in {time.perf_counter() - begun:.0f} s")
        print(f"{n:,} blocks of {seconds * 1e3:.0f} ms: ideal {ideal:.2f} s a round")
        with Engine(responses, client=client, progress=False, stage="scheduler") as engine:
            for k in range(1, 6):
                begun = time.perf_counter()
                (total,) = engine.map_reduce(work, seconds, k)
                taken = time.perf_counter() - begun
                assert (total == k * n * (n - 1) // 2).all()
                print(f"map_reduce {k}: {taken:6.2f} s, {taken / ideal:5.2f} times the ideal")
            begun = time.perf_counter()
            found = engine.map_refs(whole, seconds)
            taken = time.perf_counter() - begun
            assert found == list(range(n))
            print(f"map_refs    : {taken:6.2f} s, {taken / ideal:5.2f} times the ideal")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"largest memory of driver, scheduler and workers together: {most:.2f} GiB")


if __name__ == "__main__":
    main()
