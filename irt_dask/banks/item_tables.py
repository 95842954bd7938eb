"""What a file says of items before they are calibrated: their blocks, and covariates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from irt_dask.banks.tables import ItemTable, lacking, number, read_table
from irt_dask.errors import InputError, repeated
from irt_dask.store.documents import with_sign


def read_item_covariates(path: str | Path) -> dict[str, Any]:
    """Read a .csv or .json of columns ``item`` and covariates: an option of ``fit_marginal``.

    A column is of numbers if all its cells are, else of text: of levels.

    Raises
    ------
    InputError
        Names the file; the item and the column where a number has a decimal comma, or one cell of
        a column of numbers is something else, which would make a level of each of them.
    """
    table = read_table(path, "item table")
    table.check_columns("item")
    table.check_items()
    names = [str(c) for c in table.frame if c != "item"]
    if not names:
        raise InputError(f"the item table {path} has no column besides item: give covariates")
    columns = {name: _covariate(table, name) for name in names}
    return {"item_covariates": pd.DataFrame(columns, index=[str(i) for i in table.items])}


def _covariate(table: ItemTable, name: str) -> Any:
    cells = list(table.frame[name])
    there = [k for k, cell in enumerate(cells) if not lacking(cell)]
    others = [k for k in there if number(cells[k], True) is None]
    if not others:
        return table.numbers(name, may_lack=True)
    commas = [k for k in others if with_sign(cells[k], ",")]
    odd = [k for k in others if k not in commas]
    mostly = 2 * len(odd) < len(there)
    if commas and mostly:
        k = commas[0]
        raise table.fault(k, name, f"{cells[k]!r} is no number: write it with a decimal point")
    if mostly:
        k = odd[0]
        raise table.fault(
            k, name, f"{cells[k]!r} is no number, and {len(there) - len(odd)} of {len(there)} "
            f"cells of the column are: correct or empty it, or write levels as words, such as "
            f"{name}{cells[there[0]]}",
        )  # fmt: skip
    return [word or None for word in table.words(name)]


def read_item_table(path: str | Path) -> dict[str, Any]:
    """Read a .csv or .json of columns ``item``, ``block``, and numbers: options of ``fit_bayes``.

    Either may be missing: the block, or all columns of numbers.

    Raises
    ------
    InputError
        Names the file, the item and the column.
    """
    table = read_table(path, "item table")
    table.check_columns("item")
    table.check_items()
    items = [str(item) for item in table.items]
    if twice := repeated(items):
        raise InputError(f"the item table {path} has the item {twice[0]!r} twice")
    out: dict[str, Any] = {}
    if "block" in table:
        labels = table.words("block")
        if "" in labels:
            raise table.fault(labels.index(""), "block", "there is no label")
        out["item_blocks"] = dict(zip(items, labels, strict=True))
    numbers = [str(c) for c in table.frame if c not in ("item", "block")]
    if numbers:
        columns = {name: table.numbers(name) for name in numbers}
        out["item_covariates"] = pd.DataFrame(columns, index=items)
    if not out:
        raise InputError(
            f"the item table {path} has no column besides item: give block, or numbers"
        )
    return out
