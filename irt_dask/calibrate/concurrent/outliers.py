"""Which groups agree about an item, and whether each of the groups agrees with those.

A group that differs much draws the common curve to itself, and the others then seem to differ too.
So the groups that an item's common parameters rest on are first cleared of those that differ most,
one step of Newton's method standing in for a new fit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from irt_dask.arrays import Bools, Floats
from irt_dask.calibrate.concurrent.in_groups import Known, inverse

#: Of the largest statistic of an item, so much has one that is cleared away with it.
_ALIKE = 0.5
#: Times that groups are cleared away, at most: each time one of each item at least.
_MOST = 200
#: Statistics that differ by rounding.
_ROUNDING = 1e-6


class Among(NamedTuple):
    """What all groups, or sets of them, say of the items, (groups, items, parameters, ...).

    ``pull`` is the information times the distance of the group's own parameters from the common
    ones: the score, where the group has the common ones.  ``tested`` (items, parameters) is 1 for
    what is tested.
    """

    pull: Floats
    information: Floats
    variance: Floats
    tested: Floats

    @classmethod
    def of(cls, parts: list[Known], freed: Bools, moved: Floats, tested: Floats) -> Among:
        """``moved`` is the distance of the parameters, (groups, items, parameters)."""
        score, information, variance = (np.stack([o[k] for o in parts]) for k in range(3))
        of_own = np.einsum("gjpq,gjq->gjp", information, moved)
        return cls(np.where(freed[:, :, None], of_own, score), information, variance, tested)

    def errors(self, common: Bools) -> Floats:
        """Covariance of the common parameters, (items, parameters, parameters)."""
        some = common[:, :, None, None]
        total = self._inverse((self.information * some).sum(axis=0))
        return np.asarray(total @ (self.variance * some).sum(axis=0) @ total)

    def statistics(self, common: Bools) -> Floats:
        """Chi-square of each group against the others among ``common``; NaN where there are none.

        That of a group alone, (groups, items), is ``r' Var(r)^-1 r`` with the remainder
        ``r = pull - V c``, c being the distance that the others have in the middle.
        """
        some = common[:, :, None, None]
        v, d = self.information * some, self.variance * some
        total, of_total = v.sum(axis=0) - v, d.sum(axis=0) - d
        pulled = self.pull * common[:, :, None]
        back = self._inverse(total)
        middle = np.einsum("gjpq,gjq->gjp", back, pulled.sum(axis=0) - pulled)
        left = self.pull - np.einsum("gjpq,gjq->gjp", self.information, middle)
        carried = self.information @ back
        spread = self.variance + carried @ of_total @ carried.swapaxes(2, 3)
        out = np.einsum("gjp,gjpq,gjq->gj", left, self._inverse(spread), left)
        rest = common.sum(axis=0) - common
        return np.where((out >= 0.0) & (rest > 0), out, np.nan)

    def _inverse(self, a: Floats) -> Floats:
        """Inverse of what is tested; 0 elsewhere."""
        others = np.eye(self.tested.shape[1]) * (1.0 - self.tested[:, :, None])
        both = self.tested[:, :, None] * self.tested[:, None, :] > 0.0
        return np.where(both, inverse(a + others), 0.0)


def agreeing(among: Among, common: Bools, critical: Callable[[Floats], Floats]) -> Bools:
    """Groups that agree about each item, (groups, items), of those that it has in common.

    One at least is left of each item that is common.  ``critical`` says of the statistics of all
    groups what, by item, is too large.  Of two groups that
    differ from each other the later one in the alphabet is cleared away.
    """
    common = common.copy()
    for _ in range(_MOST):
        found = among.statistics(common)
        limit = critical(found)
        found = np.where(common & np.isfinite(found), found, 0.0)
        most = found.max(axis=0)
        over = most > limit
        if not over.any():
            break
        alike = found >= np.maximum(_ALIKE * most, limit)
        worst = found >= most * (1.0 - _ROUNDING)
        last = len(found) - 1 - worst[::-1].argmax(axis=0)
        only = np.zeros_like(common)
        only[last, np.arange(common.shape[1])] = True
        # Many at a time only where they are few of those that stay.
        many = 4 * alike.sum(axis=0) < common.sum(axis=0)
        common &= ~(over & np.where(many, alike, only))
    return common
