"""Tables of items on grids of ability, made once in a process for all the blocks it treats."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from irt_dask.arrays import Floats
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine.cache import keep, keep_last
from irt_dask.engine.memory import refuse_beyond_memory
from irt_dask.kernels.posterior import moments, person_weights, tables
from irt_dask.kernels.posterior.person_weights import Prior, Shared
from irt_dask.kernels.responses.item_sets import CommonSets
from irt_dask.kernels.several import plane_posterior
from irt_dask.store.responses import sha256


def item_tables(items: ItemSet, nodes: Floats, fit: str | None = None) -> tables.Tables:
    """Tables of items and nodes, kept for the same ones; for a ``fit`` the last ones alone."""
    identity = ("tables", items.digest, nodes.tobytes())
    make = functools.partial(tables.tables, items, nodes)
    return keep(identity, make) if fit is None else keep_last(("tables", fit), identity, make)


#: Persons up to which those who answered all items are counted: more pay for any table.
_MOST_COUNTED = 1 << 22


class _Complete(NamedTuple):
    """Tables of the items, and cumulants of those who answered every item."""

    tables: tables.Tables
    cells: moments.Cells

    @property
    def nbytes(self) -> int:
        return self.cells.nbytes


def complete(
    items: ItemSet, nodes: Floats, normal: tuple[float, float], n_persons: int
) -> _Complete | None:
    """Table of moments of persons of a normal distribution who answered all items.

    None where they do not pay for one: so many, and those of blocks that this process has seen
    before.  Blocks find it at once, with nothing made again.
    """
    identity = (items.digest, nodes.tobytes(), normal)
    counted = keep(("complete, persons", *identity), lambda: np.zeros(1, dtype=np.int64))
    counted += n_persons
    n_seen = min(int(counted[0]), _MOST_COUNTED)

    def make() -> _Complete:
        g, observed = item_tables(items, nodes), np.ones((1, items.n_items), dtype=bool)
        sets = CommonSets(np.zeros(n_seen, dtype=np.int32), observed)
        prior = person_weights.prior(person_weights.normal(nodes, *normal))
        made = cells(items, g, sets, person_weights.shared(sets, g), prior)
        return _Complete(g, made)

    key = ("complete", *identity, n_seen.bit_length())
    found = keep(key, make)
    return found if len(found.cells.values) else None


def cells(items: ItemSet, g: tables.Tables, sets: CommonSets, s: Shared, p: Prior) -> moments.Cells:
    """Tables of moments for the sets of items and groups of a block that have many persons.

    Which have one decides nothing but time (:mod:`irt_dask.kernels.posterior.moments`).
    """
    if isinstance(g, tables.CategoryTables) or not g.base.size or p.tilt.size:
        return moments.NO_CELLS
    n_groups, identity = len(p.log_mass), (items.digest, g.nodes.tobytes())
    place = s.number + np.int32(1)  # 0: none
    if p.group.size:
        place = place * n_groups + p.group
    size = (len(s.base) + 1) * n_groups
    persons = np.bincount(place, minlength=size).reshape(-1, n_groups)[1:]
    of, first = np.full(persons.shape, -1), np.zeros(persons.shape, dtype=np.int64)
    kept: list[Floats] = []
    n_rows = 0
    for k, row in enumerate(persons):
        for j in moments.worth_a_table(row, g, sets.observed[k]):
            key = ("cells", identity, sets.observed[k].tobytes(), p.log_mass[j].tobytes())
            make = functools.partial(
                moments.table_of_cells, g, sets.observed[k], s.base[k], p.log_mass[j]
            )
            made = keep(key, make)
            of[k, j], first[k, j] = n_rows, made.first
            kept.append(made.values)
            n_rows += len(made.values)
    if not kept:
        return moments.NO_CELLS
    return moments.Cells(of, first, kept[0] if len(kept) == 1 else np.concatenate(kept))


def plane_tables(
    loading: Floats, intercept: Floats, correlation: float, nodes: Floats
) -> plane_posterior.Plane:
    """Tables of :mod:`~irt_dask.kernels.several.plane_posterior`, kept for the same items."""

    def make() -> plane_posterior.Plane:
        n, m = nodes.size, intercept.size
        needed = 16.5 * m * float(n) ** 2  # two tables, and one of every fourth node
        refuse_beyond_memory(needed, f"a grid of {n} x {n} pairs of abilities for {m} items")
        return plane_posterior.plane(loading, intercept, nodes, correlation)

    return keep(("plane", sha256(loading, intercept, np.array(correlation), nodes)), make)
