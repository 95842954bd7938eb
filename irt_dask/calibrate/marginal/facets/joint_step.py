"""The step of items and effects together, at expected counts of the columns.

The items' own blocks are dense, effects meet in columns only: a sparse system, solved with the
constraints that effects of a facet sum to 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.calibrate.marginal.facets.model import EFFECTS, FacetModel
from irt_dask.errors import EstimationError
from irt_dask.items.derivatives import Counts, derivatives, observed_information, values

#: Added to each parameter's information, as a share.
_RIDGE = 1e-10
#: Scoring steps of a round; the longest change of a parameter in one, and how often it is halved.
_STEPS, _LONGEST, _HALVINGS = 3, 2.0, 30
#: A step after which the next one changes nothing that matters.
_SHORT = 0.02


@dataclass(frozen=True)
class Numbers:
    """Numbers of parameters among all that are estimated, -1 for others; effects come last."""

    items: Ints  # (parameters, items)
    groups: Ints  # (2, groups)
    n_base: int

    @classmethod
    def of_free(cls, model: FacetModel) -> Numbers:
        """All that is free of items, wherever it is; no groups."""
        parent = model.parent
        order, size = np.full(parent.fixed.shape, -1), int(parent.own.sum())
        order[parent.own] = np.arange(size)
        for k in np.unique(parent.of_all[parent.of_all >= 0]):
            order[parent.of_all == k] = size
            size += 1
        return cls(order, np.full((2, parent.n_groups), -1), size)


class System(NamedTuple):
    """Objective at some parameters, its gradient, and the information of known abilities.

    ``base`` are those of items (and groups), dense or sparse, ``across`` (base, effects) sparse.
    """

    value: float
    gradient: Floats
    base: Any
    across: Any
    effects: Any


def value(model: FacetModel, items: Floats, effects: Floats, counts: tuple[Counts, ...]) -> float:
    """Objective of the step: expected log-likelihood and priors."""
    if not model.parent.items.valid(items):
        return -np.inf
    of_data = float(values(counts, model.of_columns(items, effects)).sum())
    return of_data + log_prior(model, items, effects)


def log_prior(model: FacetModel, items: Floats, effects: Floats) -> float:
    """Log prior density of items and, but for a constant, of effects."""
    free = np.where(model.parent.free, items, np.nan)
    of_items = float(model.parent.prior.log_density(free).sum())
    return of_items - 0.5 * float(model.precision @ effects**2)


def system(
    model: FacetModel, items: Floats, effects: Floats, counts: tuple[Counts, ...],
    numbers: Numbers, *, observed: bool = False,
) -> System:  # fmt: skip
    """Derivatives; of the ``observed`` information of known abilities or the expected one."""
    parent, design = model.parent, model.design
    of_columns = model.of_columns(items, effects)
    d = derivatives(counts, of_columns)
    information = d.information
    if observed:
        information = _observed(counts, of_columns, information)
    by_item, by_shift = model.jacobian(items, effects)
    to_item = (d.gradient.T[:, None] @ by_item)[:, 0]  # (columns, parameters)
    to_shift = (d.gradient.T * by_shift).sum(axis=1)
    half = information @ by_item
    own = by_item.transpose(0, 2, 1) @ half
    mixed = (by_shift[:, None] @ half)[:, 0]
    if observed:
        mixed = mixed - model.bent(d.gradient)
    twice = (by_shift * (information @ by_shift[:, :, None])[:, :, 0]).sum(axis=1)
    free = np.where(parent.free, items, 0.5)
    gradient = np.where(parent.free, parent.prior.gradient(free), 0.0)
    blocks = parent.prior.information(free)
    np.add.at(gradient.T, design.parent, to_item)
    np.add.at(blocks, design.parent, own)
    n = numbers.n_base
    of_base = np.zeros(n)
    np.add.at(of_base, numbers.items[numbers.items >= 0], gradient[numbers.items >= 0])
    x = design.terms
    return System(
        value(model, items, effects, ()) + float(d.value.sum()),
        np.append(of_base, x.T @ to_shift - model.precision * effects),
        placed(blocks, numbers.items, n), _across(model, mixed, numbers),
        scipy.sparse.csr_array(x.T @ (x * twice[:, None]))
        + scipy.sparse.diags_array(model.precision),
    )  # fmt: skip


def _observed(counts: tuple[Counts, ...], x: Floats, expected: Floats) -> Floats:
    """Observed information; where log P is linear but for log Z it is the expected one."""
    rest = tuple(c for c in counts if c.model.scores(x[: c.size, c.items[:1]]) is None)
    if not rest:
        return expected
    out = expected.copy()
    found = observed_information(rest, x, np.ones(x.shape, dtype=bool))
    for c in rest:
        out[c.items] = 0.0
    for c in rest:
        out[c.items] += found[c.items]
    return out


def placed(blocks: Floats, number: Ints, n: int) -> Any:
    """Sparse matrix of items' blocks, (items, parameters, parameters), by their numbers."""
    at = number.T
    row = np.broadcast_to(at[:, :, None], blocks.shape)
    column = np.broadcast_to(at[:, None, :], blocks.shape)
    both = (row >= 0) & (column >= 0)
    return scipy.sparse.csr_array((blocks[both], (row[both], column[both])), shape=(n, n))


def _across(model: FacetModel, mixed: Floats, numbers: Numbers) -> Any:
    """Sparse information between items and effects, from that of columns (columns, parameters)."""
    design, n_columns = model.design, len(mixed)
    out = scipy.sparse.csr_array((numbers.n_base, design.n_effects))
    for row, of_all in zip(numbers.items[:, design.parent], mixed.T, strict=True):
        at = np.flatnonzero(row >= 0)
        by_column = scipy.sparse.csr_array(
            (of_all[at], (row[at], at)), shape=(numbers.n_base, n_columns)
        )
        out = out + by_column @ design.terms
    return scipy.sparse.csr_array(out)


# --- the step -------------------------------------------------------------------------------------


def step(
    model: FacetModel, items: Floats, effects: Floats, counts: tuple[Counts, ...]
) -> tuple[Floats, Floats]:
    """Items and effects after some scoring steps, whose objective is no lower."""
    numbers = Numbers.of_free(model)
    low, high = (
        _bounds(model, b, e) for b, e in zip(model.parent.item_bounds, EFFECTS, strict=True)
    )
    for _ in range(_STEPS):
        now = system(model, items, effects, counts, numbers)
        x = _column(numbers, items, effects)
        held = ((x <= low) & (now.gradient < 0.0)) | ((x >= high) & (now.gradient > 0.0))
        way = _solved(model, now, held)
        longest = float(np.abs(way).max())
        size = min(1.0, _LONGEST / max(longest, 1e-300))
        for _ in range(_HALVINGS):
            there = np.clip(x + size * way, low, high)
            moved = _back(numbers, items, there)
            new = value(model, *moved, counts)
            if new >= now.value or size * longest < 1e-6:
                break
            size *= 0.5
        else:
            return items, effects
        items, effects = moved
        if longest * size < _SHORT:
            break
    return model.recentred(items, effects) if not model.precision.any() else (items, effects)


def _bounds(model: FacetModel, of_items: Floats, of_effects: float) -> Floats:
    numbers = Numbers.of_free(model)
    return _column(numbers, of_items, np.full(model.design.n_effects, of_effects))


def _column(numbers: Numbers, items: Floats, effects: Floats) -> Floats:
    """Parameters by number."""
    out = np.zeros(numbers.n_base)
    there = numbers.items >= 0
    out[numbers.items[there]] = items[there]
    return np.append(out, effects)


def _back(numbers: Numbers, items: Floats, x: Floats) -> tuple[Floats, Floats]:
    out, there = items.copy(), numbers.items >= 0
    out[there] = x[numbers.items[there]]
    return out, x[numbers.n_base :]


def _solved(model: FacetModel, now: System, held: Bools) -> Floats:
    """Scoring step, 0 for what is held, with sums of effects as they are."""
    sums = model.design.sums
    nothing = scipy.sparse.csr_array((sums.shape[0], now.base.shape[0]))
    constraint = scipy.sparse.hstack([nothing, sums], format="csr")
    whole = scipy.sparse.block_array(
        [[now.base, now.across], [now.across.T, now.effects]], format="csr"
    )
    size = whole.diagonal()
    free = ~held & (size > 0.0)
    keep = scipy.sparse.diags_array(free.astype(float))
    whole = keep @ whole @ keep + scipy.sparse.diags_array(np.where(free, _RIDGE * size, 1.0))
    constraint = constraint @ keep
    several = np.asarray((constraint != 0).sum(axis=1)).ravel() > 0
    constraint = constraint[several]
    all_ = scipy.sparse.block_array([[whole, constraint.T], [constraint, None]], format="csc")
    right = np.append(np.where(free, now.gradient, 0.0), np.zeros(constraint.shape[0]))
    found = scipy.sparse.linalg.splu(all_).solve(right)[: free.size]
    if not np.isfinite(found).all():
        raise EstimationError("the step of items and facets ended at a value that is not finite")
    return np.where(free, found, 0.0)
