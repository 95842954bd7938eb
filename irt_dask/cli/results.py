"""Results as tables: CSV files that pandas and R open, and rows for people and scripts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from irt_dask.errors import InputError
from irt_dask.store.documents import to_csv
from irt_dask.store.manifest import replacing, write_atomically, writing
from irt_dask.store.places import local_path


def new_csv(path: str | None, *inputs: str | None) -> Path | None:
    """The path of a table to write; another ending and a folder that is none are refused.

    So is one of the files that are read, which would be gone.
    """
    return _new_file(path, inputs, ".csv")


def new_table(path: str | None, *inputs: str | None) -> Path | None:
    """The same of a table that may also be a Parquet file."""
    return _new_file(path, inputs, ".csv", ".parquet")


def _new_file(path: str | None, inputs: Iterable[str | None], *endings: str) -> Path | None:
    if path is None:
        return None
    new = local_path(path, "a table")
    if new.suffix not in endings:
        raise InputError(f"table {new}: the file name must end in {' or '.join(endings)}")
    if not new.absolute().parent.is_dir():
        raise InputError(f"table {new}: there is no folder {new.absolute().parent}")
    refuse_inputs(new, inputs)
    return new


def refuse_inputs(new: Path, inputs: Iterable[str | None]) -> None:
    """Refuse to write over one of the files that are read, or the covariance beside a bank."""
    from irt_dask.banks.covariances import beside

    given = [*filter(None, inputs)]
    banks = [str(beside(read)) for read in given if read.endswith(".csv")]
    for read in (*given, *banks):
        if new.exists() and Path(read).exists() and new.samefile(read):
            raise InputError(f"table {new}: the command reads this file; write to another one")


def write_csv(frame: pd.DataFrame, path: Path | None) -> None:
    """Write a table, numbers in full and nothing where there is none; nothing without a path.

    Before text that a spreadsheet would run there is an apostrophe.
    """
    if path is not None:
        write_atomically(path.absolute(), to_csv(frame).encode())


def write_table(frame: pd.DataFrame, path: Path | None) -> None:
    """Write a table as the ending of :func:`new_table` asks for; nothing without a path."""
    if path is not None:
        from irt_dask.survey.tables import as_file  # pyarrow takes its time

        write_atomically(path.absolute(), as_file(frame, path))


def new_result(path: str | None, *inputs: str | None) -> Path | None:
    """The path of a table (.csv), or of a result that is kept (.nc) and shown on a report page."""
    from irt_dask.banks.saved import check_new_result

    if path is None or not path.endswith(".nc"):
        return new_csv(path, *inputs)
    new = check_new_result(path)
    refuse_inputs(new, inputs)
    return new


def write_result_or_csv(result: xr.Dataset, frame: pd.DataFrame, path: Path | None) -> None:
    """Write what the name of :func:`new_result` asks for: the result, or its table."""
    from irt_dask.banks.saved import write_result

    if path is not None and path.suffix == ".nc":
        write_result(result, path)
    else:
        write_csv(frame, path)


def write_persons(folder: str | Path, path: Path) -> None:
    """Write the Parquet files of a folder, a row a person, as one CSV file, some rows at a time."""
    from irt_dask.survey.tables import Table  # pyarrow takes its time

    table = Table(local_path(folder, "a folder to write as CSV"))
    empty = pd.DataFrame({name: [] for name in table.columns})
    with (
        writing(path),
        replacing(path.absolute()) as temporary,
        open(temporary, "w", encoding="utf-8", newline="") as f,
    ):
        f.write(to_csv(empty))
        for batch in table.batches(table.columns):
            f.write(to_csv(batch).partition("\n")[2])


def records(frame: pd.DataFrame, columns: Iterable[str] = ()) -> list[dict[str, Any]]:
    """The rows of a table, of some of its columns or all, as JSON knows them."""
    some = frame[list(columns)] if columns else frame
    return [{str(k): _plain(v) for k, v in row.items()} for row in some.to_dict("records")]


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
