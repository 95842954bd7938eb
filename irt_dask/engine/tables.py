"""Tables of items and ability grid, made once in a process for all the blocks it treats."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from irt_dask.engine.cache import keep
from irt_dask.kernels import by_score, loglik, loglik_3pl, plane
from irt_dask.models import GRID_BOUND
from irt_dask.store.responses import sha256

Floats = NDArray[np.float64]


def grid_tables(a: Floats, d: Floats, nodes: Floats) -> loglik.Tables:
    """Tables for :mod:`irt_dask.kernels.posterior`, from memory if the items are the same."""
    return keep(("tables", sha256(a, d, nodes)), lambda: loglik.tables(a, d, nodes))


def score_curves(a: Floats, d: Floats, nodes: Floats) -> by_score.Curves:
    """Curves for :func:`irt_dask.kernels.posterior.expectations`, if the items are the same."""
    key = ("curves", sha256(a, d, nodes))
    return keep(key, lambda: by_score.curves(grid_tables(a, d, nodes)))


def guessing_tables(
    a: Floats, d: Floats, c: Floats, nodes: Floats, reach: float = GRID_BOUND
) -> loglik_3pl.Tables3PL:
    """Tables for :mod:`irt_dask.kernels.loglik_3pl`, from memory if the items are the same."""
    key = ("guessing", sha256(a, d, c, nodes), reach)
    return keep(key, lambda: loglik_3pl.tables(a, d, c, nodes, reach))


def plane_tables(
    loading: Floats, intercept: Floats, correlation: float, nodes: Floats
) -> plane.Plane:
    """Tables for :mod:`irt_dask.kernels.plane`, from memory if the items are the same."""
    key = ("plane", sha256(loading, intercept, np.array(correlation), nodes))
    return keep(key, lambda: plane.plane(loading, intercept, nodes, correlation))
