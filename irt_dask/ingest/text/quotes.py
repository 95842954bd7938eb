"""Quotes in delimited text: fields of a line, and rows that go over several lines.

A value in quotes may hold line ends, as questions and comments of surveys do.  Pieces of a file are
read without those before them, so such a file is copied once with each row on one line, and as many
lines of nothing after it as it had: line numbers stay those of the file.
"""

from __future__ import annotations

import csv
import os
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import IO

from irt_dask.ingest.text import lines
from irt_dask.ingest.text.bundles import Copy
from irt_dask.ingest.text.files import opened, reading
from irt_dask.ingest.text.lines import TextFile

#: Stands for a line end within quotes; no editor writes it, and it counts as a space.
LINE_END = "\v"
#: A line that is none: what a row that was joined leaves of its second line and of later ones.
NOTHING = b"\v"
#: Lines that a row may have: a quote that is never closed reaches no further.
_MOST = 1000


def n_fields(line: str, delimiter: str) -> int | None:
    """Return the number of fields of a line, None where a quote is open at its end.

    A quote opens a value only at its start; twice within, it stands for itself.
    """
    if '"' not in line:
        return line.count(delimiter) + 1
    within = 0
    for found in _quoted(delimiter).finditer(line):
        if not found[2]:
            return None
        within += found[1].count(delimiter)
    return line.count(delimiter) - within + 1


@cache
def _quoted(delimiter: str) -> re.Pattern[str]:
    return re.compile(rf'(?:^|{re.escape(delimiter)})"((?:[^"]+|"")*+)("?)')


def header_of(text: TextFile, delimiter: str) -> tuple[TextFile, bytes, int]:
    """Take the header off, which may go over several lines; return the rest, it and their number.

    A header whose quote is not closed is its first line.
    """
    rest, header = text.without_first()
    after, row, n = rest, header, 1
    while _is_open(row, delimiter) and n < _MOST and after.n_bytes:
        after, line = after.without_first()
        row, n = row + NOTHING + line, n + 1
    return (rest, header, 1) if _is_open(row, delimiter) else (after, row, n)


def on_one_line(
    text: TextFile, scratch: Path, delimiter: str, n_columns: int, first: int
) -> TextFile:
    """Copy the rows to ``scratch``, those that go over several lines each on one.

    They are rows of ``n_columns`` values, quoted by the book; other lines stay as they are.
    ``first`` is the number of the first line, for the note that says what was done.
    """
    joiner = _Joiner(text, delimiter, n_columns)
    copy = Copy.of(joiner.lines(), scratch)
    if isinstance(text.plain, Copy):
        text.plain.path.unlink()
    with opened(copy) as file:
        size = file.seek(0, os.SEEK_END)
    notes = text.notes
    if joiner.n_joined:
        notes += (
            f"{joiner.n_joined} row(s) go over several lines, the first from line "
            f"{first + joiner.first}; the line ends, which are within quotes, are read as spaces",
        )
    return replace(text, plain=copy, start=0, stop=size, size=size, notes=notes)


class _Joiner:
    """The lines of a file, rows that go over several of them put on one."""

    def __init__(self, text: TextFile, delimiter: str, n_columns: int) -> None:
        self._text, self._delimiter, self._n_columns = text, delimiter, n_columns
        self._ahead: deque[bytes] = deque()  # lines that have been read and not been given yet
        self.n_joined = self.first = 0

    def lines(self) -> Iterator[bytes]:
        """Yield the lines, with their ends; note how many rows were joined, and the first line."""
        number = 0
        with reading(self._text.path), opened(self._text.plain) as file:
            file.seek(self._text.start)
            while line := self._line(file, 0):
                n = 1
                if b'"' in line and _is_open(_bare(line), self._delimiter):
                    row, n = self._row(file, line)
                    line = row + b"\n" + (NOTHING + b"\n") * (n - 1) if n > 1 else line
                if n > 1:
                    self.first = number if not self.n_joined else self.first
                    self.n_joined += 1
                for _ in range(n):
                    self._ahead.popleft()
                number += n
                yield line

    def _line(self, file: IO[bytes], k: int) -> bytes:
        """Return the line that is ``k`` lines ahead; nothing behind the last."""
        while len(self._ahead) <= k:
            left = self._text.stop - file.tell()
            line = file.readline(min(left, lines.LINE_MOST)) if left > 0 else b""
            if not line:
                return b""
            self._ahead.append(line)
        return self._ahead[k]

    def _row(self, file: IO[bytes], first: bytes) -> tuple[bytes, int]:
        """Return the row that begins with a line, and how many lines it has: 1 if it is none."""
        parts, size = [_bare(first)], len(first)
        while len(parts) < _MOST and (line := self._line(file, len(parts))):
            parts.append(_bare(line))
            size += len(line)
            if size > lines.LINE_MOST:
                break
            if b'"' in line:
                row = NOTHING.join(parts)
                if not _is_open(row, self._delimiter):
                    return (row, len(parts)) if self._is_row(row) else (first, 1)
        return first, 1

    def _is_row(self, row: bytes) -> bool:
        """Whether a row has the right number of values, and quotes where they belong."""
        try:
            text = row.decode("utf-8")
            (fields,) = csv.reader([text], delimiter=self._delimiter, strict=True)
        except (UnicodeDecodeError, ValueError, csv.Error):
            return False
        return len(fields) == self._n_columns and not {"\0", "\r"} & {*text}


def _bare(line: bytes) -> bytes:
    return line.removesuffix(b"\n").removesuffix(b"\r")


def _is_open(line: bytes, delimiter: str) -> bool:
    """Tell whether a quote is open at the end of a line."""
    return b'"' in line and n_fields(line.decode("utf-8", "replace"), delimiter) is None
