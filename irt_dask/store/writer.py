"""Writing a store from blocks at hand, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from irt_dask.errors import InputError
from irt_dask.kernels.responses.layouts import Dense, Layout
from irt_dask.store.categories import BINARY, declared
from irt_dask.store.draft import create
from irt_dask.store.manifest import Files
from irt_dask.store.responses import Responses, check_item_ids

_SMALLEST, _LARGEST = 1, 65_536
#: Cells of a block: enough that opening a file costs little, few enough that there are blocks to
#: share out; more as long as there are _SHARED blocks.
_CELLS, _MOST_CELLS, _SHARED = 1 << 18, 1 << 20, 64
#: Blocks of a large store, about: enough for a large cluster, few enough to list.
_MANY = 1024
#: Blocks of a small one, if its persons allow: one for each core of a machine.
_FEW, _FEW_ROWS = 16, 256


def default_rows_per_block(n_items: int, n_persons: int | None = None) -> int:
    """Return the number of persons a block holds unless the user says otherwise.

    2^18 to 2^20 responses, a power of two of at most 65,536 persons: at least 256 of them, unless
    that leaves fewer than 16 blocks (few persons with many items); larger for large data, so that a
    store has some thousand blocks rather than a hundred thousand.
    """
    cells = min(max((n_persons or 0) * n_items // _SHARED, _CELLS), _MOST_CELLS)
    rows = max(cells // max(n_items, 1), (n_persons or 0) // _MANY, 1)
    least = _FEW_ROWS if n_persons is None else min(_FEW_ROWS, max(n_persons // _FEW, _SMALLEST))
    return min(1 << (max(rows, least).bit_length() - 1), _LARGEST)


def check_rows_per_block(rows: int | None, n_items: int, n_persons: int | None = None) -> int:
    """Return a valid number of persons per block, the default for None."""
    if rows is None:
        return default_rows_per_block(n_items, n_persons)
    whole = isinstance(rows, (int, np.integer)) and not isinstance(rows, bool)
    if not whole or rows < 1:
        raise InputError(
            f"rows_per_block={rows!r} must be a whole number of at least 1, or None to choose"
        )
    return int(rows) if n_persons is None else min(int(rows), n_persons)


class StoreWriter:
    """Write one store, block by block, in the order of persons.

    Use as a context manager: leaving it by an exception, or without :meth:`commit`, removes
    everything.  Until the commit nothing exists under ``path``; after it the store is whole.

    Parameters
    ----------
    path : folder to make; it must not exist.
    item_id : identifiers of the items, in the order of the columns.
    n_persons : persons of all blocks together.
    rows_per_block : persons in each block but the last.
    layout : "dense" or "csr"; a CSR block has room for ``capacity`` responses.
    categories : as :func:`irt_dask.from_array` takes it.
    """

    def __init__(
        self, path: str | Path, *, item_id: Sequence[str], n_persons: int, rows_per_block: int,
        layout: str = "dense", capacity: int = 0, categories: Any = BINARY,
    ) -> None:  # fmt: skip
        self.item_id = check_item_ids(item_id)
        self.categories = declared(categories, self.item_id)
        if n_persons < 1:
            raise InputError(f"there are no persons to write to {path}")
        self._fields: dict[str, Any] = {
            "layout": layout, "n_persons": n_persons, "n_items": len(self.item_id),
            "rows_per_block": check_rows_per_block(rows_per_block, len(self.item_id), n_persons),
            "capacity": capacity,
        }  # fmt: skip
        self._open = ExitStack()
        self._draft = self._open.enter_context(create(path))
        self._part = self._draft.part(**self._fields)
        self._files: Files = {}
        self._written = 0
        self._max_weight: float | None = None

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def write(
        self, responses: NDArray[np.int8] | Layout, *, person_id: ArrayLike | Sequence[str],
        weight: ArrayLike | None = None, group: ArrayLike | Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        """Append one or several blocks: responses (rows, items), an identifier per row."""
        data = responses if not isinstance(responses, np.ndarray) else Dense(responses)
        if self._written == 0:
            self._part = self._draft.part(
                **self._fields, weighted=weight is not None, grouped=group is not None
            )
            self._files = self._part.create()
        stop = self._part.rows(self._written)[0] + data.shape[0]
        if self._written == self._part.n_blocks:
            raise ValueError(f"all {self._part.n_persons} persons are written already")
        extra: dict[str, Any] = {"group": group}
        if weight is not None:
            extra["weight"] = np.asarray(weight, dtype=float)
            self._max_weight = max(self._max_weight or 0.0, float(extra["weight"].max()))
        self._files |= self._part.write_blocks(self._written, data, list(person_id), **extra)  # type: ignore[arg-type]
        self._written = -(-stop // self._part.rows_per_block)

    def commit(self) -> Responses:
        """Make the store exist under its path and return it."""
        if self._written < self._part.n_blocks:
            raise ValueError(f"{self._written} of {self._part.n_blocks} blocks are written")
        return self._draft.commit(
            self._part,
            self._files,
            item_id=self.item_id,
            categories=self.categories,
            max_weight=self._max_weight,
        )
