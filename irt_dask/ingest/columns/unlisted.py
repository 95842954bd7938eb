"""Answers that score 0 as a key of partial credit does not have them: some may be slips."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from irt_dask.errors import first_of
from irt_dask.ingest.columns.numbers import shorten

#: How often each answer to an item occurs that its key does not have.
Unlisted = dict[str, Counter[str]]
#: Answers to an item that are kept apart; of essays each is another one.
_DISTINCT = 50
_OTHERS = "other answers"
_SHOWN = 10


def graded(key: Mapping[str, Mapping[str, int]]) -> frozenset[str]:
    """Return the items whose key tells more than right from wrong, or what is wrong.

    Where a key has the right option alone, all others are wrong, and few would list them.
    """
    return frozenset(i for i, of in key.items() if max(of.values()) > 1 or 0 in of.values())


def add(found: Unlisted, more: Mapping[str, Mapping[str, int]]) -> None:
    """Add counts to those that were found."""
    for item, counts in more.items():
        own = found.setdefault(item, Counter())
        for answer, n in counts.items():
            own[answer if answer in own or len(own) < _DISTINCT else _OTHERS] += n


def told(found: Unlisted) -> str | None:
    """Say which answers these are, the most frequent first; None where there are none."""
    each = [(n, item, answer) for item, counts in found.items() for answer, n in counts.items()]
    if not each:
        return None
    each.sort(key=lambda one: (-one[0], one[1:]))
    named = [
        f"{answer if answer == _OTHERS else shorten(answer)} to the item {item!r} ({n:,})"
        for n, item, answer in each
    ]
    return (
        f"{sum(n for n, _, _ in each):,} answer(s) score 0 as the key does not have them: "
        f"{first_of(named, _SHOWN)}; if that is meant, give them the score 0 in the key, else mend "
        f"the answers or the key"
    )
