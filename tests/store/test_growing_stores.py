"""Stores whose list of items grows, and whose items have more than two categories."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from parts import cells, grown, made

import irt_dask as irt
from irt_dask.engine import Engine
from irt_dask.engine.identity import fingerprint
from irt_dask.kernels.responses.layouts import to_dense
from irt_dask.store import manifest
from irt_dask.store.draft import extend

LAYOUTS = pytest.mark.parametrize("layout", ["dense", "csr"])


def codes(rng: Any, n: int, categories: Any) -> np.ndarray:
    """Every code of every item, and some that are missing."""
    y = np.stack([rng.integers(-1, k, n) for k in categories], axis=1)
    y[0], y[1] = np.array(categories) - 1, 0
    return y


def whole(y: np.ndarray, m: int) -> np.ndarray:
    """With the items that came later, which these persons have not seen."""
    return np.pad(y, ((0, 0), (0, m - y.shape[1])), constant_values=-1)


def read_manifest(store: Path) -> dict[str, Any]:
    return json.loads((store / "manifest.json").read_text())


@pytest.fixture(params=["dense", "csr"])
def store(request: Any, tmp_path: Path) -> Path:
    """Two binary items, then one of four categories."""
    rng = np.random.default_rng(1)
    made(tmp_path / "s", codes(rng, 7, [2, 2]), "ab", layout=request.param)
    grown(tmp_path / "s", codes(rng, 5, [2, 2, 4]), "abc", categories=4)
    return tmp_path / "s"


@LAYOUTS
@pytest.mark.parametrize("seed", range(6))
def test_a_store_is_what_was_written_and_remembers_what_it_was(
    tmp_path: Path, layout: str, seed: int
) -> None:
    """Parts with and without new items, of any K: now, through older handles, and as manifests."""
    rng = np.random.default_rng(seed)
    root, k = tmp_path / "s", [2] * 3 if seed % 2 else rng.integers(2, 16, 3).tolist()
    ys = [codes(rng, 8, k)]
    then = [(made(root, ys[0], "abc", layout=layout, categories=k), tuple(k))]
    written = [manifest.read(root)]
    for _ in range(5):
        new = rng.integers(2, 5 if rng.random() < 0.5 else 3, rng.integers(0, 3)).tolist()
        k = [*k, *new]
        ys.append(codes(rng, int(rng.integers(2, 6)), k))
        r = grown(root, ys[-1], "abcdefghijklm"[: len(k)], categories=tuple(new) or 2)
        then.append((r, tuple(k)))
        written.append(manifest.read(root))

    assert len({r.fingerprint for r, _ in then}) == len(then)
    now = written[-1]
    for n, (handle, each) in enumerate(then, start=1):
        expected = np.concatenate([whole(y, len(each)) for y in ys[:n]])
        for r in (handle, pickle.loads(pickle.dumps(handle))):  # noqa: S301
            assert r.item_id == tuple("abcdefghijklm"[: len(each)])
            assert r.n_categories == each
            np.testing.assert_array_equal(cells(r), expected)
        assert manifest.as_of(now, handle.fingerprint) == written[n - 1]
    again = irt.open_responses(root)
    assert again.fingerprint == handle.fingerprint
    again.verify()
    assert manifest.as_of(now, "0" * 64) is None


def test_needs_are_those_of_the_content(tmp_path: Path) -> None:
    """Version 3 from where version 2 does not say it all; each need by itself and together."""
    rng = np.random.default_rng(0)

    def said(store: str) -> tuple[Any, ...]:
        content = read_manifest(tmp_path / store)
        return content["format_version"], content.get("needs"), content.get("n_categories")

    made(tmp_path / "s", codes(rng, 4, [2, 2]), "ab")
    grown(tmp_path / "s", codes(rng, 4, [2, 2]), "ab")
    assert said("s") == (2, None, None)
    grown(tmp_path / "s", codes(rng, 4, [2, 2, 2]), "abc")
    grown(tmp_path / "s", codes(rng, 4, [2, 2, 2]), "abc")
    assert said("s") == (3, ["items by part"], None)
    grown(tmp_path / "s", codes(rng, 4, [2, 2, 2, 5]), "abcd", categories=5)
    assert said("s") == (3, ["categories", "items by part"], [2, 2, 2, 5])
    new = [p.get("new_items") for p in read_manifest(tmp_path / "s")["parts"]]
    assert new == [None, None, 1, None, 1]
    made(tmp_path / "k", codes(rng, 4, [3, 2]), "ab", categories=[3, 2])
    assert said("k") == (3, ["categories"], [3, 2])


def test_old_readers_refuse(store: Path, tmp_path: Path, monkeypatch: Any) -> None:
    rng = np.random.default_rng(0)
    made(tmp_path / "k", codes(rng, 4, [3, 3]), "ab", categories=3)
    made(tmp_path / "b", codes(rng, 4, [2, 2]), "ab")
    grown(tmp_path / "b", codes(rng, 4, [2, 2, 2]), "abc")
    monkeypatch.setattr(manifest, "_KNOWN", {manifest.FREQUENCY_WEIGHTS})
    for name, need in (("s", "categories, items by part"), ("k", "categories"), ("b", "items")):
        with pytest.raises(irt.StoreError, match=f"needs {need}.* does not know"):
            irt.open_responses(tmp_path / name)


def test_views_of_a_grown_store(store: Path, bits: Any) -> None:
    r = irt.open_responses(store)
    y = cells(r)
    chosen = r.select(items=["c", "a"], persons=slice(5, 10))
    np.testing.assert_array_equal(cells(chosen), y[5:10][:, [2, 0]])
    assert chosen.n_categories == (4, 2)
    binary = r.select(items=["b", "a"])
    assert (binary.categories, binary.graded) == (2, False)
    assert r.split(0.5)[0].n_categories == (2, 2, 4)
    in_memory = irt.from_array(y[:, [1, 0]], item_id="ba", person_id=list(r.person_ids(0)) + [
        i for k in range(1, r.n_blocks) for i in r.person_ids(k)
    ])  # fmt: skip
    assert bits(irt.pair_counts(binary)) == bits(irt.pair_counts(in_memory))
    if r.layout == "dense":
        dataset = r.to_xarray()
        np.testing.assert_array_equal(dataset["response"].values, y)
        assert dataset["item_n_categories"].values.tolist() == [2, 2, 4]


def test_a_grown_store_has_one_identity(store: Path) -> None:
    r = irt.open_responses(store)
    with Engine(r, graded=True, progress=False) as engine:
        assert fingerprint(engine) == r.fingerprint == read_manifest(store)["checksum"]


def test_new_items_follow_those_of_the_store(store: Path) -> None:
    before = (store / "manifest.json").read_bytes()
    y = np.zeros((2, 3), dtype=np.int8)
    for item_id in ("acb", "abd", "ab"):
        with pytest.raises(ValueError, match="new ones after"):
            grown(store, y, item_id)
    with extend(store) as draft:
        part = draft.part(layout="dense", n_persons=1, n_items=2, rows_per_block=1)
        with pytest.raises(ValueError, match="new ones after"):
            draft.commit(part, part.create(), item_id=("a", "b", "c"))
    assert (store / "manifest.json").read_bytes() == before


def test_append_to_a_grown_store(store: Path, tmp_path: Path) -> None:
    """It knows the items that came later; persons of before stay without them."""
    y = cells(irt.open_responses(store))
    (tmp_path / "more.csv").write_text("person,item,response\nx,c,1\nx,a,0\ny,b,1\n")
    more = irt.append(tmp_path / "more.csv", store)
    assert more.n_categories == (2, 2, 4)
    np.testing.assert_array_equal(cells(more), [*y, [0, -1, 1], [-1, 1, -1]])
    assert "new_items" not in read_manifest(store)["parts"][-1]


# --- damage and codes out of bounds ---------------------------------------------------------------


def rewritten(store: Path, **changes: Any) -> irt.Responses:
    """The store with a manifest that says something else, and is valid by itself."""
    content = read_manifest(store)
    for name in ("checksum", "format", "format_version"):
        del content[name]
    manifest.write(store, manifest.settled(content | changes))
    return irt.open_responses(store)


@pytest.mark.parametrize("categories, j", [([2, 2, 3], 2), ([2, 2, 4], 1), (3, 0)])
@LAYOUTS
def test_a_code_that_its_item_does_not_have_is_damage(
    tmp_path: Path, layout: str, categories: Any, j: int
) -> None:
    """Also one that another item has: kernels check no bounds."""
    y = np.ones((4, 3), dtype=np.int8)
    y[3, j] = max(np.ravel(categories)) if j == 2 else 2 + (categories == 3)
    r = made(tmp_path / "s", y, "abc", layout=layout, categories=categories)
    np.testing.assert_array_equal(to_dense(r.read_block(0).data).values, y[:3])
    with pytest.raises(irt.StoreError, match=r"chunk 1 \(rows 3 to 3\): holds codes that its item"):
        r.read_block(1)


def test_chunks_have_the_items_that_the_manifest_says(store: Path) -> None:
    parts = read_manifest(store)["parts"]
    parts[1]["new_items"] = 2
    with pytest.raises(
        irt.StoreError, match=r"manifest says \[7, 1\]|items out of order or that do"
    ):
        rewritten(store, parts=parts).read_block(0)
