"""Lines of text, in pieces of whole lines, and what makes a line unfit to be a row.

A row is a line, always, so that line numbers mean what an editor shows and a piece can be read
without the pieces before it; :mod:`irt_dask.ingest.text.quotes` sees to it where it is not so.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Self

import numpy as np
import pyarrow as pa

from irt_dask.errors import DataWarning, InputError
from irt_dask.ingest.text.bundles import Copy
from irt_dask.ingest.text.dialect import UNSAID, Dialect
from irt_dask.ingest.text.encoding import BOM, in_utf8, not_utf8, with_nuls
from irt_dask.ingest.text.files import fetched, located, opened, reading
from irt_dask.store.places import Location

PIECE = 16 << 20  # bytes of a piece, at least ...
PIECE_MOST = 128 << 20  # ... and at most
LINE_MOST = 64 << 20
_LOOK = 1 << 16


def piece_bytes(size: int) -> int:
    """Bytes of a piece of a file of ``size`` bytes: some hundreds of pieces of a large file."""
    return max(PIECE, min(size // 1024, PIECE_MOST))


@dataclass(frozen=True)
class TextFile:
    """The lines of a file of text, in pieces: those that start in a range of bytes."""

    path: Location  # as the caller gave it
    plain: Path | Copy  # where the uncompressed bytes are
    start: int  # of the first line that is data
    stop: int  # of data; after it there are blank lines only
    size: int  # of the plain file
    step: int  # bytes of a piece
    notes: tuple[str, ...] = ()  # what was found out about the file

    @property
    def n_bytes(self) -> int:
        """Bytes of data."""
        return self.stop - self.start

    @property
    def n_pieces(self) -> int:
        """Number of pieces."""
        return -(-self.n_bytes // self.step)

    def bounds(self, k: int) -> tuple[int, int]:
        """Return the range of bytes of piece ``k``."""
        first = self.start + k * self.step
        return first, min(first + self.step, self.stop)

    def error(self, message: str, line: int | None = None) -> InputError:
        """Return the error to raise."""
        return located(self.path, message, line)

    def read(self, k: int) -> bytes:
        """Return the lines that start in piece ``k``, a line that is far too long cut short."""
        a, b = self.bounds(k)
        with reading(self.path), opened(self.plain) as file:
            if file.seek(0, os.SEEK_END) != self.size:
                raise self.error("the file changes while it is read; wait until it is complete")
            first = a if k == 0 else self._line_start(file, a, b)
            if first >= b:
                return b""
            last = self._line_start(file, b, min(b + LINE_MOST + 1, self.stop))
            file.seek(first)
            return file.read(last - first)

    def without_first(self) -> tuple[Self, bytes]:
        """Take the first line off: return the rest, and the line without its end."""
        with reading(self.path), opened(self.plain) as file:
            file.seek(self.start)
            line = file.readline(LINE_MOST)
        start = min(self.start + len(line), self.size)
        rest = replace(self, start=start, stop=max(start, self.stop))
        return rest, line.removesuffix(b"\n").removesuffix(b"\r")

    def without_empty_rows(self, delimiter: str) -> tuple[Self, int]:
        """Leave out the last lines that hold nothing but delimiters; return how many these are."""
        sign = delimiter.encode()
        with reading(self.path), opened(self.plain) as file:
            place, last = self.stop, 0
            while place > self.start and not last:
                before, place = place, max(self.start, place - _LOOK)
                file.seek(place)
                last = len(file.read(before - place).rstrip(sign + b"\r\n"))
            if not last:  # which leaves nothing
                return self, 0
            stop = self._line_start(file, place + last + 1, self.stop)
            n, at = 0, stop
            file.seek(at)
            while at < self.stop:
                line = file.readline(self.stop - at)
                n, at = n + 1, at + len(line)
                if line.removesuffix(b"\n").removesuffix(b"\r").strip(sign):
                    n, stop = 0, at  # an odd carriage return
        return replace(self, stop=stop), n

    def _line_start(self, file: IO[bytes], at: int, most: int) -> int:
        """Return where the first line that starts at or after ``at`` does; ``most`` at the most."""
        file.seek(at - 1)
        place = at - 1
        while place < most:
            block = file.read(min(_LOOK, most - place))
            found = block.find(b"\n")
            if found >= 0:
                return place + found + 1
            if not block:
                break
            place += len(block)
        return most


def open_text(
    path: Location, scratch: Path, dialect: Dialect = UNSAID, *, share: int = 1
) -> TextFile:
    """Open a file, all lines of which are data; its encoding is found out unless it is said.

    ``share`` makes pieces smaller where a row in memory is much larger than its text.
    """
    plain, note, doubt = in_utf8(path, fetched(path, scratch), scratch, dialect.encoding)
    if doubt is not None and not dialect.several_lines:  # else it has been said before
        warnings.warn(f"{path}: {doubt}", DataWarning, stacklevel=_depth())
    with reading(path), opened(plain) as text:
        first = text.readline(LINE_MOST)
        if first.startswith(b"\x1f\x8b"):
            raise located(path, "is compressed by gzip; let its name end in .gz")
        if len(first) == LINE_MOST and not first.endswith(b"\n"):
            raise located(path, too_long(), 1)
        size = text.seek(0, os.SEEK_END)
        start = len(BOM) if first.startswith(BOM) else 0
        stop = _end_of_data(text, start, size)
    if stop <= start:
        raise located(path, "the file is empty")
    step = max(1, piece_bytes(stop - start) // share)
    return TextFile(path, plain, start, stop, size, step, (note,) if note else ())


def _depth() -> int:
    """Return the stacklevel at which the caller of the package stands: files are opened by many."""
    frame, depth = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("irt_dask."):
        frame, depth = frame.f_back, depth + 1
    return depth


def _end_of_data(file: IO[bytes], start: int, size: int) -> int:
    """Return where the last line that is not blank ends, without its line end."""
    tail, place = b"", size
    while place > start and not tail.strip(b"\r\n"):
        block = max(start, place - _LOOK)
        file.seek(block)
        tail = file.read(place - block) + tail
        place = block
    ends = tail[len(tail.rstrip(b"\r\n")) :]
    stop = len(ends)
    while stop:
        blank = stop - (ends[stop - 1] == 13)
        if blank and ends[blank - 1] != 10:  # a second carriage return: not blank, refused later
            break
        stop = max(blank - 1, 0)
    return size - len(ends) + stop


# --- lines ----------------------------------------------------------------------------------------


def is_sound(data: bytes) -> bool:
    """Tell whether text is UTF-8 without NUL bytes and lone carriage returns."""
    if b"\0" in data:
        return False
    if b"\r" in data:
        content = np.frombuffer(data, np.uint8)
        before = content[:-1][content[1:] == 10]
        if data.count(b"\r") != np.count_nonzero(before == 13):
            return False
    ends = pa.py_buffer(np.array([0, len(data)], dtype=np.int64))
    text = pa.Array.from_buffers(pa.large_string(), 1, [None, ends, pa.py_buffer(data)])
    try:
        text.validate(full=True)  # without the interpreter's lock, which decode() holds
    except pa.ArrowInvalid:
        return False
    return len(data) <= LINE_MOST or all(len(line) <= LINE_MOST for line in data.split(b"\n"))


def split_lines(data: bytes) -> list[bytes]:
    """Return the lines without their ends."""
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix(b"\r") for line in lines]


def count_lines(data: bytes) -> int:
    """Return the number of lines, the last of which need not end."""
    content, n = np.frombuffer(data, np.uint8), 0
    for k in range(0, len(content), 1 << 18):  # what stays in the cache
        n += int(np.count_nonzero(content[k : k + (1 << 18)] == 10))
    return n + (not data.endswith(b"\n") if data else 0)


def take_lines(data: bytes, offsets: Sequence[int] | np.ndarray) -> list[str]:
    """Return lines as they are, bytes that are no text escaped."""
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 10)
    starts = np.concatenate([[0], ends + 1])
    stops = np.concatenate([ends, [len(data)]])
    return [
        data[starts[k] : stops[k]].removesuffix(b"\r").decode("utf-8", "backslashreplace")
        for k in offsets
    ]


def fault(line: bytes) -> str | None:
    """Return why a line cannot be text of a row, None where it can."""
    if not line:
        return "the line is blank and rows follow it; remove the line"
    if len(line) > LINE_MOST:
        return too_long()
    if b"\0" in line:
        return with_nuls(line)
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as e:
        return not_utf8(line, e.start)
    if b"\r" in line:
        return "a carriage return without line feed; save the file with Unix or Windows line ends"
    return None


def too_long() -> str:
    """Return the message about a line that nobody can have meant."""
    return f"the line is longer than {LINE_MOST >> 20} MB; does the file have line ends?"
