"""Expected counts by item and node as :mod:`.expected_counts`, for items with guessing.

``P = c + (1 - c) sigma(a theta + d)``: the likelihood has no sufficient statistic, and what right
answers add comes from a table of items by nodes.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.posterior.expected_counts import Scales
from irt_dask.kernels.posterior.linear_tables import LOG_NEGLIGIBLE
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.kernels.responses.rows import item, n_rows

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Tables3PL(NamedTuple):
    """What depends on items, grid and prior but on no person; tables are (items, nodes)."""

    nodes: Floats
    prior: Floats
    wrong: Floats  # log(1 - P)
    gain: Floats  # log P - log(1 - P)
    total: Floats  # the prior, plus log(1 - P) of all items

    @property
    def nbytes(self) -> int:
        """Memory held, bytes."""
        return sum(x.nbytes for x in self)


def tables(a: Floats, d: Floats, c: Floats, nodes: Floats, prior: Floats) -> Tables3PL:
    """Tables of items and grid; ``prior`` is the log density of ability."""
    z = np.multiply.outer(a, nodes) + d[:, None]
    wrong = np.log1p(-c)[:, None] - np.logaddexp(0.0, z)
    with np.errstate(divide="ignore"):
        odds = np.logaddexp(np.log(c)[:, None], z)
    total = prior.copy()
    for row in wrong:
        total += row
    return Tables3PL(nodes, prior, wrong, odds - np.log1p(-c)[:, None], total)


@jit
def _counts(
    indptr: Any,
    indices: Any,
    values: Any,
    g: Tables3PL,
    weight: Floats,
    times: Ints,
    scale: float,
    log_scale: float,
    constant: float,
    right: Ints,
    seen: Ints,
    whole: Ints,
    mass: Ints,
) -> int:
    n = g.nodes.size
    w = np.empty(n)
    multiple = np.empty(n, dtype=np.int64)
    log_marginal = 0
    for i in range(n_rows(indptr, values)):
        items, row = rows.row(indptr, indices, values, i)
        observed = 0
        for k in range(row.size):
            observed += row[k] >= 0
        if observed == 0 or weight[i] == 0.0:
            continue
        complete = observed == g.gain.shape[0]
        base = g.total if complete else g.prior
        for q in range(n):
            w[q] = base[q]
        for k in range(row.size):
            if row[k] >= 0:
                j = item(items, k)
                if not complete:
                    table = g.wrong[j]
                    for q in range(n):
                        w[q] += table[q]
                if row[k] == 1:
                    table = g.gain[j]
                    for q in range(n):
                        w[q] += table[q]
        peak = -math.inf
        for q in range(n):
            peak = max(peak, w[q])
        lo, hi = 0, n
        while w[lo] - peak <= LOG_NEGLIGIBLE:
            lo += 1
        while w[hi - 1] - peak <= LOG_NEGLIGIBLE:
            hi -= 1
        total = 0.0
        for q in range(lo, hi):
            w[q] = math.exp(w[q] - peak)
            total += w[q]
        log_marginal += times[i] * int(
            np.rint(weight[i] * (peak + math.log(total) + constant) * log_scale)
        )
        part = weight[i] * scale / total
        for q in range(lo, hi):
            multiple[q] = times[i] * np.int64(w[q] * part + 0.5)
        at = multiple[lo:hi]
        for k in range(row.size):
            if row[k] == 1:
                to = right[item(items, k), lo:hi]
                for q in range(at.size):
                    to[q] += at[q]
            if row[k] >= 0 and not complete:
                to = seen[item(items, k), lo:hi]
                for q in range(at.size):
                    to[q] += at[q]
        to = whole[lo:hi] if complete else mass[lo:hi]
        for q in range(at.size):
            to[q] += at[q]
    return log_marginal


def counts(
    data: Layout,
    g: Tables3PL,
    scales: Scales,
    *,
    weight: Floats | None,
    times: Ints | None,
    constant: float,
) -> tuple[Ints, Ints, Ints, np.int64]:
    """As :func:`irt_dask.kernels.posterior.expected_counts.counts`."""
    n = g.nodes.size
    right, seen = np.zeros((2, data.shape[1], n), dtype=np.int64)
    whole, mass = np.zeros((2, n), dtype=np.int64)
    if weight is None:
        weight = np.ones(data.shape[0])
    if times is None:
        times = np.ones(data.shape[0], dtype=np.int64)
    value = _counts(
        *rows.arrays(data), g, weight, times, *scales, constant, right, seen, whole, mass
    )
    seen += whole
    return right, seen, mass + whole, np.int64(value)
