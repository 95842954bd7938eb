"""Intervals of totals."""

from __future__ import annotations

import numpy as np
from scipy.special import betaincinv, ndtri, stdtrit

from irt_dask.arrays import Floats, Ints

#: From this sum of its parameters on a beta distribution is normal, as far as anybody can tell.
_NORMAL = 1e6


def student(df: int, level: float) -> float:
    """Quantile of Student's t that holds a share ``level`` between its negative and itself."""
    return float(stdtrit(df, 0.5 + 0.5 * level))


def smallest_step(weights: Floats, n_categories: Ints) -> float:
    """The least that a category more adds to the points, of all questions that count."""
    return float((weights / (n_categories - 1))[weights > 0.0].min())


def of_share(
    mean: Floats, variance: Floats, most: Floats, level: float, step: float
) -> tuple[Floats, Floats]:
    """Ends of intervals of what lies between 0 and ``most``: quantiles of a beta distribution.

    It has this mean and variance, and so knows that what is left can be neither negative nor more
    than everything; a normal distribution would not.  Points come in multiples of ``step``: an end
    within half of one from nothing or from everything is there.  (The distribution has no mass at
    its ends, and of an easy bank all right may be what is most likely.)
    """
    low, high = mean.copy(), mean.copy()
    inside = (variance > 0.0) & (mean > 0.0) & (mean < most)
    m, v = mean[inside] / most[inside], variance[inside] / most[inside] ** 2
    total = m * (1.0 - m) / v - 1.0
    total = np.maximum(total, 1e-3)  # all mass at both ends, nearly
    below = 0.5 - 0.5 * level
    for out, p in ((low, below), (high, 1.0 - below)):
        near = np.clip(m + ndtri(p) * np.sqrt(v), 0.0, 1.0)
        wide = total < _NORMAL
        near[wide] = betaincinv(total[wide] * m[wide], total[wide] * (1.0 - m[wide]), p)
        out[inside] = near * most[inside]
    low[inside & (low < 0.5 * step)] = 0.0
    return low, np.where(inside & (high > most - 0.5 * step), most, high)
