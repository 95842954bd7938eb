"""Draws of abilities under items of any model, and the counts by category that a sweep needs.

Persons are laid out once for all sweeps: each as the rows of tables that the responses add, so that
neither a draw nor a count has to look at what was not observed, or at the lowest category.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.base.lanes import times_rows, total
from irt_dask.kernels.gibbs.response_patterns import Patterns, patterns_of, sums, told_apart
from irt_dask.kernels.gibbs.shared_draws import LANES, draw_set
from irt_dask.kernels.posterior.person_weights import Some, bases, some, weigh
from irt_dask.kernels.posterior.tables import CategoryTables, ScoreTables, add_rows
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.item_sets import common_sets
from irt_dask.kernels.responses.layouts import Layout

#: Nodes with less than this share of the largest weight are not drawn.
_NEVER = 1e-13
#: Sets of items whose sums are kept by node, and persons counted by node, at most: some 30 MB.
_MOST_SETS = 1 << 14
#: Sums of products that are not above this may have lost digits.
_SMALLEST = 1e-250


class Persons(NamedTuple):
    """Persons laid out for draws.

    Those of person i are the patterns ``higher[first[i]:first[i + 1]]``; the items answered are
    those of the set ``observed[number[i]]``, or, of nobody's set (-1), the items
    ``items[begin[i]:begin[i + 1]]``.
    """

    first: Ints
    higher: NDArray[np.int32]
    number: NDArray[np.int32]
    observed: Bools
    begin: Ints
    items: NDArray[np.int32]
    #: Persons of sets, set by set; where each set stops; the others.
    order: Ints
    stop: Ints
    others: Ints
    patterns: Patterns

    @property
    def n(self) -> int:
        """Number of persons."""
        return self.number.size

    @property
    def nbytes(self) -> int:
        """Memory held, bytes."""
        return sum(x.nbytes for x in self[:-1])


@jit
def _patterns(items: Any, row: Any, p: Patterns, out: Any) -> int:
    """Patterns of a person's responses, and how many; ``out`` has room for all items, or none."""
    n, group, number = 0, -1, 0
    for k in range(row.size):
        if row[k] <= 0:
            continue
        j = rows.item(items, k)
        if p.group[j] != group:
            group, number = p.group[j], p.first[p.group[j]] - 1
            n += 1
        number += row[k] * p.weight[j]
        if out.size > 0:
            out[n - 1] = number
    return n


@jit
def _sizes(
    indptr: Any, indices: Any, values: Any, number: Any, p: Patterns, first: Ints, begin: Ints
) -> None:
    none = np.empty(0, dtype=np.int32)
    for i in range(number.size):
        its, row = rows.row(indptr, indices, values, i)
        first[i + 1] = first[i] + _patterns(its, row, p, none)
        seen = 0
        for y in row:
            seen += y >= 0
        begin[i + 1] = begin[i] + (seen if number[i] < 0 else 0)


@jit
def _fill_in(
    indptr: Any, indices: Any, values: Any, number: Any, p: Patterns, first: Ints, begin: Ints,
    higher: Any, items: Any,
) -> None:  # fmt: skip
    for i in range(number.size):
        its, row = rows.row(indptr, indices, values, i)
        if first[i + 1] > first[i]:
            _patterns(its, row, p, higher[first[i] : first[i + 1]])
        n = begin[i]
        if number[i] < 0:
            for k in range(row.size):
                if row[k] >= 0:
                    items[n] = rows.item(its, k)
                    n += 1


def lay_out(data: Layout, n_categories: Ints) -> Persons:
    """Lay out persons for draws; the same for either layout of the data."""
    sets, patterns = common_sets(data), patterns_of(n_categories, data.shape[0])
    number = np.where(sets.number < _MOST_SETS, sets.number, np.int32(-1)).astype(np.int32)
    first, begin = np.zeros((2, data.shape[0] + 1), dtype=np.int64)
    of = rows.arrays(data)
    _sizes(*of, number, patterns, first, begin)
    higher, items = (np.empty(int(x[-1]), dtype=np.int32) for x in (first, begin))
    _fill_in(*of, number, patterns, first, begin, higher, items)
    observed, order = sets.observed[:_MOST_SETS], np.argsort(number, kind="stable")
    n_others = int((number < 0).sum())
    stop = np.cumsum(np.bincount(number[order[n_others:]], minlength=len(observed)))
    return Persons(
        first, higher, number, observed, begin, items, order[n_others:], stop, order[:n_others],
        patterns,
    )  # fmt: skip


@jit
def _log_weights(own: Any, gain: Floats, score: Floats, nodes: Floats, base: Any, w: Any) -> None:
    """Fill in what a person's patterns add to ``base``: rows of ``gain``, or scores times nodes."""
    if score.size == 0:
        w[:] = base
        add_rows(own, own.size, gain, w)
        return
    t = 0.0
    for r in own:
        t += score[r]
    for q in range(w.size):
        w[q] = base[q] + t * nodes[q]


@jit
def _chosen(w: Any, left: float, negligible: float) -> int:
    """Where the sum of weights has come to ``left``, at a node that is not negligible."""
    q = 0
    while w[q] <= negligible:
        q += 1
    while q < w.size - 1 and w[q] < left:
        left -= w[q]
        q += 1
    while w[q] <= negligible:  # rounding has left something at the end
        q -= 1
    return q


@jit
def _draw_logs(
    p: Persons, g: Any, gain: Floats, score: Floats, base: Floats, log_mass: Floats, c: Some,
    who: Ints, u: Floats, node: Ints,
) -> None:  # fmt: skip
    """Draw for persons ``who``, as many at a time as there is room for, from log weights."""
    for start in range(0, who.size, c.n.size):
        count = min(c.n.size, who.size - start)
        for r in range(count):
            i = who[start + r]
            own = p.higher[p.first[i] : p.first[i + 1]]
            if p.number[i] >= 0:
                _log_weights(own, gain, score, g.nodes, base[p.number[i]], c.w[r])
            else:
                c.scratch[:] = 0.0
                its = p.items[p.begin[i] : p.begin[i + 1]]
                add_rows(its, its.size, g.base, c.scratch)
                for q in range(log_mass.size):
                    c.scratch[q] += log_mass[q]
                _log_weights(own, gain, score, g.nodes, c.scratch, c.w[r])
            c.lo[r], c.hi[r] = 0, c.scratch.size
        weigh(c, count)
        for r in range(count):
            i, w = who[start + r], c.w[r, c.lo[r] : c.hi[r]]
            node[i] = c.lo[r] + _chosen(w, u[i] * total(w), 0.0)


@jit
def _draw_products(p: Persons, gain: Floats, base: Floats, u: Floats, node: Ints) -> Ints:
    """Draw for persons of common sets from products of what patterns multiply weights by.

    These and the weights of sets are at most 1.  Returns those whose products are too small for it.
    """
    w, small, n = np.empty(gain.shape[1]), np.empty(p.order.size, dtype=np.int64), 0
    for at in range(p.order.size):
        i = p.order[at]
        times_rows(base[p.number[i]], gain, p.higher[p.first[i] : p.first[i + 1]], w)
        sum_of_all = total(w)
        if sum_of_all > _SMALLEST:
            node[i] = _chosen(w, u[i] * sum_of_all, _NEVER * sum_of_all)
        else:
            small[n] = i
            n += 1
    return small[:n]


@jit
def _draw_scored(
    p: Persons, score: Floats, base: Floats, nodes: Floats, lanes: int, u: Floats, node: Ints
) -> None:
    """Draw for persons of common sets, set by set: weights depend on the sum of scores alone."""
    h, begin = nodes[1] - nodes[0], 0
    work = np.empty((nodes.size + 3, lanes))
    t, growth, found = np.empty(p.order.size), np.empty(p.order.size), np.empty_like(p.order)
    for k in range(p.stop.size):
        stop = p.stop[k]
        least = most = 0.0
        for at in range(begin, stop):
            i, x = p.order[at], 0.0
            for r in p.higher[p.first[i] : p.first[i + 1]]:
                x += score[r]
            t[at], growth[at] = x, math.exp(x * h)
            least, most = min(least, x), max(most, x)
        width = max(most - least, 1e-300)
        here = slice(begin, stop)
        draw_set(
            t[here], growth[here], base[k], nodes, least, width, u, p.order[here], work,
            found[here],
        )  # fmt: skip
        for at in range(begin, stop):
            node[p.order[at]] = found[at]
        begin = stop


def _draw_nodes(p: Persons, g: ScoreTables | CategoryTables, log_mass: Floats, u: Floats) -> Ints:
    base, node = bases(p.observed, g) + log_mass, np.empty(p.n, dtype=np.int64)
    gain, score, who = np.empty((0, 0)), np.empty(0), p.others
    if isinstance(g, ScoreTables):
        score = sums(p.patterns, g.score[:, None])[:, 0]
        _draw_scored(p, score, base, g.nodes, LANES, u, node)
    else:
        gain = sums(p.patterns, g.gain)
        small = _draw_products(p, _relative(gain), _relative(base), u, node)
        who = np.concatenate([small, who])
    if who.size:
        room = some(who.size, 0, g.nodes.size, math.log(_NEVER))
        _draw_logs(p, g, gain, score, base, log_mass, room, who, u, node)
    return node


def _relative(log: Floats) -> Floats:
    """Exponentials, relative to the largest of each row."""
    return np.exp(log - log.max(axis=1, keepdims=True, initial=-np.inf))


@jit
def _count(p: Persons, node: Ints, persons: Ints, of_set: Ints, seen: Ints, counts: Any) -> None:
    for i in range(node.size):
        q = node[i]
        persons[q] += 1
        for r in p.higher[p.first[i] : p.first[i + 1]]:
            counts[r, q] += 1
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
    n_nodes, m, n_rows = g.nodes.size, len(g.base), int(g.first[-1])
    node = _draw_nodes(p, g, log_mass, u)
    persons = np.zeros(n_nodes, dtype=np.int64)
    of_set, seen = (np.zeros((n_nodes, k), dtype=np.int64) for k in (len(p.observed), m))
    counts = np.zeros((p.patterns.n, n_nodes), dtype=np.int64)
    _count(p, node, persons, of_set, seen, counts)
    _add_sets(p.observed, of_set, seen)
    return persons, seen, told_apart(p.patterns, counts, n_rows).T
