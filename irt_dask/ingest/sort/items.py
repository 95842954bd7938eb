"""Which items a source has, as its pieces are read, and which of them a part keeps."""

from __future__ import annotations

import warnings

import numpy as np

from irt_dask.errors import DataWarning, Notice, listed
from irt_dask.ingest.columns.suspects import Seen, by_name, question
from irt_dask.ingest.sort.joining import LISTED
from irt_dask.ingest.sort.runs import NOWHERE
from irt_dask.ingest.sort.spill import Scattered
from irt_dask.ingest.sources.source import Source
from irt_dask.store import Responses
from irt_dask.store.responses import check_item_ids


class Items:
    """The items of a source; those of the store that it is appended to go before them."""

    def __init__(self, source: Source, old: Responses | None) -> None:
        self.source, self.old = source, old
        self.known = () if old is None else old.item_id
        self._place = {item: j for j, item in enumerate(self.known)}
        self._columns = source.item_id or ()  # of a wide source
        self._seen = Seen.nothing(len(self._columns))
        self._named = dict.fromkeys(self._columns)  # whether somebody answered them or not
        self._answered: set[str] = set()

    def add(self, piece: Scattered) -> np.ndarray | None:
        """Take the items of a piece; of rows of responses return their numbers, and then -1.

        That is the number of item -1, of rows that only make a person exist.
        """
        if piece.seen is not None:
            self._seen.add(piece.seen)
        if piece.items is None:
            return None
        self._named |= dict.fromkeys(piece.items)
        self._answered.update(item for item in piece.items if item not in piece.unanswered)
        numbers = [self._place.setdefault(item, len(self._place)) for item in piece.items]
        return np.array([*numbers, -1], dtype=np.int32)

    def found(self) -> tuple[str, ...]:
        """Return the items of the store, then new ones as they first appear."""
        counts = zip(self._columns, self._seen.observed, strict=True)
        self._answered.update(item for item, n in counts if n)
        if not (self._answered if self.old is None else self._named):
            raise self.source.error("has no item: nobody has a response")
        for item in self._columns:
            if item in self._answered:
                self._place.setdefault(item, len(self._place))
        return check_item_ids([*self._place])

    @property
    def named(self) -> list[str]:
        """The items that the source has, whether somebody answered them or not."""
        return [*self._named]

    def read(self) -> list[str]:
        """Return the items that rows have, of the store or new."""
        return [item for item in self._place if item in self._named]

    def kept(
        self, item_id: tuple[str, ...], first: np.ndarray | None
    ) -> tuple[tuple[str, ...], np.ndarray | None]:
        """Leave out new items that nobody answered; return the rest, and which if changed.

        ``first`` are the keys of each item's first row and of its first response, where rows may
        have been refused: items of which those alone had responses are left out too.  Those of the
        store keep their places, and the columns of a wide source without a response are none of the
        items found.
        """
        wide = self.source.item_id is not None
        if wide and first is None:
            return item_id, None
        n = len(self.known)
        if first is None:
            new = [j for j in range(n, len(item_id)) if item_id[j] in self._answered]
        else:
            by_row = range(len(item_id)) if wide else np.argsort(first[0], kind="stable").tolist()
            new = [j for j in by_row if j >= n and first[1][j] < NOWHERE]
        kept = np.array([*range(n), *new], dtype=np.int64)
        if not kept.size:
            raise self.source.error("has no item: nobody has a response")
        if kept.size == len(item_id) and (kept == np.arange(kept.size)).all():
            return item_id, None
        return tuple(item_id[j] for j in kept), kept

    def columns(self, item_id: tuple[str, ...]) -> np.ndarray | None:
        """Return the place of each column of a wide source, -1 where nobody has a response."""
        if self.source.item_id is None:
            return None
        place = {item: j for j, item in enumerate(item_id)}
        return np.array([place.get(item, -1) for item in self._columns], dtype=np.int32)

    def tell(self, item_id: tuple[str, ...]) -> None:
        """Say which items are left out as nobody answered them, and which perhaps are none."""
        path, known = self.source.path, {*self.known}
        empty = [i for i in self._named if i not in self._answered and i not in known]
        if empty:
            text = f"{len(empty)} item(s) without any response are left out: "
            warnings.warn(f"{path}: {text}{listed(empty, LISTED)}", Notice, stacklevel=5)
        if self.source.roles.form != "wide":
            return
        found = by_name([item for item in item_id if item not in known])
        for item, why in self._seen.constant(self._columns).items():
            if item not in known:
                found.setdefault(item, why)
        asked = question(found, self.source.roles.confirmed, LISTED)
        if asked:
            warnings.warn(f"{path}: {asked}", DataWarning, stacklevel=5)
