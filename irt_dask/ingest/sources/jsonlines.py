"""JSON lines: an object per line, of one response (long) or of one person (wide).

Wide objects are flattened to a row per response.  Read by the standard library, so that every
value keeps the type that it has in the file; NaN and Infinity are not JSON and make a bad row.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from irt_dask.errors import repeated
from irt_dask.ingest.columns.decode import Decoder, dictionary_of
from irt_dask.ingest.columns.header import Header
from irt_dask.ingest.columns.numbers import shorten
from irt_dask.ingest.columns.patterns import KeyFilter
from irt_dask.ingest.columns.roles import AT, Wanted, resolve
from irt_dask.ingest.columns.rows import Bad, Rows
from irt_dask.ingest.columns.values import Codes
from irt_dask.ingest.sources.source import TextSource
from irt_dask.ingest.text.dialect import Dialect
from irt_dask.ingest.text.lines import TextFile, fault, open_text, split_lines, take_lines
from irt_dask.store.places import Location
from irt_dask.variables import identifier

_DEEP = "values are nested too deeply; write one flat object"
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


class UnfitError(Exception):
    """A line that cannot be taken, and why."""

    def __init__(self, message: str, column: str = "", value: str = "") -> None:
        super().__init__(message, column, value)
        self.message, self.column, self.value = message, column, value


@dataclass(frozen=True)
class JsonSource(TextSource):
    """Responses or persons as JSON lines."""

    keys: KeyFilter  # wide: which are items

    @property
    def form(self) -> str:
        """Wide objects become long rows."""
        return "persons" if self.roles.form == "persons" else "long"

    def read(self, k: int, codes: Codes | None, most: int | None = None) -> Rows:
        """Read piece ``k``; of its bad rows keep the first ``most`` only."""
        data = self.text.read(k)
        lines = split_lines(data)
        spell = codes.spelled if codes is not None else repr
        take = {"long": self._long, "persons": self._person}.get(self.roles.form, self._wide)
        kept: list[tuple[Any, ...]] = []
        at: list[int] = []
        bad: list[Bad] = []
        for j, line in enumerate(lines):
            try:
                rows = take(load(line), spell)
            except UnfitError as e:
                if most is None or len(bad) < most:
                    text = line.decode("utf-8", "backslashreplace")
                    bad.append(Bad(j, e.column, e.value, e.message, text))
            else:
                kept += rows
                at += [j] * len(rows)
        decoder = Decoder(len(lines), np.array(at, dtype=np.int32), bad, decimal=".")
        self._decode(decoder, kept, codes)
        return decoder.finish(lambda offsets: take_lines(data, offsets), most)

    def _decode(self, decoder: Decoder, kept: list[tuple[Any, ...]], codes: Codes | None) -> None:
        """Hand the columns on: person, weight, group, then those of the form."""
        roles = self.roles
        width = 3 + (len(roles.covariates) if roles.form == "persons" else 2)
        columns: list[Any] = list(zip(*kept, strict=True)) if kept else [()] * width
        decoder.label("person", dictionary_of(columns[0]), roles.person)
        if roles.form == "persons":
            numbers = [dictionary_of(c) for c in columns[3:]]
            decoder.covariates(numbers, roles.covariates, roles.labels)
        else:
            assert codes is not None
            decoder.label("item", dictionary_of(columns[3]), roles.item or "item")
            items, name = columns[3], roles.response
            column = (lambda row: items[row]) if name is None else name
            values, of_keys = pa.array(columns[4], pa.string()), roles.form == "wide"
            decoder.responses(values, column, codes, of_keys=of_keys)
        if roles.weight is not None:
            decoder.weights(dictionary_of(columns[1]), roles.weight, roles.weight_kind)
        if roles.group is not None:
            decoder.label("group", dictionary_of(columns[2]), roles.group)

    # --- what one object says -----------------------------------------------------------------

    def _head(self, row: dict[str, Any], spell: Callable[[float], str]) -> tuple[str, ...]:
        """Return person, weight and group."""
        roles = self.roles
        for name in (*roles.single.values(), *roles.facets):
            if name not in row:
                raise UnfitError(f"the key {name!r} is missing; every object needs it", name)
        weight = group = ""
        if roles.weight is not None:
            weight = _number(row[roles.weight], roles.weight, "a weight", spell)
        if roles.group is not None:
            group = _label(row[roles.group], roles.group, "group")
        return _label(row[roles.person], roles.person, "person id"), weight, group

    def _long(self, row: dict[str, Any], spell: Callable[[float], str]) -> list[tuple[Any, ...]]:
        head, roles = self._head(row, spell), self.roles
        assert roles.item is not None
        assert roles.response is not None
        item = _label(row[roles.item], roles.item, "item id")
        if roles.facets:
            parts = [item, *(_label(row[name], name, "level of a facet") for name in roles.facets)]
            for name, part in zip((roles.item, *roles.facets), parts, strict=True):
                if AT in part or not part:
                    raise UnfitError(
                        f"the key {name!r} has {part!r}; items and levels of facets may not be "
                        f"empty or have {AT!r}, which parts them", name, part,
                    )  # fmt: skip
            item = AT.join(parts)
        return [(*head, item, _value(row[roles.response], roles.response, spell))]

    def _wide(self, row: dict[str, Any], spell: Callable[[float], str]) -> list[tuple[Any, ...]]:
        head, roles = self._head(row, spell), self.roles
        if roles.responses is None:
            answers = {k: v for k, v in row.items() if self.keys.takes(k)}
        elif not isinstance(answers := row[roles.responses], dict):
            said = f"the key {roles.responses!r} has the value"
            rule = 'it must be an object of responses by item, like {"q1": 1, "q2": 0}'
            raise _unfit(roles.responses, answers, said, rule)
        rows = [(*head, k, _value(v, k, spell)) for k, v in answers.items()]
        if "" in answers:
            raise UnfitError("the item id is empty; name the item", "item")
        return rows or [(*head, None, "")]

    def _person(self, row: dict[str, Any], spell: Callable[[float], str]) -> list[tuple[Any, ...]]:
        head, roles = self._head(row, spell), self.roles
        unknown = [k for k in row if k not in {*roles.single.values(), *roles.covariates}]
        if unknown:
            rule = f"the key {unknown[0]!r} is not in the first object; give all objects the same"
            raise UnfitError(rule, unknown[0], _shown(row[unknown[0]]))
        return [(*head, *(self._covariate(row, c, spell) for c in roles.covariates))]

    def _covariate(self, row: dict[str, Any], name: str, spell: Callable[[float], str]) -> str:
        given = row.get(name)
        if name in self.roles.labels:
            return "" if given is None else _label(given, name, "label")
        return _number(given, name, "a covariate", spell)


def open_jsonlines(path: Location, scratch: Path, wanted: Wanted, dialect: Dialect) -> JsonSource:
    """Open a file of JSON lines; its first sound object says what the keys are."""
    text = open_text(path, scratch, dialect, share=4)
    row = _first_object(text)
    header = Header([*row], text.error, nests=True)
    roles = resolve(header, wanted, nested=isinstance(row.get("responses"), dict))
    if roles.form == "persons":
        header.checked()
    return JsonSource(
        path=path,
        roles=roles,
        size=text.n_bytes,
        n_pieces=text.n_pieces,
        text=text,
        keys=KeyFilter(
            frozenset(roles.single.values()), frozenset(row),
            *(tuple(listed or ()) for listed in wanted.lists()),
        ),
    )  # fmt: skip


def _first_object(text: TextFile) -> dict[str, Any]:
    """The first that is sound; InputError with what is wrong with the first line if none is."""
    problems: list[str] = []
    for k in range(text.n_pieces):  # the first line has it, unless the file is damaged there
        for line in split_lines(text.read(k)):
            try:
                return load(line)
            except UnfitError as e:
                problems = problems or [e.message]
    raise text.error(problems[0], 1)


def load(line: bytes) -> dict[str, Any]:
    """Return the object of a line, with keys stripped."""
    problem = fault(line)
    if problem is not None:
        raise UnfitError(problem)
    try:
        row = json.loads(line.decode("utf-8"), object_pairs_hook=_object, parse_constant=_constant)
    except RecursionError:
        raise UnfitError(_DEEP) from None
    except ValueError as e:
        raise UnfitError(f"the line is not JSON ({e}); write one object per line") from None
    if not isinstance(row, dict):
        rule = 'where an object is needed, like {"person": ...}'
        raise UnfitError(f"the line is {_kind(row)}, {rule}")
    if b"\\u" in line:  # only so can characters come in that no text has
        _check_text(row)
    return row


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = {identifier(name.strip()): value for name, value in pairs}
    if len(row) < len(pairs):
        twice = repeated(identifier(name.strip()) for name, _ in pairs)[0]
        raise UnfitError(f"the key {twice!r} is there twice; keep one of the two", twice)
    return row


def _constant(name: str) -> Any:
    raise UnfitError(f"{name} is not JSON; write null for what was not observed", "", name)


def _check_text(row: dict[str, Any]) -> None:
    """Refuse halves of surrogate pairs and NUL, which stores and other programs do not keep."""
    try:
        whole = json.dumps(row, ensure_ascii=False)
        whole.encode("utf-8")
    except RecursionError:
        raise UnfitError(_DEEP) from None
    except UnicodeEncodeError:
        raise UnfitError("a \\u escape is half of a surrogate pair; write whole text") from None
    if _NUL.search(whole):
        raise UnfitError("there is a NUL character (\\u0000); write text without it")


# --- values ---------------------------------------------------------------------------------------


def _label(value: Any, column: str, what: str) -> str:
    """Return an id or a group as a string."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise _unfit(column, value, f"column {column!r} has", f"a {what} is a string or a whole number")


def _value(value: Any, column: str, spell: Callable[[float], str]) -> str:
    """Return a response as text would say it."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, (bool, float)):
        return spell(value)
    if isinstance(value, int):
        return str(value)
    rule = "a response is a number, a string, true, false or null"
    raise _unfit(column, value, f"column {column!r} has {_kind(value)},", rule)


def _number(value: Any, column: str, what: str, spell: Callable[[float], str]) -> str:
    """Return a weight or covariate as text; what it says is checked later."""
    if isinstance(value, (bool, list, dict)):
        raise _unfit(column, value, f"column {column!r} has {_kind(value)},", f"{what} is a number")
    return repr(value) if isinstance(value, float) else _value(value, column, spell)


def _unfit(column: str, value: Any, said: str, rule: str) -> UnfitError:
    shown = _shown(value)
    return UnfitError(f"{said} {shorten(shown)}; {rule}", column, shown)


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "true or false"}
    return "null" if value is None else kinds.get(type(value), "a number")


def _shown(value: Any) -> str:
    try:
        return value if isinstance(value, str) else json.dumps(value)
    except RecursionError:
        return "..."
