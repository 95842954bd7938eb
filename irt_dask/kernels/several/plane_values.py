"""Draws of two abilities from their continuous posterior, by inverse distribution functions.

The log density is known on the nodes of a plane.  The first ability is drawn from its marginal: the
masses of the rows are its density at the nodes, and
:mod:`irt_dask.kernels.posterior.plausible_values` inverts it between them.  The second is drawn
given the first, in the same way: where the first lies between two rows, the log density at each
column is the cubic through these rows and their neighbours.  With the spacing of
:func:`irt_dask.kernels.several.plane_posterior.plane_for` the two distribution functions are right
to 0.0001.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.posterior.plausible_values import PIECES, around, cubic, masses, place
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.kernels.responses.rows import n_rows
from irt_dask.kernels.several.plane_posterior import Plane, scratch, weigh


@jit
def _marginal(w: Floats, first: Ints, last: Ints, lo: int, hi: int, f: Floats) -> tuple[int, int]:
    """Write the log mass of rows ``lo .. hi`` to f; return the first one and the end of the range.

    Only a grid that is too coarse has rows without mass between others: there the range ends.
    """
    top = lo
    for p in range(lo, hi + 1):
        mass = 0.0
        for q in range(first[p], last[p] + 1):
            mass += w[p, q]
        f[p] = math.log(mass) if mass > 0.0 else -np.inf
        if f[p] > f[top]:
            top = p
    begin, end = top, top + 1
    while begin > lo and f[begin - 1] > -np.inf:
        begin -= 1
    while end <= hi and f[end] > -np.inf:
        end += 1
    return begin, end


@jit
def _given(
    w: Floats, first: Ints, last: Ints, lo: int, hi: int, p: int, x: float, f: Floats
) -> tuple[int, int]:
    """Log density of the second ability, at the part x of the way from row p to the next.

    Rows ``lo .. hi - 1`` have mass.  Returns the first column and the end of those that count: what
    both rows have, which is all but nothing of the mass, since the mode moves from one row to the
    next by at most half a standard deviation.
    """
    begin, end = 1, 0
    if p + 1 < hi:
        begin, end = max(first[p], first[p + 1]), min(last[p], last[p + 1]) + 1
    if begin >= end:  # a grid that is too coarse: rows without anything in common
        near = p + 1 if p + 1 < hi and x > 0.5 else p
        for q in range(first[near], last[near] + 1):
            f[q] = math.log(w[near, q])
        return first[near], last[near] + 1
    column = np.empty(4)
    for q in range(begin, end):
        before = p > lo and first[p - 1] <= q <= last[p - 1]
        after = p + 2 < hi and first[p + 2] <= q <= last[p + 2]
        low, high = (0 if before else 1), (4 if after else 3)
        for k in range(low, high):
            column[k] = math.log(w[p - 1 + k, q])
        f[q] = cubic(around(column, 1, low, high), x)
    return begin, end


@jit
def _draws(indptr: Any, indices: Any, values: Any, g: Plane, u: Floats, theta: Floats) -> None:
    n = g.nodes.size
    h = g.nodes[1] - g.nodes[0]
    w, coarse, first, last = scratch(n)
    f, mass = np.empty(n), np.empty(n)
    f2, mass2 = np.empty(n), np.empty(n)
    part = np.empty(PIECES)
    for i in range(n_rows(indptr, values)):
        items, row = rows.row(indptr, indices, values, i)
        lo, hi, _, _, _ = weigh(items, row, g, w, coarse, first, last)
        lo, hi = _marginal(w, first, last, lo, hi, f)
        inside = masses(f, lo, hi, mass)
        for r in range(u.shape[1]):
            p, x = place(f, lo, hi, inside, mass, u[i, r, 0], part)
            begin, end = _given(w, first, last, lo, hi, p, x, f2)
            here = masses(f2, begin, end, mass2)
            q, y = place(f2, begin, end, here, mass2, u[i, r, 1], part)
            theta[i, r, 0] = g.nodes[p] + h * x
            theta[i, r, 1] = g.nodes[q] + h * y


def draw(data: Layout, g: Plane, u: Floats) -> Floats:
    """Draw both abilities from each person's posterior.

    ``u`` are uniforms, shape (persons, draws, 2); returns abilities of that shape.  The first one
    increases in the first uniform, the second, given the first, in the second.  A person without
    responses has the prior.
    """
    theta = np.empty(u.shape)
    _draws(*rows.arrays(data), g, u, theta)
    return theta
