"""Totals by design from questions that were drawn one after the other, as answers came in.

At step t, given the history, question j is drawn from the M that are left with probability q_j > 0,
and p_i predicts what question i adds from the history alone.  Then

    T_t = sum of y over the asked + sum of p over the M left + (y_j - p_j) / q_j

is on average over the draw the total of all questions, however wrong p is: the last term has the
mean sum (y_i - p_i).  Differences of T_t from the total follow each other as a martingale's: their
covariances are 0.  So a mean with weights w_t that are set in advance is the total on average, with
variance ``sum w_t^2 var T_t``, and for all w_t below 1 / 2

    sum c_t (T_t - T)^2,  c_t = w_t^2 / (1 - 2 w_t) / (1 + S),  S = sum of w_t^2 / (1 - 2 w_t),

is that variance on average.  Weights are in proportion to 1 / (M (M - 1)): variances fall in that
way where all q are 1 / M, and the mean of n of N then varies by (1 - n / N) / n, as that of a
simple random sample.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from irt_dask.arrays import Bools, Floats
from irt_dask.kernels.posterior.totals import PSEUDO_RESIDUALS
from irt_dask.selection.criteria import Told

#: From this weight on squares of differences from the mean say too little of one step.
_HEAVY = 0.45


class Drawn(NamedTuple):
    """A question that was drawn, and what was known before its answer; in points."""

    probability: float
    predicted: float  # p_j
    rest: float  # sum of p over all that were left, j too
    variance: float  # of T, as the model expects it
    #: E T^4 / (E T^2)^2 over that of draws with equal chances: 1 / the share of draws that count.
    weight: float


class Total(NamedTuple):
    """Estimate of the total of all questions, its standard error, and draws that count."""

    total: float
    se: float
    n_draws: float


def before(j: int, q: Floats, told: Told, open_: Bools) -> Drawn:
    """What is to be kept of the draw of question j."""
    chance, spread = q[open_], told.spread[open_]
    size = spread / chance
    square = float(size.sum())
    variance = max(square - told.rest_variance, 0.0)
    heavy = float((size**2 / chance).sum()) / square**2 if square > 0.0 else 1.0
    return Drawn(
        float(q[j]), float(told.predicted[j]), float(told.predicted[open_].sum()), variance, heavy
    )


def estimates(steps: Sequence[Drawn], points: Sequence[float]) -> Floats:
    """T of each step; ``points`` are those of the answers."""
    asked = np.concatenate([[0.0], np.cumsum(points)])[:-1]
    y = np.asarray(points, dtype=float)
    p = np.array([s.predicted for s in steps])
    q = np.array([s.probability for s in steps])
    return np.asarray(asked + np.array([s.rest for s in steps]) + (y - p) / q)


def weights(n: int, n_items: int) -> Floats:
    """Weights of n steps, of which not all questions were asked."""
    left = n_items - np.arange(n, dtype=float)
    w = 1.0 / (left * (left - 1.0))
    return np.asarray(w / w.sum())


def variance(t: Floats, w: Floats) -> float:
    """Of the weighted mean; right on average whatever the model, if no weight is large."""
    square = (t - w @ t) ** 2
    if w.max() < _HEAVY:
        each = w**2 / (1.0 - 2.0 * w)
        return float(each @ square / (1.0 + each.sum()))
    return float((w @ square) / (t.size - 1))  # variances as the weights say


def total(steps: Sequence[Drawn], points: Sequence[float], n_items: int) -> Total:
    """Weighted mean of the estimates; ten squares as the model expects them beside its own."""
    n = len(steps)
    if n == n_items:
        return Total(float(np.sum(points)), 0.0, float(n))
    t, w = estimates(steps, points), weights(n, n_items)
    n_draws = n / max(float(np.mean([s.weight for s in steps])), 1.0)
    expected = float(w**2 @ np.array([s.variance for s in steps]))
    own = max(n_draws - 1.0, 0.0)
    if n == 1:
        return Total(float(w @ t), math.sqrt(expected), n_draws)
    found = variance(t, w)
    if expected > 0.0:
        found = expected * (own * found / expected + PSEUDO_RESIDUALS) / (own + PSEUDO_RESIDUALS)
    return Total(float(w @ t), math.sqrt(found), n_draws)
