"""Residuals and scores of all items of a person, and sums of their products that are exact.

Both are rounded to whole multiples of ``1 / UNIT``.  Their products and the sums over some thousand
persons are whole numbers below 2^53, which a double holds: a matrix product of them is exact in any
order, and its bits do not depend on the blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.base.lanes import LANES, dot, total
from irt_dask.kernels.posterior.at_ability import Between, probabilities
from irt_dask.kernels.posterior.person_weights import (
    Chosen,
    Prior,
    Shared,
    Some,
    gather,
    some,
    weigh,
)
from irt_dask.kernels.posterior.tables import Tables
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Layout, row_range
from irt_dask.kernels.responses.rows import item, n_rows

#: Multiples in one: products are at most 2^32, and a sum of 2^30 of them fits 62 bits.
UNIT = 65536.0
#: The same of sums of scores.  Persons who answered alike are rounded alike: in a short test a
#: million of them would add up the error of one.
SUM_UNIT = 2.0**31
#: Persons whose products are added as doubles; bounds the memory of a block's residuals.
_CHUNK = 4096
#: Bits of how many persons a row is that a product of matrices takes at a time: 2^12 rows, products
#: of 2^32 and these fill a double.
_DIGIT_BITS = 9
#: Divisor, squared for the SD, that brings the scores of mean and SD of ability within 1: where
#: the grid ends further out, the next power of two.
_MEAN_BOUND = 8.0


def _ranges(n: int) -> Iterator[tuple[int, int]]:
    return ((k, min(k + _CHUNK, n)) for k in range(0, n, _CHUNK))


# --- residuals ------------------------------------------------------------------------------------


@jit
def _residuals(
    indptr: Any, indices: Any, values: Any, theta: Floats, g: Any, out: Floats, seen: Floats
) -> None:
    w, p = np.empty((3, 6)), np.empty(g.first[-1])
    for i in range(n_rows(indptr, values)):
        items, row = rows.row(indptr, indices, values, i)
        probabilities(items, row, g, theta[i], w, p)
        n = 0
        for k in range(row.size):
            if row[k] >= 0:
                j = item(items, k)
                rest = 0.0  # sum of P times distance: as small as it is where y is all but certain
                for c in range(g.first[j + 1] - g.first[j]):
                    rest += (row[k] - c) * p[n + c]
                out[i, j] = np.rint(rest * UNIT)
                seen[i, j] = 1.0
                n += g.first[j + 1] - g.first[j]


def residual_products(data: Layout, theta: Floats, g: Between, first: slice, second: slice) -> Ints:
    """Sums over the persons who answered both of two items, one from each slice of them.

    Shape (6, first, second): persons, residuals ``y - E(y)`` at the ability ``theta`` of the first
    and of the second, their squares, products, in multiples of ``1 / UNIT``.
    """
    m = data.shape[1]
    out = np.zeros((6, first.stop - first.start, second.stop - second.start), dtype=np.int64)
    for lo, hi in _ranges(data.shape[0]):
        part = row_range(data, lo, hi)
        r, seen = np.zeros((2, hi - lo, m))
        _residuals(*rows.arrays(part), theta[lo:hi], g, r, seen)
        r1, r2, s1, s2 = r[:, first], r[:, second], seen[:, first], seen[:, second]
        if seen.all():  # everybody answered: column sums will do
            out[0] += hi - lo
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


# --- scores ---------------------------------------------------------------------------------------


@jit
def _scores(
    indptr: Any, indices: Any, values: Any, g: Any, s: Shared, p: Prior, who: Chosen, c: Some,
    first: Ints, table: Floats, mean: float, sd: float, bound: float, out: Floats,
) -> None:  # fmt: skip
    n_parameters, m = table.shape[0], first.size - 1
    for begin in range(0, who.who.size, c.n.size):
        count = gather(indptr, indices, values, g, s, p, who, begin, c)
        weigh(c, count)
        for r in range(count):
            if c.n[r] == 0:
                continue
            i, lo, hi = c.person[r], c.lo[r], c.hi[r]
            w, nodes, row_out = c.w[r, lo:hi], g.nodes[lo:hi], out[begin + r]
            sum_w = total(w)
            m1 = m2 = 0.0
            for q in range(w.size):
                w[q] /= sum_w
                u = (nodes[q] - mean) / sd
                m1 += w[q] * u
                m2 += w[q] * u * u
            items, row = rows.row(indptr, indices, values, i)
            for k in range(row.size):
                if row[k] >= 0:
                    j = item(items, k)
                    for e in range(n_parameters):
                        own = table[e, first[j] + row[k], lo:hi]
                        row_out[e * m + j] = dot(w, own)
            row_out[n_parameters * m] = m1 / bound
            row_out[n_parameters * m + 1] = (m2 - 1.0) / (bound * bound)


def score_products(
    data: Layout, g: Tables, s: Shared, p: Prior, first: Ints, table: Floats, mean: float,
    sd: float, times: Ints | None,
) -> tuple[Ints, Ints]:  # fmt: skip
    """Sums over persons of the marginal score, and of its products with itself.

    Entries are the derivatives of a person's log marginal likelihood by the items' parameters,
    parameter after parameter, and, up to factors, by mean and SD of ability; sums count multiples
    of ``1 / SUM_UNIT``, products those of ``1 / UNIT`` squared. By Fisher's identity each is the
    posterior mean of the derivative given ability: ``table`` (parameters, rows, nodes) has those of
    log P, at most 1, category k of item j in row ``first[j] + k``. Shapes (n,) and (n, n), n =
    parameters x items + 2. A person counts as so many as ``times`` says, in all 2^30 at most.
    """
    size = table.shape[0] * data.shape[1] + 2
    sums, products = np.zeros(size, dtype=np.int64), np.zeros((size, size), dtype=np.int64)
    bound = _MEAN_BOUND
    while bound < np.abs(g.nodes[[0, -LANES]] - mean).max() / sd:  # the last fill up the lanes
        bound *= 2.0
    for lo, hi in _ranges(data.shape[0]):
        x, who = np.zeros((hi - lo, size)), Chosen(np.arange(lo, hi), np.empty(0))
        room = some(hi - lo, data.shape[1], g.nodes.size)
        _scores(*rows.arrays(data), g, s, p, who, room, first, table, mean, sd, bound, x)
        fine = np.rint(x * SUM_UNIT).astype(np.int64)
        x = np.rint(x * UNIT)
        if times is None:
            sums += fine.sum(axis=0)
            products += (x.T @ x).astype(np.int64)
            continue
        sums += times[lo:hi] @ fine
        for shift, digit in _digits(times[lo:hi]):
            products += (x.T @ (x * digit[:, None])).astype(np.int64) << shift
    return sums, products


def _digits(whole: Ints) -> Iterator[tuple[int, Ints]]:
    """Digits of numbers that are not negative, the lowest first, each with its bits of place."""
    for shift in range(0, int(whole.max(initial=0)).bit_length(), _DIGIT_BITS):
        yield shift, (whole >> shift) & ((1 << _DIGIT_BITS) - 1)
