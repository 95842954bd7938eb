"""Expected variance of a total, given the questions that are asked, and its greedy minimum.

Given ability theta the total has mean G(theta), and answers not asked for the variances v_i(theta).
Questions that are chosen for one ability alone are the steepest, and say nothing of a person who
gets more right of everything than that ability explains.  So a shift delta of all logits, from
N(0, SHIFT^2), is unknown too: with M the covariance of (theta, delta) given the answers to S, near
the inverse of their information and the prior's, the variance left is on average over theta

    E [ g' M g + sum of v_i, i not in S ],    g = (dG / dtheta, dG / ddelta).

An answer has the information b b' / v, with b the derivatives of its expected score by theta and
delta and v its variance, so that M after one more answer is M - M b b' M / (v + b' M b).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine.memory import refuse_beyond_memory

#: Standard deviation of a shift of all logits that one ability does not explain.
SHIFT = 0.6
#: Information below this is none.
_NOTHING = 1e-200
#: Abilities are averaged from -FAR to FAR, at least and at most so many nodes.
_FAR, _LEAST, _MOST = 5.0, 41, 401
#: Questions whose curves are tabulated, or gains computed anew, at a time; those tried first.
_TOGETHER, _FIRST = 1024, 64


@dataclass(frozen=True)
class Table:
    """What questions say of ability and shift, and of the total."""

    mass: Floats  # of abilities, (nodes,)
    slope: Floats  # g, of the expected total, (2, nodes)
    rise: Floats  # derivative of each expected score by ability, (items, nodes)
    spread: Floats  # variance of each score, which is its derivative by the shift, (items, nodes)
    noise: Floats  # expected variance of what each answer adds to the total, (items,)

    def gain(self, at: Ints, m: Floats) -> Floats:
        """By how much the variance falls if one of these is asked too; ``m`` is M, (3, nodes)."""
        h = _times(m, self.slope)
        rise, spread = self.rise[at], self.spread[at]
        along = rise * h[0]
        along += spread * h[1]
        known = rise * m[0]
        known += 2.0 * m[1] * spread
        known *= rise
        known += spread * (1.0 + m[2] * spread)
        np.divide(along * along, known, out=known, where=known > _NOTHING)
        return np.asarray((known * self.mass).sum(axis=1) + self.noise[at])

    def after(self, j: int, m: Floats) -> Floats:
        """M with one more answer."""
        b = np.stack([self.rise[j], self.spread[j]])
        c = _times(m, b)
        known = self.spread[j] + (b * c).sum(axis=0)
        less = np.stack([c[0] * c[0], c[0] * c[1], c[1] * c[1]])
        np.divide(less, known, out=less, where=known > _NOTHING)
        return np.asarray(m - less)

    @property
    def before(self) -> Floats:
        """M without answers."""
        one = np.ones(self.mass.size)
        return np.stack([one, 0.0 * one, SHIFT**2 * one])


def _times(m: Floats, x: Floats) -> Floats:
    """Product of symmetric 2 x 2 matrices, (3, nodes), and vectors, (2, nodes)."""
    return np.stack([m[0] * x[0] + m[1] * x[1], m[1] * x[0] + m[2] * x[1]])


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
        16.0 * nodes.size * bank.n_items, f"curves of {bank.n_items} items at {nodes.size} nodes"
    )
    rise, spread = np.empty((2, bank.n_items, nodes.size))
    slope, noise = np.zeros((2, nodes.size)), np.empty(bank.n_items)
    for at in parts(bank.n_items):
        own = bank.take(at)
        code = np.arange(own.first[-1]) - np.repeat(own.first[:-1], own.n_categories)
        score, first = code[:, None].astype(float), own.first[:-1]
        p = np.exp(own.log_p(nodes))
        p[own.empty] = 0.0
        change = np.where(own.empty[:, None], 0.0, own.by_ability(nodes)[0])
        rise[at] = np.add.reduceat(p * score * change, first, axis=0)
        mean = np.add.reduceat(p * score, first, axis=0)
        square = np.add.reduceat(p * score**2, first, axis=0)
        spread[at] = np.maximum(square - mean**2, 0.0)
        each = weights[at] / (own.n_categories - 1)
        slope += np.stack([(each[:, None] * x[at]).sum(axis=0) for x in (rise, spread)])
        noise[at] = each**2 * (spread[at] * mass).sum(axis=1)
    return Table(mass, slope, rise, spread, noise)


def variance_left(bank: ItemSet, weights: Floats, selected: Bools) -> float:
    """Expected variance of the total, in squared points, if these are asked."""
    t = table(bank, weights)
    m = t.before
    for j in np.flatnonzero(selected):
        m = t.after(int(j), m)
    return float((t.mass * (t.slope * _times(m, t.slope)).sum(axis=0)).sum()) + float(
        t.noise[~selected].sum()
    )


def greedy(bank: ItemSet, weights: Floats, block: Ints, quota: Ints) -> Bools:
    """Questions that lower it most, one after the other, ``quota`` of each block.

    A gain of an earlier round is taken for a bound of that now: gains fall, but for rare pairs of
    questions that say more together.
    """
    t, n = table(bank, weights), bank.n_items
    selected, left = np.zeros(n, dtype=bool), quota.copy()
    m = t.before
    gain = np.concatenate([t.gain(at, m) for at in parts(n)])
    fresh = np.full(n, -1)  # the round in which the gain was found
    for k in range(int(quota.sum())):
        some = np.argpartition(gain, max(n - _FIRST, 0))[-_FIRST:]
        some = some[np.isfinite(gain[some])]
        gain[some], fresh[some] = t.gain(some, m), k
        best = gain[some].max()
        rest = np.flatnonzero((gain > best) & (fresh < k))
        for lo in range(0, rest.size, _TOGETHER):
            some = rest[lo : lo + _TOGETHER]
            gain[some], fresh[some] = t.gain(some, m), k
        j = int(gain.argmax())
        selected[j], gain[j] = True, -np.inf
        m = t.after(j, m)
        left[block[j]] -= 1
        if left[block[j]] == 0:
            gain[block == block[j]] = -np.inf
    return selected
