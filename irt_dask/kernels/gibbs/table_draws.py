"""Draws of abilities under items of any model, and the counts by category that a sweep needs.

Persons are laid out once for all sweeps: each as the rows of tables that the responses add, so that
neither a draw nor a count has to look at what was not observed, or at the lowest category.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload
from numpy.typing import NDArray

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.base.lanes import total
from irt_dask.kernels.posterior.person_weights import Some, bases, some, weigh
from irt_dask.kernels.posterior.tables import CategoryTables, ScoreTables, add_rows
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.item_sets import common_sets
from irt_dask.kernels.responses.layouts import Layout

#: Nodes with less than this share of the largest weight are not drawn.
_NEVER = 1e-13
#: Sets of items whose sums are kept by node, and persons counted by node, at most: some 30 MB.
_MOST_SETS = 1 << 14


class Persons(NamedTuple):
    """Persons laid out for draws.

    Those of person i are the rows ``higher[first[i]:first[i + 1]]`` of tables; the items answered
    are those of the set ``observed[number[i]]``, or, of nobody's set (-1), the items
    ``items[begin[i]:begin[i + 1]]``.
    """

    first: Ints
    higher: NDArray[np.int32]
    number: NDArray[np.int32]
    observed: Bools
    begin: Ints
    items: NDArray[np.int32]

    @property
    def n(self) -> int:
        """Number of persons."""
        return self.number.size

    @property
    def nbytes(self) -> int:
        """Memory held, bytes."""
        return sum(x.nbytes for x in self)


@jit
def _sizes(indptr: Any, indices: Any, values: Any, number: Any, first: Ints, begin: Ints) -> None:
    for i in range(number.size):
        _, row = rows.row(indptr, indices, values, i)
        higher = seen = 0
        for y in row:
            higher += y > 0
            seen += y >= 0
        first[i + 1] = first[i] + higher
        begin[i + 1] = begin[i] + (seen if number[i] < 0 else 0)


@jit
def _fill_in(
    indptr: Any, indices: Any, values: Any, row_of: Ints, number: Any, first: Ints, begin: Ints,
    higher: Any, items: Any,
) -> None:  # fmt: skip
    for i in range(number.size):
        its, row = rows.row(indptr, indices, values, i)
        to, n = first[i], begin[i]
        for k in range(row.size):
            j = rows.item(its, k)
            if row[k] > 0:
                higher[to] = row_of[j] + row[k] - 1
                to += 1
            if row[k] >= 0 and number[i] < 0:
                items[n] = j
                n += 1


def lay_out(data: Layout, n_categories: Ints) -> Persons:
    """Lay out persons for draws; the same for either layout of the data."""
    sets = common_sets(data)
    number = np.where(sets.number < _MOST_SETS, sets.number, np.int32(-1)).astype(np.int32)
    first, begin = np.zeros((2, data.shape[0] + 1), dtype=np.int64)
    of = rows.arrays(data)
    _sizes(*of, number, first, begin)
    higher, items = (np.empty(int(x[-1]), dtype=np.int32) for x in (first, begin))
    row_of = np.concatenate([[0], np.cumsum(n_categories - 1)])
    _fill_in(*of, row_of, number, first, begin, higher, items)
    return Persons(first, higher, number, sets.observed[:_MOST_SETS], begin, items)


def fill(own: Any, g: Any, base: Any, w: Any) -> None:
    """Fill in the log weights of a person: ``base`` and what rows of the tables add."""
    raise NotImplementedError


@overload(fill, strict=False)
def _fill(own: Any, g: Any, base: Any, w: Any) -> Callable[..., Any]:
    return {ScoreTables: _by_score, CategoryTables: _by_category}[g.instance_class]


def _by_score(own: Any, g: Any, base: Any, w: Any) -> None:
    t = s = 0.0
    k = 0
    while k + 2 <= own.size:
        t += g.score[own[k]]
        s += g.score[own[k + 1]]
        k += 2
    if k < own.size:
        t += g.score[own[k]]
    t += s
    for q in range(w.size):
        w[q] = base[q] + t * g.nodes[q]


def _by_category(own: Any, g: Any, base: Any, w: Any) -> None:
    w[:] = base
    add_rows(own, own.size, g.gain, w)


@jit
def _draws(
    p: Persons, g: Any, base: Floats, log_mass: Floats, c: Some, u: Floats, persons: Ints,
    of_set: Ints, seen: Ints, higher: Ints,
) -> None:  # fmt: skip
    for start in range(0, u.size, c.n.size):
        count = min(c.n.size, u.size - start)
        for r in range(count):
            i = start + r
            own = p.higher[p.first[i] : p.first[i + 1]]
            if p.number[i] >= 0:
                fill(own, g, base[p.number[i]], c.w[r])
            else:
                c.scratch[:] = 0.0
                its = p.items[p.begin[i] : p.begin[i + 1]]
                add_rows(its, its.size, g.base, c.scratch)
                for q in range(log_mass.size):  # the same bits as of a set
                    c.scratch[q] += log_mass[q]
                fill(own, g, c.scratch, c.w[r])
            c.lo[r], c.hi[r] = 0, c.scratch.size
        weigh(c, count)
        for r in range(count):
            i, w = start + r, c.w[r, c.lo[r] : c.hi[r]]
            left, q = u[i] * total(w), 0
            while q < w.size - 1 and w[q] < left:
                left -= w[q]
                q += 1
            while w[q] == 0.0:  # rounding has left something at the end
                q -= 1
            q += c.lo[r]
            persons[q] += 1
            for row in p.higher[p.first[i] : p.first[i + 1]]:
                higher[q, row] += 1
            if p.number[i] >= 0:
                of_set[q, p.number[i]] += 1
            else:
                for j in p.items[p.begin[i] : p.begin[i + 1]]:
                    seen[q, j] += 1


@jit
def _add_sets(observed: Bools, of_set: Ints, seen: Ints) -> None:
    for q in range(of_set.shape[0]):
        for s in range(of_set.shape[1]):
            if of_set[q, s] > 0:
                for j in range(observed.shape[1]):
                    if observed[s, j]:
                        seen[q, j] += of_set[q, s]


def draw_counts(
    p: Persons, g: ScoreTables | CategoryTables, log_mass: Floats, u: Floats
) -> tuple[Ints, Ints, Ints]:
    """Draw every ability from its posterior on the nodes, and count by node.

    ``log_mass`` is that of the nodes before the data; ``u`` are uniforms, one a person: the draw is
    the first node at which the distribution function is not below it.  Returns persons (nodes,),
    observed responses (nodes, items), and those above the lowest category (nodes, rows).
    """
    n_nodes, m = g.nodes.size, len(g.base)
    base = bases(p.observed, g) + log_mass
    persons = np.zeros(n_nodes, dtype=np.int64)
    of_set, seen, higher = (
        np.zeros((n_nodes, k), dtype=np.int64) for k in (len(base), m, int(g.first[-1]))
    )
    room = some(p.n, 0, n_nodes, math.log(_NEVER))
    _draws(p, g, base, log_mass, room, u, persons, of_set, seen, higher)
    _add_sets(p.observed, of_set, seen)
    return persons, seen, higher
