"""Exponentials of many numbers at once, on vector registers.

``exp(x) = 2^n e^r`` with ``|r| <= log(2) / 2``, e^r by a polynomial: plain arithmetic, which a
compiler turns into vector instructions as it does not calls of a library.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from irt_dask.arrays import Floats
from irt_dask.kernels.base.compiled import jit

#: Weights below this share of the largest are 0.
NEGLIGIBLE = 1e-18
LOG_NEGLIGIBLE = math.log(NEGLIGIBLE)
_LOG2E = 1.4426950408889634
#: log 2 in two parts, the first of so few digits that its multiples are exact.
_HIGH, _LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
#: Adding this leaves a number's nearest integer in the lowest bits.
_MAGIC = 6755399441055744.0
_BIAS, _SHIFT = np.int64(1023), np.int64(52)
#: Exponents below this have no power of 2 with all its digits.
_LOWEST = -708.0
_E2, _E4, _E6, _E8, _E10, _E12 = (1.0 / math.factorial(k) for k in (2, 4, 6, 8, 10, 12))
_O3, _O5, _O7, _O9, _O11 = (1.0 / math.factorial(k) for k in (3, 5, 7, 9, 11))


def _same_bits(to: Any) -> Callable[..., Any]:
    """Machine code: take a number's bits for one of another type."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.bitcast(args[0], context.get_value_type(to))

    return generate


@intrinsic
def _bits(typing: Any, x: Any) -> Any:
    return types.int64(types.float64), _same_bits(types.int64)


@intrinsic
def _of_bits(typing: Any, x: Any) -> Any:
    return types.float64(types.int64), _same_bits(types.float64)


@jit
def exponentials(x: Floats, peak: float, cut: float = LOG_NEGLIGIBLE) -> None:
    """Replace x, at most ``peak``, by ``exp(x - peak)``, 0 where that is below ``exp(cut)``.

    Relative errors are below 5e-16.
    """
    if cut < _LOWEST:  # rare
        for q in range(x.size):
            x[q] = math.exp(x[q] - peak)
        return
    for q in range(x.size):
        v = x[q] - peak
        kept = 1.0 if v > cut else 0.0
        v = v if v > cut else cut
        shifted = v * _LOG2E + _MAGIC
        whole = shifted - _MAGIC
        r = (v - whole * _HIGH) - whole * _LOW
        s = r * r
        even = 1.0 + s * (_E2 + s * (_E4 + s * (_E6 + s * (_E8 + s * (_E10 + s * _E12)))))
        odd = 1.0 + s * (_O3 + s * (_O5 + s * (_O7 + s * (_O9 + s * _O11))))
        power = _of_bits((_bits(shifted) + _BIAS) << _SHIFT)
        x[q] = ((even + r * odd) * kept) * power
