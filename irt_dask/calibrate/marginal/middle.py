"""The middle of a sandwich that is too large for a matrix: its blocks of items, and its products.

It is the sum over persons, or sampling units, of squares of weighted scores, times n / (n - 1), and
the information of the items' prior.  Squares of persons are found in passes over the data; of units
the sums of scores themselves are kept, as they are where there is a matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from irt_dask.arrays import Floats, Ints
from irt_dask.calibrate.marginal.inverse_blocks import Blocks
from irt_dask.calibrate.marginal.lost_products import Plan, weights
from irt_dask.calibrate.marginal.sampling import Sampling
from irt_dask.engine import Engine
from irt_dask.kernels.base import fixed_point
from irt_dask.kernels.base.exact_products import bound_above
from irt_dask.kernels.posterior import score_products, score_squares
from irt_dask.population.units import Units
from irt_dask.store import Block

#: Vectors that are multiplied at a time.
_AT_A_TIME = 128
#: What sums may exceed their bound by, as that is rounded: a power of two.
_SPARE = 2.0

Product = Callable[[Floats], Floats]


@dataclass(frozen=True)
class Middle:
    """Blocks of the items' own parameters, (items, places, places), and how to multiply all.

    Squares of the units' ``sums``, (units, columns), have to be added to both.
    """

    own: Floats
    product: Product
    sums: Floats

    def times(self, v: Floats) -> Floats:
        """The middle times ``v``, (columns, vectors)."""
        out = np.empty(v.shape)
        for k in range(0, v.shape[1], _AT_A_TIME):
            out[:, k : k + _AT_A_TIME] = self.product(v[:, k : k + _AT_A_TIME])
        return out


def middle(engine: Engine, plan: Plan, own: Blocks, sampling: Sampling, prior: Floats) -> Middle:
    """Middle of the persons or units of ``sampling``; ``prior`` is (items, parameters, parameters).

    A pass for the blocks, or the sums, and of persons one for each product.
    """
    factor, of_prior = sampling.factor, _sparse(prior, plan)
    of_items = np.where(own.there, prior, 0.0)
    if sampling.units is not None:
        sums = np.sqrt(factor) * _of_units(engine, plan, sampling.units)
        return Middle(of_items, lambda v: np.asarray(of_prior @ v), sums)
    squares, product = _of_persons(engine, plan, own)

    def times(v: Floats) -> Floats:
        return np.asarray(factor * product(v) + of_prior @ v)

    return Middle(of_items + factor * squares, times, np.empty((0, plan.unit.size)))


def _sparse(blocks: Floats, plan: Plan) -> Any:
    """Matrix of all columns from blocks of items, of whose parameters some may be shared."""
    row, column = np.broadcast_arrays(plan.item_column[:, :, None], plan.item_column[:, None, :])
    both = (row >= 0) & (column >= 0)
    size = plan.unit.size
    return scipy.sparse.csr_matrix((blocks[both], (row[both], column[both])), (size, size))


def _largest(plan: Plan) -> tuple[Floats, Ints]:
    """Largest scores by item, then by group, (.., parameters), and their columns."""
    first = plan.setting.items.first
    n_items, size = plan.item_column.shape
    most = np.abs(plan.table().values).max(axis=1)
    of_items = np.maximum.reduceat(most[: size * first[-1]].reshape(size, -1), first[:-1], axis=1)
    largest = np.zeros((n_items + len(plan.ability_column), max(size, 2)))
    column = np.full(largest.shape, -1)
    largest[:n_items, :size], column[:n_items, :size] = of_items.T, plan.item_column
    largest[n_items:, :2] = most[size * first[-1] :].reshape(-1, 2)
    column[n_items:, :2] = plan.ability_column
    return largest, column


def _heaviest(engine: Engine) -> float:
    return float(engine.responses.max_weight or 1.0) if engine.sampled else 1.0


# --- persons --------------------------------------------------------------------------------------


def _own(block: Block, to: tuple[Ints] | None, plan: Plan, scale: Floats) -> tuple[Ints]:
    _, g, shared, prior = plan.setting.of(block)
    to = (np.zeros((*scale.shape, scale.shape[1]), dtype=np.int64),) if to is None else to
    score_squares.add_own(
        block.data, g, shared, prior, plan.scores(), *weights(block), scale, to[0]
    )
    return to


def _products(
    block: Block, to: tuple[Floats] | None, plan: Plan, v: Floats, scale: Floats
) -> tuple[Floats]:
    _, g, shared, prior = plan.setting.of(block)
    to = (np.zeros(v.shape),) if to is None else to
    score_squares.add_products(
        block.data, g, shared, prior, plan.scores(), *weights(block), v, scale, to[0]
    )
    return to


def _of_persons(engine: Engine, plan: Plan, own: Blocks) -> tuple[Floats, Product]:
    largest, column = _largest(plan)
    scale = np.sqrt(fixed_point.scale_for(engine.n_persons * _heaviest(engine)))
    units = scale / bound_above(largest)  # weights add up to the number of persons
    (found,) = engine.map_add(_own, plan, units)
    blocks = found / (units[:, :, None] * units[:, None, :])
    n_items = len(plan.item_column)
    # Of a column that items share the sizes of scores add up: n of them by sqrt(n) times the root.
    most, there = np.zeros(plan.unit.size), column >= 0
    np.add.at(most, column[there], np.einsum("ijj->ij", blocks)[there])
    most[own.size :] *= n_items
    of_columns = score_products.product_scale(_SPARE * np.sqrt(most))

    def product(v: Floats) -> Floats:
        length = _above(blocks, column, v, n_items)
        safe = np.where(length > 0.0, length, 1.0)
        (out,) = engine.map_add(_products, plan, np.ascontiguousarray(v / safe), of_columns)
        return np.asarray(out / of_columns[:, None] * safe)

    return np.where(own.there, blocks[:n_items, : own.at.shape[1], : own.at.shape[1]], 0.0), product


def _above(blocks: Floats, column: Ints, v: Floats, n_items: int) -> Floats:
    """Bounds of ``sqrt(v' S v)`` for vectors v, S the sum of squares whose blocks are known.

    The square of a sum over a person's n items and group is at most n + 1 times the sum of squares.
    """
    known = np.where((column >= 0)[:, :, None], v[column], 0.0)
    squares = np.einsum("jpk,jpq,jqk->k", known, blocks, known, optimize=True)
    return np.sqrt((n_items + 1.0) * np.maximum(squares, 0.0))


# --- sampling units -------------------------------------------------------------------------------


def _add(block: Block, to: tuple[Ints] | None, plan: Plan, n: int, scale: Floats) -> tuple[Ints]:
    _, g, shared, prior = plan.setting.of(block)
    to = (np.zeros((n, scale.size), dtype=np.int64),) if to is None else to
    assert block.unit is not None
    score_squares.add_by_unit(
        block.data, g, shared, prior, plan.scores(), *weights(block), block.unit, scale, to[0]
    )
    return to


def _of_units(engine: Engine, plan: Plan, units: Units) -> Floats:
    """Sums by unit of the persons' weighted scores, (units, columns): one pass."""
    largest, column = _largest(plan)
    bound, there = np.zeros(plan.unit.size), column >= 0
    np.add.at(bound, column[there], largest[there])  # scores of an item each add up
    scale = fixed_point.scale_for(engine.n_persons) / bound_above(bound)
    (found,) = engine.map_add(_add, plan, units.n_labels, scale)
    return np.asarray(found / scale)
