"""What abilities that are not known take away from the information on items, over all persons."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.calibrate.marginal.expected import Grid, Setting
from irt_dask.calibrate.marginal.model import Model
from irt_dask.engine import Engine
from irt_dask.kernels.base.exact_products import Units
from irt_dask.kernels.posterior import lost_information, lost_information_complete
from irt_dask.kernels.posterior.lost_information import Scores
from irt_dask.kernels.posterior.tables import LinearTables
from irt_dask.kernels.responses import layouts, response_counts
from irt_dask.store import Block

Complete = lost_information_complete.Sums


class _Plan(NamedTuple):
    """What every block has to know to add up scores."""

    setting: Setting
    scores: Scores
    usual: Bools | None  # None: persons with all items are as the others
    largest: float  # weight
    units: Units
    squares: bool

    @property
    def whole(self) -> Units:
        """How sums over persons who answered everything are counted."""
        return self.units.for_rows(lost_information_complete.ROWS)


#: Sums over persons who answered everything, by group; over the others.
_Sums = tuple[dict[int, list[Complete]], list[Any]]


def _sums(block: Block, plan: _Plan) -> _Sums:
    """Exact sums of posterior covariances and, if wanted, of squares of mean scores."""
    whole: dict[int, list[Complete]] = {}
    rest: list[Any] = [np.int64(0)] * (1 + plan.squares)
    _, g, shared, prior = plan.setting.of(block)
    n, m = block.data.shape
    weight = block.weights() if block.times is None else np.ones(n)
    group = np.zeros(n, dtype=np.int64) if block.group is None else block.group
    complete = np.zeros(n, dtype=bool)
    if plan.usual is not None:
        complete = response_counts.responses_per_person(block.data) == m
    for times, chosen in _bits(block.times, n):
        for k in np.unique(group[chosen & complete]):
            assert isinstance(g, LinearTables)
            assert plan.usual is not None
            mine = np.flatnonzero(chosen & complete & (group == k))
            values = layouts.to_dense(layouts.take(block.data, mine)).values
            got = lost_information_complete.sums(
                values, g, prior.log_mass[k], plan.usual, weight[mine], plan.largest, plan.whole,
                plan.squares,
            )  # fmt: skip
            whole = _merged(whole, {int(k): [x.times(times) for x in got]})
        mine = np.flatnonzero(chosen & ~complete)
        if mine.size:
            more = lost_information.sums(
                block.data, g, shared, prior, mine, plan.scores, weight, plan.largest, plan.units,
                plan.squares,
            )  # fmt: skip
            rest = [x + times * y for x, y in zip(rest, more, strict=True)]
    return whole, rest


def _bits(times: Ints | None, n: int) -> Iterator[tuple[int, Bools]]:
    """Sets of rows and how often each counts: one for each bit of frequency weights."""
    if times is None:
        yield 1, np.ones(n, dtype=bool)
        return
    for bit in range(int(times.max(initial=0)).bit_length()):
        yield 1 << bit, (times >> bit) & 1 == 1


def _merged(
    left: dict[int, list[Complete]], right: dict[int, list[Complete]]
) -> dict[int, list[Complete]]:
    out = dict(left)
    for g, sums in right.items():
        mine = out.get(g)
        out[g] = sums if mine is None else [a.plus(b) for a, b in zip(mine, sums, strict=True)]
    return out


def _together(left: Any, right: Any) -> Any:
    rest = [a + b for a, b in zip(left[1], right[1], strict=True)]
    return _merged(left[0], right[0]), rest


def ability_scores(model: Model, ability: Floats, nodes: Floats) -> Floats:
    """Derivatives of the groups' log densities by mean and log SD, (groups, 2, nodes)."""
    if model.histogram:
        return np.zeros((model.n_groups, 2, nodes.size))
    sd = np.exp(ability[1])[:, None]
    z = (nodes - ability[0][:, None]) / sd
    return np.stack([z / sd, z**2 - 1.0], axis=1)


def sums(
    engine: Engine, fit: str, model: Model, x: Floats, at: tuple[Ints, Ints, int], squares: bool
) -> tuple[Floats, Floats | None]:
    """Sums over persons of posterior covariances of their scores, and of squares of their means.

    ``at`` says where the scores go; ``squares`` are found if wanted, with those of weights.
    """
    ability = model.unpack(x)[1]
    item_column, ability_column, size = at
    item_set = model.item_set(x)
    setting = Setting(fit, item_set, Grid.of(model, item_set, ability, coarse=True))
    nodes = setting.grid.nodes
    slope = item_set.by_parameter(nodes, model.items.size)
    of_ability = ability_scores(model, ability, nodes)
    scores = lost_information.scores(slope, item_set.first, of_ability, item_column, ability_column)
    largest = float(engine.responses.max_weight or 1.0) if engine.sampled else 1.0
    only, usual = model.items.only, None
    if only is not None and only.log_odds:
        slope = slope.reshape(len(slope), model.n_items, 2, nodes.size)
        usual = lost_information_complete.usual(slope)
    units = lost_information.units_for(engine.n_persons, nodes.size, size)
    plan = _Plan(setting, scores, usual, largest, units, squares)
    whole, rest = engine.map_reduce(_sums, plan, combine=_together)
    out = [np.zeros((size, size)) for _ in rest]
    if np.ndim(rest[0]):
        out = lost_information.value(rest, scores.bound, largest, units)
    for g, own in sorted(whole.items()):
        f = lost_information_complete.rest(slope, of_ability[g])
        column = np.concatenate([*item_column, ability_column[:, g]])
        made = [lost_information_complete.covariance(own[0], nodes, f, largest, plan.whole)]
        if squares:
            made.append(lost_information_complete.squares(own[1], nodes, f, largest, plan.whole))
        for total, one in zip(out, made, strict=True):
            total += lost_information.placed(one, column, size)
    return out[0], out[1] if squares else None
