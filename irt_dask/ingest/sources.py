"""Files of responses and of persons, whatever their format, as pieces that are read one by one.

A source is opened where the call was made and is small and picklable; a piece is read wherever the
source is sent to.  What the pieces are, and what reading one gives, depends on the file alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from irt_dask.errors import InputError
from irt_dask.ingest.reader import checked_path, kind_of, located
from irt_dask.store.objects import ObjectPath
from irt_dask.store.places import Location

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from irt_dask.ingest.roles import Roles
    from irt_dask.ingest.values import Codes

Columns = Mapping[str, str | Sequence[str]]


@dataclass(frozen=True)
class Bad:
    """A row that cannot be taken: where it is in its piece, why, and what stands there."""

    line: int  # offset from the first line of the piece
    column: str
    value: str
    message: str  # a sentence that goes on after "PATH, line N: "
    text: str  # the line itself; JSON of the row of a table


@dataclass
class Rows:
    """The good rows of a piece in columns, and its bad rows."""

    n_lines: int  # good and bad
    lines: np.ndarray  # int32, offset of each good row, ascending; repeated where lines hold many
    person: pa.StringArray  # stripped, not empty
    # entries distinct and in use; long form; a null only makes the person exist
    item: pa.DictionaryArray | None = None
    codes: np.ndarray | None = None  # int8 1, 0, -1: (n,) long, (n, items) wide
    weight: np.ndarray | None = None  # float64, finite and above 0
    group: pa.DictionaryArray | None = None  # as item, never null
    covariates: np.ndarray | None = None  # float64 (n, covariates), NaN where empty
    bad: Sequence[Bad] = ()  # ascending by line


@dataclass(frozen=True)
class Source(ABC):
    """A file whose columns have been understood."""

    path: Location  # as the caller gave it, for messages
    roles: Roles
    size: int  # bytes of the plain data

    first_line: ClassVar[int] = 1  # number of the first line of the first piece
    unit: ClassVar[str] = "line"

    @property
    def form(self) -> str:
        """The form of :class:`Rows`: "long", "wide" or "persons"."""
        return self.roles.form

    @property
    def one_row_per_person(self) -> bool:
        """Whether a person may stand on one line only."""
        return self.roles.form != "long"

    @property
    def item_id(self) -> tuple[str, ...] | None:
        """The items of a wide table, in its order."""
        return self.roles.items if self.form == "wide" else None

    @property
    def weighted(self) -> bool:
        """Whether persons have weights."""
        return self.roles.weight is not None

    def with_weights(self, kind: str) -> Self:
        """The same source, whose weights are of this kind."""
        return replace(self, roles=replace(self.roles, weight_kind=kind))

    @property
    def grouped(self) -> bool:
        """Whether persons have groups."""
        return self.roles.group is not None

    @property
    def covariates(self) -> tuple[str, ...]:
        """The names of the other columns of a table of persons."""
        return self.roles.covariates

    @property
    @abstractmethod
    def pieces(self) -> Sequence[Any]:
        """The pieces, which depend on the file alone."""

    @abstractmethod
    def read(self, k: int, codes: Codes | None, most: int | None = None) -> Rows:
        """Read piece ``k``; of its bad rows keep the first ``most`` only."""

    @abstractmethod
    def texts(self, k: int, offsets: Sequence[int]) -> list[str]:
        """Return lines of piece ``k`` as they are in the file."""

    def error(self, message: str, line: int | None = None) -> InputError:
        """Return the error to raise, with the file and the line in front."""
        return located(self.path, message, line, self.unit)


def open_source(
    path: str | PathLike[str] | ObjectPath,
    scratch: Path,
    *,
    shape: str | None = None,
    columns: Columns | None = None,
) -> Source:
    """Open a file of responses; compressed files and objects are written to ``scratch`` first."""
    checked = checked_path(path)
    kind = kind_of(checked)
    if kind == ".parquet":
        from irt_dask.ingest.parquet import open_parquet

        return open_parquet(checked, scratch, shape, columns)
    if kind in (".jsonl", ".ndjson"):
        from irt_dask.ingest.jsonlines import open_jsonlines

        return open_jsonlines(checked, scratch, shape, columns)
    from irt_dask.ingest.delimited import open_delimited

    return open_delimited(checked, scratch, shape, columns)


def open_persons(path: str | PathLike[str], scratch: Path) -> Source:
    """Open a table of persons: a row per person, with weight, group and numeric covariates."""
    return open_source(path, scratch, shape="persons")


__all__ = ["Bad", "Rows", "Source", "open_persons", "open_source"]
