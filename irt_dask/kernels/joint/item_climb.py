"""The item step for curves ``c + (u - c) sigma(a theta + d)``: the most likely a, d, c and u.

A compiled form of :mod:`irt_dask.items.maximum`, which has any curves: where persons are few and
items many it takes a thirtieth of the time.  The likelihood is not concave in the asymptotes, so
that the ends of several starts are compared.
"""

from __future__ import annotations

import math

import numpy as np

from irt_dask.arrays import Floats
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.joint.item_maximum import Box, Counts, occupied

#: Parameters: slope, intercept, lower and upper asymptote.
N = 4
#: The longest step of a parameter; steps at most.
_LONGEST, _STEPS = 2.0, 200
#: Added to the metric, as a share of its diagonal.
_RIDGE = 1e-10
#: The last step; and one below which values no longer tell whether it leads up.
_SHORT, _CERTAIN = 1e-9, 1e-5


@jit
def _log_likelihood(
    nodes: Floats, seen: Floats, right: Floats, x: Floats, gradient: Floats, information: Floats
) -> float:
    """Log-likelihood of one item; fills in its gradient and the expected information."""
    gradient[:] = 0.0
    information[:] = 0.0
    lower, upper = x[2], x[3]
    of, total = np.empty(N), 0.0
    for k in range(nodes.size):
        f, r = seen[k], right[k]
        if f == 0.0:
            continue
        z = x[0] * nodes[k] + x[1]
        e = math.exp(-abs(z))
        large = 1.0 / (1.0 + e)
        p, q = (large, e * large) if z >= 0.0 else (e * large, large)
        yes = lower * q + upper * p
        no = (1.0 - lower) * q + (1.0 - upper) * p  # neither by subtraction from 1
        if r != 0.0:  # counts on the axis may be below 0
            total += r * math.log(yes)
        if f != r:
            total += (f - r) * math.log(no)
        of[1] = (upper - lower) * p * q
        of[0], of[2], of[3] = of[1] * nodes[k], q, p
        score, weight = r / yes - (f - r) / no, f / (yes * no)
        for i in range(N):
            gradient[i] += score * of[i]
            for j in range(i + 1):
                information[i, j] += weight * of[i] * of[j]
    for i in range(N):
        for j in range(i):
            information[j, i] = information[i, j]
    return total


@jit
def _step(metric: Floats, gradient: Floats, x: Floats, low: Floats, high: Floats) -> Floats:
    """Step of the parameters that are not at a bound and led outwards, nor held."""
    system, target = metric.copy(), gradient.copy()
    for k in range(N):
        outwards = (x[k] <= low[k] and target[k] <= 0.0) or (x[k] >= high[k] and target[k] >= 0.0)
        if outwards or low[k] == high[k] or metric[k, k] == 0.0:
            system[k, :] = 0.0
            system[:, k] = 0.0
            system[k, k], target[k] = 1.0, 0.0
        system[k, k] *= 1.0 + _RIDGE
    return np.asarray(np.linalg.solve(system, target))


@jit
def _ascend(
    nodes: Floats, seen: Floats, right: Floats, x: Floats, low: Floats, high: Floats
) -> float:
    """Projected quasi-Newton ascent in a box, from ``x``, in place; returns the value reached.

    Steps start from the expected information and learn the curvature from the gradients (BFGS).
    """
    gradient, new_gradient, trial = np.zeros(N), np.zeros(N), np.zeros(N)
    information = np.zeros((N, N))
    value = _log_likelihood(nodes, seen, right, x, gradient, information)
    metric = information.copy()
    for _ in range(_STEPS):
        step = _step(metric, gradient, x, low, high)
        longest = np.abs(step).max()
        if longest == 0.0:
            break
        size, new = min(1.0, _LONGEST / longest), -math.inf
        while True:
            for k in range(N):
                trial[k] = min(max(x[k] + size * step[k], low[k]), high[k])
            new = _log_likelihood(nodes, seen, right, trial, new_gradient, information)
            if new >= value or size * longest < _CERTAIN:
                break
            size *= 0.5
        s, y = trial - x, gradient - new_gradient
        value = new
        x[:] = trial
        gradient[:] = new_gradient
        if np.abs(s).max() < _SHORT:
            break
        ms = metric @ s
        if s @ ms > 0.0 and s @ y > 1e-10 * (s @ ms):
            metric += np.outer(y, y) / (s @ y) - np.outer(ms, ms) / (s @ ms)
        else:  # not concave here: the expected information is a safe metric
            metric[:] = information
    return value


@jit
def _climb(
    nodes: Floats, seen: Floats, right: Floats, starts: Floats, low: Floats, high: Floats,
    out: Floats,
) -> None:  # fmt: skip
    x = np.empty(N)
    for j in range(out.shape[1]):
        f = seen[j if seen.shape[0] > 1 else 0]
        lo, hi = occupied(f)
        best = -math.inf
        for s in range(starts.shape[0]):
            x[:] = starts[s, :, j]
            value = _ascend(nodes[lo:hi], f[lo:hi], right[j, lo:hi], x, low, high)
            if value > best + 1e-12 * abs(value):
                best = value
                out[:, j] = x


def climb(
    counts: Counts, starts: Floats, box: Box, asymptotes: tuple[int | None, int | None]
) -> Floats:
    """Likeliest parameters of each item in a box, the best end of all starts.

    ``starts`` are (starts, parameters, items); ``asymptotes`` the places of the lower and the upper
    one among the parameters, None where it is 0 and 1.
    """
    _, own, m = starts.shape
    rows = [0, 1, *(own + k if at is None else at for k, at in enumerate(asymptotes))]
    low, high = (np.append(bound, (0.0, 1.0))[rows] for bound in box)
    fixed = np.broadcast_to([[0.0], [1.0]], (len(starts), 2, m))
    x = np.concatenate([starts, fixed], axis=1)
    x[:, rows] = np.clip(x[:, rows], low[:, None], high[:, None])
    out = x[0].copy()
    found = out[rows]
    _climb(
        counts.nodes, counts.seen, counts.right_by_node, np.ascontiguousarray(x[:, rows]),
        low, high, found,
    )  # fmt: skip
    out[rows] = found
    return out[:own]
