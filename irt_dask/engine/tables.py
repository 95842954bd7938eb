"""Tables of items and ability grid, made once in a process for all the blocks it treats."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from irt_dask.engine.cache import keep
from irt_dask.kernels import loglik, plane
from irt_dask.store.responses import sha256

Floats = NDArray[np.float64]


def grid_tables(a: Floats, d: Floats, nodes: Floats) -> loglik.Tables:
    """Tables for :mod:`irt_dask.kernels.posterior`, from memory if the items are the same."""
    return keep(("tables", sha256(a, d, nodes)), lambda: loglik.tables(a, d, nodes))


def plane_tables(
    loading: Floats, intercept: Floats, correlation: float, nodes: Floats
) -> plane.Plane:
    """Tables for :mod:`irt_dask.kernels.plane`, from memory if the items are the same."""
    key = ("plane", sha256(loading, intercept, np.array(correlation), nodes))
    return keep(key, lambda: plane.plane(loading, intercept, nodes, correlation))
