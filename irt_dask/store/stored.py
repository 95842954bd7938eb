"""Reading a store: every byte is checked against the manifest when it is read."""

from __future__ import annotations

import copy
import functools
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irt_dask.errors import (
    DiskError,
    IrtDaskError,
    StoreError,
    TooLargeError,
    starting_threads,
)
from irt_dask.kernels.responses.layouts import Dense, Layout, Sparse
from irt_dask.store import manifest, nonresponse, supplements
from irt_dask.store.blocks import Block, BlockRef, Refs
from irt_dask.store.categories import BINARY, Categories, Collapsed, limits, together
from irt_dask.store.checked import array_of, bytes_of, content_of
from irt_dask.store.labels import of_parts
from irt_dask.store.objects import AT_ONCE, ObjectPath
from irt_dask.store.places import location
from irt_dask.store.responses import FREQUENCY, SAMPLING, Responses
from irt_dask.store.weights import refused, rule
from irt_dask.variables import identifier


def _categories(content: dict[str, Any]) -> Categories:
    return together(content.get("n_categories", [BINARY]))


def collapsed_of(responses: Responses) -> Collapsed:
    """Which items of an opened store have lost empty categories, and how their codes moved down."""
    if responses.path is None or responses.checksum is None:
        return {}
    content = content_of(responses.path, responses.checksum)
    return {identifier(i): tuple(codes) for i, codes in content.get("collapsed", {}).items()}


def reversed_of(responses: Responses) -> tuple[str, ...]:
    """The items of an opened store whose codes were counted back by the first file with them."""
    if responses.path is None or responses.checksum is None:
        return ()
    content = content_of(responses.path, responses.checksum)
    return tuple(map(identifier, content.get("reversed", ())))


def _weight_kind(content: dict[str, Any]) -> str:
    return FREQUENCY if manifest.FREQUENCY_WEIGHTS in content.get("needs", ()) else SAMPLING


def _identifiers(given: NDArray[np.object_]) -> NDArray[np.object_]:
    """Texts in normal form, whatever they were when they were written."""
    if "".join(given).isascii():
        return given
    return np.array([identifier(text) for text in given], dtype=object)


@functools.lru_cache(maxsize=16)
def _limits(path: str, checksum: str) -> int | NDArray[np.int8]:
    return limits(_categories(content_of(path, checksum)))


@dataclass(frozen=True)
class StoredBlock(BlockRef):
    """One block of a store: which chunk of which part.

    The chunk holds the first ``n_stored`` of the ``n_items`` items; its persons were there before
    the others.  What they have answered since is in the ``supplements`` of these later parts.
    """

    path: str
    checksum: str
    part: str
    index: int
    start: int
    chunk: int
    first: int
    last: int
    n_stored: int
    n_items: int
    layout: str
    columns: tuple[str, ...]
    supplements: tuple[str, ...] = ()
    marked: frozenset[str] = frozenset()  # parts that say what was not answered
    treated: nonresponse.Treated = nonresponse.MISSING

    @property
    def cache_key(self) -> tuple[Any, ...]:
        """Manifest checksum and block, and how it is read: wherever the store lies."""
        read = () if self.treated == nonresponse.MISSING else self.treated
        return self.checksum, self.index, *read

    def _array(self, name: str, rows: int | slice, part: str | None = None) -> NDArray[Any]:
        """Rows of an array; what cannot be decoded is damage of a kind that a checksum may hide."""
        try:
            with starting_threads():
                array = array_of(self.path, self.checksum, part or self.part, name)
                return np.asarray(array[rows])
        except IrtDaskError:
            raise
        except MemoryError as error:
            what = "asks for more memory than there is"
            raise TooLargeError(str(self._wrong(name, what, part))) from error
        except Exception as error:
            what = f"cannot be decoded ({type(error).__name__}: {error})"
            raise self._wrong(name, what, part) from error

    def column(self, name: str) -> NDArray[Any] | None:
        """Return a variable of the block's persons, None without it."""
        if name not in self.columns:
            return None
        column = self._array(name, slice(self.first, self.last))
        if name in ("person_id", "person_group"):
            return _identifiers(column.astype(object))
        if name == "person_weight":
            kind = _weight_kind(content_of(self.path, self.checksum))
            bad = refused(column, kind)
            if bad.size:
                raise self._wrong(name, f"holds {column[bad[0]]}: {rule(kind)}")
        elif np.isinf(column).any():
            raise self._wrong(name, "holds an infinite value")
        return column

    def read(self) -> Block:
        """Return the block, checked."""
        data = self.codes()
        if self._is_marked:
            data = nonresponse.treated(data, self.treated)
        return Block(self.index, self.start, data, self.weights())

    @property
    def _is_marked(self) -> bool:
        """Whether the block may hold codes of what was not answered."""
        return not self.marked.isdisjoint((self.part, *self.supplements))

    def codes(self) -> Layout:
        """Return the codes as the store has them, of what was not answered too; checked."""
        data = self._dense() if self.layout == "dense" else self._sparse()
        for part in self.supplements:
            data = self._supplemented(data, part)
        return data

    def _dense(self) -> Layout:
        values = self._array("response", slice(self.first, self.last))
        if values.shape[1] != self.n_stored:
            raise self._wrong("response", f"has {values.shape[1]} items, not {self.n_stored}")
        self._check_codes("response", values, -1, slice(self.n_stored))
        if self.n_stored == self.n_items:
            return Dense(values)
        whole = np.full((len(values), self.n_items), -1, dtype=np.int8)
        whole[:, : self.n_stored] = values
        return Dense(whole)

    def _sparse(self) -> Layout:
        indptr = self._array("response_indptr", self.chunk)
        indptr = indptr[: self.last - self.first + 1].copy()
        indices = self._array("response_indices", self.chunk)
        values = self._array("response_value", self.chunk)
        n = int(indptr[-1])
        if indptr[0] != 0 or n > min(indices.size, values.size) or (np.diff(indptr) < 0).any():
            raise self._wrong(
                "response_indptr", "does not ascend from 0 to the number of responses"
            )
        indices, values = indices[:n].copy(), values[:n].copy()
        falls = np.diff(indices) <= 0
        falls[indptr[1:-1][(indptr[1:-1] > 0) & (indptr[1:-1] < n)] - 1] = False
        if n and (indices.min() < 0 or indices.max() >= self.n_stored or falls.any()):
            raise self._wrong("response_indices", "holds items out of order or that do not exist")
        self._check_codes("response_value", values, 0, indices)
        return Sparse(indptr, indices, values, self.n_items)

    def _supplemented(self, data: Layout, part: str) -> Layout:
        """Fill cells with what a later part has of the block's persons."""
        name = supplements.NAME
        chunk = self._array(name, self.index, part)
        cells = supplements.unpadded(chunk, *data.shape)
        most = _limits(self.path, self.checksum)
        wrong = None
        if cells is None:
            wrong = "holds cells out of order or that the block does not have"
        elif self._beyond(cells.code, most if isinstance(most, int) else most[cells.item], part):
            wrong = "holds codes that its items do not have"
        else:
            whole = supplements.filled(data, cells)
            if whole is not None:
                return whole
            wrong = "holds responses that were observed before"
        raise self._wrong(name, wrong, part)

    def _check_codes(self, name: str, values: NDArray[np.int8], least: int, items: Any) -> None:
        """Stop at a code that its item does not have: kernels check no bounds."""
        most = _limits(self.path, self.checksum)
        of_items = most if isinstance(most, int) else most[items]
        if (values < least).any() or self._beyond(values, of_items, self.part):
            binary = isinstance(most, int) and most == BINARY
            what = "values other than 1, 0 and -1" if binary else "codes that its items do not have"
            raise self._wrong(name, f"holds {what}")

    def _beyond(self, codes: NDArray[Any], most: Any, part: str) -> bool:
        """Whether some codes of a part are none."""
        beyond = codes >= most
        if part in self.marked and beyond.any():
            beyond &= nonresponse.in_categories(codes)
        return bool(beyond.any())

    def checksums(self) -> list[str]:
        """What the manifest says of the files that hold the block: array, rows, SHA-256."""
        files = content_of(self.path, self.checksum)["files"]
        if self.layout == "dense":
            arrays = ["response"]
        else:
            arrays = ["response_indptr", "response_indices", "response_value"]
        out = []
        for name in (*arrays, *self.columns):
            root = f"{self.part}/{name}"
            chunk = f"{root}/c/{self.chunk}"
            data = files.get(chunk) or files[f"{chunk}/0"]
            out.append(f"{name} {self.last - self.first} {data[1]}")
        out += [f"{supplements.NAME} {files[supplements.key_of(p, self.index)][1]}"
                for p in self.supplements]  # fmt: skip
        if self.treated != nonresponse.MISSING and self._is_marked:
            out.append(f"nonresponse {self.treated}")
        return out

    def earlier(self) -> list[StoredBlock]:
        """The block as it was before later parts added responses, each time."""
        return [
            replace(self, supplements=self.supplements[:n]) for n in range(len(self.supplements))
        ]

    def _wrong(self, name: str, what: str, part: str | None = None) -> StoreError:
        if part is not None:
            return StoreError(f"{self.path}: array {name} in {part}, chunk {self.index}: {what}")
        return StoreError(
            f"{self.path}: array {name} in {self.part}, chunk {self.chunk} "
            f"(rows {self.first} to {self.last - 1}): {what}"
        )


class StoredBlocks(Refs):
    """The blocks of a store, and how what was not answered is read."""

    treated = nonresponse.MISSING

    def __init__(self, path: str, content: dict[str, Any]) -> None:
        self.path, self.checksum = path, content["checksum"]
        self.n_items, self.layout = len(content["item_id"]), content["layout"]
        self.n_stored = manifest.items_of_parts(content)
        given = {
            "person_id": True,
            "person_weight": content["weighted"],
            "person_group": content["grouped"],
            "person_covariate": bool(content["covariates"]),
        }
        self.columns = tuple(name for name, has in given.items() if has)
        self.parts = [(p["name"], p["n_persons"], p["rows_per_block"]) for p in content["parts"]]
        self.first_block = np.cumsum([0] + [-(-n // r) for _, n, r in self.parts])
        self.first_person = np.cumsum([0] + [n for _, n, _ in self.parts])
        self.supplements = supplements.of_blocks(content)
        self.marked = frozenset(p["name"] for p in content["parts"] if "nonresponse" in p)

    def read_as(self, treated: nonresponse.Treated) -> StoredBlocks:
        """The same blocks, read otherwise."""
        out = copy.copy(self)
        out.treated = treated
        return out

    @property
    def n_persons(self) -> int:
        """Persons in all parts."""
        return int(self.first_person[-1])

    def __len__(self) -> int:
        return int(self.first_block[-1])

    def at(self, k: int) -> StoredBlock:
        """Return the reference of block ``k``."""
        p = int(np.searchsorted(self.first_block, k, side="right")) - 1
        name, n, rows = self.parts[p]
        chunk = k - int(self.first_block[p])
        first = chunk * rows
        return StoredBlock(
            self.path, self.checksum, name, k, int(self.first_person[p]) + first, chunk, first,
            min(first + rows, n), self.n_stored[p], self.n_items, self.layout, self.columns,
            self.supplements.get(k, ()), self.marked, self.treated,
        )  # fmt: skip


def open_responses(store: str | os.PathLike[str] | ObjectPath) -> Responses:
    """Open a store of responses.

    Parameters
    ----------
    store
        Path of the folder that :func:`irt_dask.ingest` or :func:`irt_dask.simulate` wrote, or its
        URL in object storage, such as ``s3://bucket/folder`` ("irt-dask docs objects").  Every
        chunk is one request there, made when the block is read, and checked as a file is.

    Returns
    -------
    Responses
        A small, picklable handle; no response is read yet.

    Raises
    ------
    StoreError
        If the folder is not a store, is damaged, or was written by another format version, or
        object storage cannot be reached.
    InputError
        If a URL cannot be used.

    Examples
    --------
    >>> import irt_dask as irt
    >>> _ = irt.simulate(500, 10, seed=1, store="simulated.zarr")
    >>> responses = irt.open_responses("simulated.zarr")
    >>> responses.n_persons, responses.n_items
    (500, 10)
    """
    path = location(store)
    if isinstance(path, Path):
        path = path.resolve()
    content = manifest.read(path)
    weights = [p["max_weight"] for p in content["parts"] if p["max_weight"] is not None]
    blocks = StoredBlocks(str(path), content)
    return Responses(
        refs=blocks,
        n_persons=blocks.n_persons,
        item_id=tuple(map(identifier, content["item_id"])),
        checksum=content["checksum"],
        layout=content["layout"],
        path=str(path),
        max_weight=max(weights, default=None),
        has_groups=content["grouped"],
        covariate_names=tuple(map(identifier, content["covariates"])),
        covariate_labels={identifier(k): v for k, v in of_parts(content["parts"]).items()},
        n_quarantined=sum(p["n_quarantined"] for p in content["parts"]),
        weight_kind=_weight_kind(content),
        categories=_categories(content),
    )


def verify(path: str | Path) -> None:
    """Read every file of a store; raise one StoreError that lists everything wrong."""
    root = location(path)
    content = manifest.read(root)

    def problem(key: str) -> str | None:
        try:
            data = bytes_of(root / key, content["files"][key])
        except (OSError, StoreError, DiskError) as error:
            if isinstance(root, ObjectPath):
                raise
            return f"{manifest.describe(key)} of {root}: {key} cannot be read: {error}"
        return manifest.problem(root, key, content["files"][key], data)

    # A disk is read in order; a request for an object is mostly waiting.  Where requests fail, the
    # first error ends this: after it the others would each be repeated for a while too.
    with ThreadPoolExecutor(1 if isinstance(root, Path) else AT_ONCE) as pool:
        problems = [wrong for wrong in pool.map(problem, content["files"]) if wrong]
    if problems:
        raise StoreError(f"{len(problems)} problem(s) in {root}:\n" + "\n".join(problems))
