"""Files as they come, each with what somebody types who has never seen the program.

The test and the table of ``tests/benchmarks/ugly_files.py`` go over the same list.
"""

from __future__ import annotations

import gzip
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PERSONS = ("007", "008", "zoë")
ITEMS = ("q1", "q2")
MATRIX = [[1, 0], [0, -1], [1, 1]]
ROWS = "id;q1;q2\n007;1;0\n008;0;NA\nzoë;1;1\n"
COMMAS = ROWS.replace(";", ",")


@dataclass(frozen=True)
class Case:
    """A file, what is typed after ``irt-dask ingest FILE STORE``, and what comes of it."""

    name: str
    data: bytes
    typed: str = ""
    says: tuple[str, ...] = ()  # parts of what is said beside the result
    file: str = "exam.csv"
    others: dict[str, bytes] = field(default_factory=dict)  # files that the options name
    refused: bool = False
    persons: tuple[str, ...] = PERSONS
    items: tuple[str, ...] = ITEMS
    matrix: Any = field(default_factory=lambda: MATRIX)

    def write(self, folder: Path) -> None:
        """Write the files."""
        for name, data in {self.file: self.data, **self.others}.items():
            packed = gzip.compress(data, mtime=0) if name.endswith(".gz") else data
            (folder / name).write_bytes(packed)


_WIDE_ITEMS = tuple(f"item_{j:04d}" for j in range(2000))
_rng = random.Random(1)
_WIDE = [[_rng.randrange(2) for _ in _WIDE_ITEMS] for _ in PERSONS]
_SURVEY = """id,q1,"What did you think?",q2\r
007,1,"It was
long, and ""hard"".",0\r
008,0,fine,NA\r
zoë,1,"

none",1\r
"""
_SEX = b"id,sex,q1,q2\n007,1,1,0\n008,0,0,NA\nzo\xc3\xab,1,1,1\n"

CASES = [
    Case("semicolons", ROWS.encode(), says=("note: ", "the delimiter is ';'")),
    Case("semicolons, said", ROWS.encode(), "--delimiter ';'"),
    Case("tabs in a .csv", ROWS.replace(";", "\t").encode(), says=(r"the delimiter is '\t'",)),
    Case("bars", ROWS.replace(";", "|").encode(), "--delimiter '|'"),
    Case("semicolons or bars", b"id;q1|q2\n007;1|0\n", says=("by ';' or '|'",), refused=True),
    Case(
        "semicolons, and a comma in a name", b"id;part a, 1;q2\n007;1;0\n", refused=True,
        says=("are 'id;part a', '1;q2', divided by ','; if by ';', say --delimiter ';'",),
    ),
    Case(
        "decimal commas", ROWS.replace("1;0", "1,0;0,0").encode(), "--delimiter ';'",
        ("exam.csv, line 2: column 'q1' has the value '1,0'", "sign, say --decimal ,"),
        refused=True,
    ),
    Case(
        "decimal commas, said", ROWS.replace("1;0", "1,0;0,0").encode(),
        "--delimiter ';' --decimal ,",
    ),
    Case("byte order mark", COMMAS.encode("utf-8-sig")),
    Case("sep= above the header", ("sep=;\r\n" + ROWS.replace("\n", "\r\n")).encode()),
    Case(
        "sep=, and a bad value", ("sep=;\n" + ROWS.replace("008;0", "008;x")).encode(),
        says=("exam.csv, line 4: column 'q1' has the value 'x'",), refused=True,
    ),
    Case(
        "cp1252", COMMAS.encode("cp1252"),
        says=("exam.csv, line 4: the byte 0xeb is not UTF-8", "'zoë' in cp1252", "'zoл' in cp1251"),
        refused=True,
    ),
    Case(
        "cp1252, a quote", COMMAS.replace("zoë", "O’Brien").encode("cp1252"), refused=True,
        says=("exam.csv, line 4: the byte 0x92 is not UTF-8", "'O’Brien' in cp1252, cp1250, cp125",
              "which is right, as in --encoding cp1252 "),
    ),
    Case(
        "cp1252, quotes in the header", COMMAS.replace("q1", "“q1”").encode("cp1252"),
        says=("exam.csv, line 1: the byte 0x93 is not UTF-8", "'“q1”' in cp1252"), refused=True,
    ),
    Case(
        "cp1252, a currency", COMMAS.replace("q1", "Preis €").encode("cp1252"),
        says=("exam.csv, line 1: the byte 0x80 is not UTF-8", "'€' in cp1252"), refused=True,
    ),
    Case(
        "cp1252, a word of Greek", COMMAS.replace("zoë", "Ζωή").encode("cp1253"), refused=True,
        says=("'ÆùÞ' in cp1252", "'Ζωή' in cp1253", "as in --encoding cp1252 "),
    ),
    Case(
        "cp1252, said to be latin-1", COMMAS.replace("zoë", "O’Brien").encode("cp1252"),
        "--encoding latin-1", refused=True,
        says=("exam.csv, line 4: the byte 0x92 is a control character in iso8859-1",
              "say --encoding cp1252"),
    ),
    Case(
        "cp1250, said to be latin-2", COMMAS.replace("q2", "q2 – b").encode("cp1250"),
        "--encoding latin2", refused=True,
        says=("exam.csv, line 1: the byte 0x96 is a", "in iso8859-2", "say --encoding cp1250"),
    ),
    Case("latin-1, said", COMMAS.encode("latin-1"), "--encoding latin-1"),
    Case("cp1252, said", COMMAS.encode("cp1252"), "--encoding cp1252"),
    Case(
        "cp1250, said", COMMAS.replace("007", "Dvořák").encode("cp1250"), "--encoding cp1250",
        persons=("Dvořák", *PERSONS[1:]),
    ),
    Case(
        "a byte that cp1252 does not have", COMMAS.encode("cp1252").replace(b"008", b"\x81"),
        "--encoding cp1252", ("exam.csv, line 3: the byte 0x81 is not cp1252",), refused=True,
    ),
    Case(
        "UTF-8, said to be cp1252", COMMAS.encode(), "--encoding cp1252",
        ("warning: ", "it is sound UTF-8 as well"), persons=(*PERSONS[:2], "zoÃ«"),
    ),
    Case(
        "UTF-16 with tabs", ROWS.replace(";", "\t").replace("\n", "\r\n").encode("utf-16"),
        says=("note: ", "read as utf-16"), file="exam.tsv",
    ),
    Case(
        "UTF-16, compressed", ROWS.encode("utf-16"), file="exam.csv.gz",
        says=("read as utf-16", "the delimiter is ';'"),
    ),
    Case(
        "UTF-16 without a mark", ROWS.encode("utf-16-le"), refused=True,
        says=("exam.csv, line 1: there are NUL bytes, as in UTF-16", "utf-16-le"),
    ),
    Case(
        "questions over several lines as names",
        COMMAS.replace("q1", '"Question 1\n(choose one)"').encode(),
        items=("Question 1 (choose one)", "q2"),
    ),
    Case(
        "comments over several lines", _SURVEY.encode(), "--column items=q1,q2",
        ("note: ", "2 row(s) go over several lines, the first from line 2;"),
    ),
    Case(
        "comments over several lines, and a bad value", _SURVEY.replace("008,0", "008,x").encode(),
        "--column items=q1,q2", ("exam.csv, line 4: column 'q1' has the value 'x'",), refused=True,
    ),
    Case(
        "empty columns at the end", ROWS.replace("\n", ";;\r\n").encode("utf-8-sig"),
        "--delimiter ';'",
    ),
    Case(
        "empty rows at the end", ROWS.encode() + b";;\n\r\n;;\r\n;;", "--delimiter ';'",
        says=("note: exam.csv: the last 4 row(s), which hold nothing but delimiters, are left",),
    ),
    Case(
        "empty rows at the end of a long file", b"id,item,score\n007,q1,1\n007,q2,0\n,,\n",
        says=("note: exam.csv: the last 1 row(s)",), persons=("007",), matrix=[[1, 0]],
    ),
    Case(
        "an empty row amid others", b"id,q1,q2\n007,1,0\n,,\n008,0,1\n", refused=True,
        says=("exam.csv, line 3: the person id is empty",),
    ),
    Case("empty rows alone", b"id,q1,q2\n,,\n,,\n", refused=True,
         says=("exam.csv, line 2: the person id is empty",)),
    Case(
        "a value in a column without a name", b"id,q1,q2,\n007,1,0,\n008,0,NA,x\n",
        says=("exam.csv, line 3: there is the value 'x' in column 4, which has no name",),
        refused=True,
    ),
    Case(
        "names of rows, as R writes them",
        b',"id","q1","q2"\n"1","007",1,0\n"2","008",0,NA\n"3","zo\xc3\xab",TRUE,TRUE\n',
        says=("note: exam.csv: column 1 has no name in the header and is left out",),
    ),
    Case("a name that was lost", COMMAS.replace("q1", "").encode(), refused=True,
         says=("exam.csv, line 1: column 2 of 3 has no name; name it",)),
    Case(
        "a line end in an id", COMMAS.replace("007", '"00\n7"').encode(), refused=True,
        says=("exam.csv, line 2: the person has a line end",),
    ),
    Case("TRUE and FALSE", b"id,q1,q2\n007,TRUE,FALSE\n008,false,NA\nzo\xc3\xab,True,true\n"),
    Case(
        "words for nothing", b"id,q1,q2,q3,q4,q5,q6\n1,1,N/A,#N/A,n/a,NULL,None\n2,,0,0,0,0,1\n",
        persons=("1", "2"), items=tuple(f"q{j}" for j in range(1, 7)),
        matrix=[[1, *[-1] * 5], [-1, 0, 0, 0, 0, 1]],
    ),
    Case(
        "-9", COMMAS.replace("NA", "-9").encode(), refused=True,
        says=("exam.csv, line 3: column 'q2' has the value '-9'", "mean different things"),
    ),
    Case("-9, said", COMMAS.replace("NA", "-9").encode(), "--missing -9"),
    Case(
        "9 for what was omitted", COMMAS.replace("NA", "9").encode(), "--recode 9=wrong",
        matrix=[[1, 0], [0, 0], [1, 1]],
    ),
    Case(
        "partial scores", COMMAS.replace("1,0\n", "1,2\n").encode(), refused=True,
        says=("exam.csv, line 2: column 'q2' has the value '2'; a partial score: if items",),
    ),
    Case(
        "answers as given", COMMAS.replace("1,0\n", "B,C\n").encode(), refused=True,
        says=("exam.csv, line 2: column 'q1' has the value 'B'", "answers stand as they were"),
    ),
    Case(
        "answers, and a dash", b"id,q1,q2\n007,A,C\n008,B,-\n", "--key key.csv", refused=True,
        says=("exam.csv, line 3: column 'q2' has the value '-'", "that there is none"),
        others={"key.csv": b"item;key\nq1;A\nq2;C\n"},
    ),
    Case(
        "answers, a dash, a key in cp1252", b"id,q1,q2\n007,A,C\n008,B,-\n",
        "--key key.csv --missing - --encoding cp1252",
        others={"key.csv": "item;key;why\nq1;A;\nq2;C;schön\n".encode("cp1252")},
        says=("key.csv: the delimiter is ';'",), persons=PERSONS[:2], matrix=[[1, 1], [0, -1]],
    ),
    Case(
        "weights with decimal commas", COMMAS.encode(), "--persons persons.csv --decimal ,",
        others={"persons.csv": "id;weight;age\n007;1,5;10\n008;2;\nzoë;0,5;11,5\n".encode()},
        says=("persons.csv: the delimiter is ';'",),
    ),
    Case(
        "an error of a spreadsheet", COMMAS.replace("NA", "#REF!").encode(), refused=True,
        says=("exam.csv, line 3: column 'q2' has the value '#REF!'", "formula"),
    ),
    Case(
        "a background column of 0 and 1", _SEX,
        says=("warning: ", "'sex' (the name says 'sex')", "what is no item: --exclude sex;"),
        items=("sex", "q1", "q2"), matrix=[[1, 1, 0], [0, 0, -1], [1, 1, 1]],
    ),
    Case(
        "background columns in German", b"id;geschlecht;Schule;q1;q2\n007;1;1;1;0\n",
        says=("warning: ", "what is no item: --exclude geschlecht --exclude Schule;"),
        persons=("007",), items=("geschlecht", "Schule", "q1", "q2"), matrix=[[1, 1, 1, 0]],
    ),
    Case(
        "a background column in Japanese",
        "id,q1,q2,q3,q4,q5,性別\n007,1,0,1,0,1,1\n".encode(), persons=("007",),
        says=("warning: ", "'性別' (5 others are called as 'q1')", "--exclude '性別';"),
        items=(*(f"q{j}" for j in range(1, 6)), "性別"), matrix=[[1, 0, 1, 0, 1, 1]],
    ),
    Case("a background column, left out", _SEX, "--exclude sex"),
    Case("a background column, items by a glob", _SEX, "--column 'items=q*'"),
    Case(
        "a background column that is no 0 and 1", _SEX.replace(b"\n007,1", b"\n007,m"),
        says=("exam.csv, line 2: column 'sex' has the value 'm'", "no item, --exclude sex"),
        refused=True,
    ),
    Case(
        "comments over several lines, not left out", _SURVEY.encode(), refused=True,
        says=("column 'What did you think?' has the value 'It was\\nlong, and \"hard\".'; a "
              "response is 0 (wrong) or 1 (right); if the column is no item, --exclude",),
    ),
    Case(
        "columns between items",
        b"id,q1,when,pages,q2\n007,1,May,3,0\n008,0,,,\nzo\xc3\xab,1,June,9,1\n",
        "--column items=q1:q2 --exclude when:pages",
    ),
    Case(
        "a total called score",
        b"id,q1,q2,score\n007,1,0,1\n008,0,,0\nzo\xc3\xab,1,1,2\n",
        says=("long or wide", "--shape wide with", "--exclude score if it is a total"),
        refused=True,
    ),
    Case(
        "a pattern without a column", COMMAS.encode(), "--column 'items=item_*'", refused=True,
        says=("exam.csv: --column 'items=item_*': no column matches 'item_*'",),
    ),
    Case(
        "columns without a response",
        b"id,e,q1,f,q2,g\n007,,1,NA,0,\n008,,0,.,,\nzo\xc3\xab,,1,,1,-1\n",
        says=("note: ", "3 item(s) without any response are left out: 'e', 'f', 'g'"),
    ),
    Case(
        "2,000 columns, and others between",
        "\n".join(",".join(row) for row in [
            ("id", *_WIDE_ITEMS[:999], "gender", *_WIDE_ITEMS[999:], "empty"),
            *((p, *map(str, r[:999]), "1", *map(str, r[999:]), "")
              for p, r in zip(PERSONS, _WIDE, strict=True)),
        ]).encode(),
        "--column items=item_0000:item_1999 --exclude gender", items=_WIDE_ITEMS, matrix=_WIDE,
    ),
    Case(
        "2,000 columns",
        "\n".join(";".join(row) for row in [
            ("id", *_WIDE_ITEMS), *((p, *map(str, r)) for p, r in zip(PERSONS, _WIDE, strict=True))
        ]).encode("utf-16"),
        "--delimiter ';' --encoding utf-16 --quiet", items=_WIDE_ITEMS, matrix=_WIDE,
    ),
]  # fmt: skip
