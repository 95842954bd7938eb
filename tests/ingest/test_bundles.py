"""Temporary files of ingest: any rows can be read, and no change to a file goes unnoticed."""

import contextlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from irt_dask.errors import DiskError, StoreError
from irt_dask.ingest import ingest
from irt_dask.ingest.text import bundles
from irt_dask.store.parts import Part


@given(
    rows=st.integers(0, 60),
    columns=st.integers(0, 4),
    dtype=st.sampled_from(["int8", "int32", "int64", "float64"]),
    stretch=st.integers(1, 8).map(lambda k: 8 * k),
    cut=st.tuples(st.integers(0, 60), st.integers(0, 60)),
    texts=st.lists(st.text(max_size=6), max_size=20),
    pieces=st.lists(st.binary(max_size=40), max_size=6),
)
@settings(deadline=None)
def test_any_rows_can_be_read(tmp_path_factory, rows, columns, dtype, stretch, cut, texts, pieces):
    path = tmp_path_factory.mktemp("bundle") / "b"
    array = np.arange(rows * max(columns, 1)).astype(dtype)
    if columns:
        array = array.reshape(rows, columns)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundles, "_STRETCH", stretch)
        with bundles.writer(path) as to:
            to.add("numbers", array)
            to.add_strings("texts", pa.array(["unseen", *texts], pa.string())[1:])
            to.add_bytes("bytes", pieces)
        b = bundles.Bundle(path)
        part = b["numbers"][cut[0] : cut[1]]
        np.testing.assert_array_equal(part, array[cut[0] : cut[1]])
        assert part.dtype == array.dtype
        assert b.strings("texts", slice(*cut)).to_pylist() == texts[slice(*cut)]
        with b.open("bytes") as file:
            whole = b"".join(pieces)
            file.seek(cut[0])
            assert file.read() == whole[cut[0] :]
            assert file.seek(0, 2) == len(whole)
    assert "numbers" in b
    assert "others" not in b
    assert [p.name for p in path.parent.iterdir()] == ["b"]


def _read_all(path: Path) -> tuple[list[int], list[str]]:
    b = bundles.Bundle(path)
    return b["numbers"][:].tolist(), b.strings("texts").to_pylist()


def test_every_change_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(bundles, "_STRETCH", 16)
    path = tmp_path / "b"
    with bundles.writer(path) as to:
        to.add("numbers", np.arange(7))
        to.add_strings("texts", pa.array(["one", "two", "", "three"]))
    sound, want = path.read_bytes(), _read_all(path)
    for at in range(len(sound)):
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 1 << at % 8]) + sound[at + 1 :])
        with pytest.raises(DiskError, match="not what was written"):
            _read_all(path)
        path.write_bytes(sound[:at])
        with pytest.raises(DiskError, match="not what was written"):
            _read_all(path)
    path.write_bytes(sound)
    assert _read_all(path) == want
    path.unlink()
    with pytest.raises(DiskError, match="not what was written"):
        _read_all(path)


def test_nothing_is_left_of_a_file_that_was_not_finished(tmp_path):
    with pytest.raises(TypeError), bundles.writer(tmp_path / "b") as to:
        to.add_bytes("bytes", [b"some", "text"])
    assert list(tmp_path.iterdir()) == []


LONG = "person,item,response,group\n" + "".join(
    f"p{i},q{j},{(i * j) % 2},g{i % 3}\n" for i in range(40) for j in range(5)
)
WIDE = "person,q1,q2,q3\n" + "".join(f"p{i},1,{i % 2},0\n" for i in range(60))


@pytest.mark.parametrize("text", [LONG, WIDE], ids=["long", "wide"])
@pytest.mark.parametrize("damage", ["bit", "cut", "removed"])
def test_a_damaged_temporary_file_stops_ingest(text, damage, tmp_path, monkeypatch):
    """Whichever of them it is, and nothing is left: the next ingest is an undisturbed one."""
    source = tmp_path / "r.csv"
    source.write_text(text)
    options = {"columns": {"group": "group"} if text is LONG else None}
    want = ingest(source, tmp_path / "want", **options).fingerprint
    written = []

    @contextlib.contextmanager
    def harmed(path):
        with sound(path) as to:
            yield to
        written.append(path)
        if len(written) == strike:
            data = bytearray(path.read_bytes())
            data[len(data) // 3] ^= 4
            path.write_bytes(data if damage == "bit" else data[: len(data) // 3])
            if damage == "removed":
                path.unlink()

    sound, strike = bundles.writer, 0
    monkeypatch.setattr(bundles, "writer", harmed)
    ingest(source, tmp_path / "undamaged", **options)
    n, stopped = len(written), []
    for strike in range(1, n + 1):
        written.clear()
        try:
            r = ingest(source, tmp_path / f"store-{strike}", **options)
        except DiskError:
            stopped.append(written[strike - 1].name)
            assert not (tmp_path / f"store-{strike}").exists()
        else:  # the names for messages, which nobody needed
            assert r.fingerprint == want
    assert len(stopped) >= n - 1
    monkeypatch.setattr(bundles, "writer", sound)
    assert ingest(source, tmp_path / "again", **options).fingerprint == want


def test_a_chunk_that_changes_after_it_was_written_is_noticed(tmp_path, monkeypatch):
    """Its checksum is that of what was written, not of what the disk has made of it."""
    flushed = Part._flushed

    def harmed(part, files):
        for name in files:
            if name.startswith("response/c/"):
                path = Path(part.folder) / name
                data = bytearray(path.read_bytes())
                data[len(data) // 2] ^= 1
                path.write_bytes(data)
        return flushed(part, files)

    monkeypatch.setattr(Part, "_flushed", harmed)
    (tmp_path / "r.csv").write_text(WIDE)
    r = ingest(tmp_path / "r.csv", tmp_path / "store")
    with pytest.raises(StoreError, match="damaged"):
        r.refs[0].read()
