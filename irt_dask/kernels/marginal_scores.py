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

    Then ``s = (y - P) (theta, 1)``, whose second moments need only sums of ``y y'`` weighted by the
    posterior moments of ability, and counts by item and node.
    """
    m, x = values.shape[1], g.nodes
    p = -s.logit[1]
    power = np.stack([np.ones_like(x), x, x**2])
    both_p = np.concatenate([p * x, p]).T
    slopes = (g.gain[:, -1] - g.gain[:, 0]) / (x[-1] - x[0])  # gain is a theta + d
    second, square = np.zeros((2, 2 * m + 2, 2 * m + 2))
    pairs, right, persons = np.zeros((3, m, m)), np.zeros((m, x.size)), np.zeros(x.size)
    for begin in range(0, len(values), _COMPLETE_ROWS):
        y = values[begin : begin + _COMPLETE_ROWS].astype(np.float64)
        omega = weight[begin : begin + _COMPLETE_ROWS]
        w = np.multiply.outer(y @ slopes, x) + g.total  # intercepts cancel
        w -= w.max(axis=1, keepdims=True)
        np.exp(w, out=w)
        w /= w.sum(axis=1, keepdims=True)
        moment = w @ power.T
        mean = np.empty((len(y), 2 * m + 2))
        np.matmul(w, both_p, out=mean[:, : 2 * m])
        np.subtract(y * moment[:, 1:2], mean[:, :m], out=mean[:, :m])
        np.subtract(y, mean[:, m : 2 * m], out=mean[:, m : 2 * m])
        mean[:, 2 * m :] = w @ s.ability.T
        # Of x.T @ x with one and the same x a triangle is computed.
        weighted, own = (mean, y) if (omega == 1.0).all() else (mean * omega[:, None], None)
        once = weighted.T @ weighted
        square += once
        if own is None:
            mean *= np.sqrt(omega)[:, None]
            once, own = mean.T @ mean, y * np.sqrt(omega)[:, None]
        second -= once
        pairs[0] += own.T @ own
        pairs[1] += (y * (omega * moment[:, 1])[:, None]).T @ y
        own = y * np.sqrt(omega * moment[:, 2])[:, None]
        pairs[2] += own.T @ own
        w *= omega[:, None]
        right += y.T @ w
        persons += w.sum(axis=0)
    for u, v in ((0, 0), (0, 1), (1, 1)):  # intercepts with intercepts, with slopes, slopes
        t = power[u + v]
        cross = (right * t) @ p.T
        block = pairs[u + v] - cross - cross.T + (p * (persons * t)) @ p.T
        rows_, columns_ = slice((1 - u) * m, (2 - u) * m), slice((1 - v) * m, (2 - v) * m)
        second[rows_, columns_] += block
        if u != v:
            second[columns_, rows_] += block.T
    residual = right - persons * p
    for u in range(2):
        at = slice((1 - u) * m, (2 - u) * m)
        both = (residual * power[u]) @ s.ability.T
        second[at, 2 * m :] += both
        second[2 * m :, at] += both.T
    second[2 * m :, 2 * m :] += (s.ability * persons) @ s.ability.T
    column = np.concatenate([s.item_column[0], s.item_column[1], s.ability_column])
    kept = np.flatnonzero(column >= 0)
    where = np.ix_(column[kept], column[kept])
    covariance, squares = np.zeros((2, size, size))
    for out, x in ((covariance, second), (squares, square)):
        if np.unique(column[kept]).size == kept.size:
            out[where] = x[np.ix_(kept, kept)]
        else:  # items share a slope
            np.add.at(out, where, x[np.ix_(kept, kept)])
    return covariance, squares
