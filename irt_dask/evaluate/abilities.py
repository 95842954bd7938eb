"""Items and the distribution of ability that fit statistics integrate over."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from irt_dask.arrays import Floats
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine import Engine
from irt_dask.engine.cache import keep
from irt_dask.errors import InputError
from irt_dask.items.parameters import item_set, refuse_other_categories
from irt_dask.kernels.misfit import predicted_scores
from irt_dask.kernels.posterior import at_ability, hermite, leave_one_out, point_estimates
from irt_dask.kernels.posterior.tables import LinearTables
from irt_dask.kernels.responses.layouts import Layout, row_range
from irt_dask.population import em, histogram
from irt_dask.population.population import (
    NOBODY_APART,
    Population,
    Posteriors,
    expectations,
    posteriors,
)
from irt_dask.store.responses import sha256

#: Cells of a block that are treated at a time: bounds the memory of what is found of each.
_CELLS = 1 << 22


@dataclass(frozen=True, eq=False)
class Known:
    """Items and the distribution of ability, both taken as known, and nodes for posteriors."""

    items: ItemSet
    population: Population
    nodes: Floats

    @classmethod
    def of(cls, items: ItemSet, population: Population) -> Known:
        """With nodes for any responses to these items."""
        return cls(items, population, population.nodes(items))

    @property
    def mean(self) -> float:
        """Mean of ability."""
        return float(self.population.coefficients[0, 0])

    @property
    def sd(self) -> float:
        """Standard deviation of ability."""
        return float(self.population.sd[0])

    def posteriors(self, data: Layout) -> Posteriors:
        """What kernels of the posterior take."""
        prior, _ = self.population.prior(self.nodes, NOBODY_APART)
        return posteriors(data, self.items, self.nodes, prior)

    def expectations(self, data: Layout) -> Floats:
        """Posterior mean and variance of each ability, and the log marginal likelihood."""
        return expectations(data, self.items, self.nodes, self.population)

    @functools.cached_property
    def graded(self) -> bool:
        """Whether some item has more than two categories."""
        return bool((self.items.n_categories > 2).any())

    def left_out(self, data: Layout) -> Floats:
        """Probability of each response given the person's others, in the order of the rows."""
        p = self.posteriors(data)
        return leave_one_out.left_out(*p.arguments, self._inverse(p))

    def moments(self, data: Layout) -> Floats:
        """Residuals of responses given the person's others, and what belongs to them."""
        p = self.posteriors(data)
        inverse, key = self._inverse(p), ("chance", self.items.digest, sha256(self.nodes))
        chance = keep(key, lambda: 1.0 / inverse.values)
        return predicted_scores.moments(*p.arguments, inverse, chance)

    def _inverse(self, p: Posteriors) -> leave_one_out.Inverse:
        return keep(
            ("inverse", self.items.digest, sha256(self.nodes)),
            lambda: leave_one_out.inverse(self.items, p.tables),
        )

    def between(self, items: ItemSet | None = None) -> at_ability.Between:
        """Curves between the nodes, of these or of some of the items."""
        items = self.items if items is None else items
        ends = float(self.nodes[0]), float(self.nodes[-1])
        return keep(("between", items.digest, *ends), lambda: at_ability.between(items, *ends))

    def modes(self, data: Layout) -> Floats:
        """Most likely ability of each person."""
        p = self.posteriors(data)
        goal = point_estimates.Goal(
            np.full(data.shape[0], self.mean), np.full(data.shape[0], self.sd**-2.0), False
        )
        curves = p.tables if isinstance(p.tables, LinearTables) else self.between()
        assert isinstance(curves, (LinearTables, hermite.Curves))
        none = np.empty((2, 0, 0))
        return point_estimates.estimates(*p.arguments, curves, goal, self.nodes.size, none)[0]


def parts(data: Layout) -> Iterator[Layout]:
    """Yield ranges of a block's persons that are not large."""
    n = data.shape[0]
    size = max(1, n * _CELLS // max(data.values.size, 1))
    return (row_range(data, k, min(k + size, n)) for k in range(0, n, size))


def checked(ability: Any) -> Population | None:
    """Return the normal distribution of a mean and a positive SD, or None."""
    if ability is None:
        return None
    try:
        mean, sd = (float(x) for x in ability)
    except (TypeError, ValueError):
        mean, sd = math.nan, math.nan
    if not (math.isfinite(mean) and math.isfinite(sd) and sd > 0.0):
        raise InputError(
            f"ability={ability!r} must be (mean, sd) of its normal distribution, both finite and "
            f"sd > 0, or None to estimate them"
        )
    return Population(np.array([[mean]]), np.array([sd]))


def choose(
    engine: Engine, items: xr.Dataset, ability: Population | None, *, group: str | None = None
) -> tuple[Known, dict[str, Any]]:
    """Items under the given or the likeliest distribution; what attrs say of it.

    The likeliest normal one, of a fit with a histogram that, or the one of its ``group``.
    """
    responses = engine.responses
    own = item_set(items, responses.item_id)
    refuse_other_categories(own, responses.n_categories, responses.item_id, "items")
    steps, converged = 0, True
    if ability is None:
        ability = histogram.of_fit(items, group)
    if ability is None:
        found = em.one_normal(engine, own)
        ability, steps, converged = found.population, found.passes, found.converged
    known = Known.of(own, ability)
    attrs = {
        "model": items.attrs.get("model"),
        "n_persons": engine.responses.n_persons,
        "ability_mean": known.mean,
        "ability_sd": known.sd,
        "n_iterations": steps,
        "converged": converged,
    }
    return known, attrs
