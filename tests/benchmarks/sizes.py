"""Time and memory of every public method on many items and few persons.

    python tests/benchmarks/sizes.py [--persons 1000] [--items 20000] [--observed 0.2]
        [--limit 600] [METHOD ...]

Each method of the tests' registry runs in a process of its own on simulated responses, kept sparse.
Times are wall clock; memory is the largest resident set beyond that with the data.  A method that
refuses the data has the name of its error, one that takes more than the limit is stopped.
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from results import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "contracts"))
import registry


def simulated(n: int, m: int, observed: float) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Responses to the registry's bank of m items, and columns of persons."""
    rng = np.random.default_rng(0)
    bank = registry.banks(m)["2pl"]
    slope, intercept = bank["item_discrimination"].values, bank["item_intercept"].values
    y = np.empty((n, m), dtype=np.int8)
    for row in y:
        p = 1.0 / (1.0 + np.exp(-(slope * rng.normal() + intercept)))
        row[:] = np.where(rng.random(m) < observed, rng.random(m) < p, -1)
    return y, registry.table(n)


def peak() -> float:
    """Largest resident set of this process, GiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(x.split()[1]) for x in lines if x.startswith("VmHWM")) / 2**20


def run(label: str, n: int, m: int, observed: float) -> None:
    """Print seconds, GiB and how a method ended."""
    method, columns = registry.named(label), {}
    y, persons = simulated(n, m, observed)
    if method.groups == "needs":
        columns["group"] = persons["group"]
    if method.covariates:
        columns |= {k: persons[k] for k in ("age", "sex")}
    import pandas as pd

    options = {"persons": pd.DataFrame(columns)} if columns else {}
    responses = registry.as_responses(y, layout="csr", **options)
    del y
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = peak()
    warnings.simplefilter("ignore")
    began, end = time.perf_counter(), "done"
    try:
        method(responses, banks=registry.banks(m), progress=False)
    except Exception as e:
        end = type(e).__name__
        print(e, file=sys.stderr)
    seconds = time.perf_counter() - began
    print(seconds, peak() - before, end)


def main() -> None:
    table = Table()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("methods", nargs="*")
    parser.add_argument("--persons", type=int, default=1000)
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--observed", type=float, default=0.2)
    parser.add_argument("--limit", type=float, default=600.0)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_intermixed_args()
    size = (options.persons, options.items, options.observed)
    if options.one:
        run(options.methods[0], *size)
        return
    given = [f"--{k}={v}" for k, v in zip(("persons", "items", "observed"), size, strict=True)]
    with table:
        for label in options.methods or [m.label for m in registry.METHODS]:
            command = [sys.executable, __file__, "--one", *given, label]
            try:
                said = subprocess.run(
                    command, capture_output=True, text=True, timeout=options.limit, check=False
                )
            except subprocess.TimeoutExpired:
                table.add(method=label, seconds=options.limit, gib=float("nan"), end="stopped")
                continue
            if said.returncode:
                table.add(method=label, seconds=0.0, gib=0.0, end=f"killed ({said.returncode})")
                continue
            seconds, gib, end = said.stdout.split()
            table.add(method=label, seconds=float(seconds), gib=float(gib), end=end)
            if end != "done":
                print(f"    {said.stderr.strip()[-200:]}", file=sys.stderr)


if __name__ == "__main__":
    main()
