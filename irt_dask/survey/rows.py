"""Rows of a table: their columns, intervals and order, and what is said about them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student

from irt_dask.errors import DataWarning, listed
from irt_dask.survey.combine import Combined
from irt_dask.survey.plan import Plan
from irt_dask.survey.sums import Gathered, Group

#: Intervals on fewer degrees of freedom are said to be rough.
_FEW = 5
COLUMNS = ("estimate", "se", "se_sampling", "se_imputation", "df", "fraction_missing", "lower",
           "upper", "n")  # fmt: skip


def sorted_groups(groups: Mapping[tuple[Any, ...], Group]) -> list[tuple[Any, ...]]:
    """Numbers in their order, text after them."""
    return sorted(groups, key=lambda key: tuple((isinstance(v, str), v) for v in key))


def interval(
    c: Combined, level: float, least: float = -np.inf, most: float = np.inf
) -> tuple[float, float]:
    """Student's interval within what can be; NaN where errors are not known."""
    half = student.ppf((1 + level) / 2, c.df) * c.se if c.df > 0 else np.nan
    low, high = np.clip([c.estimate - half, c.estimate + half], least, most)
    return float(low), float(high)


def warn_of(out: pd.DataFrame, gathered: Gathered, plan: Plan) -> None:
    """What is not as one might think."""
    said = [f"{n:,} persons without {name!r} are in no group"
            for name, n in gathered.without.items() if n]  # fmt: skip
    said += [f"nobody has a value of {name!r}" for name, g in gathered.groups.items() if not g]
    if len(out):
        group = out[list(plan.by)].astype(str).agg(", ".join, axis=1) if plan.by else pd.Series(
            "all persons", index=out.index)  # fmt: skip
        if "term" in out:
            group = group + ": " + out["term"]
        unknown = out["estimate"].isna()
        designed = plan.replicates is not None
        lost = out["se_sampling"].isna() & ~unknown & designed
        few = ~lost & (out["df"] < _FEW)
        same = pd.Series(False, index=out.index)
        if "statistic" in out:  # totals may be the same by design, as weights are made to be
            same = out["statistic"].str.startswith("at least") & (out["se"] == 0)
        for rows, why in (
            (unknown, "follow from the terms before them in their group, not estimated (NaN)"
             if "term" in out else "groups without weight (NaN)"),
            (lost, "some replicate leaves nobody, errors are not known (NaN)"),
            (few, f"intervals have below {_FEW} degrees of freedom and are rough"),
            (same, "a share of none or all has an error of 0, which is not certainty"),
        ):  # fmt: skip
            if rows.any():
                said.append(f"{why}: {listed(dict.fromkeys(group[rows]))}")
    if said:
        warnings.warn("; ".join(said), DataWarning, stacklevel=3)
