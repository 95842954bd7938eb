"""Rows of a partition that contradict earlier rows of the same person, or the store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from irt_dask.ingest.columns.rows import Bad
from irt_dask.ingest.sort import row_grouping, spill
from irt_dask.ingest.sort.known import Known
from irt_dask.ingest.sort.partition import Job, PartitionRows
from irt_dask.ingest.text.bundles import Bundle


def bad_row(key: Any, column: str, value: str, message: str) -> tuple[int, Bad]:
    """A row that a partition, or a block of the store, refuses, after its place in the source."""
    offset = int(key) & ((1 << spill.PIECE_BITS) - 1)
    return int(key), Bad(offset, column, value, message, "")


def _number(value: Any) -> str:
    """A weight with all digits that tell it from others: 2, 0.5, 1234567.25."""
    return repr(float(value)).removesuffix(".0")


class Refused:
    """Rows that contradict earlier rows of the same person, or the store.

    ``aside`` are those of persons whom the store has, which are to be put aside whatever happens.
    """

    def __init__(self, job: Job, rows: PartitionRows) -> None:
        self.job, self.rows = job, rows
        self.found: list[tuple[int, Bad]] = []
        self.aside: list[tuple[int, Bad]] = []

    def _place(self, row: Any) -> str:
        return self.job.pieces.place(self.rows.key[row])

    def _add(self, row: Any, column: str, value: str, message: str) -> None:
        self.found.append(bad_row(self.rows.key[row], column, value, message))

    def _person(self, row: Any) -> str:
        return str(self.rows.ids[int(self.rows.person[row])])

    def differing(self) -> None:
        """Refuse rows whose weight or group is not that of the person's first row."""
        rows = self.rows
        if not {"weight", "group"} & rows.columns.keys():
            return
        first = row_grouping.first_rows(rows.person, len(rows.ids))[rows.person]
        wrong = np.zeros(len(rows.person), dtype=bool)
        for role in ("weight", "group"):
            column = rows.columns.get(role)
            if column is None:
                continue
            differs = (column != column[first]) & ~wrong
            for row in self._told(np.flatnonzero(differs)):
                value, before = (self._show(role, column[r]) for r in (row, first[row]))
                name = self.job.attributes[role]
                self._add(
                    row, name, value,
                    f"column {name!r} has {value!r} for the person {self._person(row)!r}, and "
                    f"{before!r} on {self._place(first[row])}; "
                    f"the {role} of a person must be the same in all rows",
                )  # fmt: skip
            wrong |= differs
        if wrong.any():
            rows.keep(~wrong)

    def _show(self, role: str, value: Any) -> str:
        if role == "weight":
            return _number(value)
        assert self.rows.labels is not None
        return str(self.rows.labels[int(value)])

    def there(self, known: Known) -> None:
        """Put the rows of persons aside whom the store has."""
        rows = self.rows
        old = known.place[rows.person] >= 0
        _, one_a_line = np.unique(rows.key[old], return_index=True)
        for row in np.flatnonzero(old)[one_a_line]:
            person = self._person(row)
            message = f"the person {person!r} is in the store already"
            self.aside.append(bad_row(rows.key[row], "", person, message))
        rows.keep(~old)

    def changed(self, known: Known) -> None:
        """Refuse rows whose weight or group is not that which the store has of the person."""
        rows = self.rows
        wrong = np.zeros(len(rows.person), dtype=bool)
        for role in ("weight", "group"):
            if role not in rows.columns or role not in known.attributes:
                continue
            left = np.flatnonzero((known.place[rows.person] >= 0) & ~wrong)
            given, there = rows.columns[role][left], known.attributes[role][rows.person[left]]
            if role == "group":
                assert rows.labels is not None
                given = rows.labels.to_numpy(zero_copy_only=False)[given]
            differs = left[given != there]
            before = dict(zip(left.tolist(), there.tolist(), strict=True))
            for row in self._told(differs):
                name, value = self.job.attributes[role], self._show(role, rows.columns[role][row])
                was = before[int(row)]
                was = _number(was) if role == "weight" else str(was)
                self._add(
                    row, name, value,
                    f"column {name!r} has {value!r} for the person {self._person(row)!r}, and the "
                    f"store has {was!r}; the {role} of a person who is merged must be the same, "
                    f"or its column left out",
                )  # fmt: skip
            wrong[differs] = True
        if wrong.any():
            rows.keep(~wrong)

    def repeated_persons(self) -> None:
        """Refuse the rows of a person who is on an earlier line already."""
        rows = self.rows
        first = row_grouping.first_rows(rows.person, len(rows.ids))[rows.person]
        again = rows.key != rows.key[first]
        for row in self._told(np.flatnonzero(again)):
            person = self._person(row)
            self._add(
                row, "", person,
                f"the person {person!r} is on {self._place(first[row])} already; "
                f"this kind of file has one row per person",
            )  # fmt: skip
        if again.any():
            rows.keep(~again)

    def repeated_pairs(self, row: np.ndarray, first: np.ndarray) -> None:
        """Refuse second and further responses of a person to an item, which follow the first."""
        origin = np.maximum.accumulate(np.where(first, np.arange(row.size), 0))
        later = np.flatnonzero(~first)
        first_of = dict(zip(row[later].tolist(), row[origin[later]].tolist(), strict=True))
        names = json.load(Bundle(Path(self.job.items)).open("names"))
        for at in self._told(row[later]):
            name = names[self.rows.columns["item"][at]]
            self._add(
                at, "", name,
                f"the person {self._person(at)!r} has a second response to the item {name!r}, "
                f"after the one on {self._place(first_of[int(at)])}; "
                f"keep one of the two, or, where a person has several attempts at an item, say "
                f"trials=",
            )  # fmt: skip

    def _told(self, rows: np.ndarray) -> np.ndarray:
        """Return the rows to report, one of each line: all, or the first in the source."""
        _, first = np.unique(self.rows.key[rows], return_index=True)
        return rows[first[:1] if self.job.stop_at_bad else first]
