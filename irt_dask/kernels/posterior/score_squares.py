"""Squares of the persons' weighted scores, times vectors: the middle of a large sandwich.

A person's score is the posterior mean of the complete-data score (Fisher's identity), as in
:mod:`.lost_information` and :mod:`.unit_scores`, of the few parameters of the items that the person
answered.  The sum of squares is a matrix of parameters x parameters: where that is too large, its
blocks of an item and its products with some vectors are enough.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.base.lanes import dot, total
from irt_dask.kernels.posterior.person_weights import (
    EVERYBODY,
    Prior,
    Shared,
    Some,
    gather,
    some,
    weigh,
)
from irt_dask.kernels.posterior.score_products import (
    CUT,
    Room,
    Scores,
    counted,
    given,
    places,
    room_for,
)
from irt_dask.kernels.posterior.tables import Tables
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Layout


@jit
def _means(
    c: Some, r: int, p: Prior, s: Scores, room: Room, weight: Floats, times: Ints
) -> tuple[int, Any]:
    """Number of scores of a person, weighted means in ``room``, and how often these count."""
    i = c.person[r]
    w = weight[i] if weight.size > 0 else 1.0
    many = times[i] if times.size > 0 else np.int64(1)
    if c.n[r] == 0 or not w > 0.0 or many == 0:
        return 0, many
    lo, hi = c.lo[r], c.hi[r]
    sum_w = total(c.w[r, lo:hi])
    own = room.w[: hi - lo]
    for q in range(lo, hi):
        own[q - lo] = c.w[r, q] / sum_w
    n = places(c, r, p.group[i] if p.group.size > 0 else 0, s, room)
    for e in range(n):
        room.coefficient[0, e] = w * dot(own, s.table[room.source[e], lo:hi])
    return n, many


@jit
def _add_own(
    indptr: Any, indices: Any, values: Any, g: Any, shared: Shared, p: Prior, c: Some, s: Scores,
    room: Room, weight: Floats, times: Ints, of_row: Ints, scale: Floats, to: Ints,
) -> None:  # fmt: skip
    n_rows, n_items = s.first[-1], s.item_column.shape[0]
    size = s.item_column.shape[1]
    block, place = np.empty((2, room.column.size), dtype=np.int64)
    mean = room.coefficient[0]
    for begin in range(0, rows.n_rows(indptr, values), c.n.size):
        count = gather(indptr, indices, values, g, shared, p, EVERYBODY, begin, c)
        weigh(c, count)
        for r in range(count):
            n, many = _means(c, r, p, s, room, weight, times)
            first = 0
            for e in range(n):
                source = room.source[e]
                if source < size * n_rows:
                    block[e], place[e] = of_row[source % n_rows], source // n_rows
                else:
                    more = source - size * n_rows
                    block[e], place[e] = n_items + more // 2, more % 2
                while block[first] != block[e]:  # scores of an item are together
                    first += 1
                one = mean[e] * scale[block[e], place[e]]
                for f in range(first, e + 1):
                    other = mean[f] * scale[block[f], place[f]]
                    whole = many * np.int64(np.rint(one * other))
                    to[block[e], place[e], place[f]] += whole
                    if e != f:
                        to[block[e], place[f], place[e]] += whole


@jit
def _add_products(
    indptr: Any, indices: Any, values: Any, g: Any, shared: Shared, p: Prior, c: Some, s: Scores,
    room: Room, weight: Floats, times: Ints, v: Floats, scale: Floats, to: Floats,
) -> None:  # fmt: skip
    along, mean = np.empty(v.shape[1]), room.coefficient[0]
    for begin in range(0, rows.n_rows(indptr, values), c.n.size):
        count = gather(indptr, indices, values, g, shared, p, EVERYBODY, begin, c)
        weigh(c, count)
        for r in range(count):
            n, counts = _means(c, r, p, s, room, weight, times)
            many = float(counts)
            along[:] = 0.0
            for e in range(n):
                own = v[room.column[e]]
                for q in range(along.size):
                    along[q] += mean[e] * own[q]
            for e in range(n):
                out = to[room.column[e]]
                x = mean[e] * scale[room.column[e]]
                for q in range(along.size):
                    out[q] += many * np.rint(x * along[q])


@jit
def _add_by_unit(
    indptr: Any, indices: Any, values: Any, g: Any, shared: Shared, p: Prior, c: Some, s: Scores,
    room: Room, weight: Floats, times: Ints, unit: Ints, scale: Floats, to: Ints,
) -> None:  # fmt: skip
    mean = room.coefficient[0]
    for begin in range(0, rows.n_rows(indptr, values), c.n.size):
        count = gather(indptr, indices, values, g, shared, p, EVERYBODY, begin, c)
        weigh(c, count)
        for r in range(count):
            n, many = _means(c, r, p, s, room, weight, times)
            out = to[unit[c.person[r]]]
            for e in range(n):
                a = room.column[e]
                out[a] += many * np.int64(np.rint(mean[e] * scale[a]))


# --- entrances ------------------------------------------------------------------------------------


def add_own(
    data: Layout, g: Tables, shared: Shared, p: Prior, s: Scores, weight: Floats | None,
    times: Ints | None, scale: Floats, to: Ints,
) -> None:  # fmt: skip
    """Add squares of the scores of each item, then of each group: (.., parameters, parameters).

    Places are those of parameters in ``s.item_column`` (and ``s.ability_column``).  Sums are whole
    multiples of one over the product of scales, (items and groups, parameters).
    """
    n, m = data.shape
    of_row = np.repeat(np.arange(len(s.first) - 1), np.diff(s.first))
    _add_own(
        *rows.arrays(data), g, shared, p, some(n, m, g.nodes.size, CUT), s,
        room_for(m, s, g.nodes.size), given(weight), counted(times), of_row, scale, to,
    )  # fmt: skip


def add_products(
    data: Layout, g: Tables, shared: Shared, p: Prior, s: Scores, weight: Floats | None,
    times: Ints | None, v: Floats, scale: Floats, to: Floats,
) -> None:  # fmt: skip
    """Add the sum of squares times ``v``, (columns, vectors), to ``to``.

    It is of whole multiples of one over the scale of a column, as doubles: exact in any order.
    """
    n, m = data.shape
    _add_products(
        *rows.arrays(data), g, shared, p, some(n, m, g.nodes.size, CUT), s,
        room_for(m, s, g.nodes.size), given(weight), counted(times), v, scale, to,
    )  # fmt: skip


def add_by_unit(
    data: Layout, g: Tables, shared: Shared, p: Prior, s: Scores, weight: Floats | None,
    times: Ints | None, unit: Ints, scale: Floats, to: Ints,
) -> None:  # fmt: skip
    """Add scores to those of each person's sampling unit, (units, columns), in whole multiples."""
    n, m = data.shape
    _add_by_unit(
        *rows.arrays(data), g, shared, p, some(n, m, g.nodes.size, CUT), s,
        room_for(m, s, g.nodes.size), given(weight), counted(times), unit, scale, to,
    )  # fmt: skip
