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

from irt_dask.kernels.compiled import jit

Floats = NDArray[np.float64]

#: Degrees of freedom of the proposal of the Gibbs item step; its tails bound the weights.
_PROPOSAL_DF = 10
#: Random words an item needs per step: two normals, the proposal's chi-square, the acceptance.
WORDS_PER_ITEM = 2 + _PROPOSAL_DF // 2 + 1


@jit
def log_likelihood(right: Floats, seen: Floats, nodes: Floats, a: float, d: float) -> float:
    """Log-likelihood of one item at slope ``a`` and intercept ``d``."""
    total = 0.0
    for q in range(nodes.size):
        if seen[q] > 0.0:
            z = a * nodes[q] + d
            total += right[q] * z - seen[q] * (max(z, 0.0) + math.log1p(math.exp(-abs(z))))
    return total


@jit
def _derivatives(
    right: Floats, seen: Floats, nodes: Floats, a: float, d: float
) -> tuple[float, float, float, float, float, float]:
    """Log-likelihood of one item, its gradient (a, d) and negative Hessian (aa, ad, dd)."""
    total = ga = gd = haa = had = hdd = 0.0
    for q in range(nodes.size):
        if seen[q] > 0.0:
            z = a * nodes[q] + d
            e = math.exp(-abs(z))
            total += right[q] * z - seen[q] * (max(z, 0.0) + math.log1p(e))
            large = 1.0 / (1.0 + e)
            p = large if z >= 0.0 else e * large
            residual = right[q] - seen[q] * p
            w = seen[q] * e * large * large
            ga += residual * nodes[q]
            gd += residual
            haa += w * nodes[q] * nodes[q]
            had += w * nodes[q]
            hdd += w
    return total, ga, gd, haa, had, hdd


@jit
def _pack(
    right: Floats, seen: Floats, nodes: Floats, packed: Floats
) -> tuple[Floats, Floats, Floats]:
    """Counts and abilities of the nodes with responses to one item."""
    n = 0
    for q in range(nodes.size):
        if seen[q] > 0.0:
            packed[0, n], packed[1, n], packed[2, n] = right[q], seen[q], nodes[q]
            n += 1
    return packed[0, :n], packed[1, :n], packed[2, :n]


def _by_item(right: NDArray[Any], seen: NDArray[Any]) -> tuple[Floats, Floats]:
    return np.ascontiguousarray(right.T, dtype=float), np.ascontiguousarray(seen.T, dtype=float)


# --- Gibbs: an exact Metropolis-Hastings step -----------------------------------------------------


@jit
def _log_target(
    right: Floats, seen: Floats, nodes: Floats, prior: Floats, u: float, d: float
) -> float:
    """Log posterior density of (log a, d); the Jacobian of a = e^u adds u."""
    a = math.exp(u)
    return (
        log_likelihood(right, seen, nodes, a, d)
        - 0.5 * prior[1] * (a - prior[0]) ** 2
        - 0.5 * prior[3] * (d - prior[2]) ** 2
        + u
    )


@jit
def _log_target_derivatives(
    right: Floats, seen: Floats, nodes: Floats, prior: Floats, u: float, d: float
) -> tuple[float, float, float, float, float, float]:
    """Value (:func:`_log_target`), gradient and negative Hessian in (log a, d)."""
    a = math.exp(u)
    total, ga, gd, haa, had, hdd = _derivatives(right, seen, nodes, a, d)
    value = total - 0.5 * prior[1] * (a - prior[0]) ** 2 - 0.5 * prior[3] * (d - prior[2]) ** 2 + u
    ga -= prior[1] * (a - prior[0])
    gd -= prior[3] * (d - prior[2])
    haa += prior[1]
    hdd += prior[3]
    # Chain rule for u = log a: d/du = a d/da, d2/du2 = a^2 d2/da2 + a d/da.
    return value, a * ga + 1.0, gd, a * a * haa - a * ga, a * had, hdd


@jit
def _mode(
    right: Floats, seen: Floats, nodes: Floats, prior: Floats, u: float, d: float
) -> tuple[float, float, float, float, float]:
    """Mode of (log a, d) and a positive definite curvature there (uu, ud, dd).

    A deterministic function of the counts and the start: the step below is exact even where this
    search stops early.
    """
    value, gu, gd, huu, hud, hdd = _log_target_derivatives(right, seen, nodes, prior, u, d)
    for _ in range(30):
        huu = max(huu, hud * hud / hdd + 0.25)  # at least the curvature of a flat direction
        det = huu * hdd - hud * hud
        step_u, step_d = (hdd * gu - hud * gd) / det, (huu * gd - hud * gu) / det
        # Within a thousandth of the posterior's own width the proposal is as good as it gets.
        small = gu * step_u + gd * step_d < 1e-6
        size = min(1.0, 2.0 / max(abs(step_u), abs(step_d), 1e-300))
        moved = False
        for _ in range(20):
            nu, nd = u + size * step_u, d + size * step_d
            at = _log_target_derivatives(right, seen, nodes, prior, nu, nd)
            if at[0] >= value:
                moved = True
                break
            size *= 0.5
        if not moved:
            break
        u, d = nu, nd
        value, gu, gd, huu, hud, hdd = at
        if small:
            break
    return u, d, max(huu, hud * hud / hdd + 0.25), hud, hdd


@jit
def _log_proposal(du: float, dd: float, huu: float, hud: float, hdd: float, df: float) -> float:
    """Log density, up to a constant, of the bivariate t about the mode."""
    return (
        -0.5 * (df + 2.0) * math.log1p((du * du * huu + 2.0 * du * dd * hud + dd * dd * hdd) / df)
    )


@jit
def _metropolis(
    right: Floats,
    seen: Floats,
    nodes: Floats,
    prior: Floats,
    start_u: Floats,
    start_d: Floats,
    random: Floats,
    u: Floats,
    d: Floats,
    accepted: NDArray[np.int64],
) -> None:
    df = 2.0 * (random.shape[1] - 3)
    packed = np.empty((3, nodes.size))
    for j in range(u.size):
        r, s, x = _pack(right[j], seen[j], nodes, packed)
        mu, md, huu, hud, hdd = _mode(r, s, x, prior, start_u[j], start_d[j])
        radius = math.sqrt(-2.0 * math.log(random[j, 0]))
        z1 = radius * math.cos(2.0 * math.pi * random[j, 1])
        z2 = radius * math.sin(2.0 * math.pi * random[j, 1])
        chi2 = 0.0
        for k in range(2, random.shape[1] - 1):
            chi2 -= 2.0 * math.log(random[j, k])
        stretch = math.sqrt(df / chi2)
        # Inverse of the curvature's Cholesky factor [[l11, 0], [l21, l22]], transposed, times z.
        l11 = math.sqrt(huu)
        l21 = hud / l11
        l22 = math.sqrt(hdd - l21 * l21)
        dd = stretch * z2 / l22
        du = stretch * z1 / l11 - l21 / l11 * dd
        log_ratio = (
            _log_target(r, s, x, prior, mu + du, md + dd)
            - _log_target(r, s, x, prior, u[j], d[j])
            + _log_proposal(u[j] - mu, d[j] - md, huu, hud, hdd, df)
            - _log_proposal(du, dd, huu, hud, hdd, df)
        )
        if math.log(random[j, random.shape[1] - 1]) < log_ratio:
            u[j] = mu + du
            d[j] = md + dd
            accepted[j] += 1


def metropolis(
    right: NDArray[Any],
    seen: NDArray[Any],
    nodes: Floats,
    prior: Floats,
    start: tuple[Floats, Floats],
    random: Floats,
    log_a: Floats,
    d: Floats,
    accepted: NDArray[np.int64],
) -> None:
    """One independence Metropolis-Hastings step for each item, in place.

    The proposal is a bivariate t with the mode and curvature of the item's conditional posterior of
    (log a, d) given the counts.  It must not depend on the current value, so its search starts at
    ``start``, which the caller keeps fixed.  ``random`` holds uniforms, shape
    (items, WORDS_PER_ITEM); ``prior`` is :meth:`irt_dask.models.ItemPrior.tempered`.
    """
    _metropolis(*_by_item(right, seen), nodes, prior, *start, random, log_a, d, accepted)


# --- Gibbs: moves along the scale of ability ------------------------------------------------------

#: Uniforms that :func:`rescale` needs.
WORDS_PER_RESCALE = 5


def rescale(
    persons: NDArray[np.int64],
    nodes: Floats,
    prior: Floats,
    random: Floats,
    log_a: Floats,
    d: Floats,
) -> None:
    """Shift and stretch the ability scale together with the items, in place.

    ``theta' = theta - m, d' = d + a m`` and ``theta' = theta / s, a' = a s`` leave the likelihood
    alone, but drawing abilities and items in turn moves along them only slowly (by about one minus
    the test's reliability per sweep).  m and s are drawn from their conditionals on the orbit of
    the group (Liu and Sabatti 2000, generalised Gibbs sampling), which need only the number, sum
    and sum of squares of the abilities, here of all persons, ``persons`` at each node.  The moved
    abilities are not kept: the next sweep draws them anew.
    """
    n = float(persons.sum())
    s1, s2 = float(persons @ nodes), float(persons @ nodes**2)
    a = np.exp(log_a)
    mean_a, tau_a, mean_d, tau_d = prior
    # Shift: sum of -(theta_i - m)^2 / 2 and of the intercepts' normal priors: normal in m.
    precision = n + tau_d * float(a @ a)
    centre = (s1 - tau_d * float(a @ (d - mean_d))) / precision
    z = math.sqrt(-2.0 * math.log(random[0])) * math.cos(2.0 * math.pi * random[1])
    shift = centre + z / math.sqrt(precision)
    d += a * shift
    s2 += n * shift * shift - 2.0 * shift * s1
    # Stretch: in v = log s the density has the Jacobian exp((items - n) v); one independence
    # Metropolis-Hastings step with a normal at its mode.
    aa, sa = float(a @ a), float(a.sum())

    def log_density(v: float) -> float:
        e = math.exp(v)
        return (
            (a.size - n) * v - 0.5 * s2 / (e * e) - 0.5 * tau_a * (aa * e * e - 2 * mean_a * sa * e)
        )

    mode, curvature = 0.0, 1.0
    for _ in range(50):
        e = math.exp(mode)
        slope = s2 / (e * e) + a.size - n - tau_a * (aa * e * e - mean_a * sa * e)
        curvature = (
            2.0 * s2 / (e * e) + tau_a * max(2.0 * aa * e * e - mean_a * sa * e, 0.0) + 1e-12
        )
        step = max(-1.0, min(1.0, slope / curvature))
        mode += step
        if abs(step) < 1e-12:
            break
    z = math.sqrt(-2.0 * math.log(random[2])) * math.cos(2.0 * math.pi * random[3])
    v = mode + z / math.sqrt(curvature)
    log_ratio = log_density(v) - log_density(0.0) + 0.5 * z * z - 0.5 * curvature * mode * mode
    if math.log(random[4]) < log_ratio:
        log_a += v
