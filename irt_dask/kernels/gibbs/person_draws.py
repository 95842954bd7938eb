"""Draws of the abilities of many persons, and the counts of responses that a Gibbs sweep needs.

The persons of a shard are laid out once, for all sweeps, by how their posterior weights on the
nodes are found:

- *shared*: enough persons answered the same items.  Their weights depend on the responses through
  ``t = sum_j a_j y_ij`` alone, and neighbouring weights differ by the factor ``ratio[q] e^{t h}``,
  ratio being the same for all of them.  Persons of similar t are taken 32 at a time, so that the
  recursion runs on vector registers; t and e^{t h} come from tables by bytes of eight responses.
- *mixed*: any other responses to at most 128 items.  A weight is a product of likelihoods; those of
  four items together have 81 values at each node (right, wrong and missing), which are tabulated.
- the *rest*, with more items: :func:`irt_dask.kernels.posterior.moments.draw`.

Right and observed responses are counted by adding up bytes, eight at a time in one 64-bit word.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.posterior import linear_tables, moments
from irt_dask.kernels.responses import layouts, rows
from irt_dask.kernels.responses.item_sets import sets_of
from irt_dask.kernels.responses.layouts import Layout

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

#: Fewer persons than this with the same observed items are treated one by one.
_LEAST_SHARED = 32
#: Persons whose recursions run side by side.
_LANES = 32
#: Persons of a class of t, and the most classes.
_PER_CLASS, _MOST_CLASSES = 256, 64
#: Weights below this share of the largest are left out.
_NEGLIGIBLE = 1e-15
_LOG_NEGLIGIBLE = math.log(_NEGLIGIBLE)
#: Weights of a class may grow by e to this, which keeps them far from overflow.
_GROWTH = 300.0
#: ``z`` beyond this (and within its negative) is as good as certain.
_CERTAIN = 300.0
#: Products of 1 + e^z are kept below this, so that one more factor cannot overflow.
_LARGE = 1e150
#: Items that are tabulated together for mixed persons, the values of their responses, most items.
_TOGETHER, _PATTERNS, _MOST_MIXED = 4, 81, 128
#: A product of likelihoods below this may hold one that was cut off at e^-300, or underflow.
_TINY = 1e-120
#: Groups of items after which products are scaled anew.
_SCALED = 16


class Persons(NamedTuple):
    """The persons of a shard, laid out for draws."""

    n: int
    n_items: int
    #: Shared: their positions, set by set; where each set stops; its items (sets, items); right
    #: answers as bits (persons, bytes).
    shared: Ints
    stop: Ints
    observed: NDArray[np.bool_]
    bits: Bytes
    #: Mixed: their positions, and responses by four items: sums of 3^k times 0 (missing), 1 (wrong)
    #: or 2 (right).
    mixed: Ints
    patterns: Bytes
    #: The rest.
    others: Ints
    data: Layout

    @property
    def nbytes(self) -> int:
        """Memory held, bytes."""
        held = (self.shared, self.bits, self.observed, self.mixed, self.patterns, self.others)
        return sum(x.nbytes for x in held) + self.data.nbytes


@jit
def _pack(indptr: Any, indices: Any, values: Any, bits: Bytes) -> None:
    for i in range(rows.n_rows(indptr, values)):
        items, row = rows.row(indptr, indices, values, i)
        for k in range(row.size):
            if row[k] == 1:
                j = rows.item(items, k)
                bits[i, j // 8] |= np.uint8(1) << np.uint8(j % 8)


@jit
def _code(indptr: Any, indices: Any, values: Any, patterns: Bytes) -> None:
    power = np.array([1, 3, 9, 27], dtype=np.uint8)
    for i in range(rows.n_rows(indptr, values)):
        items, row = rows.row(indptr, indices, values, i)
        for k in range(row.size):
            if row[k] >= 0:
                j = rows.item(items, k)
                patterns[i, j // 4] += power[j % 4] * np.uint8(row[k] + 1)


def prepare(data: Layout) -> Persons:
    """Lay out persons for :func:`draw_counts`; the same for either layout of the data."""
    n, m = data.shape
    number, first = sets_of(data)
    size = np.bincount(number, minlength=first.size)
    large = np.flatnonzero(size >= _LEAST_SHARED)
    place = np.full(first.size, -1, dtype=np.int64)
    place[large] = np.arange(large.size)
    of = place[number]
    shared = np.flatnonzero(of >= 0)
    shared = shared[np.argsort(of[shared], kind="stable")]
    bits = np.zeros((shared.size, -(-m // 8)), dtype=np.uint8)
    _pack(*rows.arrays(layouts.take(data, shared)), bits)
    observed = layouts.to_dense(layouts.take(data, first[large])).values >= 0
    left = np.flatnonzero(of < 0)
    mixed, others = (left, left[:0]) if m <= _MOST_MIXED else (left[:0], left)
    patterns = np.zeros((mixed.size, 4 * -(-m // (4 * _TOGETHER))), dtype=np.uint8)
    _code(*rows.arrays(layouts.take(data, mixed)), patterns)
    rest = layouts.take(data, others)
    return Persons(
        n, m, shared, np.cumsum(size[large]), observed, bits, mixed, patterns, others, rest
    )


# --- shared sets of items -------------------------------------------------------------------------


@jit
def _draw_class(
    growth: Floats,
    u: Floats,
    who: Ints,
    n: int,
    ratio: Floats,
    first: int,
    last: int,
    work: Floats,
    k: Ints,
    node: Ints,
) -> None:
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
def _ranges(log_total: Floats, nodes: Floats, width: float, first: Ints, last: Ints) -> None:
    """Nodes that matter for a class of t, which is ``width`` wide: those of its two ends."""
    for c in range(first.size):
        for end in range(2):
            t = (c + end) * width
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
def _draw_shared(
    bits: Bytes,
    scores: Floats,
    growths: Floats,
    ratio: Floats,
    width: float,
    first: Ints,
    last: Ints,
    u: Floats,
    shared: Ints,
    work: Floats,
    node: Ints,
) -> None:
    """Draw for the persons of one set: gather those of each class of t until there are 32."""
    n_classes, lanes = first.size, work.shape[1]
    growth, uniform = np.ones((n_classes, lanes)), np.zeros((n_classes, lanes))
    who = np.zeros((n_classes, lanes), dtype=np.int64)
    waiting, k = np.zeros(n_classes, dtype=np.int64), np.zeros(lanes, dtype=np.int64)
    for i in range(bits.shape[0]):
        t = 0.0
        g = 1.0
        for b in range(bits.shape[1]):
            t += scores[b, bits[i, b]]
            g *= growths[b, bits[i, b]]
        c = min(int(t / width), n_classes - 1)
        at = waiting[c]
        growth[c, at] = g
        uniform[c, at] = u[shared[i]]
        who[c, at] = i
        waiting[c] = at + 1
        if at == lanes - 1:
            _draw_class(
                growth[c], uniform[c], who[c], lanes, ratio, first[c], last[c], work, k, node
            )
            waiting[c] = 0
    for c in range(n_classes):
        if waiting[c] > 0:
            n = waiting[c]
            _draw_class(growth[c], uniform[c], who[c], n, ratio, first[c], last[c], work, k, node)


@jit
def _odds(a: Floats, d: Floats, nodes: Floats, out: Floats) -> None:
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
    odds: Floats, observed: NDArray[np.bool_], a: Floats, d: Floats, nodes: Floats, out: Floats
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
            if a[j] * nodes[-1] + d[j] > _CERTAIN:
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
def _draw_sets(
    bits: Bytes,
    shared: Ints,
    stop: Ints,
    observed: NDArray[np.bool_],
    a: Floats,
    d: Floats,
    nodes: Floats,
    odds: Floats,
    u: Floats,
    lanes: int,
    node: Ints,
) -> None:
    h = nodes[1] - nodes[0]
    scores = np.empty((bits.shape[1], 256))
    _byte_sums(a, scores)
    growths = np.exp(scores * h)
    work = np.empty((nodes.size + 3, lanes))
    total = np.empty(nodes.size)
    ratio = np.empty(nodes.size - 1)
    begin = 0
    for s in range(stop.size):
        _log_total(odds, observed[s], a, d, nodes, total)
        for q in range(nodes.size - 1):
            ratio[q] = math.exp(total[q + 1] - total[q])
        most = 1e-300
        for j in range(a.size):
            if observed[s, j]:
                most += a[j] * (1.0 + 1e-9)
        n_classes = max(1, min((stop[s] - begin) // _PER_CLASS, _MOST_CLASSES))
        n_classes = max(n_classes, math.ceil(most * (nodes[-1] - nodes[0]) / _GROWTH))
        first, last = np.empty(n_classes, dtype=np.int64), np.empty(n_classes, dtype=np.int64)
        width = most / n_classes
        _ranges(total, nodes, width, first, last)
        _draw_shared(
            bits[begin : stop[s]], scores, growths, ratio, width, first, last, u,
            shared[begin : stop[s]], work, node[begin : stop[s]],
        )  # fmt: skip
        begin = stop[s]


# --- mixed persons --------------------------------------------------------------------------------


@jit
def _tabulate(right: Floats, wrong: Floats, table: Floats) -> None:
    """Likelihoods of the responses to four items at each node, (groups, 81, nodes)."""
    for g in range(table.shape[0]):
        table[g, 0] = 1.0
        known = 1
        for j in range(4 * g, min(4 * g + 4, right.shape[0])):
            for s in range(known):
                for q in range(right.shape[1]):
                    table[g, known + s, q] = table[g, s, q] * wrong[j, q]
                    table[g, 2 * known + s, q] = table[g, s, q] * right[j, q]
            known *= 3


@jit
def _draw_mixed(patterns: Bytes, table: Floats, u: Floats, mixed: Ints, node: Ints) -> None:
    """Draw for persons one by one; -1 where all weights are so small that they may be cut off.

    All nodes are treated alike: loops over whole rows of the table are what vector registers do
    best, and looking for the nodes that matter costs as much as it saves.
    """
    n_nodes = table.shape[2]
    weight, part = np.empty(n_nodes), np.empty(n_nodes // 8)
    for i in range(patterns.shape[0]):
        code = patterns[i]
        for g in range(0, code.size, 4):
            one, two = table[g, code[g]], table[g + 1, code[g + 1]]
            three, four = table[g + 2, code[g + 2]], table[g + 3, code[g + 3]]
            if g == 0:
                for q in range(n_nodes):
                    weight[q] = (one[q] * two[q]) * (three[q] * four[q])
            else:
                for q in range(n_nodes):
                    weight[q] *= (one[q] * two[q]) * (three[q] * four[q])
            if g % _SCALED == _SCALED - 4:
                top = 0.0
                for q in range(n_nodes):
                    top = max(top, weight[q])
                scale = 1.0 / top if top > _TINY else 0.0
                for q in range(n_nodes):
                    weight[q] *= scale
        total = 0.0
        for k in range(part.size):
            b = 8 * k
            part[k] = ((weight[b] + weight[b + 1]) + (weight[b + 2] + weight[b + 3])) + (
                (weight[b + 4] + weight[b + 5]) + (weight[b + 6] + weight[b + 7])
            )
            total += part[k]
        if not total > _TINY:
            node[i] = -1
            continue
        target = u[mixed[i]] * total
        running = 0.0
        k = 0
        while k < part.size - 1 and running + part[k] < target:
            running += part[k]
            k += 1
        q = 8 * k
        running += weight[q]
        node[i] = q
        while running < target and q < n_nodes - 1:
            q += 1
            running += weight[q]
            if weight[q] > 0.0:  # sums in another order may end just below the target
                node[i] = q


def _mixed_nodes(p: Persons, a: Floats, d: Floats, odds: Floats, nodes: Floats, u: Floats) -> Ints:
    """Nodes of the mixed persons, in their order."""
    node = np.empty(p.mixed.size, dtype=np.int64)
    n_nodes = 16 * -(-nodes.size // 16)  # filled up with nodes that nobody can be at
    prior = np.zeros(n_nodes)
    prior[: nodes.size] = np.exp(-0.5 * nodes**2)
    right, wrong = np.ones((2, len(odds), n_nodes))
    wrong[:, : nodes.size] = 1.0 / (1.0 + odds)
    right[:, : nodes.size] = odds * wrong[:, : nodes.size]
    table = np.empty((p.patterns.shape[1], _PATTERNS, n_nodes))
    _tabulate(right, wrong, table)
    table[0] *= prior
    _draw_mixed(p.patterns, table, u, p.mixed, node)
    left = np.flatnonzero(node < 0)
    if left.size:  # responses that contradict each other, to steep items: by logarithms
        digit = (p.patterns[left, :, None] // 3 ** np.arange(_TOGETHER)) % 3
        values = digit.reshape(left.size, -1)[:, : a.size].astype(np.int8) - np.int8(1)
        tables = linear_tables.tables(a, d, nodes)
        node[left] = moments.draw(layouts.Dense(values), tables, u[p.mixed[left]])
    return node


# --- counts ---------------------------------------------------------------------------------------


@jit
def _add_up(codes: Bytes, node: Ints, place: Ints, words: NDArray[np.uint64], out: Ints) -> None:
    """Add the eight bytes of each code's word up by node: (nodes, codes of a person, 8)."""
    sums = np.zeros((out.shape[0], codes.shape[1]), dtype=np.uint64)
    added = np.zeros(out.shape[0], dtype=np.int64)
    for i in range(codes.shape[0]):
        q = place[node[i]]
        for b in range(codes.shape[1]):
            sums[q, b] += words[codes[i, b]]
        added[q] += 1
        if added[q] == 255:
            _spill(sums[q], out[q])
            added[q] = 0
    for q in range(out.shape[0]):
        _spill(sums[q], out[q])


@jit
def _spill(sums: NDArray[np.uint64], out: Ints) -> None:
    for b in range(sums.size):
        for k in range(8):
            out[b, k] += np.int64((sums[b] >> np.uint64(8 * k)) & np.uint64(255))
        sums[b] = np.uint64(0)


def _words_of_bits() -> NDArray[np.uint64]:
    """Bit k of a byte, as byte k of a word."""
    set_bits = (np.arange(256, dtype=np.uint64)[:, None] >> np.arange(8, dtype=np.uint64)) & 1
    return (set_bits << (8 * np.arange(8, dtype=np.uint64))).sum(axis=1, dtype=np.uint64)


def _words_of_patterns() -> NDArray[np.uint64]:
    """Responses to four items: bytes 0 to 3 of a word right, bytes 4 to 7 observed."""
    digit = (np.arange(_PATTERNS)[:, None] // 3 ** np.arange(_TOGETHER)) % 3
    both = np.concatenate([digit == 2, digit > 0], axis=1).astype(np.uint64)
    return (both << (8 * np.arange(8, dtype=np.uint64))).sum(axis=1, dtype=np.uint64)


_BITS, _FOURS = _words_of_bits(), _words_of_patterns()


def draw_counts(
    p: Persons, a: Floats, d: Floats, nodes: Floats, u: Floats
) -> tuple[Ints, Ints, Ints, Ints]:
    """Draw every ability from its posterior on the nodes and count responses by node and item.

    ``u`` are uniforms, one a person: the draw is the first node at which the distribution function
    is not below it.  Only nodes with persons are kept: returns them, ascending, right and observed
    responses there, shape (nodes kept, n_items), and persons, shape (n_nodes,).
    """
    n_nodes, m = nodes.size, p.n_items
    odds = np.empty((m, n_nodes))
    if p.shared.size or p.mixed.size:
        _odds(a, d, nodes, odds)
    shared = np.empty(p.shared.size, dtype=np.int64)
    _draw_sets(p.bits, p.shared, p.stop, p.observed, a, d, nodes, odds, u, _LANES, shared)
    mixed = _mixed_nodes(p, a, d, odds, nodes, u) if p.mixed.size else p.mixed
    others = p.others
    if others.size:
        others = moments.draw(p.data, linear_tables.tables(a, d, nodes), u[p.others])
    persons = np.zeros(n_nodes, dtype=np.int64)
    for node in (shared, mixed, others):
        persons += np.bincount(node, minlength=n_nodes)
    kept = np.flatnonzero(persons)
    place = np.empty(n_nodes, dtype=np.int64)
    place[kept] = np.arange(kept.size)
    right, seen = np.zeros((2, kept.size, m), dtype=np.int64)
    if shared.size:
        out = np.zeros((kept.size, p.bits.shape[1], 8), dtype=np.int64)
        _add_up(p.bits, shared, place, _BITS, out)
        right += out.reshape(kept.size, -1)[:, :m]
        begin = 0
        for stop, observed in zip(p.stop, p.observed, strict=True):
            here = np.bincount(shared[begin:stop], minlength=n_nodes)[kept]
            seen += here[:, None] * observed
            begin = stop
    if mixed.size:
        out = np.zeros((kept.size, p.patterns.shape[1], 8), dtype=np.int64)
        _add_up(p.patterns, mixed, place, _FOURS, out)
        right += out[:, :, :_TOGETHER].reshape(kept.size, -1)[:, :m]
        seen += out[:, :, _TOGETHER:].reshape(kept.size, -1)[:, :m]
    if others.size:
        moments.add_node_counts(p.data, place[others], right, seen)
    return kept, right, seen, persons
