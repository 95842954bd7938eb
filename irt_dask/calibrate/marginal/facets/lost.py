"""What abilities that are not known take away: dense for items, sparse for effects of facets.

Tables of derivatives are made for some persons at a time and the columns that these answered: of
few columns once for many persons, of very many never for all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from irt_dask.arrays import Floats, Ints
from irt_dask.calibrate.marginal.expected import Grid
from irt_dask.calibrate.marginal.facets.joint_step import Numbers
from irt_dask.calibrate.marginal.facets.model import FacetModel, grid
from irt_dask.calibrate.marginal.facets.rounds import FacetRounds
from irt_dask.calibrate.marginal.lost_information import ability_scores
from irt_dask.curves.item_set import Group, ItemSet
from irt_dask.engine.memory import refuse_beyond_memory
from irt_dask.kernels.posterior import facet_information as kernel
from irt_dask.kernels.responses.layouts import Sparse, to_sparse
from irt_dask.store import Block

#: Sums count in this share of the information of known abilities, which they do not exceed by far.
_UNIT = 2.0**-46
#: Numbers of a table of some persons' columns, and persons at a time, at most.
_NUMBERS, _PERSONS = 1 << 22, 4096
#: Pairs of effects that some persons have together, at most.
_PAIRS = 1 << 22


class Plan(NamedTuple):
    """What every block has to know."""

    model: FacetModel
    x: Floats
    numbers: Numbers
    grid: Grid
    root: Floats  # of the information of known abilities, (parameters,)
    largest: float  # weight
    squares: bool


class Lost(NamedTuple):
    """Sums over persons: base by base, base by effects, effects by effects (sparse)."""

    base: Floats
    across: Floats
    effects: Any


def lost(
    fit: FacetRounds, x: Floats, numbers: Numbers, root: Floats, *, squares: bool = False
) -> Lost:
    """Posterior covariances of scores at x, or squares of their means: one pass.

    The second with squares of sampling weights.
    """
    engine, model = fit.engine, fit.model
    n, n_base = model.design.n_effects, numbers.n_base
    refuse_beyond_memory(
        8.0 * (engine.n_held + 3) * n_base * (n + n_base),
        f"standard errors of {n} effects of facets and {n_base} parameters of items and groups",
    )
    largest = float(engine.responses.max_weight or 1.0) if engine.sampled else 1.0
    nodes = grid(model, x, fit.most, coarse=not squares)
    plan = Plan(model, x, numbers, nodes, root, largest, squares)
    base, across, effects = engine.map_add(_add, plan)
    size = _UNIT * largest ** (1 + squares)
    first, second = root[:n_base], root[n_base:]
    roots = scipy.sparse.diags_array(second)
    return Lost(
        base * size * np.outer(first, first), (across * size * np.outer(second, first)).T,
        scipy.sparse.csr_array(roots @ (effects.astype(float) * size) @ roots),
    )  # fmt: skip


def _add(block: Block, to: tuple[Any, ...] | None, plan: Plan) -> tuple[Any, ...]:
    n, n_base = plan.model.design.n_effects, plan.numbers.n_base
    if to is None:
        to = (
            np.zeros((n_base, n_base), dtype=np.int64), np.zeros((n, n_base), dtype=np.int64),
            scipy.sparse.csr_array((n, n), dtype=np.int64),
        )  # fmt: skip
    sums, effects = kernel.Sums(to[0], to[1]), to[2]
    data = to_sparse(block.data)
    weight = block.weights() if block.times is None else np.ones(block.n_persons)
    weight = weight / plan.largest
    times = np.ones(block.n_persons, dtype=np.int64) if block.times is None else block.times
    group = np.zeros(block.n_persons, dtype=np.int64) if block.group is None else block.group
    ability = _ability(plan)
    items, _, shifted = plan.model.unpack(plan.x)
    curves = plan.model.of_columns(items, shifted), plan.model.jacobian(items, shifted)[0]
    unit = 1.0 / (np.sqrt(_UNIT) * np.where(plan.root > 0.0, plan.root, 1.0))
    for lo, hi in _pieces(data, plan):
        answers, column = _answers(data, lo, hi)
        tables = _tables(plan, curves, column)
        k = plan.model.items.n_categories[column]
        answers = answers._replace(row=answers.row + (np.cumsum(k) - k)[answers.column])
        most, room = _most(answers, tables)
        pairs = kernel.Pairs(*(np.empty(room, dtype=np.int64) for _ in range(3)))
        count = kernel.add(
            answers, tables, ability, group[lo:hi], weight[lo:hi], times[lo:hi], n_base, unit,
            plan.squares, most, sums, pairs,
        )  # fmt: skip
        one, other, value = (v[:count] for v in pairs)
        effects = effects + scipy.sparse.csr_array((value, (one, other)), shape=(n, n))
    return sums.base, sums.across, effects


def _pieces(data: Sparse, plan: Plan) -> Iterator[tuple[int, int]]:
    """Ranges of persons whose tables are not large: as if each answered columns of its own."""
    model = plan.model
    each = (model.parent.items.size + 2) * plan.grid.nodes.size
    each *= int(model.items.n_categories.max())
    n_columns = model.design.parent.size
    terms = int(np.diff(model.design.terms.indptr).max())
    lo, n = 0, data.shape[0]
    while lo < n:
        hi = min(n, lo + _PERSONS)
        while hi > lo + 1:
            length = np.diff(data.indptr[lo : hi + 1])
            columns = min(int(length.sum()), n_columns)
            few = int(((length * terms) ** 2).sum()) <= _PAIRS
            if few and columns * each <= max(_NUMBERS, min(n_columns, int(length[0])) * each):
                break
            hi = lo + max(1, (hi - lo) // 2)
        yield lo, hi
        lo = hi


def _answers(data: Sparse, lo: int, hi: int) -> tuple[kernel.Answers, Ints]:
    """Answers of some persons, and the columns that these numbers stand for."""
    inside = slice(data.indptr[lo], data.indptr[hi])
    kept = data.values[inside] >= 0
    ends = np.concatenate([[0], np.cumsum(kept)])
    start = ends[data.indptr[lo : hi + 1] - data.indptr[lo]]
    column, number = np.unique(data.indices[inside][kept], return_inverse=True)
    code = data.values[inside][kept].astype(np.int64)
    return kernel.Answers(start, code, number.astype(np.int64)), column.astype(np.int64)


def _tables(plan: Plan, curves: tuple[Floats, Floats], column: Ints) -> kernel.Tables:
    """Curves and derivatives of some columns."""
    model, nodes = plan.model, plan.grid.nodes
    models, terms, x = (
        model.items.take(column.tolist()),
        model.design.terms[column],
        curves[0][:, column],
    )
    own = ItemSet(tuple(Group(p.model, p.at, models.own(p, x)) for p in models.parts))
    by_column, by_item = own.by_parameter(nodes, len(x)), curves[1][column]
    of_row = np.repeat(np.arange(column.size), own.n_categories)
    by_base = np.zeros(by_column.shape)
    for p, k in np.ndindex(len(x), len(x)):  # one by one: the same bits whatever the others are
        by_base[p] += by_column[k] * by_item[of_row, k, p][:, None]
    return kernel.Tables(
        own.log_p(nodes), by_base, np.ascontiguousarray(-own.by_ability(nodes)[0]),
        np.ascontiguousarray(plan.numbers.items[:, model.design.parent[column]].T),
        terms.indptr.astype(np.int64), terms.indices.astype(np.int64), terms.data.astype(float),
    )  # fmt: skip


def _ability(plan: Plan) -> kernel.Ability:
    _, ability, _ = plan.model.unpack(plan.x)
    slope = ability_scores(plan.model.parent, ability, plan.grid.nodes)
    of = np.ascontiguousarray(plan.numbers.groups.T)
    return kernel.Ability(np.ascontiguousarray(plan.grid.log_mass), slope, of)


def _most(answers: kernel.Answers, tables: kernel.Tables) -> tuple[int, int]:
    """Parameters that a person has at most, and room for pairs of effects of all of them."""
    terms = np.diff(tables.first)[answers.column]
    ends = np.concatenate([[0], np.cumsum(terms)])
    of_each = ends[answers.start[1:]] - ends[answers.start[:-1]]
    n = int(np.diff(answers.start).max(initial=0)) * tables.base_of.shape[1]
    return n + int(of_each.max(initial=0)) + 2, int((of_each**2).sum())
