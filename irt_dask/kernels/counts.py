"""Counts of pairs of items and of responses."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from irt_dask.kernels.layouts import Dense, Layout, Sparse, item_range, to_sparse

Ints = NDArray[np.int64]


#: Cells and persons of a slice of dense data in single precision, in which sums of 0/1 are exact
#: below 2^24.
_SLICE, _LEAST_PERSONS = 1 << 24, 256


def pair_counts(data: Layout) -> tuple[Ints, Ints]:
    """Persons right on the row item and wrong on the column item; persons with both observed."""
    return pair_strip(data, 0, data.shape[1])


def pair_strip(data: Layout, lo: int, hi: int) -> tuple[Ints, Ints]:
    """Rows ``lo .. hi`` of :func:`pair_counts`."""
    if isinstance(data, Sparse):
        strip = to_sparse(item_range(data, lo, hi))
        right, some = _matrix(strip, strip.values == 1), _matrix(strip, strip.values >= 0)
        wrong, seen = _matrix(data, data.values == 0), _matrix(data, data.values >= 0)
        return (right.T @ wrong).toarray(), (some.T @ seen).toarray()
    n, m = data.shape
    differ, both = np.zeros((2, hi - lo, m), dtype=np.int64)
    size = max(_LEAST_PERSONS, min(_SLICE // m, _SLICE - 1))
    for start in range(0, n, size):
        part = data.values[start : start + size]
        seen = (part >= 0).astype(np.float32)
        wrong = (part == 0).astype(np.float32)
        some = seen[:, lo:hi]
        differ += ((some - wrong[:, lo:hi]).T @ wrong).astype(np.int64)
        both += (some.T @ seen).astype(np.int64)
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


def right_per_person(data: Layout) -> Ints:
    """Right responses of each person, shape (persons,)."""
    if isinstance(data, Dense):
        return (data.values == 1).sum(axis=1)
    before = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(data.values == 1)])
    return np.diff(before[data.indptr])
