"""Parquet tables: a piece is a row group; values are read as text would say them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from irt_dask.errors import IrtDaskError
from irt_dask.ingest.columns.decode import Decoder
from irt_dask.ingest.columns.header import Header
from irt_dask.ingest.columns.roles import Roles, Wanted, resolve
from irt_dask.ingest.columns.rows import Rows
from irt_dask.ingest.columns.values import Codes
from irt_dask.ingest.sources.source import Source
from irt_dask.ingest.text.bundles import Copy
from irt_dask.ingest.text.dialect import Dialect
from irt_dask.ingest.text.files import fetched, located
from irt_dask.store.places import Location
from irt_dask.variables import identifier

if TYPE_CHECKING:
    import pyarrow.parquet as pq


_ROW = 24  # bytes that a row of text has, about


@dataclass(frozen=True)
class ParquetSource(Source):
    """Responses or persons in a Parquet file."""

    file: Path | Copy  # where the bytes are
    stored: dict[str, str]  # the names in the file by those that are used

    unit: ClassVar[str] = "row"

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of all columns."""
        return tuple(self.stored)

    def read(self, k: int, codes: Codes | None, most: int | None = None) -> Rows:
        """Read row group ``k``; of its bad rows keep the first ``most`` only."""
        roles = self.roles
        names = [*roles.single.values(), *roles.facets, *roles.items, *roles.covariates]
        with opened(self.path, self.file) as file:
            table = file.read_row_group(k, [self.stored[n] for n in names], use_threads=False)
            n = table.num_rows
            decoder = Decoder(n, np.arange(n, dtype=np.int32), decimal=".")
            columns = {c: self._strings(table, c, codes, decoder) for c in names}
        decoder.table(roles, columns, codes)
        return decoder.finish(lambda offsets: self.texts(k, offsets), most)

    def texts(self, k: int, offsets: Sequence[int]) -> list[str]:
        """Return rows of group ``k`` as JSON."""
        with opened(self.path, self.file) as file:
            table = file.read_row_group(k, use_threads=False)
            names = table.column_names
            return [
                json.dumps(
                    {n: _cell(table.column(c)[row]) for c, n in enumerate(names)},
                    ensure_ascii=False,
                    default=str,
                )
                for row in offsets
            ]

    def _strings(
        self, table: pa.Table, name: str, codes: Codes | None, decoder: Decoder
    ) -> pa.DictionaryArray:
        """Return a column as strings, a null as the empty one; refuse rows that are no text."""
        strings = as_strings(table.column(self.stored[name]), codes)
        strings, wrong = sound(strings)
        if wrong is not None:
            message = f"column {name!r} has text that is not UTF-8 or has a NUL in it; mend it"
            decoder.refuse(wrong, name, lambda _: "", lambda _: message)
        return strings


def open_parquet(path: Location, scratch: Path, wanted: Wanted, dialect: Dialect) -> ParquetSource:
    """Open a Parquet file, which has no dialect, and find out what its columns are."""
    copy = fetched(path, scratch)
    with opened(path, copy) as file:
        schema = file.schema_arrow
        groups = [file.metadata.row_group(k) for k in range(file.metadata.num_row_groups)]
        # rows may be packed into next to nothing; in memory each takes its place
        size = sum(max(group.total_byte_size, _ROW * group.num_rows) for group in groups)

    def error(message: str, line: int | None = None) -> Any:
        return located(path, message)

    stored = [str(name) for name in schema.names]
    names = [identifier(name.strip()) for name in stored]
    header = Header(names, error).checked()
    roles = resolve(header, wanted)
    _check_types(header, roles, schema)
    return ParquetSource(
        path=path,
        file=copy,
        roles=roles,
        size=max(int(size), 1),
        stored=dict(zip(names, stored, strict=True)),
        n_pieces=len(groups),
    )


@contextmanager
def opened(path: Location, file: Path | Copy) -> Iterator[pq.ParquetFile]:
    """Open ``file``, the bytes of ``path``; what goes wrong with them is an error that names it."""
    import pyarrow.parquet as pq

    try:
        source = file.open() if isinstance(file, Copy) else file
        with pq.ParquetFile(source, page_checksum_verification=True) as parquet:
            yield parquet
    except IrtDaskError:
        raise
    except Exception as e:  # damaged metadata and pages raise errors of many kinds
        reason = str(e).strip().split("\n")[0] or type(e).__name__
        raise located(path, f"cannot be read as Parquet: {reason}; write it again") from e


def _check_types(header: Header, roles: Roles, schema: pa.Schema) -> None:
    """Refuse columns whose values are no ids, or no responses or numbers."""
    texts = (pa.string(), pa.large_string(), pa.string_view(), pa.null())
    kinds = dict(zip(header.names, schema.types, strict=True))
    labels = [name for role, name in roles.single.items() if role in ("person", "item", "group")]
    labels += [*roles.facets, *roles.labels]
    plain_ones = (c for c in roles.covariates if c not in roles.labels)
    numbers = [n for n in (roles.response, roles.weight, *roles.items, *plain_ones) if n]
    for name in (*labels, *numbers):
        kind = kinds[name]
        plain = kind.value_type if pt.is_dictionary(kind) else kind
        if plain in texts or pt.is_integer(plain):
            continue
        if name in labels:
            raise header.error(
                f"the column {name!r} is of the type {kind}; ids, groups and labels are strings or "
                "integers; convert it"
            )
        if not (pt.is_boolean(plain) or pt.is_floating(plain)):
            raise header.error(
                f"the column {name!r} is of the type {kind}; it must be string, integer, float or "
                "boolean; convert it"
            )


# --- values ---------------------------------------------------------------------------------------


def as_strings(column: pa.ChunkedArray, codes: Codes | None) -> pa.DictionaryArray:
    """Return a column as strings, each value once; null is the empty string."""
    kind = column.type
    if pt.is_dictionary(kind):
        column = pa.chunked_array(
            [chunk.dictionary_decode() for chunk in column.chunks], kind.value_type
        )
        kind = kind.value_type
    if pt.is_null(kind):
        column, kind = column.cast(pa.string()), pa.string()
    if pt.is_string_view(kind):
        column, kind = column.cast(pa.large_string()), pa.large_string()
    whole = column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):  # more text than one array holds
        whole = pa.concat_arrays([c.cast(pa.large_string()) for c in whole.chunks])
    one = whole.dictionary_encode()
    entries = one.dictionary
    if pt.is_boolean(kind) or pt.is_floating(kind):
        spell = codes.spelled if codes is not None else _plainly
        words = [spell(v) for v in entries.to_pylist()]
        entries = pa.array(words, pa.string())
    elif not pt.is_string(entries.type):
        entries = entries.cast(pa.string())
    if one.indices.null_count:
        indices = one.indices.fill_null(len(entries))
        entries = pa.concat_arrays([entries, pa.array([""], pa.string())])
        one = pa.DictionaryArray.from_arrays(indices, entries)
        return one.dictionary_decode().dictionary_encode()
    return pa.DictionaryArray.from_arrays(one.indices, entries)


def _plainly(value: float | bool) -> str:
    return str(int(value)) if isinstance(value, bool) else repr(value)


def sound(strings: pa.DictionaryArray) -> tuple[pa.DictionaryArray, np.ndarray | None]:
    """Replace entries that are no text by empty ones; find the rows that have them, if any."""
    entries = strings.dictionary
    try:
        entries.validate(full=True)
        data = entries.buffers()[2]
        if data is None or b"\0" not in data.to_pybytes():
            return strings, None
    except pa.ArrowInvalid:
        pass
    raw = [bytes(v) for v in entries.cast(pa.binary()).to_pylist()]
    wrong = np.array([_is_wrong(v) for v in raw], dtype=bool)
    if not wrong.any():
        return strings, None
    texts = ["?" if w else v.decode() for v, w in zip(raw, wrong, strict=True)]
    indices = strings.indices.to_numpy()
    plain = pa.DictionaryArray.from_arrays(strings.indices, pa.array(texts, pa.string()))
    return plain.dictionary_decode().dictionary_encode(), wrong[indices]


def _is_wrong(value: bytes) -> bool:
    try:
        return "\0" in value.decode("utf-8")
    except UnicodeDecodeError:
        return True


def _cell(scalar: pa.Scalar) -> Any:
    """Return a value for JSON, whatever it is."""
    try:
        value = scalar.as_py()
    except Exception:  # text that is no UTF-8, dates beyond the calendar
        scalar = getattr(scalar, "value", scalar)  # of a dictionary
        value = scalar.as_buffer().to_pybytes() if hasattr(scalar, "as_buffer") else "unreadable"
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
