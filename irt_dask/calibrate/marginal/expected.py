"""The E-step of marginal maximum likelihood: expected counts at given parameters, in one pass."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.calibrate.marginal.model import HISTOGRAM_NODES, Model
from irt_dask.curves.grids import GRID_BOUND, grid_of
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine import Engine
from irt_dask.engine.cache import keep
from irt_dask.engine.memory import refuse_beyond_memory
from irt_dask.items.derivatives import Counts
from irt_dask.items.mixture import Mixture
from irt_dask.items.tables import item_tables
from irt_dask.kernels.posterior import expected_counts, person_weights
from irt_dask.kernels.posterior.coarse_axis import Axis, axis_for
from irt_dask.kernels.posterior.tables import Tables, padded
from irt_dask.kernels.responses.item_sets import CommonSets, common_sets
from irt_dask.store import Block

#: Least log mass of a node of a histogram, and a bound of what else log-likelihoods have of it.
_LEAST_MASS = -700.0


#: Distances of nodes, in posterior standard deviations.  Sums over nodes that are w of these apart
#: err by ``e^(-2 (pi / w)^2)``: e^-35, 3e-9 (moments are good to 1e-8), and 2e-5.
FINE, COARSE, ROUGH = 0.75, 1.0, 4.0 / 3.0


class Grid(NamedTuple):
    """Nodes, and the log mass of ability at each, (groups, nodes)."""

    nodes: Floats
    log_mass: Floats

    @classmethod
    def of(cls, model: Model, items: ItemSet, ability: Floats, *, width: float = FINE) -> Grid:
        """Grid that resolves the posteriors under these items and holds every group.

        Its spacing is ``width`` times the smallest posterior standard deviation at most, ``1 / max
        a`` and 1/2.
        """
        if model.histogram:
            nodes = padded(HISTOGRAM_NODES)
            log_mass = np.full((len(ability), nodes.size), -np.inf)  # nobody is on the padding
            with np.errstate(divide="ignore"):
                mass = np.log(ability / ability.sum(axis=1, keepdims=True))
            log_mass[:, : HISTOGRAM_NODES.size] = np.maximum(mass, _LEAST_MASS)
            return cls(nodes, log_mass)
        mean, sd = ability[0], np.exp(ability[1])
        bound = max(GRID_BOUND, float((np.abs(mean) + GRID_BOUND * sd).max()))
        finest = min(grid_of(items, together=model.together).spacing, 0.5 * float(sd.min()))
        spacing = min(2.0 * width * finest, 1.0 / items.steepest, 0.5)
        half = math.ceil(bound / spacing)
        nodes = padded(np.arange(-half, half + 1, dtype=np.float64) * spacing)
        return cls(nodes, person_weights.normal(nodes, mean, sd))


class Expected(NamedTuple):
    """Persons by group and node, and responses to the items."""

    nodes: Floats
    persons: Floats  # (groups, nodes)
    counts: tuple[Counts, ...]

    def moments(self, group: int) -> tuple[float, float, float]:
        """Number of persons of a group, mean and variance of their abilities."""
        persons = self.persons[group]
        n = float(persons.sum())
        mean = float(persons @ self.nodes) / n
        return n, mean, float(persons @ (self.nodes - mean) ** 2) / n

    def of_groups(self, ability: Floats, column: Ints) -> list[tuple[Ints, Floats]]:
        """Columns of each group's mean and log SD, and their information were abilities known.

        ``column`` (2, groups) is -1 of those that are fixed.
        """
        out: list[tuple[Ints, Floats]] = []
        for g in np.flatnonzero((column >= 0).any(axis=0)):
            sd = np.exp(ability[1, g])
            u = (self.nodes - ability[0, g]) / sd
            n, first, second = self.persons[g] @ np.stack([np.ones_like(u), u, u**2], axis=1)
            block = np.array([[n / sd**2, 2.0 * first / sd], [2.0 * first / sd, 2.0 * second]])
            inside = np.flatnonzero(column[:, g] >= 0)
            out.append((column[inside, g], block[np.ix_(inside, inside)]))
        return out


#: What is expected where there are no items.
NOTHING = Expected(np.empty(0), np.empty((0, 0)), ())


class Setting(NamedTuple):
    """What posteriors rest on; ``fit`` names the computation, for what is kept of its blocks."""

    fit: str
    items: ItemSet
    grid: Grid

    def of(
        self, block: Block
    ) -> tuple[CommonSets, Tables, person_weights.Shared, person_weights.Prior]:
        """Sets of items of a block's persons, tables, sums that they share, and their priors."""
        key = ("sets", self.fit, block.start, block.n_persons)
        sets = keep(key, lambda: common_sets(block.data))
        g = item_tables(self.items, self.grid.nodes, self.fit)
        prior = person_weights.prior(self.grid.log_mass, block.group)
        return sets, g, person_weights.shared(sets, g), prior


def _expect(
    block: Block, to: tuple[Any, ...] | None, setting: Setting, axis: Axis,
    scales: expected_counts.Scales,
) -> tuple[Any, ...]:  # fmt: skip
    sets, g, shared, prior = setting.of(block)
    return expected_counts.counts(
        block.data, g, shared, sets, prior, scales, axis=axis,
        to=None if to is None else expected_counts.Counts(*to),
        weight=block.weight if block.times is None else None, times=block.times,
    )  # fmt: skip


def expect(
    engine: Engine, fit: str, model: Model, x: Floats, *, width: float = FINE
) -> tuple[float, Expected]:
    """Log-likelihood and expected counts at x, on a grid as wide as that."""
    items, ability = model.item_set(x), model.unpack(x)[1]
    grid = Grid.of(model, items, ability, width=width)
    return expect_on(engine, fit, model.items, items, grid, items.n_items)


def expect_on(
    engine: Engine, fit: str, models: Mixture, items: ItemSet, grid: Grid, n_most: int
) -> tuple[float, Expected]:
    """The same of items on a grid; nobody gave more than ``n_most`` answers."""
    axis = axis_for(grid.nodes, items.steepness, items.first)
    reach = float(np.abs(grid.nodes).max())
    largest = n_most * (items.logit_at(reach)[1] + 1.0) - _LEAST_MASS
    _refuse_too_many(engine, items, grid.nodes.size, axis)
    scales = expected_counts.scales_for(engine.n_persons, reach, largest)
    found = expected_counts.Counts(
        *engine.map_add(_expect, Setting(fit, items, grid), axis, scales)
    )
    value = float(found.log_marginal) / scales.log_marginal
    return value, _expected(models, found, grid.nodes, axis, scales.weight)


def _refuse_too_many(engine: Engine, items: ItemSet, n_nodes: int, axis: Axis) -> None:
    """Stop before counts, and tables of items, that do not fit into memory."""
    n_rows = int(items.first[-1])
    counts = n_rows * (axis.nodes.size or n_nodes) + np.count_nonzero(axis.steep >= 0) * n_nodes
    if items.scores is None:
        tables = 3 * n_rows * n_nodes
    else:
        tables = (items.n_items if items.of_two else n_rows + items.n_items) * n_nodes
    refuse_beyond_memory(
        8.0 * ((engine.n_held + 2) * counts + tables),
        f"marginal maximum likelihood of {items.n_items} items, with counts at "
        f"{axis.nodes.size or n_nodes} abilities,",
    )


def _expected(
    models: Mixture, c: expected_counts.Counts, nodes: Floats, axis: Axis, scale: float
) -> Expected:
    """Counts as real numbers, items that are too steep for the axis by themselves."""
    m = len(c.seen)
    steep, coarse = np.zeros(m, dtype=bool), nodes
    if axis.nodes.size:
        steep, coarse = axis.steep >= 0, axis.nodes
    found = []
    for own, x, seen, higher in (
        (steep, nodes, c.steep_seen, c.steep_higher),
        (~steep, coarse, _kept(c.seen, ~steep), _kept(c.higher, axis.steep_row < 0)),
    ):
        place = np.cumsum(own) - 1
        more = np.where(own, models.n_categories - 1, 0)  # rows of higher categories
        first = np.cumsum(more) - more
        for part in models.parts:
            at, steps = part.at[own[part.at]], part.model.n_categories - 1
            if not at.size:
                continue
            its_seen, above = seen, higher
            if at.size < own.sum():
                its_seen = seen[place[at]]
                above = higher[(first[at][:, None] + np.arange(steps)).ravel()]
            by_step = (above / scale).reshape(at.size, steps, x.size)
            found.append(Counts(part.model, at, x, its_seen / scale, by_step))
    return Expected(nodes, c.persons / scale, tuple(found))


def _kept(counts: Ints, rows: Bools) -> Ints:
    """Some rows of counts; all where nothing is said of them."""
    return counts[rows] if rows.size and not rows.all() else counts
