"""The item step: parameters of highest likelihood, or posterior density, at counts by ability.

Projected Fisher scoring, for all items at once and any model: steps solve for the expected
information of those parameters that are not at a bound, and are halved, item by item, until the
objective does not fall.  Items that are not there after some steps, as little is known of them, go
on by Newton steps where the objective is concave.  Parameters that items share are found with all
of them (their own are eliminated first), and then all items take the same share of a step.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.items.densities import ItemDensity
from irt_dask.items.derivatives import Counts, Derivatives, derivatives, values
from irt_dask.kernels.joint import item_maximum

#: Added to each parameter's information, as a share: steps in directions that say nothing are 0.
_RIDGE = 1e-10
#: The longest step of a parameter, and how often it is halved.
_LONGEST, _HALVINGS = 2.0, 40
#: A step below which values no longer tell whether it leads up.
_CERTAIN = 1e-5
#: Steps after which scoring is slow, and the difference from which second derivatives are found.
_SCORING, _DIFFERENCE = 4, 1e-6
#: Least eigenvalue of these, in units of the expected information, with which they are relied on.
_CONCAVE = 1e-8


@dataclass(frozen=True)
class Problem:
    """What is maximised: ``low`` and ``high`` bound the parameters, (parameters, items).

    Equal bounds hold a parameter.  Parameters with the same number ``of_all``, from 0, have one
    value; -1 are items' own.
    """

    counts: Sequence[Counts]
    low: Floats
    high: Floats
    prior: ItemDensity
    of_all: Ints  # (parameters, items)

    @functools.cached_property
    def shares(self) -> bool:
        """Whether items share parameters."""
        return bool((self.of_all >= 0).any())

    @functools.cached_property
    def _informed(self) -> bool:
        return self.prior.informative

    def at(self, x: Floats, kept: Bools) -> Derivatives:
        """Objective and derivatives of the items that are kept; 0 for the others."""
        d = derivatives([c.take(kept) for c in self.counts], x)
        if self._informed:
            d.value[:] += self.prior.log_density(x)
            d.gradient[:] += self.prior.gradient(x)
            d.information[:] += self.prior.information(x, upwards=True)
        return d

    def value(self, x: Floats, kept: Bools) -> Floats:
        """Objective of the items that are kept."""
        of_data = values([c.take(kept) for c in self.counts], x)
        return of_data + self.prior.log_density(x)


def maximise(
    problem: Problem, start: Floats, *, steps: int = 200, precision: float = 1e-10
) -> Floats:
    """Parameters (parameters, items) after so many steps from ``start``.

    Fewer where one is shorter than ``precision``.  The objective of no item (with shared
    parameters: their sum) is lower than at ``start``.
    """
    x = np.clip(start, problem.low, problem.high)
    going = np.ones(x.shape[1], dtype=bool)
    d = problem.at(x, going)
    for k in range(steps):
        if k >= _SCORING and not problem.shares:
            _bend(problem, x, d, going)
        step = np.where(going, _step(problem, x, d), 0.0)
        longest = np.abs(step).max(axis=0)
        if problem.shares:
            longest[:] = longest.max()
        size = np.minimum(1.0, _LONGEST / np.maximum(longest, _LONGEST))
        left = going & (longest > 0.0)
        for _ in range(_HALVINGS):
            if not left.any():
                break
            new = np.clip(x + size * step, problem.low, problem.high)
            certain = longest * size < _CERTAIN
            if k == steps - 1 and certain[left].all():
                return np.where(left, new, x)
            there = problem.at(new, left)
            taken = left & (certain | _rises(problem, d.value, there.value))
            taken &= np.isfinite(there.value)  # graded: steps may not change their order
            x = np.where(taken, new, x)
            for mine, its in zip(
                (d.value, d.gradient.T, d.information),
                (there.value, there.gradient.T, there.information),
                strict=True,
            ):
                mine[taken] = its[taken]
            left = left & ~taken
            size = np.where(left, 0.5 * size, size)
        going &= (longest >= precision) & ~left
        if not going.any():
            break
    return x


def likeliest(problem: Problem, start: Floats, *, steps: int, precision: float) -> Floats:
    """As :func:`maximise`, by compiled steps for log odds ``a theta + d`` that are free.

    These go to the end: ``steps`` and ``precision`` are for others.  Where persons are few they
    save a tenth of a marginal fit, with a density of slopes and intercepts a third.
    """
    low, high = problem.low, problem.high
    alike = bool((low == low[:, :1]).all() and (high == high[:, :1]).all())
    log_odds = all(c.model.log_odds for c in problem.counts)
    if not log_odds or problem.shares or not alike or problem.prior.betas.informative:
        return maximise(problem, start, steps=steps, precision=precision)
    box, common = item_maximum.Box(low[:, 0], high[:, 0]), problem.prior.common
    start = np.clip(start, low, high)
    out = start.copy()
    for c in problem.counts:
        right = c.higher[:, 0]
        sums = item_maximum.Counts(c.nodes, c.seen, right.sum(axis=1), right @ c.nodes, right[:0])
        prior = item_maximum.FLAT if common is None else common.take(c.items).normal
        out[:, c.items] = item_maximum.maximise(sums, start[:, c.items], box, prior)
    return out


def _rises(problem: Problem, before: Floats, after: Floats) -> Bools:
    """Items whose objective (with shared parameters: the sum) is no lower."""
    if problem.shares:
        return np.full(before.size, after.sum() >= before.sum())
    return after >= before


def _bend(problem: Problem, x: Floats, d: Derivatives, kept: Bools) -> None:
    """Replace the expected information of items by the observed where that is positive definite."""
    found = np.empty_like(d.information)
    for k in range(len(x)):
        moved = x.copy()
        moved[k] += np.where(x[k] + _DIFFERENCE < problem.high[k], _DIFFERENCE, -_DIFFERENCE)
        found[:, k] = ((d.gradient - problem.at(moved, kept).gradient) / (moved[k] - x[k])).T
    found = 0.5 * (found + found.transpose(0, 2, 1))
    fixed = (problem.low >= problem.high).T
    size = np.sqrt(np.diagonal(d.information, axis1=1, axis2=2))
    size = np.where(fixed | (size == 0.0), 1.0, size)
    tried = found / (size[:, :, None] * size[:, None, :])
    tried[fixed[:, :, None] | fixed[:, None, :]] = 0.0
    tried[:, np.arange(len(x)), np.arange(len(x))] += fixed
    kept = kept & np.isfinite(tried).all(axis=(1, 2))
    kept[kept] = np.linalg.eigvalsh(tried[kept])[:, 0] > _CONCAVE
    d.information[kept] = found[kept]


def _step(problem: Problem, x: Floats, d: Derivatives) -> Floats:
    """Scoring step from x; 0 for what is held, or at a bound and led outwards."""
    of_all, way = problem.of_all, d.gradient.copy()
    if problem.shares:
        common = of_all >= 0
        way[common] = np.bincount(of_all[common], way[common])[of_all[common]]
    held, lowest, highest = problem.low == problem.high, x <= problem.low, x >= problem.high
    for attempt in range(len(x) + 1):
        led = (lowest & (way < 0.0)) | (highest & (way > 0.0))
        if attempt and not (led & ~held).any():
            break
        held |= led
        way = _solved(d, held, of_all)
    return way


def _solved(d: Derivatives, held: Bools, of_all: Ints) -> Floats:
    """Solve for the parameters that are not held: those that are shared last."""
    size = len(held)
    free, common = ~held.T, (of_all >= 0).T
    of_each = np.diagonal(d.information, axis1=1, axis2=2)
    system = np.where(free[:, :, None] & free[:, None, :], d.information, 0.0)
    right = np.where(free, d.gradient.T, 0.0)
    diagonal = np.arange(size)
    nothing = ~common & (of_each == 0.0)  # nobody answered: no step
    system[:, diagonal, diagonal] += np.where(free, _RIDGE * of_each + nothing, 1.0)
    if not common.any():
        return np.asarray(np.linalg.solve(system, right[:, :, None])[:, :, 0].T)
    return with_shared(system, right, common, of_all.T).T


def with_shared(system: Floats, right: Floats, common: Bools, of_all: Ints) -> Floats:
    """Solve (items, parameters) where those in ``common`` have one value for all of a number."""
    size, n = right.shape[1], int(of_all.max()) + 1
    own = ~common
    inner = np.where(own[:, :, None] & own[:, None, :], system, 0.0)
    inner[:, np.arange(size), np.arange(size)] += common
    across = np.where(own[:, :, None] & common[:, None, :], system, 0.0)
    both = np.concatenate([np.where(own, right, 0.0)[:, :, None], across], axis=2)
    solved = np.linalg.solve(inner, both)
    back = across.transpose(0, 2, 1)
    place = np.where(common, of_all, n)  # the last place is nobody's
    matrix, vector = np.zeros((n + 1, n + 1)), np.zeros(n + 1)
    kept = common[:, :, None] & common[:, None, :]
    left = np.where(kept, system - back @ solved[:, :, 1:], 0.0)
    np.add.at(matrix, (place[:, :, None], place[:, None, :]), left)
    np.add.at(vector, place, np.where(common, right - (back @ solved[:, :, :1])[:, :, 0], 0.0))
    matrix[n, n] = 1.0
    value = np.linalg.solve(matrix, vector)[place]
    rest = solved[:, :, 0] - (solved[:, :, 1:] @ np.where(common, value, 0.0)[:, :, None])[:, :, 0]
    return np.where(common, value, rest)
