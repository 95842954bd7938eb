"""Delimited text (CSV, TSV): lines become columns by pyarrow's parser, piece by piece.

The fast path is one parse of a piece after three scans of its bytes.  Whatever is wrong with a
piece sends it through :func:`_sift`, which looks at each line by itself.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv

from irt_dask.ingest.columns.decode import Decoder
from irt_dask.ingest.columns.roles import Header, resolve
from irt_dask.ingest.columns.rows import Bad, Rows
from irt_dask.ingest.columns.values import Codes
from irt_dask.ingest.sources.source import Columns, TextSource
from irt_dask.ingest.text.files import kind_of
from irt_dask.ingest.text.lines import (
    BOM,
    TextFile,
    count_lines,
    fault,
    is_sound,
    open_text,
    split_lines,
    take_lines,
)
from irt_dask.store.places import Location

DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
_OPEN = "a quoted value does not end on this line; close the quote, and write ids without line ends"


class Table(NamedTuple):
    """A file of delimited text and the names of its columns."""

    text: TextFile
    names: tuple[str, ...]
    delimiter: str


class Parsed(NamedTuple):
    """Columns of a piece: those of its good lines, and the bad ones."""

    data: bytes
    n_lines: int
    lines: np.ndarray
    columns: dict[str, pa.Array]  # by name
    bad: list[Bad]


@dataclass(frozen=True)
class DelimitedSource(TextSource):
    """Responses or persons in delimited text."""

    table: Table

    first_line: ClassVar[int] = 2

    def read(self, k: int, codes: Codes | None, most: int | None = None) -> Rows:
        """Read piece ``k``; of its bad rows keep the first ``most`` only."""
        roles = self.roles
        one = roles.single
        # persons are many: equal ids are found later, among those of a partition
        plain = [roles.person, *roles.items, *([roles.response] if roles.response else [])]
        labels = [n for n in one.values() if n not in plain] + [*roles.covariates]
        parsed = parse(self.table, k, labels, plain, most)
        decoder = Decoder(parsed.n_lines, parsed.lines, parsed.bad)
        decoder.table(roles, parsed.columns, codes)
        return decoder.finish(lambda offsets: take_lines(parsed.data, offsets), most)


def open_delimited(
    path: Location, scratch: Path, shape: str | None, columns: Columns | None
) -> DelimitedSource:
    """Open a file of delimited text and find out what its columns are."""
    table = open_table(path, scratch)
    text = table.text
    roles = resolve(Header([*table.names], text.error, table.delimiter), shape, columns)
    return DelimitedSource(path, roles, text.n_bytes, text.n_pieces, text, table)


def open_table(path: Location, scratch: Path) -> Table:
    """Open a file of delimited text and read its header."""
    text, first = open_text(path, scratch, header=True)
    delimiter = DELIMITERS[kind_of(path) or ""]
    problem = fault(first)
    if problem is not None:
        raise text.error(problem, 1)
    line = first.decode("utf-8")
    try:
        if n_fields(line, delimiter) is None:
            raise csv.Error("a quoted name does not end on this line")
        (fields,) = csv.reader([line], delimiter=delimiter)
    except csv.Error as e:
        raise text.error(f"the header cannot be read: {e}", 1) from None
    names = [name.strip() for name in fields]
    Header(names, text.error).checked()
    return Table(text, tuple(names), delimiter)


# --- a piece --------------------------------------------------------------------------------------


def parse(
    table: Table, k: int, labels: Sequence[str], plain: Sequence[str], most: int | None
) -> Parsed:
    """Read columns of piece ``k``: ``labels`` as dictionaries, ``plain`` as strings."""
    data = table.text.read(k)
    if data and is_sound(data):
        columns = _parse(table, data, labels, plain)
        if columns is not None:
            n = len(next(iter(columns.values())))
            return Parsed(data, n, np.arange(n, dtype=np.int32), columns, [])
    lines, good, bad = _sift(table, data, most)
    clean = b"\n".join([lines[j] for j in good])
    columns = _parse(table, clean, labels, plain)
    if columns is None:
        first, stop = table.text.bounds(k)
        raise table.text.error(
            f"a row between the bytes {first} and {stop} cannot be parsed; write the file again, "
            "without quotes where they are not needed"
        )
    return Parsed(data, len(lines), np.array(good, dtype=np.int32), columns, bad)


def _parse(
    table: Table, data: bytes, labels: Sequence[str], plain: Sequence[str]
) -> dict[str, pa.Array] | None:
    """Return columns of sound text; None when some line is no row."""
    place = {name: str(j) for j, name in enumerate(table.names)}
    types: dict[str, Any] = {place[n]: pa.dictionary(pa.int32(), pa.string()) for n in labels}
    types |= {place[n]: pa.string() for n in plain}
    if not data:
        return {n: pa.array([], types[place[n]]) for n in (*labels, *plain)}
    if data.startswith(BOM):  # amid a file it is text, and pyarrow drops the first one
        data = BOM + data
    quoted = b'"' in data
    if quoted:
        last = split_lines(data[data.rfind(b"\n", 0, -1) + 1 :])[0].decode()
        if n_fields(last, table.delimiter) is None:
            return None  # at the end of the data, pyarrow would close the quote
    try:
        parsed = arrow_csv.read_csv(
            pa.BufferReader(data),
            arrow_csv.ReadOptions(
                use_threads=False, block_size=len(data) + 1, column_names=[*place.values()]
            ),
            arrow_csv.ParseOptions(
                delimiter=table.delimiter, ignore_empty_lines=False, newlines_in_values=True
            ),
            arrow_csv.ConvertOptions(
                check_utf8=False,  # checked before
                column_types=types,
                include_columns=[*types],
                strings_can_be_null=False,
                null_values=[],  # these three lists cost time per column and piece
                true_values=[],
                false_values=[],
            ),
        )
    except pa.ArrowException:
        return None
    if quoted and parsed.num_rows != count_lines(data):  # a value with a line end
        return None
    return {n: _one(parsed.column(place[n])) for n in (*labels, *plain)}


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _sift(table: Table, data: bytes, most: int | None) -> tuple[list[bytes], list[int], list[Bad]]:
    """Return the lines of a piece, which of them are rows, and why the others are none."""
    lines = split_lines(data)
    expected = len(table.names)
    good: list[int] = []
    bad: list[Bad] = []
    for j, line in enumerate(lines):
        problem, n = fault(line), None
        if problem is None:
            n = n_fields(line.decode("utf-8"), table.delimiter)
            if n == expected:
                good.append(j)
                continue
            problem = _OPEN
            if n is not None:
                problem = (
                    f"expected {expected} fields, as in the header, and found {n}; "
                    f"quote values that contain the delimiter {table.delimiter!r}"
                )
        if most is None or len(bad) < most:
            bad.append(Bad(j, "", "", problem, line.decode("utf-8", "backslashreplace")))
    return lines, good, bad


def n_fields(line: str, delimiter: str) -> int | None:
    """Return the number of fields of a line, None where a quote is open at its end.

    A quote opens a value only at its start; twice within, it stands for itself.
    """
    if '"' not in line:
        return line.count(delimiter) + 1
    within = 0
    for found in _QUOTED[delimiter].finditer(line):
        if not found[2]:
            return None
        within += found[1].count(delimiter)
    return line.count(delimiter) - within + 1


_QUOTED = {d: re.compile(rf'(?:^|{d})"((?:[^"]+|"")*+)("?)') for d in (",", "\t")}
