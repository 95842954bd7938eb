"""Sums over persons of products of real numbers, exact in any order.

Factors are rounded to whole multiples of a unit, small enough that doubles hold every sum of their
products over some thousand rows: a matrix product is exact then, whoever adds in which order, and
its sums over blocks are 64-bit integers.  What rounding leaves of a factor may be rounded once more
(``fine``), which squares its accuracy at four times the work.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from irt_dask.arrays import Floats, Ints

#: Bits of whole numbers that a double holds, and of a sum of 64-bit integers with two to spare.
_DOUBLE_BITS, _SUM_BITS = 53, 61


class Units(NamedTuple):
    """How factors are counted.

    A factor of two real numbers has ``bits`` bits next to its bound, one of a real number and 0 or
    1 has ``long_bits``; rows are multiplied ``rows`` at a time.
    """

    n_persons: int
    rows: int
    bits: int
    long_bits: int
    fine: bool

    @classmethod
    def of(cls, n_persons: int, rows: int, fine: bool) -> Units:
        """For sums over so many persons; bounds known before any data are read."""
        per_row = math.ceil(math.log2(rows))
        room = _SUM_BITS - math.ceil(math.log2(max(n_persons, 2)))
        bits = min(_DOUBLE_BITS - per_row, room)
        return cls(n_persons, rows, bits // 2, bits, fine)

    def for_rows(self, rows: int) -> Units:
        """The same for products of so many rows, in two slices."""
        return Units.of(self.n_persons, rows, True)

    @property
    def unit(self) -> float:
        """What real factors, next to their bound, are multiplied by."""
        return 2.0**self.bits

    @property
    def long_unit(self) -> float:
        """The same of factors that meet 0 or 1."""
        return 2.0**self.long_bits

    def slices(self, x: Floats) -> tuple[Floats, Floats | None]:
        """Whole multiples of one over the unit, and what they leave, counted in the same way."""
        scaled = x * self.unit
        high = np.rint(scaled)
        return high, np.rint((scaled - high) * self.unit) if self.fine else None

    def gram(self, high: Floats, low: Floats | None) -> Ints:
        """``x' x`` of slices: (1 or 3, columns, columns), to be added up."""
        parts = [high.T @ high] if low is None else [high.T @ high, high.T @ low, low.T @ low]
        return np.stack(parts).astype(np.int64)

    def value(self, gram: Ints) -> Floats:
        """The sums that a gram stands for, next to the bounds of the columns."""
        out = gram[0].astype(np.float64)
        if len(gram) == 3:
            cross = gram[1] / self.unit
            out += cross + cross.T + gram[2] / self.unit**2
        return out / self.unit**2


def bound_above(x: Floats) -> Floats:
    """Return the smallest powers of two that are not below these numbers, 1 for 0."""
    with np.errstate(divide="ignore"):
        return np.where(x > 0.0, 2.0 ** np.ceil(np.log2(x)), 1.0)
