"""The linking error of each row of a trend, from the link that made the later scale the earlier."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple, TypeAlias, TypeGuard

import numpy as np
import pandas as pd
import xarray as xr

from irt_dask.arrays import Floats
from irt_dask.errors import DataWarning, InputError, listed
from irt_dask.items.link_constants import LinkConstants, link_constants
from irt_dask.survey.statistics import Statistic

#: A result of ``link``, or one by variable.
Links: TypeAlias = xr.Dataset | Mapping[str, xr.Dataset]
#: Mean and SD that ability 0 and 1 of the link's scale have in the tables, for all or by variable.
Scale: TypeAlias = tuple[float, float] | Mapping[str, tuple[float, float]]
#: Ability, in SDs of the link's scale, beyond which no group's mean lies: the unit is another.
_FARTHEST = 10.0


class _Link(NamedTuple):
    """Constants, their covariance, and the unit of the tables."""

    constants: LinkConstants
    mean: float
    sd: float

    def ability(self, value: float) -> float:
        """Ability on the scale of bank_a."""
        return (value - self.mean) / self.sd

    def at(self, value: float) -> float:
        """Standard error of a score of the later table."""
        return self.sd * float(self.constants.error_at(self.ability(value)))

    def of_spread(self, value: float) -> float:
        """Standard error of an SD, or of a difference of scores."""
        return abs(value) * math.sqrt(self.constants.covariance[0, 0]) / self.constants.slope


def has_links(given: Any) -> TypeGuard[Links]:
    """Whether a linking error is said by links; a Dataset is a mapping too."""
    if isinstance(given, xr.Dataset) or not isinstance(given, Mapping):
        return isinstance(given, xr.Dataset)
    return any(isinstance(x, xr.Dataset) for x in given.values())


def errors_of_links(
    given: Links, keys: pd.DataFrame, estimates: Floats, names: Sequence[str],
    statistics: Sequence[Statistic], scale: Scale | None,
) -> Floats:  # fmt: skip
    """The linking error of each row of `keys`, (rows,), whose later values are `estimates`.

    `given` is a result of ``link`` or a mapping of them by variable; `names` are those of rows.
    """
    scored = [s.kind not in ("weight", "correlation") for s in statistics]
    variables = list(dict.fromkeys(keys["variable"][scored]))
    links = _links(given, variables, scale)
    out = np.zeros(len(keys))
    rows = zip(keys["variable"], keys["row"], estimates, names, statistics, strict=True)
    for i, (variable, row, value, name, s) in enumerate(rows):
        if scored[i]:
            out[i] = _of_row(links[variable], value, name, s, row == "gap")
    return out


def degrees_of_links(given: Links, variables: pd.Series) -> Floats:
    """Degrees of freedom of the linking error of rows, (rows,): units of a jackknife less 1.

    Infinite where a link does not say so many units, or none is of the variable.
    """

    def of(link: Any) -> float:
        n = link.attrs.get("n_units") if isinstance(link, xr.Dataset) else None
        return np.inf if n is None else max(float(n) - 1.0, 1.0)

    if isinstance(given, xr.Dataset):
        return np.full(len(variables), of(given))
    return np.array([of(given.get(name)) for name in variables])


def _links(given: Links, variables: Sequence[str], scale: Scale | None) -> dict[str, _Link]:
    if isinstance(given, xr.Dataset):
        if len(variables) > 1:
            raise InputError(
                f"linking_error= is one link, and the tables have {listed(variables)}, each on a "
                f"scale of its own: give a mapping from variable to its link"
            )
        given = dict.fromkeys(variables, given)
    if set(given) != set(variables):
        raise InputError(
            f"linking_error= has links of {listed(given)}, and the tables have {listed(variables)}"
        )
    by_variable = scale if isinstance(scale, Mapping) else dict.fromkeys(variables, scale)
    if set(by_variable) != set(variables):
        raise InputError(
            f"scale= is given for {listed(by_variable)}, and the tables have {listed(variables)}"
        )
    found = {name: _link(given[name], name, by_variable[name]) for name in variables}
    if twice := [name for name in variables if given[name].attrs["error"] == "delta"]:
        warnings.warn(
            f"the link of {listed(twice)} has error='delta', which holds the sample of persons of "
            f"the calibrations: if these persons are in the tables, their sampling error counts "
            f"twice. error='jackknife' is that of items alone",
            DataWarning,
            stacklevel=6,
        )
    return found


def _link(given: Any, name: str, scale: Any) -> _Link:
    said = f"linking_error= of {name!r}"
    return _Link(link_constants(given, said, ", for each variable; or numbers"), *_checked(scale))


def _checked(scale: Any) -> tuple[float, float]:
    if scale is None:
        return 0.0, 1.0
    if isinstance(scale, Sequence) and len(scale) == 2:
        numbers = all(isinstance(x, Real) and math.isfinite(x) for x in scale)
        if numbers and scale[1] > 0.0:
            return float(scale[0]), float(scale[1])
    raise InputError(
        f"scale={scale!r}: give (mean, SD) that abilities 0 and 1 of the link's scale have in the "
        f"tables, as in (500, 100), the SD positive; or such pairs by variable"
    )


def _of_row(link: _Link, value: float, name: str, s: Statistic, gap: bool) -> float:
    """The linking error of one row: a score moves by A and B, an SD and a gap by A alone."""
    if s.kind == "sd" or (gap and s.kind in ("mean", "percentile")):
        return link.of_spread(value)
    if s.kind in ("mean", "percentile"):
        if abs(ability := link.ability(value)) > _FARTHEST:
            raise InputError(
                f"{name!r} is {value:g} in the later table, an ability of {ability:.0f} on the "
                f"scale of the link: the tables have another unit; give scale=(mean, SD), those "
                f"that ability 0 and 1 have there, as in (500, 100)"
            )
        return link.at(value)
    error = link.at(s.at)
    raise InputError(
        f"{name!r}: how far a shift of the scale moves a share depends on the group, which a link "
        f"does not know. Leave shares out of the tables; or give linking errors in a table, for a "
        f"share half of what lies between 'at least {s.at - error:g}' and 'at least "
        f"{s.at + error:g}'"
    )
