"""Weights and groups of persons, gathered while a file streams by."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from irt_dask.ingest.reader import Batch, TextFile
from irt_dask.ingest.values import Numbering, distinct

if TYPE_CHECKING:
    import pyarrow as pa

    from irt_dask.ingest.roles import Roles


class Attribute:
    """One number per person, which all rows of the person must agree on."""

    def __init__(self, text: TextFile, role: str, column: str) -> None:
        self.text, self.role, self.column = text, role, column
        self.numbers = np.full(1024, np.nan)
        self.labels = Numbering()

    def add(self, persons: np.ndarray, strings: pa.Array, first_line: int) -> None:
        """Take the values of rows that belong to the given persons."""
        values = self._parse(strings, first_line)
        top = int(persons.max()) + 1
        if top > len(self.numbers):
            more = np.full(max(top, 2 * len(self.numbers)) - len(self.numbers), np.nan)
            self.numbers = np.concatenate([self.numbers, more])
        new = np.isnan(self.numbers[persons])
        # assigned in reverse, so that the first row of a person is the one that stays
        self.numbers[persons[new][::-1]] = values[new][::-1]
        differs = self.numbers[persons] != values
        if differs.any():
            row = int(np.argmax(differs))
            raise self.text.error(
                f"column {self.column!r} has {strings[row].as_py()!r}, and an earlier row of the "
                f"same person has {self._show(self.numbers[persons[row]])!r}; "
                f"the {self.role} of a person must be the same in all rows",
                first_line + row,
            )

    def take(self, first: int, last: int) -> np.ndarray | list[str]:
        """Return the weights or the groups of a range of persons."""
        part = self.numbers[first:last]
        if self.role == "weight":
            return part.copy()
        names = list(self.labels.number)
        return [names[k] for k in part.astype(np.int64)]

    def _show(self, number: float) -> str:
        if self.role == "weight":
            return f"{number:g}"
        return list(self.labels.number)[int(number)]

    def _parse(self, strings: pa.Array, first_line: int) -> np.ndarray:
        if self.role == "group":
            rows, empty = self.labels.rows(strings)
            if empty is not None:
                raise self.text.error(
                    f"column {self.column!r} is empty; every person needs a group",
                    first_line + empty,
                )
            return rows.astype(np.float64)
        index, texts = distinct(strings)
        values = np.array([_weight(s) for s in texts])[index]
        bad = np.isnan(values)
        if bad.any():
            row = int(np.argmax(bad))
            raise self.text.error(
                f"column {self.column!r} has the weight {strings[row].as_py()!r}; "
                "a weight is a finite number above 0",
                first_line + row,
            )
        return values


def _weight(text: str) -> float:
    """Return the weight, NaN where the text is no finite number above 0."""
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return value if 0 < value < math.inf and "_" not in text else math.nan


class Attributes:
    """The weight and group columns that the roles name."""

    def __init__(self, text: TextFile, roles: Roles) -> None:
        named = (("weight", roles.weight), ("group", roles.group))
        self.columns = [k for _, k in named if k is not None]
        self._each = [Attribute(text, r, text.header[k]) for r, k in named if k is not None]

    def add(self, persons: np.ndarray, batch: Batch, first_column: int) -> None:
        """Take the values from a batch in which they start at ``first_column``."""
        for k, attribute in enumerate(self._each):
            attribute.add(persons, batch.columns[first_column + k], batch.first_line)

    def take(self, first: int, last: int) -> dict[str, Any]:
        """Return the arguments of the writer for a range of persons."""
        return {a.role: a.take(first, last) for a in self._each}
