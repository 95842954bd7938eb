"""What abilities that are not known take away from the information on items, over all persons."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.calibrate.marginal.expected import COARSE, FINE, Grid, Setting
from irt_dask.calibrate.marginal.model import Model
from irt_dask.calibrate.marginal.rounds import Rounds
from irt_dask.curves.item_set import ItemSet
from irt_dask.kernels.base.exact_products import Units
from irt_dask.kernels.posterior import lost_information, lost_information_linear, person_weights
from irt_dask.kernels.posterior.lost_information import Scores
from irt_dask.kernels.posterior.lost_information_linear import Columns
from irt_dask.kernels.responses import item_sets
from irt_dask.store import Block

#: Numbers that all sums by set and group take, at most, and how many such sums there are: each
#: costs a call for every block.
_MOST, _CALLS = 1 << 22, 256
_NO_SETS: Bools = np.empty((0, 0), dtype=bool)

Linear = lost_information_linear.Sums


class _Plan(NamedTuple):
    """What every block has to know to add up scores.

    Persons who answered a set of ``sets``, (sets, items), are added up by ``columns``, as long as
    there are any; the others by ``scores``.
    """

    setting: Setting
    scores: Scores
    sets: Bools
    columns: Columns | None
    largest: float  # weight
    units: Units
    squares: bool

    @property
    def by_set(self) -> Units:
        """How sums over persons of one set are counted."""
        return self.units.for_rows(lost_information_linear.ROWS)


#: Sums by set and group; over the others.
_Sums = tuple[dict[tuple[int, int], list[Linear]], list[Any]]


def _sums(block: Block, plan: _Plan) -> _Sums:
    """Exact sums of posterior covariances and, if wanted, of squares of mean scores."""
    by_set: dict[tuple[int, int], list[Linear]] = {}
    rest: list[Any] = [np.int64(0)] * (1 + plan.squares)
    sets, g, shared, prior = plan.setting.of(block)
    n = block.n_persons
    weight = block.weights() if block.times is None else np.ones(n)
    number = np.full(n, -1)
    if plan.columns is not None:
        number = item_sets.number_among(block.data, plan.sets)
    for times, chosen in block.by_bits():
        for (k, of_group), who in _cells(number, block.group, chosen):
            assert plan.columns is not None
            observed = plan.sets[k]
            log_total = person_weights.bases(observed[None], g)[0] + prior.log_mass[of_group]
            got = lost_information_linear.sums(
                block.data, who, plan.columns.among(observed), g.nodes, log_total, weight,
                plan.largest, plan.by_set, plan.squares,
            )  # fmt: skip
            by_set = _merged(by_set, {(k, of_group): [x.times(times) for x in got]})
        mine = np.flatnonzero(chosen & (number < 0))
        if mine.size:
            more = lost_information.sums(
                block.data, g, shared, sets.observed, prior, mine, plan.scores, weight,
                plan.largest, plan.units, plan.squares,
            )  # fmt: skip
            rest = [x + times * y for x, y in zip(rest, more, strict=True)]
    return by_set, rest


def _cells(
    number: Ints, group: Ints | None, chosen: Bools
) -> Iterator[tuple[tuple[int, int], Ints]]:
    """Chosen persons by set and group, but for those of no set."""
    cell = number if group is None else np.where(number < 0, -1, number * (1 << 32) + group)
    cell = np.where(chosen, cell, -1)
    order = np.argsort(cell, kind="stable")
    values, begin = np.unique(cell[order], return_index=True)
    for c, who in zip(values.tolist(), np.split(order, begin[1:]), strict=True):
        if c >= 0:
            yield (c, 0) if group is None else divmod(c, 1 << 32), who


def _merged(left: Any, right: Any) -> dict[tuple[int, int], list[Linear]]:
    out = dict(left)
    for cell, sums in right.items():
        mine = out.get(cell)
        out[cell] = sums if mine is None else [a.plus(b) for a, b in zip(mine, sums, strict=True)]
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


def _affordable(sets: Bools, items: ItemSet, n_nodes: int, n_groups: int, squares: bool) -> Bools:
    """The first sets, whose sums fit: one at least; with squares these are up to four times."""
    size = sets @ (items.n_categories - 1)
    numbers = np.cumsum((size + n_nodes) * (size + 3 * n_nodes)) * n_groups * (1 + 3 * squares)
    kept = (numbers <= _MOST) & (np.arange(1, len(sets) + 1) * n_groups <= _CALLS)
    return sets[: max(1, int(kept.sum()))]


# --- all persons ----------------------------------------------------------------------------------


class Scored(NamedTuple):
    """Scores of a model at a column: derivatives by parameter, row and node, and what they need."""

    setting: Setting
    scores: Scores
    slope: Floats
    of_ability: Floats


def scored(
    fit: Rounds, model: Model, x: Floats, at: tuple[Ints, Ints, int], *, coarse: bool
) -> Scored:
    """Scores of ``model`` at x on a grid, perhaps a coarse one; ``at`` says where they go."""
    ability, items = model.unpack(x)[1], model.item_set(x)
    width = COARSE if coarse else FINE
    setting = Setting(fit.name, items, Grid.of(model, items, ability, width=width))
    nodes = setting.grid.nodes
    slope = items.by_parameter(nodes, model.items.size)
    of_ability = ability_scores(model, ability, nodes)
    scores = lost_information.scores(slope, items.first, of_ability, *at[:2])
    return Scored(setting, scores, slope, of_ability)


def sums(
    fit: Rounds, model: Model, x: Floats, at: tuple[Ints, Ints, int], squares: bool, coarse: bool
) -> tuple[Floats, Floats | None]:
    """Sums over persons of posterior covariances of their scores, and of squares of their means.

    ``at`` says where the scores go; ``squares`` are found if wanted, with those of weights; a
    ``coarse`` grid has three nodes in place of four.  Where
    the log odds of all items are linear in ability, persons who answered what many others did take
    a fraction of the time of the others.
    """
    engine = fit.engine
    item_column, ability_column, size = at
    setting, scores, slope, of_ability = scored(fit, model, x, at, coarse=coarse)
    items, nodes = setting.items, setting.grid.nodes
    largest = float(engine.responses.max_weight or 1.0) if engine.sampled else 1.0
    units = lost_information.units_for(engine.n_persons, nodes.size, size)
    plan = _Plan(setting, scores, _NO_SETS, None, largest, units, squares)
    if items.scores is not None and len(fit.common_sets):
        sets = _affordable(fit.common_sets, items, nodes.size, model.n_groups, squares)
        columns = Columns.of(items, nodes[nodes.size // 2])
        plan = plan._replace(columns=columns, sets=sets)
    by_set, rest = engine.map_reduce(_sums, plan, combine=_together)
    out = [np.zeros((size, size)) for _ in rest]
    if np.ndim(rest[0]):
        out = lost_information.value(rest, scores.bound, largest, units)
    for (k, group), own in sorted(by_set.items()):
        assert plan.columns is not None
        mine = lost_information_linear.Scores.of(
            slope, items.first, plan.columns, plan.sets[k], of_ability[group], nodes, item_column,
            ability_column[:, group],
        )  # fmt: skip
        made = [mine.covariance(own[0], nodes, largest, plan.by_set)]
        if squares:
            made.append(mine.squares(own[1], nodes, largest, plan.by_set))
        for total, one in zip(out, made, strict=True):
            total[np.ix_(mine.column, mine.column)] += one
    return out[0], out[1] if squares else None
