"""What abilities that are not known take away from the information, times vectors: passes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.calibrate.marginal.expected import COARSE, FINE, Grid, Setting
from irt_dask.calibrate.marginal.lost_information import ability_scores
from irt_dask.calibrate.marginal.model import Model
from irt_dask.engine import Engine
from irt_dask.engine.cache import keep_last
from irt_dask.kernels.posterior import score_products
from irt_dask.kernels.posterior.score_products import Scores
from irt_dask.store import Block


class Plan(NamedTuple):
    """What every block has to know of scores; columns (items, parameters), (groups, 2)."""

    setting: Setting
    of_ability: Floats
    item_column: Ints
    ability_column: Ints
    unit: Floats

    @classmethod
    def of(
        cls, fit: str, model: Model, x: Floats, at: tuple[Ints, Ints, int], unit: Floats,
        coarse: bool,
    ) -> Plan:  # fmt: skip
        """Scores of ``model`` at x whose columns are ``at``, compared in units, (columns,)."""
        ability, item_set = model.unpack(x)[1], model.item_set(x)
        grid = Grid.of(model, item_set, ability, width=COARSE if coarse else FINE)
        of_ability = ability_scores(model, ability, grid.nodes)
        item_column, ability_column = (np.ascontiguousarray(c.T) for c in at[:2])
        return cls(Setting(fit, item_set, grid), of_ability, item_column, ability_column, unit)

    def table(self) -> _Table:
        """Derivatives by item parameter, category and node, then those of groups."""
        items, nodes = self.setting.items, self.setting.grid.nodes
        of_groups = self.of_ability.reshape(-1, nodes.size)
        size = self.item_column.shape[1] * int(items.first[-1])
        out = np.empty((size + len(of_groups), nodes.size))
        by_parameter = items.by_parameter(nodes, self.item_column.shape[1])
        out[:size], out[size:] = by_parameter.reshape(size, nodes.size), of_groups
        return _Table(out)

    @property
    def nbytes(self) -> float:
        """Memory that the tables of a process take while they are made."""
        items, n_nodes = self.setting.items, self.setting.grid.nodes.size
        return 16.0 * n_nodes * int(items.first[-1]) * (self.item_column.shape[1] + 1)

    def scores(self) -> Scores:
        """Scores, with tables that this process keeps."""
        setting = self.setting
        identity = (setting.items.digest, setting.grid.nodes.tobytes(), self.of_ability.tobytes())
        table = keep_last(("scores", setting.fit), identity, self.table).values
        return Scores(table, setting.items.first, self.item_column, self.ability_column, self.unit)


class _Table(NamedTuple):
    values: Floats

    @property
    def nbytes(self) -> int:
        return self.values.nbytes


def weights(block: Block) -> tuple[Floats | None, Ints | None]:
    """By how much, or how often, the persons of a block count."""
    return (block.weight, None) if block.times is None else (None, block.times)


def _own(
    block: Block, to: tuple[Ints] | None, plan: Plan, item: Ints, place: Ints, scale: Floats
) -> tuple[Ints]:
    _, g, shared, prior = plan.setting.of(block)
    if to is None:
        size = plan.item_column.shape[1]
        to = (np.zeros((len(plan.item_column), size, size), dtype=np.int64),)
    score_products.add_own(
        block.data, g, shared, prior, plan.scores(), *weights(block), item, place, scale, to[0]
    )
    return to


def _products(
    block: Block, to: tuple[Floats] | None, plan: Plan, v: Floats, scale: Floats
) -> tuple[Floats]:
    _, g, shared, prior = plan.setting.of(block)
    to = (np.zeros(v.shape),) if to is None else to
    score_products.add_products(
        block.data, g, shared, prior, plan.scores(), *weights(block), v, scale, to[0]
    )
    return to


def own(engine: Engine, plan: Plan, item: Ints, place: Ints) -> Floats:
    """Sums over persons of covariances of an item's own scores, (items, parameters, parameters).

    The first columns are at ``place`` of the items ``item``, the others no item's own.
    """
    size, first = plan.item_column.shape[1], plan.setting.items.first
    spread = np.ptp(plan.table().values[: size * int(first[-1])], axis=1).reshape(size, -1)
    of_items = np.maximum.reduceat(spread, first[:-1], axis=1)
    scale = np.ones(plan.unit.size)
    scale[: item.size] = score_products.own_scale(of_items[place, item], engine.n_persons)
    more = np.full(plan.unit.size - item.size, -1)  # of no item
    (found,) = engine.map_add(_own, plan, np.append(item, more), np.append(place, more), scale)
    out = found.astype(float)
    out[item, place] /= scale[: item.size, None]
    out[item, :, place] /= scale[: item.size, None]
    return out


def products(engine: Engine, plan: Plan, v: Floats, scale: Floats) -> Floats:
    """Sum over persons of posterior covariances of their scores, times ``v``: one pass."""
    (found,) = engine.map_add(_products, plan, np.ascontiguousarray(v), scale)
    return np.asarray(found / scale[:, None])
