"""The item step of joint ML: from counts on the driver, or item by item where the data lie.

Counts on the ability axis cost items x nodes whatever the number of persons.  Where the data are
smaller than that, nobody gathers counts: the abilities travel, and tasks over ranges of items
maximise.  On small data they do so at the abilities themselves, without an axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.calibrate.joint.person_step import AXIS, N_NODES
from irt_dask.curves import ItemModel
from irt_dask.curves.betas import Betas
from irt_dask.curves.grids import ABILITY_BOUND
from irt_dask.engine import Engine
from irt_dask.items import derivatives
from irt_dask.items.densities import ItemDensity
from irt_dask.items.maximum import Problem
from irt_dask.items.maximum import maximise as maximise_by_scoring
from irt_dask.kernels.base import fixed_point
from irt_dask.kernels.joint import ability_axis, item_climb, item_maximum
from irt_dask.kernels.joint.item_maximum import Box, Counts
from irt_dask.kernels.responses import layouts
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.store import Block

#: Bytes of an item's counts on the axis, and so the persons whose responses to it take as much.
_AXIS_BYTES = 8 * N_NODES
_MANY_ITEMS = 256
#: Cells of data that are small: without an axis the item step takes cells x steps.
_SMALL = 1 << 17
#: Steps of items of any curves, and how small the last one is.
_STEPS, _PRECISION = 1000, 1e-6


@dataclass(frozen=True)
class AtAbilities:
    """Persons of known ability and weight; ``rows`` in the data, None: all.

    ``few`` of them need no axis: a rule of all the data, not of the items at hand.
    """

    theta: Floats
    weight: Floats
    rows: Ints | None = None
    few: bool = False

    def counts(self, data: Layout, by_node: bool) -> Counts:
        """Counts of the items of ``data``, whose rows are these persons."""
        kept = np.flatnonzero(~np.isnan(self.theta))
        kept = kept[np.argsort(self.theta[kept], kind="stable")]
        theta, weight = self.theta[kept], self.weight[kept]
        data = layouts.take(data, kept)
        scale = fixed_point.scale_for(2.0 * float(weight.sum()))
        if self.few:
            return _at_abilities(data, theta, fixed_point.fixed(weight, scale), scale, by_node)
        ability_scale = scale / 8.0
        seen, found = ability_axis.responses(
            data, theta, weight, ABILITY_BOUND, N_NODES, scale, with_right=by_node
        )
        sums = ability_axis.sums_right(
            data, fixed_point.fixed(weight, scale), fixed_point.fixed(weight * theta, ability_scale)
        )
        return Counts(
            AXIS,
            np.ascontiguousarray((seen / scale).T),
            sums[0] / scale,
            sums[1] / ability_scale,
            np.ascontiguousarray((found / scale).T),
        )


def _at_abilities(data: Layout, theta: Floats, weight: Ints, scale: float, by_node: bool) -> Counts:
    """Counts with the distinct abilities as nodes; whole numbers, so no order matters."""
    nodes, first = np.unique(theta, return_index=True)  # sorted already
    values = layouts.to_dense(data).values
    right, seen = (
        np.ascontiguousarray(np.add.reduceat(x * weight[:, None], first, axis=0).T / scale)
        for x in (values == 1, values >= 0)
    )
    return Counts(
        nodes, seen, right.sum(axis=1), right @ nodes, right if by_node else np.zeros((0, 0))
    )


def are_few(n_persons: int, n_items: int) -> bool:
    """Whether counts at the abilities themselves are no more work than on an axis, or little."""
    return n_persons <= N_NODES or is_small(n_persons, n_items)


def is_small(n_persons: int, n_items: int) -> bool:
    """Whether the data are so few that work hardly matters."""
    return n_persons * n_items <= _SMALL


def data_are_smaller(n_persons: int, n_items: int) -> bool:
    """Whether the data take less room than counts of them on the axis."""
    few = n_items >= _MANY_ITEMS and n_persons < _AXIS_BYTES
    return few or is_small(n_persons, n_items)


def _of_items(
    blocks: Iterator[Block], lo: int, hi: int, persons: AtAbilities, what: Any, model: ItemModel,
    x: Floats, *how: Any,
) -> Any:  # fmt: skip
    data = layouts.concatenate([layouts.item_range(b.data, lo, hi) for b in blocks])
    if persons.rows is not None:
        data = layouts.take(data, persons.rows)
    counts = persons.counts(data, not model.log_odds)
    return what(model, np.ascontiguousarray(x[:, lo:hi]), *how, counts)


def _of_all(
    engine: Engine, seen: AtAbilities | Counts, what: Callable[..., Floats], *how: Any
) -> Floats:
    """What is asked of the items, which are its last axis; from counts, or where the data lie."""
    if isinstance(seen, Counts):
        return what(*how, seen)
    parts = sorted(engine.map_items(_of_items, seen, what, *how), key=lambda part: part[0])
    return np.concatenate([of_some for _, _, of_some in parts], axis=-1)


def maximise(
    engine: Engine, seen: AtAbilities | Counts, model: ItemModel, x: Floats, box: Box,
    *, everywhere: bool,
) -> Floats:  # fmt: skip
    """Likeliest parameters of each item; one that nobody answered keeps its values."""
    return _of_all(engine, seen, likeliest, model, x, box, everywhere)


def likeliest(model: ItemModel, x: Floats, box: Box, everywhere: bool, seen: Counts) -> Floats:
    """As :func:`maximise`, from counts; ``everywhere``: the best from several starts."""
    if model.log_odds:
        return item_maximum.maximise(seen, x, box)
    starts = [x]
    for k, p in enumerate(model.parameters if everywhere else ()):
        for value in p.joint_starts[1:]:
            starts.append(x.copy())
            starts[-1][k] = value
    if model.asymptotes is not None:
        return item_climb.climb(seen, np.stack(starts), box, model.asymptotes)
    low, high = (np.repeat(bound[:, None], x.shape[1], axis=1) for bound in box)
    alone = np.full(x.shape, -1)
    problem = Problem(
        [by_category(model, seen)], low, high, ItemDensity(Betas.of(*[(1.0, 1.0)] * len(x))), alone
    )
    ends = [maximise_by_scoring(problem, s, steps=_STEPS, precision=_PRECISION) for s in starts]
    values = [problem.value(end, np.ones(x.shape[1], dtype=bool)) for end in ends]
    best = np.argmax(values, axis=0)[None, None]
    return np.asarray(np.take_along_axis(np.stack(ends), best, axis=0)[0])


def by_category(model: ItemModel, seen: Counts) -> derivatives.Counts:
    """The same counts for items of any model; without right answers where they are not known."""
    shape = (len(seen.right), 1, seen.nodes.size)
    higher = seen.right_by_node[:, None] if seen.right_by_node.size else np.broadcast_to(0.0, shape)
    return derivatives.Counts(model, np.arange(shape[0]), seen.nodes, seen.seen, higher)


def information(engine: Engine, seen: AtAbilities | Counts, model: ItemModel, x: Floats) -> Floats:
    """Expected information of the parameters, abilities taken as known; (P, P, items)."""
    return _of_all(engine, seen, _informed, model, x)


def _informed(model: ItemModel, x: Floats, seen: Counts) -> Floats:
    found = derivatives.derivatives([by_category(model, seen)], x)
    return found.information.transpose(1, 2, 0)
