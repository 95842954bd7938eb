"""Draws of the abilities of persons one by one.

A weight on a node is a product of likelihoods; those of four items together have 81 values at each
node (right, wrong and missing), which are tabulated.  With more than 128 items, and where products
underflow, :func:`draw_nodes`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from irt_dask.arrays import Bytes, Floats, Ints
from irt_dask.curves.item_set import ItemSet
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.base.lanes import total
from irt_dask.kernels.gibbs.person_layout import PATTERNS, Persons, digits
from irt_dask.kernels.posterior import person_weights, tables
from irt_dask.kernels.posterior.person_weights import EVERYBODY, Prior, Shared, Some, gather, weigh
from irt_dask.kernels.responses import layouts, rows
from irt_dask.kernels.responses.layouts import Layout

#: A product of likelihoods below this may hold one that was cut off at e^-300, or underflow.
_TINY = 1e-120
#: Groups of items after which products are scaled anew.
_SCALED = 16


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


def mixed_nodes(p: Persons, a: Floats, d: Floats, nodes: Floats, odds: Floats, u: Floats) -> Ints:
    """Nodes of the mixed persons, in their order."""
    node = np.empty(p.mixed.size, dtype=np.int64)
    n_nodes = 16 * -(-nodes.size // 16)  # filled up with nodes that nobody can be at
    prior = np.zeros(n_nodes)
    prior[: nodes.size] = np.exp(-0.5 * nodes**2)
    right, wrong = np.ones((2, len(odds), n_nodes))
    wrong[:, : nodes.size] = 1.0 / (1.0 + odds)
    right[:, : nodes.size] = odds * wrong[:, : nodes.size]
    table = np.zeros((p.patterns.shape[1], PATTERNS, n_nodes))  # of the last items some are unused
    _tabulate(right, wrong, table)
    table[0] *= prior
    _draw_mixed(p.patterns, table, u, p.mixed, node)
    left = np.flatnonzero(node < 0)
    if left.size:  # responses that contradict each other, to steep items: by logarithms
        digit = digits(p.patterns[left]).reshape(left.size, -1)[:, : a.size]
        values = digit.astype(np.int8) - np.int8(1)
        node[left] = draw_nodes(layouts.Dense(values), a, d, nodes, u[p.mixed[left]])
    return node


# --- any persons ----------------------------------------------------------------------------------


@jit
def _draw(
    indptr: Any, indices: Any, values: Any, g: Any, s: Shared, p: Prior, c: Some, u: Floats,
    node: Ints,
) -> None:  # fmt: skip
    for begin in range(0, rows.n_rows(indptr, values), c.n.size):
        count = gather(indptr, indices, values, g, s, p, EVERYBODY, begin, c)
        weigh(c, count)
        for r in range(count):
            i, q, last = c.person[r], c.lo[r], c.hi[r] - 1
            target = u[i] * total(c.w[r, q : last + 1])
            running = c.w[r, q]
            while running < target and q < last:
                q += 1
                running += c.w[r, q]
            while c.w[r, q] == 0.0:  # sums in another order may end just below the target
                q -= 1
            node[i] = q


def draw_nodes(data: Layout, a: Floats, d: Floats, nodes: Floats, u: Floats) -> Ints:
    """Draw the nodes of abilities from their posteriors under N(0, 1)."""
    more = tables.padded(nodes)
    g = tables.tables(ItemSet.of("2pl", a, d), more)
    log_mass = person_weights.normal(more)
    log_mass[:, nodes.size :] = -np.inf
    p = person_weights.prior(log_mass)
    node = np.empty(data.shape[0], dtype=np.int64)
    room = person_weights.some(*data.shape, more.size)
    _draw(*rows.arrays(data), g, person_weights.alone(node.size), p, room, u, node)
    return node
