"""What a file says of items before they are calibrated: their blocks, and covariates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from irt_dask.banks.tables import read_table
from irt_dask.errors import InputError, repeated


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
