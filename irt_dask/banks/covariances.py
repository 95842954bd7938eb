"""Covariances of item parameters in banks: columns ``covariance_of`` and ``covariance`` of .json.

Parameters are in the order of the file.  A row has, for each of its item's parameters, text of
numbers: the covariances with all parameters before it, and its variance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from irt_dask.arrays import Floats
from irt_dask.banks.tables import ItemTable, lacking
from irt_dask.curves.item_set import ItemSet
from irt_dask.errors import InputError
from irt_dask.items.covariance import MAX, as_variables, column_names, uncertain
from irt_dask.variables import identifier

OF, VALUES = "covariance_of", "covariance"
#: Share of the largest variance by which an eigenvalue may be below 0: numbers have 17 digits.
_ROUNDING = 1e-9


def columns(items: xr.Dataset, known: ItemSet) -> dict[str, list[Any]]:
    """Both columns of items whose covariance is known; none where it is not, or is too large."""
    ids = [str(i) for i in items["item_id"].values]
    found = uncertain(items, ids, known, "items", errors=False)
    if found is None or not 0 < len(found.matrix) <= MAX:
        return {}
    names, of, values = column_names(known), [], []
    order: list[int] = []
    for j in range(len(ids)):
        own = np.flatnonzero(found.column[:, j] >= 0)
        rows = []
        for k in own:
            order.append(int(found.column[k, j]))
            rows.append(" ".join(repr(float(x)) for x in found.matrix[order[-1], order]))
        of.append(" ".join(names[own, j]))
        values.append(rows)
    return {OF: of, VALUES: values}


def read(table: ItemTable) -> dict[str, Any]:
    """Variables of a covariance that a table holds.

    Raises
    ------
    InputError
        Names the item whose numbers do not go with the parameters before it.
    """
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
    values = np.linalg.eigvalsh(out)
    if values[0] < -_ROUNDING * max(values[-1], 0.0) or values[-1] < 0.0:
        raise InputError(
            f"{table.path}: the numbers of {VALUES} are no covariance (an eigenvalue is "
            f"{values[0]:.3g}); leave out {OF} and {VALUES}, or write the bank again"
        )
    return out
