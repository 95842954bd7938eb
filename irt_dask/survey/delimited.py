"""How CSV files are written: what separates values, and the decimal sign."""

from __future__ import annotations

import gzip
from os import PathLike, fspath
from pathlib import Path
from typing import TypeAlias

import pandas as pd

from irt_dask.errors import InputError

#: A table: of pandas, or the path of a CSV or Parquet file or of a folder of Parquet files.
Source: TypeAlias = pd.DataFrame | str | PathLike[str]
#: Bytes of a first line that are looked at.
_LINE = 1 << 16
#: What is said of numbers with decimal commas, and of those with points where commas were said.
COMMAS = " with a decimal point; of CSV files with decimal commas say decimal=','"
POINTS = " with a decimal comma; of CSV files with decimal points leave decimal=',' out"


def checked_delimiter(given: str | None, *sources: Source | None) -> str | None:
    """The sign between values of CSV files among these; an error where it is of none of them."""
    if given is None:
        return None
    if not any(isinstance(s, (str, PathLike)) and is_csv(Path(fspath(s))) for s in sources):
        raise InputError(
            f"delimiter={given!r} is of CSV files (.csv, .csv.gz), and there is none: leave it out"
        )
    sign = "\t" if given in ("tab", "\\t") else given
    if len(sign) != 1 or not sign.isascii() or sign.isalnum() or sign in ' "\r\n':
        raise InputError(f"delimiter={given!r}: it is a sign such as ',', ';' or '|', or 'tab'")
    return sign


def check_decimal(given: str | None, *sources: Source | None) -> None:
    """Refuse a decimal sign that is none, or of no file among these."""
    if given not in (None, ".", ","):
        raise InputError(f"decimal={given!r} is unknown; it is '.' or ','")
    paths = [Path(fspath(s)) for s in sources if isinstance(s, (str, PathLike))]
    if given is not None and not any(is_csv(p) or is_tsv(p) for p in paths):
        raise InputError(
            f"decimal={given!r} is of CSV files (.csv, .tsv, .gz), and there is none: leave it out"
        )


def is_tsv(path: Path) -> bool:
    """Whether values are separated by tabs, by the file's name."""
    return path.name.lower().endswith((".tsv", ".tsv.gz"))


def is_csv(path: Path) -> bool:
    """Whether a file is one of values and commas, or of another sign that is said."""
    return path.name.lower().endswith((".csv", ".csv.gz"))


def check_header(path: Path, delimiter: str | None) -> None:
    """Refuse a CSV file of one column if its name looks like several, unless that was said."""
    if delimiter is not None or not is_csv(path) or not path.is_file():
        return
    try:
        with (gzip.open if path.name.lower().endswith(".gz") else open)(path, "rb") as file:
            names = file.readline(_LINE).decode(errors="replace").strip()
    except OSError as error:
        raise InputError(f"{path}: {error}") from error
    signs = [sign for sign in (";", "\t", "|") if sign in names]
    if signs and "," not in names:
        said = "tab" if signs[0] == "\t" else signs[0]
        raise InputError(
            f"{path} has the one column {names[:60]!r}{'...' * (len(names) > 60)}: are values "
            f"separated by something else than a comma? Give delimiter={said!r}, or delimiter=',' "
            f"if this is its name"
        )
