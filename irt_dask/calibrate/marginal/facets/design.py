"""Which item each column of a store is, and which effects its difficulty has: a sparse design."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.errors import InputError, listed, repeated
from irt_dask.variables import identifier

#: What stands between an item and the levels of facets in the name of a column.
AT = "@"
#: The column of a table that names items.
ITEM = "item"
_NONE = "facets= names no facet: give one at least, or leave facets out"


@dataclass(frozen=True)
class Design:
    """Columns of a store as items at levels of facets.

    ``terms`` (columns, effects) times the effects is what is added to the difficulty of a column.
    Effects of a facet with levels follow each other; one of numbers has one effect, whose level is
    "" (``numeric``).
    """

    parent_id: tuple[str, ...]
    parent: Ints  # of each column, its place among the items
    facets: tuple[str, ...]
    facet: Ints  # of each effect, its place among the facets
    level: tuple[str, ...]
    terms: Any  # sparse, by row
    numeric: Bools  # of each facet

    @property
    def n_effects(self) -> int:
        """Number of effects."""
        return self.facet.size

    @functools.cached_property
    def centred(self) -> Any:
        """Ones at the effects of each facet with levels, sparse (facets, effects)."""
        has = np.flatnonzero(~self.numeric)
        at = np.flatnonzero(np.isin(self.facet, has))
        row = np.searchsorted(has, self.facet[at])
        shape = has.size, self.n_effects
        return scipy.sparse.csr_array((np.ones(at.size), (row, at)), shape=shape)

    @property
    def names(self) -> list[str]:
        """Effects for messages."""
        return [
            f"{self.facets[f]} {level}" if level else self.facets[f]
            for f, level in zip(self.facet, self.level, strict=True)
        ]

    @functools.cached_property
    def of_columns(self) -> tuple[Ints, Floats]:
        """Effects of each column, one a facet, and what these are multiplied by."""
        shape = self.parent.size, len(self.facets)
        return self.terms.indices.reshape(shape).astype(np.int64), self.terms.data.reshape(shape)

    @functools.cached_property
    def together(self) -> Any:
        """Ones at effects that a column has together, sparse (effects, effects)."""
        some = self.terms.copy()
        some.data[:] = 1.0
        return scipy.sparse.csr_array(some.T @ some)

    def shifts(self, effects: Floats) -> Floats:
        """What is added to the difficulty of each column."""
        return np.asarray(self.terms @ effects)

    @property
    def identity(self) -> tuple[Any, ...]:
        """What a checkpoint rests on."""
        t = self.terms
        return self.parent_id, self.parent, self.facets, self.level, t.indptr, t.indices, t.data


def designed(facets: Any, item_id: tuple[str, ...]) -> Design:
    """The design of the columns ``item_id`` of a store.

    ``facets`` are names, and the columns' names are item@level, with a level of each facet in this
    order; or a table with a row for each column of the store.
    """
    if isinstance(facets, str):
        facets = [facets]
    if isinstance(facets, Sequence) and not facets:
        raise InputError(_NONE)
    if isinstance(facets, (pd.DataFrame, Mapping)):
        table = _of_table(facets, item_id)
    elif isinstance(facets, Sequence) and all(isinstance(f, str) for f in facets):
        table = _of_names(facets, item_id)
    else:
        raise InputError(
            f"facets={facets!r}: give names of facets, whose levels follow the item's name as "
            f"item@level, or a table with a row for each column of the responses"
        )
    if len(table) == 1:
        raise InputError(_NONE)
    return _of_columns(table)


def _of_names(facets: Sequence[str], item_id: tuple[str, ...]) -> dict[str, Any]:
    """Items and levels from names of columns."""
    names = [identifier(f) for f in facets]
    if twice := repeated([*names, ITEM]):
        raise InputError(f"facets={list(facets)!r}: {twice[0]!r} is no name of its own")
    parts = [i.split(AT) for i in item_id]
    wrong = [i for i, p in zip(item_id, parts, strict=True)
             if len(p) != 1 + len(names) or "" in p]  # fmt: skip
    if wrong:
        pattern = AT.join([ITEM, *names])
        raise InputError(
            f"facets={list(facets)!r}: {len(wrong)} of {len(item_id)} columns are not named "
            f"{pattern}: {listed(wrong, 5)}; ingest a long table with facets={list(facets)!r}, "
            f"rename them, or give facets as a table with a row for each column"
        )
    of_each = zip(*parts, strict=True)
    return dict(zip([ITEM, *names], (np.array(v, dtype=object) for v in of_each), strict=True))


def _of_table(facets: Any, item_id: tuple[str, ...]) -> dict[str, Any]:
    """Items and levels from a table, in the order of the columns of the responses."""
    table = pd.DataFrame(facets)
    table = table.rename(index=identifier, columns=identifier)
    if ITEM not in table:
        raise InputError(
            f"facets= is a table without a column {ITEM!r}, which says of which item each column "
            f"of the responses is; its columns are {listed(table.columns)}"
        )
    if twice := repeated(table.columns):
        raise InputError(f"facets= has the column {twice[0]!r} twice; leave one out")
    if twice := repeated(table.index):
        raise InputError(f"facets= has {twice[0]!r} twice; give one row for each column")
    if lacking := [i for i in item_id if i not in table.index]:
        raise InputError(
            f"facets= has no row for {len(lacking)} of {len(item_id)} columns of the responses: "
            f"{listed(lacking, 5)}; its index names them"
        )
    if more := sorted({*table.index} - {*item_id}):
        raise InputError(
            f"facets= has {len(more)} row(s) that the responses have no column of: "
            f"{listed(more, 5)}; leave these out"
        )
    table = table.loc[list(item_id)]
    if table.isna().any(axis=None):
        name = table.columns[table.isna().any()][0]
        i = table.index[table[name].isna()][0]
        raise InputError(f"facets= says nothing of {name!r} for {i!r}: give each a value")
    order = [ITEM, *(c for c in table.columns if c != ITEM)]
    return {name: _values(table[name], name) for name in order}


def _values(column: pd.Series[Any], name: str) -> Any:
    """Levels as text, or finite numbers."""
    number = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
    if not number or name == ITEM:
        return np.array([identifier(v) for v in column], dtype=object)
    out = column.to_numpy(dtype=float)
    if not np.isfinite(out).all():
        raise InputError(f"facets= has numbers in {name!r} that are not finite")
    return out


def _of_columns(table: dict[str, Any]) -> Design:
    """The design of a table whose rows are those of the store."""
    parent, parent_id = pd.factorize(table[ITEM])
    n = parent.size
    facet: list[int] = []
    level: list[str] = []
    blocks, numeric = [], []
    names = [name for name in table if name != ITEM]
    for f, name in enumerate(names):
        values = table[name]
        number = values.dtype.kind == "f"
        numeric.append(number)
        place, of_facet = (np.zeros(n, dtype=np.int64), [""]) if number else pd.factorize(values)
        if not number and len(of_facet) < 2:
            raise InputError(
                f"the facet {name!r} has one level alone, {of_facet[0]!r}, which is a part of the "
                f"items' difficulties; leave the facet out"
            )
        size = values if number else np.ones(n)
        blocks.append(scipy.sparse.csr_array((size, (np.arange(n), place)), (n, len(of_facet))))
        facet += [f] * len(of_facet)
        level += list(of_facet)
    terms = scipy.sparse.csr_array(scipy.sparse.hstack(blocks, format="csr"))
    terms.sum_duplicates()
    return Design(
        tuple(map(str, parent_id)), parent.astype(np.int64), tuple(names),
        np.array(facet, dtype=np.int64), tuple(map(str, level)), terms, np.array(numeric),
    )  # fmt: skip


def categories(design: Design, item_id: Iterable[str], n_categories: Sequence[int]) -> list[int]:
    """Categories of each item, which all its columns have."""
    k = np.array(n_categories)
    most = np.zeros(len(design.parent_id), dtype=np.int64)
    np.maximum.at(most, design.parent, k)
    other = np.flatnonzero(k != most[design.parent])
    if other.size:
        j = int(other[0])
        name = tuple(item_id)[j]
        raise InputError(
            f"{other.size} column(s) have fewer categories than others of their item: {name} has "
            f"{k[j]}, another of {design.parent_id[design.parent[j]]} has "
            f"{most[design.parent[j]]}; declare categories= for all columns of an item alike"
        )
    return most.tolist()
