"""A copy of the responses permuted by shard: each shard then reads its own persons only.

One file a block, written by the workers: the persons of the block, shard by shard, behind a table
of where each shard's begin.  The copy belongs to one computation and is removed with it.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from irt_dask.engine import replicates
from irt_dask.engine.cache import read_block
from irt_dask.engine.core import Engine
from irt_dask.errors import ClusterError, StoreError
from irt_dask.kernels.base import keyed_random
from irt_dask.kernels.responses import layouts
from irt_dask.kernels.responses.layouts import Dense, Layout, Sparse
from irt_dask.store.manifest import replacing, writing

#: Per shard: where its persons begin in the file, their bytes, the checksum, persons, responses.
_ENTRIES = 5


@dataclass(frozen=True)
class ShardFile:
    """The file of one block."""

    path: str
    n_items: int

    def read(self, shard: int) -> Layout:
        """Read the persons of one shard.

        Raises StoreError where the file is damaged or gone.
        """
        try:
            with open(self.path, "rb") as file:
                file.seek(8 * _ENTRIES * shard)
                entry = np.frombuffer(file.read(8 * _ENTRIES), dtype=np.int64)
                at, size, checksum, n, responses = (int(x) for x in entry)
                file.seek(at)
                body = file.read(size)
        except (OSError, ValueError) as error:
            raise StoreError(f"{self.path}, a copy made for many shards: {error}") from error
        if len(body) != size or zlib.crc32(body) != checksum:
            raise StoreError(f"{self.path}, a copy made for many shards, is damaged: start again")
        if responses < 0:
            return Dense(np.frombuffer(body, dtype=np.int8).reshape(n, self.n_items))
        ends = np.cumsum([8 * (n + 1), 4 * responses, responses])
        return Sparse(
            np.frombuffer(body[: ends[0]], dtype=np.int64),
            np.frombuffer(body[ends[0] : ends[1]], dtype=np.int32),
            np.frombuffer(body[ends[1] :], dtype=np.int8),
            self.n_items,
        )


def _body(data: Layout) -> tuple[bytes, int]:
    """Bytes of some persons, and the number of responses (-1: dense)."""
    if isinstance(data, Dense):
        return data.values.tobytes(), -1
    parts = (data.indptr.astype(np.int64), data.indices.astype(np.int32), data.values)
    return b"".join(x.tobytes() for x in parts), data.indices.size


def _path(folder: str, index: int) -> Path:
    return Path(folder) / f"block-{index:06d}.shards"


def _write(ref: Any, seed: int, n_shards: int, folder: str) -> None:
    block = read_block(ref)
    path = _path(folder, block.index)
    of = keyed_random.shard_of(seed, block.start, block.n_persons, n_shards)
    table = np.empty((n_shards, _ENTRIES), dtype=np.int64)
    bodies, at, counted = [], table.nbytes, replicates.times(block, seed)
    for k in range(n_shards):
        mine = layouts.take(block.data, replicates.of_shard(of, k, counted, block.n_persons))
        body, responses = _body(mine)
        table[k] = at, len(body), zlib.crc32(body), mine.shape[0], responses
        bodies.append(body)
        at += len(body)
    try:
        with writing(path), replacing(path) as temporary, open(temporary, "wb") as file:
            file.write(table.tobytes())
            file.writelines(bodies)
    except FileNotFoundError as error:
        raise ClusterError(
            f"{n_shards} shards: a copy of the responses by shard is made first, in {folder}, "
            f"which the workers do not share; give checkpoint=FOLDER on a file system that all see"
        ) from error


def write_copy(engine: Engine, seed: int, n_shards: int, folder: Path) -> Sequence[ShardFile]:
    """Write the copy, in one pass over the data, and return its files, block by block.

    Persons are there as often as they count.

    Raises
    ------
    ClusterError
        If the workers do not share the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    engine.map_refs(_write, seed, n_shards, str(folder), report=True)
    r = engine.responses
    return [ShardFile(str(_path(str(folder), k)), r.n_items) for k in range(r.n_blocks)]
