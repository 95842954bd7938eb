"""Products of a regression's design, exact so that neither blocks nor processors change a bit.

As in :mod:`~irt_dask.kernels.base.exact_products` numbers are rounded once to multiples of a power
of two; the design's are so from the start, and its products with coefficients and with itself
stay whole numbers.  Products of whole numbers, and their sums
below 2^53, are exact in floating point: a matrix product, in whatever order a library adds it up,
gives one result.  Sums over persons go on as 64-bit integers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from irt_dask.arrays import Floats, Ints

#: Bits of a design's numbers, which lie in [-1, 1], and at most of what they are multiplied with.
DESIGN_BITS, FACTOR_BITS = 20, 20
#: How far out numbers of persons may be whom no sum is over: three bits more, a float32 holds them.
FURTHEST, _MORE_BITS = 8.0, 3
#: Bits of a whole number that floating point holds, and of a sum over persons.
_EXACT, _SUM = 53, 62
#: Persons up to whom weighted designs are counted in two parts.
_FEW = 1 << 17
#: Persons of a sum in floating point.
_ROWS = 1 << (_EXACT - DESIGN_BITS - FACTOR_BITS)


def rounded(x: Floats) -> Any:
    """Numbers within FURTHEST to DESIGN_BITS after the point, in single precision."""
    unit = 2.0**DESIGN_BITS
    return (np.rint(x * unit) / unit).astype(np.float32)


def linear_predictor(design: Any, coefficients: Floats) -> Floats:
    """Design times coefficients, (persons, p) and (p, q); a person's are the same in any block.

    Coefficients are rounded to about 2^-40 of the largest.
    """
    p = coefficients.shape[0]
    bits = _EXACT - DESIGN_BITS - _MORE_BITS - max(1, math.ceil(math.log2(max(p, 2))))
    high, low, scale = _split(coefficients, bits)
    x = design.astype(np.float64) * 2.0**DESIGN_BITS
    return np.asarray((x @ high + (x @ low) / 2.0**bits) / (scale * 2.0**DESIGN_BITS))


def _split(x: Floats, bits: int, largest: float | None = None) -> tuple[Floats, Floats, float]:
    """Whole numbers ``high + low / 2^bits`` that are x times a scale, and the scale."""
    top = float(np.abs(x).max(initial=0.0)) if largest is None else largest
    scale = 2.0 ** (bits - 1 - math.ceil(math.log2(top))) if top > 0.0 else 1.0
    high = np.rint(x * scale)
    return high, np.rint((x * scale - high) * 2.0**bits), scale


class Products:
    """Sums over persons of design times factors: whole numbers for exact sums, and their scale.

    ``bound`` is that of the absolute factors, ``n`` of the persons in the sum.
    """

    def __init__(self, bound: float, n: float) -> None:
        room = _SUM - DESIGN_BITS - math.ceil(math.log2(max(n, 1.0)))
        self.bits, self.bound = min(FACTOR_BITS, room), bound

    def sums(self, design: Any, factors: Floats) -> Ints:
        """Sums of a block, (2, p, q): add them up, then ask for :meth:`value`."""
        out = np.zeros((2, design.shape[1], factors.shape[1]), dtype=np.int64)
        high, low, _ = _split(factors, self.bits, self.bound)
        for k in range(0, len(design), _ROWS):
            x = (design[k : k + _ROWS].astype(np.float64) * 2.0**DESIGN_BITS).T
            out[0] += (x @ high[k : k + _ROWS]).astype(np.int64)
            out[1] += (x @ low[k : k + _ROWS]).astype(np.int64)
        return out

    def value(self, sums: Ints) -> Floats:
        """What whole numbers stand for."""
        scale = _split(np.zeros(0), self.bits, self.bound)[2] * 2.0**DESIGN_BITS
        return np.asarray((sums[0] + sums[1] / 2.0**self.bits) / scale)


class Gram:
    """The same of the design with itself under weights of persons, (p, p).

    Weighted designs are rounded as factors are; of many persons what rounding leaves averages out,
    and is not counted.
    """

    def __init__(self, bound: float, n: float) -> None:
        self._products = Products(bound, n)
        self._parts = 2 if n <= _FEW else 1

    def sums(self, design: Any, weight: Floats) -> Ints:
        """Sums of a block, (parts, p, p)."""
        p = self._products
        out = np.zeros((self._parts, design.shape[1], design.shape[1]), dtype=np.int64)
        for k in range(0, len(design), _ROWS):
            x = design[k : k + _ROWS].astype(np.float64)
            parts = _split(x * weight[k : k + _ROWS, None], p.bits, p.bound)
            x *= 2.0**DESIGN_BITS
            for part in range(self._parts):
                out[part] += (x.T @ parts[part]).astype(np.int64)
        return out

    def value(self, sums: Ints) -> Floats:
        """What whole numbers stand for, symmetric."""
        both = sums if self._parts == 2 else np.concatenate([sums, np.zeros_like(sums)])
        out = self._products.value(both)
        return 0.5 * (out + out.T)
