"""Expected variance of a total, given the questions that are asked, and its greedy minimum.

Given ability theta the total has mean G(theta), and answers not asked for the variances v_i(theta);
with the questions S ability is known to about ``1 / (1 + I_S(theta))``, I_S their information and 1
the precision of N(0, 1).  So the variance left is on average

    E [ G'^2 / (1 + I_S) + sum of v_i, i not in S ],

a decreasing function of S with decreasing gains: 1 / (1 + I) is convex in the sum I, and the last
term is a sum.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine.memory import refuse_beyond_memory
from irt_dask.selection.questions import points_of

#: Abilities are averaged from -FAR to FAR, at least and at most so many nodes.
_FAR, _LEAST, _MOST = 5.0, 41, 401
#: Questions whose curves are tabulated, or gains computed anew, at a time.
_TOGETHER, _ANEW = 1024, 256


@dataclass(frozen=True)
class Table:
    """What questions say of ability, and of the total."""

    mass: Floats  # of abilities, (nodes,)
    slope: Floats  # of the expected total, (nodes,)
    information: Floats  # (items, nodes)
    noise: Floats  # expected variance of each answer, (items,)

    def gain(self, at: Ints, known: Floats) -> Floats:
        """By how much the variance falls if one of these is asked too; ``known`` is 1 + I."""
        of_nodes = self.mass * self.slope**2 / known
        more = self.information[at]
        return np.asarray((of_nodes * (more / (known + more))).sum(axis=1) + self.noise[at])


def nodes_of(bank: ItemSet) -> tuple[Floats, Floats]:
    """Abilities that are averaged over, and their masses."""
    n = math.ceil(2.0 * _FAR * bank.steepest) + 1
    nodes = np.linspace(-_FAR, _FAR, min(max(n, _LEAST), _MOST))
    mass = np.exp(-0.5 * nodes**2)
    return nodes, mass / mass.sum()


def parts(n: int) -> Iterator[Ints]:
    """Yield ranges of questions."""
    return (np.arange(k, min(k + _TOGETHER, n)) for k in range(0, n, _TOGETHER))


def table(bank: ItemSet, weights: Floats) -> Table:
    """Tables of all questions."""
    nodes, mass = nodes_of(bank)
    refuse_beyond_memory(
        8.0 * nodes.size * bank.n_items,
        f"curves of {bank.n_items} items at {nodes.size} nodes",
    )
    slope, information = np.zeros(nodes.size), np.empty((bank.n_items, nodes.size))
    noise = np.empty(bank.n_items)
    for at in parts(bank.n_items):
        own = bank.take(at)
        information[at] = own.information(nodes)
        p, points = np.exp(own.log_p(nodes)), points_of(own, weights[at])[:, None]
        p[own.empty] = 0.0
        first = np.where(own.empty[:, None], 0.0, own.by_ability(nodes)[0])
        slope += (p * points * first).sum(axis=0)
        mean = np.add.reduceat(p * points, own.first[:-1], axis=0)
        square = np.add.reduceat(p * points**2, own.first[:-1], axis=0)
        noise[at] = (np.maximum(square - mean**2, 0.0) * mass).sum(axis=1)
    return Table(mass, slope, information, noise)


def variance_left(bank: ItemSet, weights: Floats, selected: Bools) -> float:
    """Expected variance of the total, in squared points, if these are asked."""
    t = table(bank, weights)
    known = 1.0 + t.information[selected].sum(axis=0)
    return float((t.mass * t.slope**2 / known).sum() + t.noise[~selected].sum())


def greedy(bank: ItemSet, weights: Floats, block: Ints, quota: Ints) -> Bools:
    """Questions that lower it most, one after the other, ``quota`` of each block."""
    t, n = table(bank, weights), bank.n_items
    selected, left = np.zeros(n, dtype=bool), quota.copy()
    known = np.ones(t.mass.size)
    gain = np.concatenate([t.gain(at, known) for at in parts(n)])
    fresh = np.full(n, 0)  # the round in which the gain was found; earlier ones are too large
    for k in range(int(quota.sum())):
        j = int(gain.argmax())
        while fresh[j] < k:
            some = np.argpartition(gain, max(n - _ANEW, 0))[-_ANEW:]
            some = some[(fresh[some] < k) & np.isfinite(gain[some])]
            gain[some], fresh[some] = t.gain(some, known), k
            j = int(gain.argmax())
        selected[j], gain[j] = True, -np.inf
        known += t.information[j]
        left[block[j]] -= 1
        if left[block[j]] == 0:
            gain[block == block[j]] = -np.inf
    return selected
