"""Opening a source: the name says the format."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from irt_dask.ingest.sources.delimited import open_delimited
from irt_dask.ingest.sources.jsonlines import open_jsonlines
from irt_dask.ingest.sources.parquet import open_parquet
from irt_dask.ingest.sources.source import Columns, Source
from irt_dask.ingest.text.files import checked_path, kind_of
from irt_dask.store.objects import ObjectPath

_OTHERS = {".parquet": open_parquet, ".jsonl": open_jsonlines, ".ndjson": open_jsonlines}


def open_source(
    path: str | PathLike[str] | ObjectPath,
    scratch: Path,
    *,
    shape: str | None = None,
    columns: Columns | None = None,
) -> Source:
    """Open a file of responses; compressed files and objects are written to ``scratch`` first."""
    checked = checked_path(path)
    open_one = _OTHERS.get(kind_of(checked) or "", open_delimited)
    return open_one(checked, scratch, shape, columns)


def open_persons(path: str | PathLike[str], scratch: Path) -> Source:
    """Open a table of persons: a row per person, with weight, group and numeric covariates."""
    return open_source(path, scratch, shape="persons")
