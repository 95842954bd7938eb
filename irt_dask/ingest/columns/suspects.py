"""Item columns of a wide file that are perhaps none: a question to the user, never a decision."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

#: Words, whole ones, that a column has in its name where it tells something else than a response.
WORDS = frozenset([
    "address", "age", "birthdate", "birthday", "birthyear", "booklet", "city", "class",
    "classroom", "cohort", "comment", "comments", "consent", "country", "date", "district", "dob",
    "duration", "education", "email", "ethnicity", "female", "gender", "girl", "grade", "group",
    "household", "income", "language", "male", "migrant", "minutes", "month", "nationality",
    "percent", "percentage", "percentile", "rank", "region", "repeater", "rowid", "school",
    "schoolid", "score", "seconds", "ses", "sex", "stratum", "sum", "teacher", "time",
    "timestamp", "total", "urban", "weight", "year", "zip",
])  # fmt: skip
#: Columns that share a word, such as the items of "grade4_q1" to "grade4_q40", say nothing by it.
_SHARED = 3
#: Fewer equal responses than these are no sign of anything.
ENOUGH = 100
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def words_of(name: str) -> set[str]:
    """Return the words of a name: ``Test_date`` and ``testDate`` have "test" and "date"."""
    return {word.casefold() for word in _WORD.findall(name)}


def by_name(names: Sequence[str]) -> dict[str, str]:
    """Return the columns with a word of ``WORDS`` in their names, which few of them share."""
    of = {name: words_of(name) & WORDS for name in names}
    n = Counter(word for words in of.values() for word in words)
    most = max(_SHARED, len(names) // 10)
    few = {name: sorted(w for w in words if n[w] <= most) for name, words in of.items()}
    return {name: f"the name says {words[0]!r}" for name, words in few.items() if words}


@dataclass
class Seen:
    """What the responses to each item of a wide file are."""

    observed: NDArray[np.int64]  # how many
    lowest: NDArray[np.uint8]  # 255 without any
    highest: NDArray[np.int8]  # -1 without any

    @classmethod
    def nothing(cls, n_items: int) -> Self:
        """Begin, before any row."""
        return cls.of(np.zeros((0, n_items), dtype=np.int8))

    @classmethod
    def of(cls, codes: NDArray[np.int8]) -> Self:
        """Look at rows."""
        return cls(
            (codes >= 0).sum(axis=0, dtype=np.int64),
            codes.view(np.uint8).min(axis=0, initial=255),  # -1 is 255
            codes.max(axis=0, initial=-1),
        )

    def add(self, other: Seen) -> None:
        """Look at more rows."""
        self.observed += other.observed
        np.minimum(self.lowest, other.lowest, out=self.lowest)
        np.maximum(self.highest, other.highest, out=self.highest)

    def constant(self, names: Sequence[str]) -> dict[str, str]:
        """Return the items to which everybody has the same response, if these are enough."""
        same = (self.lowest == self.highest) & (self.observed >= ENOUGH)
        return {
            names[j]: f"all {self.observed[j]:,} responses are {self.lowest[j]}"
            for j in np.flatnonzero(same).tolist()
        }


def question(found: dict[str, str], confirmed: Collection[str], most: int) -> str:
    """Return what to ask about columns that are perhaps no items; "" if there are none."""
    asked = {name: why for name, why in found.items() if name not in confirmed}
    if not asked:
        return ""
    told = [f"{name!r} ({why})" for name, why in list(asked.items())[:most]]
    more = f" and {len(asked) - most} more" if len(asked) > most else ""
    return (
        f"{len(asked)} column(s) are taken for items and perhaps are none: "
        f"{', '.join(told)}{more}; "
        f"leave out what is no item: exclude={list(asked)[:most]!r}; what is named one by one "
        "in columns={'items': ...} is not asked about"
    )
