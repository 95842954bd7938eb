"""Posterior weights of some persons at a time on the nodes of an ability grid.

A log weight is (the sum over the items answered + the log mass of ability at the node) + (what the
responses add); see :mod:`irt_dask.kernels.posterior.tables`.  Sums that many persons share are
:class:`Shared`; where a person has none they are made, with the same bits.

Every quantity that rests on posteriors is a loop over rows of :class:`Some`, which :func:`gather`
fills: only this function knows of layouts, kinds of tables, sets of items and priors.
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
from irt_dask.kernels.base.exponential import LOG_NEGLIGIBLE, exponentials
from irt_dask.kernels.base.lanes import LANES, largest
from irt_dask.kernels.posterior.tables import (
    CHUNK,
    CategoryTables,
    LinearTables,
    ScoreTables,
    Tables,
    add_chunk,
    add_chunks,
    add_rows,
)
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.item_sets import CommonSets

#: Numbers that the sums of all sets of a block take, at most.
_MOST_SHARED = 1 << 22
#: Persons that are treated at a time, and numbers that they take, at most.
_ROWS, _ROOM = 128, 1 << 15


class Shared(NamedTuple):
    """Sums of persons who answered the same items."""

    number: NDArray[np.int32]  # which sums are each person's; -1: none
    base: Floats  # (sets, nodes)


class Prior(NamedTuple):
    """Where abilities come from: log mass at the nodes, by group, and each person's group.

    Without ``group`` all are of the first.  ``tilt`` is the slope of what is added to a person's
    log mass: mean / variance makes a normal density of mean 0 one of that mean, up to a constant.
    """

    log_mass: Floats  # (groups, nodes)
    group: Ints  # (persons,) or nothing
    tilt: Floats  # (persons,) or nothing


def normal(nodes: Floats, mean: Any = 0.0, sd: Any = 1.0) -> Floats:
    """Log mass at the nodes of normal distributions, (groups, nodes): density times spacing."""
    mean, sd = (np.atleast_1d(np.asarray(v, dtype=float))[:, None] for v in (mean, sd))
    constant = math.log((nodes[1] - nodes[0]) / math.sqrt(2.0 * math.pi))
    return np.asarray(constant - np.log(sd) - 0.5 * ((nodes - mean) / sd) ** 2)


def prior(log_mass: Floats, group: Ints | None = None, tilt: Floats | None = None) -> Prior:
    """Prior of the persons of a block."""
    return Prior(
        np.ascontiguousarray(np.atleast_2d(log_mass)),
        np.empty(0, dtype=np.int64) if group is None else group,
        np.empty(0) if tilt is None else tilt,
    )


class Some(NamedTuple):
    """Some persons of a block, one a row."""

    person: Ints
    w: Floats  # log weights, or weights, by node
    lo: Ints  # the nodes that have them: lo .. hi, multiples of LANES
    hi: Ints
    items: NDArray[np.int32]  # items answered, n of them; there is room for four more
    n: Ints
    higher: NDArray[np.int32]  # rows of responses above the lowest category, n_higher of them
    n_higher: Ints
    constant: Floats  # sum of the constants of linear tables
    peak: Floats  # logarithm of the largest weight
    scratch: Floats  # (nodes,)
    cut: float  # log weights so far below the largest are negligible


def some(n_persons: int, n_items: int, n_nodes: int, cut: float = LOG_NEGLIGIBLE) -> Some:
    """Room for as many persons as fit a processor's cache, one at least."""
    n = max(1, min(n_persons, _ROOM // (n_items + n_nodes), _ROWS))
    places, (person, lo, hi, seen, higher) = (
        np.empty((k, n, *shape), dtype=kind)
        for k, shape, kind in ((2, (n_items + 4,), np.int32), (5, (), np.int64))
    )
    constant, peak = np.empty((2, n))
    return Some(
        person, np.empty((n, n_nodes)), lo, hi, places[0], seen, places[1], higher, constant, peak,
        np.empty(n_nodes), cut,
    )  # fmt: skip


class Chosen(NamedTuple):
    """Persons of a block: ``who``, or all of them where it is empty.

    ``t`` is taken for the sum of a person's scores under linear tables, unless it is empty.
    """

    who: Ints
    t: Floats


EVERYBODY = Chosen(np.empty(0, dtype=np.int64), np.empty(0))


def gather(
    indptr: Any, indices: Any, values: Any, g: Any, s: Shared, p: Prior, who: Chosen, begin: int,
    c: Some,
) -> int:  # fmt: skip
    """Fill in log weights of chosen persons from ``begin`` on, as many as there is room for."""
    raise NotImplementedError


@overload(gather, strict=False)
def _gather(
    indptr: Any, indices: Any, values: Any, g: Any, s: Any, p: Any, who: Any, begin: Any, c: Any
) -> Callable[..., Any]:
    f = _KINDS[g.instance_class]
    return lambda indptr, indices, values, g, s, p, who, begin, c: f(
        indptr, indices, values, g, s, p, who, begin, c
    )


@jit
def _linear(
    indptr: Any, indices: Any, values: Any, g: Any, s: Shared, p: Prior, who: Chosen, begin: int,
    c: Some,
) -> int:  # fmt: skip
    everybody = who.who.size == 0
    count = min(c.n.size, (rows.n_rows(indptr, values) if everybody else who.who.size) - begin)
    nodes = g.nodes
    for r in range(count):
        i = c.person[r] = begin + r if everybody else who.who[begin + r]
        its, row = rows.row(indptr, indices, values, i)
        index, higher, w = c.items[r], c.higher[r], c.w[r]
        n = n_higher = 0
        t = constant = 0.0
        for k in range(row.size):  # without branches, which nobody could predict
            j = rows.item(its, k)
            y = row[k] == 1
            index[n] = j
            n += row[k] >= 0
            higher[n_higher] = j
            n_higher += y
            t += g.slope[j] * y
            constant += g.constant[j] * y
        c.n[r], c.n_higher[r], c.constant[r] = n, n_higher, constant
        if p.tilt.size > 0:
            t += p.tilt[i]
        if who.t.size > 0:
            t = who.t[i]
        mass = p.log_mass[p.group[i] if p.group.size > 0 else 0]
        c.lo[r], c.hi[r] = 0, w.size
        number = s.number[i]
        if number >= 0:
            own = s.base[number]
            for q in range(w.size):
                w[q] = (own[q] + mass[q]) + t * nodes[q]
        elif g.base.shape[0] > 0:
            w[:] = 0.0
            add_rows(index, n, g.base, w)
            for q in range(w.size):
                w[q] = (w[q] + mass[q]) + t * nodes[q]
        else:
            filled = n + -n % 4
            index[n:filled] = g.slope.size
            c.lo[r], c.hi[r] = _around_mode(index[:filled], g, t, mass, c.cut, w)
    return count


@jit
def _scores(
    indptr: Any, indices: Any, values: Any, g: Any, s: Shared, p: Prior, who: Chosen, begin: int,
    c: Some,
) -> int:  # fmt: skip
    everybody = who.who.size == 0
    count = min(c.n.size, (rows.n_rows(indptr, values) if everybody else who.who.size) - begin)
    nodes = g.nodes
    for r in range(count):
        i = c.person[r] = begin + r if everybody else who.who[begin + r]
        its, row = rows.row(indptr, indices, values, i)
        index, higher, w = c.items[r], c.higher[r], c.w[r]
        n = n_higher = 0
        t = constant = 0.0
        for k in range(row.size):
            j = rows.item(its, k)
            index[n] = j
            n += row[k] >= 0
            if row[k] > 0:
                at = g.first[j] + row[k] - 1
                higher[n_higher] = at
                n_higher += 1
                t += g.score[at]
                constant += g.constant[at]
        c.n[r], c.n_higher[r], c.constant[r] = n, n_higher, constant
        if p.tilt.size > 0:
            t += p.tilt[i]
        if who.t.size > 0:
            t = who.t[i]
        mass = p.log_mass[p.group[i] if p.group.size > 0 else 0]
        c.lo[r], c.hi[r] = 0, w.size
        number = s.number[i]
        if number >= 0:
            w[:] = s.base[number]
        else:
            w[:] = 0.0
            add_rows(index, n, g.base, w)
        for q in range(w.size):
            w[q] = (w[q] + mass[q]) + t * nodes[q]
    return count


@jit
def _categories(
    indptr: Any, indices: Any, values: Any, g: Any, s: Shared, p: Prior, who: Chosen, begin: int,
    c: Some,
) -> int:  # fmt: skip
    everybody = who.who.size == 0
    count = min(c.n.size, (rows.n_rows(indptr, values) if everybody else who.who.size) - begin)
    nodes = g.nodes
    c.constant[:] = 0.0
    for r in range(count):
        i = c.person[r] = begin + r if everybody else who.who[begin + r]
        its, row = rows.row(indptr, indices, values, i)
        index, higher, w = c.items[r], c.higher[r], c.w[r]
        n = n_higher = 0
        for k in range(row.size):
            j = rows.item(its, k)
            index[n] = j
            n += row[k] >= 0
            higher[n_higher] = g.first[j] + row[k] - 1
            n_higher += row[k] > 0
        c.n[r], c.n_higher[r] = n, n_higher
        mass = p.log_mass[p.group[i] if p.group.size > 0 else 0]
        number = s.number[i]
        if number >= 0:
            w[:] = s.base[number]
        else:
            w[:] = 0.0
            add_rows(index, n, g.base, w)
        tilt = p.tilt[i] if p.tilt.size > 0 else 0.0
        for q in range(w.size):
            w[q] = (w[q] + mass[q]) + tilt * nodes[q]
        add_rows(higher, n_higher, g.gain, w)
        c.lo[r], c.hi[r] = 0, w.size
    return count


_KINDS = {LinearTables: _linear, ScoreTables: _scores, CategoryTables: _categories}


@jit
def weigh(c: Some, count: int) -> None:
    """Turn log weights into weights relative to the largest, 0 where negligible.

    The nodes become those outside which nothing is left.
    """
    for r in range(count):  # in loops of their own, so that persons need not wait for each other
        c.peak[r] = largest(c.w[r, c.lo[r] : c.hi[r]])
    for r in range(count):
        w, lo, hi, cut = c.w[r], c.lo[r], c.hi[r], c.peak[r] + c.cut
        while lo < hi - LANES and largest(w[lo : lo + LANES]) <= cut:
            lo += LANES
        while lo < hi - LANES and largest(w[hi - LANES : hi]) <= cut:
            hi -= LANES
        c.lo[r], c.hi[r] = lo, hi
    for r in range(count):
        exponentials(c.w[r, c.lo[r] : c.hi[r]], c.peak[r], c.cut)


# --- sums that persons share ----------------------------------------------------------------------


def sums(index: Any, n: int, g: Any, out: Any) -> None:
    """Add up what persons who answered the items ``index[:n]`` share, at all nodes."""
    raise NotImplementedError


@overload(sums, strict=False)
def _sums(index: Any, n: Any, g: Any, out: Any) -> Callable[..., Any]:
    if g.instance_class is LinearTables:
        return _sums_linear
    return lambda index, n, g, out: add_rows(index, n, g.base, out)


def _sums_linear(index: Any, n: int, g: Any, out: Any) -> None:
    if g.base.shape[0] > 0:
        add_rows(index, n, g.base, out)
    else:
        filled = n + -n % 4
        index[n:filled] = g.slope.size
        add_chunks(index[:filled], g, out)


@jit
def bases(observed: Bools, g: Any) -> Floats:
    """Sums of sets of items, (sets, nodes)."""
    out = np.zeros((observed.shape[0], g.nodes.size))
    index = np.empty(observed.shape[1] + 4, dtype=np.int32)
    for s in range(observed.shape[0]):
        n = 0
        for j in range(observed.shape[1]):
            index[n] = j
            n += observed[s, j]
        sums(index, n, g, out[s])
    return out


def shared(sets: CommonSets, g: Tables) -> Shared:
    """Sums of the sets that are common in a block; of the first ones where there are many."""
    kept = min(len(sets.observed), _MOST_SHARED // g.nodes.size)
    number = sets.number
    if kept < len(sets.observed):
        number = np.where(number < kept, number, np.int32(-1))
    return Shared(number, bases(sets.observed[:kept], g))


def alone(n: int) -> Shared:
    """No sums: for few persons."""
    return Shared(np.full(n, -1, dtype=np.int32), np.empty((0, 0)))


# --- many nodes -----------------------------------------------------------------------------------


@jit
def _mode_chunk(index: Ints, g: Any, t: float, mass: Floats) -> int:
    """Last chunk at whose first node the log posterior rises (the first if there is none).

    It is concave: its slope falls.
    """
    low, high = 0, g.origin.shape[0] - 1
    h = g.nodes[1] - g.nodes[0]
    while low < high:
        mid = (low + high + 1) // 2
        rise = g.rise[mid]
        s0 = s1 = s2 = s3 = 0.0
        for k in range(0, index.size, 4):
            s0 += rise[index[k]]
            s1 += rise[index[k + 1]]
            s2 += rise[index[k + 2]]
            s3 += rise[index[k + 3]]
        q = mid * CHUNK
        if t + (mass[q + 1] - mass[q - 1]) / (2.0 * h) > (s0 + s1) + (s2 + s3):
            low = mid
        else:
            high = mid - 1
    return low


@jit
def _fill_chunk(index: Ints, g: Any, t: float, mass: Floats, c: int, out: Floats) -> float:
    """Log weights at the nodes of chunk c; the largest."""
    peak = -math.inf
    last = min((c + 1) * CHUNK, g.nodes.size)
    for q in range(c * CHUNK, last):
        out[q] = 0.0
    add_chunk(index, g, c, out)
    for q in range(c * CHUNK, last):
        out[q] = (out[q] + mass[q]) + t * g.nodes[q]
        peak = max(peak, out[q])
    return peak


@jit
def _around_mode(
    index: Ints, g: Any, t: float, mass: Floats, cut: float, out: Floats
) -> tuple[int, int]:
    """Log weights at all nodes where they are not negligible, and at some more.

    A node's value does not depend on which others are evaluated.
    """
    n_chunks = g.origin.shape[0]
    first = last = _mode_chunk(index, g, t, mass)
    peak = _fill_chunk(index, g, t, mass, first, out)
    while last < n_chunks - 1 and out[(last + 1) * CHUNK - 1] - peak > cut:
        last += 1
        peak = max(peak, _fill_chunk(index, g, t, mass, last, out))
    while first > 0 and out[first * CHUNK] - peak > cut:
        first -= 1
        peak = max(peak, _fill_chunk(index, g, t, mass, first, out))
    return first * CHUNK, min((last + 1) * CHUNK, g.nodes.size)
