"""What texts mean as answers to some items alone: ``recode`` by item."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from irt_dask.errors import InputError
from irt_dask.ingest.columns.limits import Limits
from irt_dask.ingest.columns.meanings import meaning_of
from irt_dask.ingest.columns.patterns import HOW, ItemFilter, is_glob, select
from irt_dask.store.categories import MOST

#: The code of each text.
Meanings = Mapping[str, int]


@dataclass(frozen=True)
class ItemRecodes:
    """Codes of texts by item, as the caller listed the items: by names and by globs."""

    names: Mapping[str, Meanings] = field(default_factory=dict)
    globs: Mapping[str, Meanings] = field(default_factory=dict)

    @classmethod
    def of(cls, listed: Mapping[str, Meanings]) -> ItemRecodes:
        """Take what was listed, before the items are known."""
        return cls(listed, {entry: of for entry, of in listed.items() if is_glob(entry)})

    def bound(self, items: Sequence[str] | None, known: Collection[str]) -> ItemRecodes:
        """Return what they are of a file; ``items`` are those of a wide one, in its order.

        Elsewhere items are known only when all is read (:meth:`check`), and have no order.  Items
        of the store (``known``) may lack in a file.  InputError where an entry means no item.
        """
        if items is None:
            return self
        place = {item: k for k, item in enumerate(items)}
        of: dict[str, dict[str, int]] = {}
        for entry, meanings in self.names.items():
            found, problem = select(entry, place)
            if problem and not _any(entry, known):
                raise InputError(f"recode of the item {entry!r}: {problem}; {HOW}")
            for item in found:
                for text, code in meanings.items():
                    _once(of.setdefault(item, {}), item, text, code)
        return ItemRecodes(of)

    def __bool__(self) -> bool:
        return bool(self.names)

    def meanings(self, item: str) -> Meanings:
        """The codes of texts as answers to an item, beside those that all items have."""
        found = [of for entry, of in self.globs.items() if fnmatchcase(item, entry)]
        if not found:
            return self.names.get(item, {})
        return {
            text: code for of in (*found, self.names.get(item, {})) for text, code in of.items()
        }

    def check(self, items: Collection[str], known: Collection[str], limits: Limits) -> None:
        """Refuse what :meth:`check_codes` does, and what means no item, or not surely which.

        ``items`` are those of the file, ``known`` those of the store.
        """
        listed = [entry for entry in self.names if not _any(entry, known)]
        ItemFilter.of(listed, None, "recode").check({*items, *known}, "recode of the item {}")
        self.check_codes(items, limits)

    def check_codes(self, items: Collection[str], limits: Limits) -> None:
        """Refuse a label with two codes for an item, and codes that an item does not have."""
        for item in items:
            of: dict[str, int] = {}
            for entry in (item, *(e for e in self.globs if e != item and fnmatchcase(item, e))):
                for text, code in self.names.get(entry, {}).items():
                    _once(of, item, text, code)
            for text, code in of.items():
                if limits.of(item) <= code < MOST:
                    what = f"recode of the item {item!r}: {text!r} means {code}"
                    raise InputError(f"{what}, and {limits.said(item)}")


def _any(entry: str, items: Collection[str]) -> bool:
    return entry in items or (is_glob(entry) and any(fnmatchcase(i, entry) for i in items))


def _once(of: dict[str, int], item: str, text: str, code: int) -> None:
    if of.setdefault(text, code) != code:
        raise InputError(
            f"recode of the item {item!r}: {text!r} has two meanings, {meaning_of(of[text])!r} and "
            f"{meaning_of(code)!r}, of entries that both mean the item"
        )
