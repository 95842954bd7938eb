"""The right option of every item, given as a dict or as a table."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from irt_dask.errors import InputError
from irt_dask.ingest.columns.roles import Header
from irt_dask.ingest.columns.values import texts_of
from irt_dask.ingest.sources.delimited import DELIMITERS, open_table, parse
from irt_dask.ingest.text.files import checked_path, kind_of

_COLUMNS = ("item", "key")


def read_key(key: Mapping[str, Any] | str | PathLike[str]) -> dict[str, str]:
    """Return the right options by item; InputError for what is no key."""
    if isinstance(key, (str, PathLike)):
        with tempfile.TemporaryDirectory(prefix="irt-dask-key-") as scratch:
            return _of_file(key, Path(scratch))
    if not isinstance(key, Mapping):
        raise InputError(
            f"key must be a dict of the items' right options or the path of a file with columns "
            f"item and key, not {type(key).__name__}"
        )
    options: dict[str, str] = {}
    for item, option in key.items():
        name, text = texts_of(item, "key")[0], texts_of(option, f"key: the item {item!r}")[0]
        if options.setdefault(name, text) != text:
            raise InputError(f"key: the item {name!r} has two right options")
        if not name or not text:
            raise InputError(f"key: the item {item!r} has the option {option!r}; neither is empty")
    return options


def _of_file(path: str | PathLike[str], scratch: Path) -> dict[str, str]:
    """Read a small table with the columns item and key, whole."""
    checked = checked_path(path)
    if kind_of(checked) not in DELIMITERS:
        raise InputError(f"{path}: must be a .csv, .tsv or .tab file")
    table = open_table(checked, scratch)
    error = table.text.error
    for name in _COLUMNS:
        if name not in table.names:
            raise error(f"there is no column {name!r}; {Header([*table.names], error).shown()}", 1)
    rows: list[tuple[str, str]] = []
    for k in range(table.text.n_pieces):
        parsed = parse(table, k, [], _COLUMNS, 1)
        if parsed.bad:
            raise error(parsed.bad[0].message, 2 + len(rows) + parsed.bad[0].line)
        rows += zip(*(parsed.columns[name].to_pylist() for name in _COLUMNS), strict=True)
    options: dict[str, str] = {}
    for line, (item, option) in enumerate(((i.strip(), o.strip()) for i, o in rows), 2):
        if not item or not option:
            raise error(f"the {'key' if item else 'item'} is empty", line)
        if item in options:
            raise error(f"the item {item!r} has a key already, on an earlier line", line)
        options[item] = option
    return options
