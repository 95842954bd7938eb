"""How many answers to an item are right, of persons whose chances are known: tails and shifts.

Persons are counted by classes of their chances, in which the memory that this takes does not grow
with them.  Of several attempts at an item those of a person are alike: a count is beta-binomial.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit, ndtr

from irt_dask.arrays import Floats, Ints

#: Logits of predictions are told apart between these ends; correlations of attempts.
_END = 12.0
_ALIKE: Floats = np.append(0.0, np.geomspace(0.001, 0.6, 15))
#: Attempts at an item up to whose number tails are exact; beyond, sums are normal up to skewness.
_EXACT = 300
#: Nodes over the error of an item.
_NODES = 11
#: Numbers that are held at a time while tails are added up.
_CELLS = 1 << 22


class Classes(NamedTuple):
    """Classes of predictions: logits of their chances, and correlations of attempts."""

    logits: Floats
    alike: Floats
    #: Bounds between correlations, and how many classes of logits there are for each.
    bounds: Floats
    n: int

    @classmethod
    def of(cls, attempts: Ints) -> Classes:
        """Fine ones for items of one attempt; coarser ones, by correlation, where some have more.

        512 or 2048 of them.
        """
        n, alike, bounds = 512, np.zeros(1), np.zeros(0)
        if attempts.max() > 1:
            n, alike = 128, _ALIKE
            bounds = np.append(0.5 * alike[1], np.sqrt(alike[1:-1] * alike[2:]))
        logits = (np.arange(n) + 0.5) * (2.0 * _END / n) - _END
        return cls(np.tile(logits, alike.size), np.repeat(alike, n), bounds, n)

    def place(self, chance: Floats, alike: Floats) -> Ints:
        """Number of the class of each prediction."""
        with np.errstate(divide="ignore"):
            at = (logit(np.clip(chance, 0.0, 1.0)) + _END) * (self.n / (2.0 * _END))
        which = np.searchsorted(self.bounds, alike)
        return np.asarray(np.clip(at, 0, self.n - 1).astype(np.int64) + which * self.n)


class Counted(NamedTuple):
    """Predictions by item and class, right attempts, attempts of a person, and the classes."""

    counts: Ints
    right: Ints
    attempts: Ints
    classes: Classes


def tails(c: Counted, se: Floats) -> Floats:
    """Two-sided mid-p values of numbers right, averaged over normal errors of the logits."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    weights = weights / weights.sum()
    logits, alike = c.classes.logits, c.classes.alike
    n = c.counts.sum(axis=1) * c.attempts
    out = np.empty(n.size)
    small = n <= _EXACT
    for j in np.flatnonzero(small):
        times = c.counts[j]
        chances = expit(np.repeat(logits, times)[:, None] + se[j] * nodes)  # (persons, nodes)
        mass = weights @ sum_of(count_mass(chances, np.repeat(alike, times), int(c.attempts[j])))
        k = int(c.right[j])
        below = float(mass[:k].sum() + 0.5 * mass[k])
        out[j] = min(1.0, 2.0 * min(below, 1.0 - below))
    large = np.flatnonzero(~small)
    step = max(1, _CELLS // (logits.size * _NODES))
    for lo in range(0, large.size, step):
        some = large[lo : lo + step]
        p = expit(logits + (se[some, None] * nodes)[:, :, None])  # (items, nodes, classes)
        many, at = c.attempts[some, None, None], c.counts[some, None, :]
        one = many * p * (1.0 - p) * (1.0 + (many - 1) * alike)
        mean, variance = (at * (many * p)).sum(-1), (at * one).sum(-1)
        lean = (1.0 + (2 * many - 1) * alike) / (1.0 + alike)  # of the beta-binomial
        third = (at * one * (1.0 - 2.0 * p) * lean).sum(-1)
        z = (c.right[some, None] - mean) / np.sqrt(variance)
        skew = third / variance**1.5
        density = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
        below = np.clip(ndtr(z) + skew * (1.0 - z**2) * density / 6.0, 0.0, 1.0) @ weights
        out[some] = np.minimum(1.0, 2.0 * np.minimum(below, 1.0 - below))
    return out


def count_mass(chances: Floats, alike: Floats, n: int) -> Floats:
    """Mass of 0 to n right attempts, (persons, n + 1, columns), of chances (persons, columns).

    Beta-binomial of these means, with each person's correlation of attempts, by its urn: after i
    right and j wrong the next is right with the chance ``(p (1 - r) + i r) / (1 + (i + j - 1) r)``.
    """
    p, r = chances, alike[:, None]
    mass = np.zeros((len(p), n + 1, p.shape[1]))
    mass[:, 0] = 1.0
    for drawn in range(n):
        before, mass = mass, np.zeros_like(mass)
        for i in range(drawn + 1):
            again = p
            if drawn:
                again = np.clip((p * (1.0 - r) + i * r) / (1.0 + (drawn - 1) * r), 0.0, 1.0)
            mass[:, i] += before[:, i] * (1.0 - again)
            mass[:, i + 1] += before[:, i] * again
    return mass


def sum_of(each: Floats) -> Floats:
    """Mass of the sum of independent counts (persons, n + 1, columns): (columns, sums)."""
    persons, values, width = each.shape
    mass = np.zeros((width, persons * (values - 1) + 1))
    mass[:, 0] = 1.0
    for i, own in enumerate(each):
        end = i * (values - 1) + 1
        before, mass[:, :end] = mass[:, :end].copy(), 0.0
        for k in range(values):
            mass[:, k : k + end] += before * own[k][:, None]
    return mass


def shifts(c: Counted) -> tuple[Floats, Floats]:
    """Shift of all logits that makes the expected number right the observed one, and its error.

    Half a response more on either side, so that it is finite.
    """
    counts, n = c.counts, c.counts.sum(axis=1)
    logits, alike = c.classes.logits, c.classes.alike
    shift, of_one = np.zeros(n.size), c.attempts[:, None]
    goal = (c.right + 0.5) / (n * c.attempts + 1.0) * n
    low, high = np.full((2, n.size), np.array([[-2.0 * _END], [2.0 * _END]]))
    for _ in range(60):
        p = expit(logits + shift[:, None])
        above = (counts * p).sum(axis=1) > goal
        high, low = np.where(above, shift, high), np.where(above, low, shift)
        shift = 0.5 * (low + high)
    p = expit(logits + shift[:, None])
    one = counts * p * (1.0 - p)
    slope = (one * of_one).sum(axis=1)
    variance = (one * of_one * (1.0 + (of_one - 1) * alike)).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return shift, np.where(slope > 0.0, np.sqrt(variance) / slope, np.inf)
