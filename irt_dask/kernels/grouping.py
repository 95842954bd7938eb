"""Grouping of rows: hashes of strings, and stable orders by counting."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from irt_dask.kernels.compiled import jit

Ints = NDArray[np.int64]


@jit
def _partitions(
    offsets: NDArray[np.int32], data: NDArray[np.uint8], n: int, out: NDArray[np.uint16]
) -> None:
    for i in range(out.size):
        h = np.uint64(14695981039346656037)  # FNV-1a, then a finalizer that spreads its low bits
        for k in range(offsets[i], offsets[i + 1]):
            h = (h ^ np.uint64(data[k])) * np.uint64(1099511628211)
        h ^= h >> np.uint64(32)
        h *= np.uint64(0x9E3779B97F4A7C15)
        out[i] = np.uint16((h >> np.uint64(32)) % np.uint64(n))


def partitions(offsets: NDArray[np.int32], data: NDArray[np.uint8], n: int) -> NDArray[np.uint16]:
    """Deal strings to ``n`` partitions by a hash of their bytes.

    String i is ``data[offsets[i]:offsets[i + 1]]``.  Equal strings go to the same partition.
    """
    out = np.empty(max(offsets.size - 1, 0), dtype=np.uint16)
    _partitions(offsets, data, n, out)
    return out


@jit
def _order(keys: NDArray[np.int32], rows: NDArray[np.int32], start: Ints, out: Ints) -> None:
    for i in range(rows.size):
        k = keys[rows[i]]
        out[start[k]] = rows[i]
        start[k] += 1


def order(keys: NDArray[np.int32], rows: NDArray[np.int32], n_keys: int) -> NDArray[np.int32]:
    """Sort ``rows`` by ``keys[rows]`` (below ``n_keys``), rows of equal keys as they came."""
    start = np.zeros(n_keys + 1, dtype=np.int64)
    np.cumsum(np.bincount(keys, minlength=n_keys), out=start[1:])
    out = np.empty(rows.size, dtype=np.int32)
    _order(keys, rows, start, out)
    return out


def first_rows(keys: NDArray[np.int32], n_keys: int) -> Ints:
    """Return the first row of each key; the number of rows for a key that does not occur."""
    first = np.full(n_keys, keys.size, dtype=np.int64)
    first[keys[::-1]] = np.arange(keys.size - 1, -1, -1)  # the last to be assigned stays
    return first
