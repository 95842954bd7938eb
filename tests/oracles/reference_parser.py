"""A slow, plain reading of response files: what the documentation says, written down once more.

It shares no code with the package: csv, json and gzip of the standard library, a row at a time, one
dict.  Tests compare what ``ingest`` makes of a file with what this makes of it.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import re
import unicodedata
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ALIASES = {
    "person": "person person_id id student student_id user user_id examinee examinee_id subject "
    "subject_id",
    "item": "item item_id question question_id problem problem_id",
    "response": "response resp score correct x y item_score answer_correct",
}
MISSING_CODES = ("", "NA", "NaN", "nan", "-1", ".", "N/A", "n/a", "#N/A", "<NA>", "NULL", "null")
CODES = {text: code for code in range(15) for text in (f"{code}", f"{code}.0")}
TRUTH = {"TRUE": 1, "True": 1, "true": 1, "FALSE": 0, "False": 0, "false": 0}
ENCODINGS = {  # by byte order mark, the longer ones first
    b"\xff\xfe\0\0": "utf-32", b"\0\0\xfe\xff": "utf-32", b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}  # fmt: skip
WORDS = {"right": 1, "wrong": 0, "missing": -1, "omitted": 15, "not reached": 16}
MOST = 15  # categories of an item; codes from here on say why there is no response
RIGHT, WRONG, MISSING = 1, 0, -1


class RefusedError(Exception):
    """The file is wrong; at a line, or as a whole."""

    def __init__(self, line: int | None = None) -> None:
        super().__init__(line)
        self.line = line


class BadRowError(Exception):
    """This row is wrong."""


class Row(NamedTuple):
    """What one line says."""

    person: str
    cells: list[tuple[str, Any]]
    weight: Any = None
    group: Any = None


class Reading(NamedTuple):
    """Everything that good rows say, and the lines of the others."""

    persons: list[str]
    items: list[str]
    matrix: list[list[int]]
    weights: list[float] | None
    groups: list[str] | None
    bad: list[int]
    n_rows: int


def parse(path: str | Path, **options: Any) -> tuple[Any, ...]:
    """Return ("ok", persons, items, matrix, weights, groups) or ("bad", line or None)."""
    try:
        reading = read(path, **options)
    except RefusedError as refused:
        return "bad", refused.line
    if reading.bad:
        return "bad", min(reading.bad)
    return "ok", *reading[:5]


def read(
    path: str | Path,
    *,
    shape: str | None = None,
    columns: dict[str, Any] | None = None,
    **meanings: Any,
) -> Reading:
    """Read a .csv, .tsv, .tab, .jsonl or .ndjson file, perhaps .gz; set bad rows aside."""
    path = Path(path)
    lines = read_lines(path)
    kind = path.name.lower().removesuffix(".gz").rsplit(".", 1)[-1]
    if kind in ("jsonl", "ndjson"):
        table = json_table(lines, shape, columns or {})
    else:
        table = text_table(lines, "," if kind == "csv" else "\t", shape, columns or {})
    return collect(*table, Codes(**meanings), columns or {})


def read_records(
    names: list[str],
    records: list[list[Any]],
    *,
    shape: str | None = None,
    columns: dict[str, Any] | None = None,
    **meanings: Any,
) -> Reading:
    """Read a table of Python values, as Parquet holds them; rows count from 1."""
    columns = columns or {}
    shape, roles, items = resolve(names, shape, columns)
    rows = [
        (number, row_of(dict(zip(names, record, strict=True)), shape, roles, items))
        for number, record in enumerate(records, 1)
    ]
    return collect(rows, shape, items, Codes(**meanings), columns)


def answered(reading: Reading) -> Reading:
    """Leave out the items that nobody answered, as a new store does."""
    kept = [
        j for j in range(len(reading.items)) if any(row[j] != MISSING for row in reading.matrix)
    ]
    if not kept:
        raise RefusedError(min(reading.bad, default=None))
    matrix = [[row[j] for j in kept] for row in reading.matrix]
    return reading._replace(items=[reading.items[j] for j in kept], matrix=matrix)


# --- lines ----------------------------------------------------------------------------------------


def read_lines(path: Path) -> list[bytes]:
    """Return the lines without their ends; those that are blank at the end are dropped."""
    data = path.read_bytes()
    if path.name.lower().endswith(".gz"):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error):
            raise RefusedError from None
    for mark, name in ENCODINGS.items():
        if data.startswith(mark):
            try:
                data = data.decode(name).encode()
            except UnicodeError:
                raise RefusedError from None
    lines = [line.removesuffix(b"\r") for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n")]
    while lines and not lines[-1]:
        lines.pop()
    if not lines:
        raise RefusedError
    return lines


def text_of(line: bytes) -> str:
    """Return the line as text, if it is one."""
    if not line or b"\0" in line or b"\r" in line:
        raise BadRowError
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        raise BadRowError from None


# --- delimited text -------------------------------------------------------------------------------


def fields_of(line: bytes, delimiter: str) -> list[str]:
    """Split a line; a quoted value that runs over its end would take the line after it too."""
    sentinel = ["the next line"]
    try:
        lines = [text_of(line) + "\n", *sentinel]
        rows = list(csv.reader(lines, delimiter=delimiter))
    except csv.Error:
        raise BadRowError from None
    if len(rows) != 2 or rows[1] != sentinel:
        raise BadRowError
    return [field.strip() for field in rows[0]]


def text_table(
    lines: list[bytes], delimiter: str, shape: str | None, columns: dict[str, Any]
) -> tuple[list[tuple[int, Row | None]], str, list[str]]:
    """Return the rows by line, the shape and the items that the header names."""
    said = re.fullmatch(rb'(?i)"?sep=(\t|[^\w\s"])"?[,;\t|]*', lines[0])
    at = 1 if said else 0
    if len(lines) == at:
        raise RefusedError
    if said:
        delimiter, (header, n) = said[1].decode(), header_of(lines[at:], said[1].decode())
    else:
        delimiter, header, n = looked_at(lines, delimiter)
    width = len(header)
    while header and not header[-1]:
        header.pop()
    called = [name or f"column {k}" for k, name in enumerate(header, 1)]
    called += [f"column {k + 1}" for k in range(len(header), width)]
    if not header or "" in header[1:] or len(set(called)) < width:
        raise RefusedError(1)
    shape, roles, items = resolve([name for name in header if name], shape, columns)
    labels = [roles[role] for role in ("person", "item", "group") if role in roles]
    rows: list[tuple[int, Row | None]] = []
    at += n
    filled = [k for k, line in enumerate(lines) if line.strip(delimiter.encode()) and k >= at]
    del lines[max(filled, default=len(lines)) + 1 :]
    while at < len(lines):
        number, row, n = at + 1, None, 1
        try:
            fields, n = row_at(lines, at, delimiter, width)
            record = dict(zip(header, fields, strict=False))
            if not any(fields[len(header) :]) and not any("\n" in record[name] for name in labels):
                row = row_of(record, shape, roles, items)
        except BadRowError:
            pass
        rows.append((number, row))
        at += n
    return rows, shape, items


def looked_at(lines: list[bytes], delimiter: str) -> tuple[str, list[str], int]:
    """Return the delimiter, the header and how many lines it has."""
    header, n = header_of(lines, delimiter)
    if len(header) > 1:
        return delimiter, header, n
    found = []
    for sign in {*",;\t|"} - {delimiter}:
        try:
            found.append((sign, *header_of(lines, sign)))
        except RefusedError:
            continue
    found = [one for one in found if len(one[1]) > 1]
    if len(found) > 1:
        raise RefusedError(1)
    return found[0] if found else (delimiter, header, n)


def header_of(lines: list[bytes], delimiter: str) -> tuple[list[str], int]:
    """Return the names of the columns and how many lines they take."""
    for n in range(1, len(lines) + 1):
        try:
            names = fields_of(b"\n".join(lines[:n]), delimiter)
        except BadRowError:
            continue
        return [re.sub(r"\s*\n\s*", " ", name) for name in names], n
    raise RefusedError(1)


def row_at(lines: list[bytes], at: int, delimiter: str, width: int) -> tuple[list[str], int]:
    """Return the values of the row that begins on a line, and how many lines it has."""
    try:
        fields = fields_of(lines[at], delimiter)
        if len(fields) != width:
            raise BadRowError
        return fields, 1
    except BadRowError:
        text_of(lines[at])  # a line that is no text goes on nowhere
    for stop in range(at + 2, len(lines) + 1):
        try:
            text = text_of(b"\n".join(lines[at:stop]))
            (row,) = csv.reader([text], delimiter=delimiter, strict=True)
        except csv.Error as error:
            if "unexpected end" in str(error):  # a quote is still open
                continue
            break
        if len(row) != width:
            break
        return [field.strip() for field in row], stop - at
    raise BadRowError


def resolve(
    header: list[str], shape: str | None, columns: dict[str, Any], json_lines: bool = False
) -> tuple[str, dict[str, str], list[str]]:
    """Return the shape, the column of each role and, for a wide file, the item columns."""
    roles = {role: name for role, name in columns.items() if role != "items"}
    items = list(columns.get("items", ()))
    used = [*roles.values(), *items]
    if any(name not in header for name in used) or len(set(used)) < len(used):
        raise RefusedError
    found = {role: alike(header, role, used) for role in ALIASES}
    found |= {role: [name] for role, name in roles.items() if role in ALIASES}
    if shape is None:
        if items and roles.keys() & {"item", "response"}:
            raise RefusedError
        if items:
            shape = "wide"
        elif roles.keys() & {"item", "response"}:
            shape = "long"
        else:
            counts = [len(names) for names in found.values()]
            if counts not in ([1, 1, 1], [1, 0, 0]):
                raise RefusedError
            shape = "long" if counts == [1, 1, 1] else "wide"
    wanted = list(ALIASES) if shape == "long" else ["person"]
    if any(len(found[role]) != 1 for role in wanted):
        raise RefusedError
    foreign = bool(items) if shape == "long" else bool(roles.keys() & {"item", "response"})
    if foreign:
        raise RefusedError
    roles |= {role: found[role][0] for role in wanted}
    if shape == "wide":
        items = [n for n in header if (n in items if items else n not in roles.values())]
        if not items and not json_lines:
            raise RefusedError
    return shape, roles, items


def alike(names: list[str], role: str, taken: list[str]) -> list[str]:
    return [n for n in names if n.casefold() in ALIASES[role].split() and n not in taken]


def row_of(record: dict[str, Any], shape: str, roles: dict[str, str], items: list[str]) -> Row:
    """Return what the record of a flat table says."""
    if shape == "long":
        cells = [(record[roles["item"]], record[roles["response"]])]
    else:
        cells = [(name, record[name]) for name in items]
    extra = {role: record[roles[role]] for role in ("weight", "group") if role in roles}
    return Row(record[roles["person"]], cells, **extra)


# --- JSON lines -----------------------------------------------------------------------------------


def object_of(line: bytes) -> dict[str, Any]:
    """Return the object on a line."""

    def no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = {name.strip(): value for name, value in pairs}
        if len({composed(name) for name in found}) < len(pairs):
            raise BadRowError
        return found

    def no_constant(name: str) -> Any:
        raise BadRowError  # NaN and Infinity are not JSON

    try:
        value = json.loads(
            text_of(line), object_pairs_hook=no_key_twice, parse_constant=no_constant
        )
        if any(b"\0" in text.encode() for text in texts_in(value)):
            raise BadRowError
    except (ValueError, RecursionError):
        raise BadRowError from None
    if not isinstance(value, dict):
        raise BadRowError
    return value


def texts_in(value: Any) -> Iterator[str]:
    """Yield all strings; half a surrogate pair is none, and fails when it is encoded."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, one in value.items():
            yield name
            yield from texts_in(one)
    elif isinstance(value, list):
        for one in value:
            yield from texts_in(one)


def json_table(
    lines: list[bytes], shape: str | None, columns: dict[str, Any]
) -> tuple[list[tuple[int, Row | None]], str, list[str]]:
    """Return the rows by line, and the shape; the first good object says the form."""
    objects: list[tuple[int, dict[str, Any] | None]] = []
    for number, line in enumerate(lines, 1):
        try:
            objects.append((number, object_of(line)))
        except BadRowError:
            objects.append((number, None))
    first = next((value for _, value in objects if value is not None), None)
    if first is None:
        raise RefusedError(1)
    shape, roles, listed = json_form(first, shape, columns)
    rows: list[tuple[int, Row | None]] = []
    for number, value in objects:
        try:
            rows.append((number, json_row(value, shape, roles, listed)))
        except BadRowError:
            rows.append((number, None))
    return rows, shape, []


def json_form(
    first: dict[str, Any], shape: str | None, columns: dict[str, Any]
) -> tuple[str, dict[str, str], list[str] | None]:
    """Return the shape, the keys by role and the items named; role "responses" is the nested."""
    names = [*first]
    said = columns.keys() & {"item", "response", "items"}
    if "responses" in columns or (isinstance(first.get("responses"), dict) and not said):
        nested = columns.get("responses", "responses")
        roles = {role: name for role, name in columns.items() if role != "responses"}
        person = [roles["person"]] if "person" in roles else alike(names, "person", [nested])
        long = all(alike(names, role, [nested]) for role in ("item", "response"))
        if shape == "long" or said or len(person) != 1 or (long and "responses" not in columns):
            raise RefusedError
        roles |= {"person": person[0], "responses": nested}
        if len({*roles.values()}) < len(roles) or any(n not in names for n in roles.values()):
            raise RefusedError
        return "wide", roles, None
    if "items" in columns:  # an item that the first object lacks is not observed
        names += [name for name in columns["items"] if name not in names]
    shape, roles, _ = resolve(names, shape, columns, json_lines=True)
    return shape, roles, columns.get("items")


def json_row(
    value: dict[str, Any] | None, shape: str, roles: dict[str, str], listed: list[str] | None
) -> Row:
    if value is None or any(name not in value for name in roles.values()):
        raise BadRowError
    if shape == "long":
        return row_of(value, shape, roles, [])
    if "responses" in roles:
        answers = value[roles["responses"]]
        if not isinstance(answers, dict):
            raise BadRowError
    else:
        answers = {
            name: v
            for name, v in value.items()
            if (name in listed if listed is not None else name not in roles.values())
        }
    extra = {role: value[roles[role]] for role in ("weight", "group") if role in roles}
    return Row(value[roles["person"]], list(answers.items()), **extra)


# --- values ---------------------------------------------------------------------------------------


class Codes:
    """What a value means."""

    def __init__(
        self,
        missing: Any = (),
        recode: dict[str, Any] | None = None,
        key: dict[str, str] | None = None,
        categories: Any = None,
        reverse: Any = (),
        known: Any = (),
    ):
        more = [missing] if isinstance(missing, (str, int, float)) else list(missing)
        self.others, self.named = categories_of(categories)
        self.known = {*known}  # items of a store to which the file is added
        self.reverse = {composed(item) for item in reverse}
        most = max(self.others, *self.named.values(), 2)
        said = 2 if categories == "data" else most
        if any(CODES.get(str(code).strip(), MOST) < said for code in more):
            raise RefusedError
        self.table = dict.fromkeys([*MISSING_CODES, *written(more)], MISSING)
        if key is None:
            self.table |= {**CODES, **TRUTH}
            self.table.setdefault("None", MISSING)
            self.table |= dict.fromkeys(written(more), MISSING)
        of_items = {i: of for i, of in (recode or {}).items() if isinstance(of, dict)}
        self.of_items: dict[str, dict[str, int]] = {}
        for item, of in of_items.items():
            k = self.named.get(composed(item), self.others)
            meanings = {code: WORDS.get(word, word) for code, word in of.items()}
            if composed(item) in self.of_items or any(k <= c < MOST for c in meanings.values()):
                raise RefusedError
            self.of_items[composed(item)] = {
                text: c for code, c in meanings.items() for text in written([code])
            }
        for code, word in ((c, w) for c, w in (recode or {}).items() if c not in of_items):
            meaning = WORDS.get(word, word)
            if most <= meaning < MOST:
                raise RefusedError
            self.table |= dict.fromkeys(written([code]), meaning)
        self.key = None if key is None else {composed(i): option for i, option in key.items()}
        if key is not None and any(self.key[composed(i)] != option for i, option in key.items()):
            raise RefusedError

    def __call__(self, value: Any, item: str) -> int:
        texts = spellings(value)
        for text in texts:
            if text in self.of_items.get(item, {}):
                return self.category(self.of_items[item][text], item)
        for text in texts:
            if text in self.table:
                return self.category(self.table[text], item)
        if self.key is None or ({*texts} & {"None", "-"} - {*self.key.values()}):
            raise BadRowError
        for text, code in self.table.items():  # beside a key, numbers are compared as numbers
            if one_number(text, texts[-1]):
                return code
        option = self.key.get(item)
        return RIGHT if option in texts or one_number(option, texts[-1]) else WRONG

    def category(self, code: int, item: str) -> int:
        """The code of an item's category, which some items count back."""
        k = self.named.get(item, self.others)
        if not 0 <= code < MOST:
            return code
        if code >= k:
            raise BadRowError
        return k - 1 - code if item in self.reverse else code


def categories_of(categories: Any) -> tuple[int, dict[str, int]]:
    """K of items that are not named, and of those that are."""
    if isinstance(categories, dict):
        named = {composed(item): k for item, k in categories.items()}
        if len(named) < len(categories):
            raise RefusedError
        return 2, named
    return {None: 2, "data": MOST}.get(categories, categories), {}


def number_in(text: str | None) -> float:
    """Return the number that a text is; NaN for others."""
    try:
        return math.nan if text is None or "_" in text else float(text)
    except ValueError:
        return math.nan


def one_number(one: str | None, other: str) -> bool:
    """Whether two texts are the same finite number."""
    return math.isfinite(number_in(one)) and number_in(one) == number_in(other)


def written(codes: Any) -> Iterator[str]:
    """Yield codes as they may stand in a file: 9 is also 9.0, and 9.0 is also 9."""
    for code in codes:
        text, number = str(code).strip(), number_in(str(code))
        yield text
        if (
            math.isfinite(number)
            and number == int(number)
            and text in (str(int(number)), str(number))
        ):
            yield from (str(int(number)), str(number))


def spellings(value: Any) -> list[str]:
    """Return how a value may be written: 9.0 is also 9."""
    if value is None:
        return [""]
    if isinstance(value, bool):
        return ["1" if value else "0"]
    if isinstance(value, str):
        return [value.strip()]
    if isinstance(value, int):
        return [str(value)]
    if isinstance(value, float):
        whole = [str(int(value))] if math.isfinite(value) and value == int(value) else []
        return [*whole, str(value)]
    raise BadRowError


def identifier(value: Any) -> str:
    """Return an id; numbers with a point, true, null and lists are none."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise BadRowError
    text = composed(str(value).strip())
    if not text:
        raise BadRowError
    return text


def composed(text: str) -> str:
    """Return text in the form in which letters with accents are one character."""
    return unicodedata.normalize("NFC", text)


def weight_of(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)) or "_" in str(value):
        raise BadRowError
    try:
        weight = float(value)
    except (ValueError, OverflowError):
        raise BadRowError from None
    if not 0 < weight < math.inf:
        raise BadRowError
    return weight


# --- all rows together ----------------------------------------------------------------------------


def collect(
    rows: list[tuple[int, Row | None]],
    shape: str,
    items: list[str],
    codes: Codes,
    columns: dict[str, Any],
) -> Reading:
    """Put the good rows together, in their order."""
    seen: dict[str, dict[str, int]] = {}
    about: dict[str, tuple[Any, Any]] = {}
    order = dict.fromkeys(map(composed, items))
    if len(order) < len(items):
        raise RefusedError
    bad: list[int] = []
    for line, row in rows:
        try:
            if row is None:
                raise BadRowError
            person = identifier(row.person)
            names = [identifier(item) for item, _ in row.cells]
            if len(set(names)) < len(names):
                raise BadRowError
            answers = {i: codes(v, i) for i, (_, v) in zip(names, row.cells, strict=True)}
            weight = weight_of(row.weight) if "weight" in columns else None
            group = identifier(row.group) if "group" in columns else None
            again = person in seen and (shape == "wide" or names[0] in seen[person])
            if again or about.get(person, (weight, group)) != (weight, group):
                raise BadRowError
        except BadRowError:
            bad.append(line)
            continue
        if codes.key is not None and any(name not in codes.key for name in names):
            raise RefusedError
        about.setdefault(person, (weight, group))
        seen.setdefault(person, {}).update(answers)
        order.update(dict.fromkeys(names))
    lacking = {*codes.reverse, *({*codes.of_items} - codes.known)} - {*order}
    if not seen or not order or lacking:
        raise RefusedError(min(bad, default=None))
    return Reading(
        [*seen],
        [*order],
        [[answers.get(item, MISSING) for item in order] for answers in seen.values()],
        [w for w, _ in about.values()] if "weight" in columns else None,
        [g for _, g in about.values()] if "group" in columns else None,
        bad,
        len(rows),
    )
