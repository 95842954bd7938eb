"""The item step of joint ML: from counts on the driver, or item by item where the data lie.

Counts on the ability axis cost items x nodes whatever the number of persons.  Where the data are
smaller than that, nobody gathers counts: the abilities travel, and tasks over ranges of items
maximise.  On small data they do so at the abilities themselves, without an axis.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from irt_dask.calibrate.joint.person_step import AXIS, N_NODES
from irt_dask.engine import Engine
from irt_dask.kernels.base import fixed_point
from irt_dask.kernels.joint import ability_axis
from irt_dask.kernels.joint import item_maximum as item_kernels
from irt_dask.kernels.joint.item_maximum import Box, Counts
from irt_dask.kernels.responses import layouts
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.models import ABILITY_BOUND
from irt_dask.store import Block

Floats = NDArray[np.float64]

#: Bytes of an item's counts on the axis, and so the persons whose responses to it take as much.
_AXIS_BYTES = 8 * N_NODES
_MANY_ITEMS = 256
#: Cells of data that are small: without an axis the item step takes cells x steps.
_SMALL = 1 << 17


@dataclass(frozen=True)
class AtAbilities:
    """Persons of known ability and weight; ``rows`` in the data, None: all.

    ``few`` of them need no axis: a rule of all the data, not of the items at hand.
    """

    theta: Floats
    weight: Floats
    rows: NDArray[np.int64] | None = None
    few: bool = False

    def counts(self, data: Layout, guessing: bool) -> Counts:
        """Counts of the items of ``data``, whose rows are these persons."""
        kept = np.flatnonzero(~np.isnan(self.theta))
        kept = kept[np.argsort(self.theta[kept], kind="stable")]
        theta, weight = self.theta[kept], self.weight[kept]
        data = layouts.take(data, kept)
        scale = fixed_point.scale_for(2.0 * float(weight.sum()))
        if self.few:
            return _at_abilities(data, theta, fixed_point.fixed(weight, scale), scale, guessing)
        ability_scale = scale / 8.0
        seen, by_node = ability_axis.responses(
            data, theta, weight, ABILITY_BOUND, N_NODES, scale, with_right=guessing
        )
        sums = ability_axis.sums_right(
            data, fixed_point.fixed(weight, scale), fixed_point.fixed(weight * theta, ability_scale)
        )
        return Counts(
            AXIS,
            np.ascontiguousarray((seen / scale).T),
            sums[0] / scale,
            sums[1] / ability_scale,
            np.ascontiguousarray((by_node / scale).T),
        )


def _at_abilities(
    data: Layout, theta: Floats, weight: NDArray[np.int64], scale: float, guessing: bool
) -> Counts:
    """Counts with the distinct abilities as nodes; whole numbers, so no order matters."""
    nodes, first = np.unique(theta, return_index=True)  # sorted already
    values = layouts.to_dense(data).values
    right, seen = (
        np.ascontiguousarray(np.add.reduceat(x * weight[:, None], first, axis=0).T / scale)
        for x in (values == 1, values >= 0)
    )
    by_node = right if guessing else np.zeros((0, 0))
    return Counts(nodes, seen, right.sum(axis=1), right @ nodes, by_node)


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
    blocks: Iterator[Block], lo: int, hi: int, persons: AtAbilities, guessing: bool
) -> Counts:
    data = layouts.concatenate([layouts.item_range(b.data, lo, hi) for b in blocks])
    if persons.rows is not None:
        data = layouts.take(data, persons.rows)
    return persons.counts(data, guessing)


def _maximise_items(
    blocks: Iterator[Block],
    lo: int,
    hi: int,
    persons: AtAbilities,
    guessing: bool,
    x: Floats,
    box: Box,
    everywhere: bool,
) -> Floats:
    counts = _of_items(blocks, lo, hi, persons, guessing)
    part = np.ascontiguousarray(x[:, lo:hi])
    return item_kernels.maximise(counts, part, box, everywhere=everywhere)


def _information_of_items(
    blocks: Iterator[Block], lo: int, hi: int, persons: AtAbilities, guessing: bool, x: Floats
) -> Floats:
    return item_kernels.information(_of_items(blocks, lo, hi, persons, guessing), x[:, lo:hi])


def maximise(
    engine: Engine,
    seen: AtAbilities | Counts,
    x: Floats,
    box: Box,
    *,
    guessing: bool,
    everywhere: bool,
) -> Floats:
    """Most likely (a, d, c) of each item, (3, items); one that nobody answered keeps its values."""
    if isinstance(seen, Counts):
        return item_kernels.maximise(seen, x, box, everywhere=everywhere)
    out = np.empty_like(x)
    for lo, hi, part in engine.map_items(_maximise_items, seen, guessing, x, box, everywhere):
        out[:, lo:hi] = part
    return out


def information(engine: Engine, seen: AtAbilities | Counts, x: Floats, *, guessing: bool) -> Floats:
    """Expected information of (a, d, c), abilities taken as known; (items, 3, 3)."""
    if isinstance(seen, Counts):
        return item_kernels.information(seen, x)
    out = np.empty((x.shape[1], 3, 3))
    for lo, hi, part in engine.map_items(_information_of_items, seen, guessing, x):
        out[lo:hi] = part
    return out
