"""What a sweep of a grid chain does to the items, under the two kinds of priors they can have."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.calibrate.bayes.hierarchy import WORDS_MOVE, Hierarchy
from irt_dask.curves.coordinates import Density, nothing
from irt_dask.curves.priors import ItemPrior
from irt_dask.kernels.gibbs import item_draws, learned_item_draws
from irt_dask.kernels.gibbs.learned_item_draws import ALL_POSITIVE, Normals


class Counts:
    """A sweep's counts: right and seen (nodes kept, items) at nodes, persons at each node."""

    def __init__(self, at: Any, right: Any, seen: Any, persons: Any, nodes: Floats) -> None:
        self.at, self.right, self.seen = at, right, seen
        self.abilities = Abilities(persons, nodes)
        self.nodes = nodes


class Abilities(NamedTuple):
    """Abilities of a sweep: persons at each node."""

    persons: Any
    nodes: Floats

    def sums(self) -> tuple[float, float, float]:
        """Number, sum and sum of squares of the abilities."""
        p, x = self.persons, self.nodes
        return float(p.sum()), float(p @ x), float(p @ x**2)


class FixedMoves:
    """Items that are independent before the data (:class:`irt_dask.ItemPrior`).

    ``towards`` is not empty where slopes may be negative, see
    :func:`irt_dask.kernels.gibbs.learned_item_draws.metropolis`.
    """

    def __init__(
        self, prior: ItemPrior, power: float, n_items: int, towards: Floats = ALL_POSITIVE
    ) -> None:
        self.towards, self.m = towards, n_items
        self.prior = prior.tempered(power, signed=self._signed)
        per_item = learned_item_draws if self._signed else item_draws
        self._before = n_items * per_item.WORDS_PER_ITEM
        self.words = self._before + self.words_after

    @property
    def _signed(self) -> bool:
        return self.towards.size > 0

    #: Uniforms that :meth:`after` uses.
    words_after = item_draws.WORDS_PER_RESCALE

    def sweep(
        self, counts: Counts, start: Floats, u: Floats, log_a: Floats, d: Floats, accepted: Any,
        *, rescaled: bool,
    ) -> None:  # fmt: skip
        """Draw the items, in place."""
        items, scale = np.split(u, [self._before])
        items = items.reshape(self.m, -1)
        of_data = counts.right, counts.seen, counts.at, counts.nodes
        if self._signed:
            normals = Normals.of_one(self.prior[::2], np.diag(self.prior[1::2]), self.m)
            learned_item_draws.metropolis(
                *of_data, normals, (start[0], start[1]), items, log_a, d, accepted, self.towards
            )
        else:
            item_draws.metropolis(
                *of_data, self.prior, (np.exp(start[0]), start[1]), items, log_a, d, accepted
            )
        if rescaled:
            self.after(counts.abilities, scale, log_a, d)

    def after(self, abilities: Abilities, u: Floats, log_a: Floats, d: Floats) -> None:
        """Move scale and place, in place."""
        item_draws.rescale(
            abilities.persons, abilities.nodes, self.prior, u, log_a, d, signed=self._signed
        )

    def move(self, abilities: Abilities, u: Floats, y: Floats) -> None:
        """The same of all coordinates, of which slopes and intercepts alone move."""
        self.after(abilities, u, y[0], y[1])

    def log_prior(self, log_a: Floats, d: Floats) -> Density:
        """Log density of (log a, d) but for a constant, and its derivatives; signed, of (a, d)."""
        mean, precision, mean_d, precision_d = self.prior
        out = nothing(np.stack([log_a, d]))
        if self._signed:
            off, pull = np.stack([log_a - mean, d - mean_d]), self.prior[1::2, None]
            out.value[:] = -0.5 * (pull * off**2).sum(axis=0)
            out.gradient[:2] = -pull * off
            out.information[:, 0, 0], out.information[:, 1, 1] = precision, precision_d
            return out
        a = np.exp(log_a)
        off, off_d = a - mean, d - mean_d
        out.value[:] = log_a - 0.5 * (precision * off**2 + precision_d * off_d**2)
        out.gradient[0], out.gradient[1] = 1.0 - precision * off * a, -precision_d * off_d
        out.information[:, 0, 0], out.information[:, 1, 1] = precision * a * a, precision_d
        return out

    def log_density(self, log_a: Floats, d: Floats) -> Floats:
        """The value alone."""
        return self.log_prior(log_a, d).value

    def take(self, items: Ints) -> FixedMoves:
        """The same: what is known of some items."""
        return self

    def state(self) -> dict[str, Any]:
        """Nothing but the items."""
        return {}

    def drawn(self) -> dict[str, Floats]:
        """Nothing but the items."""
        return {}


class LearnedMoves:
    """Items whose common mean and covariance are drawn too (:class:`Hierarchy`)."""

    def __init__(
        self, prior: Hierarchy, power: float, n_items: int, state: dict[str, Any],
        towards: Floats = ALL_POSITIVE,
    ) -> None:  # fmt: skip
        self.prior, self.power, self.m, self.towards = prior, power, n_items, towards
        if "prior_mean" in state:
            self.mean, self.covariance = state["prior_mean"], state["prior_covariance"]
        else:
            self.mean, self.covariance = prior.start(np.stack([state["log_a"], state["d"]]))
        self._known()
        self._before = n_items * learned_item_draws.WORDS_PER_ITEM
        #: Uniforms of a move, then of a mean: where these end, and all that ``after`` uses.
        self._ends = WORDS_MOVE, WORDS_MOVE + prior.words_mean
        self.words_after = self._ends[1] + prior.words_covariance
        self.words = self._before + self.words_after

    def _known(self) -> None:
        """Note what mean and covariance say of each item."""
        self.normals = self.prior.normals(self.mean, self.covariance, self.power, self.m)

    def sweep(
        self, counts: Counts, start: Floats, u: Floats, log_a: Floats, d: Floats, accepted: Any,
        *, rescaled: bool,
    ) -> None:  # fmt: skip
        """Draw the items, in place, then scale and place, mean and covariance."""
        assert rescaled
        items, rest = u[: self._before], u[self._before :]
        learned_item_draws.metropolis(
            counts.right, counts.seen, counts.at, counts.nodes, self.normals, (start[0], start[1]),
            items.reshape(self.m, -1), log_a, d, accepted, self.towards,
        )  # fmt: skip
        self.after(counts.abilities, rest, log_a, d)

    def after(self, abilities: Abilities, u: Floats, log_a: Floats, d: Floats) -> None:
        """Move scale and place, in place, and draw mean and covariance."""
        of_move, of_mean = self._ends
        scale, mean, covariance = u[:of_move], u[of_move:of_mean], u[of_mean:]
        x, self.mean, self.covariance = self.prior.move(
            np.stack([log_a, d]), self.mean, self.covariance, self.power, abilities.sums(), scale
        )
        log_a[:], d[:] = x
        proposed = self.prior.draw_mean(x, self.covariance, self.power, mean)
        if self.prior.held is None:
            self.mean = proposed
            self.covariance = self.prior.draw_covariance(x, self.mean, covariance)
        else:
            log_ratio = self._outside(log_a, proposed) - self._outside(log_a, self.mean)
            if math.log(covariance[0]) < log_ratio:
                self.mean = proposed
        self._known()

    def move(self, abilities: Abilities, u: Floats, y: Floats) -> None:
        """See :class:`FixedMoves`."""
        self.after(abilities, u, y[0], y[1])

    def log_prior(self, log_a: Floats, d: Floats) -> Density:
        """Log density of (log a, d) but for a constant, and its derivatives; signed, of (a, d)."""
        out = nothing(np.stack([log_a, d]))
        for at, mean, precision, (limit, further) in _by_group(self.normals):
            off = np.stack([log_a[at], d[at]]) - mean.T
            pull = precision @ off
            beyond = np.sign(off[0]) * np.maximum(np.abs(off[0]) - limit, 0.0)
            out.value[at] = -0.5 * (off * pull).sum(axis=0) - 0.5 * further * beyond**2
            out.gradient[:2, at] = -pull
            out.gradient[0, at] -= further * beyond
            out.information[at] = precision
            out.information[at, 0, 0] += further * (beyond != 0.0)
        return out

    def log_density(self, log_a: Floats, d: Floats) -> Floats:
        """The value alone."""
        out, x = np.empty_like(d), np.stack([log_a, d])
        for at, mean, precision, (limit, further) in _by_group(self.normals):
            off = x[:, at] - mean.T
            beyond = np.maximum(np.abs(off[0]) - limit, 0.0)
            out[at] = -0.5 * ((off * (precision @ off)).sum(axis=0) + further * beyond**2)
        return out

    def take(self, items: Ints) -> LearnedMoves:
        """What is known of some items; what they count towards the orientation is all items'."""
        out = copy.copy(self)
        mean, precision, beyond, group = self.normals
        out.normals = Normals(mean[items], precision, beyond, group[items])
        return out

    def _outside(self, log_a: Floats, mean: Floats) -> float:
        """Log density of slopes that are beyond where the prior's power ends."""
        normals, value = self.prior.normals(mean, self.covariance, self.power, self.m), 0.0
        for at, means, _, (limit, precision) in _by_group(normals):
            out = np.maximum(np.abs(log_a[at] - means[:, 0]) - limit, 0.0)
            value -= 0.5 * precision * float(out @ out)
        return value

    def state(self) -> dict[str, Any]:
        """Mean and covariance, which the next sweep needs."""
        return {"prior_mean": self.mean, "prior_covariance": self.covariance}

    def drawn(self) -> dict[str, Floats]:
        """Mean and covariance of a draw, where they are learned."""
        return {} if self.prior.held is not None else self.state()


def _by_group(normals: Normals) -> Iterator[tuple[Any, Floats, Floats, Floats]]:
    """Where the items of each group are, their means (items, 2), precision, and ends of that."""
    mean, precision, beyond, group = normals
    if len(precision) == 1:
        yield slice(None), mean, precision[0], beyond[0]
        return
    for g, (own, ends) in enumerate(zip(precision, beyond, strict=True)):
        at = np.flatnonzero(group == g)
        yield at, mean[at], own, ends


Moves = FixedMoves | LearnedMoves


def moves_for(
    prior: ItemPrior | Hierarchy, power: float, n_items: int, state: dict[str, Any],
    towards: Floats = ALL_POSITIVE,
) -> Moves:  # fmt: skip
    """Return what moves items under this prior to a power, from a chain's state."""
    if isinstance(prior, Hierarchy):
        return LearnedMoves(prior, power, n_items, state, towards)
    return FixedMoves(prior, power, n_items, towards)
