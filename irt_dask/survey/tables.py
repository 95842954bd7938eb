"""Tables of persons of any size, some columns and a batch of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.dataset as pa_dataset
from numpy.typing import NDArray

from irt_dask.errors import InputError, repeated
from irt_dask.store.documents import from_cell

#: A table: of pandas, or the path of a CSV or Parquet file or of a folder of Parquet files.
Source: TypeAlias = pd.DataFrame | str | PathLike[str]
#: Rows of a batch.
_ROWS = 1 << 16


class Table:
    """Columns and batches of a source.

    A CSV file may be compressed (.csv.gz); one that ends in .tsv is read with tabs. Empty cells
    are missing, and so are NA, NaN and null.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self._dataset: pa_dataset.Dataset | None = None
        if isinstance(source, pd.DataFrame):
            self.columns = [str(c) for c in source.columns]
        else:
            self._dataset = _opened(Path(fspath(source)))
            self.columns = list(self._dataset.schema.names)
        if twice := repeated(self.columns):
            raise InputError(f"the table has the column {twice[0]!r} twice")

    def batches(self, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        """The columns of some rows after others, in the order of the source."""
        wanted = list(dict.fromkeys(columns))
        if self._dataset is None:
            frame = self.source
            assert isinstance(frame, pd.DataFrame)
            frame = frame.set_axis(self.columns, axis=1)[wanted]
            for first in range(0, len(frame), _ROWS):
                yield frame.iloc[first : first + _ROWS]
            return
        try:
            for batch in self._dataset.to_batches(
                columns=wanted, batch_size=_ROWS, batch_readahead=1, fragment_readahead=1
            ):
                if batch.num_rows:
                    yield batch.to_pandas()
        except pa.ArrowInvalid as error:
            raise InputError(f"{self.source}: {error}") from error


def _opened(path: Path) -> pa_dataset.Dataset:
    if not path.exists():
        raise InputError(f"{path}: there is no such file or folder")
    name = path.name.lower()
    try:
        if path.is_dir() or name.endswith(".parquet"):
            # in the order of their names: what is summed first must not depend on the disk
            files = sorted(map(str, path.rglob("*.parquet"))) if path.is_dir() else [str(path)]
            if not files:
                raise InputError(f"{path}: the folder has no Parquet file")
            return pa_dataset.dataset(files, format="parquet")
        if not name.endswith((".csv", ".csv.gz", ".tsv", ".tsv.gz")):
            raise InputError(f"{path}: tables are CSV (.csv, .tsv, .gz) or Parquet files")
        parse = pa_csv.ParseOptions(delimiter="\t" if ".tsv" in name else ",")
        # types from a first look at 16 MiB: a column of whole numbers may have a fraction later
        read = pa_csv.ReadOptions(block_size=1 << 24)
        convert = pa_csv.ConvertOptions(strings_can_be_null=True)
        return pa_dataset.dataset(
            str(path),
            format=pa_dataset.CsvFileFormat(
                parse_options=parse, read_options=read, convert_options=convert
            ),
        )
    except pa.ArrowInvalid as error:
        raise InputError(f"{path}: {error}") from error


def numbers(batch: pd.DataFrame, name: str, first_row: int) -> NDArray[np.float64]:
    """A column as numbers, NaN where it is missing."""
    column = batch[name]
    try:
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    except (ValueError, TypeError):
        found = pd.to_numeric(column, errors="coerce")
        bad = (found.isna() & column.notna()).to_numpy()
        row = int(np.argmax(bad))
        raise InputError(
            f"row {first_row + row + 1}, column {name!r}: {column.iloc[row]!r} is not a number"
        ) from None


def written(path: str | PathLike[str]) -> pd.DataFrame:
    """A table that was written as a CSV file (``irt-dask tabulate --out``)."""
    file = Path(fspath(path))
    if not file.is_file():
        raise InputError(f"{file}: there is no such file")
    try:
        # nothing but an empty cell is missing: a group may be called NA, as Namibia is
        frame = pd.read_csv(file, keep_default_na=False, na_values=[""])
    except (ValueError, pd.errors.ParserError) as error:
        raise InputError(f"{file}: {error}") from error
    for name in frame:
        if frame[name].dtype.kind not in "biuf":
            frame[name] = [from_cell(v) if isinstance(v, str) else v for v in frame[name]]
    return frame


def whole(label: Any) -> Any:
    """A label as it was before missing values made fractions of whole numbers: 1 for 1.0."""
    return int(label) if isinstance(label, float) and label.is_integer() else label
