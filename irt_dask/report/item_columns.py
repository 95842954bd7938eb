"""The columns of the report's item table as numbers, and as the text that is shown of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import xarray as xr

from irt_dask.arrays import Floats
from irt_dask.curves import MORE_PARAMETERS
from irt_dask.errors import InputError
from irt_dask.report.common import item_ids, optional, spread
from irt_dask.report.tables import MOST_ITEMS, NOTHING, PARAMETERS, Table, number

_ASYMPTOTES = {p.variable for p in MORE_PARAMETERS}


@dataclass(frozen=True)
class Column:
    """A column: words, or numbers with digits after the point and errors, if they have some."""

    name: str
    words: tuple[str, ...] | None = None
    #: (items,), or (items, steps) with NaN beyond an item's.
    values: Floats | None = None
    errors: Floats | None = None
    digits: int = 3

    def head(self, n: int) -> Column:
        """The column of the first ``n`` items."""
        return replace(
            self,
            words=None if self.words is None else self.words[:n],
            values=None if self.values is None else self.values[:n],
            errors=None if self.errors is None else self.errors[:n],
        )

    def cells(self) -> list[str]:
        """What is shown; of several steps a line each, of a single one nothing."""
        if self.words is not None:
            return list(self.words)
        values = self.values
        assert values is not None
        errors = np.full(values.shape, np.nan) if self.errors is None else self.errors
        if values.ndim == 1:
            return [self._cell(v, e) for v, e in zip(values, errors, strict=True)]
        cells = []
        for vs, es in zip(values, errors, strict=True):
            steps = [
                f"{k}: {self._cell(v, e)}"
                for k, (v, e) in enumerate(zip(vs, es, strict=True), 1)
                if not np.isnan(v)
            ]
            cells.append("\n".join(steps) if len(steps) > 1 else NOTHING)
        return cells

    def _cell(self, value: float, error: float) -> str:
        if np.isnan(value) or np.isnan(error):
            return number(value, self.digits)
        return f"{number(value, self.digits)} ± {number(error, self.digits)}"


def columns_of(
    fit: xr.Dataset,
    joint: xr.Dataset | None,
    spectral: xr.Dataset | None,
    truth: xr.Dataset | None,
    *,
    name: str = "posterior",
) -> list[Column]:
    """Columns of all items of ``fit``, whose order they have; ``name`` is what it is called."""
    ids = item_ids(fit)
    if not ids:
        raise InputError(f"the {name} has no items to report")
    columns = [Column("item", tuple(ids)), *_models(fit)]
    columns += _counts(ids, [f for f in (fit, joint, spectral) if f is not None])
    for owner, dataset, bars in (
        (name, fit, True),
        ("joint ML", joint, True),
        ("spectral", spectral, False),
        ("true", truth, False),
    ):
        steps: Column | None = None
        for symbol, variable in PARAMETERS:
            if dataset is None or (owner == "spectral" and symbol == "a"):
                continue
            column = _parameter(ids, dataset, f"{owner} {symbol}", variable, bars)
            # thresholds of partial credit items are no steps; of graded ones they are the same
            if column is not None and (steps is None or column.cells() != steps.cells()):
                columns.append(column)
            if symbol == "steps":
                steps = column
    return columns


def _parameter(
    ids: Sequence[str], dataset: xr.Dataset, name: str, variable: str, bars: bool
) -> Column | None:
    """Values with their errors; None where no item has any."""
    values = optional(dataset, variable, ids)
    if values is None:
        return None
    errors = spread(dataset, variable, ids) if bars else None
    if values.ndim == 1:
        k = optional(dataset, "item_n_categories", ids)
        if variable in _ASYMPTOTES and k is not None:
            values = np.where(k > 2, np.nan, values)  # these items have none
        return Column(name, values=values, errors=errors)
    # a score of category 0 is 0, and a single step is in the other columns
    first = 1 if variable == "item_category_score" else 0
    values = values[:, first:]
    errors = None if errors is None else errors[:, first:]
    several = np.isfinite(values).sum(axis=1) > 1
    return Column(name, values=values, errors=errors) if several.any() else None


def _models(fit: xr.Dataset) -> list[Column]:
    """Columns of the models and numbers of categories, where items differ in them."""
    if "item_model" not in fit:
        return []
    names = tuple(str(name) for name in fit["item_model"].values)
    categories = tuple(str(k) for k in fit["item_n_categories"].values)
    return [Column("model", names), Column("categories", categories)]


def _counts(ids: Sequence[str], fits: Sequence[xr.Dataset]) -> list[Column]:
    """Columns of the number of responses and the share right, of the first fit that has them.

    Right is the highest of more than two categories.
    """
    for fit in fits:
        n, right = (optional(fit, f"item_n_{of}", ids) for of in ("responses", "right"))
        if n is None:
            continue
        columns = [Column("responses", values=n, digits=0)]
        if right is not None:
            with np.errstate(divide="ignore", invalid="ignore"):
                several = bool((fit.get("item_n_categories", np.array(2)) > 2).any())
                name = "% highest" if several else "% right"
                columns.append(Column(name, values=100 * right / n, digits=1))
        return columns
    return []


def item_table(columns: Sequence[Column]) -> Table:
    """Make the table that pages show without scripts: the first 500 items."""
    everything = len(columns[0].words or ())
    shown = [column.head(MOST_ITEMS).cells() for column in columns]
    remarks: tuple[str, ...] = ()
    if left := everything - len(shown[0]):
        remarks = (
            f"The table shows the first {MOST_ITEMS} of {everything:,} items; {left:,} are "
            "left out. The file items.csv has them all.",
        )
    rows = [list(r) for r in zip(*shown, strict=True)]
    return Table(tuple(c.name for c in columns), rows, remarks)
