"""Bytes and arrays of a store, each checked against the manifest before anything rests on it."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import zarr
from zarr.abc.store import ByteRequest
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import MemoryStore, WrapperStore

from irt_dask.errors import StoreError
from irt_dask.store import frames, manifest, schema, supplements
from irt_dask.store.documents import from_json
from irt_dask.store.parts import Part
from irt_dask.store.places import Location, location, read_bytes


class CheckedStore(WrapperStore[MemoryStore]):
    """A Zarr store of one part that serves exactly the bytes that the manifest lists.

    They are read here, a file whole or an object by one request; what Zarr is given to hold is
    empty.  Chunks are of one array, of this type and shape.
    """

    def __init__(
        self, root: Location, part: str, files: dict[str, list[int | str]], dtype: str,
        shape: Sequence[int],
    ) -> None:  # fmt: skip
        super().__init__(MemoryStore(read_only=True))
        self.root, self.part, self.files = root, part, files
        self.dtype, self.shape = dtype, shape

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Return a whole file; an unlisted key is absent, a listed one is right or an error.

        A chunk is never absent: Zarr would take the fill value for it.
        """
        path, chunk = f"{self.part}/{key}", "c" in key.split("/")
        if path not in self.files:
            if chunk:
                raise StoreError(
                    f"{manifest.describe(path)} of {self.root}: the manifest does not list it"
                )
            return None
        if byte_range is not None:
            raise StoreError(f"{self.root / path}: part of a file was asked for; files are whole")
        data = await asyncio.to_thread(_listed, self.root, path, self.files[path])
        if chunk and (wrong := frames.fault(data, self.dtype, self.shape)):
            raise StoreError(f"{manifest.describe(path)} of {self.root}: {wrong}")
        return prototype.buffer.from_bytes(data)


def _listed(root: Location, key: str, listed: list[int | str]) -> bytes:
    """Bytes of a file that the manifest lists; StoreError if they are other ones, or none."""
    try:
        data = bytes_of(root / key, listed)
    except OSError as error:
        where = f"{manifest.describe(key)} of {root}"
        raise StoreError(f"{where}: the file {key} cannot be read: {error}") from error
    wrong = manifest.problem(root, key, listed, data)
    if wrong or data is None:
        raise StoreError(wrong)
    return data


def bytes_of(path: Location, listed: list[int | str]) -> bytes | None:
    """Bytes of a file or an object, not more than it takes to see that it is too long."""
    try:
        return read_bytes(path, int(listed[0]))
    except FileNotFoundError:
        return None


@functools.lru_cache(maxsize=16)
def content_of(path: str, checksum: str) -> dict[str, Any]:
    """Return the manifest of a store as it was when it had this checksum."""
    now = manifest.read(location(path))
    content = manifest.as_of(now, checksum)
    if content is None:
        raise StoreError(
            f"the store {path} changed while it was in use: its manifest has checksum "
            f"{now['checksum'][:12]}, expected {checksum[:12]}; start the run again"
        )
    return content


@functools.lru_cache(maxsize=64)
def array_of(path: str, checksum: str, part: str, name: str) -> zarr.Array:
    """Open an array of a part, whose metadata have to be what the manifest says of it."""
    content, root, key = content_of(path, checksum), location(path), f"{part}/{name}/zarr.json"
    files = content["files"]
    if key not in files:
        raise StoreError(f"{path}: the manifest lists no array {name} in {part}")
    where = f"array {name} in {part} of {path}"
    if isinstance(root, Path) and not (root / part).is_dir():
        raise StoreError(f"{where}: the folder {part} is missing")
    wanted = _part(content, part).arrays()[name]
    try:
        said = from_json(_listed(root, key, files[key]))
    except ValueError as error:
        raise StoreError(f"{where}: {key} cannot be read: {error}") from error
    sizes = schema.chunk_sizes(files, part, name)
    whole = name != supplements.NAME  # of which only chunks with something in them are written
    # A part does not say the capacity of its blocks: what is left is bounded by the files' sizes.
    shape, chunks = (
        [
            None if d.endswith("capacity") else n
            for n, d in zip(lengths, wanted.dimension_names, strict=True)
        ]
        for lengths in (wanted.shape, wanted.chunks)
    )
    fault = next(schema.array_faults(said, wanted.dtype, shape, chunks, sizes, whole), None)
    if fault is not None:
        raise StoreError(f"{where} {fault}")
    chunk_shape = said["chunk_grid"]["configuration"]["chunk_shape"]
    checked = CheckedStore(root, part, files, wanted.dtype, chunk_shape)
    return zarr.open_array(checked, path=name, mode="r", zarr_format=3)


def _part(content: dict[str, Any], name: str) -> Part:
    """What the manifest says of a part."""
    names = [p["name"] for p in content["parts"]]
    p = names.index(name)
    entry = content["parts"][p]
    before = sum(-(-q["n_persons"] // q["rows_per_block"]) for q in content["parts"][:p])
    return Part(
        folder=name, layout=content["layout"], n_persons=entry["n_persons"],
        n_items=manifest.items_of_parts(content)[p], rows_per_block=entry["rows_per_block"],
        weighted=content["weighted"], grouped=content["grouped"],
        n_covariates=len(content["covariates"]), n_blocks_before=before,
        most_added=int("merged_responses" in entry),
    )  # fmt: skip
