"""Replicate weights: how a survey says what another sample would have given."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.linalg import hadamard

from irt_dask.arrays import Floats
from irt_dask.errors import InputError, listed, repeated
from irt_dask.survey.units import Units
from irt_dask.survey.zones import Zones

#: Column by name: what a batch of a table is.
Columns = Mapping[str, NDArray]

METHODS = ("brr", "fay", "jk1", "jkn", "jk2", "jk2_both")
#: Methods that can be made from pairs of units.
OF_ZONES = ("brr", "fay", "jk2", "jk2_both")
#: Methods that leave out one unit at a time.
_OF_UNITS = ("jk1", "jkn")


def natural(name: str) -> list[str | int]:
    """What sorts W2 before W10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def matching(pattern: str, names: Sequence[str]) -> list[str]:
    """Columns that a name or a pattern stands for, W2 before W10.

    A * is a number and nothing else: PV* would take values of several domains for those of one.
    """
    if pattern in names:
        return [pattern]
    wanted = re.compile(r"\d+".join(map(re.escape, pattern.split("*"))))
    found = sorted((n for n in names if wanted.fullmatch(n)), key=natural)
    if not found:
        what = "matches (a * is a number)" if "*" in pattern else "is"
        ends = {name[begun.end() :]: None for name in sorted(names, key=natural)
                if "*" in pattern and (begun := wanted.match(name))}  # fmt: skip
        longer = f"; {listed((pattern + end for end in ends), 5)} would" if ends else ""
        raise InputError(f"no column {what} {pattern!r}{longer}; there are {listed(names)}")
    return found


def lacking(pattern: str, found: Sequence[str]) -> str | None:
    """What is to be said of columns of a pattern if some seem to have been lost, else None.

    How many there are is known of published surveys; of others that numbers have no gaps.
    """
    before, star, after = pattern.partition("*")
    if not star or "*" in after:
        return None
    digits = [name[len(before) : len(name) - len(after)] for name in found]
    if not all(map(str.isdigit, digits)):  # a column with a * in its name
        return None
    numbers = set(map(int, digits))
    survey, n = _COUNTS.get(pattern, ("", 0))
    wanted = range(1, n + 1) if n else range(min(numbers), max(numbers) + 1)
    if len(wanted) >= 2 * len(numbers) and not n:  # years, as in score2018 and score2022
        return None
    width = min(map(len, digits)) if any(d.startswith("0") for d in digits) else 1
    absent = [f"{before}{k:0{width}d}{after}" for k in wanted if k not in numbers]
    if n and len(found) != n:
        lost = f": {listed(absent, 5)} {'is' if len(absent) == 1 else 'are'} missing"
        return f"{pattern!r} is {len(found)} columns, and {survey} has {n}{lost if absent else ''}"
    if absent:
        return f"of {pattern!r} there are {len(found)} columns, without {listed(absent, 5)}"
    return None


@dataclass(frozen=True)
class Replicates:
    """Replicate weights of a survey, and what their spread is multiplied with.

    The sampling variance of a statistic t is the sum over replicates r of c_r (t_r - t)^2, where
    t_r is the statistic under weights r and t that of the full sample.

    Parameters
    ----------
    method
        ``"brr"``: c = 1/R. ``"fay"``: c = 1 / (R (1 - fay)^2). ``"jk1"``: c = (R - 1)/R.
        ``"jkn"``: c by replicate, ``scale=`` says it ((n_h - 1)/n_h for each unit of stratum h).
        ``"jk2"``: c = 1, one half of each zone left out (NAEP). ``"jk2_both"``: c = 1/2, each
        half of each zone left out in turn (TIMSS and PIRLS from 2015).
    weights
        Columns of replicate weights: names, or a pattern as ``"W_FSTURWT*"``; or :class:`Zones` or
        :class:`Units`, from which they are made (``from_zones``, ``from_units``).
    fay
        Fay's factor, from 0 to below 1; of ``"fay"`` alone.
    scale
        c, a number or one a replicate, where the method's own does not hold; needed by ``"jkn"``.
    weight
        Column of the full sample's weight, which functions take if they are not told another one.
    factors
        The columns are factors of the full sample's weight, not weights.
    first_value
        Sampling variance from the first plausible value alone (TIMSS and PIRLS to 2011); otherwise
        the mean over plausible values.

    Errors
    ------
    InputError
        An unknown method, a factor or scale out of range, columns that are not there.

    Sources
    -------
    Wolter (2007), Introduction to Variance Estimation, chapters 3 and 4; Judkins (1990) for Fay's.

    Examples
    --------
    >>> import irt_dask as irt
    >>> irt.Replicates.preset("pisa").method
    'fay'
    >>> irt.Replicates("jk1", ["w1", "w2", "w3"]).scales(3).round(3)
    array([0.667, 0.667, 0.667])
    """

    method: str
    weights: str | Sequence[str] | Zones | Units
    fay: float | None = None
    scale: float | Sequence[float] | None = None
    weight: str | None = None
    factors: bool = False
    first_value: bool = False

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise InputError(f"method={self.method!r}: replicates are {listed(METHODS)}")
        if (self.fay is not None) != (self.method == "fay"):
            raise InputError(
                f"fay={self.fay!r}: Fay's factor belongs to method='fay', which needs it (PISA: .5)"
            )
        if self.fay is not None and not 0 <= self.fay < 1:
            raise InputError(f"fay={self.fay!r} is not from 0 to below 1")
        of_units = isinstance(self.weights, Units)
        if self.method == "jkn" and self.scale is None and not of_units:
            raise InputError("method='jkn' needs scale=, (n_h - 1) / n_h for each replicate")
        if self.scale is not None and not np.all(np.asarray(self.scale, dtype=np.float64) > 0):
            raise InputError(f"scale={self.scale!r} is not all above 0")
        if isinstance(self.weights, Units):
            _check_units(self.method, self.weights)
        elif isinstance(self.weights, Zones):
            if self.method not in OF_ZONES:
                raise InputError(f"{self.method!r} is not made from zones; {listed(OF_ZONES)} are")
        elif not isinstance(self.weights, str) and (twice := repeated(list(self.weights))):
            raise InputError(f"weights= has {twice[0]!r} twice")

    @classmethod
    def preset(cls, name: str) -> Replicates:
        """Replicates of a published survey, with its names of columns.

        ``"pisa"`` (from 2015), ``"pisa_2012"`` (to 2012), ``"timss"`` (TIMSS and PIRLS from 2015),
        ``"timss_2011"`` (to 2011), ``"naep"``.
        """
        if name not in _PRESETS:
            raise InputError(f"preset {name!r} is not one of {listed(_PRESETS)}")
        return _PRESETS[name]

    @classmethod
    def from_zones(
        cls, method: str, zone: str, unit: str, *, n_zones: int | None = None,
        weight: str | None = None, fay: float | None = None,
    ) -> Replicates:  # fmt: skip
        """Weights made from pairs of units: columns `zone` and `unit`, labels of any kind.

        Zones are the labels of the whole table, which is read once before, and units the two labels
        that each zone has, both sorted; a zone with one unit or with three is an error that names
        it. With `n_zones` zones are 1 to `n_zones` and units 0 and 1, and nothing is read before:
        for a part of the persons replicates are those of all.

        ``"jk2"`` doubles the second unit of a zone and leaves out the first, ``"jk2_both"`` does it
        the other way round too; ``"brr"`` and ``"fay"`` take rows of a Hadamard matrix of the least
        power of 2 above the number of zones, so that zones are balanced.

        >>> import irt_dask as irt, pandas as pd
        >>> persons = pd.DataFrame({"zone": list("aabbccddeeff"), "psu": [1, 2] * 6})
        >>> persons["score"] = [1.0, 2, 4, 5, 7, 8, 8, 9, 3, 5, 6, 6]
        >>> design = irt.Replicates.from_zones("jk2", "zone", "psu")
        >>> irt.tabulate(persons, "score", replicates=design, statistics="mean")[["se", "df"]]
                se  df
        0  0.235702   6
        """
        return cls(method, Zones(zone, unit, n_zones), fay=fay, weight=weight)

    @classmethod
    def from_units(
        cls, units: str, strata: str | None = None, *, weight: str | None = None
    ) -> Replicates:  # fmt: skip
        """Weights that leave out one sampling unit at a time: `units` is the column of schools.

        Without `strata` the jackknife is JK1: of R units one has weight 0 and the others R/(R - 1)
        of theirs, and c = (R - 1)/R. With `strata`, the column within whose levels units were
        drawn, it is JKn: in stratum h of n_h units the others have n_h/(n_h - 1) of theirs, other
        strata what they have, and c = (n_h - 1)/n_h. Units are those of the whole table, which is
        read once before; they have labels of any kind, which may be used again in another stratum.
        A stratum with one unit is an error that names it. Degrees of freedom are units less strata
        (less 1 without). Cost: as of so many replicates; units^2 numbers for each group.

        >>> import irt_dask as irt, pandas as pd
        >>> persons = pd.DataFrame({"school": list("aabbcc"), "score": [1., 2, 3, 4, 5, 6]})
        >>> design = irt.Replicates.from_units("school")
        >>> irt.tabulate(persons, "score", replicates=design, statistics="mean")[["se", "df"]]
                 se  df
        0  1.154701   2
        """
        return cls("jk1" if strata is None else "jkn", Units(units, strata), weight=weight)

    def resolved(self, names: Sequence[str]) -> Replicates:
        """With the columns' names in place of a pattern; an error if one is not there."""
        if isinstance(self.weights, (Zones, Units)):
            for name in self.columns:
                matching(name, names)
            return self
        wanted = [self.weights] if isinstance(self.weights, str) else self.weights
        found = [name for pattern in wanted for name in matching(pattern, names)]
        if len(found) < 2:
            raise InputError(
                f"weights={self.weights!r} is {len(found)} column: 2 are the fewest. If it says "
                f"which sampling unit (school, village) a person is of, give it as "
                f"units={found[0]!r} (of Replicates.from_units)"
            )
        self.scales(len(found))
        return replace(self, weights=found)

    @property
    def columns(self) -> list[str]:
        """Columns that are read; of :meth:`resolved` ones."""
        w = self.weights
        if isinstance(w, Units):
            return w.columns
        return w.columns if isinstance(w, Zones) else list(w)

    @property
    def n(self) -> int:
        """Number of replicates; of :meth:`resolved` ones."""
        if isinstance(self.weights, Units):
            return self.weights.n
        if not isinstance(self.weights, Zones):
            return len(self.weights)
        if self.method in ("brr", "fay"):
            return _order(self.weights.size)
        return self.weights.size * (2 if self.method == "jk2_both" else 1)

    def scales(self, n: int) -> Floats:
        """c of each of n replicates, (n,)."""
        if self.scale is not None:
            given = np.asarray(self.scale, dtype=np.float64)
            if given.ndim and given.shape != (n,):
                raise InputError(f"scale= has {given.size} values, and there are {n} replicates")
            return np.broadcast_to(given, (n,)).copy()
        if isinstance(self.weights, Units):
            return self.weights.scales
        if not n:  # zones of a table that has no rows
            return np.zeros(0)
        c = {
            "brr": 1 / n, "jk1": (n - 1) / n, "jk2": 1.0, "jk2_both": 0.5,
            "fay": 1 / (n * (1 - (self.fay or 0.0)) ** 2),
        }[self.method]  # fmt: skip
        return np.full(n, c)

    def matrix(self, batch: Columns, weight: Floats, first_row: int) -> Floats:
        """Replicate weights (persons, replicates) of a batch, checked."""
        if isinstance(self.weights, Zones):
            return weight[:, None] * self._of_zones(batch, self.weights, first_row)
        if isinstance(self.weights, Units):
            return weight[:, None] * self.weights.factors(batch, first_row)
        out = np.stack([batch[name] for name in self.weights], axis=1).astype(np.float64)
        if not np.all(np.isfinite(out) & (out >= 0)):
            row, r = np.argwhere(~(np.isfinite(out) & (out >= 0)))[0]
            raise InputError(
                f"row {first_row + row + 1}, column {self.weights[r]!r}: {out[row, r]} is no weight"
            )
        return out * weight[:, None] if self.factors else out

    def _of_zones(self, batch: Columns, zones: Zones, first_row: int) -> Floats:
        """Factors (persons, replicates)."""
        at, second = zones.places(batch, first_row)
        if self.method in ("brr", "fay"):
            balanced = hadamard(self.n)[:, 1 : zones.size + 1]  # the first is all of one sign
            sign = balanced.T[at]
            up = np.where(second[:, None], sign, -sign) > 0
            k = self.fay or 0.0
            return np.where(up, 2 - k, k)
        out = np.ones((at.size, self.n))
        rows = np.arange(at.size)
        out[rows, at] = np.where(second, 2.0, 0.0)
        if self.method == "jk2_both":
            out[rows, zones.size + at] = np.where(second, 0.0, 2.0)
        return out


def holds_weights(replicates: Replicates) -> bool:
    """Whether its columns are weights, and not factors of them or units that make them."""
    return not (replicates.factors or isinstance(replicates.weights, (Zones, Units)))


def label_columns(replicates: Replicates) -> list[str]:
    """Columns of labels, words or numbers, from which weights are made."""
    w = replicates.weights
    labelled = isinstance(w, Units) or (isinstance(w, Zones) and w.n is None)
    return replicates.columns if labelled else []


def counted(replicates: Replicates, frames: Iterable[pd.DataFrame]) -> Replicates:
    """With the labels of a table, batches of whose :func:`label_columns` these are."""
    if isinstance(replicates.weights, (Zones, Units)):
        return replace(replicates, weights=replicates.weights.counted(frames))
    return replicates


def _check_units(method: str, units: Units) -> None:
    if method not in _OF_UNITS:
        raise InputError(f"{method!r} is not made from units; {listed(_OF_UNITS)} are")
    if (method == "jkn") != (units.strata is not None):
        raise InputError(
            f"method={method!r} and strata={units.strata!r}: with strata units are left out within "
            f"them, method='jkn', and without method='jk1'"
        )


def _order(n_zones: int) -> int:
    """Least power of 2 above the number of zones."""
    return 1 << int(n_zones).bit_length()


_PRESETS = {
    "pisa": Replicates("fay", "W_FSTURWT*", fay=0.5, weight="W_FSTUWT"),
    "pisa_2012": Replicates("fay", "W_FSTR*", fay=0.5, weight="W_FSTUWT"),
    "timss": Replicates("jk2_both", Zones("JKZONE", "JKREP", 75), weight="TOTWGT"),
    "timss_2011": Replicates(
        "jk2", Zones("JKZONE", "JKREP", 75), weight="TOTWGT", first_value=True
    ),
    "naep": Replicates("jk2", "SRWT*", weight="ORIGWT"),
}  # fmt: skip
#: How many replicate weights a survey has, by the pattern of their names.
_COUNTS = {"W_FSTURWT*": ("PISA", 80), "W_FSTR*": ("PISA", 80), "SRWT*": ("NAEP", 62)}
