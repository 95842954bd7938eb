"""What abilities that are not known take away from the information, times vectors.

The sum over persons of posterior covariances of their scores (:mod:`~.lost_information`) is a
matrix of parameters x parameters.  Where that is too large, its products with some vectors, and
its blocks of an item's own parameters, are enough.  A person's covariance is the sum of squares
``c_d c_d'`` over degrees d of the coefficients ``c_d = E[s P_d]`` of the scores s by polynomials
P_d in ability that are orthonormal under the posterior (Parseval): a few degrees have all of it.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.kernels.base import fixed_point
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.base.exact_products import bound_above
from irt_dask.kernels.base.lanes import dot, sum_of_rows, total
from irt_dask.kernels.posterior.person_weights import (
    EVERYBODY,
    Prior,
    Shared,
    Some,
    gather,
    some,
    weigh,
)
from irt_dask.kernels.posterior.polynomials import DEGREES, further
from irt_dask.kernels.posterior.tables import Tables
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Layout

#: Log weights so far below the largest take no part.
CUT = -30.0
#: Share of a person's posterior variance that degrees may leave, and how many there are at most,
#: the mean one included: with fewer items than these pay for, posteriors are as wide as ability.
_LEFT, _DEGREES = 1e-8, 64
#: Bits of sums of products: whole numbers that doubles hold, less one to spare.
_BITS = 52


class Scores(NamedTuple):
    """Derivatives of log probabilities by parameters.

    ``table`` has a row for each parameter and category (``k rows + row``), then two for each group:
    the derivatives of its log density by mean and log SD.  Columns are places of parameters, -1 is
    nowhere.
    """

    table: Floats  # (.., nodes)
    first: Ints  # rows of an item's categories, (items + 1,)
    item_column: Ints  # (items, parameters)
    ability_column: Ints  # (groups, 2)
    unit: Floats  # of each column: scores are compared in these units, (columns,)


class Room(NamedTuple):
    """Room for one person: where scores go and come from, polynomials, and coefficients."""

    column: Ints
    source: Ints
    w: Floats
    root: Floats
    weighted: Floats
    basis: Floats  # polynomials, (degrees, nodes)
    turned: Floats  # (nodes, DEGREES)
    own: Floats  # coefficients of one score, (DEGREES,)
    size: Floats  # sums of squares of all, (DEGREES,)
    coefficient: Floats  # of degrees from 1 on, (degrees, scores)


def room_for(n_items: int, s: Scores, n_nodes: int) -> Room:
    """Room for a person who answers as many items."""
    most = n_items * s.item_column.shape[1] + 2
    column, source = np.empty((2, most), dtype=np.int64)
    w, root, weighted = np.empty((3, n_nodes))
    own, size = np.empty((2, DEGREES))
    return Room(
        column, source, w, root, weighted, np.empty((_DEGREES, n_nodes)),
        np.empty((n_nodes, DEGREES)), own, size, np.empty((_DEGREES, most)),
    )  # fmt: skip


@jit
def places(c: Some, r: int, group: int, s: Scores, room: Room) -> int:
    """Where the scores of a person's responses go, and the rows of the table that have them."""
    n = h = 0
    n_rows, size = s.first[-1], s.item_column.shape[1]
    for j in c.items[r, : c.n[r]]:
        row = s.first[j]
        if h < c.n_higher[r] and c.higher[r, h] + j + 1 < s.first[j + 1]:
            row = c.higher[r, h] + j + 1
            h += 1
        for k in range(size):
            if s.item_column[j, k] >= 0:
                room.column[n], room.source[n] = s.item_column[j, k], k * n_rows + row
                n += 1
    for k in range(2):
        if s.ability_column[group, k] >= 0:
            room.column[n] = s.ability_column[group, k]
            room.source[n] = size * n_rows + 2 * group + k
            n += 1
    return n


@jit
def _expand(lo: int, hi: int, s: Scores, n: int, room: Room) -> int:
    """Coefficients of n scores by degree, under the weights ``room.w``; the number of degrees."""
    size = hi - lo
    w, root, weighted = room.w[:size], room.root[:size], room.weighted[:size]
    n_nodes = 0
    for q in range(size):
        root[q] = math.sqrt(w[q])
        n_nodes += w[q] > 0.0
    left = 0.0
    for e in range(n):
        own = s.table[room.source[e], lo:hi]
        for q in range(size):
            weighted[q] = w[q] * own[q]
        left += (dot(weighted, own) - total(weighted) ** 2) / s.unit[room.column[e]] ** 2
    enough, most = _LEFT * left, min(n_nodes, len(room.basis))
    first = degrees = 0
    while first < most and left > enough:
        found = further(root, most, first, room.basis, room.turned)
        room.size[:] = 0.0
        for e in range(n):
            sum_of_rows(s.table[room.source[e], lo:hi], room.turned[:size], room.own)
            for k in range(found):
                if first + k > 0:  # that of degree 0 is the mean
                    x = room.own[(k + DEGREES - 1) % DEGREES]
                    room.coefficient[first + k - 1, e] = x
                    room.size[k] += (x / s.unit[room.column[e]]) ** 2
        for k in range(found):
            if left > enough:
                left -= room.size[k]
                degrees = first + k
        first += found
    return degrees


@jit
def _person(c: Some, r: int, p: Prior, s: Scores, room: Room) -> tuple[int, int]:
    """Number of scores of a person, and of degrees; 0 of one who says nothing."""
    if c.n[r] == 0:
        return 0, 0
    lo, hi = c.lo[r], c.hi[r]
    sum_w = total(c.w[r, lo:hi])
    for q in range(lo, hi):
        room.w[q - lo] = c.w[r, q] / sum_w
    n = places(c, r, p.group[c.person[r]] if p.group.size > 0 else 0, s, room)
    return n, _expand(lo, hi, s, n, room)


@jit
def _add_own(
    indptr: Any, indices: Any, values: Any, g: Any, shared: Shared, p: Prior, c: Some, s: Scores,
    room: Room, weight: Floats, times: Ints, item: Ints, place: Ints, scale: Floats, out: Ints,
) -> None:  # fmt: skip
    for begin in range(0, rows.n_rows(indptr, values), c.n.size):
        count = gather(indptr, indices, values, g, shared, p, EVERYBODY, begin, c)
        weigh(c, count)
        for r in range(count):
            many = times[c.person[r]] if times.size > 0 else 1
            w = weight[c.person[r]] if weight.size > 0 else 1.0
            n, degrees = _person(c, r, p, s, room) if many > 0 and w > 0.0 else (0, 0)
            first = 0
            for e in range(n):
                a = room.column[e]
                if item[a] < 0:
                    continue
                while item[room.column[first]] != item[a]:  # scores of an item are together
                    first += 1
                for f in range(first, e + 1):
                    b = room.column[f]
                    if item[b] != item[a]:
                        continue
                    product = 0.0
                    for k in range(degrees):
                        product += room.coefficient[k, e] * room.coefficient[k, f]
                    whole = many * np.int64(np.rint(w * product * scale[a] * scale[b]))
                    out[item[a], place[a], place[b]] += whole
                    if e != f:
                        out[item[a], place[b], place[a]] += whole


@jit
def _add_products(
    indptr: Any, indices: Any, values: Any, g: Any, shared: Shared, p: Prior, c: Some, s: Scores,
    room: Room, weight: Floats, times: Ints, v: Floats, scale: Floats, out: Floats,
) -> None:  # fmt: skip
    n_vectors = v.shape[1]
    along, sums = np.empty((room.coefficient.shape[0], n_vectors)), np.empty(n_vectors)
    for begin in range(0, rows.n_rows(indptr, values), c.n.size):
        count = gather(indptr, indices, values, g, shared, p, EVERYBODY, begin, c)
        weigh(c, count)
        for r in range(count):
            many = float(times[c.person[r]]) if times.size > 0 else 1.0
            w = weight[c.person[r]] if weight.size > 0 else 1.0
            n, degrees = _person(c, r, p, s, room) if many > 0.0 and w > 0.0 else (0, 0)
            if degrees == 0:
                continue
            along[:degrees] = 0.0
            for e in range(n):
                own = v[room.column[e]]
                for k in range(degrees):
                    x, to = room.coefficient[k, e], along[k]
                    for q in range(n_vectors):
                        to[q] += x * own[q]
            for e in range(n):
                sums[:] = 0.0
                unit = w * scale[room.column[e]]
                for k in range(degrees):
                    x, of_degree = room.coefficient[k, e] * unit, along[k]
                    for q in range(n_vectors):
                        sums[q] += x * of_degree[q]
                to = out[room.column[e]]
                for q in range(n_vectors):
                    to[q] += many * np.rint(sums[q])


def given(weight: Floats | None) -> Floats:
    """Weights, or nothing where all are 1."""
    return np.empty(0) if weight is None else weight


def counted(times: Ints | None) -> Ints:
    """How often each row counts, or nothing where all do once."""
    return np.empty(0, dtype=np.int64) if times is None else times


# --- own blocks -----------------------------------------------------------------------------------


def own_scale(spread: Floats, n_persons: int) -> Floats:
    """What scores are multiplied by, (columns,), so that sums over persons of products fit.

    ``spread`` is the range of each score: a product of two has a covariance below that of both.
    """
    return np.sqrt(fixed_point.scale_for(float(n_persons))) / bound_above(spread)


def add_own(
    data: Layout, g: Tables, shared: Shared, p: Prior, s: Scores, weight: Floats | None,
    times: Ints | None, item: Ints, place: Ints, scale: Floats, to: Ints,
) -> None:  # fmt: skip
    """Add the posterior covariances of each item's own scores to (items, parameters, parameters).

    Column k is of item ``item[k]``, at ``place[k]`` among its own; -1 is of no item.  They are
    whole multiples of one over the product of the columns' scales.  A person counts by ``weight``,
    or ``times`` as often.
    """
    n, m = data.shape
    _add_own(
        *rows.arrays(data), g, shared, p, some(n, m, g.nodes.size, CUT), s,
        room_for(m, s, g.nodes.size), given(weight), counted(times), item, place, scale, to,
    )  # fmt: skip


# --- products -------------------------------------------------------------------------------------


def product_scale(bound: Floats) -> Floats:
    """What products are multiplied by, (columns,): ``bound`` is above sums of their sizes."""
    return 2.0**_BITS / bound_above(bound)


def add_products(
    data: Layout, g: Tables, shared: Shared, p: Prior, s: Scores, weight: Floats | None,
    times: Ints | None, v: Floats, scale: Floats, to: Floats,
) -> None:  # fmt: skip
    """Add products of the posterior covariances with ``v``, (columns, vectors), to ``to``.

    They are whole multiples of one over the scale of their column, as doubles: exact in any order.
    """
    n, m = data.shape
    _add_products(
        *rows.arrays(data), g, shared, p, some(n, m, g.nodes.size, CUT), s,
        room_for(m, s, g.nodes.size), given(weight), counted(times), v, scale, to,
    )  # fmt: skip
