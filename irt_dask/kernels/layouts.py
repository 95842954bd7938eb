"""How the responses of a block lie in memory, and the one place that asks.

A kernel over responses is called as ``layouts.of(data).modes(data, ...)``: each layout has one
module with the same functions.
"""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Dense(NamedTuple):
    """Persons x items, int8: 1 right, 0 wrong, -1 not observed."""

    values: NDArray[np.int8]

    @property
    def shape(self) -> tuple[int, int]:
        """Number of persons and items."""
        return self.values.shape

    @property
    def nbytes(self) -> int:
        """Memory held, bytes."""
        return self.values.nbytes


def of(data: Dense) -> ModuleType:
    """Return the module of kernels for the layout of ``data``."""
    if isinstance(data, Dense):
        from irt_dask.kernels import dense

        return dense
    raise TypeError(f"no kernels for a block of type {type(data).__name__}")


def take(data: Dense, rows: NDArray[np.intp]) -> Dense:
    """Return the persons ``rows`` of a block, in that order."""
    return Dense(np.ascontiguousarray(data.values[rows]))


def concatenate(parts: list[Dense]) -> Dense:
    """Stack blocks over persons."""
    return Dense(np.concatenate([p.values for p in parts]))
