"""Tables of items and ability grid, made once in a process for all the blocks it treats."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from irt_dask.engine.cache import keep
from irt_dask.kernels.posterior import category_tables, linear_tables, moments_by_score
from irt_dask.kernels.several import plane_posterior
from irt_dask.models import GRID_BOUND
from irt_dask.store.responses import sha256

Floats = NDArray[np.float64]


def grid_tables(a: Floats, d: Floats, nodes: Floats) -> linear_tables.Tables:
    """Tables of :mod:`~irt_dask.kernels.posterior.linear_tables`, kept for the same items."""
    return keep(("tables", sha256(a, d, nodes)), lambda: linear_tables.tables(a, d, nodes))


def score_curves(a: Floats, d: Floats, nodes: Floats) -> moments_by_score.Curves:
    """Curves of :mod:`~irt_dask.kernels.posterior.moments`, kept for the same items."""
    key = ("curves", sha256(a, d, nodes))
    return keep(key, lambda: moments_by_score.curves(grid_tables(a, d, nodes)))


def guessing_tables(
    a: Floats, d: Floats, c: Floats, nodes: Floats, reach: float = GRID_BOUND
) -> category_tables.Tables3PL:
    """Tables of :mod:`~irt_dask.kernels.posterior.category_tables`, kept for the same items."""
    key = ("guessing", sha256(a, d, c, nodes), reach)
    return keep(key, lambda: category_tables.tables(a, d, c, nodes, reach))


def plane_tables(
    loading: Floats, intercept: Floats, correlation: float, nodes: Floats
) -> plane_posterior.Plane:
    """Tables of :mod:`~irt_dask.kernels.several.plane_posterior`, kept for the same items."""
    key = ("plane", sha256(loading, intercept, np.array(correlation), nodes))
    return keep(key, lambda: plane_posterior.plane(loading, intercept, nodes, correlation))
