"""How many categories each item has, as far as somebody says it before the file is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from irt_dask.errors import InputError
from irt_dask.store.categories import BINARY, MOST, Collapsed, check_count

#: Said instead of numbers: K is one more than the highest code that occurs.
DATA = "data"


@dataclass(frozen=True)
class Limits:
    """K of each item: that of the store, else what ``categories=`` says, else the scores of a key.

    ``others`` is K of the items that none of them names; where the data decide (``from_data``),
    any code goes until all are read.
    """

    others: int = BINARY
    named: Mapping[str, int] = field(default_factory=dict)
    keyed: Mapping[str, int] = field(default_factory=dict)
    stored: Mapping[str, int] = field(default_factory=dict)  # in files, if some have collapsed
    collapsed: Collapsed = field(default_factory=dict)  # of the store
    declared: bool = False  # by categories=
    from_data: bool = False
    n_facets: int = 0  # levels that follow an item in the name of a column, each after an @

    @classmethod
    def checked(cls, categories: Any) -> Limits:
        """Check a number, a mapping by item, or "data"; None says nothing."""
        if categories is None:
            return cls()
        if isinstance(categories, Mapping):
            named = {item: check_count(item, k) for item, k in categories.items()}
            return cls(named=named, declared=True)
        if isinstance(categories, str):  # "data": everything else is a file, read before
            return cls(others=MOST, declared=True, from_data=True)
        return cls(others=check_count(None, categories), declared=True)

    def with_key(self, scores: Mapping[str, int]) -> Limits:
        """Add the highest scores of a key by item, which say K where ``categories=`` does not."""
        if self.declared and not self.named:
            return self
        return replace(self, keyed={i: max(BINARY, s + 1) for i, s in scores.items()})

    def with_store(
        self, item_id: Sequence[str], n_categories: Sequence[int], collapsed: Collapsed
    ) -> Limits:
        """Add the items of a store, whose K never changes."""
        stored = dict(zip(item_id, n_categories, strict=True))
        stored |= {item: len(codes) for item, codes in collapsed.items()}
        wrong = [i for i, k in self.named.items() if stored.get(i, k) != k]
        if wrong:
            each = [f"{i!r} ({self.named[i]}, in the store {stored[i]})" for i in wrong[:10]]
            raise InputError(
                f"categories= gives {len(wrong)} item(s) another number of categories than the "
                f"store has, which never changes: {', '.join(each)}{' ...' * (len(wrong) > 10)}; "
                f"leave them out"
            )
        return replace(self, stored=stored, collapsed=collapsed)

    def of(self, item: str) -> int:
        """K of an item."""
        for known, name in ((self.stored, item), (self.named, self._item(item)),
                            (self.keyed, item)):  # fmt: skip
            if name in known:
                return known[name]
        return self.others

    def _item(self, column: str) -> str:
        """The item that is a column at some levels of facets."""
        return column.rsplit("@", self.n_facets)[0] if self.n_facets else column

    @cached_property
    def by_item(self) -> bool:
        """Whether K, or what becomes of codes, differs between items."""
        return bool(self.collapsed) or len({self.others, *self._known()}) > 1

    @cached_property
    def most(self) -> int:
        """The largest K that some item may have."""
        return max({self.others} | self._known())

    @property
    def said_most(self) -> int:
        """The largest K that somebody has said: the data say theirs when they are read."""
        return max({BINARY} | self._known()) if self.from_data else self.most

    def _known(self) -> set[int]:
        return {*self.named.values(), *self.keyed.values(), *self.stored.values()}

    def said(self, item: str) -> str:
        """Say what K an item has, and who says so."""
        k = self.of(item)
        codes = f"{k} categories, the codes 0 to {k - 1}"
        if item in self.stored:
            return f"in the store the item {item!r} has {codes}, for good"
        if item in self.keyed and item not in self.named:
            return f"by the key the item {item!r} has {codes}"
        unnamed = (
            ", as categories= does not name it"
            if self.named and self._item(item) not in self.named
            else ""
        )
        return f"the item {item!r} has {codes}{unnamed}" if item else f"items have {codes}"

    def unused(self, item_id: Sequence[str]) -> list[str]:
        """Return the items that ``categories=`` names and neither the data nor the store have."""
        known = {self._item(i) for i in (*item_id, *self.stored)}
        return [item for item in self.named if item not in known]
