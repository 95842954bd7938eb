"""Numbers of categories of items: what users declare, and what codes are held to.

The responses to an item with K categories are the codes 0 to K - 1 (K = 2: wrong and right).  K is
at most 15, so that a code or "not observed" fits into four bits.  Kernels check no bounds: a code
is compared with its item's K wherever responses come into memory, in ``from_array`` and whenever a
stored block is read, and nowhere after that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irt_dask.errors import InputError
from irt_dask.variables import identifier

BINARY, MOST = 2, 15
#: Codes in files of stores, and nowhere else, of what was not answered (``store/nonresponse.py``).
NONRESPONSE = {"omitted": MOST, "not reached": MOST + 1}
#: K of all items, or of each where they differ.
Categories = int | tuple[int, ...]
#: By item what became of the codes of its files: the code in the store, None of a category that had
#: no response and is none there.
Collapsed = Mapping[str, tuple[int | None, ...]]


def declared(categories: Any, item_id: Sequence[str]) -> Categories:
    """Check what a user says: K of all items, of each in their order, or by identifier.

    Items that a mapping (or a pandas Series, by its index) does not name have two.
    """
    if isinstance(categories, np.ndarray):
        categories = categories.tolist()
    elif hasattr(categories, "to_dict"):
        categories = categories.to_dict()
    if isinstance(categories, Mapping):
        named = {identifier(name): k for name, k in categories.items()}
        unknown = sorted(named.keys() - set(item_id))
        if unknown:
            raise InputError(
                f"categories= names {len(unknown)} item(s) that the responses do not have: "
                f"{', '.join(unknown[:10])}"
            )
        counts = [named.get(i, BINARY) for i in item_id]
    elif isinstance(categories, Iterable) and not isinstance(categories, str):
        counts = list(categories)
    elif categories == "data":
        raise InputError(
            "categories='data' is of files, which ingest reads; of an array say numbers: "
            "categories=np.nanmax(array, axis=0).astype(int) + 1, where nobody lacks the highest"
        )
    else:
        counts = [categories] * len(item_id)
    if len(counts) != len(item_id):
        raise InputError(f"categories= has {len(counts)} entries for {len(item_id)} items")
    counts = [check_count(name, k) for name, k in zip(item_id, counts, strict=True)]
    return together(counts)


def check_count(item: str | None, k: Any) -> int:
    """Return K as an integer; InputError where an item (None: all) cannot have so many."""
    whole = isinstance(k, (int, np.integer)) and not isinstance(k, bool)
    if not whole or not BINARY <= k <= MOST:
        whom = "all items" if item is None else f"item {item}"
        raise InputError(
            f"categories= gives {whom} {k!r} categories; give a whole number from {BINARY} to "
            f"{MOST}"
        )
    return int(k)


def together(counts: Iterable[int]) -> Categories:
    """K of each item (one at least), as one number where all have the same."""
    each = tuple(int(k) for k in counts)
    return each[0] if len(set(each)) == 1 else each


def of_each(categories: Categories, n_items: int) -> tuple[int, ...]:
    """K of each item."""
    return (categories,) * n_items if isinstance(categories, int) else categories


def limits(categories: Categories) -> int | NDArray[np.int8]:
    """K as codes are compared with it: rows of (persons, items) or, by item, single codes."""
    return categories if isinstance(categories, int) else np.array(categories, dtype=np.int8)
