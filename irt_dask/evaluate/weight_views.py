"""Responses with the squares of their sampling weights, or with a row for each person counted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irt_dask.arrays import Ints
from irt_dask.engine import Engine
from irt_dask.kernels.responses import layouts
from irt_dask.store import Block, Responses
from irt_dask.store.blocks import BlockRef, WrappedRef
from irt_dask.store.responses import SAMPLING, sha256
from irt_dask.store.weights import relative

#: Rows of a block of persons who are counted one by one.
_ROWS = 1 << 16


@dataclass(frozen=True, eq=False)
class SquaredRef(WrappedRef):
    """A block whose persons have the squares of their weights, divided by ``mean`` before."""

    mean: float

    @property
    def cache_key(self) -> tuple[Any, ...] | None:
        """Identity of the block with these weights."""
        key = self.ref.cache_key
        return None if key is None else (key, "squared weights", self.mean)

    def read(self) -> Block:
        """Return the block."""
        block: Block = self.ref.read()
        return replace(block, weight=relative(block.weights(), self.mean) ** 2)

    def column(self, name: str) -> NDArray[Any] | None:
        """Return a variable of the persons, None without it."""
        column = super().column(name)
        if name != "person_weight" or column is None:
            return column
        return relative(column, self.mean) ** 2


def squared(responses: Responses, mean: float) -> Responses:
    """The same persons with the squares of their sampling weights, of which ``mean`` is the mean.

    Sums with these weights are those of squares of weighted terms; their mean is left in them.
    """
    whole, given = responses.checksum, responses.max_weight
    return replace(
        responses,
        refs=[SquaredRef(ref, mean) for ref in responses.refs],
        checksum=whole and sha256(f"{whole} squared weights".encode()),
        max_weight=None if given is None else (given / mean) ** 2,
    )


@dataclass(frozen=True, eq=False)
class RepeatedRef(BlockRef):
    """Persons ``lo`` to ``hi`` of those whom the rows of a block stand for, a row each."""

    ref: BlockRef
    index: int
    start: int
    lo: int
    hi: int

    def _rows(self) -> Ints:
        ends = np.asarray(self.ref.weights()).astype(np.int64).cumsum()
        return np.searchsorted(ends, np.arange(self.lo, self.hi), side="right")

    @property
    def cache_key(self) -> tuple[Any, ...] | None:
        """Identity of the persons."""
        key = self.ref.cache_key
        return None if key is None else (key, "repeated", self.lo, self.hi)

    def read(self) -> Block:
        """Return their responses."""
        data = layouts.take(self.ref.read().data, self._rows())
        return Block(self.index, self.start, data)

    def column(self, name: str) -> NDArray[Any] | None:
        """Return a variable of the persons, None without it; they have no weights."""
        column = None if name == "person_weight" else self.ref.column(name)
        return None if column is None else column[self._rows()]


def _counted(ref: Any) -> int:
    return int(ref.weights().astype(np.int64).sum())


def repeated(responses: Responses, client: Any) -> Responses:
    """A row for each person whom frequency weights count; one pass over the weights."""
    with Engine(responses, client=client, progress=False, graded=True) as engine:
        counts = engine.map_refs(_counted)
    refs: list[BlockRef] = []
    start = 0
    for ref, count in zip(responses.refs, counts, strict=True):
        for lo in range(0, count, _ROWS):
            hi = min(lo + _ROWS, count)
            refs.append(RepeatedRef(ref, len(refs), start + lo, lo, hi))
        start += count
    whole = responses.checksum
    return replace(
        responses, refs=refs, n_persons=start, max_weight=None, weight_kind=SAMPLING,
        checksum=whole and sha256(f"{whole} repeated".encode()),
    )  # fmt: skip
