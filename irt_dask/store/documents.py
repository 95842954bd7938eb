"""JSON and TOML that somebody else may have written, and CSV that a spreadsheet will open."""

from __future__ import annotations

import csv
import json
import re
import tomllib
from typing import TYPE_CHECKING, Any, NoReturn

from irt_dask.errors import repeated
from irt_dask.variables import ITEMS

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

_UNSIGNED = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
#: What a spreadsheet takes for a formula, after apostrophes: numbers are none.
_FORMULA = re.compile(rf"'*(?:[=@\t\r\n]|[+-](?!{_UNSIGNED}\Z))")
#: Where a cell that is one would begin, if semicolons or tabs parted cells.
_INSIDE = re.compile(rf"""[;\t\r\n](?=['" ]*(?:[=@]|[+-](?!{_UNSIGNED}(?:[;\t\r\n"]|\Z))))""")
_WITH_SIGN = {
    ",": re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?"),
    ".": re.compile(r"[+-]?(\d+\.\d*|\.\d+)([eE][+-]?\d+)?"),
}
_DEEP = "its values are nested too deeply"
#: A hundred names joined by dots: reading a key takes the square of their number.
_LONG_KEY = re.compile(
    r"""(?<![\w-])(?:(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')[ \t]*\.[ \t]*){100}"""
)


def with_sign(value: object, sign: str) -> bool:
    """Whether a cell that was read as text is a number with this decimal sign, "," or "."."""
    return isinstance(value, str) and _WITH_SIGN[sign].fullmatch(value.strip()) is not None


def from_json(data: bytes | str, *, constants: bool = False) -> Any:
    """Return what a JSON document says; a ValueError says why there is none.

    A key stands once in its object; nesting has a limit; NaN and infinities, which are not JSON,
    are taken with ``constants`` alone.
    """
    constant = float if constants else _refuse_constant
    try:
        return json.loads(data, object_pairs_hook=_once, parse_constant=constant)
    except RecursionError:
        raise ValueError(_DEEP) from None


def from_toml(data: bytes) -> dict[str, Any]:
    """Return what a TOML document says; a ValueError says why there is none."""
    text = data.decode()
    if _LONG_KEY.search(text):
        raise ValueError(_DEEP)
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError(_DEEP) from None


def to_cell(text: str) -> str:
    """Return text for a CSV file; an apostrophe before what a spreadsheet would run.

    That is what begins with ``=``, ``@``, a tab, a line's end, or ``+`` or ``-`` but is no number.
    :func:`from_cell` takes it off again, and nothing else.
    """
    return f"'{text}" if _FORMULA.match(text) else text


def to_raw_cell(text: str) -> str:
    """As :func:`to_cell`, of what stood in a file: also after ``;``, tabs and lines' ends.

    There cells begin in spreadsheets that do not part them at commas.  Nothing takes it off again.
    """
    return to_cell(_INSIDE.sub(r"\g<0>'", text))


def to_csv(frame: pd.DataFrame) -> str:
    """Return a table as CSV, without its index; of text what :func:`to_cell` makes of it."""
    safe = frame.copy()
    ends = False
    for name in safe.columns:
        if safe[name].dtype.kind not in "biufM":
            safe[name] = [to_cell(x) if isinstance(x, str) else x for x in safe[name]]
            ends = ends or any(isinstance(x, str) and "\r" in x for x in safe[name])
    # A carriage return ends a line wherever it is not quoted, which only this does.
    return safe.to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC if ends else csv.QUOTE_MINIMAL)


def by_item(result: xr.Dataset, prefix: str = "item_") -> pd.DataFrame:
    """What a result says of each item: a row an item, columns without the prefix."""
    import pandas as pd

    names = [str(n) for n in result.data_vars if result[n].dims == (ITEMS,)]
    columns = {
        name.removeprefix(prefix).removeprefix("item_"): result[name].values for name in names
    }
    return pd.DataFrame({"item": result["item_id"].values.astype(str), **columns})


def from_cell(text: str) -> str:
    """Return what :func:`to_cell` was given."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError(f"the key {repeated(key for key, _ in pairs)[0]!r} stands twice")
    return content


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
