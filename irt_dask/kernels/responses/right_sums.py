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

_LOWEST = np.uint64(0x0101010101010101)
_GATHER = np.uint64(0x0102040810204080)
_SIGN, _TOP = np.uint64(7), np.uint64(56)


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
def sums_of(words: Words, i: int, table: Floats) -> tuple[float, float, bool]:
    """Sums over the right answers of person i, eight in a word; whether a response is missing."""
    a = b = 0.0
    missing = np.uint64(0)
    for k in range(words.shape[1]):
        word = words[i, k]
        missing |= word >> _SIGN  # a response below 0 is none
        # the lowest bits of eight bytes, gathered in the highest: no two meet elsewhere
        byte = ((word & ~(word >> _SIGN) & _LOWEST) * _GATHER) >> _TOP
        a += table[k, byte, 0]
        b += table[k, byte, 1]
    return a, b, (missing & _LOWEST) != 0


@jit
def _dense(words: Words, table: Floats, out: Floats) -> None:
    for i in range(words.shape[0]):
        out[i, 0], out[i, 1], _ = sums_of(words, i, table)


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


def words_of(data: Dense) -> Words:
    """Eight responses in a word, the first lowest; wrong ones fill the last up."""
    values = data.values
    n, m = values.shape
    if m % 8:
        values = np.zeros((n, m + -m % 8), dtype=np.int8)
        values[:, :m] = data.values
    return np.ascontiguousarray(values).view("<u8")


@jit
def _observed(words: Words, out: Words) -> None:
    for i in range(words.shape[0]):
        for k in range(words.shape[1]):
            byte = ((~(words[i, k] >> _SIGN) & _LOWEST) * _GATHER) >> _TOP
            out[i, k // 8] |= byte << np.uint64(8 * (k % 8))


def observed_bits(data: Dense) -> Words:
    """Which items each person answered, 64 in a word; those that fill the last up count as such."""
    words = words_of(data)
    out = np.zeros((len(words), -(-words.shape[1] // 8)), dtype=np.uint64)
    _observed(words, out)
    return out


def right_sums(data: Layout, table: Floats) -> Floats:
    """Sums of two terms over each person's right answers, (persons, 2)."""
    out = np.empty((data.shape[0], 2))
    if isinstance(data, Dense):
        _dense(words_of(data), table, out)
    else:
        _sparse(data.indptr, data.indices, data.values, table, out)
    return out
