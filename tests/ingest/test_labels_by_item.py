"""Labels that mean other codes in other items: recode by item."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from parts import cells

import irt_dask as irt
from irt_dask.errors import InputError

K = (2, 5, 3)
ITEMS = ("q1", "q2", "q3")
BY_ITEM = {"q2": 5, "q3": 3}
PERSONS = tuple("abcdef")
Y = np.array([[1, 4, 0], [0, 3, 1], [1, -1, 2], [0, 0, -1], [-1, 1, 1], [1, 2, 0]], dtype=np.int8)


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


#: How each item writes its codes: the same labels mean other ones, and a number is a label too.
OWN: dict[str, dict[Any, int | str]] = {
    "q1": {"yes": 1, "no": 0},
    "q2": {"no": 0, "seldom": 1, "yes": 2, "1": 3, 0: 4},
    "q3": {"no": 2, "yes": 1, "seldom": 0, "x": "missing"},
}
TABLE = "item,label,code\n" + "".join(
    f"{item},{label},{code}\n" for item, of in OWN.items() for label, code in of.items()
)


def labelled(form: str, folder: Path) -> Path:
    """The responses in the labels of each item; of a person nothing is known of q3."""
    label = {i: {code: str(text) for text, code in of.items()} for i, of in OWN.items()}
    for item, of in label.items():
        of[-1] = "x" if item == "q3" else ""
    rows = [{i: label[i][c] for i, c in zip(ITEMS, row, strict=True)} for row in Y.tolist()]
    if form == "wide":
        lines = [",".join([p, *row.values()]) for p, row in zip(PERSONS, rows, strict=True)]
        return write(folder / "f.csv", "\n".join(["person,q1,q2,q3", *lines]) + "\n")
    if form == "nested":
        objects = [{"id": p, "responses": row} for p, row in zip(PERSONS, rows, strict=True)]
        return write(folder / "f.jsonl", "".join(json.dumps(o) + "\n" for o in objects))
    long = [(p, i, v) for p, row in zip(PERSONS, rows, strict=True) for i, v in row.items()]
    if form == "parquet":
        frame = pd.DataFrame(long, columns=["person", "item", "response"])
        frame.to_parquet(folder / "f.parquet")
        return folder / "f.parquet"
    text = "".join(",".join(row) + "\n" for row in long)
    return write(folder / "f.csv", "person,item,response\n" + text)


@pytest.mark.parametrize("form", ["wide", "long", "nested", "parquet"])
@pytest.mark.parametrize("said", ["dict", "file", "frame"])
def test_labels_by_item(form: str, said: str, tmp_path: Path) -> None:
    recode: Any = OWN
    if said == "file":
        recode = write(tmp_path / "labels.csv", TABLE)
    elif said == "frame":
        rows = [(item, *pair) for item, of in OWN.items() for pair in of.items()]
        recode = pd.DataFrame(rows, columns=["item", "label", "code"])
    r = irt.ingest(labelled(form, tmp_path), tmp_path / "s", recode=recode, categories=BY_ITEM)
    assert r.item_id == ITEMS
    np.testing.assert_array_equal(cells(r), Y)
    back = irt.ingest(
        labelled(form, tmp_path), tmp_path / "t", recode=recode, categories=BY_ITEM,
        reverse=["q2", "q3"],
    )  # fmt: skip
    turned = np.where(Y < 0, Y, np.array(K) - 1 - Y)
    turned[:, 0] = Y[:, 0]
    np.testing.assert_array_equal(cells(back), turned)


@pytest.mark.parametrize("form", ["wide", "long"])
def test_what_an_item_has_of_its_own_goes_before_what_all_have(form: str, tmp_path: Path) -> None:
    """Also before missing; and globs mean all items that match, ranges those of a wide file."""
    entry = "q2:q3" if form == "wide" else "q[23]"
    recode = {"often": 1, "9": "missing", entry: {"often": 2, "9": 0, "8": 1}}
    text = "person,q1,q2,q3\na,often,often,1\nb,9,9,8\nc,8,8,often\nd,0,1,0\n"
    if form == "long":
        _, *rows = [line.split(",") for line in text.split()]
        text = "person,item,response\n" + "".join(
            f"{p},{i},{v}\n" for p, *of in rows for i, v in zip(ITEMS, of, strict=True)
        )
    r = irt.ingest(
        write(tmp_path / "f.csv", text), tmp_path / "s", recode=recode, missing=["8"],
        categories={"q2": 3, "q3": 3}, decimal=".",
    )  # fmt: skip
    assert cells(r).tolist() == [[1, 2, 1], [-1, 0, 1], [-1, 1, 2], [0, 1, 0]]


@pytest.mark.parametrize("form", ["wide", "long"])
@pytest.mark.parametrize(
    "recode, message",
    [
        (OWN | {"q9": {"no": 0}}, "q9"),
        (OWN | {"r*": {"no": 0}}, r"r\*"),
        (OWN | {"q1": {"no": 0, "yes": 2}}, r"item 'q1'.*'yes'|'yes'.*item 'q1'"),
        (OWN | {"q*": {"no": 1}}, "'no' has two meanings"),
        (OWN | {"q1": {"no": 0, "yes": "?"}}, r"recode: 'yes' still means '\?'"),
        (OWN | {"q1": {"no": 0, "yes": 99}}, "recode of the item 'q1': {'yes': 99}: a code means"),
        (OWN | {"q1": {"no": 0, "no ": 1, "yes": 1}}, "recode of the item 'q1': 'no' has two"),
    ],
)
def test_refused_labels_by_item(form: str, recode: Any, message: str, tmp_path: Path) -> None:
    file = labelled(form, tmp_path)
    with pytest.raises(InputError, match=message):
        irt.ingest(file, tmp_path / "s", recode=recode, categories=BY_ITEM)
    assert not (tmp_path / "s").exists()


def test_a_label_of_other_items(tmp_path: Path) -> None:
    """File, line, column and value are named; others may have it."""
    file = write(tmp_path / "f.csv", "person,q1,q2,q3\na,yes,yes,no\nb,seldom,no,yes\n")
    with pytest.raises(InputError, match=r"f\.csv, line 3: column 'q1' has the value 'seldom'"):
        irt.ingest(file, tmp_path / "s", recode=OWN, categories=BY_ITEM)
    r = irt.ingest(
        file, tmp_path / "s", recode=OWN, categories=BY_ITEM, on_error="quarantine",
        null_categories="keep",
    )  # fmt: skip
    assert cells(r).tolist() == [[1, 2, 2]]
    aside = [*csv.DictReader((tmp_path / "s.quarantine.csv").open())]
    assert [(row["line"], row["column"], row["value"]) for row in aside] == [("3", "q1", "seldom")]


@pytest.mark.parametrize(
    "text, message",
    [
        ("item,label\nq1,no\n", "there is no column 'code'"),
        (
            "item,label,code\nq1,no,0\nq1,no,1\n",
            "line 3: the item 'q1' has a code for 'no' already",
        ),
        ("item,label,code\nq1,no,nix\n", "line 2: recode.*'nix'"),
        ("item,label,code\n,no,0\n", "line 2: the item is empty"),
    ],
)
def test_a_table_of_labels_that_is_wrong(text: str, message: str, tmp_path: Path) -> None:
    table = write(tmp_path / "labels.csv", text)
    with pytest.raises(InputError, match=message):
        irt.ingest(labelled("wide", tmp_path), tmp_path / "s", recode=table, categories=BY_ITEM)


def test_text_that_is_no_table_of_labels(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"recode=.9=wrong. is neither a dict .* nor a \.csv"):
        irt.ingest(labelled("wide", tmp_path), tmp_path / "s", recode="9=wrong")
    frame = pd.DataFrame({"item": ["q1"], "label": [None], "code": [0]})
    with pytest.raises(InputError, match="recode= is a table with an empty cell"):
        irt.ingest(labelled("wide", tmp_path), tmp_path / "s", recode=frame)


def test_labels_by_item_go_with_neither_a_key_nor_facets(tmp_path: Path) -> None:
    file = labelled("wide", tmp_path)
    with pytest.raises(InputError, match="recode by item is for codes and labels"):
        irt.ingest(file, tmp_path / "s", recode=OWN, key=dict.fromkeys(ITEMS, "no"))
    rated = write(tmp_path / "r.csv", "person,item,rater,response\na,q1,r1,yes\nb,q1,r2,no\n")
    for options in ({"facets": "rater"}, {"trials": "rater"}):
        with pytest.raises(InputError, match="does not go together with facets or a column of tri"):
            irt.ingest(rated, tmp_path / "s", recode={"q1": OWN["q1"]}, **options)


@pytest.mark.parametrize("form", ["wide", "long"])
def test_a_later_file_may_lack_items_of_the_table(form: str, tmp_path: Path) -> None:
    """Items of the store are known; others are not."""
    irt.ingest(labelled("wide", tmp_path), tmp_path / "s", recode=OWN, categories=BY_ITEM)
    text = "person,q2\ng,yes\n" if form == "wide" else "person,item,response\ng,q2,yes\n"
    later = write(tmp_path / "later.csv", text)
    r = irt.append(later, tmp_path / "s", recode=OWN)
    assert cells(r)[-1].tolist() == [-1, 2, -1]
    later = write(tmp_path / "later.csv", text.replace("g,", "h,"))
    with pytest.raises(InputError, match="q9"):
        irt.append(later, tmp_path / "s", recode=OWN | {"q9": {"no": 0}})
    with pytest.raises(InputError, match="'yes' means 4, and in the store the item 'q3' has 3"):
        irt.append(
            write(tmp_path / "l.csv", "person,q3\ni,no\n"), tmp_path / "s",
            recode={"q3": {"no": 0, "yes": 4}},
        )  # fmt: skip


def test_omitted_by_item(tmp_path: Path) -> None:
    """Why there is no response can be said of one item's labels alone."""
    file = write(tmp_path / "f.csv", "person,q1,q2\na,1,0\nb,9,1\nc,0,\nd,1,1\n")
    r = irt.ingest(file, tmp_path / "s", recode={"q1": {"9": "omitted"}})
    assert cells(r)[:, 0].tolist() == [1, -1, 0, 1]
    assert cells(r.select(omitted="wrong"))[:, 0].tolist() == [1, 0, 0, 1]
    assert cells(r.select(omitted="wrong"))[:, 1].tolist() == [0, 1, -1, 1]


@pytest.mark.parametrize("form", ["wide", "long", "wide.jsonl", "long.jsonl"])
@pytest.mark.parametrize(
    "recode, expected",
    [
        ({"True": 0, "False": 1}, [[0, 1], [1, 0]]),
        ({"TRUE": "wrong"}, [[0, 0], [0, 0]]),
        ({"q1": {"true": 0, "FALSE": 1}}, [[0, 0], [1, 1]]),
        ({"q1": {"True": "missing"}}, [[-1, 0], [0, 1]]),
        ({"1": 0, "0": 1}, [[0, 1], [1, 0]]),
        ({"q2": {"0": 1, "1": 0}}, [[1, 1], [0, 0]]),
    ],
)
def test_booleans_are_words_where_recode_has_them(
    form: str, recode: Any, expected: list[list[int]], tmp_path: Path
) -> None:
    """Typed ones, of Parquet and JSON; however the word is written."""
    frame = pd.DataFrame({"person": ["a", "b"], "q1": [True, False], "q2": [False, True]})
    if form.startswith("long"):
        frame = frame.melt("person", var_name="item", value_name="response")
    file = tmp_path / ("f.jsonl" if "json" in form else "f.parquet")
    if "json" in form:
        frame.to_json(file, orient="records", lines=True)
    else:
        frame.to_parquet(file)
    r = irt.ingest(file, tmp_path / "s", recode=recode, null_categories="keep")
    assert cells(r).tolist() == expected


@pytest.mark.parametrize("form", ["wide", "long"])
def test_an_item_that_is_not_there_is_named_alike(form: str, tmp_path: Path) -> None:
    for entry, more in (("q9", ""), ("q1:q9", "" if form == "wide" else ".*only the col.* ranges")):
        with pytest.raises(
            InputError, match=f"^[^=]*recode of the item '{entry}': there is no{more}"
        ):
            irt.ingest(labelled(form, tmp_path), tmp_path / "s", recode=OWN | {entry: {"no": 0}},
                       categories=BY_ITEM)  # fmt: skip


def test_an_item_without_labels_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="recode of the item 'q2' has no label"):
        irt.ingest(labelled("wide", tmp_path), tmp_path / "s", recode={"q2": {}})


def test_codes_of_a_frame_may_be_floats(tmp_path: Path) -> None:
    """As pandas makes them of whole numbers; others are no codes."""
    file = write(tmp_path / "f.csv", "person,q1\na,no\nb,yes\n")
    frame = pd.DataFrame({"item": "q1", "label": ["no", "yes"], "code": [0.0, 1.0]})
    r = irt.ingest(file, tmp_path / "s", recode=frame)
    assert cells(r).tolist() == [[0], [1]]
    with pytest.raises(InputError, match=r"{'yes': 0\.5}: a code means"):
        irt.ingest(file, tmp_path / "t", recode=frame.assign(code=[0.0, 0.5]))


def test_a_label_that_a_file_of_labels_lacks_is_a_row_of_it(tmp_path: Path) -> None:
    """Another recode cannot stand beside the file; beside a dict it can."""
    file = write(tmp_path / "f.csv", "person,q1,q2,q3\na,yes,yes,no\nb,often,no,yes\n")
    table = write(tmp_path / "labels.csv", TABLE)
    for recode, remedy in (
        (table, r"else add a row to \S+labels\.csv[^=]*; if the column is no item"),
        (OWN, "else recode="),
    ):
        with pytest.raises(InputError, match=remedy):
            irt.ingest(file, tmp_path / "s", recode=recode, categories=BY_ITEM)
