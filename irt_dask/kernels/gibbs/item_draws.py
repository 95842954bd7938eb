"""Gibbs item steps: a draw of each item from its right and observed counts on the ability axis.

Given abilities on nodes, an item's log-likelihood is ``sum_q r_q z_q - f_q log(1 + e^{z_q})`` with
``z_q = a theta_q + d``: it costs items x nodes, whatever the number of persons.  Counts come as
(nodes, items) floats.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irt_dask.arrays import Floats, Ints
from irt_dask.kernels.base.compiled import jit

#: Degrees of freedom of the proposal of the Gibbs item step; its tails bound the weights.
_PROPOSAL_DF = 10
#: Random words an item needs per step: two normals, the proposal's chi-square, the acceptance.
WORDS_PER_ITEM = 2 + _PROPOSAL_DF // 2 + 1


#: ``z`` beyond this (and within its negative) is as good as certain.
_CERTAIN = 600.0
#: A Newton step of this squared length, in posterior standard deviations, is near enough the mode.
_NEAR = 1e-3


@jit
def _pack(
    right: Floats, seen: Floats, node: Ints, nodes: Floats, packed: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """Counts of one item at the nodes with responses, these nodes, and the steps between them."""
    n = 0
    before = 0
    for k in range(node.size):
        if seen[k] > 0.0:
            packed[0, n], packed[1, n] = right[k], seen[k]
            packed[2, n], packed[3, n] = nodes[node[k]], node[k] - before
            before = node[k]
            n += 1
    return packed[0, :n], packed[1, :n], packed[2, :n], packed[3, :n]


@jit
def _odds(x: Floats, step: Floats, h: float, a: float, d: float, out: Floats) -> None:
    """``e^(a x + d)`` at one item's nodes.

    From one node to the next it is a product: neighbours differ by the factor ``e^{a h}``.
    """
    if x.size == 0:
        return
    first, last = a * x[0] + d, a * x[x.size - 1] + d
    if max(abs(first), abs(last)) > _CERTAIN:
        for k in range(x.size):
            out[k] = math.exp(min(max(a * x[k] + d, -_CERTAIN), _CERTAIN))
        return
    growth = math.exp(a * h)
    e = math.exp(first)
    out[0] = e
    for k in range(1, x.size):
        e *= growth if step[k] == 1.0 else math.exp(a * h * step[k])
        out[k] = e


@jit
def _log_target(
    r: Floats, s: Floats, x: Floats, step: Floats, h: float, prior: Floats, a: float, d: float,
    odds: Floats,
) -> float:  # fmt: skip
    """Log posterior density of (a, d) given the counts, up to a constant."""
    _odds(x, step, h, a, d, odds)
    total = -0.5 * prior[1] * (a - prior[0]) ** 2 - 0.5 * prior[3] * (d - prior[2]) ** 2
    for k in range(x.size):
        z = min(max(a * x[k] + d, -_CERTAIN), _CERTAIN)
        total += r[k] * z - s[k] * math.log(1.0 + odds[k])
    return total


@jit
def _derivatives(
    r: Floats, s: Floats, x: Floats, step: Floats, h: float, prior: Floats, a: float, d: float,
    odds: Floats,
) -> tuple[float, float, float, float, float]:  # fmt: skip
    """Gradient (a, d) and negative Hessian (aa, ad, dd) of the log posterior density."""
    _odds(x, step, h, a, d, odds)
    ga, gd = -prior[1] * (a - prior[0]), -prior[3] * (d - prior[2])
    haa, had, hdd = prior[1], 0.0, prior[3]
    for k in range(x.size):
        inverse = 1.0 / (1.0 + odds[k])
        p = odds[k] * inverse
        residual = r[k] - s[k] * p
        w = s[k] * p * inverse
        ga += residual * x[k]
        gd += residual
        haa += w * x[k] * x[k]
        had += w * x[k]
        hdd += w
    return ga, gd, haa, had, hdd


@jit
def _mode(
    r: Floats, s: Floats, x: Floats, step: Floats, h: float, prior: Floats, a: float, d: float,
    at_zero: bool, odds: Floats,
) -> tuple[float, float, float, float, float, float]:  # fmt: skip
    """Mode of (a, d), whatever the sign of a, or of d at a = 0; slope in a and curvature there.

    The log density is concave: Newton's method with steps that are halved while they lengthen the
    next one.  A deterministic function of the counts and the start: the step that uses it is exact
    even where this search stops early.
    """
    from_a, from_d, size, length = a, d, 1.0, math.inf
    step_a = step_d = 0.0
    ga, gd, haa, had, hdd = 0.0, 0.0, 1.0, 0.0, 1.0
    for _ in range(60):
        ga, gd, haa, had, hdd = _derivatives(r, s, x, step, h, prior, a, d, odds)
        if at_zero:
            new_a, new_d = 0.0, gd / hdd
            new = gd * new_d
        else:
            det = haa * hdd - had * had
            new_a, new_d = (hdd * ga - had * gd) / det, (haa * gd - had * ga) / det
            new = ga * new_a + gd * new_d
        if new > length and size > 1e-4:
            size *= 0.5
            a, d = from_a + size * step_a, from_d + size * step_d
            continue
        from_a, from_d, step_a, step_d, length = a, d, new_a, new_d, new
        size = min(1.0, 2.0 / max(abs(step_a), abs(step_d), 1e-300))
        a, d = from_a + size * step_a, from_d + size * step_d
        if length < _NEAR:
            break
    return a, d, ga, haa, had, hdd


@jit
def _stretch(uniforms: Floats) -> float:
    """What makes a normal a t of twice as many degrees of freedom as there are uniforms."""
    chi2 = 0.0
    for u in uniforms:
        chi2 -= 2.0 * math.log(u)
    return math.sqrt(2.0 * uniforms.size / chi2)


@jit
def _log_t(distance: float, dimension: float, df: float) -> float:
    """Log density of t at a squared distance in scales, up to a constant."""
    return -0.5 * (df + dimension) * math.log1p(distance / df)


@jit
def _metropolis(
    right: Floats, seen: Floats, node: Ints, nodes: Floats, prior: Floats, start_a: Floats,
    start_d: Floats, random: Floats, log_a: Floats, d: Floats, accepted: Ints,
) -> None:  # fmt: skip
    h = nodes[1] - nodes[0]
    packed, odds = np.empty((4, node.size)), np.empty(node.size)
    for j in range(log_a.size):
        r, s, x, step = _pack(right[j], seen[j], node, nodes, packed)
        centre_a, centre_d, slope, haa, had, hdd = _mode(
            r, s, x, step, h, prior, start_a[j], start_d[j], False, odds
        )
        old_a = math.exp(log_a[j])
        angle = 2.0 * math.pi * random[j, 1]
        profile = haa - had * had / hdd  # curvature along a, d following
        if centre_a > 0.0 and centre_a * centre_a * profile > 1.0:
            radius = math.sqrt(-2.0 * math.log(random[j, 0]))
            stretch = _stretch(random[j, 2:-1])
            new_a = centre_a + stretch * radius * math.cos(angle) / math.sqrt(profile)
            new_d = centre_d + stretch * radius * math.sin(angle) / math.sqrt(hdd)
            new_d -= had / hdd * (new_a - centre_a)
            if not new_a > 0.0:
                continue
            u, v, df = old_a - centre_a, d[j] - centre_d, 2.0 * (random.shape[1] - 3)
            log_ratio = _log_t(haa * u * u + 2.0 * had * u * v + hdd * v * v, 2.0, df)
            u, v = new_a - centre_a, new_d - centre_d
            log_ratio -= _log_t(haa * u * u + 2.0 * had * u * v + hdd * v * v, 2.0, df)
        else:
            _, centre_d, slope, haa, had, hdd = _mode(
                r, s, x, step, h, prior, 0.0, start_d[j], True, odds
            )
            profile = haa - had * had / hdd
            rate = 0.5 * (math.sqrt(slope * slope + 4.0 * profile) - slope)
            new_a = -math.log(random[j, 0]) / rate
            radius = math.sqrt(-2.0 * math.log(random[j, 2]))
            stretch = _stretch(random[j, 3:-1])
            new_d = centre_d + stretch * radius * math.sin(angle) / math.sqrt(hdd)
            new_d -= had / hdd * new_a
            v, df = d[j] - centre_d + had / hdd * old_a, 2.0 * (random.shape[1] - 4)
            log_ratio = rate * (new_a - old_a) + _log_t(hdd * v * v, 1.0, df)
            v = new_d - centre_d + had / hdd * new_a
            log_ratio -= _log_t(hdd * v * v, 1.0, df)
        log_ratio += _log_target(r, s, x, step, h, prior, new_a, new_d, odds)
        log_ratio -= _log_target(r, s, x, step, h, prior, old_a, d[j], odds)
        if math.log(random[j, random.shape[1] - 1]) < log_ratio:
            log_a[j] = math.log(new_a)
            d[j] = new_d
            accepted[j] += 1


def metropolis(
    right: NDArray[Any], seen: NDArray[Any], node: Ints, nodes: Floats, prior: Floats,
    start: tuple[Floats, Floats], random: Floats, log_a: Floats, d: Floats, accepted: Ints,
) -> None:  # fmt: skip
    """One independence Metropolis-Hastings step for each item, in place.

    ``right`` and ``seen`` are counts at the nodes ``node`` (positions in ``nodes``, which are
    equally spaced), shape (nodes kept, items), of any positive scale (powered counts too).

    The proposal is made in (a, d), where the log density is concave.  Where the mode is at least a
    standard deviation above a = 0, it is a bivariate t with its curvature, and a proposal below 0
    is refused; elsewhere an exponential in a, whose rate is that of the density at a = 0, and a t
    in d about the line on which d follows a.  Both have heavier tails than the density.  Neither
    may depend on the current value, so the search for the mode starts at ``start`` (a, d), which
    the caller keeps fixed.  ``random`` holds uniforms, shape (items, WORDS_PER_ITEM); ``prior`` is
    :meth:`irt_dask.models.ItemPrior.tempered`.
    """
    counts = [np.ascontiguousarray(x.T, dtype=float) for x in (right, seen)]
    _metropolis(counts[0], counts[1], node, nodes, prior, *start, random, log_a, d, accepted)


# --- Gibbs: moves along the scale of ability ------------------------------------------------------

#: Uniforms that :func:`rescale` needs.
WORDS_PER_RESCALE = 5


@jit
def _log_stretch(v: float, n: float, s2: float, prior: Floats, aa: float, sa: float) -> float:
    """Log density of v = log s on the orbit; ``n`` is the number of persons less that of items."""
    e = math.exp(v)
    return -n * v - 0.5 * s2 / (e * e) - 0.5 * prior[1] * (aa * e * e - 2.0 * prior[0] * sa * e)


@jit
def _rescale(
    n: float, s1: float, s2: float, prior: Floats, random: Floats, signed: bool, slopes: Floats,
    d: Floats,
) -> None:  # fmt: skip
    aa = sa = ad = 0.0
    for j in range(d.size):
        a = slopes[j] if signed else math.exp(slopes[j])
        aa += a * a
        sa += a
        ad += a * (d[j] - prior[2])
    # Shift: sum of -(theta_i - m)^2 / 2 and of the intercepts' normal priors: normal in m.
    precision = n + prior[3] * aa
    z = math.sqrt(-2.0 * math.log(random[0])) * math.cos(2.0 * math.pi * random[1])
    shift = (s1 - prior[3] * ad) / precision + z / math.sqrt(precision)
    for j in range(d.size):
        d[j] += (slopes[j] if signed else math.exp(slopes[j])) * shift
    s2 += n * shift * shift - 2.0 * shift * s1
    # Stretch: in v = log s the density has the Jacobian exp((items - n) v); one independence
    # Metropolis-Hastings step with a normal at its mode.
    n -= d.size
    mode, curvature = 0.0, 1.0
    for _ in range(50):
        e = math.exp(mode)
        slope = s2 / (e * e) - n - prior[1] * (aa * e * e - prior[0] * sa * e)
        more = max(2.0 * aa * e * e - prior[0] * sa * e, 0.0)
        curvature = 2.0 * s2 / (e * e) + prior[1] * more + 1e-12
        step = max(-1.0, min(1.0, slope / curvature))
        mode += step
        if abs(step) < 1e-12:
            break
    z = math.sqrt(-2.0 * math.log(random[2])) * math.cos(2.0 * math.pi * random[3])
    v = mode + z / math.sqrt(curvature)
    log_ratio = _log_stretch(v, n, s2, prior, aa, sa) - _log_stretch(0.0, n, s2, prior, aa, sa)
    log_ratio += 0.5 * z * z - 0.5 * curvature * mode * mode
    if math.log(random[4]) < log_ratio:
        for j in range(d.size):
            slopes[j] = slopes[j] * math.exp(v) if signed else slopes[j] + v


def rescale(
    persons: Ints, nodes: Floats, prior: Floats, random: Floats, slope: Floats, d: Floats,
    *, signed: bool = False,
) -> None:  # fmt: skip
    """Shift and stretch the ability scale together with the items, in place.

    ``theta' = theta - m, d' = d + a m`` and ``theta' = theta / s, a' = a s`` leave the likelihood
    alone, but drawing abilities and items in turn moves along them only slowly (by about one minus
    the test's reliability per sweep).  m and s are drawn from their conditionals on the orbit of
    the group (Liu and Sabatti 2000, generalised Gibbs sampling), which need only the number, sum
    and sum of squares of the abilities, here of all persons, ``persons`` at each node.  The moved
    abilities are not kept: the next sweep draws them anew.  ``slope`` are log a; ``signed``, a.
    """
    n, s1, s2 = float(persons.sum()), float(persons @ nodes), float(persons @ nodes**2)
    _rescale(n, s1, s2, prior, random, signed, slope, d)
