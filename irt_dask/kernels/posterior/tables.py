"""Tables of items on a grid of ability, of three kinds, and what a person's responses add up to.

- :class:`ScoreTables` where log P = s theta + c - log Z(theta) for every category of every item
  (partial credit): a person's responses enter through ``t = sum s``; the sum of -log Z is the same
  for all who answered the same items.
- :class:`LinearTables` for the same of items with two categories (the 2PL), a bit a response.
- :class:`CategoryTables` for any items: the lowest category's log P of all items that were answered
  is the same for these persons, and each higher response adds a row.

Either way a log-likelihood is (a sum over the items that were answered) plus (what the responses
add), in this order: whether the first is made for a person or taken from a table of
:class:`Shared` sums does not change a bit.

On a grid of many nodes (a long test, whose posteriors are narrow) linear tables are not kept by
node: sums are found around the mode alone, for some neighbouring nodes at a time.  e^z of
neighbours comes from one exponential and powers of e^{a h}, and the logarithm is taken of the
product of 1 + e^z over many items.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.curves.item_set import ItemSet
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.base.lanes import LANES
from irt_dask.kernels.responses.right_sums import byte_table

#: Linear tables of more nodes than this are evaluated around the mode only.
FINE = 256
#: Nodes that are evaluated together there.
CHUNK = 16
#: ``1 + e^z`` above this is not multiplied in; products are kept below its square.
_LARGE = 1e140


class LinearTables(NamedTuple):
    """What depends on the items and the grid but on no person."""

    slope: Floats  # score of a right answer, (items,)
    constant: Floats  # c of a right answer
    nodes: Floats
    total: Floats  # sum of -log Z over all items, (nodes,)
    base: Floats  # -log Z, (items, nodes); empty for many nodes
    eight: Floats  # sums of slopes and constants by bytes of eight responses
    #: For many nodes: e^z and a P at the first node of each chunk, (chunks, items + 1), and
    #: e^{a h k}, k < CHUNK, (items + 1, CHUNK).  The last item adds nothing: it fills up a list.
    origin: Floats
    rise: Floats
    power: Floats
    largest: Floats  # the largest of an item's powers, (items + 1,)

    @property
    def nbytes(self) -> int:
        """Memory held, bytes."""
        return sum(x.nbytes for x in self)


class ScoreTables(NamedTuple):
    """As :class:`LinearTables`; the higher categories of item j are rows from ``first[j]``."""

    first: Ints  # (items + 1,)
    score: Floats  # s less that of the lowest category, (rows,)
    constant: Floats  # c less that of the lowest category
    nodes: Floats
    total: Floats  # log P of the lowest categories of all items
    base: Floats  # the same of each item, (items, nodes)

    @property
    def nbytes(self) -> int:
        """Memory held, bytes."""
        return sum(x.nbytes for x in self)


class CategoryTables(NamedTuple):
    """As :class:`ScoreTables`; ``gain`` has the higher categories of item j from ``first[j]``."""

    first: Ints  # (items + 1,)
    gain: Floats  # log P less that of the lowest category, (rows, nodes)
    nodes: Floats
    total: Floats  # log P of the lowest categories of all items
    base: Floats  # the same of each item, (items, nodes)

    @property
    def nbytes(self) -> int:
        """Memory held, bytes."""
        return sum(x.nbytes for x in self)


Tables = LinearTables | ScoreTables | CategoryTables


def padded(nodes: Floats) -> Floats:
    """Nodes further on, up to a multiple of LANES."""
    more = -nodes.size % LANES
    h = nodes[1] - nodes[0]
    return np.concatenate([nodes, nodes[-1] + h * np.arange(1, more + 1)])


def tables(items: ItemSet, nodes: Floats) -> Tables:
    """Tables of items on equally spaced nodes, a multiple of LANES."""
    linear = items.scores
    if linear is not None and not items.of_two:
        return _by_score(items, nodes, *linear)
    if linear is None:
        log_p, first = items.log_p(nodes), items.first
        higher = np.delete(np.arange(first[-1]), first[:-1])
        base, gain = log_p[first[:-1]], log_p[higher]
        del log_p  # the largest array there is
        of = np.repeat(np.arange(items.n_items), items.n_categories - 1)
        for k in range(0, of.size, CHUNK):
            gain[k : k + CHUNK] -= base[of[k : k + CHUNK]]
        total = np.zeros(nodes.size)
        add_rows(np.arange(items.n_items), items.n_items, base, total)
        return CategoryTables(first - np.arange(items.n_items + 1), gain, nodes, total, base)
    slope, constant = (np.ascontiguousarray(x[1::2]) for x in linear)
    none, total = np.empty((0, 0)), np.zeros(nodes.size)
    eight = byte_table(np.stack([slope, constant], axis=1))
    if nodes.size <= FINE:
        base = np.ascontiguousarray(items.log_p(nodes)[::2])
        add_rows(np.arange(items.n_items), items.n_items, base, total)
        return LinearTables(
            slope, constant, nodes, total, base, eight, none, none, none, np.empty(0)
        )
    a, d = np.append(slope, 0.0), np.append(constant, -np.inf)
    with np.errstate(over="ignore"):  # an infinite e^z has a path of its own
        origin = np.exp(np.multiply.outer(nodes[::CHUNK], a) + d)
    power = np.exp(np.multiply.outer(a, np.arange(CHUNK) * (nodes[1] - nodes[0])))
    fine = LinearTables(
        slope, constant, nodes, total, none, eight, origin, a - a / (1.0 + origin), power,
        np.maximum(power[:, 0], power[:, -1]),
    )  # fmt: skip
    add_chunks(np.arange(a.size - 1 + -(a.size - 1) % 4).clip(max=a.size - 1), fine, total)
    return fine


def tables_by_category(items: ItemSet, nodes: Floats) -> ScoreTables | CategoryTables:
    """The same for loops over categories, which know nothing of two."""
    linear = items.scores if items.of_two else None
    if linear is not None:
        return _by_score(items, nodes, *linear)
    g = tables(items, nodes)
    assert not isinstance(g, LinearTables)
    return g


def _by_score(items: ItemSet, nodes: Floats, score: Floats, constant: Floats) -> ScoreTables:
    first, total = items.first, np.zeros(nodes.size)
    higher = np.delete(np.arange(first[-1]), first[:-1])
    lowest = np.repeat(first[:-1], items.n_categories - 1)
    base = np.ascontiguousarray(items.log_p(nodes)[first[:-1]])
    add_rows(np.arange(items.n_items), items.n_items, base, total)
    return ScoreTables(
        first - np.arange(items.n_items + 1), score[higher] - score[lowest],
        constant[higher] - constant[lowest], nodes, total, base,
    )  # fmt: skip


# --- sums over the items that a person answered ---------------------------------------------------


@jit
def add_rows(index: Ints, n: int, table: Floats, out: Floats) -> None:
    """Add rows ``index[:n]`` of a table, four at a time."""
    k = 0
    while k + 4 <= n:
        r0, r1 = table[index[k]], table[index[k + 1]]
        r2, r3 = table[index[k + 2]], table[index[k + 3]]
        for q in range(out.size):
            out[q] += (r0[q] + r1[q]) + (r2[q] + r3[q])
        k += 4
    while k < n:
        row = table[index[k]]
        for q in range(out.size):
            out[q] += row[q]
        k += 1


@jit
def _flush(product: Floats, start: int, out: Floats) -> None:
    """Subtract the logarithms of the products and start them anew."""
    for i in range(CHUNK):
        if start + i < out.size:
            out[start + i] -= math.log(product[i])
    product[:] = 1.0


@jit
def add_chunk(index: Ints, g: Any, c: int, out: Floats) -> None:
    """Subtract the sum of log(1 + e^z) over the items ``index`` at the nodes of chunk c.

    Four items at a time, so that their products need not wait for each other.
    """
    start = c * CHUNK
    origin, power, most = g.origin[c], g.power, g.largest
    product = np.ones(CHUNK)
    largest = 1.0
    for k in range(0, index.size, 4):
        j0, j1, j2, j3 = index[k], index[k + 1], index[k + 2], index[k + 3]
        e0, e1, e2, e3 = origin[j0], origin[j1], origin[j2], origin[j3]
        top = ((1.0 + e0 * most[j0]) * (1.0 + e1 * most[j1])) * (
            (1.0 + e2 * most[j2]) * (1.0 + e3 * most[j3])
        )
        if not top < _LARGE:
            for j in index[k : k + 4]:
                if j < g.slope.size:
                    for q in range(start, min(start + CHUNK, g.nodes.size)):
                        z = g.slope[j] * g.nodes[q] + g.constant[j]
                        out[q] -= max(z, 0.0) + math.log1p(math.exp(-abs(z)))
            continue
        if largest > _LARGE:
            _flush(product, start, out)
            largest = 1.0
        largest *= top
        for i in range(CHUNK):
            product[i] *= ((1.0 + e0 * power[j0, i]) * (1.0 + e1 * power[j1, i])) * (
                (1.0 + e2 * power[j2, i]) * (1.0 + e3 * power[j3, i])
            )
    _flush(product, start, out)


@jit
def add_chunks(index: Ints, g: Any, out: Floats) -> None:
    """Add the rows of all chunks of a person."""
    for c in range(g.origin.shape[0]):
        add_chunk(index, g, c, out)
