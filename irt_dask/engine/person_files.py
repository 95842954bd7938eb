"""A folder with values of all persons: one Parquet file a block, written by the workers."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any

from irt_dask._version import __version__
from irt_dask.errors import ClusterError, InputError
from irt_dask.store import Responses
from irt_dask.store.manifest import write_atomically

#: Holds what is said of the values as a whole; its presence says that all of them are there.
DONE = "_scores.json"
#: Marks a folder as ours while files are being written.
BEGUN = "_unfinished"


def new_folder(path: str | Path) -> Path:
    """Return the folder to write to: a new one, or one that an interrupted run left unfinished.

    Raises InputError for any other that exists.
    """
    folder = Path(path).absolute()
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
    ref: Any,
    index: int,
    columns: dict[str, Any],
    folder: str,
    metadata: dict[bytes, bytes] | None = None,
) -> None:
    """Write the values of a block after ``person_id`` and, if known, ``person_group``.

    The file appears whole, and again the same if the task is repeated; pages have checksums.
    ``metadata`` goes into its footer.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    table: dict[str, Any] = {"person_id": pa.array(ref.person_ids(), pa.string())}
    groups = ref.groups()
    if groups is not None:
        table["person_group"] = pa.array(groups, pa.string())
    path = file_of(Path(folder), index)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        content = pa.table(table | columns).replace_schema_metadata(metadata)
        pq.write_table(
            content, temporary, write_page_checksum=True, use_dictionary=["person_group"]
        )  # of the others hardly a value repeats
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def finish(folder: Path, responses: Responses, attrs: dict[str, Any]) -> None:
    """Say what the values are, once every file is there.

    One that is not was written by a worker that sees another folder of this name: ClusterError.
    """
    missing = [k for k in range(responses.n_blocks) if not file_of(folder, k).exists()]
    if missing:
        raise ClusterError(
            f"{len(missing)} of {responses.n_blocks} score files are not in {folder}: the workers "
            f"do not see this folder; choose one on a file system that all of them share"
        )
    done = {**attrs, "version": __version__, "data": responses.fingerprint}
    write_atomically(folder / DONE, json.dumps(done, indent=1).encode())
    (folder / BEGUN).unlink(missing_ok=True)


def file_of(folder: Path, index: int) -> Path:
    """The file of a block."""
    return folder / f"part-{index:06d}.parquet"
