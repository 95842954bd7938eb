"""mu-complexity of the synthetic 2PL data of Frick et al., section 4, next to their Table 20.

    python tests/benchmarks/complexity.py [persons] [items]

Table 20 evaluates both ratios at the most likely items only, a lower bound of the supremum that is
computed here: the same ratio at the item's own threshold ``-d / a`` is printed beside it.
"""

import sys
import time
import warnings

import numpy as np

import irt_dask as irt
from irt_dask.errors import ConvergenceWarning
from irt_dask.kernels import layouts, modes
from irt_dask.kernels.parameters import Items
from irt_dask.models import ABILITY_BOUND


def simulated(n, m, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.normal(2.75, 0.3, m)
    while (a <= 0.0).any():
        a = np.where(a > 0.0, a, rng.normal(2.75, 0.3, m))
    z = np.outer(rng.standard_normal(n), a) - rng.standard_normal(m)
    return (rng.random((n, m)) < 1.0 / (1.0 + np.exp(-z))).astype(np.int8)


def at_the_fit(y, items):
    """Both ratios, the larger of each and its inverse, at the fitted items; shape (items, 2)."""
    a, d = items["item_discrimination"].values, items["item_intercept"].values
    theta, _ = modes.modes(layouts.Dense(y), Items.of(a, d), ABILITY_BOUND)
    out = []
    for j in range(len(a)):
        z = -np.where(y[:, j] == 1, 1.0, -1.0) * (a[j] * theta + d[j])
        for p in (0, 1):
            x, w = (np.abs(z[side] ** p).sum() for side in (z > 0, z < 0))
            out.append(max(x, w) / min(x, w) if min(x, w) > 0 else np.inf)
    return np.array(out).reshape(-1, 2)


def main():
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    m = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    y = simulated(n, m)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        items = irt.fit_joint(y, max_iterations=50)
    begun = time.perf_counter()
    result = irt.coreset_complexity(y, items)
    seconds = time.perf_counter() - begun
    print(f"{n} x {m}: {seconds:.2f} s, {result.attrs['n_passes']} passes")
    print(f"degenerate {result.attrs['n_degenerate']}, separable {result.attrs['n_separable']}")
    fit = at_the_fit(y, items)
    regular = ((result["item_degenerate"] == 0) & (result["item_separable"] == 0)).values
    print("          mean         median       max     (supremum; at the fit)")
    for p in (0, 1):
        values = (result[f"item_mu{p}"].values[regular], fit[regular, p])
        row = [f"{f(values[0]):.2f} ({f(values[1]):.2f})" for f in (np.mean, np.median, np.max)]
        print(f"mu_{p}:", *row)
    print("Table 20, 50000 x 100, at the fit: mu_0 7.85, 5.80, 48.21; mu_1 25.65, 18.09, 165.28")


if __name__ == "__main__":
    main()
