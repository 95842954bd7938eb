"""Textbook items of more than two categories: probabilities, one item and ability at a time."""

from __future__ import annotations

import numpy as np
from items import probability
from scipy.stats import binom

#: One item each: textbook parameters in our order.
ITEMS = {
    "3pl": [1.2, -0.3, 0.2],
    "4pl": [1.0, 0.5, 0.15, 0.9],
    "graded": [0.9, 1.0, 0.1, -1.2],
    "gpcm": [0.8, 0.6, 0.2, -1.0],
    "2pl": [1.5, 0.4],
    "nominal": [1.5, -0.8, 0.9, 0.4, -0.2, 0.3],
}


def category_probability(model, theta, x, n_categories=None):
    """P(k), (*theta.shape, K), of one item with the parameters of a model in our order.

    ``n_categories`` is of models whose parameters do not tell it.
    """
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
    elif model == "binomial":
        n = n_categories - 1
        return binom.pmf(np.arange(n + 1), n, probability(theta, *x)[..., None])
    elif model == "nominal":  # Bock
        n = len(x) // 2
        up = [s * theta + d for s, d in zip([0.0, *x[:n]], [0.0, *x[n:]], strict=True)]
    else:
        raise ValueError(model)
    e = np.exp(np.stack(up, axis=-1))
    return e / e.sum(axis=-1, keepdims=True)


def simulated(names, n, seed, missing=0.0):
    """Responses to items of these models, and their categories."""
    rng = np.random.default_rng(seed)
    theta = rng.standard_normal(n)
    y = np.empty((n, len(names)), dtype=np.int8)
    k = []
    for j, name in enumerate(names):
        x = (
            np.array(ITEMS[name])
            * np.exp(0.2 * rng.standard_normal() * (np.arange(9) == 0))[: len(ITEMS[name])]
        )
        p = category_probability(name, theta, x)
        y[:, j] = (rng.random((n, 1)) > p.cumsum(axis=1)[:, :-1]).sum(axis=1)
        k.append(p.shape[1])
    y[rng.random(y.shape) < missing] = -1
    return y, k
