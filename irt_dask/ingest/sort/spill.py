"""Rows on their way through temporary files, from pieces of the source to blocks of persons.

A piece of the source is read and its rows are dealt to partitions by a hash of the person
(:func:`scatter`); a partition has all rows of its persons and puts them together
(:mod:`irt_dask.ingest.sort.runs`).  Neither needs more memory than one piece or one partition, both
run anywhere, and what they make does not depend on where or in which order.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from irt_dask.errors import ClusterError
from irt_dask.ingest.columns.rows import Bad, Rows
from irt_dask.ingest.columns.suspects import Seen
from irt_dask.ingest.columns.unlisted import Unlisted
from irt_dask.ingest.columns.values import Codes
from irt_dask.ingest.sort import row_grouping
from irt_dask.ingest.sources.source import Source
from irt_dask.ingest.text import bundles
from irt_dask.ingest.text.bundles import Bundle, string_buffers
from irt_dask.store.blocks import BlockRef

#: Bytes of source per partition, about, and the most partitions.
PARTITION = 32 << 20
_MOST_PARTITIONS = 1024
#: A row's place in the source as one number: the piece, then the line within it.
PIECE_BITS = 32


def n_partitions(size: int) -> int:
    """Number of partitions for a source of ``size`` bytes: a rule of the data alone."""
    return min(max(4 if size > 1 << 20 else 1, -(-size // PARTITION)), _MOST_PARTITIONS)


@dataclass(frozen=True)
class Pieces:
    """The pieces of a source, spilled, and how messages call their rows."""

    folder: str
    first_lines: tuple[int, ...]  # number of each piece's first line in the source
    unit: str  # "line", or "row" of a table

    @classmethod
    def of(cls, source: Source, folder: Path, n_lines: Sequence[int]) -> Pieces:
        """Count lines, of which each piece has ``n_lines``."""
        first_lines = np.cumsum([source.first_line, *n_lines])[: len(n_lines)]
        return cls(str(folder), tuple(first_lines.tolist()), source.unit)

    def line(self, key: Any) -> int:
        """Return the number of the line of a row, given its place as one number."""
        piece, offset = divmod(int(key), 1 << PIECE_BITS)
        return self.first_lines[piece] + offset

    def place(self, key: Any) -> str:
        """Return the line as messages call it."""
        return f"{self.unit} {self.line(key)}"


@dataclass(frozen=True)
class Scattered:
    """What the driver keeps of a piece."""

    n_lines: int
    n_rows: int
    n_bad: int
    first_bad: Bad | None
    items: list[str] | None  # of its rows, in order of first appearance
    runs_on: bool = False  # some bad row may go on on later lines
    unanswered: frozenset[str] = frozenset()  # those of them without a response here
    seen: Seen | None = None  # of a wide source
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)  # of a table of persons
    unlisted: Unlisted = field(default_factory=dict)


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
    target = piece_file(check_folder(folder), k)
    rows = source.read(k, codes, 1 if stop_at_bad else None)
    bad, runs_on = rows.bad, any(b.runs_on for b in rows.bad)
    if runs_on or (bad and stop_at_bad):
        return Scattered(rows.n_lines, 0, len(bad), bad[0], None, runs_on)
    with bundles.writer(target) as to:
        write_bad(to, (((k << PIECE_BITS) + b.line, b) for b in bad))
        items, unanswered = _spill_rows(rows, n_parts, to)
    matrix = rows.codes if rows.item is None else None
    return Scattered(
        rows.n_lines, len(rows.lines), len(bad), bad[0] if bad else None, items,
        unanswered=unanswered, seen=None if matrix is None else Seen.of(matrix), labels=rows.labels,
        unlisted=rows.unlisted,
    )  # fmt: skip


def _spill_rows(
    rows: Rows, n_parts: int, to: bundles.Writer
) -> tuple[list[str] | None, frozenset[str]]:
    """Write rows by partition; return the items that they have, and those nobody answered."""
    at = _deal(rows.person, n_parts, to)
    to.add("line", rows.lines[at])
    items, unanswered = None, frozenset[str]()
    if rows.item is not None:
        assert rows.codes is not None
        item, items = _first_appearance(rows.item)
        to.add("item", item[at])
        n = np.bincount(item[(rows.codes >= 0) & (item >= 0)], minlength=len(items))
        unanswered = frozenset(items[j] for j in np.flatnonzero(n == 0))
    if rows.codes is not None and rows.codes.ndim == 1:
        to.add("code", rows.codes[at])
    elif rows.codes is not None:
        to.add("matrix", rows.codes)
        to.add("row", at.astype(np.int32))
        to.add("observed", (rows.codes >= 0).sum(axis=1, dtype=np.int32)[at])
    if rows.weight is not None:
        to.add("weight", rows.weight[at])
    if rows.group is not None:
        to.add("group", rows.group.indices.to_numpy(zero_copy_only=False)[at])
        to.add_strings("groups", rows.group.dictionary)
    if rows.covariates is not None and rows.covariates.shape[1]:
        to.add("covariates", rows.covariates[at])
    return items, unanswered


def scatter_known(ref: BlockRef, k: int, n_parts: int, folder: str, attributes: bool) -> None:
    """Spill the persons of a block of an existing store by partition: identifiers and rows.

    With their weights, groups and covariates, if ``attributes``.
    """
    with bundles.writer(piece_file(check_folder(folder), k)) as to:
        rows = _deal(pa.array(ref.person_ids(), pa.string()), n_parts, to)
        to.add("at", rows)
        if not attributes:
            return
        for name, column in (("weight", ref.weights()), ("covariates", ref.covariates())):
            if column is not None:
                to.add(name, column[rows])
        groups = ref.groups()
        if groups is not None:
            to.add_strings("group", pa.array(groups[rows], pa.string()))


def _deal(ids: pa.StringArray, n_parts: int, to: bundles.Writer) -> np.ndarray:
    """Write the persons of rows by partition; return the rows in that order."""
    part = row_grouping.partitions(*string_buffers(ids), n_parts)
    order = np.argsort(part, kind="stable")  # of 16-bit integers: a radix sort
    to.add("ptr", row_grouping.ends_of(np.bincount(part, minlength=n_parts)))
    to.add_strings("id", ids.take(pa.array(order)))
    return order


def _first_appearance(column: pa.DictionaryArray) -> tuple[np.ndarray, list[str]]:
    """Number the strings that rows use by first appearance; -1 for null."""
    codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
    order, _, number = row_grouping.by_appearance(codes[codes >= 0], len(column.dictionary))
    return number[codes], column.dictionary.take(order).to_pylist()


# --- files ----------------------------------------------------------------------------------------


def piece_file(folder: Path, k: int) -> Path:
    """The rows of a piece."""
    return folder / f"piece-{k:05d}"


def items_file(folder: Path, k: int) -> Path:
    """The number in the whole source of each item of a piece."""
    return folder / f"items-{k:05d}"


def run_file(folder: Path, p: int) -> Path:
    """The rows of a partition, put together."""
    return folder / f"run-{p:05d}"


def known_file(folder: Path, p: int) -> Path:
    """The rows of those persons of a partition who are in the store, by block."""
    return folder / f"known-{p:05d}"


def added_file(folder: Path, k: int) -> Path:
    """What the persons of a block of the store have answered since."""
    return folder / f"added-{k:05d}"


def part_rows(piece: Bundle, p: int) -> slice:
    """Rows of partition ``p`` in the arrays of a piece."""
    start, stop = piece["ptr"][p : p + 2]
    return slice(int(start), int(stop))


def write_bad(to: bundles.Writer, found: Iterable[tuple[int, Bad]]) -> None:
    """Keep rows that are put aside, with their places in the source, ascending."""
    lines = (json.dumps([key, vars(bad)]) for key, bad in found)
    to.add_bytes("bad", (f"{line}\n".encode() for line in lines))


def read_bad(file: Path) -> Iterator[tuple[int, Bad]]:
    """Yield the rows that a piece or a partition has put aside: place, row."""
    with Bundle(file).open("bad") as lines:
        for line in lines:
            key, bad = json.loads(line)
            yield key, Bad(**bad)
