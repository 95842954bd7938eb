"""Files as they come: what is made of them, and what is said; other ways to write the same."""

from __future__ import annotations

import gzip
import json
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from parts import cells, person_ids
from ugly import CASES, COMMAS, ITEMS, MATRIX, PERSONS, ROWS, Case

import irt_dask as irt
from irt_dask.cli import main
from irt_dask.errors import DataWarning, InputError, Notice
from irt_dask.ingest.text import encoding, lines
from irt_dask.workflow import stages
from irt_dask.workflow.config import read_config
from irt_dask.workflow.inputs import check_input, looks


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_typed(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    case.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        sys, "argv", ["irt-dask", "ingest", case.file, "s", *shlex.split(case.typed)]
    )
    code: object = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code
    said = capsys.readouterr().err
    assert code == (2 if case.refused else 0), said
    for part in case.says:
        assert part in said
    if case.refused:
        assert said.startswith("error: ")
        assert said.count("\n") == 1
        assert not (tmp_path / "s").exists()
        return
    assert bool(said) == bool(case.says)
    r = irt.open_responses("s")
    assert (tuple(person_ids(r)), r.item_id) == (case.persons, case.items)
    assert cells(r).tolist() == case.matrix
    r.verify()


def test_a_look_counts_rows_not_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    case = next(case for case in CASES if case.name == "comments over several lines")
    case.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        sys, "argv", ["irt-dask", "check", case.file, *shlex.split(case.typed), "--json"]
    )
    main()
    said = json.loads(capsys.readouterr().out)
    assert (said["rows"], said["bad_rows"], said["persons"]) == (3, 0, 3)


def stored(path: Path, **options: object) -> tuple[object, ...]:
    """Read a file into a store and the store into lists."""
    r = irt.ingest(path, path.parent / f"store of {path.name}", **options)  # type: ignore[arg-type]
    return tuple(person_ids(r)), r.item_id, cells(r).tolist()


@pytest.mark.parametrize(
    "name, suffix",
    [("utf-16", ".csv.gz"), ("utf-32", ".csv"), ("gb18030", ".csv.gz"), ("shift-jis", ".csv")],
)
def test_any_encoding_in_blocks_of_any_size(
    name: str, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = {"gb18030": "张三", "shift-jis": "山田"}.get(name, "ěšč")
    data = COMMAS.replace("zoë", letters).encode(name)
    wanted = ((*PERSONS[:2], letters), ITEMS, MATRIX)
    for size in (3, 1 << 20):
        monkeypatch.setattr(encoding, "_BLOCK", size)
        path = tmp_path / f"{size}{suffix}"
        path.write_bytes(gzip.compress(data) if suffix.endswith(".gz") else data)
        assert stored(path, encoding=name) == wanted
        (tmp_path / f"store of {path.name}").rename(tmp_path / f"{size} said")
        path.write_bytes(gzip.compress(data[:-3]) if suffix.endswith(".gz") else data[:-3])
        if name.startswith("utf"):  # half a character at the end
            with pytest.raises(InputError, match=rf"line 4: the byte 0x.. is not {name}"):
                stored(path, encoding=name)


def test_utf16_of_either_order_in_json_lines(tmp_path: Path) -> None:
    text = '{"id": "zoë", "q1": 1}\n{"id": "bob", "q1": 0}\n'
    for mark, name in (("\ufeff", "utf-16-le"), ("\ufeff", "utf-16-be")):
        path = tmp_path / f"{name}.jsonl"
        path.write_bytes((mark + text).encode(name))
        with pytest.warns(Notice, match="read as utf-16, which its byte order mark says"):
            assert stored(path) == (("zoë", "bob"), ("q1",), [[1], [0]])
    plain = tmp_path / "plain.jsonl"
    plain.write_bytes(text.encode("utf-16-be"))
    with pytest.raises(InputError, match="as in UTF-16: say encoding='utf-16-be'"):
        stored(plain)


@pytest.mark.parametrize("size", [20, 1 << 20])
@pytest.mark.parametrize("on_error", ["raise", "quarantine"])
def test_line_numbers_stay_those_of_the_file(
    size: int, on_error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "PIECE", size)
    text = (
        'sep=|\r\nid|q1|"any\r\n\r\ncomments?"\r\n'  # lines 1 to 4
        'ann|1|"a ""quick""\n\none"\r\n'  # 5 to 7
        'bob|7|"two\nlines"\r\n'  # 8, 9
        '"cy\nd"|1|\r\n'  # 10, 11
        'dan|0|"never closed\r\n'  # 12
        "eve|0|\r\n"  # 13
        "eve|0|again\r\n"  # 14
        'fay|"1\n"|\r\n'  # 15, 16
    )
    path = tmp_path / "f.csv"
    path.write_bytes(text.encode())
    columns = {"items": ["q1"]}
    if on_error == "raise":
        with pytest.raises(InputError, match=r"f\.csv, line 8: column 'q1' has the value '7'"):
            stored(path, columns=columns)
        return
    with pytest.warns(Notice, match=r"4 row\(s\) go over several lines, the first from line 5;"):
        found = stored(path, columns=columns, on_error=on_error)
    assert found == (("ann", "eve", "fay"), ("q1",), [[1], [0], [1]])
    aside = pd.read_csv(tmp_path / "store of f.csv.quarantine.csv")
    assert aside["line"].tolist() == [8, 10, 12, 14]
    assert aside["text"][0] == 'bob|7|"two\nlines"'
    assert aside["text"][1] == '"cy\nd"|1|'
    assert "line end within its quotes" in aside["reason"][1]
    assert "close the quote" in aside["reason"][2]


def test_rows_that_only_seem_to_go_on_stay_errors(tmp_path: Path) -> None:
    """What a quote opens must end where a value does, in a row as wide as the header."""
    for k, rows in enumerate(
        ('"a,1\n"b,0\n', 'a,"1\nb",0,1\n', '"a,1\nb",0,1\n', '"a,1\nb\xff",0\n')
    ):
        path = tmp_path / f"{k}.csv"
        path.write_bytes(("id,q1\n" + rows).encode("latin-1"))
        with pytest.raises(InputError, match="line 2: a quoted value does not end on this line"):
            stored(path)


def test_notices_name_the_line_of_the_caller(tmp_path: Path) -> None:
    (tmp_path / "key.csv").write_text("item;key\nq1;1\nq2;1\n")
    (tmp_path / "persons.csv").write_text("id\tage\n007\t1\n008\t2\nzoë\t3\n", encoding="utf-8")
    (tmp_path / "f.csv").write_text(ROWS, encoding="utf-8")
    with pytest.warns(Notice) as said:
        irt.ingest(
            tmp_path / "f.csv", tmp_path / "s", key=tmp_path / "key.csv",
            persons=tmp_path / "persons.csv",
        )  # fmt: skip
    files = [str(w.message).partition(": ")[0].rpartition("/")[2] for w in said]
    assert files == ["key.csv", "f.csv", "persons.csv"]
    assert {w.filename for w in said} == {__file__}


def test_a_doubt_about_the_encoding_is_said_once_where_the_call_is(tmp_path: Path) -> None:
    (tmp_path / "key.csv").write_text("item;key\nq1;1\nq2;ë\n", encoding="utf-8")
    text = 'id,q1,q2,note\nzoë,1,0,"a\nb"\n'
    (tmp_path / "f.csv").write_text(text, encoding="utf-8")
    with pytest.warns(Notice), pytest.warns(DataWarning) as said:
        irt.ingest(
            tmp_path / "f.csv", tmp_path / "s", key=tmp_path / "key.csv", encoding="cp1252",
            exclude="note",
        )  # fmt: skip
    doubts = [w for w in said if "sound UTF-8 as well" in str(w.message)]
    assert [str(w.message).partition(": ")[0].rpartition("/")[2] for w in doubts] == [
        "key.csv", "f.csv",
    ]  # fmt: skip
    assert {(w.filename, w.category) for w in doubts} == {(__file__, DataWarning)}


@pytest.mark.parametrize("name", ["f.jsonl", "f.parquet"])
def test_no_decimal_sign_where_the_format_has_one(name: str, tmp_path: Path) -> None:
    table = pd.DataFrame({"id": ["a"], "q1": ["1,0"]})
    if name == "f.jsonl":
        table.to_json(tmp_path / name, orient="records", lines=True)
    else:
        table.to_parquet(tmp_path / name)
    with pytest.raises(InputError, match="has the value '1,0'; a response is 0") as refused:
        stored(tmp_path / name)
    assert "decimal=" not in str(refused.value)


@pytest.mark.parametrize(
    "options, part",
    [
        ({"delimiter": ";;"}, "delimiter=';;': must be one character"),
        ({"delimiter": "x"}, "delimiter='x': letters, digits, spaces and quotes"),
        ({"delimiter": ","}, "line 1: the line is sep=;, and delimiter=','"),
        ({"decimal": ";"}, "decimal=';' is unknown"),
        ({"encoding": "cp0"}, "encoding='cp0' is unknown"),
        ({"encoding": "hex"}, "encoding='hex' is unknown"),
        ({"encoding": "punycode"}, "encoding='punycode' is unknown"),
        ({"encoding": "utf-16"}, "has no byte order mark"),
    ],
)
def test_what_cannot_be(options: dict[str, str], part: str, tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text("sep=;\n" + ROWS, encoding="utf-8")
    with pytest.raises(InputError) as refused:
        stored(path, **options)
    assert part in str(refused.value)
    path.write_text(ROWS, encoding="utf-8-sig")
    with pytest.raises(InputError, match="begins with the byte order mark of utf-8"):
        stored(path, encoding="cp1252")
    lines_of_json = tmp_path / "f.jsonl"
    lines_of_json.write_text('{"id": 1, "q1": 1}\n')
    with pytest.raises(InputError, match=r"delimiter=';': no file here is delimited text"):
        stored(lines_of_json, delimiter=";")


def test_names_of_rows_that_are_the_persons(tmp_path: Path) -> None:
    """As R writes a matrix."""
    path = tmp_path / "f.csv"
    path.write_text('"","q1","q2"\n"007",1,0\n"008",0,NA\n')
    with pytest.raises(InputError, match="has no name; if it holds the persons, say columns=") as e:
        stored(path)
    columns = {"person": "column 1"}
    assert f"columns={columns}" in str(e.value)
    assert stored(path, columns=columns) == (("007", "008"), ITEMS, MATRIX[:2])
    r = irt.ingest(path, tmp_path / "s", columns=columns, persons=path)  # the same name there
    assert r.covariate_names == ITEMS
    named = tmp_path / "named.csv"
    named.write_text(path.read_text().replace('""', "id"))
    with pytest.raises(InputError, match="in a table of persons call the column 'person'"):
        irt.ingest(named, tmp_path / "t", persons=path)


def test_a_delimiter_that_is_a_sign_of_patterns(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text('id^q1^q2\n"0^07"^1^"0"\n008^0^NA\n', encoding="utf-8")
    assert stored(path, delimiter="^") == (("0^07", "008"), ITEMS, MATRIX[:2])


def test_an_append_reads_as_an_ingest(tmp_path: Path) -> None:
    head, *rows = ROWS.replace("1;1", "1,0;0,0").splitlines()
    (tmp_path / "a.csv").write_text(f"{head}\n{rows[0]}\n")
    (tmp_path / "b.csv").write_bytes("\n".join([head, *rows[1:]]).encode("cp1252"))
    options = {"delimiter": ";", "decimal": ",", "encoding": "cp1252"}
    irt.ingest(tmp_path / "a.csv", tmp_path / "s", **options)  # type: ignore[arg-type]
    r = irt.append(tmp_path / "b.csv", tmp_path / "s", **options)  # type: ignore[arg-type]
    assert (tuple(person_ids(r)), cells(r).tolist()) == (PERSONS, [*MATRIX[:2], [1, 0]])


def test_a_pipeline_reads_as_an_ingest(tmp_path: Path) -> None:
    persons = "id;group;ses\n007;x;0,5\n008;y;\nzoë;x;1\n"
    (tmp_path / "f.csv").write_bytes(ROWS.replace("1;1", "1,0;0,0").encode("cp1252"))
    (tmp_path / "persons.csv").write_bytes(persons.encode("cp1252"))
    file = tmp_path / "p.toml"
    data = '[data]\nsource = "f.csv"\npersons = "persons.csv"\ndelimiter = ";"\n'
    file.write_text(data + 'decimal = ","\nencoding = "cp1252"\n')
    config = read_config(file, {"directory": tmp_path / "run"})
    check_input(config)
    directory: Any = SimpleNamespace(clear=lambda name: tmp_path / name)
    common = {"client": None, "progress": False}
    stages.ingest(stages.Context(config, directory, common, looks(config)))
    r = irt.open_responses(tmp_path / "responses")
    assert (tuple(person_ids(r)), cells(r).tolist()) == (PERSONS, [*MATRIX[:2], [1, 0]])
    assert r.covariate_names == ("ses",)
    for said in ('encoding = "cp0"', 'delimiter = "x"', 'decimal = ";"'):
        file.write_text(f'[data]\nsource = "f.csv"\n{said}\n')
        with pytest.raises(InputError, match=said.partition(" ")[0]):
            read_config(file)
    file.write_text('[data]\nbuiltin = "lsat"\ndecimal = ","\n')
    with pytest.raises(InputError, match="decimal: these describe a source file"):
        read_config(file)
