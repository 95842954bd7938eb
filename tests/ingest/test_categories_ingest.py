"""Items of more than two categories from files: codes, labels, keys, items counted back."""

from __future__ import annotations

import csv
import itertools
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parts import cells, person_ids

import irt_dask as irt
from irt_dask.errors import DataWarning, InputError, StoreError, TooLargeError
from irt_dask.ingest.columns import decode
from irt_dask.ingest.columns.patterns import ItemFilter
from irt_dask.ingest.columns.values import Codes, Distinct
from irt_dask.ingest.options import codes_of
from irt_dask.ingest.sort import row_grouping, spill
from irt_dask.ingest.text import lines
from irt_dask.kernels.responses.layouts import to_dense
from irt_dask.store import manifest
from irt_dask.store.stored import collapsed_of, reversed_of

K = (2, 5, 3)
ITEMS = ("q1", "q2", "q3")
Y = np.array([[1, 4, 0], [0, 3, 1], [1, -1, 2], [0, 0, -1], [-1, 1, 1], [1, 2, 0]], dtype=np.int8)
PERSONS = tuple("abcdef")
BY_ITEM = {"q2": 5, "q3": 3}
WIDE = "person,q1,q2,q3\n" + "".join(
    f"{p},{','.join('' if c < 0 else str(c) for c in row)}\n"
    for p, row in zip(PERSONS, Y.tolist(), strict=True)
)


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def long_rows(spell: Any = str) -> list[tuple[str, str, str]]:
    return [
        (p, i, spell(c))
        for (p, row) in zip(PERSONS, Y.tolist(), strict=True)
        for i, c in zip(ITEMS, row, strict=True)
        if c >= 0
    ]


def as_long(folder: Path, spell: Any = str, sign: str = ",") -> Path:
    lines = [sign.join(row) for row in [("person", "item", "response"), *long_rows(spell)]]
    return write(folder / "long.csv", "\n".join(lines) + "\n")


def as_wide(folder: Path) -> Path:
    return write(folder / "wide.csv", WIDE)


def as_json(folder: Path, nested: bool = True, spell: Any = int) -> Path:
    rows = []
    for p, row in zip(PERSONS, Y.tolist(), strict=True):
        answers = {i: spell(c) for i, c in zip(ITEMS, row, strict=True) if c >= 0}
        rows.append({"id": p, **({"responses": answers} if nested else answers)})
    return write(folder / "rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows))


def as_parquet(folder: Path, kind: str) -> Path:
    table = pd.DataFrame(np.where(Y < 0, np.nan, Y), columns=[*ITEMS])
    if kind == "integers":
        table = table.astype("Int8")
    elif kind in ("strings", "dictionaries"):
        table = table.astype("Int8").astype(object).where(table.notna(), None)
        table = table.map(lambda c: None if c is None else str(c))
        table = table.astype("category") if kind == "dictionaries" else table
    table.insert(0, "person", list(PERSONS))
    table.to_parquet(folder / f"{kind}.parquet")
    return folder / f"{kind}.parquet"


FORMS = {
    "long": as_long,
    "long, floats": lambda folder: as_long(folder, lambda c: f"{c}.0"),
    "wide": as_wide,
    "nested": as_json,
    "keys, floats": lambda folder: as_json(folder, nested=False, spell=float),
    "keys, text": lambda folder: as_json(folder, nested=False, spell=str),
    **{
        f"parquet, {kind}": lambda folder, kind=kind: as_parquet(folder, kind)
        for kind in ("floats", "integers", "strings", "dictionaries")
    },
}


def ingest(source: Path, name: str = "s", **options: Any) -> irt.Responses:
    return irt.ingest(source, source.parent / name, **options)


def names(folder: Path) -> set[str]:
    return {p.name for p in folder.iterdir()}


# --- files of all forms ---------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_what_from_array_gives(form: str, layout: str, tmp_path: Path) -> None:
    r = ingest(FORMS[form](tmp_path), categories=BY_ITEM, layout=layout, rows_per_block=4)
    same = irt.from_array(Y, item_id=ITEMS, person_id=PERSONS, categories=BY_ITEM, rows_per_block=4)
    assert (r.item_id, r.n_categories, r.layout) == (same.item_id, K, layout)
    assert person_ids(r) == person_ids(same)
    for k in range(r.n_blocks):
        values = to_dense(r.read_block(k).data).values
        assert values.dtype == np.int8
        assert values.tobytes() == to_dense(same.read_block(k).data).values.tobytes()
    assert manifest.read(tmp_path / "s")["needs"] == ["categories"]
    r.verify()


def test_decimal_commas(tmp_path: Path) -> None:
    file = as_long(tmp_path, lambda c: f"{c},0", sign=";")
    r = ingest(file, categories=BY_ITEM, decimal=",", delimiter=";")
    np.testing.assert_array_equal(cells(r), Y)


SAYINGS: dict[str, Any] = {
    "a number": 5,
    "by item": BY_ITEM,
    "a Series": pd.Series(BY_ITEM),
    "a table": pd.DataFrame({"item": list(ITEMS), "categories": K}),
    "a file": "item,categories\nq3,3.0\nq2, 5\n",
    "data": "data",
}


@pytest.mark.parametrize("said", SAYINGS)
def test_ways_to_say_it(said: str, tmp_path: Path) -> None:
    categories = SAYINGS[said]
    if said == "a file":
        categories = write(tmp_path / "k.csv", categories)
    r = ingest(as_wide(tmp_path), categories=categories, null_categories="keep")
    assert r.n_categories == ((5, 5, 5) if said == "a number" else K)
    assert irt.open_responses(tmp_path / "s").n_categories == r.n_categories


def test_nothing_is_inferred_unsaid(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'q2' has the value '4'; a partial score: .*categories="):
        ingest(as_wide(tmp_path))
    assert names(tmp_path) == {"wide.csv"}
    r = ingest(write(tmp_path / "b.csv", "person,q1\na,1\nb,0\n"), categories="data")
    assert r.n_categories == (2,)
    assert "needs" not in manifest.read(tmp_path / "s")


def test_data_counts_what_is_stored(tmp_path: Path) -> None:
    """Not rows that are put aside: a person's second row, of a wide file and of a long one."""
    wide = write(tmp_path / "w.csv", "person,q1\na,1\nb,2\nc,0\na,9\n")
    assert ingest(wide, "w", categories="data", on_error="quarantine").n_categories == (3,)
    rows = "a,i,1\nb,i,2\nc,i,0\na,i,9\n"
    long = write(tmp_path / "l.csv", "person,item,response\n" + rows)
    assert ingest(long, "l", categories="data", on_error="quarantine").n_categories == (3,)


REFUSED: dict[str, tuple[Any, str]] = {
    "too many": (16, "gives all items 16 categories; give a whole number from 2 to 15"),
    "too few": ({"q2": 1}, "gives item q2 1 categories"),
    "no number": ({"q2": "five"}, "gives item q2 'five' categories"),
    "true": (True, "gives all items True categories"),
    "twice": ({"q2": 5, " q2": 4}, "names the item 'q2' twice"),
    "a table of other columns": (pd.DataFrame({"item": ["q2"]}), "without the column 'categories'"),
    "a file that is not there": ("k.csv", "k.csv"),
    "a word": ("date", "categories='date' is neither a number nor 'data'"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_numbers_that_are_none(what: str, tmp_path: Path) -> None:
    categories, message = REFUSED[what]
    with pytest.raises(InputError, match=message):
        ingest(as_wide(tmp_path), categories=categories)
    assert names(tmp_path) == {"wide.csv"}


@pytest.mark.parametrize(
    "text, message",
    [
        ("item,k\nq2,5\n", "line 1: there is no column 'categories'"),
        ("item,categories\nq2,5\nq2,5\n", "line 3: the item 'q2' has a number of categories"),
        ("item,categories\nq2,5.5\n", "line 2: .*gives item q2 '5.5' categories"),
        ("item,categories\n,5\n", "line 2: the item is empty"),
    ],
)
def test_files_of_numbers_that_are_wrong(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        ingest(as_wide(tmp_path), categories=write(tmp_path / "k.csv", text))


def test_items_that_are_named_and_not_there_are_told(tmp_path: Path) -> None:
    with pytest.warns(DataWarning, match=r"names 1 item\(s\) that are not in the file: 'q9'"):
        assert ingest(as_wide(tmp_path), categories=BY_ITEM | {"q9": 3}).n_categories == K


# --- codes that items do not have -----------------------------------------------------------------


@pytest.mark.parametrize(
    "form, file, place, column",
    [
        ("long", "long.csv", "line 3", "response"),
        ("wide", "wide.csv", "line 2", "q2"),
        ("nested", "rows.jsonl", "line 1", "q2"),
        ("parquet, integers", "integers.parquet", "row 1", "q2"),
    ],
)
def test_a_code_that_its_item_does_not_have(
    form: str, file: str, place: str, column: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as error:
        ingest(FORMS[form](tmp_path), categories={"q2": 4, "q3": 3})
    assert str(error.value).startswith(
        f"{tmp_path / file}, {place}: column '{column}' has the value '4'; the item 'q2' has 4 "
        f"categories, the codes 0 to 3; say categories= if it has more, or recode="
    )


@pytest.mark.parametrize(
    "categories, value, parts",
    [
        (
            3,
            "7",
            ["the item 'q2' has 3 categories", "0 to 2", "recode={'7': CODE}", "missing=['7']"],
        ),
        ({"q1": 3}, "2", ["the item 'q2' has 2 categories", "as categories= does not name it"]),
        (15, "15", ["a response is 0 to 14"]),
        ("data", "15", ["a response is 0 to 14"]),
        (5, "agree", ["a response is 0 to 4", "recode={'agree': CODE}", "missing=['agree']"]),
        (5, "2.00", ["a response is written as a whole number; say recode={'2.00': 2}"]),
        (5, "-9", ["mean different things", "missing=['-9']"]),
        (None, "8", ["mean different things", "categories=9"]),
        (None, "3", ["a partial score", "categories=", "recode={'3': 'right'}"]),
        (None, "99", ["mean different things", "missing=['99']"]),
    ],
)
def test_why_a_value_is_refused(
    categories: Any, value: str, parts: list[str], tmp_path: Path
) -> None:
    file = write(tmp_path / "f.csv", f"person,q1,q2\na,1,0\nb,0,{value}\n")
    with pytest.raises(InputError) as error:
        ingest(file, categories=categories, null_categories="keep")
    for part in ["line 3: column 'q2'", repr(value), *parts]:
        assert part in str(error.value)


def test_quarantine(tmp_path: Path) -> None:
    file = write(tmp_path / "f.csv", WIDE + "g,1,5,0\nh,2,0,0\n")
    r = ingest(file, categories=BY_ITEM, on_error="quarantine")
    np.testing.assert_array_equal(cells(r), Y)
    with open(tmp_path / "s.quarantine.csv", newline="", encoding="utf-8") as f:
        rows = list(csv.DictReader(f))
    assert [(row["line"], row["column"], row["value"]) for row in rows] == [
        ("8", "q2", "5"), ("9", "q1", "2"),
    ]  # fmt: skip
    assert r.n_quarantined == 2


def test_a_code_for_missing_that_is_a_category(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match="'4' is a response where items have 5 categories, 0 to 4, and"
    ):
        ingest(as_wide(tmp_path), categories=5, missing=["4"])
    r = ingest(as_wide(tmp_path), categories={"q2": 4, "q3": 3}, missing=["4"])
    assert cells(r)[0].tolist() == [1, -1, 0]
    more = write(tmp_path / "more.csv", "person,q2\ng,3\n")
    for categories in (None, "data", 15):
        with pytest.raises(InputError, match=r"'3' is a response where items have (4|15)"):
            irt.append(more, tmp_path / "s", missing=[3], categories=categories)
    recode = {"3": "missing"}
    assert cells(irt.append(more, tmp_path / "s", recode=recode))[-1].tolist() == [-1, -1, -1]


# --- recode ---------------------------------------------------------------------------------------

AGREE = {"strongly disagree": 0, "disagree": 1, "agree": 2, "strongly agree": 3, "no answer": -1}


def test_labels(tmp_path: Path) -> None:
    labels = [label for label in AGREE for _ in range(2)]
    text = "person,q1\n" + "".join(f"{k}, {label} \n" for k, label in enumerate(labels))
    recode = AGREE | {"no answer": "missing"}
    r = ingest(write(tmp_path / "f.csv", text), categories=4, recode=recode)
    assert cells(r)[:, 0].tolist() == [AGREE[label] for label in labels]


def test_labels_of_a_parquet_file(tmp_path: Path) -> None:
    table = pd.DataFrame({"person": list("abcd"), "q1": pd.Categorical([*AGREE][:4])})
    table.to_parquet(tmp_path / "f.parquet")
    recode = {k: v for k, v in AGREE.items() if v >= 0}
    assert cells(ingest(tmp_path / "f.parquet", categories="data", recode=recode)).T.tolist() == [
        [0, 1, 2, 3]
    ]


def test_recode_of_numbers_goes_first(tmp_path: Path) -> None:
    """A scale from 1 to 5; the 9 is what was omitted, half points are codes."""
    text = "person,q1\na,1\nb,2\nc,3.0\nd,9\ne,0.5\n"
    recode = {1: 0, "2": 1, 3: 2, "9": "missing", 0.5: 3}
    r = ingest(write(tmp_path / "f.csv", text), categories=4, recode=recode)
    assert cells(r)[:, 0].tolist() == [0, 1, 2, -1, 3]


def test_truth_values_are_0_and_1(tmp_path: Path) -> None:
    text = "person,q1,q2\na,TRUE,2\nb,false,0\nc,True,1\n"
    r = ingest(write(tmp_path / "f.csv", text), categories={"q2": 3})
    assert cells(r).tolist() == [[1, 2], [0, 0], [1, 1]]


@pytest.mark.parametrize("categories", [None, 3])
def test_a_recode_to_a_code_that_no_item_has(categories: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"recode=\{'agree': 3\}: no item has .*categories="):
        ingest(as_wide(tmp_path), recode={"agree": 3}, categories=categories)


def test_a_label_that_its_item_does_not_have(tmp_path: Path) -> None:
    file = write(tmp_path / "f.csv", "person,q1,q2\na,agree,0\nb,0,agree\n")
    with pytest.raises(InputError, match=r"line 2: .*'agree'; it means 2, and the item 'q1' has 2"):
        ingest(file, recode={"agree": 2}, categories={"q2": 3})


@pytest.mark.parametrize("meaning", [15, -1, 1.0, True, "4", None])
def test_what_is_no_meaning(meaning: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'omitted', 'not reached', or a whole number from 0"):
        ingest(as_wide(tmp_path), recode={"x": meaning}, categories=5)


def test_a_word_and_a_code_that_differ(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'x' has two meanings, 'wrong' and 3"):
        ingest(as_wide(tmp_path), recode={"x": 0, " x": 3}, categories=5)
    assert ingest(as_wide(tmp_path), recode={"x": 0, " x": "wrong"}, categories=5,
                  null_categories="keep").n_items == 3  # fmt: skip


# --- reverse --------------------------------------------------------------------------------------

REVERSED = np.where(Y < 0, -1, np.array(K) - 1 - Y)


@pytest.mark.parametrize("form", ["long", "wide", "nested", "parquet, floats"])
@pytest.mark.parametrize("which", [["q2"], ["q[23]"], ["q1:q2"]])
def test_reversed_items(form: str, which: list[str], tmp_path: Path) -> None:
    file, wide = FORMS[form](tmp_path), form == "wide" or "parquet" in form
    if which == ["q1:q2"] and not wide:
        with pytest.raises(
            InputError, match=r"reverse=\['q1:q2'\]: there is no such.*\(only the colu"
        ):
            ingest(file, categories=BY_ITEM, reverse=which)
        return
    r = ingest(file, categories=BY_ITEM, reverse=which)
    back = {"q2": [1], "q[23]": [1, 2], "q1:q2": [0, 1]}[which[0]]
    expected = Y.copy()
    expected[:, back] = REVERSED[:, back]
    np.testing.assert_array_equal(cells(r), expected)


def test_recode_goes_before_reverse(tmp_path: Path) -> None:
    file = write(tmp_path / "f.csv", "person,q1\na,never\nb,1\nc,2\nd,9\n")
    recode = {"never": 0, "9": "missing"}
    r = ingest(file, categories=3, recode=recode, reverse="q1")
    assert cells(r)[:, 0].tolist() == [2, 1, 0, -1]


@pytest.mark.parametrize(
    "form, options, message",
    [
        ("wide", {"reverse": ["q9"]}, "reverse=.'q9'., of the items: there is no column 'q9'"),
        ("wide", {"reverse": ["person"]}, "there is no column 'person'"),
        ("wide", {"reverse": ["q3:q1"]}, "'q3' stands after 'q1'"),
        ("long", {"reverse": ["q9"]}, "reverse=.'q9'.: there is no such item"),
        ("nested", {"reverse": ["z*"]}, "reverse=.'z.*there is no such item"),
        ("wide", {"reverse": 3}, "reverse=3 is no list of items"),
        ("wide", {"reverse": ["q2"], "categories": "data"}, "'data' leaves K to the data"),
        ("wide", {"reverse": ["q2"], "categories": None, "key": {"q2": 1}}, "the key says all"),
    ],
)
def test_what_cannot_be_reversed(
    form: str, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        ingest(FORMS[form](tmp_path), **{"categories": BY_ITEM, **options})
    assert len(names(tmp_path)) == 1


def test_an_item_that_is_called_as_a_glob(tmp_path: Path) -> None:
    text = "person,item,response\na,q?,1\na,q2,0\nb,q?,0\nb,q2,1\n"
    with pytest.raises(InputError, match="is an item, and others match it"):
        ingest(write(tmp_path / "f.csv", text), reverse=["q?"])
    wide = write(tmp_path / "w.csv", "person,q?,q2\na,1,0\nb,1,1\n")
    assert cells(ingest(wide, reverse=["q?"])).tolist() == [[0, 0], [0, 1]]


# --- keys with partial credit ---------------------------------------------------------------------

ANSWERS = "person,q1,q2\na,A,C\nb,B,D\nc,C,9\nd,NA,2.0\n"
SCORES = {"q1": {"A": 2, "B": 1, "C": 0}, "q2": {"C": 3, "2": 1, "D": 2, "9": 0}}
SCORED = [[2, 3], [1, 2], [0, 0], [-1, 1]]


@pytest.mark.parametrize("shape", ["wide", "long"])
@pytest.mark.parametrize("given_as", ["dict", "file"])
def test_partial_credit(given_as: str, shape: str, tmp_path: Path) -> None:
    rows = [line.split(",") for line in ANSWERS.split()]
    if shape == "long":
        triples = [(p, i, v) for p, *vs in rows[1:] for i, v in zip(rows[0][1:], vs, strict=True)]
        rows = [["person", "item", "response"], *map(list, triples)]
    file = write(tmp_path / "f.csv", "".join(",".join(row) + "\n" for row in rows))
    key: Any = SCORES
    if given_as == "file":
        lines = [f"{i},{o},{s}" for i, of in SCORES.items() for o, s in of.items()]
        key = write(tmp_path / "key.csv", "\n".join(["item,key,score", *lines]) + "\n")
    r = ingest(file, key=key)
    assert cells(r).tolist() == SCORED
    assert r.n_categories == (3, 4)


def test_the_scores_of_a_key_are_held_to_what_is_declared(tmp_path: Path) -> None:
    file = write(tmp_path / "f.csv", ANSWERS)
    assert ingest(file, "a", key=SCORES, categories=4,
                  null_categories="keep").n_categories == (4, 4)  # fmt: skip
    r = ingest(file, "b", key=SCORES, categories={"q1": 5}, null_categories="keep")
    assert r.n_categories == (5, 4)
    with pytest.raises(InputError, match="'C' to the item 'q2' has the score 3, and the item 'q2'"):
        ingest(file, "c", key=SCORES, categories=3)
    assert ingest(file, "d", key={"q1": {"A": 2, "B": 0, "C": 0}, "q2": {"C": 1}},
                  categories="data", null_categories="keep").n_categories == (3, 2)  # fmt: skip
    assert ingest(file, "e", key={"q1": "A", "q2": {"C": 1}}).n_categories == (2, 2)


@pytest.mark.parametrize(
    "key, message",
    [
        ({"q1": {"A": 15}, "q2": "C"}, "has the score 15; a score is a whole number from 0 to 14"),
        ({"q1": {"A": "2"}, "q2": "C"}, "has the score '2'"),
        ({"q1": {"A": True}, "q2": "C"}, "has the score True"),
        ({"q1": {}, "q2": "C"}, "has the option {}; neither is empty"),
        ({"q1": {"2": 1, "2.0": 2}, "q2": "C"}, "the same number as two options"),
        ({"q1": [1], "q2": "C"}, r"key: the item 'q1': \[1\] must be a string or a number"),
        ({"q1": {"A": 1, "A ": 2}, "q2": "C"}, "'q1' has two scores for 'A', 1 and 2"),
        ({"q1": {"A": 0}, "q2": "C"}, "key: no answer to the item 'q1' has a score above 0"),
        ("item,key,score\nq1,A,0\nq1,B,0\n", "key.csv: no answer to the item 'q1' has a score"),
        ({"q1": {"NA": 1}, "q2": "C"}, "'NA', which also means not observed"),
        ("item,key,score\nq1,A,2\nq1,A,1\n", "line 3: the item 'q1' has a score for 'A' already"),
        ("item,key,score\nq1,A,\n", "line 2: .*has the score ''"),
        ("item,key,score\nq1,A,1.5\n", "line 2: .*has the score '1.5'"),
        ("item,key\nq1,A\nq1,B\n", "line 3: the item 'q1' has a key already"),
    ],
)
def test_keys_that_are_wrong(key: Any, message: str, tmp_path: Path) -> None:
    if isinstance(key, str):
        key = write(tmp_path / "key.csv", key)
    with pytest.raises(InputError, match=message):
        ingest(write(tmp_path / "f.csv", ANSWERS), key=key)


@pytest.mark.parametrize("shape", ["wide", "long"])
def test_answers_that_a_key_of_scores_does_not_have_are_told(shape: str, tmp_path: Path) -> None:
    """Perhaps slips: they score 0, as those do whose score the key says, and nobody is told of."""
    answers = {"q1": ["both", "bothh", "one", "bothh", "none"], "q2": ["A", "B", "C", "NA", "A"],
               "q3": ["2", "3.0", "1", "3", "2.0"]}  # fmt: skip
    table = pd.DataFrame(answers, index=pd.Index(list("abcde"), name="person"))
    if shape == "long":
        table = table.rename_axis("item", axis=1).stack().rename("response").reset_index()
    table.to_csv(tmp_path / "f.csv", index=shape == "wide")
    key: Any = {"q1": {"both": 2, "one": 1, "none": 0}, "q2": "A", "q3": {"2": 2, "1": 1}}
    said = (
        r"f\.csv: 4 answer\(s\) score 0 as the key does not have them: 'bothh' to the item 'q1' "
        r"\(2\), '3' to the item 'q3' \(1\), '3.0' to the item 'q3' \(1\); if that is meant"
    )
    with pytest.warns(DataWarning, match=said):
        r = ingest(tmp_path / "f.csv", key=key, null_categories="keep")
    assert cells(r).tolist() == [[2, 1, 2], [0, 0, 0], [1, 0, 1], [0, -1, 0], [0, 1, 2]]
    key["q1"]["bothh"], key["q3"]["3"] = 2, 0
    ingest(tmp_path / "f.csv", "silent", key=key, null_categories="keep")


def test_essays_of_a_key_of_scores_are_counted_together(tmp_path: Path) -> None:
    rows = [f"p{k},{'A' if k < 9 else f'essay {k}'}\n" for k in range(99)]
    file = write(tmp_path / "f.csv", "person,q1\n" + "".join(rows))
    with pytest.warns(DataWarning, match=r"90 answer.*: other answers to the item 'q1' \(40\), "):
        ingest(file, key={"q1": {"A": 2}}, null_categories="keep")


@pytest.mark.parametrize("score", ["Score", "SCORE", "score"])
def test_a_column_of_scores_is_found_in_any_case(score: str, tmp_path: Path) -> None:
    lines = [f"{i},{o},{s}\n" for i, of in SCORES.items() for o, s in of.items()]
    key = write(tmp_path / "key.csv", f"item,key,{score}\n" + "".join(lines))
    assert ingest(write(tmp_path / "f.csv", ANSWERS), key=key).n_categories == (3, 4)


def test_columns_that_are_not_read_are_told(tmp_path: Path) -> None:
    key = write(tmp_path / "key.csv", "item,key,points\nq1,A,2\nq2,C,3\n")
    file = write(tmp_path / "f.csv", ANSWERS)
    with pytest.warns(
        irt.errors.Notice, match=r"key.csv: the column 'points' is not read; .*score"
    ):
        assert ingest(file, "a", key=key).n_categories == (2, 2)
    table = write(tmp_path / "k.csv", "item,categories,label\nq2,5,x\nq3,3,y\n")
    with pytest.warns(irt.errors.Notice, match=r"k.csv: the column 'label' is not read"):
        assert ingest(as_wide(tmp_path), "b", categories=table).n_categories == K


# --- categories without a response ----------------------------------------------------------------


@pytest.mark.parametrize("form", ["long", "wide"])
@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_categories_without_a_response(form: str, layout: str, tmp_path: Path) -> None:
    """Of items with more than two; whoever has two may lack one."""
    file = FORMS[form](tmp_path)
    before = names(tmp_path)
    with pytest.raises(InputError) as error:
        ingest(file, categories={"q2": 7, "q3": 4}, layout=layout)
    for part in (str(file), "2 item(s)", "'q2' (5, 6), 'q3' (3)", "recode=",
                 "null_categories='keep'"):  # fmt: skip
        assert part in str(error.value)
    assert names(tmp_path) == before
    r = ingest(file, categories={"q2": 7, "q3": 4}, null_categories="keep", layout=layout)
    assert r.n_categories == (2, 7, 4)
    alike = write(tmp_path / "alike.csv", "person,q1,q2\na,1,0\nb,1,1\nc,1,2\n")
    assert ingest(alike, "alike", categories={"q2": 3}).n_categories == (2, 3)


def test_a_gap_in_the_data(tmp_path: Path) -> None:
    file = write(tmp_path / "f.csv", "person,q1\na,0\nb,3\nc,1\n")
    with pytest.raises(InputError, match=r"'q1' \(2\)"):
        ingest(file, categories="data")
    assert ingest(file, categories="data", null_categories="keep").n_categories == (4,)


def test_an_option_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'drop' is unknown; it is one of raise, keep, collapse"):
        ingest(as_wide(tmp_path), categories=5, null_categories="drop")


# --- categories that are dropped ------------------------------------------------------------------

GAPS = {"q2": 7, "q3": 5}  # of the codes doubled in q3: 1 and 3 are empty, of q2 5 and 6
DROPPED = {"q2": (0, 1, 2, 3, 4, None, None), "q3": (0, None, 1, None, 2)}


def doubled(file: Path) -> Path:
    """The file with the codes of q3 doubled."""
    text = file.read_text()
    if "long" in file.name:
        lines = [line.rsplit(",", 1) for line in text.split()]
        text = "".join(
            f"{head},{2 * int(code) if head.endswith('q3') else code}\n" for head, code in lines
        )
        return write(file, text)
    table = pd.read_csv(file, dtype="string")
    table["q3"] = (2 * table["q3"].astype("Int8")).astype("string")
    table.to_csv(file, index=False)
    return file


@pytest.mark.parametrize("form", ["long", "wide"])
@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_collapse(form: str, layout: str, tmp_path: Path) -> None:
    file = doubled(FORMS[form](tmp_path))
    with pytest.warns(irt.errors.Notice, match=r"dropped: 'q2' \(5, 6\), 'q3' \(1, 3\)"):
        r = ingest(
            file, categories=GAPS, null_categories="collapse", layout=layout, rows_per_block=2
        )
    assert r.n_categories == K
    np.testing.assert_array_equal(cells(r), Y)
    r.verify()
    assert collapsed_of(r) == DROPPED
    content = manifest.read(tmp_path / "s")
    assert content["needs"] == ["categories", "collapsed categories"]
    assert content["collapsed"] == {item: [*codes] for item, codes in DROPPED.items()}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with pytest.warns(irt.errors.Notice):
        ingest(doubled(as_wide(tmp_path)), categories=GAPS, null_categories="collapse")
    return tmp_path / "s"


@pytest.mark.parametrize("form", ["long", "wide", "nested"])
def test_append_drops_the_same(form: str, store: Path, tmp_path: Path) -> None:
    rows = [("g", "4", "4"), ("h", "0", ""), ("i", "", "2")]
    text = "person,q2,q3\n" + "".join(",".join(row) + "\n" for row in rows)
    more = write(tmp_path / "more.csv", text)
    if form == "long":
        triples = [f"{p},q{j},{c}\n" for p, *cs in rows for j, c in enumerate(cs, 2)]
        more = write(tmp_path / "more.csv", "person,item,response\n" + "".join(triples))
    if form == "nested":
        answers = [{"id": p, "responses": {"q2": a, "q3": b}} for p, a, b in rows]
        more = write(tmp_path / "m.jsonl", "".join(json.dumps(row) + "\n" for row in answers))
    r = irt.append(more, store, categories=GAPS)  # the same table as at first
    assert cells(r)[6:].tolist() == [[-1, 4, 2], [-1, 0, -1], [-1, -1, 1]]
    assert r.n_categories == K
    r.verify()


@pytest.mark.parametrize(
    "value, options, message",
    [
        ("3", {}, "'3'; it is of category 3 of the item 'q3', which had no response when"),
        ("1", {"reverse": ["q3"]}, "'1'; it is of category 3 of the item 'q3'"),
        ("x", {"recode": {"x": 1}}, "'x'; it is of category 1 of the item 'q3'"),
        ("B", {"key": {"q3": {"A": 2, "B": 3}}}, "'B'; it is of category 3 of the item 'q3'"),
        ("5", {}, "in the store the item 'q3' has 5 categories, the codes 0 to 4, for good"),
    ],
)
def test_a_category_that_was_dropped(
    value: str, options: dict[str, Any], message: str, store: Path, tmp_path: Path
) -> None:
    more = write(tmp_path / "more.csv", f"person,q3\ng,{value}\n")
    with pytest.raises(InputError, match=message):
        irt.append(more, store, **options)
    with pytest.raises(InputError, match=r"'q3' \(3, in the store 5\)"):
        irt.append(more, store, categories={"q3": 3})


def test_reversed_codes_of_a_store_that_dropped_some(store: Path, tmp_path: Path) -> None:
    more = write(tmp_path / "more.csv", "person,q3\ng,0\nh,2\ni,4\n")
    with pytest.warns(DataWarning, match="names 1 item.*: 'q3';"):
        r = irt.append(more, store, reverse=["q3"])
    assert cells(r)[6:, 2].tolist() == [2, 1, 0]
    key = {"q3": {"A": 4, "B": 2, "C": 0}}
    more = write(tmp_path / "more.csv", "person,q3\nj,A\nk,B\nl,C\n")
    assert cells(irt.append(more, store, key=key))[9:, 2].tolist() == [2, 1, 0]


WAVE = "person,q1,q2\na,0,3\nb,3,0\nc,1,2\nd,2,1\n"


@pytest.mark.parametrize("form", ["wide", "long"])
@pytest.mark.filterwarnings("ignore::irt_dask.errors.Notice")
def test_a_later_file_that_is_not_reversed_as_the_first_was(form: str, tmp_path: Path) -> None:
    """Whoever forgets, or reverses what was not, is told the items; new items are free."""

    def file(name: str, wide: str) -> Path:
        if form == "wide":
            return write(tmp_path / name, wide)
        head, *rows = [line.split(",") for line in wide.split()]
        long = ["person,item,response"]
        for person, *x in rows:
            long += [f"{person},{item},{code}" for item, code in zip(head[1:], x, strict=True)]
        return write(tmp_path / name, "\n".join(long) + "\n")

    s = tmp_path / "s"
    r = irt.ingest(file("first.csv", WAVE), s, categories=4, reverse="q2")
    first = r.checksum
    assert first is not None
    assert reversed_of(r) == ("q2",)
    more = file("more.csv", "person,q1,q2,q3\ne,0,3,0\nf,3,0,3\ng,1,1,1\nh,2,2,2\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        r = irt.append(more, s, categories=4, reverse=["q2", "q3"])
    assert (reversed_of(r), cells(r)[4].tolist()) == (("q2", "q3"), [0, 0, 3])
    r.verify()
    more = file("next.csv", "person,q1,q2\ni,0,3\n")
    with pytest.warns(DataWarning, match=r"leaves out 1 item.* are reversed there: 'q2';"):
        irt.append(more, s)
    more = file("last.csv", "person,q1\nj,0\n")
    with pytest.warns(DataWarning, match=r"names 1 item.* are not reversed there: 'q1';"):
        irt.append(more, s, reverse="q1")
    assert reversed_of(r) == ("q2", "q3")  # opened before
    then = manifest.as_of(manifest.read(s), first)
    assert then is not None
    assert then["reversed"] == ["q2"]


@pytest.mark.filterwarnings("ignore::irt_dask.errors.Notice")
def test_later_items_drop_their_own(store: Path, tmp_path: Path) -> None:
    """Also by responses that are merged; the handle of before reads what it did."""
    old = irt.open_responses(store)
    more = write(tmp_path / "more.csv", "person,q3,q4\na,0,3\nb,NA,0\ng,4,1\nh,2,3\n")
    r = irt.append(more, store, categories=4, null_categories="collapse", on_duplicate="merge")
    expected = np.full((8, 4), -1)
    expected[:6, :3] = Y
    expected[[0, 1, 6, 7], 3] = [2, 0, 1, 2]
    expected[6:, 2] = [2, 1]
    np.testing.assert_array_equal(cells(r), expected)
    assert collapsed_of(r) == DROPPED | {"q4": (0, 1, None, 2)}
    np.testing.assert_array_equal(cells(old), Y)
    assert collapsed_of(old) == DROPPED
    again = write(tmp_path / "again.csv", "person,q4\na,3\nc,3\n")
    r = irt.append(again, store, on_duplicate="merge")
    assert cells(r)[[0, 2], 3].tolist() == [2, 2]
    r.verify()


def test_items_of_one_category_are_not_collapsed(tmp_path: Path) -> None:
    file = write(tmp_path / "f.csv", "person,q1,q2\na,2,0\nb,2,1\n")
    with pytest.raises(InputError, match=r"1 item\(s\) are of one category: 'q1'"):
        ingest(file, categories={"q1": 3}, null_categories="collapse")
    assert names(tmp_path) == {"f.csv"}


def test_nothing_to_collapse(tmp_path: Path) -> None:
    r = ingest(as_wide(tmp_path), categories=BY_ITEM, null_categories="collapse")
    assert (r.n_categories, collapsed_of(r)) == (K, {})
    assert "collapsed" not in manifest.read(tmp_path / "s")


def test_a_gap_in_the_data_is_closed(tmp_path: Path) -> None:
    file = write(tmp_path / "f.csv", "person,q1\na,0\nb,3\nc,1\n")
    with pytest.warns(irt.errors.Notice, match=r"'q1' \(2\)"):
        r = ingest(file, categories="data", null_categories="collapse")
    assert (r.n_categories, cells(r)[:, 0].tolist()) == ((3,), [0, 2, 1])


@pytest.mark.parametrize(
    "collapsed",
    [
        [], {"q9": [0, None, 1]}, {"q3": [0, 1, 2]}, {"q3": [0, None, 2, 1]}, {"q3": [0, None, 1]},
        {"q3": 3}, {"q3": [0, None, 1, 2.5]}, {"q3": [False, None, True, 2]},
        {"q3": [0, 1, 2, *[None] * 13]},
    ],
)  # fmt: skip
def test_forged_maps(collapsed: Any, store: Path) -> None:
    content = json.loads((store / "manifest.json").read_text())
    content["collapsed"] = collapsed
    del content["checksum"]
    manifest.write(store, content)
    with pytest.raises(StoreError, match="is none that irt_dask writes: collapsed"):
        irt.open_responses(store)


# --- append ---------------------------------------------------------------------------------------

MORE = "person,q2,q4\ng,4,1\nh,0,0\ni,2,2\n"


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("categories", [{"q4": 3}, 3, "data", {"q2": 5, "q4": 3}])
def test_append(categories: Any, layout: str, tmp_path: Path) -> None:
    """Items of the store keep their K, whatever is said of all."""
    ingest(as_wide(tmp_path), categories=BY_ITEM, layout=layout)
    more = write(tmp_path / "more.csv", MORE)
    with pytest.warns(irt.errors.Notice, match="'q4'"):
        r = irt.append(more, tmp_path / "s", categories=categories)
    assert r.n_categories == (*K, 3)
    np.testing.assert_array_equal(cells(r)[6:], [[-1, 4, -1, 1], [-1, 0, -1, 0], [-1, 2, -1, 2]])


def test_append_holds_codes_to_the_store(tmp_path: Path) -> None:
    store = tmp_path / "s"
    ingest(as_wide(tmp_path), categories=BY_ITEM)
    more = write(tmp_path / "more.csv", "person,q1,q2,q3\ng,0,4,3\nh,1,5,2\ni,0,1,2\n")
    with pytest.raises(InputError) as error:
        irt.append(more, store, categories=5)
    for part in (
        "more.csv, line 2: column 'q3' has the value '3'", "for good",
        "in the store the item 'q3' has 3 categories, the codes 0 to 2",
    ):  # fmt: skip
        assert part in str(error.value)
    assert "categories=" not in str(error.value)
    with pytest.raises(
        InputError, match=r"1 item\(s\) another number .* 'q3' \(4, in the store 3\)"
    ):
        irt.append(more, store, categories={"q3": 4})
    with pytest.warns(DataWarning, match="names 1 item"):
        r = irt.append(more, store, on_error="quarantine", reverse=["q2"], recode={"x": 4})
    np.testing.assert_array_equal(cells(r)[6:], [[0, 3, 2]])
    assert r.n_quarantined == 2
    key, raw = {"q1": {"C": 2}}, write(tmp_path / "raw.csv", "person,q1\nz,A\n")
    with pytest.raises(InputError, match="'C' to the item 'q1' has the score 2, and in the store"):
        irt.append(raw, store, key=key)


def test_append_to_two_categories_says_that_they_stay_two(tmp_path: Path) -> None:
    ingest(write(tmp_path / "f.csv", "person,q1\na,1\nb,0\n"))
    more = write(tmp_path / "more.csv", "person,q1\nc,2\n")
    with pytest.raises(InputError, match="in the store the item 'q1' has 2 categories"):
        irt.append(more, tmp_path / "s", categories=3)


def test_new_items_are_looked_at_for_empty_categories(tmp_path: Path) -> None:
    """Not those of the store, of which an append may have any."""
    ingest(as_wide(tmp_path), categories=BY_ITEM)
    more = write(tmp_path / "more.csv", MORE)
    with (
        pytest.raises(InputError, match=r"1 item\(s\) have .*'q4' \(3\)"),
        pytest.warns(irt.errors.Notice),
    ):
        irt.append(more, tmp_path / "s", categories={"q4": 4})
    assert irt.open_responses(tmp_path / "s").item_id == ITEMS


@pytest.mark.parametrize("form", ["long", "wide", "nested"])
@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.filterwarnings("ignore::irt_dask.errors.Notice")
def test_merge(form: str, layout: str, tmp_path: Path) -> None:
    """Half of the responses come later, and a new item's alone by what is merged."""
    first = Y.copy()
    first[1::2, 1], first[:, 2], first[3] = -1, -1, [0, 0, -1]
    table = pd.DataFrame(first, columns=[*ITEMS], index=pd.Index(PERSONS, name="person"))
    table.drop(columns="q3").to_csv(tmp_path / "first.csv")
    store = tmp_path / "s"
    ingest(tmp_path / "first.csv", categories={"q2": 5}, layout=layout, null_categories="keep")
    r = irt.append(FORMS[form](tmp_path), store, categories={"q3": 3}, on_duplicate="merge")
    np.testing.assert_array_equal(cells(r), Y)
    assert r.n_categories == K
    assert r.fingerprint == irt.append(
        FORMS[form](tmp_path), store, on_duplicate="merge"
    ).fingerprint  # fmt: skip
    other = write(tmp_path / "other.csv", "person,q2\na,3\n")
    with pytest.raises(InputError, match="has 3 for the item 'q2' here, and 4 in the store"):
        irt.append(other, store, on_duplicate="merge")


# --- parts ----------------------------------------------------------------------------------------

PROPERTY = settings(max_examples=60, deadline=None, derandomize=True, database=None)


def test_a_partition_of_too_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_grouping, "_MOST_ROWS", 3)
    rows = np.zeros(4, dtype=np.int32)
    with pytest.raises(TooLargeError, match="4 responses fall into one partition"):
        row_grouping.group(rows, rows, rows.astype(np.int8), 1, 1)


@PROPERTY
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 14)), max_size=30),
    st.lists(st.integers(2, 15), min_size=4, max_size=4),
    st.sets(st.integers(0, 3)),
)
def test_codes_against_plain_python(
    rows: list[tuple[int, int]], k: list[int], back: set[int]
) -> None:
    items = [f"q{j}" for j in range(4)]
    codes: Codes = codes_of(categories=dict(zip(items, k, strict=True)))
    codes = codes.of_data(ItemFilter(frozenset(items[j] for j in back)), codes.limits)
    values = Distinct(np.arange(len(rows)), [str(c) for _, c in rows])
    found = codes.decode(values, items, np.array([j for j, _ in rows], dtype=np.int32))
    expected = [
        c if c < 0 else -2 if c >= k[j] else k[j] - 1 - c if j in back else c for j, c in rows
    ]
    assert found.tolist() == expected


def test_pieces_and_partitions_do_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "PIECE", 40)
    monkeypatch.setattr(spill, "PARTITION", 60)
    monkeypatch.setattr(decode, "CELLS", 4)
    for form, categories in itertools.product(("long", "wide", "nested"), (BY_ITEM, "data")):
        reverse = [] if categories == "data" else ["q2"]
        folder = tmp_path / f"{form} {categories == 'data'}"
        folder.mkdir()
        r = ingest(FORMS[form](folder), categories=categories, reverse=reverse, rows_per_block=2)
        expected = Y.copy()
        if reverse:
            expected[:, 1] = REVERSED[:, 1]
        np.testing.assert_array_equal(cells(r), expected)
        assert r.n_categories == K


@pytest.mark.parametrize("seed", range(8))
def test_random_files(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any K, form, layout and reversed items, in small pieces, against an array of the same."""
    rng = np.random.default_rng(seed)
    m, n = int(rng.integers(1, 7)), int(rng.integers(16, 60))
    k = rng.integers(2, 16, m)
    y = np.stack([rng.integers(-1, j, n) for j in k], axis=1)
    y[:15] = np.minimum(np.arange(15)[:, None], k - 1)  # every category has a response
    items = [f"i{j}" for j in range(m)]
    back = rng.random(m) < 0.5
    monkeypatch.setattr(lines, "PIECE", 100)
    monkeypatch.setattr(spill, "PARTITION", 300)
    table = pd.DataFrame(np.where(y < 0, np.nan, y), columns=items).astype("Int64")
    table.insert(0, "person", [f"p{i}" for i in range(n)])
    if seed % 2:
        table = table.melt("person", var_name="item", value_name="response")
        table = table.iloc[rng.permutation(len(table))] if seed % 4 == 1 else table
    table.to_csv(tmp_path / "f.csv", index=False)
    r = irt.ingest(
        tmp_path / "f.csv", tmp_path / "s", categories=dict(zip(items, k.tolist(), strict=True)),
        reverse=[i for i, b in zip(items, back, strict=True) if b],
        layout=("dense", "csr")[seed // 4], rows_per_block=int(rng.integers(1, 20)),
    )  # fmt: skip
    expected = pd.DataFrame(np.where((y >= 0) & back, k - 1 - y, y), columns=items)
    expected.index = [f"p{i}" for i in range(n)]
    found = pd.DataFrame(cells(r), columns=[*r.item_id], index=person_ids(r))
    np.testing.assert_array_equal(found.loc[expected.index, items], expected)
    assert dict(zip(r.item_id, r.n_categories, strict=True)) == dict(zip(items, k, strict=True))
