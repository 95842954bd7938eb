"""Counts of pairs of items and of responses."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from irt_dask.kernels.layouts import Dense, Layout, Sparse

Ints = NDArray[np.int64]


def pair_counts(data: Layout) -> tuple[Ints, Ints]:
    """Persons right on the row item and wrong on the column item; persons with both observed."""
    if isinstance(data, Sparse):
        right = _matrix(data, data.values == 1)
        wrong, seen = _matrix(data, data.values == 0), _matrix(data, data.values >= 0)
        return (right.T @ wrong).toarray(), (seen.T @ seen).toarray()
    m = data.shape[1]
    differ, both = np.zeros((m, m), dtype=np.int64), np.zeros((m, m), dtype=np.int64)
    # Products of 0/1 in single precision are exact below 2^24 persons a slice.
    for start in range(0, data.shape[0], 1 << 20):
        part = data.values[start : start + (1 << 20)]
        right = (part == 1).astype(np.float32)
        seen = (part >= 0).astype(np.float32)
        differ += (right.T @ (seen - right)).astype(np.int64)
        both += (seen.T @ seen).astype(np.int64)
    return differ, both


def _matrix(data: Sparse, kept: NDArray[np.bool_]) -> csr_array:
    """Return the 0/1 matrix of the entries that are kept."""
    before = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(kept)])
    content = (np.ones(before[-1], dtype=np.int64), data.indices[kept], before[data.indptr])
    return csr_array(content, shape=data.shape)


def response_counts(data: Layout) -> tuple[Ints, Ints]:
    """Persons with each item right, and with each item observed; shapes (n_items,)."""
    if isinstance(data, Dense):
        return (data.values == 1).sum(axis=0), (data.values >= 0).sum(axis=0)
    m = data.n_items
    right = np.bincount(data.indices[data.values == 1], minlength=m)
    return right, np.bincount(data.indices, minlength=m)


def responses_per_person(data: Layout) -> Ints:
    """Observed responses of each person, shape (persons,)."""
    if isinstance(data, Dense):
        return (data.values >= 0).sum(axis=1)
    return np.diff(data.indptr)
