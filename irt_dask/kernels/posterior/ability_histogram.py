"""Histogram and moments of the abilities of a block, in one pass."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.kernels.base.compiled import jit


class Classes(NamedTuple):
    """Classes of equal width; what lies beyond them counts in the outermost."""

    first: float
    last: float
    n: int


@jit
def _add(
    ability: Floats, error: Floats, classes: Classes, largest_error: float, scale: float,
    count: Ints, moments: Ints, n: Ints,
) -> None:  # fmt: skip
    per_unit = classes.n / (classes.last - classes.first)
    for k in range(ability.shape[1]):
        first = second = squared_error = np.int64(0)
        n_there = n_sure = 0
        for i in range(ability.shape[0]):
            x, e = ability[i, k], error[i, k]
            if np.isfinite(x):
                place = min(max((x - classes.first) * per_unit, 0.0), classes.n - 1.0)
                count[int(place), k] += 1
                first += np.int64(np.rint(x * scale))
                second += np.int64(np.rint(x * x * scale))
                n_there += 1
            if np.isfinite(e):
                e = min(e, largest_error)
                squared_error += np.int64(np.rint(e * e * scale))
                n_sure += 1
        moments[0, k], moments[1, k], moments[2, k] = first, second, squared_error
        n[0, k], n[1, k] = n_there, n_sure


def sums(
    ability: Floats, error: Floats, classes: Classes, largest_error: float, scale: float
) -> tuple[Ints, Ints, Ints]:
    """Add up abilities, shape (persons, abilities), and their errors.

    Returns the histogram (classes, abilities); sums of abilities, their squares and squared errors
    as multiples of ``1 / scale``, (3, abilities), which must not exceed 64 bits; and how many
    abilities and errors there are, (2, abilities).  What is not finite does not count; an error
    counts as ``largest_error`` at most.
    """
    q = ability.shape[1]
    count = np.zeros((classes.n, q), dtype=np.int64)
    moments, n = np.zeros((3, q), dtype=np.int64), np.zeros((2, q), dtype=np.int64)
    _add(ability, error, classes, largest_error, scale, count, moments, n)
    return count, moments, n
