"""The right option of every item, given as a dict or as a table."""

from __future__ import annotations

import math
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from irt_dask.errors import InputError, Notice
from irt_dask.ingest.columns.roles import Header
from irt_dask.ingest.columns.values import number_of, texts_of
from irt_dask.ingest.sources.delimited import DELIMITERS, open_table, parse
from irt_dask.ingest.text.dialect import UNSAID, Dialect
from irt_dask.ingest.text.files import checked_path, kind_of
from irt_dask.ingest.text.quotes import LINE_END
from irt_dask.variables import identifier

_COLUMNS = ("item", "key")


def read_key(
    key: Mapping[str, Any] | str | PathLike[str], dialect: Dialect = UNSAID
) -> dict[str, str]:
    """Return the right options by item; InputError for what is no key."""
    if isinstance(key, (str, PathLike)):
        with tempfile.TemporaryDirectory(prefix="irt-dask-key-") as scratch:
            return _of_file(key, Path(scratch), dialect.of_others())
    if not isinstance(key, Mapping):
        raise InputError(
            f"key must be a dict of the items' right options or the path of a file with columns "
            f"item and key, not {type(key).__name__}"
        )
    options: dict[str, str] = {}
    for item, option in key.items():
        name, text = texts_of(item, "key")[0], texts_of(option, f"key: the item {item!r}")[0]
        name = identifier(name)
        if dialect.decimal == "," and math.isfinite(number_of(text)):
            text = text.replace(".", ",")  # as the file has it
        if options.setdefault(name, text) != text:
            raise InputError(f"key: the item {name!r} has two right options")
        if not name or not text:
            raise InputError(f"key: the item {item!r} has the option {option!r}; neither is empty")
    return options


def _of_file(path: str | PathLike[str], scratch: Path, dialect: Dialect) -> dict[str, str]:
    """Read a small table with the columns item and key, whole."""
    checked = checked_path(path)
    if kind_of(checked) not in DELIMITERS:
        raise InputError(f"{path}: must be a .csv, .tsv or .tab file")
    table = open_table(checked, scratch, dialect)
    error = table.text.error
    for name in _COLUMNS:
        if name not in table.names:
            header = Header([*table.names], error, table.delimiter)
            raise error(f"there is no column {name!r}; {header.shown()}", 1)
    options: dict[str, str] = {}
    first = table.first_line
    for k in range(table.text.n_pieces):
        parsed = parse(table, k, [], _COLUMNS, 1)
        if parsed.bad and parsed.bad[0].runs_on:
            return _of_file(path, scratch, replace(dialect, several_lines=True))
        if parsed.bad:
            raise error(parsed.bad[0].message, first + parsed.bad[0].line)
        columns = [parsed.columns[name].to_pylist() for name in _COLUMNS]
        for line, item, option in zip(parsed.lines.tolist(), *columns, strict=True):
            _add(
                options, identifier(item.strip()), option.strip(), partial(error, line=first + line)
            )
        first += parsed.n_lines
    for note in table.text.notes:
        warnings.warn(f"{path}: {note}", Notice, stacklevel=7)
    return options


def _add(
    options: dict[str, str], item: str, option: str, error: Callable[[str], InputError]
) -> None:
    if not item or not option:
        raise error(f"the {'key' if item else 'item'} is empty")
    if LINE_END in item:
        raise error("the item has a line end within its quotes; write ids without line ends")
    if item in options:
        raise error(f"the item {item!r} has a key already, on an earlier line")
    options[item] = option
