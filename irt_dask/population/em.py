"""The distribution of ability by EM, items held, one pass over the data a step.

The posterior moments of each person under the present distribution give the next means and standard
deviations (Mislevy 1984).  With e the posterior mean and v the variance of the standardised
residual, a step of the coefficients is ``sd G^-1 sum w u e`` (G the Gram matrix of the design u),
and the score in (coefficients / sd, log sd) is ``(u e, e^2 + v - 1)``.  Groups have nothing to do
with each other: each is accelerated by itself.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from irt_dask.arrays import Floats
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine import Engine
from irt_dask.engine.anderson import Accelerator
from irt_dask.engine.cache import read_block
from irt_dask.errors import ConvergenceWarning, EstimationError
from irt_dask.kernels.base import fixed_point
from irt_dask.kernels.responses import response_counts
from irt_dask.population.population import NOBODY_APART, STANDARD, Persons, Population, expectations
from irt_dask.store import Block

#: Bounds of the standard deviations.
SD_BOUNDS = (0.05, 20.0)
#: Passes over the data, and the EM step of means and log SDs that ends them.
_PASSES, _TOLERANCE = 200, 1e-7
#: Nodes serve while means and SDs change by no more than this share.
_MARGIN = 0.25


class Estimate:
    """A population and how it was found."""

    def __init__(self, population: Population, passes: int, converged: bool, value: float) -> None:
        self.population, self.passes = population, passes
        self.converged, self.log_likelihood = converged, value
        self.covariance = np.empty((0, 0, 0))
        #: Mean products of the design, (groups, coefficients, coefficients).
        self.gram = np.empty((0, 0, 0))


def weights_of(ref: Any) -> tuple[Any, Floats]:
    """A block and the weight of each person in the estimation: 0 without responses."""
    block = read_block(ref)
    return block, _weights(block)


def _weights(block: Block) -> Floats:
    return block.weights() * (response_counts.responses_per_person(block.data) > 0)


def scale_for(engine: Engine, bound: float) -> float:
    """Scale of weighted sums over persons of terms of at most ``bound``."""
    return fixed_point.scale_for(engine.n_persons * bound)


def residuals(
    population: Population, persons: Persons, mean: Floats
) -> tuple[Floats, Floats, Floats]:
    """Design, standardised residuals of posterior means, and SDs of a block's persons."""
    group = 0 if persons.group is None else persons.group
    sd = np.broadcast_to(population.sd[group], mean.shape)
    prior = population.means(persons)
    prior = population.coefficients[group, 0] if prior is None else prior
    u = np.ones((mean.size, 1)) if persons.design is None else persons.design
    return u, (mean - prior) / sd, sd


def largest_residual(population: Population, nodes: Floats) -> float:
    """Bound of absolute residuals on these nodes."""
    furthest = float(np.abs(nodes).max()) + population.furthest
    return furthest / float(population.sd.min()) + 1.0


def _step(
    ref: Any, items: ItemSet, population: Population, nodes: Floats, scale: float, log_scale: float
) -> tuple[Any, Any]:
    """:func:`_sums` of a block of persons who are told apart."""
    return _sums(
        read_block(ref), items, population, population.persons(ref), nodes, scale, log_scale
    )


def _sums_of_all(block: Block, items: ItemSet, population: Population, *how: Any) -> Any:
    return _sums(block, items, population, NOBODY_APART, *how)


def _sums(
    block: Block, items: ItemSet, population: Population, persons: Persons, nodes: Floats,
    scale: float, log_scale: float,
) -> tuple[Any, Any]:  # fmt: skip
    """Fixed-point sums of (u e, e^2 + v) and of the log marginals, by group."""
    w = _weights(block)
    n, width = population.coefficients.shape
    sums, value = np.zeros((n, width + 1), dtype=np.int64), np.zeros(n, dtype=np.int64)
    mean, variance, log_marginal = expectations(block.data, items, nodes, population, persons)
    u, e, sd = residuals(population, persons, mean)
    terms = np.concatenate([u * e[:, None], (e**2 + variance / sd**2)[:, None]], axis=1)
    add_by_group(sums, persons, fixed_point.fixed(w[:, None] * terms, scale))
    add_by_group(value, persons, fixed_point.fixed(w * log_marginal, log_scale))
    return sums, value


def add_by_group(out: Any, persons: Persons, terms: Any) -> None:
    """Add each person's terms to those of the group."""
    if persons.group is None:
        out[0] += terms.sum(axis=0)
    else:
        np.add.at(out, persons.group, terms)


def _next(x: Floats, sums: Floats, gram: Floats) -> Floats:
    """EM step of one group's ``(coefficients, log sd)``."""
    sd = np.exp(x[-1])
    move = np.linalg.solve(gram, sums[:-1])
    variance = (sums[-1] - sums[:-1] @ move) / gram[0, 0]
    floor = (SD_BOUNDS[0] / sd) ** 2
    log_sd = np.log(sd) + 0.5 * np.log(max(variance, floor))
    return np.append(x[:-1] + sd * move, np.clip(log_sd, *np.log(SD_BOUNDS)))


def climb(engine: Engine, items: ItemSet, population: Population, gram: Floats) -> Estimate:
    """EM from ``population``, accelerated; a proposal that lowers a likelihood is taken back.

    ``gram`` is that of each group's design, (groups, coefficients, coefficients), weighted.
    """
    x = np.concatenate([population.coefficients, np.log(population.sd)[:, None]], axis=1)
    n, width = x.shape
    low, high = np.full((2, width), np.inf) * [[-1.0], [1.0]]
    low[-1], high[-1] = np.log(SD_BOUNDS)
    accelerators = [Accelerator(low, high) for _ in range(n)]
    images, last, proposed = x.copy(), np.full(n, -np.inf), np.zeros(n, dtype=bool)
    settled = population  # for which the nodes were made
    nodes = settled.nodes(items, _MARGIN)
    for passes in range(1, _PASSES + 1):
        now = replace(population, coefficients=x[:, :-1].copy(), sd=np.exp(x[:, -1]))
        if not now.within(settled, _MARGIN):
            settled, nodes = now, now.nodes(items, _MARGIN)
        scale = scale_for(engine, 2.0 * largest_residual(now, nodes) ** 2)
        log_scale = scale_for(engine, _largest(items, nodes))
        if population.plain:
            found = engine.map_reduce(_sums_of_all, items, now, nodes, scale, log_scale)
        else:
            parts = engine.map_refs(_step, items, now, nodes, scale, log_scale)
            found = tuple(np.sum(p, axis=0) for p in zip(*parts, strict=True))
        sums, value = found[0] / scale, found[1] / log_scale
        change = 0.0
        for k in range(n):
            if proposed[k] and value[k] < last[k] - 1e-9 * abs(last[k]):
                accelerators[k].refused()
                x[k], proposed[k], change = images[k], False, np.inf
                continue
            last[k], images[k] = value[k], _next(x[k], sums[k], gram[k])
            change = max(change, float(np.abs(images[k] - x[k]).max()))
            x[k] = accelerators[k].propose(x[k, :, None].copy(), images[k, :, None].copy())[:, 0]
            proposed[k] = True
        engine.progress.update(passes, _PASSES)
        if change < _TOLERANCE:
            break
    else:
        warnings.warn(
            f"the distribution of ability still changes by {change:.2g} after {_PASSES} passes: "
            f"these responses hardly determine it",
            ConvergenceWarning,
            stacklevel=6,
        )
    final = replace(population, coefficients=images[:, :-1].copy(), sd=np.exp(images[:, -1]))
    return Estimate(final, passes, change < _TOLERANCE, float(last.sum()))


def _largest(items: ItemSet, nodes: Floats) -> float:
    """Bound of a person's absolute log marginal likelihood on these nodes."""
    ends = nodes[[0, -1]]
    return items.n_items * (-float(items.log_p(ends)[~items.empty].min()) + 1.0) + 1.0


def one_normal(engine: Engine, items: ItemSet) -> Estimate:
    """Mean and SD of the normal distribution of highest likelihood of all persons."""
    return climb(engine, items, STANDARD, np.full((1, 1, 1), total_weight(engine)))


def total_weight(engine: Engine) -> float:
    """Sum of the weights of persons with responses; an error if there is none."""
    scale = scale_for(engine, 1.0)
    total = engine.map_reduce(_persons, scale)[0] / scale
    if total == 0.0:
        raise EstimationError("there is no observed response")
    return float(total)


def _persons(block: Block, scale: float) -> Any:
    return fixed_point.fixed(_weights(block), scale).sum()
