"""Responses from arrays: every kind gives the same int8 cells, every mistake its message."""

from __future__ import annotations

import threading

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import xarray as xr
from parts import cells

import irt_dask as irt
from irt_dask.engine import Engine
from irt_dask.errors import InputError
from irt_dask.kernels.responses.layouts import to_dense

CELLS = np.array([[1, 0, -1], [0, 0, 1], [-1, -1, -1], [1, 1, 1]], dtype=np.int8)
WITH_NAN = np.where(CELLS == -1, np.nan, CELLS)


@pytest.mark.parametrize(
    "array",
    [
        CELLS,
        CELLS.astype(np.int64),
        CELLS.astype(np.float32),
        WITH_NAN,
        WITH_NAN.astype(np.float32),
        np.asfortranarray(CELLS),
        CELLS.tolist(),
        WITH_NAN.tolist(),
        np.ma.masked_equal(CELLS, -1),
        np.ma.masked_array(np.abs(CELLS), mask=CELLS == -1),
        np.ma.masked_invalid(WITH_NAN),
        np.ma.masked_array(np.where(CELLS < 0, 77, CELLS), mask=CELLS == -1),
        pd.DataFrame(CELLS),
        pd.DataFrame(WITH_NAN),
        xr.DataArray(WITH_NAN, dims=("persons", "items")),
        da.from_array(CELLS, chunks=(3, 2)),
        da.from_array(WITH_NAN, chunks=(1, 3)),
    ],
    ids=lambda a: f"{type(a).__module__.split('.')[0]}-{getattr(a, 'dtype', 'list')}",
)
@pytest.mark.parametrize("rows", [None, 1, 3])
def test_every_kind_of_array_gives_the_same_cells(array, rows):
    r = irt.from_array(array, rows_per_block=rows)
    assert (r.n_persons, r.n_items) == (4, 3)
    np.testing.assert_array_equal(cells(r), CELLS)
    assert r.n_blocks == {None: 1, 1: 4, 3: 2}[rows]
    assert [i for k in range(r.n_blocks) for i in r.person_ids(k)] == ["0", "1", "2", "3"]
    assert r.item_id == ("0", "1", "2")


def test_boolean_and_unsigned():
    y = np.array([[True, False], [False, False]])
    for array in (y, y.astype(np.uint8), y.astype(np.uint64)):
        np.testing.assert_array_equal(cells(irt.from_array(array)), [[1, 0], [0, 0]])
    with pytest.raises(InputError, match="255"):
        irt.from_array(np.array([[255, 1]], dtype=np.uint8))


@pytest.mark.parametrize("make", [sp.csr_array, sp.csc_matrix, sp.coo_array, sp.lil_array])
def test_sparse(make):
    y = np.array([[1, 0, 0], [0, 1, 1]])
    np.testing.assert_array_equal(cells(irt.from_array(make(y), observed="all")), y)
    want = np.where(y == 1, 1, -1)
    np.testing.assert_array_equal(cells(irt.from_array(make(y), observed="stored")), want)
    for wrong in (None, "some"):
        with pytest.raises(InputError, match=r"observed='stored'.*observed='all'"):
            irt.from_array(make(y), observed=wrong)


def test_stored_zeros_are_wrong_answers():
    s = sp.csr_array((np.array([1.0, 0.0, 0.0]), ([0, 0, 1], [0, 2, 1])), shape=(3, 3))
    want = [[1, -1, 0], [-1, 0, -1], [-1, -1, -1]]
    np.testing.assert_array_equal(cells(irt.from_array(s, observed="stored")), want)
    np.testing.assert_array_equal(
        cells(irt.from_array(s, observed="stored", rows_per_block=2)), want
    )
    np.testing.assert_array_equal(
        cells(irt.from_array(s, observed="all")), [[1, 0, 0], [0, 0, 0], [0, 0, 0]]
    )


def test_sparse_values_are_checked():
    with pytest.raises(InputError, match="2"):
        irt.from_array(sp.csr_array(np.array([[1, 2]])), observed="all")


def test_identifiers_come_from_tables():
    frame = pd.DataFrame([[1, 0], [0, 1]], index=["p", "q"], columns=["é", "b"])
    r = irt.from_array(frame)
    assert r.item_id == ("é", "b")
    assert list(r.person_ids(0)) == ["p", "q"]
    array = xr.DataArray(
        [[1, 0], [0, 1]],
        dims=("persons", "items"),
        coords={"person_id": ("persons", ["p", "q"]), "item_id": ("items", ["x", "y"])},
    )
    r = irt.from_array(array)
    assert r.item_id == ("x", "y")
    assert list(r.person_ids(0)) == ["p", "q"]
    r = irt.from_array(frame, item_id=[7, 8], person_id=["a", "b"])
    assert r.item_id == ("7", "8")
    assert list(r.person_ids(0)) == ["a", "b"]


def test_persons_table():
    table = {"weight": [1, 2.5, 3, 4], "group": ["a", "b", "a", 7]}
    for persons in (table, pd.DataFrame(table)):
        r = irt.from_array(CELLS, persons=persons, rows_per_block=3)
        np.testing.assert_array_equal(r.read_block(0).weight, [1, 2.5, 3])
        np.testing.assert_array_equal(r.read_block(1).weight, [4])
        assert list(r.groups(1)) == ["7"]
        assert r.max_weight == 4


@pytest.mark.parametrize(
    "array, options, message",
    [
        (np.array([[1, 0], [0, 2]]), {}, r"response .*2.* of person 1, item 1"),
        (np.array([[1, 0], [-2, 1]]), {}, r"-2.* of person 1, item 0"),
        (np.array([[1, 0.5]]), {}, r"0\.5.* of person 0, item 1"),
        (np.array([[1, np.inf]]), {}, r"inf.* of person 0, item 1"),
        (np.array([["1", "0"]]), {}, "dtype <U1"),
        (np.array([[1, "a"]], dtype=object), {}, "dtype object"),
        (np.array([[1j, 0]]), {}, "complex"),
        (np.array([1, 0, 1]), {}, r"shape \(3,\)"),
        (np.zeros((2, 2, 2)), {}, r"shape \(2, 2, 2\)"),
        (np.zeros((0, 3)), {}, r"shape \(0, 3\)"),
        (np.zeros((3, 0)), {}, r"shape \(3, 0\)"),
        ([], {}, "shape"),
        (None, {}, "shape"),
        (CELLS, {"observed": "all"}, "scipy.sparse matrices only"),
        (CELLS, {"item_id": ["a", "b"]}, "item_id has 2 entries, the array has 3"),
        (CELLS, {"item_id": ["a", "b", "a"]}, "repeated: a"),
        (CELLS, {"item_id": ["a", "b", ""]}, "item 3 has an empty identifier"),
        (CELLS, {"person_id": ["a"]}, "person_id has 1 entries, the array has 4"),
        (CELLS, {"person_id": ["a", "b", "b", "c"]}, "person_id must be unique; repeated: b"),
        (CELLS, {"person_id": [1, "1", 2, 3]}, "repeated: 1"),
        (CELLS, {"persons": {"weight": [1, 2, 0, 4]}}, r"weight 0\.0 of person 2"),
        (CELLS, {"persons": {"weight": [1, -2, 1, 4]}}, r"weight -2\.0 of person 1"),
        (CELLS, {"persons": {"weight": [1, 2, 3, np.nan]}}, "weight nan of person 3"),
        (CELLS, {"persons": {"weight": [1, 2, 3, np.inf]}}, "weight inf of person 3"),
        (CELLS, {"persons": {"weight": [1, 2]}}, "has 2 entries for 4 persons"),
        (CELLS, {"persons": {"group": ["a"] * 5}}, "has 5 entries for 4 persons"),
        (CELLS, {"persons": {"age": [1, 2, "x", 4]}}, r"persons\['age'\] must hold numbers"),
        (CELLS, {"persons": {"age": [1, 2, np.inf, 4]}}, r"persons\['age'\] holds an infinite"),
        (CELLS, {"persons": {"group": ["a", None, "b", "c"]}}, "group of person 1 .* is empty"),
        (CELLS, {"persons": {"person": [3, 2, 1, 0], "age": [1, 2, 3, 4]}}, "differs from the id"),
        (CELLS, {"persons": pd.DataFrame({"age": [1] * 4}, index=list("dcba"))}, "index of"),
        (CELLS, {"persons": "x.csv"}, "must be a table"),
        (CELLS, {"persons": {"weight": 3.0}}, "must be a column"),
        (CELLS, {"person_id": ["a", "", "b", "c"]}, "person 1 .* empty identifier"),
        (CELLS, {"rows_per_block": 0}, "rows_per_block=0"),
        (CELLS, {"rows_per_block": 2.5}, r"rows_per_block=2\.5"),
    ],
)  # fmt: skip
def test_bad_input_says_what_is_wrong(array, options, message):
    with pytest.raises(InputError, match=message):
        irt.from_array(array, **options)


@pytest.mark.parametrize(
    "array, options",
    [
        (np.array([["2020-01-01"]], dtype="M8[D]"), {}),
        (xr.Dataset({"response": (("persons", "items"), CELLS)}), {}),
        (CELLS, {"persons": {"weight": ["a", "b", "c", "d"]}}),
        (CELLS, {"rows_per_block": "many"}),
    ],
    ids=["dates", "xarray Dataset", "weight text", "rows text"],
)
def test_bad_input_is_an_input_error(array, options):
    with pytest.raises(InputError):
        irt.from_array(array, **options)


def test_transposed_dataarray_is_turned_or_refused():
    array = xr.DataArray(CELLS.T, dims=("items", "persons"))
    try:
        r = irt.from_array(array)
    except InputError:
        return
    np.testing.assert_array_equal(cells(r), CELLS)


# --- dask arrays ----------------------------------------------------------------------------------


def counted(array, chunks):
    """A dask array that notes which rows were computed."""
    seen, lock = [], threading.Lock()

    def note(block, block_info=None):
        if block_info:
            with lock:
                seen.append(block_info[0]["array-location"][0])
        return block

    lazy = da.from_array(array, chunks=chunks).map_blocks(note, dtype=array.dtype)
    seen.clear()
    return lazy, seen


def test_dask_array_is_lazy():
    array = np.arange(40).reshape(10, 4) % 2
    lazy, seen = counted(array, (2, 4))
    r = irt.from_array(lazy, rows_per_block=4)
    assert seen == []
    assert r.n_blocks == 3
    np.testing.assert_array_equal(to_dense(r.read_block(1).data).values, array[4:8])
    assert sorted(tuple(s) for s in seen) == [(4, 6), (6, 8)]


def test_dask_values_are_checked_where_they_are_read():
    array = np.zeros((10, 2), dtype=int)
    array[7, 1] = 5
    r = irt.from_array(da.from_array(array, chunks=(3, 2)), rows_per_block=4)
    r.read_block(0)
    with pytest.raises(InputError, match=r"5.* of person 7, item 1"):
        r.read_block(1)


def summary(block):
    return block.data.shape[0], float(block.weights().sum())


def test_two_cuts_of_one_dask_array_do_not_share_cached_blocks():
    lazy = da.from_array(np.zeros((40, 3), dtype=np.int8), chunks=(7, 3))
    persons = []
    for rows in (10, 20):
        with Engine(irt.from_array(lazy, rows_per_block=rows)) as engine:
            persons.append([s[0] for s in engine.map_blocks(summary)])
    assert persons == [[10] * 4, [20] * 2]


def test_weights_given_to_one_dask_array_are_not_lost_in_the_cache():
    lazy = da.from_array(np.zeros((41, 3), dtype=np.int8), chunks=(7, 3))
    total = []
    for weight in (1.0, 2.0):
        r = irt.from_array(
            lazy,
            rows_per_block=41,
            persons={"weight": np.full(41, weight)},
            weight_kind="frequency",
        )
        with Engine(r) as engine:
            total.append(engine.map_blocks(summary)[0][1])
    assert total == [41.0, 82.0]


def test_identifiers_of_any_length():
    y = np.eye(3, dtype=np.int8)
    items = irt.fit_spectral(irt.from_array(y), regularization=1.0, standard_errors=False)
    del items.attrs["identification"]  # not N(0, 1), which a warning says
    for name in ("p", "p" * 24, "p" * 25, "\N{SNOWMAN}"):
        r = irt.from_array(y, person_id=[name, "a", "bc"])
        assert r.person_ids(0).dtype == object
        assert r.person_ids(0).tolist() == [name, "a", "bc"]
        assert r.select(persons=["bc", name]).person_ids(0).tolist() == [name, "bc"]
        scores = irt.score(r, items)
        assert scores["person_id"].values.tolist() == [name, "a", "bc"]
