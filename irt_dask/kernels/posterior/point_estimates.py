"""Point estimates of ability: posterior modes and Warm's weighted likelihood estimates.

Both are the highest point of a curve G whose slope is known: the score (the derivative of the
log-likelihood) plus ``shift - theta`` for the mode under a prior N(shift, 1), or plus
``J / (2 I)`` for Warm's (1989), with ``I = sum P'^2 / (P Q)`` and ``J = sum P' P'' / (P Q)``.  G is
tabulated on nodes, and the zero of its slope is found about the highest node.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.posterior.category_tables import Tables3PL, log_likelihood, log_posterior
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.kernels.responses.rows import item, n_rows

Floats = NDArray[np.float64]

#: Weighted likelihood estimates are looked for on these nodes, and outwards where G still rises.
_FINEST, _COARSEST = 0.005, 0.1
#: How far outwards, at most.
FURTHEST = 96.0
#: Pieces of the nodes' interval, where the slopes at its ends do not show the zero.
_PIECES = 32


def nodes_for(a: Floats, bound: float) -> Floats:
    """Nodes on [-bound, bound] that show every mode of a likelihood of these items."""
    h = min(max(0.25 / float(a.max()), _FINEST), _COARSEST)
    half = math.ceil(bound / h)
    return np.arange(-half, half + 1, dtype=np.float64) * np.float64(bound / half)


@jit
def _sums(
    its: Any, row: NDArray[np.int8], g: Tables3PL, theta: float
) -> tuple[float, float, float]:
    """Score, information and J of one person's items at ``theta``.

    With p the logistic curve and q = 1 - p: ``I_j = a^2 (1 - c) p^2 q / P``,
    ``J_j = a (q - p) I_j``; the score is ``a (1 - c) p q / P`` if right, ``-a p`` if wrong.
    """
    s = info = skew = 0.0
    for k in range(row.size):
        y = row[k]
        if y < 0:
            continue
        j = item(its, k)
        a, c = g.a[j], g.c[j]
        z = a * theta + g.d[j]
        e = math.exp(-abs(z))
        large = 1.0 / (1.0 + e)
        p, q = (large, e * large) if z >= 0.0 else (e * large, large)
        # p / P: 1 where nobody guesses, also where p underflows
        odds = p / (c + (1.0 - c) * p) if c > 0.0 else 1.0
        one = a * a * (1.0 - c) * p * q * odds
        info += one
        skew += a * (q - p) * one
        s += a * (1.0 - c) * q * odds if y == 1 else -a * p
    return s, info, skew


@jit
def _slope(
    its: Any, row: NDArray[np.int8], g: Tables3PL, warm: bool, shift: float, theta: float
) -> float:
    """Slope of the curve whose highest point is looked for."""
    s, info, skew = _sums(its, row, g, theta)
    if not warm:
        return s + shift - theta
    if info <= 0.0:  # so far out that it underflows: back
        return -theta
    return s + 0.5 * skew / info


@jit
def _zero(
    its: Any,
    row: NDArray[np.int8],
    g: Tables3PL,
    warm: bool,
    shift: float,
    low: float,
    high: float,
) -> float:
    """Zero of the slope in [low, high], at whose ends it is positive and negative: Illinois."""
    at_low = _slope(its, row, g, warm, shift, low)
    at_high = _slope(its, row, g, warm, shift, high)
    side = 0
    for step in range(200):
        if high - low <= 1e-11 * max(1.0, abs(low)):
            break
        x = (low * at_high - high * at_low) / (at_high - at_low)
        if step % 5 == 4 or not low < x < high:
            x = 0.5 * (low + high)
        value = _slope(its, row, g, warm, shift, x)
        if value == 0.0:
            return x
        if value > 0.0:
            low, at_low = x, value
            if side == 1:
                at_high *= 0.5
            side = 1
        else:
            high, at_high = x, value
            if side == -1:
                at_low *= 0.5
            side = -1
    return 0.5 * (low + high)


@jit
def _between(
    its: Any,
    row: NDArray[np.int8],
    g: Tables3PL,
    warm: bool,
    shift: float,
    low: float,
    middle: float,
    high: float,
) -> float:
    """Zero of a falling slope near ``middle``, higher than which are neither ``low`` nor ``high``.

    Where the slopes at the three do not show it, the interval is looked through in pieces.
    """
    at_middle = _slope(its, row, g, warm, shift, middle)
    if at_middle >= 0.0 and _slope(its, row, g, warm, shift, high) < 0.0:
        return _zero(its, row, g, warm, shift, middle, high)
    if at_middle <= 0.0 and _slope(its, row, g, warm, shift, low) > 0.0:
        return _zero(its, row, g, warm, shift, low, middle)
    best, found = math.inf, middle
    left, at_left = low, _slope(its, row, g, warm, shift, low)
    for k in range(1, _PIECES + 1):
        right = low + (high - low) * k / _PIECES
        at_right = _slope(its, row, g, warm, shift, right)
        if at_left > 0.0 and at_right <= 0.0:
            x = _zero(its, row, g, warm, shift, left, right)
            if abs(x - middle) < best:
                best, found = abs(x - middle), x
        left, at_left = right, at_right
    return found


@jit
def _top(g: Tables3PL, f: Floats, lo: int, hi: int) -> int:
    top = lo
    for q in range(lo + 1, hi):
        if f[q] > f[top]:
            top = q
    return top


@jit
def _outwards(its: Any, row: NDArray[np.int8], g: Tables3PL, theta: float) -> float:
    """Next zero of Warm's slope beyond the end ``theta`` of the nodes, where G rises."""
    inner = theta
    while abs(inner) < FURTHEST:
        outer = min(max(2.0 * inner, -FURTHEST), FURTHEST)
        value = _slope(its, row, g, True, 0.0, outer)
        if value == 0.0 or (value < 0.0) == (theta > 0.0):
            low, high = min(inner, outer), max(inner, outer)
            return _zero(its, row, g, True, 0.0, low, high)
        inner = outer
    return inner


@jit
def _modes(
    indptr: Any, indices: Any, values: Any, g: Tables3PL, shift: Floats, theta: Floats, info: Floats
) -> None:
    f = np.empty(g.nodes.size)
    for i in range(n_rows(indptr, values)):
        its, row = rows.row(indptr, indices, values, i)
        lo, hi = log_posterior(its, row, g, shift[i], f)
        q = _top(g, f, lo, hi)
        if q == lo or q == hi - 1:
            x = g.nodes[q]
        else:
            x = _between(its, row, g, False, shift[i], g.nodes[q - 1], g.nodes[q], g.nodes[q + 1])
        theta[i] = x
        info[i] = _sums(its, row, g, x)[1]


@jit
def _warm(
    indptr: Any,
    indices: Any,
    values: Any,
    g: Tables3PL,
    info_at: Floats,
    skew_at: Floats,
    whole: Floats,
    theta: Floats,
    info: Floats,
) -> None:
    nodes = g.nodes
    n = nodes.size
    f, sum_info, sum_skew, ratio = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for i in range(n_rows(indptr, values)):
        its, row = rows.row(indptr, indices, values, i)
        observed = log_likelihood(its, row, g, 0, n, f)
        if observed == 0:
            theta[i] = info[i] = np.nan
            continue
        if observed == g.a.size:
            ratio[:] = whole
        else:
            sum_info[:] = 0.0
            sum_skew[:] = 0.0
            for k in range(row.size):
                if row[k] >= 0:
                    one, other = info_at[item(its, k)], skew_at[item(its, k)]
                    for q in range(n):
                        sum_info[q] += one[q]
                        sum_skew[q] += other[q]
            for q in range(n):
                ratio[q] = sum_skew[q] / sum_info[q] if sum_info[q] > 0.0 else -nodes[q]
        # G: its second part is the integral of J / (2 I), by the trapezoidal rule
        weight = 0.0
        for q in range(1, n):
            weight += 0.25 * (nodes[q] - nodes[q - 1]) * (ratio[q] + ratio[q - 1])
            f[q] += weight
        q = _top(g, f, 0, n)
        if q == 0:
            rises = _slope(its, row, g, True, 0.0, nodes[0]) < 0.0
            x = _outwards(its, row, g, nodes[0]) if rises else _edge(its, row, g, 0, 1)
        elif q == n - 1:
            rises = _slope(its, row, g, True, 0.0, nodes[q]) > 0.0
            x = _outwards(its, row, g, nodes[q]) if rises else _edge(its, row, g, q - 1, q)
        else:
            x = _between(its, row, g, True, 0.0, nodes[q - 1], nodes[q], nodes[q + 1])
        theta[i] = x
        info[i] = _sums(its, row, g, x)[1]


@jit
def _edge(its: Any, row: NDArray[np.int8], g: Tables3PL, left: int, right: int) -> float:
    """Highest point between the outermost two nodes."""
    low, high = g.nodes[left], g.nodes[right]
    return _between(its, row, g, True, 0.0, low, 0.5 * (low + high), high)


@jit
def _informations(
    indptr: Any, indices: Any, values: Any, g: Tables3PL, theta: Floats, info: Floats
) -> None:
    for i in range(n_rows(indptr, values)):
        its, row = rows.row(indptr, indices, values, i)
        info[i] = _sums(its, row, g, theta[i])[1]


def information(data: Layout, g: Tables3PL, theta: Floats) -> Floats:
    """Expected information of the items that each person answered, at ``theta``."""
    info = np.empty(theta.size)
    _informations(*rows.arrays(data), g, theta, info)
    return info


def modes(data: Layout, g: Tables3PL, shift: Floats) -> tuple[Floats, Floats]:
    """Posterior mode of each ability under N(shift, 1), and the information of the items there.

    The highest of several; a person without responses has the prior mean and information 0.
    """
    theta, info = np.empty((2, data.shape[0]))
    _modes(*rows.arrays(data), g, shift, theta, info)
    return theta, info


def warm_tables(g: Tables3PL) -> tuple[Floats, Floats, Floats]:
    """Information and J of each item at the nodes, and the ratio J / I of all items."""
    z = np.multiply.outer(g.a, g.nodes) + g.d[:, None]
    e = np.exp(-np.abs(z))
    large, small = 1.0 / (1.0 + e), e / (1.0 + e)
    p, q = np.where(z >= 0.0, large, small), np.where(z >= 0.0, small, large)
    a, c = g.a[:, None], g.c[:, None]
    with np.errstate(invalid="ignore"):
        odds = np.where(c > 0.0, p / (c + (1.0 - c) * p), 1.0)
    info = a * a * (1.0 - c) * p * q * odds
    skew = a * (q - p) * info
    sum_info, sum_skew = np.zeros((2, g.nodes.size))
    for one, other in zip(info, skew, strict=True):  # in order, as for one person
        sum_info += one
        sum_skew += other
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.where(sum_info > 0.0, sum_skew / sum_info, -g.nodes)
    return info, skew, ratio


def warm(
    data: Layout, g: Tables3PL, prepared: tuple[Floats, Floats, Floats]
) -> tuple[Floats, Floats]:
    """Weighted likelihood estimates, and the information there; NaN without responses.

    ``prepared`` are :func:`warm_tables`.  The highest of several maxima on the nodes; where G still
    rises at the end of the nodes and is highest there, the next maximum outwards.
    """
    theta, info = np.empty((2, data.shape[0]))
    _warm(*rows.arrays(data), g, *prepared, theta, info)
    return theta, info
