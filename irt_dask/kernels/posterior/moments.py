"""Posterior of ability on a grid: draws, expectations, predictions from the other responses.

Items and grid come as :func:`irt_dask.kernels.posterior.linear_tables.tables`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.posterior import moments_by_score
from irt_dask.kernels.posterior.linear_tables import (
    CHUNK,
    LOG_NEGLIGIBLE,
    Tables,
    log_weights,
    weights,
)
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.kernels.responses.rows import item, n_rows

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@jit
def _draws(indptr: Any, indices: Any, values: Any, g: Tables, u: Floats, node: Ints) -> None:
    w = np.empty(g.nodes.size)
    index = np.empty(g.a.size + 4, dtype=np.int64)
    for i in range(n_rows(indptr, values)):
        items, row = rows.row(indptr, indices, values, i)
        lo, hi = log_weights(items, row, g, LOG_NEGLIGIBLE, index, w)
        first, last, _ = weights(w, lo, hi, LOG_NEGLIGIBLE)
        total = 0.0
        for q in range(first, last + 1):
            total += w[q]
        target = u[i] * total
        q = first
        running = w[first]
        while running < target and q < last:
            q += 1
            running += w[q]
        node[i] = q


@jit
def _node_counts(
    indptr: Any, indices: Any, values: Any, node: Ints, right: Ints, seen: Ints
) -> None:
    for i in range(n_rows(indptr, values)):
        q = node[i]
        items, row = rows.row(indptr, indices, values, i)
        for k in range(row.size):
            j = item(items, k)
            right[q, j] += row[k] == 1
            seen[q, j] += row[k] >= 0


def draw(data: Layout, g: Tables, u: Floats) -> Ints:
    """Draw every ability from its posterior on the nodes; ``u`` are uniforms, one a person."""
    node = np.empty(data.shape[0], dtype=np.int64)
    _draws(*rows.arrays(data), g, u, node)
    return node


def add_node_counts(data: Layout, node: Ints, right: Ints, seen: Ints) -> None:
    """Add right and observed responses by node (of each person) and item, in place."""
    _node_counts(*rows.arrays(data), node, right, seen)


@jit
def _expectations(
    indptr: Any,
    indices: Any,
    values: Any,
    g: Tables,
    todo: NDArray[np.bool_],
    mean: Floats,
    sd: Floats,
    log_marginal: Floats,
) -> None:
    nodes = g.nodes
    w = np.empty(nodes.size)
    index = np.empty(g.a.size + 4, dtype=np.int64)
    for i in range(n_rows(indptr, values)):
        if not todo[i]:
            continue
        items, row = rows.row(indptr, indices, values, i)
        lo, hi = log_weights(items, row, g, LOG_NEGLIGIBLE, index, w)
        first, last, peak = weights(w, lo, hi, LOG_NEGLIGIBLE)
        total = 0.0
        m1 = 0.0
        for q in range(first, last + 1):
            total += w[q]
            m1 += w[q] * nodes[q]
        m1 /= total
        m2 = 0.0
        for q in range(first, last + 1):
            m2 += w[q] * (nodes[q] - m1) ** 2
        mean[i] = m1
        sd[i] = math.sqrt(m2 / total)
        intercepts = 0.0
        for k in range(row.size):
            if row[k] == 1:
                intercepts += g.d[item(items, k)]
        log_marginal[i] = peak + math.log(total) + intercepts


def expectations(
    data: Layout, g: Tables, curves: moments_by_score.Curves = moments_by_score.NONE
) -> tuple[Floats, Floats, Floats]:
    """Posterior mean and standard deviation of each ability, and the log marginal likelihood.

    A person without responses has the prior: mean 0, standard deviation 1, log-likelihood 0.  With
    ``curves`` of the same tables those who answered every item come from them, to 1e-12.
    """
    n = data.shape[0]
    mean, sd, log_marginal = np.empty(n), np.empty(n), np.empty(n)
    if curves.values.size:
        todo = moments_by_score.complete(data, curves, mean, sd, log_marginal)
    else:
        todo = np.ones(n, dtype=np.bool_)
    if todo.any():
        _expectations(*rows.arrays(data), g, todo, mean, sd, log_marginal)
    # log of the trapezoidal normaliser of the N(0, 1) prior density
    spacing = float(g.nodes[1] - g.nodes[0])
    log_marginal += math.log(spacing) - 0.5 * math.log(2.0 * math.pi)
    return mean, sd, log_marginal


@jit
def _left_out(
    indptr: Any, indices: Any, values: Any, g: Tables, inverse: Floats, given: Floats
) -> None:
    w = np.empty(g.nodes.size)
    index = np.empty(g.a.size + 4, dtype=np.int64)
    at = 0
    for i in range(n_rows(indptr, values)):
        items, row = rows.row(indptr, indices, values, i)
        log_weights(items, row, g, -math.inf, index, w)
        # Every node counts here: one that the person's posterior all but rules out may matter once
        # a surprising response to a steep item is left out.
        peak = w.max()
        total = 0.0
        for q in range(w.size):
            w[q] = math.exp(w[q] - peak)
            total += w[q]
        for k in range(row.size):
            y = row[k]
            if y >= 0:
                j = item(items, k)
                others = 0.0
                for q in range(w.size):
                    others += w[q] * inverse[y, j, q]
                given[at] = total / others
                at += 1


@jit
def _left_out_around_mode(
    indptr: Any, indices: Any, values: Any, g: Tables, cut: float, given: Floats
) -> None:
    """As :func:`_left_out` on a fine grid, at the nodes that can matter once a response is out."""
    n_nodes = g.nodes.size
    w = np.zeros(g.origin.shape[0] * CHUNK)
    part = np.empty(CHUNK)
    index = np.empty(g.a.size + 4, dtype=np.int64)
    at = 0
    for i in range(n_rows(indptr, values)):
        items, row = rows.row(indptr, indices, values, i)
        lo, hi = log_weights(items, row, g, cut, index, w[:n_nodes])
        first, last, _ = weights(w, lo, hi, cut)
        first_chunk, last_chunk = first // CHUNK, last // CHUNK
        w[first_chunk * CHUNK : first] = 0.0
        w[last + 1 : (last_chunk + 1) * CHUNK] = 0.0
        total = 0.0
        for q in range(first, last + 1):
            total += w[q]
        for k in range(row.size):
            y = row[k]
            if y >= 0:
                # others = sum of w (1 + e^z) or w (1 + e^-z)
                j = item(items, k)
                others = total
                for c in range(first_chunk, last_chunk + 1):
                    start = c * CHUNK
                    if y == 1:
                        # e^-z at the chunk's last node, times powers of e^{a h} towards its first
                        z = g.a[j] * g.nodes[start] + g.d[j]
                        e = math.exp(-z) / g.power[j, CHUNK - 1]
                        for q in range(CHUNK):
                            part[q] = w[start + q] * g.power[j, CHUNK - 1 - q]
                    else:
                        e = g.origin[c, j]
                        for q in range(CHUNK):
                            part[q] = w[start + q] * g.power[j, q]
                    others += e * part.sum()
                given[at] = total / others
                at += 1


def left_out(data: Layout, g: Tables) -> tuple[Floats, NDArray[np.bool_]]:
    """Probability of each observed response, given the person's other responses.

    Dividing the posterior weights w by the likelihood L of response j gives the posterior from the
    other responses, so the probability of the response that was given is ``sum w / sum (w / L)``.
    Returns these probabilities and whether the response was right, one entry per observed response.
    """
    out = np.empty(data.n_observed)
    if g.wrong.size:
        z = np.multiply.outer(g.a, g.nodes) + g.d[:, None]
        inverse = 1.0 + np.exp(np.stack([z, -z]))  # 1 / (1 - P), 1 / P
        _left_out(*rows.arrays(data), g, inverse, out)
    else:
        # 1 / L is at least 1 and at most 1 + e^|z|: that much less may a weight be and still count.
        most = float((g.a * np.abs(g.nodes).max() + np.abs(g.d)).max()) + math.log(2.0)
        _left_out_around_mode(*rows.arrays(data), g, LOG_NEGLIGIBLE - most, out)
    return out, data.values[data.values >= 0] == 1
