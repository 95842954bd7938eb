"""Draws of the abilities of many persons, and the counts of responses that a Gibbs sweep needs.

Right and observed responses are counted by adding up bytes, eight at a time in one 64-bit word.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from irt_dask.arrays import Bytes, Floats, Ints, Words
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.gibbs.mixed_draws import draw_nodes, mixed_nodes
from irt_dask.kernels.gibbs.person_layout import PATTERNS, TOGETHER, Persons, digits
from irt_dask.kernels.gibbs.shared_draws import odds_at, shared_nodes
from irt_dask.kernels.responses import rows


@jit
def _node_counts(
    indptr: Any, indices: Any, values: Any, node: Ints, right: Ints, seen: Ints
) -> None:
    for i in range(rows.n_rows(indptr, values)):
        q = node[i]
        items, row = rows.row(indptr, indices, values, i)
        for k in range(row.size):
            j = rows.item(items, k)
            right[q, j] += row[k] == 1
            seen[q, j] += row[k] >= 0


@jit
def _add_up(codes: Bytes, node: Ints, place: Ints, words: Words, out: Ints) -> None:
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
def _spill(sums: Words, out: Ints) -> None:
    for b in range(sums.size):
        for k in range(8):
            out[b, k] += np.int64((sums[b] >> np.uint64(8 * k)) & np.uint64(255))
        sums[b] = np.uint64(0)


def _words_of_bits() -> Words:
    """Bit k of a byte, as byte k of a word."""
    set_bits = (np.arange(256, dtype=np.uint64)[:, None] >> np.arange(8, dtype=np.uint64)) & 1
    return (set_bits << (8 * np.arange(8, dtype=np.uint64))).sum(axis=1, dtype=np.uint64)


def _words_of_patterns() -> Words:
    """Responses to four items: bytes 0 to 3 of a word right, bytes 4 to 7 observed."""
    digit = digits(np.arange(PATTERNS))
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
        odds_at(a, d, nodes, odds)
    shared = shared_nodes(p, a, d, nodes, odds, u)
    mixed = mixed_nodes(p, a, d, nodes, odds, u) if p.mixed.size else p.mixed
    others = p.others
    if others.size:
        others = draw_nodes(p.data, a, d, nodes, u[p.others])
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
        right += out[:, :, :TOGETHER].reshape(kept.size, -1)[:, :m]
        seen += out[:, :, TOGETHER:].reshape(kept.size, -1)[:, :m]
    if others.size:
        _node_counts(*rows.arrays(p.data), place[others], right, seen)
    return kept, right, seen, persons
