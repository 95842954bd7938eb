"""Draws of the abilities of persons who answered the same items.

Their weights on the nodes depend on the responses through ``t = sum_j a_j y_ij`` alone, and
neighbouring weights differ by the factor ``ratio[q] e^{t h}``, ratio being the same for all of
them.  Persons of similar t are taken 32 at a time, so that the recursion runs on vector registers;
t and e^{t h} come from tables by bytes of eight responses.
"""

from __future__ import annotations

import math

import numpy as np

from irt_dask.arrays import Bools, Bytes, Floats, Ints
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.gibbs.person_layout import Persons

#: Persons whose recursions run side by side.
LANES = 32
#: Persons of a class of t, and the most classes.
_PER_CLASS, _MOST_CLASSES = 256, 64
#: Weights below this share of the largest are left out.
_LOG_NEGLIGIBLE = math.log(1e-15)
#: Weights of a class may grow by e to this, which keeps them far from overflow.
_GROWTH = 300.0
#: ``z`` beyond this (and within its negative) is as good as certain.
_CERTAIN = 300.0
#: Products of 1 + e^z are kept below this, so that one more factor cannot overflow.
_LARGE = 1e150


@jit
def _draw_class(
    growth: Floats, u: Floats, who: Ints, n: int, ratio: Floats, first: int, last: int,
    work: Floats, k: Ints, node: Ints,
) -> None:  # fmt: skip
    """Draw a node for up to 32 persons; ``work`` is scratch, (nodes + 3, lanes).

    The number of lanes is that of the arrays and not a constant: a loop of known length would be
    unrolled instead of run on vector registers.
    """
    lanes = growth.size
    weight, total, target = work[0], work[1], work[2]
    for i in range(lanes):
        weight[i] = 1.0
        total[i] = 1.0
        work[3, i] = 1.0
    for q in range(first, last):
        r = ratio[q]
        running = work[q - first + 4]
        for i in range(lanes):
            x = weight[i] * (r * growth[i])
            weight[i] = x
            y = total[i] + x
            total[i] = y
            running[i] = y
    for i in range(lanes):
        target[i] = u[i] * total[i]
        k[i] = 0
    for q in range(last - first):
        running = work[q + 3]
        for i in range(lanes):
            k[i] += running[i] < target[i]
    for i in range(n):
        node[who[i]] = first + k[i]


@jit
def _ranges(
    log_total: Floats, nodes: Floats, least: float, width: float, first: Ints, last: Ints
) -> None:
    """Nodes that matter for a class of t, which is ``width`` wide: those of its two ends."""
    for c in range(first.size):
        for end in range(2):
            t = least + (c + end) * width
            peak = -math.inf
            for q in range(nodes.size):
                peak = max(peak, log_total[q] + t * nodes[q])
            q = 0 if end == 0 else nodes.size - 1
            while log_total[q] + t * nodes[q] - peak < _LOG_NEGLIGIBLE:
                q += 1 if end == 0 else -1
            if end == 0:
                first[c] = q
            else:
                last[c] = q


@jit
def _draw_classes(
    t: Floats, growths: Floats, ratio: Floats, least: float, width: float, first: Ints, last: Ints,
    u: Floats, who: Ints, work: Floats, node: Ints,
) -> None:  # fmt: skip
    """Draw for the persons of one set: gather those of each class of t until there are 32."""
    n_classes, lanes = first.size, work.shape[1]
    growth, uniform = np.ones((n_classes, lanes)), np.zeros((n_classes, lanes))
    them = np.zeros((n_classes, lanes), dtype=np.int64)
    waiting, k = np.zeros(n_classes, dtype=np.int64), np.zeros(lanes, dtype=np.int64)
    for i in range(t.size):
        c = max(min(int((t[i] - least) / width), n_classes - 1), 0)
        at = waiting[c]
        growth[c, at] = growths[i]
        uniform[c, at] = u[who[i]]
        them[c, at] = i
        waiting[c] = at + 1
        if at == lanes - 1:
            _draw_class(
                growth[c], uniform[c], them[c], lanes, ratio, first[c], last[c], work, k, node
            )
            waiting[c] = 0
    for c in range(n_classes):
        if waiting[c] > 0:
            n = waiting[c]
            _draw_class(growth[c], uniform[c], them[c], n, ratio, first[c], last[c], work, k, node)


@jit
def draw_set(
    t: Floats, growth: Floats, log_total: Floats, nodes: Floats, least: float, most: float,
    u: Floats, who: Ints, work: Floats, node: Ints,
) -> None:  # fmt: skip
    """Draw for the persons ``who`` of one set, whose t are from ``least`` on, ``most`` wide.

    ``log_total`` are the logarithms of their weights but for t times the nodes, ``growth`` e^{t h},
    and ``work`` is scratch, (nodes + 3, lanes).
    """
    ratio = np.empty(nodes.size - 1)
    for q in range(nodes.size - 1):
        ratio[q] = math.exp(log_total[q + 1] - log_total[q])
    n_classes = max(1, min(t.size // _PER_CLASS, _MOST_CLASSES))
    n_classes = max(n_classes, math.ceil(most * (nodes[-1] - nodes[0]) / _GROWTH))
    first, last = np.empty(n_classes, dtype=np.int64), np.empty(n_classes, dtype=np.int64)
    width = most / n_classes
    _ranges(log_total, nodes, least, width, first, last)
    _draw_classes(t, growth, ratio, least, width, first, last, u, who, work, node)


@jit
def odds_at(a: Floats, d: Floats, nodes: Floats, out: Floats) -> None:
    """``e^z`` of items by nodes, z kept within what is as good as certain.

    From node to node it is a product, started anew every 32 nodes.
    """
    h = nodes[1] - nodes[0]
    for j in range(a.size):
        first, last = a[j] * nodes[0] + d[j], a[j] * nodes[-1] + d[j]
        if max(abs(first), abs(last)) > _CERTAIN:
            for q in range(nodes.size):
                out[j, q] = math.exp(min(max(a[j] * nodes[q] + d[j], -_CERTAIN), _CERTAIN))
            continue
        growth = math.exp(a[j] * h)
        e = 0.0
        for q in range(nodes.size):
            e = e * growth if q % 32 else math.exp(a[j] * nodes[q] + d[j])
            out[j, q] = e


@jit
def _log_total(
    odds: Floats, observed: Bools, a: Floats, d: Floats, nodes: Floats, out: Floats
) -> None:
    """Log prior less the sum of log(1 + e^z) over the observed items, at each node.

    The logarithm is taken of products over many items.
    """
    product = np.ones(nodes.size)
    for q in range(nodes.size):
        out[q] = -0.5 * nodes[q] * nodes[q]
    for j in range(observed.size):
        if observed[j]:
            for q in range(nodes.size):
                product[q] *= 1.0 + odds[j, q]
                if product[q] > _LARGE:
                    out[q] -= math.log(product[q])
                    product[q] = 1.0
            if max(a[j] * nodes[0], a[j] * nodes[-1]) + d[j] > _CERTAIN:
                for q in range(nodes.size):
                    out[q] -= max(a[j] * nodes[q] + d[j] - _CERTAIN, 0.0)
    for q in range(nodes.size):
        out[q] -= math.log(product[q])


@jit
def _byte_sums(a: Floats, out: Floats) -> None:
    """Sums of a over the items of a byte's bits, (bytes, 256)."""
    out[:] = 0.0
    for j in range(a.size):
        b, half = j // 8, 1 << (j % 8)
        for k in range(half):
            out[b, half + k] = out[b, k] + a[j]


@jit
def _sums_of_bytes(bits: Bytes, scores: Floats, growths: Floats, t: Floats, growth: Floats) -> None:
    for i in range(bits.shape[0]):
        x = 0.0
        g = 1.0
        for b in range(bits.shape[1]):
            x += scores[b, bits[i, b]]
            g *= growths[b, bits[i, b]]
        t[i], growth[i] = x, g


@jit
def _draw_sets(
    bits: Bytes, shared: Ints, stop: Ints, observed: Bools, a: Floats, d: Floats,
    nodes: Floats, odds: Floats, u: Floats, lanes: int, node: Ints,
) -> None:  # fmt: skip
    scores = np.empty((bits.shape[1], 256))
    _byte_sums(a, scores)
    growths = np.exp(scores * (nodes[1] - nodes[0]))
    work = np.empty((nodes.size + 3, lanes))
    total = np.empty(nodes.size)
    t, growth = np.empty(shared.size), np.empty(shared.size)
    begin = 0
    for s in range(stop.size):
        _log_total(odds, observed[s], a, d, nodes, total)
        least, most = 0.0, 1e-300  # smallest t, and from there to the largest
        for j in range(a.size):
            if observed[s, j]:
                most += abs(a[j]) * (1.0 + 1e-9)
                least += min(a[j], 0.0)
        here = slice(begin, stop[s])
        _sums_of_bytes(bits[here], scores, growths, t[here], growth[here])
        draw_set(
            t[here], growth[here], total, nodes, least, most, u, shared[here], work, node[here]
        )
        begin = stop[s]


def shared_nodes(p: Persons, a: Floats, d: Floats, nodes: Floats, odds: Floats, u: Floats) -> Ints:
    """Nodes of the shared persons, in their order; ``odds`` are those of :func:`odds_at`."""
    node = np.empty(p.shared.size, dtype=np.int64)
    _draw_sets(p.bits, p.shared, p.stop, p.observed, a, d, nodes, odds, u, LANES, node)
    return node
