"""What ingest can do besides reading: layouts, keys, tables of persons, quarantine, append."""

from __future__ import annotations

import csv
import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from parts import cells, person_ids

import irt_dask as irt
from irt_dask.errors import DataWarning, InputError
from irt_dask.ingest.sort import spill

LONG = "person,item,response\nu,q1,1\nv,q1,0\nu,q2,0\nw,q2,1\nv,q3,1\n"
WIDE = "person,q1,q2,q3\nu,1,0,\nv,0,,1\nw,,1,\n"
MATRIX = [[1, 0, -1], [0, -1, 1], [-1, 1, -1]]


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def lists(r):
    return cells(r).tolist()


def column(r, what):
    parts = [getattr(r, what)(k) for k in range(r.n_blocks)]
    return None if parts[0] is None else np.concatenate(parts).tolist()


def weights(r):
    return [w for k in range(r.n_blocks) for w in r.read_block(k).weights()]


def names(folder: Path) -> set[str]:
    return {p.name for p in folder.iterdir()}


# --- layouts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("text", [LONG, WIDE], ids=["long", "wide"])
@pytest.mark.parametrize("rows", [None, 1, 2])
def test_layouts_hold_the_same(layout, text, rows, tmp_path):
    r = irt.ingest(
        write(tmp_path / "f.csv", text), tmp_path / "s", layout=layout, rows_per_block=rows
    )
    assert (r.layout, lists(r), person_ids(r)) == (layout, MATRIX, ["u", "v", "w"])
    assert r.item_id == ("q1", "q2", "q3")
    r.verify()


def test_auto_takes_csr_below_ten_percent(tmp_path):
    def make(name, n_items):
        rows = "".join(f"p{i},q{i},1\n" for i in range(n_items))
        file = write(tmp_path / f"{name}.csv", "person,item,response\n" + rows)
        return irt.ingest(file, tmp_path / name)

    assert make("a", 10).layout == "dense"  # exactly a tenth of the cells
    sparse = make("b", 11)
    assert sparse.layout == "csr"
    assert "csr" in repr(sparse)
    assert irt.open_responses(tmp_path / "b").layout == "csr"


def test_person_without_a_response_stays(tmp_path):
    text = "person,item,response\nu,q1,1\nv,q1,NA\nw,q2,0\n"
    for layout in ("dense", "csr"):
        r = irt.ingest(write(tmp_path / "f.csv", text), tmp_path / layout, layout=layout)
        assert person_ids(r) == ["u", "v", "w"]
        assert lists(r) == [[1, -1], [-1, -1], [-1, 0]]


def test_unknown_layout(tmp_path):
    with pytest.raises(
        InputError, match="layout='sparse' is unknown; it is one of auto, dense, csr"
    ):
        irt.ingest(write(tmp_path / "f.csv", LONG), tmp_path / "s", layout="sparse")
    assert names(tmp_path) == {"f.csv"}


# --- what values mean -----------------------------------------------------------------------------


def test_key_and_recode(tmp_path):
    text = "person,q1,q2\nu,A,C\nv,B,9\nw,NA,r\n"
    options = {"key": {"q1": "A", "q2": "C", "q9": "D"}, "recode": {"9": "wrong", "r": "missing"}}
    r = irt.ingest(write(tmp_path / "f.csv", text), tmp_path / "s", **options)
    assert lists(r) == [[1, 1], [0, 0], [-1, -1]]


def test_key_from_a_file_for_a_long_source(tmp_path):
    key = write(tmp_path / "key.csv", "item,key\nq1,1\nq2,2\n")
    text = "person,item,response\nu,q1,1\nu,q2,1\nv,q1,2\nv,q2,2\n"
    r = irt.ingest(write(tmp_path / "f.csv", text), tmp_path / "s", key=key)
    assert lists(r) == [[1, 0], [0, 1]]


def test_items_without_a_key_are_listed(tmp_path):
    with pytest.raises(InputError, match=r"'q2', 'q3'"):
        irt.ingest(write(tmp_path / "f.csv", LONG), tmp_path / "s", key={"q1": "1"})
    assert names(tmp_path) == {"f.csv"}


def test_recode_goes_before_the_usual_codes(tmp_path):
    text = "person,item,response\nu,q1,1\nu,q2,2\nv,q1,2\n"
    r = irt.ingest(write(tmp_path / "f.csv", text), tmp_path / "s", recode={1: "wrong", 2: "right"})
    assert lists(r) == [[0, 1], [1, -1]]


# --- a table of persons ---------------------------------------------------------------------------

PERSONS = "student,weight,group,age\nw,3.5,south,12\nu,1,north,\nv,2,south,11\n"


@pytest.mark.parametrize("text", [LONG, WIDE], ids=["long", "wide"])
@pytest.mark.parametrize("frame", [False, True])
def test_persons_are_joined_by_id(text, frame, tmp_path):
    persons = write(tmp_path / "persons.csv", PERSONS)
    r = irt.ingest(
        write(tmp_path / "f.csv", text), tmp_path / "s", rows_per_block=2,
        persons=pd.read_csv(persons) if frame else persons,
    )  # fmt: skip
    assert weights(r) == [1.0, 2.0, 3.5]
    assert r.max_weight == 3.5
    assert column(r, "groups") == ["north", "south", "south"]
    assert r.covariate_names == ("age",)
    np.testing.assert_array_equal(column(r, "covariates"), [[np.nan], [11.0], [12.0]])
    again = irt.open_responses(tmp_path / "s")
    assert again.covariate_names == ("age",)
    assert again.select(persons=["w"]).covariates(0).tolist() == [[12.0]]


@pytest.mark.parametrize(
    "persons, message",
    [
        ("person,weight\n", r"3 person\(s\) of .*f.csv have no row: 'u', 'v', 'w'"),
        ("person,weight\nu,1\n", r"2 person\(s\) of .*f.csv have no row: 'v', 'w'"),
        ("person,weight\nu,1\nv,2\nw,1\nv,2\n", r"line 5: the person 'v' is on line 3 already"),
        ("person,weight\nu,1\nv,-2\nw,1\n", r"line 3.*'-2'"),
        ("person,age\nu,1\nv,old\nw,1\n", r"line 3.*'old'"),
    ],
)
def test_tables_of_persons_that_do_not_fit(persons, message, tmp_path):
    table = write(tmp_path / "persons.csv", persons)
    with pytest.raises(InputError, match=message):
        irt.ingest(write(tmp_path / "f.csv", LONG), tmp_path / "s", persons=table)
    assert names(tmp_path) == {"f.csv", "persons.csv"}


def test_persons_without_responses_are_listed(tmp_path):
    table = write(tmp_path / "persons.csv", PERSONS + "x,1,north,3\ny,1,north,4\n")
    with pytest.warns(DataWarning, match=r"2 person\(s\) have no responses .*: 'x', 'y'"):
        r = irt.ingest(write(tmp_path / "f.csv", LONG), tmp_path / "s", persons=table)
    assert r.n_persons == 3


def test_weights_in_two_places(tmp_path):
    text = "person,item,response,weight\nu,q1,1,2\n"
    table = write(tmp_path / "persons.csv", "person,weight\nu,1\n")
    with pytest.raises(InputError, match="has a weight column, and so has"):
        irt.ingest(
            write(tmp_path / "f.csv", text), tmp_path / "s", persons=table,
            columns={"weight": "weight"},
        )  # fmt: skip


# --- quarantine -----------------------------------------------------------------------------------

BAD_LONG = (
    "person,item,response\n"
    "u,q1,1\n"
    "v,q1,7\n"  # line 3: unknown value
    "v,q1,0\n"
    "u,q2,0,5\n"  # line 5: ragged
    "u,q2,0\n"
    ",q2,1\n"  # line 7: no person
    "w,q2,1\n"
    "u,q1,0\n"  # line 9: again
    '"w,q3,1\n'  # line 10: open quote
    "v,q3,1\n"
)


def test_bad_rows_are_put_aside(tmp_path):
    file = write(tmp_path / "f.csv", BAD_LONG)
    r = irt.ingest(file, tmp_path / "s", on_error="quarantine")
    assert lists(r) == MATRIX
    assert person_ids(r) == ["u", "v", "w"]
    assert r.n_quarantined == irt.open_responses(tmp_path / "s").n_quarantined == 5
    with open(tmp_path / "s.quarantine.csv", newline="", encoding="utf-8") as f:
        rows = list(csv.DictReader(f))
    assert [int(row["line"]) for row in rows] == [3, 5, 7, 9, 10]
    lines = BAD_LONG.split("\n")
    assert [row["text"] for row in rows] == [lines[n - 1] for n in (3, 5, 7, 9, 10)]
    assert rows[0]["column"] == "response"
    assert rows[0]["value"] == "7"
    assert "second response" in rows[3]["reason"]
    assert names(tmp_path) == {"f.csv", "s", "s.quarantine.csv"}


def test_put_aside_rows_of_a_wide_file(tmp_path):
    text = "person,q1,q2,q3\nu,1,0,\nv,0,x,1\nv,0,,1\nu,0,0,0\nw,,1,\n"
    r = irt.ingest(write(tmp_path / "f.csv", text), tmp_path / "s", on_error="quarantine")
    assert lists(r) == MATRIX
    with open(tmp_path / "s.quarantine.csv", newline="", encoding="utf-8") as f:
        assert [(row["line"], row["text"]) for row in csv.DictReader(f)] == [
            ("3", "v,0,x,1"),
            ("5", "u,0,0,0"),
        ]


def test_weights_and_groups_that_differ(tmp_path):
    text = "person,item,response,weight,group\nu,q1,1,2,a\nu,q2,1,3,a\nu,q3,0,2,b\nv,q1,1,1,b\n"
    file = write(tmp_path / "f.csv", text)
    options = {"columns": {"weight": "weight", "group": "group"}}
    message = r"line 3: column 'weight' has '3' for the person 'u', and '2' on line 2"
    with pytest.raises(InputError, match=message):
        irt.ingest(file, tmp_path / "s", **options)
    r = irt.ingest(file, tmp_path / "s", on_error="quarantine", **options)
    assert r.n_quarantined == 2
    assert weights(r) == [2.0, 1.0]
    assert column(r, "groups") == ["a", "b"]


def test_a_spreadsheet_runs_nothing_of_what_was_put_aside(tmp_path):
    text = "person,item,response\nu,q1,1\n@u,q1,=1+1\nv,q1,-9\n"
    irt.ingest(write(tmp_path / "f.csv", text), tmp_path / "s", on_error="quarantine")
    with open(tmp_path / "s.quarantine.csv", newline="", encoding="utf-8") as f:
        rows = [(row["value"], row["text"]) for row in csv.DictReader(f)]
    assert rows == [("'=1+1", "'@u,q1,=1+1"), ("-9", "v,q1,-9")]


# --- identifiers that look the same ---------------------------------------------------------------

ONE, TWO = "\u00e9", "e\u0301"  # an accented letter, as one character and as two


@pytest.mark.parametrize("end", ["csv", "jsonl", "parquet"])
def test_persons_and_items_are_one_however_accents_are_written(tmp_path, end):
    table = pd.DataFrame(
        {"person": ["a", TWO, ONE, "b"], "item": [ONE, ONE, "q", TWO], "response": ["1"] * 4}
    )
    path = tmp_path / f"f.{end}"
    if end == "csv":
        table.to_csv(path, index=False)
    elif end == "jsonl":
        table.to_json(path, orient="records", lines=True)
    else:
        table.to_parquet(path)
    persons = write(tmp_path / "p.csv", f"person,group\na,x\n{ONE},{TWO}\nb,x\n")
    r = irt.ingest(path, tmp_path / "s", persons=persons)
    assert r.item_id == (ONE, "q")
    assert person_ids(r) == ["a", ONE, "b"]
    assert lists(r) == [[1, -1], [1, 1], [1, -1]]
    assert column(r, "groups") == ["x", ONE, "x"]
    more = write(tmp_path / "g.csv", f"person,item,response\n{TWO},q,1\n")
    with pytest.raises(InputError, match=r"in the store .* already"):
        irt.append(more, tmp_path / "s", persons=persons)


def test_two_rows_or_columns_that_look_the_same(tmp_path):
    rows = write(tmp_path / "f.csv", f"person,q1\n{ONE},1\n{TWO},0\n")
    with pytest.raises(InputError, match="is on line 2 already"):
        irt.ingest(rows, tmp_path / "s")
    columns = write(tmp_path / "g.csv", f"person,{ONE},{TWO}\nu,1,0\n")
    with pytest.raises(InputError, match=f"the column '{ONE}' is there twice"):
        irt.ingest(columns, tmp_path / "s")
    keyed = write(tmp_path / "h.csv", f"person,{TWO},b\nu,A,B\n")
    assert lists(irt.ingest(keyed, tmp_path / "s", key={ONE: "A", "b": "C"})) == [[1, 0]]


@pytest.mark.parametrize("end", ["csv", "jsonl", "parquet"])
def test_columns_are_named_however_accents_are_written(end, tmp_path):
    table = pd.DataFrame({TWO: ["u"], f"q{TWO}": ["1"], f"x{TWO}": ["8"]})
    path = tmp_path / f"f.{end}"
    if end == "csv":
        table.to_csv(path, index=False)
    elif end == "jsonl":
        table.to_json(path, orient="records", lines=True)
    else:
        table.to_parquet(path)
    for n, options in enumerate(({"exclude": f"x{ONE}"}, {"columns": {"items": [f"q{ONE}"]}})):
        columns = {"person": ONE, **options.pop("columns", {})}
        r = irt.ingest(path, tmp_path / f"s{n}", shape="wide", columns=columns, **options)
        assert r.item_id == (f"q{ONE}",)


def test_a_sound_file_leaves_no_quarantine(tmp_path):
    r = irt.ingest(write(tmp_path / "f.csv", LONG), tmp_path / "s", on_error="quarantine")
    assert r.n_quarantined == 0
    assert names(tmp_path) == {"f.csv", "s"}


def test_nothing_but_bad_rows_is_an_error(tmp_path):
    text = "person,item,response\nu,q1,7\nv,q1,8\n"
    with pytest.raises(InputError, match=r"line 2.*'7'"):
        irt.ingest(write(tmp_path / "f.csv", text), tmp_path / "s", on_error="quarantine")
    assert names(tmp_path) == {"f.csv"}


# --- append ---------------------------------------------------------------------------------------

MORE = "person,item,response\nx,q3,0\ny,q1,1\nx,q1,1\n"


def tree(store: Path) -> dict[str, bytes]:
    return {str(p.relative_to(store)): p.read_bytes() for p in store.rglob("*") if p.is_file()}


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_append_adds_a_part_and_changes_nothing_else(layout, tmp_path):
    store = tmp_path / "s"
    old = irt.ingest(write(tmp_path / "f.csv", LONG), store, layout=layout, rows_per_block=2)
    before = tree(store)
    r = irt.append(write(tmp_path / "g.csv", MORE), store)
    assert lists(r) == [*MATRIX, [1, -1, 0], [1, -1, -1]]
    assert person_ids(r) == ["u", "v", "w", "x", "y"]
    assert [r.read_block(k).start for k in range(r.n_blocks)] == [0, 2, 3]
    assert r.layout == layout
    after = tree(store)
    assert {k: v for k, v in after.items() if k in before and k != "manifest.json"} == {
        k: v for k, v in before.items() if k != "manifest.json"
    }
    r.verify()
    # who opened the store before goes on with what was there
    assert lists(old) == MATRIX
    assert r.fingerprint != old.fingerprint
    assert names(tmp_path) == {"f.csv", "g.csv", "s"}
    wide = write(tmp_path / "h.csv", "person,q3,q1\nz,1,0\n")
    r = irt.append(wide, store)
    assert lists(r)[-1] == [0, -1, 1]
    assert json.loads((store / "manifest.json").read_text())["parts"][2]["name"] == "part-00002"


def test_old_handle_reads_in_a_fresh_process_too(tmp_path, monkeypatch):
    """The manifest of then is derived from that of now."""
    from irt_dask.store import checked

    old = irt.ingest(write(tmp_path / "f.csv", LONG), tmp_path / "s")
    irt.append(write(tmp_path / "g.csv", MORE), tmp_path / "s")
    checked.content_of.cache_clear()
    checked.array_of.cache_clear()
    assert lists(old) == MATRIX


@pytest.mark.parametrize(
    "text, message",
    [
        ("person,item,response\nx,q1,1\nv,q1,1\nu,q1,0\n", r"2 person\(s\) are in .*: 'u', 'v'"),
        ("person,item,response,weight\nx,q1,1,2\n", "brings weights: yes; .* has weights: no"),
        ("person,item,response\nx,q1,3\n", "line 2.*'3'"),
    ],
)
def test_what_cannot_be_appended(text, message, tmp_path):
    store = tmp_path / "s"
    irt.ingest(write(tmp_path / "f.csv", LONG), store)
    before = tree(store)
    options = {"columns": {"weight": "weight"}} if "weight" in text else {}
    with pytest.raises(InputError, match=message):
        irt.append(write(tmp_path / "g.csv", text), store, **options)
    assert tree(store) == before
    assert names(tmp_path) == {"f.csv", "g.csv", "s"}


def test_append_needs_a_store(tmp_path):
    with pytest.raises(InputError, match="there is no such folder"):
        irt.append(write(tmp_path / "f.csv", LONG), tmp_path / "s")
    assert names(tmp_path) == {"f.csv"}


def test_append_with_persons_and_quarantine(tmp_path):
    persons = write(tmp_path / "p.csv", PERSONS)
    irt.ingest(write(tmp_path / "f.csv", LONG), tmp_path / "s", persons=persons)
    more = pd.DataFrame({"person": ["x"], "weight": [9.0], "group": ["west"], "age": [1]})
    r = irt.append(
        write(tmp_path / "g.csv", "person,item,response\nx,q1,1\nx,q1,1\n"), tmp_path / "s",
        persons=more, on_error="quarantine",
    )  # fmt: skip
    assert r.max_weight == 9.0
    assert column(r, "groups")[-1] == "west"
    assert r.n_quarantined == 1
    assert (tmp_path / "s.quarantine-00001.csv").exists()


def test_what_a_killed_append_left_is_replaced(tmp_path):
    store = tmp_path / "s"
    irt.ingest(write(tmp_path / "f.csv", LONG), store)
    (store / "part-00001" / "response").mkdir(parents=True)
    (store / "part-00001" / "response" / "zarr.json").write_text("{}")
    (tmp_path / ".s.partial" / "scratch-0").mkdir(parents=True)
    irt.open_responses(store).verify()
    irt.append(write(tmp_path / "g.csv", MORE), store).verify()
    assert names(tmp_path) == {"f.csv", "g.csv", "s"}


def test_appending_twice_gives_the_bytes_of_appending_once_each(tmp_path):
    def make(name):
        irt.ingest(write(tmp_path / "f.csv", LONG), tmp_path / name)
        irt.append(write(tmp_path / "g.csv", MORE), tmp_path / name)
        return tree(tmp_path / name)

    assert make("a") == make("b")


# --- sorted on disk -------------------------------------------------------------------------------


@pytest.fixture
def many_pieces(monkeypatch):
    """Pieces of a few lines and several partitions."""
    from irt_dask.ingest.text import lines

    monkeypatch.setattr(lines, "piece_bytes", lambda size: 97)
    monkeypatch.setattr(spill, "n_partitions", lambda size: 7)


def test_no_row_is_lost_on_the_way_to_the_quarantine(many_pieces, tmp_path):
    """A second answer of every person, which partitions refuse; whichever of them it is in."""
    rows = [f"p{i},q{j},{j % 2}" for i in range(40) for j in range(2)]
    again = [f"p{i},q1,0" for i in range(40)]
    file = write(tmp_path / "f.csv", "\n".join(["person,item,response", *rows, *again]) + "\n")
    r = irt.ingest(file, tmp_path / "s", on_error="quarantine")
    with open(tmp_path / "s.quarantine.csv", newline="", encoding="utf-8") as f:
        assert [row["text"] for row in csv.DictReader(f)] == again
    assert r.n_quarantined == 40


@pytest.mark.parametrize("shape", ["long", "wide"])
@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("packed", [False, True])
def test_many_pieces_and_partitions(shape, layout, packed, many_pieces, tmp_path):
    rng = np.random.default_rng(11)
    values = rng.choice([-1, 0, 1], p=[0.3, 0.3, 0.4], size=(83, 9))
    person = [f"perß{i}" for i in rng.permutation(83)]
    if shape == "wide":
        lines = ["person," + ",".join(f"i{j}" for j in range(9))]
        lines += [
            ",".join([p, *("" if v < 0 else str(v) for v in row)])
            for p, row in zip(person, values, strict=True)
        ]
        expected_ids, expected = person, values
        items = [f"i{j}" for j in range(9)]
    else:
        cells = [(p, j) for p in range(83) for j in range(9) if values[p, j] >= 0]
        cells = [cells[k] for k in rng.permutation(len(cells))]
        lines = ["person,item,response", *(f"{person[p]},i{j},{values[p, j]}" for p, j in cells)]
        order = list(dict.fromkeys(p for p, _ in cells))
        across = list(dict.fromkeys(j for _, j in cells))
        expected_ids, expected = [person[p] for p in order], values[np.ix_(order, across)]
        items = [f"i{j}" for j in across]
    data = ("\n".join(lines) + "\n").encode()
    file = tmp_path / ("f.csv.gz" if packed else "f.csv")
    file.write_bytes(gzip.compress(data) if packed else data)
    r = irt.ingest(file, tmp_path / "s", layout=layout, rows_per_block=10)
    assert person_ids(r) == expected_ids
    assert list(r.item_id) == items
    assert lists(r) == expected.tolist()


def test_workers_give_the_same_bytes(tmp_path, client):
    rows = "".join(f"p{(i * 37) % 211},q{i % 13},{i % 2}\n" for i in range(2000) if i < 211 * 13)
    text = "person,item,response\n" + rows
    lines = list(dict.fromkeys(text.split("\n")))
    pairs: dict[tuple[str, ...], str] = {}
    for line in lines[1:]:
        if line:
            pairs.setdefault(tuple(line.split(",")[:2]), line)
    file = write(tmp_path / "f.csv", "\n".join([lines[0], *pairs.values()]) + "\n")
    irt.ingest(file, tmp_path / "a", rows_per_block=16)
    irt.ingest(file, tmp_path / "b", rows_per_block=16, client=client)
    assert tree(tmp_path / "a") == tree(tmp_path / "b")


# --- odd histories --------------------------------------------------------------------------------


def test_persons_who_answered_nothing(tmp_path, monkeypatch):
    """A person whose object is empty has no response, whatever codes mean and pieces hold."""
    from irt_dask.ingest.text import lines

    rows = '{"id":"a","responses":{}}\n{"id":"b","responses":{"q":1,"r":""}}\n'
    file = write(tmp_path / "f.jsonl", rows)
    assert lists(irt.ingest(file, tmp_path / "s", recode={"": "wrong"})) == [[-1, -1], [1, 0]]
    monkeypatch.setattr(lines, "piece_bytes", lambda size: 20)
    assert lists(irt.ingest(file, tmp_path / "t", recode={"": "wrong"})) == [[-1, -1], [1, 0]]
    rows = '{"id":"c","responses":{}}\n{"id":"d","responses":{"r":1}}\n'
    more = write(tmp_path / "g.jsonl", rows)
    assert lists(irt.append(more, tmp_path / "s"))[2:] == [[-1, -1], [-1, 1]]
    none = write(tmp_path / "h.jsonl", '{"id":"e","responses":{}}\n')
    for function, name in ((irt.append, "s"), (irt.ingest, "u")):
        with pytest.raises(InputError, match="has no item: nobody has a response"):
            function(none, tmp_path / name)


def test_items_that_only_refused_rows_have_are_left_out(tmp_path):
    text = "id,item,x,w\na,j,1,2\nb,k,0,1\na,i,1,3\nb,i,1,1\nc,h,0,x\n"
    r = irt.ingest(
        write(tmp_path / "f.csv", text), tmp_path / "s", columns={"weight": "w"},
        on_error="quarantine",
    )  # fmt: skip
    assert r.item_id == ("j", "k", "i")
    assert lists(r) == [[1, -1, -1], [-1, 0, 1]]
    text = "id,item,x,w\na,j,1,2\na,i,1,3\nb,k,0,1\n"
    r = irt.ingest(
        write(tmp_path / "g.csv", text), tmp_path / "t", columns={"weight": "w"},
        on_error="quarantine",
    )  # fmt: skip
    assert r.item_id == ("j", "k")
    assert lists(r) == [[1, -1], [-1, 0]]
    text = "id,item,x\na,j,\na,j,1\na,k,0\n"  # the second row repeats the first, which says nothing
    r = irt.ingest(write(tmp_path / "h.csv", text), tmp_path / "u", on_error="quarantine")
    assert r.item_id == ("k",)
    assert lists(r) == [[0]]


@pytest.mark.parametrize("on_error", ["raise", "quarantine"])
def test_append_checks_the_key_too(on_error, tmp_path):
    text = "person,item,response\n{0},i1,A\n{0},i2,B\n"
    store = tmp_path / "s"
    irt.ingest(write(tmp_path / "f.csv", text.format("p")), store, key={"i1": "A", "i2": "B"})
    more = write(tmp_path / "g.csv", text.format("r"))
    with pytest.raises(InputError, match="'i2'"):
        irt.append(more, store, key={"i1": "A"}, on_error=on_error)
    only = write(tmp_path / "h.csv", "person,item,response\nr,i1,A\n")
    assert lists(irt.append(only, store, key={"i1": "A"}))[-1] == [1, -1]


def test_a_store_has_one_lock_whatever_its_name(tmp_path):
    from irt_dask.store.draft import extend

    real = tmp_path / "real" / "s"
    irt.ingest(write(tmp_path / "f.csv", LONG), real)
    link = tmp_path / "link"
    link.symlink_to(real)
    with extend(real), pytest.raises(InputError, match="another process is writing"):
        irt.append(write(tmp_path / "g.csv", MORE), link)
    assert irt.append(write(tmp_path / "g.csv", MORE), link).n_persons == 5


def test_a_store_that_changed_meanwhile_is_not_overwritten(tmp_path):
    from irt_dask.store.draft import extend

    store = tmp_path / "s"
    irt.ingest(write(tmp_path / "f.csv", LONG), store)
    with extend(store) as draft:
        part = draft.part(layout="dense", n_persons=1, n_items=3, rows_per_block=1)
        files = part.create()
        moved = store.rename(tmp_path / "t")
        irt.append(write(tmp_path / "g.csv", MORE), moved)
        moved.rename(store)
        with pytest.raises(irt.StoreError, match="was changed by another process"):
            draft.commit(part, files, item_id=("q1", "q2", "q3"))
    irt.open_responses(store).verify()
    assert irt.open_responses(store).n_persons == 5


def test_a_folder_that_vanishes_is_an_error_and_no_hang(tmp_path):
    from irt_dask.store.draft import _locked

    with (
        pytest.raises(InputError, match="the folder of the store, is gone"),
        _locked(tmp_path / "gone" / "s"),
    ):
        pass


def test_folders_made_for_a_store_that_failed_go_away(tmp_path):
    file = write(tmp_path / "f.csv", "person,item,response\nu,q1,7\n")
    with pytest.raises(InputError, match="line 2"):
        irt.ingest(file, tmp_path / "new" / "er" / "s")
    assert names(tmp_path) == {"f.csv"}


@pytest.mark.parametrize(
    "store, message",
    [("/", "cannot be a store"), (None, "must be a path"), ("f.csv/s", "cannot be made")],
)
def test_places_where_no_store_can_be(store, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "f.csv", LONG)
    with pytest.raises(InputError, match=message):
        irt.ingest("f.csv", store)


def test_quarantine_of_a_store_that_is_gone_is_removed(tmp_path):
    irt.ingest(write(tmp_path / "f.csv", BAD_LONG), tmp_path / "s", on_error="quarantine")
    assert (tmp_path / "s.quarantine.csv").exists()
    shutil.rmtree(tmp_path / "s")
    irt.ingest(write(tmp_path / "g.csv", LONG), tmp_path / "s")
    assert not (tmp_path / "s.quarantine.csv").exists()
    write(tmp_path / "t.quarantine.csv", "my own notes\n")
    irt.ingest(tmp_path / "g.csv", tmp_path / "t")
    assert (tmp_path / "t.quarantine.csv").read_text() == "my own notes\n"


def test_blocks_are_no_larger_than_the_data(tmp_path):
    r = irt.ingest(write(tmp_path / "f.csv", LONG), tmp_path / "s", rows_per_block=10**12)
    assert lists(r) == MATRIX
    assert r.n_blocks == 1


def test_messages_about_a_table_in_memory_name_no_file(tmp_path):
    table = pd.DataFrame({"person": ["u", "v", "w", "v"], "age": [1, 2, 3, 4]})
    with pytest.raises(InputError) as caught:
        irt.ingest(write(tmp_path / "f.csv", LONG), tmp_path / "s", persons=table)
    assert str(caught.value).startswith(
        "the table of persons, row 4: the person 'v' is on row 2 already"
    )
