"""Expected counts of responses by item and node of the ability grid.

A person with posterior weights ``w_q`` (they sum to 1) adds ``w_q`` to the counts of the responses
that he or she gave.  Weights are rounded once, to multiples of ``1 / scale``, and added as
integers, so that neither the order of persons nor the blocks they come in change a bit.  On grids
of many nodes items are counted on a coarser axis (:mod:`irt_dask.kernels.posterior.coarse_axis`).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.kernels.base import fixed_point
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.base.lanes import LANES, increase, total
from irt_dask.kernels.posterior.coarse_axis import FINE_ALONE, POINTS, Axis
from irt_dask.kernels.posterior.person_weights import (
    EVERYBODY,
    Prior,
    Shared,
    Some,
    gather,
    some,
    weigh,
)
from irt_dask.kernels.posterior.tables import LinearTables, Tables
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.item_sets import CommonSets
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.kernels.responses.rows import n_rows


class Scales(NamedTuple):
    """Multiples that sums over persons count in."""

    weight: float
    log_marginal: float


def scales_for(n_persons: int, reach: float, largest: float) -> Scales:
    """Scales for sums over persons on nodes within ``reach``, log-likelihoods within ``largest``.

    The first one also holds sums of weights times abilities.
    """
    return Scales(
        fixed_point.scale_for(n_persons * reach), fixed_point.scale_for(n_persons * largest)
    )


class Counts(NamedTuple):
    """Whole multiples of ``1 / scales.weight``: higher responses and observed, by node.

    ``steep_higher`` and ``steep_seen`` are those of items that are too steep for a coarse axis.
    """

    higher: Ints  # (rows, nodes): responses above the lowest category
    seen: Ints  # (items, nodes)
    persons: Ints  # (groups, fine nodes)
    log_marginal: np.int64  # multiple of 1 / scales.log_marginal
    steep_higher: Ints
    steep_seen: Ints


class Sums(NamedTuple):
    """Counts of :class:`Counts` while they are added up, those of common sets by set."""

    higher: Ints
    seen: Ints
    of_set: Ints
    persons: Ints
    steep_higher: Ints
    steep_seen: Ints
    steep_of_set: Ints


@jit
def _counts(
    indptr: Any, indices: Any, values: Any, g: Any, s: Shared, p: Prior, c: Some, axis: Axis,
    weight: Floats, times: Ints, scale: float, log_scale: float, out: Sums,
) -> int:  # fmt: skip
    fine, coarse = np.empty(g.nodes.size, dtype=np.int64), np.empty(axis.nodes.size, dtype=np.int64)
    sums, log_marginal = np.empty(c.n.size), 0
    higher, seen, persons, of_set = out.higher, out.seen, out.persons, out.of_set
    for begin in range(0, n_rows(indptr, values), c.n.size):
        count = gather(indptr, indices, values, g, s, p, EVERYBODY, begin, c)
        weigh(c, count)
        for r in range(count):
            sums[r] = total(c.w[r, c.lo[r] : c.hi[r]])
        for r in range(count):
            i = c.person[r]
            own, many = (weight[i] if weight.size > 0 else 1.0), (times[i] if times.size > 0 else 1)
            if c.n[r] == 0 or own == 0.0:  # says nothing, of abilities neither
                continue
            lo, hi = c.lo[r], c.hi[r]
            w = c.w[r, lo:hi]
            at = fine[: w.size]
            value = c.peak[r] + math.log(sums[r]) + c.constant[r]
            log_marginal += many * int(np.rint(own * value * log_scale))
            part = own * scale / sums[r]
            for q in range(w.size):
                at[q] = many * np.int64(w[q] * part + 0.5)
            _add_one(at, persons, p.group[i] if p.group.size > 0 else 0, lo)
            if axis.nodes.size > 0:
                _add_steep(at, lo, c, r, s.number[i], axis, out)
                at, lo = _coarse(w, lo, part, many, axis, c.scratch, coarse)
            _add(at, c.higher[r, : c.n_higher[r]], higher, lo)
            if s.number[i] >= 0:
                _add_one(at, of_set, s.number[i], lo)
            else:
                _add(at, c.items[r, : c.n[r]], seen, lo)
    return log_marginal


@jit
def _coarse(
    w: Floats, lo: int, part: float, times: int, axis: Axis, scratch: Floats, out: Ints
) -> tuple[Ints, int]:
    """Multiples at coarse nodes of weights w from the node ``lo`` on, and the first of these."""
    first = axis.first[lo]
    to = scratch[: axis.first[lo + w.size - 1] + POINTS - first]
    to[:] = 0.0
    for q in range(w.size):
        share, start = axis.share[lo + q], axis.first[lo + q] - first
        for k in range(POINTS):
            to[start + k] += w[q] * share[k]
    for k in range(to.size):
        out[k] = times * np.int64(np.rint(to[k] * part))
    return out[: to.size], first


@jit
def _add_steep(at: Ints, lo: int, c: Some, r: int, number: int, axis: Axis, out: Sums) -> None:
    """Add to the counts of items that are too steep for the coarse axis."""
    for row in c.higher[r, : c.n_higher[r]]:
        if axis.steep_row[row] >= 0:
            _add_one(at, out.steep_higher, axis.steep_row[row], lo)
    if number >= 0:
        if out.steep_seen.shape[0] > 0:
            _add_one(at, out.steep_of_set, number, lo)
        return
    for j in c.items[r, : c.n[r]]:
        if axis.steep[j] >= 0:
            _add_one(at, out.steep_seen, axis.steep[j], lo)


@jit
def _add_one(at: Ints, out: Ints, row: int, lo: int) -> None:
    if at.size % LANES == 0:
        increase(out, row, lo, at)
        return
    for q in range(at.size):
        out[row, lo + q] += at[q]


@jit
def _add(at: Ints, which: NDArray[np.int32], out: Ints, lo: int) -> None:
    if at.size % LANES == 0:
        for k in range(which.size):
            increase(out, which[k], lo, at)
        return
    for k in range(which.size):
        for q in range(at.size):
            out[which[k], lo + q] += at[q]


@jit
def _add_sets(observed: Bools, of_set: Ints, seen: Ints) -> None:
    for s in range(of_set.shape[0]):
        for j in range(observed.shape[1]):
            if observed[s, j]:
                for q in range(seen.shape[1]):
                    seen[j, q] += of_set[s, q]


def nothing(n_items: int, g: Tables, p: Prior, axis: Axis) -> Counts:
    """Counts of nobody."""
    n_rows = n_items if isinstance(g, LinearTables) else int(g.first[-1])
    steep_rows, steep = int((axis.steep_row >= 0).sum()), int((axis.steep >= 0).sum())

    def zeros(rows: int, nodes: Floats) -> Ints:
        return np.zeros((rows, nodes.size), dtype=np.int64)

    coarse = axis.nodes if axis.nodes.size else g.nodes
    return Counts(
        zeros(n_rows, coarse), zeros(n_items, coarse), zeros(len(p.log_mass), g.nodes),
        np.int64(0), zeros(steep_rows, g.nodes), zeros(steep, g.nodes),
    )  # fmt: skip


def counts(
    data: Layout, g: Tables, s: Shared, sets: CommonSets, p: Prior, scales: Scales, *,
    weight: Floats | None = None, times: Ints | None = None, axis: Axis = FINE_ALONE,
    to: Counts | None = None,
) -> Counts:  # fmt: skip
    """Expected counts of a block; persons without responses are left out.

    ``weight`` are those of the persons, ``times`` says how many each row stands for.  The counts
    are added to those of ``to``, in place.
    """
    n, m = data.shape
    n_nodes, n_sets, steep = g.nodes.size, len(s.base), axis.steep >= 0
    to = nothing(m, g, p, axis) if to is None else to
    out = Sums(
        *(to.higher, to.seen, np.zeros((n_sets, to.seen.shape[1]), dtype=np.int64), to.persons),
        *(
            to.steep_higher,
            to.steep_seen,
            np.zeros((n_sets * steep.any(), n_nodes), dtype=np.int64),
        ),
    )
    value = _counts(
        *rows.arrays(data), g, s, p, some(n, m, n_nodes), axis,
        np.empty(0) if weight is None else weight,
        np.empty(0, dtype=np.int64) if times is None else times,
        *scales, out,
    )  # fmt: skip
    _add_sets(sets.observed, out.of_set, out.seen)
    if steep.any():
        _add_sets(np.ascontiguousarray(sets.observed[:, steep]), out.steep_of_set, out.steep_seen)
    return to._replace(log_marginal=to.log_marginal + value)
