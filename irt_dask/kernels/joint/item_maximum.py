"""The item step of joint ML: the most likely parameters of each item, given the abilities.

Every item is its own small problem, on counts by node of ability: it costs items x nodes, whatever
the number of persons.  For 1PL and 2PL it is concave and Newton steps find its maximum.  The 3PL
problem is not, in the guessing parameter: steps start from several, and the best end counts.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from irt_dask.kernels.base.compiled import jit

Floats = NDArray[np.float64]

#: Guessing parameters that the search starts from, besides the current one.
_STARTS = np.array([0.0, 0.08, 0.16, 0.24, 0.32, 0.42])
#: A Newton step shorter than this leaves an error of about its square.
_CERTAIN = 1e-5


class Counts(NamedTuple):
    """What the item step knows of the persons.

    ``seen`` are those who answered, by node, (items, nodes), or (1, nodes) if the same for all.
    ``right`` and ``right_ability`` are the number of right answers and the sum of their abilities,
    (items,), exact; ``right_by_node`` is there for 3PL only, (items, nodes), else empty.
    """

    nodes: Floats
    seen: Floats
    right: Floats
    right_ability: Floats
    right_by_node: Floats


class Box(NamedTuple):
    """Bounds of slope, intercept and guessing parameter; equal bounds hold a parameter fixed."""

    low: Floats
    high: Floats


@jit
def _occupied(seen: Floats) -> tuple[int, int]:
    """First node with persons, and the one after the last."""
    lo, hi = 0, seen.size
    while lo < hi and seen[lo] == 0.0:
        lo += 1
    while hi > lo and seen[hi - 1] == 0.0:
        hi -= 1
    return lo, hi


# --- 1PL and 2PL ----------------------------------------------------------------------------------


@jit
def _derivatives(
    nodes: Floats, seen: Floats, right: float, right_ability: float, a: float, d: float
) -> tuple[float, float, float, float, float, float]:
    """Log-likelihood of one item, its gradient (a, d) and negative Hessian (aa, ad, dd)."""
    total = a * right_ability + d * right
    ga, gd = right_ability, right
    haa = had = hdd = 0.0
    for q in range(nodes.size):
        f = seen[q]
        if f != 0.0:
            z = a * nodes[q] + d
            e = math.exp(-abs(z))
            total -= f * (max(z, 0.0) + math.log1p(e))
            large = 1.0 / (1.0 + e)
            p = large if z >= 0.0 else e * large
            w = f * e * large * large
            ga -= f * p * nodes[q]
            gd -= f * p
            haa += w * nodes[q] * nodes[q]
            had += w * nodes[q]
            hdd += w
    return total, ga, gd, haa, had, hdd


@jit
def _maximise_2pl(
    nodes: Floats,
    seen: Floats,
    right: float,
    right_ability: float,
    a: float,
    d: float,
    low: Floats,
    high: Floats,
) -> tuple[float, float]:
    """Projected Newton ascent with backtracking on a concave function of (a, d) in a box."""
    value, ga, gd, haa, had, hdd = _derivatives(nodes, seen, right, right_ability, a, d)
    for _ in range(100):
        # A parameter at a bound whose gradient points outwards stays there.
        hold_a = low[0] == high[0] or (a <= low[0] and ga <= 0.0) or (a >= high[0] and ga >= 0.0)
        hold_d = (d <= low[1] and gd <= 0.0) or (d >= high[1] and gd >= 0.0)
        if (hold_a and hold_d) or hdd == 0.0:  # at a corner, or never observed
            break
        ridge = 1e-12 * (haa + hdd)
        if hold_a:
            step_a, step_d = 0.0, gd / (hdd + ridge)
        elif hold_d:
            step_a, step_d = ga / (haa + ridge), 0.0
        else:
            det = (haa + ridge) * (hdd + ridge) - had * had
            step_a = ((hdd + ridge) * ga - had * gd) / det
            step_d = ((haa + ridge) * gd - had * ga) / det
        longest = max(abs(step_a), abs(step_d))
        size = min(1.0, 4.0 / longest) if longest > 0.0 else 1.0
        moved = False
        for _ in range(40):
            na = min(max(a + size * step_a, low[0]), high[0])
            nd = min(max(d + size * step_d, low[1]), high[1])
            new, ga, gd, haa, had, hdd = _derivatives(nodes, seen, right, right_ability, na, nd)
            if new >= value or longest < _CERTAIN:  # where values no longer tell, Newton does
                moved = True
                break
            size *= 0.5
        if not moved:
            break
        a, d, value = na, nd, new
        if longest < _CERTAIN:
            break
    return a, d


# --- 3PL ------------------------------------------------------------------------------------------


@jit
def log_likelihood_3pl(
    nodes: Floats, seen: Floats, right: Floats, x: Floats, gradient: Floats, information: Floats
) -> float:
    """Log-likelihood of one item at ``x = (a, d, c)``; its gradient and expected information.

    With P = c + (1 - c) p: dP/dz = (1 - c) p q and dP/dc = q.
    """
    c = x[2]
    total = 0.0
    gradient[:] = 0.0
    information[:] = 0.0
    for k in range(nodes.size):
        f = seen[k]
        if f != 0.0:
            z = x[0] * nodes[k] + x[1]
            e = math.exp(-abs(z))
            large = 1.0 / (1.0 + e)
            p, q = (large, e * large) if z >= 0.0 else (e * large, large)
            chance = c + (1.0 - c) * p
            r = right[k]
            if r != 0.0:
                total += r * math.log(chance)
            # log(1 - P) without cancellation: q may be tiny
            total += (f - r) * (math.log1p(-c) - max(z, 0.0) - math.log1p(e))
            # (r - f P) / (P (1 - P)) times the derivatives of P
            residual = (r - f * chance) / chance
            gz = residual * p
            gradient[0] += gz * nodes[k]
            gradient[1] += gz
            gradient[2] += residual / (1.0 - c)
            # f / (P (1 - P)) times products of the derivatives of P
            izz = f * (1.0 - c) * p * p * q / chance
            izc = f * p * q / chance
            information[0, 0] += izz * nodes[k] * nodes[k]
            information[0, 1] += izz * nodes[k]
            information[1, 1] += izz
            information[0, 2] += izc * nodes[k]
            information[1, 2] += izc
            information[2, 2] += f * q / ((1.0 - c) * chance)
    information[1, 0] = information[0, 1]
    information[2, 0] = information[0, 2]
    information[2, 1] = information[1, 2]
    return total


@jit
def _ascend_3pl(
    nodes: Floats, seen: Floats, right: Floats, x: Floats, low: Floats, high: Floats
) -> float:
    """Projected quasi-Newton ascent in a box, from ``x``, in place; returns the value reached.

    Steps start from the expected information and learn the curvature from the gradients (BFGS).
    """
    gradient, new_gradient = np.zeros(3), np.zeros(3)
    information, unused = np.zeros((3, 3)), np.zeros((3, 3))
    value = log_likelihood_3pl(nodes, seen, right, x, gradient, information)
    metric = information.copy()
    trial, free = np.zeros(3), np.zeros(3)
    for iteration in range(200):
        for k in range(3):
            outwards = (x[k] <= low[k] and gradient[k] <= 0.0) or (
                x[k] >= high[k] and gradient[k] >= 0.0
            )
            free[k] = 0.0 if outwards or low[k] == high[k] else 1.0
        if free.sum() == 0.0 or information[1, 1] == 0.0:
            break
        system = metric.copy()
        scale = 1e-10 * (system[0, 0] + system[1, 1] + system[2, 2])
        target = gradient * free
        for k in range(3):
            system[k, k] += scale
            if free[k] == 0.0:
                system[k, :] = 0.0
                system[:, k] = 0.0
                system[k, k] = 1.0
        step = np.linalg.solve(system, target)
        longest = np.abs(step).max()
        size = min(1.0, 2.0 / longest) if longest > 0.0 else 1.0
        moved = False
        for _ in range(40):
            for k in range(3):
                trial[k] = min(max(x[k] + size * step[k], low[k]), high[k])
            new = log_likelihood_3pl(nodes, seen, right, trial, new_gradient, unused)
            if new >= value:
                moved = True
                break
            size *= 0.5
        if not moved:
            break
        s, y = trial - x, gradient - new_gradient
        change = np.abs(s).max()
        x[:] = trial
        gradient[:] = new_gradient
        gain = new - value
        value = new
        if change < 1e-9 or (gain <= 1e-13 * abs(value) and iteration > 3):
            break
        curvature = s @ y
        ms = metric @ s
        if curvature > 1e-10 * (s @ ms) and s @ ms > 0.0:
            metric += np.outer(y, y) / curvature - np.outer(ms, ms) / (s @ ms)
        else:  # not concave here: the expected information is a safe metric
            metric[:] = unused
    return value


@jit
def _maximise(
    nodes: Floats,
    seen: Floats,
    right: Floats,
    right_ability: Floats,
    right_by_node: Floats,
    start: Floats,
    low: Floats,
    high: Floats,
    starts: Floats,
    out: Floats,
) -> None:
    x, best = np.empty(3), np.empty(3)
    for j in range(start.shape[1]):
        f = seen[j if seen.shape[0] > 1 else 0]
        lo, hi = _occupied(f)
        f, node = f[lo:hi], nodes[lo:hi]
        if right_by_node.shape[0] == 0:
            a, d = _maximise_2pl(
                node, f, right[j], right_ability[j], start[0, j], start[1, j], low, high
            )
            out[0, j], out[1, j], out[2, j] = a, d, start[2, j]
            continue
        r = right_by_node[j, lo:hi]
        best_value = -math.inf
        for k in range(-1, starts.size):  # the current guessing parameter first
            x[:] = start[:, j]
            if k >= 0:
                x[2] = min(max(starts[k], low[2]), high[2])
            value = _ascend_3pl(node, f, r, x, low, high)
            if value > best_value + 1e-12 * abs(value):
                best_value = value
                best[:] = x
        out[:, j] = best


def maximise(counts: Counts, start: Floats, box: Box, *, everywhere: bool = True) -> Floats:
    """Maximise each item's log-likelihood over a box, from ``start`` (3, items) on.

    Without ``everywhere`` the search starts from the current guessing parameters only.
    """
    out = np.empty_like(start)
    starts = _STARTS if everywhere else _STARTS[:0]
    _maximise(*counts, start, *box, starts, out)
    return out


# --- standard errors ------------------------------------------------------------------------------


@jit
def _information(
    nodes: Floats, seen: Floats, right_by_node: Floats, x: Floats, out: Floats
) -> None:
    gradient = np.zeros(3)
    for j in range(x.shape[1]):
        f = seen[j if seen.shape[0] > 1 else 0]
        r = right_by_node[j] if right_by_node.shape[0] > 0 else np.zeros_like(f)
        log_likelihood_3pl(nodes, f, r, x[:, j].copy(), gradient, out[j])


def information(counts: Counts, x: Floats) -> Floats:
    """Expected information of (a, d, c) at ``x``, abilities taken as known; (items, 3, 3)."""
    out = np.zeros((x.shape[1], 3, 3))
    _information(counts.nodes, counts.seen, counts.right_by_node, np.ascontiguousarray(x), out)
    return out


def costs(counts: Counts, x: Floats) -> Floats:
    """Negative log-likelihood of each item at ``x`` (3, items), abilities held; (items,)."""
    a, d, c = x
    z = np.multiply.outer(a, counts.nodes) + d[:, None]
    if not counts.right_by_node.size:
        return (
            (counts.seen * np.logaddexp(0.0, z)).sum(axis=1)
            - d * counts.right
            - a * counts.right_ability
        )
    with np.errstate(divide="ignore"):
        log_right = np.logaddexp(np.log(c)[:, None], z) - np.logaddexp(0.0, z)
    log_wrong = np.log1p(-c)[:, None] - np.logaddexp(0.0, z)
    wrong = counts.seen - counts.right_by_node
    return -(counts.right_by_node * log_right + wrong * log_wrong).sum(axis=1)
