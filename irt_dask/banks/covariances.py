"""Covariances of item parameters in banks: columns of .json, a file beside a .csv.

In .json ``covariance_of`` and ``covariance``: parameters are in the order of the file, and a row
has, for each of its item's parameters, text of numbers: the covariances with all parameters before
it, and its variance.  Beside ``bank.csv`` lies ``bank.covariance.csv``: a square of numbers, a row
and a column for each parameter, after the columns ``item`` and ``parameter``.
"""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from irt_dask.arrays import Floats
from irt_dask.banks.tables import ItemTable, delimiter, lacking, number
from irt_dask.curves.item_set import ItemSet
from irt_dask.errors import InputError, Notice, listed
from irt_dask.items.covariance import MAX, Uncertain, as_variables, column_names, uncertain
from irt_dask.store.documents import from_cell, to_csv
from irt_dask.store.places import Location, location, read_bytes
from irt_dask.variables import DRAW, identifier

OF, VALUES = "covariance_of", "covariance"
#: Share of the largest variance by which an eigenvalue may be below 0: numbers have 17 digits.
_ROUNDING = 1e-9
#: Share by which standard errors of a bank and its covariance may differ.
_SAME = 5e-2
#: Columns of a bank that say which parameters an item has.
_KIND = ("model", "categories")


def columns(items: xr.Dataset, known: ItemSet) -> dict[str, list[Any]]:
    """Both columns of items whose covariance is known; none where it is not, or is too large."""
    found = _found(items, known)
    if found is None:
        return {}
    names, of, values = column_names(known), [], []
    order: list[int] = []
    for j in range(known.n_items):
        own = np.flatnonzero(found.column[:, j] >= 0)
        rows = []
        for k in own:
            order.append(int(found.column[k, j]))
            rows.append(" ".join(repr(float(x)) for x in found.matrix[order[-1], order]))
        of.append(" ".join(names[own, j]))
        values.append(rows)
    return {OF: of, VALUES: values}


def _found(items: xr.Dataset, known: ItemSet) -> Uncertain | None:
    """The covariance, if there is one that files carry; a note where it is too large."""
    of_rasch = "item_difficulty_covariance" in items
    n = known.n_items if of_rasch else int((column_names(known) != "").sum())
    if "item_parameter_covariance" not in items and n > MAX:
        if of_rasch or DRAW in items.dims:
            warnings.warn(
                f"the bank has standard errors alone: files carry a covariance of up to {MAX} "
                f"parameters, and these are {n}; keep the whole fit too (irt-dask calibrate --fit)",
                Notice,
                stacklevel=5,
            )
        return None
    ids = [str(i) for i in items["item_id"].values]
    found = uncertain(items, ids, known, "items", errors=False)
    if found is None or len(found.matrix) > MAX:
        return None
    found = found.finite()  # of an item that nobody solved a fit may know no variance
    return found if len(found.matrix) else None


def beside(path: Any) -> Location:
    """The file of the covariance of a bank in .csv."""
    return location(f"{str(path).removesuffix('.csv')}.covariance.csv")


def square(items: xr.Dataset, known: ItemSet) -> str | None:
    """Text of the file beside a bank in .csv; None where no covariance is known."""
    found = _found(items, known)
    if found is None:
        return None
    names, ids = column_names(known), items["item_id"].values.astype(str)
    at = [(k, j) for j in range(len(ids)) for k in np.flatnonzero(found.column[:, j] >= 0)]
    order = [found.column[k, j] for k, j in at]
    half = np.tril(found.matrix[np.ix_(order, order)])
    matrix = half + np.tril(half, -1).T  # the same to the last bit on both sides
    labels = {"item": [ids[j] for _, j in at], "parameter": [names[k, j] for k, j in at]}
    numbers = {str(n): matrix[:, n - 1] for n in range(1, 1 + len(at))}
    return to_csv(pd.DataFrame(labels | numbers))


def read(table: ItemTable) -> dict[str, Any]:
    """Variables of a covariance that a table holds, or a file beside it.

    Raises
    ------
    InputError
        Names the item whose numbers do not go with the parameters before it; of a file beside the
        bank the line and column, and the value that does not go with the bank.
    """
    if OF not in table and VALUES not in table and table.path.name.endswith(".csv"):
        return _of_square(table)
    if OF not in table or VALUES not in table:
        if OF in table or VALUES in table:
            raise InputError(
                f"{table.path}: of the columns {OF} and {VALUES} one is there; give both or none"
            )
        return {}
    of_item: list[str] = []
    of_column: list[str] = []
    rows: list[Floats] = []
    for j, item in enumerate(table.items):
        names, given = table.frame[OF][j], table.frame[VALUES][j]
        names = [] if lacking(names) else str(names).split()
        values = given if isinstance(given, list) else []
        if len(values) != len(names):
            what = f"{len(values)} rows stand there, and {OF} names {len(names)} parameters"
            raise table.fault(j, VALUES, what)
        for name, text in zip(names, values, strict=True):
            rows.append(_numbers(table, j, text, len(rows) + 1))
            of_item.append(identifier(item))
            of_column.append(name)
    return as_variables(of_item, of_column, _matrix(table, rows)) if rows else {}


def _numbers(table: ItemTable, j: int, text: Any, n: int) -> Floats:
    try:
        values = np.array([float(x) for x in str(text).split()])
    except ValueError:
        raise table.fault(j, VALUES, f"{text!r} is not of numbers") from None
    if values.size != n or not np.isfinite(values).all():
        what = (
            f"{values.size} numbers stand there, and with the parameters of the rows before it "
            f"there must be {n}: a row was moved, added or taken out; leave out {OF} and {VALUES}, "
            f"or write the bank again"
        )
        raise table.fault(j, VALUES, what)
    return values


def _matrix(table: ItemTable, rows: Sequence[Floats]) -> Floats:
    out = np.zeros((len(rows), len(rows)))
    for k, row in enumerate(rows):
        out[k, : k + 1] = out[: k + 1, k] = row
    _check(out, f"{table.path}: the numbers of {VALUES}", f"leave out {OF} and {VALUES}")
    return out


def _check(matrix: Floats, what: str, remedy: str) -> None:
    """Stop at numbers that are no covariance."""
    values = np.linalg.eigvalsh(matrix)
    if values[0] < -_ROUNDING * max(values[-1], 0.0) or values[-1] < 0.0:
        raise InputError(
            f"{what} are no covariance (an eigenvalue is {values[0]:.3g}); {remedy}, or write the "
            f"bank again"
        )


# --- the file beside a .csv -----------------------------------------------------------------------


class _Square:
    """Cells of the file, and the errors to raise of them."""

    def __init__(self, table: ItemTable) -> None:
        self.bank, self.path = table, beside(table.path)
        text = read_bytes(self.path).decode("utf-8-sig")
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter(text), strict=True)
        lines = [(reader.line_num, row) for row in reader if row]
        self.line, self.cells = [n for n, _ in lines[1:]], [row for _, row in lines[1:]]
        self.header = [*map(str.strip, lines[0][1])] if lines else []

    def fault(self, k: int, column: str, what: str) -> InputError:
        """Return the error to raise of a cell of row k; the header is -1."""
        line = 1 if k < 0 else self.line[k]
        return InputError(
            f"{self.path}, line {line}, column {column}: {what}. It goes with the item bank "
            f"{self.bank.path}: remove it, and the bank has standard errors alone, or write the "
            f"bank again"
        )

    def check_header(self) -> None:
        """Stop at a file that is no square."""
        wanted = ["item", "parameter", *map(str, range(1, 1 + len(self.cells)))]
        for n, name in enumerate(wanted):
            given = self.header[n] if n < len(self.header) else ""
            if given != name:
                raise self.fault(-1, str(n + 1), f"{given!r} stands there, not {name!r}")
        for k, row in enumerate([self.header, *self.cells], -1):
            if len(row) != len(wanted):
                what = f"{len(row)} cells stand there, not {len(wanted)}"
                raise self.fault(k, str(len(row)), what)

    def parameters(self) -> list[tuple[str, str]]:
        """Item and parameter of each row: parameters that the bank has, each once."""
        place = {identifier(item): j for j, item in enumerate(self.bank.items)}
        out: list[tuple[str, str]] = []
        for k, row in enumerate(self.cells):
            item, name = from_cell(row[0]), row[1].strip()
            if item not in place:
                raise self.fault(k, "item", f"{item!r} is no item of the bank")
            frame = self.bank.frame
            if name == "item" or name not in frame or lacking(frame[name][place[item]]):
                what = f"{name!r} is no parameter that the bank has of the item {item!r}"
                raise self.fault(k, "parameter", what)
            if (item, name) in out:
                raise self.fault(k, "parameter", f"{name!r} of the item {item!r} was there before")
            out.append((item, name))
        return out

    def matrix(self) -> Floats:
        """The numbers: finite, and the same on both sides of the diagonal."""
        given = [row[2:] for row in self.cells]
        for k, row in enumerate(given):
            for m, text in enumerate(row):
                if number(text, may_lack=False) is None:
                    raise self.fault(k, str(m + 1), f"{text!r} is not a finite number")
        out = np.array(given, dtype=float).reshape(len(given), len(given))
        for k, m in np.argwhere(np.tril(np.abs(out - out.T) > 1e-9 * np.abs(out)))[:1]:
            what = f"{given[k][m]!r} stands there, and {given[m][k]!r} across the diagonal"
            raise self.fault(int(k), str(m + 1), what)
        return out

    def check_errors(self, of: Sequence[tuple[str, str]], matrix: Floats) -> None:
        """Stop at variances that are not those of the bank's errors, or are of some of them."""
        row, lacks = {pair: k for k, pair in enumerate(of)}, []
        ids, nothing = [identifier(i) for i in self.bank.items], [""] * len(self.bank.items)
        of_each = [self.bank.words(c) if c in self.bank else nothing for c in _KIND]
        kind = dict(zip(ids, zip(*of_each, strict=True), strict=True))
        having = {(kind[item], name) for item, name in of}  # d of partial credit is none
        for name in dict.fromkeys(name for _, name in of):
            if f"se_{name}" not in self.bank:
                continue
            errors = self.bank.numbers(f"se_{name}", may_lack=True)
            for item, error in zip(ids, errors, strict=True):
                k = row.get((item, name))
                if k is None and error > 0.0 and (kind[item], name) in having:
                    lacks.append(f"{name} of {item}")
                elif k is not None and abs(max(matrix[k, k], 0.0) ** 0.5 - error) > _SAME * error:
                    what = (
                        f"{matrix[k, k]:.6g} is the variance of {name} of the item {item!r}, and "
                        f"its standard error in the bank is {error:.6g}: these are of two "
                        f"calibrations"
                    )
                    raise self.fault(k, str(k + 1), what)
        if lacks:
            raise self.fault(-1, "item", f"no row is there for {listed(lacks, 5)}")


def _of_square(table: ItemTable) -> dict[str, Any]:
    try:
        square = _Square(table)
    except FileNotFoundError:
        return {}
    except (ValueError, OSError, csv.Error) as error:
        raise InputError(f"the covariance {beside(table.path)} cannot be read: {error}") from error
    square.check_header()
    of, matrix = square.parameters(), square.matrix()
    if not of:
        return {}
    _check(matrix, f"{square.path}: its numbers", "remove it")
    square.check_errors(of, matrix)
    return as_variables([item for item, _ in of], [name for _, name in of], matrix)
