"""Predictors of a regression: columns of a table as a design matrix, a batch at a time."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pandas as pd

from irt_dask.arrays import Floats
from irt_dask.errors import DataWarning, InputError, listed
from irt_dask.population.formula import INTERCEPT, Formula
from irt_dask.store.documents import with_sign
from irt_dask.survey.delimited import COMMAS, POINTS
from irt_dask.survey.tables import Table, whole

#: Levels of a column of text at most: more is an identifier.
_MOST_LEVELS = 1000


class Predictors:
    """A formula's right-hand side over a table, whose levels are those of the whole table.

    Making one is a pass over the columns of the formula. Categories are coded by treatment
    contrasts, the first level in sorted order left out, unless the formula says otherwise; every
    batch has the same columns.
    """

    def __init__(self, formula: str, table: Table) -> None:
        of = Formula(formula, table.columns)
        self.columns = of.columns
        used = sorted({*of.columns, *of.named})
        table.label(used)
        examples = _examples(table, used, of.categories)
        self._terms = of.bound(examples)
        self.terms = self._terms.names
        self.intercept = self.terms.index(INTERCEPT) if INTERCEPT in self.terms else None
        #: What is taken from each term, so that squares of years lose nothing; 0 without intercept.
        self.shift = np.zeros(len(self.terms))
        if self.intercept is not None:
            self.shift = self._terms.matrix(examples).mean(axis=0)
            self.shift[self.intercept] = 0.0

    def matrix(self, batch: pd.DataFrame) -> Floats:
        """(persons, terms), less the shift; NaN for a person who lacks a predictor."""
        out = np.full((len(batch), len(self.terms)), np.nan)
        there = batch[self.columns].notna().to_numpy().all(axis=1)
        if there.any():
            some = batch.loc[there, self.columns] if self.columns else batch.loc[there]
            out[there] = self._terms.matrix(some)
        return out - self.shift


def _examples(table: Table, columns: Sequence[str], categories: set[str]) -> pd.DataFrame:
    """A small table in which every level of every column of text or few numbers occurs."""
    if not columns:
        return pd.DataFrame(index=range(1))
    levels: dict[str, dict[Any, None]] = {name: {} for name in columns}
    for batch in table.batches(columns):
        for name in columns:
            if len(levels[name]) <= _MOST_LEVELS:
                found = batch[name].dropna().unique().tolist()
                levels[name] |= dict.fromkeys(map(whole, found) if name in categories else found)
            if len(levels[name]) > _MOST_LEVELS and (
                name in categories or not pd.api.types.is_numeric_dtype(batch[name])
            ):
                if name not in categories:
                    _check_sign(table, name, levels[name])
                raise InputError(
                    f"column {name!r} has more than {_MOST_LEVELS:,} levels: is it an identifier?"
                )
    for name, found in levels.items():
        if not found:
            raise InputError(f"column {name!r} has no values")
        if name not in categories:
            _check_sign(table, name, found)
        _warn_of_missing(table, name, found)
    n = max(map(len, levels.values()))
    return pd.DataFrame({name: np.resize(np.array(sorted(found, key=_order), dtype=object), n)
                         for name, found in levels.items()}).infer_objects()  # fmt: skip


def _warn_of_missing(table: Table, name: str, levels: Collection[Any]) -> None:
    """Say which levels may have meant that one is missing.

    In text NA is a level, as it is a group in `by`; it may be the first, which no term has.
    """
    if said := sorted({*map(str, levels)} & {*table.like_missing(name)}):
        warnings.warn(
            f"column {name!r} is text, in which {listed(said)} is a level as others are; leave "
            f"cells empty where it says that something is missing",
            DataWarning,
            stacklevel=5,
        )


def _check_sign(table: Table, name: str, levels: Collection[Any]) -> None:
    """Refuse numbers that were read as text for their decimal sign, whatever means missing.

    They would be categories, as nobody said that they are.
    """
    sign, said = (".", POINTS) if table.takes_commas(name) else (",", COMMAS)
    there = [level for level in levels if level not in table.like_missing(name)]
    signed = [level for level in there if with_sign(level, sign)]
    if signed and all(str(v).strip().lstrip("+-").isdigit() or with_sign(v, sign) for v in there):
        raise InputError(
            f"column {name!r}: {signed[0]!r} is not a number{said}, and if these are categories "
            f"write C({name})"
        )


def _order(level: Any) -> tuple[bool, Any]:
    """Numbers in their order, text after them."""
    return isinstance(level, str), level
