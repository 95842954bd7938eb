"""Documents of others, and tables that a spreadsheet opens."""

from __future__ import annotations

import csv
import io

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from irt_dask.store.documents import from_cell, from_json, from_toml, to_cell, to_csv

#: Where a spreadsheet begins to calculate.
FORMULA = ("=", "@", "+", "-", "\t", "\r", "\n")


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
