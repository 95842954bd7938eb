"""Expected counts of the bifactor model, by pairs of nodes of the general and a block's ability.

Weights are rounded once, to multiples of ``1 / scale``, and added as integers, so that neither the
order of persons nor the blocks they come in change a bit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.curves.grids import BEYOND
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.posterior.expected_counts import Scales
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.kernels.responses.rows import item, n_rows
from irt_dask.kernels.several.bifactor_posterior import (
    NO_WEIGHT,
    Planes,
    Room,
    means,
    read,
    room,
    share_at_ends,
    weigh,
)


class Counts(NamedTuple):
    """Whole multiples of ``1 / scales.weight``."""

    whole: Ints  # who answered all items of a block, (blocks, n, k)
    some: Ints  # who answered an item of a block, but not all of it, (rows, n, k)
    right: Ints  # sums over answers 1 of both abilities, and their number, (3, items)
    moments: Ints  # of 1, x, z, x^2, xz, z^2, who answered blocks, and of all, (blocks + 1, 6)
    log_marginal: np.int64  # multiple of 1 / scales.log_marginal
    outside: np.int64  # persons with an ability that may lie beyond its grid


@jit
def _add_plane(
    g: Planes, r: Room, b: int, p0: int, p1: int, part: float, times: int, out: Ints
) -> None:
    for p in range(p0, p1):
        own = part * r.log[p] / r.total[b, p]
        for q in range(r.low[b], r.high[b]):
            out[p, q] += times * np.int64(r.w[b, p, q] * own + 0.5)


@jit
def _add_moments(g: Planes, r: Room, p0: int, p1: int, part: float, times: int, out: Ints) -> None:
    """Add a person's moments of abilities: blocks that were answered, then the general one."""
    v = np.empty(6)
    for b in range(r.n.size + 1):
        v[:] = 0.0
        of_all = b == r.n.size
        if not of_all and r.n[b] == 0:
            continue
        for p in range(p0, p1):
            x, one, two = g.nodes[p], 0.0, 0.0
            if not of_all:
                for q in range(r.low[b], r.high[b]):
                    z = g.block_nodes[q]
                    one += r.w[b, p, q] * z
                    two += r.w[b, p, q] * z * z
                one, two = one / r.total[b, p], two / r.total[b, p]
            v[0] += r.log[p]
            v[1] += r.log[p] * x
            v[2] += r.log[p] * one
            v[3] += r.log[p] * x * x
            v[4] += r.log[p] * x * one
            v[5] += r.log[p] * two
        for k in range(6):
            out[b, k] += times * np.int64(np.rint(v[k] * part))


@jit
def _counts(
    indptr: Any, indices: Any, values: Any, g: Planes, weight: Floats, times: Ints, scale: float,
    log_scale: float, whole: Ints, some: Ints, right: Ints, moments: Ints,
) -> tuple[int, int]:  # fmt: skip
    r, log_marginal, outside = room(g), 0, 0
    for i in range(n_rows(indptr, values)):
        own, many = (weight[i] if weight.size > 0 else 1.0), (times[i] if times.size > 0 else 1)
        items, row = rows.row(indptr, indices, values, i)
        if read(items, row, g, r) == 0 or own == 0.0:
            continue
        p0, p1, value = weigh(g, r, NO_WEIGHT)
        outside += share_at_ends(g, r, p0, p1) > BEYOND
        log_marginal += many * int(np.rint(own * value * log_scale))
        part = own * scale
        general = many * np.int64(np.rint(means(g, r, p0, p1) * part))
        _add_moments(g, r, p0, p1, part, many, moments)
        for b in range(r.n.size):
            its = g.order[g.first[b] : g.first[b + 1]]
            if r.n[b] == 0:
                continue
            if r.n[b] == its.size:
                _add_plane(g, r, b, p0, p1, part, many, whole[b])
            block = many * np.int64(np.rint(r.mean[b] * part))
            for j in its:
                if r.y[j] == 1:
                    right[0, j] += general
                    right[1, j] += block
                    right[2, j] += many * np.int64(np.rint(part))
                if r.y[j] >= 0 and r.n[b] < its.size:
                    _add_plane(g, r, b, p0, p1, part, many, some[g.row[j]])
    return log_marginal, outside


def nothing(g: Planes) -> Counts:
    """Counts of nobody."""
    zeros = [np.zeros(x.shape, dtype=np.int64) for x in (g.whole, g.wrong, g.slopes)]
    moments = np.zeros((len(g.whole) + 1, 6), dtype=np.int64)
    return Counts(zeros[0], zeros[1], zeros[2], moments, np.int64(0), np.int64(0))


def counts(
    data: Layout, g: Planes, scales: Scales, *, weight: Floats | None = None,
    times: Ints | None = None, to: Counts | None = None,
) -> Counts:  # fmt: skip
    """Expected counts of a block of persons, added to those of ``to`` in place.

    ``weight`` are those of the persons, ``times`` says how many each row stands for.
    """
    to = nothing(g) if to is None else to
    value, outside = _counts(
        *rows.arrays(data), g, np.empty(0) if weight is None else weight,
        np.empty(0, dtype=np.int64) if times is None else times, *scales, *to[:4],
    )  # fmt: skip
    return to._replace(log_marginal=to.log_marginal + value, outside=to.outside + outside)


# --- who answered blocks in part ------------------------------------------------------------------


@jit
def _in_part(indptr: Any, indices: Any, values: Any, of_item: Ints, size: Ints, out: Ints) -> None:
    n = np.empty(size.size, dtype=np.int64)
    for i in range(n_rows(indptr, values)):
        items, row = rows.row(indptr, indices, values, i)
        n[:] = 0
        for k in range(row.size):
            n[of_item[item(items, k)]] += row[k] >= 0
        for b in range(n.size):
            out[b] += 0 < n[b] < size[b]


def in_part(data: Layout, of_item: Ints, n_blocks: int) -> Ints:
    """Persons who answered some items of a block, but not all, by block."""
    out = np.zeros(n_blocks, dtype=np.int64)
    _in_part(*rows.arrays(data), of_item, np.bincount(of_item, minlength=n_blocks), out)
    return out
