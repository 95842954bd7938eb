"""The person step of joint ML: abilities of a block's persons, and their share of all sums.

Persons who answered every item are kept as bits (1PL, 2PL: all that their abilities and the item
step need are sums over bits); the others as they lie in the store.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irt_dask.arrays import Floats, Ints
from irt_dask.curves import ItemModel
from irt_dask.curves.grids import ABILITY_BOUND
from irt_dask.curves.logistic import INTERCEPT, SLOPE
from irt_dask.engine import person_files
from irt_dask.engine.cache import keep
from irt_dask.kernels.base import fixed_point
from irt_dask.kernels.joint import ability_axis, complete_modes, modes
from irt_dask.kernels.joint.parameters import Items
from irt_dask.kernels.responses import layouts, packed_rows, response_counts
from irt_dask.kernels.responses.layouts import Dense, Layout
from irt_dask.store import Block
from irt_dask.store.responses import sha256

#: Nodes of the ability axis on [-6, 6]: spacing 0.025.
N_NODES = 481
AXIS = np.linspace(-ABILITY_BOUND, ABILITY_BOUND, N_NODES)
#: Largest slope, intercept, and absolute log-likelihood of a response within the bounds.
_SLOPE, _INTERCEPT = SLOPE.joint[1], INTERCEPT.joint[1]
_WORST_RESPONSE = _SLOPE * ABILITY_BOUND + _INTERCEPT + 1.0


@dataclass(frozen=True)
class Scales:
    """Fixed-point scales of the sums over persons: bounds known before any data are read."""

    weight: float
    ability: float
    moment: float
    objective: float
    slope: float
    intercept: float

    @classmethod
    def of(cls, total: float, items_weight: float) -> Scales:
        """Scales for persons and for items whose weights add up to these."""
        return cls(
            weight=fixed_point.scale_for(total),
            ability=fixed_point.scale_for(total * ABILITY_BOUND),
            moment=fixed_point.scale_for(total * ABILITY_BOUND**2),
            objective=fixed_point.scale_for(total * items_weight * _WORST_RESPONSE),
            slope=fixed_point.scale_for(items_weight * _SLOPE),
            intercept=fixed_point.scale_for(items_weight * _INTERCEPT),
        )


# --- what is kept of a block ----------------------------------------------------------------------


@dataclass(frozen=True)
class Persons:
    """Persons of a block, those who answered every item apart."""

    start: int
    n_persons: int
    n_items: int
    complete: NDArray[np.intp]
    packed: packed_rows.Bytes
    others: NDArray[np.intp]
    data: Layout  # of the others
    weight: Floats | None
    #: How many persons each row stands for, if weights are frequencies.
    times: Ints | None = None
    #: Of the last items that were to be remembered: their identity, abilities, log-likelihoods.
    last: list[tuple[tuple[str, Scales], Floats, Floats]] = field(
        default_factory=list, repr=False, compare=False
    )

    @property
    def nbytes(self) -> int:
        """Memory held, bytes."""
        arrays = (
            self.complete, self.packed, self.others, self.data, self.weight, self.times,
        )  # fmt: skip
        return sum(0 if x is None else x.nbytes for x in arrays) + 16 * self.n_persons

    def weights(self) -> Floats:
        """Weight of each person; 1 where none were given."""
        return np.ones(self.n_persons) if self.weight is None else self.weight

    def take(self, rows: NDArray[np.intp]) -> Layout:
        """Responses of some persons, in that order."""
        if not self.others.size:
            return Dense(packed_rows.unpack(self.packed, rows))
        place = np.empty(self.n_persons, dtype=np.intp)
        place[self.complete] = np.arange(self.complete.size)
        place[self.others] = np.arange(self.others.size)
        whole = np.isin(rows, self.complete)
        parts: list[Layout] = [
            Dense(packed_rows.unpack(self.packed, place[rows[whole]])),
            layouts.take(self.data, place[rows[~whole]]),
        ]
        order = np.argsort(np.concatenate([np.flatnonzero(whole), np.flatnonzero(~whole)]))
        return layouts.take(layouts.concatenate(parts), order)

    def some(self, rows: NDArray[np.intp]) -> Persons:
        """Return some persons of the block, without weights."""
        block = Block(0, self.start, self.take(rows))
        whole = np.isin(rows, self.complete)
        return _split(block, np.flatnonzero(whole), np.flatnonzero(~whole))


def prepare(block: Block) -> Persons:
    """Put the complete rows of a block into bits."""
    is_complete = response_counts.responses_per_person(block.data) == block.data.shape[1]
    return _split(block, np.flatnonzero(is_complete), np.flatnonzero(~is_complete))


def prepare_rows(block: Block) -> Persons:
    """Leave a block as it is: where a person's score is not one number."""
    return _split(block, np.zeros(0, dtype=np.intp), np.arange(block.n_persons))


def preparation(*models: ItemModel) -> Callable[[Block], Persons]:
    """How to prepare blocks for items of these models."""
    return prepare if all(m.log_odds for m in models) else prepare_rows


def _split(block: Block, complete: NDArray[np.intp], others: NDArray[np.intp]) -> Persons:
    n, m = block.data.shape
    whole = block.data if complete.size == n else layouts.take(block.data, complete)
    packed = (
        packed_rows.pack(layouts.to_dense(whole).values)
        if complete.size
        else packed_rows.nothing(m)
    )
    rest = block.data if others.size == n else layouts.take(block.data, others)
    return Persons(block.start, n, m, complete, packed, others, rest, block.weight, block.times)


# --- abilities ------------------------------------------------------------------------------------


def _digest(items: Items) -> str:
    return items.curves.digest + sha256(items.weight)


def mode_tables(items: Items) -> modes.Tables:
    """Tables of :mod:`~irt_dask.kernels.joint.modes`, from memory if the items are the same."""
    return keep(("modes", _digest(items)), lambda: modes.tables(items, ABILITY_BOUND))


def abilities(p: Persons, items: Items, scales: Scales) -> tuple[Floats, Floats]:
    """Most likely ability of each person, NaN without responses; the log-likelihood there."""
    theta, ll = np.empty(p.n_persons), np.empty(p.n_persons)
    if p.complete.size:
        lines = items.lines
        assert lines is not None
        key = ("curve", _digest(items))
        curve = keep(key, lambda: complete_modes.curve(lines, ABILITY_BOUND))
        n = p.complete.size
        slopes = fixed_point.fixed(lines.weight * lines.a, scales.slope)
        intercepts = fixed_point.fixed(lines.weight * lines.d, scales.intercept)
        t = packed_rows.over_items(p.packed, slopes, n) / scales.slope
        base = packed_rows.over_items(p.packed, intercepts, n) / scales.intercept
        theta[p.complete], value = complete_modes.from_totals(t, curve)
        ll[p.complete] = value + base
    if p.others.size:
        theta[p.others], ll[p.others] = modes.modes(p.data, mode_tables(items))
    return theta, ll


# --- sums -----------------------------------------------------------------------------------------


def remembered(p: Persons, items: Items, scales: Scales) -> tuple[Floats, Floats]:
    """As :func:`abilities`, from memory where the last call was for the same items.

    For the passes of a draw, one after the other; results must not be changed.
    """
    key = (_digest(items), scales)
    known = p.last[0] if p.last else None
    if known is None or known[0] != key:
        known = (key, *abilities(p, items, scales))
        p.last[:] = [known]
    return known[1], known[2]


def _summary(p: Persons, theta: Floats, ll: Floats, scales: Scales) -> tuple[Any, Any]:
    """Log-likelihood; moments of the abilities inside the bounds, persons at the lower and upper.

    Where an ability is at a bound the likelihood has no maximum without it.  The others stretch
    with the scale, along which the likelihood is nearly flat, so their moments identify it.
    """
    w = p.weights()
    objective = fixed_point.fixed(w * ll, scales.objective).sum()
    return objective, ability_axis.moments(theta, w, ABILITY_BOUND, scales.moment)


def objective(p: Persons, items: Items, scales: Scales) -> tuple[Any, ...]:
    """Log-likelihood, and moments of ability."""
    return _summary(p, *abilities(p, items, scales), scales)


def everybody(p: Persons, items: Items, scales: Scales) -> tuple[Any, ...]:
    """As :func:`objective`; and the ability, log-likelihood and weight of each person."""
    theta, ll = abilities(p, items, scales)
    return (*_summary(p, theta, ll, scales), theta, ll, p.weights())


def histogram(p: Persons, items: Items, scales: Scales) -> tuple[Any, ...]:
    """As :func:`objective`; and persons by node of the ability axis, those with responses."""
    theta, ll = remembered(p, items, scales)
    nodes = ability_axis.persons(theta, p.weights(), ABILITY_BOUND, N_NODES, scales.weight)
    return (*_summary(p, theta, ll, scales), nodes)


def on_axis(p: Persons, items: Items, scales: Scales, by_node: bool) -> tuple[Any, ...]:
    """As :func:`objective`; and counts of the persons for the item step.

    Persons who answered everything, by node; of all persons, right answers of each item and the
    sums of their abilities; and of the others (0 where there are none) observed and, if asked for,
    right responses by node and item.
    """
    theta, ll = abilities(p, items, scales)
    w = p.weights()
    place = (ABILITY_BOUND, N_NODES, scales.weight)
    whole = ability_axis.spread(theta[p.complete], w[p.complete], *place)
    once = fixed_point.fixed(w, scales.weight)
    times_ability = fixed_point.fixed(np.where(np.isnan(theta), 0.0, w * theta), scales.ability)
    right = packed_rows.over_persons(p.packed, once[p.complete])
    right_ability = packed_rows.over_persons(p.packed, times_ability[p.complete])
    seen: Any = np.int64(0)
    right_by_node: Any = np.int64(0)
    if p.others.size:
        more = ability_axis.sums_right(p.data, once[p.others], times_ability[p.others])
        right, right_ability = right + more[0], right_ability + more[1]
        seen, found = ability_axis.responses(
            p.data, theta[p.others], w[p.others], *place, with_right=by_node
        )
        right_by_node = found if by_node else right_by_node
    return (*_summary(p, theta, ll, scales), whole, right, right_ability, seen, right_by_node)


# --- before the first round -----------------------------------------------------------------------


def overview(p: Persons) -> tuple[Any, ...]:
    """Right and observed responses of each item; persons with all, none, all wrong, all right."""
    times = np.ones(p.n_persons, dtype=np.int64) if p.times is None else p.times
    whole, others = times[p.complete], times[p.others]
    right = packed_rows.over_persons(p.packed, whole)
    of_complete = packed_rows.over_items(
        p.packed, np.ones(p.n_items, dtype=np.int64), p.complete.size
    )
    more_right, more_seen = response_counts.response_counts(
        p.data, None if p.times is None else others
    )
    seen_by = response_counts.responses_per_person(p.data)
    right_by = response_counts.score_per_person(p.data)
    some = seen_by > 0
    return (
        right + more_right,
        int(whole.sum()) + more_seen,
        int(others[seen_by == p.n_items].sum() + whole.sum()),
        int(others[~some].sum()),
        int(whole[of_complete == 0].sum() + others[some & (right_by == 0)].sum()),
        int(whole[of_complete == p.n_items].sum() + others[some & (right_by == seen_by)].sum()),
    )


# --- after the last one ---------------------------------------------------------------------------


def write_abilities(
    ref: Any, items: Items, scales: Scales, mean: float, sd: float, folder: str
) -> None:
    """Write the abilities of a block, on the scale of the result."""
    block = ref.read()
    theta, _ = abilities(preparation(*(g.model for g in items.curves.groups))(block), items, scales)
    n_responses = response_counts.responses_per_person(block.data)
    columns = {"person_ability": (theta - mean) / sd, "n_responses": n_responses}
    person_files.write_block(ref, block.index, columns, folder)
