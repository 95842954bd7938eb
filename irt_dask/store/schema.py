"""What a manifest and the metadata of an array may say: checked before anything rests on it.

A checksum finds accidents.  Whoever can write to a store can also write a checksum that is right,
so what is read is held to the form that this package writes, and sizes are held to those of the
files that are listed, before memory is taken for them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from irt_dask.errors import repeated
from irt_dask.store import supplements
from irt_dask.store.categories import BINARY, MOST
from irt_dask.variables import identifier

_PART = re.compile(r"part-\d{5,}(-[0-9a-f]{16})?")
_NAME = re.compile(r"(?!\.)[A-Za-z0-9_.-]+")
_SHA256 = re.compile(r"[0-9a-f]{64}")
#: Counts that a part may have.
_OPTIONAL = ("new_items", "merged_persons", "merged_responses")
#: Bytes that a byte of Zstandard can stand for: a block of 4 bytes repeats one 2^17 times.
_MOST_EXPANDED = 1 << 15
_TEXT_BYTES = 4  # of the length of a text of a column, at least
_BYTES = {"int8": 1, "int32": 4, "int64": 8, "float64": 8, "string": _TEXT_BYTES}


def faults(content: dict[str, Any]) -> Iterator[str]:
    """Say what no manifest of ours says: the first fault is enough, others may follow from it."""
    if content.get("layout") not in ("dense", "csr"):
        yield f"layout is {content.get('layout')!r}"
    for name in ("weighted", "grouped"):
        if not isinstance(content.get(name), bool):
            yield f"{name} is {content.get(name)!r}, not true or false"
    for name, least in (("item_id", 1), ("covariates", 0), ("needs", 0)):
        yield from _names(name, content.get(name, [] if name == "needs" else None), least)
    items = content["item_id"]
    k = content.get("n_categories", [BINARY] * len(items))
    if not isinstance(k, list) or len(k) != len(items) or not all(_whole(x, BINARY) for x in k):
        yield "n_categories is no list of a whole number for each item"
    if max(k) > MOST:
        yield f"n_categories has {max(k)}, the most is {MOST}"
    yield from _collapsed(content.get("collapsed", {}), dict(zip(items, k, strict=True)))
    yield from _names("reversed", content.get("reversed", []), 0)
    if not {*content.get("reversed", [])} <= {*items}:
        yield "reversed names what is no item"
    yield from _parts(content.get("parts"), len(items))
    yield from _labels(content["parts"], content["covariates"])
    yield from _files(content.get("files"), {p["name"] for p in content["parts"]})
    for part in content["parts"]:
        yield from _persons(part, content["files"])
        if part["max_weight"] is not None and not content["weighted"]:
            yield f"{part['name']} has a largest weight, and the store has none"
        added = bool(chunk_sizes(content["files"], part["name"], supplements.NAME))
        if added != ("merged_responses" in part):
            yield f"{part['name']} has a supplement or merged responses, not both"


def _whole(x: Any, least: int) -> bool:
    return isinstance(x, int) and not isinstance(x, bool) and x >= least


def _collapsed(collapsed: Any, n_categories: dict[str, int]) -> Iterator[str]:
    if not isinstance(collapsed, dict) or not collapsed.keys() <= n_categories.keys():
        yield "collapsed is no list of codes by item"
    for item, codes in collapsed.items():
        kept = [c for c in codes if c is not None] if isinstance(codes, list) else None
        if kept != [*range(n_categories[item])] or not len(kept) < len(codes) <= MOST:
            yield f"collapsed has {codes!r} of an item with {n_categories[item]} categories"
        if any(isinstance(c, bool) for c in codes):
            yield f"collapsed has {codes!r}, which are no codes"


def _names(name: str, given: Any, least: int) -> Iterator[str]:
    if not isinstance(given, list) or len(given) < least or not all(map(_is_text, given)):
        yield f"{name} is no list of names"
    if twice := repeated(given):
        yield f"{name} has {twice[0]!r} twice"
    if twice := repeated(map(identifier, given)):
        yield (
            f"{name} has {twice[0]!r} twice, with accents written in two ways; "
            f"write it in one way in the files, and ingest them again"
        )


def _is_text(x: Any) -> bool:
    return isinstance(x, str) and bool(x)


def _parts(parts: Any, n_items: int) -> Iterator[str]:
    if not isinstance(parts, list) or not parts or not all(isinstance(p, dict) for p in parts):
        yield "parts is no list of parts"
    for p in parts:
        name, weight = p.get("name"), p.get("max_weight")
        if not isinstance(name, str) or not _PART.fullmatch(name):
            yield f"a part is called {name!r}"
        least_persons = 1 if p is parts[0] else 0  # an append may add responses, or items, alone
        for what, least in (
            ("n_persons", least_persons), ("rows_per_block", 1), ("n_quarantined", 0),
            *((name, 1) for name in _OPTIONAL),
        ):  # fmt: skip
            if not _whole(p.get(what, least if what in _OPTIONAL else None), least):
                yield f"{what} of {name} is {p.get(what)!r}, not a whole number from {least} on"
        if p.get("nonresponse", True) is not True:
            yield f"nonresponse of {name} is {p['nonresponse']!r}, not true"
        number = isinstance(weight, (int, float)) and not isinstance(weight, bool)
        if "max_weight" not in p or not (weight is None or (number and 0.0 < weight < math.inf)):
            yield f"max_weight of {name} is {weight!r}"
    if twice := repeated(p["name"] for p in parts):
        yield f"there are two parts called {twice[0]}"
    if sum(p.get("new_items", 0) for p in parts) >= n_items or "new_items" in parts[0]:
        yield f"new_items of the parts leave the first none of {n_items} items"


def _labels(parts: list[dict[str, Any]], covariates: list[str]) -> Iterator[str]:
    first = parts[0].get("labels", {})
    for p in parts:
        given = p.get("labels", {})
        if not isinstance(given, dict) or ("labels" in p and not given):
            yield f"labels of {p['name']} are no lists by covariate"
        if not {*given} <= ({*covariates} & {*first}):
            yield f"labels of {p['name']} are of what is no covariate with labels"
        for name, some in given.items():
            yield from _names(f"labels[{name!r}]", some, 0)


def _files(files: Any, parts: set[str]) -> Iterator[str]:
    if not isinstance(files, dict):
        yield "files is no list of files"
    for key, listed in files.items():
        part, *rest = key.split("/")
        if part not in parts or not rest or not all(map(_NAME.fullmatch, rest)):
            yield f"files has {key!r}, which is no file of a part"
        size = listed[0] if isinstance(listed, list) and len(listed) == 2 else None
        sha256 = listed[1] if size is not None else None
        if not (_whole(size, 0) and isinstance(sha256, str) and _SHA256.fullmatch(sha256)):
            yield f"files does not say size and SHA-256 of {key!r}"


def _persons(part: dict[str, Any], files: dict[str, Any]) -> Iterator[str]:
    """Identifiers are in every part: as many chunks as there are blocks, of bytes for the rows."""
    n, rows = part["n_persons"], part["rows_per_block"]
    sizes = chunk_sizes(files, part["name"], "person_id")
    if len(sizes) != -(-n // rows):
        yield (
            f"{part['name']} has {n} persons in blocks of {rows}, and files has {len(sizes)} "
            f"chunk(s) of identifiers"
        )
    if sizes and rows * _TEXT_BYTES > _MOST_EXPANDED * min(sizes):
        yield f"rows_per_block of {part['name']} is {rows}: a file that is listed is too small"


def chunk_sizes(files: dict[str, Any], part: str, name: str) -> list[int]:
    """Bytes of the files of an array's chunks."""
    start = f"{part}/{name}/c/"
    return [size for key, (size, _) in files.items() if key.startswith(start)]


def array_faults(
    said: Any, dtype: str, shape: Sequence[int | None], chunks: Sequence[int | None],
    sizes: Sequence[int], whole: bool = True,
) -> Iterator[str]:  # fmt: skip
    """Say what the metadata of an array say that they may not; None: a length that is theirs.

    All chunks of a ``whole`` one are listed, with these sizes.
    """
    if not isinstance(said, dict) or (said.get("zarr_format"), said.get("node_type")) != (
        3,
        "array",
    ):
        yield "is no array of Zarr 3"
    kind = {"str": "string"}.get(dtype, dtype)
    if said.get("data_type") != kind:
        yield f"has the type {said.get('data_type')!r}, not {kind}"
    grid = said.get("chunk_grid")
    own = grid.get("configuration") if isinstance(grid, dict) else None
    has: Any = own.get("chunk_shape") if isinstance(own, dict) else None
    for what, found, wanted in (("", said.get("shape"), shape), ("chunks of ", has, chunks)):
        if not isinstance(found, list) or len(found) != len(wanted):
            yield f"has {what}{found!r}, not {len(wanted)} lengths"
        for x, want in zip(found, wanted, strict=True):
            if not _whole(x, 0) or (want is not None and x != want):
                yield f"has {what}{found!r}, and the manifest says {list(wanted)}"
    codecs = said["codecs"] if isinstance(said.get("codecs"), list) else []
    named = [c.get("name") if isinstance(c, dict) else c for c in codecs]
    wanted_codecs = ["vlen-utf8" if dtype == "str" else "bytes", "zstd", "crc32c"]
    if named != wanted_codecs or said.get("storage_transformers"):
        yield f"is encoded by {named}, not by {wanted_codecs}"
    n_chunks = math.prod(-(-n // max(c, 1)) for n, c in zip(said["shape"], has, strict=True))
    if whole and n_chunks != len(sizes):
        yield f"has {n_chunks} chunk(s), and the manifest lists {len(sizes)}"
    if sizes and math.prod(has) * _BYTES[kind] > _MOST_EXPANDED * min(sizes):
        yield f"has chunks of {has!r}: a file that is listed is too small for one"
