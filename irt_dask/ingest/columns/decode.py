"""From columns of strings to :class:`Rows`: what every format does after its own parsing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from irt_dask.errors import listed
from irt_dask.ingest.columns.meanings import MISSING, NOT_OBSERVED, UNKNOWN
from irt_dask.ingest.columns.numbers import number_of, of_decimal, shorten
from irt_dask.ingest.columns.roles import AT, Roles
from irt_dask.ingest.columns.rows import Bad, Rows
from irt_dask.ingest.columns.suspects import WORDS, words_of
from irt_dask.ingest.columns.trimming import composed, filled, has, trimmed
from irt_dask.ingest.columns.unlisted import Unlisted
from irt_dask.ingest.columns.unlisted import add as add_unlisted
from irt_dask.ingest.columns.values import Codes, Distinct
from irt_dask.ingest.text.lines import fault
from irt_dask.store.labels import numbers as label_numbers
from irt_dask.store.weights import refused, rule
from irt_dask.variables import identifier

Texts = Callable[[Sequence[int]], list[str]]
OfRow = Callable[[int], str]
CELLS = 1 << 20  # values of a wide table decoded at a time
_COVARIATE = (
    "a covariate is a finite number, or empty or NA where it is not known; if these are labels, "
    "say columns={{'labels': [{}]}}, or, if they are the groups of persons, "
    "columns={{'group': {!r}}}"
)


class Decoder:
    """Takes the columns of a piece one by one; remembers which rows cannot be taken and why."""

    def __init__(
        self, n_lines: int, lines: np.ndarray, bad: list[Bad] | None = None, *,
        decimal: str | None = None, line_end: str | None = None,
    ) -> None:  # fmt: skip
        self.n_lines, self.lines = n_lines, lines
        self._decimal = (
            decimal  # the sign in numbers; None is a dot, unless somebody says otherwise
        )
        self._line_end = line_end  # what stands for a line end within a value, if any may be there
        self.bad = bad or []  # rows that the parser has put aside: not among ``lines``
        self._which = np.zeros(len(lines), dtype=np.int16)
        self._faults: list[tuple[OfRow, OfRow, OfRow]] = []
        self._taken: dict[str, Any] = {}
        self._labels: dict[str, list[str]] = {}
        self._unlisted: Unlisted = {}

    def table(self, roles: Roles, columns: dict[str, Any], codes: Codes | None) -> None:
        """Take all columns of a table, by the roles of their names."""
        for role in ("person", "item"):
            if role in roles.single:
                name = roles.single[role]
                self.label(role, columns[name], name)
        if roles.facets:
            self.levels([columns[name] for name in roles.facets], (roles.item or "", *roles.facets))
        if roles.form == "persons":
            given = [columns[c] for c in roles.covariates]
            self.covariates(given, roles.covariates, roles.labels)
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
        """Put rows aside whose number breaks a rule, which the message says."""

        def message(row: int) -> str:
            text = values.text(row)
            also = of_decimal(text.strip(), self._decimal)
            return f"column {column!r} has the {what} {shorten(text)}; {rule}{also}"

        self.refuse(rows, column, values.text, message)

    def label(self, role: str, strings: pa.Array, column: str) -> None:
        """Take persons (strings, or as the others), items or groups (dictionaries)."""
        strings, empty = trimmed(strings)
        strings = composed(strings)
        if role == "person" and hasattr(strings, "dictionary"):
            strings = strings.dictionary_decode()
        if empty is not None:
            message = (
                f"column {column!r} is empty; every person needs a group"
                if role == "group"
                else f"the {role} id is empty; fill column {column!r}"
            )
            self.refuse(empty, column, lambda _: "", lambda _: message)
        if self._line_end is not None:
            rule = f"the {role} has a line end within its quotes; write ids without line ends"
            ends = has(strings, self._line_end)
            self.refuse(ends, column, lambda row: strings[row].as_py(), lambda _: rule)
        self._taken[role] = strings

    def levels(self, columns: list[pa.Array], names: tuple[str, ...]) -> None:
        """Make item@level@.. of the items taken; ``names`` are those of their column and these."""
        parts = [self._taken["item"]]
        for name, column in zip(names[1:], columns, strict=True):
            self.label("level", column, name)
            parts.append(self._taken.pop("level"))
        for name, part in zip(names, parts, strict=True):
            self._refuse_at(part, name)
        whole = [part.dictionary_decode() for part in parts]
        joined = pc.binary_join_element_wise(*whole, AT)
        self._taken["item"] = joined.dictionary_encode()

    def _refuse_at(self, part: pa.Array, name: str) -> None:
        """Refuse rows whose item or level has the sign that parts them."""
        rows = pc.fill_null(pc.match_substring(part.dictionary_decode(), AT), False)
        rule = (
            f"column {name!r} has {AT!r} in a value, which parts items and levels of facets in the "
            f"names of columns; write it otherwise"
        )
        self.refuse(
            rows.to_numpy(zero_copy_only=False), name, lambda row: part[row].as_py(), lambda _: rule
        )

    def nothing(self, strings: pa.StringArray, column: str) -> None:
        """Refuse rows with a value in a column that has no name."""
        rule = "which has no name in the header; name it, or empty it"

        def value(row: int) -> str:
            return strings[row].as_py()

        self.refuse(
            filled(strings), column, value,
            lambda row: f"there is the value {shorten(value(row))} in {column}, {rule}",
        )  # fmt: skip

    def responses(
        self, strings: pa.Array, column: str | OfRow, codes: Codes, *, of_keys: bool = False
    ) -> None:
        """Take the responses of a long table, after its items; ``of_keys`` can be left out."""
        name = _of_row(column)
        item = self._taken["item"]
        items = item.dictionary.to_pylist() if codes.by_item else []
        values = Distinct.of(strings)
        at = item.indices.fill_null(0).to_numpy() if items else np.zeros(1, dtype=np.int32)
        self._taken["codes"] = found = codes.decode(values, items, at)
        if item.null_count:  # rows that only make a person exist
            found[item.is_null().to_numpy(zero_copy_only=False)] = MISSING
        add_unlisted(self._unlisted, codes.unlisted(values, items, at, found))

        @cache
        def seen(number: int) -> set[str]:
            same = np.flatnonzero(item.indices.fill_null(-1).to_numpy() == number)
            return {values.stripped[k] for k in np.unique(values.index[same])}

        def message(row: int) -> str:
            text = codes.unknown(
                values.text(row), name(row), item[row].as_py(), self._decimal,
                lambda: seen(item.indices[row].as_py()),
            )  # fmt: skip
            return f"{text}{_or_no_item(name(row))}" if of_keys else text

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
            called = [names[k] for k in some]
            found = codes.decode(values, called, item)
            add_unlisted(self._unlisted, codes.unlisted(values, called, item, found))
            by_item[some.start : some.stop] = found.reshape(len(some), n)
        matrix = np.ascontiguousarray(by_item.T)
        self._taken["codes"] = matrix

        def item_of(row: int) -> int:
            return int(np.argmax(matrix[row] == UNKNOWN))

        def value(row: int) -> str:
            return columns(item_of(row))[row].as_py()

        @cache
        def seen(j: int) -> list[str]:
            return columns(j).unique().to_pylist()

        def message(row: int) -> str:
            j = item_of(row)
            name = names[j]
            text = codes.unknown(value(row), name, name, self._decimal, lambda: seen(j))
            return f"{text}{_or_no_item(name)}"

        wrong = (matrix == UNKNOWN).any(axis=1)
        self.refuse(wrong, lambda row: names[item_of(row)], value, message)

    def weights(self, strings: pa.DictionaryArray, column: str, kind: str) -> None:
        """Take weights: finite numbers above 0, whole ones if they are frequencies."""
        values = Distinct.of(strings)
        number = [number_of(v, self._decimal) for v in values.stripped]
        weight = np.array(number, dtype=float)[values.index]
        self._taken["weight"] = weight
        bad = np.zeros(weight.size, dtype=bool)
        bad[refused(weight, kind)] = True
        self._refuse_values(bad, column, values, "weight", rule(kind))

    def covariates(
        self, strings: Sequence[pa.DictionaryArray], columns: Sequence[str],
        labels: frozenset[str] = frozenset(),
    ) -> None:  # fmt: skip
        """Take numbers, and those that stand for labels; what is empty or NA is NaN."""
        table = np.empty((len(self.lines), len(columns)))
        empty = {*NOT_OBSERVED} - {"-1"}
        refused, of_words = [], []
        for j, (one, column) in enumerate(zip(strings, columns, strict=True)):
            values = Distinct.of(one)
            known = np.array([v not in empty for v in values.stripped], bool)
            if column in labels:  # words for what is missing are labels too, as of groups
                words = [identifier(v) for v in values.stripped]
                known = np.array([v != "" for v in values.stripped], bool)
                number = np.where(known, label_numbers(words), np.nan)
                table[:, j] = number[values.index]
                self._labels[column] = sorted({w for w, k in zip(words, known, strict=True) if k})
                continue
            number = np.array([number_of(v, self._decimal) for v in values.stripped], float)
            wrong = ~np.isfinite(number) & known
            table[:, j] = number[values.index]
            refused.append((wrong[values.index], column, values))
            if known.any() and (wrong == known).all():
                of_words.append(column)
        for rows, column, values in refused:
            named = listed(of_words if column in of_words else [column])
            rule_of_it = _COVARIATE.format(named, column)
            self._refuse_values(rows, column, values, "value", rule_of_it)
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
        return Rows(self.n_lines, self.lines, bad=self.bad[:most], labels=self._labels,
                    unlisted=self._unlisted, **taken)  # fmt: skip

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


def _or_no_item(column: str) -> str:
    role = column.casefold()
    what = f" or columns={{{role!r}: {column!r}}}" if role in ("weight", "group") else ""
    named = "; its name is hardly that of an item" if words_of(column) & WORDS else ""
    return f"{named}; if the column is no item, exclude=[{column!r}]{what}"


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
