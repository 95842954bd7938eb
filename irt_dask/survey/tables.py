"""Tables of persons of any size, some columns and a batch of rows at a time."""

from __future__ import annotations

import io
import warnings
from collections.abc import Collection, Iterator, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pa_compute
import pyarrow.csv as pa_csv
import pyarrow.dataset as pa_dataset
from numpy.typing import NDArray

from irt_dask.errors import DataWarning, InputError, listed, repeated
from irt_dask.store.documents import from_cell, from_json, to_csv, with_sign
from irt_dask.survey.delimited import COMMAS, POINTS, Source, check_header, is_csv, is_tsv

#: Column by which tables are joined, as scores name it.
PERSON_ID, GROUP = "person_id", "person_group"
#: That column, or its names in the first and in the second table.
On: TypeAlias = str | tuple[str, str]
#: Rows of a batch.
_ROWS = 1 << 16
#: Parquet files without buffers that are filled ahead, which hold a file to its end.
_PARQUET = pa_dataset.ParquetFileFormat(
    default_fragment_scan_options=pa_dataset.ParquetFragmentScanOptions(pre_buffer=False)
)
#: What a cell of a CSV file says that is missing.
_MISSING = pa_csv.ConvertOptions().null_values
#: Whole numbers, as tables may write them.
_WHOLE = r"-?[0-9]+(\.0*)?"


class Table:
    """Columns and batches of a source.

    A CSV file may be compressed (.csv.gz); one that ends in .tsv is read with tabs, others with
    commas or by the `delimiter`, which is that of a table that is joined too, as is the sign
    `decimal`. Empty cells are missing, and so are NA, NaN and null; not in text of the columns
    `labels`, which may be here or in the table that is joined: a country may be called NA, as
    Namibia is.
    """

    def __init__(
        self, source: Source, join: Source | None = None, on: On = PERSON_ID,
        labels: Collection[str] = (), delimiter: str | None = None, decimal: str | None = None,
    ) -> None:  # fmt: skip
        self.source = source
        self._delimiter, self._decimal = delimiter, decimal
        self._joined: Joined | None = None
        self._labels = set(labels)
        self._texts: set[str] = set()
        self._names = self._open(source)
        if join is not None:
            other = Table(join, labels=labels, delimiter=delimiter, decimal=decimal)
            self._joined = Joined(self, other, on)

    def _open(self, source: Source) -> list[str]:
        self._dataset: pa_dataset.Dataset | None = None
        if isinstance(source, pd.DataFrame):
            names = [str(c) for c in source.columns]
        else:
            check_header(Path(fspath(source)), self._delimiter)
            self._dataset = _opened(Path(fspath(source)), self._delimiter, self._decimal)
            names = list(self._dataset.schema.names)
            # of nothing but NA no type is told
            for field in self._dataset.schema:
                if field.name in self._labels and pa.types.is_null(field.type):
                    self.as_text(field.name)
        if twice := repeated(names):
            raise InputError(f"the table has the column {twice[0]!r} twice")
        return names

    @property
    def columns(self) -> list[str]:
        """Names of the columns, joined ones too."""
        return self._names if self._joined is None else self._joined.columns

    @property
    def n_rows(self) -> int | None:
        """How many rows it has; None of a CSV file, which says so at its end alone."""
        if isinstance(self.source, pd.DataFrame):
            return len(self.source)
        assert self._dataset is not None
        of_parquet = isinstance(self._dataset.format, pa_dataset.ParquetFileFormat)
        return self._dataset.count_rows() if of_parquet else None

    @property
    def name(self) -> str:
        """What to call it in a message."""
        return "the table" if isinstance(self.source, pd.DataFrame) else str(self.source)

    @property
    def lacking_weights(self) -> str | None:
        """The kind of weights that persons of a folder of scores have, which it does not hold."""
        from irt_dask.engine.person_files import DONE, WEIGHT_KIND  # Dask comes with it

        if isinstance(self.source, pd.DataFrame):
            return None
        about = Path(fspath(self.source)) / DONE
        try:
            said = from_json(about.read_bytes(), constants=True)
        except (OSError, ValueError):
            return None
        return said.get(WEIGHT_KIND) if isinstance(said, dict) else None

    def as_text(self, name: str) -> None:
        """Read this column of a CSV file as it is written: 007 is not 7."""
        if self._dataset is not None and not isinstance(self.source, pd.DataFrame):
            self._labels.add(name)
            self._texts.add(name)
            self._dataset = _opened(
                Path(fspath(self.source)), self._delimiter, self._decimal, self._texts
            )

    def label(self, names: Collection[str]) -> None:
        """Take text of these columns for labels too."""
        self._labels.update(names)
        if self._joined is not None:
            self._joined.other.label(names)

    def like_missing(self, name: str) -> Collection[str]:
        """Labels that files often have for what is missing; none of what is read from no text."""
        if self._joined is not None and name not in self._names:
            return self._joined.other.like_missing(name)
        return () if self._dataset is None or not self._is_csv else set(_MISSING)

    def takes_commas(self, name: str) -> bool:
        """Whether numbers of this column are read with decimal commas."""
        if self._joined is not None and name not in self._names:
            return self._joined.other.takes_commas(name)
        return self._decimal == "," and self._dataset is not None and self._is_csv

    def batches(self, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        """The columns of some rows after others, in the order of the source.

        Columns of a table that is joined are held in memory meanwhile, those that are asked for.
        """
        wanted = list(dict.fromkeys(columns))
        if self._joined is None:
            yield from self.of_source(wanted)
        else:
            yield from self._joined.batches(wanted)

    def of_source(self, wanted: list[str]) -> Iterator[pd.DataFrame]:
        """The same of this table alone."""
        if self._dataset is None:
            frame = self.source
            assert isinstance(frame, pd.DataFrame)
            frame = frame.set_axis(self._names, axis=1)[wanted]
            for first in range(0, len(frame), _ROWS):
                yield frame.iloc[first : first + _ROWS]
            return
        try:
            for part in _parts(self._dataset):
                for batch in part.to_batches(
                    columns=wanted,
                    batch_size=_ROWS,
                    batch_readahead=1,
                    schema=self._dataset.schema,
                ):
                    if batch.num_rows:
                        yield self._missing(batch).to_pandas()
        except pa.ArrowInvalid as error:
            raise InputError(f"{self.source}: {error}") from error

    @property
    def _is_csv(self) -> bool:
        assert self._dataset is not None
        return isinstance(self._dataset.format, pa_dataset.CsvFileFormat)

    def _missing(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Text of a CSV file, which is read as it is, without what says that a cell is missing."""
        if not self._is_csv:
            return batch
        columns = []
        for field, column in zip(batch.schema, batch.columns, strict=True):
            if pa.types.is_string(field.type) or pa.types.is_binary(field.type):
                words = [""] if field.name in self._labels else _MISSING
                nothing = pa_compute.is_in(column, value_set=pa.array(words).cast(field.type))
                column = pa_compute.if_else(nothing, pa.scalar(None, field.type), column)
                if self._decimal == "," and field.name not in self._labels:
                    _refuse_points(field.name, column)
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


class Joined:
    """Columns of a table beside those of another one, by a column that both have."""

    def __init__(self, table: Table, other: Table, on: On) -> None:
        self._table, self.other = table, other
        self._on, self._key = (on, on) if isinstance(on, str) else on
        for name, of in ((self._on, table), (self._key, other)):
            if name not in of.columns:
                raise InputError(
                    f"on={on!r}: no column of {of.name} is {name!r}; it has {listed(of.columns)}"
                )
        both = {*table.columns} & {*other.columns} - {self._on, self._key}
        if both - {GROUP}:  # scores carry the group along
            raise InputError(
                f"join=: both tables have {listed(sorted(both))}; leave out or rename one"
            )
        table.as_text(self._on)
        other.as_text(self._key)
        self._own = [c for c in table.columns if c not in both]
        self.columns = [*self._own, *(c for c in other.columns if c not in (self._key, self._on))]
        self._held: tuple[list[str], pd.DataFrame] | None = None
        self._said = False

    def _read(self, more: list[str]) -> pd.DataFrame:
        """Columns of the other table by key, in memory."""
        if self._held is None or self._held[0] != more:
            whole = pd.concat(self.other.batches([self._key, *more]), ignore_index=True)
            keys = _keys(whole[self._key], self.other.name, 0)
            if (again := keys.duplicated()).any():
                raise InputError(
                    f"join=: {self._key} {keys[again][0]!r} occurs twice in {self.other.name}"
                )
            self._held = more, whole.set_index(keys)[more]
        return self._held[1]

    def batches(self, wanted: list[str]) -> Iterator[pd.DataFrame]:
        """See :meth:`Table.batches`."""
        other = self._read([c for c in wanted if c not in self._own])
        own = [self._on, *(c for c in wanted if c in self._own and c != self._on)]
        n, met = 0, np.zeros(len(other), dtype=np.int64)
        for batch in self._table.of_source(own):
            keys = _keys(batch[self._on], self._table.name, n)
            at = other.index.get_indexer(keys)
            if (at < 0).any():
                raise InputError(
                    f"join=: {self.other.name} has no row of {keys[at < 0][0]!r}, who is in "
                    f"{self._table.name}"
                )
            n += len(batch)
            met += np.bincount(at, minlength=len(other))
            rest = other.iloc[at].set_axis(batch.index, axis=0)
            yield pd.concat([batch, rest], axis=1)[wanted]
        said = []
        if absent := int((met == 0).sum()):
            said.append(f"{absent:,} persons of {self.other.name} are not in {self._table.name} "
                        "and are left out")  # fmt: skip
        if again := int((met > 1).sum()):
            said.append(f"{again:,} persons are in several rows of {self._table.name}, and count "
                        f"as often: {listed(other.index[met > 1], 5)}")  # fmt: skip
        if said and not self._said:
            self._said = True
            warnings.warn("; ".join(said), DataWarning, stacklevel=2)


def _keys(column: pd.Series, table: str, first_row: int) -> pd.Index:
    """Keys as text; whole numbers as such, whatever type they have in this table."""
    if (lacking := column.isna().to_numpy()).any():
        raise InputError(
            f"join=: {table} has no {column.name} in row {first_row + int(np.argmax(lacking)) + 1}:"
            " nobody knows whose it is; leave out such rows"
        )
    if pd.api.types.is_float_dtype(column.dtype) and (column == column.round()).all():
        column = column.astype(np.int64)
    keys = column.astype(str)
    if keys.str.fullmatch(_WHOLE).all():  # a file may have 7.0 for 7
        keys = keys.str.partition(".")[0]
    return pd.Index(keys)


def _parts(dataset: pa_dataset.Dataset) -> Iterator[pa_dataset.Fragment]:
    """Parts that are read one after another: a reader of several runs ahead of who takes them."""
    for fragment in dataset.get_fragments():
        if isinstance(fragment, pa_dataset.ParquetFileFragment):
            yield from fragment.split_by_row_group()
        else:
            yield fragment


def _opened(
    path: Path, delimiter: str | None, decimal: str | None, as_text: Collection[str] = ()
) -> pa_dataset.Dataset:
    if not path.exists():
        raise InputError(f"{path}: there is no such file or folder")
    name = path.name.lower()
    try:
        if path.is_dir() or name.endswith(".parquet"):
            # in the order of their names: what is summed first must not depend on the disk
            files = sorted(map(str, path.rglob("*.parquet"))) if path.is_dir() else [str(path)]
            if not files:
                raise InputError(f"{path}: the folder has no Parquet file")
            return pa_dataset.dataset(files, format=_PARQUET)
        if not (is_csv(path) or is_tsv(path)):
            raise InputError(f"{path}: tables are CSV (.csv, .tsv, .gz) or Parquet files")
        parse = pa_csv.ParseOptions(delimiter=(delimiter or ",") if is_csv(path) else "\t")
        # types from a first look at 16 MiB: a column of whole numbers may have a fraction later
        read = pa_csv.ReadOptions(block_size=1 << 24)
        # whether NA is a word depends on the column: Table._missing
        texts = dict.fromkeys(as_text, pa.string())
        convert = pa_csv.ConvertOptions(
            strings_can_be_null=False, column_types=texts, decimal_point=decimal or "."
        )
        return pa_dataset.dataset(
            str(path),
            format=pa_dataset.CsvFileFormat(
                parse_options=parse, read_options=read, convert_options=convert
            ),
        )
    except pa.ArrowInvalid as error:
        raise InputError(f"{path}: {error}") from error


def _refuse_points(name: str, column: pa.Array) -> None:
    """Refuse a number with a decimal point where it has a comma: 1.234 may be some thousand."""
    for value in column.unique().to_pylist():
        if with_sign(value, "."):
            raise InputError(f"column {name!r}: {value!r} is not a number{POINTS}")


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
            f"{COMMAS if with_sign(column.iloc[row], ',') else ''}"
        ) from None


def as_file(frame: pd.DataFrame, path: Path) -> bytes:
    """A table as a file of this name holds it, CSV or Parquet."""
    if path.suffix != ".parquet":
        return to_csv(frame).encode()
    # a column that compares numbers (1, 2, "2 minus 1") has a type in pandas alone
    mixed = [name for name in frame if frame[name].dtype.kind == "O"
             and frame[name].map(type).nunique() > 1]  # fmt: skip
    out = io.BytesIO()
    frame.astype(dict.fromkeys(mixed, str)).to_parquet(out, engine="pyarrow", index=False)
    return out.getvalue()


def written(path: str | PathLike[str]) -> pd.DataFrame:
    """A table that was written as a CSV or Parquet file (``irt-dask tabulate --out``)."""
    file = Path(fspath(path))
    if not file.is_file():
        raise InputError(f"{file}: there is no such file")
    try:
        if file.suffix == ".parquet":
            return pd.read_parquet(file)
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
