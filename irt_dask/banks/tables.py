"""Tables of items in files: columns of cells, and the numbers in them."""

from __future__ import annotations

import csv
import io
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from irt_dask.arrays import Floats
from irt_dask.errors import InputError
from irt_dask.store.documents import from_cell, from_json
from irt_dask.store.places import Location, location, read_bytes

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


@dataclass(frozen=True)
class ItemTable:
    """Cells by column, as they stand in a file; None or NaN where nothing does."""

    path: Location
    frame: pd.DataFrame
    what: str = "item bank"

    def __contains__(self, column: str) -> bool:
        return column in self.frame

    @property
    def items(self) -> list[Any]:
        """Identifiers of the items."""
        return list(self.frame["item"])

    def fault(self, row: int, column: str, what: str) -> InputError:
        """Return the error to raise of a cell."""
        return InputError(f"{self.path}: item {self.items[row]}, column {column}: {what}")

    def numbers(self, column: str, *, may_lack: bool = False) -> Floats:
        """Return a column of finite numbers; NaN where none stands, if it ``may_lack``."""
        values = [number(x, may_lack) for x in self.frame[column]]
        if None in values:
            k = values.index(None)
            raise self.fault(k, column, f"{self.frame[column][k]!r} is not a finite number")
        return np.array(values, dtype=float)

    def matching(self, pattern: str) -> dict[str, Floats]:
        """Return numbers of the columns whose whole name matches, NaN where none stands."""
        names = [c for c in self.frame if re.fullmatch(pattern, str(c))]
        return {c: self.numbers(c, may_lack=True) for c in names}

    def words(self, column: str) -> list[str]:
        """Return a column of text, "" where nothing stands."""
        return ["" if lacking(x) else str(x) for x in self.frame[column]]

    def check_columns(self, *needed: str) -> None:
        """Stop unless each of these columns is there; ``b (or d)`` is one or the other."""
        needed = tuple(dict.fromkeys(needed))
        names = [n.replace("(or ", "").rstrip(")").split(" ") for n in needed]
        missing = [
            n for n, either in zip(needed, names, strict=True) if not {*either} & {*self.frame}
        ]
        if missing:
            raise InputError(
                f"the {self.what} {self.path} has no column {', '.join(missing)}; it has "
                f"{', '.join(map(str, self.frame.columns))}"
                + "; call the column without a name item, if it names them"
                * ("item" in missing and "" in self.frame)
            )

    def check_items(self) -> None:
        """Stop at a table without items, or at a row without an identifier."""
        for k, item in enumerate(self.frame["item"]):
            if not isinstance(item, (str, int)) or isinstance(item, bool) or item == "":
                raise InputError(
                    f"{self.path}: row {k + 1} has no item identifier (text or a whole number)"
                )
        if len(self.frame) == 0:
            raise InputError(f"the {self.what} {self.path} lists no item")


def lacking(x: Any) -> bool:
    """Whether nothing stands in a cell."""
    return x is None or x != x


def read_table(path: str | Path, what: str = "item bank", encoding: str | None = None) -> ItemTable:
    """Read the cells of a .csv or .json file, ``what`` it is called in errors."""
    where = check_path(path, what)
    try:
        text = read_bytes(where).decode(encoding or "utf-8-sig").removeprefix("\ufeff")
        rows = _csv(text) if where.name.endswith(".csv") else _json(text)
        frame = pd.DataFrame(rows, dtype=object)
    except FileNotFoundError:
        raise InputError(f"there is no {what} {path}") from None
    except (ValueError, OSError, csv.Error) as error:
        raise InputError(f"the {what} {path} cannot be read: {error}") from error
    return ItemTable(where, frame, what)


def check_path(path: str | Path, what: str = "item bank") -> Location:
    """Return the place of a table, refusing a name that ends in something else than .csv, .json."""
    where = location(path)
    if Path(where.name).suffix not in (".csv", ".json"):
        raise InputError(f"{what} {path}: the file name must end in .csv or .json")
    return where


def _csv(text: str) -> dict[str, list[Any]]:
    """Columns of text; every row must have as many fields as the header."""
    if "\0" in text:
        raise ValueError("it holds a zero byte")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter(text), strict=True)
    header = [name.strip() for name in next(reader, [])]
    if not header:
        raise ValueError("it has no header")
    if len(set(header)) < len(header):
        raise ValueError(f"a column stands twice in the header {','.join(header)}")
    rows = []
    for row in reader:
        if row and len(row) != len(header):
            raise ValueError(
                f"line {reader.line_num} has {len(row)} fields, the header has {len(header)}"
            )
        if row:
            rows.append([field or None for field in row])
    columns: dict[str, list[Any]] = {n: [row[k] for row in rows] for k, n in enumerate(header)}
    if "item" in columns:
        columns["item"] = [item and from_cell(item) for item in columns["item"]]
    return columns


def delimiter(text: str) -> str:
    """A comma; or what spreadsheets write elsewhere, if the header has it and has no comma."""
    header = text.partition("\n")[0]
    return next((sign for sign in ",;\t" if sign in header), ",")


def _json(text: str) -> Any:
    """A list of rows, or columns by name."""
    content = from_json(text, constants=True)
    rows = isinstance(content, list) and all(isinstance(row, dict) for row in content)
    columns = isinstance(content, dict) and all(isinstance(c, list) for c in content.values())
    if not rows and not columns:
        raise ValueError("it must be a list of objects, one for each item, or lists by column")
    return content


def number(x: Any, may_lack: bool) -> float | None:
    """A finite number; NaN where none stands and ``may_lack``; None for anything else."""
    if may_lack and lacking(x):
        return math.nan
    if isinstance(x, str):
        if not _NUMBER.fullmatch(x.strip()):
            return math.nan if may_lack and x.strip().lower() in ("nan", "na") else None
    elif isinstance(x, bool) or not isinstance(x, (int, float)):
        return None
    try:
        value = float(x)
    except OverflowError:
        return None
    return value if math.isfinite(value) else None
