"""Some items or persons of some responses: views of their blocks."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from irt_dask.arrays import Ints
from irt_dask.errors import InputError, listed
from irt_dask.kernels.base import keyed_random
from irt_dask.kernels.responses import layouts
from irt_dask.store.blocks import Block, BlockRef, Refs, WrappedRef
from irt_dask.store.categories import together
from irt_dask.store.empty_categories import WithoutRef
from irt_dask.store.responses import Responses, check_item_ids, sha256
from irt_dask.store.stored import StoredBlock
from irt_dask.store.weights import UnweightedRef, WeightedRef, without
from irt_dask.variables import identifier


@dataclass(frozen=True)
class Dealt:
    """Persons whose keyed uniform lies in ``[low, high)``: a share of all, drawn at random."""

    seed: int
    low: float
    high: float

    def of(self, start: int, n: int) -> NDArray[np.intp]:
        """Rows of a block of n persons that begins at ``start``."""
        u = keyed_random.uniforms(keyed_random.key(self.seed, "split"), start, n)[:, 0]
        return np.flatnonzero((self.low <= u) & (u < self.high))


#: Of a block; an array of truth values has one for each of its persons.
Rows = slice | NDArray[np.intp] | NDArray[np.bool_] | Dealt


@dataclass(frozen=True, eq=False)
class SelectedBlock(BlockRef):
    """Rows and columns of a block."""

    ref: BlockRef
    index: int
    start: int
    rows: Rows
    items: NDArray[np.intp] | None
    cache_key: tuple[Any, ...] | None

    def read(self) -> Block:
        """Return the selected part of the block."""
        block = self.ref.read()
        data = block.data
        if self.items is not None:
            data = layouts.columns(data, self.items)
        rows = self._rows(block.n_persons)
        if not (isinstance(rows, slice) and rows == slice(None)):
            data = layouts.take(data, np.arange(block.n_persons)[rows])
        weight = None if block.weight is None else block.weight[rows]
        return Block(self.index, self.start, data, weight)

    def _rows(self, n: int) -> slice | NDArray[np.intp] | NDArray[np.bool_]:
        return self.rows.of(self.ref.start, n) if isinstance(self.rows, Dealt) else self.rows

    def column(self, name: str) -> NDArray[Any] | None:
        """Return a variable of the selected persons, None without it."""
        column = self.ref.column(name)
        return None if column is None else column[self._rows(len(column))]


def of_all_items(ref: BlockRef) -> BlockRef:
    """The stored block of whose items this has some, if it has all of its persons; else itself.

    On the same scale of weights, or without them.
    """
    if isinstance(ref, WithoutRef) or (isinstance(ref, WrappedRef) and ref.adds_only):
        return of_all_items(ref.ref)
    if isinstance(ref, (WeightedRef, UnweightedRef)):
        return replace(ref, ref=of_all_items(ref.ref))
    if not isinstance(ref, SelectedBlock):
        return ref
    whole = ref.ref.ref if isinstance(ref.ref, UnweightedRef) else ref.ref
    every = isinstance(ref.rows, slice) and ref.rows == slice(None)
    return ref.ref if every and isinstance(whole, StoredBlock) else ref


@dataclass(frozen=True, eq=False)
class _SelectedBlocks(Refs):
    """The blocks of a selection, made when asked for."""

    refs: Sequence[BlockRef]
    chosen: Sequence[int]
    rows: dict[int, Rows]
    starts: Ints
    items: NDArray[np.intp] | None
    name: str

    def __len__(self) -> int:
        return len(self.chosen)

    def at(self, k: int) -> SelectedBlock:
        """Return the reference of block ``k``."""
        ref, rows = self.refs[self.chosen[k]], self.rows.get(self.chosen[k], slice(None))
        key = None if ref.cache_key is None else (self.name, k)
        return SelectedBlock(ref, k, int(self.starts[k]), rows, self.items, key)


def select(
    responses: Responses, items: Sequence[str] | None,
    persons: Sequence[str] | NDArray[np.bool_] | slice | None, weights: str = "use",
) -> Responses:  # fmt: skip
    """See :meth:`irt_dask.Responses.select`."""
    if weights not in ("use", "ignore"):
        raise InputError(f"weights={weights!r} is not available; choose use or ignore")
    if weights == "ignore":
        responses = without(responses)
    if items is None and persons is None:
        return responses if weights == "ignore" else _view(responses, None, None)
    columns = None if items is None else _columns(responses, items)
    if persons is None:
        return _view(responses, columns, None)
    if isinstance(persons, slice):
        return _view(responses, columns, _rows_of_slice(responses, persons))
    if isinstance(persons, str) or not isinstance(persons, Iterable):
        raise InputError(
            f"persons={persons!r} must be a list of person identifiers, a mask, or a slice"
        )
    persons = persons if hasattr(persons, "dtype") else [*persons]
    mask = _mask(persons, responses.n_persons)
    if mask is not None:
        return _view(responses, columns, _rows_of_mask(responses, mask))
    return _view(responses, columns, _rows_of_ids(responses, persons))


def split(responses: Responses, share: float, seed: int) -> tuple[Responses, Responses]:
    """See :meth:`irt_dask.Responses.split`."""
    if not 0.0 < share < 1.0:
        raise InputError(f"share={share} must lie between 0 and 1, such as 0.8")
    parts = Dealt(seed, 0.0, share), Dealt(seed, share, 1.0)
    views: list[dict[int, Rows]] = [
        {k: part for k, (a, b) in enumerate(_bounds(responses)) if part.of(a, b - a).size}
        for part in parts
    ]
    if not all(views):
        raise InputError(
            f"share={share} of {responses.n_persons} person(s) leaves one part without anybody; "
            f"take another share or seed"
        )
    return _view(responses, None, views[0]), _view(responses, None, views[1])


def _bounds(responses: Responses) -> Iterator[tuple[int, int]]:
    return itertools.pairwise(_starts(responses).tolist())


def _view(
    responses: Responses, columns: NDArray[np.intp] | None, rows: dict[int, Rows] | None
) -> Responses:
    """Return the items at these places and these rows of blocks; None: all."""
    if rows is None:
        chosen: Sequence[int] = range(responses.n_blocks)
        starts = _starts(responses)
    else:
        chosen = sorted(rows)
        if not chosen:
            raise InputError("no person is selected; give at least one")
        bounds = list(_bounds(responses))
        starts = np.cumsum([0, *(len(_positions(rows[k], *bounds[k])) for k in chosen)])
    parts: list[bytes] = []
    for k, r in (rows or {}).items():  # each with its length: no two have the same bytes
        if isinstance(r, np.ndarray) and r.dtype == bool:
            r = np.flatnonzero(r)  # as of identifiers
        content = r.tobytes() if isinstance(r, np.ndarray) else repr(r).encode()
        parts += [f"/{k}/{type(r).__name__}/{len(content)}/".encode(), content]
    name = sha256(
        (responses.checksum or repr(responses.refs[0].cache_key)).encode(),
        b"all" if columns is None else f"{columns.tolist()}".encode(),
        b"all" if rows is None else b"some",
        *parts,
    )
    item_id, categories = responses.item_id, responses.categories
    if columns is not None:
        item_id = tuple(item_id[j] for j in columns)
        each = responses.n_categories
        categories = together(each[j] for j in columns)
    return replace(
        responses,
        refs=_SelectedBlocks(responses.refs, chosen, rows or {}, starts, columns, name),
        n_persons=int(starts[-1]),
        item_id=item_id,
        categories=categories,
        checksum=None if responses.checksum is None else name,
        truth=_truth(responses, columns, rows),
    )


def _positions(rows: Rows, start: int, stop: int) -> Ints:
    """Positions among all persons of rows of the block from ``start`` to ``stop``."""
    return np.arange(start, stop)[rows.of(start, stop - start) if isinstance(rows, Dealt) else rows]


def _starts(responses: Responses) -> Ints:
    return np.array([*(ref.start for ref in responses.refs), responses.n_persons], dtype=np.int64)


def _columns(responses: Responses, items: Sequence[str]) -> NDArray[np.intp]:
    if isinstance(items, str) or not isinstance(items, Iterable):
        raise InputError(f"items={items!r} must be a list of item identifiers")
    known = {name: j for j, name in enumerate(responses.item_id)}
    items = list(items)
    if not items:
        raise InputError("no item is selected; give at least one")
    wanted = check_item_ids(items)
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise InputError(_unknown("item", unknown))
    return np.array([known[name] for name in wanted], dtype=np.intp)


def _unknown(what: str, ids: list[str]) -> str:
    return f"{len(ids)} {what}(s) do not occur: {listed(ids, 10)}"


def _rows_of_slice(responses: Responses, persons: slice) -> dict[int, Rows]:
    try:
        first, stop, step = persons.indices(responses.n_persons)
    except TypeError:
        raise InputError(f"persons={persons}: a slice of persons is of whole numbers") from None
    if step != 1:
        raise InputError(f"persons={persons}: the step of a slice of persons must be 1")
    rows: dict[int, Rows] = {}
    for k, (a, b) in enumerate(_bounds(responses)):
        low, high = max(a, first), min(b, stop)
        if low < high:
            rows[k] = slice(low - a, high - a)
    return rows


def _mask(persons: Any, n: int) -> NDArray[np.bool_] | None:
    """A copy of what is a mask, None for what are identifiers."""
    array = np.asarray(persons if hasattr(persons, "dtype") else np.array(persons, dtype=object))
    kinds = {type(x) for x in array.ravel()} if array.dtype == object else set()
    truth = {bool, np.bool_}
    if kinds & truth and kinds - truth:
        raise InputError(
            f"persons= has True or False and {min(t.__name__ for t in kinds - truth)}; a mask has "
            f"True or False for each person and nothing else"
        )
    if array.dtype.kind in "fc" or (
        array.dtype.kind in "iuO" and n > 2 and array.shape == (n,) and {*array.tolist()} <= {0, 1}
        and not kinds & truth
    ):  # fmt: skip
        raise InputError(
            f"persons= are numbers ({array.dtype}); a mask is of truth values (mask.astype(bool)), "
            f"identifiers are text"
        )
    if not (array.dtype.kind == "b" or kinds & truth):
        return None
    if array.shape != (n,):
        raise InputError(
            f"persons= is a mask of shape {array.shape}; it needs one truth value for each of the "
            f"{n} persons"
        )
    _refuse_doubt(persons, n)
    return array.astype(bool)


def _refuse_doubt(mask: Any, n: int) -> None:
    """Refuse a mask of which it is not sure whom it means."""
    if np.ma.is_masked(mask):
        raise InputError(
            "persons= is a mask with values that are masked themselves; say what they mean, such "
            "as mask.filled(False)"
        )
    labels = mask.index if isinstance(mask, pd.Series) else None
    if labels is not None and not labels.equals(pd.RangeIndex(n)):
        raise InputError(
            f"persons= is a mask with an index ({listed(map(str, labels), 3)}), and a mask goes by "
            f"position: give mask.to_numpy() if it has the order of the persons, or the "
            f"identifiers mask.index[mask]"
        )


def _rows_of_mask(responses: Responses, mask: NDArray[np.bool_]) -> dict[int, Rows]:
    """Of each block its own piece of the mask, which alone goes to a worker."""
    rows: dict[int, Rows] = {}
    for k, (a, b) in enumerate(_bounds(responses)):
        own = mask[a:b]
        if own.any():
            rows[k] = slice(0, b - a) if own.all() else own
    return rows


def _rows_of_ids(responses: Responses, persons: Any) -> dict[int, Rows]:
    wanted = {identifier(p) for p in persons}
    found: set[str] = set()
    rows: dict[int, Rows] = {}
    for k in range(responses.n_blocks):
        names = responses.person_ids(k).tolist()
        at = np.array([i for i, name in enumerate(names) if name in wanted], dtype=np.intp)
        if at.size:
            rows[k] = at
            found.update(names[i] for i in at)
    unknown = sorted(wanted - found)
    if unknown:
        raise InputError(_unknown("person", unknown))
    return rows


def _truth(
    responses: Responses, columns: NDArray[np.intp] | None, rows: dict[int, Rows] | None
) -> Any:
    """True parameters of what is selected of simulated responses."""
    truth = responses.truth
    if truth is None:
        return None
    if columns is not None:
        truth = truth.isel(items=columns)
    if rows is not None and "persons" in truth.dims:
        bounds = enumerate(_bounds(responses))
        at = [_positions(rows[k], a, b) for k, (a, b) in bounds if k in rows]
        truth = truth.isel(persons=np.concatenate(at))
    return truth
