"""Moving a combined posterior to where the posterior of all persons has its mode.

The mean of what shards say about a few hundred persons each is not what all persons say: the
shards' posteriors are skewed and their modes biased, both by O(1 / n_k).  The score of the marginal
log posterior on the full data needs one pass (expected counts, Fisher's identity); its product with
the combined covariance is a Newton step.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy.special import log_ndtr

from irt_dask.arrays import Bools, Floats
from irt_dask.calibrate.bayes.coordinates import Space, by_item, from_items
from irt_dask.calibrate.bayes.hierarchy import Hierarchy
from irt_dask.curves.grids import GRID_BOUND, grid_for
from irt_dask.curves.item_set import ItemSet
from irt_dask.curves.priors import ItemPrior
from irt_dask.engine import Engine
from irt_dask.errors import ConvergenceWarning
from irt_dask.items.tables import plane_tables
from irt_dask.kernels.posterior import expected_counts, person_weights
from irt_dask.kernels.posterior.tables import padded
from irt_dask.kernels.several import plane_posterior
from irt_dask.population.population import posteriors
from irt_dask.store import Block

#: Steps end when the largest is below this share of the parameter's posterior SD.
_SMALL_STEP = 0.05
_MOST_STEPS = 30
#: Times a step is halved where the log posterior falls.
_MOST_HALVINGS = 10
#: Slopes may grow by this factor before the grid of abilities is made anew.
_MARGIN = 1.1


@dataclass(frozen=True)
class Refined:
    """Where the steps ended: coordinates (P, items); ``first_step`` is in posterior SDs."""

    centre: Floats
    n_steps: int
    first_step: float
    converged: bool


# --- the marginal posterior on the full data ------------------------------------------------------


def counted(block: Block) -> dict[str, Any]:
    """How often persons count in expected counts: sampling weights, or persons of a row."""
    return {"weight": block.weight if block.times is None else None, "times": block.times}


def on_line(block: Block, a: Floats, d: Floats, nodes: Floats, scales: Any) -> tuple[Any, ...]:
    """Expected counts of a block, right and seen by item and node, and its log-likelihood."""
    prior = person_weights.prior(person_weights.normal(nodes))
    p = posteriors(block.data, ItemSet.of("2pl", a, d), nodes, prior)
    counts = expected_counts.counts(
        p.data, p.tables, p.shared, p.sets, p.prior, scales, **counted(block)
    )
    return counts.higher, counts.seen, counts.log_marginal


def _on_plane(
    block: Block, loading: Floats, d: Floats, rho: float | None, nodes: Floats, scales: Any
) -> tuple[Any, ...]:
    g = plane_tables(loading, d, rho or 0.0, nodes)
    return plane_posterior.sums(block.data, g, scales, products=rho is not None)


@dataclass(frozen=True)
class Posterior:
    """Marginal log posterior of loadings and intercepts, shape (P, items), on the full data.

    Abilities are N(0, 1).  If two of them are correlated, a further column has the correlation in
    its first row (:func:`with_correlation`); its prior is uniform.  A :class:`Hierarchy` holds its
    covariance; its mean is integrated out.
    """

    engine: Engine
    prior: ItemPrior | Hierarchy
    free: Bools | None = None
    signed: Bools | None = None

    def _split(self, parameters: Floats) -> tuple[Floats, float | None]:
        """Parameters of the items, and the correlation where it is one of the parameters."""
        m = self.engine.responses.n_items
        return parameters[:, :m], float(parameters[0, m]) if parameters.shape[1] > m else None

    def nodes(self, parameters: Floats) -> Floats:
        """Grid of abilities for these items and others with somewhat larger loadings."""
        items, rho = self._split(parameters)
        loading, d = items[:-1], items[-1]
        if len(loading) == 1:
            return padded(grid_for(loading[0], d, margin=_MARGIN).nodes)
        return plane_posterior.plane_for(loading, d, correlation=rho or 0.0, margin=_MARGIN).nodes

    def scales(self, items: Floats, nodes: Floats) -> expected_counts.Scales:
        """Scales of sums over persons, on some nodes."""
        r, (*loading, d) = self.engine.responses, np.abs(items)
        worst = float((np.sum(loading, axis=0) * GRID_BOUND + d).max()) + 1.0
        return expected_counts.scales_for(
            self.engine.n_persons, float(np.abs(nodes).max()), r.n_items * worst
        )

    def __call__(self, parameters: Floats, nodes: Floats) -> tuple[float, Floats]:
        """Value and gradient in the parameters: one pass over the data.

        Sums over persons are integers: the same bits whatever the blocks and workers.
        """
        items, rho = self._split(parameters)
        loading, d = items[:-1], items[-1]
        scales = self.scales(items, nodes)
        if len(loading) == 1:
            right, seen, value = self.engine.map_reduce(on_line, loading[0], d, nodes, scales)
            right, seen = right / scales.weight, seen / scales.weight
            gradient = _score(right, seen, nodes, loading[0], d)
        else:
            residual, whole, product, value = self.engine.map_reduce(
                _on_plane, loading, d, rho, nodes, scales
            )
            g = plane_tables(loading, d, rho or 0.0, nodes)
            gradient = plane_posterior.score(residual / scales.weight, whole / scales.weight, g)
        prior, slope = self._log_prior(items)
        gradient = gradient + slope
        if rho is not None:
            n = self.engine.responses.n_persons
            by_rho = plane_posterior.correlation_score(product, n, rho, scales)
            gradient = with_correlation(gradient, by_rho)
        return float(value) / scales.log_marginal + prior, gradient

    def _log_prior(self, parameters: Floats) -> tuple[float, Floats]:
        """Log density of the items' prior and its gradient; fixed loadings have none."""
        a, d = parameters[:-1], parameters[-1:]
        if isinstance(self.prior, Hierarchy):
            return self.prior.log_density_of_slopes(a[0], d[0])
        slope = np.empty_like(parameters)
        value = np.empty_like(parameters)
        value[:-1], slope[:-1] = normal(a, self.prior.discrimination)
        value[:-1] -= log_ndtr(self.prior.discrimination[0] / self.prior.discrimination[1])
        if self.signed is not None:
            at = self.signed[:-1]
            value[:-1][at], slope[:-1][at] = normal(a[at], self.prior.loading)
        value[-1:], slope[-1:] = normal(d, self.prior.intercept)
        if self.free is not None:
            value, slope = np.where(self.free, value, 0.0), np.where(self.free, slope, 0.0)
        return float(value.sum()), slope


def _score(right: Floats, seen: Floats, nodes: Floats, a: Floats, d: Floats) -> Floats:
    """Gradient of the log marginal likelihood in (a, d), shape (2, n_items), from the counts.

    By Fisher's identity it is that of the expected complete log-likelihood:
    ``sum_q theta_q (r_jq - f_jq P_jq)`` and ``sum_q (r_jq - f_jq P_jq)``.
    """
    residual = right - seen * np.exp(ItemSet.of("2pl", a, d).log_p(nodes)[1::2])
    return np.stack([residual @ nodes, residual.sum(axis=1)])


def with_correlation(items: Floats, correlation: float) -> Floats:
    """Append a column whose first entry is the correlation of two abilities."""
    column = np.zeros((len(items), 1))
    column[0] = correlation
    return np.hstack([items, column])


def normal(x: Floats, prior: tuple[float, float]) -> tuple[Floats, Floats]:
    """Log density of a normal, and its derivative."""
    mean, sd = prior
    z = (x - mean) / sd
    return -0.5 * (z**2 + math.log(2.0 * math.pi)) - math.log(sd), -z / sd


# --- the steps ------------------------------------------------------------------------------------


class LogPosterior(Protocol):
    """What steps to a mode ask for."""

    def nodes(self, parameters: Floats) -> Floats:
        """Grid of abilities for these items."""

    def __call__(self, parameters: Floats, nodes: Floats) -> tuple[float, Floats]:
        """Value and gradient."""


def refine(posterior: LogPosterior, space: Space, start: Floats, covariance: Floats) -> Refined:
    """Newton steps from ``start``, coordinates (P, items), to the mode of the log posterior there.

    ``covariance`` is (blocks, size, size): of all parameters item by item in one block, or one
    block for each item.  It stands for the inverse Hessian; what it misses (all that items share,
    where it has a block for each) is learnt from the steps themselves, by limited-memory BFGS
    updates.  A step that lowers the log posterior is halved.

    Notes
    -----
    One pass over the data for each step and halving; the driver holds expected counts, 16 bytes x
    items x nodes of one ability (of two abilities 8 bytes x nodes^2).
    """
    x = start
    sd = from_items(np.sqrt(np.diagonal(covariance, axis1=1, axis2=2)), len(x))
    free = space.mask(*x.shape)
    nodes = posterior.nodes(space.parameters(x))
    value, gradient = _evaluate(posterior, space, x, nodes)
    memory: list[tuple[Floats, Floats]] = []
    first = 0.0
    for k in range(_MOST_STEPS):
        step = _direction(gradient, covariance, memory)
        size = float((np.abs(step) / sd)[free].max())
        first = first or size
        if size < _SMALL_STEP:
            return Refined(x + space.within(x, step), k, first, True)
        step = space.within(x, step)
        finer = posterior.nodes(space.parameters(x + step))
        if finer.size > nodes.size * _MARGIN:  # values on different grids differ in their last bits
            nodes = finer
            value, gradient = _evaluate(posterior, space, x, nodes)
        for _ in range(_MOST_HALVINGS):
            moved = x + step
            new_value, new_gradient = _evaluate(posterior, space, moved, nodes)
            if new_value >= value:
                break
            step = 0.5 * step
        else:
            break
        memory.append((moved - x, gradient - new_gradient))
        x, value, gradient = moved, new_value, new_gradient
    warnings.warn(
        f"the location of the combined posterior did not settle in {len(memory)} steps on the full "
        f"data (last step {size:.2g} posterior SD, limit {_SMALL_STEP}); use fewer shards, or more "
        f"draws in each",
        ConvergenceWarning,
        stacklevel=2,
    )
    return Refined(x, len(memory), first, False)


def _evaluate(
    posterior: LogPosterior, space: Space, x: Floats, nodes: Floats
) -> tuple[float, Floats]:
    """Log posterior density in the coordinates, and its gradient there."""
    value, gradient = posterior(space.parameters(x), nodes)
    volume, slope = space.volume(x)
    return value + volume, space.gradient(x, gradient) + slope


def _direction(gradient: Floats, covariance: Floats, memory: list[tuple[Floats, Floats]]) -> Floats:
    """Newton step: covariance times score, with BFGS updates by steps and changes of the score."""
    q = gradient
    used = [(s, y, float((s * y).sum())) for s, y in memory]
    used = [(s, y, sy) for s, y, sy in used if sy > 0.0]
    weight = []
    for s, y, sy in reversed(used):
        weight.append(float((s * q).sum()) / sy)
        q = q - weight[-1] * y
    blocks = by_item(q, len(covariance))
    step = from_items((covariance @ blocks[..., None])[..., 0], len(gradient))
    for (s, y, sy), w in zip(used, reversed(weight), strict=True):
        step = step + s * (w - float((y * step).sum()) / sy)
    return step
