"""Rounds of marginal maximum likelihood: expected counts on the workers, then the item step.

One round is one pass: the log-likelihood of the current parameters and the EM step from there.
"""

from __future__ import annotations

import functools
import math
import uuid

import numpy as np

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.calibrate.marginal.expected import FINE, NOTHING, ROUGH, Expected, expect
from irt_dask.calibrate.marginal.model import HISTOGRAM_NODES, LOG_SDS, MEANS, Model
from irt_dask.engine import Engine
from irt_dask.errors import EstimationError
from irt_dask.items import derivatives
from irt_dask.items.maximum import Problem, likeliest
from irt_dask.kernels.responses import item_sets
from irt_dask.store import Block

#: Scoring steps of a round, so many that an item that everybody has right gets to its bound, and
#: the step after which there is no other.
_STEPS, _PRECISION = 40, 1e-6


#: Persons from whom on a set of items is common.
_COMMON = 200


def _tally(block: Block, n_buckets: int) -> tuple[Ints]:
    return (item_sets.tally(block.data, n_buckets),)


class Rounds:
    """What the loop of :mod:`irt_dask.calibrate.shared.climb` asks for."""

    def __init__(self, engine: Engine, model: Model, *, complete: bool = False) -> None:
        self.engine, self.model, self.box = engine, model, model.box()
        self.complete = complete  # nobody who answered an item left out another
        self.name = uuid.uuid4().hex  # of what processes keep for it
        self._last: tuple[Floats, tuple[float, Expected]] | None = None

    @functools.cached_property
    def common_sets(self) -> Bools:
        """Sets of items that many persons answered, (sets, items): one pass if any are needed."""
        m = self.model.n_items
        if self.complete:
            return np.ones((1, m), dtype=bool)
        n_buckets = item_sets.buckets_for(self.engine.n_persons, m)
        (tallied,) = self.engine.map_reduce(_tally, n_buckets)
        return item_sets.majorities(tallied, _COMMON)

    def round(self, x: Floats) -> tuple[float, None, Expected]:
        """Log-likelihood plus log prior of the items, and expected counts at x."""
        value, seen = self.expect(x)
        return value + self.log_prior(x), None, seen

    def early(self, x: Floats) -> tuple[float, None, Expected]:
        """As :meth:`round`, on a grid of little more than half the nodes."""
        value, seen = self._expect(x, ROUGH)
        return value + self.log_prior(x), None, seen

    def expect(self, x: Floats) -> tuple[float, Expected]:
        """Log-likelihood and expected counts at x; minus infinity where x describes no items.

        Those of the last x are kept.
        """
        if self._last is None or not np.array_equal(self._last[0], x):
            self._last = x.copy(), self._expect(x, FINE)
        return self._last[1]

    def _expect(self, x: Floats, width: float) -> tuple[float, Expected]:
        if not self.model.items.valid(self.model.unpack(x)[0]):
            return -math.inf, NOTHING
        return expect(self.engine, self.name, self.model, x, width=width)

    def log_prior(self, x: Floats) -> float:
        """Log prior density of the items' parameters that are estimated; 0 without a prior."""
        items, _ = self.model.unpack(x)
        free = np.where(self.model.free, items, np.nan)
        return float(self.model.prior.log_density(free).sum())

    # --- EM steps -------------------------------------------------------------------------------

    def item_step(self, seen: Expected, x: Floats, *, everywhere: bool = True) -> Floats:
        """EM step from x.

        It stays near the parameters at hand, ``everywhere`` or not: with other ones an item's
        expected counts would be others too.
        """
        items, ability = self.model.unpack(x)
        moved = items.copy()
        for at, size in self._problems:
            place = np.full(self.model.n_items, -1)
            place[at] = np.arange(at.size)
            counts = [c.take(place >= 0) for c in seen.counts]
            counts = [c._replace(items=place[c.items]) for c in counts if c.items.size]
            low, high = (bound[:size, at] for bound in self.model.item_bounds)
            prior, of_all = self.model.prior.take(at).first(size), self.model.of_all[:size, at]
            problem, start = Problem(counts, low, high, prior, of_all), items[:size, at]
            moved[:size, at] = likeliest(problem, start, steps=_STEPS, precision=_PRECISION)
        image = self.model.pack(moved, self._ability_step(seen, ability))
        if not np.isfinite(image).all():
            raise EstimationError("the EM step ended at a value that is not finite")
        return image

    @functools.cached_property
    def _problems(self) -> list[tuple[Ints, int]]:
        """Items that are estimated together, and how many parameters they have at most.

        Those that share parameters are one problem, the others one for each model.
        """
        model = self.model
        sharing = np.flatnonzero((model.of_all >= 0).any(axis=0))
        alone = np.setdiff1d(np.flatnonzero(model.free.any(axis=0)), sharing)
        found = [(np.intersect1d(part.at, alone), len(part.model.parameters))
                 for part in model.items.parts]  # fmt: skip
        sizes = (len(p.model.parameters) for p in model.items.parts
                 if np.isin(p.at, sharing).any())  # fmt: skip
        found.append((sharing, max(sizes, default=0)))
        return [(at, size) for at, size in found if at.size]

    def _ability_step(self, e: Expected, ability: Floats) -> Floats:
        """Means and SDs, or histograms, of expected persons."""
        n = e.persons.sum(axis=1, keepdims=True)
        if (n <= 0.0).any():
            raise EstimationError("a group has no person with a response; remove it")
        if self.model.histogram:
            return e.persons[:, : HISTOGRAM_NODES.size] / n
        mean = e.persons @ e.nodes / n[:, 0]
        variance = (e.persons * (e.nodes - mean[:, None]) ** 2).sum(axis=1) / n[:, 0]
        free = self.model.free_groups
        log_sd = np.clip(0.5 * np.log(variance), *LOG_SDS)
        return np.stack([np.where(free, np.clip(mean, *MEANS), 0.0), np.where(free, log_sd, 0.0)])

    # --- beyond them ----------------------------------------------------------------------------

    def further(self, image: Floats, e: Expected) -> Floats:
        """From the EM step on to that of a model whose reference group has any mean and SD.

        Bringing that group back to 0 and 1 changes the items and the other groups, not the
        likelihood, and a common shift or stretch, of which few persons with many items say little,
        is found in one step (parameter expansion: Liu, Rubin and Wu 1998).  Parameters at a bound
        stay there, and pull at mean and SD with what the likelihood would gain beyond; a group at a
        bound could not be moved along, so then there is no further step.
        """
        model = self.model
        if model.histogram or model.anchored or model.prior.common is not None:
            return image  # a prior of slopes and intercepts says something of the scale
        items, ability = model.unpack(image)
        if model.at_group_bound(ability).any():
            return image
        inside = model.inside(items)
        pull = np.zeros_like(items)
        if (at := np.asarray(~inside.all(axis=0))).any():
            held = [c.take(at) for c in e.counts]
            pull = np.where(inside, 0.0, derivatives.gradient(held, items))
        by_mean, by_sd = moves(model, items)
        n, mean, variance = e.moments(model.reference)
        stretched = float((pull * by_sd).sum()) / n
        if not abs(stretched) < 0.5:
            return image
        variance /= 1.0 + stretched
        mean -= variance * float((pull * by_mean).sum()) / n
        sd = math.sqrt(variance)
        moved = np.where(inside, model.items.rescaled(items, mean, sd), items)
        x = model.pack(moved, model.groups_from(ability, mean, sd))
        return np.clip(x, self.box.low[:, None], self.box.high[:, None])


def moves(model: Model, items: Floats) -> tuple[Floats, Floats]:
    """How the items' parameters change with the mean and the SD of ability, at 0 and 1."""
    here = model.items.rescaled(items, 0.0, 1.0)
    by_mean, by_sd = (model.items.rescaled(items, *to) for to in ((1.0, 1.0), (0.0, 2.0)))
    return by_mean - here, by_sd - here
