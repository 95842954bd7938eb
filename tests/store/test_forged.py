"""Stores that somebody changed who can also write a checksum: an error by name, and at once."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import struct
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pandas as pd
import pytest
import zarr
from numcodecs.zstd import Zstd
from parts import made

import irt_dask as irt
from irt_dask.engine.lock import FolderLock
from irt_dask.errors import DiskError, InputError, IrtDaskError, StoreError
from irt_dask.store import StoreWriter, frames, manifest

Y = np.random.default_rng(0).integers(-1, 2, (7, 3)).astype(np.int8)
LAYOUTS = pytest.mark.parametrize("layout", ["dense", "csr"])
HUGE = 2**61


@pytest.fixture
def store(tmp_path: Path) -> Path:
    made(tmp_path / "s", Y, "abc")
    return tmp_path / "s"


def reseal(store: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the manifest, and make its checksum right again."""
    path = store / "manifest.json"
    content = json.loads(path.read_text())
    del content["checksum"]
    change(content)
    content["checksum"] = manifest.digest(content)
    path.write_text(json.dumps(content))


def relist(store: Path, key: str, data: bytes) -> None:
    """Write other bytes to a file of the store, and list them."""
    (store / key).write_bytes(data)
    listed = [len(data), hashlib.sha256(data).hexdigest()]
    reseal(store, lambda c: c["files"].update({key: listed}))


def read_all(store: Path) -> None:
    """What a computation does with a store."""
    r = irt.open_responses(store)
    for k in range(r.n_blocks):
        r.read_block(k)
        r.person_ids(k)


def refused(store: Path, read: Callable[[Path], Any] = read_all) -> str:
    """What the error says; within seconds and a few megabytes."""
    said: list[str] = []

    def work() -> None:
        try:
            read(store)
        except IrtDaskError as error:
            said.append(str(error))

    thread = threading.Thread(target=work, daemon=True)  # a pipe would hold it for ever
    tracemalloc.start()
    thread.start()
    thread.join(20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert not thread.is_alive()
    assert peak < 50e6
    assert said
    return said[0]


def part(content: dict[str, Any], **entries: Any) -> None:
    content["parts"][0].update(entries)


def again(content: dict[str, Any]) -> None:
    content["parts"].append(content["parts"][0])


def moved(content: dict[str, Any], key: str) -> None:
    content["files"][key] = content["files"].pop("part-00000/response/c/0/0")


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "NaN": (lambda c: part(c, max_weight=float("nan")), "NaN is no JSON"),
    "infinite": (lambda c: part(c, max_weight=1e999), "Infinity is no JSON"),
    "text for a number": (lambda c: part(c, n_persons="7"), "n_persons of part-00000 is '7'"),
    "truth for a number": (lambda c: part(c, rows_per_block=True), "rows_per_block .* True"),
    "a fraction": (lambda c: part(c, n_persons=7.0), "n_persons of part-00000 is 7.0"),
    "negative": (lambda c: part(c, n_persons=-7), "n_persons of part-00000 is -7"),
    "none of": (lambda c: part(c, rows_per_block=0), "rows_per_block of part-00000 is 0"),
    "huge": (lambda c: part(c, n_persons=HUGE), r"3 chunk\(s\) of identifiers"),
    "huge block": (
        lambda c: part(c, n_persons=3 * HUGE, rows_per_block=HUGE), "listed is too small",
    ),
    "a weight": (lambda c: part(c, max_weight=-1.0), "max_weight"),
    "a weight of none": (lambda c: part(c, max_weight=3.0), "a largest weight, and the store has"),
    "items twice": (lambda c: c.update(item_id=["a", "b", "a"]), "'a' twice"),
    "items that look the same": (
        lambda c: c.update(item_id=["\u00e9", "e\u0301", "c"]),
        "'\u00e9' twice, with accents written in two ways; write it in one .* ingest them again",
    ),
    "no items": (lambda c: c.update(item_id=[]), "item_id is no list of names"),
    "numbers for names": (lambda c: c.update(item_id=[1, 2, 3]), "item_id is no list of names"),
    "parts twice": (again, "two parts called part-00000"),
    "a part elsewhere": (lambda c: part(c, name="../other"), "a part is called '../other'"),
    "no parts": (lambda c: c.update(parts=[]), "parts is no list"),
    "a layout": (lambda c: c.update(layout="sparse"), "layout is 'sparse'"),
    "a truth value": (lambda c: c.update(weighted="no"), "weighted is 'no'"),
    "categories": (lambda c: c.update(n_categories=[2, 2]), "n_categories"),
    "many categories": (lambda c: c.update(n_categories=[2, 2, 99]), "the most is 15"),
    "above": (lambda c: moved(c, "part-00000/../../x"), "is no file of a part"),
    "absolute": (lambda c: moved(c, "/etc/passwd"), "is no file of a part"),
    "a size": (lambda c: c["files"].update({"part-00000/zarr.json": [-1, "0" * 64]}), "size and"),
    "a checksum": (lambda c: c["files"].update({"part-00000/zarr.json": [9, "x"]}), "size and"),
    "fewer chunks": (
        lambda c: c["files"].pop("part-00000/response/c/1/0"),
        r"has 3 chunk\(s\), and the manifest lists 2",
    ),
    "another chunk": (
        lambda c: c["files"].update(
            {"part-00000/person_id/c/1x": c["files"].pop("part-00000/person_id/c/1")}
        ),
        "chunk 1 of array person_id in part-00000 .* the manifest does not list it",
    ),
    "more items": (lambda c: c["item_id"].append("d"), r"has \[7, 3\], .* says \[7, 4\]"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_resealed_manifest(store: Path, name: str) -> None:
    change, words = CHANGES[name]
    reseal(store, change)
    with pytest.raises(StoreError, match=words):
        raise StoreError(refused(store))


def test_a_key_that_stands_twice(store: Path) -> None:
    path = store / "manifest.json"
    path.write_text(path.read_text().replace('"parts"', '"layout": "csr", "parts"', 1))
    assert "the key 'layout' stands twice" in refused(store)


def test_what_cannot_be_opened(store: Path) -> None:
    path = store / "manifest.json"
    path.unlink()
    path.symlink_to("manifest.json")  # of itself
    with pytest.raises(StoreError, match=r"the manifest .* cannot be read: .*symbolic links"):
        irt.open_responses(store)


@pytest.mark.parametrize("claimed", ["", "0" * 64])
def test_what_has_no_checksum(store: Path, claimed: str) -> None:
    """A text that cannot be encoded: neither an empty checksum nor another one is right."""
    path = store / "manifest.json"
    content = json.loads(path.read_text()) | {"checksum": claimed, "item_id": ["\ud800", "b", "c"]}
    path.write_text(json.dumps(content))
    assert "its checksum does not match" in refused(store)


@pytest.mark.parametrize("depth", [500, 3000, 100_000])
def test_nesting(store: Path, depth: int) -> None:
    """Whether it is the reader or the checksum that gives up first."""
    path, deep = store / "manifest.json", "[" * depth + "]" * depth
    path.write_text(path.read_text().replace('"parts"', f'"x": {deep}, "parts"', 1))
    assert "nested too deeply" in refused(store) or depth < 100_000


def array(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda said: said.update(changes)


METADATA = [
    (array(shape=[7, HUGE]), "has .* and the manifest says"),
    (array(chunk_grid={"name": "regular", "configuration": {"chunk_shape": [HUGE, 3]}}), "chunks"),
    (array(data_type="int64"), "has the type 'int64', not int8"),
    (array(codecs=[{"name": "numcodecs.pickle"}]), "is encoded by .'numcodecs.pickle'"),
    (array(codecs=3), "is encoded by"),
    (array(node_type="group"), "is no array of Zarr 3"),
    (array(chunk_grid=[1]), "has chunks of None"),
]


@pytest.mark.parametrize(("change", "words"), METADATA)
def test_resealed_metadata(store: Path, change: Any, words: str) -> None:
    key = "part-00000/response/zarr.json"
    said = json.loads((store / key).read_text())
    change(said)
    relist(store, key, json.dumps(said).encode())
    with pytest.raises(StoreError, match=words):
        raise StoreError(refused(store))


def test_capacity_of_a_sparse_block_is_that_of_its_file(tmp_path: Path) -> None:
    made(tmp_path / "s", Y, "abc", layout="csr")
    for name in ("response_indices", "response_value"):
        key = f"part-00000/{name}/zarr.json"
        said = json.loads((tmp_path / "s" / key).read_text())
        said["shape"][1] = said["chunk_grid"]["configuration"]["chunk_shape"][1] = 10**9
        relist(tmp_path / "s", key, json.dumps(said).encode())
    assert "too small for one" in refused(tmp_path / "s")


@LAYOUTS
@pytest.mark.parametrize("data", [b"", b"\x28\xb5\x2f\xfd\xe0" + b"\xff" * 8 + b"x" * 9, b"z" * 40])
def test_resealed_chunk_that_cannot_be_decoded(tmp_path: Path, layout: str, data: bytes) -> None:
    """The second claims that it holds 2^64 - 1 bytes."""
    made(tmp_path / "s", Y, "abc", layout=layout)
    name = "response/c/0/0" if layout == "dense" else "response_indices/c/0/0"
    relist(tmp_path / "s", f"part-00000/{name}", data)
    assert "cannot be decoded" in refused(tmp_path / "s") or not data


def rle(size: int, said: bool = True) -> bytes:
    """A frame of a byte so often, 4 bytes for each 2^17; perhaps its header says how often."""
    out = b"\x28\xb5\x2f\xfd" + (b"\xe0" + struct.pack("<Q", size) if said else b"\x00\x58")
    for left in range(size, 0, -(1 << 17)):
        n = min(left, 1 << 17)
        out += struct.pack("<I", n << 3 | 2 | (left == n))[:3] + b"\x01"
    return out


BOMBS = {
    "one frame": rle(200_000_000),
    "two frames": rle(9) + rle(200_000_000),
    "of no size": rle(200_000_000, said=False),
    "many texts": Zstd().encode(struct.pack("<I", 1 << 25) + bytes(16)),
}


@pytest.mark.parametrize("bomb", BOMBS)
@pytest.mark.parametrize("name", ["response/c/0/0", "person_id/c/0"])
def test_a_chunk_of_a_few_bytes_that_stand_for_many(store: Path, name: str, bomb: str) -> None:
    """With a right checksum of its own too."""
    frame = bytes(BOMBS[bomb])
    relist(store, f"part-00000/{name}", frame + struct.pack("<I", google_crc32c.value(frame)))
    assert "cannot be decoded: it is not one frame of" in refused(store)


@pytest.mark.parametrize("n", [0, 1, 255, 256, 300, 65_535, 65_791, 65_792, 1 << 20])
def test_the_size_of_a_frame_is_known(n: int) -> None:
    """Of those that we write: one block or several, of noise or of nothing."""
    rng = np.random.default_rng(0)
    for content in (np.zeros(n, np.uint8), rng.integers(0, 256, n, np.uint8), rng.bytes(9) * n):
        for level in (1, 3):
            frame = memoryview(Zstd(level=level, checksum=level == 3).encode(content))
            size = memoryview(content).nbytes
            assert frames.content_size(frame) == size
            assert frames.content_size(frame[:-1]) is None
            assert frames.content_size(memoryview(bytes(frame) + b"x")) is None


def test_texts_that_no_reader_would_take(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(frames, "_TEXTS", 0)
    ids = ["x" * 1000, "y" * 1046]
    for name, fits in (("a", True), ("b", False)):
        with StoreWriter(tmp_path / name, item_id=["a"], n_persons=2, rows_per_block=2) as writer:
            if fits:
                writer.write(Y[:2, :1], person_id=[ids[0], ids[1][1:]])
                assert list(writer.commit().person_ids(0)) == [ids[0], ids[1][1:]]
                continue
            with pytest.raises(InputError, match=r"person_id: 2046 .* a smaller rows_per_block"):
                writer.write(Y[:2, :1], person_id=ids)


COLUMNS = [
    ("sampling", "person_weight", np.nan, "holds nan: a weight is a finite number above 0"),
    ("sampling", "person_weight", -1.0, "holds -1.0: a weight is"),
    ("frequency", "person_weight", 1.5, "holds 1.5: a frequency weight is a whole number"),
    ("sampling", "person_covariate", np.inf, "holds an infinite value"),
]


@pytest.mark.parametrize("kind, name, value, words", COLUMNS)
def test_weights_and_covariates_that_are_none(
    tmp_path: Path, kind: str, name: str, value: float, words: str
) -> None:
    (tmp_path / "f.csv").write_text("person,item,response\nu,a,1\nv,a,0\n")
    persons = pd.DataFrame({"person": ["u", "v"], "weight": [1, 2], "age": [1.0, 2.0]})
    store = tmp_path / "s"
    irt.ingest(tmp_path / "f.csv", store, persons=persons, weight_kind=kind)
    zarr.open_array(store / "part-00000" / name, mode="r+")[1] = value
    for path in (store / "part-00000" / name / "c").rglob("0"):
        if path.is_file():
            relist(store, str(path.relative_to(store)), path.read_bytes())
    read = irt.Responses.covariates if name == "person_covariate" else irt.Responses.read_block
    assert f"array {name} in part-00000, chunk 0 (rows 0 to 1): {words}" in refused(
        store, lambda path: read(irt.open_responses(path), 0)
    )


# --- what is no file, and disks that fail ---------------------------------------------------------


@pytest.mark.parametrize("name", ["manifest.json", "part-00000/response/c/0/0"])
@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_what_is_no_file_is_not_waited_for(store: Path, name: str, kind: str) -> None:
    path = store / name
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    assert "is no file, but a folder, a pipe or a device" in refused(store)
    if name != "manifest.json":
        assert "is no file" in refused(store, lambda s: irt.open_responses(s).verify())


@pytest.mark.parametrize("size", [HUGE, 10**30])
def test_no_memory_for_a_file_that_is_said_to_be_huge(store: Path, size: int) -> None:
    key = next(k for k in manifest.read(store)["files"] if "person_id/c" in k)
    reseal(store, lambda c: c["files"][key].__setitem__(0, size))
    words = f"bytes, the manifest says {size}"
    assert words in refused(store)
    assert words in refused(store, lambda path: irt.open_responses(path).verify())


def test_a_file_that_grew_is_not_read_whole(store: Path) -> None:
    os.truncate(store / "part-00000/response/c/0/0", 1 << 40)
    assert "the manifest says" in refused(store)


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE])
@pytest.mark.parametrize("name", ["manifest.json", "part-00000/response/c/1/0"])
def test_a_disk_that_fails_is_named(
    store: Path, monkeypatch: pytest.MonkeyPatch, code: int, name: str
) -> None:
    real = os.open

    def failing(path: Any, *args: Any, **options: Any) -> int:
        if str(path).endswith(name):
            raise OSError(code, os.strerror(code), str(path))
        return real(path, *args, **options)

    monkeypatch.setattr(os, "open", failing)
    with pytest.raises(DiskError, match=f"{name} cannot be read: {os.strerror(code)}"):
        read_all(store)


def test_a_checkpoint_on_a_disk_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    states = irt.engine.Checkpoint(tmp_path / "c", {})
    states.save("state", {"x": np.arange(3)})
    real = os.open

    def failing(path: Any, *args: Any, **options: Any) -> int:
        if str(path).endswith(".checkpoint"):
            raise OSError(errno.EIO, "Input/output error", str(path))
        return real(path, *args, **options)

    with monkeypatch.context() as m:
        m.setattr(os, "open", failing)
        with pytest.raises(DiskError, match=r"state\.checkpoint cannot be read: Input/output"):
            states.load("state")
    (tmp_path / "c" / "state.checkpoint").unlink()
    os.mkfifo(tmp_path / "c" / "state.checkpoint")
    with pytest.raises(StoreError, match="is no file"):
        states.load("state")


def test_a_store_that_cannot_be_put_in_place(tmp_path: Path, monkeypatch: Any) -> None:
    def failing(*args: Any, **options: Any) -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(DiskError, match=r"s cannot be written: Stale file handle"):
        made(tmp_path / "s", Y, "abc")


def test_a_folder_that_does_not_answer_once_all_is_written(
    tmp_path: Path, monkeypatch: Any
) -> None:
    def failing(folder: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(manifest, "_sync", failing)
    with pytest.raises(DiskError, match=r"a is written, but .* answer: Input/output error; after"):
        manifest.write_atomically(tmp_path / "a", b"x")
    assert (tmp_path / "a").read_bytes() == b"x"


@pytest.mark.parametrize("fault", ["pipe", "disk"])
def test_scores_that_cannot_be_read(tmp_path: Path, monkeypatch: Any, fault: str) -> None:
    """They are not taken for damaged ones, which would be made again."""
    made(tmp_path / "s", Y, "abc")
    path = tmp_path / "scores" / "part-000000.parquet"
    bank = irt.simulate(2, 3, seed=1).truth.assign_coords(item_id=("items", list("abc")))
    irt.score(irt.open_responses(tmp_path / "s"), bank, store=tmp_path / "scores")
    real = os.open

    def failing(at: Any, *args: Any, **options: Any) -> int:
        if str(at) == str(path):
            raise OSError(errno.EIO, "Input/output error", str(at))
        return real(at, *args, **options)

    if fault == "disk":
        monkeypatch.setattr(os, "open", failing)
    else:
        path.unlink()
        os.mkfifo(path)
    with pytest.raises(
        (StoreError, DiskError), match=r"part-000000\.parquet (cannot be|is no file)"
    ):
        irt.score(irt.open_responses(tmp_path / "s"), bank, store=tmp_path / "scores")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_lock_that_is_no_file_is_not_waited_for(tmp_path: Path, make: Any) -> None:
    make(tmp_path / ".lock")
    with pytest.raises(StoreError, match=r"\.lock is no file, but a folder, a pipe or a device"):
        FolderLock(tmp_path)
    (tmp_path / ".s.partial").mkdir()
    make(tmp_path / ".s.partial" / "lock")
    with pytest.raises(StoreError, match=r"lock is no file, but a folder, a pipe or a device"):
        made(tmp_path / "s", Y, "abc")
