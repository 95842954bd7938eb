"""Standard errors of the distribution of ability in groups, or given covariates, items fixed.

With r = (theta - u beta) / sd the standardised residual of a person, the complete-data score in
(beta / sd, log sd) is (u r, r^2 - 1).  Louis (1982): the information of a person's responses is the
posterior mean of minus its derivative, less its posterior covariance.  With e, v, m3 and m4 the
posterior mean and central moments of r this is

    u u' (1 - v)               in the coefficients,
    u (2 e - 2 e v - m3)       in the coefficients and log sd,
    2 (e^2 + v) - (4 e^2 v + 4 e m3 + m4 - v^2)   in log sd.

(The cross-products of the scores (u e, e^2 + v - 1) have the same expectation, but they are fitted:
of a term for n persons a share 1 / n is lost, all for one person.)  With sampling weights the
covariance is a sandwich, in whose middle the cross-products of the scores of each person get back
what the fit took: the person's leverage times the information.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from irt_dask.arrays import Floats
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine import Engine
from irt_dask.kernels.base import fixed_point
from irt_dask.kernels.posterior import moments
from irt_dask.population.em import add_by_group, largest_residual, residuals, scale_for, weights_of
from irt_dask.population.population import Persons, Population, posteriors

#: Smallest eigenvalue of an information matrix of unit diagonal in whose direction it is inverted.
_LEAST = 1e-10
#: A parameter with more than this of a direction without information has no standard error.
_SHARE = 1e-4


def _informations(
    block: Any, persons: Persons, items: ItemSet, population: Population, nodes: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """Of a block's persons: design, scores, factors (1 - v) and last columns of the information."""
    prior, _ = population.prior(nodes, persons)
    p = posteriors(block.data, items, nodes, prior)
    mean, v, m3, m4 = moments.central_moments(*p.arguments)
    u, e, sd = residuals(population, persons, mean)
    v, m3, m4 = v / sd**2, m3 / sd**3, m4 / sd**4
    score = np.concatenate([u * e[:, None], (e**2 + v - 1.0)[:, None]], axis=1)
    spread = 2.0 * (e**2 + v) - (4.0 * e**2 * v + 4.0 * e * m3 + m4 - v**2)
    last = np.concatenate([u * (2.0 * e - 2.0 * e * v - m3)[:, None], spread[:, None]], axis=1)
    return u, score, 1.0 - v, last


def _row(k: int, u: Floats, factor: Floats, last: Floats) -> Floats:
    """Row k of the information of each person, (persons, coefficients + 1)."""
    if k == u.shape[1]:
        return last
    return np.concatenate([u * (u[:, k] * factor)[:, None], last[:, [k]]], axis=1)


def _information(
    ref: Any, items: ItemSet, population: Population, nodes: Floats, apart: Floats, scale: float,
    unit: float,
) -> tuple[Any, Any]:  # fmt: skip
    """Sums of the information, and of the 2nd and 4th powers of each term apart from the others."""
    block, w = weights_of(ref)
    n, width = population.coefficients.shape
    total = np.zeros((n, width + 1, width + 1), dtype=np.int64)
    powers = np.zeros((n, width, 2), dtype=np.int64)
    persons = population.persons(ref)
    u, _, factor, last = _informations(block, persons, items, population, nodes)
    own = w[:, None]
    again = w if block.times is None else 1.0
    for k in range(width + 1):
        one = fixed_point.fixed(own * _row(k, u, factor, last), scale)
        add_by_group(total[:, k], persons, one)
    for k in range(width):
        square = np.zeros(len(u))
        for m in range(width):  # one by one: the same bits in blocks of any size
            square += u[:, m] * apart[m, k]
        square = square**2
        both = own * np.stack([square, again * square**2], axis=1)
        add_by_group(powers[:, k], persons, fixed_point.fixed(both, unit))
    return total, powers


def _middle(
    ref: Any, items: ItemSet, population: Population, nodes: Floats, inverse: Floats, scale: float
) -> Any:
    """Sums of the squared weight times the cross-products of scores, leverage put back."""
    block, w = weights_of(ref)
    n, width = population.coefficients.shape
    total = np.zeros((n, width + 1, width + 1), dtype=np.int64)
    persons = population.persons(ref)
    u, score, factor, last = _informations(block, persons, items, population, nodes)
    leverage = np.zeros(len(u))
    group = 0 if persons.group is None else persons.group
    for k in range(width):
        for m in range(width):
            leverage += u[:, k] * inverse[group, k, m] * u[:, m]
    leverage = np.clip(w * factor * leverage, 0.0, 1.0)[:, None]
    for k in range(width + 1):
        one = score * score[:, [k]] + leverage * _row(k, u, factor, last)
        add_by_group(total[:, k], persons, fixed_point.fixed(w[:, None] ** 2 * one, scale))
    return total


def inverse(information: Floats) -> Floats:
    """Inverse; NaN in rows and columns of parameters that it does not determine."""
    size = np.sqrt(np.maximum(np.diag(information), 0.0))
    known = size > 0.0
    size = np.where(known, size, 1.0)
    values, vectors = np.linalg.eigh(information / np.outer(size, size))
    kept = values > _LEAST
    lost = ~known | (np.abs(vectors[:, ~kept]) > _SHARE).any(axis=1)
    out = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T / np.outer(size, size)
    out[lost], out[:, lost] = np.nan, np.nan
    return out


def covariance(
    engine: Engine, items: ItemSet, population: Population, gram: Floats, least_sd: float
) -> tuple[Floats, Floats]:
    """Sampling covariance of (coefficients as they are, sd) of each group; NaN: not determined.

    And how many persons each coefficient rests on, (groups, coefficients): with x what is left of a
    covariate after regression on the others, (sum w x^2)^2 / sum w^2 x^4; of a group or a dummy
    variable the number of its persons, if their weights are equal (with frequency weights, their
    sum).
    """
    n, most = len(population.sd), engine.responses.max_weight or 1.0
    width = population.coefficients.shape[1]
    nodes = population.nodes(items)
    largest = (2.0 * largest_residual(population, nodes) ** 2) ** 2
    to = np.eye(width) if population.covariates is None else population.covariates.original()
    apart = np.eye(width)
    if population.covariates is not None:
        apart = np.linalg.inv(gram[0])
        apart /= np.abs(apart).sum(axis=0)  # |x| is at most 1
    scale, unit = scale_for(engine, largest), scale_for(engine, max(most, 1.0))
    parts = engine.map_refs(_information, items, population, nodes, apart, scale, unit)
    total = np.sum([p[0] for p in parts], axis=0) / scale
    powers = np.sum([p[1] for p in parts], axis=0) / unit
    back = np.eye(width + 1)  # from the coefficients as they are to those of the design
    back[:width, :width] = np.linalg.inv(to)
    out = np.stack([inverse(back.T @ a @ back) for a in total])
    if engine.sampled:
        whole = np.stack([np.nan_to_num(np.linalg.pinv(a, hermitian=True)) for a in total])
        scale = scale_for(engine, 2.0 * largest * max(most, 1.0))
        sums = engine.map_refs(_middle, items, population, nodes, whole[:, :width, :width], scale)
        middle = back.T @ (np.sum(sums, axis=0) / scale) @ back
        for k in range(n):
            known = np.isfinite(np.diag(out[k]))
            at = np.ix_(known, known)
            out[k][at] = out[k][at] @ middle[k][at] @ out[k][at]
    out *= (population.sd**2)[:, None, None]
    out[population.sd <= least_sd] = np.nan
    with np.errstate(invalid="ignore", divide="ignore"):
        return out, powers[..., 0] ** 2 / powers[..., 1]
