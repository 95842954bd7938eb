"""Opening a source, whose name says the format, or a table of persons."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from irt_dask.errors import DataWarning, InputError, listed
from irt_dask.ingest.columns.roles import OF_PERSONS, Wanted
from irt_dask.ingest.columns.suspects import perhaps_weight
from irt_dask.ingest.sources.delimited import open_delimited
from irt_dask.ingest.sources.jsonlines import open_jsonlines
from irt_dask.ingest.sources.parquet import open_parquet
from irt_dask.ingest.sources.source import Source
from irt_dask.ingest.text.dialect import UNSAID, Dialect
from irt_dask.ingest.text.files import checked_path, kind_of
from irt_dask.store import Responses
from irt_dask.store.objects import ObjectPath

#: What messages call a table of persons that is no file.
_IN_MEMORY = Path("the table of persons")
_OTHERS = {".parquet": open_parquet, ".jsonl": open_jsonlines, ".ndjson": open_jsonlines}


def open_source(
    path: str | PathLike[str] | ObjectPath,
    scratch: Path,
    *,
    shape: str | None = None,
    columns: Mapping[str, Any] | None = None,
    exclude: str | Sequence[str] = (),
    dialect: Dialect = UNSAID,
    joined: bool = False,
) -> Source:
    """Open a file of responses; compressed files and objects are written to ``scratch`` first.

    Columns of weight and group that are not there may be in a table of persons that is ``joined``.
    """
    checked = checked_path(path)
    open_one = _OTHERS.get(kind_of(checked) or "", open_delimited)
    return open_one(checked, scratch, Wanted(shape, columns, exclude, joined), dialect)


def open_persons(
    path: str | PathLike[str], scratch: Path, dialect: Dialect = UNSAID,
    columns: Mapping[str, Any] | None = None,
) -> Source:  # fmt: skip
    """Open a table of persons: a row per person, with weight, group and covariates.

    ``columns`` have the person's name in the responses, what they lack of weight and group, and
    which covariates are labels.
    """
    return open_source(path, scratch, shape="persons", dialect=dialect.of_others(), columns=columns)


def persons_table(
    persons: Any, scratch: Path, dialect: Dialect, source: Source, path: Any,
    named: Mapping[str, Any] | None = None, old: Responses | None = None,
) -> Source | None:  # fmt: skip
    """Open the table of persons to be joined, if any: a file, or a DataFrame, written first.

    Weight and group that the caller ``named`` and the responses lack are taken from it.
    Covariates that stand beside the responses are read as a table of the same file, ``path``; those
    that are labels in an ``old`` store, which is appended to, need not be named so again.
    """
    labels = set() if old is None else {*old.covariate_labels}
    beside = source.roles.beside
    if persons is None and not beside:
        return None
    if persons is not None and beside:
        raise InputError(
            f"columns={{'covariates': {list(beside)}}} are in the rows of responses, and persons= "
            f"is a table of others: put all into one of them"
        )
    folder = scratch / "persons-source"
    folder.mkdir()
    if beside:
        columns = {
            "person": source.roles.person, "covariates": beside,
            "labels": source.roles.labels | (labels & {*beside}),
        }  # fmt: skip
        return open_source(path, folder, shape="persons", columns=columns, dialect=dialect)
    columns = {"person": source.roles.person}
    columns |= {k: v for k, v in (named or {}).items()
                if k == "labels" or (k in OF_PERSONS and k not in source.roles.single)}  # fmt: skip
    table = _given(persons, folder, dialect, columns)
    again = table.roles.labels | (labels & {*table.roles.covariates})
    table = replace(table, roles=replace(table.roles, labels=frozenset(again)))
    roles = {*source.roles.single, *table.roles.single}
    called = [name for name in table.roles.covariates if perhaps_weight(name)]
    if called and "weight" not in roles:
        warnings.warn(
            DataWarning(
                f"{table.path}: persons have no weights, and {listed(called)} is a covariate: if "
                f"it holds the weight of each person, call the column weight, or say "
                f"columns={{'weight': {called[0]!r}}}"
            ),
            stacklevel=2,
        )
    return table


def _given(persons: Any, folder: Path, dialect: Dialect, columns: dict[str, Any]) -> Source:
    """Open a table of persons, a file or a DataFrame."""
    if not hasattr(persons, "to_parquet"):
        return open_persons(persons, folder, dialect, columns)
    path = folder / "persons.parquet"
    try:
        persons.to_parquet(path, engine="pyarrow", index=False, write_page_checksum=True)
        return replace(open_persons(path, folder, columns=columns), path=_IN_MEMORY)
    except InputError as error:
        raise InputError(str(error).replace(str(path), str(_IN_MEMORY))) from None
    except Exception as error:
        raise InputError(f"{_IN_MEMORY} cannot be read: {error}") from error
