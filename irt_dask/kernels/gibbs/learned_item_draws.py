"""The Gibbs item step under a joint normal prior of (log a, d), or of (a, d) if a may be negative.

As in :mod:`irt_dask.kernels.gibbs.item_draws` an item's likelihood needs its counts on the ability
axis alone; here the prior is ``x ~ N(mean, precision^-1)`` with ``x = (log a, d)``, of ``signed``
slopes ``x = (a, d)``, and the step is made in these coordinates.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irt_dask.arrays import Floats, Ints
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.gibbs.item_draws import WORDS_PER_ITEM as _WORDS_OF_T
from irt_dask.kernels.gibbs.item_draws import _derivatives, _log_target, _pack, _stretch

#: Random words an item needs per step: those of a t proposal, and which proposal is made.
WORDS_PER_ITEM = _WORDS_OF_T + 1
#: Share of proposals from the prior, which bounds the weights whatever the likelihood is like.
_FROM_PRIOR = 0.02
#: The mode is near enough when a step has this squared length, in posterior standard deviations.
_NEAR = 1e-3
_MOST_STEPS = 60
#: See :func:`metropolis`: all slopes are positive.
ALL_POSITIVE = np.empty(0)
#: A Hessian is taken where its determinant is this share of the product of its diagonal.
_LEAST_DETERMINANT = 0.05


class Normals(NamedTuple):
    """Normal priors of items.

    ``mean`` (items, 2), and by group ``precision`` (groups, 2, 2) and ``beyond`` (groups, 2): from
    which distance of log a from its mean on there is a further precision, and that; ``group``
    (items,) is whose an item has.
    """

    mean: Floats
    precision: Floats
    beyond: Floats
    group: Ints

    @classmethod
    def of_one(
        cls, mean: Floats, precision: NDArray[Any], n_items: int,
        beyond: tuple[float, float] = (math.inf, 0.0),
    ) -> Normals:  # fmt: skip
        """The same prior for all items."""
        means = np.empty((n_items, 2))
        means[:] = mean
        one = np.ascontiguousarray(precision, dtype=float)[None]
        return cls(means, one, np.array([beyond]), np.zeros(n_items, dtype=np.int64))


@jit
def slope_at(u: float, signed: bool) -> float:
    """Slope at its coordinate: itself where it may have any sign, else its logarithm."""
    return u if signed else math.exp(u)


@jit
def _outside(v: float, limit: float) -> float:
    """How far v lies beyond -limit or limit, with its sign."""
    return max(v - limit, 0.0) + min(v + limit, 0.0)


@jit
def _curvatures(
    r: Floats, s: Floats, x: Floats, step: Floats, h: float, mean: Floats, precision: Floats,
    beyond: tuple[float, float], signed: bool, u: float, d: float, odds: Floats,
) -> tuple[float, float, float, float, float, float]:  # fmt: skip
    """Gradient in (u, d), expected information (uu, ud, dd), and what is observed less of uu.

    ``u = log a``: that is a times the slope in a.
    """
    a = slope_at(u, signed)
    ga, gd, haa, had, hdd = _derivatives(r, s, x, step, h, np.zeros(4), a, d, odds)
    bend, by_u = (0.0, 1.0) if signed else (a * ga, a)
    from_u, from_d = u - mean[0], d - mean[1]
    gu = by_u * ga - precision[0, 0] * from_u - precision[0, 1] * from_d
    gd -= precision[0, 1] * from_u + precision[1, 1] * from_d
    huu = by_u * by_u * haa + precision[0, 0]
    out = _outside(from_u, beyond[0])
    if out != 0.0:
        gu -= beyond[1] * out
        huu += beyond[1]
    return (
        gu, gd, huu, by_u * had + precision[0, 1], hdd + precision[1, 1],
        bend,
    )  # fmt: skip


@jit
def _mode(
    r: Floats, s: Floats, x: Floats, step: Floats, h: float, mean: Floats, precision: Floats,
    beyond: tuple[float, float], signed: bool, u: float, d: float, odds: Floats,
) -> tuple[float, float, float, float, float]:  # fmt: skip
    """Mode of (u, d), or near it, and the curvature (uu, ud, dd) there.

    Steps of Newton where the density is surely concave, of Fisher scoring elsewhere, halved while
    they lengthen the next one.  A deterministic function of counts, prior and start: the step that
    uses it is exact wherever this search ends.
    """
    from_u, from_d, size, length = u, d, 1.0, math.inf
    step_u = step_d = 0.0
    huu, hud, hdd, slope = 1.0, 0.0, 1.0, 0.0
    for _ in range(_MOST_STEPS):
        gu, gd, huu, hud, hdd, slope = _curvatures(
            r, s, x, step, h, mean, precision, beyond, signed, u, d, odds
        )
        newton = huu - min(slope, 0.0)
        det = newton * hdd - hud * hud
        new_u, new_d = (hdd * gu - hud * gd) / det, (newton * gd - hud * gu) / det
        new = gu * new_u + gd * new_d
        if new > length and size > 1e-4:
            size *= 0.5
            u, d = from_u + size * step_u, from_d + size * step_d
            continue
        from_u, from_d, step_u, step_d, length = u, d, new_u, new_d, new
        if length < _NEAR:
            break
        size = min(1.0, 1.0 / max(abs(step_u), abs(step_d), 1e-300))
        u, d = from_u + size * step_u, from_d + size * step_d
    observed = huu - slope
    if observed * hdd - hud * hud > _LEAST_DETERMINANT * huu * hdd:
        huu = observed
    return u, d, huu, hud, hdd


@jit
def _log_mixture(
    u: float, d: float, centre: tuple[float, float], huu: float, hud: float, hdd: float, df: float,
    mean: Floats, precision: Floats,
) -> float:  # fmt: skip
    """Log density of the proposals, times 2 pi: a t about the mode, and now and then the prior."""
    v, w = u - centre[0], d - centre[1]
    distance = huu * v * v + 2.0 * hud * v * w + hdd * w * w
    near = math.sqrt(huu * hdd - hud * hud) * (1.0 + distance / df) ** (-0.5 * (df + 2.0))
    v, w = u - mean[0], d - mean[1]
    puu, pud, pdd = precision[0, 0], precision[0, 1], precision[1, 1]
    distance = puu * v * v + 2.0 * pud * v * w + pdd * w * w
    far = math.sqrt(puu * pdd - pud * pud) * math.exp(-0.5 * distance)
    return math.log((1.0 - _FROM_PRIOR) * near + _FROM_PRIOR * far)


@jit
def _log_density(
    r: Floats, s: Floats, x: Floats, step: Floats, h: float, mean: Floats, precision: Floats,
    beyond: tuple[float, float], signed: bool, u: float, d: float, odds: Floats,
) -> float:  # fmt: skip
    """Log posterior density of (u, d) given the counts, up to a constant."""
    v, w = u - mean[0], d - mean[1]
    prior = precision[0, 0] * v * v + 2.0 * precision[0, 1] * v * w + precision[1, 1] * w * w
    out = _outside(v, beyond[0])
    if out != 0.0:
        prior += beyond[1] * out * out
    a = slope_at(u, signed)
    return _log_target(r, s, x, step, h, np.zeros(4), a, d, odds) - 0.5 * prior


@jit
def _metropolis(
    right: Floats, seen: Floats, node: Ints, nodes: Floats, means: Floats, precisions: Floats,
    ends: Floats, group: Ints, start_u: Floats, start_d: Floats, random: Floats, towards: Floats,
    slope: Floats, d: Floats, accepted: Ints,
) -> None:  # fmt: skip
    h, signed = nodes[1] - nodes[0], towards.size > 0
    packed, odds = np.empty((4, node.size)), np.empty(node.size)
    agreement = (towards * slope[: towards.size]).sum()
    for j in range(slope.size):
        mean, precision = means[j], precisions[group[j]]
        beyond = (ends[group[j], 0], ends[group[j], 1])
        r, s, x, step = _pack(right[j], seen[j], node, nodes, packed)
        at_u, at_d, huu, hud, hdd = _mode(
            r, s, x, step, h, mean, precision, beyond, signed, start_u[j], start_d[j], odds
        )
        radius = math.sqrt(-2.0 * math.log(random[j, 0]))
        angle = 2.0 * math.pi * random[j, 1]
        one, two = radius * math.cos(angle), radius * math.sin(angle)
        if random[j, 2] < _FROM_PRIOR:
            c_u, c_d = mean[0], mean[1]
            puu, pud, pdd = precision[0, 0], precision[0, 1], precision[1, 1]
        else:
            stretch = _stretch(random[j, 3:-1])
            one, two = stretch * one, stretch * two
            c_u, c_d, puu, pud, pdd = at_u, at_d, huu, hud, hdd
        new_u = c_u + one / math.sqrt(puu - pud * pud / pdd)
        new_d = c_d + two / math.sqrt(pdd) - pud / pdd * (new_u - c_u)
        df = 2.0 * (random.shape[1] - 4)
        centre = (at_u, at_d)
        turned = agreement
        if signed:
            turned += towards[j] * (new_u - slope[j])
            if turned <= 0.0:
                continue
        log_ratio = _log_mixture(
            slope[j], d[j], centre, huu, hud, hdd, df, mean, precision
        ) - _log_mixture(new_u, new_d, centre, huu, hud, hdd, df, mean, precision)
        prior = (mean, precision, beyond, signed)
        log_ratio += _log_density(r, s, x, step, h, *prior, new_u, new_d, odds)
        log_ratio -= _log_density(r, s, x, step, h, *prior, slope[j], d[j], odds)
        if math.log(random[j, random.shape[1] - 1]) < log_ratio:
            slope[j], d[j], agreement = new_u, new_d, turned
            accepted[j] += 1


def metropolis(
    right: NDArray[Any], seen: NDArray[Any], node: Ints, nodes: Floats, prior: Normals,
    start: tuple[Floats, Floats], random: Floats, slope: Floats, d: Floats, accepted: Ints,
    towards: Floats = ALL_POSITIVE,
) -> None:  # fmt: skip
    """One independence Metropolis-Hastings step for each item, in place.

    ``right`` and ``seen`` are counts at the nodes ``node``, (nodes kept, items), of any positive
    scale; ``prior`` is of (log a, d).  The proposal is a bivariate t at the mode of the item's
    conditional density, with its curvature, and in one of fifty steps the normal prior: the ratio
    of target to proposal is bounded even where the likelihood hardly falls on one side, as for
    items without a slope.
    The search for the mode starts at ``start`` (log a, d), which the caller keeps fixed.
    ``random`` holds uniforms, shape (items, WORDS_PER_ITEM).

    All of this is of log a where slopes are positive.  Where ``towards`` is not empty they may have
    any sign, and ``slope``, ``start`` and ``prior`` are of a itself.  The density is
    then that of slopes with ``sum(towards a) > 0`` alone: of each solution
    and its mirror image, ``-a`` for all items, it holds one.
    """
    counts = [np.ascontiguousarray(x.T, dtype=float) for x in (right, seen)]
    _metropolis(*counts, node, nodes, *prior, *start, random, towards, slope, d, accepted)


@jit
def _modes(
    right: Floats, seen: Floats, nodes: Floats, means: Floats, precisions: Floats, group: Ints,
    signed: bool, x: Floats, at: Floats, covariance: Floats,
) -> None:  # fmt: skip
    h = nodes[1] - nodes[0]
    packed, odds = np.empty((4, nodes.size)), np.empty(nodes.size)
    node = np.arange(nodes.size)
    for j in range(at.shape[1]):
        r, s, theta, step = _pack(right[j], seen[j], node, nodes, packed)
        at[0, j], at[1, j], huu, hud, hdd = _mode(
            r, s, theta, step, h, means[j], precisions[group[j]], (np.inf, 0.0), signed, x[0, j],
            x[1, j], odds,
        )  # fmt: skip
        det = huu * hdd - hud * hud
        covariance[j, 0, 0], covariance[j, 1, 1] = hdd / det, huu / det
        covariance[j, 0, 1] = covariance[j, 1, 0] = -hud / det


def modes(
    right: Floats, seen: Floats, nodes: Floats, prior: Normals, start: Floats, *,
    signed: bool = False,
) -> tuple[Floats, Floats]:  # fmt: skip
    """Modes (2, items) of the items' conditional densities, and covariances (items, 2, 2) there.

    In (log a, d), or ``signed`` in (a, d); ``prior.beyond`` is left out.

    ``right`` and ``seen`` are counts (items, nodes) at equally spaced nodes; modes are found to a
    few hundredths of a posterior SD.
    """
    at, covariance = np.empty_like(start), np.empty((start.shape[1], 2, 2))
    of_prior = prior.mean, prior.precision, prior.group
    _modes(right, seen, nodes, *of_prior, signed, start, at, covariance)
    return at, covariance
