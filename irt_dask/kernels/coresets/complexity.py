"""The mu-complexity of an item: of its rows ``-y_i (theta_i, -1)``, y_i = 1 right, -1 wrong.

Frick, Krivosija and Munteanu, section 2 and appendix F.  Up to a factor, a direction
eta = (1, tau) says "right above tau, wrong below".  The rows that break the rule are the positive
part A, those that keep it the negative part B; -eta exchanges the two; tau -> -inf and inf stand
for eta = (0, 1) and (0, -1).  So mu is the supremum over tau of the larger of A / B and B / A.

p = 1: A and B are convex and linear between neighbouring abilities (A - B is linear throughout), so
a ratio has its supremum at an ability or at infinity, where it is right / wrong or its inverse.
p = 0: A and B are step functions that change at abilities, and persons of the same ability change
sides together.  The supremum here is over directions that meet no row at right angles, the open
intervals between abilities: there it does not matter whether zeros count as positive (the paper's
sum) or as nothing (its norm), and -eta exchanges A and B exactly, as the paper uses.  A coreset
bound proved for those directions holds for all, the losses being continuous.

Persons are seen through bins of abilities that differ by item: weights and sums of distances to the
bin's left edge give A and B at every edge exactly, and bounds in between; bins that may hold more
than the best edge are divided again.  Abilities are rounded to a lattice, so that this ends.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.kernels.responses.rows import item

#: Lattice points of a unit of ability.  Modes are accurate to 1e-10: persons whose abilities are
#: equal but for rounding (same number right, equal slopes) must not count as ordered.
PER_UNIT = 2.0**30
#: Bins of an item, and the pieces of a bin that is divided, at least.
N_BINS, _LEAST_PIECES = 512, 8
#: mu_1 is known to this relative accuracy; mu_0 exactly.
TOLERANCE = 1e-9


def end_of(bound: float) -> int:
    """First lattice point right of all abilities in [-bound, bound]."""
    return int(2.0 * bound * PER_UNIT) + 1


def first_edges(bound: float) -> Ints:
    """Left edges of equal bins over [-bound, bound], on the lattice."""
    end = end_of(bound)
    return np.arange(0, end, -(-end // N_BINS), dtype=np.int64)


# --- persons --------------------------------------------------------------------------------------


@jit
def _histograms(
    indptr: Any, indices: Any, values: Any, order: Ints, place: Ints, weight: Floats, first: Ints,
    edge: Ints, scales: Floats, count: Ints, moment: Ints,
) -> None:  # fmt: skip
    at = first[:-1].copy()  # bin of each item that the persons, in order of ability, have reached
    for i in order:
        w = np.int64(round(weight[i] * scales[0]))
        items, row = rows.row(indptr, indices, values, i)
        for k in range(row.size):
            y = row[k]
            if y < 0:
                continue
            j = item(items, k)
            b, last = at[j], first[j + 1] - 1
            if b > last:
                continue
            while b < last and edge[b + 1] <= place[i]:
                b += 1
            at[j] = b
            count[y, b] += w
            moment[y, b] += np.int64(round(weight[i] * (place[i] - edge[b]) * scales[1]))


def histograms(
    data: Layout, theta: Floats, weight: Floats, bound: float, first: Ints, edge: Ints,
    scales: Floats,
) -> tuple[Ints, Ints]:  # fmt: skip
    """Weights, and sums of weight times distance from the left edge, by bin; wrong and right apart.

    Parameters
    ----------
    data, theta, weight
        A block, its abilities in [-bound, bound] (NaN: no responses) and weights, shape (persons,).
    first, edge
        The bins of item j start at ``edge[first[j] : first[j + 1]]``, which ascend from 0; the last
        one ends at ``end_of(bound)``.  An item without bins is passed over.
    scales : (2,)
        Fixed-point scales of weights and of weighted distances in lattice points.

    Returns
    -------
    count, moment : int64, shape (2, bins)
        Wrong in row 0, right in row 1, in units of ``1 / scales``.
    """
    count = np.zeros((2, edge.size), dtype=np.int64)
    moment = np.zeros_like(count)
    seen = np.flatnonzero(~np.isnan(theta))
    place = np.zeros(theta.size, dtype=np.int64)
    place[seen] = np.rint((theta[seen] + bound) * PER_UNIT)
    order = seen[np.argsort(place[seen], kind="stable")]
    arrays = rows.arrays(data)
    _histograms(*arrays, order, place, weight, first, edge, scales, count, moment)
    return count, moment


# --- one item -------------------------------------------------------------------------------------


@jit
def _ratio(x: float, y: float) -> float:
    """The larger of x / y and y / x; 0 where both are 0, which is no direction of the data."""
    low, high = min(x, y), max(x, y)
    if high <= 0.0:
        return 0.0
    return high / low if low > 0.0 else math.inf


@jit
def _around(edge: Floats, count: Floats, moment: Floats) -> Floats:
    """What lies below and above every edge; shape (4, 2, bins + 1), wrong in [:, 0].

    [0], [1]: weight in the bins left and right of the edge.  [2], [3]: their weighted distances
    from the edge.  Only sums of positive terms, so that small ones are accurate and 0 is exact.
    """
    n = edge.size - 1
    out = np.zeros((4, 2, n + 1))
    below, above, left, right = out[0], out[1], out[2], out[3]
    for y in range(2):
        for k in range(n):
            width = edge[k + 1] - edge[k]
            below[y, k + 1] = below[y, k] + count[y, k]
            inside = max(count[y, k] * width - moment[y, k], 0.0)
            left[y, k + 1] = left[y, k] + below[y, k] * width + inside
        for k in range(n - 1, -1, -1):
            width = edge[k + 1] - edge[k]
            above[y, k] = above[y, k + 1] + count[y, k]
            right[y, k] = right[y, k + 1] + above[y, k + 1] * width + moment[y, k]
    return out


@jit
def _at_edges(around: Floats, mu: Floats) -> None:
    """Raise ``mu`` to the largest ratios at edges (p = 0: just left of them) and at infinity."""
    below, above, left, right = around[0], around[1], around[2], around[3]
    for k in range(below.shape[1]):
        mu[0] = max(mu[0], _ratio(below[1, k] + above[0, k], above[1, k] + below[0, k]))
        mu[1] = max(mu[1], _ratio(left[1, k] + right[0, k], right[1, k] + left[0, k]))
    mu[1] = max(mu[1], _ratio(above[0, 0], above[1, 0]))


@jit
def _steepest(
    d0: float, d1: float, b0: float, b1: float, width: float, r: float, x: float, w: float, z: float
) -> float:
    """Upper bound of D / B in a bin: D linear from d0 to d1, B at least a sum of three terms.

    Those are a line from b0 to b1 (persons outside), r (x - t)^+ and w (t - z)^+ (persons inside,
    r of mean place x and w of mean place z; Jensen's inequality).  D over this is monotone between
    the kinks, so its largest value is at an end or a kink.
    """
    best = 0.0
    for t in (0.0, width, x, z):
        d = d0 + (d1 - d0) * (t / width)
        if d > 0.0:
            b = b0 + (b1 - b0) * (t / width) + r * max(x - t, 0.0) + w * max(t - z, 0.0)
            best = max(best, d / b) if b > 0.0 else math.inf
    return best


@jit
def _upper(around: Floats, k: int, width: float, inside: Floats, place: Floats) -> tuple[Any, Any]:
    """Upper bounds of both ratios strictly within bin k: p = 0 and p = 1."""
    below, above, left, right = around[0], around[1], around[2], around[3]
    w, r = inside[0], inside[1]
    b = above[1, k + 1] + below[0, k]  # whatever their order, the others keep their sides
    a = below[1, k] + above[0, k + 1]
    mixed = w > 0.0 and r > 0.0  # else p = 0 is monotone in the bin
    up0 = max(_ratio(a + w + r, b), _ratio(b + w + r, a)) if mixed else 0.0
    d0 = left[1, k] + right[0, k] - right[1, k] - left[0, k]
    d1 = left[1, k + 1] + right[0, k + 1] - right[1, k + 1] - left[0, k + 1]
    b0 = right[1, k + 1] + above[1, k + 1] * width + left[0, k]
    b1 = right[1, k + 1] + left[0, k] + below[0, k] * width
    a0 = right[0, k + 1] + above[0, k + 1] * width + left[1, k]
    a1 = right[0, k + 1] + left[1, k] + below[1, k] * width
    up1 = max(
        _steepest(d0, d1, b0, b1, width, r, place[1], w, place[0]),
        _steepest(-d0, -d1, a0, a1, width, w, place[0], r, place[1]),
    )
    return up0, 1.0 + up1


@jit
def bracket(edge: Floats, count: Floats, moment: Floats, open_: Bools, mu: Floats) -> Bools:
    """Raise ``mu`` (2,) to the largest ratios at edges; return the bins that may hold more.

    ``edge`` has bins + 1 entries; ``count`` and ``moment`` are (2, bins) in units of weight and
    weight times distance.  Bins that are not ``open_`` are known to hold no more.
    """
    around = _around(edge, count, moment)
    _at_edges(around, mu)
    more = np.zeros(open_.size, dtype=np.bool_)
    place = np.empty(2)
    for k in range(open_.size):
        width = edge[k + 1] - edge[k]
        if not open_[k] or width <= 1.0:  # between neighbours on the lattice nobody lies
            continue
        for y in range(2):
            c = count[y, k]
            place[y] = min(moment[y, k] / c, width) if c > 0.0 else 0.0
        up0, up1 = _upper(around, k, width, count[:, k], place)
        more[k] = up0 > mu[0] or up1 > mu[1] * (1.0 + TOLERANCE)
    return more


@jit
def divide(edge: Floats, count: Floats, moment: Floats, more: Bools) -> tuple[Ints, Bools]:
    """Left edges of the next bins, and which of them are open.

    Bins in ``more`` are cut into equal pieces, and at the mean places of wrong and right, which
    isolates an ability that a bin holds alone; all others between them are joined.
    """
    n = more.size
    pieces = max(_LEAST_PIECES, N_BINS // more.sum())
    out = np.empty(more.sum() * (pieces + 6) + n + 1, dtype=np.int64)
    is_open = np.zeros(out.size, dtype=np.bool_)
    size = 0
    for k in range(n):
        if not more[k]:
            if k == 0 or more[k - 1]:
                out[size] = np.int64(edge[k])
                size += 1
            continue
        low, high = np.int64(edge[k]), np.int64(edge[k + 1])
        step = max(1, int(high - low + pieces - 1) // pieces)
        begun = size
        for x in range(low, high, step):
            out[size] = x
            size += 1
        for y in range(2):
            if count[y, k] > 0.0:
                mean = low + np.int64(round(moment[y, k] / count[y, k]))
                for cut in (mean, mean + 1):
                    if low < cut < high:
                        out[size] = cut
                        size += 1
        kept = np.unique(out[begun:size])
        size = begun + kept.size
        out[begun:size] = kept
        is_open[begun:size] = True
    return out[:size], is_open[:size]


def sweep(theta: Floats, right: Floats, wrong: Floats) -> tuple[float, float]:
    """Exact mu_0 and mu_1 of one item from weights right and wrong at ascending abilities.

    All arrays have shape (abilities,); abilities are distinct, weights not negative.  They may be
    those of persons, of a weighted sample, or of counts on an axis.  NaN where no weight is
    positive, inf where a threshold separates right from wrong.  O(abilities).
    """
    keep = (right > 0) | (wrong > 0)
    theta, count = theta[keep], np.stack([wrong[keep], right[keep]]).astype(np.float64)
    if not theta.size:
        return math.nan, math.nan
    if not (np.diff(theta) > 0).all():
        raise ValueError("abilities must be distinct and ascend; add up the weights of equal ones")
    mu = np.zeros(2)
    _at_edges(_around(np.append(theta, theta[-1]), count, np.zeros_like(count)), mu)
    return float(mu[0]), float(mu[1])
