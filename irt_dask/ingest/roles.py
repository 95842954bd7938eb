"""Which column is what, and whether the file is long or wide: decided by name, never guessed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from irt_dask.errors import InputError
from irt_dask.ingest.reader import TextFile

ALIASES = {
    "person": frozenset(
        [
            "person",
            "person_id",
            "id",
            "student",
            "student_id",
            "user",
            "user_id",
            "examinee",
            "examinee_id",
            "subject",
            "subject_id",
        ]
    ),
    "item": frozenset(["item", "item_id", "question", "question_id", "problem", "problem_id"]),
    "response": frozenset(
        ["response", "resp", "score", "correct", "x", "y", "item_score", "answer_correct"]
    ),
}
KEYS = {
    "long": ("person", "item", "response", "weight", "group"),
    "wide": ("person", "items", "weight", "group"),
}
SHOWN = 20  # column names in a message


@dataclass(frozen=True)
class Roles:
    """The shape, and the positions of the columns; item and response (long) or items (wide)."""

    shape: str
    person: int
    item: int | None = None
    response: int | None = None
    items: tuple[int, ...] = ()
    weight: int | None = None
    group: int | None = None


def resolve(
    text: TextFile, shape: str | None, columns: Mapping[str, str | Sequence[str]] | None
) -> Roles:
    """Return the columns' roles, by what the caller said and else by the usual names."""
    if shape not in (None, "long", "wide"):
        raise InputError(f"shape={shape!r} is unknown; say shape='long' or shape='wide'")
    named, items = _named(text, columns)
    taken = {*named.values(), *(items or ())}
    found = {
        role: [named[role]] if role in named else _by_alias(text.header, role, taken)
        for role in ALIASES
    }
    said = {*named} | ({"items"} if items is not None else set())
    shape = shape or _shape_said(text, said) or _shape_found(text, found)
    foreign = sorted(said - {*KEYS[shape]})
    if foreign:
        raise text.error(
            f"columns has {', '.join(map(repr, foreign))}, which a {shape} file does not have; "
            f"a {shape} file has {_listed(KEYS[shape])}"
        )
    weight, group = named.get("weight"), named.get("group")
    if shape == "long":
        one = {role: _single(text, role, shape, found[role]) for role in ALIASES}
        return Roles(
            "long", one["person"], one["item"], one["response"], weight=weight, group=group
        )
    person = _single(text, "person", shape, found["person"])
    if items is None:
        items = [k for k in range(len(text.header)) if k not in {person, *named.values()}]
    if not items:
        raise text.error(
            f"a wide file needs columns of items beside {text.header[person]!r}; {_columns(text)}"
        )
    if person in items:
        raise text.error(f"the column {text.header[person]!r} cannot be the person and an item")
    return Roles("wide", person, items=tuple(items), weight=weight, group=group)


def _named(
    text: TextFile, columns: Mapping[str, str | Sequence[str]] | None
) -> tuple[dict[str, int], list[int] | None]:
    """Return the positions of the single columns that the caller named, and of the items."""
    if columns is None:
        return {}, None
    if not isinstance(columns, Mapping):
        raise InputError(
            "columns must be a dict of column names by role, like {'person': 'name'}, "
            f"not {type(columns).__name__}"
        )
    known = dict.fromkeys((*KEYS["long"], *KEYS["wide"]))
    for role in columns:
        if role not in known:
            raise text.error(
                f"columns has the unknown role {role!r}; the roles are {_listed(known)}; "
                f"{_columns(text)}"
            )
    items = _items(text, columns["items"]) if "items" in columns else None
    named = {role: _position(text, role, columns[role]) for role in columns if role != "items"}
    owner: dict[int, str] = dict.fromkeys(items or (), "items")
    for role, position in named.items():
        if position in owner:
            raise text.error(
                f"columns gives {text.header[position]!r} two roles, {owner[position]!r} and "
                f"{role!r}; a column has one"
            )
        owner[position] = role
    return named, items


def _items(text: TextFile, names: object) -> list[int]:
    if isinstance(names, str) or not isinstance(names, Sequence) or not names:
        raise text.error("columns['items'] must be a list of column names")
    positions = [_position(text, "items", name) for name in names]
    if len(set(positions)) < len(positions):
        twice = next(name for name in names if names.count(name) > 1)
        raise text.error(f"columns['items'] has {twice!r} twice")
    return sorted(positions)


def _position(text: TextFile, role: str, name: object) -> int:
    if name not in text.header:
        raise text.error(
            f"columns names {name!r} for {role!r}, and there is no such column; {_columns(text)}"
        )
    return text.header.index(str(name))


def _by_alias(header: list[str], role: str, taken: set[int]) -> list[int]:
    return [
        k for k, name in enumerate(header) if name.casefold() in ALIASES[role] and k not in taken
    ]


def _shape_said(text: TextFile, said: set[str]) -> str | None:
    """Return the shape that follows from the roles named, if any."""
    long, wide = bool(said & {"item", "response"}), "items" in said
    if long and wide:
        raise text.error(
            "columns has both 'items' (wide) and 'item' or 'response' (long); "
            "say shape='long' or shape='wide' and give the roles of that shape"
        )
    return "long" if long else "wide" if wide else None


def _shape_found(text: TextFile, found: dict[str, list[int]]) -> str:
    """Return the shape that the column names leave no doubt about."""
    n_person, n_item, n_response = (len(found[role]) for role in ALIASES)
    if n_person == n_item == n_response == 1:
        return "long"
    if n_person == 1 and n_item == n_response == 0:
        return "wide"
    candidates = "; ".join(
        f"{role}: {_listed([text.header[k] for k in places]) if places else 'none'}"
        for role, places in found.items()
    )
    raise text.error(
        f"the column names do not say whether the file is long or wide (by role, {candidates}); "
        f"{_columns(text)}; say shape='long' with columns={{'person': ..., 'item': ..., "
        "'response': ...} or shape='wide' with columns={'person': ...}"
    )


def _single(text: TextFile, role: str, shape: str, places: list[int]) -> int:
    if len(places) == 1:
        return places[0]
    names = [text.header[k] for k in places]
    problem = (
        f"several columns could be the {role}: {_listed(names)}"
        if names
        else (f"no column has a usual name of the {role} ({_listed(sorted(ALIASES[role]))})")
    )
    raise text.error(
        f"{problem}; {_columns(text)}; say shape={shape!r} and columns={{{role!r}: NAME}}"
    )


def _columns(text: TextFile) -> str:
    if len(text.header) == 1:
        return f"the only column is {text.header[0]!r}: is the delimiter {text.delimiter!r}?"
    return f"the columns are {_listed(text.header)}"


def _listed(names: Mapping[str, object] | Sequence[str]) -> str:
    names = list(names)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(map(repr, names[:SHOWN])) + more
