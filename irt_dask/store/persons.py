"""Weights, groups and covariates given with an array, checked against its persons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from irt_dask.arrays import Floats
from irt_dask.errors import InputError
from irt_dask.store.labels import number, together
from irt_dask.store.weights import refused, rule
from irt_dask.variables import identifier

if TYPE_CHECKING:
    import pandas as pd

PersonColumns = tuple[
    Floats | None, NDArray[np.object_] | None, dict[str, Floats], dict[str, tuple[str, ...]]
]


def person_columns(
    persons: Mapping[str, Any] | pd.DataFrame | None, ids: NDArray[np.object_], weight_kind: str
) -> PersonColumns:
    """Weights, groups and covariates of a table with one row a person, in their order.

    Covariates are numbers; of those that are text, labels are returned too.
    """
    if persons is None:
        return None, None, {}, {}
    columns = _columns(persons, ids)
    weight = group = None
    if "weight" in columns:
        weight = _numbers("weight", columns.pop("weight"))
        bad = refused(weight, weight_kind)
        if bad.size:
            raise InputError(
                f"weight {weight[bad[0]]} of person {bad[0]} (counted from 0): {rule(weight_kind)}"
            )
    if "group" in columns:
        group = _labels(columns.pop("group"))
    covariates, labels = {}, {}
    for name, column in columns.items():
        words = _words(column)
        if words is None:
            covariates[name] = _numbers(name, column)
            continue
        known = {x: number(x) for x in words if x is not None}
        covariates[name] = np.array([np.nan if x is None else known[x] for x in words])
        labels[name] = [*known]
    for name, column in covariates.items():
        if np.isinf(column).any():
            raise InputError(f"persons[{name!r}] holds an infinite value; use NaN where unknown")
    return weight, group, covariates, together([labels])


def _words(column: Any) -> list[str | None] | None:
    """The column as labels, None where not known; None if it is no text.

    Text that is numbers is numbers, as in files, unless it is a categorical of pandas.
    """
    import pandas as pd

    kind = getattr(column, "dtype", None)
    if kind is not None and pd.api.types.is_numeric_dtype(kind):
        return None
    given, category = np.asarray(column, dtype=object), isinstance(kind, pd.CategoricalDtype)
    empty = np.array([isinstance(x, str) and not x.strip() for x in given], dtype=bool)
    unknown = np.asarray(pd.isna(given)) | empty
    known = given[~unknown]
    if not category and not all(isinstance(x, str) for x in known):
        return None
    if not category and (known.size or kind is None):
        try:
            np.array(known, dtype=float)
        except ValueError:
            pass
        else:
            return None
    text = (None if u else identifier(str(x).strip()) for x, u in zip(given, unknown, strict=True))
    return list(text)


def _columns(persons: Any, ids: NDArray[np.object_]) -> dict[str, Any]:
    """Columns of a table by name, without the identifiers, which are those of the persons."""
    n = len(ids)
    if not isinstance(persons, Mapping) and not hasattr(persons, "columns"):
        raise InputError(
            f"persons must be a table or a dict of columns, not {type(persons).__name__}"
        )
    columns = {str(c): persons[c] for c in persons}
    for name, column in columns.items():
        if not hasattr(column, "__len__") or isinstance(column, str):
            raise InputError(f"persons[{name!r}] must be a column with {n} entries")
    for name in ("person", "person_id", "id"):
        if name in columns and [identifier(i) for i in columns.pop(name)] != list(ids):
            raise InputError(
                f"persons[{name!r}] differs from the identifiers of the array's persons; "
                f"bring the rows of the table into their order"
            )
    labels = getattr(persons, "index", None)
    counted = labels is None or list(labels) == list(range(n))
    if not counted and len(labels) == n and [identifier(i) for i in labels] != list(ids):  # type: ignore[arg-type, union-attr]
        raise InputError(
            "the index of persons differs from the identifiers of the array's persons; bring its "
            "rows into their order, or reset the index if they are already"
        )
    for name, column in columns.items():
        if len(column) != n:
            raise InputError(f"persons[{name!r}] has {len(column)} entries for {n} persons")
    return columns


def _labels(column: Any) -> NDArray[np.object_]:
    given = list(column)
    empty = [k for k, g in enumerate(given) if g is None or g != g or not str(g)]
    if empty:
        raise InputError(
            f"group of person {empty[0]} (counted from 0) is empty; every person needs one"
        )
    return np.array([str(g) for g in given], dtype=object)


def _numbers(name: str, column: Any) -> Floats:
    try:
        return np.array(column, dtype=float)  # a copy, whatever becomes of the table
    except (TypeError, ValueError) as error:
        raise InputError(f"persons[{name!r}] must hold numbers: {error}") from None
