"""Persons and responses counted on an axis of ability: what the item step of joint ML needs.

The log-likelihood of an item is ``sum_i y_i z_i - log(1 + e^{z_i})``, ``z_i = a theta_i + d``, over
those who answered it (1PL, 2PL).  Its first part is linear in ability: two sums give it exactly.
Only the second part sees the distribution of ability, and that is one for all items where everybody
answers everything.  A person is shared out over the four nodes around with the weights of cubic
interpolation, which sum to 1 and may be negative: sums of a smooth function f over persons are
right to ``3 h^4 max|f^(4)| / 128`` each (within h of the bounds ``h^4 max|f^(4)| / 24``), h the
spacing; of ``log(1 + e^z)`` to ``3 (a h)^4 / 1024``.  Sharing out over two nodes, linearly, would
err by up to ``(a h)^2 / 32``, always in the same direction, and that is enough to hold joint ML
back where its likelihood is nearly flat, along the scale of ability.  Sums are fixed-point
integers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.kernels.responses.rows import item, n_rows


@jit
def _place(theta: float, bound: float, n_nodes: int) -> tuple[int, float]:
    """Node below an ability, and the share of the node above."""
    x = (theta + bound) * ((n_nodes - 1) / (2.0 * bound))
    q = min(max(math.floor(x), 0), n_nodes - 2)
    return q, min(max(x - q, 0.0), 1.0)


@jit
def _persons(theta: Floats, weight: Floats, bound: float, scale: float, out: Ints) -> None:
    for i in range(theta.size):
        if not math.isnan(theta[i]):
            q, share = _place(theta[i], bound, out.size)
            total = np.int64(round(weight[i] * scale))
            upper = np.int64(round(weight[i] * scale * share))
            out[q] += total - upper
            out[q + 1] += upper


def persons(theta: Floats, weight: Floats, bound: float, n_nodes: int, scale: float) -> Ints:
    """Persons by node, shared out over two, in units of ``1 / scale``, (n_nodes,); NaN: nobody."""
    out = np.zeros(n_nodes, dtype=np.int64)
    _persons(theta, weight, bound, scale, out)
    return out


@jit
def _moments(theta: Floats, weight: Floats, bound: float, scale: float, out: Ints) -> None:
    for i in range(theta.size):
        x, w = theta[i], weight[i]
        if abs(x) < bound:
            out[0] += np.int64(round(w * scale))
            out[1] += np.int64(round(w * x * scale))
            out[2] += np.int64(round(w * x * x * scale))
        elif not math.isnan(x):
            out[3 if x < 0.0 else 4] += np.int64(round(w * scale))


def moments(theta: Floats, weight: Floats, bound: float, scale: float) -> Ints:
    """Sums of ``w``, ``w theta``, ``w theta^2`` inside the bounds, of ``w`` at the lower and upper.

    In units of ``1 / scale``, shape (5,); NaN: nobody.
    """
    out = np.zeros(5, dtype=np.int64)
    _moments(theta, weight, bound, scale, out)
    return out


@jit
def _cubic(theta: float, weight: float, bound: float, n: int, scale: float, out: Ints) -> int:
    """First of the four nodes around an ability; their weights, which sum to the person's."""
    x = (theta + bound) * ((n - 1) / (2.0 * bound))
    first = min(max(math.floor(x) - 1, 0), n - 4)
    u = x - first  # from 1 to 2 inside, from 0 to 3 at the ends
    w = weight * scale
    out[0] = np.int64(round(-w * (u - 1.0) * (u - 2.0) * (u - 3.0) / 6.0))
    out[1] = np.int64(round(w * u * (u - 2.0) * (u - 3.0) / 2.0))
    out[2] = np.int64(round(-w * u * (u - 1.0) * (u - 3.0) / 2.0))
    out[3] = np.int64(round(w)) - out[0] - out[1] - out[2]
    return first


@jit
def _spread(theta: Floats, weight: Floats, bound: float, scale: float, out: Ints) -> None:
    share = np.empty(4, dtype=np.int64)
    for i in range(theta.size):
        if not math.isnan(theta[i]):
            q = _cubic(theta[i], weight[i], bound, out.size, scale, share)
            for k in range(4):
                out[q + k] += share[k]


def spread(theta: Floats, weight: Floats, bound: float, n_nodes: int, scale: float) -> Ints:
    """Persons by node with the weights of cubic interpolation, in units of ``1 / scale``."""
    out = np.zeros(n_nodes, dtype=np.int64)
    _spread(theta, weight, bound, scale, out)
    return out


@jit
def _responses(
    indptr: Any, indices: Any, values: Any, theta: Floats, weight: Floats, bound: float,
    scale: float, with_right: bool, seen: Ints, right: Ints,
) -> None:  # fmt: skip
    share = np.empty(4, dtype=np.int64)
    for i in range(n_rows(indptr, values)):
        if math.isnan(theta[i]):
            continue
        q = _cubic(theta[i], weight[i], bound, seen.shape[0], scale, share)
        items, row = rows.row(indptr, indices, values, i)
        for s in range(4):
            if share[s] == 0:
                continue
            for k in range(row.size):
                y = row[k]
                if y >= 0:
                    j = item(items, k)
                    seen[q + s, j] += share[s]
                    if with_right and y == 1:
                        right[q + s, j] += share[s]


def responses(
    data: Layout, theta: Floats, weight: Floats, bound: float, n_nodes: int, scale: float, *,
    with_right: bool,
) -> tuple[Ints, Ints]:  # fmt: skip
    """Observed and (if asked for, else no) right responses by node and item, (n_nodes, items).

    Weights are those of :func:`spread`.
    """
    seen = np.zeros((n_nodes, data.shape[1]), dtype=np.int64)
    right = np.zeros_like(seen) if with_right else np.zeros((0, 0), dtype=np.int64)
    _responses(*rows.arrays(data), theta, weight, bound, scale, with_right, seen, right)
    return seen, right


@jit
def _sums_right(
    indptr: Any, indices: Any, values: Any, once: Ints, times_ability: Ints, s0: Ints, s1: Ints
) -> None:
    for i in range(n_rows(indptr, values)):
        items, row = rows.row(indptr, indices, values, i)
        for k in range(row.size):
            if row[k] == 1:
                j = item(items, k)
                s0[j] += once[i]
                s1[j] += times_ability[i]


def sums_right(data: Layout, once: Ints, times_ability: Ints) -> tuple[Ints, Ints]:
    """Sums of two numbers of each person over those who have an item right, shapes (items,)."""
    s0, s1 = np.zeros((2, data.shape[1]), dtype=np.int64)
    _sums_right(*rows.arrays(data), once, times_ability, s0, s1)
    return s0, s1
