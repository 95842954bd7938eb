"""Residuals of all items of a person, and sums of their products that are exact.

Residuals and scores are rounded to whole multiples of ``1 / UNIT``.  Their products and the sums
over some thousand persons are whole numbers below 2^53, which a double holds: a matrix product of
them is exact in any order, and its bits do not depend on the blocks.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.misfit.predictions import Curves, weigh
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Layout, row_range
from irt_dask.kernels.responses.rows import item, n_rows

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Multiples in one: products are at most 2^32, and a sum of 2^30 of them fits 62 bits.
UNIT = 65536.0
#: Persons whose products are added as doubles; bounds the memory of a block's residuals.
_CHUNK = 4096
#: Divisor, squared for the SD, that brings the scores of mean and SD of ability within 1: where
#: the grid ends further out, the next power of two.
_MEAN_BOUND = 8.0


@jit
def _residuals(
    indptr: Any,
    indices: Any,
    values: Any,
    g: Curves,
    lo: int,
    hi: int,
    lo2: int,
    hi2: int,
    out: Floats,
    seen: Floats,
) -> None:
    w = np.empty(g.nodes.size)
    for i in range(n_rows(indptr, values)):
        items, row = rows.row(indptr, indices, values, i)
        total, _ = weigh(items, row, g, w)
        x = 0.0
        for q in range(w.size):
            x += w[q] * g.nodes[q]
        x /= total
        for k in range(row.size):
            j = item(items, k)
            if row[k] < 0 or not (lo <= j < hi or lo2 <= j < hi2):
                continue
            p = g.c[j] + (1.0 - g.c[j]) / (1.0 + math.exp(-(g.a[j] * x + g.d[j])))
            r = np.rint((row[k] - p) * UNIT)
            if lo <= j < hi:
                out[i, j - lo] = r
                seen[i, j - lo] = 1.0
            if lo2 <= j < hi2:
                out[i, hi - lo + j - lo2] = r
                seen[i, hi - lo + j - lo2] = 1.0


def _chunks(data: Layout) -> Any:
    n = data.shape[0]
    for k in range(0, n, _CHUNK):
        yield row_range(data, k, min(k + _CHUNK, n))


def residual_products(data: Layout, g: Curves, lo: int, hi: int, lo2: int, hi2: int) -> Ints:
    """Sums over the persons who answered both of two items, shape (6, hi - lo, hi2 - lo2).

    Persons, residuals of the first and of the second, their squares, products; residuals are at the
    posterior mean of ability and count multiples of ``1 / UNIT``.
    """
    t = hi - lo
    out = np.zeros((6, t, hi2 - lo2), dtype=np.int64)
    for part in _chunks(data):
        r = np.zeros((part.shape[0], t + hi2 - lo2))
        seen = np.zeros_like(r)
        _residuals(*rows.arrays(part), g, lo, hi, lo2, hi2, r, seen)
        r1, r2, s1, s2 = r[:, :t], r[:, t:], seen[:, :t], seen[:, t:]
        if seen.all():  # everybody answered: column sums will do
            out[0] += part.shape[0]
            for k, x in ((1, r1), (3, r1**2)):
                out[k] += x.sum(axis=0).astype(np.int64)[:, None]
            for k, x in ((2, r2), (4, r2**2)):
                out[k] += x.sum(axis=0).astype(np.int64)
        else:
            pairs = ((s1, s2), (r1, s2), (s1, r2), (r1**2, s2), (s1, r2**2))
            for k, (left, right) in enumerate(pairs):
                out[k] += (left.T @ right).astype(np.int64)
        out[5] += (r1.T @ r2).astype(np.int64)
    return out


@jit
def _scores(
    indptr: Any,
    indices: Any,
    values: Any,
    g: Curves,
    right: Floats,
    wrong: Floats,
    mean: float,
    sd: float,
    slope_bound: float,
    out: Floats,
) -> None:
    m = g.a.size
    w = np.empty(g.nodes.size)
    mean_bound = _MEAN_BOUND
    while mean_bound < g.nodes[-1]:
        mean_bound *= 2.0
    for i in range(n_rows(indptr, values)):
        items, row = rows.row(indptr, indices, values, i)
        total, _ = weigh(items, row, g, w)
        m1 = 0.0
        m2 = 0.0
        observed = 0
        for q in range(w.size):
            w[q] /= total
            m1 += w[q] * g.nodes[q]
            m2 += w[q] * g.nodes[q] * g.nodes[q]
        for k in range(row.size):
            if row[k] < 0:
                continue
            observed += 1
            j = item(items, k)
            table = right[j] if row[k] == 1 else wrong[j]
            s0 = 0.0
            s1 = 0.0
            for q in range(w.size):
                x = w[q] * table[q]
                s0 += x
                s1 += x * g.nodes[q]
            out[i, j] = np.rint(s0 * UNIT)
            out[i, m + j] = np.rint((mean * s0 + sd * s1) / slope_bound * UNIT)
        if observed > 0:
            out[i, 2 * m] = np.rint(m1 / mean_bound * UNIT)
            out[i, 2 * m + 1] = np.rint((m2 - 1.0) / (mean_bound * mean_bound) * UNIT)


def score_products(
    data: Layout, g: Curves, mean: float, sd: float, slope_bound: float
) -> tuple[Ints, Ints]:
    """Sums over persons of the marginal score, and of its products with itself.

    Entries are the derivatives of a person's log marginal likelihood in the intercepts, in the
    slopes over ``slope_bound``, and, up to factors, in mean and SD of ability; they count multiples
    of ``1 / UNIT``.  Shapes (2 items + 2,) and (2 items + 2, 2 items + 2).  By Fisher's identity
    each is the posterior mean of the derivative given ability, ``(y - P) s / P`` and that times
    ability, ``P = c + (1 - c) s``.
    """
    s = 1.0 / (1.0 + np.exp(-(np.multiply.outer(g.a, g.nodes) + g.d[:, None])))
    p = g.c[:, None] + (1.0 - g.c[:, None]) * s
    right, wrong = s * (1.0 - p) / p, -s
    size = 2 * g.a.size + 2
    sums, products = np.zeros(size, dtype=np.int64), np.zeros((size, size), dtype=np.int64)
    for part in _chunks(data):
        x = np.zeros((part.shape[0], size))
        _scores(*rows.arrays(part), g, right, wrong, mean, sd, slope_bound, x)
        sums += x.sum(axis=0).astype(np.int64)
        products += (x.T @ x).astype(np.int64)
    return sums, products
