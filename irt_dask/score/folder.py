"""The folder of scores: one Parquet file a block, of which a later run keeps what is still right.

Every file carries, in the metadata of its footer, the key of what it was made from and the block's
part of the sums; so a file is whole, and right, or made again.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from pathlib import Path
from typing import Any

import numpy as np

from irt_dask._version import __version__
from irt_dask.arrays import Ints
from irt_dask.engine import person_files
from irt_dask.engine.lock import LOCK, FolderLock, ObjectLease, locked
from irt_dask.engine.person_files import BEGUN, DONE
from irt_dask.errors import InputError, listed
from irt_dask.kernels.responses import response_counts
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.score import summary
from irt_dask.store import Responses
from irt_dask.store.digests import add, block_digest, earlier_digests
from irt_dask.store.documents import from_json
from irt_dask.store.manifest import put
from irt_dask.store.objects import ObjectPath
from irt_dask.store.places import Location, location, names, read_bytes
from irt_dask.store.selection import of_all_items

#: Entries of the finished folder's description: checksum of what all blocks are scored with, the
#: names of the files' columns, and the items.
_SCORED_WITH, _COLUMNS, _ITEMS = "scored_with", "columns", "item_id"

#: Columns of what a person answered: how many responses, and the sum of their codes, which is the
#: number right where items have two categories.
ANSWERED = ("n_responses", "sum_score")


def answered(data: Layout) -> dict[str, Ints]:
    """The columns of :data:`ANSWERED`, of a block."""
    counts = response_counts.responses_per_person(data), response_counts.score_per_person(data)
    return dict(zip(ANSWERED, counts, strict=True))


def checksum(content: Any) -> str:
    """Checksum of what persons are scored with, and of the software whose bits these are."""
    h = hashlib.sha256()
    for name in ("numpy", "numba", "pyarrow"):
        h.update(f"{name} {importlib.metadata.version(name)} ".encode())
    h.update(f"irt_dask {__version__}".encode())
    add(h, content)
    return h.hexdigest()


def block_key(ref: Any, *read: Any) -> str:
    """Content of a block, and where it stands: plausible values are keyed by position.

    Some items of a stored block have the key of the whole: which they are, the items say.
    """
    return f"{block_digest(of_all_items(ref), *read)} at {ref.start}"


def _keys(ref: Any) -> list[str]:
    """Keys of a block: now, and before its persons gave more responses."""
    earlier = earlier_digests(of_all_items(ref))
    return [block_key(ref), *(f"{was} at {ref.start}" for was in earlier)]


def opened(path: str | Path) -> tuple[Location, FolderLock | ObjectLease]:
    """Make or open the folder for this run alone.

    Raises InputError if it is not one of scores, BusyError if another run works in it.
    """
    folder = location(path)
    if isinstance(folder, ObjectPath):
        is_file = folder.kind() == "file"
    else:
        folder = folder.absolute()
        is_file = folder.exists() and not folder.is_dir()
    if is_file:
        raise InputError(f"{folder} is a file; give a folder for the values of persons")
    there = names(folder)
    ours = bool(there & {DONE, BEGUN}) or (
        person_files.footer(person_files.file_of(folder, 0)) is not None
    )
    if not ours and there - {LOCK}:
        raise InputError(f"{folder} exists and holds other files; choose another folder")
    if isinstance(folder, Path):
        folder.mkdir(parents=True, exist_ok=True)
    lock = locked(folder)
    try:
        _check_kind(folder)
    except BaseException:
        lock.close()
        raise
    return folder, lock


def _check_kind(folder: Location) -> None:
    if (folder / DONE).exists() and _SCORED_WITH not in _description(folder):
        raise InputError(
            f"{folder} holds values of persons that are no scores; choose another folder or "
            f"remove it"
        )


def _description(folder: Location) -> dict[str, Any]:
    data = read_bytes(folder / DONE)
    try:
        content = from_json(data, constants=True)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise InputError(f"{folder / DONE} is damaged; remove this file, and run again")
    return content


def begin(folder: Location, responses: Responses, scored_with: str, columns: list[str]) -> None:
    """Mark the folder as unfinished; refuse scores of other responses, and those with more columns.

    Those of a run that was finished must begin with the same block (its persons may have given more
    responses since), and have no block that the
    responses lack and no column that will not be written again; the mark keeps their columns, until
    a run is finished.  What is not finished is nobody's: other blocks in it are removed.
    """
    there = names(folder)
    beyond = [n for n in there if n.startswith("part-") and _number(n) >= responses.n_blocks]
    left = [n for n in there if n.startswith(".part-") and n.endswith(".tmp")]
    if (folder / DONE).exists():
        first = person_files.footer(person_files.file_of(folder, 0))
        if beyond or (first is not None and first["block"] not in _keys(responses.refs[0])):
            raise InputError(
                f"{folder} holds scores of other responses"
                + (f", with more than {responses.n_blocks} blocks" if beyond else "")
                + "; choose another folder or remove it"
            )
    promised, by = _promised(folder)
    lost = [c for c in promised if c not in columns]
    if lost:
        raise InputError(
            f"{folder} holds scores with the column(s) {', '.join(lost)}, which these options do "
            f"not give and which would be lost; score with the options of before, choose another "
            f"folder or remove it"
        )
    without = [i for i in by if i not in set(responses.item_id)]
    if without:
        raise InputError(
            f"{folder} holds scores by {len(by)} items, {len(without)} of which would not count "
            f"any more: {listed(without, 10)}; score with the items of before and others, choose "
            f"another folder or remove it"
        )
    put(folder / BEGUN, json.dumps({_COLUMNS: promised, _ITEMS: by}).encode())
    if (folder / DONE).exists() and _description(folder)[_SCORED_WITH] != scored_with:
        (folder / DONE).unlink()  # from here on it would describe only some of the files
    for old in (*beyond, *left):
        (folder / old).unlink()


def _promised(folder: Location) -> tuple[list[str], list[str]]:
    """Columns of the files of the last run that was finished, and its items; none if none was."""
    if not (folder / DONE).exists():
        try:
            said = from_json(read_bytes(folder / BEGUN))
            return [str(c) for c in said[_COLUMNS]], [str(i) for i in said.get(_ITEMS, ())]
        except (OSError, ValueError, KeyError, TypeError):  # not there; or an empty one, of before
            return [], []
    description = _description(folder)
    columns, items = description.get(_COLUMNS), description.get(_ITEMS)
    if not isinstance(columns, list):
        columns = person_files.column_names(person_files.file_of(folder, 0))
    return [str(c) for c in columns], [str(i) for i in items] if isinstance(items, list) else []


def _number(name: str) -> int:
    digits = name.removeprefix("part-").removesuffix(".parquet")
    return int(digits) if name.endswith(".parquet") and digits.isdigit() else -1


def said(block: str, scored_with: str, sums: tuple[Any, ...]) -> dict[str, Any]:
    """What the footer says: the key of the file and the block's part of the sums."""
    values = [np.asarray(s).tolist() for s in sums]
    return {"block": block, _SCORED_WITH: scored_with, "sums": values}


def kept_sums(path: Location, block: str, scored_with: str) -> tuple[Any, ...] | None:
    """The sums of a file that a former run made from the same; None without a whole one."""
    content = person_files.footer(path)
    if content is None or (content["block"], content[_SCORED_WITH]) != (block, scored_with):
        return None
    if len(content["sums"][1]) != summary.MOMENTS:  # files of before there were so many
        return None
    return tuple(np.array(s, dtype=object) for s in content["sums"])


def finish(
    folder: Location, responses: Responses, scored_with: str, columns: list[str],
    attrs: dict[str, Any],
) -> None:  # fmt: skip
    """Describe the scores, once every file is there."""
    with_what = {_SCORED_WITH: scored_with, _COLUMNS: columns, _ITEMS: list(responses.item_id)}
    person_files.finish(folder, responses, {**attrs, **with_what})
