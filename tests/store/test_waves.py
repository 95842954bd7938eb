"""Further waves of a store: new items, persons who come again, and what is merged."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parts import cells, made, person_ids

import irt_dask as irt
from irt_dask.cli import main
from irt_dask.errors import InputError, Notice, StoreError
from irt_dask.ingest.sort import spill
from irt_dask.ingest.text import lines
from irt_dask.store import StoreWriter, manifest, responses
from irt_dask.store.draft import extend
from irt_dask.store.supplements import Cells

LAYOUTS = pytest.mark.parametrize("layout", ["dense", "csr"])
FIRST = "person,item,response\nu,a,1\nu,b,0\nv,a,0\nw,b,1\nw,c,1\n"
#: Of FIRST: persons u, v, w by items a, b, c.
MATRIX = [[1, 0, -1], [0, -1, -1], [-1, 1, 1]]


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def first(folder: Path, **options: Any) -> Path:
    irt.ingest(write(folder / "first.csv", FIRST), folder / "s", rows_per_block=2, **options)
    return folder / "s"


def more(folder: Path, rows: str, header: str = "person,item,response") -> Path:
    return write(folder / "more.csv", f"{header}\n{rows}")


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def listed(store: Path) -> dict[str, Any]:
    return json.loads((store / "manifest.json").read_text())


@pytest.fixture
def many_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of a few lines and several partitions."""
    monkeypatch.setattr(lines, "piece_bytes", lambda size: 97)
    monkeypatch.setattr(spill, "n_partitions", lambda size: 7)


# --- items that are new ---------------------------------------------------------------------------


@LAYOUTS
def test_new_items_join(layout: str, tmp_path: Path) -> None:
    """After those of the store, as they first appear; earlier persons have not seen them."""
    store = first(tmp_path, layout=layout)
    old = irt.open_responses(store)
    with pytest.warns(Notice, match=r"2 item\(s\) are new .* join it: 'e', 'd'$"):
        r = irt.append(more(tmp_path, "x,e,1\nx,b,1\ny,d,0\n"), store)
    assert r.item_id == ("a", "b", "c", "e", "d")
    late = [[-1, 1, -1, 1, -1], [-1, -1, -1, -1, 0]]
    np.testing.assert_array_equal(cells(r), [*([*row, -1, -1] for row in MATRIX), *late])
    assert listed(store)["needs"] == ["items by part"]
    assert (old.item_id, cells(old).tolist()) == (("a", "b", "c"), MATRIX)
    new = more(tmp_path, "z,1,,A\n", "person,f,c,e")
    with pytest.warns(Notice, match=r"1 item\(s\) are new .*: 'f'"):
        r = irt.append(new, store, key=dict.fromkeys("fce", "A"), recode={"1": "right"})
    assert r.item_id[-1] == "f"
    assert cells(r)[-1].tolist() == [-1, -1, -1, 1, -1, 1]
    r.verify()


def test_only_items_of_rows_that_are_taken_join(tmp_path: Path) -> None:
    rows = "x,g,7\ny,f,1\nu,e,1\nx,d,0\ny,e,8\nx,e,NA\nx,a,2\nx,a,1\n"
    for n, on_duplicate in enumerate(("skip", "quarantine")):
        folder = tmp_path / on_duplicate
        folder.mkdir()
        with pytest.warns(Notice) as said:
            r = irt.append(
                more(folder, rows), first(folder), on_error="quarantine", on_duplicate=on_duplicate
            )
        assert [str(w.message).rpartition(": ")[2] for w in said][-1] == "'f', 'd'"
        assert r.item_id == ("a", "b", "c", "f", "d")
        assert cells(r)[3:].tolist() == [[-1, -1, -1, 1, -1], [1, -1, -1, -1, 0]]
        assert (person_ids(r)[3:], r.n_quarantined) == (["y", "x"], 3 + n)


@pytest.mark.parametrize("on_duplicate", ["skip", "quarantine", "merge"])
@pytest.mark.filterwarnings("ignore:.*left out:irt_dask.errors.Notice")
def test_columns_of_rows_that_are_left_out_do_not_join(tmp_path: Path, on_duplicate: str) -> None:
    """New items stand in the order of the header, whoever answered them."""
    store = first(tmp_path)
    rows = "u,0,1,,1\nv,1,,,\nx,,,1,\n"  # the row of u contradicts the store
    new = more(tmp_path, rows, "person,f,a,e,d").read_text().replace("u,0,1", "u,0,0")
    new = write(tmp_path / "more.csv", new)
    with pytest.warns(Notice, match="join it: 'f', 'e'" if on_duplicate == "merge" else "it: 'e'"):
        r = irt.append(new, store, on_duplicate=on_duplicate, on_error="quarantine")
    items = ["f", "e"] if on_duplicate == "merge" else ["e"]
    assert r.item_id == ("a", "b", "c", *items)
    assert cells(r)[3].tolist() == [-1, -1, -1, *([-1, 1] if len(items) == 2 else [1])]
    if on_duplicate == "merge":
        assert cells(r)[1].tolist() == [0, -1, -1, 1, -1]


# --- persons who come again -----------------------------------------------------------------------

AGAIN = "x,a,1\nu,b,0\nv,c,1\nu,c,1\nx,b,0\n"


@pytest.mark.parametrize(
    "layout, on_duplicate",
    [("dense", "raise"), ("csr", "skip"), ("dense", "quarantine"), ("dense", "merge"),
     ("csr", "merge"), ("dense", "overwrite")],
)  # fmt: skip
def test_persons_who_come_again(layout: str, on_duplicate: str, tmp_path: Path) -> None:
    store = first(tmp_path, layout=layout)
    before, new = tree(store), more(tmp_path, AGAIN)
    aside = tmp_path / "s.quarantine-00001.csv"
    if on_duplicate in ("raise", "overwrite"):
        text = r"2 person\(s\) are in .*: 'u', 'v'; say .*on_duplicate='merge'"
        if on_duplicate == "overwrite":
            text = r"on_duplicate='overwrite' is unknown; it is one of raise, skip, quarantine"
        with pytest.raises(InputError, match=text):
            irt.append(new, store, on_duplicate=on_duplicate)
        assert tree(store) == before
        return
    if on_duplicate == "skip":
        with pytest.warns(Notice, match=r"2 person\(s\) .* 3 row\(s\) are left out: 'u', 'v'"):
            r = irt.append(new, store, on_duplicate="skip")
    else:
        r = irt.append(new, store, on_duplicate=on_duplicate)
    expected = [[1, 0, 1], [0, -1, 1], MATRIX[2]] if on_duplicate == "merge" else MATRIX
    np.testing.assert_array_equal(cells(r), [*expected, [1, 0, -1]])
    assert person_ids(r) == list("uvwx")
    assert r.n_quarantined == (3 if on_duplicate == "quarantine" else 0)
    assert aside.exists() == (on_duplicate == "quarantine")
    if aside.exists():
        table = pd.read_csv(aside)
        assert table["line"].tolist() == [3, 4, 5]
        assert table["reason"][1] == "the person 'v' is in the store already"
        assert table["text"][1] == "v,c,1"
    now = tree(store)
    assert {k: v for k, v in now.items() if k in before and k != "manifest.json"} == {
        k: v for k, v in before.items() if k != "manifest.json"
    }
    r.verify()


def test_a_table_of_persons_and_rows_that_are_left_out(tmp_path: Path) -> None:
    """Those who are left out need no row, and a row of theirs is none that is not used."""
    table = pd.DataFrame({"person": list("uvw"), "weight": [1.0, 2.0, 3.0]})
    store = first(tmp_path, persons=table)
    new = more(tmp_path, AGAIN)
    for persons in (["x"], ["x", "u"]):
        copy = shutil.copytree(store, tmp_path / f"t{len(persons)}")
        later = pd.DataFrame({"person": persons, "weight": 4.0})
        with pytest.warns(Notice, match="2 person") as said:
            r = irt.append(new, copy, on_duplicate="skip", persons=later)
        assert (len(said), r.n_persons, r.max_weight) == (1, 4, 4.0)


# --- merging --------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout, form", [("dense", "long"), ("csr", "wide"), ("dense", "nested")])
def test_a_conflict_names_person_item_values_and_line(
    layout: str, form: str, tmp_path: Path
) -> None:
    """Put aside is the row: of a long file a response, else all of the person."""
    store = first(tmp_path, layout=layout)
    before = tree(store)
    if form == "long":
        new, line = more(tmp_path, "v,d,1\nu,c,1\nv,a,1\nx,a,1\n"), 4
    elif form == "wide":
        new, line = more(tmp_path, "u,,1,\nv,1,,1\nx,1,,\n", "person,a,c,d"), 3
    else:
        objects = [
            {"person": "u", "responses": {"c": 1}}, {"person": "v", "responses": {"d": 1, "a": 1}},
            {"person": "x", "responses": {"a": 1}},
        ]  # fmt: skip
        text = "".join(f"{json.dumps(o)}\n" for o in objects)
        new, line = write(tmp_path / "more.jsonl", text), 2
    text = rf"more.*, line {line}: the person 'v' has 1 for the item 'a' here, and 0 in the store"
    with pytest.raises(InputError, match=text):
        irt.append(new, store, on_duplicate="merge")
    assert tree(store) == before
    if form != "long":  # no other row has the item
        r = irt.append(new, store, on_duplicate="merge", on_error="quarantine")
        assert r.item_id == ("a", "b", "c")
    else:
        with pytest.warns(Notice, match="'d'"):
            r = irt.append(new, store, on_duplicate="merge", on_error="quarantine")
    taken = [1] if form == "long" else [-1]
    expected = [[1, 0, 1, -1], [0, -1, -1, *taken], [-1, 1, 1, -1], [1, -1, -1, -1]]
    np.testing.assert_array_equal(cells(r), np.array(expected)[:, : r.n_items])
    table = pd.read_csv(tmp_path / "s.quarantine-00001.csv")
    assert table["line"].tolist() == [line]
    assert "'v'" in table["reason"][0]
    assert r.n_quarantined == 1


def test_merged_again_nothing_changes(tmp_path: Path) -> None:
    """Also when the first attempt was killed after its last act: the same command is safe."""
    store = first(tmp_path)
    irt.append(more(tmp_path, AGAIN), store, on_duplicate="merge")
    before = tree(tmp_path)
    with pytest.warns(Notice, match="adds nothing"):
        r = irt.append(more(tmp_path, AGAIN), store, on_duplicate="merge")
    assert r.n_persons == 4
    assert tree(tmp_path) == before


@LAYOUTS
def test_a_part_without_persons(layout: str, tmp_path: Path) -> None:
    """Before and after parts that have some."""
    store = first(tmp_path, layout=layout)
    with pytest.warns(Notice, match="'d'"):
        irt.append(more(tmp_path, "w,d,0\nu,c,0\n"), store, on_duplicate="merge")
    irt.append(more(tmp_path, "w,a,1\n"), store, on_duplicate="merge")
    r = irt.append(more(tmp_path, "x,a,1\n"), store, on_duplicate="merge")
    r = irt.append(more(tmp_path, "x,b,1\nw,d,0\n"), store, on_duplicate="merge")
    assert [p["n_persons"] for p in listed(store)["parts"]] == [3, 0, 0, 1, 0]
    assert [p.get("merged_responses") for p in listed(store)["parts"]] == [None, 2, 1, None, 1]
    assert listed(store)["needs"] == ["items by part", "merged persons"]
    expected = [[1, 0, 0, -1], [0, -1, -1, -1], [1, 1, 1, 0], [1, 1, -1, -1]]
    np.testing.assert_array_equal(cells(r), expected)
    assert [r.refs[k].supplements for k in range(r.n_blocks)] == [
        ("part-00001",), ("part-00001", "part-00002"), ("part-00004",),
    ]  # fmt: skip
    assert person_ids(r.select(persons=["w", "x"])) == ["w", "x"]
    np.testing.assert_array_equal(cells(r.select(items=["d", "a"], persons=["w", "x"])),
                                  [[0, 1], [-1, 1]])  # fmt: skip
    if layout == "dense":
        np.testing.assert_array_equal(r.to_xarray()["response"].values, expected)
    assert sum(r.read_block(k).data.n_observed for k in range(r.n_blocks)) == 10
    r.verify()


@pytest.mark.parametrize("on_duplicate", ["merge", "quarantine"])
def test_rows_put_aside_alone_change_nothing(tmp_path: Path, on_duplicate: str) -> None:
    """However often they are appended; their file is there, and stays."""
    store = first(tmp_path)
    new = more(tmp_path, "u,a,0\nx,a,1\n" if on_duplicate == "merge" else "u,d,0\nw,c,1\n")
    options = {"on_duplicate": on_duplicate, "on_error": "quarantine"}
    if on_duplicate == "merge":
        assert irt.append(new, store, **options).n_quarantined == 1
    before, n = tree(store), irt.open_responses(store).n_quarantined
    for _ in range(2):
        with pytest.warns(
            Notice, match=r"adds nothing .* row\(s\) are put aside in s\.quar"
        ) as said:
            r = irt.append(new, store, **options)
        assert (tree(store), r.n_quarantined) == (before, n)
    files = {*tmp_path.glob("s.quarantine-*.csv")} - {tmp_path / "s.quarantine-00001.csv"}
    (file,) = files
    assert str(said[-1].message).endswith(file.name)
    assert len(pd.read_csv(file)) == (1 if on_duplicate == "merge" else 2)
    r = irt.append(more(tmp_path, "y,a,1\n"), store)
    assert cells(r)[-1].tolist() == [1, -1, -1]
    assert file.exists()


def test_parts_after_rows_put_aside(tmp_path: Path) -> None:
    store = first(tmp_path)
    with pytest.warns(Notice, match="2 row"):
        irt.append(more(tmp_path, "u,d,0\nw,c,1\n"), store, on_duplicate="quarantine")
    r = irt.append(more(tmp_path, "x,a,1\n"), store)
    assert cells(r).tolist() == [*MATRIX, [1, -1, -1]]
    with pytest.warns(Notice, match="join it: 'd'"):
        r = irt.append(more(tmp_path, "u,0\n", "person,d"), store, on_duplicate="merge")
    assert cells(r)[:, 3].tolist() == [0, -1, -1, -1]
    r.verify()


PERSONS = pd.DataFrame(
    {"person": list("uvw"), "weight": [1.0, 2.0, 3.0], "group": list("ghg"),
     "age": [15.0, np.nan, 16.0]}
)  # fmt: skip


def test_attributes_of_who_is_merged(tmp_path: Path) -> None:
    """Equal, or not given; only new persons need them."""
    store = first(tmp_path, persons=PERSONS)
    later = PERSONS.iloc[[2, 0]].assign(age=[np.nan, 15.0])
    r = irt.append(
        more(tmp_path, "u,c,0\nv,c,1\nw,a,1\n"), store, persons=later, on_duplicate="merge"
    )
    np.testing.assert_array_equal(cells(r), [[1, 0, 0], [0, -1, 1], [1, 1, 1]])
    new = more(tmp_path, "v,b,1\n")
    r = irt.append(new, store, on_duplicate="merge")
    assert cells(r)[1].tolist() == [0, 1, 1]
    assert (r.max_weight, list(r.groups(1))) == (3.0, ["g"])
    new = more(tmp_path, "v,b,1\nx,b,1\ny,b,0\n")
    text = r"brings weights: no; .* has weights: yes; .* for the 2 person\(s\) who are new: 'x'"
    others = pd.DataFrame({"person": list("xy"), "weight": 1.0, "group": "g", "age": 1.0})
    with pytest.raises(InputError, match=text):
        irt.append(new, store, on_duplicate="merge", persons=others.drop(columns="weight"))
    for change, said in (
        ({"weight": 9.0}, r"'v' \(weight 9.0, in the store 2.0\)"),
        (
            {"group": "g"},
            r"1 person\(s\) are in .* other attributes: 'v' \(group g, in the store h",
        ),
        ({"age": 14.0}, r"'v' \(age 14.0, in the store nan\)"),
    ):
        table = pd.concat([PERSONS.assign(**change).iloc[1:2], others])
        with pytest.raises(InputError, match=said):
            irt.append(new, store, persons=table, on_duplicate="merge")


def test_attributes_in_the_rows_of_who_is_merged(tmp_path: Path) -> None:
    columns = {"weight": "w", "group": "g"}
    text = "person,item,response,w,g\nu,a,1,2,north\nv,a,0,1,south\n"
    store = tmp_path / "s"
    irt.ingest(write(tmp_path / "f.csv", text), store, columns=columns)
    before = tree(store)
    rows = "u,b,1,{},north\nx,b,0,1,north\nv,b,1,1,{}\n"
    for w, g, said in (
        (3, "south", "line 2: column 'w' has '3' for the person 'u', and the store has '2'"),
        (2.0000001, "south", "has '2.0000001' for the person 'u', and the store has '2'"),
        (2, "east", "line 4: column 'g' has 'east' for the person 'v', and the store has 'south'"),
    ):
        new = more(tmp_path, rows.format(w, g), "person,item,response,w,g")
        with pytest.raises(InputError, match=said):
            irt.append(new, store, columns=columns, on_duplicate="merge")
        assert tree(store) == before
    with pytest.warns(Notice, match="'b'"):
        r = irt.append(new, store, columns=columns, on_duplicate="merge", on_error="quarantine")
    assert cells(r).tolist() == [[1, 1], [0, -1], [-1, 0]]
    assert r.n_quarantined == 1


def test_an_object_of_many_responses_is_put_aside_once(tmp_path: Path) -> None:
    columns = {"person": "person", "weight": "w"}
    objects = '{"person": "u", "a": 1, "w": 2}\n{"person": "u", "a": 1, "b": 0, "c": 1, "w": 3}\n'
    lines = write(tmp_path / "f.jsonl", objects)
    store = tmp_path / "s"
    assert irt.ingest(lines, store, columns=columns, on_error="quarantine").n_quarantined == 1
    lines.write_text(objects.splitlines()[1])
    with pytest.warns(Notice, match="adds nothing"):
        r = irt.append(lines, store, columns=columns, on_duplicate="merge", on_error="quarantine")
    assert (r.n_quarantined, cells(r).tolist()) == (1, [[1]])
    files = [*tmp_path.glob("s.quarantine*.csv")]
    assert [len(file.read_text().splitlines()) for file in files] == [2, 2]


# --- what else rests on a store -------------------------------------------------------------------


WITHOUT_WEIGHTS = {
    "all items": lambda r: r.select(weights="ignore"),
    "some": lambda r: r.select(items=list("abc"), weights="ignore"),
    "some, then": lambda r: r.select(items=list("abc")).select(weights="ignore"),
}


@pytest.mark.filterwarnings("ignore:1 item.* are ignored:irt_dask.errors.Notice")
@pytest.mark.parametrize("view", WITHOUT_WEIGHTS)
def test_scores_without_weights_after_a_merge(tmp_path: Path, view: str) -> None:
    """The folder is known again though its first block has got responses, and an item joined."""
    store, of = first(tmp_path, persons=PERSONS), WITHOUT_WEIGHTS[view]
    fit = irt.simulate(2, 3, seed=1).truth.assign_coords(item_id=("items", list("abc")))
    irt.score(of(irt.open_responses(store)), fit, store=tmp_path / "scores")
    with pytest.warns(Notice, match="'d'"):
        r = irt.append(more(tmp_path, "u,c,0\nv,d,1\n"), store, on_duplicate="merge")
    for folder in ("scores", "fresh"):
        irt.score(of(r), fit, store=tmp_path / folder, unknown_items="ignore")
    a, b = (pd.read_parquet(tmp_path / folder) for folder in ("scores", "fresh"))
    pd.testing.assert_frame_equal(a, b, check_exact=True)


#: An accent as a character of its own, and a letter that has its accent.
APART, ONE = "Jose\u0301", "Jos\u00e9"


@pytest.fixture
def as_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Write a store whose identifiers are as they are given, as stores were once."""

    def write(item_id: list[str], ids: list[str], rows: int = 2) -> Path:
        y = np.tile([[1, -1], [0, 1]], (len(ids), 1))[: len(ids)].astype(np.int8)
        with monkeypatch.context() as m:
            m.setattr(responses, "identifier", str)
            with StoreWriter(
                tmp_path / "s", item_id=item_id, n_persons=len(ids), rows_per_block=rows
            ) as writer:
                writer.write(y, person_id=ids, group=ids)
                writer.commit()
        return tmp_path / "s"

    return write


def test_accents_of_a_store_are_those_of_files(tmp_path: Path, as_given: Any) -> None:
    """Read, scored and appended to in one form, kept in that of the store."""
    store = as_given([APART, "q"], ["ann", APART, "bob"])
    raw, old = listed(store), irt.open_responses(store)
    assert raw["item_id"] == [APART, "q"]
    assert (old.item_id, person_ids(old)) == ((ONE, "q"), ["ann", ONE, "bob"])
    assert (list(old.groups(0)), old.fingerprint) == (["ann", ONE], raw["checksum"])
    assert person_ids(old.select(persons=[APART], items=[APART])) == [ONE]
    fit = irt.simulate(2, 2, seed=1).truth.assign_coords(item_id=("items", [ONE, "q"]))
    assert list(irt.score(old, fit)["person_id"].values) == ["ann", ONE, "bob"]
    new = more(tmp_path, f"ann,q,0,ann\n{APART},{ONE},0,{APART}\ncy,{APART},1,c\ncy,z,1,c\n",
               "person,item,response,group")  # fmt: skip
    options = {"columns": {"group": "group"}, "on_duplicate": "merge"}
    with pytest.warns(Notice, match="join it: 'z'"):
        r = irt.append(new, store, **options)
    assert (r.item_id, person_ids(r)) == ((ONE, "q", "z"), ["ann", ONE, "bob", "cy"])
    assert cells(r).tolist() == [[1, 0, -1], [0, 1, -1], [1, -1, -1], [1, -1, 1]]
    assert listed(store)["item_id"] == [APART, "q", "z"]
    assert cells(old).tolist() == [[1, -1], [0, 1], [1, -1]]
    r.verify()


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("on_duplicate", ["raise", "skip", "merge"])
def test_a_person_with_accents_of_two_forms(
    tmp_path: Path, as_given: Any, rows: int, on_duplicate: str
) -> None:
    store = as_given(["p", "q"], [APART, ONE, "ann"], rows)
    new = more(tmp_path, f"{ONE},p,1,{ONE}\n", "person,item,response,group")
    with pytest.raises(StoreError, match=rf"1 person.* twice.*'{ONE}'; ingest its files again"):
        irt.append(new, store, columns={"group": "group"}, on_duplicate=on_duplicate)


# --- three waves are one file ---------------------------------------------------------------------


def waves(folder: Path, rng: Any) -> tuple[np.ndarray, list[Path]]:
    """All responses of 240 persons to 11 items, and the files of three waves that bring them."""
    theta, b = rng.normal(size=240), np.linspace(-1.5, 1.5, 11)
    y = (rng.random((240, 11)) < 1 / (1 + np.exp(b - theta[:, None]))).astype(int)
    y[rng.random(y.shape) < 0.1] = -1
    wave = np.full(y.shape, 3)  # in which a response comes
    wave[:80, :6], wave[80:160, :9] = 1, 2
    wave[:40, 6:9] = 2
    y[40:80, 6:9] = -1
    files = []
    for k, n, m in ((1, 80, 6), (2, 160, 9), (3, 240, 11)):
        table = pd.DataFrame(y, columns=[f"i{j}" for j in range(11)])
        again = (wave < k) & (rng.random(y.shape) < 0.2)  # the same response once more
        table = table.where((y >= 0) & ((wave == k) | again)).astype("Int8").iloc[:n, :m]
        table.insert(0, "person", [f"p{i}" for i in range(n)])
        keep = table.iloc[:, 1:].notna().any(axis=1) | (np.arange(n) >= n - 80)
        files.append(folder / f"{k}.csv")
        table[keep].to_csv(files[-1], index=False)
    return y, files


@pytest.mark.parametrize("layout", ["dense", pytest.param("csr", marks=pytest.mark.slow)])
def test_three_waves_are_one_file(layout: str, tmp_path: Path, bits: Any) -> None:
    y, files = waves(tmp_path, np.random.default_rng(4))
    store, whole = tmp_path / "s", tmp_path / "whole"
    options = {"rows_per_block": 40}
    irt.ingest(files[0], store, layout=layout, **options)
    for file in files[1:]:
        with pytest.warns(Notice, match="are new to"):
            r = irt.append(file, store, on_duplicate="merge", **options)
    table = pd.DataFrame(y, columns=[f"i{j}" for j in range(11)])
    table.insert(0, "person", [f"p{i}" for i in range(240)])
    table.to_csv(tmp_path / "whole.csv", index=False)
    one = irt.ingest(tmp_path / "whole.csv", whole, layout=layout, **options)
    assert (r.item_id, person_ids(r)) == (one.item_id, person_ids(one))
    np.testing.assert_array_equal(cells(r), y)
    assert r.n_blocks == one.n_blocks == 6
    for k in range(6):
        for a, b in zip(r.read_block(k).data, one.read_block(k).data, strict=True):
            np.testing.assert_array_equal(a, b)
    for fit in (irt.fit_joint, irt.fit_marginal, irt.pair_counts):
        assert bits(fit(r)) == bits(fit(one))
    items = irt.fit_marginal(one)
    assert bits(irt.score(r, items)) == bits(irt.score(one, items))


# --- any waves, against pandas --------------------------------------------------------------------

ROW = st.tuples(st.sampled_from("uvwxyz"), st.sampled_from("abcde"), st.integers(0, 1))
WAVE = st.lists(ROW, min_size=1, max_size=12, unique_by=lambda row: row[:2])
POLICY = st.tuples(
    st.sampled_from(["skip", "quarantine", "merge", "merge"]),
    st.sampled_from(["raise", "quarantine"]),
)


class Oracle:
    """What a store should hold, by pandas."""

    def __init__(self) -> None:
        self.rows = pd.DataFrame(columns=["person", "item", "response"])
        self.n_aside = 0

    def add(self, wave: pd.DataFrame, on_duplicate: str, on_error: str) -> bool:
        """Take a wave; False if it is refused."""
        there, n_aside = self.rows.drop_duplicates(["person", "item"]), 0
        known = wave["person"].isin(there["person"])
        if on_duplicate != "merge":
            n_aside = int(known.sum()) if on_duplicate == "quarantine" else 0
            wave = wave[~known]
        both = wave.merge(there, how="left", on=["person", "item"], suffixes=("", "_there"))
        wrong = both["response_there"].notna() & (both["response_there"] != both["response"])
        if wrong.any() and on_error == "raise":
            return False
        if both["response_there"].isna().any():  # else nothing is added, and no row counted
            self.n_aside += n_aside + int(wrong.sum())
        self.rows = pd.concat([self.rows, both.loc[~wrong, ["person", "item", "response"]]])
        return True

    def table(self) -> pd.DataFrame:
        """Persons by items, both as they first appear."""
        rows = self.rows.drop_duplicates(["person", "item"])
        wide = rows.pivot(index="person", columns="item", values="response")
        return wide.loc[rows["person"].unique(), rows["item"].unique()].fillna(-1).astype(int)


def check_waves(folder: Path, layout: str, begun: list[Any], then: list[Any]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    oracle, store = Oracle(), folder / "s"

    def file(rows: list[Any]) -> tuple[pd.DataFrame, Path]:
        table = pd.DataFrame(rows, columns=["person", "item", "response"])
        table.to_csv(folder / "wave.csv", index=False)
        return table, folder / "wave.csv"

    table, path = file(begun)
    oracle.add(table, "merge", "raise")
    r = irt.ingest(path, store, layout=layout, rows_per_block=2)
    history = [(r, oracle.table())]
    for rows, (on_duplicate, on_error) in then:
        table, path = file(rows)
        options = {"on_duplicate": on_duplicate, "on_error": on_error, "rows_per_block": 3}
        if oracle.add(table, on_duplicate, on_error):
            r = irt.append(path, store, **options)
        else:
            with pytest.raises(InputError, match="in the store; a merge fills"):
                irt.append(path, store, **options)
        history.append((r, oracle.table()))
        assert r.n_quarantined == oracle.n_aside
    for handle, expected in history:
        for one in (handle, pickle.loads(pickle.dumps(handle))):  # noqa: S301
            assert person_ids(one) == expected.index.tolist()
            assert list(one.item_id) == expected.columns.tolist()
            np.testing.assert_array_equal(cells(one), expected)
    irt.open_responses(store).verify()


ANY = given(
    st.sampled_from(["dense", "csr"]), WAVE,
    st.lists(st.tuples(WAVE, POLICY), min_size=1, max_size=3),
)  # fmt: skip


@pytest.mark.filterwarnings("ignore::irt_dask.errors.Notice")
@settings(max_examples=3, deadline=None, derandomize=True)
@ANY
def test_some_waves(tmp_path_factory: Any, layout: str, begun: Any, then: Any) -> None:
    check_waves(tmp_path_factory.getbasetemp() / "waves", layout, begun, then)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore::irt_dask.errors.Notice")
@settings(max_examples=150, deadline=None)
@ANY
def test_any_waves(tmp_path_factory: Any, layout: str, begun: Any, then: Any) -> None:
    check_waves(tmp_path_factory.getbasetemp() / "any-waves", layout, begun, then)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::irt_dask.errors.Notice")
@LAYOUTS
def test_waves_in_many_pieces(layout: str, many_pieces: None, tmp_path: Path, client: Any) -> None:
    """Long and wide, with workers: the bytes of threads, and what pandas has."""
    rng = np.random.default_rng(8)
    y = rng.integers(-1, 2, (60, 9))
    frames = []
    for k, (persons, items) in enumerate(((40, 6), (60, 9), (60, 9))):
        table = pd.DataFrame(y[:persons, :items], columns=[f"i{j}" for j in range(items)])
        keep = rng.random(table.shape) < (0.5, 0.5, 1.0)[k]
        table = table.where(keep & (table >= 0)).astype("Int8")
        table.insert(0, "person", [f"p{i}" for i in range(persons)])
        frames.append(table.iloc[rng.permutation(persons)] if k == 1 else table)
    trees = []
    for run in (None, client if layout == "dense" else None):
        store = tmp_path / f"s{len(trees)}"
        for k, table in enumerate(frames):
            if k == 1:
                long = table.melt("person", var_name="item", value_name="response").dropna()
                long.to_csv(tmp_path / "f.csv", index=False)
            else:
                table.to_csv(tmp_path / "f.csv", index=False)
            if k == 0:
                irt.ingest(tmp_path / "f.csv", store, layout=layout, rows_per_block=8, client=run)
            else:
                r = irt.append(tmp_path / "f.csv", store, on_duplicate="merge", rows_per_block=8,
                               client=run)  # fmt: skip
        trees.append(tree(store))
        at = [int(p[1:]) for p in person_ids(r)]
        across = [int(i[1:]) for i in r.item_id]
        np.testing.assert_array_equal(cells(r), y[np.ix_(at, across)])
    assert trees[0] == trees[1]


# --- what the store says, and damage --------------------------------------------------------------


@pytest.fixture
def merged(tmp_path: Path) -> Path:
    """A store whose first block has a supplement."""
    store = first(tmp_path, layout="csr")
    irt.append(more(tmp_path, "v,c,1\nu,c,1\nx,a,1\n"), store, on_duplicate="merge")
    return store


def test_the_manifest_remembers(merged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = manifest.read(merged)
    assert (now["format_version"], now["needs"]) == (3, ["merged persons"])
    part = now["parts"][1]
    assert (part["merged_persons"], part["merged_responses"]) == (2, 2)
    then = {"parts": now["parts"][:1], "files": {k: v for k, v in now["files"].items()
            if k.startswith("part-00000/")}}  # fmt: skip
    then = manifest.settled({k: v for k, v in now.items() if k != "checksum"} | then)
    then["format_version"] = 2
    found = manifest.as_of(now, manifest.digest(then))
    assert found is not None
    assert "needs" not in found
    monkeypatch.setattr(manifest, "_KNOWN", manifest._KNOWN - {manifest.MERGED})
    with pytest.raises(StoreError, match="needs merged persons, which this irt_dask does not know"):
        irt.open_responses(merged)


@pytest.mark.parametrize("damage", ["lost", "flipped", "metadata"])
def test_a_damaged_supplement_is_an_error(merged: Path, damage: str) -> None:
    file = merged / "part-00001" / "supplement" / "c" / "0" / "0" / "0"
    words = "chunk 0 of array supplement in part-00001"
    if damage == "lost":
        file.unlink()
    elif damage == "flipped":
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    else:
        (merged / "part-00001" / "supplement" / "zarr.json").write_text("{}")
        words = "metadata of array supplement in part-00001"
    r = irt.open_responses(merged)
    with pytest.raises(StoreError, match=words):
        r.read_block(0)
    with pytest.raises(StoreError, match=words):
        r.verify()
    r.read_block(1)


@pytest.mark.parametrize(
    "cell, words",
    [
        ((0, 0, 1), "observed before"), ((0, 2, 2), "codes that its items"),
        ((5, 2, 1), "out of order or"), ((0, 3, 1), "out of order or"),
    ],
)  # fmt: skip
@LAYOUTS
def test_a_supplement_is_checked(layout: str, cell: Any, words: str, tmp_path: Path) -> None:
    """One that no append writes: a cell that is observed, or not there, or another code."""
    store = tmp_path / "s"
    made(store, np.array([[1, 0, -1], [0, 1, -1]]), "abc", layout=layout, rows=2)
    with extend(store) as draft:
        part = draft.part(layout=layout, n_persons=0, n_items=3, rows_per_block=1,
                          n_blocks_before=1, most_added=1)  # fmt: skip
        files = part.create()
        files |= part.write_supplement(0, Cells(*(np.array([x]) for x in cell)))
        r = draft.commit(part, files, item_id=tuple("abc"), merged=(1, 1))
    with pytest.raises(StoreError, match=f"supplement in part-00001, chunk 0: .*{words}"):
        r.read_block(0)


def test_a_supplement_of_no_block_is_refused(merged: Path) -> None:
    content = manifest.read(merged)
    key = "part-00001/supplement/c/{}/0/0"
    content["files"][key.format(7)] = content["files"][key.format(0)]
    for name in ("checksum", "format", "format_version"):
        del content[name]
    manifest.write(merged, content)
    with pytest.raises(StoreError, match="no block before it of this number"):
        irt.open_responses(merged)


def test_the_command(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    first(tmp_path)
    more(tmp_path, "u,c,1\nx,d,0\n")

    def typed(*args: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["irt-dask", "append", "more.csv", "s", *args])
        code = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code  # type: ignore[assignment]
        out = capsys.readouterr()
        return code, out.out + out.err

    code, text = typed()
    assert code == 2
    assert "1 person(s) are in the store" in text
    assert "--on-duplicate" in text
    code, text = typed("--on-duplicate", "merge")
    assert code == 0
    assert "note: more.csv: 1 item(s) are new to the store" in text
    assert cells(irt.open_responses("s"))[0].tolist() == [1, 0, 1, -1]
    code, text = typed("--on-duplicate", "merge")
    assert code == 0
    assert "note: more.csv adds nothing to the store" in text


def test_merged_in_object_storage(tmp_path: Path) -> None:
    """The same content as on disk; what a reader held before stays what it was."""
    system, at = fsspec.filesystem("memory"), "memory://bucket-waves/s"
    new = more(tmp_path, AGAIN)
    try:
        old = irt.ingest(write(tmp_path / "first.csv", FIRST), at, rows_per_block=2)
        there = irt.append(new, at, on_duplicate="merge")
        here = irt.append(new, first(tmp_path), on_duplicate="merge")
        np.testing.assert_array_equal(cells(there), cells(here))
        assert cells(old).tolist() == MATRIX
        there.verify()
        name = next(k for k in manifest.read(irt.store.places.location(at))["files"]
                    if "supplement/c" in k)  # fmt: skip
        system.rm_file(f"{at}/{name}")
        with pytest.raises(StoreError, match="chunk 0 of array supplement"):
            irt.open_responses(at).read_block(0)
    finally:
        system.rm("/bucket-waves", recursive=True)
