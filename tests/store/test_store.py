"""Stores: whole or not there, and every damaged byte is an error that says where."""

from __future__ import annotations

import json
import os
import pickle
import shutil

import numpy as np
import pytest

import irt_dask as irt
from irt_dask.errors import DiskError, InputError, StoreError
from irt_dask.store import StoreWriter, default_rows_per_block, manifest, open_responses
from irt_dask.store.parts import Part

N, M, ROWS = 23, 4, 8
IDS = [f"Prüfling {i} 学生" for i in range(N)]
ITEMS = ["älpha", "b,c", 'q"uote', "🙂"]


def values():
    return np.random.default_rng(0).integers(-1, 2, (N, M)).astype(np.int8)


def write(path, *, weight=None, group=None):
    with StoreWriter(path, item_id=ITEMS, n_persons=N, rows_per_block=ROWS) as writer:
        for s in range(0, N, ROWS):
            e = min(s + ROWS, N)
            writer.write(
                values()[s:e],
                person_id=IDS[s:e],
                weight=None if weight is None else weight[s:e],
                group=None if group is None else group[s:e],
            )
        return writer.commit()


@pytest.fixture
def store(tmp_path):
    write(tmp_path / "s", weight=np.arange(1.0, N + 1), group=[f"gü{i % 5}" for i in range(N)])
    return tmp_path / "s"


def read_all(responses):
    return np.concatenate([responses.read_block(k).data.values for k in range(responses.n_blocks)])


def test_round_trip(store):
    r = irt.open_responses(str(store))
    assert (r.n_persons, r.n_items, r.n_blocks) == (N, M, 3)
    assert r.item_id == tuple(ITEMS)
    np.testing.assert_array_equal(read_all(r), values())
    assert read_all(r).dtype == np.int8
    assert [i for k in range(3) for i in r.person_ids(k)] == IDS
    np.testing.assert_array_equal(
        np.concatenate([r.read_block(k).weight for k in range(3)]), np.arange(1.0, N + 1)
    )
    assert r.max_weight == N
    assert list(r.groups(2)) == [f"gü{i % 5}" for i in range(16, N)]
    assert [r.read_block(k).start for k in range(3)] == [0, 8, 16]
    r.verify()


def test_without_weights_and_groups(tmp_path):
    r = write(tmp_path / "s")
    assert r.max_weight is None
    assert r.groups(0) is None
    assert r.read_block(0).weight is None
    np.testing.assert_array_equal(r.read_block(0).weights(), np.ones(ROWS))


def test_default_blocks_are_powers_of_two_within_limits():
    for items in (1, 5, 100, 10**5):
        for persons in (None, 10, 10**6, 10**8):
            rows = default_rows_per_block(items, persons)
            assert rows & (rows - 1) == 0
            assert 1 <= rows <= 65_536
            if persons is None or persons >= 16 * 256:
                assert rows >= 256


@pytest.mark.parametrize("n", [1, 2, 3, 4, 6, 7])
def test_blocks_hold_everybody_once_and_none_is_empty(n):
    part = Part("folder", "dense", n_persons=n, n_items=4, rows_per_block=3)
    bounds = [part.rows(k) for k in range(part.n_blocks)]
    assert [i for a, b in bounds for i in range(a, b)] == list(range(n))
    assert all(a < b for a, b in bounds)


def test_few_persons_with_many_items_make_several_blocks():
    assert default_rows_per_block(6000, 200) == 32
    assert default_rows_per_block(100_000, 16) == 2
    assert default_rows_per_block(5, 1000) >= 1000


def test_blocks_grow_with_the_data_to_a_million_cells():
    assert default_rows_per_block(512, 10_000) == 512
    assert default_rows_per_block(512, 65_536) == 1024
    assert default_rows_per_block(512, 200_000) == 2048
    assert default_rows_per_block(512, 10**6) == 2048


# --- opening --------------------------------------------------------------------------------------


def test_missing_and_foreign_folders(tmp_path):
    with pytest.raises(StoreError, match=r"nowhere is not a store.*no such folder"):
        open_responses(tmp_path / "nowhere")
    with pytest.raises(StoreError, match=r"is not a store.*no manifest.json"):
        open_responses(tmp_path)
    (tmp_path / "manifest.json").write_text('{"name": "a web app"}')
    with pytest.raises(StoreError, match="not a manifest of irt_dask"):
        open_responses(tmp_path)
    (tmp_path / "manifest.json").write_text("[1, 2]")
    with pytest.raises(StoreError, match="not a manifest of irt_dask"):
        open_responses(tmp_path)
    (tmp_path / "manifest.json").write_text("")
    with pytest.raises(StoreError, match="cannot be read"):
        open_responses(tmp_path)


def test_other_version_is_refused_by_name(store):
    content = json.loads((store / "manifest.json").read_text())
    content["format_version"] = 99
    (store / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(StoreError, match=r"format version 99.*reads versions 2 and 3"):
        open_responses(store)


def test_flipped_bits_of_the_manifest_is_an_error(store):
    path = store / "manifest.json"
    good = path.read_bytes()
    for k in [*range(0, len(good), 7), len(good) - 1]:
        bad = bytearray(good)
        bad[k] ^= 1 << (k % 8)
        path.write_bytes(bad)
        with pytest.raises(StoreError, match=r"manifest\.json"):
            open_responses(store)
    path.write_bytes(good)
    open_responses(store)


# --- damage ---------------------------------------------------------------------------------------


def chunk(store, array, k):
    (path,) = [
        p
        for p in (store / "part-00000" / array / "c").rglob("*")
        if p.is_file() and p.relative_to(store / "part-00000" / array / "c").parts[0] == str(k)
    ]
    return path


def flip(path, at=None):
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 4
    path.write_bytes(data)


@pytest.mark.parametrize("damage", ["flip", "truncate", "extend", "delete", "swap", "empty"])
@pytest.mark.parametrize("array", ["response", "person_id", "person_weight", "person_group"])
def test_damaged_chunk_is_an_error_that_names_it(store, array, damage):
    path = chunk(store, array, 1)
    if damage == "flip":
        flip(path)
    elif damage == "truncate":
        path.write_bytes(path.read_bytes()[:-1])
    elif damage == "extend":
        path.write_bytes(path.read_bytes() + b"\0")
    elif damage == "delete":
        path.unlink()
    elif damage == "swap":
        shutil.copy(chunk(store, array, 0), path)
    else:
        path.write_bytes(b"")
    r = open_responses(store)
    read = {
        "response": r.read_block,
        "person_weight": r.read_block,
        "person_id": r.person_ids,
        "person_group": r.groups,
    }[array]
    read(0)
    read(2)
    with pytest.raises(StoreError, match=rf"chunk 1 of array {array} in part-00000"):
        read(1)
    with pytest.raises(StoreError, match=rf"chunk 1 of array {array} in part-00000"):
        r.verify()


@pytest.mark.parametrize("damage", ["flip", "delete"])
def test_damaged_metadata_is_an_error_that_names_the_array(store, damage):
    path = store / "part-00000" / "response" / "zarr.json"
    flip(path) if damage == "flip" else path.unlink()
    r = open_responses(store)
    with pytest.raises(StoreError, match="metadata of array response in part-00000"):
        r.read_block(0)
    with pytest.raises(StoreError, match="metadata of array response in part-00000"):
        r.verify()


def test_verify_lists_everything_at_once(store):
    flip(chunk(store, "response", 0))
    chunk(store, "person_id", 2).unlink()
    flip(store / "part-00000" / "zarr.json")
    with pytest.raises(StoreError) as caught:
        irt.open_responses(store).verify()
    text = str(caught.value)
    assert text.startswith("3 problem(s)")
    for expected in (
        "chunk 0 of array response", "chunk 2 of array person_id", "the metadata of part-00000 of",
    ):  # fmt: skip
        assert expected in text


def test_a_manifest_is_read_by_people(store):
    assert '"älpha"' in (store / "manifest.json").read_text(encoding="utf-8")


def test_damage_stops_a_fit(store):
    flip(chunk(store, "response", 2))
    with pytest.raises(StoreError, match="chunk 2 of array response"):
        irt.fit_joint(open_responses(store), model="1pl")


def test_unlisted_files_are_ignored(store):
    (store / "part-00000" / "response" / "c" / "9").mkdir()
    (store / "part-00000" / "response" / "c" / "9" / "0").write_bytes(b"junk")
    np.testing.assert_array_equal(read_all(open_responses(store)), values())


def test_values_that_no_response_has_are_refused(tmp_path):
    with StoreWriter(tmp_path / "s", item_id=["a"], n_persons=2, rows_per_block=2) as writer:
        writer.write(np.array([[3], [1]], dtype=np.int8), person_id=["p", "q"])
        r = writer.commit()
    with pytest.raises(StoreError, match="values other than 1, 0 and -1"):
        r.read_block(0)


# --- writing --------------------------------------------------------------------------------------


def test_nothing_is_left_by_an_exception(tmp_path):
    def interrupted():
        with StoreWriter(tmp_path / "s", item_id=ITEMS, n_persons=N, rows_per_block=ROWS) as writer:
            writer.write(values()[:ROWS], person_id=IDS[:ROWS])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_left_without_commit(tmp_path):
    with StoreWriter(tmp_path / "s", item_id=ITEMS, n_persons=N, rows_per_block=ROWS) as writer:
        writer.write(values()[:ROWS], person_id=IDS[:ROWS])
        assert not (tmp_path / "s").exists()
    assert list(tmp_path.iterdir()) == []


def test_commit_leaves_only_the_store(store):
    assert [p.name for p in store.parent.iterdir()] == ["s"]


def test_what_a_killed_writer_left_is_replaced(tmp_path):
    left = tmp_path / ".s.partial" / "draft-0" / "part-00000"
    left.mkdir(parents=True)
    (left / "zarr.json").write_text("{}")
    write(tmp_path / "s").verify()
    assert [p.name for p in tmp_path.iterdir()] == ["s"]


def test_existing_path_is_refused_and_untouched(store):
    before = (store / "manifest.json").read_bytes()
    with pytest.raises(InputError, match="exists already"):
        StoreWriter(store, item_id=["a"], n_persons=1, rows_per_block=1)
    with pytest.raises(InputError, match="exists already"):
        irt.simulate(5, 2, store=store)
    assert (store / "manifest.json").read_bytes() == before
    open_responses(store).verify()


def test_two_writers_of_one_store_are_refused(tmp_path):
    with StoreWriter(tmp_path / "s", item_id=["a"], n_persons=1, rows_per_block=1) as first:
        with pytest.raises(InputError, match="another process is writing"):
            StoreWriter(tmp_path / "s", item_id=["a"], n_persons=1, rows_per_block=1)
        first.write(np.ones((1, 1), dtype=np.int8), person_id=["p"])
        first.commit().verify()
    assert [p.name for p in tmp_path.iterdir()] == ["s"]


def test_no_persons_is_an_error(tmp_path):
    with pytest.raises(InputError, match="no persons"):
        StoreWriter(tmp_path / "s", item_id=["a"], n_persons=0, rows_per_block=1)
    assert list(tmp_path.iterdir()) == []


def test_blocks_of_another_shape_are_refused(tmp_path):
    with StoreWriter(tmp_path / "s", item_id=ITEMS, n_persons=6, rows_per_block=4) as writer:
        with pytest.raises(ValueError, match="4 persons x 4 items, not 3 identifiers"):
            writer.write(values()[:4], person_id=IDS[:3])
        with pytest.raises(ValueError, match="0 of 2 blocks are written"):
            writer.commit()
        writer.write(values()[:4], person_id=IDS[:4])
        with pytest.raises(ValueError, match=r"not \['person_id', 'person_weight', 'response'\]"):
            writer.write(values()[4:6], person_id=IDS[4:6], weight=[1.0, 1.0])
        writer.write(values()[4:6], person_id=IDS[4:6])
        with pytest.raises(ValueError, match="all 6 persons"):
            writer.write(values()[:4], person_id=IDS[:4])
    assert list(tmp_path.iterdir()) == []


# --- moving, changing, pickling -------------------------------------------------------------------


def test_moved_store_opens_and_is_the_same(store, tmp_path):
    before = open_responses(store)
    shutil.move(store, tmp_path / "elsewhere")
    after = open_responses(tmp_path / "elsewhere")
    np.testing.assert_array_equal(read_all(after), values())
    assert after.fingerprint == before.fingerprint


def test_same_content_has_the_same_fingerprint(tmp_path):
    assert write(tmp_path / "a").fingerprint == write(tmp_path / "b").fingerprint


@pytest.mark.parametrize("used_before", [False, True])
def test_store_that_changed_under_an_open_handle_is_an_error(store, used_before):
    r = open_responses(store)
    if used_before:
        r.read_block(0)
    shutil.rmtree(store)
    with StoreWriter(store, item_id=ITEMS, n_persons=N, rows_per_block=ROWS) as writer:
        for s in range(0, N, ROWS):
            e = min(s + ROWS, N)
            writer.write(
                np.abs(values()[s:e]) ^ 1,
                person_id=IDS[s:e],
                weight=np.ones(e - s),
                group=["g"] * (e - s),
            )
        writer.commit()
    for k in range(3):
        with pytest.raises(StoreError):
            r.read_block(k)


def test_handle_is_small_and_picklable(store):
    r = open_responses(store)
    data = pickle.dumps(r)
    assert len(data) < 10_000
    again = pickle.loads(data)  # noqa: S301
    np.testing.assert_array_equal(read_all(again), values())
    ref = pickle.loads(pickle.dumps(r.refs[1]))  # noqa: S301
    np.testing.assert_array_equal(ref.read().data.values, values()[8:16])


def entry(name, n_persons, rows):
    more = {"max_weight": None, "n_quarantined": 0}
    return {"name": name, "n_persons": n_persons, "rows_per_block": rows, **more}


def large_store(tmp_path, n_blocks):
    """A manifest of a store with many blocks, without their bytes."""
    content = {
        "layout": "dense",
        "item_id": ["a", "b"],
        "weighted": False,
        "grouped": False,
        "covariates": [],
        "parts": [entry("part-00000", 10 * n_blocks - 3, 10)],
        "files": {f"part-00000/person_id/c/{k}": [40, "0" * 64] for k in range(n_blocks)},
    }
    tmp_path.joinpath("big").mkdir()
    manifest.write(tmp_path / "big", content)
    return open_responses(tmp_path / "big")


@pytest.mark.slow
def test_hundred_thousand_blocks_are_handled(tmp_path):
    r = large_store(tmp_path, 100_000)
    assert r.n_blocks == 100_000
    assert r.n_persons == 999_997
    last = r.refs[99_999]
    assert (last.start, last.first, last.last) == (999_990, 999_990, 999_997)
    with pytest.raises(IndexError, match="block 100000"):
        r.refs[100_000]
    with pytest.raises(StoreError, match="lists no array response"):
        r.read_block(0)
    assert len(pickle.dumps(r)) < 10_000


def test_parts_follow_each_other(tmp_path):
    """The reader takes several parts, as append writes them."""
    large_store(tmp_path, 3)
    content = json.loads((tmp_path / "big" / "manifest.json").read_text())
    content.pop("checksum")
    content["parts"].append(entry("part-00001", 9, 4))
    content["files"] |= {f"part-00001/person_id/c/{k}": [40, "0" * 64] for k in range(3)}
    manifest.write(tmp_path / "big", content)
    r = open_responses(tmp_path / "big")
    assert r.n_persons == 36
    got = [(f.part, f.index, f.start, f.first, f.last) for f in r.refs]
    assert got == [
        ("part-00000", 0, 0, 0, 10),
        ("part-00000", 1, 10, 10, 20),
        ("part-00000", 2, 20, 20, 27),
        ("part-00001", 3, 27, 0, 4),
        ("part-00001", 4, 31, 4, 8),
        ("part-00001", 5, 35, 8, 9),
    ]


@pytest.mark.parametrize(
    "items, message",
    [([], "no items"), (["a", ""], "item 2 has an empty"), (["a", "a"], "repeated: a")],
)
def test_bad_item_ids(tmp_path, items, message):
    with pytest.raises(InputError, match=message):
        StoreWriter(tmp_path / "s", item_id=items, n_persons=1, rows_per_block=1)
    assert list(tmp_path.iterdir()) == []


def _full(*args, **options):
    raise OSError(28, "No space left on device")


def test_full_disk_names_the_file_and_changes_nothing(tmp_path, monkeypatch):
    path = tmp_path / "kept.json"
    path.write_bytes(b"before")
    with monkeypatch.context() as m:
        m.setattr(os, "fsync", _full)
        with pytest.raises(DiskError, match=r"kept\.json cannot be written: No space left"):
            manifest.write_atomically(path, b"after")
    assert [p.name for p in tmp_path.iterdir()] == ["kept.json"]
    assert path.read_bytes() == b"before"


def test_full_disk_while_a_store_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", _full)
    with pytest.raises(DiskError, match="No space left"):
        irt.simulate(50, 4, seed=1, store=tmp_path / "s")
    assert not list(tmp_path.iterdir())
