"""Numbers of categories of items in memory, and the gate that binary methods share."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import registry
import scipy.sparse
from parts import cells, made
from registry import BANKS, ITEMS, METHODS, Method, table, values

import irt_dask as irt
from irt_dask.calibrate.shared.groups import grouped
from irt_dask.engine import Engine, as_responses
from irt_dask.engine import inputs as engine_inputs
from irt_dask.evaluate.groups import of_groups
from irt_dask.kernels.responses.layouts import to_dense
from irt_dask.workflow import RunConfig, ScoringConfig, run, score_store

K = (2, 4, 15)
Y = np.array([[1, 3, 14], [0, -1, 7], [-1, 0, 0], [1, 2, -1]], dtype=np.int8)
FORMS = ("int8", "unsigned", "NaN", "table", "dask", "sparse", "all of sparse")


def given(form: str, y: np.ndarray, **options: Any) -> irt.Responses:
    """Responses of codes, -1 not observed, in one of the forms that ``from_array`` takes."""
    seen, at = y >= 0, np.nonzero(y >= 0)
    if "sparse" in form:
        options["observed"] = "stored" if form == "sparse" else "all"
        matrix = scipy.sparse.csr_array((y[at].astype(float), at), shape=y.shape)
        return irt.from_array(matrix, rows_per_block=3, **options)
    array = {
        "int8": y,
        "unsigned": np.ma.array(y.astype(np.uint8), mask=~seen),
        "NaN": np.where(seen, y, np.nan),
        "table": pd.DataFrame(y),
        "dask": da.from_array(y, chunks=(2, y.shape[1])),
    }[form]
    return irt.from_array(array, rows_per_block=3, **options)


# --- from_array -----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_codes_of_any_array(form: str) -> None:
    r = given(form, Y, categories=K)
    np.testing.assert_array_equal(cells(r), np.maximum(Y, 0) if form == "all of sparse" else Y)
    assert r.n_categories == K
    assert r.graded


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "i, j, code, categories, message",
    [
        (1, 2, 7, (2, 4, 7), r"7\S* of person 1, item 2 .*7 categories, the codes 0 to 6, or -1"),
        (3, 0, 2, (2, 4, 15), r"2\S* of person 3, item 0 .*2 categories, the codes 0 to 1, or -1"),
        (2, 1, 4, 4, r"4\S* of person 2, item 1 .*4 categories, the codes 0 to 3, or -1"),
        (0, 1, 2, None, r"2\S* of person 0, item 1 .*1 \(right\) and 0 \(wrong\), .*categories="),
    ],
)
def test_a_code_that_its_item_does_not_have(
    form: str, i: int, j: int, code: int, categories: Any, message: str
) -> None:
    """Also one that another item has; lazy arrays say it when they are read."""
    y = np.array([[1, 0, 0], [0, -1, 1], [0, -1, 1], [1, 1, -1]], dtype=np.int8)
    y[i, j] = code
    with pytest.raises(irt.InputError, match=message):
        cells(given(form, y, categories=categories))


@pytest.mark.parametrize("value", [1.5, -2, np.inf, 257, 2**53, 0.999999999])
def test_what_is_no_code(value: float) -> None:
    with pytest.raises(irt.InputError, match=r"of person 0, item 1 .*15 categories"):
        irt.from_array(np.array([[1, value]]), categories=15)


@pytest.mark.parametrize(
    "categories, expected",
    [
        (None, (2, 2, 2)),
        (2, (2, 2, 2)),
        (np.int64(5), (5, 5, 5)),
        ([2, 4, 15], K),
        (np.array(K), K),
        ({"c": 15, "b": 4}, K),
        (pd.Series([15, 4], index=["c", "b"]), K),
        (range(2, 5), (2, 3, 4)),
    ],
    ids=str,
)
def test_ways_to_say_it(categories: Any, expected: tuple[int, ...]) -> None:
    r = irt.from_array(np.zeros((2, 3)), item_id="abc", categories=categories)
    assert r.n_categories == expected
    assert r.graded == (max(expected) > 2)


@pytest.mark.parametrize(
    "categories, message",
    [
        (1, "item a 1 categories; give a whole number from 2 to 15"),
        (16, "item a 16 categories"),
        ([2, 3, 2.5], r"item c 2\.5 categories"),
        ([2, True, 3], "item b True categories"),
        ("three", "item a 'three' categories"),
        (np.array([2.0, 3.0, 4.0]), r"item a 2\.0 categories"),
        ([2, 3], "has 2 entries for 3 items"),
        ({"d": 3, "a": 2}, r"names 1 item\(s\) that the responses do not have: d"),
    ],
    ids=str,
)
def test_what_is_no_number_of_categories(categories: Any, message: str) -> None:
    with pytest.raises(irt.InputError, match=message):
        irt.from_array(np.zeros((2, 3)), item_id="abc", categories=categories)


def test_many_items_cost_nothing() -> None:
    r = irt.from_array(np.zeros((1, 100_000)), categories=5)
    assert r.categories == 5
    assert len(pickle.dumps(replace(r, refs=(), item_id=()))) < 1000


# --- views and identity ---------------------------------------------------------------------------


def test_views_keep_the_categories_of_their_items() -> None:
    persons = {"group": list("abab"), "weight": [1.0, 2.0, 3.0, 4.0]}
    r = irt.from_array(Y, categories=K, item_id="abc", persons=persons)
    assert r.select(items=["c", "a"]).n_categories == (15, 2)
    assert r.select(persons=slice(1, 3)).n_categories == K
    assert (r.select(items=["a"]).categories, r.select(items=["c"]).categories) == (2, 15)
    assert [part.n_categories for part in r.split(0.5, seed=1)] == [K, K]
    with Engine(r, graded=True, progress=False) as engine:
        assert engine.responses.n_categories == K  # on the scale of methods
    binary = r.select(items=["a"])
    assert grouped(binary, None)[0].n_categories == (2,)
    assert [p.n_categories for p in of_groups(binary, ("a", "b"), None, False)] == [(2,), (2,)]


def test_what_is_identified() -> None:
    """K is part of the data; where all items have two nothing has changed."""
    y = np.minimum(Y, 1)
    found = [irt.from_array(y, categories=k).fingerprint for k in (None, 3, 4, K, K[::-1])]
    assert len(set(found)) == 5
    assert irt.from_array(y, categories=[2, 2, 2]).fingerprint == found[0]
    assert found[0].startswith("f8cfc298ec378387")  # of the version before
    r = irt.from_array(y, categories=(3, 2, 2))
    binary = irt.from_array(y).select(items=["1", "2"])
    assert r.select(items=["1", "2"]).fingerprint == binary.fingerprint


# --- the gate -------------------------------------------------------------------------------------


class Counted:
    """A block's reference that notes what is read of it."""

    READS = ("read", "person_ids", "weights", "groups", "covariates")

    def __init__(self, ref: Any, reads: list[str]) -> None:
        self.ref, self.reads = ref, reads

    def __getattr__(self, name: str) -> Any:
        if name in self.READS:
            self.reads.append(name)
        return getattr(self.ref, name)


@pytest.fixture
def graded() -> tuple[irt.Responses, list[str]]:
    """Items of two categories and one of three; and what is read of them."""
    y, reads = values(), list[str]()
    y[:40, 2] = 2
    r = irt.from_array(y, categories={ITEMS[2]: 3}, item_id=ITEMS, persons=table())
    return replace(r, refs=[Counted(ref, reads) for ref in r.refs]), reads


#: What knows more than two categories; conditional ML of other models than Rasch's alone.
GRADED = (
    "fit_marginal", "score", "item_fit", "person_fit", "residual_correlations", "predictive_check",
    "dif", "item_curves", "fit_concurrent", "fit_bayes", "fit_population", "loo", "predict_total",
    "next_items", "suspect_items", "answer_similarity", "option_analysis", "grow_bank",
)  # fmt: skip
BINARY = [
    m for m in METHODS
    if (m.name not in GRADED or (m.abilities > 1 and not m.name.startswith("fit_")))
    and (m.name != "fit_conditional" or m.categories is None)
]  # fmt: skip


@pytest.mark.parametrize("method", BINARY, ids=repr)
def test_every_other_method_refuses(method: Method, graded: Any) -> None:
    """By its name, before anything is read; the same data without that item it takes."""
    r, reads = graded
    with pytest.raises(irt.InputError, match=rf"^{method.name} is for .* 1 of .* item 2 \(3\); "):
        method(r)
    assert not reads


@pytest.mark.parametrize("method", BINARY, ids=repr)
def test_the_engine_refuses_if_a_method_forgets(
    method: Method, graded: Any, monkeypatch: Any
) -> None:
    r, reads = graded
    monkeypatch.setattr(engine_inputs, "refuse_graded", lambda responses, method: None)
    with pytest.raises(irt.InputError, match=r"^this computation \(.*\) is for .* item 2 \(3\); "):
        method(r)
    assert not reads


def test_what_is_no_public_method_refuses_too(graded: Any, tmp_path: Path) -> None:
    r, reads = graded
    with pytest.raises(irt.InputError, match=r"^evaluate\(validation=\) is for items of two"):
        irt.evaluate(registry.as_responses(values()), BANKS["2pl"], validation=r)
    assert not reads


def test_pipelines_and_scheduled_scoring_refuse(tmp_path: Path) -> None:
    made(tmp_path / "s", values(20), ITEMS, categories={ITEMS[0]: 3})
    given = {"data": {"store": str(tmp_path / "s")}, "directory": str(tmp_path / "r")}
    with pytest.raises(irt.InputError, match=r"^\[bayes\] model = .*, is for .* item 0 \(3\)"):
        run(RunConfig.model_validate(given))
    irt.write_items(BANKS["2pl"], tmp_path / "bank.csv")
    given = {name: str(tmp_path / at) for name, at in
             (("store", "s"), ("bank", "bank.csv"), ("out", "o"))}  # fmt: skip
    with pytest.raises(irt.InputError, match=r"item 0 has 2 there and 3 here"):
        score_store(ScoringConfig.model_validate({"scoring": given}))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bank.csv", "s"]


def test_methods_that_know_more_categories_pass(graded: Any) -> None:
    """By saying so; then they read."""
    r, reads = graded
    assert as_responses(r, "a method", graded=True) is r
    with Engine(r, graded=True, progress=False) as engine:
        counts = engine.map_reduce(_codes)[0]
    assert counts[2] >= 40
    assert "read" in reads


def _codes(block: Any) -> Any:
    return np.bincount(to_dense(block.data).values.ravel() + 1, minlength=4)[1:]


def test_undeclared_codes_never_come_that_far() -> None:
    y = values(50)
    y[3, 1] = 2
    with pytest.raises(irt.InputError, match=r"2\S* of person 3, item 1 .*say categories="):
        irt.fit_marginal(y)
