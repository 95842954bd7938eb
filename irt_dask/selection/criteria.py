"""What each question not asked yet would tell, and how its answer is predicted.

With w the posterior masses of abilities theta, p_k(theta) the probability of category k of a
question, P_k = E p_k, and c_k what it adds to the total:

- "information": Fisher information at the posterior mean;
- "ability": by how much the variance of ability falls on average, ``sum_k E[(theta - mean) p_k]^2 /
  P_k`` (the variance of the posterior means over the answers);
- "total": by how much that of the total falls.  With g the expected sum of the questions not asked
  and e that of this one, both less their means, the variance after the answer is ``E (g - e)^2 -
  sum_k E[(g - e) p_k]^2 / P_k`` and what the answers to the others vary given theta;
- "design": the standard deviation of what the answer adds, with which probabilities go.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from irt_dask.arrays import Floats
from irt_dask.selection.bank_tables import END, EVERY, FINE, FIRST, NODES, SPACING
from irt_dask.selection.one_person import Person

CRITERIA = ("ability", "information", "total", "design")
#: How far from the posterior mean nodes count, in SDs, and how many there are in an SD.
_SDS, _IN_SD = 6.0, 2.0
#: Share of a posterior that may lie beyond the table.
_BEYOND = 1e-6
#: Rows of tables that are multiplied at a time; probabilities below this say nothing.
_AT_ONCE, _NOTHING = 1 << 13, 1e-12


class Told(NamedTuple):
    """Of every question, asked or not, (items,)."""

    gain: Floats
    #: Expectation and variance of what the answer adds to the total.
    predicted: Floats
    spread: Floats
    #: Variance of what all questions not asked add together.
    rest_variance: float


class Window(NamedTuple):
    """Nodes that matter for a person."""

    nodes: slice  # of NODES
    mass: Floats
    ability: Floats  # less its mean
    rest: Floats  # expected total of the questions not asked, less its mean
    noise: float  # variance of it given ability, on average
    mean: float


def window(person: Person) -> Window:
    """Nodes within 6 SDs of the posterior mean, at least two in an SD.

    They are those of the table, unless some of the posterior lies beyond it.
    """
    w = person.weights()
    mean = float(w @ FINE)
    sd = float(np.sqrt(w @ (FINE - mean) ** 2))
    stride = max(1, int(sd / _IN_SD / SPACING))
    lo = int(np.searchsorted(NODES, mean - _SDS * sd))
    hi = int(np.searchsorted(NODES, mean + _SDS * sd, side="right"))
    inside = w[EVERY][FIRST:END].sum() > (1.0 - _BEYOND) * w[EVERY].sum()
    least, most = (FIRST, END) if inside else (0, NODES.size)
    lo, hi = min(max(lo, least), most - 3), max(min(hi, most), least + 3)
    nodes = slice(lo, hi, stride)
    mass = w[EVERY][nodes]
    mass = mass / mass.sum()
    expected, variance = (x[EVERY][nodes] for x in person.rest())
    ability = NODES[nodes]
    return Window(
        nodes, mass, ability - mass @ ability, expected - mass @ expected, float(mass @ variance),
        mean,
    )  # fmt: skip


def tell(person: Person, criterion: str, predicted: bool) -> Told:
    """What all questions tell a person; predictions of answers where they are asked for."""
    bank = person.bank
    at = window(person)
    none = np.zeros(0)
    if criterion == "information":
        gain = bank.items.information(np.array([at.mean]))[:, 0]
        if not predicted:
            return Told(gain, none, none, 0.0)
    found = _products(person, at, criterion)
    if criterion == "information":
        found = found._replace(gain=gain)
    return found


def _products(person: Person, at: Window, criterion: str) -> Told:
    """By products of the table and posterior masses, some rows at a time."""
    table = person.bank.table()
    n, n_rows = table.first.size, table.points.size
    ends = np.append(table.first, n_rows)
    total = criterion == "total"
    rows = [at.mass]
    if criterion == "ability":
        rows.append(at.mass * at.ability)
    if total:
        rows.append(at.mass * at.rest)
    left = np.stack(rows)
    inner = slice(at.nodes.start - FIRST, at.nodes.stop - FIRST, at.nodes.step)
    tabled = at.nodes.start >= FIRST and at.nodes.stop <= END
    gain, mean, spread = np.zeros((3, n))
    lo = 0
    while lo < n:
        hi = int(np.searchsorted(ends, ends[lo] + _AT_ONCE, side="right")) - 1
        hi = min(max(hi, lo + 1), n)
        part = slice(ends[lo], ends[hi])
        p = table.p[inner, part] if tabled else person.bank.upper(lo, hi, NODES[at.nodes])
        own = _Part(left @ p, table.points[part], table.first[lo:hi] - ends[lo], p, at)
        mean[lo:hi], spread[lo:hi] = own.predicted()
        if total:
            gain[lo:hi] = own.of_total()
        elif criterion == "ability":
            gain[lo:hi] = own.of_ability()
        lo = hi
    if criterion == "design":
        gain = np.sqrt(spread)
    variance = at.noise + float(at.mass @ at.rest**2)
    return Told(gain, mean, spread, variance)


class _Part:
    """Some questions: products (1 or 2, rows) of masses with their probabilities."""

    def __init__(
        self, products: Floats, points: Floats, first: Floats, p: Floats, at: Window
    ) -> None:
        self.chance, self.along = products[0], products[-1]
        self.points, self.first, self.p, self.at = points, first.astype(np.int64), p, at
        self.binary = first.size == points.size

    def sums(self, x: Floats) -> Floats:
        """Sums over the categories of each question, on the last axis."""
        return x if self.binary else np.add.reduceat(x, self.first, axis=-1)

    def predicted(self) -> tuple[Floats, Floats]:
        """Mean and variance of what the answers add."""
        mean = self.sums(self.points * self.chance)
        square = self.sums(self.points**2 * self.chance)
        return mean, np.maximum(square - mean**2, 0.0)

    def between(self, along: Floats) -> Floats:
        """Sum over categories of along^2 / P; those of the first category are minus the others'."""
        lowest = np.maximum(1.0 - self.sums(self.chance), 0.0)
        here = np.zeros_like(along)
        np.divide(along**2, self.chance, out=here, where=self.chance > _NOTHING)
        rest = self.sums(along)
        first = np.zeros_like(rest)
        np.divide(rest**2, lowest, out=first, where=lowest > _NOTHING)
        return np.asarray(self.sums(here) + first)

    def of_ability(self) -> Floats:
        """Fall of the variance of ability."""
        return self.between(self.along)

    def of_total(self) -> Floats:
        """Fall of the variance of the total."""
        mean = self.sums(self.points * self.chance)
        if self.binary:
            own = self.points * (self.at.mass @ self.p**2)  # E e p_k
            square = self.points * own  # E e^2
        else:
            each = np.diff(np.append(self.first, self.points.size))
            e = self.sums(self.p * self.points)
            own = self.at.mass @ (np.repeat(e, each, axis=1) * self.p)
            square = self.at.mass @ e**2
        means = mean if self.binary else np.repeat(mean, each)
        along = self.along - own + means * self.chance
        shared = self.sums(self.points * self.along)  # E g e
        noise = self.sums(self.points**2 * self.chance) - square
        return np.asarray(2.0 * shared - (square - mean**2) + self.between(along) + noise)
