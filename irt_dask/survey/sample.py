"""A sample of the values of each group, whose quantiles part what the others are sorted into."""

from __future__ import annotations

from typing import Any

import numpy as np

from irt_dask.arrays import Floats

#: A variable and a group.
Cell = tuple[str, tuple[Any, ...]]
#: Bytes of values that a sample holds at most.
_MOST_BYTES = 1 << 27


class Sample:
    """As many persons as memory may hold, drawn from all groups at one rate.

    What is drawn has no effect on results, only on how even the bins are that they are found in.
    """

    def __init__(self) -> None:
        self._random = np.random.Generator(np.random.Philox(0))
        self._rate, self._bytes = 1.0, 0
        self._values: dict[Cell, list[Floats]] = {}

    def add(self, cell: Cell, x: Floats) -> None:
        """Add values (persons, plausible values) of a group, or some of them."""
        if not (x := self._some(x, self._rate)).size and cell in self._values:
            return
        self._values.setdefault(cell, []).append(x)
        self._bytes += x.nbytes
        while self._bytes > _MOST_BYTES:
            self._rate /= 2
            self._values = {of: [self._some(np.concatenate(parts), 0.5)]
                            for of, parts in self._values.items()}  # fmt: skip
            self._bytes = sum(x.nbytes for (x,) in self._values.values())

    def _some(self, x: Floats, rate: float) -> Floats:
        return x if rate == 1.0 else x[self._random.random(len(x)) < rate]

    def edges(self, cell: Cell, n_bins: int) -> list[Floats]:
        """Values that part each plausible value of a group into some `n_bins` of like size.

        A value that many persons have is a bin of its own, from itself to the next number.
        """
        x = np.sort(np.concatenate(self._values[cell]), axis=0)
        at = np.unique(np.linspace(0, max(len(x) - 1, 0), n_bins).astype(np.int64))
        out = []
        for some in x[at[: len(x)]].T + 0.0:  # no -0
            ties = some[1:][some[1:] == some[:-1]]
            out.append(np.unique(np.concatenate([some, np.nextafter(ties, np.inf)])))
        return out
