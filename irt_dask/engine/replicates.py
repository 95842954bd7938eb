"""How often persons count where each has an ability of its own to be drawn: whole numbers.

A likelihood to a power w belongs to one ability; w persons of the same responses have w of them.
So chains take persons with weights as so many: those that a row stands for, or of sampling weights
w (1 in the mean) the whole number below or above, at random, w in expectation.
"""

from __future__ import annotations

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.kernels.base import keyed_random
from irt_dask.store.blocks import Block


def times(block: Block, seed: int) -> Ints | None:
    """How often each person of a block counts; None: once."""
    if block.times is not None or block.weight is None:
        return block.times
    return rounded(block.weight, seed, block.start)


def rounded(weight: Floats, seed: int, start: int) -> Ints:
    """Sampling weights of the persons from the global row ``start`` on as whole numbers.

    By a keyed hash of the row: neither blocks nor workers matter.
    """
    u = keyed_random.uniforms(keyed_random.key(seed, "replicates"), start, weight.size)[:, 0]
    whole = np.floor(weight)
    return (whole + (u < weight - whole)).astype(np.int64)


def of_shard(of: Ints | None, shard: int, counted: Ints | None, n: int) -> Ints:
    """Rows of n persons that belong to a shard, each as often as it counts; ``of`` None: all do."""
    rows = np.arange(n) if of is None else np.flatnonzero(of == shard)
    return rows if counted is None else np.repeat(rows, counted[rows])
