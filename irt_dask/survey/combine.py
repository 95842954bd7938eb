"""What replicates and plausible values say together: Rubin's rules."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from irt_dask.arrays import Floats

#: Share of a statistic at or below which an error of sampling is rounding.
NO_ERROR = 1e-10


class Combined(NamedTuple):
    """A statistic with its errors; NaN where they cannot be known."""

    estimate: float
    se: float
    se_sampling: float
    se_imputation: float
    df: float
    fraction_missing: float


def combined(
    values: Floats, scales: Floats | None, design_df: float, *, first_value: bool = False,
    linked: bool = False,
) -> Combined:  # fmt: skip
    """Combine values (replicates + 1, plausible values) of a statistic, the full sample's first.

    U is the mean over plausible values of sum_r c_r (t_r - t)^2 (`scales` is c; None: no
    replicates), B the variance of the full sample's values, T = U + (1 + 1/M) B. Degrees of freedom
    are those of Barnard and Rubin (1999), which go to about `design_df` where imputation adds
    nothing, and to Rubin's (1987) where the design's are many. One plausible value: B is not known,
    and se has none of it.

    `linked`: B holds the error of a link too. Barnard and Rubin take from the design's degrees of
    freedom what is not known of persons, and would leave 3 or 4 where most of the error is the
    link's; those of the sum of two variances (Welch and Satterthwaite) are right for it.
    """
    t, m = values[0], values.shape[1]
    estimate = float(t.mean())
    u = np.nan
    if scales is not None:
        used = values[:, :1] if first_value else values
        u = float((scales @ (used[1:] - used[0]) ** 2).mean())
    if m == 1:
        return Combined(estimate, u**0.5, u**0.5, np.nan, design_df, np.nan)
    between = (1 + 1 / m) * float(t.var(ddof=1))
    total = u + between
    share = between / total if total > 0 else np.nan
    if linked:
        rest = (1 - share) ** 2 / design_df if design_df > 0 else np.nan
    else:
        observed = (design_df + 1) / (design_df + 3) * design_df * (1 - share)
        rest = 1 / observed if observed > 0 else np.nan
    df = 1 / (share**2 / (m - 1) + rest)
    return Combined(estimate, total**0.5, u**0.5, between**0.5, df, share)


def unless_one_unit(values: Floats, gram: Floats) -> Floats:
    """Values (replicates + 1, plausible values), or NaN for replicates that weigh all alike.

    The persons of a group lie in a single sampling unit then, which says nothing of others: every
    replicate gives the same, and an error of 0 (or of imputation alone) would look like knowledge.
    """
    moved = np.abs(values[1:] - values[0]).max(initial=0.0)
    if not is_nothing(moved, np.abs(values[0]).max()) or degrees_of_freedom(gram) > 1:
        return values
    return np.concatenate([values[:1], np.full_like(values[1:], np.nan)])


def is_nothing(error: Any, estimate: Any) -> Any:
    """Whether an error is 0 but for rounding."""
    return error <= NO_ERROR * abs(estimate)


def degrees_of_freedom(gram: Floats) -> int:
    """Directions in which replicates differ from the full sample: the rank of their deviations.

    `gram` (replicates, replicates) has the inner products of weights' deviations over persons: 14
    for JK1 of 15 units, units less strata for JKn, zones for JK2 and BRR, fewer for a group that is
    in few of them.
    """
    if not gram.size or not np.any(gram):
        return 0
    values = np.linalg.eigvalsh(gram)
    return int((values > 1e-9 * values[-1]).sum())
