"""What must not matter: layout, blocks, parts, order of persons, kind of array, workers."""

from __future__ import annotations

import functools
import itertools
import tempfile
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import registry
import scipy.sparse
import xarray as xr
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from items import respond
from registry import METHODS, Method, as_responses, each

import irt_dask as irt
from irt_dask.calibrate.shared.summary import summarise
from irt_dask.errors import IrtDaskWarning

N, M = 48, 5
ITEMS = [f"item {j}" for j in range(M)]
A = np.array([0.7, 1.6, 1.0, 1.2, 0.9])
D = np.array([0.5, -0.8, 0.0, 1.1, -0.3])
BANK = xr.Dataset(
    {
        "item_discrimination": ("items", A),
        "item_intercept": ("items", D),
        "item_difficulty": ("items", -D / A),
    },
    coords={"item_id": ("items", ITEMS)},
    attrs={"model": "2pl"},
)
START = BANK[["item_discrimination", "item_intercept", "item_difficulty"]]

#: Methods without random numbers; those of a sample of persons follow their place in the data.
PLAIN: dict[str, Callable[..., Any]] = {
    "summary": summarise,
    "pairs": irt.pair_counts,
    "spectral": irt.fit_spectral,
    "conditional": irt.fit_conditional,
    "pairwise": functools.partial(irt.fit_pairwise, pairing="all"),
    "joint 2PL": functools.partial(irt.fit_joint, max_iterations=6),
    "joint 1PL": functools.partial(irt.fit_joint, model="1pl", max_iterations=6),
    "score": lambda r, **options: irt.score(r, BANK, **options),
    "evaluate": lambda r, **options: irt.evaluate(r, BANK, **options),
}
QUICK = PLAIN | {
    "joint, coreset": functools.partial(
        irt.fit_joint, coreset=irt.Coreset(20), max_iterations=8, seed=5
    ),
}
ALL = QUICK | {
    "bayes": functools.partial(irt.fit_bayes, n_shards=2, n_draws=100, n_warmup=50, seed=5),
}


def results(responses: Any, names: Iterable[str] = QUICK, **options: Any) -> dict[str, xr.Dataset]:
    """Return the result of each method; so few iterations warn, which is not at issue here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IrtDaskWarning)
        return {name: ALL[name](responses, **options) for name in names}


def values(seed: int, missing: float) -> np.ndarray:
    """Return responses; somebody right and somebody wrong on every item, on any two of them."""
    rng = np.random.default_rng(seed)
    y = respond(rng, rng.normal(size=N), A, D, missing=missing)
    y[:2] = [[1, 0, 1, 0, 1], [0, 1, 0, 1, 0]]
    y[2 : 2 + M] = np.where(np.eye(M), 1, 0)
    return y


def from_dense(y: np.ndarray, **options: Any) -> irt.Responses:
    return irt.from_array(y, item_id=ITEMS, **options)


def as_sparse(y: np.ndarray, dtype: Any = np.int8) -> scipy.sparse.csr_array:
    rows, columns = np.nonzero(y >= 0)
    return scipy.sparse.csr_array((y[rows, columns].astype(dtype), (rows, columns)), shape=y.shape)


def in_store(folder: Path, y: np.ndarray, layout: str, rows: list[int], cuts: list[int]) -> Any:
    """Ingest the persons up to the first cut and append the others."""
    for k, (first, stop) in enumerate(itertools.pairwise([0, *cuts, len(y)])):
        source = folder / f"{k}.csv"
        lines = [",".join([str(i), *map(str, y[i])]) for i in range(first, stop)]
        source.write_text("\n".join([",".join(["person", *ITEMS]), *lines]))
        if k == 0:
            r = irt.ingest(source, folder / "s", layout=layout, rows_per_block=rows[0])
        else:
            r = irt.append(source, folder / "s", rows_per_block=rows[k])
    return r


any_data = st.tuples(st.integers(0, 10**6), st.sampled_from([0.0, 0.3, 0.7]))
any_rows = st.integers(1, N + 1)
quick = settings(
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],  # fits of a smaller example take as long
    suppress_health_check=[HealthCheck.too_slow],
)


# --- layout, blocks, parts ------------------------------------------------------------------------


@pytest.mark.slow
@settings(quick, max_examples=8)
@given(any_data, any_rows, st.sampled_from(["dense", "csr"]))
def test_layout_and_blocks_in_memory(bits: Any, data: Any, rows: int, layout: str) -> None:
    y = values(*data)
    if layout == "dense":
        r = from_dense(y, rows_per_block=rows)
    else:
        r = from_dense(as_sparse(y), observed="stored", rows_per_block=rows)
    assert r.layout == layout
    expected, got = results(from_dense(y)), results(r)
    assert {n: bits(f) for n, f in got.items()} == {n: bits(f) for n, f in expected.items()}
    assert all(got[n].attrs == expected[n].attrs for n in got)


@settings(quick, max_examples=6)
@given(
    any_data,
    st.sampled_from(["dense", "csr"]),
    st.lists(any_rows, min_size=3, max_size=3),
    st.lists(st.integers(1, N - 1), max_size=2, unique=True).map(sorted),
)
def test_layout_blocks_and_parts_of_a_store(
    bits: Any, data: Any, layout: str, rows: list[int], cuts: list[int]
) -> None:
    y = values(*data)
    expected = results(from_dense(y))
    with tempfile.TemporaryDirectory() as folder:
        r = in_store(Path(folder), y, layout, rows, cuts)
        assert r.layout == layout
        got = results(r)
    assert {n: bits(f) for n, f in got.items()} == {n: bits(f) for n, f in expected.items()}


@pytest.mark.slow
@settings(quick, max_examples=4)
@given(any_data, st.sampled_from(["dense", "csr"]), any_rows, st.randoms(use_true_random=False))
def test_long_file_in_any_order(bits: Any, data: Any, layout: str, rows: int, random: Any) -> None:
    """What an unsorted file does to the order of persons and items, ``select`` and ids undo."""
    y = values(*data)
    order = list(range(N))
    random.shuffle(order)
    cells = [(i, j) for i in range(N) for j in range(M)]
    random.shuffle(cells)
    cells.sort(key=lambda cell: order.index(cell[0]) // 8)  # persons mix with a few others only
    lines = [f"p{i},{ITEMS[j]},{y[i, j]}" for i, j in cells]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "long.csv"
        source.write_text("\n".join(["person,item,response", *lines]))
        r = irt.ingest(source, Path(folder) / "s", layout=layout, rows_per_block=rows)
        ids = np.concatenate([r.person_ids(k) for k in range(r.n_blocks)])
        assert [*ids] == [*dict.fromkeys(f"p{i}" for i, _ in cells)]
        got = results(r.select(items=ITEMS))
        # Every second person, and those who put all items on one scale.
        chosen = [k for k, i in enumerate(ids) if k % 2 == 0 or int(i[1:]) < 2 + M]
        half = results(r.select(items=ITEMS, persons=list(ids[chosen])), PLAIN)
    same = y[[int(i[1:]) for i in ids]]
    expected = results(from_dense(same, person_id=ids))
    assert {n: bits(f) for n, f in got.items()} == {n: bits(f) for n, f in expected.items()}
    expected = results(from_dense(same[chosen], person_id=ids[chosen]), PLAIN)
    assert {n: bits(f) for n, f in half.items()} == {n: bits(f) for n, f in expected.items()}


def test_other_processes(bits: Any, client: Any, tmp_path: Path) -> None:
    """A store of three sparse parts: workers give the bits that threads give."""
    r = in_store(tmp_path, values(7, 0.5), "csr", [5, 7, 3], [20, 31])
    got, expected = results(r, client=client), results(r)
    assert {n: bits(f) for n, f in got.items()} == {n: bits(f) for n, f in expected.items()}


@pytest.mark.slow
@pytest.mark.parametrize("missing", [0.0, 0.5])
def test_posterior(bits: Any, missing: float, tmp_path: Path) -> None:
    """Layout, blocks and parts, for the method that takes too long for many examples."""
    y = values(8, missing)
    others = [
        from_dense(y, rows_per_block=7),
        from_dense(as_sparse(y), observed="stored", rows_per_block=11),
        from_dense(da.from_array(y, chunks=(9, 2)), rows_per_block=5),
        in_store(tmp_path, y, "csr", [5, 7, 3], [20, 31]),
    ]
    expected = bits(results(from_dense(y), ["bayes"])["bayes"])
    assert [bits(results(r, ["bayes"])["bayes"]) for r in others] == [expected] * len(others)


# --- order of persons, persons twice --------------------------------------------------------------


def close(got: xr.Dataset, expected: xr.Dataset, tolerance: float) -> None:
    assert got.data_vars.keys() == expected.data_vars.keys()
    for name in expected.data_vars:
        if expected[name].dtype.kind == "U":
            np.testing.assert_array_equal(got[name].values, expected[name].values)
            continue
        np.testing.assert_allclose(
            got[name].values, expected[name].values, rtol=0, atol=tolerance, err_msg=str(name)
        )


@pytest.mark.parametrize("method", each(m for m in METHODS if m.random == "none" and not m.ordered))
def test_order_of_persons(method: Method) -> None:
    """Persons in another order, and so in other blocks: the same but for rounding."""
    y, columns = registry.values(missing=0.2, of=method), registry.table()
    if method.weights:
        columns["weight"] = registry.weights()
    ids = np.array([f"p{i}" for i in range(len(y))])
    expected = method(as_responses(y, of=method, persons=columns, person_id=ids))
    order = np.random.default_rng(1).permutation(len(y))
    mixed = {k: v[order] for k, v in columns.items()}
    options = {"persons": mixed, "person_id": ids[order], "rows_per_block": 70}
    got = method(as_responses(y[order], of=method, **options))
    if method.persons:
        back = np.argsort(order)
        assert list(got["person_id"].values[back]) == list(ids)
        got = got.isel(persons=back)
    close(got, expected, 1e-8)
    objective = expected.attrs.get("objective")
    assert got.attrs.get("objective") == (objective and pytest.approx(objective, rel=1e-12))


@settings(quick, max_examples=8)
@given(any_data, any_rows)
def test_every_person_twice(data: Any, rows: int) -> None:
    """Estimates depend on shares alone; counts, log-likelihoods and nu are twice what they were."""
    y = values(*data)
    once, twice = from_dense(y), from_dense(np.concatenate([y, y]), rows_per_block=rows)

    def difficulty(r: irt.Responses, nu: float) -> np.ndarray:
        return irt.fit_spectral(r, regularization=nu)["item_difficulty"].values

    np.testing.assert_allclose(difficulty(twice, 1.0), difficulty(once, 0.5), atol=1e-9)
    for model in ("1pl", "2pl"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", irt.ConvergenceWarning)
            a, b = (
                irt.fit_joint(r, model=model, start=START, max_iterations=8, tolerance=-1.0)
                for r in (once, twice)
            )
        for name in ("item_difficulty", "item_discrimination", "item_intercept"):
            np.testing.assert_allclose(b[name].values, a[name].values, rtol=1e-6, atol=1e-6)
        assert b.attrs["objective"] == pytest.approx(2 * a.attrs["objective"], rel=1e-6)
    a, b = (irt.score(r, BANK)["person_ability"].values for r in (once, twice))
    np.testing.assert_array_equal(b, np.concatenate([a, a]))
    a, b = (irt.evaluate(r, BANK) for r in (once, twice))
    for name in ("log_likelihood_per_response", "log_score", "auc"):
        np.testing.assert_allclose(b[name].values, a[name].values, rtol=1e-9)


@settings(quick, max_examples=8)
@given(any_data, any_rows)
def test_a_weight_of_two_is_a_person_twice(data: Any, rows: int) -> None:
    y = values(*data)
    double = np.random.default_rng(data[0]).random(N) < 0.4
    weights = {"weight": np.where(double, 2.0, 1.0)}
    weighted = from_dense(y, persons=weights, weight_kind="frequency", rows_per_block=rows)
    repeated = from_dense(np.concatenate([y, y[double]]))
    options = {"model": "1pl", "start": START, "max_iterations": 8, "tolerance": -1.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", irt.ConvergenceWarning)
        a, b = (irt.fit_joint(r, **options) for r in (weighted, repeated))
    np.testing.assert_allclose(
        a["item_difficulty"].values, b["item_difficulty"].values, rtol=1e-6, atol=1e-6
    )


# --- kinds of arrays ------------------------------------------------------------------------------


def kinds(y: np.ndarray) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Return the same responses in every form that ``from_array`` takes."""
    stored: dict[str, Any] = {"observed": "stored"}
    nan = np.where(y < 0, np.nan, y)
    masked = np.ma.masked_array(np.where(y < 0, 7, y).astype(np.int64), mask=y < 0)
    # entries of a row in another order, and cells that say "not observed" themselves
    coo = as_sparse(y).tocoo()
    mixed = np.random.default_rng(0).permutation(coo.nnz)
    shuffled = scipy.sparse.coo_array(
        (coo.data[mixed], (coo.row[mixed], coo.col[mixed])), shape=y.shape
    )
    full = scipy.sparse.csr_array(
        (y.ravel().astype(np.float32), np.tile(np.arange(M), len(y)), np.arange(len(y) + 1) * M),
        shape=y.shape,
    )
    return {
        **{kind: (y.astype(kind), {}) for kind in ("int8", "int16", "int32", "int64", "float64")},
        "list": (y.tolist(), {}),
        "Fortran order": (np.asfortranarray(y), {}),
        "every second row": (np.repeat(y, 2, axis=0)[::2], {}),
        "other byte order": (y.astype(">i4"), {}),
        "read only": (np.frombuffer(y.tobytes(), np.int8).reshape(y.shape), {}),
        "NaN": (nan, {}),
        "NaN, float32": (nan.astype(np.float32), {}),
        "NaN, float16": (nan.astype(np.float16), {}),
        "masked": (masked, {}),
        "masked bool": (np.ma.masked_array(y == 1, mask=y < 0), {}),
        "masked NaN": (np.ma.masked_array(nan, mask=np.isnan(nan) & (np.arange(M) < 2)), {}),
        "DataFrame": (pd.DataFrame(nan, columns=ITEMS), {}),
        "DataArray": (xr.DataArray(y, dims=("persons", "items")), {}),
        "DataArray, items first": (xr.DataArray(y.T, dims=("items", "persons")), {}),
        "dask": (da.from_array(y, chunks=(7, 2)), {}),
        "dask NaN": (da.from_array(nan, chunks=(11, M)), {}),
        "csr": (as_sparse(y), stored),
        "csr float": (as_sparse(y, np.float64), stored),
        "csr matrix": (scipy.sparse.csr_matrix(as_sparse(y)), stored),
        "csc": (as_sparse(y).tocsc(), stored),
        "coo": (shuffled, stored),
        "csr, -1 stored": (full, stored),
    }


@pytest.mark.slow
@settings(quick, max_examples=1)
@given(any_data, any_rows)
def test_kind_of_array(bits: Any, data: Any, rows: int) -> None:
    y = values(*data)
    names = ("pairs", "joint 1PL")  # whatever is computed, it comes from the same blocks
    expected = {name: bits(fit) for name, fit in results(from_dense(y), names).items()}
    for kind, (array, options) in kinds(y).items():
        r = from_dense(array, rows_per_block=rows, **options)
        got = {name: bits(fit) for name, fit in results(r, names).items()}
        assert got == expected, kind


@pytest.mark.slow
@settings(quick, max_examples=4)
@given(any_data, any_rows)
def test_kind_of_complete_array(bits: Any, data: Any, rows: int) -> None:
    y = values(data[0], 0.0)
    expected = bits(results(from_dense(y), ["joint 2PL"])["joint 2PL"])
    complete: dict[str, tuple[Any, dict[str, Any]]] = {
        **{kind: (y.astype(kind), {}) for kind in ("bool", "uint8", "uint64", "float32")},
        "DataFrame": (pd.DataFrame(y.astype(bool)), {}),
        "csr, zeros not stored": (scipy.sparse.csr_array(y), {"observed": "all"}),
        "csr bool": (scipy.sparse.csr_array(y.astype(bool)), {"observed": "all"}),
        "dask bool": (da.from_array(y.astype(bool), chunks=(5, 3)), {}),
    }
    for kind, (array, options) in complete.items():
        r = from_dense(array, rows_per_block=rows, **options)
        assert bits(results(r, ["joint 2PL"])["joint 2PL"]) == expected, kind
