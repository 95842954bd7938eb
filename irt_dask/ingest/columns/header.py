"""The names of a file's columns, and how messages show them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from irt_dask.errors import InputError, listed, repeated


@dataclass(frozen=True)
class Header:
    """The names of columns, stripped and in normal form, and how to complain about them."""

    names: list[str]
    error: Callable[..., InputError]
    delimiter: str | None = None  # of delimited text
    row_names: str | None = None  # what its first column is called, if that has no name
    nests: bool = False  # JSON, where the responses of a person may be one value

    @cached_property
    def place(self) -> dict[str, int]:
        """Where each column stands."""
        return {name: k for k, name in enumerate(self.names)}

    def checked(self) -> Header:
        """Refuse names that are empty or there twice."""
        if "" in self.names:
            place = self.names.index("") + 1
            raise self.error(f"column {place} of {len(self.names)} has no name; name it", 1)
        if twice := repeated(self.names):
            raise self.error(f"the column {twice[0]!r} is there twice; rename one of them", 1)
        return self

    def shown(self) -> str:
        """Return the names for a message."""
        if len(self.names) == 1 and self.delimiter is not None and self.row_names is None:
            return (
                f"the only column is {self.names[0]!r}: is the delimiter {self.delimiter!r}? If "
                f"not, say delimiter=; if this is a title, delete it, as the first line has to "
                f"name the columns"
            )
        shown = f"the columns are {listed(self.names)}"
        if self.row_names is not None and self.row_names not in self.names:
            shown += (
                f", and the first one has no name; if it holds the persons, say columns="
                f"{{'person': {self.row_names!r}}}"
            )
        for sign in ";\t|,":
            n = sum(name.count(sign) for name in self.names)
            if n >= len(self.names) and self.delimiter not in (None, sign):
                also = f"divided by {self.delimiter!r}; if by {sign!r}, say delimiter={sign!r}"
                return f"{shown}, {also}"
        return shown
