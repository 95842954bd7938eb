"""Time of joint maximum likelihood on the data of Frick et al., beside their Tables 2 and 6.

    python tests/benchmarks/joint.py [--full] [--linear] [--fit N,M,MODEL ...]

Synthetic data as in the paper's section 4, from a Zarr store on disk, 50 iterations, on a local
cluster of one process a core with 2 GiB each.  "scipy" is the loop that calls L-BFGS for every
person and every item, timed on a sample of both in the same run and scaled to 50 iterations of all.
"gap" is what 50 iterations miss of the log-likelihood that 500 reach, relative.  ``--full`` adds
the paper's larger rows; ``--linear`` prints time an iteration for 10^5 to 10^6 persons x 100 items.
"""

import argparse
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import synthetic
from published import MINUTES
from scipy import optimize

import irt_dask as irt
from irt_dask.errors import ConvergenceWarning

#: Persons, items, model: rows that are always measured; ``--full``: all of the paper's.
CASES = [
    (50_000, 100, "2pl"),
    (50_000, 200, "2pl"),
    (50_000, 500, "2pl"),
    (100_000, 200, "2pl"),
    (500_000, 500, "2pl"),
    (50_000, 100, "3pl"),
    (200_000, 100, "3pl"),
]
ITERATIONS = 50


def seconds(function):
    begun = time.perf_counter()
    result = function()
    return time.perf_counter() - begun, result


def fit(responses, model, iterations=ITERATIONS, **options):
    return irt.fit_joint(
        responses, model=model, max_iterations=iterations, tolerance=-1.0, progress=False, **options
    )


def peak_memory():
    """Largest memory of a process so far, GiB; runs on the workers."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


# --- the loop over scipy --------------------------------------------------------------------------


def person_cost(theta, y, a, d):
    z = a * theta[0] + d
    p = 1.0 / (1.0 + np.exp(-z))
    return np.logaddexp(0.0, z).sum() - y @ z, np.array([a @ (p - y)])


def item_cost(x, y, theta):
    z = x[0] * theta + x[1]
    p = 1.0 / (1.0 + np.exp(-z))
    return np.logaddexp(0.0, z).sum() - y @ z, np.array([theta @ (p - y), (p - y).sum()])


def scipy_loop(responses, n_persons=200, n_items=2):
    """Seconds of 50 iterations of the 2PL, one call of L-BFGS for each person and each item."""
    m = responses.n_items
    a, d = np.ones(m), np.zeros(m)
    blocks = [responses.read_block(k).data.values for k in range(responses.n_blocks)]
    y = np.concatenate([b[:, :n_items] for b in blocks]).astype(float)
    rows = blocks[0][:n_persons].astype(float)
    theta = np.random.default_rng(0).standard_normal(len(y))

    def solve(cost, start, bounds, *args):
        optimize.minimize(cost, start, args=args, jac=True, method="L-BFGS-B", bounds=bounds)

    per_person, _ = seconds(
        lambda: [solve(person_cost, [0.0], [(-6, 6)], row, a, d) for row in rows]
    )
    box = [(1e-3, 5), (-6, 6)]
    per_item, _ = seconds(
        lambda: [solve(item_cost, [1.0, 0.0], box, y[:, j], theta) for j in range(n_items)]
    )
    once = per_person / len(rows) * responses.n_persons + per_item / n_items * m
    return ITERATIONS * once


# --- tables ---------------------------------------------------------------------------------------


def table(cases, folder, client):
    print(f"{ITERATIONS} iterations; times in seconds")
    print(
        f"{'persons':>8} {'items':>6} {'model':>5} {'ours':>8} {'paper':>8} {'paper/ours':>10} "
        f"{'scipy':>10} {'scipy/ours':>10} {'gap':>9} {'worker GiB':>10}"
    )
    for n, m, model in cases:
        minutes = MINUTES.get((n, m, model), float("nan"))
        store = Path(folder) / f"{n}-{m}-{model}"
        responses = synthetic.write(store, n, m, model)
        runs = [seconds(lambda r=responses, k=model: fit(r, k)) for _ in range(1 if m > 500 else 3)]
        taken = float(np.median([t for t, _ in runs]))
        gap = loop = float("nan")
        if n * m <= 10**7:
            best = fit(responses, model, 500).attrs["objective"]
            gap = 1.0 - best / runs[0][1].attrs["objective"]
        if model == "2pl" and m <= 500:
            loop = scipy_loop(responses)
        memory = max(client.run(peak_memory).values())
        print(
            f"{n:>8} {m:>6} {model:>5} {taken:>8.2f} {minutes * 60:>8.0f} "
            f"{minutes * 60 / taken:>10.0f} {loop:>10.0f} {loop / taken:>10.0f} {gap:>9.1e} "
            f"{memory:>10.2f}",
            flush=True,
        )


def linear(folder):
    print("time an iteration (2PL, 100 items), seconds, from the second iteration on")
    sizes = [100_000, 200_000, 500_000, 1_000_000]
    each = []
    for n in sizes:
        responses = synthetic.write(Path(folder) / f"linear-{n}", n, 100)
        fit(responses, "2pl", 2)
        short, long = (
            np.median([seconds(lambda i=i, r=responses: fit(r, "2pl", i))[0] for _ in range(3)])
            for i in (5, 45)
        )
        each.append((long - short) / 40)
        print(f"{n:>9} {each[-1]:.4f}", flush=True)
    slope, fixed = np.polyfit(sizes, each, 1)
    print(f"time = {fixed:.4f} + {1e6 * slope:.4f} n / 10^6; largest residual:", end=" ")
    print(f"{np.abs(np.polyval([slope, fixed], sizes) / each - 1).max():.1%}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--linear", action="store_true")
    parser.add_argument("--fit", nargs="*", default=[], metavar="N,M,MODEL")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    cases = list(MINUTES) if options.full else CASES
    if options.fit:
        chosen = [tuple(x.split(",")) for x in options.fit]
        cases = [(int(n), int(m), model) for n, m, model in chosen]
    with tempfile.TemporaryDirectory() as folder, irt.connect() as client:
        warm = irt.simulate(3000, 500, seed=1)
        for model in ("2pl", "3pl"):
            fit(warm, model, 2)  # compiles
        if not options.linear:
            table(cases, folder, client)
        else:
            linear(folder)


if __name__ == "__main__":
    main()
