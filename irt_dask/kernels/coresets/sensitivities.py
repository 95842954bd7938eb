"""Sensitivities of persons for a coreset of the item step (Frick et al., section 3, D and E).

The data of the item step are the rows ``(theta_i, 1)``.  All scores but those by label
(:mod:`irt_dask.kernels.coresets.label_sensitivities`) are functions of theta alone, so they are
tabulated on the nodes of the ability axis from the histogram of persons there, and a person's score
is read from the table linearly.  The histogram shares a person between two nodes in the same
proportion: the scores of all persons sum to ``count @ table``.

In two dimensions the Gram matrix is exact in one pass, so no sketch is needed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from irt_dask.arrays import Floats, Ints
from irt_dask.kernels.base import fixed_point

#: Methods whose scores are functions of theta, and so are tabulated.
METHODS = ("root-leverage", "leverage-l1", "lewis", "uniform", "kmeans")
#: Centres of distance sampling; never more than draws.
_CENTRES = 10
#: A column whose part outside the other is this small next to it (squared) lies in its span.
_DEPENDENT = 1e-24
_LEWIS_TOLERANCE, _LEWIS_ITERATIONS = 1e-10, 200


def locate(score: Ints, targets: Ints) -> NDArray[np.intp]:
    """Rows in whose interval of the cumulative score the targets lie (0 <= target < sum)."""
    return np.searchsorted(np.cumsum(score), targets, side="right")


# --- scores of rows in the plane ------------------------------------------------------------------


def _basis(x: Floats, weight: Floats) -> Floats:
    """Rows ``U_i`` of the basis that is orthonormal under the weights, by Gram-Schmidt; (rows, 2).

    ``sum_i weight_i U_i U_i' = I``, and ``X = U R`` with R upper triangular.  Rows of weight 0 are
    expressed in it too.  A second column in the span of the first gives zeros.
    """
    first = x[:, 0] / np.sqrt(weight @ x[:, 0] ** 2)
    rest = x[:, 1] - first * (weight @ (first * x[:, 1]))
    size = weight @ rest**2
    if size > _DEPENDENT * (weight @ x[:, 1] ** 2):
        return np.stack([first, rest / np.sqrt(size)], axis=1)
    return np.stack([first, np.zeros_like(first)], axis=1)


def _lewis_basis(x: Floats, count: Floats) -> Floats:
    """Rows of the Lewis basis for l1: orthonormal under ``count_i / w_i``, and ``w_i = |U_i|``.

    The fixed point of ``w <- sqrt(x' (X' W^{-1} X)^{-1} x)`` (Cohen and Peng 2015), a contraction
    by 1/2 in ``max |log w|``.
    """
    w = np.ones(len(x))
    filled = count > 0
    for _ in range(_LEWIS_ITERATIONS):
        u = _basis(x, np.divide(count, w, out=np.zeros_like(w), where=filled))
        new = np.hypot(u[:, 0], u[:, 1])
        change = np.abs(new[filled] / w[filled] - 1.0).max()
        w = new
        if change < _LEWIS_TOLERANCE:
            return u
    raise ArithmeticError(f"Lewis weights still change by {change} after {_LEWIS_ITERATIONS} steps")


def row_scores(method: str, x: Floats, count: Floats) -> Floats:
    """Scores of rows in the plane that occur ``count`` times (0 for rows that only ask); (rows,).

    "root-leverage"
        Square root of the leverage score ``x' (X'X)^{-1} x``, plus 1/n.
    "lewis"
        l1 Lewis weight, plus 1/n.  The weights sum to 2.
    "leverage-l1"
        ``|U_i|_1`` for the Lewis basis U, plus 1/n.  With ``|U_i|_2 = w_i``,
        ``|y|_2^2 = sum (U_i y)^2 / w_i <= |y|_2 |U y|_1``, so ``|y|_max <= |U y|_1`` while
        ``sum_i |U_i|_1 <= 2 sqrt 2``: well-conditioned in l1, and
        ``|x_i eta| <= |U_i|_1 |X eta|_1`` for every eta.  U is fixed up to a rotation; this is
        the one of Gram-Schmidt in the order of the columns.
    "uniform"
        1.
    """
    if method == "uniform":
        return np.ones(len(x))
    share = 1.0 / count.sum()
    if method == "root-leverage":
        u = _basis(x, count)
        return np.hypot(u[:, 0], u[:, 1]) + share
    u = _lewis_basis(x, count)
    if method == "lewis":
        return np.hypot(u[:, 0], u[:, 1]) + share
    if method == "leverage-l1":
        return np.abs(u).sum(axis=1) + share
    raise ValueError(f"no scores for method {method!r}")


def distance_scores(distance: Floats, count: Floats) -> Floats:
    """Half the share of the squared distance to the nearest centre, half the uniform share.

    Sensitivity sampling for k-means (Feldman and Langberg 2011): D^2 alone would give persons at a
    centre probability 0 and unbounded weights.
    """
    uniform = np.full(distance.size, 1.0 / count.sum())
    total = count @ distance
    return 0.5 * (uniform + distance / total) if total > 0 else uniform


def plane_distances(x: Floats, draws: int, generator: np.random.Generator) -> Floats:
    """Squared distances of rows in the plane to the nearest of 10 centres; (rows,).

    Centres are rows drawn by k-means++, then moved by ten steps of Lloyd's (``draws`` centres if
    fewer are to be drawn).
    """
    centres = x[generator.integers(0, len(x), size=1)]
    for _ in range(1, min(_CENTRES, draws)):
        distance = ((x[:, None] - centres) ** 2).sum(axis=2).min(axis=1)
        if not distance.any():
            break
        new = generator.choice(len(x), p=distance / distance.sum())
        centres = np.concatenate([centres, x[new : new + 1]])
    for _ in range(10):
        nearest = ((x[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
        used = np.unique(nearest)
        centres = np.stack([x[nearest == k].mean(axis=0) for k in used])
    return ((x[:, None] - centres) ** 2).sum(axis=2).min(axis=1)


# --- tables on the ability axis -------------------------------------------------------------------


def _cell(theta: Floats, bound: float, n_nodes: int) -> tuple[NDArray[np.intp], Floats]:
    """Node below each ability, and the share of the node above."""
    x = (theta + bound) * ((n_nodes - 1) / (2.0 * bound))
    at = np.clip(np.floor(x), 0, n_nodes - 2).astype(np.intp)
    return at, np.clip(x - at, 0.0, 1.0)


def _centres(nodes: Floats, count: Floats, k: int) -> Floats:
    """Best k centres of a histogram: k-means on a line, exact by dynamic programming.

    The paper's baseline takes a bicriteria approximation of k-means++; on 481 nodes the optimum
    itself costs k 481^2.
    """
    filled = np.flatnonzero(count > 0)
    x, w = nodes[filled], count[filled]
    x0 = (w @ x) / w.sum()  # sums of squares about the mean: less cancellation
    sums = np.zeros((3, x.size + 1))
    np.cumsum(np.stack([w, w * (x - x0), w * (x - x0) ** 2]), axis=1, out=sums[:, 1:])
    n, s1, s2 = sums[:, None, 1:] - sums[:, :-1, None]  # of the nodes i .. j, at [i, j]
    inside = np.arange(x.size)[:, None] <= np.arange(x.size)
    cost = np.where(inside, s2 - s1**2 / np.where(inside, n, 1.0), np.inf)
    best, starts = cost[0], [np.zeros(x.size, dtype=np.intp)]
    for _ in range(1, min(k, x.size)):
        total = np.concatenate([[np.inf], best[:-1]])[:, None] + cost
        starts.append(total.argmin(axis=0))
        best = total.min(axis=0)
    centres, end = [], x.size - 1
    for start in reversed(starts):
        i = start[end]
        centres.append(x0 + s1[i, end] / n[i, end])
        end = i - 1
    return np.array(centres[::-1])


def score_table(method: str, nodes: Floats, count: Floats, size: int) -> Floats:
    """Scores on the nodes of the ability axis, positive and finite; (nodes,).

    Parameters
    ----------
    method : one of :data:`METHODS`
        See :func:`row_scores`; "kmeans" is :func:`distance_scores` with the best 10 centres on the
        histogram (``size`` centres if fewer are drawn).
    nodes, count : (nodes,)
        The ability axis, equally spaced, and the number of persons with responses on each node.
    size : int
        Persons to draw.

    The persons' exact scores differ by O(h^2) where the scores are smooth, h the spacing of the
    nodes; what is drawn and the weights come from the same table, so sums stay unbiased.
    """
    if method == "kmeans":
        centres = _centres(nodes, count, min(_CENTRES, size))
        return distance_scores(((nodes[:, None] - centres) ** 2).min(axis=1), count)
    # leverage scores, Lewis weights and the basis do not change when a multiple of the first column
    # is subtracted from the second
    mean = (count @ nodes) / count.sum()
    return row_scores(method, np.stack([np.ones_like(nodes), nodes - mean], axis=1), count)


def interpolate(table: Floats, theta: Floats, bound: float) -> Floats:
    """Read a table on the ability axis at each ability, linearly; NaN without responses."""
    seen = ~np.isnan(theta)
    at, upper = _cell(theta[seen], bound, table.size)
    out = np.full(theta.size, np.nan)
    out[seen] = table[at] + upper * (table[at + 1] - table[at])
    return out


def positive(score: Floats, scale: float) -> Ints:
    """Scores in units of ``1 / scale``, at least 1 so that weights are finite; 0 where NaN."""
    seen = ~np.isnan(score)
    return np.where(seen, np.maximum(fixed_point.fixed(np.where(seen, score, 0.0), scale), 1), 0)
