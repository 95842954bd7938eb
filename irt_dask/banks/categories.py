"""The columns of banks whose items have any number of categories."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from irt_dask.arrays import Floats
from irt_dask.banks.rows import OF_ITEMS, OF_STEPS, Row, bank_of
from irt_dask.banks.tables import ItemTable
from irt_dask.curves import FAMILIES, MODELS, MORE_PARAMETERS, model_named
from irt_dask.curves.base import ADJACENT
from irt_dask.curves.item_set import ItemSet
from irt_dask.errors import InputError
from irt_dask.items.described import described
from irt_dask.items.mixture import Mixture

#: Columns of steps and categories: d1, b2, s3.
OF_A_STEP = "[dbs][1-9][0-9]?"
#: Column: numbers of the categories of an item of which some are empty, as in ``0 1 . 2``.
_MAP, _EMPTY = "category_map", "."
#: How near numbers of a row must be that say the same, by share and in itself.
_NEAR = 1e-3


def several(items: ItemSet) -> bool:
    """Whether some item has more than two categories, or nominal ones."""
    return any(g.model.n_categories > 2 or g.model.name == "nominal" for g in items.groups)


def is_of_several(table: ItemTable) -> bool:
    """Whether the file has columns or models of items of more than two categories."""
    steps = any(re.fullmatch(OF_A_STEP, str(c)) for c in table.frame)
    models = {*table.words("model")} if "model" in table else set()
    return steps or "categories" in table or not models.isdisjoint(FAMILIES)


# --- written --------------------------------------------------------------------------------------


def columns(items: xr.Dataset, known: ItemSet) -> dict[str, Any]:
    """Return the columns of parameters and their errors; NaN where an item has none.

    An item of two categories has its intercept and difficulty in the columns d and b alone.
    """
    own = {name: value.T for name, (value, _) in described(*Mixture.of_items(known)).items()}
    of_two = np.zeros(known.n_items, dtype=bool)
    for g in known.groups:
        of_two[g.at] = g.model.name in MODELS
    for p in MORE_PARAMETERS:
        if p.variable in own or (p.always_written and of_two.any()):
            own[p.variable] = np.where(of_two, known.column(p), np.nan)
    errors = {
        name: items[f"{name}_{kind}"].values
        for name in own
        for kind in ("se", "sd")
        if f"{name}_{kind}" in items
    }
    found, of_errors = (_of_items(x) | _of_steps(x, of_two) for x in (own, errors))
    se = {f"se_{column}": x for column, x in of_errors.items()}
    models = Mixture.of_items(known)[0]
    maps: dict[str, Any] = {}
    if models.empty.any():
        each = zip(models.category_map, models.n_categories, strict=True)
        texts = [" ".join(_EMPTY if n < 0 else str(n) for n in x[:k]) for x, k in each]
        maps[_MAP] = [text if _EMPTY in text else None for text in texts]
    return {"categories": known.n_categories, **maps, **found, **se}


def _finite(x: Floats) -> Floats:
    return np.where(np.isfinite(x), x, np.nan)


def _of_items(of: dict[str, Any]) -> dict[str, Any]:
    """Columns a, b, d, ... of variables."""
    return {letter: _finite(of[name]) for letter, name in OF_ITEMS.items() if name in of}


def _of_steps(of: dict[str, Any], of_two: Any) -> dict[str, Any]:
    """Columns d1, d2, ..., b1, ..., s1, ... of variables (items, steps or categories)."""
    out = {}
    for letter, name in OF_STEPS.items():
        if name in of:
            values = of[name][:, letter == "s" :]  # s_0 is 0
            for k, x in enumerate(values.T, start=1):
                out[f"{letter}{k}"] = _finite(np.where(of_two, np.nan, x))
    return out


# --- read -----------------------------------------------------------------------------------------


def bank(table: ItemTable, more: dict[str, Any], attrs: dict[str, Any]) -> xr.Dataset:
    """Return the items of a table; what it says twice must agree."""
    letters = "|".join((*OF_ITEMS, OF_A_STEP))
    given = table.matching(letters)
    errors = {c.removeprefix("se_"): x for c, x in table.matching(f"se_({letters})").items()}
    models = table.words("model") if "model" in table else [""] * len(table.frame)
    k = np.full(len(table.frame), np.nan)
    if "categories" in table:
        k = table.numbers("categories", may_lack=True)
    maps = table.words(_MAP) if _MAP in table else [""] * len(table.frame)
    rows = []
    for j, item in enumerate(table.items):
        of = {c: float(x[j]) for c, x in given.items() if not math.isnan(x[j])}
        se = {c: float(x[j]) for c, x in errors.items() if not math.isnan(x[j])}
        rows.append(_Reader(table, j, of, models[j], maps[j]).row(item, k[j], se))
    found = bank_of(rows, table.path, more=more, attrs=attrs)
    _check_agreement(table, given, found)
    return found


class _Reader:
    """One row of a table."""

    def __init__(
        self, table: ItemTable, at: int, given: dict[str, float], model: str, category_map: str
    ) -> None:
        self.table, self.at, self.given, self.model = table, at, given, model
        if not all(re.fullmatch(r"\.|[0-9]+", n) for n in category_map.split()):
            raise self._fault(_MAP, f"{category_map!r}: give numbers as in 0 1 . 2, . is empty")
        self.map = tuple(-1 if n == _EMPTY else int(n) for n in category_map.split())

    def _fault(self, column: str, what: str) -> InputError:
        return self.table.fault(self.at, column, what)

    def row(self, item: Any, categories: float, errors: dict[str, float]) -> Row:
        """The item; stops at what it lacks, and at what its model does not have."""
        k = self._n_categories(categories)
        nominal = self.model == "nominal"
        if self.map:
            self._check_map(k)
        if k == 2 and not nominal:
            model = self.model if self.model in MODELS else ""
            slope, steps = self._slope(), [self._intercept_of_two()]
            more = self._asymptotes()
            return Row(item, model, steps, slope, more=more, errors=errors)
        for p in MORE_PARAMETERS:
            if self.given.get(p.letter, p.neutral) != p.neutral:
                raise self._fault(p.letter, f"items of model {self.model} have no {p.name}")
        if nominal:
            scores = self._all("s", k)
            rises = self._rises(scores)
            steps = self._steps(k, rises)
            return Row(item, "nominal", steps, scores=scores, errors=errors, category_map=self.map)
        slope = self._slope()
        steps = self._steps(k, slope * self._rises(self.map[1:] or range(1, k)))
        return Row(item, self.model, steps, slope, errors=errors, category_map=self.map)

    def _check_map(self, k: int) -> None:
        try:
            model_named(self.model, k, self.map)
        except InputError as error:
            raise self._fault(_MAP, str(error)) from None

    def _missing(self, step: int) -> bool:
        """Whether there is no step to this category: it is empty, or the lowest that is not."""
        return bool(self.map) and self.map[step] < 1

    def _rises(self, of: Sequence[float]) -> Floats:
        """What categories from 1 on have more than the next lower one that is not empty."""
        there = [not self._missing(k) for k in range(1, len(of) + 1)]
        out = np.full(len(of), np.nan)
        out[there] = np.diff(np.asarray(of, dtype=float)[there], prepend=0.0)
        return out

    def _n_categories(self, said: float) -> int:
        """K, as the row says or its steps do; stops at steps beyond, and at other models."""
        known = (*MODELS, *FAMILIES)
        if self.model and self.model not in known:
            raise self._fault("model", f"{self.model!r} is none; known are {', '.join(known)}")
        steps = [c for c in self.given if re.fullmatch(OF_A_STEP, c)]
        most = max((int(c[1:]) for c in steps), default=1)
        if math.isnan(said):
            said = most + 1
        if said < 2 or said != round(said):
            raise self._fault("categories", f"{said:g} is no number of categories, 2 or more")
        k = int(said)
        for c in steps:
            if int(c[1:]) >= k:
                raise self._fault(c, f"an item of {k} categories has {k - 1} step(s)")
            if c[0] == "s" and self.model != "nominal":
                raise self._fault(c, "only items of model nominal have category scores")
        if k > 2 and self.model not in FAMILIES:
            named = f"model {self.model!r} is for two" if self.model else "no model is given"
            raise self._fault(
                "model", f"it has {k} categories, and {named}; give one of {', '.join(FAMILIES)}"
            )
        return k

    def _slope(self) -> float:
        if "a" not in self.given:
            raise self._fault("a", "nothing stands there")
        if self.given["a"] == 0.0:
            raise self._fault("a", "it must not be 0")
        return self.given["a"]

    def _intercept_of_two(self) -> float:
        """d, out of the first column that has it."""
        for column, factor in (("d", 1.0), ("d1", 1.0), ("b", -1.0), ("b1", -1.0)):
            if column in self.given:
                value = factor * self.given[column]
                return value if factor > 0.0 else value * self.given["a"]
        raise self._fault("b", "nothing stands there (or in d)")

    def _asymptotes(self) -> dict[str, float]:
        own = MODELS[self.model].parameters if self.model in MODELS else ()
        for p in MORE_PARAMETERS:
            if p in own and p.letter not in self.given:
                raise self._fault(p.letter, f"nothing stands there, and model {self.model} has it")
        return {p.letter: self.given[p.letter] for p in MORE_PARAMETERS if p.letter in self.given}

    def _all(self, letter: str, k: int) -> list[float]:
        """Numbers of all steps, or categories from 1 on."""
        for step in range(1, k):
            if f"{letter}{step}" not in self.given and not self._missing(step):
                raise self._fault(
                    f"{letter}{step}",
                    f"nothing stands there, and model {self.model} with {k} categories has it",
                )
        return [
            math.nan if self._missing(step) else self.given[f"{letter}{step}"]
            for step in range(1, k)
        ]

    def _steps(self, k: int, rises: Floats) -> list[float]:
        """Step intercepts: d, or what b says where the scores of categories rise by ``rises``."""
        first = next(step for step in range(1, k) if not self._missing(step))
        if f"d{first}" in self.given or f"b{first}" not in self.given:
            return self._all("d", k)
        moved = -rises * self._all("b", k)
        if model_named(self.model, k).steps == ADJACENT:
            there = ~np.isnan(moved)
            moved[there] = moved[there].cumsum()
        return list(moved)


def _check_agreement(table: ItemTable, given: dict[str, Floats], found: xr.Dataset) -> None:
    """Stop at a number that contradicts those that the curve was made of."""
    for column, values in given.items():
        if np.isnan(values).all():  # no item has that many steps
            continue
        letter, step = column[0], column[1:]
        name = OF_STEPS[letter] if step else OF_ITEMS[letter]
        if name in found:
            of = found[name].values
            of = of[:, int(step) - (letter != "s")] if step else of
        elif step:  # of items that all have two categories
            of = found[OF_ITEMS[letter]].values
        else:  # asymptotes at which there are none
            continue
        apart = np.isfinite(values) & ~np.isclose(values, of, rtol=_NEAR, atol=_NEAR)
        for j in np.flatnonzero(apart):
            raise table.fault(
                int(j), column,
                f"{values[j]:g} stands there, and by other columns of the item it is {of[j]:.6g}; "
                f"leave out the one that is wrong, or the column that means something else",
            )  # fmt: skip
