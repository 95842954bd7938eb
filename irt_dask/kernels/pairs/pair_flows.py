"""Pairs of items without their matrix: sums over pairs, from each person's responses.

With w1 = right, w0 = wrong, a person's share of the counts Y is w1 w0', so products with Y need two
passes over its responses only: ``(u'Y)_j = sum_l (sum_i u_i w1_li) w0_lj``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from irt_dask.arrays import Bytes, Floats, Words
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.kernels.responses.rows import item, n_rows


@jit
def _totals(
    indptr: Any, indices: Any, values: Any, right: Floats, wrong: Floats, a: Floats, w: Floats
) -> None:
    for i in range(n_rows(indptr, values)):
        items, row = rows.row(indptr, indices, values, i)
        for k in range(row.size):
            if row[k] == 1:
                a[i] += right[item(items, k)]
            elif row[k] == 0:
                w[i] += wrong[item(items, k)]


def totals(data: Layout, right: Floats, wrong: Floats) -> tuple[Floats, Floats]:
    """Each person's sums of ``right`` over the items it has right, of ``wrong`` over the others."""
    a, w = np.zeros((2, data.shape[0]))
    _totals(*rows.arrays(data), right, wrong, a, w)
    return a, w


# --- who is linked --------------------------------------------------------------------------------


@jit
def _support(indptr: Any, indices: Any, values: Any, lo: int, hi: int, out: Any) -> None:
    one = np.uint64(1)
    n_words = out.shape[1]
    mask = np.empty(n_words, dtype=np.uint64)
    for i in range(n_rows(indptr, values)):
        items, row = rows.row(indptr, indices, values, i)
        inside = 0
        observed = 0
        for k in range(row.size):
            if row[k] >= 0:
                observed += 1
                inside += lo <= item(items, k) < hi
        if inside == 0:
            continue
        if observed * inside > (inside + 1) * n_words:  # rather whole rows of bits
            mask[:] = 0
            for k in range(row.size):
                if row[k] >= 0:
                    j = item(items, k)
                    mask[j // 64] |= one << np.uint64(j % 64)
            for k in range(row.size):
                j = item(items, k)
                if row[k] >= 0 and lo <= j < hi:
                    for w in range(n_words):
                        out[j - lo, w] |= mask[w]
            continue
        for k in range(row.size):
            j = item(items, k)
            if row[k] >= 0 and lo <= j < hi:
                for s in range(row.size):
                    if row[s] >= 0:
                        t = item(items, s)
                        out[j - lo, t // 64] |= one << np.uint64(t % 64)


def support(data: Layout, lo: int, hi: int) -> Words:
    """Bits of the items that somebody answered together with item ``lo .. hi``, 64 to a word."""
    out = np.zeros((hi - lo, -(-data.shape[1] // 64)), dtype=np.uint64)
    _support(*rows.arrays(data), lo, hi, out)
    return out


def octets(support: Words) -> Bytes:
    """Return the bits of :func:`support` by eight linked items (rows) and item (columns)."""
    n_bytes = -(-len(support) // 8)
    return np.ascontiguousarray(support.astype("<u8", copy=False).view(np.uint8)[:, :n_bytes].T)


@jit
def _linked_sums(links: Bytes, u: Floats, out: Floats) -> None:
    table = np.empty(256)
    for b in range(links.shape[0]):
        table[0] = 0.0
        for k in range(8):
            x = u[8 * b + k] if 8 * b + k < u.size else 0.0
            for e in range(1 << k):
                table[(1 << k) + e] = table[e] + x
        for j in range(out.size):
            out[j] += table[links[b, j]]


def linked_sums(links: Bytes, u: Floats) -> Floats:
    """Sum ``u`` over the items that each item is linked to (:func:`octets`), itself not."""
    out = np.zeros(u.size)
    _linked_sums(links, u, out)
    j = np.arange(u.size)
    own = (links[j // 8, j] >> (j % 8).astype(np.uint8)) & np.uint8(1)
    return out - own * u
