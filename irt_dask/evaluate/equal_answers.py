"""Items, or persons, whose answers are the same: by keyed sums, so that no pair is looked at."""

from __future__ import annotations

from typing import Any

import numpy as np

from irt_dask.arrays import Floats, Ints, Words
from irt_dask.curves.item_set import ItemSet
from irt_dask.evaluate.abilities import Known, parts
from irt_dask.kernels.base import fixed_point, keyed_random
from irt_dask.kernels.responses.layouts import Layout, to_sparse
from irt_dask.store import Block

#: Words of a sum: 128 bits, so that different answers have one sum never in practice.
_WORDS = 2
#: -log P that a response adds at most.
FARTHEST = 50.0


def _keys(what: str, start: int, n: int) -> Words:
    return keyed_random.words(keyed_random.key(0, "equal answers", what), start, n, _WORDS)


def _sums(data: Layout, of_cell: Words, at: Any, n: int) -> Words:
    """Sums modulo 2^64 of keys times (1 + code) of the observed cells, (n, words)."""
    y = to_sparse(data)
    code = (y.values + 1).astype(np.uint64)
    out = np.zeros((n, _WORDS), dtype=np.uint64)
    for w in range(_WORDS):
        np.add.at(out[:, w], at, of_cell[:, w] * code)
    return out


def of_items(block: Block) -> Words:
    """What a block adds to the sum of each item, (items, words)."""
    y = to_sparse(block.data)
    row = np.repeat(np.arange(block.n_persons), np.diff(y.indptr))
    keys = _keys("persons", block.start, block.n_persons)
    return _sums(y, keys[row], y.indices, y.n_items)


def of_persons(block: Block) -> Words:
    """The sum of each person of a block, (persons, words)."""
    y = to_sparse(block.data)
    row = np.repeat(np.arange(block.n_persons), np.diff(y.indptr))
    return _sums(y, _keys("items", 0, y.n_items)[y.indices], row, block.n_persons)


def first_alike(sums: Words) -> Ints:
    """The first of those with the same sum, of each; who has no answers is like nobody else."""
    _, first, inverse = np.unique(sums, axis=0, return_index=True, return_inverse=True)
    found = first[inverse.reshape(-1)]
    return np.where(sums.any(axis=1), found, np.arange(len(sums))).astype(np.int64)


def minus_log_p(block: Block, known: Known, unit: float) -> Ints:
    """-log P of the answers to each item at the persons' expected abilities, fixed point."""
    out = np.zeros(known.items.n_items, dtype=np.int64)
    for data in parts(block.data):
        theta = known.expectations(data)[0]
        y = to_sparse(data)
        row = np.repeat(np.arange(theta.size), np.diff(y.indptr))
        value = -at_abilities(known.items, theta)[known.items.first[y.indices] + y.values, row]
        np.add.at(out, y.indices, fixed_point.fixed(np.minimum(value, FARTHEST), unit))
    return out


def at_abilities(items: ItemSet, theta: Floats) -> Floats:
    """Log P of each item's categories at each ability, (categories of all items, persons)."""
    return np.asarray(items.log_p(theta))
