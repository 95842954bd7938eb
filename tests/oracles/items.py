"""Textbook items: probabilities, responses and banks, with none of the package's statistics."""

from __future__ import annotations

import warnings

import numpy as np
from scipy.special import expit

from irt_dask.engine import dataset
from irt_dask.errors import IrtDaskWarning


def probability(theta, a, d, c=0.0, u=1.0):
    """P(right) by Barton and Lord (1981), (*theta.shape, items); complex steps in theta work."""
    with np.errstate(over="ignore"):  # of e^-z: P is c then
        return c + (u - c) / (1.0 + np.exp(-(np.multiply.outer(theta, a) + d)))


def answers(rng, p, missing=0.0):
    """Right with probability p, then -1 where missing: of the shape of p, int8."""
    y = (rng.random(p.shape) < p).astype(np.int8)
    if np.any(missing):
        y[rng.random(p.shape) < missing] = -1
    return y


def respond(rng, theta, a, d, c=0.0, missing=0.0):
    """Responses (persons, items), int8."""
    return answers(rng, probability(theta, a, d, c), missing)


def simulated_2pl(n, m, seed, missing=0.0):
    """Responses (n, m) of abilities from N(0, 1)."""
    rng = np.random.default_rng(seed)
    a, d = rng.lognormal(0.1, 0.35, m), rng.normal(0.0, 1.0, m)
    return respond(rng, rng.standard_normal(n), a, d, missing=missing)


def simulated_m2pl(n, a, d, seed, r=None, missing=0.0):
    """Responses of several abilities, of correlations r, to items of loadings a."""
    rng = np.random.default_rng(seed)
    theta = rng.standard_normal((n, a.shape[1]))
    theta = theta if r is None else theta @ np.linalg.cholesky(r).T
    return answers(rng, expit(theta @ a.T + d), missing)


def rasch(seed, n, b, missing=0.0, theta=None):
    """Responses to items of difficulties b, or to so many items from N(0, 1)."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=n) if theta is None else theta
    b = np.asarray(b) if np.ndim(b) else rng.normal(size=b)
    return respond(rng, theta, np.ones(b.size), -b, missing=missing)


def bank(a, b, c=None, *, item_id=None, **more):
    """What a fit returns of these items, and more of its variables."""
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    data = {"item_discrimination": a, "item_difficulty": b, "item_intercept": -a * b}
    if c is not None:
        data["item_guessing"] = np.zeros(a.shape) + c
    ids = tuple(map(str, range(a.size) if item_id is None else item_id))
    return dataset(data | more, item_id=ids, attrs={"model": "2pl" if c is None else "3pl"})


def intercept_bank(a, d, c=None, **more):
    """The same of intercepts d."""
    a, d = np.asarray(a, dtype=float), np.asarray(d, dtype=float)
    return bank(a, -d / a, c, item_intercept=d, **more)


def quiet(fit, *args, kinds=(IrtDaskWarning,), **options):
    """A fit whose warnings of these kinds are not the point of the test."""
    with warnings.catch_warnings():
        for kind in kinds:
            warnings.simplefilter("ignore", kind)
        return fit(*args, **options)
