"""Posterior moments of ability: means, variances, marginal likelihoods.

Persons whose items and prior have a table of cells find their moments there
(:mod:`~irt_dask.kernels.posterior.cells`).  Others' come from the cumulants at the middle of the
same cell, found anew: which have a table decides nothing but time.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from irt_dask.arrays import Floats
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.base.lanes import dot, total
from irt_dask.kernels.posterior import cells
from irt_dask.kernels.posterior.cells import ORDERS, cumulants, taylor
from irt_dask.kernels.posterior.person_weights import (
    EVERYBODY,
    Chosen,
    Prior,
    Shared,
    Some,
    gather,
    some,
    weigh,
)
from irt_dask.kernels.posterior.tables import Tables
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.kernels.responses.rows import n_rows

_NONE = np.empty(0)


@jit
def _one_by_one(
    indptr: Any, indices: Any, values: Any, g: Any, s: Shared, p: Prior, who: Chosen, c: Some,
    t: Floats, out: Floats,
) -> None:  # fmt: skip
    """Fill in moments by cells made anew where ``t`` is given, else from the weights themselves."""
    k = np.empty((1, ORDERS))
    n = who.who.size if who.who.size > 0 else n_rows(indptr, values)
    for begin in range(0, n, c.n.size):
        count = gather(indptr, indices, values, g, s, p, who, begin, c)
        weigh(c, count)
        for r in range(count):
            i, lo, hi = c.person[r], c.lo[r], c.hi[r]
            w, nodes = c.w[r, lo:hi], g.nodes[lo:hi]
            if t.size > 0:
                cumulants(w, nodes, c.peak[r], k[0])
                out[0, i], out[1, i], out[2, i] = taylor(k, 0, t[i] - who.t[i])
                continue
            sum_w = total(w)
            mean = dot(w, nodes) / sum_w
            spread = 0.0
            for q in range(w.size):
                spread += w[q] * (nodes[q] - mean) ** 2
            out[0, i], out[1, i] = mean, spread / sum_w
            out[2, i] = c.peak[r] + math.log(sum_w) + c.constant[r]


def expectations(
    data: Layout, g: Tables, s: Shared, p: Prior, seen: cells.Seen = cells.NOTHING
) -> Floats:
    """Posterior mean and variance of each ability, and the log marginal likelihood, (3, persons).

    The prior's log mass includes the spacing.
    """
    n, m = data.shape
    out = np.empty((3, n))
    if not cells.has_cells(g):
        _one_by_one(*rows.arrays(data), g, s, p, EVERYBODY, some(n, m, g.nodes.size), _NONE, out)
        return out
    rest = cells.look_up(data, g, p.group, seen, out)
    if rest.size:
        of_each = cells.sums(data, g)
        t = of_each[:, 0] + p.tilt if p.tilt.size else of_each[:, 0].copy()
        room = some(rest.size, m, g.nodes.size)
        who = Chosen(rest, cells.middles(t))
        _one_by_one(*rows.arrays(data), g, s, p, who, room, t, out)
        out[2, rest] += of_each[rest, 1]
    return out


@jit
def _central(
    indptr: Any, indices: Any, values: Any, g: Any, s: Shared, p: Prior, c: Some, out: Floats
) -> None:  # fmt: skip
    for begin in range(0, n_rows(indptr, values), c.n.size):
        count = gather(indptr, indices, values, g, s, p, EVERYBODY, begin, c)
        weigh(c, count)
        for r in range(count):
            i, lo, hi = c.person[r], c.lo[r], c.hi[r]
            w, nodes = c.w[r, lo:hi], g.nodes[lo:hi]
            sum_w = total(w)
            mean = dot(w, nodes) / sum_w
            m2 = m3 = m4 = 0.0
            for q in range(w.size):
                x = nodes[q] - mean
                y = w[q] * x * x
                m2 += y
                m3 += y * x
                m4 += y * x * x
            out[0, i], out[1, i], out[2, i], out[3, i] = mean, m2 / sum_w, m3 / sum_w, m4 / sum_w


def central_moments(data: Layout, g: Tables, s: Shared, p: Prior) -> Floats:
    """Mean, variance, and third and fourth central moment of each posterior, (4, persons)."""
    out = np.empty((4, data.shape[0]))
    room = some(*data.shape, g.nodes.size)
    _central(*rows.arrays(data), g, s, p, room, out)
    return out
