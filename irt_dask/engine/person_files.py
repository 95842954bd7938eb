"""A folder with values of all persons: one Parquet file a block, written by the workers."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from irt_dask._version import __version__
from irt_dask.errors import ClusterError, InputError
from irt_dask.store import Responses
from irt_dask.store.documents import from_json
from irt_dask.store.manifest import put, replacing, writing
from irt_dask.store.objects import ObjectPath
from irt_dask.store.places import Location, local_path, location, names, read_bytes

#: Holds what is said of the values as a whole; its presence says that all of them are there.
DONE = "_scores.json"
#: Marks a folder as ours while files are being written.
BEGUN = "_unfinished"
#: Its entry for the weights that persons have, of which the files have none.
WEIGHT_KIND = "weight_kind"
#: Of the metadata in the footer of a file, and the entry that checks it.
_SAID, _CHECKSUM = "irt_dask", "checksum"


def new_folder(path: str | Path) -> Path:
    """Return the folder to write to: a new one, or one that an interrupted run left unfinished.

    Raises InputError for any other that exists.
    """
    folder = local_path(path, "a folder for the values of persons").absolute()
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; give a folder for the values of persons")
    if (folder / DONE).exists():
        raise InputError(f"{folder} holds finished scores; choose another folder or remove it")
    if folder.exists() and (folder / BEGUN).exists():
        for old in (*folder.glob("part-*.parquet"), *folder.glob(".part-*.tmp")):
            old.unlink()
    elif folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} exists and holds other files; choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / BEGUN).touch()
    return folder


def write_block(
    ref: Any, index: int, columns: dict[str, Any], folder: str, said: dict[str, Any] | None = None
) -> None:
    """Write the values of a block after ``person_id`` and, if known, ``person_group``.

    The file appears whole, and again the same if the task is repeated; pages have checksums.  What
    is ``said`` of the block goes into its footer, with a checksum of that and of all values; there
    are no statistics, which it would not cover.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    table: dict[str, Any] = {"person_id": pa.array(ref.person_ids(), pa.string())}
    groups = ref.groups()
    if groups is not None:
        table["person_group"] = pa.array(groups, pa.string())
    content = pa.table(table | columns)

    def write(to: Any) -> None:
        with pq.ParquetWriter(
            to, content.schema, write_page_checksum=True, write_statistics=False,
            store_schema=False,  # Arrow's, in which no checksum would see a change
            use_dictionary=["person_group"],  # of the others hardly a value repeats
        ) as writer:  # fmt: skip
            writer.write_table(content)
            if said is not None:
                signed = json.dumps(said | {_CHECKSUM: _checksum(content, said)})
                writer.add_key_value_metadata({_SAID: signed})

    path = file_of(location(folder), index)
    if isinstance(path, ObjectPath):
        buffer = io.BytesIO()
        write(buffer)
        path.write_bytes(buffer.getvalue())
        return
    with writing(path), replacing(path) as temporary:
        write(temporary)


def column_names(path: Location) -> list[str]:
    """Names of the columns of a file; none if it is not there or damaged."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        whole = io.BytesIO(read_bytes(path))
        return [str(name) for name in pq.read_schema(whole).names]
    except (OSError, ValueError, pa.ArrowException):
        return []


def footer(path: Location) -> dict[str, Any] | None:
    """What was said of the block in a file; None if the file is not there, not whole or damaged.

    It starts none of Arrow's threads: one that has just begun when the process ends aborts it.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        whole = pa.BufferReader(read_bytes(path))
        with pq.ParquetFile(whole, page_checksum_verification=True) as file:
            content = file.read(use_threads=False)
            metadata = file.metadata.metadata or {}
        if set(metadata) != {_SAID.encode()}:  # nothing else stands there
            return None
        said = from_json(metadata[_SAID.encode()], constants=True)
        claimed = said.pop(_CHECKSUM)
        return said if _checksum(content, said) == claimed else None
    except (OSError, KeyError, ValueError, TypeError, AttributeError, pa.ArrowException):
        return None


def _checksum(table: Any, said: dict[str, Any]) -> str:
    """Checksum of names, types and values of all columns, and of what is said of them."""
    import pyarrow as pa

    h = hashlib.sha256(json.dumps(said, sort_keys=True).encode())
    for name, column in zip(table.column_names, table.columns, strict=True):
        h.update(f"{name} {column.type} {len(column)} {column.null_count} ".encode())
        if not pa.types.is_string(column.type):
            h.update(np.ascontiguousarray(column.to_numpy()).tobytes())
            continue
        whole = pa.concat_arrays(column.chunks)
        _, ends, characters = whole.buffers()
        ends = np.frombuffer(ends, np.int32)[whole.offset : whole.offset + len(whole) + 1]
        h.update((ends - ends[0]).tobytes())
        h.update(memoryview(characters or b"")[ends[0] : ends[-1]])
    return h.hexdigest()


def finish(folder: Location, responses: Responses, attrs: dict[str, Any]) -> None:
    """Say what the values are, once every file is there.

    One that is not was written by a worker that sees another folder of this name: ClusterError.
    """
    there = names(folder)
    missing = [k for k in range(responses.n_blocks) if file_of(folder, k).name not in there]
    if missing:
        if isinstance(folder, ObjectPath):
            remedy = "reach other storage by this URL; give them the environment of this process"
        else:
            remedy = "do not see this folder; choose one on a file system that all of them share"
        raise ClusterError(
            f"{len(missing)} of {responses.n_blocks} score files are not in {folder}: the workers "
            f"{remedy}"
        )
    done = {
        **attrs, "n_blocks": responses.n_blocks, "version": __version__,
        "data": responses.fingerprint,
    }  # fmt: skip
    put(folder / DONE, json.dumps(done, indent=1).encode())
    (folder / BEGUN).unlink(missing_ok=True)


def file_of(folder: Location, index: int) -> Location:
    """The file of a block, or the object."""
    return folder / f"part-{index:06d}.parquet"
