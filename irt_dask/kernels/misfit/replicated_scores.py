"""Number right of simulated persons who face the items that real ones faced.

A person's responses come from a SplitMix64 stream (Steele, Lea and Flood 2014) that starts at the
person's own random word: keyed by the global row, and as long as the row is.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.kernels.responses.rows import item, n_rows

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_30, _27, _31, _12 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(12)
_UNIT = 2.0**-52


@jit
def _number_right(
    indptr: Any,
    indices: Any,
    values: Any,
    a: Floats,
    d: Floats,
    theta: Floats,
    word: NDArray[np.uint64],
    right: Ints,
) -> None:
    for i in range(n_rows(indptr, values)):
        items, row = rows.row(indptr, indices, values, i)
        state = word[i]
        n = 0
        for k in range(row.size):
            if row[k] >= 0:
                j = item(items, k)
                state = state + _STEP
                x = (state ^ (state >> _30)) * _MIX_1
                x = (x ^ (x >> _27)) * _MIX_2
                x = x ^ (x >> _31)
                u = (float(x >> _12) + 0.5) * _UNIT
                # u < sigma(z)
                n += u * (1.0 + math.exp(-(a[j] * theta[i] + d[j]))) < 1.0
        right[i] = n


def number_right(
    data: Layout, a: Floats, d: Floats, theta: Floats, word: NDArray[np.uint64]
) -> Ints:
    """Number right of each person, simulated on the items observed.

    ``theta`` are the abilities and ``word`` random 64-bit words, one for each person.
    """
    right = np.empty(data.shape[0], dtype=np.int64)
    _number_right(*rows.arrays(data), a, d, theta, word, right)
    return right
