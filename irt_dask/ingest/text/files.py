"""Files that are read: what their names say, where their plain bytes are, what goes wrong."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path, PurePath
from typing import IO

from irt_dask.errors import InputError
from irt_dask.ingest.text.bundles import Copy
from irt_dask.store.objects import ObjectPath
from irt_dask.store.places import Location, location

KINDS = (".csv", ".tsv", ".tab", ".jsonl", ".jsonlines", ".ndjson")
ACCEPTED = f"{', '.join(KINDS)} (each also .gz, as in .csv.gz) or .parquet"
#: What to do with files of other programs.
_WORKBOOKS = (".xlsx", ".xlsm", ".xls", ".ods", ".numbers")
_STATISTICS = (".sav", ".zsav", ".por", ".dta", ".sas7bdat", ".xpt", ".rds", ".rdata")
_TEXTS = (".txt", ".dat", ".asc")


def located(
    path: Location, message: str, line: int | None = None, unit: str = "line"
) -> InputError:
    """Return an error with the file and the line in front."""
    where = f"{path}" if line is None else f"{path}, {unit} {line}"
    return InputError(f"{where}: {message}")


def checked_path(source: str | PathLike[str] | ObjectPath) -> Location:
    """Return the path or URL of a file that exists and whose name says what it is."""
    try:
        path = location(source if isinstance(source, (Path, ObjectPath)) else os.fsdecode(source))
        kind = _what(path)
    except InputError:
        raise
    except TypeError:
        raise InputError(
            f"the source must be the path of a file, not {type(source).__name__}"
        ) from None
    except (OSError, ValueError) as e:
        raise InputError(f"{source!r} cannot be a path of a file: {e}") from None
    if kind is None:
        raise located(path, "there is no such file")
    if kind == "directory":
        raise located(path, "is a folder, where a file is needed")
    if kind != "file":
        raise located(path, "is no regular file; write the data to a file first")
    if kind_of(path) is None:
        raise located(path, f"{_of_others(path)}the name must end in one of {ACCEPTED}")
    return path


def _of_others(path: Location) -> str:
    """Say what to do with a file of another program, by its name."""
    kind = Path(path.name).suffix.lower()
    if kind in _WORKBOOKS:
        return "a workbook; save the sheet of the responses as 'CSV UTF-8' there, and give that: "
    if kind in _STATISTICS:
        return "a file of a statistics program; export it there as CSV, and give that: "
    if kind in _TEXTS:
        return "if it is a table with a sign between the values, rename it to .csv: "
    return ""


def _what(path: Location) -> str | None:
    """The word "file", "directory" or "special"; None where nothing is."""
    if isinstance(path, ObjectPath):
        return path.kind()
    if not path.exists():
        return None
    return "directory" if path.is_dir() else "file" if path.is_file() else "special"


def is_compressed(path: Location | PurePath) -> bool:
    """Tell whether the name says so."""
    return Path(path.name).suffix.lower() == ".gz"


def kind_of(path: Location | PurePath) -> str | None:
    """Return the suffix that says the format, ``.csv`` and so on; None for others."""
    name = Path(path.name)
    kind = (Path(name.stem) if is_compressed(path) else name).suffix.lower()
    kind = ".jsonl" if kind == ".jsonlines" else kind  # as py-irt calls them
    return kind if kind in KINDS or (kind == ".parquet" and not is_compressed(path)) else None


def fetched(path: Location, scratch: Path) -> Path | Copy:
    """Return where the plain bytes of ``path`` are: there, or in a copy in ``scratch``.

    Of an object, and of a file that is compressed, there is a copy.
    """
    file: Path | Copy
    if isinstance(path, ObjectPath):
        try:
            file = Copy.of(path.pieces(), scratch)
        except FileNotFoundError:
            raise located(path, "there is no such file") from None
    else:
        file = path
    if not is_compressed(path):
        return file
    plain = Copy.of(_uncompressed(path, file), scratch)
    if isinstance(file, Copy):
        file.path.unlink()
    return plain


def _uncompressed(path: Location, file: Path | Copy) -> Iterator[bytes]:
    with reading(path), opened(file) as compressed, gzip.open(compressed, "rb") as stream:
        while block := stream.read(1 << 20):
            yield block


def opened(file: Path | Copy) -> IO[bytes]:
    """Open a file for reading."""
    return file.open() if isinstance(file, Copy) else open(file, "rb")


@contextmanager
def reading(path: Location) -> Iterator[None]:
    """Turn what goes wrong in reading into errors that name the file."""
    try:
        yield
    except EOFError:
        raise located(path, "the compressed file is truncated; copy or download it again") from None
    except (gzip.BadGzipFile, zlib.error) as e:
        raise located(path, f"is not a sound gzip file ({e}); copy or download it again") from e
    except OSError as e:
        raise located(path, f"cannot be read: {e.strerror or e}") from e
