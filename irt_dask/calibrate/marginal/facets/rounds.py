"""Rounds of a fit with facets: expected counts of the columns, then items and effects."""

from __future__ import annotations

import math
import uuid

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.calibrate.marginal import expected as of_marginal
from irt_dask.calibrate.marginal.expected import NOTHING, Expected
from irt_dask.calibrate.marginal.facets import joint_step
from irt_dask.calibrate.marginal.facets.model import FacetModel, grid
from irt_dask.calibrate.marginal.model import LOG_SDS, MEANS
from irt_dask.engine import Engine
from irt_dask.errors import EstimationError


class FacetRounds:
    """What the loop of :mod:`irt_dask.calibrate.shared.climb` asks for.

    ``most`` are answers to the columns of each item that a person gave, at most.
    """

    def __init__(self, engine: Engine, model: FacetModel, most: Ints) -> None:
        self.engine, self.model, self.box, self.most = engine, model, model.box(), most
        self.name = uuid.uuid4().hex  # of what processes keep for it

    def round(self, x: Floats) -> tuple[float, None, Expected]:
        """Log-likelihood plus log priors, and expected counts at x."""
        value, seen = self.expect(x)
        return value + self.log_prior(x), None, seen

    def log_prior(self, x: Floats) -> float:
        """Log prior of items and effects."""
        items, _, effects = self.model.unpack(x)
        return joint_step.log_prior(self.model, items, effects)

    def expect(self, x: Floats) -> tuple[float, Expected]:
        """Log-likelihood and expected counts at x; minus infinity where x describes no items."""
        items, _, effects = self.model.unpack(x)
        if not (self.model.parent.items.valid(items) and np.isfinite(effects).all()):
            return -math.inf, NOTHING
        columns = self.model.items.item_set(self.model.of_columns(items, effects))
        nodes = grid(self.model, x, self.most)
        n_most = int(self.most.sum())
        return of_marginal.expect_on(
            self.engine, self.name, self.model.items, columns, nodes, n_most
        )

    def item_step(self, seen: Expected, x: Floats, *, everywhere: bool = True) -> Floats:
        """EM step from x."""
        items, ability, effects = self.model.unpack(x)
        moved, shifted = joint_step.step(self.model, items, effects, seen.counts)
        return self.model.pack(moved, self._ability_step(seen, ability), shifted)

    def _ability_step(self, e: Expected, ability: Floats) -> Floats:
        """Means and log SDs of expected persons."""
        n = e.persons.sum(axis=1)
        if (n <= 0.0).any():
            raise EstimationError("a group has no person with a response; remove it")
        mean = e.persons @ e.nodes / n
        variance = (e.persons * (e.nodes - mean[:, None]) ** 2).sum(axis=1) / n
        free = self.model.parent.free_groups
        log_sd = np.clip(0.5 * np.log(variance), *LOG_SDS)
        return np.stack([np.where(free, np.clip(mean, *MEANS), 0.0), np.where(free, log_sd, 0.0)])

    def further(self, image: Floats, e: Expected) -> Floats:
        """From the EM step on to that of a model whose reference group has any mean and SD.

        As in :class:`irt_dask.calibrate.marginal.rounds.Rounds`; effects are in units of ability.
        With anything at a bound, or effects that have a density, there is no such step.
        """
        model, parent = self.model, self.model.parent
        items, ability, effects = model.unpack(image)
        inside = parent.inside(items) | ~parent.free
        if model.precision.any() or not inside.all() or parent.at_group_bound(ability).any():
            return image
        _, mean, variance = e.moments(parent.reference)
        sd = math.sqrt(variance)
        linear = model.design.linear
        moved = parent.items.rescaled(items, 0.0 if linear else mean, sd)
        if linear:  # items have no difficulties of their own that could follow
            effects = effects - mean * model.design.constant
        x = model.pack(moved, parent.groups_from(ability, mean, sd), effects / sd)
        return np.clip(x, self.box.low[:, None], self.box.high[:, None])
