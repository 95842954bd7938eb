"""Posterior covariances and squares of scores of persons who answered every item, summed.

Of items whose log odds are linear in ability.  Their scores at a node theta are ``(y theta, y, 0) +
f(theta)``, with f the same for everybody in a group.  (y is 1 or 0, less 1 where most are right:
what is left for an item that all have right is f, as small as it is.)  So a person's posterior
covariance is ``y y' var(theta) + y cov(theta, f) + cov(f, theta) y' + cov(f)``, and f comes in
after the sum over persons: the first of these needs sums of ``y y'``, the others sums of products
of posterior weights with y and each other.  Squares of mean scores are added up alike.  Sums are
exact (:mod:`irt_dask.kernels.base.exact_products`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.base.exact_products import Units
from irt_dask.kernels.base.exponential import exponentials
from irt_dask.kernels.base.lanes import dot, largest, total
from irt_dask.kernels.posterior.tables import LinearTables

#: Rows whose products are added up at a time.
ROWS = 1024


class Sums(NamedTuple):
    """Whole numbers: sums over persons of products of responses y and posterior weights w.

    Each is taken as often as a person's weight (or its square) says, next to the largest.
    """

    persons: Ints  # w
    by_node: Ints  # w w', slices
    right: Ints  # y w'
    right_mean: Ints  # y w' times the mean ability
    pairs: Ints  # y y' times (the variance of ability), or (1, its mean, its squared mean)

    def plus(self, other: Sums) -> Sums:
        """These persons and others."""
        return Sums(*(a + b for a, b in zip(self, other, strict=True)))

    def times(self, k: int) -> Sums:
        """Every person k times."""
        return Sums(*(k * a for a in self))


@jit
def _posteriors(
    values: NDArray[np.int8], slopes: Floats, nodes: Floats, log_total: Floats, w: Floats,
    mean: Floats, spread: Floats,
) -> None:  # fmt: skip
    for i in range(values.shape[0]):  # in loops of their own: persons need not wait for each other
        t = 0.0
        for j in range(slopes.size):
            t += slopes[j] * values[i, j]
        for q in range(nodes.size):  # intercepts cancel
            w[i, q] = t * nodes[q] + log_total[q]
    for i in range(values.shape[0]):
        mean[i] = largest(w[i])
    for i in range(values.shape[0]):
        exponentials(w[i], mean[i])
    for i in range(values.shape[0]):
        own = w[i]
        sum_w = total(own)
        mean[i] = dot(own, nodes) / sum_w
        v = 0.0
        for q in range(nodes.size):
            own[q] /= sum_w
            v += own[q] * (nodes[q] - mean[i]) ** 2
        spread[i] = v


def usual(by_parameter: Floats) -> Bools:
    """Whether persons in the middle of the grid are rather right, of each item."""
    return np.asarray(by_parameter[1, :, 0, by_parameter.shape[3] // 2] < -0.5)  # minus P


def rest(by_parameter: Floats, ability: Floats) -> Floats:
    """f of a group, (2 items + 2, nodes), from its scores of ability, (2, nodes)."""
    own = usual(by_parameter).astype(int)
    f = by_parameter[:, np.arange(own.size), own]
    return np.concatenate([*f, ability])


def sums(
    values: NDArray[np.int8], g: LinearTables, log_mass: Floats, usual: Bools,
    weight: Floats, largest: float, u: Units, squares: bool,
) -> list[Sums]:  # fmt: skip
    """Sums of covariances and, if wanted, of ``squares`` of means with squares of the weights.

    ``log_mass`` is that of the persons' group, ``largest`` a bound of all weights, ``usual`` what
    :func:`usual` says of the items.  A person costs O(items (items + nodes)).
    """
    x = g.nodes
    reach, log_total = float(np.abs(x).max()), g.total + log_mass
    out: list[Sums] = []
    for begin in range(0, len(values), u.rows):
        rows = values[begin : begin + u.rows]
        w, (mean, spread) = np.empty((len(rows), x.size)), np.empty((2, len(rows)))
        _posteriors(rows, g.slope, x, log_total, w, mean, spread)
        share, mean = weight[begin : begin + u.rows] / largest, mean / reach
        y = rows.astype(np.float64) - usual
        parts = [_products(y, w, mean, share, [spread / reach**2], u)]
        if squares:
            parts.append(_products(y, w, mean, share**2, [np.ones_like(mean), mean, mean**2], u))
        out = parts if not out else [a.plus(b) for a, b in zip(out, parts, strict=True)]
    return out


@jit
def _factors(
    y: Floats, w: Floats, mean: Floats, share: Floats, factors: Floats, unit: float, out: Floats
) -> None:
    """What y is multiplied by: w, w times the mean, and y times each factor, as whole numbers."""
    n = w.shape[1]
    for i in range(y.shape[0]):
        for q in range(n):
            often = share[i] * w[i, q]
            out[i, q] = np.rint(often * unit)
            out[i, n + q] = np.rint(often * mean[i] * unit)
        first = 2 * n
        for k in range(factors.shape[0]):
            f = np.rint(share[i] * factors[k, i] * unit)
            for j in range(y.shape[1]):
                out[i, first + j] = y[i, j] * f
            first += y.shape[1]


def _products(
    y: Floats, w: Floats, mean: Floats, share: Floats, factors: list[Floats], u: Units
) -> Sums:
    """One chunk's sums; all factors are within -1 and 1."""
    m, n = y.shape[1], w.shape[1]
    by = np.empty((len(y), 2 * n + len(factors) * m))
    _factors(y, w, mean, share, np.stack(factors), u.long_unit, by)
    found = (y.T @ by).astype(np.int64)
    return Sums(
        by[:, :n].sum(axis=0).astype(np.int64),
        u.gram(*u.slices(np.sqrt(share)[:, None] * w)),
        found[:, :n],
        found[:, n : 2 * n],
        found[:, 2 * n :].reshape(m, len(factors), m).swapaxes(0, 1),
    )


def _real(s: Sums, nodes: Floats, largest: float, u: Units) -> tuple[Any, ...]:
    reach, one = float(np.abs(nodes).max()), largest / u.long_unit
    return (
        s.persons * one,
        u.value(s.by_node) * largest,
        s.right * one,
        s.right_mean * (reach * one),
        s.pairs * one,
    )


def covariance(s: Sums, nodes: Floats, f: Floats, largest: float, u: Units) -> Floats:
    """Sum of posterior covariances of ``(y theta, y, 0) + f``."""
    reach = float(np.abs(nodes).max())
    persons, by_node, right, right_mean, pairs = _real(s, nodes, largest, u)
    m = len(right)
    out = (f * persons - f @ by_node) @ f.T
    out[:m, :m] += pairs[0] * reach**2
    _add_both(out, (right * nodes - right_mean) @ f.T)
    return out


def squares(s: Sums, nodes: Floats, f: Floats, largest: float, u: Units) -> Floats:
    """Sum of squares of posterior means of the same, of weights up to ``largest``, squared."""
    reach = float(np.abs(nodes).max())
    _, by_node, right, right_mean, pairs = _real(s, nodes, largest**2, u)
    m = len(right)
    out = (f @ by_node) @ f.T
    _add_both(out, np.concatenate([right_mean, right]) @ f.T)
    out[:m, :m] += pairs[2] * reach**2
    out[:m, m : 2 * m] += pairs[1] * reach
    out[m : 2 * m, :m] += pairs[1] * reach
    out[m : 2 * m, m : 2 * m] += pairs[0]
    return out


def _add_both(matrix: Floats, rows: Floats) -> None:
    """Add to the first rows, and to the first columns."""
    matrix[: len(rows)] += rows
    matrix[:, : len(rows)] += rows.T
