"""The most likely ability of each person, given the items: the person step of joint ML.

For 1PL and 2PL the log-likelihood in ability is concave.  A person who answered every item enters
through one number, ``t = sum_j a_j y_ij``: the mode solves ``g(theta) = t`` with
``g = sum_j a_j P_j``, the same curve for everybody, so a table of it serves all.  Others are
bracketed between two nodes of a table of slopes and found by Newton steps.  The 3PL log-likelihood
may have several modes: a grid finds the best, Newton steps its top.

Items have weights: 1, or how many items each one of a coreset of items stands for (0: left out).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irt_dask.kernels import rows
from irt_dask.kernels.compiled import jit
from irt_dask.kernels.layouts import Layout
from irt_dask.kernels.rows import item, n_rows

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: A Newton step shorter than this leaves an error of about its square.
_SHORT = 1e-4
#: Entries of a table of items x nodes, at most; about 30 MB.
_TABLE = 1 << 22
#: Numbers of nodes to choose from (on [-6, 6], spacings from 0.025 to 2).
_NODES = (481, 241, 121, 61, 31, 13, 7)
#: Nodes at which the modes of a 3PL person are looked for: spacing 0.125.
_NODES_3PL = 97


class Items(NamedTuple):
    """Slopes, intercepts, guessing parameters and weights of all items."""

    a: Floats
    d: Floats
    c: Floats
    weight: Floats

    @classmethod
    def of(cls, a: Floats, d: Floats, c: Floats | None = None) -> Items:
        """Items of weight 1; without ``c`` nobody guesses."""
        return cls(a, d, np.zeros_like(a) if c is None else c, np.ones_like(a))

    @property
    def guessing(self) -> bool:
        """Whether some item can be guessed."""
        return bool((self.c > 0.0).any())


# --- persons who answered every item: 1PL and 2PL -------------------------------------------------


class Curve(NamedTuple):
    """``S = sum_j log(1 + e^{z_j})`` and its first two derivatives at equally spaced abilities."""

    nodes: Floats
    total: Floats
    slope: Floats
    curvature: Floats


def curve(items: Items, bound: float) -> Curve:
    """Tabulate the curve of all items on [-bound, bound].

    Between nodes S is the quintic that agrees in value and two derivatives: with spacing h its
    error is ``h^6 max|S''''''| / 46080``, at most 2e-11 for each item within the bounds (a = 5).
    """
    nodes = np.linspace(-bound, bound, _NODES[0])
    total, slope, curvature = np.zeros((3, nodes.size))
    for k in range(0, items.a.size, 256):  # some items at a time: nodes x items may be large
        a, d, _, weight = (x[k : k + 256] for x in items)
        z = np.multiply.outer(nodes, a) + d
        p = 1.0 / (1.0 + np.exp(-z))
        total += np.logaddexp(0.0, z) @ weight
        slope += p @ (weight * a)
        curvature += (p * (1.0 - p)) @ (weight * a * a)
    return Curve(nodes, total, slope, curvature)


@jit
def _invert(t: Floats, curve: Curve, theta: Floats, value: Floats) -> None:
    nodes, total, slope, curvature = curve
    n = nodes.size
    h = (nodes[n - 1] - nodes[0]) / (n - 1)
    for i in range(t.size):
        if t[i] <= slope[0] or t[i] >= slope[n - 1]:  # at a bound
            q = 0 if t[i] <= slope[0] else n - 1
            theta[i], value[i] = nodes[q], t[i] * nodes[q] - total[q]
            continue
        low, high = 0, n - 1
        while high - low > 1:
            middle = (low + high) // 2
            if slope[middle] <= t[i]:
                low = middle
            else:
                high = middle
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
            new = u - f / df if df > 0.0 else left
            if not left <= new <= right:
                new = 0.5 * (left + right)
            done = abs(new - u) < 1e-12
            u = new
            if done:
                break
        s = c0 + u * (c1 + u * (c2 + u * (c3 + u * (c4 + u * c5))))
        theta[i] = nodes[low] + u * h
        value[i] = t[i] * theta[i] - s


def from_totals(t: Floats, curve: Curve) -> tuple[Floats, Floats]:
    """Most likely abilities of persons with weighted scores t; ``t theta - S(theta)`` there."""
    theta, value = np.empty_like(t), np.empty_like(t)
    _invert(t, curve, theta, value)
    return theta, value


# --- others: 1PL and 2PL --------------------------------------------------------------------------


def slope_table(items: Items, bound: float) -> tuple[Floats, Floats]:
    """Nodes on [-bound, bound] and ``weight a P`` there, (nodes, items)."""
    n = next((n for n in _NODES if n * items.a.size <= _TABLE), _NODES[-1])
    nodes = np.linspace(-bound, bound, n)
    z = np.multiply.outer(nodes, items.a)
    z += items.d
    np.negative(z, out=z)
    np.exp(z, out=z)
    z += 1.0
    np.divide(items.weight * items.a, z, out=z)
    return nodes, z


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
    its: Any, row: NDArray[np.int8], items: Items, unit: bool, theta: float
) -> tuple[float, float, float]:
    """First and second derivative and value of one person's log-likelihood at ``theta``."""
    a, d, _, weight = items
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


# --- 3PL ------------------------------------------------------------------------------------------


def log_tables(items: Items, bound: float) -> tuple[Floats, Floats]:
    """Nodes, and log P of wrong (0) and right (1), times the weights, (2, items, nodes)."""
    nodes = np.linspace(-bound, bound, _NODES_3PL)
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
    """As :func:`_at` with guessing.

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
def _modes_3pl(
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


# --- both -----------------------------------------------------------------------------------------


Tables = tuple[Floats, ...]


def tables(items: Items, bound: float) -> Tables:
    """What :func:`modes` needs of the items: made once for all blocks."""
    return log_tables(items, bound) if items.guessing else slope_table(items, bound)


def modes(
    data: Layout, items: Items, bound: float, prepared: Tables | None = None
) -> tuple[Floats, Floats]:
    """Most likely ability of each person in [-bound, bound], and the log-likelihood there.

    A person without responses has ability NaN and log-likelihood 0.  ``prepared`` are
    :func:`tables`.
    """
    n = data.shape[0]
    theta, ll = np.empty(n), np.empty(n)
    known = tables(items, bound) if prepared is None else prepared
    unit = bool((items.weight == 1.0).all())
    if items.guessing:
        _modes_3pl(*rows.arrays(data), items, unit, *known, theta, ll)
    else:
        _modes(*rows.arrays(data), items, unit, *known, theta, ll)
    return theta, ll
