"""Writing a store: all blocks into a temporary folder, then one rename that makes it exist."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import zarr
from numpy.typing import ArrayLike, NDArray
from zarr.codecs import Crc32cCodec, ZstdCodec

from irt_dask.errors import InputError
from irt_dask.store import manifest
from irt_dask.store.responses import Responses, check_item_ids
from irt_dask.store.stored import open_responses

#: A response that no block can hold: what a lost chunk would read as.
IMPOSSIBLE = -128
_PART = "part-00000"
_SMALLEST, _LARGEST = 256, 65_536
#: Cells of a block when there are few: small enough that a few blocks exist to share out.
_CELLS = 1 << 18
#: Blocks of a large store, about: enough for a large cluster, few enough to list.
_MANY = 1024


def default_rows_per_block(n_items: int, n_persons: int | None = None) -> int:
    """Return the number of persons a block holds unless the user says otherwise.

    About 2^18 responses, a power of two between 256 and 65,536 persons; larger for large data, so
    that a store has some thousand blocks rather than a hundred thousand.
    """
    rows = max(_CELLS // max(n_items, 1), (n_persons or 0) // _MANY, 1)
    return min(max(1 << (rows.bit_length() - 1), _SMALLEST), _LARGEST)


def check_rows_per_block(rows: int | None, n_items: int, n_persons: int | None = None) -> int:
    """Return a valid number of persons per block, the default for None."""
    if rows is None:
        return default_rows_per_block(n_items, n_persons)
    if not isinstance(rows, (int, np.integer)) or rows < 1:
        raise InputError(f"rows_per_block={rows!r} must be a whole number of at least 1")
    return int(rows)


class StoreWriter:
    """Write one store, block by block, in the order of persons.

    Use as a context manager: leaving it by an exception, or without :meth:`commit`, removes
    everything.  Until the commit nothing exists under ``path``; after it the store is whole.  Two
    writers of one path at the same time are not supported.

    Parameters
    ----------
    path : folder to make; it must not exist.
    item_id : identifiers of the items, in the order of the columns.
    rows_per_block : persons in each block but the last.
    """

    def __init__(self, path: str | Path, *, item_id: Sequence[str], rows_per_block: int) -> None:
        self.path = Path(path).absolute()
        self.item_id = check_item_ids(item_id)
        self.rows = check_rows_per_block(rows_per_block, len(self.item_id))
        if self.path.exists():
            raise InputError(f"{self.path} exists already; choose another store path or remove it")
        self.temporary = self.path.with_name(f".{self.path.name}.partial")
        if self.temporary.exists():  # left by a writer that was killed
            shutil.rmtree(self.temporary)
        self.temporary.mkdir(parents=True)
        self._group: zarr.Group | None = None
        self._arrays: dict[str, zarr.Array] = {}
        self._written = 0
        self._max_weight: float | None = None
        self._closed = False

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        shutil.rmtree(self.temporary, ignore_errors=True)

    def _create(self, weighted: bool, grouped: bool) -> None:
        self._group = zarr.open_group(self.temporary / _PART, mode="w", zarr_format=3)
        rows, items = self.rows, len(self.item_id)
        self._add("response", (0, items), (rows, items), "int8", IMPOSSIBLE)
        self._add("person_id", (0,), (rows,), "str", "")
        if weighted:
            self._add("person_weight", (0,), (rows,), "float64", np.nan)
        if grouped:
            self._add("person_group", (0,), (rows,), "str", "")

    def _add(
        self, name: str, shape: tuple[int, ...], chunks: tuple[int, ...], dtype: str, fill: object
    ) -> None:
        assert self._group is not None
        self._arrays[name] = self._group.create_array(
            name,
            shape=shape,
            chunks=chunks,
            dtype=dtype,
            fill_value=fill,
            compressors=[ZstdCodec(level=1), Crc32cCodec()],
            dimension_names=("persons", "items")[: len(shape)],
            config={"write_empty_chunks": True},
        )

    def write(
        self,
        responses: NDArray[np.int8],
        *,
        person_id: ArrayLike | Sequence[str],
        weight: ArrayLike | None = None,
        group: ArrayLike | Sequence[str] | None = None,
    ) -> None:
        """Append one block: int8 responses (rows, items) and one identifier per row."""
        columns: dict[str, Any] = {"response": responses, "person_id": person_id}
        if weight is not None:
            columns["person_weight"] = np.asarray(weight, dtype=float)
        if group is not None:
            columns["person_group"] = group
        if self._group is None:
            self._create(weight is not None, group is not None)
        n = responses.shape[0]
        if columns.keys() != self._arrays.keys() or any(len(c) != n for c in columns.values()):
            raise ValueError("every block needs the same columns, one entry per person")
        if self._written % self.rows or not 0 < n <= self.rows:
            raise ValueError(f"every block but the last has exactly {self.rows} persons")
        stop = self._written + n
        for name, column in columns.items():
            array = self._arrays[name]
            array.resize((stop, *array.shape[1:]))
            if name in ("person_id", "person_group"):
                column = np.asarray([str(c) for c in column], dtype=object)
            array[self._written : stop] = column
        if weight is not None:
            self._max_weight = max(self._max_weight or 0.0, float(columns["person_weight"].max()))
        self._written = stop

    def commit(self) -> Responses:
        """Make the store exist under its path and return it."""
        if self._written == 0:
            raise InputError(f"there are no persons to write to {self.path}")
        manifest.write(
            self.temporary,
            {
                "layout": "dense",
                "item_id": list(self.item_id),
                "n_persons": self._written,
                "weighted": "person_weight" in self._arrays,
                "grouped": "person_group" in self._arrays,
                "max_weight": self._max_weight,
                "parts": [{"name": _PART, "n_persons": self._written, "rows_per_block": self.rows}],
                "files": manifest.list_files(self.temporary, _PART),
            },
        )
        os.rename(self.temporary, self.path)
        manifest.sync_folder(self.path.parent)
        return open_responses(self.path)
