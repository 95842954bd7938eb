"""Questions that stand for others with similar curves: k-means, and the nearest to each middle."""

from __future__ import annotations

import numpy as np

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.curves.item_set import ItemSet
from irt_dask.kernels.base import keyed_random
from irt_dask.selection.expected import nodes_of, parts

#: Components of curves that distances are made of; rounds of k-means at most.
_COMPONENTS, _ROUNDS = 6, 30
#: Distances that are held at a time.
_ROOM = 1 << 22


def features(bank: ItemSet, weights: Floats) -> Floats:
    """Principal components of expected scores, (items, components).

    Their distances are those of what two questions add to the total, on average over abilities.
    """
    nodes, mass = nodes_of(bank)
    root = np.sqrt(mass)
    top = (bank.n_categories - 1).astype(float)
    mean, square = np.zeros(nodes.size), np.zeros((nodes.size, nodes.size))

    def curves(at: Ints) -> Floats:
        share = bank.take(at).expected(nodes) / top[at][:, None]
        return np.asarray(share * weights[at][:, None] * root)

    for at in parts(bank.n_items):
        x = curves(at)
        mean += x.sum(axis=0)
        square += x.T @ x
    mean /= bank.n_items
    vectors = np.linalg.eigh(square / bank.n_items - np.outer(mean, mean))[1]
    axes = vectors[:, ::-1][:, :_COMPONENTS]
    return np.concatenate([(curves(at) - mean) @ axes for at in parts(bank.n_items)])


def _nearest(x: Floats, middles: Floats) -> tuple[Ints, Floats]:
    """Nearest middle of each row, and its squared distance."""
    out, far = np.empty(len(x), dtype=np.int64), np.empty(len(x))
    norm = (middles**2).sum(axis=1)
    step = max(1, _ROOM // len(middles))
    for k in range(0, len(x), step):
        some = x[k : k + step]
        apart = norm - 2.0 * (some @ middles.T)
        out[k : k + step] = apart.argmin(axis=1)
        far[k : k + step] = apart.min(axis=1) + (some**2).sum(axis=1)
    return out, np.maximum(far, 0.0)


def _started(x: Floats, n: int, u: Floats) -> Floats:
    """Rows far from each other: each with the chance of its squared distance (k-means++)."""
    middles = np.empty((n, x.shape[1]))
    j = min(int(u[0] * len(x)), len(x) - 1)
    far = np.full(len(x), np.inf)
    for k in range(n):
        if k > 0:
            sums = far.cumsum()
            j = min(int(np.searchsorted(sums, u[k] * sums[-1], side="right")), len(x) - 1)
        middles[k] = x[j]
        far = np.minimum(far, ((x - x[j]) ** 2).sum(axis=1))
    return middles


def _middles(x: Floats, n: int, u: Floats) -> Floats:
    """Middles of n clusters, by Lloyd's rounds; one that nobody is near stays where it is."""
    middles, last = _started(x, n, u), None
    for _ in range(_ROUNDS):
        at, _far = _nearest(x, middles)
        if last is not None and (at == last).all():
            break
        count = np.bincount(at, minlength=n)
        for c in range(x.shape[1]):
            sums = np.bincount(at, x[:, c], minlength=n)
            np.divide(sums, count, out=middles[:, c], where=count > 0)
        last = at
    return middles


def _representatives(x: Floats, middles: Floats) -> Ints:
    """The row nearest to each middle, each at most once; for middles without one, rows far away."""
    at, far = _nearest(x, middles)
    order = np.lexsort((np.arange(len(x)), far, at))
    _, first = np.unique(at[order], return_index=True)
    found = list(order[first])
    while len(found) < len(middles):  # equal questions share a middle
        _, away = _nearest(x, x[found])
        away[found] = -1.0
        found.append(int(away.argmax()))
    return np.array(found, dtype=np.int64)


def chosen(bank: ItemSet, weights: Floats, block: Ints, quota: Ints, seed: int) -> Bools:
    """Questions nearest to the middles of clusters, ``quota`` of each block."""
    x = features(bank, weights)
    out = np.zeros(bank.n_items, dtype=bool)
    for h, n in enumerate(quota):
        own = np.flatnonzero(block == h)
        u = keyed_random.uniforms(keyed_random.key(seed, "clusters", h), 0, int(n))[:, 0]
        out[own[_representatives(x[own], _middles(x[own], int(n), u))]] = True
    return out
