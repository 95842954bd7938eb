"""Tables of items on grids of ability, made once in a process for all the blocks it treats."""

from __future__ import annotations

import functools

import numpy as np

from irt_dask.arrays import Floats
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine.cache import keep, keep_last
from irt_dask.engine.memory import refuse_beyond_memory
from irt_dask.kernels.posterior import tables
from irt_dask.kernels.several import plane_posterior
from irt_dask.store.responses import sha256


def item_tables(items: ItemSet, nodes: Floats, fit: str | None = None) -> tables.Tables:
    """Tables of items and nodes, kept for the same ones; for a ``fit`` the last ones alone."""
    identity = ("tables", items.digest, nodes.tobytes())
    make = functools.partial(tables.tables, items, nodes)
    return keep(identity, make) if fit is None else keep_last(("tables", fit), identity, make)


def refuse_plane(n_nodes: int, n_items: int) -> None:
    """Stop before tables of so many nodes along each of two abilities that do not fit."""
    needed = 16.5 * n_items * float(n_nodes) ** 2  # two tables, and one of every fourth node
    what = f"a grid of {n_nodes} x {n_nodes} pairs of abilities for {n_items} items"
    refuse_beyond_memory(needed, what)


def plane_tables(
    loading: Floats, intercept: Floats, correlation: float, nodes: Floats
) -> plane_posterior.Plane:
    """Tables of :mod:`~irt_dask.kernels.several.plane_posterior`, kept for the same items."""

    def make() -> plane_posterior.Plane:
        refuse_plane(nodes.size, intercept.size)
        return plane_posterior.plane(loading, intercept, nodes, correlation)

    return keep(("plane", sha256(loading, intercept, np.array(correlation), nodes)), make)
