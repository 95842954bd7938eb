"""Point estimates of ability: likeliest abilities, posterior modes, Warm's weighted likelihood.

Each is the highest point of a curve G whose slope is known: the score (the derivative of the
log-likelihood), plus ``(mean - theta) / variance`` for the mode under a normal prior, or plus ``J /
(2 I)`` for Warm's (1989), with ``I = sum P'^2 / P`` and ``J = sum P' P'' / P`` over the categories
of the items answered.  G is tabulated on nodes, and the zero of its slope is found about the
highest node.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload
from numpy.typing import NDArray

from irt_dask.arrays import Floats
from irt_dask.curves.item_set import ItemSet
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.base.lanes import largest
from irt_dask.kernels.posterior import hermite
from irt_dask.kernels.posterior.hermite import Curves
from irt_dask.kernels.posterior.person_weights import EVERYBODY, Prior, Shared, Some, gather, some
from irt_dask.kernels.posterior.tables import LinearTables, Tables, padded
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.kernels.responses.rows import n_rows

Row = NDArray[np.int8]

#: Nodes on which maxima of likelihoods are looked for.
_FINEST, _COARSEST = 0.005, 0.1
#: How far outwards weighted likelihood estimates are looked for, at most.
FURTHEST = 96.0
#: A Newton step shorter than this leaves an error of about its square.
_SHORT = 2e-5
#: Error of a log-likelihood and its slope at a node, for each response.
_ROUNDING = 1e-13
#: Pieces of the nodes' interval, where the slopes at its ends do not show the zero.
_PIECES = 32


class Goal(NamedTuple):
    """What is added to the score: of a normal prior, or Warm's term."""

    mean: Floats  # of each person's prior, and 1 / variance: 0 for no prior
    precision: Floats
    warm: bool


class Aim(NamedTuple):
    """The same for one person; and whether information is wanted, for which ``warm`` asks."""

    mean: float
    precision: float
    warm: bool
    whole: bool


def nodes_for(items: ItemSet, bound: float) -> Floats:
    """Nodes on [-bound, bound], and some beyond, that show every mode of a likelihood."""
    h = min(max(0.25 / items.steepest, _FINEST), _COARSEST)
    half = math.ceil(bound / h)
    return padded(np.arange(-half, half + 1, dtype=np.float64) * np.float64(bound / half))


# --- sums over the items of a person, at an ability -----------------------------------------------


def sums(its: Any, row: Any, curves: Any, x: float, whole: bool, w: Any) -> Any:
    """Score of a person at ``x``, its derivative, and, if ``whole``, I, J and I's derivative."""
    raise NotImplementedError


@overload(sums, strict=False)
def _sums(its: Any, row: Any, curves: Any, x: Any, whole: Any, w: Any) -> Callable[..., Any]:
    return _sums_linear if curves.instance_class is LinearTables else _sums_curves


def _sums_linear(
    its: Any, row: Row, curves: Any, x: float, whole: bool, w: Floats
) -> tuple[float, float, float, float, float]:
    s = info = skew = 0.0
    for k in range(row.size):
        if row[k] >= 0:
            j = rows.item(its, k)
            a = curves.slope[j]
            z = a * x + curves.constant[j]
            e = math.exp(-abs(z))
            large = 1.0 / (1.0 + e)
            p, q = (large, e * large) if z >= 0.0 else (e * large, large)
            s += a * (q if row[k] == 1 else -p)
            one = a * a * p * q
            info += one
            skew += a * (q - p) * one
    return s, -info, info, skew, skew


def _sums_curves(
    its: Any, row: Row, curves: Any, x: float, whole: bool, w: Floats
) -> tuple[float, float, float, float, float]:
    s = bend = info = skew = cubes = 0.0
    at = hermite.weights(curves, x, w)
    left, right = curves.at[at], curves.at[at + 1]
    for k in range(row.size):
        if row[k] < 0:
            continue
        j = rows.item(its, k)
        r = curves.first[j] + row[k]
        s += hermite.combine(left[r], right[r], w[1])
        bend += hermite.combine(left[r], right[r], w[2])
        for r in range(curves.first[j], curves.first[j + 1] if whole else curves.first[j]):
            p = math.exp(hermite.combine(left[r], right[r], w[0]))
            slope = hermite.combine(left[r], right[r], w[1])
            one = p * slope * slope
            info += one
            cubes += one * slope
            skew += p * slope * hermite.combine(left[r], right[r], w[2])
    return s, bend, info, skew + cubes, 2.0 * skew + cubes


# --- the zero of the slope ------------------------------------------------------------------------


@jit
def _slope(
    its: Any, row: Row, curves: Any, aim: Aim, x: float, w: Floats
) -> tuple[float, float, float, float]:
    """Slope of the curve whose highest point is looked for, about its derivative; I, and its."""
    s, bend, info, skew, change = sums(its, row, curves, x, aim.whole, w)
    if aim.warm:
        if info <= 0.0:  # so far out that it underflows: back
            return -x, -1.0, info, change
        return s + 0.5 * skew / info, bend, info, change
    return s + (aim.mean - x) * aim.precision, bend - aim.precision, info, change


@jit
def _climb(
    its: Any, row: Row, curves: Any, aim: Aim, low: float,
    x: float, high: float, w: Floats,
) -> tuple[float, float]:  # fmt: skip
    """Zero of the slope in (low, high), which falls there, and I; NaN if it is not found from x."""
    left, right = low, high
    before, value_before = math.nan, math.nan
    for _ in range(60):
        value, bend, info, change = _slope(its, row, curves, aim, x, w)
        if value > 0.0:
            left = x
        else:
            right = x
        if aim.warm and abs(x - before) > 0.0:  # the derivative leaves Warm's term out
            secant = (value - value_before) / (x - before)
            bend = secant if secant < 0.5 * bend else bend
        new = x - value / bend if bend < 0.0 else math.inf
        if abs(new - x) < (1e-9 if aim.warm else _SHORT) and low < new < high:
            return new, info + (new - x) * change
        if not left < new < right:
            new = 0.5 * (left + right)
        if right - left < 1e-12 * max(1.0, abs(left)):
            break
        before, value_before, x = x, value, new
    return x if low < left and right < high else math.nan, info


@jit
def between(
    its: Any, row: Row, curves: Any, aim: Aim, low: float,
    middle: float, high: float, w: Floats,
) -> tuple[float, float]:  # fmt: skip
    """Zero of a falling slope near ``middle``, higher than which are neither ``low`` nor ``high``.

    Second, I there.

    Where it is not found from there, the interval is looked through in pieces.
    """
    x, info = _climb(its, row, curves, aim, low, middle, high, w)
    if not math.isnan(x):
        return x, info
    best, found = math.inf, middle
    left, at_left = low, _slope(its, row, curves, aim, low, w)[0]
    for k in range(1, _PIECES + 1):
        right = low + (high - low) * k / _PIECES
        at_right = _slope(its, row, curves, aim, right, w)[0]
        if at_left > 0.0 and at_right <= 0.0:
            half = 0.5 * (left + right)
            x, _ = _climb(its, row, curves, aim, left, half, right, w)
            x = right if math.isnan(x) else x
            if abs(x - middle) < best:
                best, found = abs(x - middle), x
        left, at_left = right, at_right
    return found, sums(its, row, curves, found, aim.whole, w)[2]


# --- estimates of many ----------------------------------------------------------------------------


@jit
def _top(f: Floats, q: int, n: int) -> float:
    """Where f is highest near its highest node q, in spacings from it: by its five values there."""
    slope, bend = 0.5 * (f[q + 1] - f[q - 1]), f[q - 1] - 2.0 * f[q] + f[q + 1]
    if not bend < 0.0:
        return 0.0
    if q < 2 or q > n - 3:
        return min(max(-slope / bend, -1.0), 1.0)
    wide = f[q + 2] - f[q - 2]
    third = 0.5 * wide - 2.0 * slope
    fourth = f[q - 2] + f[q + 2] + 6.0 * f[q] - 4.0 * (f[q - 1] + f[q + 1])
    slope -= third / 6.0
    bend -= fourth / 12.0
    u = 0.0
    for _ in range(4):
        d2 = bend + u * (third + 0.5 * u * fourth)
        if not d2 < 0.0:
            return 0.0
        u -= (slope + u * (bend + u * (0.5 * third + u * fourth / 6.0))) / d2
    return min(max(u, -1.0), 1.0)


@jit
def _add_warm(its: Any, row: Row, curves: Any, info_at: Floats, skew_at: Floats, nodes: Floats,
              n: int, sums: Floats, f: Floats) -> None:  # fmt: skip
    """Add the integral of J / (2 I), by the trapezoidal rule, to f at the first n nodes."""
    sums[:] = 0.0
    for k in range(row.size):
        if row[k] >= 0:
            one, other = info_at[rows.item(its, k)], skew_at[rows.item(its, k)]
            for q in range(n):
                sums[0, q] += one[q]
                sums[1, q] += other[q]
    weight = before = 0.0
    for q in range(n):
        ratio = sums[1, q] / sums[0, q] if sums[0, q] > 0.0 else -nodes[q]
        if q > 0:
            weight += 0.25 * (nodes[q] - nodes[q - 1]) * (ratio + before)
            f[q] += weight
        before = ratio


@jit
def _highest(
    indptr: Any, indices: Any, values: Any, g: Any, s: Shared, p: Prior, c: Some, curves: Any,
    goal: Goal, n: int, at_nodes: Floats, theta: Floats, info: Floats, rises: NDArray[np.int8],
) -> None:  # fmt: skip
    """Fill in estimates among the first ``n`` nodes, and the information there.

    ``rises`` is -1 or 1 where the curve is highest at that end of the nodes and rises outwards.
    """
    nodes = g.nodes
    both, w = np.empty((2, n)), np.empty((3, 6))
    for begin in range(0, n_rows(indptr, values), c.n.size):
        count = gather(indptr, indices, values, g, s, p, EVERYBODY, begin, c)
        for r in range(count):
            i, f = c.person[r], c.w[r]
            its, row = rows.row(indptr, indices, values, i)
            aim = Aim(goal.mean[i], goal.precision[i], goal.warm, True)
            if c.n[r] == 0:
                theta[i] = aim.mean if aim.precision > 0.0 else np.nan
                info[i] = 0.0 if aim.precision > 0.0 else np.nan
                continue
            lo = c.lo[r]
            if goal.warm:
                _add_warm(its, row, curves, at_nodes[0], at_nodes[1], nodes, n, both, f)
            top = largest(f[lo : c.hi[r]])
            q = lo
            while f[q] != top:
                q += 1
            error = _ROUNDING * c.n[r]
            for end, way in ((0, -1.0), (n - 1, 1.0)):
                as_high = lo <= end < c.hi[r] and f[end] >= top - error
                if as_high and way * _slope(its, row, curves, aim, nodes[end], w)[0] > -error:
                    q = end
            if 0 < q < n - 1:
                x = nodes[q] + (nodes[1] - nodes[0]) * _top(f, q, n)
                x, there = between(its, row, curves, aim, nodes[q - 1], x,
                                    nodes[q + 1], w)  # fmt: skip
            else:
                x = nodes[q]
                outwards = -1.0 if q == 0 else 1.0
                if outwards * _slope(its, row, curves, aim, x, w)[0] > -error:
                    rises[i] = int(outwards)
                    there = sums(its, row, curves, x, True, w)[2]
                else:
                    low, high = min(x, nodes[abs(q - 1)]), max(x, nodes[abs(q - 1)])
                    x, there = between(its, row, curves, aim, low,
                                        0.5 * (low + high), high, w)  # fmt: skip
            theta[i], info[i] = x, there


def estimates(
    data: Layout, g: Tables, s: Shared, p: Prior, curves: Curves | LinearTables, goal: Goal,
    n: int, at_nodes: Floats,
) -> tuple[Floats, Floats, NDArray[np.int8]]:  # fmt: skip
    """Highest points of the curves of all persons, the information there, and who ends at an end.

    ``g`` has the nodes that are looked at, the first ``n``, ``curves`` the items between them:
    linear tables themselves.  ``at_nodes`` are I and J of the items, (2, items, n), for Warm's
    estimates.  The highest of several maxima; NaN without responses and prior.
    """
    n_persons, m = data.shape
    theta, info = np.empty((2, n_persons))
    rises = np.zeros(n_persons, dtype=np.int8)
    _highest(
        *rows.arrays(data), g, s, p, some(n_persons, m, g.nodes.size), curves, goal, n, at_nodes,
        theta, info, rises,
    )  # fmt: skip
    return theta, info, rises


def warm_tables(items: ItemSet, nodes: Floats) -> Floats:
    """I and J of each item at the nodes, (2, items, nodes)."""
    p = np.exp(items.log_p(nodes))
    slope, bend = items.by_ability(nodes)
    at = items.first[:-1]
    return np.stack(
        [
            np.add.reduceat(p * slope**2, at, axis=0),
            np.add.reduceat(p * slope * (bend + slope**2), at, axis=0),
        ]
    )


def outwards(items: ItemSet, responses: Row, end: float) -> float:
    """Next zero of Warm's slope beyond the end of the nodes, where the curve rises; one person."""
    seen = np.flatnonzero(responses >= 0)
    own = items.take(seen)
    at = own.first[:-1] + responses[seen]

    def slope(x: float) -> float:
        one = np.array([x])
        info, skew = warm_tables(own, one).sum(axis=1)[:, 0]
        if not info > 0.0:
            return -x
        return float(own.by_ability(one)[0][at, 0].sum() + 0.5 * skew / info)

    inner = end
    while abs(inner) < FURTHEST:
        outer = min(max(2.0 * inner, -FURTHEST), FURTHEST)
        if slope(outer) * np.sign(end) <= 0.0:
            low, high = min(inner, outer), max(inner, outer)
            for _ in range(200):
                x = 0.5 * (low + high)
                low, high = (x, high) if slope(x) > 0.0 else (low, x)
                if high - low <= 1e-11 * max(1.0, abs(low)):
                    break
            return 0.5 * (low + high)
        inner = outer
    return inner
