"""Posterior of ability on a grid: draws, expectations, predictions from the other responses."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from irt_dask.kernels.compiled import jit
from irt_dask.kernels.layouts import Dense

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Weights below this share of the largest are left out of a sum over the grid.
_NEGLIGIBLE = 1e-18
_LOG_NEGLIGIBLE = math.log(_NEGLIGIBLE)


@jit
def _log_posterior(
    row: NDArray[np.int8],
    a: Floats,
    nodes: Floats,
    wrong: Floats,
    base_all: Floats,
    prior: Floats,
    out: Floats,
) -> bool:
    """Log posterior weights of one person on the nodes; whether any item was observed.

    ``log L = sum_j y_j (a_j theta + d_j) + sum_j log(1 - P_j)``: the first sum needs only
    ``t = sum a_j y_j``; the second is ``base_all`` when every item is observed.
    """
    t = 0.0
    observed = 0
    for j in range(row.size):
        if row[j] >= 0:
            observed += 1
            if row[j] == 1:
                t += a[j]
    if observed == row.size:
        for q in range(nodes.size):
            out[q] = base_all[q] + t * nodes[q]
    else:
        for q in range(nodes.size):
            out[q] = prior[q] + t * nodes[q]
        for j in range(row.size):
            if row[j] >= 0:
                for q in range(nodes.size):
                    out[q] += wrong[j, q]
    return observed > 0


@jit
def _weights(log_w: Floats) -> tuple[int, int, float]:
    """Turn log weights into weights relative to the largest; the range that matters; the maximum.

    The posterior of a 2PL ability is log-concave: the nodes that matter are one interval.
    """
    top = 0
    for q in range(log_w.size):
        if log_w[q] > log_w[top]:
            top = q
    peak = log_w[top]
    first, last = top, top
    while first > 0 and log_w[first - 1] - peak > _LOG_NEGLIGIBLE:
        first -= 1
    while last < log_w.size - 1 and log_w[last + 1] - peak > _LOG_NEGLIGIBLE:
        last += 1
    for q in range(first, last + 1):
        log_w[q] = math.exp(log_w[q] - peak)
    return first, last, peak


@jit
def _draws(
    values: NDArray[np.int8],
    a: Floats,
    nodes: Floats,
    wrong: Floats,
    base_all: Floats,
    prior: Floats,
    ratio: Floats,
    inverse_ratio: Floats,
    u: Floats,
    node: Ints,
) -> None:
    n_nodes = nodes.size
    h = nodes[1] - nodes[0]
    w = np.empty(n_nodes)
    for i in range(values.shape[0]):
        row = values[i]
        t = 0.0
        missing = 0
        for j in range(row.size):
            missing += row[j] < 0
            t += a[j] * (row[j] == 1)
        if missing == 0:
            # Neighbouring weights differ by the factor ratio[q] exp(t h), which falls with q:
            # find the mode by bisection and walk out from it, without an exponential per node.
            growth = math.exp(t * h)
            shrink = 1.0 / growth
            low, high = 0, n_nodes - 1
            while low < high:
                mid = (low + high) // 2
                if ratio[mid] * growth >= 1.0:
                    low = mid + 1
                else:
                    high = mid
            first, last = low, low
            w[low] = 1.0
            while last < n_nodes - 1:
                x = w[last] * ratio[last] * growth
                if x < _NEGLIGIBLE:
                    break
                last += 1
                w[last] = x
            while first > 0:
                x = w[first] * (inverse_ratio[first - 1] * shrink)
                if x < _NEGLIGIBLE:
                    break
                first -= 1
                w[first] = x
        else:
            _log_posterior(row, a, nodes, wrong, base_all, prior, w)
            first, last, _ = _weights(w)
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
def _node_counts(values: NDArray[np.int8], node: Ints, right: Ints, seen: Ints) -> None:
    for i in range(values.shape[0]):
        q = node[i]
        for j in range(values.shape[1]):
            right[q, j] += values[i, j] == 1
            seen[q, j] += values[i, j] >= 0


def _tables(a: Floats, d: Floats, nodes: Floats) -> tuple[Floats, Floats, Floats]:
    """``log(1 - P)`` (items x nodes), its sum plus the prior, and the N(0, 1) log prior."""
    z = np.multiply.outer(a, nodes) + d[:, None]
    wrong = -np.logaddexp(0.0, z)
    prior = -0.5 * nodes**2
    total = prior.copy()
    for row in wrong:  # in order, as the loop over a person's items adds them
        total += row
    return wrong, total, prior


def draw_counts(
    data: Dense, a: Floats, d: Floats, nodes: Floats, u: Floats
) -> tuple[Ints, Ints, Ints]:
    """Draw every ability from its posterior on the nodes and count responses by node and item.

    ``u`` are uniforms, one a person.  Returns right and observed responses, shape
    (n_nodes, n_items), and persons, shape (n_nodes,).
    """
    wrong, total, prior = _tables(a, d, nodes)
    node = np.empty(data.shape[0], dtype=np.int64)
    ratio = np.diff(total)
    _draws(data.values, a, nodes, wrong, total, prior, np.exp(ratio), np.exp(-ratio), u, node)
    right = np.zeros((nodes.size, data.shape[1]), dtype=np.int64)
    seen = np.zeros_like(right)
    _node_counts(data.values, node, right, seen)
    return right, seen, np.bincount(node, minlength=nodes.size)


@jit
def _expectations(
    values: NDArray[np.int8],
    a: Floats,
    d: Floats,
    nodes: Floats,
    wrong: Floats,
    base_all: Floats,
    prior: Floats,
    mean: Floats,
    sd: Floats,
    log_marginal: Floats,
) -> None:
    w = np.empty(nodes.size)
    # log of the trapezoidal normaliser of the N(0, 1) prior density
    constant = math.log(nodes[1] - nodes[0]) - 0.5 * math.log(2.0 * math.pi)
    for i in range(values.shape[0]):
        _log_posterior(values[i], a, nodes, wrong, base_all, prior, w)
        first, last, peak = _weights(w)
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
        for j in range(values.shape[1]):
            if values[i, j] == 1:
                intercepts += d[j]
        log_marginal[i] = peak + math.log(total) + intercepts + constant


def expectations(data: Dense, a: Floats, d: Floats, nodes: Floats) -> tuple[Floats, Floats, Floats]:
    """Posterior mean and standard deviation of each ability, and the log marginal likelihood.

    A person without responses has the prior: mean 0, standard deviation 1, log-likelihood 0.
    """
    n = data.shape[0]
    mean, sd, log_marginal = np.empty(n), np.empty(n), np.empty(n)
    _expectations(data.values, a, d, nodes, *_tables(a, d, nodes), mean, sd, log_marginal)
    return mean, sd, log_marginal


@jit
def _left_out(
    values: NDArray[np.int8],
    a: Floats,
    nodes: Floats,
    wrong: Floats,
    base_all: Floats,
    prior: Floats,
    inverse: Floats,
    given: Floats,
) -> None:
    w = np.empty(nodes.size)
    for i in range(values.shape[0]):
        _log_posterior(values[i], a, nodes, wrong, base_all, prior, w)
        # Every node counts here: one that the person's posterior all but rules out may matter once
        # a surprising response to a steep item is left out.
        peak = w.max()
        total = 0.0
        for q in range(nodes.size):
            w[q] = math.exp(w[q] - peak)
            total += w[q]
        for j in range(values.shape[1]):
            y = values[i, j]
            if y >= 0:
                others = 0.0
                for q in range(nodes.size):
                    others += w[q] * inverse[y, j, q]
                given[i, j] = total / others


def left_out(data: Dense, a: Floats, d: Floats, nodes: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Probability of each observed response, given the person's other responses.

    Dividing the posterior weights w by the likelihood L of response j gives the posterior from the
    other responses, so the probability of the response that was given is ``sum w / sum (w / L)``.
    Returns these probabilities and whether the response was right, one entry per observed response.
    """
    out = np.empty(data.shape)
    z = np.multiply.outer(a, nodes) + d[:, None]
    inverse = 1.0 + np.exp(np.stack([z, -z]))  # 1 / (1 - P), 1 / P
    _left_out(data.values, a, nodes, *_tables(a, d, nodes), inverse, out)
    seen = data.values >= 0
    return out[seen], data.values[seen] == 1
