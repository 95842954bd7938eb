"""Which categories have responses: seen as blocks are written, of what the store will hold."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from irt_dask.errors import InputError, listed
from irt_dask.kernels.responses.layouts import Dense, Layout, Sparse
from irt_dask.store.categories import BINARY, MOST, NONRESPONSE, Collapsed

#: Whether each category of each item occurs: (items, ``MOST``).
Occurring = NDArray[np.bool_]
#: Categories without a response, by item.
Null = dict[str, list[int]]
LISTED = 10  # items that a message lists


def of_cells(item: NDArray[np.integer], code: NDArray[np.integer], n_items: int) -> Occurring:
    """Look at responses one by one."""
    found = np.zeros(n_items * MOST, dtype=bool)
    some = code < MOST
    found[item[some].astype(np.int64) * MOST + code[some]] = True
    return found.reshape(n_items, MOST)


def of_block(data: Layout) -> Occurring:
    """Look at a block."""
    if not isinstance(data, Dense):
        return of_cells(data.indices, data.values, data.n_items)
    found = np.zeros((data.shape[1], MOST), dtype=bool)
    for code in range(min(int(data.values.max(initial=-1)) + 1, MOST)):
        found[:, code] = (data.values == code).any(axis=0)
    return found


def from_data(found: Occurring) -> list[int]:
    """K of each item by the highest code that occurs."""
    highest = MOST - 1 - np.argmax(found[:, ::-1], axis=1)
    return [max(BINARY, k) for k in (np.where(found.any(axis=1), highest, 0) + 1).tolist()]


def null_categories(items: Sequence[str], counts: Sequence[int], found: Occurring) -> Null:
    """Return the categories without a response of items with more than two."""
    empty = {
        item: [code for code in range(k) if not found[j, code]]
        for j, (item, k) in enumerate(zip(items, counts, strict=True))
        if k > BINARY
    }
    return {item: codes for item, codes in empty.items() if codes}


def told(null: Null) -> str:
    """Return items and their categories for a message."""
    each = [f"{item!r} ({', '.join(map(str, codes))})" for item, codes in null.items()]
    return ", ".join(each[:LISTED]) + (" ..." if len(each) > LISTED else "")


def recode_from_1(highest: int) -> dict[str, int]:
    """Return the recode that makes codes from 0 of those from 1."""
    return {str(code): code - 1 for code in range(1, highest + 1)}


def refuse_null(path: object, null: Null, found: Occurring, plain: bool) -> None:
    """Stop if there are categories without a response.

    ``plain``: codes are as they stand in the file.
    """
    if null:
        more = ""
        if plain and not found[:, 0].any():
            highest = int(np.flatnonzero(found.any(axis=0))[-1])
            more = (
                f"; codes seem to begin at 1: if so, say recode={recode_from_1(highest)}, and as "
                f"categories= the highest code"
            )
        raise InputError(
            f"{path}: {len(null)} item(s) have categories without a response: {told(null)}; "
            f"nothing can be estimated of these: say fewer categories=, join categories by "
            f"recode=, or null_categories='keep' (they stay), or collapse (they are dropped, for "
            f"good){more}"
        )


def collapsed(
    path: object, null: Null, items: Sequence[str], counts: Sequence[int]
) -> dict[str, tuple[int | None, ...]]:
    """Return what becomes of the codes of items when their empty categories are dropped.

    InputError where fewer than two are left.
    """
    k = dict(zip(items, counts, strict=True))
    if lone := [item for item, codes in null.items() if k[item] - len(codes) < BINARY]:
        raise InputError(
            f"{path}: all responses to {len(lone)} item(s) are of one category: "
            f"{listed(lone, LISTED)}; null_categories='collapse' would leave it alone: leave these "
            f"items out, or say null_categories='keep'"
        )
    out: dict[str, tuple[int | None, ...]] = {}
    for item, codes in null.items():
        place = itertools.count()
        out[item] = tuple(None if c in codes else next(place) for c in range(k[item]))
    return out


def moves_of(items: Sequence[str], maps: Collapsed) -> NDArray[np.int8]:
    """Codes in the store by item and code, (items, codes); the last is that of -1."""
    every = np.append(np.arange(MOST + len(NONRESPONSE)), -1).astype(np.int8)
    moves = np.tile(every, (len(items), 1))
    for j, item in enumerate(items):
        codes = maps.get(item, ())
        moves[j, : len(codes)] = [-1 if code is None else code for code in codes]
    return moves


def moved(data: Layout, moves: NDArray[np.int8]) -> Layout:
    """Return a block with the codes that the store has."""
    if isinstance(data, Dense):
        return Dense(moves[np.arange(data.shape[1]), data.values])
    return Sparse(data.indptr, data.indices, moves[data.indices, data.values], data.n_items)
