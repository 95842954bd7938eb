"""Columns as a user lists them: names, globs (``q*``, ``item_??``) and ranges (``q1:q40``)."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from irt_dask.errors import InputError
from irt_dask.variables import identifier

_GLOB = frozenset("*?[")
HOW = "list names, globs such as 'q*' and ranges such as 'q1:q40'"


def entries(given: object) -> list[str] | None:
    """Return what was listed (one entry need not be in a list) as names are; None for no list."""
    several = [given] if isinstance(given, str) else given
    if not isinstance(several, Sequence) or not all(isinstance(entry, str) for entry in several):
        return None
    return [identifier(entry.strip()) for entry in several]


def is_glob(entry: str) -> bool:
    """Whether an entry has characters that stand for others."""
    return bool(_GLOB & {*entry})


def select(
    entry: str, place: Mapping[str, int], taken: Collection[str] = ()
) -> tuple[list[str], str]:
    """Return the columns that an entry means, in the order of the file; or none, and why.

    ``place`` are the columns with their places.  A column of exactly this name goes before what
    the characters may mean otherwise.  Globs and ranges pass over columns that are ``taken``.
    """
    if entry in place:
        return [entry], ""
    colons = [k for k, character in enumerate(entry) if character == ":"]
    ends = [(entry[:k], entry[k + 1 :]) for k in colons]
    ends = [(first, last) for first, last in ends if first in place and last in place]
    if len(ends) > 1:
        return [], f"{entry!r} may be several ranges of columns; list these columns otherwise"
    if ends:
        first, last = ends[0]
        if place[first] > place[last]:
            return [], f"{first!r} stands after {last!r} in the file; write '{last}:{first}'"
        found = list(place)[place[first] : place[last] + 1]
    elif is_glob(entry):
        found = [name for name in place if fnmatchcase(name, entry)]
    else:
        return [], f"there is no column {entry!r}"
    if not found:
        return [], f"no column matches {entry!r}"
    free = [name for name in found if name not in taken]
    return free, "" if free else f"{entry!r} matches columns of another role only"


@dataclass(frozen=True)
class KeyFilter:
    """Which keys of JSON objects are items: objects may differ, so each key is looked at."""

    roles: frozenset[str]  # keys of persons, weights and groups
    names: frozenset[str]  # keys of the first object, which are none of the globs
    items: tuple[str, ...] = ()  # names and globs; none: all other keys
    exclude: tuple[str, ...] = ()

    def takes(self, key: str) -> bool:
        """Whether the value of a key is a response."""
        return _takes(self, key)


@functools.lru_cache(maxsize=1 << 16)
def _takes(which: KeyFilter, key: str) -> bool:
    if key in which.roles or _is_any(key, which.exclude, which.names):
        return False
    return not which.items or _is_any(key, which.items, which.names)


@dataclass(frozen=True)
class ItemFilter:
    """Items that the caller listed, by exact names and by globs."""

    names: frozenset[str] = frozenset()
    globs: tuple[str, ...] = ()

    @classmethod
    def of(cls, listed: Sequence[str], items: Sequence[str] | None, option: str) -> ItemFilter:
        """Take what was listed for ``option``; ``items`` are those of a wide file, in its order.

        Elsewhere items are known only when all is read (:meth:`check`), and have no order.
        InputError where an entry means none of the items.
        """
        if items is None:
            return cls(frozenset(listed), tuple(filter(is_glob, listed)))
        place = {item: k for k, item in enumerate(items)}
        names: list[str] = []
        for entry in listed:
            found, problem = select(entry, place)
            if problem:
                raise InputError(f"{option}=[{entry!r}], of the items: {problem}; {HOW}")
            names += found
        return cls(frozenset(names))

    def __bool__(self) -> bool:
        return bool(self.names)

    def takes(self, item: str) -> bool:
        """Whether an item is one of them."""
        return item in self.names or any(fnmatchcase(item, glob) for glob in self.globs)

    def check(self, items: Collection[str], said: str) -> None:
        """Refuse what was listed and means none of the items that were read, or not surely these.

        Not for wide files, whose items were known before.  ``said`` has {} for an entry.
        """
        known = {*items}
        for entry in sorted(self.names):
            found = {i for i in known if is_glob(entry) and fnmatchcase(i, entry)}
            if entry not in known and not found:
                raise InputError(
                    f"{said.format(repr(entry))}: there is no such item; list names and globs such "
                    f"as 'q*' (only the columns of a wide file have ranges)"
                )
            if entry in known and found - {entry}:
                raise InputError(
                    f"{said.format(repr(entry))} is an item, and others match it; list the items "
                    f"by name"
                )


def _is_any(key: str, listed: Sequence[str], names: Collection[str]) -> bool:
    return any(key == e or (e not in names and fnmatchcase(key, e)) for e in listed)
