"""What a fit with facets estimates: items, groups, and effects that shift the items' columns.

A column of the store is its item with the difficulty moved: log P(k | ability) is that of the item
at ability less the shift.  In every model of items that is a change of parameters which is linear
in the shift (:meth:`~irt_dask.curves.base.ItemModel.rescaling`), so that columns are items of the
same model with parameters of their own, and everything that knows items knows columns.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

import numpy as np

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.calibrate.marginal.expected import Grid
from irt_dask.calibrate.marginal.facets.design import Design
from irt_dask.calibrate.marginal.model import Model
from irt_dask.curves.grids import GRID_BOUND
from irt_dask.curves.item_set import ItemSet
from irt_dask.errors import InputError
from irt_dask.items.mixture import Mixture, Part
from irt_dask.kernels.joint.item_maximum import Box
from irt_dask.kernels.posterior import person_weights
from irt_dask.kernels.posterior.tables import padded

#: Bounds of effects, in units of ability; of numbers by SD.
EFFECTS = (-15.0, 15.0)


@dataclass(frozen=True)
class FacetModel:
    """The items, the design, and how much is known of effects before the data.

    ``precision`` (effects,) is that of normal densities with mean 0, 0 where there is none.  The
    column of all parameters is that of ``parent``, then the effects.
    """

    parent: Model
    design: Design
    precision: Floats

    @functools.cached_property
    def without_facets(self) -> FacetModel:
        """The items as columns."""
        return replace(self, design=self.design.of_items)

    @functools.cached_property
    def of_middle(self) -> FacetModel:
        """The items as columns where numbers are at their mean."""
        return replace(self, design=self.design.of_middle)

    @functools.cached_property
    def items(self) -> Mixture:
        """Models of the columns."""
        parts = []
        for p in self.parent.items.parts:
            at = np.flatnonzero(np.isin(self.design.parent, p.at))
            parts.append(Part(p.model, at, p.block))
        return Mixture(tuple(parts))

    def with_precision(self, precision: Floats) -> FacetModel:
        """The same with other densities of effects."""
        return replace(self, precision=precision)

    # --- the column -----------------------------------------------------------------------------

    @property
    def n_of_parent(self) -> int:
        """Length of the parent's column."""
        return self.parent.fixed.size + 2 * self.parent.n_groups

    def pack(self, items: Floats, ability: Floats, effects: Floats) -> Floats:
        """Return the column of all parameters."""
        return np.concatenate([self.parent.pack(items, ability)[:, 0], effects])[:, None]

    def unpack(self, x: Floats) -> tuple[Floats, Floats, Floats]:
        """Items (parameters, items), means and log SDs (2, groups), effects."""
        n = self.n_of_parent
        return *self.parent.unpack(x[:n]), x[n:, 0]

    def box(self) -> Box:
        """Bounds of the column."""
        of_parent, n = self.parent.box(), self.design.n_effects
        low, high = (np.full(n, b) for b in EFFECTS)
        return Box(np.append(of_parent.low, low), np.append(of_parent.high, high))

    # --- columns of the store -------------------------------------------------------------------

    @functools.cached_property
    def _moves(self) -> list[tuple[Floats, Floats]]:
        """Of each part, what is kept of parameters, and what is added by a unit of mean ability."""
        out = []
        for p in self.items.parts:
            kept = p.model.rescaling(0.0, 1.0)
            out.append((kept, p.model.rescaling(1.0, 1.0) - kept))
        return out

    def of_columns(self, items: Floats, effects: Floats) -> Floats:
        """Parameters of the columns, (parameters, columns)."""
        shift, x = self.design.shifts(effects), np.zeros((len(items), self.design.parent.size))
        for p, (kept, by_mean) in zip(self.items.parts, self._moves, strict=True):
            own = items[: len(kept), self.design.parent[p.at]]
            x[: len(kept), p.at] = kept @ own - shift[p.at] * (by_mean @ own)
        return x

    def jacobian(self, items: Floats, effects: Floats) -> tuple[Floats, Floats]:
        """How columns' parameters follow those of their item, and the shift.

        (columns, parameters, parameters) and (columns, parameters).
        """
        shift, size = self.design.shifts(effects), len(items)
        by_item = np.zeros((shift.size, size, size))
        by_shift = np.zeros((shift.size, size))
        for p, (kept, by_mean) in zip(self.items.parts, self._moves, strict=True):
            n, own = len(kept), items[: len(kept), self.design.parent[p.at]]
            by_item[p.at, :n, :n] = kept - shift[p.at, None, None] * by_mean
            by_shift[p.at, :n] = -(by_mean @ own).T
        return by_item, by_shift

    def bent(self, gradient: Floats) -> Floats:
        """Second derivatives by parameters of the item and shift, (columns, parameters).

        Parameters of columns are products of the two: times the gradient by them, (parameters,
        columns).
        """
        out = np.zeros(gradient.T.shape)
        for p, (kept, by_mean) in zip(self.items.parts, self._moves, strict=True):
            out[p.at, : len(kept)] = -(by_mean.T @ gradient[: len(kept), p.at]).T
        return out

    def recentred(self, items: Floats, effects: Floats) -> tuple[Floats, Floats]:
        """The same columns from effects that sum to 0 within each facet with levels."""
        sums = self.design.centred
        mean = (sums @ effects) / np.asarray(sums.sum(axis=1)).ravel()
        effects = effects - sums.T @ mean
        if self.design.linear:
            return items, effects + float(mean.sum()) * self.design.constant
        out = items.copy()
        for p in self.parent.items.parts:
            kept = p.model.rescaling(-float(mean.sum()), 1.0)
            out[: len(kept), p.at] = kept @ items[: len(kept), p.at]
        return out, effects


def located(parent: Model) -> Model:
    """The model with items that are nowhere but where covariates put them: at difficulty 0."""
    fixed = parent.fixed.copy()
    for p in parent.items.parts:
        some = np.arange(1.0, 1.0 + len(p.model.parameters))[:, None]
        at = 1 + np.flatnonzero(p.model.difficulty(some)[1][1:, 0])
        if at.size != 1:
            raise InputError(
                f"facets with 'item ~': difficulties of {p.model.name} items are of several "
                f"parameters, which covariates cannot take the place of; use models of two "
                f"categories, gpcm, pcm, rating or binomial"
            )
        fixed[at[0], p.at] = 0.0
    return replace(parent, fixed=fixed)


def grid(model: FacetModel, x: Floats, most: Ints, *, coarse: bool = False) -> Grid:
    """Grid that resolves the posteriors of persons with at most so many answers to each item.

    As :meth:`~irt_dask.calibrate.marginal.expected.Grid.of`, but nobody answers all columns: an
    item is taken to be most informative wherever its columns are.
    """
    items, ability, effects = model.unpack(x)
    parents = model.parent.items.item_set(items)
    mean, sd = ability[0], np.exp(ability[1])
    bound = max(GRID_BOUND, float((np.abs(mean) + GRID_BOUND * sd).max()))
    reach = bound + float(np.abs(model.design.shifts(effects)).max())
    finest = min(_spacing(parents, reach, most), 0.5 * float(sd.min()))
    spacing = min((2.0 if coarse else 1.5) * finest, 1.0 / parents.steepest, 0.5)
    half = math.ceil(bound / spacing)
    nodes = padded(np.arange(-half, half + 1, dtype=np.float64) * spacing)
    return Grid(nodes, person_weights.normal(nodes, mean, sd))


def _spacing(items: ItemSet, reach: float, most: Ints) -> float:
    """Half the smallest posterior SD, at most 1 / the steepest slope."""
    n = math.ceil(2.0 * reach / min(0.125, 0.25 / items.steepest)) + 1
    look = np.linspace(-reach, reach, n)
    sharpest = np.empty(items.n_items)
    for g in items.groups:
        sharpest[g.at] = g.model.sharpness(g.x, look).max(axis=1)
    return min(0.5 / math.sqrt(1.0 + float(most @ sharpest)), 1.0 / items.steepest, 0.5)


def at_bound(effects: Floats) -> Bools:
    """Effects that ended at a bound."""
    return np.asarray((effects <= EFFECTS[0]) | (effects >= EFFECTS[1]))
