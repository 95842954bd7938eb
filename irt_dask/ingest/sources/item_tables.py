"""What the caller says of items one by one, in a dict or a small table: keys, K and labels."""

from __future__ import annotations

import math
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from irt_dask.errors import InputError, Notice
from irt_dask.ingest.columns.header import Header
from irt_dask.ingest.columns.limits import DATA
from irt_dask.ingest.columns.meanings import recoded, texts_of
from irt_dask.ingest.columns.numbers import number_of
from irt_dask.ingest.columns.values import Key
from irt_dask.ingest.sources.delimited import DELIMITERS, Table, open_table, parse
from irt_dask.ingest.text.dialect import UNSAID, Dialect
from irt_dask.ingest.text.files import checked_path, kind_of
from irt_dask.ingest.text.quotes import LINE_END
from irt_dask.store.categories import MOST, check_count
from irt_dask.variables import identifier

#: What else the column with the right answers may be called.
KEY_ALSO = {"key": "answer"}


class _Row(NamedTuple):
    """A row of a table: the item, what other columns have, and how to complain about it."""

    item: str
    values: dict[str, str]
    error: Callable[[str], InputError]


# --- keys -----------------------------------------------------------------------------------------


def read_key(key: Mapping[str, Any] | str | PathLike[str], dialect: Dialect = UNSAID) -> Key:
    """Return the scores of answers by item; InputError for what is no key."""
    if isinstance(key, (str, PathLike)):
        scores, where = _key_of_file(key, dialect), f"{key}: "
    else:
        scores, where = _key_of_dict(key, dialect), "key: "
    for item, of in scores.items():
        if not any(of.values()):
            raise InputError(
                f"{where}no answer to the item {item!r} has a score above 0, so nobody can be "
                f"right; give one at least 1, or leave the item out"
            )
    return scores


def _key_of_dict(key: Any, dialect: Dialect) -> Key:
    if not isinstance(key, Mapping):
        raise InputError(
            f"key must be a dict of the items' right options or the path of a file with columns "
            f"item and key, not {type(key).__name__}"
        )
    scores: Key = {}
    for item, given in key.items():
        name = identifier(texts_of(item, "key")[0])
        pairs = [*given.items()] if isinstance(given, Mapping) else [(given, 1)]
        of: dict[str, int] = {}
        for answer, points in pairs:
            option, score = _option(item, answer, dialect), _score(item, points)
            if of.setdefault(option, score) != score:
                raise InputError(
                    f"key: the item {item!r} has two scores for {option!r}, {of[option]} "
                    f"and {score}"
                )
        if scores.setdefault(name, of) != of:
            raise InputError(f"key: the item {name!r} has two right options")
        if not name or not of or "" in of:
            raise InputError(f"key: the item {item!r} has the option {given!r}; neither is empty")
    return scores


def _option(item: object, option: object, dialect: Dialect) -> str:
    text = texts_of(option, f"key: the item {item!r}")[0]
    if dialect.decimal == "," and math.isfinite(number_of(text)):
        return text.replace(".", ",")  # as the file has it
    return text


def _score(item: object, score: Any) -> int:
    whole = not isinstance(score, (bool, str)) and hasattr(score, "__index__")
    if not whole or not 0 <= score < MOST:
        raise InputError(
            f"key: the item {item!r} has the score {score!r}; a score is a whole number from 0 to "
            f"{MOST - 1}"
        )
    return int(score)


def _key_of_file(path: str | PathLike[str], dialect: Dialect) -> Key:
    """Read a table with the columns item and key (or answer), and perhaps score."""
    scores: Key = {}
    for item, values, error in _rows(path, ("item", "key"), ("score",), dialect, KEY_ALSO):
        option, score = values["key"], values.get("score")
        if not option:
            raise error("the key is empty")
        if item in scores and score is None:
            raise error(f"the item {item!r} has a key already, on an earlier line")
        of_item = scores.setdefault(item, {})
        if option in of_item:
            raise error(f"the item {item!r} has a score for {option!r} already, on an earlier line")
        try:
            of_item[option] = 1 if score is None else _score(item, _whole(score, dialect))
        except InputError as wrong:
            raise error(str(wrong)) from None
    return scores


# --- categories -----------------------------------------------------------------------------------


def read_categories(categories: Any, dialect: Dialect = UNSAID) -> Any:
    """Return what ``categories=`` says as a number, ``"data"``, a dict by item, or None.

    It may be these, a table (a file or a DataFrame with columns item and categories) or a Series by
    item.
    """
    if isinstance(categories, (str, PathLike)) and categories != DATA:
        if kind_of(PurePath(categories)) not in DELIMITERS:
            raise InputError(
                f"categories={str(categories)!r} is neither a number nor 'data', nor a .csv, .tsv "
                f"or .tab file"
            )
        return _categories_of_file(categories, dialect)
    if hasattr(categories, "columns"):
        lacking = [name for name in ("item", "categories") if name not in categories.columns]
        if lacking:
            raise InputError(f"categories= is a table without the column {lacking[0]!r}")
        pairs = [*zip(categories["item"].tolist(), categories["categories"].tolist(), strict=True)]
    elif isinstance(categories, Mapping) or hasattr(categories, "items"):
        pairs = [*categories.items()]
    else:
        return categories
    found: dict[str, int] = {}
    for given, k in pairs:
        item = identifier(str(given).strip())
        if item in found:
            raise InputError(f"categories= names the item {item!r} twice")
        found[item] = check_count(item, k)
    return found


def _categories_of_file(path: str | PathLike[str], dialect: Dialect) -> dict[str, int]:
    found: dict[str, int] = {}
    for item, values, error in _rows(path, ("item", "categories"), (), dialect, {}):
        if item in found:
            raise error(f"the item {item!r} has a number of categories already")
        try:
            found[item] = check_count(item, _whole(values["categories"], dialect))
        except InputError as wrong:
            raise error(str(wrong)) from None
    return found


# --- labels ---------------------------------------------------------------------------------------


def read_recode(recode: Any, dialect: Dialect = UNSAID) -> Any:
    """Return what ``recode=`` says as a dict, of which that of an item may be a dict of its own.

    It may be a table, a file or a DataFrame with columns item, label and code.
    """
    if isinstance(recode, (str, PathLike)):
        if kind_of(PurePath(recode)) not in DELIMITERS:
            raise InputError(
                f"recode={str(recode)!r} is neither a dict like {{'9': 'wrong'}} nor a .csv, .tsv "
                f"or .tab file with columns item, label and code"
            )
        return _recode_of_file(recode, dialect)
    if not hasattr(recode, "columns"):
        return recode
    lacking = [name for name in ("item", "label", "code") if name not in recode.columns]
    if lacking:
        raise InputError(f"recode= is a table without the column {lacking[0]!r}")
    if recode[["item", "label", "code"]].isna().to_numpy().any():
        raise InputError("recode= is a table with an empty cell; say item, label and code of each")
    found: dict[str, dict[Any, Any]] = {}
    for item, label, code in zip(
        *(recode[name].tolist() for name in ("item", "label", "code")), strict=True
    ):
        of = found.setdefault(identifier(str(item).strip()), {})
        if label in of:
            raise InputError(f"recode= names the label {label!r} of the item {item!r} twice")
        of[label] = _whole(code, dialect) if isinstance(code, (str, float)) else code
    return found


def _recode_of_file(path: str | PathLike[str], dialect: Dialect) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for item, values, error in _rows(path, ("item", "label", "code"), (), dialect, {}):
        label, code = values["label"], values["code"]
        of = found.setdefault(item, {})
        if label in of:
            raise error(f"the item {item!r} has a code for {label!r} already, on an earlier line")
        of[label] = _whole(code, dialect)
        try:
            recoded({label: of[label]})
        except InputError as wrong:
            raise error(str(wrong)) from None
    return found


def _whole(code: str | float, dialect: Dialect) -> int | str | float:
    """Return the whole number that a code is, also as 3.0, else the code itself."""
    number = number_of(code, dialect.decimal) if isinstance(code, str) else code
    return int(number) if math.isfinite(number) and number == int(number) else code


# --- small tables ---------------------------------------------------------------------------------


def _written(table: Table, needed: tuple[str, ...], also: Mapping[str, str]) -> dict[str, str]:
    """Return by what a column is called here how the file writes it."""
    error = table.text.error
    written = {name.casefold(): name for name in reversed([*table.names])}
    written |= {name: name for name in table.names}  # as it stands, before another case
    for name, other in also.items():
        if name in written and other in written:
            both = f"{written[name]!r} and {written[other]!r}"
            raise error(f"there are the columns {both}, which mean the same; leave one out", 1)
        if other in written:
            written[name] = written[other]
    for name in needed:
        if name not in written:
            header = Header([*table.names], error, table.delimiter)
            say = " and ".join(f"{n} (or {also[n]})" if n in also else n for n in needed)
            shown = f"{header.shown()}; the first line has to have {say}"
            raise error(f"there is no column {name!r}; {shown}", 1)
    return written


def _rows(
    path: str | PathLike[str], needed: tuple[str, ...], more: tuple[str, ...], dialect: Dialect,
    also: Mapping[str, str],
) -> list[_Row]:  # fmt: skip
    """Read a small table whole: its columns ``needed``, the item first, and ``more``.

    All are found in any case, those in ``also`` under another name too; a Notice names columns
    that are not read.
    """
    with tempfile.TemporaryDirectory(prefix="irt-dask-items-") as scratch:
        dialect = dialect.of_others()
        try:
            return [*_parsed(path, Path(scratch), needed, more, dialect, also)]
        except _RunsOnError:
            again = Path(scratch) / "again"
            again.mkdir()
            dialect = replace(dialect, several_lines=True)
            return [*_parsed(path, again, needed, more, dialect, also)]


class _RunsOnError(Exception):
    """A row goes on on the next line."""


def _parsed(
    path: str | PathLike[str], scratch: Path, needed: tuple[str, ...], more: tuple[str, ...],
    dialect: Dialect, also: Mapping[str, str],
) -> Iterator[_Row]:  # fmt: skip
    checked = checked_path(path)
    if kind_of(checked) not in DELIMITERS:
        raise InputError(f"{path}: must be a .csv, .tsv or .tab file")
    table = open_table(checked, scratch, dialect)
    error = table.text.error
    written = _written(table, needed, also)
    found = {name: written[name] for name in (*needed, *more) if name in written}
    names = [*found.values()]
    first = table.first_line
    for k in range(table.text.n_pieces):
        parsed = parse(table, k, [], names, 1)
        if parsed.bad and parsed.bad[0].runs_on:
            raise _RunsOnError
        if parsed.bad:
            raise error(parsed.bad[0].message, first + parsed.bad[0].line)
        columns = [parsed.columns[name].to_pylist() for name in names]
        for line, *texts in zip(parsed.lines.tolist(), *columns, strict=True):
            item, *values = (text.strip() for text in texts)
            at = partial(error, line=first + line)
            if not item:
                raise at("the item is empty")
            if LINE_END in item:
                raise at("the item has a line end within its quotes; write ids without line ends")
            yield _Row(identifier(item), dict(zip([*found][1:], values, strict=True)), at)
        first += parsed.n_lines
    unread = [name for name in table.names if name not in names]
    read = ", ".join((*needed, *more))
    notes = [f"the column {name!r} is not read; those that are: {read}" for name in unread]
    for note in (*table.text.notes, *notes):
        warnings.warn(f"{path}: {note}", Notice, stacklevel=9)
