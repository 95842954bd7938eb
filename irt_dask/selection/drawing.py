"""With which probability each question is asked next: the best of a block, and some by chance.

A question that was not asked has the probability ``(1 - exploration) f + exploration / M``, M the
number of those.  f is shared by the favourites: the ``among`` best (or, for "design", all in
proportion to their spread) of the block that is farthest behind its share, without questions that
too many persons have seen.  These probabilities are what the estimate by design rests on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.engine.inputs import one_of, whole_number
from irt_dask.errors import InputError
from irt_dask.kernels.base import keyed_random
from irt_dask.selection.by_item import grouped, labels_of, shares_of
from irt_dask.selection.criteria import CRITERIA, Told

#: Share of questions drawn from all alike by default where chance is the point: no probability is
#: below half of that of equal chances, nor the mean square of (y - p) / q above twice theirs.
_DESIGN_EXPLORATION = 0.5


@dataclass(frozen=True, eq=False)
class Rules:
    """How the next question is chosen."""

    criterion: str
    exploration: float
    among: int
    seed: int
    block: Ints  # of each question
    share: Floats  # of the blocks among the questions asked
    #: Share of persons who have seen each question, and that from which on it is no favourite.
    exposure: Floats | None = None
    max_exposure: float | None = None

    @property
    def designed(self) -> bool:
        """Whether every question that was not asked may come next."""
        return self.exploration > 0.0

    @property
    def by_chance(self) -> bool:
        """Whether anything is drawn at all."""
        return self.exploration > 0.0 or self.among > 1

    def favourites(self, open_: Bools, asked: Ints) -> Bools:
        """Questions of which one is to be asked; ``asked`` counts those of each block so far."""
        pool = open_
        if self.max_exposure is not None and self.exposure is not None:
            pool = open_ & (self.exposure < self.max_exposure)
            if not pool.any():  # of those that are left the ones that fewest have seen
                pool = open_ & (self.exposure <= self.exposure[open_].min())
        if self.share.size == 1:
            return pool
        behind = self.share * (asked.sum() + 1) - asked
        there = np.bincount(self.block[pool], minlength=self.share.size) > 0
        chosen = int(np.where(there, behind, -np.inf).argmax())
        return np.asarray(pool & (self.block == chosen))

    def probabilities(self, told: Told, open_: Bools, asked: Ints) -> Floats:
        """Of each question to be the next."""
        pool = self.favourites(open_, asked)
        q = np.zeros(open_.size)
        if self.criterion == "design":
            spread = np.where(pool, told.gain, 0.0)
            total = float(spread.sum())
            q = spread / total if total > 0.0 else pool / pool.sum()
        elif self.among == 1:
            q[int(np.where(pool, told.gain, -np.inf).argmax())] = 1.0
        else:
            best = _best(np.where(pool, told.gain, -np.inf), min(self.among, int(pool.sum())))
            q[best] = 1.0 / best.size
        if self.exploration > 0.0:
            q *= 1.0 - self.exploration
            q[open_] += self.exploration / int(open_.sum())
        return np.asarray(q)

    def uniform(self, person: str, n_asked: int) -> float:
        """What decides a person's next question: the person's own and the step's."""
        if not self.by_chance:
            return 0.5
        k = keyed_random.key(self.seed, "next question", n_asked, person)
        return float(keyed_random.uniforms(k, 0, 1)[0, 0])


def _best(value: Floats, k: int) -> Ints:
    """Places of the k largest, of equal ones the first."""
    least = np.partition(value, value.size - k)[value.size - k]
    above = np.flatnonzero(value > least)
    return np.concatenate([above, np.flatnonzero(value == least)[: k - above.size]])


def drawn(q: Floats, u: float) -> int:
    """The question that a uniform number chooses."""
    sums = q.cumsum()
    j = int(np.searchsorted(sums, u * sums[-1], side="right"))
    return int(np.flatnonzero(q)[-1]) if j >= q.size else j


# --- what users say -------------------------------------------------------------------------------


def _share(name: str, value: Any, *, most: float = 1.0) -> float:
    number = isinstance(value, (int, float, np.integer, np.floating))
    if isinstance(value, bool) or not (number and 0.0 <= value <= most):
        raise InputError(f"{name}={value!r} must be a number from 0 to 1")
    return float(value)


def rules_of(
    item_id: tuple[str, ...], criterion: str, exploration: Any, among: Any, strata: Any,
    strata_shares: Any, exposure: Any, max_exposure: Any, seed: Any,
) -> Rules:  # fmt: skip
    """Read and check the options."""
    one_of("criterion", criterion, CRITERIA)
    among, seed = whole_number("among", among, 1), whole_number("seed", seed)
    if exploration is None:
        exploration = _DESIGN_EXPLORATION if criterion == "design" else 0.0
    exploration = _share("exploration", exploration)
    if criterion == "design" and exploration == 0.0:
        raise InputError(
            "criterion='design' needs exploration above 0: questions whose answers seem certain "
            "would never be asked, and the estimate by design be wrong where they are not"
        )
    if criterion == "design" and among > 1:
        raise InputError("among: criterion='design' draws among all questions; leave it out")
    if max_exposure is None and exposure is not None:
        raise InputError("exposure says nothing without max_exposure")
    if max_exposure is not None:
        max_exposure = _share("max_exposure", max_exposure)
    seen = None if exposure is None else shares_of(exposure, item_id, "exposure")
    block, share = _blocks(strata, strata_shares, item_id)
    return Rules(criterion, exploration, among, seed, block, share, seen, max_exposure)


def _blocks(strata: Any, shares: Any, item_id: tuple[str, ...]) -> tuple[Ints, Floats]:
    """Block of each question, and the blocks' shares: by default those of their questions."""
    if strata is None:
        if shares is not None:
            raise InputError("strata_shares says nothing without strata")
        return np.zeros(len(item_id), dtype=np.int64), np.ones(1)
    names, block, size = grouped(labels_of(strata, item_id, "strata"))
    if shares is None:
        return block, size / size.sum()
    return block, _given_shares(shares, names)


def _given_shares(shares: Any, names: NDArray[np.str_]) -> Floats:
    try:
        given = {str(k): float(v) for k, v in dict(shares).items()}
    except (TypeError, ValueError):
        raise InputError("strata_shares must map each stratum to a number") from None
    if set(given) != set(map(str, names)):
        raise InputError(
            f"strata_shares names {', '.join(sorted(given))}, and the strata are "
            f"{', '.join(map(str, names))}; give each its share"
        )
    share = np.array([given[str(n)] for n in names])
    if not (np.isfinite(share).all() and (share >= 0.0).all() and share.sum() > 0.0):
        raise InputError("strata_shares must be finite, not negative, and not all 0")
    return np.asarray(share / share.sum())
