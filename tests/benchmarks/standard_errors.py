"""Standard errors of marginal fits beyond matrices: time, memory, and how many passes they take.

    python tests/benchmarks/standard_errors.py booklets [items] [persons]   40 answers each
    python tests/benchmarks/standard_errors.py complete [items] [persons]   all items
    python tests/benchmarks/standard_errors.py weighted [items] [persons]   40 answers at random

Prints time and memory.  Booklets are of 40 items, half of which the next one has too.  Weighted
persons have sampling weights, and so sandwich errors, of gpcm items of four categories.  Seeds are
fixed.
"""

import resource
import sys
import time

import numpy as np
import scipy.sparse

import irt_dask as irt
from irt_dask.calibrate.marginal import errors, lost_products, middle, sampling


def simulated(n, m, kind, answered=40):
    rng = np.random.default_rng(0)
    a, b = np.exp(rng.normal(0.1, 0.3, m)), rng.normal(size=m)
    theta = rng.normal(size=n)
    if kind == "complete":
        y = np.empty((n, m), dtype=np.int8)
        for i in range(n):
            y[i] = rng.random(m) < 1.0 / (1.0 + np.exp(-a * (theta[i] - b)))
        return irt.from_array(y)
    half = answered // 2
    first = half * (rng.permutation(n) % (m // half))
    items = (first[:, None] + np.arange(answered)) % m
    p = 1.0 / (1.0 + np.exp(-a[items] * (theta[:, None] - b[items])))
    right = (rng.random(p.shape) < p).astype(np.int8)
    rows = np.repeat(np.arange(n), answered)
    y = scipy.sparse.csr_matrix((right.ravel(), (rows, items.ravel())), (n, m))
    return irt.from_array(y, observed="stored")


def weighted(n, m, answered=40):
    rng = np.random.default_rng(0)
    a, d = np.exp(rng.normal(0.1, 0.3, m)), np.sort(rng.normal(size=(m, 3)), axis=1)[:, ::-1]
    d = np.concatenate([np.zeros((m, 1)), np.cumsum(d, axis=1)], axis=1)
    theta, weight = rng.normal(size=n), rng.gamma(3.0, 1.0 / 3.0, n)
    items = np.argsort(rng.random((n, m)), axis=1)[:, :answered]
    z = np.arange(4) * (a[items] * theta[:, None])[:, :, None] + d[items]
    p = np.exp(z - z.max(axis=2, keepdims=True))
    above = np.cumsum(p / p.sum(axis=2, keepdims=True), axis=2)
    category = (rng.random((n, answered, 1)) > above).sum(axis=2).astype(np.int8)
    rows = np.repeat(np.arange(n), answered)
    y = scipy.sparse.csr_matrix((category.ravel(), (rows, items.ravel())), (n, m))
    return irt.from_array(y, observed="stored", categories=4, persons={"weight": weight})


def main(kind, m=10_000, n=20_000):
    data = weighted(int(n), int(m)) if kind == "weighted" else simulated(int(n), int(m), kind)
    passes, squares, whole = [], [], []

    def timed(function, to, size):
        def call(*args):
            begun = time.perf_counter()
            out = function(*args)
            to.append((size(args), time.perf_counter() - begun))
            return out

        return call

    lost_products.products = timed(lost_products.products, passes, lambda a: a[2].shape[1])
    middle.Middle.times = timed(middle.Middle.times, squares, lambda a: a[1].shape[1])
    errors._large = timed(errors._large, whole, lambda _: 1)
    sampling.MAX_MATRIX = 1
    begun = time.perf_counter()
    options = {"tolerance": 1e-6, "max_iterations": 30, "progress": False}
    if kind == "weighted":
        options |= {"model": "gpcm", "null_categories": "keep"}
    fit = irt.fit_marginal(data, standard_errors=True, **options)
    seconds = time.perf_counter() - begun
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{kind} {n} x {m}: {seconds:.0f} s and {memory:.2f} GiB in all; "
        f"{fit.attrs['n_iterations']} rounds; standard errors "
        f"{' + '.join(f'{s:.0f}' for _, s in whole)} s; {len(passes)} passes of "
        f"{sum(v for v, _ in passes)} vectors in {sum(s for _, s in passes):.0f} s; "
        f"squares times {sum(v for v, _ in squares)} in {sum(s for _, s in squares):.0f} s"
    )
    print(fit.attrs.get("standard_errors"))


if __name__ == "__main__":
    main(*sys.argv[1:])
