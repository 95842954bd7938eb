"""Facets at scale: many raters, each of a few works; severities, their errors, time and memory.

    python tests/benchmarks/facets.py [--works 36000] [--raters 11000] [--items 9] [--sets 0]

Simulates works that two raters each rate on items of 4 categories (severities N(0, .6^2)), fits
``fit_marginal(model="gpcm", facets=["rater"])`` and prints the time (of this process, and on the
clock), the largest memory, and how severities and works' abilities recover.  With ``--sets`` also
the coverage of 95% intervals over so many small sets (300 works, 12 raters, 3 items), and of shrunk
effects against fixed ones (300 works, 150 raters, some 12 answers each).
"""

from __future__ import annotations

import argparse
import resource
import time
import warnings
from typing import Any

import numpy as np
import scipy.sparse

import irt_dask as irt
from irt_dask.errors import DataWarning

CATEGORIES, SD = 4, 0.6


def simulated(n_works: int, n_raters: int, n_items: int, seed: int) -> tuple[Any, list[str], Any]:
    """Sparse codes of works by item@rater, names of columns, and what is true."""
    rng = np.random.default_rng(seed)
    theta, severity = rng.standard_normal(n_works), SD * rng.standard_normal(n_raters)
    severity -= severity.mean()
    a, b = np.full(n_items, 1.3), rng.normal(0.0, 0.6, n_items)
    d = -np.cumsum(a[:, None] * (b[:, None] + np.linspace(-1, 1, CATEGORIES - 1)), axis=1)
    first, second = (rng.permutation(np.resize(np.arange(n_raters), n_works)) for _ in range(2))
    second = np.where(second == first, (second + 1) % n_raters, second)
    rows, columns, values = [], [], []
    for who in (first, second):
        for i in range(n_items):
            z = np.arange(1, CATEGORIES) * a[i] * (theta - severity[who])[:, None] + d[i]
            p = np.exp(np.concatenate([np.zeros((n_works, 1)), z], axis=1))
            p /= p.sum(axis=1, keepdims=True)
            rows.append(np.arange(n_works))
            columns.append(who * n_items + i)
            values.append((rng.random((n_works, 1)) > np.cumsum(p, axis=1)).sum(axis=1))
    used, place = np.unique(np.concatenate(columns), return_inverse=True)
    matrix = scipy.sparse.csr_matrix(
        (np.concatenate(values), (np.concatenate(rows), place)), shape=(n_works, used.size)
    )
    names = [f"t{u % n_items}@r{u // n_items}" for u in used]
    return matrix, names, {"theta": theta, "severity": severity}


def fitted(n_works: int, n_raters: int, n_items: int, seed: int, **options: Any) -> Any:
    """The fit, its raters' true severities (sum 0), and the responses."""
    matrix, names, true = simulated(n_works, n_raters, n_items, seed)
    r = irt.from_array(matrix, observed="stored", item_id=names, categories=CATEGORIES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        fit = irt.fit_marginal(r, model="gpcm", facets=["rater"], **options)
    severity = true["severity"][[int(level[1:]) for level in fit["level"].values]]
    return fit, severity - severity.mean(), r


def recovery(effect: Any, se: Any, true: Any) -> str:
    """How estimates compare with what is true."""
    r, rmse = np.corrcoef(effect, true)[0, 1], np.sqrt(np.mean((effect - true) ** 2))
    inside = np.mean(np.abs(effect - true) < 1.96 * se)
    return (
        f"r {r:.3f}, RMSE {rmse:.3f}, mean SE {np.sqrt(np.mean(se**2)):.3f}, coverage {inside:.3f}"
    )


def small_sets(n: int) -> None:
    """Coverage in small sets; shrunk and fixed effects of levels with few answers."""
    errors, inside, shrunk = [], [], []
    for seed in range(n):
        fit, true, _ = fitted(300, 12, 3, 1000 + seed, progress=False)
        gap = np.abs(fit["facet_effect"].values - true)
        inside.append(gap < 1.96 * fit["facet_effect_se"].values)
    print(f"{n} sets of 12 severities: {np.mean(inside):.4f} of {np.size(inside)} intervals hold")
    for seed in range(max(1, n // 10)):
        fit, true, _ = fitted(300, 150, 3, 2000 + seed, progress=False)
        fixed, effect = fit["facet_effect_fixed"].values, fit["facet_effect"].values
        kept = fit["facet_shrunk"].values & np.isfinite(fixed)
        errors.append([np.mean((x - true)[kept] ** 2) for x in (effect, fixed)])
        shrunk.append(np.abs(effect - true)[kept] < 1.96 * fit["facet_effect_se"].values[kept])
    rmse = np.sqrt(np.mean(errors, axis=0))
    held = np.mean(np.concatenate(shrunk))
    print(f"few answers: RMSE {rmse[0]:.3f} shrunk, {rmse[1]:.3f} fixed; {held:.3f} held")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--works", type=int, default=36_000)
    parser.add_argument("--raters", type=int, default=11_000)
    parser.add_argument("--items", type=int, default=9)
    parser.add_argument("--sets", type=int, default=0)
    parser.add_argument("--no-errors", action="store_true")
    asked = parser.parse_args()
    options = {"standard_errors": False} if asked.no_errors else {}
    clock, own = time.perf_counter(), time.process_time()
    fit, true, r = fitted(asked.works, asked.raters, asked.items, 1, **options)
    clock, own = time.perf_counter() - clock, time.process_time() - own
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    times = f"{own:.0f} s of processor time, {clock:.0f} s on the clock"
    print(f"{r}: {fit.attrs['n_iterations']} iterations, {times}, {peak:.2f} GiB")
    print(recovery(fit["facet_effect"].values, fit["facet_effect_se"].values, true))
    if asked.sets:
        small_sets(asked.sets)


if __name__ == "__main__":
    main()
