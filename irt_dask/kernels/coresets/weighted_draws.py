"""Drawing rows of a stream with probabilities proportional to scores, where the rows lie.

Scores are integers (:func:`irt_dask.kernels.coresets.sensitivities.positive`), so the prefix sums
of a block do not depend on how the stream is cut, and neither does any draw.

With replacement: k targets, uniform below the sum of all scores; a block locates its own.

Without: a weighted reservoir (Chao 1982) with inclusion probabilities ``pi_i = min(1, k s_i / W)``,
where rows with ``k s_i > W`` are certain and the others share what is left (repeated until none is
over).  Row n of the stream enters with probability ``k s_n / W_n``, W_n the sum up to and
including it, and replaces a uniform one of the k: given ``pi_i = k s_i / W_{n-1}`` before,
``pi_i (1 - s_n / W_n) = k s_i / W_n`` after.  Whether row n enters, and which slot it takes,
depends on its score, the prefix sum and its own two uniforms only; blocks say who enters, and the
last one to take a slot has it.

Two things differ from Chao's plan.  Rows that are certain at the end are set aside first, and the
reservoir is filled from the shortest initial stretch in which no row is over (``W_n >= k max s``)
by one systematic draw, whose inclusion probabilities are ``k s_i / W_n`` exactly; Chao goes through
this stretch row by row, which blocks could not share.  The induction and the inclusion
probabilities are the same; the joint ones of the stretch are not, so estimate variances by
repetition.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from irt_dask.arrays import Floats, Ints
from irt_dask.kernels.coresets.sensitivities import locate

_UNIT = 1 << 52


def share_out(totals: Ints, targets: Ints) -> dict[int, Ints]:
    """Blocks, given their totals, that sorted targets fall into, and the targets counted there."""
    ends = np.cumsum(totals)
    block_of = np.searchsorted(ends, targets, side="right")
    return {int(b): targets[block_of == b] - (ends[b] - totals[b]) for b in np.unique(block_of)}


# --- with replacement -----------------------------------------------------------------------------


def targets(generator: np.random.Generator, total: int, size: int) -> Ints:
    """Sorted uniform targets below the total score, one for each draw."""
    return np.sort(generator.integers(0, total, size=size))


def drawn(score: Ints, targets: Ints) -> tuple[NDArray[np.intp], Ints]:
    """Rows of a block that its targets fall on, ascending, and how often each is drawn."""
    at, times = np.unique(locate(score, targets), return_counts=True)
    return at, times


def drawn_weight(score: Ints, times: Ints, total: int, size: int) -> Floats:
    """``times / (size p)``, p the score's share of the total."""
    return times * (float(total) / size) / score


# --- weighted reservoir ---------------------------------------------------------------------------


class Above(NamedTuple):
    """Number and sum of the scores above a bound; sum, largest and number of the others."""

    n: int
    total: int
    rest: int
    largest: int
    n_rest: int


def above(score: Ints, bound: int) -> Above:
    """Split a block's positive scores at a bound."""
    over = score > bound
    others = score[~over]
    return Above(
        int(over.sum()),
        int(score[over].sum()),
        int(others.sum()),
        int(others.max(initial=0)),
        int(np.count_nonzero(others)),
    )


def together(parts: list[Above]) -> Above:
    """Add up the splits of all blocks."""
    n, total, rest, largest, n_rest = zip(*parts, strict=True)
    return Above(sum(n), sum(total), sum(rest), max(largest), sum(n_rest))


def next_bound(a: Above, size: int) -> int:
    """Bound above which a score has ``k s > W`` among the rows that are not certain.

    For integers ``s > floor(W / k)`` says the same.  The bounds fall, and stand still once no
    further row is over.
    """
    return a.rest // (size - a.n)


class Reservoir(NamedTuple):
    """What every block has to know.

    ``bound``: rows of a higher score are certain.  ``size``: slots for the others, whose scores sum
    to ``total``.  ``start``: sum of the scores of the initial stretch.
    """

    bound: int
    size: int
    total: int
    start: int

    def weight(self, score: Ints) -> Floats:
        """Inverse inclusion probability."""
        return np.where(score > self.bound, 1.0, self.total / (float(self.size) * score))


def others(score: Ints, bound: int) -> Ints:
    """Scores of the rows that are not certain; 0 for those that are."""
    return np.where(score > bound, 0, score)


def stretch(score: Ints, needed: int) -> int:
    """Sum of a block's scores up to the row at which it reaches ``needed``."""
    sums = np.cumsum(score)
    return int(sums[np.searchsorted(sums, needed, side="left")])


def first_targets(start: int, size: int, offset: int) -> Ints:
    """Systematic targets ``floor((j + offset / 2^52) start / size)``, exactly; one for each slot.

    They are ``start / size`` apart, at least the largest score, so none falls on the same row as
    another.
    """
    step, unit = start, size * _UNIT
    return np.array([(j * _UNIT + offset) * step // unit for j in range(size)], dtype=np.int64)


def entering(
    score: Ints, before: int, plan: Reservoir, uniforms: Floats
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows of a block that enter after the initial stretch, the last for each slot, and the slots.

    ``score`` is 0 for certain rows, ``before`` the sum of the blocks before.  ``uniforms`` (rows,
    2) belong to the rows.
    """
    sums = before + np.cumsum(score)
    enters = (sums > plan.start) & (uniforms[:, 0] * sums < plan.size * score.astype(np.float64))
    at = np.flatnonzero(enters)[::-1]
    # a uniform next to 1 may round up to the number of slots
    taken = np.minimum((uniforms[at, 1] * plan.size).astype(np.intp), plan.size - 1)
    slot, last = np.unique(taken, return_index=True)
    return at[last], slot


def reservoir(
    score: Ints, size: int, offset: int, uniforms: Floats
) -> tuple[NDArray[np.intp], Floats]:
    """Rows of a stream that is all here, ascending, and their weights; see the module.

    All rows of positive score if there are no more than ``size``.
    """
    if np.count_nonzero(score) <= size:
        at = np.flatnonzero(score)
        return at, np.ones(at.size)
    split, bound = above(score, int(score.max())), -1
    while (new := next_bound(split, size)) != bound:
        bound, split = new, above(score, new)
    left, slots = others(score, bound), size - split.n
    start = stretch(left, slots * split.largest)
    plan = Reservoir(bound, slots, split.rest, start)
    holds = locate(left, first_targets(start, slots, offset))
    at, slot = entering(left, 0, plan, uniforms)
    holds[slot] = at
    rows = np.sort(np.concatenate([np.flatnonzero(score > bound), holds]))
    return rows, plan.weight(score[rows])
