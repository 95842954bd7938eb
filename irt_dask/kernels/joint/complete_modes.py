"""Abilities of persons who answered every item (1PL, 2PL): one curve serves all.

Such a person enters through one number, ``t = sum_j a_j y_ij``: the most likely ability solves
``g(theta) = t`` with ``g = sum_j a_j P_j``, the same for everybody.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.joint.parameters import Lines

#: Nodes of the table: on [-6, 6] spacing 0.025.
_NODES = 481


class Curve(NamedTuple):
    """``S = sum_j log(1 + e^{z_j})`` and its first two derivatives at equally spaced abilities."""

    nodes: Floats
    total: Floats
    slope: Floats
    curvature: Floats
    #: The node below (or at) each of equally spaced slopes, where a search begins.
    first: Ints

    @property
    def nbytes(self) -> int:
        """Memory held, bytes."""
        return sum(x.nbytes for x in self)


def curve(items: Lines, bound: float) -> Curve:
    """Tabulate the curve of all items on [-bound, bound].

    Between nodes S is the quintic that agrees in value and two derivatives: with spacing h its
    error is ``h^6 max|S''''''| / 46080``, at most 2e-11 for each item within the bounds (a = 5).
    """
    nodes = np.linspace(-bound, bound, _NODES)
    total, slope, curvature = np.zeros((3, nodes.size))
    for k in range(0, items.a.size, 256):  # some items at a time: nodes x items may be large
        a, d, weight = (x[k : k + 256] for x in items)
        z = np.multiply.outer(nodes, a) + d
        p = 1.0 / (1.0 + np.exp(-z))
        total += np.logaddexp(0.0, z) @ weight
        slope += p @ (weight * a)
        curvature += (p * (1.0 - p)) @ (weight * a * a)
    begin = np.linspace(slope[0], slope[-1], 4 * _NODES)
    first = np.searchsorted(slope, begin, side="right") - 1
    return Curve(nodes, total, slope, curvature, np.minimum(first, _NODES - 2))


@jit
def _invert(t: Floats, curve: Curve, theta: Floats, value: Floats) -> None:
    nodes, total, slope, curvature, first = curve
    n = nodes.size
    h = (nodes[n - 1] - nodes[0]) / (n - 1)
    per_score = (first.size - 1) / (slope[n - 1] - slope[0])
    for i in range(t.size):
        if t[i] <= slope[0] or t[i] >= slope[n - 1]:  # at a bound
            q = 0 if t[i] <= slope[0] else n - 1
            theta[i], value[i] = nodes[q], t[i] * nodes[q] - total[q]
            continue
        low = first[int((t[i] - slope[0]) * per_score)]
        while slope[low + 1] <= t[i]:
            low += 1
        while slope[low] > t[i]:  # by rounding
            low -= 1
        high = low + 1
        # On the interval, in u from 0 to 1: S = c0 + c1 u + ... + c5 u^5.
        c0, c1, c2 = total[low], slope[low] * h, 0.5 * curvature[low] * h * h
        r0 = total[high] - c0 - c1 - c2
        r1 = slope[high] * h - c1 - 2.0 * c2
        r2 = 0.5 * curvature[high] * h * h - c2
        c3 = 10.0 * r0 - 4.0 * r1 + r2
        c4 = -15.0 * r0 + 7.0 * r1 - 2.0 * r2
        c5 = 6.0 * r0 - 3.0 * r1 + r2
        wanted = t[i] * h
        left, right = 0.0, 1.0
        u = (t[i] - slope[low]) / (slope[high] - slope[low])
        for _ in range(60):
            f = c1 + u * (2.0 * c2 + u * (3.0 * c3 + u * (4.0 * c4 + u * 5.0 * c5))) - wanted
            if f > 0.0:
                right = u
            else:
                left = u
            df = 2.0 * c2 + u * (6.0 * c3 + u * (12.0 * c4 + u * 20.0 * c5))
            step = f / df if df > 0.0 else 1.0
            if abs(step) < 1e-7:  # errors are squared: what is left is below 1e-13
                u = min(max(u - step, left), right)
                break
            u = u - step if left <= u - step <= right else 0.5 * (left + right)
        s = c0 + u * (c1 + u * (c2 + u * (c3 + u * (c4 + u * c5))))
        theta[i] = nodes[low] + u * h
        value[i] = t[i] * theta[i] - s


def from_totals(t: Floats, curve: Curve) -> tuple[Floats, Floats]:
    """Most likely abilities of persons with weighted scores t; ``t theta - S(theta)`` there."""
    theta, value = np.empty_like(t), np.empty_like(t)
    _invert(t, curve, theta, value)
    return theta, value
