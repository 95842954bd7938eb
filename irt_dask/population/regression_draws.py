"""Distributions of ability that plausible values are drawn under: one for each value.

An estimated mean is not known better than its standard error says.  Values that are all drawn about
it agree too well: of a test of reliability r the variance of a group's mean would come out as
2 - r in place of 1 / r times that of known abilities, however many persons there are (standard
errors .8 of what they should be at r = .4).  So each value has coefficients and a standard
deviation of its own, normal about the estimates (the latter in logarithms), as their covariance
says.

Drawn coefficients add to the variance of values.  With S the residual variance, q coefficients for
each person, q T the mean variance of a person's linear predictor and r = S / T, that is
q T (1 - r)^2; lowering S by q T (1 - r) / (1 + r) takes as much away (see
:mod:`irt_dask.population.conditioning_used`, where abilities are several).  Drawn variances have S,
lowered so, for a mean.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.engine import Engine
from irt_dask.errors import DataWarning
from irt_dask.kernels.base import fixed_point, keyed_random
from irt_dask.population.em import SD_BOUNDS, Estimate, add_by_group, scale_for, weights_of
from irt_dask.population.population import Population
from irt_dask.population.regression import EVERYBODY

#: Most of a variance that is taken away.
_MOST_TAKEN = 0.5
#: Standard error of a mean, or of half of what a covariate makes, from which on it is not known,
#: and the part of such a direction that names a term.
_MOST_UNKNOWN, _PART = 5.0, 0.3


def drawn(engine: Engine, of: Estimate, seed: int, n: int) -> list[Population]:
    """A population for each of ``n`` values, if there are any; a pass over the persons' weights.

    A parameter that the responses do not determine (its error is NaN, which a warning said, or
    beyond all abilities, which one says here) stays at its estimate.
    """
    if not n:
        return []
    covariances = _known(of)
    per_person = of.population.coefficients.shape[1] / _effective(engine, of.population)
    return [
        _one(of, covariances, per_person, keyed_random.generator(seed, "population", r))
        for r in range(n)
    ]


def _known(of: Estimate) -> list[Floats]:
    """Covariances of the design's coefficients and the log SD, by group, of what is known of them.

    Of persons who have all right the likelihood rises with their mean without end: its error is
    larger than abilities are, and there is nothing to draw from.  A warning names it.
    """
    p, out, lost = of.population, [], dict[str, None]()
    width = p.coefficients.shape[1]
    original = np.eye(width) if p.covariates is None else p.covariates.original()
    names = p.labels or (EVERYBODY,) if p.covariates is None else p.covariates.names
    for g, covariance in enumerate(of.covariance):
        to = np.zeros((width + 1, width + 1))
        to[:width, :width], to[width, width] = np.linalg.inv(original), 1.0 / p.sd[g]
        values, vectors = np.linalg.eigh(to @ np.nan_to_num(covariance) @ to.T)
        far = values > _MOST_UNKNOWN**2
        told = (np.abs(vectors[:width, far]) > _PART).any(axis=1)
        some = told[1:] if p.covariates is not None else told
        lost |= dict.fromkeys(repr(names[k + g]) for k in np.flatnonzero(some))
        out.append((vectors[:, ~far] * np.maximum(values[~far], 0.0)) @ vectors[:, ~far].T)
    if lost:
        warnings.warn(
            f"the responses hardly tell the mean ability of {', '.join([*lost][:10])} (all right, "
            f"or all wrong?): plausible values of these persons lie where the search ended; leave "
            f"the term out, or join it with others",
            DataWarning,
            stacklevel=6,
        )
    return out


def _effective(engine: Engine, population: Population) -> Floats:
    """Kish's number of persons with responses of each group."""
    scale = scale_for(engine, max(engine.responses.max_weight or 1.0, 1.0))
    weight, square = sum(engine.map_refs(_weights, population, scale)) / scale
    return np.asarray(weight**2 / square)


def _weights(ref: Any, population: Population, scale: float) -> Ints:
    """Sums of weights and of their squares by group; with frequencies each person's own is 1."""
    block, w = weights_of(ref)
    total = np.zeros((len(population.sd), 2), dtype=np.int64)
    each = np.stack([w, w if block.times is not None else w**2], axis=1)
    add_by_group(total, population.persons(ref), fixed_point.fixed(each, scale))
    return total.T


def _one(
    of: Estimate, covariances: list[Floats], per_person: Floats, rng: np.random.Generator
) -> Population:
    p = of.population
    coefficients, sd = p.coefficients.copy(), p.sd.copy()
    for g, covariance in enumerate(covariances):
        values, vectors = np.linalg.eigh(covariance)
        normal = rng.standard_normal(len(values))
        move = vectors @ (np.sqrt(np.maximum(values, 0.0)) * normal)
        coefficients[g] += move[:-1]
        added = float((covariance[:-1, :-1] * of.gram[g]).sum())
        lowered = _lowered(p.sd[g] ** 2, added, float(per_person[g]))
        sd[g] = np.clip(np.sqrt(lowered) * np.exp(move[-1] - covariance[-1, -1]), *SD_BOUNDS)
    return replace(p, coefficients=coefficients, sd=sd)


def _lowered(variance: float, spread: float, per_person: float) -> float:
    """S less what drawn coefficients add; ``spread`` is q T, ``per_person`` q."""
    if not (spread > 0.0 and per_person > 0.0):
        return variance
    reliability = min(variance * per_person / spread, 1.0)
    taken = spread * (1.0 - reliability) / (1.0 + reliability)
    return variance - min(taken, _MOST_TAKEN * variance)
