"""Delimited text as a stream of batches of string columns that know their line numbers.

The file is cut into pieces of whole lines, and pyarrow parses one piece at a time.  So a row is
a line, always: blank lines and quoted values that run over a line end, which would shift the
numbers of all later rows, are found and refused piece by piece.
"""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from irt_dask.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

Progress = Callable[[str, int, int | None], Any]

DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
ACCEPTED = ".csv, .csv.gz, .tsv, .tsv.gz, .tab and .tab.gz"
BOM = b"\xef\xbb\xbf"
PIECE = 4 << 20  # bytes of text parsed at a time ...
PIECE_LINES = 256  # ... or about so many lines, where lines are long ...
PIECE_MOST = 16 << 20  # ... but never more bytes than this
HEADER_MOST = 64 << 20


@dataclass(frozen=True)
class Batch:
    """Consecutive rows: the columns asked for, as strings; row k is line ``first_line + k``."""

    first_line: int
    columns: list[pa.Array]

    def __len__(self) -> int:
        return len(self.columns[0])


class TextFile:
    """A delimited text file with a header: its column names, and its rows in batches."""

    def __init__(self, source: str | PathLike[str], progress: Progress | None = None) -> None:
        try:
            self.path = Path(fspath(source))
        except TypeError:
            raise InputError(
                f"the source must be the path of a file, not {type(source).__name__}"
            ) from None
        self.progress = progress
        if not self.path.exists():
            raise self.error("there is no such file")
        if self.path.is_dir():
            raise self.error("is a folder, where a file is needed")
        suffixes = [s.lower() for s in self.path.suffixes]
        self.compressed = suffixes[-1:] == [".gz"]
        kind = "".join(suffixes[-2:-1] if self.compressed else suffixes[-1:])
        if kind not in DELIMITERS:
            raise self.error(f"the name must end in one of {ACCEPTED}")
        self.delimiter = DELIMITERS[kind]
        self.header = self._read_header()

    def error(self, message: str, line: int | None = None) -> InputError:
        """Return the error to raise, with the file and the line in front."""
        where = f"{self.path}" if line is None else f"{self.path}, line {line}"
        return InputError(f"{where}: {message}")

    def batches(self, wanted: Sequence[int]) -> Iterator[Batch]:
        """Yield the rows in order, with the columns whose positions are ``wanted``."""
        parse = _Parser(self, wanted)
        total = self.path.stat().st_size
        empty = True
        for piece, first_line, done in self._pieces():
            empty = False
            if self.progress is not None:
                self.progress("read", done, total)
            yield Batch(first_line, parse(piece, first_line))
        if empty:
            raise self.error("has a header but no rows")

    @contextmanager
    def _open(self) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
        """Open the file; yield the stream of text and the stream of bytes on disk under it."""
        try:
            with open(self.path, "rb") as raw:
                if self.compressed:
                    with gzip.GzipFile(fileobj=raw) as stream:
                        yield cast("IO[bytes]", stream), raw
                else:
                    yield raw, raw
        except EOFError:
            raise self.error(
                "the compressed file is truncated; copy or download it again"
            ) from None
        except (gzip.BadGzipFile, zlib.error) as e:
            raise self.error(f"is not a sound gzip file ({e}); copy or download it again") from e
        except OSError as e:
            raise self.error(f"cannot be read: {e.strerror or e}") from e

    def _read_header(self) -> list[str]:
        with self._open() as (stream, _):
            raw = stream.readline(HEADER_MOST).removeprefix(BOM)
            if not raw.strip():
                rest = stream.read(PIECE).strip()
                if not rest:
                    raise self.error("the file is empty")
                raise self.error("the line is blank, where the column names should be", 1)
        if raw.startswith(b"\x1f\x8b"):
            raise self.error("is compressed by gzip; let its name end in .gz")
        line = self._check_piece(raw.rstrip(b"\r\n"), 1)
        try:
            fields = next(csv.reader([line], delimiter=self.delimiter, strict=True))
        except csv.Error as e:
            raise self.error(f"the header cannot be read: {e}", 1) from None
        header = [name.strip() for name in fields]
        if "" in header:
            place = header.index("") + 1
            raise self.error(f"column {place} of {len(header)} has no name; name it", 1)
        if len(set(header)) < len(header):
            twice = next(name for name, n in Counter(header).items() if n > 1)
            raise self.error(f"the column {twice!r} is there twice; rename one of them", 1)
        return header

    def _pieces(self) -> Iterator[tuple[bytes, int, int]]:
        """Yield whole lines without the last line end, the first's number, the bytes read."""
        with self._open() as (stream, raw):
            width = len(stream.readline())
            size = min(max(PIECE, PIECE_LINES * width), PIECE_MOST)
            line, blank = 2, None
            while data := stream.read(size):
                if not data.endswith(b"\n"):
                    data += stream.readline()
                piece = data.rstrip(b"\r\n")
                if piece and blank is not None:
                    raise self._blank(blank)
                if piece:
                    self._check_piece(piece, line)
                    yield piece, line, raw.tell()
                lines = data.count(b"\n")
                used = piece.count(b"\n") + 1 if piece else 0
                if lines > used and blank is None:
                    blank = line + used
                line += lines

    def _check_piece(self, piece: bytes, line: int) -> str:
        """Refuse what would be misread: other encodings, blank lines, old line ends."""

        def at(position: int) -> int:
            return line + piece.count(b"\n", 0, position)

        try:
            text = piece.decode("utf-8")
        except UnicodeDecodeError as e:
            raise self.error(
                f"the byte 0x{piece[e.start]:02x} is not UTF-8; save the file as UTF-8",
                at(e.start),
            ) from None
        if b"\0" in piece:
            raise self.error("there is a NUL byte; save the file as UTF-8 text", at(piece.find(0)))
        if piece.count(b"\r") != piece.count(b"\r\n"):
            lone = re.search(rb"\r(?!\n)", piece)
            raise self.error(
                "a carriage return without line feed; save the file with Unix or Windows line ends",
                at(lone.start() if lone else 0),
            )
        if piece.startswith((b"\n", b"\r\n")):
            raise self._blank(line)
        gaps = [p for p in (piece.find(b"\n\n"), piece.find(b"\n\r\n")) if p >= 0]
        if gaps:
            raise self._blank(at(min(gaps)) + 1)
        return text

    def _blank(self, line: int) -> InputError:
        return self.error("the line is blank and rows follow it; remove the line", line)


class _Parser:
    """Parses pieces of one file into string columns."""

    def __init__(self, text: TextFile, wanted: Sequence[int]) -> None:
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        self.text = text
        self.names = [str(k) for k in range(len(text.header))]
        self.ragged: list[tuple[int, int]] = []
        include = [self.names[k] for k in wanted]
        self.parse_options = arrow_csv.ParseOptions(
            delimiter=text.delimiter,
            ignore_empty_lines=False,
            newlines_in_values=True,
            invalid_row_handler=self._skip,
        )
        self.convert_options = arrow_csv.ConvertOptions(
            check_utf8=False,  # checked above, with the line
            column_types=dict.fromkeys(include, pa.string()),
            include_columns=include,
            strings_can_be_null=False,
            null_values=[],  # these three lists cost time per column and piece
            true_values=[],
            false_values=[],
        )

    def _skip(self, row: Any) -> str:
        self.ragged.append((row.number, row.actual_columns))
        return "skip"

    def __call__(self, piece: bytes, first_line: int) -> list[pa.Array]:
        """Return the wanted columns of a piece, or raise the error that names the line."""
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        self.ragged.clear()
        options = arrow_csv.ReadOptions(
            use_threads=False, block_size=len(piece) + 1, column_names=self.names
        )
        try:
            table = arrow_csv.read_csv(
                pa.BufferReader(piece), options, self.parse_options, self.convert_options
            )
        except pa.ArrowInvalid as e:
            self._refuse_open_quote(piece, first_line)
            raise self.text.error(f"cannot be parsed: {e}", first_line) from e
        if table.num_rows + len(self.ragged) != piece.count(b"\n") + 1:
            self._refuse_open_quote(piece, first_line)
            raise self.text.error("this line or a later one has a stray quote", first_line)
        if self.ragged:
            number, fields = self.ragged[0]
            expected = len(self.names)
            raise self.text.error(
                f"expected {expected} fields, as in the header, and found {fields}; "
                f"quote values that contain the delimiter {self.text.delimiter!r}",
                first_line + number - 1,
            )
        (batch,) = table.to_batches()  # one, because the piece is one block
        return list(batch.columns)

    def _refuse_open_quote(self, piece: bytes, first_line: int) -> None:
        lines = piece.decode("utf-8").split("\n")
        rows = csv.reader((f"{line}\n" for line in lines), delimiter=self.text.delimiter)
        before = 0
        try:
            for _ in rows:
                if rows.line_num > before + 1:
                    break
                before = rows.line_num
            else:
                return
        except csv.Error:
            pass
        raise self.text.error(
            "a quoted value does not end on this line; close the quote, "
            "and write ids without line ends",
            first_line + before,
        )
