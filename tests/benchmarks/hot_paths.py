"""The hot paths of two commits, timed in alternation: ratios with their 95% intervals.

    python tests/benchmarks/hot_paths.py OLD [NEW] [--rounds 9] [--json FILE] [PATH ...]

NEW is the working tree unless given.  Each commit has one process with one computing thread, which
compiles everything first; then both run every path in turn, the one that begins alternating.  A
path's time is CPU time of its process, so that other work on the machine matters little; what is
reported is the geometric mean of NEW / OLD over rounds, with a t interval.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from results import Table
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import commits

# --- paths ----------------------------------------------------------------------------------------


def simulated(n: int, m: int, *, guessing: float = 0.0, booklets: int = 0) -> Any:
    """Responses and bank; of six booklets each person has three neighbours."""
    import irt_dask as irt
    from irt_dask.engine import dataset

    rng = np.random.default_rng(1)
    a, b = np.exp(rng.normal(0.1, 0.3, m)), rng.normal(size=m)
    z = a * (rng.standard_normal((n, 1)) - b)
    y = (rng.random((n, m)) < guessing + (1.0 - guessing) / (1.0 + np.exp(-z))).astype(np.int8)
    if booklets:
        block = np.arange(m) * booklets // m
        first = rng.integers(0, booklets, (n, 1))
        y[(block - first) % booklets >= booklets // 2] = -1
    bank = dataset(
        {
            "item_discrimination": a,
            "item_difficulty": b,
            "item_guessing": np.full(m, guessing),
        },
        item_id=tuple(map(str, range(m))),
        attrs={"model": "3pl" if guessing else "2pl"},
    )
    return irt.from_array(y, item_id=tuple(map(str, range(m)))), bank


def paths() -> dict[str, Callable[[], Any]]:
    """Name and call of every path; responses are made once."""
    import irt_dask as irt

    quiet: dict[str, Any] = {"progress": False}
    complete, bank = simulated(60_000, 40)
    parts, _ = simulated(60_000, 40, booklets=6)
    few, _ = simulated(10_000, 40)
    many, _ = simulated(600_000, 40)
    guessed, guessed_bank = simulated(20_000, 40, guessing=0.2)
    rounds = {**quiet, "max_iterations": 5, "standard_errors": False}
    fitted = irt.fit_marginal(few, **quiet)  # from there errors are most of the work
    return {
        "marginal 2PL, complete": lambda: irt.fit_marginal(complete, **rounds),
        "marginal 2PL, booklets": lambda: irt.fit_marginal(parts, **rounds),
        "marginal 2PL, errors": lambda: irt.fit_marginal(few, start=fitted, **quiet),
        "marginal 3PL": lambda: irt.fit_marginal(guessed, model="3pl", **rounds),
        "joint 2PL, complete": lambda: irt.fit_joint(complete, **quiet, max_iterations=5),
        "joint 2PL, booklets": lambda: irt.fit_joint(parts, **quiet, max_iterations=5),
        "joint 3PL": lambda: irt.fit_joint(guessed, model="3pl", **quiet, max_iterations=3),
        "Gibbs": lambda: irt.fit_bayes(few, **quiet, n_draws=100, n_warmup=50),
        "Gibbs, booklets": lambda: irt.fit_bayes(parts, **quiet, n_draws=100, n_warmup=50),
        "EAP, complete": lambda: irt.score(many, bank, **quiet),
        "EAP, booklets": lambda: irt.score(parts, bank, **quiet),
        "EAP, 3PL": lambda: irt.score(guessed, guessed_bank, **quiet),
        "MAP": lambda: irt.score(complete, bank, method="map", **quiet),
        "WLE": lambda: irt.score(parts, bank, method="wle", **quiet),
        "pair counts": lambda: irt.pair_counts(many, **quiet),
        "item fit": lambda: irt.item_fit(parts, bank, **quiet),
    }


# --- a process ------------------------------------------------------------------------------------


def serve(root: Path, names: list[str]) -> None:
    """Compile, say so; then run the path whose name comes in, and say how long it took."""
    commits.check(root)
    warnings.simplefilter("ignore")
    calls = paths()
    for name in names:
        calls[name]()
    print("ready", flush=True)
    for line in sys.stdin:
        begun = time.process_time()
        calls[line.strip()]()
        print(time.process_time() - begun, flush=True)


class Served:
    """The process of a commit."""

    def __init__(self, root: Path, names: list[str]) -> None:
        one = {f"{x}_NUM_THREADS": "1" for x in ("OMP", "OPENBLAS", "NUMBA", "MKL")}
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve", str(root), "-", *names],
            env=commits.environment(root) | one | {"DASK_NUM_WORKERS": "1"},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def line(self, sent: str = "") -> str:
        """Send a line, and return the one that comes back."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if sent:
            self.process.stdin.write(sent + os.linesep)
            self.process.stdin.flush()
        got = self.process.stdout.readline()
        if not got:
            sys.exit(f"the process ended with {self.process.wait()}")
        return got

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


# --- both -----------------------------------------------------------------------------------------


def main() -> None:
    table = Table()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old")
    parser.add_argument("new", nargs="?")
    parser.add_argument("paths", nargs="*")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_intermixed_args()
    if options.serve:
        serve(Path(options.old), options.paths)
        return
    names = options.paths or list(paths())
    with table, ExitStack() as stack:
        trees = [stack.enter_context(commits.checked_out(c)) for c in (options.old, options.new)]
        both = [stack.enter_context(Served(root, names)) for root in trees]
        for served in both:
            served.line()
        for name in names:
            taken = np.empty((options.rounds, 2))
            for k in range(options.rounds):
                for who in (k % 2, 1 - k % 2):
                    taken[k, who] = float(both[who].line(name))
            log = np.log(taken[:, 1] / taken[:, 0])
            half = stats.t.ppf(0.975, log.size - 1) * log.std(ddof=1) / np.sqrt(log.size)
            low, middle, high = np.exp(log.mean() + half * np.array([-1.0, 0.0, 1.0]))
            old, new = np.median(taken, axis=0)
            table.add(path=name, old_s=old, new_s=new, ratio=middle, lower=low, upper=high)


if __name__ == "__main__":
    main()
