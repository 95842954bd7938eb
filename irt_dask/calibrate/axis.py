"""Counts of responses on a fine ability axis: what the item step of joint ML sees of persons."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irt_dask.kernels import items, layouts, modes
from irt_dask.models import ABILITY_BOUND, INTERCEPT_BOUND
from irt_dask.store import Block

Floats = NDArray[np.float64]

#: Nodes of the ability axis on [-6, 6]: spacing 0.025.
N_NODES = 481
AXIS = np.linspace(-ABILITY_BOUND, ABILITY_BOUND, N_NODES)
#: Bytes of an item's counts on the axis, and so the persons whose responses to it take as much.
_AXIS_BYTES = 16 * N_NODES
_MANY_ITEMS = 256


def few_persons(n_persons: int, n_items: int) -> bool:
    """Whether counts on the axis are larger than the data, and items enough to be shared out."""
    return n_items >= _MANY_ITEMS and n_persons < _AXIS_BYTES


@dataclass(frozen=True)
class AxisCounts:
    """Right and observed responses by node of the ability axis and item."""

    right: Floats
    seen: Floats

    @classmethod
    def of(cls, data: layouts.Layout, p: Persons) -> AxisCounts:
        """Count persons of known ability."""
        args = (p.theta, p.weight, ABILITY_BOUND, N_NODES, p.scale)
        right, seen = modes.axis_counts(data, *args)
        return cls(right / p.scale, seen / p.scale)

    def maximise(self, a: Floats, d: Floats, a_bounds: tuple[float, float]) -> Floats:
        """Maximise every item over its box; one without counts keeps its value.  (2, items)."""
        return np.stack(
            items.maximise(
                self.right, self.seen, AXIS, a, d,
                a_bounds=a_bounds, d_bounds=(-INTERCEPT_BOUND, INTERCEPT_BOUND),
            )
        )  # fmt: skip

    def information(self, a: Floats, d: Floats) -> Floats:
        """Information of (a, d), abilities taken as known; shape (items, 2, 2)."""
        return items.information(self.right, self.seen, AXIS, a, d)


@dataclass(frozen=True)
class Persons:
    """Abilities and weights of some persons (``rows`` in the data), to be counted on the axis."""

    theta: Floats
    weight: Floats
    scale: float
    rows: NDArray[np.int64] | None = None

    def on_axis(self, blocks: Iterator[Block], lo: int, hi: int) -> AxisCounts:
        """Counts of the items ``lo .. hi``."""
        data = layouts.concatenate([layouts.item_range(b.data, lo, hi) for b in blocks])
        if self.rows is not None:
            data = layouts.take(data, self.rows)
        return AxisCounts.of(data, self)


def maximise_items(
    blocks: Iterator[Block], lo: int, hi: int, persons: Persons, a: Floats, d: Floats, *args: Any
) -> Floats:
    """Item step of a range of items; see :meth:`irt_dask.engine.Engine.map_items`."""
    return persons.on_axis(blocks, lo, hi).maximise(a[lo:hi], d[lo:hi], *args)


def information_of_items(
    blocks: Iterator[Block], lo: int, hi: int, persons: Persons, a: Floats, d: Floats
) -> Floats:
    """Information of a range of items."""
    return persons.on_axis(blocks, lo, hi).information(a[lo:hi], d[lo:hi])
