"""Eight responses of a person in a word, the first lowest."""

from __future__ import annotations

from typing import Any

import numpy as np

from irt_dask.arrays import Words
from irt_dask.kernels.base.compiled import jit, jit_inline
from irt_dask.kernels.responses.layouts import Dense, Layout

#: The lowest bit of each of eight bytes.
LOWEST = np.uint64(0x0101010101010101)
_SIGN = np.uint64(7)


@jit_inline
def _byte(values: Any, i: int, j: int) -> np.uint64:
    return np.uint64(np.uint8(values[np.uint64(i), np.uint64(j)]))


@jit_inline
def word(values: Any, i: int, j: int) -> np.uint64:
    """Responses of person i to the items j .. j + 8 (compilers make one load of this)."""
    return (
        _byte(values, i, j)
        | _byte(values, i, j + 1) << np.uint64(8)
        | _byte(values, i, j + 2) << np.uint64(16)
        | _byte(values, i, j + 3) << np.uint64(24)
        | _byte(values, i, j + 4) << np.uint64(32)
        | _byte(values, i, j + 5) << np.uint64(40)
        | _byte(values, i, j + 6) << np.uint64(48)
        | _byte(values, i, j + 7) << np.uint64(56)
    )


@jit_inline
def last_word(values: Any, i: int) -> np.uint64:
    """The responses after the last whole word, filled up with wrong ones."""
    m = values.shape[1]
    tail = m % 8
    if m >= 8:
        return word(values, i, m - 8) >> np.uint64(64 - 8 * tail)
    out = np.uint64(0)
    for r in range(tail):
        out |= _byte(values, i, r) << np.uint64(8 * r)
    return out


@jit_inline
def right_bytes(eight: np.uint64) -> np.uint64:
    """1 in the bytes of right responses (1; a missing one, -1, has all bits), 0 in the others."""
    return eight & ~(eight >> _SIGN) & LOWEST


@jit_inline
def missing_bytes(eight: np.uint64) -> np.uint64:
    """1 in the bytes of missing responses, 0 in the others."""
    return (eight >> _SIGN) & LOWEST


@jit
def _dense(values: Any, out: Words) -> None:
    m = values.shape[1]
    for i in range(values.shape[0]):
        lacks = np.uint64(0)
        for k in range(m // 8):
            lacks |= missing_bytes(word(values, i, 8 * k)) << np.uint64(k % 8)
            if k % 8 == 7:
                out[i, k // 8], lacks = lacks, np.uint64(0)
        if m % 8:
            lacks |= missing_bytes(last_word(values, i)) << np.uint64(m // 8 % 8)
        if m % 64:
            out[i, m // 64] = lacks


@jit
def _bit(j: int) -> np.uint64:
    return np.uint64(1) << np.uint64(8 * (j % 8) + j // 8 % 8)


@jit
def _sparse(indptr: Any, indices: Any, n_items: int, out: Words) -> None:
    all_items = np.zeros(out.shape[1], dtype=np.uint64)
    for j in range(n_items):
        all_items[j // 64] |= _bit(j)
    for i in range(out.shape[0]):
        out[i] = all_items
        for e in range(indptr[i], indptr[i + 1]):
            out[i, indices[e] // 64] &= ~_bit(indices[e])


def missing_bits(data: Layout) -> Words:
    """Which items each person lacks, 64 in a word, (persons, words).

    In a word item 8 k + j is bit 8 j + k: so eight items cost three operations.
    """
    n, m = data.shape
    out = np.zeros((n, -(-m // 64)), dtype=np.uint64)
    if isinstance(data, Dense):
        _dense(data.values, out)
    else:
        _sparse(data.indptr, data.indices, m, out)
    return out
