"""Posterior of ability on a grid where items can be guessed or persons have priors of their own.

``P = c + (1 - c) sigma(a theta + d)``: right answers to an item that can be guessed add what a
table of items by nodes says.  The prior of a person is N(shift, 1).  (Where it is N(0, 1) and
nobody guesses, :mod:`irt_dask.kernels.posterior.moments` is faster.)
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.posterior.linear_tables import LOG_NEGLIGIBLE, weights
from irt_dask.kernels.posterior.plausible_values import PIECES, masses, place
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.kernels.responses.rows import item, n_rows
from irt_dask.models import GRID_BOUND

Floats = NDArray[np.float64]


class Tables3PL(NamedTuple):
    """What depends on the items and the grid but on no person; tables are (items, nodes)."""

    a: Floats
    d: Floats
    c: Floats
    nodes: Floats
    wrong: Floats  # log(1 - P)
    gain: Floats  # log P - log(1 - P); no rows where nobody guesses: it is a theta + d
    total: Floats  # log(1 - P) of all items
    reach: float  # how far from the mean of a person's prior the posterior is summed

    @property
    def nbytes(self) -> int:
        """Memory held, bytes."""
        return sum(x.nbytes for x in self[:-1])


def tables(a: Floats, d: Floats, c: Floats, nodes: Floats, reach: float = GRID_BOUND) -> Tables3PL:
    """Tables of items and grid."""
    z = np.multiply.outer(a, nodes) + d[:, None]
    not_c = np.log1p(-c)[:, None]
    wrong = not_c - np.logaddexp(0.0, z)
    if (c > 0.0).any():
        with np.errstate(divide="ignore"):
            gain = np.logaddexp(np.log(c)[:, None], z) - not_c  # P / Q = (c + e^z) / (1 - c)
    else:
        gain = np.empty((0, 0))
    total = np.zeros(nodes.size)
    for row in wrong:  # in order, as the loop over a person's items adds them
        total += row
    return Tables3PL(a, d, c, nodes, wrong, gain, total, reach)


@jit
def log_likelihood(
    its: Any, row: NDArray[np.int8], g: Tables3PL, lo: int, hi: int, out: Floats
) -> int:
    """Fill in one person's log-likelihood at nodes ``lo .. hi``; the number of responses."""
    observed = 0
    t = 0.0
    intercepts = 0.0
    for k in range(row.size):
        observed += row[k] >= 0
    complete = observed == g.a.size
    for q in range(lo, hi):
        out[q] = g.total[q] if complete else 0.0
    for k in range(row.size):
        y = row[k]
        if y < 0:
            continue
        j = item(its, k)
        if not complete:
            table = g.wrong[j]
            for q in range(lo, hi):
                out[q] += table[q]
        if y == 1 and g.c[j] > 0.0:
            table = g.gain[j]
            for q in range(lo, hi):
                out[q] += table[q]
        elif y == 1:
            t += g.a[j]
            intercepts += g.d[j]
    for q in range(lo, hi):
        out[q] += t * g.nodes[q] + intercepts
    return observed


@jit
def window(nodes: Floats, shift: float, reach: float) -> tuple[int, int]:
    """Nodes ``lo .. hi`` up to ``reach`` from the mean of a prior N(shift, 1)."""
    h = nodes[1] - nodes[0]
    lo = math.floor((shift - reach - nodes[0]) / h + 1e-6)
    hi = math.ceil((shift + reach - nodes[0]) / h - 1e-6) + 1
    return max(lo, 0), min(hi, nodes.size)


@jit
def log_posterior(
    its: Any, row: NDArray[np.int8], g: Tables3PL, shift: float, out: Floats
) -> tuple[int, int]:
    """Fill in log-likelihood and log prior, without its constant; the nodes ``lo .. hi``."""
    lo, hi = window(g.nodes, shift, g.reach)
    log_likelihood(its, row, g, lo, hi, out)
    for q in range(lo, hi):
        out[q] -= 0.5 * (g.nodes[q] - shift) ** 2
    return lo, hi


@jit
def _expectations(
    indptr: Any,
    indices: Any,
    values: Any,
    g: Tables3PL,
    shift: Floats,
    mean: Floats,
    sd: Floats,
    log_marginal: Floats,
) -> None:
    nodes = g.nodes
    w = np.empty(nodes.size)
    constant = math.log(nodes[1] - nodes[0]) - 0.5 * math.log(2.0 * math.pi)
    for i in range(n_rows(indptr, values)):
        its, row = rows.row(indptr, indices, values, i)
        lo, hi = log_posterior(its, row, g, shift[i], w)
        first, last, peak = weights(w, lo, hi, LOG_NEGLIGIBLE)
        total = m1 = m2 = 0.0
        for q in range(first, last + 1):
            total += w[q]
            m1 += w[q] * nodes[q]
        m1 /= total
        for q in range(first, last + 1):
            m2 += w[q] * (nodes[q] - m1) ** 2
        mean[i], sd[i] = m1, math.sqrt(m2 / total)
        log_marginal[i] = peak + math.log(total) + constant


def expectations(data: Layout, g: Tables3PL, shift: Floats) -> tuple[Floats, Floats, Floats]:
    """As :func:`irt_dask.kernels.posterior.moments.expectations`; ``shift`` are the prior means."""
    n = data.shape[0]
    mean, sd, log_marginal = np.empty(n), np.empty(n), np.empty(n)
    _expectations(*rows.arrays(data), g, shift, mean, sd, log_marginal)
    return mean, sd, log_marginal


@jit
def _moments(
    indptr: Any, indices: Any, values: Any, g: Tables3PL, shift: Floats, out: Floats
) -> None:
    w = np.empty(g.nodes.size)
    for i in range(n_rows(indptr, values)):
        its, row = rows.row(indptr, indices, values, i)
        lo, hi = log_posterior(its, row, g, shift[i], w)
        first, last, _ = weights(w, lo, hi, LOG_NEGLIGIBLE)
        total = mean = 0.0
        for q in range(first, last + 1):
            total += w[q]
            mean += w[q] * g.nodes[q]
        mean /= total
        m2 = m3 = m4 = 0.0
        for q in range(first, last + 1):
            x = g.nodes[q] - mean
            part = w[q] * x * x
            m2 += part
            m3 += part * x
            m4 += part * x * x
        out[0, i], out[1, i], out[2, i], out[3, i] = mean, m2 / total, m3 / total, m4 / total


def moments(data: Layout, g: Tables3PL, shift: Floats) -> Floats:
    """Mean, variance, and third and fourth central moment of each posterior, shape (4, persons)."""
    out = np.empty((4, data.shape[0]))
    _moments(*rows.arrays(data), g, shift, out)
    return out


@jit
def _draws(
    indptr: Any,
    indices: Any,
    values: Any,
    g: Tables3PL,
    shift: Floats,
    u: Floats,
    theta: Floats,
) -> None:
    h = g.nodes[1] - g.nodes[0]
    f, mass, part = np.empty(g.nodes.size), np.empty(g.nodes.size), np.empty(PIECES)
    for i in range(n_rows(indptr, values)):
        its, row = rows.row(indptr, indices, values, i)
        lo, hi = log_posterior(its, row, g, shift[i], f)
        # A posterior may have two modes, but no valley between them is deep enough to cut it.
        inside = masses(f, lo, hi, mass)
        for r in range(u.shape[1]):
            q, share = place(f, lo, hi, inside, mass, u[i, r], part)
            theta[i, r] = g.nodes[q] + h * share


def draw(data: Layout, g: Tables3PL, shift: Floats, u: Floats) -> Floats:
    """As :func:`.plausible_values.draw`; ``shift`` are the prior means."""
    theta = np.empty(u.shape)
    _draws(*rows.arrays(data), g, shift, u, theta)
    return theta
