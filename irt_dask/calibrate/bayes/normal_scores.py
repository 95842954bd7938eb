"""Normal scores of asymptotes: coordinates in which their prior is N(0, 1), whatever Beta it is.

In logits c near 0 has a tail without end, of which the data say nothing: what few persons say then
has another shape than what many say, and moments of the one tell little of the other.  In scores
``w``, F(c) = Phi(w), that tail is a normal one.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import betainc, betaincc, betaincinv, betaln, expit, log_expit, ndtr, ndtri

from irt_dask.arrays import Floats

#: Scores beyond this are of tails whose mass is no number.
_LARGEST = 37.0


def of_logits(y: Floats, alpha: Floats, beta: Floats) -> Floats:
    """Scores of logits under Beta(alpha, beta)."""
    low, c = y < 0.0, expit(-np.abs(y))  # the share on the nearer side
    one, other = np.where(low, alpha, beta), np.where(low, beta, alpha)
    below, above = betainc(one, other, c), betaincc(one, other, c)
    w = np.where(below < above, ndtri(below), -ndtri(above))
    return np.asarray(np.clip(np.where(low, w, -w), -_LARGEST, _LARGEST))


def logits(w: Floats, alpha: Floats, beta: Floats) -> Floats:
    """Logits at scores."""
    low = w < 0.0
    one, other = np.where(low, alpha, beta), np.where(low, beta, alpha)
    c = betaincinv(one, other, ndtr(-np.abs(w)))
    y = np.log(c) - np.log1p(-c)
    return np.asarray(np.where(low, y, -y))


def log_slope(w: Floats, y: Floats, alpha: Floats, beta: Floats) -> Floats:
    """Logarithm of the derivative of logits y by scores w."""
    before = alpha * log_expit(y) + beta * log_expit(-y) - betaln(alpha, beta)
    return np.asarray(-0.5 * (w**2 + math.log(2.0 * math.pi)) - before)


def slope_of_log(w: Floats, y: Floats, alpha: Floats, beta: Floats) -> Floats:
    """Derivative by scores of that logarithm."""
    by_logit = alpha * expit(-y) - beta * expit(y)
    return np.asarray(-w - by_logit * np.exp(log_slope(w, y, alpha, beta)))
