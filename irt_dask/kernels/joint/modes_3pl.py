"""The most likely ability of each person under the 3PL: the best of possibly several modes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.joint.parameters import Items
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.rows import item, n_rows

Floats = NDArray[np.float64]

#: A Newton step shorter than this leaves an error of about its square.
_SHORT = 1e-4
#: Distance of the nodes at which modes are looked for.
_SPACING = 0.125


def log_tables(items: Items, bound: float) -> tuple[Floats, Floats]:
    """Nodes, and log P of wrong (0) and right (1), times the weights, (2, items, nodes)."""
    nodes = np.linspace(-bound, bound, 2 * math.ceil(bound / _SPACING) + 1)
    z = np.multiply.outer(items.a, nodes) + items.d[:, None]
    c, weight = items.c[:, None], items.weight[:, None]
    wrong = np.log1p(-c) - np.logaddexp(0.0, z)
    with np.errstate(divide="ignore"):
        right = np.logaddexp(np.log(c), z) - np.logaddexp(0.0, z)
    return nodes, weight * np.stack([wrong, right])


@jit
def _at_3pl(
    its: Any, row: NDArray[np.int8], items: Items, unit: bool, theta: float
) -> tuple[float, float, float]:
    """First and second derivative and value of one person's log-likelihood.

    With ``f = (1 - c) p q`` (p the logistic curve, q = 1 - p) and P = c + (1 - c) p, the
    derivatives in z are f / P and ``f ((q - p) P - f) / P^2`` of log P, -p and -p q of log(1 - P).
    """
    a, d, c, weight = items
    g = h = ll = 0.0
    product = 1.0
    for k in range(row.size):
        y = row[k]
        if y < 0:
            continue
        j = item(its, k)
        if weight[j] == 0.0:
            continue
        z = a[j] * theta + d[j]
        e = math.exp(-abs(z))
        large = 1.0 / (1.0 + e)
        p, q = (large, e * large) if z >= 0.0 else (e * large, large)
        wa = weight[j] * a[j]
        if y == 1:
            chance = c[j] + (1.0 - c[j]) * p
            ratio = (1.0 - c[j]) * p * q / chance
            g += wa * ratio
            h += wa * a[j] * ratio * (q - p - ratio)
        else:
            chance = (1.0 - c[j]) * q
            g -= wa * p
            h -= wa * a[j] * p * q
        if unit:  # one logarithm for many items
            product *= chance
            if product < 1e-200:
                ll += math.log(product)
                product = 1.0
        else:
            ll += weight[j] * math.log(chance)
    return g, h, ll + math.log(product)


@jit
def _top(
    its: Any,
    row: NDArray[np.int8],
    items: Items,
    unit: bool,
    low: float,
    x: float,
    high: float,
) -> tuple[float, float]:
    """Climb from x to a mode in [low, high], whose ends lie lower than its highest point.

    The interval shrinks about the best point so far, towards the side on which it rises.
    """
    best, best_x = -math.inf, x
    for _ in range(100):
        g, h, value = _at_3pl(its, row, items, unit, x)
        if value > best:
            best, best_x = value, x
        step = -g / h if h < 0.0 else math.inf
        if abs(step) < _SHORT and low <= x + step <= high:
            return x + step, value + step * (g + 0.5 * step * h)
        if high - low < 1e-9:
            break
        if value < best and best_x < x:
            high = x
        elif value < best or g > 0.0:
            low = x
        else:
            high = x
        new = x + step
        if not low < new < high:
            new = 0.5 * (low + high)
        x = new
    return best_x, best


@jit
def find(
    indptr: Any,
    indices: Any,
    values: Any,
    items: Items,
    unit: bool,
    nodes: Floats,
    table: Floats,
    theta: Floats,
    ll: Floats,
) -> None:
    """Fill in abilities and log-likelihoods; see :func:`irt_dask.kernels.joint.modes.modes`."""
    n = nodes.size
    h = nodes[1] - nodes[0]
    curve = np.empty(n)
    for i in range(n_rows(indptr, values)):
        its, row = rows.row(indptr, indices, values, i)
        curve[:] = 0.0
        observed = 0
        for k in range(row.size):
            if row[k] >= 0:
                j = item(its, k)
                observed += items.weight[j] > 0.0
                line = table[row[k], j]
                for q in range(n):
                    curve[q] += line[q]
        if observed == 0:
            theta[i], ll[i] = np.nan, 0.0
            continue
        q = int(np.argmax(curve))
        x = nodes[q]
        if 0 < q < n - 1:  # top of the parabola through three values
            bend = curve[q - 1] - 2.0 * curve[q] + curve[q + 1]
            if bend < 0.0:
                x += 0.5 * h * (curve[q - 1] - curve[q + 1]) / bend
        low, high = nodes[max(q - 1, 0)], nodes[min(q + 1, n - 1)]
        top, value = _top(its, row, items, unit, low, x, high)
        if value < curve[q]:  # by rounding, or a narrow peak at the node itself
            at = _at_3pl(its, row, items, unit, nodes[q])[2]
            if at > value:
                top, value = nodes[q], at
        theta[i], ll[i] = top, value
