"""Joint maximum likelihood: the mode of each ability, and counts at the modes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irt_dask.kernels import rows
from irt_dask.kernels.compiled import jit
from irt_dask.kernels.layouts import Layout
from irt_dask.kernels.rows import item, n_rows

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@jit
def _slope(
    items: Any, row: NDArray[np.int8], a: Floats, d: Floats, theta: float
) -> tuple[float, float, float]:
    """First and second derivative and value of one person's log-likelihood at ``theta``."""
    g = 0.0
    h = 0.0
    ll = 0.0
    product = 1.0
    for k in range(row.size):
        y = row[k]
        if y < 0:
            continue
        j = item(items, k)
        z = a[j] * theta + d[j]
        e = math.exp(-abs(z))
        large = 1.0 / (1.0 + e)
        small = e * large
        p, not_p = (large, small) if z >= 0.0 else (small, large)
        g += a[j] * (y - p)
        h -= a[j] * a[j] * large * small
        product *= p if y == 1 else not_p
        if product < 1e-200:
            ll += math.log(product)
            product = 1.0
    return g, h, ll + math.log(product)


@jit
def _modes(
    indptr: Any,
    indices: Any,
    values: Any,
    a: Floats,
    d: Floats,
    bound: float,
    theta: Floats,
    ll: Floats,
) -> None:
    for i in range(n_rows(indptr, values)):
        items, row = rows.row(indptr, indices, values, i)
        right = 0
        observed = 0
        for k in range(row.size):
            right += row[k] == 1
            observed += row[k] >= 0
        if observed == 0:
            theta[i] = np.nan
            ll[i] = 0.0
            continue
        if right == observed or right == 0:
            theta[i] = bound if right else -bound
            ll[i] = _slope(items, row, a, d, theta[i])[2]
            continue
        low, high = -bound, bound
        x = min(max(math.log(right / (observed - right)), -bound), bound)
        value = 0.0
        for _ in range(200):
            g, h, value = _slope(items, row, a, d, x)
            if g > 0.0:
                low = x
            else:
                high = x
            new = x - g / h if h < 0.0 else 0.5 * (low + high)
            if not low < new < high:
                # Newton leaves the bracket: bisect, unless the mode lies at the bound itself.
                edge = bound if g > 0.0 else -bound
                if (high if g > 0.0 else low) == edge:
                    ge = _slope(items, row, a, d, edge)[0]
                    if (ge >= 0.0) == (g > 0.0):
                        x = edge
                        value = _slope(items, row, a, d, x)[2]
                        break
                new = 0.5 * (low + high)
            done = abs(new - x) < 1e-10
            x = new
            if done:
                break
        theta[i] = x
        ll[i] = value


def modes(data: Layout, a: Floats, d: Floats, bound: float) -> tuple[Floats, Floats]:
    """Most likely ability of each person in [-bound, bound], and the log-likelihood there.

    A person without responses has ability NaN and log-likelihood 0.
    """
    n = data.shape[0]
    theta, ll = np.empty(n), np.empty(n)
    _modes(*rows.arrays(data), a, d, bound, theta, ll)
    return theta, ll


@jit
def _axis_counts(
    indptr: Any,
    indices: Any,
    values: Any,
    theta: Floats,
    weight: Floats,
    bound: float,
    scale: float,
    right: Ints,
    seen: Ints,
) -> None:
    n_nodes = right.shape[0]
    h = 2.0 * bound / (n_nodes - 1)
    for i in range(n_rows(indptr, values)):
        if math.isnan(theta[i]):
            continue
        x = (theta[i] + bound) / h
        q = min(max(math.floor(x), 0), n_nodes - 2)
        total = np.int64(round(weight[i] * scale))
        upper = np.int64(round(weight[i] * scale * min(max(x - q, 0.0), 1.0)))
        lower = total - upper
        items, row = rows.row(indptr, indices, values, i)
        for k in range(row.size):
            y = row[k]
            if y >= 0:
                j = item(items, k)
                seen[q, j] += lower
                seen[q + 1, j] += upper
                if y == 1:
                    right[q, j] += lower
                    right[q + 1, j] += upper


def axis_counts(
    data: Layout, theta: Floats, weight: Floats, bound: float, n_nodes: int, scale: float
) -> tuple[Ints, Ints]:
    """Right and observed responses by node of the ability axis and item, in units of ``1 / scale``.

    A person between two nodes is shared out linearly (cloud in cell), which keeps the weighted mean
    of ability exact and makes the error of an item's log-likelihood O(h^2).  Shapes
    (n_nodes, n_items).
    """
    right = np.zeros((n_nodes, data.shape[1]), dtype=np.int64)
    seen = np.zeros_like(right)
    _axis_counts(*rows.arrays(data), theta, weight, bound, scale, right, seen)
    return right, seen
