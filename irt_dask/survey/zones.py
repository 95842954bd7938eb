"""Zones: pairs of sampling units, of which replicates leave out one (JK2) or weigh halves (BRR)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from irt_dask.arrays import Bools, Ints
from irt_dask.errors import InputError, first_of, listed
from irt_dask.survey.units import Drawn, Units


@dataclass(frozen=True)
class Zones:
    """Columns of zones and of the two units of each.

    Zones are 1 to `n` and units 0 and 1; without `n` they are the labels that a table has, sorted.
    """

    zone: str
    unit: str
    n: int | None = None
    #: Each zone with each of its units, once a table was read for its labels.
    drawn: tuple[Drawn, ...] = ()

    def __post_init__(self) -> None:
        if self.n is not None and self.n < 2:
            raise InputError(f"n_zones={self.n}: there must be 2 zones or more")

    @property
    def columns(self) -> list[str]:
        """Columns that are read."""
        return [self.zone, self.unit]

    @property
    def size(self) -> int:
        """How many zones there are."""
        return len(self.drawn) // 2 if self.n is None else self.n

    @property
    def _units(self) -> Units:
        return Units(self.unit, self.zone)

    def counted(self, frames: Iterable[pd.DataFrame]) -> Zones:
        """The same, with the zones and units of a table, in the order of their labels."""
        drawn = self._units.sorted_pairs(frames)
        if not drawn:
            return self  # whoever reads the table says that it has no rows
        by_zone = {zone: [unit for _, unit in pairs]
                   for zone, pairs in groupby(drawn, key=lambda pair: pair[0])}  # fmt: skip
        wrong = [f"{zone!r} has {len(of)} ({listed(of, 5)})"
                 for zone, of in by_zone.items() if len(of) != 2]  # fmt: skip
        if wrong:
            raise InputError(
                f"zones of column {self.zone!r} are pairs of units of column {self.unit!r}, and "
                f"{first_of(wrong)}: put one unit alone into the zone most like it, or take "
                f"units={self.unit!r} and strata={self.zone!r} (of Replicates.from_units), of 2 or "
                f"more each"
            )
        if len(by_zone) < 2:
            raise InputError(
                f"column {self.zone!r} has the one zone {drawn[0][0]!r}: there must be 2 or more"
            )
        return replace(self, drawn=drawn)

    @cached_property
    def _place(self) -> Mapping[Drawn, int]:
        return {pair: k for k, pair in enumerate(self.drawn)}

    def places(self, batch: Mapping[str, NDArray[Any]], first_row: int) -> tuple[Ints, Bools]:
        """The number of each row's zone, from 0, and whether its unit is the second one."""
        if self.n is not None:
            return self._numbered(batch, self.n, first_row)
        pairs, code = self._units.pairs(pd.DataFrame(dict(batch)), first_row)
        place = np.array([self._place[pair] for pair in pairs], dtype=np.int64)[code]
        return place // 2, place % 2 == 1

    def _numbered(
        self, batch: Mapping[str, NDArray[Any]], n: int, first_row: int
    ) -> tuple[Ints, Bools]:
        zone, unit = (np.asarray(batch[k], dtype=np.float64) for k in self.columns)
        for name, values, ok in (
            (self.zone, zone, (zone >= 1) & (zone <= n) & (zone == np.round(zone))),
            (self.unit, unit, (unit == 0) | (unit == 1)),
        ):
            if not ok.all():
                row = int(np.argmin(ok))
                wanted = f"a zone from 1 to {n}" if name == self.zone else "unit 0 or 1"
                raise InputError(
                    f"row {first_row + row + 1}, column {name!r}: {values[row]} is not {wanted}; "
                    f"Replicates.from_zones without n_zones takes any labels"
                )
        return zone.astype(np.int64) - 1, unit == 1
