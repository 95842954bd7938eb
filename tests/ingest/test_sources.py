"""Readers of all formats, piece by piece: rows, bad rows with their reasons, and options."""

import csv
import gzip
import json
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import irt_dask as irt
from irt_dask.errors import InputError, Notice
from irt_dask.ingest.columns.rows import Bad
from irt_dask.ingest.columns.values import Codes
from irt_dask.ingest.options import codes_of
from irt_dask.ingest.sources.opening import open_persons, open_source
from irt_dask.ingest.sources.source import Source
from irt_dask.ingest.text import lines
from irt_dask.ingest.text.bundles import Copy
from irt_dask.ingest.text.quotes import n_fields

LONG = "person,item,response\nann,q1,1\nbob,q1,0\nann,q2,NA\n"
WIDE = "id,q1,q2\nann,1,NA\nbob,0,.\n"
PIECES = [1, 13, 1 << 20]


def write(folder: Path, data: str | bytes, name: str = "d.csv") -> Path:
    path = folder / name
    content = data.encode() if isinstance(data, str) else data
    path.write_bytes(gzip.compress(content, mtime=0) if name.endswith(".gz") else content)
    return path


def lines_of(objects: list[Any]) -> str:
    return "".join(json.dumps(o) + "\n" for o in objects)


def read_all(source: Source, codes: Codes | None) -> tuple[list[tuple[Any, ...]], list[Bad]]:
    """Return the rows (line, person, item, code, weight, group) and the bad, by line number."""
    source = pickle.loads(pickle.dumps(source))  # noqa: S301
    rows: list[tuple[Any, ...]] = []
    bad: list[Bad] = []
    line = source.first_line
    for k in range(source.n_pieces):
        piece = source.read(k, codes)
        first = source.read(k, codes, most=1)
        assert list(first.bad) == list(piece.bad)[:1]
        assert first.lines.tolist() == piece.lines.tolist()
        assert source.texts(k, [b.line for b in piece.bad]) == [b.text for b in piece.bad]
        assert piece.lines.dtype == np.int32
        persons = piece.person.to_pylist()
        assert all(persons)
        n = len(persons)
        item = piece.item.to_pylist() if piece.item is not None else [None] * n
        code = piece.codes.tolist() if piece.codes is not None else [None] * n
        assert piece.codes is None or piece.codes.dtype == np.int8
        more = piece.covariates.tolist() if piece.covariates is not None else [None] * n
        weight = piece.weight.tolist() if piece.weight is not None else [None] * n
        group = piece.group.to_pylist() if piece.group is not None else [None] * n
        at = (piece.lines + line).tolist()
        rows += zip(at, persons, item, code, weight, group, more, strict=True)
        bad += [Bad(b.line + line, b.column, b.value, b.message, b.text) for b in piece.bad]
        line += piece.n_lines
    return rows, bad


def responses(path: Path, **options: Any) -> tuple[list[tuple[Any, ...]], list[Bad]]:
    """Open and read; rows are (line, person, item, code), or (line, person, codes) when wide."""
    how = {k: options.pop(k) for k in ("shape", "columns") if k in options}
    source = open_source(path, path.parent, **how)
    rows, bad = read_all(source, codes_of(**options))
    if source.form == "wide":
        return [(line, p, codes) for line, p, _, codes, *_ in rows], bad
    return [row[:4] for row in rows], bad


# --- delimited text -------------------------------------------------------------------------------


@pytest.fixture(params=PIECES)
def pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(lines, "PIECE", request.param)
    return request.param


@pytest.mark.parametrize(
    "name, text",
    [
        ("d.csv", LONG),
        ("d.csv.gz", LONG.replace("\n", "\r\n")),
        ("d.tsv", LONG.replace(",", "\t") + "\n\r\n\r"),
        ("D.TAB", "\ufeff" + LONG.replace(",", " \t ").rstrip()),
        ("d.csv", LONG.replace("ann", '"ann"').replace("q1", '"q1" ')),
    ],
)
def test_long(name: str, text: str, tmp_path: Path, pieces: int) -> None:
    rows, bad = responses(write(tmp_path, text, name))
    assert rows == [(2, "ann", "q1", 1), (3, "bob", "q1", 0), (4, "ann", "q2", -1)]
    assert not bad


def test_wide(tmp_path: Path, pieces: int) -> None:
    rows, bad = responses(write(tmp_path, WIDE + "cyd, 1.0 ,-1\n"))
    assert rows == [(2, "ann", [1, -1]), (3, "bob", [0, -1]), (4, "cyd", [1, -1])]
    assert not bad
    source = open_source(tmp_path / "d.csv", tmp_path, columns={"items": ["q2"], "person": "id"})
    assert (source.item_id, source.one_row_per_person) == (("q2",), True)


def test_pieces_cover_every_line_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [f"p{k},{'x' * (k % 7)}q,{k % 2}" for k in range(40)]
    path = write(tmp_path, "person,item,response\n" + "\n".join(rows))
    for size in range(1, 60, 7):
        monkeypatch.setattr(lines, "PIECE", size)
        got, bad = responses(path)
        assert [g[:2] for g in got] == [(k + 2, f"p{k}") for k in range(40)]
        assert not bad


@pytest.mark.parametrize("look", [1, 4, 1 << 16])
def test_empty_rows_at_the_end_are_left_out(
    look: int, tmp_path: Path, pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "_LOOK", look)
    text = "person,item,response\nann,q1,1\n,,\nbob,q1,\n,,\n\n,,\r\n,,"
    got, (bad,) = responses(write(tmp_path, text))
    assert [row[1:] for row in got] == [("ann", "q1", 1), ("bob", "q1", -1)]
    assert (bad.line, bad.text) == (3, ",,")


BAD_LINES: dict[bytes, tuple[str, ...]] = {
    b"a,i,2": ("'response'", "'2'", "a partial score", "recode={'2'"),
    b"a,i": ("expected 3", "found 2"),
    b"a,b,i,1": ("found 4", "quote values"),
    b"": ("blank", "remove"),
    b'"a,i,1': ("quoted value does not end",),
    b'a,"i"",1': ("quoted value does not end",),
    b"b\xe9,i,1": ("0xe9", "UTF-8"),
    b"b\0,i,1": ("NUL",),
    b"b\r,i,1": ("carriage return",),
    b"a,i,1\r": ("carriage return",),
    b" ,i,1": ("person id is empty",),
    b"a,\xe2\x80\x83,1": ("item id is empty",),
    b",,": ("person id is empty",),
}


@pytest.mark.parametrize("line", BAD_LINES, ids=repr)
@pytest.mark.parametrize("where", [0, 2, 3])
def test_bad_lines(line: bytes, where: int, tmp_path: Path, pieces: int) -> None:
    good = [b"ann,q1,1", b'"b""ob",q1,0', b"ann,q2,NA"]
    if line in (b"", b",,") and where == 3:
        return  # at the end these are none
    lines = [b"person,item,response", *good[:where], line, *good[where:]]
    end = b"\r\n" if line.endswith(b"\r") else b"\n"
    path = write(tmp_path, end.join(lines) + end)
    rows, (bad,) = responses(path)
    assert [r[1:] for r in rows] == [("ann", "q1", 1), ('b"ob', "q1", 0), ("ann", "q2", -1)]
    assert bad.line == where + 2
    assert bad.text == line.removesuffix(b"\r").decode("utf-8", "backslashreplace") + (
        "\r" if line.endswith(b"\r") else ""
    )
    for part in BAD_LINES[line]:
        assert part in bad.message


def test_bad_wide_rows(tmp_path: Path, pieces: int) -> None:
    rows, bad = responses(write(tmp_path, WIDE + "cyd,1,7\n,1,1\ndan,x,y\neve,1,1\n"))
    assert rows[2:] == [(7, "eve", [1, 1])]
    assert [(b.line, b.column, b.value) for b in bad] == [
        (4, "q2", "7"), (5, "id", ""), (6, "q1", "x"),
    ]  # fmt: skip
    assert bad[0].text == "cyd,1,7"


def test_an_id_that_only_bad_rows_have_is_gone(tmp_path: Path) -> None:
    source = open_source(write(tmp_path, LONG + "cyd,q9,8\n"), tmp_path)
    piece = source.read(0, codes_of())
    assert piece.person.unique().to_pylist() == ["ann", "bob"]
    assert piece.item is not None
    assert piece.item.dictionary.to_pylist() == ["q1", "q2"]


def test_weights_and_groups(tmp_path: Path, pieces: int) -> None:
    text = "id,q,w,g\na,1,2.5,x \nb,0, 1e1 ,x\nc,1,0,x\nd,1,1_0,x\ne,1,inf,x\nf,1,1,\ng,1,,x\n"
    source = open_source(write(tmp_path, text), tmp_path, columns={"weight": "w", "group": "g"})
    rows, bad = read_all(source, codes_of())
    assert (source.roles.weight, source.roles.group, source.item_id) == ("w", "g", ("q",))
    assert [(r[1], r[4], r[5]) for r in rows] == [("a", 2.5, "x"), ("b", 10.0, "x")]
    assert [b.line for b in bad] == [4, 5, 6, 7, 8]
    assert "'0'" in bad[0].message
    assert "column 'g' is empty" in bad[3].message


def test_a_byte_order_mark_within_a_file_is_text(tmp_path: Path, pieces: int) -> None:
    rows, _ = responses(write(tmp_path, "id,q\n\ufeffa,1\n\ufeffb,1\n"))
    assert [r[1] for r in rows] == ["\ufeffa", "\ufeffb"]


def test_line_that_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LINE_MOST", 50)
    for size in (8, 40, 1 << 20):
        monkeypatch.setattr(lines, "PIECE", size)
        rows, (bad,) = responses(write(tmp_path, f"id,q\na,1\n{'b' * 200},1\nc,0\n"))
        assert [r[:2] for r in rows] == [(2, "a"), (4, "c")]
        assert bad.line == 3
        assert "longer than" in bad.message


def test_a_field_beyond_the_limit_of_the_csv_module(tmp_path: Path) -> None:
    long_id = '"' + "b" * 200_000 + '"'
    rows, bad = responses(write(tmp_path, f"id,q\na,1\n{long_id},1\n\nc,0\n"))
    assert [len(r[1]) for r in rows] == [1, 200_000, 1]
    assert len(bad) == 1


def test_file_that_changes(tmp_path: Path) -> None:
    path = write(tmp_path, LONG)
    source = open_source(path, tmp_path)
    path.write_text(LONG + "x,y,1\n")
    with pytest.raises(InputError, match=r"d\.csv: the file changes"):
        source.read(0, codes_of())
    path.unlink()
    with pytest.raises(InputError, match=r"d\.csv: cannot be read"):
        source.read(0, codes_of())


def model(line: bytes) -> list[str] | None:
    """Split a line by the csv module; None where it is no row."""
    line = line.removesuffix(b"\r")
    if not line or b"\0" in line or b"\r" in line:
        return None
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return None
    rows = list(csv.reader([text + "\n", "end"]))
    return [f.strip() for f in rows[0]] if rows[1:] == [["end"]] else None


def test_any_bytes_against_the_csv_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(4)
    alphabet = b'"",,\n\n\r ab10\xc3\xa9\xff\0'
    for _ in range(40):
        good = [f"p{rng.randrange(3)},q,{rng.randrange(2)}".encode() for _ in range(12)]
        data = bytearray(b"\n".join(good))
        for _ in range(rng.randrange(6)):
            k = rng.randrange(len(data))
            data[k : k + rng.randrange(2)] = bytes(rng.choices(alphabet, k=rng.randrange(1, 4)))
        content = b"person,item,response\n" + bytes(data) + b"\nlast,q,1\n"
        monkeypatch.setattr(lines, "PIECE", rng.choice([1, 20, 1000]))
        rows, bad = responses(write(tmp_path, content))
        expected, wrong = [], []
        for number, line in enumerate(content.split(b"\n")[1:-1], 2):
            fields = model(line)
            code = {"1": 1, "0": 0, "": -1}.get(fields[2], 2) if fields and len(fields) == 3 else 2
            if fields is None or code == 2 or not (fields[0] and fields[1]):
                wrong.append(number)
            else:
                expected.append((number, *fields[:2], code))
        assert rows == expected, content
        assert [b.line for b in bad] == wrong, content


@pytest.mark.parametrize("line", ['a,"b,c",d', '"a""b",c', '"a"b"c,d', 'a"b,"c', '"a', '""","', ""])
def test_number_of_fields(line: str) -> None:
    rows = list(csv.reader([line + "\n", "end"]))
    expected = max(len(rows[0]), 1) if rows[1:] == [["end"]] else None
    assert n_fields(line, ",") == expected


# --- opening --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, data, part",
    [
        ("d.csv", b"", "is empty"),
        ("d.csv", b"\xef\xbb\xbf\r\n\n", "is empty"),
        ("d.jsonl", b"\n\n", "is empty"),
        ("d.csv", b"\nid,q\na,1\n", "line 1: the line is blank"),
        ("d.csv", b"id,q\xff\na,1\n", "line 1: the byte 0xff"),
        ("d.csv", b'id,"q\na,1\n', "line 1: the header cannot be read"),
        ("d.csv", b"id,,q\na,1,1\n", "column 2 of 3 has no name"),
        ("d.csv", b"id,q,q \na,1,1\n", "'q' is there twice"),
        ("d.csv", b"id\na\n", "the only column is 'id': is the delimiter ','"),
        ("d.csv", gzip.compress(b"id,q\na,1\n", mtime=0), "let its name end in .gz"),
        ("d.txt", b"id,q\na,1\n", ".jsonl"),
        ("d.parquet.gz", b"PAR1", ".csv.gz"),
        ("d.parquet", b"PAR1", "cannot be read as Parquet"),
        ("d.jsonl", b"[1]\n", "line 1: the line is a list"),
        ("d.jsonl", b'{"a": 1\n', "line 1: the line is not JSON"),
        ("d.jsonl", b'{"a": 1}\n', "person: none"),
        ("d.jsonl", b'{"id": 1, "person": 2, "q": 1}\n', "'id', 'person'"),
    ],
)
def test_refused_when_opened(name: str, data: bytes, part: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        open_source(path, tmp_path)
    assert str(path) in str(caught.value)
    assert part in str(caught.value)


def test_paths_that_are_none(tmp_path: Path) -> None:
    for path in (3, "a\0b.csv", tmp_path / "no.csv", tmp_path):
        with pytest.raises(InputError):
            open_source(path, tmp_path)  # type: ignore[arg-type]


def test_scratch_holds_what_was_compressed(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    source = open_source(write(tmp_path, LONG, "d.csv.gz"), scratch)
    assert [Copy(p).open().read().decode() for p in scratch.iterdir()] == [LONG]
    assert (source.size, source.first_line) == (len(LONG) - len("person,item,response\n") - 1, 2)


# --- JSON lines -----------------------------------------------------------------------------------


def test_json_long(tmp_path: Path, pieces: int) -> None:
    values = [1, 0, True, False, None, "1", " 0 ", "NA", 1.0, 0.0, -1]
    objects = [{"user": 7, "item": f"i{k}", "score": v, "x_": []} for k, v in enumerate(values)]
    rows, bad = responses(write(tmp_path, lines_of(objects), "d.jsonl"))
    assert [r[3] for r in rows] == [1, 0, 1, 0, -1, 1, 0, -1, 1, 0, -1]
    assert [r[:3] for r in rows] == [(k + 1, "7", f"i{k}") for k in range(len(values))]
    assert not bad


@pytest.mark.parametrize("form", ["nested", "flat", "flat, some items", "nested, another name"])
def test_json_wide(form: str, tmp_path: Path, pieces: int) -> None:
    people = {"ann": {"q1": 1, " q2 ": None}, "bob": {}, "cyd": {"q3": 0, "q1": 1}}
    options: dict[str, Any] = {}
    if form.startswith("nested"):
        name = "answers" if "name" in form else "responses"
        objects: list[Any] = [{"subject_id": p, name: a, "x": []} for p, a in people.items()]
        options = {"columns": {"responses": name}} if "name" in form else {}
    else:
        objects = [{"subject_id": p, **a} for p, a in people.items()]
    if "some" in form:
        objects = [o | {"age": 31} for o in objects]
        options = {"columns": {"items": ["q1", "q2", "q3"]}}
    path = write(tmp_path, lines_of(objects), "d.ndjson.gz")
    rows, bad = responses(path, **options)
    assert rows == [
        (1, "ann", "q1", 1), (1, "ann", "q2", -1), (2, "bob", None, -1),
        (3, "cyd", "q3", 0), (3, "cyd", "q1", 1),
    ]  # fmt: skip
    assert not bad
    source = open_source(path, tmp_path, **options)
    assert (source.form, source.one_row_per_person, source.item_id) == ("long", True, None)


BAD_JSON = {
    '{"person": "a", "item": "i"}': "the key 'response' is missing",
    '{"person": "a", "item": "i", "response": 2}': "a partial score",
    '{"person": "a", "item": "i", "response": 0.5}': "'0.5'",
    '{"person": "a", "item": "i", "response": [1]}': "has a list, '[1]'",
    '{"person": "a", "item": "i", "response": NaN}': "NaN is not JSON",
    '{"person": "a", "item": "i", "response": 1e999}': "'inf'",
    '{"person": "a", "item": "i", "response": 1, "item": "j"}': "the key 'item' is there twice",
    '{"person": "a", "item": "i", "response": 1, "é": 1, "e\\u0301": 1}': "'é' is there twice",
    '{"person": 1.0, "item": "i", "response": 1}': "a person id is a string or a whole number",
    '{"person": "a", "item": true, "response": 1}': "column 'item' has 'true'",
    '{"person": null, "item": "i", "response": 1}': "'null'",
    '{"person": " ", "item": "i", "response": 1}': "person id is empty",
    '{"person": "\\ud800", "item": "i", "response": 1}': "surrogate",
    '{"person": "a\\u0000", "item": "i", "response": 1}': "NUL",
    '{"person": "a", "item": "i", "response": ' + "9" * 5000 + "}": "not JSON",
    "[" * 5_000: "nested too deeply",
    '{"person": "a", "item": "i", "response": 1} x': "not JSON",
    "": "blank",
    "7": "the line is a number",
}


@pytest.mark.parametrize("line", BAD_JSON, ids=lambda line: line[:50])
@pytest.mark.parametrize("pieces", PIECES[1:], indirect=True)  # 1: as many reads as bytes
def test_bad_json(line: str, tmp_path: Path, pieces: int) -> None:
    good = '{"person": "a", "item": "%s", "response": 1}'
    path = write(tmp_path, "\n".join([good % "x", line, good % "\\u00e9"]), "d.jsonl")
    rows, (bad,) = responses(path)
    assert [r[:3] for r in rows] == [(1, "a", "x"), (3, "a", "é")]
    assert (bad.line, bad.text) == (2, line)
    assert BAD_JSON[line] in bad.message


def test_bad_json_wide(tmp_path: Path) -> None:
    objects = [
        {"id": "a", "q1": 1, "w": 2},
        {"id": "b", "q1": 3, "q2": 1, "w": 1},
        {"id": "c", "q1": 1, "w": "x"},
        {"id": "d", "q1": 1, "w": True},
        {"id": "e", "": 1, "w": 1},
        {"id": "f", "q2": 1, "w": "1.5"},
    ]
    path = write(tmp_path, lines_of(objects) + '{"id": "g", "q": 1, " q": 1, "w": 1}\n', "d.jsonl")
    source = open_source(path, tmp_path, columns={"weight": "w"})
    rows, bad = read_all(source, codes_of())
    assert [(r[0], r[1], r[2], r[4]) for r in rows] == [(1, "a", "q1", 2.0), (6, "f", "q2", 1.5)]
    assert [(b.line, b.column) for b in bad] == [
        (2, "q1"),
        (3, "w"),
        (4, "w"),
        (5, "item"),
        (7, "q"),
    ]
    assert "'q1' has the value '3'" in bad[0].message


def test_json_forms_that_leave_a_doubt(tmp_path: Path) -> None:
    both = {"person": "a", "item": "i", "response": 1, "responses": {"q": 1}}
    path = write(tmp_path, lines_of([both]), "d.jsonl")
    with pytest.raises(InputError, match="long"):
        open_source(path, tmp_path)
    nested = open_source(path, tmp_path, columns={"responses": "responses"})
    assert read_all(nested, codes_of())[0][0][:4] == (1, "a", "q", 1)
    with pytest.raises(InputError, match="the role is unknown; the roles are"):
        open_source(write(tmp_path, LONG), tmp_path, columns={"responses": "item"})
    with pytest.raises(InputError, match="a nested file has"):
        open_source(path, tmp_path, columns={"responses": "responses", "item": "item"})


# --- Parquet --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["str", "large", "dict", "int8", "float", "bool"])
def test_parquet_values(kind: str, tmp_path: Path) -> None:
    response = {
        "str": pa.array(["1", " 0", None, "NA"]),
        "large": pa.array(["1", " 0", None, "NA"], pa.large_string()),
        "dict": pa.array(["1", " 0", None, "NA"]).dictionary_encode(),
        "int8": pa.array([1, 0, None, -1], pa.int8()),
        "float": pa.array([1.0, 0.0, None, float("nan")]),
        "bool": pa.array([True, False, None, None]),
    }[kind]
    table = pa.table({" person ": [7, 7, 8, 8], "item": list("ab") * 2, "y": response})
    pq.write_table(table, tmp_path / "d.parquet", row_group_size=3)
    source = open_source(tmp_path / "d.parquet", tmp_path)
    assert (source.n_pieces, source.first_line) == (2, 1)
    rows, bad = read_all(source, codes_of())
    codes = [("7", "a", 1), ("7", "b", 0), ("8", "a", -1), ("8", "b", -1)]
    assert [r[1:4] for r in rows] == codes
    assert not bad


def test_parquet_wide_and_bad_rows(tmp_path: Path) -> None:
    table = pa.table({
        "id": pa.array(["a", None, "c", "d\0", "e"]),
        "q.1": pa.array([1, 0, 9, 1, 1]),
        "q2": pa.array([1.0, 0.0, 1.0, 1.0, 0.5]),
    })  # fmt: skip
    pq.write_table(table, tmp_path / "d.parquet", row_group_size=2)
    rows, bad = responses(tmp_path / "d.parquet")
    assert rows == [(1, "a", [1, 1])]
    assert [(b.line, b.column, b.value) for b in bad] == [
        (2, "id", ""), (3, "q.1", "9"), (4, "id", ""), (5, "q2", "0.5"),
    ]  # fmt: skip
    assert json.loads(bad[1].text) == {"id": "c", "q.1": 9, "q2": 1.0}
    error = open_source(tmp_path / "d.parquet", tmp_path).error("wrong", 3)
    assert "d.parquet, row 3: wrong" in str(error)


def test_parquet_text_that_is_none(tmp_path: Path) -> None:
    ids = pa.Array.from_buffers(pa.string(), 2, pa.array([b"a", b"\xff"]).buffers())
    pq.write_table(pa.table({"id": ids, "q": [1, 0]}), tmp_path / "d.parquet")
    rows, (bad,) = responses(tmp_path / "d.parquet")
    assert rows == [(1, "a", [1])]
    assert (bad.line, bad.column) == (2, "id")
    assert "UTF-8" in bad.message


@pytest.mark.parametrize(
    "columns, parts",
    [
        ({"id": [1.5], "q": [1]}, ["'id'", "double", "strings or integers"]),
        ({"id": ["a"], "q": [[1]]}, ["'q'", "list"]),
        ({"id": ["a"], "q": [{"x": 1}]}, ["'q'", "struct"]),
        ({"id": ["a"]}, ["items"]),
        ({}, ["person: none"]),
    ],
)
def test_parquet_columns_refused(columns: Any, parts: list[str], tmp_path: Path) -> None:
    pq.write_table(pa.table(columns), tmp_path / "d.parquet")
    with pytest.raises(InputError) as caught:
        open_source(tmp_path / "d.parquet", tmp_path)
    for part in ["d.parquet", *parts]:
        assert part in str(caught.value)


def test_parquet_without_rows_and_with_columns_that_do_not_matter(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("q", pa.int8()), ("when", pa.list_(pa.date32()))])
    pq.ParquetWriter(tmp_path / "d.parquet", schema).close()
    source = open_source(tmp_path / "d.parquet", tmp_path, columns={"items": ["q"]})
    assert (source.n_pieces, source.size) == (0, 1)


def test_damaged_parquet_is_an_input_error(tmp_path: Path) -> None:
    rng = random.Random(5)
    path = tmp_path / "d.parquet"
    pq.write_table(
        pa.table({"id": [f"p{k}" for k in range(40)], "q": [k % 2 for k in range(40)]}), path
    )
    data = path.read_bytes()
    for _ in range(150):
        damaged = bytearray(data)
        for _ in range(rng.choice([1, 2, 8])):
            damaged[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(damaged if rng.random() < 0.9 else damaged[: rng.randrange(len(data))])
        try:
            source = open_source(path, tmp_path)
            for k in range(source.n_pieces):
                source.read(k, codes_of())
        except InputError:
            continue


# --- tables of persons ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["csv", "tsv.gz", "jsonl", "parquet"])
def test_persons(kind: str, tmp_path: Path, pieces: int) -> None:
    table: dict[str, list[Any]] = {
        "student": ["ann", "bob", "cyd"],
        "Weight": [1.5, 2.0, 1.0],
        "group": ["x", "y", "x"],
        "age": [31.0, None, -1.0],
        "ses": [0.25, 1e3, 2.0],
    }
    path = tmp_path / f"persons.{kind}"
    rows = [dict(zip(table, r, strict=True)) for r in zip(*table.values(), strict=True)]
    if kind == "parquet":
        pq.write_table(pa.table(table), path)
    elif kind == "jsonl":
        path.write_text(lines_of(rows))
    else:
        sep = "," if kind == "csv" else "\t"
        body = [sep.join("NA" if v is None else str(v) for v in r.values()) for r in rows]
        write(tmp_path, "\n".join([sep.join(table), *body]), path.name)
    source = open_persons(path, tmp_path)
    roles = source.roles
    assert (source.form, roles.weight, roles.group) == ("persons", "Weight", "group")
    assert (roles.covariates, source.one_row_per_person) == (("age", "ses"), True)
    got, bad = read_all(source, None)
    assert not bad
    assert [r[1] for r in got] == table["student"]
    assert [r[4] for r in got] == table["Weight"]
    assert [r[5] for r in got] == table["group"]
    np.testing.assert_array_equal([r[6] for r in got], [[31, 0.25], [np.nan, 1e3], [-1, 2]])


def test_bad_persons(tmp_path: Path) -> None:
    _, bad = read_all(
        open_persons(write(tmp_path, "id,age\na,young\nb,inf\nc,\n,3\nd,1,2\n"), tmp_path), None
    )
    assert [(b.line, b.column) for b in bad] == [(2, "age"), (3, "age"), (5, "id"), (6, "")]
    assert "'young'" in bad[0].message
    objects = [{"id": "a", "age": 1}, {"id": "b"}, {"id": "c", "agee": 1}, {"id": "d", "age": [1]}]
    rows, bad = read_all(
        open_persons(write(tmp_path, lines_of(objects), "p.jsonl"), tmp_path), None
    )
    assert len(rows) == 2
    assert np.isnan(rows[1][6][0])
    assert [b.line for b in bad] == [3, 4]
    with pytest.raises(InputError, match="no column has a usual name of the person"):
        open_persons(write(tmp_path, "name,age\na,1\n"), tmp_path)


# --- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["long", "wide", "json"])
def test_recode_and_missing(form: str, tmp_path: Path) -> None:
    values = ["9", "r", "2", "0", "99", "1", "-1", " . "]
    expected = [0, -1, 1, -1, -1, 1, 1, -1]
    options: dict[str, Any] = {
        "recode": {9: "wrong", "r": "missing", " 2 ": "right", "0": "missing", -1: "right"},
        "missing": 99,
    }
    if form == "long":
        text = "id,item,x\n" + "".join(f"a,q{k},{v}\n" for k, v in enumerate(values))
        rows, bad = responses(write(tmp_path, text), **options)
        assert [r[3] for r in rows] == expected
    elif form == "wide":
        header = ",".join(f"q{k}" for k in range(len(values)))
        path = write(tmp_path, f"id,{header}\na," + ",".join(values))
        rows, bad = responses(path, **options)
        assert rows[0][2] == expected
    else:
        answers = {f"q{k}": v for k, v in enumerate(values)}
        path = write(tmp_path, lines_of([{"id": "a", **answers}]), "d.jsonl")
        rows, bad = responses(path, **options)
        assert [r[3] for r in rows] == expected
    assert not bad


@pytest.mark.parametrize("how", ["dict", "file", "gz"])
@pytest.mark.parametrize("form", ["long", "wide", "parquet"])
def test_key(form: str, how: str, tmp_path: Path) -> None:
    key: Any = {"q1": "A", "q2": " long answer ", 3: 1, "q4": "\u00e9", "unused": "x"}
    if how != "dict":
        body = "".join(f"{i}, {o}\n" for i, o in key.items())
        key = write(tmp_path, "item,key\n" + body, "key.csv" + (".gz" if how == "gz" else ""))
    people = {
        "ann": ["A", "long answer", "1", "\u00e9"],
        "bob": [" A", " A", "0", "e"],
        "cyd": ["b", "", "NA", "skip"],
        "dan": ["B", "-9", "9", "\u00e9 "],
    }
    expected = [[1, 1, 1, 1], [1, 0, 0, 0], [0, -1, -1, 1], [0, -1, 0, 1]]
    items = ["q1", "q2", "3", "q4"]
    options = {"key": key, "missing": [-9], "recode": {"skip": "right"}}
    if form == "long":
        pairs = [f"{p},{i},{v}" for p, vs in people.items() for i, v in zip(items, vs, strict=True)]
        rows, bad = responses(write(tmp_path, "\n".join(["id,item,x", *pairs])), **options)
        assert [r[3] for r in rows] == np.ravel(expected).tolist()
    else:
        path = write(tmp_path, "\n".join(
            [",".join(["id", *items]), *(",".join([p, *vs]) for p, vs in people.items())]
        ))  # fmt: skip
        if form == "parquet":
            columns = dict(zip(items, map(list, zip(*people.values(), strict=True)), strict=True))
            path = tmp_path / "d.parquet"
            pq.write_table(pa.table({"id": list(people), **columns}), path)
        rows, bad = responses(path, **options)
        assert [r[2] for r in rows] == expected
    assert not bad
    codes = codes_of(**options)
    codes.check_items(items)
    with pytest.raises(InputError, match=r"2 item\(s\).*'q7', 'q8'"):
        codes.check_items(["q1", "q7", "q8"])


def test_numbers_are_spelled_as_the_caller_does(tmp_path: Path) -> None:
    path = tmp_path / "d.parquet"
    pq.write_table(pa.table({"id": list("abc"), "q": [9.0, 7.0, 0.5]}), path)
    recode = {"9": "wrong", "7.0": "right", 0.5: "missing"}
    rows, bad = responses(path, recode=recode)
    assert [r[2] for r in rows] == [[0], [1], [-1]]
    assert not bad


@pytest.mark.parametrize(
    "options, values, expected",
    [
        ({"recode": {1: "wrong", "2": "right"}}, "1 1.0 2 2.0 0.0", [0, 0, 1, 1, 0]),
        ({"recode": {"0.0": "missing"}, "missing": 9}, "0 0.0 9 9.0 1.0", [-1, -1, -1, -1, 1]),
        ({"recode": {"1,0": "wrong"}, "decimal": ","}, "1 1,0 0,0", [0, 0, 0]),
        ({"recode": {"9": "wrong", "9.0": "right"}}, "9 9.0", [0, 1]),
        ({"missing": ["00"]}, "0 00 0.0", [0, -1, 0]),
    ],
)
def test_a_code_is_meant_however_the_number_is_written(
    options: dict[str, Any], values: str, expected: list[int], tmp_path: Path
) -> None:
    rows = "".join(f"p{k};{v}\n" for k, v in enumerate(values.split()))
    path = write(tmp_path, "id;q\n" + rows)
    r = irt.ingest(path, tmp_path / "s", delimiter=";", **options)
    assert r.read_block(0).data.values.ravel().tolist() == expected


@pytest.mark.parametrize("decimal", [None, ","])
def test_answers_that_are_numbers_are_compared_as_numbers(
    decimal: str | None, tmp_path: Path
) -> None:
    """A column of whole numbers with gaps is written 2.0 by pandas, 2,0 by spreadsheets."""
    text = "id;q1;q2\na;2.0;2.50\nb;3;2.5\nc;9.0;1.0\nd;-1.0;B\n"
    text = text.replace(".", decimal or ".")
    options: dict[str, Any] = {"key": {"q1": "2", "q2": 2.5}, "missing": 9, "recode": {1: "right"}}
    (tmp_path / "d.csv").write_text(text)
    r = irt.ingest(tmp_path / "d.csv", tmp_path / "s", delimiter=";", decimal=decimal, **options)
    np.testing.assert_array_equal(r.read_block(0).data.values, [[1, 1], [0, 1], [-1, 1], [-1, 0]])
    with pytest.raises(InputError, match=r"'1\.0', which also means right"):
        codes_of(**options | {"key": {"q1": "1.0"}})


@pytest.mark.parametrize(
    "options, parts",
    [
        ({"missing": ["0"]}, ["'0'", "recode={'0': 'missing'}"]),
        ({"missing": [1.0]}, ["'1'"]),
        ({"missing": None}, ["list of codes"]),
        ({"missing": [True]}, ["True", "string or a number"]),
        ({"recode": {"9": "bad"}}, ["'9'", "'bad'", "'right', 'wrong', 'missing'"]),
        ({"recode": ["9"]}, ["dict", "list"]),
        ({"recode": {9: "wrong", "9 ": "right"}}, ["'9'", "two meanings"]),
        ({"recode": {"9": "missing"}, "missing": [9]}, ["'9'", "missing=", "recode="]),
        ({"key": ["A"]}, ["dict", "item and key", "list"]),
        ({"key": {"q1": "NA"}}, ["'q1'", "'NA'", "not observed"]),
        ({"key": {"q1": "A"}, "recode": {"A": "wrong"}}, ["'q1'", "'A'", "wrong"]),
        ({"key": {"q1": "A"}, "missing": "A"}, ["'q1'", "'A'", "not observed"]),
        ({"key": {"q1": ""}}, ["'q1'", "empty"]),
        ({"key": {"q1": "A", "q1 ": "B"}}, ["'q1'", "two"]),
        ({"key": "nothing.csv"}, ["nothing.csv: there is no such file"]),
    ],
)
def test_options_refused(options: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        codes_of(**options)
    for part in parts:
        assert part in str(caught.value)


def test_key_files_whose_columns_have_capitals(tmp_path: Path) -> None:
    """Any case will do; a column that is called just so goes before."""
    want = codes_of(key=write(tmp_path, "item,key\nq1,A\nq2,B\n", "k1.csv"))
    assert codes_of(key=write(tmp_path, "Item,KEY\nq1,A\nq2,B\n", "k2.csv")) == want
    both = write(tmp_path, "Item,item,key\nx,q1,A\ny,q2,B\n", "k3.csv")
    with pytest.warns(Notice, match="'Item' is not read"):
        assert codes_of(key=both) == want
    assert codes_of(key=write(tmp_path, "item,Answer\nq1,A\nq2,B\n", "k4.csv")) == want


@pytest.mark.parametrize(
    "text, part",
    [
        ("item,option\nq1,A\n", "no column 'key'"),
        ("item,option\nq1,A\n", "the first line has to have item and key (or answer)"),
        ("item,Key,answer\nq1,A,B\n", "the columns 'Key' and 'answer', which mean the same"),
        ("item,key\nq1,A\nq1,A\n", "line 3: the item 'q1' has a key already"),
        ("item,key\nq1,A\nq2,\n", "line 3: the key is empty"),
        ("item,key\nq1,A\nq2\n", "line 3: expected 2 fields"),
    ],
)
def test_key_files_refused(text: str, part: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"key\.csv") as caught:
        codes_of(key=write(tmp_path, text, "key.csv"))
    assert part in str(caught.value)
