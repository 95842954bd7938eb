"""Expected counts of responses by item and node of the ability grid, and the score they give.

A person with posterior weights ``w_q`` (they sum to 1) adds ``w_q`` to the counts of the items that
he or she answered.  Weights are rounded once, to multiples of ``1 / scale``, and added as integers,
so that neither the order of persons nor the blocks they come in change a bit.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irt_dask.kernels.base import fixed_point
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.posterior.linear_tables import (
    LOG_NEGLIGIBLE,
    NEGLIGIBLE,
    Tables,
    log_weights,
    weights,
)
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.kernels.responses.rows import item, n_rows
from irt_dask.models import GRID_BOUND

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Scales(NamedTuple):
    """Multiples that sums over persons count in."""

    weight: float
    log_marginal: float


def scales_for(n_persons: int, largest: float) -> Scales:
    """Scales for sums over ``n_persons``, whose absolute log-likelihoods are at most ``largest``.

    The first one also holds sums of weights times abilities.
    """
    return Scales(
        fixed_point.scale_for(n_persons * GRID_BOUND), fixed_point.scale_for(n_persons * largest)
    )


@jit
def complete_weights(
    g: Tables, ratio: Floats, inverse_ratio: Floats, t: float, w: Floats
) -> tuple[int, int, float]:
    """Weights of a person who answered every item: first and last node, log weight of the mode.

    Neighbouring weights differ by the factor ``ratio[q] exp(t h)``, which falls with q: find the
    mode by bisection and walk out from it, without an exponential for each node.
    """
    n_nodes = g.nodes.size
    growth = math.exp(t * (g.nodes[1] - g.nodes[0]))
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
        if x < NEGLIGIBLE:
            break
        last += 1
        w[last] = x
    while first > 0:
        x = w[first] * (inverse_ratio[first - 1] * shrink)
        if x < NEGLIGIBLE:
            break
        first -= 1
        w[first] = x
    return first, last, g.total[low] + t * g.nodes[low]


@jit
def _counts(
    indptr: Any,
    indices: Any,
    values: Any,
    g: Tables,
    ratio: Floats,
    inverse_ratio: Floats,
    weight: Floats,
    times: Ints,
    scale: float,
    log_scale: float,
    constant: float,
    right: Ints,
    seen: Ints,
    whole: Ints,
    mass: Ints,
) -> int:
    n_nodes = g.nodes.size
    w = np.empty(n_nodes)
    multiple = np.empty(n_nodes, dtype=np.int64)
    index = np.empty(g.a.size + 4, dtype=np.int64)
    rights = np.empty(g.a.size + 1, dtype=np.int64)
    log_marginal = 0
    for i in range(n_rows(indptr, values)):
        items, row = rows.row(indptr, indices, values, i)
        t = 0.0
        intercepts = 0.0
        observed = 0
        n_right = 0
        for k in range(row.size):  # without branches, which nobody could predict
            j = item(items, k)
            y = row[k] == 1
            observed += row[k] >= 0
            rights[n_right] = j
            n_right += y
            t += g.a[j] * y
            intercepts += g.d[j] * y
        if observed == 0 or weight[i] == 0.0:  # says nothing, of abilities neither
            continue
        complete = observed == g.a.size
        if complete:
            first, last, peak = complete_weights(g, ratio, inverse_ratio, t, w)
        else:
            lo, hi = log_weights(items, row, g, LOG_NEGLIGIBLE, index, w)
            first, last, peak = weights(w, lo, hi, LOG_NEGLIGIBLE)
        total = 0.0
        for q in range(first, last + 1):
            total += w[q]
        value = peak + math.log(total) + intercepts + constant
        log_marginal += times[i] * int(np.rint(weight[i] * value * log_scale))
        part = weight[i] * scale / total
        for q in range(first, last + 1):
            multiple[q] = times[i] * np.int64(w[q] * part + 0.5)
        at = multiple[first : last + 1]
        for j in rights[:n_right]:
            to = right[j, first : last + 1]
            for q in range(at.size):
                to[q] += at[q]
        if complete:
            to = whole[first : last + 1]
            for q in range(at.size):
                to[q] += at[q]
        else:
            to = mass[first : last + 1]
            for q in range(at.size):
                to[q] += at[q]
            for k in range(row.size):
                if row[k] >= 0:
                    to = seen[item(items, k), first : last + 1]
                    for q in range(at.size):
                        to[q] += at[q]
    return log_marginal


def counts(
    data: Layout,
    g: Tables,
    scales: Scales,
    *,
    weight: Floats | None = None,
    times: Ints | None = None,
    constant: float | None = None,
) -> tuple[Ints, Ints, Ints, np.int64]:
    """Expected right and observed responses by item and node, persons by node, log marginals.

    Counts have shape (n_items, n_nodes), persons (n_nodes,); they are multiples of ``1 /
    scales.weight``.  The sum over persons of the log marginal likelihood is one of ``1 /
    scales.log_marginal``.  Persons without responses are left out.  ``weight`` are those of the
    persons, ``times`` says how many each row stands for (default: 1); ``constant`` is added to each
    log marginal (default: the log normaliser of the trapezoidal rule for abilities N(0, 1)).
    """
    m, n_nodes = data.shape[1], g.nodes.size
    right = np.zeros((m, n_nodes), dtype=np.int64)
    seen, whole = np.zeros_like(right), np.zeros(n_nodes, dtype=np.int64)
    mass = np.zeros_like(whole)
    ratio = np.diff(g.total)
    if weight is None:
        weight = np.ones(data.shape[0])
    if times is None:
        times = np.ones(data.shape[0], dtype=np.int64)
    if constant is None:
        constant = math.log(g.nodes[1] - g.nodes[0]) - 0.5 * math.log(2.0 * math.pi)
    value = _counts(
        *rows.arrays(data), g, np.exp(ratio), np.exp(-ratio), weight, times, *scales, constant,
        right, seen, whole, mass,
    )  # fmt: skip
    seen += whole
    return right, seen, mass + whole, np.int64(value)


def score(right: Floats, seen: Floats, nodes: Floats, a: Floats, d: Floats) -> Floats:
    """Gradient of the log marginal likelihood in (a, d), shape (2, n_items), from the counts.

    By Fisher's identity it is that of the expected complete log-likelihood:
    ``sum_q theta_q (r_jq - f_jq P_jq)`` and ``sum_q (r_jq - f_jq P_jq)``.
    """
    z = np.multiply.outer(a, nodes) + d[:, None]
    with np.errstate(over="ignore"):  # 1 / (1 + inf) is 0, as it should be
        residual = right - seen / (1.0 + np.exp(-z))
    return np.stack([residual @ nodes, residual.sum(axis=1)])
