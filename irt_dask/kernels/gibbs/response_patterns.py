"""Responses to some neighbouring items taken together: patterns, which have rows of tables.

What a person's responses add to log weights is a sum over those above the lowest category.  Of
items that follow each other all combinations are made once a sweep, so that a person has a row for
some items together in place of one for each; and counts of patterns are told apart once for all.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from irt_dask.arrays import Floats, Ints
from irt_dask.kernels.base.compiled import jit

#: Patterns of items that are taken together, the most that pays: so many persons for each (a row of
#: the table costs what some persons do), and so many patterns of all items (memory).
_SIZES, _PERSONS, _MOST = (64, 32, 16, 8, 4), 8, 1 << 14


class Patterns(NamedTuple):
    """Combinations of responses to the items of a group, those of the lowest categories apart.

    Pattern r is pattern ``before[r]``, which is earlier (-1: none), and the response of row
    ``last[r]`` of the items' tables.  Item j is of group ``group[j]``, whose patterns begin at row
    ``first[group[j]]``; its category k counts k ``weight[j]`` towards the pattern's number.
    """

    before: NDArray[np.int32]
    last: NDArray[np.int32]
    group: NDArray[np.int32]
    weight: Ints
    first: Ints

    @property
    def n(self) -> int:
        """Number of patterns."""
        return self.before.size


def patterns_of(n_categories: Ints, n_persons: int) -> Patterns:
    """Patterns of items with so many categories, as large as they pay for so many persons."""
    for size in _SIZES:
        if size * _PERSONS <= n_persons:
            found = _patterns(n_categories, size)
            if found.n <= _MOST:
                return found
    return _patterns(n_categories, 1)


def _patterns(n_categories: Ints, most: int) -> Patterns:
    """Patterns of as many items as make at most so many, one item at least."""
    m = n_categories.size
    group, weight = np.zeros(m, dtype=np.int32), np.ones(m, dtype=np.int64)
    before: list[int] = []
    last: list[int] = []
    first, size, row = [0], 1, 0
    for j, k in enumerate(n_categories.tolist()):
        if size > 1 and size * k > most:
            first.append(len(before))
            size = 1
        group[j], weight[j] = len(first) - 1, size
        for y in range(1, k):
            before += [first[-1] + rest - 1 if rest else -1 for rest in range(size)]
            last += [row + y - 1] * size
        size, row = size * k, row + k - 1
    return Patterns(
        np.array(before, dtype=np.int32), np.array(last, dtype=np.int32), group, weight,
        np.array(first, dtype=np.int64),
    )  # fmt: skip


@jit
def _add_up(before: NDArray[np.int32], last: NDArray[np.int32], table: Floats, out: Floats) -> None:
    for r in range(before.size):
        more = table[last[r]]
        if before[r] < 0:
            out[r] = more
        else:
            so_far = out[before[r]]
            for q in range(more.size):
                out[r, q] = so_far[q] + more[q]


def sums(p: Patterns, table: Floats) -> Floats:
    """Sums over the responses of each pattern, (patterns, nodes), of the rows of a table."""
    out = np.empty((p.n, table.shape[1]))
    _add_up(p.before, p.last, table, out)
    return out


@jit
def _tell_apart(
    before: NDArray[np.int32], last: NDArray[np.int32], counts: Ints, out: Ints
) -> None:
    for r in range(before.size - 1, -1, -1):
        for q in range(counts.shape[1]):
            out[last[r], q] += counts[r, q]
        if before[r] >= 0:
            for q in range(counts.shape[1]):
                counts[before[r], q] += counts[r, q]


def told_apart(p: Patterns, counts: Ints, n_rows: int) -> Ints:
    """Counts of each response, (rows, nodes), from those of patterns, which are used up."""
    out = np.zeros((n_rows, counts.shape[1]), dtype=np.int64)
    _tell_apart(p.before, p.last, counts, out)
    return out
