"""Does an item work in a group as in the others?  Distances of curves, and tests of parameters.

The test of item j in group g: the score of the item's own parameters over the group's persons, less
what the group's mean and SD explain of it, against its variance when the common parameters come
from the other groups that agree about the item: ``V_g + V_g (sum V)^-1 V_g``, V being the
information of a group.  Of a pair that is freed the difference of its parameters from the common
ones is tested by the same information.  Errors of other items are left out: they are of the order
of an item's share of a group's information on ability, which the mean and the SD have taken out
already.  Of a set of groups, whose persons are independent, scores, informations and variances are
sums: it is tested as a group is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import chdtrc, chdtri

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.calibrate.concurrent.in_groups import Curves, Known, distances, known
from irt_dask.calibrate.concurrent.outliers import Among, agreeing
from irt_dask.calibrate.concurrent.residual_sums import Setting, Sums
from irt_dask.calibrate.concurrent.sets import Sets

#: Responses of a group to an item, and to each of its lowest and highest category, from which on
#: the item is tested there.
FEW, FEW_AT_AN_END = 30, 5
#: Or so many that the item's parameters let expect in the lowest and highest category.
EXPECTED_AT_AN_END = 10.0


class Apart(NamedTuple):
    """Responses, and how far curves are from the common ones, (groups or sets, items)."""

    n: Ints
    rmsd: Floats
    #: Root of the mean square that chance makes of the RMSD.
    expected: Floats
    #: What is left of the RMSD without it.
    corrected: Floats
    md: Floats

    @classmethod
    def of(cls, n: Ints, rmsd: Floats, expected: Floats, md: Floats) -> Apart:
        """With what is left of the RMSD."""
        left = np.sqrt(np.maximum(rmsd**2 - expected**2, 0.0))
        return cls(n, rmsd, expected, left, md)


class Pairs(NamedTuple):
    """What is found of every item in every set of groups, or group, (sets, items)."""

    apart: Apart
    #: The same of each group.
    of_groups: Apart
    chi2: Floats
    df: Ints  # (items,)
    p_value: Floats
    q_value: Floats
    enough: Bools
    #: Sets that others are tested against, which are not to be freed.
    agree: Bools


def compare(
    sums: list[Sums], setting: Setting, freed: Bools, own: Bools, x: Floats, rate: float | None,
    sets: Sets,
) -> Pairs:  # fmt: skip
    """Distances and tests; ``own`` are the parameters that are tested, (parameters, items).

    ``x`` are the parameters of the fitted items, (parameters, fitted items); ``freed`` and what is
    tested are of ``sets``, (sets, items).  Each is tested against those that agree about the item,
    at this ``rate`` of false alarms (None: against all that have it in common).
    """
    size = setting.n_parameters
    tested = own[:size].T.astype(float)
    of_groups = [known(s, setting, g, tested) for g, s in enumerate(sums)]
    parts = [Known.together([of_groups[g] for g in own_groups]) for own_groups in sets.members]
    moved = x[:size, setting.columns[sets.first]] - x[:size, None, setting.common]
    among = Among.of(parts, freed, moved.transpose(1, 2, 0) * tested, tested)
    each, apart = _apart(sums, setting, of_groups, freed, among, sets)
    common, enough = (apart.n > 0) & ~freed, _enough(sums, setting, sets)
    df = tested.sum(axis=1).astype(np.int64)
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
    return Pairs(apart, each, statistic, df, p, adjusted(p), enough, agree)


def _apart(
    sums: list[Sums], setting: Setting, of_groups: list[Known], freed: Bools, among: Among,
    sets: Sets,
) -> tuple[Apart, Apart]:  # fmt: skip
    """Distances of groups, and of sets."""
    n = np.stack([s.n.sum(axis=0) for s in sums])
    of_sets = np.stack([n[own].sum(axis=0) for own in sets.members])
    errors = among.errors((of_sets > 0) & ~freed)
    groups: dict[int, tuple[Floats, ...]] = {}
    found = []
    for k, own in enumerate(sets.members):
        curves = {g: Curves.of(sums[g], setting, g, of_groups[g]) for g in own.tolist()}
        common = (n > 0) & ~freed[k]
        for g, curve in curves.items():
            groups[g] = distances(curve, setting, common[g], errors)
        together = Curves.together([*curves.values()])
        found.append(distances(together, setting, (of_sets[k] > 0) & ~freed[k], errors))
    each = [np.array([groups[g][i] for g in range(len(sums))]) for i in range(3)]
    return Apart.of(n, *each), Apart.of(of_sets, *(np.array(x) for x in zip(*found, strict=True)))


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


def _enough(sums: list[Sums], setting: Setting, sets: Sets) -> Bools:
    """Pairs with as many responses as the tests need, (sets, items).

    Where nobody is in a category that many are expected in (an item that all have right, since it
    was given away there), that is what a test is for.
    """
    highest = setting.items.n_categories[setting.common] - 1
    at = np.arange(highest.size)
    each = []
    for s, columns in zip(sums, setting.columns, strict=True):
        seen = s.counts.sum(axis=0)
        each.append((seen * np.exp(setting.tables.log_p[:, columns])).sum(axis=-1))
    out = []
    for own in sets.members:
        n = np.sum([sums[g].n for g in own], axis=0)
        expected = np.sum([each[g] for g in own], axis=0)
        ends = [(n[k, at] >= FEW_AT_AN_END) | (expected[k, at] >= EXPECTED_AT_AN_END)
                for k in (0, highest)]  # fmt: skip
        out.append((n.sum(axis=0) >= FEW) & ends[0] & ends[1])
    return np.stack(out)
