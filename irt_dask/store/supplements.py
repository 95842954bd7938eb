"""Responses that came later to persons of earlier parts: they fill cells that were not observed.

A part may have an array ``supplement`` of shape (blocks before it, 3, capacity): for a block that
the store had when the part was made, the row in the block, the item and the code of each response,
ascending by row and item, padded with -1.  Only chunks of blocks that got some are written, and
what the manifest lists says which those are.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irt_dask.errors import StoreError
from irt_dask.kernels.responses.layouts import Dense, Layout, Sparse

NAME = "supplement"


class Cells(NamedTuple):
    """Responses of a block one by one: row, item and code of each."""

    row: NDArray[Any]
    item: NDArray[Any]
    code: NDArray[Any]


def key_of(part: str, block: int) -> str:
    """The file of a part that holds what it adds to a block."""
    return f"{part}/{NAME}/c/{block}/0/0"


def of_blocks(content: dict[str, Any]) -> dict[int, tuple[str, ...]]:
    """The parts that add responses to a block, in their order, for each block that has some."""
    found: dict[int, tuple[str, ...]] = {}
    place = {p["name"]: n for n, p in enumerate(content["parts"]) if "merged_responses" in p}
    if not place:
        return found
    n_blocks = [-(-p["n_persons"] // p["rows_per_block"]) for p in content["parts"]]
    before = [0, *itertools.accumulate(n_blocks)]
    listed = []
    for file in content["files"]:
        part, *rest = file.split("/")
        if part in place and rest[:2] == [NAME, "c"]:
            block = int(rest[2]) if rest[2:] and rest[2].isdecimal() else -1
            if not 0 <= block < before[place[part]] or file != key_of(part, block):
                raise StoreError(f"the manifest lists {file}, and {part} has no block before it "
                                 f"of this number")  # fmt: skip
            listed.append((place[part], part, block))
    for _, part, block in sorted(listed):
        found[block] = (*found.get(block, ()), part)
    return found


def padded(cells: Cells, room: int) -> NDArray[np.int32]:
    """The cells as a chunk with room for so many."""
    out = np.full((1, 3, room), -1, dtype=np.int32)
    out[0, :, : cells.row.size] = cells
    return out


def unpadded(chunk: NDArray[np.int32], n_persons: int, n_items: int) -> Cells | None:
    """The cells of a chunk; None if no block of this size can have them in this order."""
    n = int((chunk[0] >= 0).sum())
    row, item, code = chunk[:, :n].astype(np.int64)
    inside = (row < n_persons) & (item >= 0) & (item < n_items)
    if not n or (chunk[:, :n] < 0).any() or not inside.all():
        return None
    if (np.diff(row * n_items + item) <= 0).any():
        return None
    return Cells(row, item, code)


def codes_at(data: Layout, row: NDArray[Any], item: NDArray[Any]) -> NDArray[np.int8]:
    """Codes of some cells of a block; -1 where it has no response, or not so many items."""
    out = np.full(row.size, -1, dtype=np.int8)
    inside = np.flatnonzero(item < data.shape[1])
    row, item = row[inside], item[inside]
    if isinstance(data, Dense):
        out[inside] = data.values[row, item]
        return out
    keys = _keys(data)
    wanted = row.astype(np.int64) * data.n_items + item
    at = np.searchsorted(keys, wanted)
    there = np.flatnonzero(np.append(keys, -1)[at] == wanted)
    out[inside[there]] = data.values[at[there]]
    return out


def filled(data: Layout, cells: Cells) -> Layout | None:
    """The block with more responses, each once; None if it has one of them already."""
    row, item, code = cells
    if (codes_at(data, row, item) >= 0).any():
        return None
    if isinstance(data, Dense):
        values = data.values.copy()
        values[row, item] = code
        return Dense(values)
    keys = np.concatenate([_keys(data), row * data.n_items + item])
    order = np.argsort(keys, kind="stable")
    indptr = data.indptr.copy()
    indptr[1:] += np.cumsum(np.bincount(row, minlength=data.shape[0]))
    indices = np.concatenate([data.indices, item.astype(np.int32)])[order]
    values = np.concatenate([data.values, code.astype(np.int8)])[order]
    return Sparse(indptr, indices, values, data.n_items)


def _keys(data: Sparse) -> NDArray[np.int64]:
    """The cells of a sparse block as ascending numbers."""
    row = np.repeat(np.arange(data.shape[0], dtype=np.int64), np.diff(data.indptr))
    return row * data.n_items + data.indices
