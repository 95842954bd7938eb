"""The page of published tables: one HTML file with pictures, and nothing to load from elsewhere."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from irt_dask.errors import InputError
from irt_dask.report import table_plots
from irt_dask.report.figures import Image, inline
from irt_dask.report.page import template
from irt_dask.report.tables import NOTHING, Table, number
from irt_dask.store.documents import to_csv
from irt_dask.store.manifest import write_atomically
from irt_dask.store.places import local_path
from irt_dask.survey.linking import DRAWN, LINKING

#: Rows that are shown, and groups up to which pictures are drawn.
_MOST_ROWS, _MOST_GROUPS = 2000, 400
#: Pictures of a table.
_MOST_IMAGES = 12


@dataclass(frozen=True)
class _Shown:
    name: str
    images: list[Image]
    table: Table
    csv: str
    file: str
    n: str


def write_tables(
    path: str | Path, tables: Mapping[str, pd.DataFrame], *, title: str, notes: Sequence[str] = ()
) -> Path:
    """Write tables of groups as one self-contained page, and return its path.

    ``tables`` are results of :func:`irt_dask.tabulate`, ``regress`` or ``trend`` by name.  Of the
    first and the last means and gaps are drawn, and percentiles where there are some; each can be
    downloaded as CSV with all its digits.
    """
    path = new_page(path)
    if not tables:
        raise InputError("a page of tables needs one at least")
    shown = [_shown(name, table) for name, table in tables.items()]
    notes = [*_linked(tables.values()), *notes]
    text = template("published.html").render(title=title, tables=shown, notes=notes)
    write_atomically(path, text.encode(errors="replace"))
    return path


def new_page(path: str | Path) -> Path:
    """The path of a page to write; another ending and a folder that is none are refused."""
    path = local_path(path, "a report")
    if path.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"a report is a page: {path} does not end in .html")
    if not path.absolute().parent.is_dir():
        raise InputError(f"cannot write {path}: the folder {path.absolute().parent} does not exist")
    return path


def _shown(name: str, table: pd.DataFrame) -> _Shown:
    data = base64.b64encode(to_csv(table).encode()).decode("ascii")
    file = re.sub(r"[^\w.-]+", "_", name).strip("_") or "table"
    images, n_left = _images(table)
    return _Shown(
        name, images, _as_text(table, n_left), f"data:text/csv;charset=utf-8;base64,{data}",
        f"{file}.csv", f"{len(table):,}",
    )  # fmt: skip


def _linked(tables: Iterable[pd.DataFrame]) -> list[str]:
    """What to know of the errors of changes, and of linking errors in values, if there are some."""
    tables = list(tables)
    held = [bool((t[LINKING] == DRAWN).any()) if LINKING in t else False for t in tables]
    said = [t["se_linking"].dropna() for t in tables if "se_linking" in t]
    own = [t["se_linking"].dropna() for t, has in zip(tables, held, strict=True)
           if "se_linking" in t and not has]  # fmt: skip
    out = []
    if any(errors.any() for errors in said) or own:
        text = (
            "Errors of changes hold the error of the link between the two scales, once "
            "(se_linking)."
        )
        if any(len(errors) and not errors.any() for errors in own):
            text += (
                " It was said to be 0: what other common items would have given is then in no "
                "error here."
            )
        out.append(text)
    if any(held):
        out.append(
            "Where linking says drawn, the error of the link between two scales is in the "
            "plausible values, and so in se_imputation."
        )
    return out


def _as_text(table: pd.DataFrame, n_left: int) -> Table:
    """Rows as text: estimates and their errors to three significant digits of the error."""
    head = tuple(c for c in table if table[c].notna().any())
    some = table.head(_MOST_ROWS)
    numbers = [c for c in head if pd.api.types.is_float_dtype(table[c])]
    scaled = [c for c in numbers if c not in ("df", "fraction_missing")]
    digits = [_digits(r) for r in some[[c for c in ("se", "estimate") if c in table]].to_numpy()]
    rows = []
    for k, row in enumerate(some[list(head)].itertuples(index=False)):
        cells = []
        for c, value in zip(head, row, strict=True):
            if c in scaled:
                cells.append(number(float(value), digits[k]))
            elif c in numbers:
                cells.append(number(float(value), 0 if c == "df" else 2))
            elif isinstance(value, (int, np.integer)):
                cells.append(f"{value:,}")
            else:
                cells.append(NOTHING if value is None or value != value else str(value))
        rows.append(cells)
    more = len(table) - len(some)
    remarks = [f"{more:,} more rows are in the CSV file."] if more else []
    if n_left:
        remarks.append(
            f"Pictures that are not drawn: {n_left:,}; at most {_MOST_IMAGES} are, of up to "
            f"{_MOST_GROUPS} groups each."
        )
    return Table(head, rows, tuple(remarks))


def _digits(errors: np.ndarray) -> int:
    """Digits after the point: three significant ones of the error, or of the estimate without."""
    for value in errors.astype(float):
        if np.isfinite(value) and value != 0.0:
            return int(np.clip(2 - math.floor(math.log10(abs(value))), 0, 6))
    return 3


def _images(table: pd.DataFrame) -> tuple[list[Image], int]:
    """Pictures of means, gaps and percentiles of each variable; and how many are left out."""
    if "statistic" not in table:  # a regression
        return [], 0
    out: list[Image] = []
    n_left = 0
    kinds = table["row"] if "row" in table else pd.Series("group", index=table.index)
    for variable in table["variable"].astype(str).unique():
        of = table[(table["variable"].astype(str) == variable) & table["estimate"].notna()]
        own = kinds[of.index]
        for row, what in (("group", "groups"), ("gap", "gaps")):
            statistic = _first(of[own == row])
            n = int(((of["statistic"] == statistic) & (own == row)).sum())
            n_left += n > _MOST_GROUPS
            if statistic is None or not 1 < n <= _MOST_GROUPS:
                continue
            ax = table_plots.groups(table, statistic=statistic, variable=variable, row=row)
            alt = f"{statistic} of {variable} in {n} {what}, with intervals; the table has them"
            out.append(inline(ax, alt, f"{statistic} of {variable}: {what} from the largest down."))
        levels = of[own == "group"]["statistic"].astype(str).value_counts()
        levels = levels[[s for s in levels.index if re.fullmatch(r"p\d+(\.\d+)?", s)]]
        everywhere = len(levels) > 1 and levels.min() == levels.max() <= _MOST_GROUPS
        if everywhere and "earlier" not in table:
            ax = table_plots.percentiles(table, variable=variable)
            alt = f"percentiles of {variable} by group as bands; the table has them"
            out.append(
                inline(ax, alt, f"Percentiles of {variable}, and the mean with its interval.")
            )
    return out[:_MOST_IMAGES], n_left + max(0, len(out) - _MOST_IMAGES)


def _first(rows: pd.DataFrame) -> str | None:
    """The statistic to draw: the mean, or the first there is."""
    there = list(rows["statistic"].astype(str).unique())
    return "mean" if "mean" in there else next(iter(there), None)
