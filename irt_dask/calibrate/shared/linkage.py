"""Groups of items that no person links: scales of different groups cannot be compared."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from irt_dask.calibrate.joint.person_step import Persons, prepare
from irt_dask.engine import Engine
from irt_dask.kernels.responses import layouts
from irt_dask.store import Block

Ints = NDArray[np.int64]


def _labels(first: Ints, second: Ints, n_items: int) -> Ints:
    """Connected components of items under edges; each has its smallest item as label."""
    edges = (np.ones(first.size, dtype=np.int8), (first, second))
    _, component = connected_components(coo_array(edges, shape=(n_items, n_items)), directed=False)
    smallest = np.unique(component, return_index=True)[1]
    return smallest[component]


def _linked(p: Persons) -> tuple[Any, ...]:
    """Items that persons of the block answered together, as labels."""
    if p.complete.size:
        return (np.zeros(p.n_items, dtype=np.int64),)
    data = layouts.to_sparse(p.data)
    some = np.flatnonzero(np.diff(data.indptr))
    length = np.diff(data.indptr)[some]
    first = np.repeat(data.indices[data.indptr[some]], length)  # each item with the person's first
    edge = np.unique(first.astype(np.int64) * p.n_items + data.indices)
    return (_labels(edge // p.n_items, edge % p.n_items, p.n_items),)


def _together(left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
    """Join two sets of groups: each links an item with the label of its group."""
    n = left[0].size
    own = np.arange(n)
    return (_labels(np.concatenate([own, own]), np.concatenate([left[0], right[0]]), n),)


def _linked_in_block(block: Block) -> tuple[Any, ...]:
    return _linked(prepare(block))


def linked_items(engine: Engine, *, prepared: bool = True) -> Ints:
    """Label each item with the first item of its group (one pass); two blocks' groups join up.

    ``prepared`` says whether the engine's steps see :class:`Persons` instead of blocks.
    """
    step = _linked if prepared else _linked_in_block
    return engine.map_reduce(step, combine=_together)[0]
