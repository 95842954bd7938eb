"""Sensitivities of persons for a coreset of the item step (Frick et al., section 3).

The data of the item step are the rows ``(theta_i, 1)``.  In two dimensions the Gram matrix is exact
in one pass, so leverage scores are too, and no sketch is needed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def moments(theta: Floats, weight: Floats, scale: float) -> Ints:
    """Fixed-point sums of ``w``, ``w theta``, ``w theta^2`` over persons with responses."""
    seen = ~np.isnan(theta)
    x, w = theta[seen], weight[seen]
    terms = np.stack([w, w * x, w * x * x])
    return np.rint(terms * scale).astype(np.int64).sum(axis=1)


def root_leverage(theta: Floats, moment: Floats) -> Floats:
    """``sqrt(l_i) + 1/n``, l_i the leverage score of ``(theta_i, 1)``; 0 without responses.

    ``l_i = (1 + (theta_i - mean)^2 / variance) / n``, the closed form of
    ``x_i' (X'X)^{-1} x_i``.  The scores sum to at most ``sqrt(2 n) + 1``.
    """
    n, s1, s2 = moment
    mean = s1 / n
    variance = s2 / n - mean * mean
    spread = (theta - mean) ** 2 / variance if variance > 0 else np.zeros_like(theta)
    score = np.sqrt((1.0 + spread) / n) + 1.0 / n
    return np.where(np.isnan(theta), 0.0, score)


def fixed(score: Floats, scale: float) -> Ints:
    """Scores in units of ``1 / scale``, whose sums are exact."""
    return np.rint(score * scale).astype(np.int64)


def locate(score: Ints, targets: Ints) -> NDArray[np.intp]:
    """Rows in whose interval of the cumulative score the targets lie (0 <= target < sum)."""
    return np.searchsorted(np.cumsum(score), targets, side="right")
