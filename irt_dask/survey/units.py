"""Sampling units, as schools: replicates that leave out one unit at a time (JK1, JKn)."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from irt_dask.arrays import Floats, Ints
from irt_dask.errors import DataWarning, InputError, TooLargeError, listed
from irt_dask.survey.tables import whole

#: Units at most: a table has for each group a matrix of replicates x replicates.
MOST_UNITS = 5000

#: A stratum (None: there are none) and a unit in it.
Drawn = tuple[Any, Any]


@dataclass(frozen=True)
class Units:
    """Columns of sampling units and of their strata; which there are, once the table was read."""

    unit: str
    strata: str | None = None
    drawn: tuple[Drawn, ...] = ()

    @property
    def columns(self) -> list[str]:
        """Columns that are read."""
        return [self.unit] if self.strata is None else [self.strata, self.unit]

    def counted(self, frames: Iterable[pd.DataFrame]) -> Units:
        """The same, with all units of a table, strata in their order and units in theirs."""
        drawn = self.sorted_pairs(frames)
        if not drawn:
            return self  # whoever reads the table says that it has no rows
        self._check(drawn)
        self._warn_of_names(drawn)
        return replace(self, drawn=drawn)

    def sorted_pairs(self, frames: Iterable[pd.DataFrame]) -> tuple[Drawn, ...]:
        """All units that a table has, each with its stratum; none of a table without rows."""
        found: set[Drawn] = set()
        first_row = 0
        for frame in frames:
            pairs, _ = self.pairs(frame, first_row)
            found.update(pairs)
            first_row += len(frame)
            if len(found) > MOST_UNITS:
                raise TooLargeError(
                    f"column {self.unit!r} has more than {MOST_UNITS:,} sampling units, each a "
                    f"replicate: if it names persons, give the units that were drawn before them; "
                    f"else put units together at random, within strata, to some hundreds"
                )
        return tuple(sorted(found, key=lambda pair: tuple(map(_order, pair))))

    def _check(self, drawn: tuple[Drawn, ...]) -> None:
        """Refuse what leaves nobody when a unit is left out."""
        sizes = Counter(stratum for stratum, _ in drawn)
        alone = [pair for pair in drawn if sizes[pair[0]] == 1]
        if alone and self.strata is None:
            raise InputError(
                f"all persons are of one sampling unit, {alone[0][1]!r} in column {self.unit!r}: "
                f"there must be 2 or more"
            )
        if alone:
            raise InputError(
                f"strata={self.strata!r}: {listed(stratum for stratum, _ in alone)} has one unit "
                f"alone (column {self.unit!r}: {listed(unit for _, unit in alone)}), which says "
                f"nothing of others; put such a stratum together with the one most like it"
            )

    def _warn_of_names(self, drawn: tuple[Drawn, ...]) -> None:
        """Say which labels stand in several strata, unless units are numbered within each."""
        times = Counter(unit for _, unit in drawn)
        several = [unit for unit, n in times.items() if n > 1]
        if several and 2 * len(several) < len(times):
            warnings.warn(
                f"{len(several):,} of the {len(times):,} labels of {self.unit!r} stand in several "
                f"strata of {self.strata!r} and count as a unit in each: {listed(several)}",
                DataWarning,
                stacklevel=5,
            )

    @property
    def n(self) -> int:
        """How many replicates there are."""
        return len(self.drawn)

    @cached_property
    def _of_stratum(self) -> Ints:
        """Units in the stratum of each unit, (units,)."""
        sizes = Counter(stratum for stratum, _ in self.drawn)
        return np.array([sizes[stratum] for stratum, _ in self.drawn], dtype=np.int64)

    @cached_property
    def _place(self) -> Mapping[Drawn, int]:
        return {pair: k for k, pair in enumerate(self.drawn)}

    @property
    def scales(self) -> Floats:
        """(n_h - 1) / n_h of each replicate, n_h the units in its stratum."""
        return (self._of_stratum - 1) / self._of_stratum

    @cached_property
    def _factors(self) -> Floats:
        """Factors (units, replicates) of the weights of each unit's persons.

        A replicate leaves a unit out, and the others of its stratum stand for it.
        """
        number: dict[Any, int] = {}
        strata = np.array([number.setdefault(s, len(number)) for s, _ in self.drawn])
        same = strata[:, None] == strata[None, :]
        out = np.where(same, self._of_stratum / (self._of_stratum - 1), 1.0)
        np.fill_diagonal(out, 0.0)
        return out

    def factors(self, frame: Mapping[str, NDArray[Any]], first_row: int) -> Floats:
        """Factors (persons, replicates) of the weights of some rows."""
        pairs, code = self.pairs(pd.DataFrame(dict(frame)), first_row)
        return self._factors[np.array([self._place[pair] for pair in pairs], dtype=np.intp)[code]]

    def pairs(self, frame: pd.DataFrame, first_row: int) -> tuple[list[Drawn], Ints]:
        """Units that occur in some rows, with their strata; which of them each row is of."""
        each = [_coded(frame[name], name, first_row) for name in self.columns]
        units, unit = each[-1]
        if self.strata is None:
            return [(None, u) for u in units], unit
        strata, stratum = each[0]
        both, code = np.unique(stratum * len(units) + unit, return_inverse=True)
        return [(strata[k // len(units)], units[k % len(units)]) for k in both.tolist()], code


def _coded(column: pd.Series, name: str, first_row: int) -> tuple[list[Any], Ints]:
    """The labels of a column and the number of each row's; an error where one is missing."""
    code, found = pd.factorize(column.to_numpy(dtype=object, na_value=None))
    labels = [whole(label) for label in found.tolist()]
    code = np.array([*(-1 if label == "" else k for k, label in enumerate(labels)), -1])[code]
    if (lacking := code < 0).any():
        raise InputError(
            f"row {first_row + int(np.argmax(lacking)) + 1}, column {name!r} is empty: each person "
            f"is of a sampling unit; give them one of their own where nothing else was drawn"
        )
    return labels, code


def _order(label: Any) -> tuple[bool, Any]:
    """Numbers in their order, text after them."""
    if label is None:
        return False, 0
    return isinstance(label, str), label
