"""Posterior moments of persons who answered every item, from their weighted score.

What such a person's responses say of ability is ``t = sum_j a_j y_j``: the posterior weight at a
node theta is ``exp(t theta + total(theta))``.  With M its sum over the nodes, log M is the cumulant
generating function of a distribution that does not depend on the person, so its derivatives in t
are the posterior mean, the variance, and the third and fourth cumulants.  They are tabulated on a
grid of t and interpolated by quintic Hermite polynomials, each from its own derivatives, which are
the next entries of the table.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irt_dask.kernels import rows
from irt_dask.kernels.compiled import jit
from irt_dask.kernels.loglik import Tables
from irt_dask.kernels.rows import n_rows

Floats = NDArray[np.float64]

#: Intervals of a unit of t.  The error of interpolation is ``h^6 |f^(6)| / 46080``, 2e-14 of the
#: seventh cumulant for the mean.
_INTERVALS = 32
#: Scores whose weights are held at once while the table is made.
_CHUNK = 256


#: For those who want all persons treated alike.
NONE = np.empty((0, 5))


def curves(g: Tables) -> Floats:
    """Log M and four cumulants at scores ``0, 1 / 32, ...`` up to the sum of all slopes, (n, 5).

    Nothing, (0, 5), for a fine grid: a long test, where a person costs little beside its responses.
    """
    if g.wrong.size == 0:
        return NONE
    n = max(2, math.ceil(float(g.a.sum()) * _INTERVALS) + 1)
    values = np.empty((n, 5))
    for first in range(0, n, _CHUNK):
        t = np.arange(first, min(first + _CHUNK, n)) / _INTERVALS
        log_w = np.multiply.outer(t, g.nodes) + g.total
        peak = log_w.max(axis=1)
        w = np.exp(log_w - peak[:, None])
        total = w.sum(axis=1)
        mean = (w * g.nodes).sum(axis=1) / total
        x = g.nodes - mean[:, None]
        second, third, fourth = ((w * x**k).sum(axis=1) / total for k in (2, 3, 4))
        values[first : first + t.size] = np.stack(
            [peak + np.log(total), mean, second, third, fourth - 3.0 * second**2], axis=1
        )
    return values


@jit
def _hermite(u: float, h: float, left: Floats, right: Floats, k: int) -> float:
    """Entry k at the share u of an interval of length h; its derivatives are the next entries."""
    u2 = u * u
    u3 = u2 * u
    v = 1.0 - u
    v2 = v * v
    v3 = v2 * v
    at_left = (1.0 + u * (3.0 + 6.0 * u)) * left[k]
    at_left += h * u * (1.0 + 3.0 * u) * left[k + 1] + 0.5 * h * h * u2 * left[k + 2]
    at_right = (1.0 + v * (3.0 + 6.0 * v)) * right[k]
    at_right += -h * v * (1.0 + 3.0 * v) * right[k + 1] + 0.5 * h * h * v2 * right[k + 2]
    return v3 * at_left + u3 * at_right


@jit
def _complete(
    indptr: Any,
    indices: Any,
    values: Any,
    a: Floats,
    d: Floats,
    table: Floats,
    mean: Floats,
    sd: Floats,
    log_m: Floats,
    rest: NDArray[np.bool_],
) -> None:
    m = a.size
    h = 1.0 / _INTERVALS
    for i in range(n_rows(indptr, values)):
        _, row = rows.row(indptr, indices, values, i)
        rest[i] = row.size < m
        if rest[i]:
            continue
        signs = np.int8(0)
        for k in range(m):
            signs |= row[k]  # negative if one of them is
        rest[i] = signs < 0
        if rest[i]:
            continue
        t0 = t1 = t2 = t3 = 0.0  # sums that need not wait for each other
        d0 = d1 = d2 = d3 = 0.0
        for k in range(0, m - 3, 4):
            t0 += a[k] * row[k]
            t1 += a[k + 1] * row[k + 1]
            t2 += a[k + 2] * row[k + 2]
            t3 += a[k + 3] * row[k + 3]
            d0 += d[k] * row[k]
            d1 += d[k + 1] * row[k + 1]
            d2 += d[k + 2] * row[k + 2]
            d3 += d[k + 3] * row[k + 3]
        for k in range(m - m % 4, m):
            t0 += a[k] * row[k]
            d0 += d[k] * row[k]
        intercepts = (d0 + d1) + (d2 + d3)
        t = ((t0 + t1) + (t2 + t3)) * _INTERVALS
        q = min(max(int(t), 0), table.shape[0] - 2)
        u = t - q
        mean[i] = _hermite(u, h, table[q], table[q + 1], 1)
        sd[i] = math.sqrt(_hermite(u, h, table[q], table[q + 1], 2))
        log_m[i] = _hermite(u, h, table[q], table[q + 1], 0) + intercepts


def complete(
    data: Any, g: Tables, table: Floats, mean: Floats, sd: Floats, log_m: Floats
) -> NDArray[np.bool_]:
    """Fill in mean, SD and log likelihood of who answered every item; return who did not.

    The log likelihood lacks the factor of the prior density.
    """
    rest = np.empty(data.shape[0], dtype=np.bool_)
    _complete(*rows.arrays(data), g.a, g.d, table, mean, sd, log_m, rest)
    return rest
