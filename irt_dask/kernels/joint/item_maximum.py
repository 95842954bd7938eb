"""The item step for log odds ``a theta + d``: the most likely slope and intercept of each item.

Abilities are given.  Every item is its own small problem, on counts by node of ability: it costs
items x nodes, whatever the number of persons, and Newton steps find its maximum.  It is concave,
also with a normal density of (a, d); with one of (log a, d) where it is not, the density's own
curvature leads up.  (With asymptotes: :mod:`irt_dask.kernels.joint.item_climb`; any curves:
:mod:`irt_dask.items.maximum`.)
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from irt_dask.arrays import Floats
from irt_dask.kernels.base.compiled import jit

#: A Newton step shorter than this leaves an error of about its square.
_CERTAIN = 1e-5


class Counts(NamedTuple):
    """What the item step knows of the persons.

    ``seen`` are those who answered, by node, (items, nodes), or (1, nodes) if the same for all.
    ``right`` and ``right_ability`` are the number of right answers and the sum of their abilities,
    (items,), exact; ``right_by_node``, (items, nodes), is empty where these are enough.
    """

    nodes: Floats
    seen: Floats
    right: Floats
    right_ability: Floats
    right_by_node: Floats


class Box(NamedTuple):
    """Bounds of the parameters of an item; equal bounds hold a parameter fixed."""

    low: Floats
    high: Floats


class Normal(NamedTuple):
    """Normal densities of (a, d), or with ``log`` of (log a, d), of each item; none if empty."""

    mean: Floats  # (items, 2)
    precision: Floats  # (items, 2, 2)
    log: bool


#: No density.
FLAT = Normal(np.empty((0, 2)), np.empty((0, 2, 2)), False)


@jit
def occupied(seen: Floats) -> tuple[int, int]:
    """First node with persons, and the one after the last."""
    lo, hi = 0, seen.size
    while lo < hi and seen[lo] == 0.0:
        lo += 1
    while hi > lo and seen[hi - 1] == 0.0:
        hi -= 1
    return lo, hi


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
def _at(
    nodes: Floats, seen: Floats, right: float, right_ability: float, a: float, d: float, j: int,
    prior: Normal,
) -> tuple[float, float, float, float, float, float]:  # fmt: skip
    """As :func:`_derivatives`, with the density of item j, if there is one.

    Where both together bend upwards, the Hessian is that of a density normal at this very place.
    """
    value, ga, gd, haa, had, hdd = _derivatives(nodes, seen, right, right_ability, a, d)
    if prior.mean.shape[0] == 0:
        return value, ga, gd, haa, had, hdd
    p, slope = prior.precision[j], 1.0 / a if prior.log else 1.0  # of the coordinate by a
    away_a = (math.log(a) if prior.log else a) - prior.mean[j, 0]
    away_d = d - prior.mean[j, 1]
    pull_a, pull_d = p[0, 0] * away_a + p[0, 1] * away_d, p[0, 1] * away_a + p[1, 1] * away_d
    value -= 0.5 * (away_a * pull_a + away_d * pull_d)
    ga -= pull_a * slope
    gd -= pull_d
    haa += p[0, 0] * slope * slope
    had += p[0, 1] * slope
    hdd += p[1, 1]
    if prior.log:
        bent = haa - pull_a * slope * slope  # d^2 log a / da^2 = -1 / a^2
        if bent * hdd > had * had:
            haa = bent
    return value, ga, gd, haa, had, hdd


@jit
def _maximise_one(
    nodes: Floats, seen: Floats, right: float, right_ability: float, a: float, d: float,
    low: Floats, high: Floats, j: int, prior: Normal,
) -> tuple[float, float]:  # fmt: skip
    """Projected Newton ascent with backtracking on a function of (a, d) in a box."""
    value, ga, gd, haa, had, hdd = _at(nodes, seen, right, right_ability, a, d, j, prior)
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
            new, ga, gd, haa, had, hdd = _at(nodes, seen, right, right_ability, na, nd, j, prior)
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


@jit
def _maximise(
    nodes: Floats, seen: Floats, right: Floats, right_ability: Floats, low: Floats, high: Floats,
    prior: Normal, x: Floats,
) -> None:  # fmt: skip
    for j in range(x.shape[1]):
        f = seen[j if seen.shape[0] > 1 else 0]
        lo, hi = occupied(f)
        x[0, j], x[1, j] = _maximise_one(
            nodes[lo:hi], f[lo:hi], right[j], right_ability[j], x[0, j], x[1, j], low, high,
            j, prior,
        )  # fmt: skip


def maximise(counts: Counts, start: Floats, box: Box, prior: Normal = FLAT) -> Floats:
    """Maximise each item's log-likelihood, with a log density, over a box.

    From slopes and intercepts ``start`` on; further rows of it stay as they are.
    """
    out = start.copy()
    _maximise(*counts[:4], *box, prior, out)
    return out


@jit
def _information(nodes: Floats, seen: Floats, x: Floats, out: Floats) -> None:
    for j in range(x.shape[1]):
        f = seen[j if seen.shape[0] > 1 else 0]
        _, _, _, haa, had, hdd = _derivatives(nodes, f, 0.0, 0.0, x[0, j], x[1, j])
        out[j, 0, 0], out[j, 1, 1] = haa, hdd
        out[j, 0, 1] = out[j, 1, 0] = had


def information(nodes: Floats, seen: Floats, x: Floats) -> Floats:
    """Second derivatives of each item's log-likelihood, sign changed, (items, 2, 2), at (2, items).

    Observed and expected are one: responses are not in it.
    """
    out = np.empty((x.shape[1], 2, 2))
    _information(nodes, seen, np.ascontiguousarray(x), out)
    return out
