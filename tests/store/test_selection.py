"""Views of responses: some items, some persons, and the lazy Dataset."""

from __future__ import annotations

import pickle

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parts import csr_of, person_ids

import irt_dask as irt
from irt_dask.errors import InputError
from irt_dask.kernels.responses.layouts import Dense, to_dense, to_sparse
from irt_dask.store import StoreWriter
from irt_dask.store.digests import block_digest

N, M = 23, 6
VALUES = np.random.default_rng(3).integers(-1, 2, (N, M)).astype(np.int8)
IDS = [f"p{i}" for i in range(N)]
ITEMS = list("abcdef")


def read(r):
    return np.concatenate([to_dense(r.read_block(k).data).values for k in range(r.n_blocks)])


def store(path, layout, rows=8):
    with StoreWriter(
        path, item_id=ITEMS, n_persons=N, rows_per_block=rows, layout=layout, capacity=rows * M
    ) as writer:
        for s in range(0, N, rows):
            e = min(s + rows, N)
            data = Dense(VALUES[s:e])
            writer.write(
                data if layout == "dense" else to_sparse(data),
                person_id=IDS[s:e],
                weight=np.arange(s, e) + 1.0,
                group=[f"g{i % 3}" for i in range(s, e)],
            )
        return writer.commit()


@pytest.fixture(scope="module", params=["dense", "csr", "array"])
def responses(request, tmp_path_factory):
    if request.param == "array":
        persons = {"weight": np.arange(N) + 1.0, "group": [f"g{i % 3}" for i in range(N)]}
        return irt.from_array(
            VALUES, person_id=IDS, item_id=ITEMS, persons=persons, rows_per_block=8
        )
    return store(tmp_path_factory.mktemp("select") / "s", request.param)


def check(r, rows, columns):
    np.testing.assert_array_equal(read(r), VALUES[np.ix_(rows, columns)])
    assert person_ids(r) == [IDS[i] for i in rows]
    assert r.item_id == tuple(ITEMS[j] for j in columns)
    assert (r.n_persons, r.n_items) == (len(rows), len(columns))
    weights = np.concatenate([r.read_block(k).weight for k in range(r.n_blocks)])
    np.testing.assert_array_equal(weights, np.array(rows) + 1.0)
    assert [g for k in range(r.n_blocks) for g in r.groups(k)] == [f"g{i % 3}" for i in rows]
    starts = [r.read_block(k).start for k in range(r.n_blocks)]
    lengths = [r.read_block(k).n_persons for k in range(r.n_blocks)]
    assert starts == np.cumsum([0, *lengths[:-1]]).tolist()


def test_items_in_the_order_asked_for(responses):
    check(responses.select(items=["d", "a", "f"]), range(N), [3, 0, 5])


def test_persons_by_id_keep_their_order(responses):
    check(responses.select(persons=["p20", "p3", "p4"]), [3, 4, 20], range(M))


def test_persons_by_slice(responses):
    check(responses.select(persons=slice(5, 18)), range(5, 18), range(M))
    check(responses.select(persons=slice(-3, None)), range(N - 3, N), range(M))


@pytest.mark.parametrize("form", [np.array, list, pd.Series, lambda m: da.from_array(m, chunks=5)])
def test_persons_by_mask(responses, form):
    mask = np.zeros(N, dtype=bool)
    mask[[2, 3, 9, *range(12, N)]] = True
    rows = np.flatnonzero(mask)
    chosen = responses.select(persons=form(mask), items=["b"])
    check(chosen, rows, [1])
    by_name = responses.select(persons=[IDS[i] for i in rows], items=["b"])
    assert [r.tolist() for r in map(chosen.person_ids, range(chosen.n_blocks))] == [
        r.tolist() for r in map(by_name.person_ids, range(by_name.n_blocks))
    ]
    other = mask.copy()
    other[4] = True
    assert responses.select(persons=mask).fingerprint != responses.select(persons=other).fingerprint
    assert responses.select(persons=mask).fingerprint == responses.select(persons=mask).fingerprint


def test_a_mask_is_copied_and_of_it_a_block_takes_its_own(tmp_path):
    r = irt.simulate(40_000, 2, seed=1, rows_per_block=1000, store=tmp_path / "s")
    mask = np.arange(40_000) % 3 == 0
    chosen = r.select(persons=mask)
    mask[:] = False
    assert chosen.n_persons == 13_334
    assert chosen.person_ids(0)[:3].tolist() == ["0", "3", "6"]
    assert len(pickle.dumps(chosen.refs[5])) < 3_000
    chosen = chosen.select(persons=np.arange(13_334) < 2)
    assert chosen.person_ids(0).tolist() == ["0", "3"]


def test_a_mask_of_lazy_responses():
    lazy = irt.from_array(da.from_array(VALUES, chunks=(4, M)), rows_per_block=5)
    mask = np.arange(N) % 2 == 1
    array = irt.from_array(VALUES[mask], rows_per_block=5)
    counts = [irt.pair_counts(r)["pair_count"] for r in (lazy.select(persons=mask), array)]
    np.testing.assert_array_equal(*counts)


def test_identifiers_that_look_the_same_are_selected():
    r = irt.from_array(VALUES[:2, :2], person_id=["e\u0301", "b"], item_id=["\u00fc", "q"])
    assert r.item_id == ("\u00fc", "q")
    assert r.select(persons=["\u00e9"], items=["u\u0308"]).person_ids(0).tolist() == ["\u00e9"]
    for names in ({"person_id": ["e\u0301", "\u00e9"]}, {"item_id": ["e\u0301", "\u00e9"]}):
        with pytest.raises(InputError, match="must be unique; repeated: \u00e9"):
            irt.from_array(VALUES[:2, :2], **names)


def test_selections_of_selections(responses):
    r = responses.select(persons=slice(2, 21), items=list("abcde"))
    check(r.select(items=["e", "b"], persons=["p9", "p20", "p2"]), [2, 9, 20], [4, 1])


@given(st.data())
@settings(max_examples=20, deadline=None, derandomize=True, database=None)
def test_any_selection(responses, data):
    columns = data.draw(st.lists(st.integers(0, M - 1), min_size=1, unique=True))
    rows = sorted(data.draw(st.sets(st.integers(0, N - 1), min_size=1)))
    chosen = responses.select(items=[ITEMS[j] for j in columns], persons=[IDS[i] for i in rows])
    check(chosen, rows, columns)


def test_results_are_those_of_the_selected_data(responses, bits, client):
    chosen = responses.select(items=["e", "b", "c"], persons=slice(3, 22))
    array = irt.from_array(
        VALUES[3:22][:, [4, 1, 2]], item_id=["e", "b", "c"], person_id=IDS[3:22], rows_per_block=5
    )
    items = irt.simulate(2, M, seed=4).truth.assign_coords(item_id=("items", ITEMS))
    expected = bits(irt.score(array, items))
    assert bits(irt.score(chosen, items)) == expected
    assert bits(irt.score(chosen, items, client=client)) == expected


def test_fingerprint_says_what_is_selected(responses):
    fingerprints = {
        responses.fingerprint,
        responses.select(items=["a", "b"]).fingerprint,
        responses.select(items=["b", "a"]).fingerprint,
        responses.select(persons=slice(0, 8)).fingerprint,
        responses.select(persons=slice(8, 16)).fingerprint,
        responses.select(persons=["p0"]).fingerprint,
        responses.select(persons=["p8"]).fingerprint,
    }
    assert len(fingerprints) == 7
    assert responses.select(items=["a"]).fingerprint == responses.select(items=["a"]).fingerprint


def test_no_two_selections_share_a_fingerprint():
    """Blocks 1 and 2 with ten rows each are not block 12 with twenty."""
    r = irt.simulate(300, 3, rows_per_block=20)
    a = r.select(persons=[str(i) for i in [*range(20, 30), *range(50, 60)]])
    b = r.select(persons=[str(i) for i in range(240, 260)])
    assert a.fingerprint != b.fingerprint


@pytest.mark.parametrize(
    "options, message",
    [
        ({"items": ["a", "x", "y"]}, r"2 item\(s\) do not occur: 'x', 'y'"),
        ({"items": []}, "no item is selected"),
        ({"items": 3}, "must be a list of item"),
        ({"persons": 3}, "must be a list of person"),
        ({"persons": slice("a", "b")}, "of whole numbers"),
        ({"items": ["a", "a"]}, "repeated: a"),
        ({"items": "a"}, "must be a list of item"),
        ({"persons": ["p1", "q"]}, r"1 person\(s\) do not occur: 'q'"),
        ({"persons": "p1"}, "must be a list of person"),
        ({"persons": []}, "no person is selected"),
        ({"persons": slice(5, 5)}, "no person is selected"),
        ({"persons": slice(0, 9, 2)}, "the step"),
        ({"persons": np.ones(N - 1, dtype=bool)}, "needs one truth value for each of the"),
        ({"persons": [True]}, "needs one truth value for each of the"),
        ({"persons": np.ones((N, 1), dtype=bool)}, "is a mask of shape"),
        ({"persons": np.ones(N)}, "a mask is of truth values"),
        ({"persons": np.ones(N, dtype=int)}, "a mask is of truth values"),
        ({"persons": [0, 1] * (N // 2) + [1] * (N % 2)}, "a mask is of truth values"),
        ({"persons": [True, "p1"]}, "has True or False and str"),
        ({"persons": np.zeros(N, dtype=bool)}, "no person is selected"),
        ({"persons": np.ma.array([True] * N, mask=[True] + [False] * (N - 1))}, "masked"),
        ({"persons": pd.Series([True] * N, index=IDS[::-1])}, r"index \('p22', 'p21', .* position"),
    ],
)
def test_what_cannot_be_selected(responses, options, message):
    with pytest.raises(InputError, match=message):
        responses.select(**options)


def test_an_index_that_is_the_position_is_no_other_order(responses):
    mask = np.arange(N) % 3 == 0
    for same in (pd.Series(mask), pd.Series(mask, index=np.arange(N))):
        np.testing.assert_array_equal(read(responses.select(persons=same)), VALUES[mask])


def test_truth_follows_the_selection():
    r = irt.simulate(20, 5, seed=1, rows_per_block=6)
    chosen = r.select(items=["item4", "item2"], persons=["7", "15"])
    assert list(chosen.truth["item_id"].values) == ["item4", "item2"]
    np.testing.assert_array_equal(
        chosen.truth["person_ability"], r.truth["person_ability"].values[[7, 15]]
    )


def test_a_selection_of_a_store_travels_small(tmp_path):
    r = store(tmp_path / "s", "dense").select(items=["b", "a"], persons=slice(1, 20))
    again = pickle.loads(pickle.dumps(r))  # noqa: S301
    check(again, range(1, 20), [1, 0])
    assert len(pickle.dumps(r)) < 10_000


def test_lazy_dataset(tmp_path):
    r = store(tmp_path / "s", "dense")
    lazy = r.to_xarray()
    assert lazy["response"].dims == ("persons", "items")
    assert lazy["response"].chunksizes["persons"] == (8, 8, 7)
    assert hasattr(lazy["response"].data, "dask")
    loaded = lazy.load()
    np.testing.assert_array_equal(loaded["response"], VALUES)
    assert list(loaded["person_id"].values) == IDS
    np.testing.assert_array_equal(loaded["person_weight"], np.arange(N) + 1.0)
    assert list(loaded["person_group"].values[:4]) == ["g0", "g1", "g2", "g0"]
    back = irt.from_array(r.to_xarray()["response"])
    np.testing.assert_array_equal(read(back), VALUES)
    assert person_ids(back) == IDS


def test_sparse_store_is_not_made_dense_behind_the_users_back(tmp_path):
    with pytest.raises(InputError, match="needs the dense layout"):
        store(tmp_path / "s", "csr").to_xarray()


def test_damage_is_found_through_a_selection(tmp_path):
    r = store(tmp_path / "s", "csr")
    chunk = tmp_path / "s" / "part-00000" / "response_value" / "c" / "1" / "0"
    data = bytearray(chunk.read_bytes())
    data[len(data) // 2] ^= 4
    chunk.write_bytes(bytes(data))
    chosen = r.select(items=["a"], persons=slice(8, 10))
    with pytest.raises(irt.StoreError, match="chunk 1 of array response_value in part-00000"):
        chosen.read_block(0)


# --- two parts at random --------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_split_deals_everybody_once_whatever_the_blocks(layout):
    y = np.random.default_rng(0).integers(-1, 2, (500, 4)).astype(np.int8)
    y[:, 0] = np.abs(y[:, 0])
    ids = [f"p{i}" for i in range(500)]
    groups = ["odd" if i % 2 else "even" for i in range(500)]
    seen = []
    for rows in (500, 64, 7):
        data, options = y, {}
        if layout == "csr":
            data = csr_of(y)
            options = {"observed": "stored"}
        r = irt.from_array(
            data, person_id=ids, rows_per_block=rows, persons={"group": groups}, **options
        )
        parts = []
        for part in r.split(0.8, seed=3):
            names = np.concatenate([part.person_ids(k) for k in range(part.n_blocks)])
            labels = np.concatenate([part.groups(k) for k in range(part.n_blocks)])
            cells = np.concatenate(
                [to_dense(part.read_block(k).data).values for k in range(part.n_blocks)]
            )
            at = np.array([int(name[1:]) for name in names])
            assert (np.diff(at) > 0).all()
            np.testing.assert_array_equal(cells, y[at])
            assert [*labels] == [groups[i] for i in at]
            assert part.n_persons == len(at)
            parts.append(at)
        assert sorted(np.concatenate(parts)) == list(range(500))
        seen.append(parts[0].tolist())
    assert seen[0] == seen[1] == seen[2]
    assert abs(len(seen[0]) - 400) < 4 * (500 * 0.8 * 0.2) ** 0.5
    one, two = r.split(0.8, seed=3)
    assert one.fingerprint != two.fingerprint != r.split(0.8, seed=4)[1].fingerprint
    half = one.select(items=["2", "0"]).split(0.5)[0]
    assert half.n_items == 2
    assert 100 < half.n_persons < 300


def test_split_of_simulated_responses_keeps_their_truth():
    r = irt.simulate(300, 4, seed=1, rows_per_block=50)
    one, two = r.split(0.3)
    assert one.truth.sizes["persons"] + two.truth.sizes["persons"] == 300
    assert one.truth.sizes["persons"] == one.n_persons


def test_split_refusals():
    r = irt.simulate(20, 3)
    for share in (0.0, 1.0, -1, float("nan")):
        with pytest.raises(InputError, match="must lie between 0 and 1"):
            r.split(share)
    with pytest.raises(InputError, match="leaves one part without anybody"):
        r.split(1e-9)


def test_weights_can_be_ignored(tmp_path):
    """What is left is what data without weights are, in memory and in a store, block by block."""
    y = np.random.default_rng(1).integers(-1, 2, (60, 4)).astype(np.int8)
    weight = np.arange(1.0, 61.0)
    source = tmp_path / "d.csv"
    rows = ["person,w,a,b,c,d"]
    rows += [
        f"{i},{w}," + ",".join("" if v < 0 else str(v) for v in row)
        for i, (w, row) in enumerate(zip(weight, y, strict=True))
    ]
    source.write_text("\n".join(rows) + "\n")
    columns = {"person": "person", "weight": "w", "items": list("abcd")}
    stored = irt.ingest(source, tmp_path / "s", columns=columns, rows_per_block=16)
    memory = irt.from_array(
        y, persons={"weight": weight}, weight_kind="frequency", item_id=list("abcd"),
        rows_per_block=16,
    )  # fmt: skip
    without = irt.from_array(y, item_id=list("abcd"), rows_per_block=16)
    assert memory.select(weights="ignore").fingerprint == without.fingerprint
    assert len({r.fingerprint for r in (stored, stored.select(weights="ignore"))}) == 2
    for r in (stored, memory):
        for ignored in (r.select(weights="ignore"), r.select(items=list("abcd"), weights="ignore")):
            assert (ignored.max_weight, ignored.weight_kind) == (None, "sampling")
            assert all(ref.weights() is None for ref in ignored.refs)
            assert all(ignored.read_block(k).weight is None for k in range(ignored.n_blocks))
            np.testing.assert_array_equal(
                irt.fit_spectral(ignored)["item_difficulty"],
                irt.fit_spectral(without)["item_difficulty"],
            )
        with pytest.raises(InputError, match="select the responses with weights='ignore'"):
            irt.fit_conditional(r)
    assert without.select(weights="ignore") is without
    with pytest.raises(InputError, match="weights='drop' is not available"):
        memory.select(weights="drop")


def test_blocks_of_a_store_without_weights_are_known_unread(tmp_path, monkeypatch):
    """Scores are found again by this checksum; nothing has to be read for it."""
    r = store(tmp_path / "s", "dense")
    monkeypatch.setattr(type(r.refs[0]), "read", None)
    ignored = r.select(weights="ignore")
    digests = [block_digest(ref) for of in (r, ignored) for ref in of.refs]
    assert len(set(digests)) == len(digests)
