"""Log-likelihoods of persons at the nodes of a grid of ability."""

from __future__ import annotations

from typing import Any

import numpy as np

from irt_dask.arrays import Floats
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.posterior import person_weights
from irt_dask.kernels.posterior.person_weights import (
    EVERYBODY,
    Prior,
    Shared,
    Some,
    gather,
    some,
)
from irt_dask.kernels.posterior.tables import LinearTables, Tables
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.kernels.responses.rows import n_rows


@jit
def _fill(
    indptr: Any, indices: Any, values: Any, g: Any, s: Shared, p: Prior, c: Some, out: Floats
) -> None:  # fmt: skip
    for begin in range(0, n_rows(indptr, values), c.n.size):
        count = gather(indptr, indices, values, g, s, p, EVERYBODY, begin, c)
        for r in range(count):
            i, w = c.person[r], c.w[r]
            for q in range(w.size):
                out[i, q] = w[q] + c.constant[r]


def log_likelihoods(data: Layout, g: Tables, s: Shared) -> Floats:
    """Log-likelihood of each person's responses at each node, (persons, nodes); 0 without any.

    Tables are kept by node: not those of many nodes, which are looked at around a mode alone.
    """
    assert not (isinstance(g, LinearTables) and not g.base.size)
    out = np.empty((data.shape[0], g.nodes.size))
    flat = person_weights.prior(np.zeros(g.nodes.size))
    _fill(*rows.arrays(data), g, s, flat, some(*data.shape, g.nodes.size), out)
    return out
