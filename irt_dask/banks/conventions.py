"""Tables of items that other programs and assessments publish, by the name of their convention."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import xarray as xr

from irt_dask.banks import mirt
from irt_dask.banks.rows import STANDARD, Ability, Row, bank_of
from irt_dask.banks.tables import ItemTable
from irt_dask.errors import InputError

#: Logistic curves with this factor are nearest to the normal ogive; NAEP's slopes go with it.
_D = 1.7
#: Largest mean of published category parameters whose sum is 0: they have two or three decimals.
_ROUNDED = 0.006
#: Scores of a partial credit item, by share, so that TAM's decimals leave them one.
_SAME = 1e-9


def read(table: ItemTable, convention: str, ability: Ability | None) -> xr.Dataset:
    """Return the items of a table of this convention."""
    if convention != "mirt" and convention not in _ROWS:
        known = ", ".join(map(repr, ("mirt", *_ROWS)))
        raise InputError(f"convention={convention!r} is not available; choose None or {known}")
    if ability is not None:
        _check_ability(ability)
    if convention == "mirt":
        rows, ability = mirt.rows(table, ability)
    else:
        table.check_columns("item")
        table.check_items()
        rows = _ROWS[convention](table)
    if ability is None and convention == "tam" and all(r.slope == 1.0 for r in rows):
        raise InputError(
            f"{table.path}: all slopes are 1, so that TAM has estimated the variance of ability, "
            f"which this table does not hold; give ability=(mean, SD)"
        )
    mean, sd = ability = ability or STANDARD
    attrs = {
        "convention": convention,
        "identification": f"ability N(0, 1), which is N({mean:g}, {sd:g}^2) in the table",
    }
    return bank_of(rows, table.path, ability=ability, attrs=attrs)


def _check_ability(ability: object) -> None:
    if isinstance(ability, (tuple, list)) and len(ability) == 2:
        numbers = all(isinstance(x, (int, float)) and math.isfinite(x) for x in ability)
        if numbers and ability[1] > 0.0:
            return
    raise InputError(f"ability={ability!r}: give (mean, SD) of ability, the SD positive")


def _steps(table: ItemTable, named: str) -> list[list[float]]:
    """Numbers of the columns ``named.format(k)``, k = 1, 2, ..., as far as an item has them."""
    columns = table.matching(re.escape(named).replace(r"\{\}", "[1-9][0-9]?"))
    order = [named.format(k) for k in range(1, len(columns) + 1)]
    for column in order:
        if column not in columns:
            raise InputError(f"the item bank {table.path} has no column {column}, and later ones")
    found = []
    for j in range(len(table.frame)):
        values = [float(columns[c][j]) for c in order]
        n = sum(not math.isnan(x) for x in values)
        for k in range(n):
            if math.isnan(values[k]):
                raise table.fault(j, order[k], "nothing stands there, and in a later step")
        found.append(values[:n])
    return found


def _errors(table: ItemTable, *columns: str) -> list[dict[str, float]]:
    """Standard errors of columns, of each item."""
    known = {c: table.numbers(f"se_{c}", may_lack=True) for c in columns if f"se_{c}" in table}
    return [
        {c: float(x[j]) for c, x in known.items() if not math.isnan(x[j])}
        for j in range(len(table.frame))
    ]


def _check_none(table: ItemTable, **neutral: float) -> None:
    """Stop at asymptotes that the convention does not have."""
    for column, value in neutral.items():
        values = table.numbers(column, may_lack=True) if column in table else np.array([])
        for j in np.flatnonzero(np.isfinite(values) & (values != value)):
            raise table.fault(int(j), column, f"{values[j]:g}: the convention has no such column")


# --- conventions ----------------------------------------------------------------------------------


def _tam(table: ItemTable) -> list[Row]:
    """P(k) proportional to ``exp(B_k theta - AXsi_k)``, k = 0 too; ``guess`` is an asymptote."""
    table.check_columns("AXsi_.Cat1", "B.Cat1.Dim1")
    for column, values in table.matching(r"B\.Cat[0-9]+\.Dim([2-9]|[1-9][0-9]+)").items():
        for at in np.flatnonzero(np.nan_to_num(values)):
            raise table.fault(int(at), column, "items of several abilities are not available here")
    found = []
    of_scores = table.matching(r"B\.Cat[0-9]+\.Dim1")
    first, of_first, guess = (
        np.nan_to_num(table.numbers(c, may_lack=True)) if c in table else np.zeros(len(table.frame))
        for c in ("AXsi_.Cat0", "B.Cat0.Dim1", "guess")
    )
    for j, steps in enumerate(_steps(table, "AXsi_.Cat{}")):
        if not steps:
            raise table.fault(j, "AXsi_.Cat1", "nothing stands there")
        scores = []
        for k in range(1, len(steps) + 1):
            column = f"B.Cat{k}.Dim1"
            if column not in of_scores or math.isnan(of_scores[column][j]):
                raise table.fault(j, column, "nothing stands there")
            scores.append(float(of_scores[column][j] - of_first[j]))
        row = divided_by_total(table.items[j], scores, [float(first[j]) - x for x in steps])
        if guess[j] != 0.0:
            if row.several:
                raise table.fault(
                    j, "guess", f"{guess[j]:g}: it is for rising items of two categories"
                )
            row = replace(row, more={"c": float(guess[j])})
        found.append(row)
    return found


def divided_by_total(item: object, scores: list[float], steps: list[float]) -> Row:
    """The item of scores s_k and intercepts d_k: of partial credit if its scores are even."""
    even = scores[0] * np.arange(1.0, len(scores) + 1)
    if scores[0] != 0.0 and np.allclose(scores, even, rtol=_SAME, atol=0.0):
        return Row(item, "gpcm" if len(steps) > 1 else "", steps, scores[0])
    return Row(item, "nominal", steps, scores=scores)


def _oplm(table: ItemTable) -> list[Row]:
    """P(k) proportional to ``exp(sum_{v<=k} a (theta - b_v))``, a whole."""
    table.check_columns("a", "b1")
    _check_none(table, c=0.0, u=1.0)
    slopes, steps = table.numbers("a"), _steps(table, "b{}")
    errors = _errors(table, *(f"b{k}" for k in range(1, max(map(len, steps)) + 1)))
    found: list[Row] = []
    for item, a, b, se in zip(table.items, slopes, steps, errors, strict=True):
        j = len(found)
        if a < 1.0 or a != round(a):
            raise table.fault(j, "a", f"{a:g} is no whole number from 1 on, as OPLM's are")
        if not b:
            raise table.fault(j, "b1", "nothing stands there")
        more = {"b": se["b1"]} if len(b) == 1 and "b1" in se else {}
        model = "gpcm" if len(b) > 1 else ""
        found.append(Row(item, model, list(-a * np.cumsum(b)), float(a), errors=se | more))
    return found


def _naep(table: ItemTable) -> list[Row]:
    """P(k) proportional to ``exp(sum_{v<=k} 1.7 a (theta - b + d_v))``, or the 3PL."""
    table.check_columns("a", "b")
    _check_none(table, u=1.0)
    a, b = table.numbers("a"), table.numbers("b")
    c = table.numbers("c", may_lack=True) if "c" in table else np.full(len(a), np.nan)
    found = []
    of_errors = _errors(table, "a", "b", "c")
    for j, (d, se) in enumerate(zip(_steps(table, "d{}"), of_errors, strict=True)):
        slope = _D * float(a[j])
        if slope == 0.0:
            raise table.fault(j, "a", "it must not be 0")
        if "a" in se:
            se["a"] *= _D
        if not d:
            more = {} if math.isnan(c[j]) else {"c": float(c[j])}
            found.append(Row(table.items[j], "", [-slope * b[j]], slope, more=more, errors=se))
            continue
        if np.nan_to_num(c[j]) != 0.0:
            raise table.fault(j, "c", f"{c[j]:g}: items with category parameters have none")
        if len(d) == 1 or abs(np.mean(d)) > _ROUNDED:
            raise table.fault(
                j, "d1", f"the category parameters are {', '.join(f'{x:g}' for x in d)}; they must "
                f"be two or more, and their sum 0",
            )  # fmt: skip
        steps = slope * np.cumsum(np.array(d) - b[j])
        found.append(Row(table.items[j], "gpcm", list(steps), slope, errors=se))
    return found


_ROWS: dict[str, Callable[[ItemTable], list[Row]]] = {"tam": _tam, "oplm": _oplm, "naep": _naep}
