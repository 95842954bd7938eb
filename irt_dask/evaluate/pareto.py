"""Importance sampling whose largest weights are replaced by those of a generalised Pareto tail.

Weights of draws with a heavy tail have a mean that a few of them decide.  The largest M of S are
taken to be a sample of a generalised Pareto distribution of shape k, and replaced by its quantiles
(Vehtari, Simpson, Gelman, Yao and Gabry 2024).  Its k also says whether the mean can be relied on:
the weights have 1 / k finite moments.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import logsumexp

from irt_dask.arrays import Floats

#: Weights in the tail, without which no distribution is fitted.
_LEAST_TAIL = 5
#: Numbers that are looked at together.
_ROOM = 1 << 20
#: Points of the prior of k, and the k that it is about.
_PRIOR_WEIGHT, _PRIOR_K = 10.0, 0.5


def tail_length(n_draws: int) -> int:
    """Weights that are taken to be the tail."""
    return min(n_draws // 5, math.ceil(3.0 * math.sqrt(n_draws)))


def largest_k(n_draws: int) -> float:
    """Shape up to which estimates from so many draws are reliable."""
    return min(0.7, 1.0 - 1.0 / math.log10(n_draws))


def fitted(x: Floats) -> tuple[Floats, Floats]:
    """Shape and scale of generalised Pareto distributions of exceedances, rows that ascend.

    The posterior mean of Zhang and Stephens (2009) in theta = -k / sigma, over a grid of its
    quantiles under their prior; the shape is drawn a little towards 1/2.  Rows without spread have
    shape infinity.
    """
    n = x.shape[1]
    m = 30 + int(math.sqrt(n))
    first, last = x[:, [int(n / 4 + 0.5) - 1]], x[:, [-1]]
    flat = ~(first > 0.0)[:, 0]
    first = np.where(first > 0.0, first, 1.0)
    last = np.where(last > 0.0, last, 1.0)
    j = np.arange(1.0, m + 1.0)
    theta = 1.0 / last + (1.0 - np.sqrt(m / (j - 0.5))) / (3.0 * first)
    k = np.log1p(-theta[:, :, None] * x[:, None, :]).mean(axis=2)
    with np.errstate(divide="ignore", invalid="ignore"):
        log = n * (np.log(-theta / k) - k - 1.0)
    log = np.where(np.isfinite(log), log, -np.inf)
    log[flat] = 0.0
    weight = np.exp(log - log.max(axis=1, keepdims=True))
    best = (theta * weight).sum(axis=1) / weight.sum(axis=1)
    shape = np.log1p(-best[:, None] * x).mean(axis=1)
    scale = -shape / best
    shape = (shape * n + _PRIOR_K * _PRIOR_WEIGHT) / (n + _PRIOR_WEIGHT)
    return np.where(flat, np.inf, shape), scale


def _quantiles(shape: Floats, scale: Floats, n: int) -> Floats:
    """Quantiles of n even probabilities, (rows, n)."""
    log = -np.log1p(-(np.arange(n) + 0.5) / n)
    k = np.where(shape == 0.0, 1.0, shape)[:, None]
    unit = np.where(shape[:, None] == 0.0, log, np.expm1(k * log) / k)
    return np.asarray(scale[:, None] * unit)


def smoothed(log_ratio: Floats) -> tuple[Floats, Floats]:
    """Logarithms of weights that sum to 1, and the shape k of their tail: (rows, draws), (rows,).

    k is infinity where the tail has fewer than five weights or these are all the same.
    """
    n, n_draws = log_ratio.shape
    out, k = np.empty_like(log_ratio), np.empty(n)
    tail = tail_length(n_draws)
    size = max(1, _ROOM // max(n_draws, tail * (30 + tail)))
    for begin in range(0, n, size):
        rows = slice(begin, begin + size)
        log = log_ratio[rows] - log_ratio[rows].max(axis=1, keepdims=True)
        k[rows] = _smooth(log, tail) if tail >= _LEAST_TAIL else np.inf
        out[rows] = log - logsumexp(log, axis=1, keepdims=True)
    return out, k


def _smooth(log: Floats, tail: int) -> Floats:
    """Replace the tails of rows whose largest is 0, in place; return their shapes."""
    order = np.argsort(log, axis=1, kind="stable")
    largest = order[:, -tail:]
    cut = np.take_along_axis(log, order[:, [-tail - 1]], axis=1)
    above = np.take_along_axis(log, largest, axis=1)
    shape, scale = fitted(np.exp(above) - np.exp(cut))
    some = np.isfinite(shape)
    with np.errstate(over="ignore"):
        values = np.log(_quantiles(shape[some], scale[some], tail) + np.exp(cut[some]))
    above[some] = np.minimum(values, 0.0)
    np.put_along_axis(log, largest, above, axis=1)
    return shape
