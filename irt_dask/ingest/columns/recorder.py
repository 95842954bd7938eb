"""Codes that keep which values they have seen, for a look at a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from irt_dask.arrays import Ints
from irt_dask.ingest.columns.meanings import MISSING, UNKNOWN, meaning_of
from irt_dask.ingest.columns.values import Codes, Distinct
from irt_dask.store.categories import BINARY, MOST

#: Values of a column that are kept apart.
DISTINCT = 50
OTHER = "other values"
#: The meaning of a value that is neither a response nor known to stand for none.
NOT_KNOWN = "unknown"


@dataclass(frozen=True)
class Recorder(Codes):
    """Codes that keep which values they have seen, by item where these are columns."""

    seen: dict[str, Counter[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, codes: Codes) -> Recorder:
        """Return codes that mean the same."""
        return cls(**{f.name: getattr(codes, f.name) for f in fields(codes)})

    def decode(self, values: Distinct, items: Sequence[str], item: Ints) -> np.ndarray:
        """Return the codes of values; count these."""
        n = len(values.values)
        keys = values.index.astype(np.int64)
        if items:
            keys = keys + item.astype(np.int64) * n
        for key, count in zip(*np.unique(keys, return_counts=True), strict=True):
            column = items[key // n] if items else ""
            counter = self.seen.setdefault(column, Counter())
            text = values.stripped[key % n]
            if text not in counter and len(counter) >= DISTINCT:
                text = OTHER
            counter[text] += int(count)
        return super().decode(values, items, item)

    def meaning(self, text: str, column: str) -> str:
        """Return what a value is taken for; a column is an item, or "" where it holds any."""
        code = self.code_of(text, column)
        words = {MISSING: "not observed", UNKNOWN: NOT_KNOWN, None: "an answer"}
        k = self.limits.of(column)
        if code in words:
            return words[code]
        if code is not None and code >= MOST:
            return str(meaning_of(code))
        if code is None or code >= k:
            return NOT_KNOWN
        return ("wrong", "right")[code] if k == BINARY else f"code {code}"

    def n_answers(self, column: str) -> int:
        """Return how many values of a column do not mean not observed, in bad rows too."""
        counts = self.seen.get(column, Counter())
        return sum(n for text, n in counts.items() if self.meaning(text, column) != "not observed")

    def n_unknown(self, column: str) -> int:
        """Return how many different values of a column mean nothing that is known."""
        return sum(self.meaning(text, column) == NOT_KNOWN for text in self.seen.get(column, ()))
