"""The item step of a bifactor model: slopes and intercepts of items from expected counts.

What is maximised is ``a R_x + s R_z + d R - sum_q n_q log(1 + e^(a x_q + s z_q + d))`` plus the log
density of normal priors, R being sums over the answers 1: concave in (a, s, d) of an item, and with
s = lambda a in (a, d) of a block's items and its lambda one after the other.  Newton steps within
bounds, halved while the objective would fall.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from irt_dask.arrays import Bools, Floats
from irt_dask.kernels.base.compiled import jit

#: Newton steps of a round, halvings of each, and the step after which there is no other: what is
#: left is about its square.
_STEPS, _HALVINGS, _PRECISION = 6, 12, 1e-5
#: Share of lambda that a step leaves at least.
_LEAST = 0.1


class Seen(NamedTuple):
    """Expected persons at pairs of nodes, of each item or (1, pairs) of all; sums of answers 1."""

    x: Floats
    z: Floats
    n: Floats  # (items or 1, pairs)
    right: Floats  # (3, items): sums of x and z, and number


class Limits(NamedTuple):
    """Bounds of (a, s, d), equal where fixed, and means and precisions of priors, (3, items).

    With ``of_log`` the priors are of log a in place of a, and of ``d + lean a`` in place of d.
    """

    low: Floats
    high: Floats
    mean: Floats
    precision: Floats
    of_log: bool
    lean: Floats  # (items,)


@jit
def _at(s: Seen, j: int, v: Floats, g: Floats, h: Floats) -> float:
    """Log-likelihood of an item at v = (a, s, d); fills in gradient and negative Hessian."""
    n = s.n[j if s.n.shape[0] > 1 else 0]
    value = 0.0
    for c in range(3):
        g[c] = s.right[c, j]
        value += v[c] * g[c]
    h[:] = 0.0
    for q in range(n.size):
        if n[q] == 0.0:
            continue
        x, z = s.x[q], s.z[q]
        logit = v[0] * x + v[1] * z + v[2]
        e = math.exp(-abs(logit))
        value -= n[q] * (max(logit, 0.0) + math.log1p(e))
        p = (1.0 if logit >= 0.0 else e) / (1.0 + e)
        np_, w = n[q] * p, n[q] * e / (1.0 + e) ** 2
        g[0] -= np_ * x
        g[1] -= np_ * z
        g[2] -= np_
        h[0, 0] += w * x * x
        h[0, 1] += w * x * z
        h[0, 2] += w * x
        h[1, 1] += w * z * z
        h[1, 2] += w * z
        h[2, 2] += w
    h[1, 0], h[2, 0], h[2, 1] = h[0, 1], h[0, 2], h[1, 2]
    return value


@jit
def _with_prior(
    s: Seen, k: Limits, j: int, v: Floats, g: Floats, h: Floats, own: Bools
) -> float:  # fmt: skip
    """As :func:`_at`, with the priors of the parameters that are an item's own."""
    value = _at(s, j, v, g, h)
    for c in range(3):
        if c == 0 and k.of_log:
            away = math.log(v[0]) - k.mean[0, j]
            value -= 0.5 * k.precision[0, j] * away * away
            g[0] -= k.precision[0, j] * away / v[0]
            h[0, 0] += k.precision[0, j] * max(1.0 - away, 0.25) / (v[0] * v[0])
            lean, p = k.lean[j], k.precision[2, j]
            at = v[2] + lean * v[0] - k.mean[2, j]
            value -= 0.5 * p * at * at
            g[0] -= p * at * lean
            g[2] -= p * at
            h[0, 0] += p * lean * lean
            h[0, 2] += p * lean
            h[2, 0] += p * lean
            h[2, 2] += p
        elif c == 2 and k.of_log:
            continue
        elif own[c]:
            away = v[c] - k.mean[c, j]
            value -= 0.5 * k.precision[c, j] * away * away
            g[c] -= k.precision[c, j] * away
            h[c, c] += k.precision[c, j]
    return value


@jit
def _held(k: Limits, j: int, v: Floats, g: Floats, held: Bools) -> None:
    """Parameters that stay: fixed, or at a bound beyond which the objective rises."""
    for c in range(3):
        held[c] = (v[c] <= k.low[c, j] and g[c] <= 0.0) or (v[c] >= k.high[c, j] and g[c] >= 0.0)


@jit
def _solve(h: Floats, g: Floats, held: Bools, step: Floats) -> None:
    """Newton step of what is not held: the others' rows are those of the identity."""
    m, r = h.copy(), g.copy()
    for c in range(3):
        if held[c]:
            m[c, :], m[:, c], m[c, c], r[c] = 0.0, 0.0, 1.0, 0.0
        else:
            m[c, c] += 1e-10 * (1.0 + m[c, c])  # of an item that says nothing of a parameter
    for c in range(3):  # positive definite: no pivoting
        for i in range(c + 1, 3):
            f = m[i, c] / m[c, c]
            for e in range(c, 3):
                m[i, e] -= f * m[c, e]
            r[i] -= f * r[c]
    for c in range(2, -1, -1):
        for e in range(c + 1, 3):
            r[c] -= m[c, e] * step[e]
        step[c] = r[c] / m[c, c]


@jit
def _moved(k: Limits, j: int, v: Floats, step: Floats, t: float, to: Floats) -> float:
    """Go a share of a step, within bounds; the largest change."""
    most = 0.0
    for c in range(3):
        to[c] = min(max(v[c] + t * step[c], k.low[c, j]), k.high[c, j])
        most = max(most, abs(to[c] - v[c]))
    return most


@jit
def free(s: Seen, k: Limits, start: Floats) -> Floats:
    """Items with slopes of their own, (3, items), from ``start``."""
    out, own, held = start.copy(), np.ones(3, np.bool_), np.empty(3, np.bool_)
    g, h, step, to = np.empty(3), np.empty((3, 3)), np.empty(3), np.empty(3)
    for j in range(out.shape[1]):
        v = out[:, j].copy()
        value = _with_prior(s, k, j, v, g, h, own)
        for _ in range(_STEPS):
            _held(k, j, v, g, held)
            _solve(h, g, held, step)
            t, new, size = 1.0, -np.inf, 0.0
            for _ in range(_HALVINGS):
                size = _moved(k, j, v, step, t, to)
                new = _with_prior(s, k, j, to, g, h, own)
                if new >= value:
                    break
                t *= 0.5
            if not new >= value:
                break
            v[:], value = to, new
            if size < _PRECISION:
                break
        out[:, j] = v
    return out


# --- s = lambda a ---------------------------------------------------------------------------------


@jit
def _testlet_at(
    s: Seen, k: Limits, x: Floats, scale: float, g: Floats, h: Floats, by_scale: Floats
) -> float:
    """Objective of a block at (a, d) of its items and lambda.

    Fills in gradients and curvatures by (a, d) of each item (the place of s is held), those of
    lambda (its gradient and curvature, of given items), and both.
    """
    value, v, own = 0.0, np.empty(3), np.array([True, False, True])
    gj, hj = np.empty(3), np.empty((3, 3))
    by_scale[:] = 0.0
    for j in range(x.shape[1]):
        a = x[0, j]
        v[0], v[1], v[2] = a, scale * a, x[2, j]
        value += _with_prior(s, k, j, v, gj, hj, own)
        g[0, j], g[1, j] = gj[0] + scale * gj[1], gj[2]
        h[0, j] = hj[0, 0] + scale * (2.0 * hj[0, 1] + scale * hj[1, 1])
        h[1, j], h[2, j] = hj[0, 2] + scale * hj[1, 2], hj[2, 2]
        h[3, j], h[4, j] = a * (hj[0, 1] + scale * hj[1, 1]), a * hj[1, 2]
        by_scale[0] += a * gj[1]
        by_scale[1] += a * a * hj[1, 1]
    return value


@jit
def _testlet_step(
    k: Limits, x: Floats, scale: float, top: float, g: Floats, h: Floats, by_scale: Floats,
    step: Floats,
) -> float:  # fmt: skip
    """Newton step of all items of a block, (2, items), and of lambda, which it returns.

    The system has lambda beside blocks of two, which are solved first.
    """
    rest, left = by_scale[1], by_scale[0]
    lean = np.zeros((2, x.shape[1]))
    for j in range(x.shape[1]):
        aa, ad, dd, g0, g1 = h[0, j], h[1, j], h[2, j], g[0, j], g[1, j]
        c0, c1 = h[3, j], h[4, j]
        if (x[0, j] <= k.low[0, j] and g0 <= 0.0) or (x[0, j] >= k.high[0, j] and g0 >= 0.0):
            aa, ad, g0, c0 = 1.0, 0.0, 0.0, 0.0
        if (x[2, j] <= k.low[2, j] and g1 <= 0.0) or (x[2, j] >= k.high[2, j] and g1 >= 0.0):
            dd, ad, g1, c1 = 1.0, 0.0, 0.0, 0.0
        aa, dd = aa * (1.0 + 1e-10) + 1e-10, dd * (1.0 + 1e-10) + 1e-10
        under = aa * dd - ad * ad
        step[0, j], step[1, j] = (dd * g0 - ad * g1) / under, (aa * g1 - ad * g0) / under
        lean[0, j], lean[1, j] = (dd * c0 - ad * c1) / under, (aa * c1 - ad * c0) / under
        rest -= c0 * lean[0, j] + c1 * lean[1, j]
        left -= c0 * step[0, j] + c1 * step[1, j]
    moved = left / max(rest, 1e-6 * by_scale[1] + 1e-10)
    # At 0 nothing is known of a block's ability, and nothing would move lambda again.
    moved = min(max(scale + moved, _LEAST * scale), top) - scale
    for j in range(x.shape[1]):
        step[0, j] -= lean[0, j] * moved
        step[1, j] -= lean[1, j] * moved
    return moved


@jit
def testlet(s: Seen, k: Limits, start: Floats, scale: float, top: float) -> tuple[Floats, float]:
    """Items of a block, (3, items), and its lambda, at most ``top``; 0 if that is fixed there."""
    x, m = start.copy(), start.shape[1]
    g, h, step, by_scale = np.empty((2, m)), np.empty((5, m)), np.empty((2, m)), np.empty(2)
    to, value = x.copy(), _testlet_at(s, k, x, scale, g, h, by_scale)
    for _ in range(_STEPS):
        moved = _testlet_step(k, x, scale, top, g, h, by_scale, step)
        t, new, size, there = 1.0, -np.inf, 0.0, scale
        for _ in range(_HALVINGS):
            there, size = scale + t * moved, abs(t * moved)
            for j in range(m):
                to[0, j] = min(max(x[0, j] + t * step[0, j], k.low[0, j]), k.high[0, j])
                to[2, j] = min(max(x[2, j] + t * step[1, j], k.low[2, j]), k.high[2, j])
                size = max(size, max(abs(to[0, j] - x[0, j]), abs(to[2, j] - x[2, j])))
            new = _testlet_at(s, k, to, there, g, h, by_scale)
            if new >= value:
                break
            t *= 0.5
        if not new >= value:
            break
        x[:], scale, value = to, there, new
        if size < _PRECISION:
            break
    x[1] = scale * x[0]
    return x, scale
