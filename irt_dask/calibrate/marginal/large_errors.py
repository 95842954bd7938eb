"""Covariances of the parameters of an item where the information is too large for a matrix.

The observed information is that of known abilities, C, with a block for each item, less L, what
abilities that are not known take away.  Parameters that items share and those of groups, few, are
eliminated: the columns of the inverse that belong to them come from conjugate gradients.  Of the
items' own rest, ``D^(1/2) (1 - X) D^(1/2)`` with the blocks D of C - L, blocks of the inverse are
found (:mod:`.inverse_blocks`).  Each product with L is one pass over the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.calibrate.marginal import inverse_blocks, lost_products
from irt_dask.calibrate.marginal.inverse_blocks import Blocks, Inverse, SingularError
from irt_dask.calibrate.marginal.model import Model
from irt_dask.engine import Engine
from irt_dask.engine.memory import refuse_beyond_memory
from irt_dask.kernels.base import keyed_random
from irt_dask.kernels.posterior import score_products

#: Least information of an item's parameters, as a share of that of known abilities.
_LEAST = 1e-6
#: Columns, about, for which blocks are compared with conjugate gradients alone.
_SAMPLED = 24
#: How often vectors of low rank are kept, for a sandwich.
_OF_SANDWICH = 6
#: Residual of Newton steps, whose error is squared anyway.
_NEWTON = 1e-4
#: Numbers that bounds of sums may be exceeded by: a power of two.
_SPARE = 8.0


@dataclass(frozen=True)
class Complete:
    """Information if abilities were known: columns of items come before all others."""

    items: Floats  # blocks, (items, parameters, parameters), with the items' prior
    groups: Sequence[tuple[Ints, Floats]]  # columns, and their block

    def blocks(self, own: Blocks) -> Floats:
        """Blocks of the items' own parameters, (items, parameters, parameters), else 0."""
        return np.where(own.there, self.items, 0.0)

    def border(self, item_column: Ints, n_own: int, size: int) -> Floats:
        """The columns of parameters that are no item's own, (columns, others)."""
        out = np.zeros((size, size - n_own))
        for i, row in enumerate(item_column):
            for j, column in enumerate(item_column):
                both = (row >= 0) & (column >= n_own)
                np.add.at(out, (row[both], column[both] - n_own), self.items[both, i, j])
        for at, block in self.groups:
            out[np.ix_(at, at - n_own)] += block
        return out


@dataclass(frozen=True)
class Solver:
    """The inverse of the information, times vectors."""

    root: Any  # D^(-1/2), sparse
    of_root: Floats  # its blocks
    inverse: Inverse
    moved: Floats  # how own parameters follow the others, but for the sign
    of_others: Floats

    def own(self, v: Floats, residual: float = inverse_blocks.RESIDUAL) -> Floats:
        """Inverse of the items' own part times ``v``, (own, vectors)."""
        return np.asarray(self.root @ self.inverse.times(self.root.T @ v, residual))

    def whole(self, own: Floats, v: Floats) -> Floats:
        """Inverse of all times ``v``, (columns, vectors), where that of the own part is ``own``."""
        n = len(own)
        others = self.of_others @ (v[n:] - self.moved.T @ v[:n])
        return np.concatenate([own - self.moved @ others, others])

    def newton(self, score: Floats) -> Floats:
        """Inverse of all times a score."""
        v = score[:, None]
        return self.whole(self.own(v[: len(self.moved)], _NEWTON), v)[:, 0]


@dataclass(frozen=True)
class Large:
    """Covariances among an item's parameters and those that are no item's own."""

    own: Blocks
    of_items: Floats  # (items, places, places)
    to_others: Floats  # of each own parameter with the others, (own, others)
    of_others: Floats
    solver: Solver
    difference: float  # largest, relative, to conjugate gradients at sampled parameters
    n_sampled: int
    deviation: float  # of the worst standard error, as a share

    @property
    def said(self) -> str:
        """How standard errors were found."""
        return (
            f"conjugate gradients (relative residual {inverse_blocks.RESIDUAL:g}); low rank "
            f"{self.solver.inverse.low.q.shape[1]} and random signs for blocks of items: largest "
            f"relative difference {self.difference:.1e} at {self.n_sampled} sampled parameters, "
            f"standard deviation at most {self.deviation:.1e}"
        )

    def between(self, at: Ints) -> Floats:
        """Covariances of parameters (.., k) of one item and others, (.., k, k).

        0 for parameters of different items: nobody may ask for these.
        """
        n = self.own.size
        row, column = np.broadcast_arrays(at[..., :, None], at[..., None, :])
        out = np.zeros(row.shape)
        inside = (row < n) & (column < n)
        r, c = row[inside], column[inside]
        number, place = self.own.number, self.own.place
        same = number[r] == number[c]
        out[inside] = np.where(same, self.of_items[number[r], place[r], place[c]], 0.0)
        for one, other in ((row, column), (column, row)):
            mixed = (one < n) & (other >= n)
            out[mixed] = self.to_others[one[mixed], other[mixed] - n]
        beyond = (row >= n) & (column >= n)
        out[beyond] = self.of_others[row[beyond] - n, column[beyond] - n]
        return out


class Found(NamedTuple):
    """Covariances from the inverse of the information, and what sandwiches need of it beside."""

    large: Large
    plan: lost_products.Plan
    of_own: Floats  # blocks of the inverse of the items' own part
    sampled: Ints  # columns for which it is known by conjugate gradients alone
    solved: Floats  # that, (own, sampled)


def found(
    engine: Engine, fit: str, model: Model, x: Floats, at: tuple[Ints, Ints, int],
    complete: Complete, coarse: bool,
) -> Found:  # fmt: skip
    """Covariances at x; SingularError where the information has no inverse.

    A ``coarse`` grid of abilities does, but for sandwiches.
    """
    item_column, _, size = at
    n = int(((item_column >= 0) & model.own).sum())
    own = Blocks(np.where(item_column < n, item_column, -1).T)
    known, border = complete.blocks(own), complete.border(item_column, n, size)
    diagonal = known[own.number, own.place, own.place]
    diagonal = np.append(diagonal, border[np.arange(n, size), np.arange(size - n)])
    if not (diagonal > 0.0).all():
        raise SingularError
    plan = lost_products.Plan.of(fit, model, x, at, np.sqrt(diagonal), coarse)
    _refuse_too_many(engine, plan, size - n, 1 if coarse else _OF_SANDWICH)
    lost = lost_products.own(engine, plan, own.number, own.place)
    root_blocks, share_blocks = _whitened(own, known, lost)
    root, share = own.sparse(root_blocks), own.sparse(share_blocks)
    most = 1.0 + float(abs(share).sum(axis=1).max())  # no eigenvalue of what is lost is above
    diagonal[:n] = lost[own.number, own.place, own.place]
    diagonal[n:] *= model.n_items  # scores of many items may add up there
    scale = score_products.product_scale(_SPARE * np.sqrt(most * diagonal))

    def lost_times(v: Floats) -> Floats:
        out = lost_products.products(engine, plan, v, scale)
        if (np.einsum("ik,ik->k", v, out) > _SPARE * most).any():  # far from positive
            raise SingularError
        return out

    def product(y: Floats) -> Floats:
        length = np.linalg.norm(y, axis=0)
        v = np.zeros((size, y.shape[1]))
        v[:n] = root @ (y / length)
        return np.asarray((root.T @ lost_times(v)[:n]) * length - share @ y)

    if size > n:
        unit = np.zeros((size, size - n))
        unit[np.arange(n, size), np.arange(size - n)] = 1.0 / plan.unit[n:]
        border = border - lost_times(unit) * plan.unit[n:]
    inverse = Inverse(product, inverse_blocks.low_rank(product, own))
    return _assembled(plan, own, root_blocks, inverse, border)


def _refuse_too_many(engine: Engine, plan: lost_products.Plan, n_others: int, times: int) -> None:
    """Stop before vectors, kept so many times, and tables of items, that do not fit into memory."""
    size = plan.unit.size
    width, kept = inverse_blocks.width(size, n_others + _SAMPLED)
    refuse_beyond_memory(
        8.0 * size * (times * kept + 6 * width) + 8.0 * size * width * engine.n_held + plan.nbytes,
        f"standard errors of {size} parameters, from {kept} vectors of as many numbers,",
    )


def _whitened(own: Blocks, known: Floats, lost: Floats) -> tuple[Floats, Floats]:
    """D^(-1/2), and what is lost of the items' own blocks in these units."""
    place = np.arange(own.at.shape[1])
    size = np.sqrt(np.where(own.at >= 0, known[:, place, place], 1.0))
    left = np.where(own.there, known - lost, np.eye(place.size))
    values, vectors = np.linalg.eigh(left / size[:, :, None] / size[:, None, :])
    if not (values > _LEAST).all():
        raise SingularError
    # The symmetric one: places that an item lacks stay apart.
    root = vectors / np.sqrt(values)[:, None, :] @ vectors.transpose(0, 2, 1) / size[:, :, None]
    return np.where(own.there, root, 0.0), root.transpose(0, 2, 1) @ lost @ root


def _assembled(
    plan: lost_products.Plan, own: Blocks, of_root: Floats, inverse: Inverse, border: Floats
) -> Found:
    """Covariances from the inverse, compared at some items with conjugate gradients alone."""
    n, root = own.size, own.sparse(of_root)
    items = keyed_random.generator(0, "sampled items").permutation(np.unique(own.number))
    sampled = own.at[items[: max(1, _SAMPLED // own.at.shape[1])]]
    sampled = sampled[sampled >= 0]
    unit = np.zeros((n, sampled.size))
    unit[sampled, np.arange(sampled.size)] = 1.0
    columns = np.concatenate([root.T @ border[:n], root.T @ unit], axis=1)
    blocks, solved, deviation = inverse.blocks(own, columns)
    others = border.shape[1]
    solved = root @ solved
    moved, of_unit = solved[:, :others], solved[:, others:]
    left = border[n:] - border[:n].T @ moved
    values, vectors = np.linalg.eigh(0.5 * (left + left.T))
    if not (values > 0.0).all():
        raise SingularError
    of_others = (vectors / values) @ vectors.T
    of_own = of_root @ blocks @ of_root.transpose(0, 2, 1)
    followed = moved @ of_others
    of_items = of_own + own.product(followed, moved)
    more = np.einsum("ik,ik->i", followed, moved)[sampled]
    exact = of_unit[sampled, np.arange(sampled.size)] + more
    solver = Solver(root, of_root, inverse, moved, of_others)
    difference = compared(own, of_items, sampled, exact)
    large = Large(
        own, of_items, -followed, of_others, solver, difference, sampled.size, deviation
    )  # fmt: skip
    return Found(large, plan, of_own, sampled, of_unit)


def compared(own: Blocks, of_items: Floats, sampled: Ints, exact: Floats) -> float:
    """Largest relative difference of standard errors at sampled columns to exact variances."""
    of_all = of_items[own.number, own.place, own.place]
    if not (np.append(of_all, exact) > 0.0).all():
        raise SingularError
    return float(np.abs(np.sqrt(of_all[sampled] / exact) - 1.0).max())
