"""Documents of others, and tables that a spreadsheet opens."""

from __future__ import annotations

import csv
import io
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from irt_dask.store.documents import (
    from_cell,
    from_json,
    from_toml,
    to_cell,
    to_csv,
    to_raw_cell,
)

#: Where a spreadsheet begins to calculate.
FORMULA = ("=", "@", "+", "-", "\t", "\r", "\n")


@pytest.mark.slow
@given(st.text(alphabet="'=+-@\t\r\n,.\"1e5aé", max_size=8))
@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@example("''=")
@example("-5")
@example("+1e")
def test_a_cell_comes_back_and_runs_nothing(text):
    cell = to_cell(text)
    assert from_cell(cell) == text
    if cell.startswith(FORMULA):
        assert np.isfinite(float(cell))  # a number
    file = to_csv(pd.DataFrame({"name": [text], "x": [-1.5]}))
    rows = list(csv.reader(io.StringIO(file, newline="")))
    assert rows == [["name", "x"], [cell, "-1.5"]]


@pytest.mark.parametrize(
    "text", ["a;=1+1", "a\t@SUM(1)", ";+x;-5", 'a;"=1+1"', "a\n=2", "=x;-1+1;'=2"]
)
def test_no_cell_of_a_row_runs_where_semicolons_or_tabs_part_them(text):
    cells = re.split("[;\t\n]", to_raw_cell(text))
    assert not [c for c in cells if c.lstrip("\"' ").startswith(("=", "@", "+")) and c[0] != "'"]
    assert to_raw_cell(text).replace("'", "") == text.replace("'", "")


@pytest.mark.parametrize("text", ["p1;q1;-1", "a;b;1;-9;+2.5", "a=b;c@d", "1;-5\t-6"])
def test_rows_without_formulas_stand_as_they_are(text):
    assert to_raw_cell(text) == text
    assert to_raw_cell(text + "\t" * 100_000).endswith("\t")  # in no time


@pytest.mark.parametrize(
    "key", ["a" + ".b" * 50_000, "[" + "a ." * 200 + "a]\nx", r'"\""' + r'."\""' * 200]
)
def test_keys_of_many_names_are_not_read(key):
    """Reading them would take the square of their number: an hour for a megabyte."""
    with pytest.raises(ValueError, match="nested too deeply"):
        from_toml(f"{key} = 1".encode())
    assert from_toml(f"x = [{'1.5, ' * 500}]\n{'y.' * 99}z = 1".encode())["x"][-1] == 1.5


def test_nesting_is_an_error_with_a_reason():
    deep = "[" * 100_000 + "]" * 100_000
    with pytest.raises(ValueError, match="nested too deeply"):
        from_json(deep)
    with pytest.raises(ValueError, match="nested too deeply"):
        from_toml(f"x = {deep}".encode())


def test_what_is_no_json():
    with pytest.raises(ValueError, match="'a' stands twice"):
        from_json('{"a": 1, "b": {"a": 2, "a": 3}}')
    with pytest.raises(ValueError, match="NaN is no JSON"):
        from_json("[NaN]")
    assert np.isnan(from_json("[NaN]", constants=True)[0])
    assert from_json("[-Infinity]", constants=True) == [-np.inf]
