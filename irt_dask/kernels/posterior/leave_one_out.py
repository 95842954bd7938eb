"""Probability of each response, given the other responses of the person.

With posterior weights w of all responses and the likelihood L of one of them, dividing by L gives
the posterior from the others: the probability that they give the response is ``sum w / sum (w /
L)``.  Given the others the response has this distribution, ability integrated out; at an estimate
of ability, which it helped to make, it has not.

A node that the posterior all but rules out may matter once a surprising response is left out:
weights count as far down as the largest 1 / L can lift them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.curves.item_set import ItemSet
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.base.exponential import LOG_NEGLIGIBLE
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
from irt_dask.kernels.posterior.tables import LinearTables, Tables
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.kernels.responses.rows import n_rows

#: Responses that are treated at a time.
_TOGETHER = 256


class Inverse(NamedTuple):
    """1 / P of the categories at the nodes; category k of item j has row ``first[j] + k``."""

    first: Ints
    values: Floats  # (rows, nodes); empty for linear tables of many nodes
    cut: float  # logarithm of the share of the largest weight below which none matters

    @property
    def nbytes(self) -> int:
        """Memory held, bytes."""
        return self.first.nbytes + self.values.nbytes


def inverse(items: ItemSet, g: Tables) -> Inverse:
    """Inverse probabilities of the items of some tables; 8 bytes a row and node."""
    # No category is least likely in between; of an empty one there is no response.
    least = float(items.log_p(g.nodes[[0, -1]])[~items.empty].min())
    values = np.empty((0, 0))
    if not isinstance(g, LinearTables) or g.base.size:
        values = items.log_p(g.nodes)
        values[items.empty] = -np.inf
        np.exp(np.negative(values, out=values), out=values)
    return Inverse(items.first, values, LOG_NEGLIGIBLE + least)


@jit
def _by_tables(
    indptr: Any, indices: Any, values: Any, g: Any, s: Shared, p: Prior, c: Some, first: Ints,
    table: Floats, out: Floats,
) -> None:  # fmt: skip
    at = 0
    for begin in range(0, n_rows(indptr, values), c.n.size):
        count = gather(indptr, indices, values, g, s, p, EVERYBODY, begin, c)
        weigh(c, count)
        for r in range(count):
            lo, hi = c.lo[r], c.hi[r]
            w = c.w[r, lo:hi]
            sum_w = total(w)
            its, row = rows.row(indptr, indices, values, c.person[r])
            for k in range(row.size):
                if row[k] >= 0:
                    own = table[first[rows.item(its, k)] + row[k], lo:hi]
                    out[at] = sum_w / dot(w, own)
                    at += 1


@jit
def _tilted(w: Floats, up: bool, ratio: Floats, sums: Floats) -> None:
    """Sums of w times powers of each ratio, 1 at the last node (``up``) or the first; Horner."""
    sums[:] = 0.0
    for q in range(w.size):
        one = w[q if up else w.size - 1 - q]
        for k in range(sums.size):
            sums[k] = sums[k] * ratio[k] + one


@jit
def _around_mode(
    indptr: Any, indices: Any, values: Any, g: Any, s: Shared, p: Prior, c: Some, ratio: Floats,
    out: Floats,
) -> None:  # fmt: skip
    """As :func:`_by_tables` for linear tables of many nodes: 1 / P is 1 + e^-z, or 1 + e^z.

    Sums are made for many responses at a time, from the end where the exponentials are smallest.
    """
    slope, constant = g.slope, g.constant
    own, sums = np.empty(_TOGETHER), np.empty(_TOGETHER)
    item, place = np.empty(_TOGETHER, dtype=np.int64), np.empty(_TOGETHER, dtype=np.int64)
    first = 0
    for begin in range(0, n_rows(indptr, values), c.n.size):
        count = gather(indptr, indices, values, g, s, p, EVERYBODY, begin, c)
        weigh(c, count)
        for r in range(count):
            lo, hi = c.lo[r], c.hi[r]
            w = c.w[r, lo:hi]
            sum_w = total(w)
            its, row = rows.row(indptr, indices, values, c.person[r])
            for up in (False, True):
                x = g.nodes[hi - 1 if up else lo]
                at, n = first, 0
                for k in range(row.size):
                    if row[k] >= 0:
                        j = rows.item(its, k)
                        if (slope[j] > 0.0) == ((row[k] == 0) == up):
                            item[n], place[n], own[n] = j, at, ratio[j]
                            n += 1
                        at += 1
                    if n == _TOGETHER or (n > 0 and k == row.size - 1):
                        _tilted(w, up, own[:n], sums[:n])
                        for i in range(n):
                            z = slope[item[i]] * x + constant[item[i]]
                            rise = z if (slope[item[i]] > 0.0) == up else -z
                            out[place[i]] = sum_w / (sum_w + sums[i] * math.exp(rise))
                        n = 0
            first += c.n[r]


def left_out(data: Layout, g: Tables, s: Shared, p: Prior, inverse: Inverse) -> Floats:
    """Probability of each observed response given the person's others, in the order of the rows."""
    out = np.empty(data.n_observed)
    room = some(*data.shape, g.nodes.size, inverse.cut)
    if inverse.values.size:
        _by_tables(*rows.arrays(data), g, s, p, room, inverse.first, inverse.values, out)
    else:
        assert isinstance(g, LinearTables)
        ratio = np.exp(-np.abs(g.slope) * (g.nodes[1] - g.nodes[0]))
        _around_mode(*rows.arrays(data), g, s, p, room, ratio, out)
    return out
