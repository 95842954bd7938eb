"""Sums over the items that a person has right, eight items at a time.

A byte says which of eight items are right, and a table has the sums of its 256 values: sums are
made of these in the order of the items, whatever the layout, so that their bits are the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from irt_dask.arrays import Floats, Words
from irt_dask.kernels.base.compiled import jit, jit_inline
from irt_dask.kernels.responses.layouts import Dense, Layout
from irt_dask.kernels.responses.words import (
    last_word,
    missing_bits,
    missing_bytes,
    right_bytes,
    word,
)

_GATHER, _TOP = np.uint64(0x0102040810204080), np.uint64(56)


@jit
def byte_table(terms: Floats) -> Floats:
    """Sums of ``terms``, (items, k), over the right ones of eight items by their bits.

    Shape (items / 8, 256, k).
    """
    n, size = terms.shape
    out = np.zeros((-(-n // 8), 256, size))
    for j in range(8 * len(out)):
        table, first = out[j // 8], 1 << j % 8
        for byte in range(first, 2 * first):
            for k in range(size):
                table[byte, k] = table[byte - first, k] + (terms[j, k] if j < n else 0.0)
    return out


@jit_inline
def _byte(eight: np.uint64) -> np.uint64:
    """Which of eight responses are right: their lowest bits meet in the highest byte alone."""
    return (right_bytes(eight) * _GATHER) >> _TOP


@jit
def _dense(values: Any, table: Floats, out: Floats, missing: Words) -> None:
    m = values.shape[1]
    for i in range(values.shape[0]):
        a = b = 0.0
        lacks = np.uint64(0)
        for k in range(m // 8):
            eight = word(values, i, 8 * k)
            byte = _byte(eight)
            a += table[k, byte, 0]
            b += table[k, byte, 1]
            lacks |= missing_bytes(eight) << np.uint64(k % 8)
            if k % 8 == 7:
                missing[i, k // 8], lacks = lacks, np.uint64(0)
        if m % 8:
            eight = last_word(values, i)
            byte = _byte(eight)
            a += table[m // 8, byte, 0]
            b += table[m // 8, byte, 1]
            lacks |= missing_bytes(eight) << np.uint64(m // 8 % 8)
        if m % 64:
            missing[i, m // 64] = lacks
        out[i, 0], out[i, 1] = a, b


@jit
def _sparse(indptr: Any, indices: Any, values: Any, table: Floats, out: Floats) -> None:
    for i in range(indptr.size - 1):
        a = b = 0.0
        k = byte = 0
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            if j // 8 != k:
                a += table[k, byte, 0]
                b += table[k, byte, 1]
                k, byte = j // 8, 0
            byte |= (values[e] == 1) << (j % 8)
        out[i, 0], out[i, 1] = a + table[k, byte, 0], b + table[k, byte, 1]


def sums_and_missing(data: Layout, table: Floats) -> tuple[Floats, Words]:
    """Sums of two terms over right answers, (persons, 2), and :func:`missing_bits`."""
    out = np.empty((data.shape[0], 2))
    if isinstance(data, Dense):
        missing = np.empty((data.shape[0], -(-data.shape[1] // 64)), dtype=np.uint64)
        _dense(data.values, table, out, missing)
        return out, missing
    _sparse(data.indptr, data.indices, data.values, table, out)
    return out, missing_bits(data)
