"""What abilities that are not known take away from the information on items (Louis 1982).

A person's complete-data score s(theta) has a posterior covariance; the observed information is the
complete one less the sum of these over persons.  Off the diagonal blocks of items nothing else is
there, so this is also how the estimates of different items depend on each other.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.base.exact_products import Units, bound_above
from irt_dask.kernels.base.lanes import LANES, add, copy, dot, sum_of_rows, total
from irt_dask.kernels.posterior.person_weights import (
    Chosen,
    Prior,
    Shared,
    Some,
    gather,
    some,
    weigh,
)
from irt_dask.kernels.posterior.polynomials import DEGREES, further
from irt_dask.kernels.posterior.tables import Tables
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Layout

#: Weights below this share of the largest take no part: standard errors change by 1e-11.
CUT = 1e-12
#: Terms below this, next to the scores' bounds, are left out: standard errors change as little.
_SMALL = 1e-8
#: The same where terms are rounded to one slice and scores are more than so many: both change
#: standard errors by some 1e-7.  Of fewer items estimates depend more on each other.
_CUT_OF_SLICE, _SMALL_OF_SLICE, _FEW = 1e-10, 3e-4, 100
#: Terms whose products are summed at a time, and their bytes.
_ROWS, _BYTES = 2048, 1 << 26
#: Numbers that sums by set of items take, at most.
_OF_SETS = 1 << 22
#: Products of rows up to which they are computed in two slices.  Beyond, the rounding errors of one
#: slice average out.
_FINE = 2e9


class Scores(NamedTuple):
    """Derivatives of log probabilities by the parameters, by node.

    ``lowest`` are those of the lowest category of each item, (items, parameters, nodes), ``gain``
    those of the higher ones less these, (rows, parameters, nodes); ``ability`` those of the log
    density by mean and log SD, (groups, 2, nodes).  Columns say where each score goes: -1 is
    nowhere.  ``bound`` are powers of two above deviations of scores from their mean, and above
    means, (2, columns).
    """

    lowest: Floats
    gain: Floats
    ability: Floats
    item_column: Ints  # (items, parameters)
    row_column: Ints  # (rows, parameters)
    ability_column: Ints  # (groups, 2)
    bound: Floats


def scores(
    by_parameter: Floats, first: Ints, ability: Floats, column: Ints, of_ability: Ints
) -> Scores:
    """Scores of items with derivatives (parameters, rows, nodes); item j has rows from first[j].

    ``column`` says where those of the items go, (parameters, items), ``of_ability`` those of
    ability, (2, groups).
    """
    n_categories = np.diff(first)
    of_row = np.repeat(column, n_categories, axis=1)
    used = np.where((of_row >= 0)[:, :, None], by_parameter, 0.0)
    deviation, mean = np.zeros((2, 1 + int(max(column.max(), of_ability.max()))))
    of_items = [np.maximum.reduceat(v, first[:-1], axis=1) for v in
                (np.ptp(used, axis=2), np.abs(used).max(axis=2))]  # fmt: skip
    of_groups = [np.ptp(ability, axis=2).T, np.abs(ability).max(axis=2).T]
    for at, (spread, largest) in ((column, of_items), (of_ability, of_groups)):
        np.add.at(deviation, at[at >= 0], spread[at >= 0])
        np.add.at(mean, at[at >= 0], largest[at >= 0])
    lowest = used[:, first[:-1]]
    higher = np.delete(np.arange(first[-1]), first[:-1])
    of_item = np.repeat(np.arange(n_categories.size), n_categories - 1)
    gain = used[:, higher] - lowest[:, of_item]
    return Scores(
        np.ascontiguousarray(lowest.swapaxes(0, 1)), np.ascontiguousarray(gain.swapaxes(0, 1)),
        ability, np.ascontiguousarray(column.T), np.ascontiguousarray(column.T[of_item]),
        np.ascontiguousarray(of_ability.T), bound_above(np.stack([deviation, mean])),
    )  # fmt: skip


@jit
def _add(
    at: Floats, which: NDArray[np.int32], column: Ints, begin: int, n: int, to: Floats
) -> None:
    """Add scores at n nodes from ``begin`` on to (columns, nodes)."""
    size, n_nodes, room = at.shape[1], at.shape[2], to.shape[1]
    for j in which:
        for k in range(size):
            if column[j, k] >= 0:  # items may share one
                add(to, column[j, k] * room, at, (j * size + k) * n_nodes + begin, n)


@jit
def _of_sets(observed: Bools, s: Scores, out: Floats) -> None:
    """Sums of the lowest categories of sets of items, (sets, columns, nodes)."""
    for k in range(observed.shape[0]):
        items = np.flatnonzero(observed[k]).astype(np.int32)
        _add(s.lowest, items, s.item_column, 0, out.shape[2], out[k])


def sums_of_sets(observed: Bools, s: Scores, n_nodes: int) -> Floats:
    """Those sums of the first sets, as many as there is room for."""
    size = s.bound.shape[1]
    n_sets = min(len(observed), _OF_SETS // (n_nodes * size))
    out = np.zeros((n_sets, size, n_nodes))
    _of_sets(observed[:n_sets], s, out)
    return out


class Person(NamedTuple):
    """Room for one person: where the posterior is, and the scores there."""

    share: Floats  # of the posterior, (nodes,)
    at: Floats  # scores, (columns, nodes)

    @classmethod
    def of(cls, size: int, n_nodes: int) -> Person:
        """Room for scores of so many columns."""
        return cls(np.empty(n_nodes), np.empty((size, n_nodes)))


@jit
def of_person(
    c: Some, r: int, cut: float, number: int, group: int, s: Scores, of_sets: Floats, one: Person
) -> tuple[int, int]:
    """Posterior and scores of the person in row r; ``of_sets`` knows some sets' part.

    Nodes of weights up to ``cut`` have none.  Returns the first of the others, below LANES, and
    their end in ``one``, which is filled up to a multiple of LANES.
    """
    w, lo, hi = c.w[r], c.lo[r], c.hi[r]
    sum_w = total(w[lo:hi])
    while w[lo] <= cut:
        lo += 1
    while w[hi - 1] <= cut:
        hi -= 1
    begin, end = lo // LANES * LANES, (hi + LANES - 1) // LANES * LANES
    n = end - begin
    one.share[:n] = w[begin:end] / sum_w
    one.share[: lo - begin] = 0.0
    one.share[hi - begin : n] = 0.0
    if 0 <= number < of_sets.shape[0]:
        size, n_nodes = of_sets.shape[1:]
        for k in range(size):
            copy(one.at, k * n_nodes, of_sets, (number * size + k) * n_nodes + begin, n)
    else:
        for k in range(len(one.at)):
            own = one.at[k]
            for q in range(n):
                own[q] = 0.0
        _add(s.lowest, c.items[r, : c.n[r]], s.item_column, begin, n, one.at)
    _add(s.gain, c.higher[r, : c.n_higher[r]], s.row_column, begin, n, one.at)
    for k in range(2):
        if s.ability_column[group, k] >= 0:
            one.at[s.ability_column[group, k], :n] = s.ability[group, k, begin:end]
    return lo - begin, hi - begin


@jit
def mean_scores(one: Person, end: int, to: Floats) -> None:
    """Mean scores of a person whose nodes have this end, (columns,)."""
    n = (end + LANES - 1) // LANES * LANES
    for k in range(to.size):
        to[k] = dot(one.share[:n], one.at[k, :n])


class Terms(NamedTuple):
    """What a posterior covariance of scores is the sum of products of: see :func:`_terms`."""

    unit: Floats  # terms are whole numbers, multiples of one over it, (columns,)
    low_unit: float  # the same of ``low``, next to these
    small: float  # terms that may be left out, in units
    high: Floats  # (columns, terms of persons)
    low: Floats  # what ``high`` leaves, or no columns
    root: Floats  # square roots of a posterior, (nodes,)
    basis: Floats  # polynomials, (degrees, nodes)
    turned: Floats  # (nodes, DEGREES)
    own: Floats  # (DEGREES,)

    @classmethod
    def of(cls, u: Units, deviation: Floats, n_nodes: int) -> Terms:
        """Room for as many as are summed at a time, of scores with this bound."""
        # A few more than are filled: rows a power of two apart would share lines of a cache.
        size, room = deviation.size, u.rows + 2 * DEGREES
        small = _SMALL if u.fine or size <= _FEW else _SMALL_OF_SLICE
        return cls(
            u.unit / deviation, u.unit, small * u.unit,
            np.empty((size, room)), np.empty((size, room if u.fine else 0)), np.empty(n_nodes),
            np.empty((n_nodes, n_nodes)), np.empty((n_nodes, DEGREES)), np.empty(DEGREES),
        )  # fmt: skip


@jit
def _terms(one: Person, lo: int, hi: int, weight: float, t: Terms, begin: int, mean: Floats) -> int:
    """Fill columns from ``begin`` on with a person's terms; return their number.  Fill in means.

    They are coefficients of the scores by orthonormal polynomials of ability, of more and more
    degrees until the last two are small for all scores.
    """
    root, turned = t.root[: (hi + LANES - 1) // LANES * LANES], t.turned[lo:hi]
    for q in range(root.size):
        root[q] = math.sqrt(one.share[q])
    size, times, degree, n = math.sqrt(dot(root, root)), math.sqrt(weight), 0, 0
    while degree < hi - lo:
        found, largest = further(root, hi - lo, degree, t.basis, t.turned), 0.0
        for k in range(mean.size):
            sum_of_rows(one.at[k, lo:hi], turned, t.own)
            if degree == 0:
                mean[k] = weight * size * t.own[DEGREES - 1]
            high = t.high[k, begin + n : begin + n + DEGREES]
            for j in range(DEGREES):
                t.own[j] *= times * t.unit[k]
                high[j] = np.rint(t.own[j])
            if t.low.size > 0:
                for j in range(DEGREES):
                    t.low[k, begin + n + j] = np.rint((t.own[j] - high[j]) * t.low_unit)
            largest = max(largest, abs(t.own[DEGREES - 3]), abs(t.own[DEGREES - 2]))
        n += found - 1 if degree == 0 else DEGREES
        degree += found
        if largest < t.small:
            break
    return n


@jit
def _fill(
    indptr: Any, indices: Any, values: Any, g: Any, shared: Shared, p: Prior, who: Chosen, c: Some,
    s: Scores, of_sets: Floats, weight: Floats, begin: int, n_terms: int, one: Person, t: Terms,
    mean: Floats,
) -> tuple[int, int, int]:  # fmt: skip
    """Fill in up to ``n_terms`` terms, and (persons, columns) weighted mean scores.

    From the chosen person ``begin`` on, until one might not fit; returns the next one and the
    numbers of terms and persons.
    """
    n = n_mean = 0
    cut = CUT if t.low.size > 0 else _CUT_OF_SLICE
    while begin < who.who.size:
        count = gather(indptr, indices, values, g, shared, p, who, begin, c)
        weigh(c, count)
        for r in range(count):
            i = c.person[r]
            if c.n[r] == 0 or weight[i] == 0.0:
                continue
            group = p.group[i] if p.group.size > 0 else 0
            lo, hi = of_person(c, r, cut, shared.number[i], group, s, of_sets, one)
            if n + hi - lo + DEGREES > n_terms or n_mean == mean.shape[0]:
                return begin + r, n, n_mean
            n += _terms(one, lo, hi, weight[i], t, n, mean[n_mean])
            n_mean += 1
        begin += count
    return begin, n, n_mean


def units_for(n_persons: int, n_nodes: int, size: int) -> Units:
    """How the sums of :func:`sums` are counted; rows hold the terms of one person at least."""
    rows_ = max(2 * n_nodes, min(_ROWS, _BYTES // (8 * max(size, 1))))
    return Units.of(n_persons, rows_, fine=n_persons * n_nodes * float(size) ** 2 < _FINE)


def sums(
    data: Layout, g: Tables, shared: Shared, observed: Bools, p: Prior, who: Ints, s: Scores,
    weight: Floats, largest: float, u: Units, squares: bool,
) -> list[Ints]:  # fmt: skip
    """Exact sums over persons: posterior covariances of scores and, if wanted, squares of means.

    Of the persons ``who``, at least one.  They count as often as their weight, next to ``largest``,
    a bound; in the second sum its square does.  ``observed`` are the items of the sets that
    ``shared`` numbers.  :func:`value` gives what these stand for.
    """
    deviation, of_mean = s.bound
    size, of_sets = deviation.size, sums_of_sets(observed, s, g.nodes.size)
    one, t = Person.of(size, g.nodes.size), Terms.of(u, deviation, g.nodes.size)
    mean = np.empty((max(1, u.rows // 4), size))
    out = [np.zeros((3 if u.fine else 1, size, size), dtype=np.int64) for _ in range(1 + squares)]
    arrays, chosen = rows.arrays(data), Chosen(who, np.empty(0))
    room, share, begin = some(who.size, data.shape[1], g.nodes.size), weight / largest, 0
    while begin < who.size:
        begin, k, n = _fill(
            *arrays, g, shared, p, chosen, room, s, of_sets, share, begin, u.rows, one, t, mean
        )
        out[0] += u.gram(t.high[:, :k].T, t.low[:, :k].T if u.fine else None)
        if squares:
            out[1] += u.gram(*u.slices(mean[:n] / of_mean))
    return out


def value(sums: list[Ints], bound: Floats, largest: float, u: Units) -> list[Floats]:
    """The real numbers that :func:`sums` stand for."""
    return [
        u.value(one) * (largest**k * np.multiply.outer(b, b))
        for k, (one, b) in enumerate(zip(sums, bound, strict=False), start=1)
    ]


def placed(matrix: Floats, column: Ints, size: int) -> Floats:
    """Rows and columns where ``column`` says; those that go to one place are added up."""
    if np.array_equal(column[:size], np.arange(size)) and (column[size:] < 0).all():
        return matrix[:size, :size]
    kept = np.flatnonzero(column >= 0)
    out = np.zeros((size, size))
    np.add.at(out, np.ix_(column[kept], column[kept]), matrix[np.ix_(kept, kept)])
    return out
