"""Does an item work in a group as in the others?  Distances of curves, and tests of parameters.

The test of item j in group g: the score of the item's own parameters over the group's persons, less
what the group's mean and SD explain of it, against its variance when the common parameters come
from the other groups that agree about the item: ``V_g + V_g (sum V)^-1 V_g``, V being the
information of a group.  Of a pair that is freed the difference of its parameters from the common
ones is tested by the same information.  Errors of other items are left out: they are of the order
of an item's share of a group's information on ability, which the mean and the SD have taken out
already.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import chdtrc, chdtri

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.calibrate.concurrent.in_groups import distances, known
from irt_dask.calibrate.concurrent.outliers import Among, agreeing
from irt_dask.calibrate.concurrent.residual_sums import Setting, Sums

#: Responses of a group to an item, and to each of its lowest and highest category, from which on
#: the item is tested there.
FEW, FEW_AT_AN_END = 30, 5
#: Or so many that the item's parameters let expect in the lowest and highest category.
EXPECTED_AT_AN_END = 10.0


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
    #: Groups that others are tested against, which are not to be freed.
    agree: Bools


def compare(
    sums: list[Sums], setting: Setting, freed: Bools, own: Bools, x: Floats, rate: float | None
) -> Pairs:
    """Distances and tests; ``own`` are the parameters that are tested, (parameters, items).

    ``x`` are the parameters of the fitted items, (parameters, fitted items).  Each group is tested
    against those that agree about the item, at this ``rate`` of false alarms (None: against all
    that have it in common).
    """
    n = np.stack([s.n.sum(axis=0) for s in sums])
    size = setting.n_parameters
    tested = own[:size].T.astype(float)
    parts = [known(s, setting, g, tested) for g, s in enumerate(sums)]
    moved = x[:size, setting.columns] - x[:size, None, setting.common]
    among = Among.of(parts, freed, moved.transpose(1, 2, 0) * tested, tested)
    common, enough = (n > 0) & ~freed, _enough(sums, setting)
    df = tested.sum(axis=1).astype(np.int64)
    apart = [
        distances(s, setting, g, of, common[g], among.errors(common))
        for g, (s, of) in enumerate(zip(sums, parts, strict=True))
    ]
    rmsd, expected, md = (np.array([d[k] for d in apart]) for k in range(3))
    agree = common
    if rate is not None:

        def critical(found: Floats) -> Floats:
            p = np.where(enough, chdtrc(np.maximum(df, 1), found), np.nan)
            level = np.max(p, where=adjusted(p) <= rate, initial=0.0)
            return np.asarray(chdtri(np.maximum(df, 1), level))

        agree = agreeing(among, common & enough, critical) | (common & ~enough)
    statistic = np.where(enough, among.statistics(agree), np.nan)
    with np.errstate(invalid="ignore"):
        p = np.where(df > 0, chdtrc(np.maximum(df, 1), statistic), np.nan)
    left = np.sqrt(np.maximum(rmsd**2 - expected**2, 0.0))
    return Pairs(n, rmsd, expected, left, md, statistic, df, p, adjusted(p), enough, agree)


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
    """Pairs with as many responses as the tests need.

    Where nobody is in a category that many are expected in (an item that all have right, since it
    was given away there), that is what a test is for.
    """
    highest = setting.items.n_categories[setting.common] - 1
    at = np.arange(highest.size)
    out = []
    for s, columns in zip(sums, setting.columns, strict=True):
        seen = s.counts.sum(axis=0)
        expected = (seen * np.exp(setting.tables.log_p[:, columns])).sum(axis=-1)
        ends = [(s.n[k, at] >= FEW_AT_AN_END) | (expected[k, at] >= EXPECTED_AT_AN_END)
                for k in (0, highest)]  # fmt: skip
        out.append((s.n.sum(axis=0) >= FEW) & ends[0] & ends[1])
    return np.stack(out)
