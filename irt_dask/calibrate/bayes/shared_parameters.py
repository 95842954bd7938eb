"""Coordinates that items share: one slope (1PL, PCM, rating scale), steps (rating scale).

They are kept for each item, alike; what is said of them before the data counts once, for the first
item that has them (:attr:`irt_dask.items.mixture.Mixture.once`), so that sums over items are right.
A sweep draws the items' own coordinates with those that are shared held, then the latter.
"""

from __future__ import annotations

import copy
import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.calibrate.bayes import item_step
from irt_dask.calibrate.bayes.hierarchy import WORDS_MOVE, Hierarchy, stretch
from irt_dask.calibrate.bayes.item_density import Conditional, Shapes
from irt_dask.calibrate.bayes.item_moves import (
    Abilities,
    FixedMoves,
    LearnedMoves,
    Moves,
    moves_for,
)
from irt_dask.calibrate.bayes.item_step import Reference
from irt_dask.calibrate.bayes.scored_moves import ScoredMoves
from irt_dask.calibrate.bayes.signed_hierarchy import along_slopes
from irt_dask.curves.coordinates import Density, nothing
from irt_dask.curves.priors import ItemPrior
from irt_dask.items.maximum import with_shared
from irt_dask.items.mixture import Mixture

#: Shared coordinates that are drawn in one piece; where there are more, the slope, then steps.
_TOGETHER = 8
#: A step of this squared length, in posterior standard deviations, is the last.
_NEAR, _MOST_STEPS, _HALVINGS, _LONGEST = 0.3, 60, 30, 2.0
#: Uniforms that make a normal a t of twice as many degrees of freedom, and one to accept.
_CHI_SQUARE, _WORDS = 3, 4


@dataclass(frozen=True)
class Held(Conditional):
    """The density of items' own coordinates, those that they share held at ``now``."""

    now: Floats

    @functools.cached_property
    def _held(self) -> Bools:
        return np.asarray(self.shapes.models.of_all >= 0)

    @property
    def free(self) -> Bools:
        """See :class:`Conditional`."""
        return np.asarray(self.shapes.free & ~self._held)

    def placed(self, y: Floats) -> Floats:
        """See :class:`Conditional`."""
        return np.where(self._held, self.now, y)

    def hold(self, y: Floats, density: Density) -> None:
        """See :class:`Conditional`: about y where what is held lies elsewhere, to second order."""
        held = self._held.T
        away = np.where(held, (self.now - y).T, 0.0)
        density.gradient[:] -= (density.information @ away[:, :, None])[:, :, 0].T
        density.gradient[held.T] = 0.0
        density.information[held[:, :, None] | held[:, None, :]] = 0.0
        diagonal = np.arange(len(y))
        density.information[:, diagonal, diagonal] += held

    def at(self, y: Floats) -> Density:
        """See :class:`Conditional`."""
        out = super().at(y)
        self.hold(y, out)
        return out

    def take(self, items: Ints) -> Held:
        """See :class:`Conditional`."""
        some = super().take(items)
        now = self.now[: some.shapes.models.size, items]
        return Held(some.shapes, some.counts, some.common, now)


# --- a step of what is shared ---------------------------------------------------------------------


class Units(NamedTuple):
    """Shared coordinates that are drawn at a time: those of a unit in one piece.

    ``number`` (coordinates, items) is that of each, from 0, -1 of others; ``unit`` that of the unit
    of each of them, ``of_item`` of each item, -1 of items that have none.
    """

    number: Ints
    unit: Ints
    of_item: Ints

    @property
    def n_units(self) -> int:
        """Number of units, which know nothing of each other."""
        return int(self.unit.max()) + 1

    @property
    def words(self) -> int:
        """Uniforms of a step."""
        return self.unit.size + _WORDS * self.n_units


def units(models: Mixture) -> list[Units]:
    """What is drawn one after the other: all that belongs to a slope, or this, then common steps.

    Items that share anything share their slope.
    """
    of_all = models.of_all
    n = int(of_all.max()) + 1
    row, item = np.nonzero(models.once & (of_all >= 0))  # each number once
    number = of_all[row, item]
    first, slope, of_slope = (np.zeros(n, dtype=np.int64) for _ in range(3))
    first[number], slope[number], of_slope[number] = item, of_all[0, item], row == 0
    few = np.bincount(slope, minlength=n)[slope] <= _TOGETHER
    rounds = ((few, slope), (~few & (of_slope > 0), slope), (~few & (of_slope == 0), first))
    return [_units(of_all, of_round, unit) for of_round, unit in rounds if of_round.any()]


def _units(of_all: Ints, of_round: Bools, unit: Ints) -> Units:
    place = np.append(np.where(of_round, np.cumsum(of_round) - 1, -1), -1)
    number, unit = place[of_all], np.unique(unit[of_round], return_inverse=True)[1]
    of_item = np.where(number >= 0, unit[number], -1).max(axis=0)
    return Units(number, unit, of_item)


def words(shapes: Shapes) -> int:
    """Uniforms that :func:`draw_items` uses."""
    models = shapes.models
    more = sum(u.words for u in units(models)) if models.shares else 0
    return models.n_items * item_step.words_per_item(models.size) + more


def n_accepted(models: Mixture) -> int:
    """Steps that :func:`draw_items` counts the acceptance of."""
    return models.n_items + (sum(u.n_units for u in units(models)) if models.shares else 0)


def draw_items(
    density: Conditional, reference: Reference, kept: Ints, u: Floats, y: Floats, accepted: Ints
) -> Floats:
    """Draw all coordinates, in place; about where proposals were.

    See :func:`irt_dask.calibrate.bayes.item_step.metropolis`, which is all where nothing is
    shared.
    """
    models, m = density.shapes.models, y.shape[1]
    if not models.shares:
        return item_step.metropolis(density, reference, kept, u.reshape(m, -1), y, accepted)
    own, rest = np.split(u, [m * item_step.words_per_item(len(y))])
    held = Held(density.shapes, density.counts, density.common, y.copy())
    centre = item_step.metropolis(
        held, reference, kept, own.reshape(m, -1), y, accepted[:m]
    )  # fmt: skip
    information, counted = reference.derivatives(density, kept).information, accepted[m:]
    for one in units(models):
        step = _SharedStep.of(density, reference.y, information, one, y)
        mine, rest = np.split(rest, [one.words])
        taken, at = step.draw(mine, y)
        counted[: one.n_units] += taken
        counted = counted[one.n_units :]
        centre[one.number >= 0] = at[one.number[one.number >= 0]]
    return centre


class _SharedStep(NamedTuple):
    """An independence Metropolis-Hastings step of shared coordinates s.

    The items' own coordinates o lean on them: ``o - D (s - s0)`` is what is held, with D from the
    information at the reference, where s is s0; to second order that is what s knows nothing of.
    The proposal, a t about the mode along s with the information there, is a function of that and
    of the counts alone.
    """

    density: Conditional
    units: Units
    lean: Floats  # (items, coordinates, coordinates): by which all move with those that are shared
    origin: Floats  # where the current items are when s is s0
    now: Floats  # s - s0, currently

    @classmethod
    def of(
        cls, density: Conditional, reference: Floats, information: Floats, these: Units, y: Floats
    ) -> _SharedStep:
        moved = np.asarray(these.number >= 0).T
        free = np.asarray(density.shapes.free & (density.shapes.models.of_all < 0)).T
        own: Bools = free & np.asarray(moved.any(axis=1))[:, None]
        inner = np.where(own[:, :, None] & own[:, None, :], information, 0.0)
        diagonal = np.arange(len(y))
        inner[:, diagonal, diagonal] += ~own
        across = np.where(own[:, :, None] & moved[:, None, :], information, 0.0)
        lean = -np.linalg.solve(inner, across)
        lean[:, diagonal, diagonal] += moved
        now = np.zeros(these.unit.size)
        row, item = np.nonzero(these.number >= 0)
        now[these.number[row, item]] = (y - reference)[row, item]
        out = cls(density, these, lean, y, now)
        return out._replace(origin=out.moved(-now))

    def moved(self, s: Floats) -> Floats:
        """Coordinates of all items after a change of what is shared from ``origin``."""
        by = np.where(self.units.number >= 0, s[self.units.number], 0.0)
        return self.origin + (self.lean @ by.T[:, :, None])[:, :, 0].T

    def _sums(self, of_items: Floats) -> Floats:
        """Sums over the items of each unit."""
        of_item = self.units.of_item
        has = of_item >= 0
        return np.asarray(np.bincount(of_item[has], of_items[has], self.units.n_units), dtype=float)

    def along(self, s: Floats) -> tuple[Floats, Floats, Floats]:
        """Log densities of the units, and gradient and information of all along s."""
        there, number = self.density.at(self.moved(s)), self.units.number
        n = self.units.unit.size
        place = np.where(number >= 0, number, n).T  # the last is nobody's
        back = self.lean.transpose(0, 2, 1)
        gradient, information = np.zeros(n + 1), np.zeros((n + 1, n + 1))
        np.add.at(gradient, place, (back @ there.gradient.T[:, :, None])[:, :, 0])
        inner = back @ there.information @ self.lean
        np.add.at(information, (place[:, :, None], place[:, None, :]), inner)
        return self._sums(there.value), gradient[:n], information[:n, :n]

    def mode(self) -> tuple[Floats, Floats]:
        """The mode along s, or near it, from s0, and the information there."""
        s, unit = np.zeros(self.units.unit.size), self.units.unit
        value, gradient, information = self.along(s)
        for _ in range(_MOST_STEPS):
            step = np.linalg.solve(information, gradient)
            length = np.bincount(unit, step * gradient)
            longest = np.zeros(length.size)
            np.maximum.at(longest, unit, np.abs(step))
            step *= np.minimum(1.0, _LONGEST / longest.clip(_LONGEST))[unit]
            going = length >= _NEAR
            if not going.any():
                return s + step, information
            size = np.ones(length.size) * going
            for _ in range(_HALVINGS):
                there = self.along(s + size[unit] * step)
                worse = ~(there[0] >= value) & (size > 0.0)
                if not worse.any():
                    break
                size = np.where(worse, 0.5 * size, size)
            else:
                break
            s = s + size[unit] * step
            value, gradient, information = there
        return s, information

    def draw(self, u: Floats, y: Floats) -> tuple[Bools, Floats]:
        """Draw s, in place; which units were accepted, and the mode."""
        unit, n = self.units.unit, self.units.n_units
        normals, chi, last = np.split(u, [unit.size, unit.size + _CHI_SQUARE * n])
        mode, information = self.mode()
        root = np.linalg.cholesky(information).T
        df = 2.0 * _CHI_SQUARE
        chi_square = -2.0 * np.log(chi.reshape(n, -1)).sum(axis=1)
        z = ndtri(normals) * np.sqrt(df / chi_square)[unit]
        new = self.moved(mode + np.linalg.solve(root, z))
        exponent = -0.5 * (df + np.bincount(unit))
        log_ratio = exponent * np.log1p(np.bincount(unit, (root @ (self.now - mode)) ** 2) / df)
        log_ratio -= exponent * np.log1p(np.bincount(unit, z**2) / df)
        log_ratio += self._sums(self.density.value(new)) - self._sums(self.density.value(y))
        taken = np.log(last) < log_ratio
        at = (self.units.of_item >= 0) & taken[self.units.of_item]
        y[:, at] = new[:, at]
        y[:] = self.density.shapes.models.tied(y)
        there = self.moved(mode)
        row, item = np.nonzero(self.units.number >= 0)
        centre = np.empty(unit.size)
        centre[self.units.number[row, item]] = there[row, item]
        return taken, centre


# --- modes ----------------------------------------------------------------------------------------


def modes(density: Conditional, start: Floats) -> tuple[Floats, Floats]:
    """Modes of all items, or near them, and the information of their own coordinates there.

    Where nothing is shared, of each item by itself.
    """
    models = density.shapes.models
    if not models.shares:
        return item_step.modes(density, start)
    common = (models.of_all >= 0).T
    y, here = start, density.at(start)
    for _ in range(_MOST_STEPS):
        right = here.gradient.T
        step = with_shared(here.information, right, common, models.of_all.T).T
        length = float((step * here.gradient).sum())
        step *= min(1.0, _LONGEST / max(float(np.abs(step).max()), _LONGEST))
        for k in range(_HALVINGS):
            there = density.at(y + 0.5**k * step)
            if there.value.sum() >= here.value.sum():
                break
        else:
            break
        y, here = y + 0.5**k * step, there
        if length < _NEAR:
            break
    Held(density.shapes, density.counts, density.common, y).hold(y, here)
    return y, here.information


# --- moves along scale and place ------------------------------------------------------------------


class CommonSlopeMoves(FixedMoves):
    """Items that are independent before the data but for slopes that some share.

    A slope that is shared has one density, and one Jacobian when it moves with the scale.
    """

    words_after = WORDS_MOVE

    def __init__(self, prior: ItemPrior, power: float, once: Bools) -> None:
        super().__init__(prior, power, once.size)
        self.once = once

    def log_prior(self, log_a: Floats, d: Floats) -> Density:
        """See :class:`FixedMoves`."""
        of_both, of_d = super().log_prior(log_a, d), nothing(np.stack([log_a, d]))
        _, _, mean, precision = self.prior
        of_d.value[:] = -0.5 * precision * (d - mean) ** 2
        of_d.gradient[1], of_d.information[:, 1, 1] = -precision * (d - mean), precision
        return Density(
            np.where(self.once, of_both.value, of_d.value),
            np.where(self.once, of_both.gradient, of_d.gradient),
            np.where(self.once[:, None, None], of_both.information, of_d.information),
        )

    def take(self, items: Ints) -> CommonSlopeMoves:
        """See :class:`FixedMoves`."""
        some = copy.copy(self)
        some.once = self.once[items]
        return some

    def after(self, abilities: Abilities, u: Floats, log_a: Floats, d: Floats) -> None:
        """See :class:`FixedMoves`."""
        n, s1, s2 = abilities.sums()
        mean, precision, mean_d, precision_d = self.prior
        a, z = np.exp(log_a), ndtri(u[:2])
        total = n + precision_d * float(a @ a)
        shift = (s1 - precision_d * float(a @ (d - mean_d))) / total + z[0] / np.sqrt(total)
        d += a * shift
        s2 += n * shift * shift - 2.0 * shift * s1
        each = a[self.once]
        square, towards = precision * float(each @ each), precision * mean * float(each.sum())
        on_orbit = along_slopes(n - each.size, s2, 0.0, square, towards)
        log_a += stretch(on_orbit, float(z[1]), float(u[2]))


class CommonSlopeLearned(LearnedMoves):
    """The same where mean and covariance are learned: few groups of items, so all in one piece."""

    def log_prior(self, log_a: Floats, d: Floats) -> Density:
        """See :class:`LearnedMoves`."""
        mean, precision, ends, group = self.normals
        each, (limit, further) = precision[group], ends[group].T
        off = np.stack([log_a, d]) - mean.T
        pull = (each @ off.T[:, :, None])[:, :, 0].T
        out = Density(-0.5 * (off * pull).sum(axis=0), -pull, each)
        if further.any():
            beyond = np.sign(off[0]) * np.maximum(np.abs(off[0]) - limit, 0.0)
            out.value[:] -= 0.5 * further * beyond**2
            out.gradient[0] -= further * beyond
            out.information[:, 0, 0] += further * (beyond != 0.0)
        return out


def moves(
    shapes: Shapes, prior: ItemPrior | Hierarchy, power: float, state: dict[str, Any],
    towards: Floats,
) -> Moves:  # fmt: skip
    """As :func:`irt_dask.calibrate.bayes.item_moves.moves_for`, where slopes may be shared.

    Or more than slopes and intercepts moves along the scale of ability.
    """
    models = shapes.models
    if models.shares and isinstance(prior, ItemPrior):
        return CommonSlopeMoves(prior, power, models.once[0])
    if models.shares and isinstance(prior, Hierarchy):
        return CommonSlopeLearned(prior, power, models.n_items, state, towards)
    if shapes.scored:
        assert isinstance(prior, ItemPrior)
        return ScoredMoves(prior, power, shapes, towards)
    return moves_for(prior, power, models.n_items, state, towards)
