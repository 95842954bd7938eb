"""Rows on their way through temporary files, from pieces of the source to blocks of persons.

A piece of the source is read and its rows are dealt to partitions by a hash of the person
(:func:`scatter`); a partition has all rows of its persons and puts them together
(:mod:`irt_dask.ingest.runs`).  Neither needs more memory than one piece or one partition, both run
anywhere, and what they make does not depend on where or in which order.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from irt_dask.errors import ClusterError
from irt_dask.ingest.decode import string_buffers
from irt_dask.ingest.sources import Bad
from irt_dask.kernels import grouping
from irt_dask.store.manifest import writing

if TYPE_CHECKING:
    import pyarrow as pa

    from irt_dask.ingest.sources import Rows, Source
    from irt_dask.ingest.values import Codes
    from irt_dask.store.responses import BlockRef

#: Bytes of source per partition, about, and the most partitions.
PARTITION = 32 << 20
_MOST_PARTITIONS = 1024
#: A row's place in the source as one number: the piece, then the line within it.
PIECE_BITS = 32
#: NumPy reads an array's header by ast.literal_eval, which threads of CPython 3.11 disturb in each
#: other ("AST constructor recursion depth mismatch"): one at a time.
_HEADERS = threading.Lock()


def n_partitions(size: int) -> int:
    """Number of partitions for a source of ``size`` bytes: a rule of the data alone."""
    return min(max(4 if size > 1 << 20 else 1, -(-size // PARTITION)), _MOST_PARTITIONS)


@dataclass(frozen=True)
class Scattered:
    """What the driver keeps of a piece."""

    n_lines: int
    n_rows: int
    n_bad: int
    first_bad: Bad | None
    items: list[str] | None  # of its rows, in order of first appearance


def check_folder(folder: str) -> Path:
    """Stop on a worker that does not see the folder of the store."""
    path = Path(folder)
    if not path.is_dir():
        raise ClusterError(
            f"a worker does not see the folder {path}: the source and the store must lie on a file "
            f"system that all workers share (for those in object storage: TMPDIR)"
        )
    return path


def scatter(
    source: Source, k: int, codes: Codes | None, n_parts: int, folder: str, stop_at_bad: bool
) -> Scattered:
    """Read piece ``k`` and spill its rows by partition."""
    target = check_folder(folder) / f"piece-{k:05d}"
    rows = source.read(k, codes, 1 if stop_at_bad else None)
    bad = rows.bad
    if bad and stop_at_bad:
        return Scattered(rows.n_lines, 0, len(bad), bad[0], None)
    target.mkdir(exist_ok=True)
    if bad:
        write(target / "bad.json", json.dumps([vars(b) for b in bad]).encode())
    items = _spill_rows(rows, n_parts, target)
    return Scattered(rows.n_lines, len(rows.lines), len(bad), bad[0] if bad else None, items)


def _spill_rows(rows: Rows, n_parts: int, target: Path) -> list[str] | None:
    part, at = _deal(rows.person, n_parts, target)
    save(target / "ptr.npy", _ends(part, n_parts))
    save(target / "line.npy", rows.lines[at])
    items = None
    if rows.item is not None:
        item, items = _first_appearance(rows.item)
        save(target / "item.npy", item[at])
    if rows.codes is not None and rows.codes.ndim == 1:
        save(target / "code.npy", rows.codes[at])
    elif rows.codes is not None:
        save(target / "matrix.npy", rows.codes)
        save(target / "row.npy", at.astype(np.int32))
        save(target / "observed.npy", (rows.codes >= 0).sum(axis=1, dtype=np.int32)[at])
    if rows.weight is not None:
        save(target / "weight.npy", rows.weight[at])
    if rows.group is not None:
        save(target / "group.npy", rows.group.indices.to_numpy(zero_copy_only=False)[at])
        _write_strings(target / "groups.arrow", [rows.group.dictionary])
    if rows.covariates is not None and rows.covariates.shape[1]:
        save(target / "covariates.npy", rows.covariates[at])
    return items


def scatter_ids(ref: BlockRef, k: int, n_parts: int, folder: str) -> None:
    """Spill the person identifiers of a block of an existing store by partition."""
    import pyarrow as pa

    target = check_folder(folder) / f"piece-{k:05d}"
    target.mkdir(exist_ok=True)
    _deal(pa.array(ref.person_ids(), pa.string()), n_parts, target)


def _deal(ids: pa.StringArray, n_parts: int, target: Path) -> tuple[np.ndarray, np.ndarray]:
    """Write the persons of rows, one batch per partition.

    Returns the partition of each row, and the rows by partition.
    """
    import pyarrow as pa

    part = grouping.partitions(*string_buffers(ids), n_parts)
    order = np.argsort(part, kind="stable")  # of 16-bit integers: a radix sort
    bounds = _ends(part, n_parts)
    dealt = ids.take(pa.array(order))
    _write_strings(
        target / "ids.arrow",
        [dealt.slice(bounds[p], bounds[p + 1] - bounds[p]) for p in range(n_parts)],
    )
    return part, order


def _ends(part: np.ndarray, n_parts: int) -> np.ndarray:
    ends = np.zeros(n_parts + 1, dtype=np.int64)
    np.cumsum(np.bincount(part, minlength=n_parts), out=ends[1:])
    return ends


def _first_appearance(column: pa.DictionaryArray) -> tuple[np.ndarray, list[str]]:
    """Number the strings that rows use by first appearance; -1 for null."""
    codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
    used = codes[codes >= 0]
    first = grouping.first_rows(used, len(column.dictionary))
    order = np.argsort(first, kind="stable")[: int((first < used.size).sum())]
    number = np.full(len(first) + 1, -1, dtype=np.int32)  # the last entry is for null
    number[order] = np.arange(order.size, dtype=np.int32)
    return number[codes], column.dictionary.take(order).to_pylist()


# --- files ----------------------------------------------------------------------------------------


def save(path: Path, array: np.ndarray) -> None:
    """Write an array so that the file appears whole."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp.npy")
    with writing(path):
        np.save(temporary, array)
        os.replace(temporary, path)


def load(path: Path) -> np.ndarray:
    """Open an array; pages are read when they are used."""
    small = path.stat().st_size <= 128  # an empty array cannot be mapped
    with _HEADERS:
        return np.load(path, mmap_mode=None if small else "r")


def write(path: Path, data: bytes) -> None:
    """Write a file that appears whole."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
    with writing(path):
        temporary.write_bytes(data)
        os.replace(temporary, path)


def _write_strings(path: Path, batches: list[pa.Array]) -> None:
    write_table(path, [{"id": batch} for batch in batches])


def write_table(path: Path, batches: list[dict[str, pa.Array]]) -> None:
    """Write batches of string columns as an Arrow file that appears whole."""
    import pyarrow as pa

    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
    schema = pa.schema([(name, pa.string()) for name in batches[0]])
    with writing(path):
        with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for batch in batches:
                columns = [c.cast(pa.string()) for c in batch.values()]
                writer.write_batch(pa.record_batch(columns, schema=schema))
        os.replace(temporary, path)


def read_strings(path: Path, batch: int = 0, column: str = "id") -> pa.Array:
    """Read one batch of a column of strings."""
    import pyarrow as pa

    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_file(file).get_batch(batch).column(column)


def read_bad(folder: Path, k: int) -> list[Bad]:
    """Rows of piece ``k`` that could not be taken."""
    path = folder / f"piece-{k:05d}" / "bad.json"
    return [Bad(**b) for b in json.loads(path.read_bytes())] if path.exists() else []


def pieces(folder: Path) -> Iterator[tuple[int, Path]]:
    """Yield the pieces that were spilled, in order."""
    numbers = sorted(int(path.name.removeprefix("piece-")) for path in folder.glob("piece-*"))
    for k in numbers:
        yield k, folder / f"piece-{k:05d}"


def part_rows(piece: Path, p: int) -> slice:
    """Rows of partition ``p`` in the arrays of a piece."""
    ptr: Any = load(piece / "ptr.npy")
    return slice(int(ptr[p]), int(ptr[p + 1]))
