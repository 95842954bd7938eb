"""Textbook items of more than two categories: probabilities, one item and ability at a time."""

from __future__ import annotations

import numpy as np
from items import probability


def category_probability(model, theta, x):
    """P(k), (*theta.shape, K), of one item with the parameters of a model in our order."""
    theta = np.asarray(theta, dtype=float)
    if model in ("1pl", "2pl", "3pl", "4pl"):
        p = probability(theta, *x)
        return np.stack([1.0 - p, p], axis=-1)
    if model == "graded":  # Samejima: differences of the chances to reach a category
        a, d = x[0], x[1:]
        reach = [np.ones_like(theta), *(probability(theta, a, k) for k in d), np.zeros_like(theta)]
        return np.stack([reach[k] - reach[k + 1] for k in range(len(d) + 1)], axis=-1)
    if model in ("gpcm", "pcm"):  # Muraki: sums of a (theta - b_v) over steps
        b = -np.diff([0.0, *x[1:]]) / x[0]
        up = [np.zeros_like(theta)]
        for v in b:
            up.append(up[-1] + x[0] * (theta - v))
    elif model == "rating":  # Andrich: a location, and thresholds about it whose sum is 0
        a, d, shifts = x[0], x[1], x[2:]
        tau = -np.diff([0.0, *shifts, 0.0]) / a
        up = [np.zeros_like(theta)]
        for v in tau:
            up.append(up[-1] + a * (theta - (-d / a) - v))
    elif model == "nominal":  # Bock
        n = len(x) // 2
        up = [s * theta + d for s, d in zip([0.0, *x[:n]], [0.0, *x[n:]], strict=True)]
    else:
        raise ValueError(model)
    e = np.exp(np.stack(up, axis=-1))
    return e / e.sum(axis=-1, keepdims=True)
