"""Log marginal likelihoods of persons, their scores by complex steps, and sandwiches by loops."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

LogLikelihood = Callable[[np.ndarray], np.ndarray]


def log_likelihood(y, a, d, mean, sd):
    """Of each person, on a grid of standard scores; parameters may be complex numbers."""
    x = np.linspace(-7.0, 7.0, 61)
    theta = mean[:, None] + sd[:, None] * x
    log = np.broadcast_to(-0.5 * x**2 + np.log((x[1] - x[0]) / np.sqrt(2.0 * np.pi)), theta.shape)
    for j in range(a.size):
        sign = np.where(y[:, j, None] == 1, -1.0, 1.0)
        wrong = np.log(1.0 + np.exp(sign * (a[j] * theta + d[j])))
        log = log - np.where(y[:, j, None] >= 0, wrong, 0.0)
    return np.log(np.exp(log).sum(axis=1))


def scores(of_persons: LogLikelihood, x: np.ndarray) -> np.ndarray:
    """Derivatives of each person's log-likelihood, (persons, parameters), to the last digits."""
    steps = 1e-20j * np.eye(x.size)
    return np.stack([of_persons(x + step).imag for step in steps], axis=1) / 1e-20


def information(of_persons: LogLikelihood, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Less the second derivatives of the weighted log-likelihood."""
    h = 1e-4
    out = [
        weight @ (scores(of_persons, x - step) - scores(of_persons, x + step)) / (2.0 * h)
        for step in h * np.eye(x.size)
    ]
    return 0.5 * (np.array(out) + np.array(out).T)


def sandwich(of_persons, x, weight, unit, answered):
    """Covariance from sums of weighted scores over units, person by person and unit by unit."""
    each, bread = scores(of_persons, x), np.linalg.inv(information(of_persons, x, weight))
    middle, n_units = np.zeros((x.size, x.size)), 0
    for u in np.unique(unit[answered]):
        total = np.zeros(x.size)
        for i in np.flatnonzero((unit == u) & answered):
            total += weight[i] * each[i]
        middle += np.outer(total, total)
        n_units += 1
    return bread @ (n_units / (n_units - 1) * middle) @ bread
