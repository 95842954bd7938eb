"""Ingest: good files against a plain reference parser, bad files against their messages."""

import csv
import gzip
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from parts import cells, person_ids

from irt_dask.errors import InputError
from irt_dask.ingest import ingest
from irt_dask.ingest.sort import spill
from irt_dask.ingest.text import lines
from irt_dask.store import Responses, open_responses

DATA = Path(__file__).parents[3] / "shared" / "data"
CODES = {"0": 0, "1": 1, "0.0": 0, "1.0": 1}

LONG = """person,item,response
ann,q1,1
bob,q1,0
ann,q2,NA
cyd,q2,1
bob,q3,1
"""
LONG_MATRIX = [[1, -1, -1], [0, -1, 1], [-1, 1, -1]]
WIDE = """person,q1,q2,q3
ann,1,NA,
bob,0,.,1
cyd,-1,1,nan
"""


def write(folder: Path, text: str | bytes, name: str = "data.csv") -> Path:
    path = folder / name
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(data) if name.lower().endswith(".gz") else data)
    return path


def reference(path: Path) -> tuple[list[str], list[str], np.ndarray]:
    """Read person,item,response, the simplest way there is."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    rows = list(csv.reader(text.splitlines()))[1:]
    person_id = list(dict.fromkeys(row[0] for row in rows))
    item_id = list(dict.fromkeys(row[1] for row in rows))
    p = {name: k for k, name in enumerate(person_id)}
    i = {name: k for k, name in enumerate(item_id)}
    y = np.full((len(p), len(i)), -1, dtype=np.int8)
    for person, item, value in rows:
        y[p[person], i[item]] = CODES.get(value, -1)
    return person_id, item_id, y


def check(r: Responses, person_id: list[str], item_id: list[str], y: Any) -> None:
    assert person_ids(r) == person_id
    assert list(r.item_id) == item_id
    assert cells(r).dtype == np.int8
    np.testing.assert_array_equal(cells(r), y)
    r.verify()


# --- good files ---------------------------------------------------------------------------------

GOOD: dict[str, tuple[str, str | bytes, dict[str, Any]]] = {
    "long": ("d.csv", LONG, {}),
    "wide": ("d.csv", WIDE, {}),
    "long gz": ("d.csv.gz", LONG, {}),
    "upper-case suffix": ("D.CSV.GZ", WIDE, {}),
    "long tsv": ("d.tsv", LONG.replace(",", "\t"), {}),
    "wide tab gz": ("d.tab.gz", WIDE.replace(",", "\t"), {}),
    "byte order mark": ("d.csv", b"\xef\xbb\xbf" + LONG.encode(), {}),
    "windows line ends": ("d.csv", LONG.replace("\n", "\r\n"), {}),
    "no last line end": ("d.csv", WIDE.rstrip(), {}),
    "blank lines at the end": ("d.csv", LONG + "\n\r\n\n", {}),
    "spaces": ("d.csv", LONG.replace(",", " , "), {}),
    "1.0 and 0.0": ("d.csv", LONG.replace(",1\n", ",1.0\n").replace(",0\n", ",0.0\n"), {}),
    "codes of the user": (
        "d.csv",
        LONG.replace("NA", " -9 ").replace("ann,q2", "ann , q2"),
        {"missing": [-9, "x"]},
    ),
    "one code of the user": ("d.csv", WIDE.replace("NA", "omit"), {"missing": "omit"}),
    "other names, other order": (
        "d.csv",
        "Score,when,USER_ID,Question\n1,2020,ann,q1\n0,,bob,q1\nNA,x,ann,q2\n1,,cyd,q2\n"
        "1,,bob,q3\n",
        {},
    ),
    "long by columns": (
        "d.csv",
        LONG.replace("person,item,response", "who,item,id"),
        {"columns": {"person": "who", "response": "id"}},
    ),
    "wide, person last": (
        "d.csv",
        "q1,q2,q3,Student\n1,,,ann\n0,,1,bob\n,1,,cyd\n",
        {},
    ),
    "wide, some items": (
        "d.csv",
        "name,q1,age,q2,q3\nann,1,31,,\nbob,0,45,,1\ncyd,,27,1,\n",
        {"columns": {"person": "name", "items": ["q3", "q1", "q2"]}},
    ),
    "long by shape": (
        "d.csv",
        LONG.replace("person", "id"),
        {"shape": "long", "columns": {"item": "item"}},
    ),
}


@pytest.mark.parametrize("case", GOOD)
def test_good(case: str, tmp_path: Path) -> None:
    name, text, options = GOOD[case]
    r = ingest(write(tmp_path, text, name), tmp_path / "store", **options)
    check(r, ["ann", "bob", "cyd"], ["q1", "q2", "q3"], LONG_MATRIX)
    assert open_responses(tmp_path / "store").fingerprint == r.fingerprint
    assert {p.name for p in tmp_path.iterdir()} == {name, "store"}


def test_items_named_like_roles_with_explicit_shape(tmp_path: Path) -> None:
    path = write(tmp_path, "id,x,y,item\np,1,0,1\n")
    check(ingest(path, tmp_path / "store", shape="wide"), ["p"], ["x", "y", "item"], [[1, 0, 1]])


def test_quoted_ids(tmp_path: Path) -> None:
    text = 'person,item,response\n"Korea, Republic of","say ""hi""",1\nU\u00e9 o,"a b",0\n'
    r = ingest(write(tmp_path, text), tmp_path / "store")
    check(r, ["Korea, Republic of", "U\u00e9 o"], ['say "hi"', "a b"], [[1, -1], [-1, 0]])


def test_all_missing_rows_still_count(tmp_path: Path) -> None:
    r = ingest(write(tmp_path, "id,item,x\na,i,\nb,j,1\nb,i,0\n"), tmp_path / "store")
    check(r, ["a", "b"], ["i", "j"], [[-1, -1], [0, 1]])


@pytest.mark.parametrize("shape", ["long", "wide"])
def test_weights_and_groups(shape: str, tmp_path: Path) -> None:
    values = {"ann": "2.5,north", "bob": "1e-3,south, east", "cyd": "7,north"}
    quoted = {k: v.split(",", 1)[0] + ',"' + v.split(",", 1)[1] + '"' for k, v in values.items()}
    lines = (LONG if shape == "long" else WIDE).splitlines()
    rows = [line + "," + quoted[line.split(",")[0]] for line in lines[1:]]
    path = write(tmp_path, "\n".join([lines[0] + ",w,region", *rows]))
    columns = {"weight": "w", "group": "region"}
    r = ingest(path, tmp_path / "store", columns=columns, rows_per_block=2)
    check(r, ["ann", "bob", "cyd"], ["q1", "q2", "q3"], LONG_MATRIX)
    weights = np.concatenate([r.read_block(k).weights() for k in range(r.n_blocks)])
    assert weights.tolist() == [2.5, 1e-3, 7.0]
    groups: list[str] = []
    for k in range(r.n_blocks):
        labels = r.groups(k)
        assert labels is not None
        groups += list(labels)
    assert groups == ["north", "south, east", "north"]


@pytest.mark.parametrize("rows_per_block", [None, 1, 7, 64])
def test_interleaved_long_file(
    rows_per_block: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "piece_bytes", lambda size: 300)
    monkeypatch.setattr(spill, "n_partitions", lambda size: 4)
    rng = np.random.default_rng(1)
    pairs = rng.permutation(60 * 9)[:400]
    values = rng.choice(["0", "1", "NA", "", "1.0"], size=400)
    rows = [f"p{k // 9},item {k % 9},{v}" for k, v in zip(pairs, values, strict=True)]
    path = write(tmp_path, "person,item,response\n" + "\n".join(rows) + "\n")
    r = ingest(path, tmp_path / "store", rows_per_block=rows_per_block)
    check(r, *reference(path))
    assert not list(tmp_path.glob(".*"))


def test_wide_many_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "piece_bytes", lambda size: 64)
    monkeypatch.setattr(spill, "n_partitions", lambda size: 3)
    y = np.random.default_rng(2).integers(-1, 2, (50, 5))
    rows = [f"p{k}," + ",".join(map(str, row)) for k, row in enumerate(y)]
    path = write(tmp_path, "id,a,b,c,d,e\n" + "\n".join(rows))
    r = ingest(path, tmp_path / "store", rows_per_block=8)
    check(r, [f"p{k}" for k in range(50)], list("abcde"), y)


@pytest.mark.parametrize("text", [LONG, WIDE])
def test_progress(text: str, tmp_path: Path) -> None:
    calls: list[tuple[str, int, int | None]] = []
    path = write(tmp_path, text)
    ingest(path, tmp_path / "a", progress=lambda *call: calls.append(call))
    assert calls == [(stage, 1, 1) for stage in ("read", "sort", "write")]
    ingest(path, tmp_path / "b", progress=True)


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_any_matrix_any_blocks(data: st.DataObject) -> None:
    n, m = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 6))
    codes = st.sampled_from([-1, 0, 1])
    y = np.array(data.draw(st.lists(codes, min_size=n * m, max_size=n * m))).reshape(n, m)
    assume((y >= 0).any(axis=0).all())
    rows_per_block = data.draw(st.none() | st.integers(1, n + 1))
    spelled = {-1: "NA", 0: "0", 1: "1"}
    long_rows = [f"p{i},q{j},{spelled[y[i, j]]}" for i in range(n) for j in range(m)]
    long_text = "\n".join(["person,item,response", *data.draw(st.permutations(long_rows))])
    wide_rows = [f"p{i}," + ",".join(spelled[v] for v in y[i]) for i in range(n)]
    wide_text = "\n".join(["person," + ",".join(f"q{j}" for j in range(m)), *wide_rows])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for shape, text in (("long", long_text), ("wide", wide_text)):
            path = write(folder, text, f"{shape}.csv")
            r = ingest(path, folder / shape, rows_per_block=rows_per_block)
            order = [int(p[1:]) for p in person_ids(r)], [int(q[1:]) for q in r.item_id]
            np.testing.assert_array_equal(cells(r), y[np.ix_(*order)])
            if shape == "wide":
                assert order == (list(range(n)), list(range(m)))


# --- bad input ----------------------------------------------------------------------------------

H = "person,item,response\n"
BAD: dict[str, tuple[str | bytes, dict[str, Any], list[str]]] = {
    "value, long": (
        H + "a,i,1\nb,i,2\n",
        {},
        ["data.csv, line 3", "'response'", "'2'", "a partial score", "recode={'2': 'right'}"],
    ),
    "value, wide": (
        "id,q1,q2\na,1,0\nb,1,1\nc,0,0.5\nd,7,1\n",
        {},
        ["data.csv, line 4", "'q2'", "'0.5'", "a partial score"],
    ),
    "value, last line without end": (
        H + "a,i,1\r\nb,i,yes",
        {},
        ["line 3", "'yes'"],
    ),
    "ragged, short": (H + "a,i,1\nb,i\nc,i,1\n", {}, ["data.csv, line 3", "expected 3", "found 2"]),
    "ragged, long": (H + "a,i,1\nb,i,1\nc,d,i,1", {}, ["line 4", "expected 3", "found 4", "quote"]),
    "blank in the middle": (H + "a,i,1\n\nb,i,1\n", {}, ["line 3", "blank", "remove"]),
    "blank after the header": (H + "\r\na,i,1\r\n", {}, ["line 2", "blank"]),
    "open quote": (H + 'a,i,1\n"b,i,1\nc,i,0\n', {}, ["line 3", "quote"]),
    "line end in an id": (H + 'a,i,1\n"b\nc",i,1\n', {}, ["line 3", "quote", "without line ends"]),
    "not utf-8": (H.encode() + b"a,i,1\nb\xe9,i,1\n", {}, ["line 3", "0xe9", "UTF-8"]),
    "utf-16, no mark": (LONG.encode("utf-16-le"), {}, ["line 1", "encoding='utf-16-le'"]),
    "NUL": (H + "a,i,1\nb\0,i,1\n", {}, ["line 3", "NUL"]),
    "old Mac": (LONG.replace("\n", "\r"), {}, ["line 1", "line ends"]),
    "one lone return": (H + "a,i,1\nb,i\r,1\n", {}, ["line 3", "carriage return"]),
    "empty person, long": (H + "a,i,1\n ,i,1\n", {}, ["line 3", "person id is empty"]),
    "empty person, wide": ("id,q\na,1\n,1\n", {}, ["line 3", "person id is empty"]),
    "empty item": (H + "a,i,1\nb,,1\n", {}, ["line 3", "item id is empty"]),
    "person twice, wide": ("id,q\na,1\nb,0\na ,1\n", {}, ["line 4", "'a'", "line 2", "one row"]),
    "pair twice": (
        H + "a,i,1\nb,i,0\na,j,1\nb,i,NA\n",
        {},
        ["line 5", "'b'", "'i'", "line 3", "keep one"],
    ),
    "empty file": ("", {}, ["data.csv", "empty"]),
    "only blank lines": ("\n\n", {}, ["data.csv", "empty"]),
    "blank header": ("\n" + LONG, {}, ["line 1", "blank"]),
    "header only": (H + "\n", {}, ["data.csv", "no rows"]),
    "header with open quote": ('person,"item,response\na,i,1\n', {}, ["line 1", "header"]),
    "column twice": ("id,q1,q1\na,1,1\n", {}, ["line 1", "'q1'", "twice"]),
    "column without name": ("id,,q1\na,1,1\n", {}, ["line 1", "column 2 of 3", "no name"]),
    "two persons": (
        "id,user,item,score\na,b,i,1\n",
        {},
        ["data.csv", "'id', 'user'", "'score'", "shape='long'", "shape='wide'", "columns="],
    ),
    "item but no response": (
        "id,item,q2\na,1,1\n",
        {},
        ["person: 'id'", "item: 'item'", "response: none", "shape='wide'"],
    ),
    "no person": ("name,q1\na,1\n", {}, ["person: none", "'name', 'q1'", "columns="]),
    "no person, shape said": (
        "name,q1\na,1\n",
        {"shape": "wide"},
        ["'name', 'q1'", "columns={'person': NAME}"],
    ),
    "semicolons or bars": ("id;q1|q2\na;1\n", {}, ["by ';' or '|'", "delimiter="]),
    "only persons": ("id\na\n", {"columns": {"person": "id"}}, ["items", "delimiter"]),
    "unknown role": (LONG, {"columns": {"persons": "person"}}, ["'persons'", "'person', 'item'"]),
    "unknown column": (LONG, {"columns": {"weight": "w"}}, ["'w'", "'weight'", "'response'"]),
    "unknown item": (WIDE, {"columns": {"items": ["q1", "q9"]}}, ["'q9'", "'q1'", "'q3'"]),
    "items as a number": (WIDE, {"columns": {"items": 1}}, ["items", "list"]),
    "no items": (WIDE, {"columns": {"items": []}}, ["items", "list"]),
    "role of the other shape": (
        LONG,
        {"shape": "wide", "columns": {"item": "item"}},
        ["'item'", "wide"],
    ),
    "both shapes": (LONG, {"columns": {"item": "item", "items": ["response"]}}, ["long", "wide"]),
    "one column, two roles": (
        LONG,
        {"columns": {"item": "item", "group": "item"}},
        ["'item'", "'group'", "two roles"],
    ),
    "columns as a list": (LONG, {"columns": ["person"]}, ["dict", "list"]),
    "weight zero": (
        "id,q,w\na,1,1\nb,1,0\n",
        {"columns": {"weight": "w"}},
        ["line 3", "'w'", "'0'", "above 0"],
    ),
    "weight missing": (
        "id,q,w\na,1,1\nb,1,NA\n",
        {"columns": {"weight": "w"}},
        ["line 3", "'NA'", "finite"],
    ),
    "weight infinite": (
        "person,item,response,w\na,i,1,inf\n",
        {"columns": {"weight": "w"}},
        ["line 2", "'inf'"],
    ),
    "weight differs": (
        "person,item,response,w\na,i,1,2\nb,i,1,3\na,j,1,2.5\n",
        {"columns": {"weight": "w"}},
        ["line 4", "'w'", "'2.5'", "'2'", "same"],
    ),
    "group differs": (
        "person,item,response,g\na,i,1,x\nb,i,1,y\nb,j,1,x\n",
        {"columns": {"group": "g"}},
        ["line 4", "'g'", "'x'", "'y'", "same"],
    ),
    "group empty": (
        "id,q,g\na,1,x\nb,1,\n",
        {"columns": {"group": "g"}},
        ["line 3", "'g'", "empty"],
    ),
    "missing code is a response": (LONG, {"missing": [9, 1]}, ["'1'", "recode"]),
    "missing code of no kind": (LONG, {"missing": [None]}, ["None", "string or a number"]),
    "layout": (LONG, {"layout": "sparse"}, ["'sparse'", "dense"]),
    "shape": (LONG, {"shape": "tall"}, ["'tall'", "'long'", "'wide'"]),
    "rows_per_block": (LONG, {"rows_per_block": 0}, ["rows_per_block=0", "at least 1"]),
}


def refused(path: Path, folder: Path, **options: Any) -> str:
    """Ingest a bad file; return the message, after a look for things left behind."""
    before = {p.name for p in folder.iterdir()}
    with pytest.raises(InputError) as caught:
        ingest(path, folder / "store", **options)
    assert {p.name for p in folder.iterdir()} == before
    return str(caught.value)


@pytest.mark.parametrize("case", BAD)
def test_bad(case: str, tmp_path: Path) -> None:
    text, options, parts = BAD[case]
    message = refused(write(tmp_path, text), tmp_path, **options)
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    "name, parts",
    [
        ("data.xlsx", ["data.xlsx", ".csv", ".parquet"]),
        ("data", [".csv"]),
        ("data.gz", ["each also .gz"]),
    ],
)
def test_bad_suffix(name: str, parts: list[str], tmp_path: Path) -> None:
    message = refused(write(tmp_path, LONG, name), tmp_path)
    for part in parts:
        assert part in message


def test_no_file_and_folder(tmp_path: Path) -> None:
    assert "none.csv: there is no such file" in refused(tmp_path / "none.csv", tmp_path)
    (tmp_path / "d.csv").mkdir()
    assert "d.csv: is a folder" in refused(tmp_path / "d.csv", tmp_path)


@pytest.mark.parametrize(
    "damage, part",
    [
        (lambda data: data[:-20], "truncated"),
        (lambda data: data[:100] + bytes(50) + data[150:], "not a sound gzip file"),
        (lambda data: b"person" + data, "not a sound gzip file"),
    ],
)
def test_bad_gzip(damage: Callable[[bytes], bytes], part: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    rows = [f"p{k},i,{v}\n" for k, v in enumerate(rng.integers(0, 2, 20_000))]
    path = tmp_path / "data.csv.gz"
    path.write_bytes(damage(gzip.compress((H + "".join(rows)).encode())))
    message = refused(path, tmp_path)
    assert "data.csv.gz" in message
    assert part in message


def test_gzip_without_suffix(tmp_path: Path) -> None:
    path = write(tmp_path, gzip.compress(LONG.encode()))
    assert "let its name end in .gz" in refused(path, tmp_path)


@pytest.mark.parametrize("text", [LONG, WIDE])
def test_folder_of_the_store_is_made(text: str, tmp_path: Path) -> None:
    r = ingest(write(tmp_path, text), tmp_path / "new" / "er" / "store")
    check(r, ["ann", "bob", "cyd"], ["q1", "q2", "q3"], LONG_MATRIX)
    assert {p.name for p in tmp_path.iterdir()} == {"data.csv", "new"}


def test_left_behind_by_a_killed_ingest(tmp_path: Path) -> None:
    left = tmp_path / ".store.partial"
    (left / "scratch-0").mkdir(parents=True)
    (left / "scratch-0" / "ptr.npy").write_bytes(b"rubbish")
    r = ingest(write(tmp_path, LONG), tmp_path / "store")
    check(r, ["ann", "bob", "cyd"], ["q1", "q2", "q3"], LONG_MATRIX)
    assert not left.exists()


def test_store_exists(tmp_path: Path) -> None:
    path = write(tmp_path, LONG)
    store = tmp_path / "store"
    first = ingest(path, store)
    assert "exists already" in refused(path, tmp_path)
    assert open_responses(store).fingerprint == first.fingerprint


@pytest.mark.parametrize("text", ["value", "ragged", "blank", "quote", "utf8", "pair", "person"])
def test_lines_far_into_a_file(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Line numbers hold across pieces, and blocks already written go away."""
    monkeypatch.setattr(lines, "piece_bytes", lambda size: 1000)
    header, extra = ("id,q1,q2", "0") if text == "person" else ("id,item,x", "1")
    rows = [header, *(f"p{k},0,{extra}" for k in range(2, 3001))]  # row k is line k
    encoded = [row.encode() for row in rows]
    bad, part = {
        "value": (b"p2500,0,3", "'3'"),
        "ragged": (b"p2500,0", "found 2"),
        "blank": (b"", "blank"),
        "quote": (b'"p2500,0,1', "quote"),
        "utf8": (b"p\xff,0,1", "0xff"),
        "pair": (b"p1200,0,1", "line 1200"),
        "person": (b"p1200,0,1", "line 1200"),
    }[text]
    encoded[2499] = bad
    message = refused(write(tmp_path, b"\n".join(encoded)), tmp_path, rows_per_block=100)
    assert "data.csv, line 2500:" in message
    assert part in message


# --- real data ----------------------------------------------------------------------------------


@pytest.mark.skipif(not DATA.is_dir(), reason=f"the response data are not at {DATA}")
@pytest.mark.parametrize(
    "name, n_persons, n_items, n_responses",
    [
        ("npi_wide", 11243, 40, 449_720),
        ("eclsk_atl_wide", 13354, 12, 160_248),
        ("pisa2012_us_math_long", 4952, 76, 117_371),
        pytest.param("un_votes_long", 200, 6202, 869_937, marks=pytest.mark.slow),
    ],
)
def test_real_files(
    name: str, n_persons: int, n_items: int, n_responses: int, tmp_path: Path
) -> None:
    path = DATA / f"{name}.csv.gz"
    r = ingest(path, tmp_path / "store")
    assert (r.n_persons, r.n_items) == (n_persons, n_items)
    y = cells(r)
    assert np.count_nonzero(y >= 0) == n_responses
    if name.endswith("long"):
        check(r, *reference(path))
