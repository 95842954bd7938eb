"""Sums over persons of responses and scores, by item and by block of items, as whole numbers.

All of them are sums of products of two whole numbers at most, exact in int64 while the number of
persons times the square of the highest score stays below 2^63.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from irt_dask.arrays import Ints
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.kernels.responses.rows import item, n_rows

#: Sums of an item of two categories, of one of more, and of a block.
OF_TWO, OF_MORE, OF_BLOCK = 4, 5, 3


@jit
def _of_items(
    indptr: Any, indices: Any, values: Any, sx: Ints, st: Ints, stt: Ints, sxt: Ints, sxx: Ints,
    score: Ints,
) -> None:  # fmt: skip
    for i in range(n_rows(indptr, values)):
        items, row = rows.row(indptr, indices, values, i)
        t = 0
        for k in range(row.size):
            t += max(row[k], 0)
        score[i] = t
        for k in range(row.size):  # without branches: several items at a time
            j = item(items, k)
            seen = -np.int64(row[k] >= 0)  # all bits, or none
            x = row[k] & seen
            sx[j] += x
            st[j] += t & seen
            stt[j] += (t * t) & seen
            sxt[j] += x * t
        if sxx.size > 0:
            for k in range(row.size):
                x = max(row[k], 0)
                sxx[item(items, k)] += x * x


def of_items(data: Layout, sums: Ints) -> Ints:
    """Add a block's sums of each item to ``sums``; return the scores of its persons.

    Over the persons who answered the item, with x their response to it and t the sum of all their
    responses, ``sums`` (4, items) has the sums of x, t, t^2 and x t, and (5, items) those of x^2
    too, which of two categories are the first.
    """
    score = np.empty(data.shape[0], dtype=np.int64)
    squares = sums[4] if len(sums) == OF_MORE else np.empty(0, dtype=np.int64)
    _of_items(*rows.arrays(data), *sums[:4], squares, score)
    return score


@jit
def _of_blocks(indptr: Any, indices: Any, values: Any, block: Ints, sums: Ints) -> None:
    n_blocks = sums.shape[1]
    met, score = np.zeros(n_blocks, dtype=np.bool_), np.zeros(n_blocks, dtype=np.int64)
    which = np.empty(n_blocks, dtype=np.int64)  # blocks that the person has met, in this order
    for i in range(n_rows(indptr, values)):
        items, row = rows.row(indptr, indices, values, i)
        n = 0
        for k in range(row.size):
            if row[k] >= 0:
                b = block[item(items, k)]
                score[b] += row[k]
                if not met[b]:
                    met[b] = True
                    which[n] = b
                    n += 1
        for k in range(n):
            b = which[k]
            sums[0, b] += 1
            sums[1, b] += score[b]
            sums[2, b] += score[b] * score[b]
            met[b], score[b] = False, 0


def of_blocks(data: Layout, block: Ints, sums: Ints) -> None:
    """Add a block of persons to ``sums`` (3, blocks of items); ``block`` (items,) are theirs.

    Over the persons who answered one of the block's items at least: how many, the sums of their
    scores on the block, and of these squared.
    """
    _of_blocks(*rows.arrays(data), block, sums)
