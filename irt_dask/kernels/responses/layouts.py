"""How the responses of a block lie in memory.

Kernels over responses take either layout: one source, compiled once for each, so that both give the
same bits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from irt_dask.arrays import Ints

#: Share of cells observed below which the sparse layout takes less memory and time.
SPARSE_BELOW = 0.1


class Dense(NamedTuple):
    """Persons x items, int8: codes (of two categories 1 right, 0 wrong), -1 not observed."""

    values: NDArray[np.int8]

    @property
    def shape(self) -> tuple[int, int]:
        """Number of persons and items."""
        return self.values.shape

    @property
    def nbytes(self) -> int:
        """Memory held, bytes."""
        return self.values.nbytes

    @property
    def n_observed(self) -> int:
        """Number of observed responses."""
        return int(np.count_nonzero(self.values >= 0))


class Sparse(NamedTuple):
    """Observed responses alone, by person: compressed sparse rows (CSR).

    Those of person i are ``values[indptr[i]:indptr[i + 1]]`` (int8: codes, as in :class:`Dense`),
    of the items ``indices[...]`` (int32), which ascend.
    """

    indptr: Ints
    indices: NDArray[np.int32]
    values: NDArray[np.int8]
    n_items: int

    @property
    def shape(self) -> tuple[int, int]:
        """Number of persons and items."""
        return self.indptr.size - 1, self.n_items

    @property
    def nbytes(self) -> int:
        """Memory held, bytes."""
        return self.indptr.nbytes + self.indices.nbytes + self.values.nbytes

    @property
    def n_observed(self) -> int:
        """Number of observed responses."""
        return self.indices.size


Layout = Dense | Sparse


def _rows_of(indptr: Ints) -> Ints:
    """Return the row of each stored entry."""
    return np.repeat(np.arange(indptr.size - 1), np.diff(indptr))


def to_dense(data: Layout) -> Dense:
    """Return the same responses as a full matrix."""
    if isinstance(data, Dense):
        return data
    values = np.full(data.shape, -1, dtype=np.int8)
    values[_rows_of(data.indptr), data.indices] = data.values
    return Dense(values)


def to_sparse(data: Layout) -> Sparse:
    """Return the same responses as observed entries alone."""
    if isinstance(data, Sparse):
        return data
    rows, columns = np.nonzero(data.values >= 0)
    indptr = np.zeros(data.shape[0] + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=data.shape[0]), out=indptr[1:])
    values = data.values[rows, columns]
    return Sparse(indptr, columns.astype(np.int32), values, data.shape[1])


def take(data: Layout, rows: NDArray[np.intp]) -> Layout:
    """Return the persons ``rows`` of a block, in that order."""
    if isinstance(data, Dense):
        return Dense(np.ascontiguousarray(data.values[rows]))
    length = np.diff(data.indptr)[rows]
    indptr = np.zeros(length.size + 1, dtype=np.int64)
    np.cumsum(length, out=indptr[1:])
    # entry e of the result lies in row r of it, which starts at indptr[r] there and here elsewhere
    at = np.arange(indptr[-1]) + np.repeat(data.indptr[:-1][rows] - indptr[:-1], length)
    return Sparse(indptr, data.indices[at], data.values[at], data.n_items)


def row_range(data: Layout, lo: int, hi: int) -> Layout:
    """Return the persons ``lo .. hi`` of a block, without copying their responses."""
    if isinstance(data, Dense):
        return Dense(data.values[lo:hi])
    first, last = data.indptr[lo], data.indptr[hi]
    inside = slice(first, last)
    indptr = data.indptr[lo : hi + 1] - first
    return Sparse(indptr, data.indices[inside], data.values[inside], data.n_items)


def item_range(data: Layout, lo: int, hi: int) -> Layout:
    """Return the items ``lo .. hi`` of a block."""
    if isinstance(data, Dense):
        return Dense(np.ascontiguousarray(data.values[:, lo:hi]))
    kept = np.flatnonzero((data.indices >= lo) & (data.indices < hi))
    indptr = np.searchsorted(kept, data.indptr)
    return Sparse(indptr, data.indices[kept] - np.int32(lo), data.values[kept], hi - lo)


def columns(data: Layout, items: NDArray[np.intp]) -> Layout:
    """Return the items ``items`` (each at most once) of a block, in that order."""
    if isinstance(data, Dense):
        return Dense(np.ascontiguousarray(data.values[:, items]))
    place = np.full(data.n_items, -1, dtype=np.int32)
    place[items] = np.arange(len(items), dtype=np.int32)
    new, rows = place[data.indices], _rows_of(data.indptr)
    kept = np.flatnonzero(new >= 0)
    kept = kept[np.lexsort((new[kept], rows[kept]))]
    indptr = np.zeros(data.indptr.size, dtype=np.int64)
    np.cumsum(np.bincount(rows[kept], minlength=data.shape[0]), out=indptr[1:])
    return Sparse(indptr, new[kept], data.values[kept], len(items))


def concatenate(parts: list[Layout]) -> Layout:
    """Stack blocks over persons; sparse if one of them is."""
    if all(isinstance(p, Dense) for p in parts):
        return Dense(np.concatenate([to_dense(p).values for p in parts]))
    sparse = [to_sparse(p) for p in parts]
    ends = np.cumsum([0, *(p.indptr[-1] for p in sparse)])
    indptr = [p.indptr[1:] + end for p, end in zip(sparse, ends[:-1], strict=True)]
    return Sparse(
        np.concatenate([np.zeros(1, dtype=np.int64), *indptr]),
        np.concatenate([p.indices for p in sparse]),
        np.concatenate([p.values for p in sparse]),
        sparse[0].n_items,
    )
