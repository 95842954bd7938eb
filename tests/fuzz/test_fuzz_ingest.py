"""Thousands of files, whole and damaged: ``ingest`` takes what the reference parser takes, as it
does, and refuses the rest with an InputError; nothing else ever happens."""

from __future__ import annotations

import csv
import functools
import gzip
import json
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference_parser as reference
from parts import cells

import irt_dask as irt
from irt_dask.errors import InputError
from irt_dask.store import manifest
from irt_dask.store.nonresponse import says_nonresponse

IDS = [
    "a", "b", "A", "ann b", "Korea, Republic of", 'say "hi"', "é", "e\u0301", "学生", "🙂", "Ω",
    "0", "1", "01", "007", "1.0", "1e5", "-1", "NA", "nan", "NaN", "None", "null", "true", "True",
    ".", "-", "--", "'", "a'b", "\\", "\\n", "a|b", "a;b", "a\tb", "#", "=1+1", "%s", "{}", "[1]",
    "a\u00a0b", "\u2028", "\ufeffz", "x" * 300, "item", "person", "../up", "c/0/0", "zarr.json",
]  # fmt: skip
ODD_VALUES = ["2", "yes", "1 0", "01", "1.00", "+1", "TRUE", "0x1", "１", "N/A", "--", "1,0", "9.0"]
#: missing=, recode=: combinations that do not contradict each other.
CODES: list[tuple[Any, dict[str, str] | None]] = [
    ((), None),
    (["9"], None),
    (["x", -9], None),
    (99, None),
    (" omit ", {"2": "right"}),
    ((), {"9": "wrong", "r": "missing", "2": "right"}),
    (["7"], {"1": "wrong", "0": "right", "": "wrong"}),
    ((), {"NA": "right", ".": "wrong"}),
]
#: The same where items have more than two categories.
LABELS: list[tuple[Any, dict[str, Any] | None]] = [
    ((), None),
    (["9"], None),
    (["x", -9], {"never": 0, "often": 1, "always": 2}),
    ((), {"never": 0, "seldom": 1, "r": "missing", "9": "wrong"}),
    ((), {"0.5": 1, "1": 2, "2": 3}),
    ("99", {"1": 0, "2": 1, "3": 2, "4": 3}),
    ((), {"O": "omitted", "R": "not reached", "3": "missing"}),
]
#: What labels mean to some items alone.
OWN = [
    {"1": 0, "2": 1, "3": 2},
    {"0": 2, "2": 0, "never": "missing"},
    {"NA": 1, "0": "missing", "": "wrong"},
    {"3": "omitted", "4": 2},
]
PARQUET = True
#: Items without responses, and what columns are called, are said; tests/ingest has that.
pytestmark = [
    pytest.mark.filterwarnings("ignore::irt_dask.errors.Notice"),
    pytest.mark.filterwarnings("ignore::irt_dask.errors.DataWarning"),
]
GRADED = [pytest.param(False, id="right or wrong"), pytest.param(True, id="categories")]
TEXT = ("csv", "csv", "csv", "tsv", "tab", "jsonl", "jsonl", "ndjson")


@dataclass
class Case:
    """A file to be, and the options that go with it."""

    kind: str
    shape: str
    options: dict[str, Any]
    names: list[str]
    records: list[list[Any]] | list[dict[str, Any]]
    data: bytes = b""
    suffix: str = ""
    damage: list[str] = field(default_factory=list)


# --- good files -----------------------------------------------------------------------------------


def make(rng: random.Random, kind: str, graded: bool = False) -> Case:
    """Draw the content of a file; ``graded``: items may have more than two categories."""
    persons = pick_ids(rng, rng.randint(1, 10))
    items = pick_ids(rng, rng.randint(1, 5))
    missing, recode = rng.choice(LABELS if graded else CODES)
    options: dict[str, Any] = {"missing": missing, "recode": recode}
    values = ["1", "0", "1", "0", "1.0", "0.0", *reference.MISSING_CODES, *(recode or {})]
    if graded:
        values += [
            "2",
            "3",
            "2",
            "3",
            "2.0",
            "0",
            "1",
            *"0123" * 6,
            rng.choice(["1", "1", "4", "14"]),
        ]
    values += [str(m) for m in ([missing] if isinstance(missing, (str, int)) else missing)]
    if recode is None and not graded and rng.random() < 0.3:
        options["key"] = {i: rng.choice("ABCD1234") for i in [*items, "no such item"]}
        values += [*"ABCD1234", "B", "C"]
    if rng.random() < 0.1:
        values += rng.sample(ODD_VALUES, 2)
    extra = [role for role in ("weight", "group") if rng.random() < 0.25]
    about = {
        p: {"weight": rng.choice([1, 2.5, "0.5", "1e-3", 7]), "group": rng.choice(IDS)}
        for p in persons
    }
    shape = rng.choice(["long", "wide"])
    spelled = json_value if kind in ("jsonl", "ndjson") else str
    plain = options.get("key") is not None or recode is not None

    def value() -> Any:
        text = rng.choice(values)
        return text if spelled is str else json_value(rng, text, plain)

    if shape == "long":
        names, columns = header(rng, {"person": "person", "item": "item", "response": "response"})
        pairs = [(p, i) for p in persons for i in items if rng.random() < 0.8]
        pairs = pairs or [(persons[0], items[0])]
        if rng.random() < 0.7:
            rng.shuffle(pairs)
        rows = [[p, i, value()] for p, i in pairs]
    else:
        names, columns = header(rng, {"person": "person"})
        items = [i for i in items if i.casefold() not in ("person", "item", names[0].casefold())]
        items = items or ["q"]
        if options.get("key"):
            options["key"] |= dict.fromkeys(items, "A")
        names += items
        rows = [[p, *(value() for _ in items)] for p in persons]
    if graded:
        said, labelled = categories(rng, items)
        options |= said
        for item in labelled:
            options["recode"] = {**(options["recode"] or {}), item: rng.choice(OWN)}
    for role in extra:
        names.append(f"the {role}")
        columns[role] = f"the {role}"
        rows = [[*row, about[row[0]][role]] for row in rows]
    if shape == "long" and rng.random() < 0.3:
        names.append("when")
        rows = [[*row, rng.choice(["", "2020", "x", "two\nlines", '"\n\n,'])] for row in rows]
    if kind not in ("jsonl", "ndjson") and rng.random() < 0.3:  # another order of the columns
        order = rng.sample(range(len(names)), len(names))
        names, rows = [names[k] for k in order], [[row[k] for k in order] for row in rows]
    if columns or rng.random() < 0.2:
        options["columns"] = columns
    if rng.random() < 0.2:
        options["shape"] = shape
    case = Case(kind, shape, options, names, rows)
    if kind in ("jsonl", "ndjson"):
        case.records = json_objects(rng, case, items)
    return case


def categories(rng: random.Random, items: list[str]) -> tuple[dict[str, Any], list[str]]:
    """How many categories items have, said in one of the ways there are, and which count back.

    And those that have labels of their own.
    """
    by_item = {i: rng.choice([2, 4, 4, 3, 15]) for i in items if rng.random() < 0.8}
    k = rng.choice([4, 4, 5, "data", by_item, by_item, by_item])
    plain = [i for i in items if not {*i} & {*"*?[:"}]
    back = rng.sample(plain, rng.randint(0, min(2, len(plain)))) if rng.random() < 0.4 else []
    labelled = [i for i in plain if by_item.get(i, 2) > 2 or k != by_item]
    labelled = [i for i in labelled if rng.random() < 0.3]
    return {"categories": k or 4, "reverse": [] if k == "data" else back}, labelled


def pick_ids(rng: random.Random, n: int) -> list[str]:
    ids = rng.sample(IDS, n) if rng.random() < 0.5 else [f"id {k}" for k in range(n)]
    return [i for k, i in enumerate(ids) if i.strip() and i.strip() not in ids[:k]] or ["z"]


def header(rng: random.Random, roles: dict[str, str]) -> tuple[list[str], dict[str, Any]]:
    """Return a column name for each role, and those that only ``columns=`` can tell."""
    names, columns = [], {}
    for role in roles:
        if rng.random() < 0.2:
            columns[role] = f"my {role}"
            names.append(f"my {role}")
        else:
            name = rng.choice(reference.ALIASES[role].split())
            names.append(rng.choice([name, name.upper(), name.title()]))
    return names, columns


def json_value(rng: random.Random, text: str, plain: bool) -> Any:
    """Return a value as JSON may hold it."""
    if rng.random() < 0.3:
        return text
    if text == "" or (text == "NA" and not plain):
        return None
    if text in ("1", "0") and not plain and rng.random() < 0.4:
        return text == "1"
    try:
        number = json.loads(text)
    except ValueError:
        return text
    return number if isinstance(number, (int, float)) and str(number) == text else text


def json_objects(rng: random.Random, case: Case, items: list[str]) -> list[dict[str, Any]]:
    """Return the rows as objects; wide ones flat or with nested responses."""
    objects = [dict(zip(case.names, row, strict=True)) for row in case.records]
    if case.shape == "wide":
        drop = rng.random() < 0.5
        for k, record in enumerate(objects):
            for item in items:
                if drop and k and rng.random() < 0.3:
                    del record[item]
        if rng.random() < 0.5:
            name = "responses" if rng.random() < 0.7 else "answers"
            if name != "responses":
                case.options["columns"] = {**case.options.get("columns", {}), "responses": name}
            for record in objects:
                record[name] = {i: record.pop(i) for i in items if i in record}
    if rng.random() < 0.3:
        objects = [dict(rng.sample([*o.items()], len(o))) for o in objects]
    return objects


def write_text(rng: random.Random, case: Case) -> None:
    """Write the file's bytes, in one of the ways there are."""
    if case.kind in ("jsonl", "ndjson"):
        ascii_only, pad = rng.random() < 0.5, rng.random() < 0.3
        separators = (" , ", " : ") if pad else (",", ":")
        lines = [
            json.dumps(o, ensure_ascii=ascii_only, separators=separators) for o in case.records
        ]
    else:
        delimiter = rng.choice(",,,,;|") if case.kind == "csv" else "\t"
        quote, pad = rng.choice([0, 0, 0.2, 1]), rng.choice([0, 0, 0.2])
        table = [case.names, *case.records]
        lines = [delimiter.join(cell(rng, v, delimiter, quote, pad) for v in r) for r in table]
    end = rng.choice(["\n", "\n", "\r\n"])
    text = "".join(line + (rng.choice(["\n", "\r\n"]) if pad else end) for line in lines)
    text = text.rstrip("\r\n") + rng.choice(["", end, end, end + end, "\n\r\n\n"])
    case.data = (b"\xef\xbb\xbf" if rng.random() < 0.1 else b"") + text.encode()
    if rng.random() < 0.05:
        case.data = text.encode(rng.choice(["utf-16", "utf-32"]))
    case.suffix = f".{case.kind}" + (".gz" if rng.random() < 0.2 else "")


def cell(rng: random.Random, value: Any, delimiter: str, quote: float, pad: float) -> str:
    text = str(value)
    if rng.random() < pad:
        text = f" {text}  "
    if delimiter in text or '"' in text or "\n" in text or rng.random() < quote:
        text = '"' + text.replace('"', '""') + '"'
    return text


# --- damage ---------------------------------------------------------------------------------------


def flip(rng: random.Random, data: bytes) -> bytes:
    k = rng.randrange(len(data))
    return data[:k] + bytes([data[k] ^ 1 << rng.randrange(8)]) + data[k + 1 :]


def delete(rng: random.Random, data: bytes) -> bytes:
    k = rng.randrange(len(data))
    return data[:k] + data[k + rng.choice([1, 1, 3]) :]


def insert(rng: random.Random, data: bytes) -> bytes:
    tokens = [b'"', b",", b"\t", b"\n", b"\r", b"\r\n", b"\n\n", b"\0", b"\xff", b"\xc3", b" ",
              b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xe2\x80\xa8", b"1", b"{", b"}", b"[", b":",
              b"\\", b"\\ud800", b"NaN", b"\x1f", b'""', b"e9", b"\x0c"]  # fmt: skip
    k = rng.randrange(len(data) + 1)
    return data[:k] + rng.choice([*tokens, bytes([rng.randrange(256)])]) + data[k:]


def cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data))]


def lines_changed(rng: random.Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    what = rng.choice(["again", "drop", "swap"])
    if what == "again":
        lines.insert(b, lines[a])
    elif what == "drop":
        del lines[a]
    else:
        lines[a], lines[b] = lines[b], lines[a]
    return b"\n".join(lines)


def fields_changed(rng: random.Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    k = rng.randrange(len(lines))
    delimiter = b"\t" if b"\t" in lines[0] else b","
    fields = lines[k].split(delimiter)
    a, b = rng.randrange(len(fields)), rng.randrange(len(fields))
    what = rng.choice(["swap", "drop", "again", "other"])
    if what == "swap":
        fields[a], fields[b] = fields[b], fields[a]
    elif what == "drop":
        del fields[a]
    elif what == "again":
        fields.insert(b, fields[a])
    else:
        fields[a] = rng.choice([*ODD_VALUES, "", " ", "0", "-3", "inf"]).encode()
    lines[k] = delimiter.join(fields)
    return b"\n".join(lines)


def encode_otherwise(rng: random.Random, data: bytes) -> bytes:
    text = data.decode("utf-8", "replace")
    return text.encode(rng.choice(["utf-16", "utf-16-le", "utf-32", "latin-1", "cp1252"]), "ignore")


def garbage(rng: random.Random, data: bytes) -> bytes:
    noise = rng.randbytes(rng.randint(0, 200))
    return noise if rng.random() < 0.5 else data[: len(data) // 2] + noise


DAMAGES: list[Callable[[random.Random, bytes], bytes]] = [
    flip, flip, delete, delete, insert, insert, insert, cut, lines_changed, lines_changed,
    fields_changed, fields_changed, fields_changed, encode_otherwise, garbage,
]  # fmt: skip


def damage(rng: random.Random, case: Case) -> None:
    """Change the bytes of a text file a few times, or those of its compressed form."""
    for _ in range(rng.choice([0, 1, 1, 1, 1, 2, 3])):
        if case.data:
            change = rng.choice(DAMAGES)
            case.data = change(rng, case.data)
            case.damage.append(change.__name__)
    if case.suffix.endswith(".gz"):
        case.data = gzip.compress(case.data, mtime=0)
        if rng.random() < 0.3:
            case.data = rng.choice([cut, flip, delete, insert])(rng, case.data)
            case.damage.append("compressed")


def parquet(
    rng: random.Random, case: Case, path: Path, whole: bool = False
) -> Callable[..., reference.Reading]:
    """Write a Parquet file of columns of all kinds; return how the reference reads it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for _ in range(0 if whole else rng.choice([0, 0, 1, 2])):
        rows, k = case.records, rng.randrange(len(case.records))
        what = rng.choice(["again", "value", "swap"])
        case.damage.append(what)
        if what == "again":
            rows.insert(rng.randrange(len(rows) + 1), list(rows[k]))
        elif what == "value":
            rows[k][rng.randrange(len(rows[k]))] = rng.choice([*ODD_VALUES, "", None, "0"])
        else:
            other = rng.randrange(len(rows))
            rows[k], rows[other] = rows[other], rows[k]
    columns = []
    for j in range(len(case.names)):
        values = [row[j] for row in case.records]
        columns.append(arrow_column(rng, values))
    for k, row in enumerate(case.records):
        row[:] = [column[k].as_py() for column in columns]
    size = rng.choice([None, 1, 3])
    pq.write_table(pa.table(dict(zip(case.names, columns, strict=True))), path, row_group_size=size)
    return lambda **options: reference.read_records(case.names, case.records, **options)


def arrow_column(rng: random.Random, values: list[Any]) -> Any:
    """Return a column of numbers where all values allow it, else of strings."""
    import pyarrow as pa

    texts = [None if v is None else str(v) for v in values]
    spelled = {t for t in texts if t is not None}
    if rng.random() < 0.6:
        empty = [None if t in (None, "", "NA") else t for t in texts]
        for kind, parse in ((pa.int64(), int), (pa.int8(), int), (pa.float64(), float)):
            try:
                numbers = [None if t is None else parse(t) for t in empty]
                if all(t is None or str(v) == t for v, t in zip(numbers, empty, strict=True)):
                    return pa.array(numbers, kind)
            except (ValueError, pa.ArrowInvalid):
                continue
        if spelled <= {"0", "1"} and rng.random() < 0.5:
            return pa.array([None if t is None else t == "1" for t in texts], pa.bool_())
    column = pa.array(texts, rng.choice([pa.string(), pa.large_string()]))
    return column.dictionary_encode() if rng.random() < 0.3 else column


# --- comparison -----------------------------------------------------------------------------------


class DisagreementError(AssertionError):
    """Package and reference differ."""


def must(condition: bool, text: str) -> None:
    if not condition:
        raise DisagreementError(text)


#: In the reference a mark that a response was omitted; the one above it: that it was not reached.
OMITTED = reference.WORDS["omitted"]


def content(store: irt.Responses) -> tuple[Any, ...]:
    blocks = range(store.n_blocks)
    persons = [p for k in blocks for p in store.person_ids(k)]
    data = [store.read_block(k) for k in blocks]
    matrix = cells(store)
    if says_nonresponse(store):
        wrong = cells(store.select(omitted="wrong", not_reached="wrong"))
        late = cells(store.select(omitted="missing", not_reached="wrong"))
        reached = np.where((wrong == 0) & (late < 0), OMITTED, OMITTED + 1)
        matrix = np.where((matrix < 0) & (wrong == 0), reached, matrix)
    matrix = matrix.tolist()
    weights = None if data[0].weight is None else [w for b in data for w in b.weight]
    groups = [g for k in blocks for g in store.groups(k)] if store.has_groups else None
    return persons, list(store.item_id), matrix, weights, groups


def same(store: irt.Responses, expected: reference.Reading, where: str = "") -> None:
    names = ("person_id", "item_id", "response", "weight", "group")
    for name, got, wanted in zip(names, content(store), expected[:5], strict=True):
        must(got == wanted, f"{where}{name} differs: {got} for {wanted}")


def counts(case: Case, expected: reference.Reading) -> tuple[int, ...]:
    """The number of categories of each item."""
    given = case.options.get("categories")
    if given == "data":
        codes = np.where(np.array(expected.matrix) < reference.MOST, expected.matrix, -1)
        return tuple(np.maximum(2, 1 + codes.max(axis=0)).tolist())
    others, named = reference.categories_of(given)
    return tuple(named.get(item, others) for item in expected.items)


def compare(path: Path, case: Case, read: Callable[..., reference.Reading], tally: Counter) -> None:
    """Ingest once for each way of treating bad rows, and compare."""
    options = dict(case.options)
    if "key" in options and len(case.data) % 2:
        options["key"] = path.with_name("key.csv")
        with options["key"].open("w", newline="") as f:
            csv.writer(f).writerows([("item", "key"), *case.options["key"].items()])
    if isinstance(options.get("categories"), dict) and len(case.data) % 2:
        options["categories"] = path.with_name("key.csv")
        with options["categories"].open("w", newline="") as f:
            csv.writer(f).writerows([("item", "categories"), *case.options["categories"].items()])
    layout = random.Random(len(case.data)).choice(["auto", "dense", "csr"])
    options |= {
        "layout": layout,
        "rows_per_block": random.Random(path.name).choice([None, None, 1, 4]),
        "null_categories": "keep",
    }
    try:
        expected: reference.Reading | None = reference.answered(read(**case.options))
        refused_at = None
    except reference.RefusedError as refused:
        expected, refused_at = None, refused.line
    folder = path.parent
    before = {p.name for p in folder.iterdir()} | {"key.csv"}

    # bad rows are errors
    bad = expected.bad if expected else None
    try:
        store = irt.ingest(path, folder / "a", **options)
    except InputError as error:
        must(bad != [], f"refused, where the reference takes it: {error}")
        must({p.name for p in folder.iterdir()} <= before, "something was left behind")
        named = re.search(r", (?:line|row) (\d+):", str(error))
        if named and bad:
            line = int(named[1])
            must(line in bad, f"line {line} named, bad are {bad}: {error}")
            must(line == bad[0] or bool(case.damage), f"line {line} named, {bad[0]} is first")
            tally["refused, first bad line named" if line == bad[0] else "refused, later line"] += 1
        else:
            must(not bad or named is not None, f"no line named, bad are {bad}: {error}")
            tally["refused as a whole"] += 1
    else:
        must(bad == [], f"taken, where the reference refuses: {bad or refused_at or 'the file'}")
        assert expected is not None
        same(store, expected)
        must(store.n_categories == counts(case, expected), f"K: {store.n_categories}")
        store.verify()
        tally["taken"] += 1

    # bad rows are set aside
    if bad == [] and len(case.data) % 4:  # without bad rows it is the same code
        return
    try:
        store = irt.ingest(path, folder / "b", on_error="quarantine", **options)
    except InputError as error:
        # the first piece of a JSON file, here perhaps one line, must have a good object
        no_form = case.kind in ("jsonl", "ndjson") and expected and expected.bad[:1] == [1]
        must(not expected or no_form, f"quarantine: refused, where rows are good: {error}")
        tally["quarantine: refused"] += 1
        return
    must(expected is not None, "quarantine: taken, where the reference refuses all")
    assert expected is not None
    same(store, expected, "quarantine: ")
    (part,) = manifest.read(folder / "b")["parts"]
    file = folder / "b.quarantine.csv"
    rows = list(csv.DictReader(file.open(newline="", encoding="utf-8"))) if file.exists() else []
    must(part["n_quarantined"] == len(rows), f"{part} for {len(rows)} rows in quarantine")
    lines = sorted(int(row["line"]) for row in rows)
    must(lines == expected.bad, f"quarantine: lines {lines}, bad are {expected.bad}")
    must(all(row["reason"] and row.keys() == QUARANTINE for row in rows), f"quarantine: {rows}")
    if rows and case.kind != "parquet":
        raw = reference.read_lines(path)
        for row in rows:
            at, n = int(row["line"]) - 1, 1 + row["text"].count("\n")
            texts = [
                b"\n".join(raw[at : at + k]).decode("utf-8", "backslashreplace")
                for k in range(1, n + 1)
            ]
            # Where rows go over several lines a vertical tab of the file comes back as a line end.
            got, *wanted = (
                re.sub(r"(^|[;\t\r\n])'+", r"\1", x.replace("\v", "\n"))
                for x in (row["text"], *texts)
            )
            must(got in wanted, f"quarantine: text {row['text']!r} for {texts[-1]!r}")
    tally["quarantine: rows set aside"] += len(rows)
    tally["quarantine: files with such rows"] += bool(rows)


QUARANTINE = {"line", "column", "value", "reason", "text"}


def run(seed: int, n: int, folder: Path, graded: bool) -> tuple[Counter, list[str]]:
    """Try ``n`` files; return what happened how often, and what must not happen."""
    tally: Counter = Counter()
    wrong = []
    for k in range(n):
        rng = random.Random(f"{seed}-{k}")
        kind = "parquet" if k % 8 == 7 and PARQUET else rng.choice(TEXT)
        case = make(rng, kind, graded)
        here = folder / str(k)
        here.mkdir()
        if kind == "parquet":
            path = here / "data.parquet"
            read = parquet(rng, case, path)
        else:
            write_text(rng, case)
            damage(rng, case)
            path = here / f"data{case.suffix}"
            path.write_bytes(case.data)
            read = lambda path=path, **options: reference.read(path, **options)  # noqa: E731
        with pytest.MonkeyPatch.context() as patch:
            if k % 5 == 0:
                small_pieces(patch)
            try:
                compare(path, case, read, tally)
            except Exception as error:
                kind_of = (
                    "" if isinstance(error, DisagreementError) else f"{type(error).__name__}: "
                )
                damaged = "+".join(case.damage) or "whole"
                wrong.append(f"{seed}-{k} {path.name} {case.shape} {damaged}: {kind_of}{error}")
        shutil.rmtree(here)
    return tally, wrong


def small_pieces(patch: pytest.MonkeyPatch) -> None:
    """Let pieces have few lines, and partitions of persons few pieces."""
    from irt_dask.ingest.columns import decode
    from irt_dask.ingest.sort import blocks, spill
    from irt_dask.ingest.text import lines

    for module, name, value in (
        (lines, "PIECE", 100), (spill, "PARTITION", 300), (blocks, "_TOGETHER", 8),
        (blocks, "_STRETCH", 6), (decode, "CELLS", 8),
    ):  # fmt: skip
        patch.setattr(module, name, value)


def check(seed: int, n: int, folder: Path, graded: bool) -> None:
    tally, wrong = run(seed, n, folder, graded)
    print(f"\n{n} files: " + ", ".join(f"{v} {k}" for k, v in sorted(tally.items())))
    assert not wrong, f"{len(wrong)} of {n} files:\n" + "\n".join(wrong[:20])
    assert tally["taken"] > n / 6
    assert tally["refused, first bad line named"] > n / 10


@pytest.mark.parametrize("graded", GRADED)
def test_some_files(tmp_path: Path, graded: bool) -> None:
    check(1, 20, tmp_path, graded)


@pytest.mark.slow
@pytest.mark.parametrize("graded", GRADED)
@pytest.mark.parametrize("n", [80, pytest.param(4000, marks=pytest.mark.nightly)])
def test_many_files(tmp_path: Path, n: int, graded: bool) -> None:
    check(2, n, tmp_path, graded)


# --- a file in two halves -------------------------------------------------------------------------


def halves(
    rng: random.Random, folder: Path, graded: bool
) -> tuple[list[Path], list[Any], dict[str, Any]]:
    """Write the two halves of a file; return them, what the reference reads, and the options."""
    kind = rng.choice([*TEXT, "parquet"])
    case = make(rng, kind, graded)
    if case.options.get("categories") == "data":  # which each half would say for itself
        case.options["categories"] = 5
    rows: list[Any] = case.records
    if case.shape == "long":  # no person in both halves, as a rule
        place = next(k for k, name in enumerate(case.names) if is_person(name))
        of = case.names[place] if isinstance(rows[0], dict) else place
        last = rng.choice(rows)[of]
        parts = [[r for r in rows if r[of] != last], [r for r in rows if r[of] == last]]
        if rng.random() < 0.2 and len(parts[1]) > 1:
            parts[0].append(parts[1].pop())
    else:
        at = rng.randint(1, len(rows))
        parts = [rows[:at], rows[at:]]
    paths, readings = [], []
    for k, records in enumerate(parts):
        half = Case(kind, case.shape, case.options, case.names, records)
        path = folder / f"{k}.parquet"
        if kind == "parquet":
            read = parquet(rng, half, path, whole=True)
        else:
            write_text(rng, half)
            path = folder / f"{k}{half.suffix}"
            packed = half.suffix.endswith(".gz")
            path.write_bytes(gzip.compress(half.data) if packed else half.data)
            read = functools.partial(reference.read, path)
        try:
            known = reference.answered(readings[0]).items if k and readings[0] else ()
            readings.append(read(**case.options, known=known))
        except reference.RefusedError:
            readings.append(None)
        paths.append(path)
    return paths, readings, case.options


def is_person(name: str) -> bool:
    return name == "my person" or name.casefold() in reference.ALIASES["person"].split()


def joined(first: reference.Reading, second: reference.Reading | None) -> Any:
    """Return what a store of both holds, None where the second cannot follow the first."""
    if second is None or {*second.persons} & {*first.persons}:
        return None
    new = [
        item
        for j, item in enumerate(second.items)
        if item not in first.items and any(row[j] != reference.MISSING for row in second.matrix)
    ]
    items = [*first.items, *new]
    before = [[*row, *[reference.MISSING] * len(new)] for row in first.matrix]
    place = [second.items.index(i) if i in second.items else None for i in items]
    more = [[-1 if k is None else row[k] for k in place] for row in second.matrix]
    weights = None if first.weights is None else [*first.weights, *second.weights]
    groups = None if first.groups is None else [*first.groups, *second.groups]
    persons = [*first.persons, *second.persons]
    return persons, items, [*before, *more], weights, groups


def append_once(rng: random.Random, folder: Path, graded: bool) -> str:
    """Ingest one half and append the other; return what happened."""
    paths, (first, second), options = halves(rng, folder, graded)
    try:
        first = first and reference.answered(first)
    except reference.RefusedError:
        first = None
    if first is None:
        return "first half refused"
    layout, rows = rng.choice(["dense", "csr"]), [rng.choice([None, 1, 2]) for _ in paths]
    options = {**options, "on_error": "quarantine", "null_categories": "keep"}
    store = folder / "store"
    old = irt.ingest(paths[0], store, layout=layout, rows_per_block=rows[0], **options)
    expected = joined(first, second)
    kept = content(old)
    must(kept == (first.persons, first.items, *first[2:5]), "the first half differs")
    try:
        new = irt.append(paths[1], store, rows_per_block=rows[1], **options)
    except InputError as error:
        must(expected is None, f"refused, where the halves fit: {error}")
        must(irt.open_responses(store).fingerprint == old.fingerprint, "changed all the same")
        must(content(old) == kept, "the first half differs afterwards")
        return "second half refused"
    must(expected is not None, "taken, where the halves do not fit")
    must(content(new) == expected, f"{content(new)} for {expected}")
    must(content(irt.open_responses(store)) == expected, "opened again, it differs")
    must(content(old) == kept, "the handle of before differs")
    must(new.layout == layout, f"layout {new.layout} for {layout}")
    must(new.n_quarantined == len(first.bad) + len(second.bad), f"{new.n_quarantined} set aside")
    new.verify()
    return "both halves taken"


def append(seed: int, n: int, folder: Path, graded: bool) -> None:
    tally: Counter = Counter()
    wrong = []
    for k in range(n):
        here = folder / str(k)
        here.mkdir()
        with pytest.MonkeyPatch.context() as patch:
            if k % 4 == 0:
                small_pieces(patch)
            try:
                tally[append_once(random.Random(f"append {seed}-{k}"), here, graded)] += 1
            except Exception as error:
                wrong.append(f"append {seed}-{k}: {type(error).__name__}: {error}")
        shutil.rmtree(here)
    print(f"\n{n} files in halves: {dict(tally)}")
    assert not wrong, f"{len(wrong)} of {n} files:\n" + "\n".join(wrong[:20])
    assert tally["both halves taken"] > n / 4


@pytest.mark.parametrize("graded", GRADED)
def test_five_files_in_halves(tmp_path: Path, graded: bool) -> None:
    append(1, 5, tmp_path, graded)


@pytest.mark.slow
@pytest.mark.parametrize("graded", GRADED)
@pytest.mark.parametrize("n", [30, pytest.param(1000, marks=pytest.mark.nightly)])
def test_many_files_in_halves(tmp_path: Path, n: int, graded: bool) -> None:
    append(2, n, tmp_path, graded)


# --- files that chance does not find --------------------------------------------------------------

LONG = b'{"person": "a", "item": "i", "response": 1}\n'
ODD: dict[str, tuple[str, bytes, dict[str, Any]]] = {
    "no person has a response": (".jsonl", b'{"id": "a", "responses": {}}\n', {}),
    "a person without responses": (
        ".jsonl",
        b'{"id": "a", "responses": {"q": 1, "r": 0}}\n{"id": "b", "responses": {}}\n',
        {"recode": {"": "wrong"}},
    ),
    "a person without responses, key": (
        ".jsonl",
        b'{"id": "b", "responses": {}}\n{"id": "a", "responses": {"q": "A", "r": "C"}}\n',
        {"key": {"q": "A", "r": "B"}},
    ),
    "nested deep": (".jsonl", LONG + b"[" * 100_000 + b"\n" + LONG.replace(b"i", b"j"), {}),
    "nested deep in a value": (
        ".jsonl",
        LONG + LONG.replace(b"1", b'{"a":' * 50_000 + b"1" + b"}" * 50_000),
        {},
    ),
    "number without end": (".jsonl", LONG + LONG.replace(b"1", b"1" * 6000), {}),
    "id that is a number without end": (".jsonl", LONG.replace(b'"a"', b"7" * 4000), {}),
    "number beyond floats": (".jsonl", LONG + LONG.replace(b"1", b"1e999"), {}),
    "numbers that are right": (
        ".jsonl",
        b"".join(LONG.replace(b"1", v).replace(b'"i"', b'"%s"' % v)
                 for v in (b"1e0", b"10e-1", b"-0.0", b"0e5", b"-1.0", b"1.0000000000000000001")),
        {},
    ),
    "half a surrogate pair": (".jsonl", LONG + LONG.replace(b"a", b"\\ud83d"), {}),
    "a whole surrogate pair": (".jsonl", LONG + LONG.replace(b'"a"', b'"\\ud83d\\ude42"'), {}),
    "NUL in an escape": (".jsonl", LONG + LONG.replace(b'"a"', b'"b\\u0000"'), {}),
    "keys that differ by spaces": (".jsonl", b'{"id": "a", "q": 1, " q": 0}\n', {}),
    "an empty key": (".jsonl", LONG.replace(b"item", b"") + LONG, {}),
    "ids of all kinds": (
        ".jsonl",
        b"".join(LONG.replace(b'"a"', v) for v in (b"1", b"1.0", b"true", b"null", b"[1]", b'" "')),
        {},
    ),
    "JSON of other kinds": (".jsonl", LONG + b'[1]\n"x"\n1\nnull\n{}\n', {}),
    "spaces at the end": (".jsonl", LONG + b"  \n", {}),
    "long fields": (
        ".csv",
        b"id,q\n" + b"x" * 200_000 + b",1\n" + b'"' + b"y" * 200_000 + b'",0',
        {},
    ),
    "a long open quote": (".csv", b"id,q\na,1\n" + b'"' + b"y" * 200_000 + b",0\nb,1\n", {}),
    "many columns": (
        ".csv",
        b"id," + b",".join(b"q%d" % k for k in range(5000)) + b"\na" + b",1" * 5000 + b"\nb"
        + b",0" * 4999 + b"\nc" + b"," * 5000,
        {},
    ),
    "one column": (".csv", b"id\na\nb\n", {}),
    "only spaces": (".csv", b"  \n  \n", {}),
    "rows of spaces": (".csv", b"id,q\na,1\n   \n", {}),
    "delimiters alone": (".csv", b"id,q\na,1\n,\n", {}),
    "quotes alone": (".csv", b'id,q\na,1\n"",""\n', {}),
    "quotes within": (".csv", b'id,q\na"b,1\n"a"b,0\n""c,1\n"""d""",0\n ""e"",1\n', {}),
    "a quote that the next line closes": (".csv", b'id,q\n"a,1\nb",0\nc,1\n', {}),
    "a quote over many lines": (".csv", b'id,q\na,1\n"b,1\nc,0\nd,1\ne",0\nf,1\n', {}),
    "the last quote open": (".csv", b'id,q\na,1\n"b,1', {}),
    "end of the last line, old": (".csv", b"id,q\na,1\nb,0\r", {}),
    "two returns": (".csv", b"id,q\r\na,1\r\r\nb,0\r\n", {}),
    "mark of byte order amid": (".csv", b"\xef\xbb\xbfid,q\n\xef\xbb\xbfa,1\na,0\n", {}),
    "two marks of byte order": (".csv", b"\xef\xbb\xbf\xef\xbb\xbfid,q\na,1\n", {}),
    "mark of byte order alone": (".csv", b"\xef\xbb\xbf", {}),
    "overlong UTF-8": (".csv", b"id,q\na,1\n\xc0\xafb,0\n\xf4\x90\x80\x80c,1\n", {}),
    "file separators": (".csv", b"id,q\na\x1c,1\nb\x1db,0\na\x85c,1\n", {}),
    "Unicode line ends": (".csv", "id,q\na\u2028b,1\nc\u0085d,0\n\u3000e\u3000,1\n".encode(), {}),
    "all rows bad": (".csv", b"id,q\na,2\nb,3\n", {}),
    "a person whose first row is bad": (
        ".csv",
        b"id,item,x,w\na,i,2,1\na,j,1,2\na,k,1,1\nb,i,1,0\nb,i,0,1\nb,i,1,1\n",
        {"columns": {"weight": "w"}},
    ),
    "an item of bad rows alone": (
        ".csv",
        b"id,item,x,w\na,i,1,1\na,j,1,2\nb,k,2,1\n",
        {"columns": {"weight": "w"}},
    ),
    "a wide person twice, the first bad": (".csv", b"id,q\na,2\na,1\na,0\n", {}),
    "weights written in many ways": (
        ".csv",
        b"id,item,x,w\na,i,1,2\na,j,1,2.0\na,k,1,2e0\na,l,1, +2 \na,n,1,1_0\na,o,1,0x2\n",
        {"columns": {"weight": "w"}},
    ),
    "not gzip": (".csv.gz", b"id,q\na,1\n", {}),
    "two members of gzip": (".csv.gz", gzip.compress(b"id,q\na,1\n") + gzip.compress(b"b,0\n"), {}),
    "zeros after gzip": (".csv.gz", gzip.compress(b"id,q\na,1\n") + bytes(64), {}),
    "noise after gzip": (".csv.gz", gzip.compress(b"id,q\na,1\n") + b"noise", {}),
    "nothing in gzip": (".csv.gz", gzip.compress(b""), {}),
    "no bytes in gzip": (".csv.gz", b"", {}),
}  # fmt: skip


@pytest.mark.parametrize("pieces", ["one piece", "small pieces"])
@pytest.mark.parametrize("name", ODD)
def test_odd_file(name: str, pieces: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suffix, data, options = ODD[name]
    monkeypatch.setattr(csv, "field_size_limit", csv.field_size_limit(10**6))
    path = tmp_path / f"data{suffix}"
    path.write_bytes(data)
    if pieces == "small pieces" and len(data) < 1000:
        small_pieces(monkeypatch)
    case = Case(suffix.split(".")[1], "", options, [], [], data, damage=["odd"])
    compare(path, case, lambda **o: reference.read(path, **o), Counter())


def test_damaged_parquet(tmp_path: Path) -> None:
    """Parquet has no checksums here: values may change, but nothing else than an error happens."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = random.Random(4)
    ids = [f"p{k}" for k in range(30)]
    table = pa.table({"person": ids, "q1": [k % 2 for k in range(30)], "q2": ["1", "0", "NA"] * 10})
    pq.write_table(table, tmp_path / "good.parquet", row_group_size=10)
    good = (tmp_path / "good.parquet").read_bytes()
    outcomes: Counter = Counter()
    for k in range(100):
        data = rng.choice([flip, cut, delete, insert])(rng, good)
        path = tmp_path / f"{k}.parquet"
        path.write_bytes(data)
        try:
            irt.ingest(path, tmp_path / f"{k}").verify()
            outcomes["taken"] += 1
        except InputError:
            outcomes["refused"] += 1
    print(f"\n100 damaged Parquet files: {dict(outcomes)}")
    assert outcomes["refused"] > 50
