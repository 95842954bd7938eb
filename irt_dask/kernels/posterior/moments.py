"""Posterior moments of ability: means, variances, marginal likelihoods.

Under linear tables kept by node, what a person's responses say of ability is t: the posterior
weight at a node theta is ``exp(t theta + f(theta))``, f being the same for all with the same items
and prior.  With M its sum over the nodes, log M is a cumulant generating function: its derivatives
in t are the posterior mean, the variance, and further cumulants.  So t is taken to be in a cell, 1
/ 32 wide, and mean and variance come from the cumulants at the cell's middle, by Taylor's theorem,
to 1e-12.  Where many persons have the same items and prior these are in a table (:class:`Cells`),
for others they are found anew, with the same bits.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irt_dask.arrays import Bools, Floats, Ints, Words
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.base.lanes import dot, total
from irt_dask.kernels.posterior.person_weights import (
    EVERYBODY,
    Chosen,
    Prior,
    Shared,
    Some,
    gather,
    some,
    weigh,
)
from irt_dask.kernels.posterior.tables import (
    CategoryTables,
    LinearTables,
    ScoreTables,
    Tables,
)
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Dense, Layout
from irt_dask.kernels.responses.right_sums import right_sums, sums_of, words_of
from irt_dask.kernels.responses.rows import n_rows

#: Cells of a unit of t.  The error of a mean is (1 / 64)^6 / 720 of the seventh cumulant, of a
#: variance (1 / 64)^5 / 120.
_CELLS = 32
#: log M and six cumulants, Taylor's coefficients.
_ORDERS = 7
#: Persons of a set and prior from whom on a table is made, for each of its cells.
_WORTH = 0.5


class Table(NamedTuple):
    """Cumulants at the middles of cells, for one set of items and group of persons."""

    first: int  # number of the first cell
    values: Floats  # (cells, _ORDERS)

    @property
    def nbytes(self) -> int:
        """Memory held, bytes."""
        return self.values.nbytes


class Cells(NamedTuple):
    """Cumulants at the middles of cells, for sets of items and groups of persons."""

    of: Ints  # row of the first cell, (sets, groups); -1: there is no table
    first: Ints  # number of that cell
    values: Floats  # (cells, _ORDERS)

    @property
    def nbytes(self) -> int:
        """Memory held, bytes."""
        return self.of.nbytes + self.first.nbytes + self.values.nbytes


_NONE = np.empty(0)
#: No tables.
NO_CELLS = Cells(
    np.empty((0, 0), dtype=np.int64), np.empty((0, 0), dtype=np.int64), np.empty((0, _ORDERS))
)


@jit
def _cumulants(w: Floats, nodes: Floats, log_peak: float, out: Floats) -> None:
    """log M and six cumulants k of ability with weights w on the nodes, over k!."""
    sum_w = total(w)
    mean = dot(w, nodes) / sum_w
    m2 = m3 = m4 = m5 = m6 = 0.0
    for q in range(w.size):
        x = nodes[q] - mean
        y = w[q] * x * x
        m2 += y
        y *= x
        m3 += y
        y *= x
        m4 += y
        y *= x
        m5 += y
        m6 += y * x
    m2, m3, m4, m5, m6 = m2 / sum_w, m3 / sum_w, m4 / sum_w, m5 / sum_w, m6 / sum_w
    out[0], out[1] = log_peak + math.log(sum_w), mean
    out[2], out[3], out[4] = m2 / 2.0, m3 / 6.0, (m4 - 3.0 * m2 * m2) / 24.0
    out[5] = (m5 - 10.0 * m3 * m2) / 120.0
    out[6] = (m6 - 15.0 * m4 * m2 - 10.0 * m3 * m3 + 30.0 * m2 * m2 * m2) / 720.0


@jit
def _taylor(values: Floats, row: int, x: float) -> tuple[float, float, float]:
    """Mean, variance and log M at ``x`` from the middle of a cell, whose cumulants are a row."""
    k0, k1, k2, k3 = values[row, 0], values[row, 1], values[row, 2], values[row, 3]
    k4, k5, k6 = values[row, 4], values[row, 5], values[row, 6]
    # log M and its first two derivatives; what is in the table are Taylor's coefficients
    log_m = k0 + x * (k1 + x * (k2 + x * (k3 + x * (k4 + x * (k5 + x * k6)))))
    mean = k1 + x * (2.0 * k2 + x * (3.0 * k3 + x * (4.0 * k4 + x * (5.0 * k5 + x * 6.0 * k6))))
    variance = 2.0 * k2 + x * (6.0 * k3 + x * (12.0 * k4 + x * (20.0 * k5 + x * 30.0 * k6)))
    return mean, variance, log_m


@jit
def _tabulate(base: Floats, mass: Floats, nodes: Floats, first: int, c: Some, out: Floats) -> None:
    for k in range(out.shape[0]):
        t = (first + k + 0.5) / _CELLS
        for q in range(nodes.size):
            c.w[0, q] = (base[q] + mass[q]) + t * nodes[q]
        c.lo[0], c.hi[0] = 0, nodes.size
        weigh(c, 1)
        lo, hi = c.lo[0], c.hi[0]
        _cumulants(c.w[0, lo:hi], nodes[lo:hi], c.peak[0], out[k])


def ends(g: LinearTables | ScoreTables) -> tuple[Floats, Floats]:
    """Lowest and highest score of each item."""
    if isinstance(g, LinearTables):
        return np.minimum(g.slope, 0.0), np.maximum(g.slope, 0.0)
    low, high = (f.reduceat(g.score, g.first[:-1]) for f in (np.minimum, np.maximum))
    return np.minimum(low, 0.0), np.maximum(high, 0.0)


def worth_a_table(n_persons: Ints, g: LinearTables | ScoreTables, observed: Bools) -> Ints:
    """Which groups have so many persons with these items that they pay for a table."""
    low, high = ends(g)
    return np.flatnonzero(n_persons > _WORTH * _CELLS * (observed @ (high - low)))


def table_of_cells(
    g: LinearTables | ScoreTables, observed: Bools, base: Floats, mass: Floats
) -> Table:
    """Table of persons with these items; ``base`` are their sums, ``mass`` is their prior."""
    low, high = (x[observed].sum() for x in ends(g))
    first = math.floor(low * _CELLS) - 1
    out = np.empty((math.floor(high * _CELLS) + 2 - first, _ORDERS))
    _tabulate(base, mass, g.nodes, first, some(1, 0, g.nodes.size), out)
    return Table(first, out)


@jit
def _from_one_table(words: Words, eight: Floats, values: Floats, first: int, out: Floats) -> bool:
    """As :func:`_from_cells` where one table, of all items, is everybody's; False: it is not."""
    for i in range(words.shape[0]):
        t, constant, missing = sums_of(words, i, eight)
        if missing:
            return False
        cell = math.floor(t * _CELLS)
        middle = (cell + 0.5) / _CELLS
        out[0, i], out[1, i], log_m = _taylor(values, cell - first, t - middle)
        out[2, i] = log_m + constant
    return True


@jit
def _scores_from_one_table(
    values: Any, of_row: Ints, score: Floats, constant: Floats, table: Floats, first: int,
    out: Floats,
) -> bool:  # fmt: skip
    """As :func:`_from_one_table`, of scores."""
    for i in range(values.shape[0]):
        t = c = 0.0
        for j in range(values.shape[1]):
            y = values[i, j]
            if y < 0:
                return False
            if y > 0:
                t += score[of_row[j] + y - 1]
                c += constant[of_row[j] + y - 1]
        cell = math.floor(t * _CELLS)
        middle = (cell + 0.5) / _CELLS
        out[0, i], out[1, i], log_m = _taylor(table, cell - first, t - middle)
        out[2, i] = log_m + c
    return True


@jit
def _score_sums(indptr: Any, indices: Any, values: Any, g: Any, out: Floats) -> None:
    for i in range(n_rows(indptr, values)):
        its, row = rows.row(indptr, indices, values, i)
        t = c = 0.0
        for k in range(row.size):
            if row[k] > 0:
                at = g.first[rows.item(its, k)] + row[k] - 1
                t += g.score[at]
                c += g.constant[at]
        out[i, 0], out[i, 1] = t, c


def sums(data: Layout, g: LinearTables | ScoreTables) -> Floats:
    """Sums of scores and constants of each person's responses, (persons, 2)."""
    if isinstance(g, LinearTables):
        return right_sums(data, g.eight)
    out = np.empty((data.shape[0], 2))
    _score_sums(*rows.arrays(data), g, out)
    return out


@jit
def _from_cells(
    sums: Floats, number: NDArray[np.int32], group: Ints, tilt: Floats, of: Ints, first: Ints,
    values: Floats, out: Floats, rest: Ints,
) -> int:  # fmt: skip
    """Fill in moments of those who have a table; list the others, and return how many."""
    n = 0
    for i in range(number.size):
        t = sums[i, 0] + tilt[i] if tilt.size > 0 else sums[i, 0]
        g = group[i] if group.size > 0 else 0
        at = of[number[i], g] if number[i] >= 0 else -1
        if at < 0:
            rest[n] = i
            n += 1
            continue
        cell = math.floor(t * _CELLS)
        row = at + cell - first[number[i], g]
        out[0, i], out[1, i], log_m = _taylor(values, row, t - (cell + 0.5) / _CELLS)
        out[2, i] = log_m + sums[i, 1]
    return n


@jit
def _one_by_one(
    indptr: Any, indices: Any, values: Any, g: Any, s: Shared, p: Prior, who: Chosen, c: Some,
    t: Floats, out: Floats,
) -> None:  # fmt: skip
    """Fill in moments by cells made anew where ``t`` is given, else from the weights themselves."""
    k = np.empty((1, _ORDERS))
    n = who.who.size if who.who.size > 0 else n_rows(indptr, values)
    for begin in range(0, n, c.n.size):
        count = gather(indptr, indices, values, g, s, p, who, begin, c)
        weigh(c, count)
        for r in range(count):
            i, lo, hi = c.person[r], c.lo[r], c.hi[r]
            w, nodes = c.w[r, lo:hi], g.nodes[lo:hi]
            if t.size > 0:
                _cumulants(w, nodes, c.peak[r], k[0])
                out[0, i], out[1, i], out[2, i] = _taylor(k, 0, t[i] - who.t[i])
                continue
            sum_w = total(w)
            mean = dot(w, nodes) / sum_w
            spread = 0.0
            for q in range(w.size):
                spread += w[q] * (nodes[q] - mean) ** 2
            out[0, i], out[1, i] = mean, spread / sum_w
            out[2, i] = c.peak[r] + math.log(sum_w) + c.constant[r]


def of_complete(data: Dense, g: Tables, cells: Cells) -> Floats | None:
    """As :func:`expectations`, by one table of all items; None if somebody lacks a response."""
    out, table = np.empty((3, data.shape[0])), (cells.values, cells.first[0, 0])
    if isinstance(g, LinearTables):
        found = _from_one_table(words_of(data), g.eight, *table, out)
    else:
        assert isinstance(g, ScoreTables)
        found = _scores_from_one_table(data.values, g.first, g.score, g.constant, *table, out)
    return out if found else None


def expectations(data: Layout, g: Tables, s: Shared, p: Prior, cells: Cells = NO_CELLS) -> Floats:
    """Posterior mean and variance of each ability, and the log marginal likelihood, (3, persons).

    The prior's log mass includes the spacing.  ``cells`` are those of the block's shared sums.
    """
    out = np.empty((3, data.shape[0]))
    n, m = data.shape
    if isinstance(g, CategoryTables) or not g.base.size:
        _one_by_one(*rows.arrays(data), g, s, p, EVERYBODY, some(n, m, g.nodes.size), _NONE, out)
        return out
    rest, k, of_each = np.arange(n), n, sums(data, g)
    if cells.values.size:
        k = _from_cells(of_each, s.number, p.group, p.tilt, *cells, out, rest)
    if k:
        rest = rest[:k]
        t = of_each[:, 0] + p.tilt if p.tilt.size else of_each[:, 0].copy()
        middle = (np.floor(t * _CELLS) + 0.5) / _CELLS
        room = some(k, m, g.nodes.size)
        _one_by_one(*rows.arrays(data), g, s, p, Chosen(rest, middle), room, t, out)
        out[2, rest] += of_each[rest, 1]
    return out


@jit
def _central(
    indptr: Any, indices: Any, values: Any, g: Any, s: Shared, p: Prior, c: Some, out: Floats
) -> None:  # fmt: skip
    for begin in range(0, n_rows(indptr, values), c.n.size):
        count = gather(indptr, indices, values, g, s, p, EVERYBODY, begin, c)
        weigh(c, count)
        for r in range(count):
            i, lo, hi = c.person[r], c.lo[r], c.hi[r]
            w, nodes = c.w[r, lo:hi], g.nodes[lo:hi]
            sum_w = total(w)
            mean = dot(w, nodes) / sum_w
            m2 = m3 = m4 = 0.0
            for q in range(w.size):
                x = nodes[q] - mean
                y = w[q] * x * x
                m2 += y
                m3 += y * x
                m4 += y * x * x
            out[0, i], out[1, i], out[2, i], out[3, i] = mean, m2 / sum_w, m3 / sum_w, m4 / sum_w


def central_moments(data: Layout, g: Tables, s: Shared, p: Prior) -> Floats:
    """Mean, variance, and third and fourth central moment of each posterior, (4, persons)."""
    out = np.empty((4, data.shape[0]))
    room = some(*data.shape, g.nodes.size)
    _central(*rows.arrays(data), g, s, p, room, out)
    return out
