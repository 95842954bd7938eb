"""The persons of a shard, laid out once, for all sweeps, by how abilities are drawn.

- *shared*: enough persons answered the same items (:mod:`irt_dask.kernels.gibbs.shared_draws`).
- *mixed*: any other responses to at most 128 items (:mod:`irt_dask.kernels.gibbs.mixed_draws`).
- the *rest*, with more items, one by one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irt_dask.arrays import Bools, Bytes, Ints
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.responses import layouts, rows
from irt_dask.kernels.responses.item_sets import sets_of
from irt_dask.kernels.responses.layouts import Layout

#: Fewer persons than this with the same observed items are treated one by one.
_LEAST_SHARED = 32
#: Items that are tabulated together for mixed persons, the values of their responses, most items.
TOGETHER, PATTERNS, _MOST_MIXED = 4, 81, 128


class Persons(NamedTuple):
    """The persons of a shard, laid out for draws."""

    n: int
    n_items: int
    #: Shared: their positions, set by set; where each set stops; its items (sets, items); right
    #: answers as bits (persons, bytes).
    shared: Ints
    stop: Ints
    observed: Bools
    bits: Bytes
    #: Mixed: their positions, and responses by four items: sums of 3^k times 0 (missing), 1 (wrong)
    #: or 2 (right).
    mixed: Ints
    patterns: Bytes
    #: The rest.
    others: Ints
    data: Layout

    @property
    def nbytes(self) -> int:
        """Memory held, bytes."""
        held = (self.shared, self.bits, self.observed, self.mixed, self.patterns, self.others)
        return sum(x.nbytes for x in held) + self.data.nbytes


@jit
def _pack(indptr: Any, indices: Any, values: Any, bits: Bytes) -> None:
    for i in range(rows.n_rows(indptr, values)):
        items, row = rows.row(indptr, indices, values, i)
        for k in range(row.size):
            if row[k] == 1:
                j = rows.item(items, k)
                bits[i, j // 8] |= np.uint8(1) << np.uint8(j % 8)


@jit
def _code(indptr: Any, indices: Any, values: Any, patterns: Bytes) -> None:
    power = np.array([1, 3, 9, 27], dtype=np.uint8)
    for i in range(rows.n_rows(indptr, values)):
        items, row = rows.row(indptr, indices, values, i)
        for k in range(row.size):
            if row[k] >= 0:
                j = rows.item(items, k)
                patterns[i, j // 4] += power[j % 4] * np.uint8(row[k] + 1)


def digits(codes: NDArray[Any]) -> NDArray[Any]:
    """Responses to four items of each code, 0 (missing), 1 or 2, along a last axis."""
    return (codes[..., None] // 3 ** np.arange(TOGETHER)) % 3


def prepare(data: Layout) -> Persons:
    """Lay out persons for draws; the same for either layout of the data."""
    n, m = data.shape
    number, first = sets_of(data)
    size = np.bincount(number, minlength=first.size)
    large = np.flatnonzero(size >= _LEAST_SHARED)
    place = np.full(first.size, -1, dtype=np.int64)
    place[large] = np.arange(large.size)
    of = place[number]
    shared = np.flatnonzero(of >= 0)
    shared = shared[np.argsort(of[shared], kind="stable")]
    bits = np.zeros((shared.size, -(-m // 8)), dtype=np.uint8)
    _pack(*rows.arrays(layouts.take(data, shared)), bits)
    observed = layouts.to_dense(layouts.take(data, first[large])).values >= 0
    left = np.flatnonzero(of < 0)
    mixed, others = (left, left[:0]) if m <= _MOST_MIXED else (left[:0], left)
    patterns = np.zeros((mixed.size, 4 * -(-m // (4 * TOGETHER))), dtype=np.uint8)
    _code(*rows.arrays(layouts.take(data, mixed)), patterns)
    rest = layouts.take(data, others)
    return Persons(
        n, m, shared, np.cumsum(size[large]), observed, bits, mixed, patterns, others, rest
    )
