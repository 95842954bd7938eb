"""Tables of posterior moments, for sets of items that many persons answered.

Under linear tables kept by node, what a person's responses say of ability is t: the posterior
weight at a node theta is ``exp(t theta + f(theta))``, f being the same for all with the same items
and prior.  With M its sum over the nodes, log M is a cumulant generating function: its derivatives
in t are the posterior mean, the variance, and further cumulants.  So t is taken to be in a cell, 1
/ 32 wide, and mean and variance come from the cumulants at the cell's middle, by Taylor's theorem,
to 1e-12.

A process keeps tables for the sets of items that it has met (:class:`Seen`), so that a person of
any later block is known by the items he lacks.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from irt_dask.arrays import Floats, Ints, Words
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.base.lanes import dot, total
from irt_dask.kernels.posterior.person_weights import Prior, Some, bases, some, weigh
from irt_dask.kernels.posterior.tables import CategoryTables, LinearTables, ScoreTables, Tables
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.item_sets import CommonSets, hash_table, seek
from irt_dask.kernels.responses.layouts import Dense, Layout
from irt_dask.kernels.responses.right_sums import sums_and_missing
from irt_dask.kernels.responses.rows import n_rows
from irt_dask.kernels.responses.words import missing_bits

#: Cells of a unit of t.  The error of a mean is (1 / 64)^6 / 720 of the seventh cumulant, of a
#: variance (1 / 64)^5 / 120.
_CELLS = 32
#: log M and six cumulants, Taylor's coefficients.
ORDERS = 7
#: Persons of a set and prior from whom on a table is made, for each of its cells: moments without a
#: table take as long as a cell.
_WORTH = 1.0
#: Sets of items that are counted, and numbers in their tables, at most.
_MOST_SETS, _MOST_NUMBERS = 1024, 1 << 22
#: In place of a row: there is no table.
_NONE = np.iinfo(np.int64).min


class Seen(NamedTuple):
    """Sets of items that a process has met, and cumulants at the middles of their cells."""

    missing: Words  # the items that persons of a set lack, a row a set
    place: Ints  # where a set is in a hash table
    persons: Ints  # persons that were looked for in vain, (sets, groups)
    row: Ints  # row of cell 0, (sets, groups)
    cumulants: Floats  # (cells of all tables, ORDERS)

    @property
    def nbytes(self) -> int:
        """Memory held, bytes."""
        return sum(x.nbytes for x in self)


#: Nothing seen yet.
NOTHING = Seen(
    np.empty((0, 0), dtype=np.uint64),
    np.empty(0, dtype=np.int64),
    np.empty((0, 0), dtype=np.int64),
    np.empty((0, 0), dtype=np.int64),
    np.empty((0, ORDERS)),
)


def has_cells(g: Tables) -> bool:
    """Whether what responses say is one number t, and tables are kept by node."""
    return not isinstance(g, CategoryTables) and g.base.size > 0


# --- what responses say ---------------------------------------------------------------------------


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


def _sums_and_missing(data: Layout, g: Tables) -> tuple[Floats, Words]:
    if isinstance(g, LinearTables):
        return sums_and_missing(data, g.eight)
    assert isinstance(g, ScoreTables)
    out = np.empty((data.shape[0], 2))
    _score_sums(*rows.arrays(data), g, out)
    return out, missing_bits(data)


def sums(data: Layout, g: Tables) -> Floats:
    """Sums of scores and constants of each person's responses, (persons, 2)."""
    return _sums_and_missing(data, g)[0]


def middles(t: Floats) -> Floats:
    """Middles of the cells that these are in."""
    return (np.floor(t * _CELLS) + 0.5) / _CELLS


# --- cumulants ------------------------------------------------------------------------------------


@jit
def cumulants(w: Floats, nodes: Floats, log_peak: float, out: Floats) -> None:
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
def taylor(values: Floats, row: int, x: float) -> tuple[float, float, float]:
    """Mean, variance and log M at ``x`` from the middle of a cell, whose cumulants are a row."""
    k0, k1, k2, k3 = values[row, 0], values[row, 1], values[row, 2], values[row, 3]
    k4, k5, k6 = values[row, 4], values[row, 5], values[row, 6]
    # log M and its first two derivatives; what is in the table are Taylor's coefficients
    log_m = k0 + x * (k1 + x * (k2 + x * (k3 + x * (k4 + x * (k5 + x * k6)))))
    mean = k1 + x * (2.0 * k2 + x * (3.0 * k3 + x * (4.0 * k4 + x * (5.0 * k5 + x * 6.0 * k6))))
    variance = 2.0 * k2 + x * (6.0 * k3 + x * (12.0 * k4 + x * (20.0 * k5 + x * 30.0 * k6)))
    return mean, variance, log_m


# --- tables ---------------------------------------------------------------------------------------


@jit
def _tabulate(base: Floats, mass: Floats, nodes: Floats, first: int, c: Some, out: Floats) -> None:
    for k in range(out.shape[0]):
        t = (first + k + 0.5) / _CELLS
        for q in range(nodes.size):
            c.w[0, q] = (base[q] + mass[q]) + t * nodes[q]
        c.lo[0], c.hi[0] = 0, nodes.size
        weigh(c, 1)
        lo, hi = c.lo[0], c.hi[0]
        cumulants(c.w[0, lo:hi], nodes[lo:hi], c.peak[0], out[k])


def _ends(g: Tables) -> tuple[Floats, Floats]:
    """Lowest and highest score of each item."""
    if isinstance(g, LinearTables):
        return np.minimum(g.slope, 0.0), np.maximum(g.slope, 0.0)
    assert isinstance(g, ScoreTables)
    low, high = (f.reduceat(g.score, g.first[:-1]) for f in (np.minimum, np.maximum))
    return np.minimum(low, 0.0), np.maximum(high, 0.0)


def _counted(seen: Seen, sets: CommonSets, group: Ints, n_groups: int) -> tuple[Seen, Ints]:
    """Seen with the persons of a block's sets, of which those beyond the limit have number -1."""
    lacking = missing_bits(Dense(np.where(sets.observed, 0, -1).astype(np.int8)))
    there = {row.tobytes(): k for k, row in enumerate(seen.missing)}
    number = np.array([there.setdefault(row.tobytes(), len(there)) for row in lacking])
    number[number >= _MOST_SETS] = -1
    n_sets, n_old = min(len(there), _MOST_SETS), len(seen.missing)
    missing = np.empty((n_sets, lacking.shape[1]), dtype=np.uint64)
    persons = np.zeros((n_sets, n_groups), dtype=np.int64)
    row = np.full((n_sets, n_groups), _NONE)
    if n_old:
        missing[:n_old], persons[:n_old], row[:n_old] = seen.missing, seen.persons, seen.row
    missing[number[number >= n_old]] = lacking[number >= n_old]
    mine = np.where(sets.number >= 0, number[sets.number], -1)
    who = np.flatnonzero(mine >= 0)
    its = group[who] if group.size else np.zeros_like(who)
    np.add.at(persons, (mine[who], its), 1)
    return Seen(missing, hash_table(missing), persons, row, seen.cumulants), number


def extended(seen: Seen, g: Tables, sets: CommonSets, p: Prior) -> Seen:
    """Seen with the persons of a block's sets of items, and with the tables that pay now."""
    if not has_cells(g) or p.tilt.size or not len(sets.observed):
        return seen
    seen, number = _counted(seen, sets, p.group, len(p.log_mass))
    low, high = (sets.observed @ x for x in _ends(g))
    pays = seen.persons[number] > _WORTH * _CELLS * (high - low)[:, None]
    new = pays & (seen.row[number] == _NONE) & (number >= 0)[:, None]
    made, n = [seen.cumulants], len(seen.cumulants)
    room = some(1, 0, g.nodes.size)
    for k in np.flatnonzero(new.any(axis=1)):
        base = bases(sets.observed[[k]], g)[0]
        first = math.floor(low[k] * _CELLS) - 1
        size = math.floor(high[k] * _CELLS) + 2 - first
        for j in np.flatnonzero(new[k])[: max(0, _MOST_NUMBERS // ORDERS - n) // size]:
            made.append(np.empty((size, ORDERS)))
            _tabulate(base, p.log_mass[j], g.nodes, first, room, made[-1])
            seen.row[number[k], j] = n - first
            n += size
    return seen._replace(cumulants=np.concatenate(made)) if len(made) > 1 else seen


# --- moments --------------------------------------------------------------------------------------


@jit
def _look_up(sums: Floats, missing: Words, group: Ints, seen: Seen, out: Floats, rest: Ints) -> int:
    n = 0
    for i in range(missing.shape[0]):
        k = seen.place[seek(missing, i, seen.place, seen.missing)]
        row = _NONE
        if k >= 0:
            row = seen.row[k, group[i] if group.size > 0 else 0]
        if row == _NONE:
            rest[n] = i
            n += 1
            continue
        t = sums[i, 0]
        cell = math.floor(t * _CELLS)
        middle = (cell + 0.5) / _CELLS
        out[0, i], out[1, i], log_m = taylor(seen.cumulants, row + cell, t - middle)
        out[2, i] = log_m + sums[i, 1]
    return n


def look_up(data: Layout, g: Tables, group: Ints | None, seen: Seen, out: Floats) -> Ints:
    """Fill in moments, (3, persons), of those who have a table; return who the others are."""
    n = data.shape[0]
    if not seen.cumulants.size or not has_cells(g):
        return np.arange(n)
    of, rest = (np.empty(0, dtype=np.int64) if group is None else group), np.empty(n, np.int64)
    return rest[: _look_up(*_sums_and_missing(data, g), of, seen, out, rest)]
