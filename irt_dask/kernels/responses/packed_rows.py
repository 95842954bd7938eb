"""Complete rows as bits, and the two sums over them that joint maximum likelihood needs.

A byte holds the answers of eight persons to one item, so that 256 possible bytes stand for eight
additions: sums over items (``sum_j c_j y_ij`` for each person) add ``c_j`` to the byte's entry and
share the 256 entries out once per eight persons; sums over persons (``sum_i x_i y_ij`` for each
item) look the byte up in a table of the 256 partial sums of eight ``x_i``.  Both add integers, so
no order matters.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from irt_dask.arrays import Bytes, Ints
from irt_dask.kernels.base.compiled import jit


@jit
def _pack(values: NDArray[np.int8], out: Bytes) -> None:
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            out[i // 8, j] |= np.uint8(values[i, j] == 1) << np.uint8(i % 8)


def pack(values: NDArray[np.int8]) -> Bytes:
    """Right answers (1) of complete rows; bit k of ``[g, j]`` is person ``8 g + k`` on item j."""
    out = np.zeros((-(-values.shape[0] // 8), values.shape[1]), dtype=np.uint8)
    _pack(values, out)
    return out


def nothing(n_items: int) -> Bytes:
    """Return what :func:`pack` makes of nobody."""
    return np.zeros((0, n_items), dtype=np.uint8)


def unpack(packed: Bytes, rows: NDArray[np.integer]) -> NDArray[np.int8]:
    """Responses (1 right, 0 wrong) of some persons."""
    shift = (rows % 8).astype(np.uint8)[:, None]
    return ((packed[rows // 8] >> shift) & np.uint8(1)).astype(np.int8)


@jit
def _over_items(packed: Bytes, terms: Ints, out: Ints) -> None:
    entry = np.empty(256, dtype=np.int64)
    for g in range(packed.shape[0]):
        entry[:] = 0
        for j in range(packed.shape[1]):
            entry[packed[g, j]] += terms[j]
        # Persons' sums, the highest bit first: entries with the bit, which then join those without.
        half = 128
        for k in range(7, -1, -1):
            total = 0
            for b in range(half):
                total += entry[half + b]
                entry[b] += entry[half + b]
            if 8 * g + k < out.size:
                out[8 * g + k] = total
            half //= 2


def over_items(packed: Bytes, terms: Ints, n_persons: int) -> Ints:
    """Return ``sum_j terms[j] y_ij`` of each person."""
    out = np.empty(n_persons, dtype=np.int64)
    _over_items(packed, terms, out)
    return out


@jit
def _over_persons(packed: Bytes, terms: Ints, out: Ints) -> None:
    table = np.empty(256, dtype=np.int64)
    for g in range(packed.shape[0]):
        table[0] = 0
        for k in range(8):
            x = terms[8 * g + k] if 8 * g + k < terms.size else 0
            for b in range(1 << k):
                table[(1 << k) + b] = table[b] + x
        for j in range(packed.shape[1]):
            out[j] += table[packed[g, j]]


def over_persons(packed: Bytes, terms: Ints) -> Ints:
    """Return ``sum_i terms[i] y_ij`` of each item."""
    out = np.zeros(packed.shape[1], dtype=np.int64)
    _over_persons(packed, terms, out)
    return out
