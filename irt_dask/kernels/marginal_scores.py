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

from irt_dask.kernels import rows
from irt_dask.kernels.compiled import jit
from irt_dask.kernels.expected_3pl import Tables3PL
from irt_dask.kernels.layouts import Layout
from irt_dask.kernels.rows import item, n_rows

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Weights below this share of the largest take no part: errors of 1e-12 are far below sampling.
_LOG_CUT = math.log(1e-13)
#: Rows of the matrix whose products are summed at a time, and its bytes.
_ROWS, _BYTES = 4096, 1 << 26
#: The same for complete rows.
_COMPLETE_ROWS = 1024


class Scores(NamedTuple):
    """Scores of items and ability by node.

    ``logit`` and ``guess`` are derivatives of log P (first) and of log(1 - P) (second) by the logit
    and the guessing parameter, (2, items, nodes); ``ability`` those of the log density by mean and
    log SD, (2, nodes).  ``column`` says where each score goes, (3, items) and (2,): -1 is nowhere.
    """

    logit: Floats
    guess: Floats
    ability: Floats
    item_column: Ints
    ability_column: Ints


def item_scores(items: Floats, nodes: Floats) -> tuple[Floats, Floats]:
    """``logit`` and ``guess`` of :class:`Scores`, of items (a, d, c)."""
    a, d, c = items
    z = np.multiply.outer(a, nodes) + d[:, None]
    e = np.exp(-np.abs(z))
    large, small = 1.0 / (1.0 + e), e / (1.0 + e)
    p, q = np.where(z >= 0.0, large, small), np.where(z >= 0.0, small, large)
    chance = c[:, None] + (1.0 - c[:, None]) * p
    by_logit = np.stack([(1.0 - c[:, None]) * p * q / chance, -p])
    by_guess = np.stack([q / chance, np.broadcast_to(-1.0 / (1.0 - c[:, None]), p.shape)])
    return by_logit, by_guess


@jit
def _fill(
    indptr: Any,
    indices: Any,
    values: Any,
    g: Tables3PL,
    s: Scores,
    weight: Floats,
    begin: int,
    spread: Floats,
    mean: Floats,
) -> tuple[int, int, int]:
    """Fill rows with weighted deviations of scores, and others with their means.

    From person ``begin`` on, until one would not fit; returns the next person and the numbers of
    rows filled.
    """
    n = g.nodes.size
    w = np.empty(n)
    n_spread = n_mean = 0
    i = begin
    while i < n_rows(indptr, values) and n_mean < mean.shape[0]:
        items, row = rows.row(indptr, indices, values, i)
        observed = 0
        w[:] = g.prior
        for k in range(row.size):
            if row[k] >= 0:
                observed += 1
                j = item(items, k)
                w += g.wrong[j]
                if row[k] == 1:
                    w += g.gain[j]
        if observed == 0 or weight[i] == 0.0:
            i += 1
            continue
        peak = w.max()
        lo, hi = 0, n
        while w[lo] - peak <= _LOG_CUT:
            lo += 1
        while w[hi - 1] - peak <= _LOG_CUT:
            hi -= 1
        if n_spread + hi - lo > spread.shape[0]:
            break
        total = 0.0
        for q in range(lo, hi):
            w[q] = math.exp(w[q] - peak)
            total += w[q]
        average = mean[n_mean]
        average[:] = 0.0
        for q in range(lo, hi):
            share = w[q] / total
            to = spread[n_spread + q - lo]
            to[:] = 0.0
            for k in range(row.size):
                if row[k] >= 0:
                    j = item(items, k)
                    y = 1 - row[k]
                    slope = s.logit[y, j, q]
                    if s.item_column[0, j] >= 0:
                        to[s.item_column[0, j]] += slope * g.nodes[q]  # 1PL: of all items
                    if s.item_column[1, j] >= 0:
                        to[s.item_column[1, j]] = slope
                    if s.item_column[2, j] >= 0:
                        to[s.item_column[2, j]] = s.guess[y, j, q]
            for k in range(2):
                if s.ability_column[k] >= 0:
                    to[s.ability_column[k]] = s.ability[k, q]
            average += share * to
        for q in range(lo, hi):
            to = spread[n_spread + q - lo]
            root = math.sqrt(weight[i] * w[q] / total)
            for k in range(to.size):
                to[k] = root * (to[k] - average[k])
        average *= weight[i]
        n_spread += hi - lo
        n_mean += 1
        i += 1
    return i, n_spread, n_mean


def sums(data: Layout, g: Tables3PL, s: Scores, weight: Floats, size: int) -> tuple[Floats, Floats]:
    """Sums over persons, (size, size): posterior covariances of scores, squares of their means.

    Persons count as often as their weight; in the second sum its square does.
    """
    n_rows_ = max(2 * g.nodes.size, min(_ROWS, _BYTES // (8 * size)))
    spread = np.empty((n_rows_, size))
    mean = np.empty((max(1, n_rows_ // 8), size))
    covariance, square = np.zeros((2, size, size))
    begin = 0
    while begin < data.shape[0]:
        begin, k, n = _fill(*rows.arrays(data), g, s, weight, begin, spread, mean)
        covariance += spread[:k].T @ spread[:k]
        square += mean[:n].T @ mean[:n]
    return covariance, square


def complete_sums(
    values: NDArray[np.int8], g: Tables3PL, s: Scores, weight: Floats, size: int
) -> tuple[Floats, Floats]:
    """As :func:`sums` for persons who answered every item of a test without guessing.

    Their scores at a node theta are ``(y theta, y, 0) + f(theta)``, with f the same for everybody.
    So a person's posterior covariance is
    ``y y' var(theta) + y cov(theta, f) + cov(f, theta) y' + cov(f)``, and f comes in after the sum
    over persons: the first of these needs sums of ``y y'``, the others sums of products of
    posterior weights with y and each other.  Squares of mean scores are added up alike.
    """
    m, x = values.shape[1], g.nodes
    p = -s.logit[1]
    f = np.concatenate([-p * x, -p, s.ability])
    slopes = (g.gain[:, -1] - g.gain[:, 0]) / (x[-1] - x[0])  # gain is a theta + d
    same = bool((weight == 1.0).all())
    covariance_sums, square_sums = (_Sums.zero(m, x.size) for _ in range(2))
    variance, persons = np.zeros((m, m)), np.zeros(x.size)
    for begin in range(0, len(values), _COMPLETE_ROWS):
        y = values[begin : begin + _COMPLETE_ROWS].astype(np.float64)
        omega = weight[begin : begin + _COMPLETE_ROWS]
        w = np.multiply.outer(y @ slopes, x) + g.total  # intercepts cancel
        w -= w.max(axis=1, keepdims=True)
        np.exp(w, out=w)
        w /= w.sum(axis=1, keepdims=True)
        mean = w @ x
        spread = np.maximum(w @ x**2 - mean**2, 0.0)
        own = y * np.sqrt(omega * spread)[:, None]
        variance += own.T @ own
        persons += omega @ w
        square_sums.add(y, w, mean, omega, pairs=True)
        if not same:
            covariance_sums.add(y, w, mean, np.sqrt(omega), pairs=False)
    if same:
        covariance_sums = square_sums
    # Posterior covariances of x and f, and of f with itself.
    second = (f * persons - f @ covariance_sums.by_node) @ f.T
    second[:m, :m] += variance
    _add_both(second, (covariance_sums.right * x - covariance_sums.right_mean) @ f.T)
    square = (f @ square_sums.by_node) @ f.T
    _add_both(square, np.concatenate([square_sums.right_mean, square_sums.right]) @ f.T)
    square_sums.add_mean_scores(square)
    column = np.concatenate([s.item_column[0], s.item_column[1], s.ability_column])
    return _placed(second, column, size), _placed(square, column, size)


def _add_both(matrix: Floats, rows_: Floats) -> None:
    """Add to the first rows, and to the first columns."""
    matrix[: len(rows_)] += rows_
    matrix[:, : len(rows_)] += rows_.T


def _placed(matrix: Floats, column: Ints, size: int) -> Floats:
    """Rows and columns where ``column`` says; those that go to one place are added up."""
    if np.array_equal(column[:size], np.arange(size)) and (column[size:] < 0).all():
        return matrix[:size, :size]
    kept = np.flatnonzero(column >= 0)
    out = np.zeros((size, size))
    np.add.at(out, np.ix_(column[kept], column[kept]), matrix[np.ix_(kept, kept)])
    return out


class _Sums(NamedTuple):
    """Sums over persons of products of responses y, posterior weights w and mean ability."""

    by_node: Floats  # w w'
    right: Floats  # y w'
    right_mean: Floats  # y w' times the mean
    pairs: Floats  # y y' times 1, the squared mean, and the square of one more than the mean

    @classmethod
    def zero(cls, m: int, n_nodes: int) -> _Sums:
        shapes = ((n_nodes, n_nodes), (m, n_nodes), (m, n_nodes), (3, m, m))
        return cls(*(np.zeros(shape) for shape in shapes))

    def add(self, y: Floats, w: Floats, mean: Floats, times: Floats, pairs: bool) -> None:
        """Add persons; each factor of a product is taken ``times``.

        Of a product of one and the same matrix with itself BLAS computes a triangle.
        """
        if not (times == 1.0).all():
            y, w = y * times[:, None], w * times[:, None]
        self.by_node[:] += w.T @ w
        self.right[:] += y.T @ w
        own = y * mean[:, None]
        self.right_mean[:] += own.T @ w
        if pairs:
            self.pairs[0] += y.T @ y
            self.pairs[1] += own.T @ own
            own += y
            self.pairs[2] += own.T @ own

    def add_mean_scores(self, to: Floats) -> None:
        """Add the sums of products of ``(y mean, y)``."""
        m = len(self.right)
        once = (self.pairs[2] - self.pairs[1] - self.pairs[0]) / 2.0
        to[:m, :m] += self.pairs[1]
        to[:m, m : 2 * m] += once
        to[m : 2 * m, :m] += once
        to[m : 2 * m, m : 2 * m] += self.pairs[0]
