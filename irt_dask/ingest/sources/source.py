"""Files of responses and of persons, whatever their format, as pieces that are read one by one.

A source is opened where the call was made and is small and picklable; a piece is read wherever the
source is sent to.  What the pieces are, and what reading one gives, depends on the file alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from irt_dask.errors import InputError
from irt_dask.ingest.columns.roles import Roles
from irt_dask.ingest.columns.rows import Rows
from irt_dask.ingest.columns.values import Codes
from irt_dask.ingest.text.files import located
from irt_dask.ingest.text.lines import TextFile, take_lines
from irt_dask.store.places import Location


@dataclass(frozen=True)
class Source(ABC):
    """A file whose columns have been understood."""

    path: Location  # as the caller gave it, for messages
    roles: Roles
    size: int  # bytes of the plain data
    n_pieces: int

    unit: ClassVar[str] = "line"

    @property
    def first_line(self) -> int:
        """Number of the first line of the first piece."""
        return 1

    @property
    def notes(self) -> tuple[str, ...]:
        """What was found out about the file and nobody had said, a sentence each."""
        return ()

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of all columns, where all rows have the same."""
        return ()

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

    def with_weights(self, kind: str) -> Self:
        """The same source, whose weights are of this kind."""
        return replace(self, roles=replace(self.roles, weight_kind=kind))

    @abstractmethod
    def read(self, k: int, codes: Codes | None, most: int | None = None) -> Rows:
        """Read piece ``k``; of its bad rows keep the first ``most`` only."""

    @abstractmethod
    def texts(self, k: int, offsets: Sequence[int]) -> list[str]:
        """Return lines of piece ``k`` as they are in the file."""

    def error(self, message: str, line: int | None = None) -> InputError:
        """Return the error to raise, with the file and the line in front."""
        return located(self.path, message, line, self.unit)


@dataclass(frozen=True)
class TextSource(Source):
    """A source that is text: the lines that start in a range of bytes are a piece."""

    text: TextFile

    @property
    def notes(self) -> tuple[str, ...]:
        """What was found out about the file and nobody had said, a sentence each."""
        return self.text.notes

    def texts(self, k: int, offsets: Sequence[int]) -> list[str]:
        """Return lines of piece ``k`` as they are in the file."""
        return take_lines(self.text.read(k), offsets)
