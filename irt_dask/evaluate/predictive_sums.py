"""Sums of a predictive check over persons, who are simulated block by block."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from irt_dask.arrays import Ints, Words
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine import Engine
from irt_dask.engine.cache import keep
from irt_dask.engine.memory import refuse_beyond_memory
from irt_dask.errors import InputError
from irt_dask.items.blocks import Blocks
from irt_dask.kernels.base import keyed_random
from irt_dask.kernels.misfit import replicated_responses, score_sums
from irt_dask.kernels.posterior.at_ability import Between, between
from irt_dask.kernels.responses import response_counts
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.store import Block

#: Spacing of curves, times the slope of the steepest item: log P errs by some 1e-9.
_SPACING = 0.25


def _curves(items: ItemSet) -> Between:
    """Items between any abilities that are drawn, kept for the same ones."""
    key = ("replicates", items.digest)
    reach = keyed_random.FARTHEST_NORMAL
    return keep(key, lambda: between(items, -reach, reach, _SPACING))


class Sums(NamedTuple):
    """Sums over persons: of the observed responses, and then of each replicate."""

    histograms: Ints  # persons by score, (replicates + 1, scores)
    of_items: Ints  # (replicates + 1, 4 or 5, items), as of score_sums
    of_blocks: Ints  # (replicates + 1, 3, blocks of items)
    lengths: Ints  # persons by the highest score that they could have
    seen: Ints  # persons who answered each item

    @classmethod
    def of_nobody(cls, n: int, steps: Ints, n_blocks: int) -> Sums:
        """Sums of ``n`` data sets; ``steps`` are the items' highest codes."""
        n_scores, n_sums = _widths(steps)
        shapes = ((n, n_scores), (n, n_sums, steps.size), (n, score_sums.OF_BLOCK, n_blocks))
        return cls(*(np.zeros(s, dtype=np.int64) for s in (*shapes, n_scores, steps.size)))


def _widths(steps: Ints) -> tuple[int, int]:
    """Scores that there can be, and sums of an item."""
    more = (steps > 1).any()
    return 1 + int(steps.sum()), score_sums.OF_MORE if more else score_sums.OF_TWO


def add(
    block: Block, sums: Sums | None, drawn: tuple[ItemSet, ...], keys: tuple[Words, ...],
    item_blocks: Blocks,
) -> Sums:  # fmt: skip
    """Add the persons of a block, and those who are simulated in their place."""
    steps, n_blocks = drawn[0].n_categories - 1, len(item_blocks.labels)
    if sums is None:
        sums = Sums.of_nobody(len(drawn) + 1, steps, n_blocks)
    n_scores = sums.lengths.size
    highest = response_counts.highest_per_person(block.data, steps)
    some = highest > 0
    sums.lengths[:] += np.bincount(highest[some], minlength=n_scores)
    sums.seen[:] += response_counts.response_counts(block.data)[1]
    for r in range(len(drawn) + 1):
        data = block.data if r == 0 else replicate(block, drawn[r - 1], keys[r - 1])
        score = score_sums.of_items(data, sums.of_items[r])
        sums.histograms[r] += np.bincount(score[some], minlength=n_scores)
        if n_blocks:
            score_sums.of_blocks(data, item_blocks.of_item, sums.of_blocks[r])
    return sums


def replicate(block: Block, items: ItemSet, key: Words) -> Layout:
    """Responses of new persons to the items that those of the block responded to."""
    words = keyed_random.words(key, block.start, block.n_persons, 2)
    u = keyed_random.uniforms(key, block.start, block.n_persons)[:, 0]  # of the first word
    return replicated_responses.responses(block.data, ndtri(u), _curves(items), words[:, 1])


def refuse_too_many(engine: Engine, drawn: tuple[ItemSet, ...], item_blocks: Blocks) -> None:
    """Stop before sums that this process cannot hold."""
    steps = drawn[0].n_categories - 1
    n_scores, n_sums = _widths(steps)
    cells = n_scores + n_sums * steps.size + score_sums.OF_BLOCK * len(item_blocks.labels)
    refuse_beyond_memory(
        8.0 * (engine.n_held + 1) * (len(drawn) + 1) * cells,
        f"sums of {steps.size} items in {len(drawn)} replicates (n_replicates=)",
    )


def refuse_overflow(lengths: Ints) -> None:
    """Stop if squared scores might not fit into 64 bits."""
    if float((lengths * np.arange(lengths.size, dtype=float) ** 2).sum()) >= 2.0**62:
        raise InputError(
            f"squared scores of {lengths.sum()} persons do not fit into 64-bit sums; check some of "
            f"the persons: responses.select(persons=...)"
        )
