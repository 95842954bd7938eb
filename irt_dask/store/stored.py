"""Reading a store: every byte is checked against the manifest when it is read."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.abc.store import ByteRequest
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import LocalStore, WrapperStore

from irt_dask.errors import StoreError
from irt_dask.kernels.layouts import Dense
from irt_dask.store import manifest
from irt_dask.store.responses import Block, Responses


class CheckedStore(WrapperStore[LocalStore]):
    """A Zarr store of one part that serves exactly the bytes that the manifest lists."""

    def __init__(self, root: Path, part: str, files: dict[str, list[int | str]]) -> None:
        super().__init__(LocalStore(root / part, read_only=True))
        self.root, self.part, self.files = root, part, files

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Return a whole file; an unlisted key is absent, a listed one is right or an error."""
        path = f"{self.part}/{key}"
        if path not in self.files:
            return None
        if byte_range is not None:
            raise StoreError(f"{self.root / path}: part of a file was asked for; files are whole")
        buffer = await self._store.get(key, prototype)
        data = None if buffer is None else buffer.to_bytes()
        wrong = manifest.problem(self.root, path, self.files[path], data)
        if wrong:
            raise StoreError(wrong)
        return buffer


@functools.lru_cache(maxsize=16)
def _content(path: str, checksum: str) -> dict[str, Any]:
    content = manifest.read(Path(path))
    if content["checksum"] != checksum:
        raise StoreError(
            f"the store {path} changed while it was in use: its manifest has checksum "
            f"{content['checksum'][:12]}, expected {checksum[:12]}; start the run again"
        )
    return content


@functools.lru_cache(maxsize=64)
def _array(path: str, checksum: str, part: str, name: str) -> zarr.Array:
    content = _content(path, checksum)
    store = CheckedStore(Path(path), part, content["files"])
    if f"{part}/{name}/zarr.json" not in content["files"]:
        raise StoreError(f"{path}: the manifest lists no array {name} in {part}")
    return zarr.open_array(store, path=name, mode="r", zarr_format=3)


@dataclass(frozen=True)
class StoredBlock:
    """One block of a store: which chunk of which part."""

    path: str
    checksum: str
    part: str
    index: int
    start: int
    first: int
    last: int
    weighted: bool
    grouped: bool

    @property
    def cache_key(self) -> tuple[str, int]:
        """Manifest checksum and block: the content, wherever the store lies."""
        return self.checksum, self.index

    def _read(self, name: str) -> NDArray[Any]:
        array = _array(self.path, self.checksum, self.part, name)
        return np.asarray(array[self.first : self.last])

    def read(self) -> Block:
        """Return the block, checked."""
        values = self._read("response")
        if values.size and (values.min() < -1 or values.max() > 1):
            raise StoreError(
                f"{self.path}: array response in {self.part}, rows {self.first} "
                f"to {self.last - 1}: holds values other than 1, 0 and -1"
            )
        weight = self._read("person_weight") if self.weighted else None
        return Block(self.index, self.start, Dense(values), weight)

    def person_ids(self) -> NDArray[np.object_]:
        """Return the identifiers of the block's persons."""
        return self._read("person_id").astype(object)

    def groups(self) -> NDArray[np.object_] | None:
        """Return the group labels, None without groups."""
        return self._read("person_group").astype(object) if self.grouped else None


class _StoredBlocks(Sequence[StoredBlock]):
    """The blocks of a store, made when asked for: a store of 10^5 blocks is still small."""

    def __init__(self, path: str, content: dict[str, Any]) -> None:
        self.path, self.checksum = path, content["checksum"]
        self.weighted, self.grouped = content["weighted"], content["grouped"]
        self.parts = [(p["name"], p["n_persons"], p["rows_per_block"]) for p in content["parts"]]
        self.first_block = np.cumsum([0] + [-(-n // r) for _, n, r in self.parts])
        self.first_person = np.cumsum([0] + [n for _, n, _ in self.parts])

    @property
    def n_persons(self) -> int:
        """Persons in all parts."""
        return int(self.first_person[-1])

    def __len__(self) -> int:
        return int(self.first_block[-1])

    def __getitem__(self, k: int | slice) -> Any:
        if isinstance(k, slice):
            return [self[i] for i in range(*k.indices(len(self)))]
        if not 0 <= k < len(self):
            raise IndexError(f"block {k} of {len(self)}")
        p = int(np.searchsorted(self.first_block, k, side="right")) - 1
        name, n, rows = self.parts[p]
        first = (k - int(self.first_block[p])) * rows
        return StoredBlock(
            self.path, self.checksum, name, k, int(self.first_person[p]) + first, first,
            min(first + rows, n), self.weighted, self.grouped,
        )  # fmt: skip

    def __iter__(self) -> Iterator[StoredBlock]:
        return (self[k] for k in range(len(self)))


def open_responses(store: str | Path) -> Responses:
    """Open a store of responses.

    Parameters
    ----------
    store : path of the folder that :func:`irt_dask.ingest` or :func:`irt_dask.simulate` wrote.

    Returns
    -------
    Responses
        A small, picklable handle; no response is read yet.

    Raises
    ------
    StoreError
        If the folder is not a store, is damaged, or was written by another format version.
    """
    path = Path(store).resolve()
    content = manifest.read(path)
    blocks = _StoredBlocks(str(path), content)
    return Responses(
        refs=blocks,
        n_persons=blocks.n_persons,
        item_id=tuple(content["item_id"]),
        fingerprint=content["checksum"],
        layout=content["layout"],
        path=str(path),
        max_weight=content["max_weight"],
        has_groups=content["grouped"],
    )


def verify(path: str | Path) -> None:
    """Read every file of a store; raise one StoreError that lists everything wrong."""
    root = Path(path)
    content = manifest.read(root)
    problems = []
    for key, expected in content["files"].items():
        file = root / key
        try:
            data = file.read_bytes() if file.exists() else None
        except OSError as error:
            problems.append(f"{manifest.describe(key)} of {root}: {key} cannot be read: {error}")
            continue
        wrong = manifest.problem(root, key, expected, data)
        if wrong:
            problems.append(wrong)
    if problems:
        raise StoreError(f"{len(problems)} problem(s) in {root}:\n" + "\n".join(problems))
