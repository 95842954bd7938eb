"""One immutable part of a store: the arrays it has, and the writing of blocks into their chunks.

A block is one chunk of each array, so blocks can be written by different processes in any order.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import Crc32cCodec, ZstdCodec
from zarr.storage import LocalStore

from irt_dask.arrays import Floats
from irt_dask.errors import InputError
from irt_dask.kernels.responses.layouts import Layout, Sparse, to_dense, to_sparse
from irt_dask.store import supplements
from irt_dask.store.frames import most_text
from irt_dask.store.manifest import Files, writing
from irt_dask.store.supplements import Cells

if TYPE_CHECKING:
    from zarr.abc.buffer import Buffer

#: A response that no block can hold: what a lost chunk would read as, and what pads a CSR block.
IMPOSSIBLE = -128
#: Files that are flushed to disk at the same time: a file system writes them together.
_FLUSHES = 16


class _Array(NamedTuple):
    """An array as Zarr makes it."""

    dtype: str
    fill_value: Any
    dimension_names: tuple[str, ...]
    shape: tuple[int, ...]
    chunks: tuple[int, ...]


class _Noting(LocalStore):
    """A folder that notes size and checksum of what is written, before a disk can change it."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self.noted: dict[str, list[int | str]] = {}

    async def set(self, key: str, value: Buffer) -> None:
        """Write a file."""
        data = value.to_bytes()
        self.noted[key] = [len(data), hashlib.sha256(data).hexdigest()]
        await super().set(key, value)


@functools.lru_cache(maxsize=16)
def _open(folder: str, name: str) -> tuple[zarr.Array, _Noting]:
    store = _Noting(f"{folder}/{name}")
    array = zarr.open_array(store, mode="r+", zarr_format=3)
    return array.with_config({"write_empty_chunks": True}), store


@dataclass(frozen=True)
class Part:
    """What a part holds and where; small and picklable.

    ``capacity`` is the number of responses that a chunk of a CSR part has room for.  A part may add
    up to ``most_added`` responses (0: it has no array for them) to each of the ``n_blocks_before``
    blocks of earlier parts; it may have no persons of its own.
    """

    folder: str
    layout: str
    n_persons: int
    n_items: int
    rows_per_block: int
    capacity: int = 0
    weighted: bool = False
    grouped: bool = False
    n_covariates: int = 0
    n_blocks_before: int = 0
    most_added: int = 0

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return -(-self.n_persons // self.rows_per_block)

    def rows(self, k: int) -> tuple[int, int]:
        """First person of block ``k`` and the one after its last."""
        first = k * self.rows_per_block
        return first, min(first + self.rows_per_block, self.n_persons)

    def arrays(self) -> dict[str, _Array]:
        """What Zarr has to hold, by name."""
        return self._arrays() | self._supplement()

    def _arrays(self) -> dict[str, _Array]:
        """The arrays of the part's own blocks."""
        rows, room = self.rows_per_block, max(self.capacity, 1)
        m, k = self.n_items, self.n_covariates
        persons, blocks = ("persons", self.n_persons, rows), ("blocks", self.n_blocks, 1)
        dense = self.layout == "dense"
        every: tuple[tuple[Any, ...], ...] = (
            (dense, "response", "int8", IMPOSSIBLE, persons, ("items", m, m)),
            (not dense, "response_indptr", "int64", -1, blocks, ("block_rows", rows + 1, rows + 1)),
            (not dense, "response_indices", "int32", -1, blocks, ("capacity", room, room)),
            (not dense, "response_value", "int8", IMPOSSIBLE, blocks, ("capacity", room, room)),
            (True, "person_id", "str", "", persons),
            (self.weighted, "person_weight", "float64", np.nan, persons),
            (self.grouped, "person_group", "str", "", persons),
            (k > 0, "person_covariate", "float64", np.nan, persons, ("covariates", k, k)),
        )
        return {
            name: _Array(dtype, fill, *zip(*dims, strict=True))
            for has, name, dtype, fill, *dims in every
            if has
        }

    def _supplement(self) -> dict[str, _Array]:
        """The array of responses to persons of earlier parts, if there are any."""
        n, room = self.n_blocks_before, self.most_added
        if room == 0:
            return {}
        dimensions = ("earlier_blocks", "cell", "supplement_capacity")
        return {
            supplements.NAME: _Array("int32", IMPOSSIBLE, dimensions, (n, 3, room), (1, 3, room))
        }

    def create(self) -> Files:
        """Write the metadata of all arrays; return the files."""
        arrays = self.arrays()
        with writing(self.folder):
            store = _Noting(self.folder)
            group = zarr.open_group(store, mode="w", zarr_format=3)
            for name, a in arrays.items():
                group.create_array(
                    name,
                    **a._asdict(),
                    compressors=[ZstdCodec(level=1), Crc32cCodec()],
                    config={"write_empty_chunks": True},
                )
        names = ["zarr.json", *(f"{name}/zarr.json" for name in arrays)]
        return self._flushed({name: store.noted[name] for name in names})

    def write_blocks(
        self, k: int, data: Layout, person_id: Sequence[str] | NDArray[np.object_], *,
        weight: Floats | None = None, group: Sequence[str] | NDArray[np.object_] | None = None,
        covariates: Floats | None = None,
    ) -> Files:  # fmt: skip
        """Write block ``k`` and those after it, as many as ``data`` fill; return the files.

        They are durable then.  Writing them again gives the same files.
        """
        first = self.rows(k)[0]
        stop = first + len(person_id)
        n = self.n_persons
        whole = stop == n or (stop < n and stop % self.rows_per_block == 0)
        if not whole or data.shape != (stop - first, self.n_items):
            n = self.rows(k)[1] - first
            raise ValueError(
                f"block {k} has {n} persons x {self.n_items} items, "
                f"not {len(person_id)} identifiers and responses {data.shape}"
            )
        blocks = range(k, -(-stop // self.rows_per_block))
        content: dict[str, Any] = {"person_id": person_id, "person_weight": weight}
        content |= {"person_group": group, "person_covariate": covariates}
        if self.layout == "dense":
            content["response"] = to_dense(data).values
        else:
            content |= self._padded(to_sparse(data), blocks)
        arrays = self._arrays()
        given = {name for name, column in content.items() if column is not None}
        if given != arrays.keys():
            raise ValueError(f"a block of this part has {sorted(arrays)}, not {sorted(given)}")
        files: Files = {}
        for name, spec in arrays.items():
            column = content[name]
            if spec.dtype == "str":
                column = np.array([str(c) for c in column], dtype=object)
                self._check_length(name, column)
            rows = (
                slice(first, stop)
                if spec.dimension_names[0] == "persons"
                else slice(k, blocks.stop)
            )
            with writing(f"{self.folder}/{name}"):
                array, store = _open(self.folder, name)
                array[rows] = column
            tail = "/0" * (len(spec.shape) - 1)
            chunks = [f"c/{b}{tail}" for b in blocks]
            files |= {f"{name}/{chunk}": store.noted[chunk] for chunk in chunks}
        return self._flushed(files)

    def _check_length(self, name: str, texts: NDArray[np.object_]) -> None:
        """Refuse texts for which a reader takes no memory."""
        rows = self.rows_per_block
        for first in range(0, len(texts), rows):
            n = sum(map(len, texts[first : first + rows]))
            if 4 * (n + rows + 1) > most_text(rows):
                raise InputError(
                    f"{name}: {n} characters of {rows} persons are more than a block can hold; "
                    f"say a smaller rows_per_block, or give shorter texts"
                )

    def write_supplement(self, k: int, cells: Cells) -> Files:
        """Write what persons of block ``k``, of an earlier part, have answered since."""
        name = supplements.NAME
        with writing(f"{self.folder}/{name}"):
            array, store = _open(self.folder, name)
            array[k : k + 1] = supplements.padded(cells, self.most_added)
        chunk = f"c/{k}/0/0"
        return self._flushed({f"{name}/{chunk}": store.noted[chunk]})

    def _padded(self, data: Sparse, blocks: range) -> dict[str, NDArray[Any]]:
        """Cut at block ends; pad with what no block can hold."""
        room = max(self.capacity, 1)
        indptr = np.empty((len(blocks), self.rows_per_block + 1), dtype=np.int64)
        indices = np.full((len(blocks), room), -1, dtype=np.int32)
        values = np.full((len(blocks), room), IMPOSSIBLE, dtype=np.int8)
        for i, k in enumerate(blocks):
            first, stop = (row - self.rows(blocks.start)[0] for row in self.rows(k))
            ends = data.indptr[first : stop + 1]
            n = int(ends[-1] - ends[0])
            if n > room:
                raise ValueError(f"a block has {n} responses, the part has room for {room}")
            indptr[i] = n
            indptr[i, : ends.size] = ends - ends[0]
            indices[i, :n] = data.indices[ends[0] : ends[-1]]
            values[i, :n] = data.values[ends[0] : ends[-1]]
        return {"response_indptr": indptr, "response_indices": indices, "response_value": values}

    def _flushed(self, files: Files) -> Files:
        """Make files of the part durable; return them by their path in the store."""
        root = Path(self.folder)

        def flush(name: str) -> None:
            with open(root / name, "rb") as f:
                os.fsync(f.fileno())

        with writing(root), ThreadPoolExecutor(_FLUSHES) as pool:
            list(pool.map(flush, files))
        return {f"{root.name}/{name}": noted for name, noted in files.items()}
