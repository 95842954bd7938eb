"""Sums over persons that do not depend on their order: fixed-point integers.

Floating-point addition is not associative, so the same persons in other blocks would give other
last bits, and iterations amplify them.  Each person's contribution is therefore rounded once, to a
multiple of ``1 / scale``, and the multiples are added as 64-bit integers, which is exact.
"""

from __future__ import annotations

import math

import numpy as np

from irt_dask.arrays import Floats, Ints

#: Bits left to the sum: one for the sign, one to spare.
_SUM_BITS = 62
#: Exponent that a double can hold, whatever the bound.
_LARGEST = 1000


def scale_for(bound: float) -> float:
    """Return the power of two by which contributions are multiplied before rounding.

    ``bound`` is an upper bound of the sum of absolute contributions.  The rounding error of the sum
    of n contributions is at most ``n / (2 scale)``, about ``sqrt(n / 12) / scale`` in practice.
    """
    if not (math.isfinite(bound) and bound > 0):
        raise ValueError(f"bound of a fixed-point sum must be positive and finite, got {bound}")
    return 2.0 ** min(_SUM_BITS - math.ceil(math.log2(bound) + 1e-9), _LARGEST)


def fixed(x: Floats, scale: float) -> Ints:
    """Round numbers to multiples of ``1 / scale``; return the multiples."""
    return np.rint(x * scale).astype(np.int64)
