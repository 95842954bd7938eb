"""Time of one Gibbs sweep: grid sampler against Polya-Gamma augmentation, side by side.

    python tests/benchmarks/gibbs.py [persons] [items]

The reference draws one PG(1, z) per response and a bivariate normal per item in NumPy, with the
fastest public sampler of exact draws.  Both sides run on one thread; medians of five blocks.
"""

import statistics
import sys
import time

import numpy as np
from polyagamma import random_polyagamma

import irt_dask as irt
from irt_dask.engine.threads import single_threaded
from irt_dask.kernels import drawing, keyed, metropolis
from irt_dask.models import ItemPrior, grid_for


def grid_sweep(data, state, step):
    log_a, d, grid, start, prior = state
    u = keyed.stream(keyed.key(1, "u", step), data.n)
    kept, right, seen, persons = drawing.draw_counts(data, np.exp(log_a), d, grid.nodes, u)
    random = keyed.uniforms(keyed.key(1, "i", step), 0, data.n_items, metropolis.WORDS_PER_ITEM)
    accepted = np.zeros(data.n_items, dtype=np.int64)
    metropolis.metropolis(right, seen, kept, grid.nodes, prior, start, random, log_a, d, accepted)
    scale = keyed.stream(keyed.key(1, "s", step), metropolis.WORDS_PER_RESCALE)
    metropolis.rescale(persons, grid.nodes, prior, scale, log_a, d)


def polya_gamma_sweep(y, state, rng):
    theta, a, d = state
    kappa = y - 0.5
    z = theta[:, None] * a + d
    w = np.empty_like(z)
    random_polyagamma(1.0, z, out=w, method="devroye", random_state=rng)
    precision = 1.0 + (w * a**2).sum(axis=1)
    theta[:] = ((kappa - w * d) * a).sum(axis=1) / precision
    theta += rng.standard_normal(theta.size) / np.sqrt(precision)
    x = np.stack([theta, np.ones_like(theta)], axis=1)
    for j in range(a.size):
        q = (x * w[:, j : j + 1]).T @ x + np.diag([1.0, 0.25])
        mean = np.linalg.solve(q, x.T @ kappa[:, j] + [1.0, 0.0])
        while True:
            a[j], d[j] = mean + np.linalg.solve(np.linalg.cholesky(q).T, rng.standard_normal(2))
            if a[j] > 0:
                break


def medians(function, blocks=5, least=0.4):
    function()
    times = []
    for _ in range(blocks):
        n, begun = 0, time.perf_counter()
        while time.perf_counter() - begun < least:
            function()
            n += 1
        times.append((time.perf_counter() - begun) / n)
    return statistics.median(times)


def main():
    n, m = (int(x) for x in (sys.argv[1:] + ["10000", "40"][len(sys.argv) - 1 :])[:2])
    rng = np.random.default_rng(0)
    print(f"{n} persons x {m} items; time of a sweep, one thread")
    print(
        f"{'missing':>8}  {'grid (ms)':>10}  {'ns a response':>13}  {'Polya-Gamma (ms)':>17}  ratio"
    )
    for missing in (0.0, 0.3):
        r = irt.simulate(n, m, missing=missing, rows_per_block=n)
        values = r.read_block(0).data.values
        data = drawing.prepare(r.read_block(0).data)
        a, d = r.truth["item_discrimination"].values, r.truth["item_intercept"].values
        log_a, dd = np.log(a), d.copy()
        state = (log_a, dd, grid_for(a, d, margin=1.25), (a, d), ItemPrior().tempered(1.0))
        step = iter(range(10**9))
        with single_threaded():
            ours = medians(lambda: grid_sweep(data, state, next(step)))  # noqa: B023
            theirs = float("nan")
            if missing == 0.0:
                y = (values == 1).astype(float)
                chain = (rng.standard_normal(n), a.copy(), d.copy())
                theirs = medians(lambda: polya_gamma_sweep(y, chain, rng))  # noqa: B023
        cells = n * m * (1 - missing)
        print(
            f"{missing:>8.0%}  {ours * 1e3:>10.2f}  {ours / cells * 1e9:>13.1f}  "
            f"{theirs * 1e3:>17.1f}  {theirs / ours:>5.1f}"
        )


if __name__ == "__main__":
    main()
