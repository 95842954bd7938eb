"""Which columns of a wide file are items: listed, left out, asked about, dropped where empty."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from parts import cells

import irt_dask as irt
from irt_dask.errors import DataWarning, InputError, Notice
from irt_dask.ingest.columns.suspects import ENOUGH, by_name

WIDE = "name,q1,q2,q3,item_07,item_8,g\nann,1,0,1,0,1,x\nbob,0,1,1,1,0,y\n"
PERSON = {"person": "name"}


def file_of(folder: Path, text: str, name: str = "f.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def items_of(folder: Path, text: str = WIDE, name: str = "f.csv", **options) -> tuple[str, ...]:
    return irt.ingest(file_of(folder, text, name), folder / "store", **options).item_id


def parquet_of(folder: Path, text: str) -> Path:
    table = pd.read_csv(file_of(folder, text), dtype=str)
    table.to_parquet(folder / "f.parquet")
    return folder / "f.parquet"


# --- lists of columns -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "listed, expected",
    [
        ("q*", "q1 q2 q3"),
        (["q?"], "q1 q2 q3"),
        (["item_??"], "item_07"),
        (["q[13]"], "q1 q3"),
        (["q2:item_07"], "q2 q3 item_07"),
        (["item_8", "q1:q2", "q*"], "q1 q2 q3 item_8"),
        (["*"], "q1 q2 q3 item_07 item_8"),
        (["name:g"], "q1 q2 q3 item_07 item_8"),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_items_are_names_globs_and_ranges(kind, listed, expected, tmp_path):
    path = file_of(tmp_path, WIDE) if kind == "csv" else parquet_of(tmp_path, WIDE)
    columns = {**PERSON, "group": "g", "items": listed}
    r = irt.ingest(path, tmp_path / "store", columns=columns)
    assert r.item_id == tuple(expected.split())
    table = pd.read_csv(tmp_path / "f.csv")
    np.testing.assert_array_equal(cells(r), table[list(r.item_id)])


def test_columns_are_excluded_in_the_same_ways(tmp_path):
    columns = {**PERSON, "group": "g"}
    r = irt.ingest(
        file_of(tmp_path, WIDE), tmp_path / "a", columns=columns, exclude=["q1:q2", "item_?"]
    )
    assert r.item_id == ("q3", "item_07")
    r = irt.ingest(
        tmp_path / "f.csv", tmp_path / "b", columns={**columns, "items": "q*"}, exclude="q2"
    )
    assert r.item_id == ("q1", "q3")
    more = file_of(tmp_path, WIDE.replace("ann", "cyd").replace("bob", "dan"), "g.csv")
    r = irt.append(more, tmp_path / "b", columns=columns, exclude=["q2", "item*"])
    assert cells(r).tolist() == [[1, 1], [0, 1], [1, 1], [0, 1]]


def test_an_excluded_column_leaves_no_doubt_about_the_others(tmp_path):
    """A sum called score made the file perhaps long, and a second id the person a question."""
    text = "id,student_id,q1,q2,score\na,1,1,0,1\nb,2,1,1,2\n"
    with pytest.raises(InputError, match=r"long or wide .*exclude=\['score'\] if it is"):
        items_of(tmp_path, text)
    assert items_of(tmp_path, text, exclude=["student_id", "score"]) == ("q1", "q2")


def test_a_column_is_meant_by_its_exact_name_first(tmp_path):
    text = 'id,"q*","a:b",a,z,b,"c[1]",q1\np,1,0,1,1,0,1,0\nr,0,1,1,0,0,1,1\n'
    assert items_of(tmp_path, text, columns={"items": ["q*", "a:b", "c[1]"]}) == (
        "q*", "a:b", "c[1]",
    )  # fmt: skip
    r = irt.ingest(tmp_path / "f.csv", tmp_path / "t", exclude=["a:b", "q*", "c[1]"])
    assert r.item_id == ("a", "z", "b", "q1")
    r = irt.ingest(tmp_path / "f.csv", tmp_path / "u", columns={"items": ["a:b", "a:z"]})
    assert r.item_id == ("a:b", "a", "z")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"columns": {"items": ["z*"]}}, r"columns={'items': \['z\*'\]}: no column matches 'z\*'"),
        ({"columns": {"items": ["q3:q1"]}}, "'q3' stands after 'q1' in the file; write 'q1:q3'"),
        ({"columns": {"items": ["q1:q9"]}}, "there is no column 'q1:q9'"),
        ({"columns": {"items": ["n*"]}}, r"'n\*' matches columns of another role only"),
        ({"columns": {"items": ["q1", "q1"]}}, "has 'q1' twice"),
        ({"exclude": ["sex"]}, r"exclude=\['sex'\]: there is no column 'sex'; the columns are"),
        ({"exclude": ["z*"]}, "no column matches"),
        ({"exclude": "name"}, "the column 'name' has another role"),
        ({"exclude": 3}, "exclude=3 is no list of columns; list names, globs"),
        ({"exclude": "*"}, "needs columns of items beside 'name' and what exclude="),
        ({"exclude": "g", "shape": "long"}, "only a wide file has columns of items to leave out"),
    ],
)
def test_lists_that_mean_nothing_are_refused(options, message, tmp_path):
    options = {**options, "columns": PERSON | options.get("columns", {})}
    if "shape" in options:
        options["columns"] |= {"item": "q1", "response": "q2"}
    with pytest.raises(InputError, match=message):
        items_of(tmp_path, **options)


def test_several_ranges_that_one_text_may_be(tmp_path):
    text = 'id,a,"a:b",c,"b:c"\np,1,0,1,1\n'
    with pytest.raises(InputError, match="may be several ranges"):
        items_of(tmp_path, text, columns={"items": ["a:b:c"]})


def test_keys_of_json_objects_are_listed_too(tmp_path):
    """Each key is compared with names and globs: the first object need not have all of them."""
    rows = [{"id": "a", "q1": 1, "age": 0}, {"id": "b", "q2": 0, "q3": 1, "age": 1, "who?": 1}]
    text = "\n".join(map(json.dumps, rows))
    given = {"name": "f.jsonl", "columns": {"items": ["q*", "who?"]}}
    assert items_of(tmp_path, text, exclude=["age"], **given) == ("q1", "q2", "q3", "who?")
    r = irt.ingest(tmp_path / "f.jsonl", tmp_path / "t", exclude="a*")
    assert r.item_id == ("q1", "q2", "q3", "who?")
    rows = [{"id": "a", "q*": 1, "q1": 0}, {"id": "b", "q*": 0, "q2": 1}]
    file = file_of(tmp_path, "\n".join(map(json.dumps, rows)), "names.jsonl")
    assert irt.ingest(file, tmp_path / "v", columns={"items": ["q*"]}).item_id == ("q*",)
    assert irt.ingest(file, tmp_path / "w", exclude=["q*"]).item_id == ("q1", "q2")
    rows = [{"id": "a", "q1": 1}, {"id": "b", "q1": 0, "age": 37}]  # not in the first object
    file = file_of(tmp_path, "\n".join(map(json.dumps, rows)), "late.jsonl")
    with pytest.raises(InputError, match=r"if the column is no item, exclude=\['age'\]"):
        irt.ingest(file, tmp_path / "x")
    assert irt.ingest(file, tmp_path / "x", exclude=["age"]).item_id == ("q1",)
    with pytest.raises(InputError, match="'q1:age' is a range, and the keys of objects have no"):
        irt.ingest(tmp_path / "f.jsonl", tmp_path / "u", columns={"items": "q1:age"})
    nested = file_of(tmp_path, '{"id": "a", "responses": {"q": 1}}\n', "n.jsonl")
    with pytest.raises(InputError, match="this file is nested"):
        irt.ingest(nested, tmp_path / "u", exclude="q")


def test_a_value_that_is_no_response_says_how_to_leave_the_column_out(tmp_path):
    text = "id,q1,age\na,1,15\nb,0,16\n"
    with pytest.raises(InputError, match=r"if the column is no item, exclude=\['age'\]"):
        items_of(tmp_path, text)
    assert items_of(tmp_path, text, exclude="age") == ("q1",)


def test_weights_and_groups_are_not_passed_over_in_silence(tmp_path):
    text = "id,item,score,Weight,group\na,q,1,1.5,x\nb,q,0,2,y\n"
    with pytest.warns(Notice) as said:
        irt.ingest(file_of(tmp_path, text), tmp_path / "s", columns={"group": "group"})
    assert [str(w.message).partition("f.csv: ")[2] for w in said] == [
        "the column 'Weight' is not used; columns={'weight': 'Weight'} would do so"
    ]
    file = file_of(tmp_path, "id,q,weight\na,1,1.5\n")
    with pytest.raises(InputError, match=r"exclude=\['weight'\] or columns={'weight': 'weight'}"):
        irt.ingest(file, tmp_path / "t")


def test_a_column_that_the_key_lacks_says_the_same(tmp_path):
    with pytest.raises(InputError, match=r"'sex'; add them to the key, or .* exclude=\['sex'\]"):
        items_of(tmp_path, "id,q1,sex\na,A,m\nb,B,w\n", key={"q1": "A"})


# --- columns that are perhaps none ----------------------------------------------------------------


def test_a_background_column_of_0_and_1_is_asked_about(tmp_path):
    text = "id,q1,Sex,q2\na,1,0,1\nb,0,1,1\n"
    with pytest.warns(DataWarning, match=r"'Sex' \(the name says 'sex'\).*exclude=\['Sex'\]"):
        assert items_of(tmp_path, text) == ("q1", "Sex", "q2")  # and never left out in silence
    # Named one by one it is not asked about; by a pattern it is.
    named = irt.ingest(tmp_path / "f.csv", tmp_path / "b", columns={"items": ["q1", "Sex"]})
    assert named.item_id == ("q1", "Sex")
    with pytest.warns(DataWarning, match="'Sex'"):
        irt.ingest(tmp_path / "f.csv", tmp_path / "c", columns={"items": "q1:q2"})
    # An append asks about what the store has not yet: nothing here.
    more = file_of(tmp_path, text.replace("a,", "c,").replace("b,", "d,"), "g.csv")
    assert irt.append(more, tmp_path / "c").n_persons == 4


def test_a_new_column_of_an_append_is_asked_about(tmp_path):
    irt.ingest(file_of(tmp_path, "id,q1\na,1\nb,0\n"), tmp_path / "s")
    more = file_of(tmp_path, "id,q1,q2,gender\nc,1,0,1\nd,0,1,0\n", "g.csv")
    with (
        pytest.warns(Notice, match="2 item.s. are new"),
        pytest.warns(DataWarning, match=r"1 column.*exclude=\['gender'\]"),
    ):
        r = irt.append(more, tmp_path / "s")
    assert r.item_id == ("q1", "q2", "gender")


def test_a_json_key_is_asked_about(tmp_path):
    text = '{"id": "a", "q1": 1, "female": 0}\n{"id": "b", "q1": 0, "female": 1, "total": 1}\n'
    with pytest.warns(DataWarning, match="'female'.*'total'"):
        items_of(tmp_path, text, "f.jsonl")


def test_an_item_of_a_long_file_may_be_called_anything(tmp_path):
    assert items_of(tmp_path, "id,item,x\na,sex,1\nb,sex,0\n") == ("sex",)


@pytest.mark.parametrize(
    "names, found",
    [
        ("q1 sex", "sex"),
        ("q1 Student_Age testDate SCHOOL-ID total2", "Student_Age testDate SCHOOL-ID total2"),
        ("q1 sexton average classic ages dated", ""),  # whole words only
        ("grade4_q1 grade4_q2 grade4_q3 grade4_q4", ""),  # all share it
        ("q1 score_a score_b", "score_a score_b"),
        (
            "geschlecht alter q1 passed form_a âge Año país",
            "geschlecht alter passed form_a âge Año país",
        ),
        ("q1 q2 x q3 q4", ""),  # too few
        ("q1 q2 x q3 q4 пол q5 q6 q7 q8", "x пол"),  # whatever the language
        ("q1 q2 q3 q4 q5 x y", ""),  # most are not called alike
        ("q1 q2 q3 q4 q5 q6 q7 q8 q9 q10 q11 q12 q13 q14 q15 q16 r1 r2 r3 r4", ""),  # two series
        ("Q01-a Q02-a Q03-a Q04-a Q05-a Q05-b", "Q05-b"),
        ("123 ! Größe", ""),
    ],
)
def test_names_that_say_something_else(names, found):
    assert list(by_name(names.split())) == found.split()


def test_a_constant_column_is_asked_about(tmp_path):
    rows = "".join(f"p{i},{i % 2},1,{'' if i < 99 else 0}\n" for i in range(ENOUGH))
    with pytest.warns(DataWarning, match="1 column.*'here' .all 100 responses are 1") as caught:
        items_of(tmp_path, "id,q1,here,seldom\n" + rows)
    assert "seldom" not in str(caught[0].message)


# --- items without responses ----------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl", "long"])
def test_items_that_nobody_answered_are_left_out(kind, layout, tmp_path, monkeypatch):
    from irt_dask.ingest.text import lines

    monkeypatch.setattr(lines, "piece_bytes", lambda size: 20)
    text = "id,e1,q1,e2,q2,e3\na,,1,NA,,.\nb,,0,-1,1,.\nc,NA,,,0,\nd,,1,,,\n"
    table = pd.read_csv(file_of(tmp_path, text), dtype=str)
    path = tmp_path / "f.csv"
    if kind == "parquet":
        path = parquet_of(tmp_path, text)
    elif kind == "jsonl":
        rows = table.astype(object).where(table.notna(), None).to_dict("records")
        rows = "\n".join(map(json.dumps, rows))
        path = file_of(tmp_path, rows, "f.jsonl")
    elif kind == "long":
        long = table.melt("id", var_name="item", value_name="x").sort_values("id", kind="stable")
        path = tmp_path / "long.csv"
        long.to_csv(path, index=False)
    with pytest.warns(Notice, match="3 item.s. without any response .*'e1', 'e2', 'e3'"):
        r = irt.ingest(path, tmp_path / "s", layout=layout, rows_per_block=2)
    assert r.item_id == ("q1", "q2")
    assert cells(r).tolist() == [[1, -1], [0, 1], [-1, 0], [1, -1]]
    r.verify()


@pytest.mark.parametrize("on_error", ["raise", "quarantine"])
def test_an_append_keeps_the_items_of_the_store(on_error, tmp_path):
    """An empty column of an item that the store has says nothing; of another, it does not join."""
    irt.ingest(file_of(tmp_path, "id,q1,q2\na,1,0\nb,0,1\n"), tmp_path / "s")
    more = file_of(tmp_path, "id,e,q2,q1\nc,,,1\nd,,,0\n", "g.csv")
    with pytest.warns(Notice, match="1 item.s. without any response are left out: 'e'"):
        r = irt.append(more, tmp_path / "s", on_error=on_error)
    assert r.item_id == ("q1", "q2")
    assert cells(r).tolist() == [[1, 0], [0, 1], [1, -1], [0, -1]]
    long = file_of(tmp_path, "id,item,x\ne,new,NA\ne,q2,1\n", "h.csv")
    with pytest.warns(Notice, match="'new'"):
        r = irt.append(long, tmp_path / "s", on_error=on_error)
    assert r.item_id == ("q1", "q2")
    assert cells(r)[-1].tolist() == [-1, 1]


def test_a_file_in_which_nobody_answered_anything(tmp_path):
    with pytest.raises(InputError, match="has no item: nobody has a response"):
        items_of(tmp_path, "id,q1,q2\na,,NA\nb,.,\n")


def test_two_thousand_columns(tmp_path):
    rng = np.random.default_rng(1)
    names = [f"q{j:04d}" for j in range(2000)]
    table = pd.DataFrame(rng.integers(0, 2, (5, 2000)), columns=names)
    table.insert(1000, "gender", [0, 1, 0, 1, 1])
    table.rename_axis("id").to_csv(tmp_path / "f.csv")
    r = irt.ingest(
        tmp_path / "f.csv", tmp_path / "s", columns={"items": "q0010:q1989"}, exclude="gender"
    )
    assert r.item_id == tuple(names[10:1990])
    np.testing.assert_array_equal(cells(r), table[names[10:1990]])
