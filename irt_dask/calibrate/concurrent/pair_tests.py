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
from irt_dask.calibrate.concurrent.in_groups import Known, distances, inverse, known
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
    chosen = own[: setting.n_parameters].T.astype(float)
    parts = [known(s, setting, g, chosen) for g, s in enumerate(sums)]
    among = _Among.of(parts, (n > 0) & ~freed, chosen)
    apart = [
        distances(s, setting, g, of, among.common[g], among.errors)
        for g, (s, of) in enumerate(zip(sums, parts, strict=True))
    ]
    rmsd, expected, md = (np.array([d[k] for d in apart]) for k in range(3))
    enough, df = _enough(sums, setting), chosen.sum(axis=1).astype(np.int64)
    statistic = np.where(enough, _statistics(among, setting, freed, x), np.nan)
    with np.errstate(invalid="ignore"):
        p = np.where(df > 0, chi2.sf(statistic, np.maximum(df, 1)), np.nan)
    left = np.sqrt(np.maximum(rmsd**2 - expected**2, 0.0))
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


class _Among(NamedTuple):
    """All groups: (groups, items, parameters, ...), and what the common parameters rest on."""

    score: Floats
    information: Floats
    variance: Floats
    common: Bools  # (groups, items)
    by_common: Floats  # inverse of the information of all groups that share an item
    of_common: Floats  # variance of their score
    chosen: Floats  # (items, parameters)

    @classmethod
    def of(cls, parts: list[Known], common: Bools, chosen: Floats) -> _Among:
        score, information, variance = (np.stack([o[k] for o in parts]) for k in range(3))
        some = common[:, :, None, None]
        total = (information * some).sum(axis=0) + _others(chosen)
        alone = _within(inverse(total), chosen)
        return cls(
            score, information, variance, common, alone, (variance * some).sum(axis=0), chosen
        )

    @property
    def errors(self) -> Floats:
        """Covariance of the common parameters, (items, parameters, parameters)."""
        return np.asarray(self.by_common @ self.of_common @ self.by_common)


def _others(chosen: Floats) -> Floats:
    """1 in the place of parameters that are not tested, so that these do no harm to inverses."""
    return np.asarray(np.eye(chosen.shape[1]) * (1.0 - chosen[:, :, None]))


def _within(a: Floats, chosen: Floats) -> Floats:
    """What is tested of a matrix alone."""
    return np.where(chosen[:, :, None] * chosen[:, None, :] > 0.0, a, 0.0)


def _statistics(a: _Among, setting: Setting, freed: Bools, x: Floats) -> Floats:
    """Chi-square of each pair, (groups, items); NaN where there is nothing to compare with."""
    size = setting.n_parameters
    others = _others(a.chosen)
    v, d, back = a.information, a.variance, a.information @ a.by_common
    crossed = back @ d
    left = d - crossed - crossed.swapaxes(2, 3) + back @ a.of_common @ back.swapaxes(2, 3)
    in_common = _quadratic(a.score, left + others)
    mine = _within(inverse(v + others), a.chosen)
    moved = x[:size, setting.columns] - x[:size, None, setting.common]
    moved = moved.transpose(1, 2, 0) * a.chosen
    of_own = _quadratic(moved, mine @ d @ mine + a.errors + others)
    rest = a.common.sum(axis=0) - a.common
    return np.where(rest < 1, np.nan, np.where(freed, of_own, in_common))


def _quadratic(x: Floats, a: Floats) -> Floats:
    """``x' a^-1 x`` of each pair; NaN where a is no covariance."""
    out = np.einsum("...p,...pq,...q->...", x, inverse(a), x)
    return np.where(out >= 0.0, out, np.nan)
