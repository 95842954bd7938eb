"""The marginal log posterior of items of any model on the full data, in their coordinates."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import log_ndtr

from irt_dask.arrays import Floats
from irt_dask.calibrate.bayes import full_data_mode, shared_parameters
from irt_dask.calibrate.bayes.empirical_bayes import settled
from irt_dask.calibrate.bayes.hierarchy import Hierarchy
from irt_dask.calibrate.bayes.item_density import Conditional, Shapes
from irt_dask.calibrate.bayes.item_moves import LearnedMoves
from irt_dask.curves.grids import GRID_BOUND, grid_of
from irt_dask.curves.item_set import ItemSet
from irt_dask.curves.priors import ItemPrior
from irt_dask.engine import Engine
from irt_dask.items import derivatives
from irt_dask.items.derivatives import Counts
from irt_dask.kernels.posterior import expected_counts, person_weights
from irt_dask.kernels.posterior.tables import padded
from irt_dask.population.population import posteriors
from irt_dask.store import Block

#: Slopes may grow by this factor before the grid of abilities is made anew.
_MARGIN = 1.1


def _expect(block: Block, items: ItemSet, nodes: Floats, scales: Any) -> tuple[Any, ...]:
    """Expected counts of a block, above the lowest category and seen, and its log-likelihood."""
    p = posteriors(block.data, items, nodes, person_weights.prior(person_weights.normal(nodes)))
    counted = full_data_mode.counted(block)
    counts = expected_counts.counts(p.data, p.tables, p.shared, p.sets, p.prior, scales, **counted)
    return counts.higher, counts.seen, counts.log_marginal


@dataclass(frozen=True)
class Posterior:
    """Log posterior of coordinates (P, items); abilities are N(0, 1).

    A :class:`Hierarchy` holds its covariance; its mean is integrated out.
    """

    engine: Engine
    prior: ItemPrior | Hierarchy
    shapes: Shapes

    def nodes(self, parameters: Floats) -> Floats:
        """Grid of abilities for these items and others with somewhat larger slopes."""
        return padded(grid_of(self.shapes.items(parameters, _MARGIN)).nodes)

    def expected(self, y: Floats, nodes: Floats) -> tuple[float, list[Counts]]:
        """Log-likelihood, and expected counts: one pass over the data."""
        items = self.shapes.items(y)
        reach = max(GRID_BOUND, float(np.abs(nodes).max()))
        largest = items.n_items * (items.logit_at(reach)[1] + 1.0)
        scales = expected_counts.scales_for(self.engine.n_persons, reach, largest)
        higher, seen, value = self.engine.map_reduce(_expect, items, nodes, scales)
        first = np.concatenate([[0], np.cumsum(items.n_categories - 1)])
        counts = []
        for part in self.shapes.models.parts:
            rows = first[part.at][:, None] + np.arange(part.model.n_categories - 1)
            above = higher[rows] / scales.weight
            counts.append(Counts(part.model, part.at, nodes, seen[part.at] / scales.weight, above))
        return float(value) / scales.log_marginal, counts

    def __call__(self, parameters: Floats, nodes: Floats) -> tuple[float, Floats]:
        """Value and gradient: one pass over the data.

        Sums over persons are integers: the same bits whatever the blocks and workers.
        """
        y = parameters
        value, counts = self.expected(y, nodes)
        of_data = derivatives.gradient(counts, self.shapes.parameters(y))
        shape, (common, slope) = self.shapes.log_prior(y), self.log_common(y[:2])
        gradient = self.shapes.by_coordinate(y, of_data) + shape.gradient
        gradient[:2] += slope
        return value + float(shape.value.sum()) + common, gradient

    def log_prior(self, y: Floats) -> float:
        """Log density before the data."""
        return float(self.shapes.log_density(y).sum()) + self.log_common(y[:2])[0]

    def log_common(self, x: Floats) -> tuple[float, Floats]:
        """Log density of the slopes' coordinates and d before the data, and its gradient."""
        if isinstance(self.prior, Hierarchy):
            return self.prior.log_density(x)
        if self.shapes.signed:
            of_a, slope_a = full_data_mode.normal(x[0], self.prior.loading)
            of_d, slope_d = full_data_mode.normal(x[1], self.prior.intercept)
            return float((of_a + of_d).sum()), np.stack([slope_a, slope_d])
        a, models = np.exp(x[0]), self.shapes.models
        (mean, sd), (mean_d, sd_d) = self.prior.discrimination, self.prior.intercept
        z, z_d = (a - mean) / sd, (x[1] - mean_d) / sd_d
        constant = math.log(2.0 * math.pi * sd * sd_d) + float(log_ndtr(mean / sd))
        if models.shares:
            of_a = x[0] - 0.5 * z * z - math.log(sd) - float(log_ndtr(mean / sd))
            of_d = -0.5 * z_d * z_d - math.log(sd_d)
            once, rest = models.once[0], math.log(2.0 * math.pi) * 0.5
            value = float((of_a - rest)[once].sum() + (of_d - rest).sum())
            return value, np.stack([np.where(once, 1.0 - z * a / sd, 0.0), -z_d / sd_d])
        value = float((x[0] - 0.5 * (z * z + z_d * z_d) - constant).sum())
        return value, np.stack([1.0 - z * a / sd, -z_d / sd_d])

    def holding(self, covariance: Floats) -> Posterior:
        """The same, if the prior is learned, with another covariance of the items."""
        assert isinstance(self.prior, Hierarchy)
        return replace(self, prior=self.prior.holding(covariance))


def covariance(posterior: Posterior, y: Floats) -> tuple[Floats, Floats]:
    """Covariance of the items' (log a, d), and coordinates of the items, from a start.

    As :func:`irt_dask.calibrate.bayes.empirical_bayes.covariance`, for any model.
    """
    assert isinstance(posterior.prior, Hierarchy)
    return settled(posterior.prior, y, functools.partial(_step, posterior))


def _step(posterior: Posterior, y: Floats, mean: Floats, held: Floats) -> tuple[Floats, Floats]:
    """Modes of the items given their mean and covariance, and their own covariances."""
    _, counts = posterior.expected(y, posterior.nodes(y))
    known = {"prior_mean": mean, "prior_covariance": held}
    assert isinstance(posterior.prior, Hierarchy)
    common = LearnedMoves(posterior.prior, 1.0, y.shape[1], known)
    y, information = shared_parameters.modes(Conditional(posterior.shapes, counts, common), y)
    own: Floats = np.asarray(np.linalg.inv(information)[:, :2, :2], dtype=float)
    return y, own
