"""Responses from arrays in memory, or from dask arrays, whose blocks are computed on the worker."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from irt_dask.arrays import Floats
from irt_dask.errors import InputError, repeated
from irt_dask.kernels.responses.layouts import Dense, Layout, Sparse
from irt_dask.store.blocks import Block, BlockRef
from irt_dask.store.categories import BINARY, declared, limits
from irt_dask.store.persons import person_columns
from irt_dask.store.responses import SAMPLING, Responses, check_item_ids
from irt_dask.store.weights import Sums, check_kind, checked
from irt_dask.store.writer import check_rows_per_block
from irt_dask.variables import identifier

if TYPE_CHECKING:
    import pandas as pd


#: Characters of an identifier up to which all take the room of the longest: a text object in Python
#: takes as much.
_COMPACT = 24


@dataclass(frozen=True, eq=False)
class ArrayBlock(BlockRef):
    """Rows of an array (NumPy, scipy.sparse or dask) with what goes with them."""

    index: int
    start: int
    rows: Any
    stored_only: bool
    ids: NDArray[np.str_] | NDArray[np.object_]
    weight: Floats | None
    group: NDArray[np.object_] | None
    covariate: Floats | None
    #: Categories of the items, see :func:`irt_dask.store.categories.limits`; None: not declared.
    most: int | NDArray[np.int8] | None = None
    cache_key: tuple[Any, ...] | None = None

    def cut(self, rows: int) -> list[ArrayBlock]:
        """Cut all persons into blocks of ``rows``."""
        n = len(self.ids)
        word = secrets.token_hex(16) if hasattr(self.rows, "dask") else None
        columns = (self.weight, self.group, self.covariate)
        blocks = []
        for k, a in enumerate(range(0, n, rows)):
            at = slice(a, min(a + rows, n))
            some: list[Any] = [None if c is None else c[at] for c in columns]
            some += [self.most, None if word is None else (word, k)]
            part = _rows(self.rows, at)
            blocks.append(ArrayBlock(k, a, part, self.stored_only, self.ids[at], *some))
        return blocks

    def read(self) -> Block:
        """Return the block as int8 codes, each one that its item has."""
        rows = self.rows
        if hasattr(rows, "dask"):
            rows = rows.compute(scheduler="synchronous")
        data = _data(rows, self.stored_only, self.start, self.most)
        return Block(self.index, self.start, data, self.weight)

    def column(self, name: str) -> NDArray[Any] | None:
        """Return identifiers, weights, group labels or covariates, None without any."""
        return {
            "person_id": self.ids, "person_weight": self.weight, "person_group": self.group,
            "person_covariate": self.covariate,
        }[name]  # fmt: skip


def _data(rows: Any, stored_only: bool, start: int, most: int | NDArray[np.int8] | None) -> Layout:
    """Turn rows of any supported array into responses, sparse ones if only they were observed."""
    if isinstance(rows, (Dense, Sparse)):
        return rows
    if not hasattr(rows, "tocsr"):
        return Dense(_encode(np.asanyarray(rows), start, most))
    coo = rows.tocoo()
    codes = _encode(coo.data.reshape(1, -1), start, most, coo.row, coo.col)[0]
    if not stored_only:
        values = np.zeros(rows.shape, dtype=np.int8)
        values[coo.row, coo.col] = codes
        return Dense(values)
    seen = codes >= 0
    row, column, codes = coo.row[seen], coo.col[seen], codes[seen]
    order = np.lexsort((column, row))
    indptr = np.zeros(rows.shape[0] + 1, dtype=np.int64)
    np.cumsum(np.bincount(row, minlength=rows.shape[0]), out=indptr[1:])
    return Sparse(indptr, column[order].astype(np.int32), codes[order], rows.shape[1])


def _encode(
    rows: NDArray[Any], start: int, most: int | NDArray[np.int8] | None, row: Any = None,
    column: Any = None,
) -> NDArray[np.int8]:  # fmt: skip
    """Turn numbers into codes and -1 (not observed); ``row`` and ``column`` place sparse entries.

    The only way of arrays into blocks: a code that its item does not have is an error here.
    """
    missing = np.ma.getmaskarray(rows) if isinstance(rows, np.ma.MaskedArray) else None
    data = np.asarray(np.ma.getdata(rows))
    if data.dtype.kind == "f":
        nan = np.isnan(data)
        missing = nan if missing is None else missing | nan
    missing = (data == -1) if missing is None else missing | (data == -1)
    k = BINARY if most is None else most
    if row is not None and not isinstance(k, int):
        k = k[column]
    with np.errstate(invalid="ignore"):  # what is no code is not the same number afterwards
        codes = data.astype(np.int8)
    codes[missing] = -1
    bad = ~missing & ((codes != data) | (codes < 0) | (codes >= k))
    if bad.any():
        i, j = np.argwhere(bad)[0]
        value, n = data[i, j], np.broadcast_to(k, data.shape)[i, j]
        if row is not None:
            i, j = row[j], column[j]
        if most is None:
            rule = "responses are 1 (right) and 0 (wrong)"
            more = "; if it has more, say categories=K, or a K for each item, in from_array"
        else:
            rule, more = f"it has {n} categories, the codes 0 to {n - 1}", ""
        raise InputError(
            f"response {value} of person {start + i}, item {j} (counted from 0): {rule}, or -1, "
            f"NaN or a mask where missing{more}"
        )
    return codes


def _refuse_repeated(matrix: Any) -> None:
    """Stop if a cell of a sparse matrix is stored twice: conversion would add the two up."""
    coo = matrix.tocoo()
    cells = np.sort(coo.row.astype(np.int64) * coo.shape[1] + coo.col)
    again = np.flatnonzero(cells[1:] == cells[:-1])
    if again.size:
        i, j = divmod(int(cells[again[0]]), coo.shape[1])
        raise InputError(f"the response of person {i} to item {j} (counted from 0) is stored twice")


def from_array(
    array: Any,
    *,
    observed: str | None = None,
    persons: Mapping[str, Any] | pd.DataFrame | None = None,
    person_id: Sequence[Any] | NDArray[Any] | None = None,
    item_id: Sequence[Any] | None = None,
    rows_per_block: int | None = None,
    weight_kind: str = "sampling",
    categories: int | Sequence[int] | NDArray[Any] | Mapping[str, int] | None = None,
) -> Responses:
    """Make Responses of an array of persons x items.

    Parameters
    ----------
    array : (n_persons, n_items)
        NumPy array or masked array (1 right, 0 wrong; -1, NaN or masked: not observed), pandas or
        xarray table of the same, scipy.sparse matrix, or dask array.  What is in memory is copied:
        later changes to it have no effect.  A dask array stays lazy: its blocks are computed, and
        checked, on the worker that uses them, anew for each computation, since its name says
        nothing of its content.
    observed : {"stored", "all"}, required for scipy.sparse
        Whether only stored entries were observed (zeros stored explicitly are wrong answers), or
        every cell was (what is not stored is wrong).  With "stored" blocks stay sparse.
    persons : table with one row a person, in the order of the array
        Columns ``weight`` (finite, positive), ``group`` (a label), and any others, which are
        covariates: numbers (NaN where not known), or text that is no numbers, and categoricals of
        pandas, which are labels (None, NaN or nothing where not known).
    person_id, item_id : identifiers; default the array's own, else "0", "1", ...
        As text in Unicode's normal form C, in which identifiers that look the same are.
    rows_per_block : persons in a block; never changes an answer.
    weight_kind : {"sampling", "frequency"}
        What the column ``weight`` means.  Sampling weights are divided by their mean in every
        method, so that a common factor does not matter; frequency weights (whole numbers) say how
        many persons a row stands for, as in a table of response patterns with counts.
    categories : number of categories K, from 2 to 15, of all items, or of each
        One for each item in their order, or by identifier (2 for those that are not named).
        Responses are then the codes 0 to K - 1 of their item.  Default 2: a code above 1 is an
        error.

    Returns
    -------
    Responses

    Examples
    --------
    >>> import numpy as np
    >>> import irt_dask as irt
    >>> answers = np.array([[1, 0, -1], [1, 1, 0]])
    >>> persons = {"group": ["boys", "girls"]}
    >>> responses = irt.from_array(answers, item_id=["q1", "q2", "q3"], persons=persons)
    >>> responses
    <Responses: 2 persons x 3 items, 1 dense blocks>
    """
    array, own_person, own_item = _unwrap(array)
    array = _checked(array, observed)
    n, m = array.shape
    items = check_item_ids(_first(item_id, own_item, range(m)))
    if len(items) != m:
        raise InputError(f"item_id has {len(items)} entries, the array has {m} columns (items)")
    ids = _checked_ids(_first(person_id, own_person, range(n)), n)
    weight, group, covariates, labels = person_columns(persons, ids, check_kind(weight_kind))
    if weight is not None:
        checked(Sums.of(weight), weight_kind)
    elif weight_kind != SAMPLING:
        raise InputError(f"weight_kind={weight_kind!r}, but persons have no column 'weight'")
    stored_only = observed == "stored"
    per_person = -(-array.nnz // n) if stored_only else m
    rows = check_rows_per_block(rows_per_block, per_person, n)
    each_k = BINARY if categories is None else declared(categories, items)
    blocks = ArrayBlock(
        index=0, start=0, rows=array, stored_only=stored_only, ids=_compact(ids), weight=weight,
        group=group, covariate=np.stack([*covariates.values()], axis=1) if covariates else None,
        most=None if categories is None else limits(each_k),
    ).cut(rows)  # fmt: skip
    lazy = hasattr(array, "dask")
    if not lazy:  # checked now, and kept as responses
        blocks = [replace(b, rows=b.read().data, stored_only=False) for b in blocks]
    return Responses(
        refs=blocks,
        n_persons=n,
        item_id=items,
        max_weight=None if weight is None else float(weight.max()),
        has_groups=group is not None,
        layout="csr" if stored_only else "dense",
        covariate_names=tuple(covariates),
        covariate_labels=labels,
        weight_kind=weight_kind,
        lazy=lazy,
        categories=each_k,
    )


def _checked(array: Any, observed: str | None) -> Any:
    """Refuse what is no table of responses; a sparse matrix becomes one of rows."""
    if any(size != size for size in getattr(array, "shape", ())):  # NaN: dask does not know
        raise InputError("the dask array has chunks of unknown size; call compute_chunk_sizes()")
    if getattr(array, "ndim", 0) != 2 or 0 in array.shape:
        raise InputError(
            f"responses have shape {getattr(array, 'shape', ())}; give a table of persons (rows) x "
            f"items (columns) with at least one of each"
        )
    if array.dtype.kind not in "biuf":
        raise InputError(
            f"responses have dtype {array.dtype}; give numbers: 1 right, 0 wrong, -1 or NaN missing"
        )
    if not hasattr(array, "tocsr"):
        if observed is not None:
            raise InputError("observed= applies to scipy.sparse matrices only; leave it out")
        return array
    if observed not in ("stored", "all"):
        raise InputError(
            "a sparse matrix needs irt.from_array(matrix, observed='stored') (only stored entries "
            "were answered; store zeros explicitly) or observed='all' (what is not stored is a "
            "wrong answer)"
        )
    _refuse_repeated(array)
    return array.tocsr()


def _checked_ids(given: Any, n: int) -> NDArray[np.object_]:
    """Identifiers of n persons as strings, not empty and each once."""
    ids = np.array([identifier(i) for i in given], dtype=object)
    if "" in ids:
        raise InputError(f"person {list(ids).index('')} (counted from 0) has an empty identifier")
    if len(ids) != n:
        raise InputError(f"person_id has {len(ids)} entries, the array has {n} rows (persons)")
    if len(set(ids)) < n:
        twice = sorted(repeated(ids))
        raise InputError(f"person_id must be unique; repeated: {', '.join(twice[:10])}")
    return ids


def _compact(ids: NDArray[np.object_]) -> NDArray[np.str_] | NDArray[np.object_]:
    """Identifiers side by side, unless a long one would make all of them long."""
    longest = max(map(len, ids))
    return ids.astype(f"U{longest}") if longest <= _COMPACT else ids


def _rows(array: Any, at: slice) -> Any:
    """Rows of an array; of a dask array with only the part of its graph that they need."""
    rows = array[at]
    if hasattr(rows, "dask"):
        import dask

        (rows,) = dask.optimize(rows)
    return rows


def _first(*choices: Any) -> Any:
    return next(c for c in choices if c is not None)


def _unwrap(array: Any) -> tuple[Any, Any, Any]:
    """Return the bare array and the identifiers that its coordinates hold."""
    kind = type(array).__module__.split(".")[0]
    if kind == "xarray":
        if not hasattr(array, "dims") or hasattr(array, "data_vars"):
            raise InputError("an xarray Dataset has many arrays; pass one: dataset['response']")
        if array.dims == ("items", "persons"):
            array = array.transpose()
        coords = array.coords
        return (
            array.data,
            coords["person_id"].values if "person_id" in coords else None,
            coords["item_id"].values if "item_id" in coords else None,
        )
    if kind == "pandas":
        return array.to_numpy(), array.index, array.columns
    if isinstance(array, (list, tuple)):
        return np.asarray(array), None, None
    return array, None, None
