"""Log posterior weights of one person on the nodes of an ability grid.

``log L = sum_j y_j (a_j theta + d_j) - sum_j log(1 + e^{z_j})`` with ``z_j = a_j theta + d_j``: the
first sum needs only ``t = sum_j a_j y_j``, the second is the same for everybody who answered every
item.  For others it is added up over their items, in one of two ways by the number of nodes:

- on a coarse grid (a short test), from a table of items x nodes, for all nodes;
- on a fine one (a long test, whose posteriors are narrow), for the nodes around the mode only, some
  neighbouring ones at a time.  ``e^z`` of neighbours comes from one exponential and the powers of
  ``e^{a h}``, and the logarithm is taken of the product of ``1 + e^z`` over many items.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.responses.rows import item

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Weights below this share of the largest are left out of a sum over the grid.
NEGLIGIBLE = 1e-18
LOG_NEGLIGIBLE = math.log(NEGLIGIBLE)
#: Grids of more nodes than this are evaluated around the mode only.
FINE = 256
#: Nodes that are evaluated together.
CHUNK = 16
#: ``1 + e^z`` above this is not multiplied in; products are kept below its square.
_LARGE = 1e140


class Tables(NamedTuple):
    """What depends on the items and the grid but on no person."""

    a: Floats
    d: Floats
    nodes: Floats
    prior: Floats  # log density of ability: of N(0, 1), without its constant, or what was given
    total: Floats  # of a person who answered every item: the prior, minus the sum of log(1 + e^z)
    #: Of a coarse grid: -log(1 + e^z), (items, nodes).
    wrong: Floats
    #: Of a fine one: e^z and a P at the first node of each chunk, (chunks, items + 1), and
    #: e^{a h k}, k < CHUNK, (items + 1, CHUNK).  The last item adds nothing: it fills up a list.
    origin: Floats
    slope: Floats
    power: Floats

    @property
    def nbytes(self) -> int:
        """Memory held, bytes."""
        return sum(x.nbytes for x in self)


def tables(a: Floats, d: Floats, nodes: Floats, prior: Floats | None = None) -> Tables:
    """Tables of items and grid.

    ``prior`` is the log density of ability, concave (default: of N(0, 1), without its constant);
    with one given, the grid is treated as a coarse one.
    """
    coarse = prior is not None or nodes.size <= FINE
    if prior is None:
        prior = -0.5 * nodes**2
    none = np.empty((0, 0))
    if coarse:
        z = np.multiply.outer(a, nodes) + d[:, None]
        wrong = -np.logaddexp(0.0, z)
        total = prior.copy()
        for row in wrong:  # in order, as the loop over a person's items adds them
            total += row
        return Tables(a, d, nodes, prior, total, wrong, none, none, none)
    slopes, intercepts = np.append(a, 0.0), np.append(d, -np.inf)
    with np.errstate(over="ignore"):  # an infinite e^z has a path of its own
        origin = np.exp(np.multiply.outer(nodes[::CHUNK], slopes) + intercepts)
    power = np.exp(np.multiply.outer(slopes, np.arange(CHUNK) * (nodes[1] - nodes[0])))
    slope = slopes - slopes / (1.0 + origin)
    fine = Tables(a, d, nodes, prior, prior.copy(), none, origin, slope, power)
    _add_all(fine, np.minimum(np.arange(a.size + -a.size % 4), a.size))
    return fine


@jit
def _flush(product: Floats, start: int, n: int, out: Floats) -> None:
    """Subtract the logarithms of the products and start them anew."""
    for i in range(n):
        out[start + i] -= math.log(product[i])
    product[:] = 1.0


@jit
def _add_chunk(index: Ints, g: Tables, c: int, out: Floats) -> None:
    """Subtract the sum of log(1 + e^z) over the items ``index`` at the nodes of chunk c.

    Four items at a time, so that their products need not wait for each other.
    """
    start = c * CHUNK
    n = min(CHUNK, g.nodes.size - start)
    origin, power = g.origin[c], g.power
    product = np.ones(CHUNK)
    end = CHUNK - 1
    largest = 1.0
    for k in range(0, index.size, 4):
        j0, j1, j2, j3 = index[k], index[k + 1], index[k + 2], index[k + 3]
        e0, e1, e2, e3 = origin[j0], origin[j1], origin[j2], origin[j3]
        last = ((1.0 + e0 * power[j0, end]) * (1.0 + e1 * power[j1, end])) * (
            (1.0 + e2 * power[j2, end]) * (1.0 + e3 * power[j3, end])
        )
        if not last < _LARGE:
            _add_large(index[k : k + 4], g, start, n, out)
            continue
        if largest > _LARGE:
            _flush(product, start, n, out)
            largest = 1.0
        largest *= last
        for i in range(CHUNK):
            product[i] *= ((1.0 + e0 * power[j0, i]) * (1.0 + e1 * power[j1, i])) * (
                (1.0 + e2 * power[j2, i]) * (1.0 + e3 * power[j3, i])
            )
    _flush(product, start, n, out)


@jit
def _add_large(index: Ints, g: Tables, start: int, n: int, out: Floats) -> None:
    """As :func:`_add_chunk` for a few items whose product might overflow."""
    for j in index:
        if j < g.a.size:
            for q in range(start, start + n):
                z = g.a[j] * g.nodes[q] + g.d[j]
                out[q] -= max(z, 0.0) + math.log1p(math.exp(-abs(z)))


@jit
def _add_all(g: Tables, index: Ints) -> None:
    for c in range(g.origin.shape[0]):
        _add_chunk(index, g, c, g.total)


@jit
def _mode_chunk(index: Ints, g: Tables, t: float) -> int:
    """Last chunk at whose first node the log posterior rises (the first if there is none).

    It is concave: its slope ``t - theta - sum_j a_j P_j`` falls.
    """
    low, high = 0, g.origin.shape[0] - 1
    while low < high:
        mid = (low + high + 1) // 2
        slope = g.slope[mid]
        s0 = s1 = s2 = s3 = 0.0
        for k in range(0, index.size, 4):
            s0 += slope[index[k]]
            s1 += slope[index[k + 1]]
            s2 += slope[index[k + 2]]
            s3 += slope[index[k + 3]]
        if t - g.nodes[mid * CHUNK] > (s0 + s1) + (s2 + s3):
            low = mid
        else:
            high = mid - 1
    return low


@jit
def _fill_chunk(index: Ints, g: Tables, t: float, c: int, out: Floats) -> float:
    """Log weights at the nodes of chunk c; the largest."""
    peak = -math.inf
    nodes = range(c * CHUNK, min((c + 1) * CHUNK, g.nodes.size))
    for q in nodes:
        out[q] = g.prior[q] + t * g.nodes[q]
    _add_chunk(index, g, c, out)
    for q in nodes:
        peak = max(peak, out[q])
    return peak


@jit
def _around_mode(index: Ints, g: Tables, t: float, cut: float, out: Floats) -> tuple[int, int]:
    """Log weights at all nodes where they are within ``cut`` of the largest, and at some more.

    A node's value does not depend on which others are evaluated.
    """
    n_chunks = g.origin.shape[0]
    first = last = _mode_chunk(index, g, t)
    peak = _fill_chunk(index, g, t, first, out)
    while last < n_chunks - 1 and out[(last + 1) * CHUNK - 1] - peak > cut:
        last += 1
        peak = max(peak, _fill_chunk(index, g, t, last, out))
    while first > 0 and out[first * CHUNK] - peak > cut:
        first -= 1
        peak = max(peak, _fill_chunk(index, g, t, first, out))
    return first * CHUNK, min((last + 1) * CHUNK, g.nodes.size)


@jit
def log_weights(
    items: Any, row: NDArray[np.int8], g: Tables, cut: float, index: Ints, out: Floats
) -> tuple[int, int]:
    """Log posterior weights of one person; the range of nodes ``lo .. hi`` that has them.

    Outside the range they lie more than ``-cut`` below the largest.  ``index`` is scratch, four
    places more than items.
    """
    t = 0.0
    observed = 0
    for k in range(row.size):
        j = item(items, k)
        index[observed] = j
        observed += row[k] >= 0
        t += g.a[j] * (row[k] == 1)
    n = g.nodes.size
    if observed == g.a.size:
        for q in range(n):
            out[q] = g.total[q] + t * g.nodes[q]
    elif g.wrong.shape[0] > 0:
        for q in range(n):
            out[q] = g.prior[q] + t * g.nodes[q]
        for j in index[:observed]:
            for q in range(n):
                out[q] += g.wrong[j, q]
    else:
        filled = observed + -observed % 4
        index[observed:filled] = g.a.size
        return _around_mode(index[:filled], g, t, cut, out)
    return 0, n


@jit
def weights(log_w: Floats, lo: int, hi: int, cut: float) -> tuple[int, int, float]:
    """Turn log weights at nodes ``lo .. hi`` into weights relative to the largest.

    Returns the first and last node within ``cut`` of the largest, and its log weight.  The
    posterior of a 2PL ability is log-concave: these nodes are one interval.
    """
    top = lo
    for q in range(lo, hi):
        if log_w[q] > log_w[top]:
            top = q
    peak = log_w[top]
    first, last = top, top
    while first > lo and log_w[first - 1] - peak > cut:
        first -= 1
    while last < hi - 1 and log_w[last + 1] - peak > cut:
        last += 1
    for q in range(first, last + 1):
        log_w[q] = math.exp(log_w[q] - peak)
    return first, last, peak
