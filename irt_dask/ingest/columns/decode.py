"""From columns of strings to :class:`Rows`: what every format does after its own parsing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from irt_dask.ingest.columns.roles import Roles
from irt_dask.ingest.columns.rows import Bad, Rows
from irt_dask.ingest.columns.trimming import trimmed
from irt_dask.ingest.columns.values import (
    NOT_OBSERVED,
    UNKNOWN,
    Codes,
    Distinct,
    number_of,
    shorten,
)
from irt_dask.ingest.text.lines import fault
from irt_dask.store.weights import refused, rule

Texts = Callable[[Sequence[int]], list[str]]
OfRow = Callable[[int], str]
CELLS = 1 << 20  # values of a wide table decoded at a time
_COVARIATE = (
    "a covariate is a finite number, or empty or NA where it is not known; write labels as numbers "
    "or leave the column out"
)


class Decoder:
    """Takes the columns of a piece one by one; remembers which rows cannot be taken and why."""

    def __init__(self, n_lines: int, lines: np.ndarray, bad: list[Bad] | None = None) -> None:
        self.n_lines, self.lines = n_lines, lines
        self.bad = bad or []  # rows that the parser has put aside: not among ``lines``
        self._which = np.zeros(len(lines), dtype=np.int16)
        self._faults: list[tuple[OfRow, OfRow, OfRow]] = []
        self._taken: dict[str, Any] = {}

    def table(self, roles: Roles, columns: dict[str, Any], codes: Codes | None) -> None:
        """Take all columns of a table, by the roles of their names."""
        for role in ("person", "item"):
            if role in roles.single:
                name = roles.single[role]
                self.label(role, columns[name], name)
        if roles.form == "persons":
            self.covariates([columns[c] for c in roles.covariates], roles.covariates)
        else:
            assert codes is not None
            if roles.response is not None:
                self.responses(columns[roles.response], roles.response, codes)
            else:
                self.matrix(lambda j: columns[roles.items[j]], roles.items, codes)
        if roles.weight is not None:
            self.weights(columns[roles.weight], roles.weight, roles.weight_kind)
        if roles.group is not None:
            self.label("group", columns[roles.group], roles.group)

    def refuse(self, rows: np.ndarray, column: str | OfRow, value: OfRow, message: OfRow) -> None:
        """Put rows aside, of which the mask is given; the first reason of a row counts."""
        if rows.any():
            self._faults.append((_of_row(column), value, message))
            self._which[rows & (self._which == 0)] = len(self._faults)

    def _refuse_values(
        self, rows: np.ndarray, column: str, values: Distinct, what: str, rule: str
    ) -> None:
        """Put rows aside whose value breaks a rule, which the message says."""

        def message(row: int) -> str:
            return f"column {column!r} has the {what} {shorten(values.text(row))}; {rule}"

        self.refuse(rows, column, values.text, message)

    def label(self, role: str, strings: pa.Array, column: str) -> None:
        """Take persons (strings, or as the others), items or groups (dictionaries)."""
        strings, empty = trimmed(strings)
        if role == "person" and hasattr(strings, "dictionary"):
            strings = strings.dictionary_decode()
        if empty is not None:
            message = (
                f"column {column!r} is empty; every person needs a group"
                if role == "group"
                else f"the {role} id is empty; fill column {column!r}"
            )
            self.refuse(empty, column, lambda _: "", lambda _: message)
        self._taken[role] = strings

    def responses(self, strings: pa.Array, column: str | OfRow, codes: Codes) -> None:
        """Take the responses of a long table, after its items."""
        name = _of_row(column)
        item = self._taken["item"]
        items = item.dictionary.to_pylist() if codes.key is not None else []
        values = Distinct.of(strings)
        at = item.indices.fill_null(0).to_numpy() if items else np.zeros(1, dtype=np.int32)
        self._taken["codes"] = found = codes.decode(values, items, at)

        def message(row: int) -> str:
            return codes.unknown(values.text(row), name(row))

        self.refuse(found == UNKNOWN, column, values.text, message)

    def matrix(
        self, columns: Callable[[int], pa.Array], names: Sequence[str], codes: Codes
    ) -> None:
        """Take the responses of a wide table, whose item columns ``columns`` returns."""
        n = len(self.lines)
        by_item = np.empty((len(names), n), dtype=np.int8)
        together = max(1, CELLS // max(n, 1))  # items per call: few calls, little memory
        for first in range(0, len(names), together):
            some = range(first, min(first + together, len(names)))
            values = Distinct.of(_joined([columns(k) for k in some]))
            item = np.repeat(np.arange(len(some), dtype=np.int32), n)
            found = codes.decode(values, [names[k] for k in some], item)
            by_item[some.start : some.stop] = found.reshape(len(some), n)
        matrix = np.ascontiguousarray(by_item.T)
        self._taken["codes"] = matrix

        def item_of(row: int) -> int:
            return int(np.argmax(matrix[row] == UNKNOWN))

        def value(row: int) -> str:
            return columns(item_of(row))[row].as_py()

        self.refuse(
            (matrix == UNKNOWN).any(axis=1),
            lambda row: names[item_of(row)],
            value,
            lambda row: codes.unknown(value(row), names[item_of(row)]),
        )

    def weights(self, strings: pa.DictionaryArray, column: str, kind: str) -> None:
        """Take weights: finite numbers above 0, whole ones if they are frequencies."""
        values = Distinct.of(strings)
        weight = np.array([number_of(v) for v in values.stripped], dtype=float)[values.index]
        self._taken["weight"] = weight
        bad = np.zeros(weight.size, dtype=bool)
        bad[refused(weight, kind)] = True
        self._refuse_values(bad, column, values, "weight", rule(kind))

    def covariates(self, strings: Sequence[pa.DictionaryArray], columns: Sequence[str]) -> None:
        """Take numbers; what is empty or NA is NaN."""
        table = np.empty((len(self.lines), len(columns)))
        empty = {*NOT_OBSERVED} - {"-1"}
        for j, (one, column) in enumerate(zip(strings, columns, strict=True)):
            values = Distinct.of(one)
            number = np.array([number_of(v) for v in values.stripped], dtype=float)
            wrong = ~np.isfinite(number) & np.array([v not in empty for v in values.stripped], bool)
            table[:, j] = number[values.index]
            self._refuse_values(wrong[values.index], column, values, "value", _COVARIATE)
        self._taken["covariates"] = table

    def finish(self, texts: Texts, most: int | None = None) -> Rows:
        """Return the rows; of the bad ones the first ``most``."""
        taken = self._taken
        if self._faults:
            self._gather(texts, most)
            put_aside = np.unique(self.lines[self._which > 0])
            good = np.isin(self.lines, put_aside, invert=True)
            self.lines = self.lines[good]
            for role, column in taken.items():
                taken[role] = (
                    column[good] if isinstance(column, np.ndarray) else _kept(column, good)
                )
        return Rows(self.n_lines, self.lines, bad=self.bad[:most], **taken)

    def _gather(self, texts: Texts, most: int | None) -> None:
        rows = np.flatnonzero(self._which)
        first = np.unique(self.lines[rows], return_index=True)[1]  # a line is put aside once
        rows = rows[first][:most]
        offsets = self.lines[rows].tolist()
        for row, line, text in zip(rows.tolist(), offsets, texts(offsets), strict=True):
            column, value, message = self._faults[self._which[row] - 1]
            if text:
                self.bad.append(Bad(line, column(row), value(row), message(row), text))
            else:  # to pyarrow a blank line is a row of empty fields
                self.bad.append(Bad(line, "", "", fault(b"") or "", text))
        self.bad.sort(key=lambda bad: bad.line)


def _of_row(column: str | OfRow) -> OfRow:
    return column if callable(column) else lambda _: column


def dictionary_of(strings: Sequence[str | None]) -> pa.DictionaryArray:
    """Return Python strings as a column, entries in order of first appearance."""
    return pa.array(strings, pa.string()).dictionary_encode()


def _kept(column: pa.Array, rows: np.ndarray) -> pa.Array:
    """Return rows of a column; of a dictionary the entries in use, by first appearance."""
    kept = column.filter(pa.array(rows))
    if hasattr(kept, "dictionary"):
        return kept.dictionary_decode().dictionary_encode()
    return kept


def _joined(columns: list[pa.Array]) -> pa.Array:
    if len(columns) == 1:
        return columns[0]
    if pa.types.is_string(columns[0].type):
        return pa.concat_arrays(columns)
    return pa.chunked_array(columns).unify_dictionaries().combine_chunks()
