"""The sandwich of the parameters of an item where the information is too large for a matrix.

With A the information, B the middle, of the items' own parameters and others, ``G`` the inverse of
A's own part, ``M`` how own parameters follow the others and ``S`` the others' part of A^-1,

    A^-1 = (G, 0; 0, 0) + C S^-1 C',    C = (-M S; S).

So of A^-1 B A^-1 the others' columns are ``A^-1 B C``, and an item's block is that of

    G B G - M g' - g M' + M (C' B C) M',    g = G (B C),

all but G B G exact, by conjugate gradients for few columns.  Blocks of that are found as
:mod:`.sandwich_blocks` says.  Where sums of scores of sampling units are known, the columns of
``A^-1 sums'`` are exact too, and B is the information of the prior alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from irt_dask.arrays import Floats
from irt_dask.calibrate.marginal import large_errors, sandwich_blocks
from irt_dask.calibrate.marginal.inverse_blocks import SingularError
from irt_dask.calibrate.marginal.large_errors import Found, Large
from irt_dask.calibrate.marginal.middle import Middle, middle
from irt_dask.calibrate.marginal.sampling import Sampling
from irt_dask.engine import Engine

#: Units whose sums meet conjugate gradients at a time.
_UNITS = 128


class _Part(NamedTuple):
    """Blocks of items, columns of the others, and how well the blocks are known."""

    of_items: Floats
    others: Floats
    deviation: float


def found(engine: Engine, known: Found, sampling: Sampling, prior: Floats) -> Large:
    """Covariances of ``sampling``; ``prior`` is the items', (items, parameters, parameters)."""
    large, solver = known.large, known.large.solver
    n, size = large.own.size, known.plan.unit.size
    b = middle(engine, known.plan, large.own, sampling, prior)
    of_units = _of_units(large, b.sums)
    part = of_units
    if b.own.any():
        more = _of_products(known, b, of_units.of_items)
        part = _Part(more.of_items, of_units.others + more.others, more.deviation)
    unit = np.zeros((size, known.sampled.size))
    unit[known.sampled, np.arange(known.sampled.size)] = 1.0
    v = solver.whole(known.solved, unit)
    exact = np.einsum("ik,ik->k", v, b.times(v)) + ((b.sums @ v) ** 2).sum(axis=0)
    of_others = 0.5 * (part.others[n:] + part.others[n:].T)
    if not (np.diag(of_others) > 0.0).all():
        raise SingularError
    difference = large_errors.compared(large.own, part.of_items, known.sampled, exact)
    return replace(
        large, of_items=part.of_items, to_others=part.others[:n], of_others=of_others,
        difference=difference, deviation=part.deviation,
    )  # fmt: skip


def _of_units(large: Large, sums: Floats) -> _Part:
    """What squares of the units' sums make of it."""
    own, n = large.own, large.own.size
    blocks, others = np.zeros(own.there.shape), np.zeros((sums.shape[1], sums.shape[1] - n))
    for k in range(0, len(sums), _UNITS):
        columns = np.ascontiguousarray(sums[k : k + _UNITS].T)
        moved = large.solver.whole(large.solver.own(columns[:n]), columns)
        blocks += own.product(moved[:n], moved[:n])
        others += moved @ moved[n:].T
    return _Part(blocks, others, 0.0)


def _of_products(known: Found, b: Middle, more: Floats) -> _Part:
    """What a middle makes of it that is known by products; ``more`` is added to the blocks."""
    large, solver = known.large, known.large.solver
    own, root, moved, n = large.own, solver.root, solver.moved, large.own.size
    columns = np.concatenate([large.to_others, large.of_others])
    image = b.times(columns)
    g = solver.own(image[:n])
    half = own.product(moved, g - 0.5 * moved @ (columns.T @ image))

    def product(y: Floats) -> Floats:
        v = np.zeros((len(columns), y.shape[1]))
        v[:n] = root @ y
        return np.asarray(root.T @ b.times(v)[:n])

    of_items, deviation = sandwich_blocks.blocks(
        solver.inverse, own, solver.of_root, known.of_own, b.own, product,
        more - half - half.transpose(0, 2, 1),
    )  # fmt: skip
    deviation = float(np.hypot(deviation, large.deviation))  # of the inverse's blocks too
    return _Part(of_items, solver.whole(g, image), deviation)
