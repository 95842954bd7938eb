"""Posterior covariances and squares of scores of persons who answered the same items, summed.

Of items whose log odds between categories are linear in ability.  Their scores at a node theta are
``y (slope theta + constant) + f(theta)``: y are 1 for the categories that a person has, of each
item but its usual one (of an item where all are in that one f is left, as small as it is), and f is
the same for everybody in a group.  So a person's posterior covariance is, with u = y slope,
``u u' var(theta) + u cov(theta, f) + cov(f, theta) u' + cov(f)``, and slopes and f come in after
the sum over persons: the first of these needs sums of ``y y'``, the others sums of products of
posterior weights with y and each other.  Squares of mean scores are added up alike.  Sums are exact
(:mod:`irt_dask.kernels.base.exact_products`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.curves.item_set import ItemSet
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.base.exact_products import Units
from irt_dask.kernels.base.exponential import exponentials
from irt_dask.kernels.base.lanes import dot, largest, total
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Layout

#: Rows whose products are added up at a time.
ROWS = 1024


class Columns(NamedTuple):
    """Columns of y: categories of items that are not the usual one, and have P > 0."""

    place: Ints  # of each item and category, (items, categories); -1: none
    score: Floats  # of the same, less that of the lowest category
    usual: Ints  # category of each item, (items,)
    item: Ints  # of each column
    category: Ints

    @classmethod
    def of(cls, items: ItemSet, middle: float) -> Columns:
        """Columns of all items, of which the likeliest category in the middle is usual."""
        assert items.scores is not None
        usual = _likeliest(items, middle)
        m, most = items.n_items, int(items.n_categories.max())
        of_item = np.repeat(np.arange(m), items.n_categories)
        category = np.arange(of_item.size) - items.first[of_item]
        other = (category != usual[of_item]) & ~items.empty
        place, score = np.full((m, most), -1), np.zeros((m, most))
        place[of_item[other], category[other]] = np.arange(other.sum())
        own = items.scores[0]
        score[of_item, category] = own - own[items.first[of_item]]
        return cls(place, score, usual, of_item[other], category[other])

    def among(self, observed: Bools) -> Columns:
        """Those of some items."""
        kept = observed[self.item]
        if kept.all():
            return self
        number = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1)
        return self._replace(
            place=number[self.place], item=self.item[kept], category=self.category[kept]
        )

    @property
    def size(self) -> int:
        """Number of columns."""
        return self.item.size


def _likeliest(items: ItemSet, ability: float) -> Ints:
    """Category of each item that is likeliest at an ability."""
    log_p, k = items.log_p(np.array([ability]))[:, 0], items.n_categories
    of_each = np.full((k.size, k.max()), -np.inf)
    of_each[np.arange(k.max()) < k[:, None]] = log_p
    return np.asarray(of_each.argmax(axis=1))


# --- sums over persons ----------------------------------------------------------------------------


class Sums(NamedTuple):
    """Whole numbers: sums over persons of products of y and posterior weights w.

    Each is taken as often as a person's weight (or its square) says, next to the largest.
    """

    persons: Ints  # w
    by_node: Ints  # w w', slices
    by_column: Ints  # y w' times (ability less its mean, halved), or (1, its mean)
    pairs: Ints  # y y' times (the variance of ability), or (1, its mean, its squared mean)

    def plus(self, other: Sums) -> Sums:
        """These persons and others."""
        return Sums(*(a + b for a, b in zip(self, other, strict=True)))

    def times(self, k: int) -> Sums:
        """Every person k times."""
        return self if k == 1 else Sums(*(k * a for a in self))


@jit
def _responses(
    indptr: Any, indices: Any, values: NDArray[np.int8], who: Ints, place: Ints, score: Floats,
    y: Floats, t: Floats,
) -> None:  # fmt: skip
    """Persons' y, whose last column is for what has none, and sums of their scores."""
    last = y.shape[1] - 1
    for r in range(who.size):
        items, row = rows.row(indptr, indices, values, who[r])
        own, sum_ = y[r], 0.0
        own[:] = 0.0
        for k in range(row.size):
            if row[k] >= 0:
                j = rows.item(items, k)
                sum_ += score[j, row[k]]
                at = place[j, row[k]]
                own[at if at >= 0 else last] = 1.0
        t[r] = sum_


@jit
def _posteriors(
    t: Floats, nodes: Floats, log_total: Floats, w: Floats, mean: Floats, spread: Floats
) -> None:
    for i in range(t.size):  # in loops of their own: persons need not wait for each other
        for q in range(nodes.size):  # constants cancel
            w[i, q] = t[i] * nodes[q] + log_total[q]
    for i in range(t.size):
        mean[i] = largest(w[i])
    for i in range(t.size):
        exponentials(w[i], mean[i])
    for i in range(t.size):
        own = w[i]
        sum_w = total(own)
        mean[i] = dot(own, nodes) / sum_w
        v = 0.0
        for q in range(nodes.size):
            own[q] /= sum_w
            v += own[q] * (nodes[q] - mean[i]) ** 2
        spread[i] = v


@jit
def _deviations(
    w: Floats, nodes: Floats, mean: Floats, spread: Floats, share: Floats, y: Floats, unit: float,
    out: Floats,
) -> None:  # fmt: skip
    """What y is multiplied by for covariances, as whole numbers."""
    n, m = nodes.size, out.shape[1] - nodes.size
    for i in range(mean.size):
        for q in range(n):
            out[i, q] = np.rint(share[i] * w[i, q] * (0.5 * (nodes[q] - mean[i])) * unit)
        f = np.rint(share[i] * spread[i] * unit)
        for j in range(m):
            out[i, n + j] = y[i, j] * f


@jit
def _means(w: Floats, mean: Floats, share: Floats, y: Floats, unit: float, out: Floats) -> None:
    """What y is multiplied by for squares of means, as whole numbers."""
    n = w.shape[1]
    m = (out.shape[1] - 2 * n) // 3
    for i in range(mean.size):
        for q in range(n):
            often = share[i] * w[i, q]
            out[i, q], out[i, n + q] = np.rint(often * unit), np.rint(often * mean[i] * unit)
        first, f = 2 * n, share[i]
        for _ in range(3):
            whole = np.rint(f * unit)
            for j in range(m):
                out[i, first + j] = y[i, j] * whole
            first += m
            f *= mean[i]


@jit
def _slices(
    w: Floats, share: Floats, unit: float, long_unit: float, high: Floats, low: Floats,
    persons: Ints,
) -> None:  # fmt: skip
    """Two slices of weights, and their sum over persons."""
    for i in range(w.shape[0]):
        root = np.sqrt(share[i])
        for q in range(w.shape[1]):
            scaled = root * w[i, q] * unit
            high[i, q] = np.rint(scaled)
            low[i, q] = np.rint((scaled - high[i, q]) * unit)
            persons[q] += np.int64(np.rint(share[i] * w[i, q] * long_unit))


def sums(
    data: Layout, who: Ints, columns: Columns, nodes: Floats, log_total: Floats, weight: Floats,
    largest: float, u: Units, squares: bool,
) -> list[Sums]:  # fmt: skip
    """Sums of covariances and, if wanted, of ``squares`` of means with squares of the weights.

    Over persons ``who`` of one group who answered the same items, those of ``columns``.
    ``log_total`` is the log mass at the nodes plus the log probability of the lowest category of
    all their items; ``weight`` (persons of ``data``,) is ``largest`` at most.  A person costs
    O(columns (columns + nodes)).
    """
    n, arrays, size = nodes.size, rows.arrays(data), min(who.size, u.rows)
    reach = float(np.abs(nodes).max())
    y, w = np.empty((size, columns.size + 1)), np.empty((size, n))
    t, mean, spread = np.empty((3, size))
    out: list[Sums] = []
    for begin in range(0, who.size, u.rows):
        some = who[begin : begin + u.rows]
        if some.size < size:
            y, w, t, mean, spread = (x[: some.size] for x in (y, w, t, mean, spread))
        _responses(*arrays, some, columns.place, columns.score, y, t)
        _posteriors(t, nodes, log_total, w, mean, spread)
        share, about = weight[some] / largest, mean / reach
        by = np.empty((some.size, n + columns.size))
        _deviations(w, nodes / reach, about, spread / reach**2, share, y, u.long_unit, by)
        parts = [_products(y, w, share, by, n, u)]
        if squares:
            by = np.empty((some.size, 2 * n + 3 * columns.size))
            _means(w, about, share**2, y, u.long_unit, by)
            parts.append(_products(y, w, share**2, by, 2 * n, u))
        out = parts if not out else [a.plus(b) for a, b in zip(out, parts, strict=True)]
    return out


def _products(y: Floats, w: Floats, share: Floats, by: Floats, cut: int, u: Units) -> Sums:
    """Sums of one chunk; ``by`` has ``cut`` columns for nodes, then those for pairs."""
    n, m = w.shape[1], y.shape[1] - 1
    (high, low), persons = np.empty((2, *w.shape)), np.zeros(n, dtype=np.int64)
    _slices(w, share, u.unit, u.long_unit, high, low, persons)
    found = (y[:, :m].T @ by).astype(np.int64)
    return Sums(
        persons, u.gram(high, low), found[:, :cut].reshape(m, -1, n).swapaxes(0, 1),
        found[:, cut:].reshape(m, -1, m).swapaxes(0, 1),
    )  # fmt: skip


# --- what they stand for --------------------------------------------------------------------------


class Scores(NamedTuple):
    """Scores of persons who answered the same items, ``y (slope theta + constant) + f(theta)``.

    Parameters that these persons say something of are numbered by themselves; ``column`` are their
    columns among all.
    """

    column: Ints
    at: tuple[Ints, Ints]  # parameter and column of y of what follows
    slope: Floats
    constant: Floats
    f: Floats  # (parameters, nodes)
    n_columns: int

    @classmethod
    def of(
        cls, by_parameter: Floats, first: Ints, columns: Columns, observed: Bools,
        of_ability: Floats, nodes: Floats, item_column: Ints, ability_column: Ints,
    ) -> Scores:  # fmt: skip
        """From derivatives (parameters, rows, nodes), and those of ability, (2, nodes).

        ``item_column``, (parameters, items), and ``ability_column``, (2,), say where they go; -1 is
        nowhere, and what goes to one place is added up.
        """
        own = columns.among(observed)
        there = np.concatenate([item_column[:, observed].ravel(), ability_column])
        used = np.unique(there[there >= 0])
        number = np.full(max(item_column.max(), ability_column.max()) + 2, used.size)
        number[used] = np.arange(used.size)  # the last one is that of -1
        f = np.zeros((used.size + 1, nodes.size))
        usually = by_parameter[:, first[:-1] + columns.usual]
        np.add.at(f, number[item_column[:, observed]], usually[:, observed])
        np.add.at(f, number[ability_column], of_ability)
        row = first[own.item] + own.category
        gain = by_parameter[:, row][..., [0, -1]] - usually[:, own.item][..., [0, -1]]
        slope = (gain[..., 1] - gain[..., 0]) / (nodes[-1] - nodes[0])
        at = number[item_column[:, own.item]], np.broadcast_to(np.arange(own.size), slope.shape)
        kept = at[0] < used.size
        return cls(
            used, (at[0][kept], at[1][kept]), slope[kept],
            (gain[..., 0] - slope * nodes[0])[kept], f[:-1], own.size,
        )  # fmt: skip

    def covariance(self, s: Sums, nodes: Floats, largest: float, u: Units) -> Floats:
        """Sum of posterior covariances."""
        reach, one = float(np.abs(nodes).max()), largest / u.long_unit
        by_node = u.value(s.by_node) * largest
        out = (self.f * (s.persons * one) - self.f @ by_node) @ self.f.T
        slope = self._matrix(self.slope)
        out += _between(slope, s.pairs[0] * (one * reach**2), slope)
        crossed = slope @ ((s.by_column[0] * (2.0 * reach * one)) @ self.f.T)
        return np.asarray(out + crossed + crossed.T)

    def squares(self, s: Sums, nodes: Floats, largest: float, u: Units) -> Floats:
        """Sum of squares of posterior means, of weights up to ``largest``, squared."""
        reach, one = float(np.abs(nodes).max()), largest**2 / u.long_unit
        weights, times_mean = s.by_column * one
        pairs = s.pairs * (one * np.array([1.0, reach, reach**2])[:, None, None])
        out = (self.f @ (u.value(s.by_node) * largest**2)) @ self.f.T
        slope, constant = self._matrix(self.slope), self._matrix(self.constant)
        out += _between(slope, pairs[2], slope) + _between(constant, pairs[0], constant)
        crossed = _between(slope, pairs[1], constant)
        crossed += slope @ ((times_mean * reach) @ self.f.T) + constant @ (weights @ self.f.T)
        return np.asarray(out + crossed + crossed.T)

    def _matrix(self, values: Floats) -> csr_array:
        """Parameters by columns of y."""
        return csr_array((values, self.at), shape=(len(self.f), self.n_columns))


def _between(left: csr_array, matrix: Floats, right: csr_array) -> Floats:
    """``left matrix right'``, of a symmetric matrix."""
    return np.asarray(left @ (right @ matrix).T)
