"""Pair counts and the spectral estimate: speed, dense and sparse.

    python tests/benchmarks/pairwise.py [dense] [sparse] [ratings]

``dense``: counts of all pairs of 200,000 x 500 (and up to 2,000,000 x 500) complete responses from
memory, against a matrix product in single precision of the same blocks; ps are per pair (items^2)
and person.  ``sparse``: 6,040 x 3,706 with 10^6 responses, against the algorithm printed in Nguyen
and Zhang's appendix (masked dense products, power iteration).  ``ratings``: as many persons, items
and responses as MovieLens 20M, with popularity by a power law, from a store; the paper needed
1,580 s for that data set.
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import irt_dask as irt
from irt_dask.kernels.responses.layouts import Sparse
from irt_dask.store import StoreWriter

PAPER_SECONDS = 1580


def seconds(function):
    begun = time.perf_counter()
    result = function()
    return time.perf_counter() - begun, result


# --- dense ----------------------------------------------------------------------------------------


def matrix_products(r):
    """Persons right on i and wrong on j by blocks, in single precision; two threads of BLAS."""
    total = 0.0
    for k in range(r.n_blocks):
        y = r.read_block(k).data.values
        total = total + (y == 1).T.astype(np.float32) @ (y == 0).astype(np.float32)
    return total


def dense():
    head = f"{'persons':>9} {'items':>6} {'missing':>7} {'ours s':>8} {'ps':>6}"
    print(f"{head} {'matmul s':>9} {'x':>6}")
    for n, missing in ((200_000, 0.0), (200_000, 0.1), (500_000, 0.0), (2_000_000, 0.0)):
        m = 500
        rng = np.random.default_rng(0)
        y = rng.integers(0, 2, (n, m), dtype=np.int8)
        if missing:
            y[rng.random((n, m), dtype=np.float32) < missing] = -1
        r = irt.from_array(y)
        irt.pair_counts(r, progress=False)
        times = [seconds(lambda r=r: irt.pair_counts(r, progress=False)) for _ in range(5)]
        ours = float(np.median([t for t, _ in times]))
        products, ratio = float("nan"), float("nan")
        if n <= 200_000:
            matrix_products(r)
            runs = [seconds(lambda r=r: matrix_products(r)) for _ in range(3)]
            products = float(np.median([t for t, _ in runs]))
            assert (times[0][1]["pair_count"].values == runs[0][1]).all()
            ratio = products / ours
        print(
            f"{n:>9} {m:>6} {missing:>7} {ours:>8.3f} {ours / (n * m * m) * 1e12:>6.2f} "
            f"{products:>9.3f} {ratio:>6.1f}",
            flush=True,
        )


# --- sparse ---------------------------------------------------------------------------------------


def ratings(n, m, n_responses, least, spread, seed=0):
    """Sparse Rasch responses: popularity by a power law, numbers of responses log-normal."""
    rng = np.random.default_rng(seed)
    size = np.maximum(rng.lognormal(0.0, spread, n), 1e-3)
    size = np.minimum(least + size * (n_responses - least * n) / size.sum(), m // 2).astype(int)
    popularity = 1.0 / (np.arange(m) + 20.0) ** 0.9
    cuts = np.cumsum(popularity / popularity.sum())
    b, theta = rng.normal(size=m), rng.normal(size=n)
    indptr, indices = [0], []
    for k in size:
        drawn = np.searchsorted(cuts, rng.random(int(1.3 * k) + 4), side="right")
        items = np.unique(np.minimum(drawn, m - 1)[: int(1.3 * k)])
        indices.append(items.astype(np.int32))
        indptr.append(indptr[-1] + items.size)
    flat = np.concatenate(indices)
    person = np.repeat(np.arange(n), np.diff(indptr))
    p = 1.0 / (1.0 + np.exp(b[flat] - theta[person]))
    return Sparse(np.array(indptr), flat, (rng.random(flat.size) < p).astype(np.int8), m)


def published(dense, nu, steps=10_000, tolerance=1e-13):
    """Estimate as in the appendix: masked products of persons x items, then power iteration."""
    x = np.ma.masked_less(dense.T, 0.0)
    seen = (dense.T >= 0).astype(float)
    counts = np.round(np.ma.dot(x, (1.0 - x).T)).filled(0.0)
    counts = np.where(seen @ seen.T > 0, counts + nu, counts)
    np.fill_diagonal(counts, 0.0)
    d = counts.sum(axis=1)
    chain = sp.csc_matrix(counts / d[:, None])
    pi = np.ones(len(d)) / len(d)
    for _ in range(steps):
        new = pi @ chain
        new /= new.sum()
        if np.linalg.norm(new - pi) < tolerance:
            break
        pi = new
    beta = np.log(new / d)
    return beta - beta.mean()


def answered(data):
    """Keep the items that somebody answered."""
    kept, index = np.unique(data.indices, return_inverse=True)
    return Sparse(data.indptr, index.astype(np.int32), data.values, kept.size)


def write(path, data, rows=2048):
    n, m = data.shape
    capacity = int(max(np.diff(data.indptr[::rows]).max(), data.indptr[-1] - data.indptr[-2]))
    capacity = max(capacity, int(data.indptr[-1] - data.indptr[(n - 1) // rows * rows]))
    with StoreWriter(
        path, item_id=[f"i{j}" for j in range(m)], n_persons=n, rows_per_block=rows,
        layout="csr", capacity=capacity,
    ) as writer:  # fmt: skip
        for start in range(0, n, rows):
            stop = min(start + rows, n)
            a, b = data.indptr[start], data.indptr[stop]
            block = Sparse(
                data.indptr[start : stop + 1] - a, data.indices[a:b], data.values[a:b], m
            )
            writer.write(block, person_id=[str(i) for i in range(start, stop)])
        return writer.commit()


def sparse():
    data = answered(ratings(6040, 3706, 1_000_000, 20, 1.0))
    n, m = data.shape
    matrix = sp.csr_array(
        (data.values.astype(float) + 1.0, data.indices, data.indptr), shape=(n, m)
    )
    r = irt.from_array(
        sp.csr_array((data.values, data.indices, data.indptr), shape=(n, m)), observed="stored"
    )

    def ours():
        return irt.fit_spectral(r, standard_errors=False, progress=False)

    ours()
    times = [seconds(ours) for _ in range(3)]
    fit, taken = times[0][1], float(np.median([t for t, _ in times]))
    dense_rows = matrix.toarray() - 1.0
    there, beta = seconds(lambda: published(dense_rows, 1.0))
    gap = np.abs(fit["item_difficulty"].values - beta).max()
    print(f"{n} x {m}, {data.n_observed} responses, nu = 1")
    print(f"ours {taken:.2f} s, published algorithm {there:.1f} s: {there / taken:.0f} times")
    print(f"largest difference of difficulties {gap:.1e}")


def large():
    data = answered(ratings(138_493, 27_278, 20_000_000, 20, 1.2))
    n, m = data.shape
    with tempfile.TemporaryDirectory() as folder, irt.connect() as client:
        r = write(Path(folder) / "store", data)
        print(f"{n} x {m}, {data.n_observed} responses, from a store, nu = 1", flush=True)
        del data
        taken, fit = seconds(lambda: irt.fit_spectral(r, progress=False))
        memory = sum(
            client.run(lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss).values()
        )
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"ours {taken:.1f} s ({fit.attrs['n_iterations']} products, residual "
        f"{fit.attrs['residual']:.1e}); paper {PAPER_SECONDS} s; peak memory of the workers "
        f"{memory / 2**20:.2f} GiB, of the driver (with the simulation) {own / 2**20:.2f} GiB"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=["dense", "sparse", "ratings"])
    for part in parser.parse_args().parts:
        {"dense": dense, "sparse": sparse, "ratings": large}[part]()


if __name__ == "__main__":
    main()
