"""Item banks: calibrated items in files that other programs open."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from irt_dask.curves import MODELS, MORE_PARAMETERS
from irt_dask.curves.logistic import INTERCEPT, SLOPE
from irt_dask.engine import dataset
from irt_dask.errors import InputError
from irt_dask.items import checks
from irt_dask.items.parameters import bank_item_ids, calibration_groups, item_set
from irt_dask.store.documents import from_cell, from_json, to_csv
from irt_dask.store.manifest import write_atomically
from irt_dask.store.places import Location, local_path, location, read_bytes
from irt_dask.variables import unique_ids

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
#: Column: groups of persons in the calibration, where there were several.
_GROUPS = "calibration_groups"
_COLUMNS = {
    "a": "item_discrimination",
    "b": "item_difficulty",
    **{p.letter: p.variable for p in MORE_PARAMETERS},
    "d": "item_intercept",
}


def write_items(items: xr.Dataset, path: str | Path) -> Path:
    """Write item parameters as a bank.

    Parameters
    ----------
    items : Dataset that a fit function returned.
    path : .csv or .json, on a file system
        Columns ``item, model, a, b, c, d, se_a, se_b, se_d`` (3PL: ``se_c``): discrimination,
        difficulty, lower asymptote, intercept and their standard errors (posterior standard
        deviations for a Bayesian fit); with flags of the items also ``flag``
        (``item_flag``).  Numbers are written in full.  In .csv an apostrophe stands before an item
        that a spreadsheet would run (``=``, ``@``, ``+``, ``-``, tab or line's end first, and no
        number); :func:`read_items` takes it off.  A row is one curve, so b is
        ``-d / a`` of the a and d beside it: the mean of b over a posterior, which a fit reports, is
        not.  Items calibrated with groups of persons, whose abilities are not all N(0, 1), have
        their number in the column ``calibration_groups``, which ``score`` warns by; the means and
        standard deviations of the groups are not written.

    Returns
    -------
    Path

    Examples
    --------
    >>> import irt_dask as irt
    >>> path = irt.write_items(irt.fit_marginal(irt.load_lsat()), "lsat.csv")
    >>> path.read_text().splitlines()[0]
    'item,model,a,b,c,d,se_a,se_b,se_d,flag'
    """
    path = check_new_path(path)
    write_atomically(path.absolute(), items_text(items, path.suffix).encode())
    return path


def items_text(items: xr.Dataset, suffix: str) -> str:
    """Return what :func:`write_items` writes to a file of this suffix."""
    known = item_set(items, bank_item_ids(items))
    more = [(p, known.column(p)) for p in MORE_PARAMETERS]
    table: dict[str, Any] = {
        "item": items["item_id"].values,
        "model": items.attrs.get("model", "2pl"),
        "a": known.column(SLOPE),
        "b": known.difficulty(),
        **{p.letter: x for p, x in more if p.always_written or (x != p.neutral).any()},
        "d": known.column(INTERCEPT),
    }
    for column, name in _COLUMNS.items():
        for kind in ("se", "sd"):
            if f"{name}_{kind}" in items:
                table[f"se_{column}"] = items[f"{name}_{kind}"].values
    if "item_flag" in items:
        table["flag"] = items["item_flag"].values.astype(str)
    if n := calibration_groups(items):
        table[_GROUPS] = n
    frame = pd.DataFrame(table)
    if suffix == ".csv":
        return to_csv(frame)
    return json.dumps(frame.to_dict(orient="records"), indent=1, ensure_ascii=False)


def read_items(path: str | Path) -> xr.Dataset:
    """Read an item bank of :func:`write_items`, or one made by hand.

    Needs ``item``, and ``a`` with ``b`` or ``d`` (``d`` is the intercept, ``-a b``; where both
    stand they must agree); for the 3PL also ``c``; ``flag`` is read where it stands.  The path may
    be a URL of object storage.

    Returns
    -------
    Dataset over items, to be passed to ``score`` and ``evaluate``.

    Raises
    ------
    InputError
        Names the file, the item and the column.

    Examples
    --------
    >>> import pandas as pd
    >>> import irt_dask as irt
    >>> bank = pd.DataFrame({"item": ["q1", "q2"], "a": [1.0, 1.5], "b": [-0.5, 0.5]})
    >>> bank.to_csv("by_hand.csv", index=False)
    >>> irt.read_items("by_hand.csv")["item_intercept"].values.tolist()
    [0.5, -0.75]
    """
    where = check_path(path)
    try:
        text = read_bytes(where).decode("utf-8-sig")
        rows = _csv(text) if where.name.endswith(".csv") else _json(text)
        frame = pd.DataFrame(rows, dtype=object)
    except FileNotFoundError:
        raise InputError(f"there is no item bank {path}") from None
    except (ValueError, OSError, csv.Error) as error:
        raise InputError(f"the item bank {path} cannot be read: {error}") from error
    missing = [c for c in ("item", "a") if c not in frame] or (
        [] if {"b", "d"} & set(frame) else ["b (or d)"]
    )
    if missing:
        raise InputError(
            f"the item bank {path} has no column {', '.join(missing)}; it has "
            f"{', '.join(map(str, frame.columns))}"
        )
    for k, item in enumerate(frame["item"]):
        if not isinstance(item, (str, int)) or isinstance(item, bool) or item == "":
            raise InputError(f"{path}: row {k + 1} has no item identifier (text or a whole number)")
    _check_models(frame, where)
    errors = [f"se_{c}" for c in _COLUMNS]
    for column in [c for c in (*_COLUMNS, *errors, _GROUPS) if c in frame]:
        values = [_number(x, column in errors or column == _GROUPS) for x in frame[column]]
        if None in values:
            k = values.index(None)
            raise InputError(
                f"{path}: item {frame['item'][k]}, column {column}: {frame[column][k]!r} is not a "
                f"finite number"
            )
        frame[column] = np.array(values, dtype=float)
    return _bank(frame, where)


def _csv(text: str) -> dict[str, list[Any]]:
    """Columns of text; every row must have as many fields as the header."""
    if "\0" in text:
        raise ValueError("it holds a zero byte")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    header = [name.strip() for name in next(reader, [])]
    if not header:
        raise ValueError("it has no header")
    if len(set(header)) < len(header):
        raise ValueError(f"a column stands twice in the header {','.join(header)}")
    rows = []
    for row in reader:
        if row and len(row) != len(header):
            raise ValueError(
                f"line {reader.line_num} has {len(row)} fields, the header has {len(header)}"
            )
        if row:
            rows.append([field or None for field in row])
    columns: dict[str, list[Any]] = {n: [row[k] for row in rows] for k, n in enumerate(header)}
    if "item" in columns:
        columns["item"] = [item and from_cell(item) for item in columns["item"]]
    return columns


def _json(text: str) -> Any:
    """A list of rows, or columns by name."""
    content = from_json(text, constants=True)
    rows = isinstance(content, list) and all(isinstance(row, dict) for row in content)
    columns = isinstance(content, dict) and all(isinstance(c, list) for c in content.values())
    if not rows and not columns:
        raise ValueError("it must be a list of objects, one for each item, or lists by column")
    return content


def _number(x: Any, may_lack: bool) -> float | None:
    """A finite number; NaN where none stands and ``may_lack``; None for anything else."""
    if may_lack and (x is None or x != x):
        return math.nan
    if isinstance(x, str):
        if not _NUMBER.fullmatch(x.strip()):
            return math.nan if may_lack and x.strip().lower() == "nan" else None
    elif isinstance(x, bool) or not isinstance(x, (int, float)):
        return None
    try:
        value = float(x)
    except OverflowError:
        return None
    return value if math.isfinite(value) else None


def _bank(frame: pd.DataFrame, path: Location) -> xr.Dataset:
    a = frame["a"].to_numpy()
    d = frame["d"].to_numpy() if "d" in frame else -a * frame["b"].to_numpy()
    for k in np.flatnonzero(a <= 0):
        raise InputError(f"{path}: item {frame['item'][k]} has a = {a[k]}; it must be positive")
    if "b" in frame:
        for k in np.flatnonzero(~np.isclose(-a * frame["b"], d, rtol=1e-3, atol=1e-3)):
            raise InputError(
                f"{path}: item {frame['item'][k]} has a = {a[k]}, b = {frame['b'][k]} and d = "
                f"{d[k]}; d is the intercept and must be -a b (leave column d out if it is "
                f"something else)"
            )
    ids = unique_ids(frame["item"], str(path))
    data: dict[str, Any] = {
        "item_discrimination": a,
        "item_difficulty": -d / a,
        "item_intercept": d,
    }
    models = set(frame["model"]) if "model" in frame else set()
    for p in MORE_PARAMETERS:
        given = frame[p.letter].to_numpy() if p.letter in frame else np.full(len(a), p.neutral)
        having = {m.name for m in MODELS.values() if p in m.parameters}
        if (given != p.neutral).any() or models & having:
            data[p.variable] = given
    for column, name in _COLUMNS.items():
        if f"se_{column}" in frame and name in data:
            data[f"{name}_se"] = frame[f"se_{column}"].to_numpy()
    if "flag" in frame:
        data["item_flag"] = _flags(frame, path)
    attrs: dict[str, Any] = {"method": "item bank", "model": _model(data, models)}
    if _GROUPS in frame and (n := int(np.nan_to_num(frame[_GROUPS]).max())):
        attrs[_GROUPS] = n  # blank: rows from elsewhere
    bank = dataset(data, item_id=ids, attrs=attrs)
    item_set(bank, ids, what=str(path))  # stops at parameters that describe no item
    return bank


def _model(data: dict[str, Any], named: set[str]) -> str:
    """The simplest model that has these parameters; of equals the one that all items name."""
    fitting = [
        m.name
        for m in MODELS.values()
        if all(p in m.parameters for p in MORE_PARAMETERS if p.variable in data)
    ]
    if len(named) == 1 and named <= set(fitting):
        return next(iter(named))
    return next(name for name in fitting if not MODELS[name].shared)


def _flags(frame: pd.DataFrame, path: Location) -> Any:
    """Flags of the items; nothing is "ok"."""
    given = ["ok" if x is None or x != x else x for x in frame["flag"]]
    for item, flag in zip(frame["item"], given, strict=True):
        try:
            checks.check_flags(np.array([str(flag)]))
        except InputError as error:
            raise InputError(f"{path}: item {item}: {error}") from None
    return np.array([str(x) for x in given])


def _check_models(frame: pd.DataFrame, path: Location) -> None:
    if len(frame) == 0:
        raise InputError(f"the item bank {path} lists no item")
    if "model" in frame:
        for k in np.flatnonzero(~frame["model"].isin(list(MODELS))):
            raise InputError(
                f"{path}: item {frame['item'][k]} has model {frame['model'][k]!r}; known are "
                f"{', '.join(MODELS)}"
            )


def check_path(path: str | Path) -> Location:
    """Return the place of a bank, refusing a name that ends in something else than .csv, .json."""
    where = location(path)
    if Path(where.name).suffix not in (".csv", ".json"):
        raise InputError(f"item bank {path}: the file name must end in .csv or .json")
    return where


def check_new_path(path: str | Path) -> Path:
    """Return the path of a bank to write, refusing one whose folder does not exist."""
    new = local_path(path, "an item bank that is written")
    check_path(new)
    if not new.absolute().parent.is_dir():
        raise InputError(f"item bank {new}: there is no folder {new.absolute().parent}")
    return new
