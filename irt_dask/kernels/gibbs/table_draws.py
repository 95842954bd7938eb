"""Draws of abilities under items of any model, and the counts by category that a sweep needs."""

from __future__ import annotations

from typing import Any

import numpy as np

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.base.lanes import total
from irt_dask.kernels.posterior.person_weights import (
    EVERYBODY,
    Prior,
    Shared,
    Some,
    gather,
    some,
    weigh,
)
from irt_dask.kernels.posterior.tables import LinearTables, Tables
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.item_sets import CommonSets
from irt_dask.kernels.responses.layouts import Layout


@jit
def _draws(
    indptr: Any, indices: Any, values: Any, g: Any, s: Shared, p: Prior, c: Some, u: Floats,
    persons: Ints, of_set: Ints, seen: Ints, higher: Ints,
) -> None:  # fmt: skip
    for begin in range(0, rows.n_rows(indptr, values), c.n.size):
        count = gather(indptr, indices, values, g, s, p, EVERYBODY, begin, c)
        weigh(c, count)
        for r in range(count):
            i, w = c.person[r], c.w[r, c.lo[r] : c.hi[r]]
            left, q = u[i] * total(w), 0
            while q < w.size - 1 and w[q] < left:
                left -= w[q]
                q += 1
            while w[q] == 0.0:  # rounding has left something at the end
                q -= 1
            q += c.lo[r]
            persons[q] += 1
            for row in c.higher[r, : c.n_higher[r]]:
                higher[q, row] += 1
            if s.number[i] >= 0:
                of_set[q, s.number[i]] += 1
            else:
                for j in c.items[r, : c.n[r]]:
                    seen[q, j] += 1


@jit
def _add_sets(observed: Bools, of_set: Ints, seen: Ints) -> None:
    for q in range(of_set.shape[0]):
        for s in range(of_set.shape[1]):
            if of_set[q, s] > 0:
                for j in range(observed.shape[1]):
                    if observed[s, j]:
                        seen[q, j] += of_set[q, s]


def draw_counts(
    data: Layout, g: Tables, s: Shared, sets: CommonSets, p: Prior, u: Floats
) -> tuple[Ints, Ints, Ints]:
    """Draw every ability from its posterior on the nodes, and count by node.

    ``u`` are uniforms, one a person: the draw is the first node at which the distribution function
    is not below it.  Returns persons (nodes,), observed responses (nodes, items), and those above
    the lowest category (nodes, rows), where tables have rows by item and category.
    """
    n, m = data.shape
    n_nodes = g.nodes.size
    n_rows = m if isinstance(g, LinearTables) else int(g.first[-1])
    persons = np.zeros(n_nodes, dtype=np.int64)
    of_set, seen, higher = (
        np.zeros((n_nodes, k), dtype=np.int64) for k in (len(s.base), m, n_rows)
    )
    _draws(
        *rows.arrays(data), g, s, p, some(n, m, n_nodes), u, persons, of_set, seen, higher
    )
    _add_sets(sets.observed, of_set, seen)
    return persons, seen, higher
