"""What abilities that are not known take away from the information on items, over all persons."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irt_dask.calibrate.marginal.rounds import Grid, Model, by_group, tables
from irt_dask.engine import Engine
from irt_dask.kernels.base.exact_products import Units
from irt_dask.kernels.posterior import lost_information, lost_information_complete
from irt_dask.kernels.posterior.lost_information import Scores
from irt_dask.kernels.responses import layouts, response_counts
from irt_dask.store import Block

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class _Plan(NamedTuple):
    """What every block has to know to add up scores."""

    model: Model
    items: Floats
    grid: Grid
    scores: list[Scores]  # of each group
    bound: Floats
    largest: float  # weight
    units: Units
    squares: bool

    @classmethod
    def of(
        cls, engine: Engine, model: Model, x: Floats, at: tuple[Ints, Ints, int], squares: bool
    ) -> _Plan:
        items, ability = model.unpack(x)
        grid = Grid.of(model, items, ability, coarse=True)
        item_column, ability_column, size = at
        logit, guess = lost_information.item_scores(items, grid.nodes)
        scores = []
        for g in range(model.n_groups):
            by_ability = np.zeros((2, grid.nodes.size))
            if not model.histogram:
                z = (grid.nodes - ability[0, g]) / np.exp(ability[1, g])
                by_ability = np.stack([z / np.exp(ability[1, g]), z**2 - 1.0])
            own = ability_column[:, g].copy()
            scores.append(Scores(logit, guess, by_ability, item_column, own))
        largest = float(engine.responses.max_weight or 1.0) if engine.sampled else 1.0
        return cls(
            model, items, grid, scores, lost_information.bounds(grid.nodes, scores, size), largest,
            lost_information.units_for(engine.n_persons, grid.nodes.size, size), squares,
        )  # fmt: skip

    @property
    def whole(self) -> Units:
        """How sums over persons who answered everything are counted."""
        return self.units.for_rows(lost_information_complete.ROWS)


#: Sums over persons who answered everything, by group; over the others.
_Sums = tuple[dict[int, list[lost_information_complete.Sums]], list[Any]]


def _sums(block: Block, plan: _Plan) -> _Sums:
    """Exact sums of posterior covariances and, if wanted, of squares of mean scores."""
    whole: dict[int, list[lost_information_complete.Sums]] = {}
    rest: list[Any] = [np.int64(0)] * (1 + plan.squares)
    for p in by_group(block, plan.model.n_groups):
        t = tables(plan.items, plan.grid, p.group, True)
        n, m = p.data.shape
        complete = np.zeros(n, dtype=bool)
        if not plan.model.guessing:
            complete = response_counts.responses_per_person(p.data) == m
        for times, chosen in _bits(p.times, n):
            mine = np.flatnonzero(chosen & complete)
            if mine.size:
                values = layouts.to_dense(layouts.take(p.data, mine)).values
                weight = np.ones(mine.size) if p.weight is None else p.weight[mine]
                got = lost_information_complete.sums(
                    values, t, lost_information_complete.usual(plan.scores[p.group]), weight,
                    plan.largest, plan.whole, plan.squares,
                )  # fmt: skip
                got = [x.times(times) for x in got]
                whole = _merged(whole, {p.group: got})
            mine = np.flatnonzero(chosen & ~complete)
            if mine.size:
                data = p.data if mine.size == n else layouts.take(p.data, mine)
                weight = np.ones(mine.size) if p.weight is None else p.weight[mine]
                more = lost_information.sums(
                    data, t, plan.scores[p.group], weight, plan.largest, plan.bound, plan.units,
                    plan.squares,
                )  # fmt: skip
                rest = [x + times * y for x, y in zip(rest, more, strict=True)]
    return whole, rest


def _bits(times: Ints | None, n: int) -> Iterator[tuple[int, NDArray[np.bool_]]]:
    """Sets of rows and how often each counts: one for each bit of frequency weights."""
    if times is None:
        yield 1, np.ones(n, dtype=bool)
        return
    for bit in range(int(times.max(initial=0)).bit_length()):
        yield 1 << bit, (times >> bit) & 1 == 1


def _merged(
    left: dict[int, list[lost_information_complete.Sums]],
    right: dict[int, list[lost_information_complete.Sums]],
) -> dict[int, list[lost_information_complete.Sums]]:
    out = dict(left)
    for g, sums in right.items():
        mine = out.get(g)
        out[g] = sums if mine is None else [a.plus(b) for a, b in zip(mine, sums, strict=True)]
    return out


def _together(left: Any, right: Any) -> Any:
    rest = [a + b for a, b in zip(left[1], right[1], strict=True)]
    return _merged(left[0], right[0]), rest


def sums(
    engine: Engine, model: Model, x: Floats, at: tuple[Ints, Ints, int], squares: bool
) -> tuple[Floats, Floats | None]:
    """Sums over persons of posterior covariances of their scores, and of squares of their means.

    ``at`` says where the scores go; ``squares`` are found if wanted, with those of weights.
    """
    plan = _Plan.of(engine, model, x, at, squares)
    item_column, ability_column, size = at
    whole, rest = engine.map_reduce(_sums, plan, combine=_together)
    out = [np.zeros((size, size)) for _ in rest]
    if np.ndim(rest[0]):
        out = lost_information.value(rest, plan.bound, plan.largest, plan.units)
    nodes = plan.grid.nodes
    for g, own in sorted(whole.items()):
        f = lost_information_complete.rest(plan.scores[g], nodes)
        column = np.concatenate([item_column[0], item_column[1], ability_column[:, g]])
        made = [lost_information_complete.covariance(own[0], nodes, f, plan.largest, plan.whole)]
        if plan.squares:
            made.append(
                lost_information_complete.squares(own[1], nodes, f, plan.largest, plan.whole)
            )
        for total, one in zip(out, made, strict=True):
            total += lost_information.placed(one, column, size)
    return out[0], out[1] if plan.squares else None
