"""Statistics of groups by name, and how each follows from weighted sums or from sorted values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from irt_dask.arrays import Floats
from irt_dask.errors import InputError, repeated

#: Share of the whole weight by which rounding may miss a percentile, at least.
_ROUNDING = 1e-12
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
#: Share of the mean square at or below which a variance is rounding.
_NO_VARIANCE = 1e-12
KNOWN = (
    "'weight', 'mean', 'sd', 'p25' (any percentile), 'at least 400' (any score), 'correlation' (of "
    "each pair of variables)"
)


@dataclass(frozen=True)
class Statistic:
    """One statistic: its name, its kind, and its percentile (in %) or its score."""

    name: str
    kind: str
    at: float = 0.0


def statistics_of(names: Sequence[str]) -> list[Statistic]:
    """Statistics by their names; an error for one that is not known."""
    if isinstance(names, str):
        names = (names,)
    if twice := repeated(names):
        raise InputError(f"statistics= has {twice[0]!r} twice")
    if not names:
        raise InputError("statistics= is empty")
    return [_statistic(name) for name in names]


def _statistic(name: str) -> Statistic:
    if name in ("weight", "mean", "sd", "correlation"):
        return Statistic(name, name)
    for kind, start in (("percentile", "p"), ("share", "at least ")):
        rest = name.removeprefix(start)
        if name.startswith(start) and _NUMBER.fullmatch(rest):
            at = float(rest)
            if kind == "percentile" and not 0 < at < 100:
                raise InputError(f"statistics= has {name!r}: percentiles lie between 0 and 100")
            return Statistic(name, kind, at)
    raise InputError(f"statistics= has {name!r}; there are {KNOWN}")


def summands(x: Floats, statistics: Sequence[Statistic]) -> Floats:
    """What is summed with weights, (persons, 1 + M (2 + scores)), of values x (persons, M).

    x is about a value in its midst, so that squares lose nothing.
    """
    shares = [x >= s.at for s in statistics if s.kind == "share"]
    return np.concatenate([np.ones((x.shape[0], 1)), x, x * x, *shares], axis=1)


def cross_products(x: Floats, y: Floats) -> Floats:
    """What is summed with weights for correlations, (persons, 1 + 5 M): 1, x, y, x x, y y, x y.

    x and y (persons, M) are about values in their midst; one with a single value has it for all M.
    """
    x, y = np.broadcast_arrays(x, y)
    return np.concatenate([np.ones((x.shape[0], 1)), x, y, x * x, y * y, x * y], axis=1)


def products(predictors: Floats, y: Floats) -> Floats:
    """What is summed with weights: 1, predictors' products, theirs with y, y and its squares.

    predictors (persons, p), y (persons, M); (persons, 1 + p (p + 1) / 2 + p M + 2 M).
    """
    n, p = predictors.shape
    i, j = np.triu_indices(p)
    with_y = (predictors[:, :, None] * y[:, None, :]).reshape(n, -1)
    return np.concatenate(
        [np.ones((n, 1)), predictors[:, i] * predictors[:, j], with_y, y, y * y], axis=1
    )


def from_sums(
    sums: Floats, n_values: int, centre: float, statistics: Sequence[Statistic]
) -> dict[str, Floats]:
    """Statistics (weights, plausible values) from sums (weights, summands); NaN without weight."""
    weight = sums[:, :1]
    with np.errstate(divide="ignore", invalid="ignore"):
        rest = np.split(np.where(weight > 0, sums[:, 1:] / weight, np.nan), range(
            n_values, sums.shape[1] - 1, n_values), axis=1)  # fmt: skip
    mean, square, *shares = rest
    out, left = {}, iter(shares)
    for s in statistics:
        if s.kind == "weight":
            out[s.name] = np.broadcast_to(weight, mean.shape)
        elif s.kind == "mean":
            out[s.name] = mean + centre
        elif s.kind == "sd":
            out[s.name] = np.sqrt(np.maximum(square - mean * mean, 0.0))
        elif s.kind == "share":
            out[s.name] = next(left)
    return out


def correlations(sums: Floats) -> Floats:
    """Correlations (weights, plausible values) from sums (weights, 1 + 5 M).

    NaN without weight, and where values of a variable do not differ.
    """
    weight = sums[:, :1]
    with np.errstate(divide="ignore", invalid="ignore"):
        means = np.where(weight > 0, sums[:, 1:] / weight, np.nan)
        x, y, xx, yy, xy = np.split(means, 5, axis=1)
        of_x, of_y = xx - x * x, yy - y * y
        differ = (of_x > _NO_VARIANCE * xx) & (of_y > _NO_VARIANCE * yy)
        return np.where(differ, np.clip((xy - x * y) / np.sqrt(of_x * of_y), -1, 1), np.nan)


def reached(whole: Any, n: int) -> Any:
    """The whole weight of n persons less what sums of their weights may miss by rounding."""
    return whole * (1 - max(_ROUNDING, n * np.finfo(np.float64).eps))


def percentiles(x: Floats, weights: Floats, at: Sequence[float]) -> Floats:
    """The least value at or below which a share `at` of the weight lies, (len(at), weights, M).

    x (persons, M), weights (persons, W); NaN without weight. This inverts the weighted distribution
    function, without interpolation.
    """
    out = np.full((len(at), weights.shape[1], x.shape[1]), np.nan)
    for m in range(x.shape[1]):
        order = np.argsort(x[:, m], kind="stable")
        below = np.cumsum(weights[order], axis=0)
        for w in range(weights.shape[1]):
            if (whole := below[-1, w]) > 0:
                wanted = np.asarray(at) * reached(whole, len(x))
                out[:, w, m] = x[order[np.searchsorted(below[:, w], wanted)], m]
    return out
