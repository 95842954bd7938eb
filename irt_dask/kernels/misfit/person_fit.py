"""Fit of persons: infit and outfit of predicted responses, and the standardised log-likelihood.

Residuals are those of :mod:`irt_dask.kernels.misfit.predictions`.  The standardised log-likelihood
is Snijders' l_z* at the most likely ability under the normal prior: its weights ``log(P / Q)`` less
the multiple of ``P' / (P Q)`` that the estimation of ability takes up.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.misfit.predictions import Curves, prediction, weigh
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.kernels.responses.rows import item, n_rows

Floats = NDArray[np.float64]


@jit
def _slope(x: float, items: Any, row: NDArray[np.int8], g: Curves) -> float:
    """Derivative of the log posterior."""
    value = -x
    for k in range(row.size):
        if row[k] >= 0:
            j = item(items, k)
            s = 1.0 / (1.0 + math.exp(-(g.a[j] * x + g.d[j])))
            p = g.c[j] + (1.0 - g.c[j]) * s
            value += g.a[j] * s / p * (row[k] - p)
    return value


@jit
def _mode(items: Any, row: NDArray[np.int8], g: Curves, top: int) -> float:
    """Most likely ability, next to the best node (the Illinois form of false position)."""
    if top == 0 or top == g.nodes.size - 1:
        return g.nodes[top]
    low, high = g.nodes[top - 1], g.nodes[top + 1]
    below, above = _slope(low, items, row, g), _slope(high, items, row, g)
    if not below > 0.0 > above:
        return g.nodes[top]
    side = 0
    x = g.nodes[top]
    for _ in range(60):
        value = _slope(x, items, row, g)
        if value > 0.0:
            low, below = x, value
            if side == 1:
                above *= 0.5
            side = 1
        else:
            high, above = x, value
            if side == -1:
                below *= 0.5
            side = -1
        new = (low * above - high * below) / (above - below)
        if abs(new - x) < 1e-11 or high - low < 1e-11:
            return new
        x = new
    return x


@jit
def _lz(x: float, items: Any, row: NDArray[np.int8], g: Curves) -> float:
    """Standardised log-likelihood at the mode, corrected for its estimation; NaN if it has no SD.

    Two passes over the row: the multiple of the score to take off, then the sums.
    """
    n = row.size
    with_score = 0.0
    information = 0.0
    for k in range(n):
        if row[k] >= 0:
            j = item(items, k)
            s = 1.0 / (1.0 + math.exp(-(g.a[j] * x + g.d[j])))
            p = g.c[j] + (1.0 - g.c[j]) * s
            slope = (1.0 - g.c[j]) * g.a[j] * s * (1.0 - s)
            odds = math.log(p) - math.log((1.0 - g.c[j]) * (1.0 - s))
            with_score += slope * odds
            information += slope * g.a[j] * s / p
    if not information > 0.0:
        return math.nan
    multiple = with_score / information
    value = 0.0
    variance = 0.0
    size = 0.0
    for k in range(n):
        if row[k] >= 0:
            j = item(items, k)
            s = 1.0 / (1.0 + math.exp(-(g.a[j] * x + g.d[j])))
            p = g.c[j] + (1.0 - g.c[j]) * s
            q = (1.0 - g.c[j]) * (1.0 - s)
            odds = math.log(p) - math.log(q)
            weight = odds - multiple * g.a[j] * s / p
            value += (row[k] - p) * weight
            variance += weight * weight * p * q
            size += odds * odds * p * q
    if not variance > 1e-10 * size or size == 0.0:
        return math.nan
    return value / math.sqrt(variance)


@jit
def _persons(
    indptr: Any,
    indices: Any,
    values: Any,
    g: Curves,
    inverse_right: Floats,
    inverse_wrong: Floats,
    out: Floats,
) -> None:
    w = np.empty(g.nodes.size)
    for i in range(n_rows(indptr, values)):
        items, row = rows.row(indptr, indices, values, i)
        total, top = weigh(items, row, g, w)
        n = 0
        square = 0.0
        variance = 0.0
        standard = 0.0
        for k in range(row.size):
            y = row[k]
            if y < 0:
                continue
            j = item(items, k)
            table = inverse_right[j] if y == 1 else inverse_wrong[j]
            p = prediction(y, table, w, total)
            v = p * (1.0 - p)
            n += 1
            square += (y - p) * (y - p)
            variance += v
            standard += (y - p) * (y - p) / v
        if n == 0:
            out[:, i] = math.nan
        else:
            out[0, i] = square / variance
            out[1, i] = standard / n
            out[2, i] = _lz(_mode(items, row, g, top), items, row, g)


def persons(data: Layout, g: Curves) -> Floats:
    """Infit, outfit and l_z* of each person, shape (3, persons); NaN where not defined."""
    out = np.empty((3, data.shape[0]))
    _persons(*rows.arrays(data), g, np.exp(-g.log_right), np.exp(-g.log_wrong), out)
    return out
