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

from dataclasses import replace
from typing import Any

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.engine import Engine
from irt_dask.kernels.base import fixed_point, keyed_random
from irt_dask.population.em import SD_BOUNDS, Estimate, add_by_group, scale_for, weights_of
from irt_dask.population.population import Population

#: Most of a variance that is taken away.
_MOST_TAKEN = 0.5


def drawn(engine: Engine, of: Estimate, seed: int, n: int) -> list[Population]:
    """A population for each of ``n`` values, if there are any; a pass over the persons' weights.

    A parameter that the responses do not determine (its error is NaN, which a warning said) stays
    at its estimate.
    """
    if not n:
        return []
    per_person = of.population.coefficients.shape[1] / _effective(engine, of.population)
    return [_one(of, per_person, keyed_random.generator(seed, "population", r)) for r in range(n)]


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


def _one(of: Estimate, per_person: Floats, rng: np.random.Generator) -> Population:
    p = of.population
    coefficients, sd = p.coefficients.copy(), p.sd.copy()
    width = coefficients.shape[1]
    original = np.eye(width) if p.covariates is None else p.covariates.original()
    to_design = np.linalg.inv(original)
    for g, covariance in enumerate(of.covariance):
        move = _normal(covariance / _units(p.sd[g], width), rng)
        coefficients[g] += to_design @ move[:width]
        of_design = to_design @ np.nan_to_num(covariance[:width, :width]) @ to_design.T
        lowered = _lowered(
            p.sd[g] ** 2, float((of_design * of.gram[g]).sum()), float(per_person[g])
        )
        spread = float(np.nan_to_num(covariance[width, width])) / p.sd[g] ** 2
        sd[g] = np.clip(np.sqrt(lowered) * np.exp(move[width] - spread), *SD_BOUNDS)
    return replace(p, coefficients=coefficients, sd=sd)


def _units(sd: float, width: int) -> Floats:
    """What a covariance of coefficients and SD is divided by for one of coefficients and log SD."""
    unit = np.append(np.ones(width), sd)
    return np.outer(unit, unit)


def _normal(covariance: Floats, rng: np.random.Generator) -> Floats:
    """A normal draw; 0 where nothing is known of errors."""
    values, vectors = np.linalg.eigh(np.nan_to_num(covariance))
    normal = rng.standard_normal(len(values))
    return np.asarray(vectors @ (np.sqrt(np.maximum(values, 0.0)) * normal))


def _lowered(variance: float, spread: float, per_person: float) -> float:
    """S less what drawn coefficients add; ``spread`` is q T, ``per_person`` q."""
    if not (spread > 0.0 and per_person > 0.0):
        return variance
    reliability = min(variance * per_person / spread, 1.0)
    taken = spread * (1.0 - reliability) / (1.0 + reliability)
    return variance - min(taken, _MOST_TAKEN * variance)
