"""What the answers of one person say: posterior of ability and of the total, on fine nodes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.errors import InputError
from irt_dask.selection.bank_tables import FINE, Bank, Curves

#: Share of the highest density that may lie at the last node.
_BEYOND = 1e-6
_LOG_PRIOR = -0.5 * FINE**2
#: Posteriors with a smaller standard deviation are not resolved: true ones of 3 / 4 of the nodes'
#: distance are right to 1e-4, and of narrower ones what the nodes say is half of it at most.
_NARROWEST = 0.75 * float(FINE[1] - FINE[0])


class Estimate(NamedTuple):
    """Mean and standard deviation of ability, and of what the rest adds to the total."""

    ability: float
    ability_sd: float
    rest: float
    rest_sd: float


class Person:
    """Answers so far, as sums of curves at the fine nodes, (sets of items, nodes)."""

    def __init__(self, bank: Bank) -> None:
        n = len(bank.sets)
        self.bank = bank
        self.log_likelihood, self.mean, self.variance = np.zeros((3, n, FINE.size))
        self.points = 0.0
        self.open: Bools = np.ones(bank.n_items, dtype=bool)

    def add(self, places: Ints, codes: Ints, curves: tuple[Curves, ...], at: Ints) -> None:
        """Answers to some questions, which are the ``at``-th of these curves."""
        for k, c in enumerate(curves):
            self.log_likelihood[k] += c.log_p[c.first[at] + codes].sum(axis=0)
            self.mean[k] += c.mean[at].sum(axis=0)
            self.variance[k] += c.variance[at].sum(axis=0)
        top = self.bank.items.n_categories[places] - 1
        self.points += float((self.bank.weights[places] * codes / top).sum())
        self.open[places] = False

    def answered(self, place: int, code: int) -> None:
        """One answer more."""
        self.add(np.array([place]), np.array([code]), self.bank.single(place), np.array([0]))

    @property
    def n_open(self) -> int:
        """Questions that were not asked."""
        return int(self.open.sum())

    def weights(self, k: int = 0) -> Floats:
        """Posterior masses of the fine nodes under one set of items."""
        log = self.log_likelihood[k] + _LOG_PRIOR
        w = np.exp(log - log.max())
        if max(w[0], w[-1]) > _BEYOND:
            raise InputError(
                f"ability lies beyond {FINE[-1]:.0f} standard deviations of N(0, 1), from which "
                f"persons are taken to come: are the items on another scale?  Bring them to one on "
                f"which abilities have mean 0 and standard deviation 1 (irt.link)"
            )
        return np.asarray(w / w.sum())

    def averaged(self) -> Floats:
        """The same, over the draws of the items where there are some, (sets, nodes)."""
        n = len(self.bank.sets)
        return np.stack([self.weights(k) for k in range(min(n - 1, 1), n)])

    def rest(self, k: int = 0) -> Floats:
        """Mean and variance of what the open questions add given ability, (2, nodes)."""
        if not self.open.any():
            return np.zeros((2, FINE.size))
        mean, variance = self.bank.sums(k)
        return np.stack([mean - self.mean[k], np.maximum(variance - self.variance[k], 0.0)])

    def estimate(self) -> Estimate:
        """Posterior moments, averaged over draws of the items."""
        weights = self.averaged()
        w = weights.mean(axis=0)
        ability = float(w @ FINE)
        sd = float(np.sqrt(w @ (FINE - ability) ** 2))
        if sd < _NARROWEST:
            raise InputError(
                f"ability is known to less than {_NARROWEST:.3f} standard deviations, finer than "
                f"adaptive tests compute it; irt.score and irt.predict_total take these answers"
            )
        first = len(self.bank.sets) - len(weights)
        means, within = np.empty((2, len(weights)))
        for i, own in enumerate(weights):
            mean, variance = self.rest(first + i)
            means[i] = own @ mean
            within[i] = own @ (variance + (mean - means[i]) ** 2)
        return Estimate(
            ability, sd, float(means.mean()), float(np.sqrt(within.mean() + means.var()))
        )

    def quantiles(self, p: Floats) -> Floats:
        """Of the posterior of ability."""
        cumulative = self.averaged().mean(axis=0).cumsum()
        half = 0.5 * (FINE[1] - FINE[0])
        return np.asarray(np.interp(p, cumulative, FINE + half))

    def chances(self, place: int) -> Floats:
        """Probability of each category of a question, under the point estimates."""
        p = np.exp(self.bank.single(place)[0].log_p)
        p[self.bank.items.empty[self.bank.items.first[place] :][: len(p)]] = 0.0
        return np.asarray(p @ self.weights())
