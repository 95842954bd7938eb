"""Does an item work in a group as in the others?  Distances of curves, and tests of parameters.

The test of item j in group g: the score of the item's own parameters over the group's persons, less
what the group's mean and SD explain of it, against its variance when the common parameters come
from all groups in which the item is common: ``V_g - V_g (sum V)^-1 V_g``, V being the information
of a group.  Of a pair that is freed the difference of its parameters from the common ones is tested
by the same information.  Errors of other items are left out: they are of the order of an item's
share of a group's information on ability, which the mean and the SD have taken out already.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import chi2

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.calibrate.concurrent.residual_sums import Setting, Sums

#: Responses of a group to an item, and to each of its lowest and highest category, from which on
#: the item is tested there.
FEW, FEW_AT_AN_END = 30, 5


class Pairs(NamedTuple):
    """What is found of every item in every group, (groups, items)."""

    n: Ints
    rmsd: Floats
    #: Root of the mean square that chance makes of the RMSD.
    expected: Floats
    #: What is left of the RMSD without it.
    corrected: Floats
    md: Floats
    chi2: Floats
    df: Ints  # (items,)
    p_value: Floats
    q_value: Floats
    enough: Bools


def compare(sums: list[Sums], setting: Setting, freed: Bools, own: Bools, x: Floats) -> Pairs:
    """Distances and tests; ``own`` are the parameters that are tested, (parameters, items).

    ``x`` are the parameters of the fitted items, (parameters, fitted items).
    """
    n = np.stack([s.n.sum(axis=0) for s in sums])
    distances = [_apart(s, setting, g) for g, s in enumerate(sums)]
    rmsd, expected, md = (np.array([d[k] for d in distances]) for k in range(3))
    left = np.sqrt(np.maximum(rmsd**2 - expected**2, 0.0))
    enough = _enough(sums, setting)
    statistic, df = _statistics(sums, setting, freed, own, x, n > 0)
    statistic = np.where(enough, statistic, np.nan)
    with np.errstate(invalid="ignore"):
        p = np.where(df > 0, chi2.sf(statistic, np.maximum(df, 1)), np.nan)
    return Pairs(n, rmsd, expected, left, md, statistic, df, p, adjusted(p), enough)


def adjusted(p: Floats) -> Floats:
    """Benjamini and Hochberg's q-values; NaN stay out."""
    q, some = np.full(p.shape, np.nan), np.isfinite(p)
    values = p[some]
    if not values.size:
        return q
    order = np.argsort(values)
    ranked = values[order] * values.size / np.arange(1, values.size + 1)
    ranked = np.minimum.accumulate(ranked[::-1])[::-1]
    out = np.empty_like(values)
    out[order] = np.minimum(ranked, 1.0)
    q[some] = out
    return q


def _enough(sums: list[Sums], setting: Setting) -> Bools:
    """Pairs with as many responses as the tests need."""
    highest = setting.items.n_categories[setting.common] - 1
    at = np.arange(highest.size)
    return np.stack([
        (s.n.sum(axis=0) >= FEW) & (np.minimum(s.n[0], s.n[highest, at]) >= FEW_AT_AN_END)
        for s in sums
    ])  # fmt: skip


def _apart(s: Sums, setting: Setting, g: int) -> tuple[Floats, Floats, Floats]:
    """RMSD from the common curve, the root of what is expected of its square, and MD."""
    expected = setting.tables.expected[setting.common]
    seen = s.counts.sum(axis=0)
    score = np.tensordot(np.arange(len(s.counts)), s.counts, axes=1)
    mass = np.exp(setting.log_mass[g])
    with np.errstate(divide="ignore", invalid="ignore"):
        observed, noise = score / seen, s.noise / seen**2
    some = np.isfinite(observed) & np.isfinite(noise)
    weight = np.where(some, mass, 0.0)
    difference = np.where(some, observed - expected, 0.0)
    with np.errstate(invalid="ignore"):
        weight = weight / weight.sum(axis=1, keepdims=True)
    return (
        np.sqrt((weight * difference**2).sum(axis=1)),
        np.sqrt((weight * np.where(some, noise, 0.0)).sum(axis=1)),
        (weight * difference).sum(axis=1),
    )


class _Of(NamedTuple):
    """Score of each item in a group, its information, and its variance."""

    score: Floats
    information: Floats
    variance: Floats


def _in_group(s: Sums, setting: Setting, g: int) -> _Of:
    """Score and information of the items in a group, the mean and the SD taken out."""
    solve = np.linalg.pinv(s.spread)
    taken = s.mixed @ solve  # (items, parameters, 2)
    score = s.score - taken @ s.ability
    information = s.products + _beyond_products(s, setting, g)
    information = information - taken @ s.mixed.transpose(0, 2, 1)
    if not s.squares:
        return _Of(score, information, information)
    products, mixed, spread = s.squares
    back = taken @ mixed.transpose(0, 2, 1)
    variance = products - back - back.transpose(0, 2, 1)
    return _Of(score, information, variance + taken @ spread @ taken.transpose(0, 2, 1))


def _beyond_products(s: Sums, setting: Setting, g: int) -> Floats:
    """Expected less realised information of who is known by ability (Louis 1982).

    Its expectation is 0; with it the products of scores vary far less by chance.
    """
    t, columns = setting.tables, setting.columns[g]
    slope, p = t.slope[:, :, columns], np.exp(t.log_p[:, columns])
    seen = s.counts.sum(axis=0)
    more = seen * p - s.counts  # (categories, items, nodes)
    return np.einsum("pkjq,rkjq,kjq->jpr", slope, slope, more, optimize=True)


def _statistics(
    sums: list[Sums], setting: Setting, freed: Bools, own: Bools, x: Floats, there: Bools
) -> tuple[Floats, Ints]:
    """Chi-square of each pair, (groups, items), and its degrees of freedom, (items,)."""
    parts = [_in_group(s, setting, g) for g, s in enumerate(sums)]
    score, information, variance = (np.stack([o[k] for o in parts]) for k in range(3))
    size = setting.n_parameters
    own = own[:size].T
    both = own[:, :, None] & own[:, None, :]
    information, variance = information * both, variance * both
    one = np.eye(size) * ~own[:, :, None]  # parameters that are not tested do no harm
    common = (there & ~freed)[:, :, None, None]
    total = (information * common).sum(axis=0)
    inverse = _inverse(total + one)
    v, d = information, variance
    of_rest = (d * common).sum(axis=0)
    carried = v @ inverse
    here = d - carried @ d - (carried @ d).swapaxes(2, 3) + carried @ of_rest @ carried.swapaxes(2, 3)
    chi_common = _quadratic(score * own, here + one)
    mine = _inverse(v + one)
    moved = (x[:size, setting.columns] - x[:size, None, setting.common]).transpose(1, 2, 0) * own
    apart = mine @ d @ mine + inverse @ of_rest @ inverse
    chi_freed = _quadratic(moved, np.where(both, apart, 0.0) + one)
    alone = common[:, :, 0, 0].sum(axis=0) - (common[:, :, 0, 0]) < 1
    out = np.where(freed, chi_freed, chi_common)
    return np.where(alone | ~there, np.nan, out), own.sum(axis=1)


def _inverse(a: Floats) -> Floats:
    """Inverse of each matrix; NaN where one has none."""
    with np.errstate(all="ignore"):
        good = np.isfinite(a).all(axis=(-2, -1))
        good &= np.linalg.cond(np.where(good[..., None, None], a, np.eye(a.shape[-1]))) < 1e12
    out = np.linalg.inv(np.where(good[..., None, None], a, np.eye(a.shape[-1])))
    return np.where(good[..., None, None], out, np.nan)


def _quadratic(x: Floats, a: Floats) -> Floats:
    """``x' a^-1 x`` of each pair; NaN where a is no covariance."""
    inverse = _inverse(a)
    out = np.einsum("...p,...pq,...q->...", x, inverse, x)
    return np.where(out >= 0.0, out, np.nan)
