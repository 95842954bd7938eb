"""Counts of pairs of items: persons right on one and wrong on the other, persons who have both.

Dense blocks are packed item by item, 64 persons to a word, so that a pair costs an AND and a count
of bits a word.  Complete blocks need only the pairs with both right: who is right on i and wrong on
j is right on i and not right on both.  Whole-number weights go bit by bit: a bit of the weight is
one more set of persons.  All results are exact integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from irt_dask.arrays import Ints, Words
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.responses.layouts import Dense, Layout, Sparse


@intrinsic
def _n_bits(typing: Any, word: Any) -> Any:
    """Number of bits set, one instruction."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), generate


@jit
def _pack(values: NDArray[np.int8], right: Words, seen: Words) -> None:
    n, m = values.shape
    r, s = np.empty(m, dtype=np.uint64), np.empty(m, dtype=np.uint64)
    for w in range(right.shape[1]):
        r[:] = 0
        s[:] = 0
        for i in range(64 * w, min(64 * w + 64, n)):
            bit = np.uint64(i % 64)
            for j in range(m):
                r[j] |= np.uint64(values[i, j] == 1) << bit
                s[j] |= np.uint64(values[i, j] >= 0) << bit
        for j in range(m):
            right[j, w] = r[j]
            seen[j, w] = s[j]


def pack(data: Dense) -> tuple[Words, Words]:
    """Bits of the persons right and observed, (items, words)."""
    n, m = data.shape
    right, seen = np.empty((2, m, -(-n // 64)), dtype=np.uint64)
    _pack(data.values, right, seen)
    return right, seen


@jit
def _overlap(x: Words, y: Words, same: bool, lo: int, out: Ints) -> None:
    """``out[i - lo, j] += |x_i & y_j|``; if x and y are the same, for j >= i - 3 at least."""
    last = x.shape[0] - 1
    for i in range(0, last + 1, 4):
        k1, k2, k3 = min(i + 1, last), min(i + 2, last), min(i + 3, last)
        for j in range(lo + i if same else 0, y.shape[0]):
            n0 = n1 = n2 = n3 = np.uint64(0)
            for w in range(x.shape[1]):
                word = y[j, w]
                n0 += _n_bits(x[i, w] & word)
                n1 += _n_bits(x[k1, w] & word)
                n2 += _n_bits(x[k2, w] & word)
                n3 += _n_bits(x[k3, w] & word)
            out[i, j] += np.int64(n0)
            if i + 1 <= last:
                out[i + 1, j] += np.int64(n1)
            if i + 2 <= last:
                out[i + 2, j] += np.int64(n2)
            if i + 3 <= last:
                out[i + 3, j] += np.int64(n3)


@jit
def _mirror(out: Ints) -> None:
    """Copy the upper triangle to the lower, in squares that stay in cache."""
    m = out.shape[0]
    for a in range(0, m, 32):
        for b in range(0, a + 1, 32):
            for i in range(a, min(a + 32, m)):
                for j in range(b, min(b + 32, i)):
                    out[i, j] = out[j, i]


def _overlaps(x: Words, lo: int, hi: int) -> Ints:
    """Rows ``lo .. hi`` of the numbers of bits that items have in common."""
    m = len(x)
    out = np.zeros((hi - lo, m), dtype=np.int64)
    if (lo, hi) != (0, m):
        _overlap(x[lo:hi], x, False, lo, out)
        return out
    _overlap(x, x, True, 0, out)
    _mirror(out)
    return out


# --- counts ---------------------------------------------------------------------------------------


def pair_counts(data: Layout) -> tuple[Ints, Ints]:
    """Persons right on the row item and wrong on the column item; persons with both observed."""
    return pair_strip(data, 0, data.shape[1])


def pair_strip(data: Layout, lo: int, hi: int) -> tuple[Ints, Ints]:
    """Rows ``lo .. hi`` of :func:`pair_counts`."""
    n, m = data.shape
    if isinstance(data, Sparse):
        once = np.ones(n, dtype=np.int64)
        differ = _sparse(data, "right", "wrong", once, lo, hi)
        return differ, _sparse(data, "any", "any", once, lo, hi)
    right, seen = pack(data)
    if int(np.bitwise_count(seen).sum()) == n * m:
        n_right = np.bitwise_count(right[lo:hi]).sum(axis=1, dtype=np.int64)
        return n_right[:, None] - _overlaps(right, lo, hi), np.full((hi - lo, m), n)
    differ = np.zeros((hi - lo, m), dtype=np.int64)
    _overlap(right[lo:hi], seen & ~right, False, lo, differ)
    return differ, _overlaps(seen, lo, hi)


#: Which responses of an item count: right, wrong, any.
Kind = str


def weighted_strips(
    data: Layout, wanted: list[tuple[Kind, Kind, Ints]], lo: int, hi: int
) -> tuple[Ints, ...]:
    """Sum persons' weights over those with the row item and the column item as asked, each time.

    ``wanted`` are triples of row kind, column kind ("right", "wrong" or "any", which is observed)
    and weights, whole numbers of at least 0; rows ``lo .. hi`` of the items.
    """
    if isinstance(data, Sparse):
        return tuple(_sparse(data, row, column, w, lo, hi) for row, column, w in wanted)
    right, seen = pack(data)
    kinds = {"right": right, "wrong": seen & ~right, "any": seen}
    out = np.zeros((len(wanted), hi - lo, data.shape[1]), dtype=np.int64)
    for total, (row, column, weight) in zip(out, wanted, strict=True):
        for bit in range(int(weight.max(initial=0)).bit_length()):
            chosen = _bits_of((weight >> bit) & 1, right.shape[1])
            if row == column:
                total += _overlaps(kinds[row] & chosen, lo, hi) << bit
            else:
                part = np.zeros_like(total)
                _overlap(kinds[row][lo:hi] & chosen, kinds[column], False, lo, part)
                total += part << bit
    return tuple(out)


def _bits_of(flags: Ints, n_words: int) -> Words:
    """0/1 of the persons as bits."""
    padded = np.zeros(64 * n_words, dtype=np.uint8)
    padded[: flags.size] = flags
    return np.packbits(padded, bitorder="little").view("<u8").astype(np.uint64, copy=False)


#: Responses of a kind: from 0 wrong, 1 right to -1 any.
_VALUE = {"right": 1, "wrong": 0, "any": -1}


@jit
def _scatter(
    indptr: Ints, indices: NDArray[np.int32], values: NDArray[np.int8], row: int, column: int,
    weight: Ints, lo: int, hi: int, out: Ints,
) -> None:  # fmt: skip
    columns = np.empty(indices.size, dtype=np.int32)
    for i in range(indptr.size - 1):
        first, end = indptr[i], indptr[i + 1]
        n = 0
        for k in range(first, end):
            if column < 0 or values[k] == column:
                columns[n] = indices[k]
                n += 1
        for k in range(first, end):
            j = indices[k]
            if lo <= j < hi and (row < 0 or values[k] == row):
                mine = out[j - lo]
                for c in range(n):
                    mine[columns[c]] += weight[i]


def _sparse(data: Sparse, row: Kind, column: Kind, weight: Ints, lo: int, hi: int) -> Ints:
    observed = data.values >= 0
    if not observed.all():
        raise ValueError("a sparse block holds observed responses only")
    out = np.zeros((hi - lo, data.n_items), dtype=np.int64)
    arrays = (data.indptr, data.indices, data.values)
    _scatter(*arrays, _VALUE[row], _VALUE[column], weight, lo, hi, out)
    return out
