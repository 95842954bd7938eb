"""What a marginal fit estimates: the items, and the distribution of ability by group."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

import numpy as np

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.curves.item_set import ItemSet
from irt_dask.items.densities import ItemDensity
from irt_dask.items.mixture import Mixture
from irt_dask.kernels.joint.item_maximum import Box

#: Bounds of the groups' means and SDs.
MEANS, LOG_SDS = (-10.0, 10.0), (math.log(0.05), math.log(10.0))
#: Share of a bound within which a parameter has ended there: steps come near, not onto it.
_ROUNDING = 1e-6
#: Abilities of a histogram.
HISTOGRAM_NODES: Floats = np.arange(-60, 61, dtype=np.float64) / 10.0


@dataclass(frozen=True)
class Model:
    """What is estimated.

    ``fixed`` are values (parameters, items) of items that are not (0 for what an item's model does
    not have), NaN for the others.  The group
    ``reference`` has mean 0 and SD 1, unless items of a bank fix the scale (``anchored``); with
    ``histogram`` every group has one.

    All parameters are one column: those of the items, then what is known of ability: means and log
    SDs of the groups, or their histograms.
    """

    items: Mixture
    fixed: Floats
    prior: ItemDensity
    n_groups: int = 1
    reference: int = 0
    anchored: bool = False
    histogram: bool = False
    #: Whether slopes may be negative.
    signed: bool = False
    #: Sets of items, (sets, items), without which nobody answers any together; None: all are.
    together: Bools | None = None

    @property
    def n_items(self) -> int:
        """Number of items."""
        return self.fixed.shape[1]

    @functools.cached_property
    def free(self) -> Bools:
        """Parameters of items that are estimated, (parameters, items)."""
        return np.asarray(np.isnan(self.fixed))

    @property
    def estimated(self) -> Bools:
        """Items of which something is estimated."""
        return np.asarray(self.free.any(axis=0))

    @functools.cached_property
    def of_all(self) -> Ints:
        """Numbers of parameters that items share, among those that are estimated; -1 for others."""
        return np.where(self.free, self.items.of_all, -1)

    @functools.cached_property
    def own(self) -> Bools:
        """Parameters that are estimated for an item alone, (parameters, items)."""
        return self.free & (self.of_all < 0)

    @functools.cached_property
    def free_groups(self) -> Bools:
        """Groups with a mean and an SD of their own."""
        return (np.arange(self.n_groups) != self.reference) | self.anchored

    @property
    def n_parameters(self) -> int:
        """Parameters that are estimated, wherever they end: those of AIC and BIC.

        What ended at a bound counts too: that the data drove it there was not known before.
        """
        count = int(self.own.sum()) + np.unique(self.of_all[self.of_all >= 0]).size
        if not self.histogram:
            return count + 2 * int(self.free_groups.sum())
        # A mean and an SD of a histogram fix the scale, unless items do.
        masses = self.n_groups * (HISTOGRAM_NODES.size - 1)
        return count + masses - (0 if self.anchored else 2)

    # --- the column -----------------------------------------------------------------------------

    def pack(self, items: Floats, ability: Floats) -> Floats:
        """Return the column of all parameters."""
        return np.concatenate([items.ravel(), ability.ravel()])[:, None]

    def unpack(self, x: Floats) -> tuple[Floats, Floats]:
        """Items (parameters, items); means and log SDs (2, groups), or histograms (groups, 121)."""
        items = x[: self.fixed.size, 0].reshape(self.fixed.shape)
        rows = self.n_groups if self.histogram else 2
        return items, x[self.fixed.size :, 0].reshape(rows, -1)

    def item_set(self, x: Floats) -> ItemSet:
        """The items of a column."""
        return self.items.item_set(self.unpack(x)[0])

    def of_models(self, models: Mixture) -> Model:
        """The same of other models of the items; those of items that are fixed are the same."""
        fixed, known = np.where(models.has, np.nan, 0.0), ~self.free.any(axis=0)
        fixed[:, known] = self.fixed[: models.size, known]
        return replace(self, items=models, fixed=fixed, prior=self.prior.first(models.size))

    def start(self, items: Floats) -> Floats:
        """Column to start from, near these items."""
        items = items.copy()
        for k in np.unique(self.of_all[self.of_all >= 0]):
            items[self.of_all == k] = items[self.of_all == k].mean()
        if self.histogram:
            density = np.exp(-0.5 * HISTOGRAM_NODES**2)
            ability = np.tile(density / density.sum(), (self.n_groups, 1))
        else:
            ability = np.zeros((2, self.n_groups))
        low, high = self.item_bounds
        return self.pack(np.clip(items, low, high), ability)

    def turned(self, x: Floats) -> Floats:
        """Column of the same likelihood for ability turned around."""
        items, ability = self.unpack(x)
        items = self.items.rescaled(items, 0.0, -1.0)
        if self.histogram:
            return self.pack(items, ability[:, ::-1])
        return self.pack(items, np.stack([-ability[0], ability[1]]))

    def groups_from(self, ability: Floats, mean: float, sd: float) -> Floats:
        """Means and log SDs of groups where what was this mean and SD is 0 and 1."""
        groups = np.stack([(ability[0] - mean) / sd, ability[1] - math.log(sd)])
        return np.where(self.free_groups, groups, 0.0)

    # --- bounds ---------------------------------------------------------------------------------

    @functools.cached_property
    def item_bounds(self) -> tuple[Floats, Floats]:
        """Bounds of the items' parameters, (parameters, items); those that are fixed are equal."""
        low, high = self.items.table(lambda p: p.bounds[0]), self.items.table(lambda p: p.bounds[1])
        if self.signed:
            low[0] = np.minimum(low[0], -high[0])
        return np.where(self.free, low, self.fixed), np.where(self.free, high, self.fixed)

    def box(self) -> Box:
        """Bounds of the column."""
        low, high = (bound.ravel() for bound in self.item_bounds)
        if self.histogram:
            size = self.n_groups * HISTOGRAM_NODES.size
            return Box(np.append(low, np.zeros(size)), np.append(high, np.ones(size)))
        free = self.free_groups
        return Box(
            np.concatenate([low, np.where(free, MEANS[0], 0.0), np.where(free, LOG_SDS[0], 0.0)]),
            np.concatenate([high, np.where(free, MEANS[1], 0.0), np.where(free, LOG_SDS[1], 0.0)]),
        )

    @functools.cached_property
    def _answers(self) -> tuple[Bools, Bools]:
        """Where the lower and where the upper bound is an answer, (parameters, items)."""
        low = self.items.table(lambda p: p.bounds[0] == p.answer, missing=True)
        high = self.items.table(lambda p: p.bounds[1] == p.answer, missing=True)
        return np.asarray(low, dtype=bool), np.asarray(high, dtype=bool)

    @functools.cached_property
    def _ends(self) -> tuple[Floats, Floats]:
        """Values from which on a parameter has ended at a bound, (parameters, items)."""
        (low, high), (low_answer, high_answer) = self.item_bounds, self._answers
        near_low, near_high = (_ROUNDING * np.abs(bound) for bound in (low, high))
        return (
            low + np.where(self.free & ~low_answer, near_low, 0.0),
            high - np.where(self.free & ~high_answer, near_high, 0.0),
        )

    def inside(self, items: Floats) -> Bools:
        """Parameters of items that are estimated and not at a bound, (parameters, items)."""
        low, high = self._ends
        return np.asarray((items > low) & (items < high))

    def at_bound(self, items: Floats) -> Bools:
        """Items with a parameter that ended at a bound which is no answer."""
        (low, high), (low_answer, high_answer) = self._ends, self._answers
        at = ((items <= low) & ~low_answer) | ((items >= high) & ~high_answer)
        return np.asarray((at & self.free).any(axis=0))

    def at_group_bound(self, ability: Floats) -> Bools:
        """Which groups' means and log SDs, (2, groups), are at a bound; no histogram is."""
        if self.histogram:
            return np.zeros((2, self.n_groups), dtype=bool)
        low, high = np.array([MEANS, LOG_SDS]).T
        out = (ability <= low[:, None]) | (ability >= high[:, None])
        return np.asarray(out & self.free_groups)
