"""Which column is what, and whether the file is long or wide: decided by name, never guessed."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from irt_dask.errors import InputError, listed, repeated
from irt_dask.ingest.columns.header import Header
from irt_dask.ingest.columns.patterns import HOW, entries, is_glob, select
from irt_dask.store.responses import SAMPLING
from irt_dask.variables import identifier

ALIASES = {
    "person": frozenset([
        "person", "person_id", "id", "student", "student_id", "user", "user_id", "examinee",
        "examinee_id", "subject", "subject_id", "model", "model_id", "model_name",
    ]),
    "item": frozenset([
        "item", "item_id", "question", "question_id", "problem", "problem_id", "doc_id",
        "sample_id",
        "prompt_id", "example_id",
    ]),
    "response": frozenset(
        ["response", "resp", "score", "correct", "x", "y", "item_score", "answer_correct",
         "acc", "exact_match", "is_correct"]
    ),
}  # fmt: skip
#: What a table of persons may have beside covariates.
OF_PERSONS = ("weight", "group")
#: What stands between an item and the levels of its facets in the names of columns of a store.
AT = "@"
KEYS = {
    "long": ("person", "item", "response", "weight", "group", "facets"),
    "wide": ("person", "items", "weight", "group", "covariates", "labels"),
    "nested": ("person", "responses", "weight", "group"),
}


@dataclass(frozen=True)
class Roles:
    """The form, and the names of the columns; ``items`` of a wide table, ``responses`` of JSON."""

    form: str  # long, wide, nested or persons
    person: str
    item: str | None = None
    response: str | None = None
    responses: str | None = None
    items: tuple[str, ...] = ()
    confirmed: frozenset[str] = frozenset()  # items that the caller named one by one
    weight: str | None = None
    weight_kind: str = SAMPLING
    group: str | None = None
    covariates: tuple[str, ...] = ()  # of a table of persons
    beside: tuple[str, ...] = ()  # covariates that stand in the rows of a wide table
    labels: frozenset[str] = frozenset()  # covariates of either that are labels, not numbers
    facets: tuple[str, ...] = ()  # of a long table: an item at their levels is a column

    @property
    def single(self) -> dict[str, str]:
        """The columns that hold one value of a row, by role."""
        roles = ("person", "item", "response", "responses", "weight", "group")
        found = {role: getattr(self, role) for role in roles}
        return {role: name for role, name in found.items() if name is not None}


class Wanted(NamedTuple):
    """What the caller said of the columns; the shape "persons" is that of a table of persons."""

    shape: str | None = None
    columns: Mapping[str, str | Sequence[str]] | None = None
    exclude: str | Sequence[str] = ()
    #: Whether there is a table of persons too, where weight and group may stand.
    joined: bool = False

    def lists(self) -> tuple[list[str] | None, list[str]]:
        """Return what was listed as items, if anything was, and what not."""
        items = None if self.columns is None else self.columns.get("items")
        return None if items is None else entries(items), entries(self.exclude) or []


def resolve(header: Header, wanted: Wanted, nested: bool = False) -> Roles:
    """Return the columns' roles, by what the caller said and else by the usual names.

    ``nested`` says that there is a column ``responses`` that holds objects.
    """
    shape = wanted.shape
    if shape == "persons":
        return _of_persons(header, wanted.columns or {})
    named, items = _named(header, wanted.columns, wanted.joined)
    _, left_out = wanted.lists()
    said = {*named} | ({"items"} if items is not None else set())
    said |= {"facets", "covariates"} & {*(wanted.columns or ())}
    if "labels" in (wanted.columns or ()) and not wanted.joined:
        said.add("labels")
    if "responses" in said or (nested and not said & {"item", "response", "items"}):
        _refuse_exclude(header, "nested", left_out)
        return _nested(header, shape, named, said)
    exact = {*header.names}.intersection(items or ())
    facets = _facets(header, wanted.columns, {*named.values()})
    taken = {*named.values(), *exact}
    labels = () if wanted.joined else _beside(header, wanted.columns, taken, "labels")
    covariates = _beside(header, wanted.columns, taken)
    covariates = tuple(dict.fromkeys([*covariates, *labels]))
    found = _found(header, named, {*named.values(), *exact, *facets, *covariates})
    for role, names in found.items():  # what is left out is no candidate, unless it is the only one
        kept = [name for name in names if name not in left_out]
        found[role] = kept if kept or role != "person" else names
    form = shape or _form_said(header, said) or _form_found(header, found)
    _refuse_foreign(header, form, said)
    weight, group = named.get("weight"), named.get("group")
    if form == "long":
        _refuse_exclude(header, form, left_out)
        person, item, response = (_single(header, r, form, found[r]) for r in ALIASES)
        return Roles(form, person, item, response, weight=weight, group=group, facets=facets)
    person = _single(header, "person", form, found["person"])
    chosen = _chosen(header, items, left_out, {person, *named.values(), *covariates})
    if not chosen and not header.nests:  # in JSON the first person may have no responses
        beside = f" and what exclude={left_out!r} leaves out" if left_out else ""
        raise header.error(
            f"a wide file needs columns of items beside {person!r}{beside}; {header.shown()}"
        )
    confirmed = {*(items or ())}.intersection(chosen)
    return Roles(
        form, person, items=tuple(chosen), confirmed=frozenset(confirmed), weight=weight,
        group=group, beside=covariates, labels=frozenset(labels),
    )  # fmt: skip


def _chosen(
    header: Header, items: list[str] | None, left_out: list[str], other: set[str]
) -> list[str]:
    """Return the items of a wide file: those listed, or all columns left, without some."""
    if items is None:
        found = dict.fromkeys(name for name in header.names if name not in other)
    else:
        listed_ones = (_meant(header, entry, other, "columns={{'items': [{}]}}") for entry in items)
        found = dict.fromkeys(itertools.chain.from_iterable(listed_ones))
    for entry in left_out:
        for name in _meant(header, entry, other, "exclude=[{}]"):
            found.pop(name, None)
    return list(found) if header.nests else sorted(found, key=header.place.__getitem__)


def _meant(header: Header, entry: str, other: set[str], option: str) -> list[str]:
    """Return the columns that an entry of a list means."""
    names, problem = select(entry, header.place, other)
    if entry in other:
        problem = f"the column {entry!r} has another role"
    elif header.nests:  # objects may have other keys than the first one, and in another order
        if names and entry not in header.place and not is_glob(entry):
            problem = f"{entry!r} is a range, and the keys of objects have no order"
        elif problem:
            return [] if is_glob(entry) else [entry]
    if problem:
        said = option.format(repr(entry))
        raise header.error(f"{said}: {problem}; {header.shown()}; {HOW}")
    return names


def _refuse_exclude(header: Header, form: str, left_out: list[str]) -> None:
    if left_out:
        raise header.error(
            f"exclude={left_out!r}: only a wide file has columns of items to leave out, and this "
            f"file is {form}"
        )


def _nested(header: Header, shape: str | None, named: dict[str, str], said: set[str]) -> Roles:
    responses = named.get("responses", "responses")
    found = _found(header, named, {responses})
    if shape == "long" or ("responses" not in said and found["item"] and found["response"]):
        raise header.error(
            f"the key {responses!r} holds the responses of a person, and the form asked for or "
            f"found otherwise is long; leave {responses!r} out, or say "
            f"columns={{'responses': {responses!r}}} without a shape"
        )
    _refuse_foreign(header, "nested", said)
    person = _single(header, "person", "wide", found["person"])
    return Roles(
        "nested", person, responses=responses, weight=named.get("weight"), group=named.get("group")
    )


def _of_persons(header: Header, columns: Mapping[str, str | Sequence[str]]) -> Roles:
    """Return the roles of a table of persons: other columns than person, weight, group are numbers.

    But for those that ``columns`` call labels.

    ``columns`` have covariates where the table is that of the responses too, which has weight and
    group.  Otherwise they have what the responses call the person, a name that is tried if the
    usual ones do not say who it is, and the weight and the group that were named and are not there.
    """
    called = columns.get("person", "")
    assert isinstance(called, str)
    if "covariates" in columns:
        labels = frozenset(columns.get("labels", ()))
        return Roles("persons", called, covariates=tuple(columns["covariates"]), labels=labels)
    usual = _by_alias(header, "person", set())
    if len(usual) != 1 and called in header.place:
        usual = [called]
    person = _single(header, "person", "persons", usual)
    special: dict[str, str] = {}
    for role in OF_PERSONS:
        if role in columns:
            special[role] = _known(header, role, columns[role], ", nor in the responses")
            continue
        names = [name for name in header.names if name.casefold() == role]
        if len(names) > 1:
            raise header.error(f"several columns could be the {role}: {listed(names)}; rename one")
        special |= dict.fromkeys(names and [role], names[0] if names else "")
    taken = {person, *special.values()}
    rest = tuple(name for name in header.names if name not in taken)
    labels = frozenset(_beside(header, columns, taken, "labels", tables=False))
    return Roles("persons", person, **special, covariates=rest, labels=labels)  # type: ignore[arg-type]


def _named(
    header: Header, columns: Mapping[str, str | Sequence[str]] | None, joined: bool
) -> tuple[dict[str, str], list[str] | None]:
    """Return the single columns that the caller named, and the items.

    What is ``joined`` may have the weight and the group.
    """
    if columns is None:
        return {}, None
    if not isinstance(columns, Mapping):
        raise InputError(
            "columns must be a dict of column names by role, like {'person': 'name'}, "
            f"not {type(columns).__name__}"
        )
    forms = ("long", "wide", "nested") if header.nests else ("long", "wide")
    known = dict.fromkeys(role for form in forms for role in KEYS[form])
    for role in columns:
        if role not in known:
            raise header.error(
                f"columns={{{role!r}: ...}}: the role is unknown; the roles are {listed(known)}; "
                f"{header.shown()}"
            )
    items = _items(header, columns["items"]) if "items" in columns else None
    several = ("items", "facets", "covariates", "labels")
    elsewhere = [role for role in OF_PERSONS if joined and role in columns
                 and given_name(columns[role]) not in header.place]  # fmt: skip
    named = {role: _known(header, role, columns[role]) for role in columns
             if role not in (*several, *elsewhere)}  # fmt: skip
    owner: dict[str, str] = dict.fromkeys(items or (), "items")
    for role, name in named.items():
        if name in owner:
            raise header.error(
                f"columns= gives {name!r} two roles, {owner[name]!r} and {role!r}; a column has one"
            )
        owner[name] = role
    return named, items


def _facets(
    header: Header, columns: Mapping[str, str | Sequence[str]] | None, taken: set[str]
) -> tuple[str, ...]:
    """Return the columns that hold levels of facets, in the order given."""
    if columns is None or "facets" not in columns:
        return ()
    given = columns["facets"]
    names = [given] if isinstance(given, str) else given
    if not (isinstance(names, Sequence) and names):
        raise InputError(f"facets={given!r} is no list of columns; name one at least")
    found = tuple(_known(header, "facets", name) for name in names)
    if twice := repeated([*taken, *found]):
        raise header.error(
            f"facets={given!r}: the column {twice[0]!r} has another role, or is twice"
        )
    return found


def _beside(
    header: Header, columns: Mapping[str, str | Sequence[str]] | None, taken: set[str],
    role: str = "covariates", *, tables: bool = True,
) -> tuple[str, ...]:  # fmt: skip
    """Return the covariates of persons among the columns, or their labels, in the order given."""
    if columns is None or role not in columns:
        return ()
    if header.nests and tables:
        raise header.error(f"columns={{{role!r}: ...}} is of tables; give persons= with JSON")
    listed_ones = _items(header, columns[role], role)
    option = f"columns={{{{{role!r}: [{{}}]}}}}"
    meant = (_meant(header, entry, taken, option) for entry in listed_ones)
    return tuple(dict.fromkeys(itertools.chain.from_iterable(meant)))


def _items(header: Header, given: object, role: str = "items") -> list[str]:
    """Return what was listed as items, or in another role of several columns."""
    items = entries(given)
    if not items:
        raise header.error(f"columns={{{role!r}: {given!r}}} is no list of columns; {HOW}")
    if twice := repeated(items):
        raise header.error(f"columns={{{role!r}: ...}} has {twice[0]!r} twice")
    return items


def given_name(name: object) -> str | None:
    """Return the name of a column in normal form; None for what is no name."""
    return identifier(name.strip()) if isinstance(name, str) else None


def _known(header: Header, role: str, name: object, nor: str = "") -> str:
    own = given_name(name)
    if own not in header.place:
        raise header.error(
            f"columns={{{role!r}: {name!r}}}: there is no such column{nor}; {header.shown()}"
        )
    return own


def _found(header: Header, named: dict[str, str], taken: set[str]) -> dict[str, list[str]]:
    """Return the columns that could be the person, the item and the response."""
    return {
        role: [named[role]] if role in named else _by_alias(header, role, taken) for role in ALIASES
    }


def _by_alias(header: Header, role: str, taken: set[str]) -> list[str]:
    return [n for n in header.names if n.casefold() in ALIASES[role] and n not in taken]


def _form_said(header: Header, said: set[str]) -> str | None:
    """Return the form that follows from the roles named, if any."""
    long = bool(said & {"item", "response", "facets"})
    wide = bool(said & {"items", "covariates"})
    if long and wide:
        raise header.error(
            "columns= has both 'items' or 'covariates' (wide) and 'item', 'response' or 'facets' "
            "(long); "
            "say shape='long' or shape='wide' and give the roles of that shape"
        )
    return "long" if long else "wide" if wide else None


def _form_found(header: Header, found: dict[str, list[str]]) -> str:
    """Return the form that the column names leave no doubt about."""
    n_person, n_item, n_response = (len(found[role]) for role in ALIASES)
    if n_person == n_item == n_response == 1:
        return "long"
    if n_person == 1 and n_item == n_response == 0:
        return "wide"
    total = ""
    if n_item == 0 and n_response:
        total = f", and exclude={found['response']!r} if it is a total and no item"
    if n_item and not n_person:
        total += (
            "; a table of items, such as a key or numbers of categories, goes with a file of "
            "responses: key=... or categories=..."
        )
    elif not n_person:
        total += "; if no column names the persons, add one, such as id = 1, 2, 3, ..."
    candidates = "; ".join(
        f"{role}: {listed(names) if names else 'none'}" for role, names in found.items()
    )
    raise header.error(
        f"the column names do not say whether the file is long or wide (by role, {candidates}); "
        f"{header.shown()}; say shape='long' with columns={{'person': ..., 'item': ..., "
        f"'response': ...}} or shape='wide' with columns={{'person': ...}}{total}"
    )


def _refuse_foreign(header: Header, form: str, said: set[str]) -> None:
    foreign = sorted(said - {*KEYS[form]})
    if foreign:
        raise header.error(
            f"columns= has {', '.join(map(repr, foreign))}, which a {form} file does not have; "
            f"a {form} file has {listed(KEYS[form])}"
        )


def _single(header: Header, role: str, shape: str, names: list[str]) -> str:
    if len(names) == 1:
        return names[0]
    problem = (
        f"several columns could be the {role}: {listed(names)}"
        if names
        else f"no column has a usual name of the {role} ({listed(sorted(ALIASES[role]))})"
    )
    remedy = f"say shape={shape!r} and columns={{{role!r}: NAME}}"
    if role == "person" and not names:
        remedy += "; if no column tells the persons apart, add one that numbers them"
    if shape == "persons":
        remedy = f"in a table of persons call the column {role!r} in the first line"
    raise header.error(f"{problem}; {header.shown()}; {remedy}")
