"""What the report page carries as data: tables as CSV, and JSON inside a script element."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pandas as pd

from irt_dask.report.tables import NOTHING, Table
from irt_dask.store.documents import to_csv

_NUMBER = re.compile(r"-?[0-9]{1,3}(?:,[0-9]{3})*(?:\.[0-9]+)?\Z")
#: In a script element: what could end it, and line ends that old scripts take for such.
_UNSAFE = {c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}
_PLUS_MINUS = " ± "


def csv_uri(table: Table) -> str:
    """Return a ``data:`` URI of the table as CSV.

    Numbers are those shown, without separators of thousands; what stands after ± is a column of its
    own; a dash is an empty cell.
    """
    columns: dict[str, list[str]] = {}
    for k, name in enumerate(table.head):
        cells = [row[k] for row in table.rows]
        parts = [cell.split(_PLUS_MINUS) for cell in cells]
        # the first column names the row, and names may hold anything
        numbers = all(_is_number(x) for part in parts for x in part)
        if k and numbers and any(len(p) == 2 for p in parts):
            columns[name] = [_plain(p[0]) for p in parts]
            columns[f"{name} ±"] = [_plain(p[1]) if len(p) == 2 else "" for p in parts]
        elif k:
            columns[name] = [_plain(cell) for cell in cells]
        else:
            columns[name] = cells
    return text_uri(to_csv(pd.DataFrame(columns)))


def text_uri(text: str) -> str:
    """Return a ``data:`` URI of a CSV file."""
    data = base64.b64encode(text.encode(errors="replace")).decode("ascii")
    return f"data:text/csv;charset=utf-8;base64,{data}"


def in_script(value: Any) -> str:
    """Return JSON that no script element ends at; numbers have to be finite."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return re.sub("[<>&\u2028\u2029]", lambda m: _UNSAFE[m[0]], text)


def _is_number(cell: str) -> bool:
    return cell == NOTHING or _NUMBER.match(cell) is not None


def _plain(cell: str) -> str:
    if cell == NOTHING:
        return ""
    return cell.replace(",", "") if _NUMBER.match(cell) else cell
