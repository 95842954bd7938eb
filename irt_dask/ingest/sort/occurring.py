"""Which categories have responses: seen as blocks are written, of what the store will hold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from irt_dask.errors import InputError
from irt_dask.kernels.responses.layouts import Dense, Layout
from irt_dask.store.categories import BINARY, MOST

#: Whether each category of each item occurs: (items, ``MOST``).
Occurring = NDArray[np.bool_]


def of_cells(item: NDArray[np.integer], code: NDArray[np.integer], n_items: int) -> Occurring:
    """Look at responses one by one."""
    found = np.zeros(n_items * MOST, dtype=bool)
    found[item.astype(np.int64) * MOST + code] = True
    return found.reshape(n_items, MOST)


def of_block(data: Layout) -> Occurring:
    """Look at a block."""
    if not isinstance(data, Dense):
        return of_cells(data.indices, data.values, data.n_items)
    found = np.zeros((data.shape[1], MOST), dtype=bool)
    for code in range(int(data.values.max(initial=-1)) + 1):
        found[:, code] = (data.values == code).any(axis=0)
    return found


def from_data(found: Occurring) -> list[int]:
    """K of each item by the highest code that occurs."""
    highest = MOST - 1 - np.argmax(found[:, ::-1], axis=1)
    return [max(BINARY, k) for k in (np.where(found.any(axis=1), highest, 0) + 1).tolist()]


def refuse_null(
    path: object, items: Sequence[str], counts: Sequence[int], found: Occurring
) -> None:
    """Stop if a category of an item with more than two has no response."""
    empty = {
        item: [code for code in range(k) if not found[j, code]]
        for j, (item, k) in enumerate(zip(items, counts, strict=True))
        if k > BINARY
    }
    told = [f"{item!r} ({', '.join(map(str, codes))})" for item, codes in empty.items() if codes]
    if told:
        raise InputError(
            f"{path}: {len(told)} item(s) have categories without a response: "
            f"{', '.join(told[:10])}{' ...' * (len(told) > 10)}; nothing can be "
            f"estimated of these: say fewer categories=, join categories by recode=, or take them "
            f"as they are: null_categories='keep'"
        )
