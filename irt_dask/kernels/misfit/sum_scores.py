"""Distribution of the number right given ability, of all items and of all but one."""

from __future__ import annotations

import numpy as np

from irt_dask.arrays import Floats
from irt_dask.kernels.base.compiled import jit


@jit
def number_right(p: Floats) -> Floats:
    """Probability of each number right at each node, (items + 1, nodes) (Lord and Wingersky 1984).

    ``p`` is P(right), (items, nodes).
    """
    m, n = p.shape
    f = np.zeros((m + 1, n))
    f[0] = 1.0
    for j in range(m):
        for s in range(j + 1, 0, -1):
            for q in range(n):
                f[s, q] = f[s, q] * (1.0 - p[j, q]) + f[s - 1, q] * p[j, q]
        for q in range(n):
            f[0, q] *= 1.0 - p[j, q]
    return f


@jit
def without(f: Floats, p: Floats) -> Floats:
    """The same without an item of P(right) ``p``, (items, nodes).

    Solves ``f[s] = g[s] (1 - p) + g[s - 1] p``, from below where p is at most a half and from above
    elsewhere: errors then shrink on the way.
    """
    m, n = f.shape[0] - 1, f.shape[1]
    g = np.empty((m, n))
    for q in range(n):
        if p[q] <= 0.5:
            before = 0.0
            for s in range(m):
                before = (f[s, q] - before * p[q]) / (1.0 - p[q])
                g[s, q] = max(before, 0.0)
        else:
            after = 0.0
            for s in range(m - 1, -1, -1):
                after = (f[s + 1, q] - after * (1.0 - p[q])) / p[q]
                g[s, q] = max(after, 0.0)
    return g


@jit
def expected_right(p: Floats, weight: Floats) -> Floats:
    """Probability that an item is right given the number right, (items, items + 1).

    ``weight`` are those of the nodes.  Ends are 0 and 1.
    """
    m, n = p.shape
    f = number_right(p)
    out = np.zeros((m, m + 1))
    for j in range(m):
        g = without(f, p[j])
        for s in range(m + 1):
            right = 0.0
            wrong = 0.0
            for q in range(n):
                if s > 0:
                    right += weight[q] * p[j, q] * g[s - 1, q]
                if s < m:
                    wrong += weight[q] * (1.0 - p[j, q]) * g[s, q]
            out[j, s] = right / (right + wrong) if right + wrong > 0.0 else np.nan
    return out
