"""Delimited text (CSV, TSV): lines become columns by pyarrow's parser, piece by piece.

The fast path is one parse of a piece after three scans of its bytes.  Whatever is wrong with a
piece sends it through :func:`_sift`, which looks at each line by itself.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv

from irt_dask.ingest.columns.decode import Decoder
from irt_dask.ingest.columns.header import Header
from irt_dask.ingest.columns.roles import Wanted, resolve
from irt_dask.ingest.columns.rows import Bad, Rows
from irt_dask.ingest.columns.values import Codes
from irt_dask.ingest.sources.source import TextSource
from irt_dask.ingest.text.dialect import UNSAID, Dialect
from irt_dask.ingest.text.encoding import BOM
from irt_dask.ingest.text.files import kind_of
from irt_dask.ingest.text.lines import (
    TextFile,
    count_lines,
    fault,
    is_sound,
    open_text,
    split_lines,
    take_lines,
)
from irt_dask.ingest.text.quotes import LINE_END, NOTHING, header_of, n_fields, on_one_line
from irt_dask.store.places import Location
from irt_dask.variables import identifier

DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
_LOOKED_FOR = (",", ";", "\t", "|")
#: What spreadsheets write above the header.
_SAID = re.compile(r'"?sep=(\t|[^\w\s"])"?[,;\t|]*', re.IGNORECASE)
_OPEN = (
    "a quoted value does not end on this line, nor does the row on later ones with as many values "
    "as the header has; close the quote"
)


class Table(NamedTuple):
    """A file of delimited text and the names of its columns."""

    text: TextFile
    names: tuple[str, ...]
    delimiter: str
    first_line: int = 2  # number of the first one behind the header
    several_lines: bool = False  # rows that go over several lines have been put on one
    unnamed: tuple[str, ...] = ()  # what columns without a name are called: the last, always empty
    row_names: str | None = None  # and the first one, which R and pandas write


class Parsed(NamedTuple):
    """Columns of a piece: those of its good lines, and the bad ones."""

    data: bytes
    n_lines: int
    lines: np.ndarray
    columns: dict[str, pa.Array]  # by name
    bad: list[Bad]
    n_more: int = 0  # lines with which rows go on that began on earlier ones


@dataclass(frozen=True)
class DelimitedSource(TextSource):
    """Responses or persons in delimited text."""

    table: Table
    decimal: str | None = None

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of all columns."""
        return self.table.names

    @property
    def first_line(self) -> int:
        """Number of the first line of the first piece."""
        return self.table.first_line

    def read(self, k: int, codes: Codes | None, most: int | None = None) -> Rows:
        """Read piece ``k``; of its bad rows keep the first ``most`` only."""
        roles = self.roles
        one = roles.single
        # persons are many: equal ids are found later, among those of a partition
        plain = [roles.person, *roles.items, *([roles.response] if roles.response else [])]
        labels = [n for n in one.values() if n not in plain]
        labels += [*roles.facets, *roles.covariates]
        parsed = parse(self.table, k, labels, [*plain, *self.table.unnamed], most)
        decoder = Decoder(
            parsed.n_lines, parsed.lines, parsed.bad, decimal=self.decimal,
            line_end=LINE_END if self.table.several_lines else None,
        )  # fmt: skip
        for name in self.table.unnamed:
            decoder.nothing(parsed.columns[name], name)
        decoder.table(roles, parsed.columns, codes)
        rows = decoder.finish(lambda offsets: take_lines(parsed.data, offsets), most)
        rows.n_more = parsed.n_more
        if self.table.several_lines:
            rows.bad = [_as_it_was(bad) for bad in rows.bad]
        return rows

    def texts(self, k: int, offsets: Sequence[int]) -> list[str]:
        """Return rows of piece ``k`` as they are in the file."""
        texts = super().texts(k, offsets)
        return [_with_ends(text) for text in texts] if self.table.several_lines else texts


def _as_it_was(bad: Bad) -> Bad:
    """Return a bad row with the line ends that it had within quotes."""
    message = bad.message.replace(repr(LINE_END)[1:-1], "\\n")
    return replace(bad, value=_with_ends(bad.value), message=message, text=_with_ends(bad.text))


def _with_ends(text: str) -> str:
    return text.replace(LINE_END, "\n")


def open_delimited(
    path: Location, scratch: Path, wanted: Wanted, dialect: Dialect
) -> DelimitedSource:
    """Open a file of delimited text and find out what its columns are."""
    table = open_table(path, scratch, dialect)
    text, row_names = table.text, table.row_names
    said = wanted.columns.values() if isinstance(wanted.columns, Mapping) else ()
    left_out = row_names is not None and row_names not in said
    no_names = {*table.unnamed, *((row_names,) if left_out else ())}
    names = [name for name in table.names if name not in no_names]
    unnamed = row_names if wanted.shape != "persons" else None  # whose roles nobody can say
    roles = resolve(Header(names, text.error, table.delimiter, unnamed), wanted)
    if left_out and roles.form != "long":
        note = f"{row_names} has no name in the header and is left out"
        text = replace(text, notes=(*text.notes, note))
    return DelimitedSource(
        path, roles, text.n_bytes, text.n_pieces, text, table, decimal=dialect.decimal
    )


def open_table(path: Location, scratch: Path, dialect: Dialect = UNSAID) -> Table:
    """Open a file of delimited text and read its header."""
    text = open_text(path, scratch, dialect)
    rest, line = text.without_first()
    first, said = 1, _SAID.fullmatch(line.decode("utf-8", "replace"))
    if said is not None:
        text, first = rest, 2
    head = _header(text, first, dialect, said and said[1])
    try:
        (fields,) = csv.reader([head.line.decode("utf-8")], delimiter=head.delimiter)
    except csv.Error as e:
        raise text.error(f"the header cannot be read: {e}", first) from None
    names = [identifier(re.sub(rf"\s*{LINE_END}\s*", " ", name.strip())) for name in fields]
    names, unnamed, row_names = _called(names)
    Header(names, lambda message, _: text.error(message, first)).checked()
    text, n_empty = head.rest.without_empty_rows(head.delimiter)
    first += head.n_lines
    if head.note is not None:
        text = replace(text, notes=(*text.notes, head.note))
    if n_empty:
        note = f"the last {n_empty} row(s), which hold nothing but delimiters, are left out"
        text = replace(text, notes=(*text.notes, note))
    if dialect.several_lines:
        text = on_one_line(text, scratch, head.delimiter, len(names), first)
    return Table(
        text, tuple(names), head.delimiter, first, dialect.several_lines, unnamed, row_names
    )


def _called(names: list[str]) -> tuple[list[str], tuple[str, ...], str | None]:
    """Call columns without a name by their places where they are harmless.

    These are the last ones, which spreadsheets leave empty, and the first, numbers of rows; amid
    others a name may have been lost.  Return all names, those of the last ones and of the first.
    """
    n = len(names)
    while n and not names[n - 1]:
        n -= 1
    if n == 0:  # which is no header
        return names, (), None
    called = [name or f"column {k}" for k, name in enumerate(names, 1)]
    first = called[0] if not names[0] else None
    return [*called[:1], *names[1:n], *called[n:]], tuple(called[n:]), first


class _Head(NamedTuple):
    """The header of a file, what follows it, and what was found out about it."""

    rest: TextFile
    line: bytes
    n_lines: int
    delimiter: str
    note: str | None = None


def _header(text: TextFile, at: int, dialect: Dialect, said: str | None) -> _Head:
    """Take the header off, by the delimiter that was said, else that of the file's ending.

    Where that gives one column, the signs that are usual are tried.
    """
    by_name = DELIMITERS[kind_of(text.path) or ""]
    given = dialect.delimiter
    if said is not None and dialect.own and given not in (None, said):
        raise text.error(
            f"the line is sep={said}, and delimiter={given!r} was given; leave delimiter= out, or "
            f"remove the line if it is wrong", 1,
        )  # fmt: skip
    given = said or given
    head = _head(text, at, given or by_name)
    n = _n_columns(head)
    if n is None:
        raise text.error("the header cannot be read: a quoted name does not end on this line", at)
    if n > 1 or said is not None or (given is not None and dialect.own):
        return head
    others = [_head(text, at, sign) for sign in _LOOKED_FOR if sign != head.delimiter]
    fitting = [other for other in others if (_n_columns(other) or 0) > 1]
    if len(fitting) > 1:
        signs = " or ".join(repr(other.delimiter) for other in fitting)
        raise text.error(f"the header could be divided by {signs}; say which by delimiter=", at)
    if not fitting:
        return head
    sign = fitting[0].delimiter
    return fitting[0]._replace(note=f"the delimiter is {sign!r}, as the header shows")


def _head(text: TextFile, at: int, delimiter: str) -> _Head:
    rest, line, n_lines = header_of(text, delimiter)
    problem = fault(line)
    if problem is not None:
        if not line.strip():
            problem = "the line is blank, where the column names should be"
        raise text.error(problem, at)
    return _Head(rest, line, n_lines, delimiter)


def _n_columns(head: _Head) -> int | None:
    return n_fields(head.line.decode("utf-8"), head.delimiter)


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
    n_more = lines.count(NOTHING) if table.several_lines else 0
    return Parsed(data, len(lines), np.array(good, dtype=np.int32), columns, bad, n_more)


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
        if table.several_lines and line == NOTHING:
            continue
        problem, runs_on = fault(line), False
        if problem is None:
            n = n_fields(line.decode("utf-8"), table.delimiter)
            if n == expected:
                good.append(j)
                continue
            runs_on = n is None and not table.several_lines
            problem = _OPEN
            if n is not None:
                problem = (
                    f"expected {expected} fields, as in the header, and found {n}; "
                    f"quote values that contain the delimiter {table.delimiter!r}"
                )
        if most is None or len(bad) < most:
            text = line.decode("utf-8", "backslashreplace")
            bad.append(Bad(j, "", "", problem, text, runs_on))
    return lines, good, bad
