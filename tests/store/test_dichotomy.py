"""Views of responses in two categories."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from parts import cells, grown, made

import irt_dask as irt
from irt_dask.kernels.responses.layouts import Sparse

ITEMS = ("q1", "q2", "q3")
K = (2, 5, 3)
LEAST = {"q2": 3, "q3": 1}
RNG = np.random.default_rng(5)
Y = np.stack([RNG.integers(-1, k, 40) for k in K], axis=1).astype(np.int8)
Y[0], Y[1] = np.array(K) - 1, 0


def expected(least: tuple[int, int, int], y: np.ndarray = Y) -> np.ndarray:
    return np.where(y < 0, -1, y >= np.array(least)).astype(np.int8)


def responses(layout: str, folder: Path) -> irt.Responses:
    if layout == "array":
        return irt.from_array(Y, item_id=ITEMS, categories=K, rows_per_block=9)
    return made(folder / "s", Y, ITEMS, layout=layout, categories=K)


@pytest.mark.parametrize("layout", ["array", "dense", "csr"])
@pytest.mark.parametrize("at, least", [(1, (1, 1, 1)), (2, (1, 2, 2)), (LEAST, (1, 3, 1))])
def test_codes_from_there_on_are_right(
    layout: str, at: Any, least: tuple[int, int, int], tmp_path: Path
) -> None:
    r = responses(layout, tmp_path)
    view = r.dichotomise(at)
    assert (view.n_categories, view.graded) == ((2, 2, 2), False)
    np.testing.assert_array_equal(cells(view), expected(least))
    np.testing.assert_array_equal(cells(r), Y)
    assert isinstance(view.read_block(0).data, Sparse) == (layout == "csr")
    np.testing.assert_array_equal(cells(pickle.loads(pickle.dumps(view))), expected(least))  # noqa: S301


@pytest.mark.parametrize("layout", ["array", "dense", "csr"])
def test_fingerprints(layout: str, tmp_path: Path) -> None:
    r = responses(layout, tmp_path)
    found = [r, *(r.dichotomise(at) for at in (1, 2, LEAST))]
    assert len({one.fingerprint for one in found}) == 4
    assert r.dichotomise({"q2": 2, "q3": 2}).fingerprint == r.dichotomise(2).fingerprint
    if layout != "array":
        assert len({one.checksum for one in found}) == 4
        assert len({one.refs[0].cache_key for one in found}) == 4


def test_with_selections_weights_and_more(tmp_path: Path) -> None:
    persons = {"weight": np.arange(1.0, 41.0), "group": list("ab") * 20, "age": np.arange(40.0)}
    r = irt.from_array(Y, item_id=ITEMS, categories=K, persons=persons, rows_per_block=16)
    some = {"items": ["q3", "q1"], "persons": slice(5, 30)}
    one = r.dichotomise(2).select(**some)
    other = r.select(**some).dichotomise(2)
    np.testing.assert_array_equal(cells(one), expected((1, 2, 2))[5:30][:, [2, 0]])
    np.testing.assert_array_equal(cells(one), cells(other))
    view = r.dichotomise(2)
    assert view.read_block(1).weight.tolist() == list(range(17, 33))
    assert view.groups(0).tolist() == list("ab") * 8
    assert view.covariates(0).ravel().tolist() == list(range(16))
    assert view.to_xarray()["response"].values.tolist() == cells(view).tolist()
    assert "item_n_categories" not in view.to_xarray()


def test_methods_for_two_categories_take_it() -> None:
    y = RNG.integers(0, 4, (300, 4))
    r = irt.from_array(y, item_id=list("abcd"), categories=4)
    with pytest.raises(irt.InputError, match=r"responses\.dichotomise\(at=\.\.\.\)"):
        irt.fit_spectral(r)
    fit = irt.fit_spectral(r.dichotomise(2))
    same = irt.fit_spectral(irt.from_array((y >= 2).astype(int), item_id=list("abcd")))
    np.testing.assert_array_equal(fit["item_difficulty"], same["item_difficulty"])


def test_a_store_that_has_grown(tmp_path: Path) -> None:
    made(tmp_path / "s", Y[:, :2], ITEMS[:2], categories=K[:2])
    r = grown(tmp_path / "s", Y, ITEMS, categories=3)
    whole = np.concatenate([np.where([[1, 1, 0]], Y, -1), Y])
    np.testing.assert_array_equal(cells(r.dichotomise(2)), expected((1, 2, 2), whole))


def test_two_categories_stay_as_they_are() -> None:
    r = irt.from_array(np.array([[1, 0], [0, 1]]))
    assert r.dichotomise(1) is r
    assert r.dichotomise({}) is r


@pytest.mark.parametrize(
    "at, message",
    [
        (3, "at=3 for the item 'q3', which has 3 categories: give a whole number from 1 to 2"),
        (0, "at=0 for the item 'q2'"),
        (1.0, "at=1.0 for the item 'q2'"),
        (True, "at=True for the item 'q2'"),
        ("1", "at='1' for the item 'q2'"),
        ({"q2": 1}, r"at= does not name 1 item\(s\) of more than two categories: 'q3'"),
        (LEAST | {"q9": 1}, r"at= names 1 item\(s\) that do not occur: 'q9'"),
        (LEAST | {"q1": 2}, "at=2 for the item 'q1', which has 2 categories"),
    ],
)
def test_codes_that_cannot_be_the_least(at: Any, message: str) -> None:
    with pytest.raises(irt.InputError, match=message):
        irt.from_array(Y, item_id=ITEMS, categories=K).dichotomise(at)
