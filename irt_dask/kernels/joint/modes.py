"""The most likely ability of each person, given the items: the person step of joint ML.

For 1PL and 2PL the log-likelihood in ability is concave: a person is bracketed between two nodes of
a table of slopes and found by Newton steps.  (Those who answered every item need less:
:mod:`irt_dask.kernels.joint.complete_modes`.)  With other items it may have several modes
(:mod:`irt_dask.kernels.joint.curve_modes`).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irt_dask.arrays import Floats
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.joint.curve_modes import CurveTables, curve_modes, curve_tables
from irt_dask.kernels.joint.parameters import Items, Lines
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.kernels.responses.rows import item, n_rows

#: A Newton step shorter than this leaves an error of about its square.
_SHORT = 1e-4
#: Entries of a table of items x nodes, at most; about 30 MB.
_TABLE = 1 << 22
#: Numbers of nodes to choose from (on [-6, 6], spacings from 0.025 to 2).
_NODES = (481, 241, 121, 61, 31, 13, 7)


class SlopeTable(NamedTuple):
    """``weight a P`` of some items at some nodes, (nodes, items)."""

    items: Lines
    nodes: Floats
    slopes: Floats

    @property
    def nbytes(self) -> int:
        """Memory held, bytes."""
        return self.slopes.nbytes


def slope_table(items: Lines, bound: float) -> SlopeTable:
    """Slopes at nodes on [-bound, bound]."""
    n = next((n for n in _NODES if n * items.a.size <= _TABLE), _NODES[-1])
    nodes = np.linspace(-bound, bound, n)
    z = np.multiply.outer(nodes, items.a)
    z += items.d
    np.negative(z, out=z)
    np.exp(z, out=z)
    z += 1.0
    np.divide(items.weight * items.a, z, out=z)
    return SlopeTable(items, nodes, z)


@jit
def _add_slopes(its: Any, row: NDArray[np.int8], table: Floats) -> float:
    """Sum of a row of the table over the observed items."""
    total = 0.0
    for k in range(row.size):
        if row[k] >= 0:
            total += table[item(its, k)]
    return total


@jit
def _at(
    its: Any, row: NDArray[np.int8], items: Lines, unit: bool, theta: float
) -> tuple[float, float, float]:
    """First and second derivative and value of one person's log-likelihood at ``theta``."""
    a, d, weight = items
    g = h = ll = 0.0
    product = 1.0
    for k in range(row.size):
        y = row[k]
        if y < 0:
            continue
        j = item(its, k)
        z = a[j] * theta + d[j]
        e = math.exp(-abs(z))
        large = 1.0 / (1.0 + e)
        small = e * large
        p, not_p = (large, small) if z >= 0.0 else (small, large)
        g += weight[j] * a[j] * (y - p)
        h -= weight[j] * a[j] * a[j] * large * small
        if unit:  # one logarithm for many items
            product *= p if y == 1 else not_p
            if product < 1e-200:
                ll += math.log(product)
                product = 1.0
        elif weight[j] > 0.0:
            ll += weight[j] * math.log(p if y == 1 else not_p)
    return g, h, ll + math.log(product)


@jit
def _modes(
    indptr: Any, indices: Any, values: Any, items: Lines, unit: bool, nodes: Floats, table: Floats,
    theta: Floats, ll: Floats,
) -> None:  # fmt: skip
    last = nodes.size - 1
    for i in range(n_rows(indptr, values)):
        its, row = rows.row(indptr, indices, values, i)
        t = 0.0
        observed = 0
        for k in range(row.size):
            if row[k] >= 0:
                j = item(its, k)
                observed += items.weight[j] > 0.0
                t += items.weight[j] * items.a[j] * row[k]
        if observed == 0:
            theta[i], ll[i] = np.nan, 0.0
            continue
        below, above = 0, last
        at_below = _add_slopes(its, row, table[0])
        at_above = _add_slopes(its, row, table[last])
        if t <= at_below or t >= at_above:
            theta[i] = nodes[0] if t <= at_below else nodes[last]
            ll[i] = _at(its, row, items, unit, theta[i])[2]
            continue
        while above - below > 1:
            middle = (below + above) // 2
            value = _add_slopes(its, row, table[middle])
            if value <= t:
                below, at_below = middle, value
            else:
                above, at_above = middle, value
        low, high = nodes[below], nodes[above]
        x = low + (high - low) * (t - at_below) / (at_above - at_below)
        for _ in range(100):
            g, h, value = _at(its, row, items, unit, x)
            if g > 0.0:
                low = x
            else:
                high = x
            step = -g / h if h < 0.0 else 0.0
            if low <= x + step <= high and abs(step) < _SHORT:
                x += step
                value += step * (g + 0.5 * step * h)
                break
            new = x + step
            if not low < new < high:
                new = 0.5 * (low + high)
            x = new
            if high - low < 1e-9:
                break
        theta[i], ll[i] = x, value


Tables = SlopeTable | CurveTables


def tables(items: Items, bound: float) -> Tables:
    """What :func:`modes` needs of the items: made once for all blocks."""
    lines = items.lines
    return curve_tables(*items, bound) if lines is None else slope_table(lines, bound)


def modes(data: Layout, prepared: Tables) -> tuple[Floats, Floats]:
    """Most likely ability of each person within the bounds, and the log-likelihood there.

    A person without responses has ability NaN and log-likelihood 0.  ``prepared`` are
    :func:`tables`.
    """
    if isinstance(prepared, CurveTables):
        return curve_modes(data, prepared)
    theta, ll = np.empty((2, data.shape[0]))
    unit = bool((prepared.items.weight == 1.0).all())
    items, nodes, slopes = prepared
    _modes(*rows.arrays(data), items, unit, nodes, slopes, theta, ll)
    return theta, ll
