"""Time of each method with 1 worker process and with all cores, on one store.

python tests/benchmarks/workers.py [persons] [items] [--json FILE]
"""

import os
import sys
import tempfile
import time
import warnings
from pathlib import Path

from results import Table

import irt_dask as irt


def main():
    table = Table()
    n, m = (int(x) for x in (sys.argv[1:] + ["200000", "40"][len(sys.argv) - 1 :])[:2])
    cores = len(os.sched_getaffinity(0))
    warnings.simplefilter("ignore", irt.ConvergenceWarning)
    with tempfile.TemporaryDirectory() as folder:
        r = irt.simulate(n, m, store=Path(folder) / "s")
        truth = r.truth
        methods = {
            "joint ML, 10 iterations": lambda: irt.fit_joint(
                r, max_iterations=10, tolerance=1e-300
            ),
            "joint ML, coreset 2000, 8 iterations": lambda: irt.fit_joint(
                r, coreset=irt.Coreset(2000), max_iterations=8
            ),
            "spectral": lambda: irt.fit_spectral(r),
            "LS-WASP, 8 shards, 150 sweeps": lambda: irt.fit_bayes(
                r, n_shards=8, n_draws=100, n_warmup=50
            ),
            "EAP scores": lambda: irt.score(r, truth),
        }
        times = {}
        for workers in (1, cores):
            with irt.connect({"workers": workers}) as client, client.as_current():
                for name, method in methods.items():
                    method()  # kernels compiled, blocks in memory
                    begun = time.perf_counter()
                    method()
                    times[name, workers] = time.perf_counter() - begun
    print(f"{n} persons x {m} items, {r.n_blocks} blocks")
    with table:
        for name in methods:
            one, all_ = times[name, 1], times[name, cores]
            table.add(method=name, one_worker_s=one, all_cores_s=all_, speed_up=one / all_)


if __name__ == "__main__":
    main()
