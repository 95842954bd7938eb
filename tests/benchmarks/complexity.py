"""mu-complexity of the synthetic data of Frick et al., section 4, next to their Table 20.

    python tests/benchmarks/complexity.py [--full] [--fit N,M ...]

Table 20 evaluates both ratios at the most likely items only, a lower bound of the supremum that is
computed here: the same ratio at the item's own threshold ``-d / a`` is printed beside it.  2PL
items; ``--full``: all sizes of the paper.
"""

import argparse
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import synthetic
from published import COMPLEXITY

import irt_dask as irt
from irt_dask.curves.grids import ABILITY_BOUND
from irt_dask.errors import ConvergenceWarning
from irt_dask.kernels.joint import modes
from irt_dask.kernels.joint.parameters import Items
from irt_dask.kernels.responses import layouts


def at_the_fit(y, items):
    """Both ratios, the larger of each and its inverse, at the fitted items; shape (items, 2)."""
    a, d = items["item_discrimination"].values, items["item_intercept"].values
    theta, _ = modes.modes(layouts.Dense(y), modes.tables(Items.of("2pl", a, d), ABILITY_BOUND))
    out = []
    for j in range(len(a)):
        z = -np.where(y[:, j] == 1, 1.0, -1.0) * (a[j] * theta + d[j])
        for p in (0, 1):
            x, w = (np.abs(z[side] ** p).sum() for side in (z > 0, z < 0))
            out.append(max(x, w) / min(x, w) if min(x, w) > 0 else np.inf)
    return np.array(out).reshape(-1, 2)


def cells(r):
    return np.concatenate(
        [layouts.to_dense(r.read_block(k).data).values for k in range(r.n_blocks)]
    )


def compare(folder, n, m):
    r = synthetic.write(Path(folder) / f"{n}-{m}", n, m)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        items = irt.fit_joint(r, max_iterations=50, progress=False)
    begun = time.perf_counter()
    result = irt.coreset_complexity(r, items, progress=False)
    seconds = time.perf_counter() - begun
    fit = at_the_fit(cells(r), items)
    regular = ((result["item_degenerate"] == 0) & (result["item_separable"] == 0)).values
    published = COMPLEXITY.get((n, m, "2pl"), ((float("nan"),) * 3,) * 2)
    for p in (0, 1):
        print(f"{n:>8} {m:>6} {p:>3}", end="")
        for f, paper in zip((np.mean, np.median, np.max), published[p], strict=True):
            ours, there = f(result[f"item_mu{p}"].values[regular]), f(fit[regular, p])
            print(f" {ours:>9.2f} {there:>9.2f} {paper:>9.2f}", end="")
        print(f" {seconds:>8.2f} {result.attrs['n_passes']:>6}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--fit", nargs="*", default=[], metavar="N,M")
    options = parser.parse_args()
    cases = [(n, m) for n, m, model in COMPLEXITY if model == "2pl"]
    if options.fit:
        cases = [tuple(int(x) for x in case.split(",")) for case in options.fit]
    elif not options.full:
        cases = [(n, m) for n, m in cases if n * m <= 10**7]
    head = [f"{name + ' ' + what:>9}" for name in ("mean", "med", "max") for what in ("sup", "fit")]
    columns = [*head[:2], f"{'paper':>9}", *head[2:4], f"{'paper':>9}", *head[4:], f"{'paper':>9}"]
    print(f"{'persons':>8} {'items':>6} {'mu':>3} {' '.join(columns)} {'seconds':>8} {'passes':>6}")
    with tempfile.TemporaryDirectory() as folder:
        for n, m in cases:
            compare(folder, n, m)


if __name__ == "__main__":
    main()
