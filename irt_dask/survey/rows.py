"""Rows of a table: their columns, intervals and order, and what is said about them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student

from irt_dask.arrays import Floats
from irt_dask.errors import DataWarning, listed
from irt_dask.survey.combine import (
    Combined,
    combined,
    degrees_of_freedom,
    is_nothing,
)
from irt_dask.survey.plan import Plan
from irt_dask.survey.replicates import holds_weights
from irt_dask.survey.statistics import Statistic
from irt_dask.survey.sums import Gathered, Group

#: The row of a regression that is no term.
R_SQUARED = "R squared"
#: Variance of a person's replicate weights, next to the weight's square, which is 1 by design:
#: adjustments for nonresponse move it by some hundredths, a wrong method by a factor of 2 or more.
LEAST_SPREAD, MOST_SPREAD = 0.6, 1.6
#: Intervals on fewer degrees of freedom are said to be rough.
FEW = 5
#: An error of a correlation below is rounding, and the correlation -1 or 1.
_NO_ERROR = 1e-12
#: What values of a statistic can be, and what differences of two of them.
_RANGE = {"share": (0.0, 1.0), "sd": (0.0,), "weight": (0.0,)}
RANGE_OF_GAPS = {"share": (-1.0, 1.0), "correlation": (-2.0, 2.0)}

Key = tuple[Any, ...]


@dataclass(frozen=True)
class Found:
    """Statistics of a group, or differences of two: values (weights, plausible values) by name."""

    n: int
    gram: Floats
    values: Mapping[str, Floats]


def order(label: Any) -> tuple[bool, Any]:
    """Numbers in their order, text after them."""
    return isinstance(label, str), label


def sorted_groups(groups: Iterable[Key]) -> list[Key]:
    """Groups in the order of their labels."""
    return sorted(groups, key=lambda key: tuple(map(order, key)))


def rows_of(
    found: Found, statistics: Sequence[Statistic], plan: Plan, level: float, *, gap: bool,
    linked: bool,
) -> Iterator[list[Any]]:  # fmt: skip
    """Name and figures of each statistic of a group, or of a difference of two.

    `linked`: plausible values have the error of a link.
    """
    replicates = plan.replicates
    scales = None if replicates is None else replicates.scales(replicates.n)
    first = replicates is not None and replicates.first_value
    df = degrees_of_freedom(found.gram) if replicates is not None else np.nan
    for s in statistics:
        c = combined(found.values[s.name], scales, df, first_value=first, linked=linked)
        yield [s.name, *c, *interval_of(c, level, s.kind, gap=gap), found.n]


def interval_of(c: Combined, level: float, kind: str, *, gap: bool = False) -> tuple[float, float]:
    """Interval of a statistic of a kind, or of a difference of two, within what it can be."""
    if kind == "correlation" and not gap:
        return _of_correlation(c, level)
    return interval(c, level, *(RANGE_OF_GAPS if gap else _RANGE).get(kind, ()))


def interval(
    c: Combined, level: float, least: float = -np.inf, most: float = np.inf
) -> tuple[float, float]:
    """Student's interval within what can be; NaN where errors are not known."""
    half = student.ppf((1 + level) / 2, c.df) * c.se if c.df > 0 else np.nan
    low, high = np.clip([c.estimate - half, c.estimate + half], least, most)
    return float(low), float(high)


def _of_correlation(c: Combined, level: float) -> tuple[float, float]:
    """Student's interval on Fisher's scale, z = artanh r, where the error is se / (1 - r^2)."""
    if not abs(c.estimate) < 1 or c.se < _NO_ERROR:
        return np.nan, np.nan
    z = c._replace(estimate=np.arctanh(c.estimate), se=c.se / (1 - c.estimate**2))
    low, high = np.tanh(interval(z, level))
    return float(low), float(high)


def warn_of(
    out: pd.DataFrame, gathered: Gathered, plan: Plan, also: Sequence[str] = (), *,
    known: np.ndarray | None = None,
) -> None:  # fmt: skip
    """Say what is not as one might think; `also` says why estimates of `known` rows are NaN."""
    said = [f"{n:,} persons without {name!r} are in no group"
            for name, n in gathered.without.items() if n]  # fmt: skip
    said += _of_weights(gathered, plan)
    if plan.predictors is not None or plan.of_variables:
        said += _of_nobody({f"a value of {k!r}": g for k, g in gathered.groups.items()}, gathered)
    said += _of_nobody(
        {f"values of {a!r} and {b!r}": g for (a, b), g in gathered.pairs.items()}, gathered
    )
    if len(out):
        said += _of_rows(out if known is None else out[~known], plan)
    said += also
    if said:
        warnings.warn("; ".join(said), DataWarning, stacklevel=3)


def _of_nobody(found: Mapping[str, Mapping[Key, Group]], gathered: Gathered) -> Iterator[str]:
    """Groups of the table that have no row, as nobody in them has a value."""
    for what, groups in found.items():
        lacking = sorted_groups(gathered.seen.difference(groups))
        if not groups:
            yield f"nobody has {what}"
        elif lacking:
            names = listed(dict.fromkeys(", ".join(map(str, key)) for key in lacking))
            yield f"nobody has {what} in {names}, which are left out"


def _of_weights(gathered: Gathered, plan: Plan) -> Iterator[str]:
    """Replicate weights that cannot be those of their method."""
    if gathered.nowhere:
        yield (
            f"{gathered.nowhere:,} persons with a weight have none in any replicate: estimates "
            "hold them and errors do not"
        )
    share = gathered.spread
    if plan.replicates is not None and (share < LEAST_SPREAD or share > MOST_SPREAD):
        once = "no weight was given (weight=), and each person counts once; "
        yield (
            f"{once if holds_weights(plan.replicates) and not plan.weight else ''}"
            f"replicate weights do not go with method={plan.replicates.method!r}: a person's w_r "
            f"have a variance about the weight w, sum of c_r (w_r / w - 1)^2, of {share:.2g} in "
            f"the mean, where each method makes it 1, so that errors are about "
            f"{share**0.5:.2g} times what they should be or worse. See to the method, fay= and "
            "scale=; to weight=, which must be the weight that the replicates are of; and whether "
            "they are factors of it (factors=True)"
        )


def _of_rows(out: pd.DataFrame, plan: Plan) -> Iterator[str]:
    """What is to be said of rows, with their groups."""
    group = out[list(plan.by)].astype(str).agg(", ".join, axis=1) if plan.by else pd.Series(
        "all persons", index=out.index)  # fmt: skip
    unknown = out["estimate"].isna()
    nowhere = same = one = flat = pd.Series(False, index=out.index)
    still = is_nothing(out["se_sampling"], out["estimate"])
    if "term" in out:
        group = group + ": " + out["term"]
        flat = unknown & (out["term"] == R_SQUARED)
        nowhere, unknown = unknown & ~flat, nowhere
        if flat.any():
            yield f"without weight, or where values do not differ (NaN): {_listed(group[flat])}"
    else:  # totals may be the same by design, as weights are made to be
        related = out["statistic"] == "correlation"
        same = out["statistic"].str.startswith("at least") & (out["se"] == 0)
        still &= ~same & ~related & (out["statistic"] != "weight")
        one, flat = related & (out["se"] < _NO_ERROR), related & unknown
        unknown = unknown & ~flat
        if flat.any():
            yield ("without weight, or where values do not differ, there is no correlation (NaN): "
                   f"{_listed(group[flat])}")  # fmt: skip
    lost = out["se_sampling"].isna() & out["estimate"].notna() & (plan.replicates is not None)
    few = ~lost & (out["df"] < FEW)
    for rows, why in (
        (nowhere, "follow from the terms before them in their group, or nobody has weight there, "
         "not estimated (NaN)"),
        (unknown, "groups without weight (NaN)"),
        (lost, "under some replicate there is no estimate, errors are not known (NaN)"
         if "term" in out else "some replicate leaves nobody, or all lie in one sampling unit, "
         "errors are not known (NaN)"),
        (few, f"intervals have below {FEW} degrees of freedom and are rough"),
        (same, "a share of none or all has an error of 0, which is not certainty"),
        (still, "no replicate moves an estimate (values that do not differ, a percentile among few "
         "scores), whose error of sampling of 0 is not certainty"),
        (one, "a correlation of -1 or 1 has an error of 0: is it of values with themselves?"),
    ):  # fmt: skip
        if rows.any():
            yield f"{why}: {_listed(group[rows])}"


def _listed(groups: Iterable[str]) -> str:
    return listed(dict.fromkeys(groups))
