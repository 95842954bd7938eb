"""The most likely ability of each person under items of any curves: the best of several modes.

Log-likelihoods are looked at on coarse nodes; about the highest a mode is found by Newton steps on
the curves between them (:mod:`irt_dask.kernels.posterior.hermite`).  Where they are as high at
other nodes but for rounding (right answers to nothing but easy, steep items), their slope says
which way they rise: it is known to as many digits however small it is.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irt_dask.arrays import Floats
from irt_dask.curves.item_set import ItemSet
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.base.lanes import largest
from irt_dask.kernels.posterior import hermite
from irt_dask.kernels.posterior.hermite import Curves
from irt_dask.kernels.posterior.person_weights import (
    EVERYBODY,
    Prior,
    Shared,
    Some,
    gather,
    prior,
    shared,
    some,
)
from irt_dask.kernels.posterior.point_estimates import Aim, between, sums
from irt_dask.kernels.posterior.tables import CategoryTables, padded, tables
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.item_sets import common_sets
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.kernels.responses.rows import n_rows

#: Distance of the nodes at which modes are looked for.
_SPACING = 0.125
#: Distance of those that curves are known at, in units of 1 / the steepest slope: slopes are right
#: to 1e-8 of it.
_FINE = 0.125
#: Error of a log-likelihood at a node, for each response.
_ROUNDING = 1e-13
_LIKELIEST = Aim(0.0, 0.0, False, False)


class CurveTables(NamedTuple):
    """Items, times their weights, at nodes and between them."""

    at_nodes: CategoryTables
    between: Curves
    weight: Floats
    inside: Floats  # 0 at nodes within the bounds, else -inf

    @property
    def nbytes(self) -> int:
        """Memory held, bytes."""
        return self.at_nodes.nbytes + self.between.nbytes


def curve_tables(items: ItemSet, weight: Floats, bound: float) -> CurveTables:
    """What is needed of the items; 50 bytes an item for each node between them."""
    nodes = padded(np.linspace(-bound, bound, 2 * math.ceil(bound / _SPACING) + 1))
    g, curves = tables(items, nodes), hermite.curves(items, -bound, bound, _FINE)
    assert isinstance(g, CategoryTables)
    if (weight != 1.0).any():
        by_row = np.repeat(weight, items.n_categories)
        higher = np.repeat(weight, items.n_categories - 1)
        g = g._replace(base=g.base * weight[:, None], gain=g.gain * higher[:, None])
        curves = curves._replace(at=curves.at * by_row[:, None])
    return CurveTables(g, curves, weight, np.where(nodes <= bound, 0.0, -np.inf))


@jit
def _highest(
    its: Any, row: NDArray[np.int8], curves: Any, nodes: Floats, last: int, f: Floats, q: int,
    error: float, w: Floats,
) -> tuple[int, float]:  # fmt: skip
    """Node next to which f is highest, from its highest node q on, and about where."""
    left = f[q - 1] if q > 0 else -math.inf
    right = f[q + 1] if q < last else -math.inf
    if max(left, right) < f[q] - error:
        x = nodes[q]
        bend = left - 2.0 * f[q] + right
        if -math.inf < bend < 0.0:  # top of the parabola through three values
            x += 0.5 * (nodes[1] - nodes[0]) * (left - right) / bend
        return q, x
    lowest, before = f[q] - error, 0
    while True:
        slope = sums(its, row, curves, nodes[q], False, w)[0]
        way = (slope > 0.0) - (slope < 0.0)
        if way in (0, -before) or not 0 <= q + way <= last or f[q + way] < lowest:
            return q, nodes[q]
        q, before = q + way, way


@jit
def _find(
    indptr: Any, indices: Any, values: Any, g: Any, s: Shared, p: Prior, c: Some, curves: Any,
    weight: Floats, theta: Floats, ll: Floats,
) -> None:  # fmt: skip
    nodes, last = g.nodes, g.nodes.size - 1
    while p.log_mass[0, last] < 0.0:
        last -= 1
    w, heaviest = np.empty((3, 6)), weight.max()
    for begin in range(0, n_rows(indptr, values), c.n.size):
        count = gather(indptr, indices, values, g, s, p, EVERYBODY, begin, c)
        for r in range(count):
            i, f = c.person[r], c.w[r]
            its, row = rows.row(indptr, indices, values, i)
            top, error = largest(f), heaviest * c.n[r] * _ROUNDING
            q = 0
            while f[q] != top:
                q += 1
            q, x = _highest(its, row, curves, nodes, last, f, q, error, w)
            low, high = nodes[max(q - 1, 0)], nodes[min(q + 1, last)]
            outwards = (x == high) - (x == low)
            if outwards == 0 or outwards * sums(its, row, curves, x, False, w)[0] < 0.0:
                x, _ = between(its, row, curves, _LIKELIEST, low, x, high, w)
            at = hermite.weights(curves, x, w)
            left, right = curves.at[at], curves.at[at + 1]
            value, seen = 0.0, 0
            for k in range(row.size):
                if row[k] >= 0:
                    j = rows.item(its, k)
                    seen += weight[j] > 0.0
                    line = curves.first[j] + row[k]
                    value += hermite.combine(left[line], right[line], w[0])
            if seen == 0:
                theta[i], ll[i] = np.nan, 0.0
            elif value >= top - error:
                theta[i], ll[i] = x, value
            else:  # a zero of the slope that is not the top
                theta[i], ll[i] = nodes[q], top


def curve_modes(data: Layout, t: CurveTables) -> tuple[Floats, Floats]:
    """Most likely ability of each person, NaN without responses; the log-likelihood there."""
    n, m = data.shape
    theta, ll = np.empty((2, n))
    _find(
        *rows.arrays(data), t.at_nodes, shared(common_sets(data), t.at_nodes), prior(t.inside),
        some(n, m, t.inside.size), t.between, t.weight, theta, ll,
    )  # fmt: skip
    return theta, ll
