"""Groups of items that no person links: scales of different groups cannot be compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from irt_dask.arrays import Ints
from irt_dask.engine import Engine
from irt_dask.kernels.responses import layouts
from irt_dask.kernels.responses.response_counts import responses_per_person


def _labels(first: Ints, second: Ints, n_items: int) -> Ints:
    """Connected components of items under edges; each has its smallest item as label."""
    edges = (np.ones(first.size, dtype=np.int8), (first, second))
    _, component = connected_components(coo_array(edges, shape=(n_items, n_items)), directed=False)
    smallest = np.unique(component, return_index=True)[1]
    return smallest[component]


def linked(data: layouts.Layout) -> Ints:
    """Items that persons answered together, as labels."""
    m = data.shape[1]
    length = responses_per_person(data)
    if (length == m).any():
        return np.zeros(m, dtype=np.int64)
    data, some = layouts.to_sparse(data), np.flatnonzero(length)
    first = data.indices[data.indptr[some]]  # each item with the person's first
    first = np.repeat(first, length[some])
    edge = np.unique(first.astype(np.int64) * m + data.indices)
    return _labels(edge // m, edge % m, m)


def _linked_in_block(block: Any) -> Ints:
    return linked(block.data)


def _together(left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
    """Join two sets of groups: each links an item with the label of its group."""
    n = left[0].size
    own = np.arange(n)
    return (_labels(np.concatenate([own, own]), np.concatenate([left[0], right[0]]), n),)


def linked_items(engine: Engine, step: Callable[[Any], Ints] = _linked_in_block) -> Ints:
    """Label each item with the first item of its group (one pass); two blocks' groups join up.

    ``step`` finds the labels of what the engine's steps see, if these are no blocks.
    """
    return engine.map_reduce(step, combine=_together)[0]
