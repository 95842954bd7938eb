"""The root manifest of a store: the one file whose replacement commits a change.

It lists every other file with size and SHA-256 (metadata files too) and carries its own checksum
and a format version.  A reader that finds anything else than what is listed stops with an error.

The version is 2 wherever that says it all.  It is 3 where a reader of version 2 would misread the
store, and ``needs`` names why; a reader refuses names that it does not know:

- "frequency weights": person weights count equal persons;
- "categories": ``n_categories`` holds K of each item; without it every item has two.  K of an item
  in the store never changes;
- "collapsed categories": ``collapsed`` says by item what became of the codes of its files, in their
  order: the code in the store, or null of a category that had no response and is none there;
- "items by part": the list of items has grown.  ``new_items`` of a part says how many items came
  with it; they follow those that were there, and an item keeps its place.  The chunks of a part
  have the items up to its own; to its persons later items are unobserved;
- "nonresponse": blocks of the parts that are marked with it hold codes of what was omitted or not
  reached (:mod:`irt_dask.store.nonresponse`);
- "labels": some covariates are labels, whose numbers (:mod:`irt_dask.store.labels`) stand in the
  arrays; ``labels`` of a part lists by covariate those that came with it;
- "merged persons": persons of earlier parts have given more responses, which lie in the array
  ``supplement`` of a later part (:mod:`irt_dask.store.supplements`) and fill cells that were not
  observed.  ``merged_persons`` and ``merged_responses`` of a part count them.

``reversed`` names the items whose codes the first file with them counted back: nothing that a
reader needs, but what a later file has to agree with.

So a new part adds entries (its own, its files, its items at the end of theirs) and changes none,
and :func:`as_of` can take parts off again: whatever was identified by a checksum stays readable.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from irt_dask.errors import DiskError, NoStoreError, StoreError
from irt_dask.store import schema
from irt_dask.store.categories import BINARY
from irt_dask.store.documents import from_json
from irt_dask.store.objects import ObjectPath
from irt_dask.store.places import Location, read_bytes

NAME = "manifest.json"
FORMAT = "irt_dask responses"
VERSION = 2
#: Of a store that holds what version 2 does not know; ``needs`` names it, and a reader refuses
#: names that it does not know.
VERSION_WITH_NEEDS = 3
FREQUENCY_WEIGHTS = "frequency weights"
CATEGORIES, ITEMS_BY_PART, MERGED = "categories", "items by part", "merged persons"
COLLAPSED, NONRESPONSE, LABELS = "collapsed categories", "nonresponse", "labels"
_KNOWN = {FREQUENCY_WEIGHTS, CATEGORIES, COLLAPSED, ITEMS_BY_PART, NONRESPONSE, MERGED, LABELS}

#: ``{path relative to the store: [size, sha256]}``.
Files = dict[str, list[int | str]]


def digest(content: dict[str, Any]) -> str:
    """Checksum of a manifest's content, without its entry of that name."""
    try:
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()
    except (RecursionError, UnicodeEncodeError):  # nothing that was written by us
        return ""


def write(root: Path, content: dict[str, Any], scratch: Path | None = None) -> None:
    """Write the manifest of ``root`` atomically, by way of ``scratch``."""
    write_atomically(root / NAME, encoded(content), scratch)


def encoded(content: dict[str, Any]) -> bytes:
    """The bytes of a manifest, with version and checksum."""
    content = {"format": FORMAT, "format_version": _version(content), **content}
    content["checksum"] = digest(content)
    return json.dumps(content, indent=1, ensure_ascii=False).encode()


def read(root: Location) -> dict[str, Any]:
    """Return the manifest of the store at ``root`` after checking version and checksum."""
    path = root / NAME
    try:
        data = read_bytes(path)
    except FileNotFoundError:
        what = "there is no such folder" if not root.exists() else f"it has no {NAME}"
        raise NoStoreError(f"{root} is not a store of responses: {what}") from None
    except NotADirectoryError:
        raise NoStoreError(
            f"{root} is a file, not a store of responses: make one by irt-dask ingest"
        ) from None
    except OSError as error:
        raise StoreError(f"the manifest {path} cannot be read: {error}") from error
    return decoded(path, data)


def decoded(path: Location, data: bytes) -> dict[str, Any]:
    """Return the manifest that these bytes of ``path`` are, after checking it."""
    try:
        content = from_json(data)
    except ValueError as error:
        raise StoreError(f"the manifest {path} cannot be read: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise StoreError(f"{path} is not a manifest of irt_dask responses")
    if content.get("format_version") not in (VERSION, VERSION_WITH_NEEDS):
        raise StoreError(
            f"{path} has format version {content.get('format_version')!r}, this irt_dask reads "
            f"versions {VERSION} and {VERSION_WITH_NEEDS}; use the version of irt_dask that wrote "
            f"it, or ingest again"
        )
    claimed = content.pop("checksum", None)
    if not claimed or claimed != digest(content):
        raise StoreError(f"the manifest {path} is damaged: its checksum does not match its content")
    needs = content.get("needs")
    unknown = sorted({str(x) for x in needs} - _KNOWN) if isinstance(needs, list) else []
    if unknown:
        raise StoreError(
            f"{path} needs {', '.join(unknown)}, which this irt_dask does not know; use the "
            f"version of irt_dask that wrote it"
        )
    fault = next(schema.faults(content), None)
    if fault is not None:
        raise StoreError(f"the manifest {path} is none that irt_dask writes: {fault}")
    content["checksum"] = claimed
    return content


def _version(content: dict[str, Any]) -> int:
    return VERSION_WITH_NEEDS if content.get("needs") else VERSION


def items_of_parts(content: dict[str, Any]) -> list[int]:
    """Number of items that each part has: the first ones of the store's list."""
    ends = list(itertools.accumulate(p.get("new_items", 0) for p in content["parts"]))
    return [len(content["item_id"]) - ends[-1] + end for end in ends]


def settled(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content with what it needs, which follows from the rest (but for weights)."""
    graded = any(k > BINARY for k in content.get("n_categories", ()))
    grown = any("new_items" in p for p in content["parts"])
    needs = [name for name in content.get("needs", ()) if name == FREQUENCY_WEIGHTS]
    merged = any("merged_responses" in p for p in content["parts"])
    collapsed = bool(content.get("collapsed"))
    marked = any("nonresponse" in p for p in content["parts"])
    labelled = any("labels" in p for p in content["parts"])
    needs += [CATEGORIES] * graded + [COLLAPSED] * collapsed
    needs += [ITEMS_BY_PART] * grown + [NONRESPONSE] * marked + [MERGED] * merged
    needs += [LABELS] * labelled
    has = {"needs": needs, "n_categories": graded, "collapsed": collapsed}
    has["reversed"] = content.get("reversed")
    without = {name for name, used in has.items() if not used}
    return {k: v for k, v in {**content, "needs": needs}.items() if k not in without}


def as_of(content: dict[str, Any], checksum: str) -> dict[str, Any] | None:
    """Return what the manifest was when it had this checksum, before parts were appended."""
    if content["checksum"] == checksum:
        return content
    items = items_of_parts(content)
    for n in range(len(content["parts"]) - 1, 0, -1):
        parts, m = content["parts"][:n], items[n - 1]
        names = {p["name"] for p in parts}
        then = {
            **content,
            "item_id": content["item_id"][:m],
            "n_categories": content.get("n_categories", [])[:m],
            "collapsed": _of_items(content.get("collapsed", {}), content["item_id"][:m]),
            "reversed": [i for i in content.get("reversed", []) if i in {*content["item_id"][:m]}],
            "parts": parts,
            "files": {k: v for k, v in content["files"].items() if k.partition("/")[0] in names},
        }
        then = settled(then)
        then["format_version"] = _version(then)
        del then["checksum"]
        if digest(then) == checksum:
            return {**then, "checksum": checksum}
    return None


def _of_items(by_item: dict[str, Any], item_id: list[str]) -> dict[str, Any]:
    return {item: by_item[item] for item in item_id if item in by_item}


@contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Turn a refusal of the file system into an error that names what was to be written.

    A folder that is not there is left to those who know what that means.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DiskError(
            f"{path} cannot be written: {error.strerror or error}; what was there before is "
            f"unchanged; make room or choose another place, and start again"
        ) from error


@contextmanager
def replacing(path: Path, scratch: Path | None = None) -> Iterator[Path]:
    """Yield a temporary path, which takes a file's place if all goes well.

    It lies beside the file, or in ``scratch`` of the same file system, for those who remove there
    what a killed process left.
    """
    temporary = (scratch or path.parent) / f".{path.name}.{secrets.token_hex(8)}.tmp"
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, data: bytes, scratch: Path | None = None) -> None:
    """Replace a file as a whole: temporary file, fsync, rename, fsync of the folder."""
    with writing(path), replacing(path, scratch) as temporary, open(temporary, "wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())
    settle(path)


def settle(path: Path) -> None:
    """Make the rename that brought something to its place durable."""
    try:
        _sync(path.parent)
    except OSError as error:
        raise DiskError(
            f"{path} is written, but its folder {path.parent} does not answer: "
            f"{error.strerror or error}; after a power failure it may be as before: look at it "
            f"when the disk or the network file system answers, and go on from there"
        ) from error


def sync_folder(folder: Path) -> None:
    """Make renames inside a folder durable, of what is not in its place yet."""
    with writing(folder):
        _sync(folder)


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def put(path: Location, data: bytes) -> None:
    """Replace a file or an object as a whole."""
    if isinstance(path, ObjectPath):
        path.write_bytes(data)
    else:
        write_atomically(path, data)


def problem(root: Location, key: str, expected: list[int | str], data: bytes | None) -> str | None:
    """Say what is wrong with the bytes of a listed file, or None."""
    where = f"{describe(key)} of {root}"
    if data is None:
        return f"{where}: the file {key} is missing"
    if len(data) != expected[0]:
        return f"{where}: the file {key} has {len(data)} bytes, the manifest says {expected[0]}"
    if hashlib.sha256(data).hexdigest() != expected[1]:
        return f"{where}: the file {key} is damaged (checksum mismatch)"
    return None


def describe(key: str) -> str:
    """Name the array and the chunk that a file of a part holds."""
    part, *rest = key.split("/")
    if "c" in rest:
        at = rest.index("c")
        return f"chunk {rest[at + 1]} of array {'/'.join(rest[:at])} in {part}"
    owner = f"array {rest[0]} in " if len(rest) > 1 else ""
    return f"the metadata of {owner}{part}"
