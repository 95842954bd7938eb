"""What a sweep of a grid chain does to the items, under the two kinds of priors they can have."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from irt_dask.arrays import Floats
from irt_dask.calibrate.bayes.hierarchy import WORDS_COVARIANCE, WORDS_MEAN, WORDS_MOVE, Hierarchy
from irt_dask.curves.priors import ItemPrior
from irt_dask.kernels.gibbs import item_draws, learned_item_draws


class Counts:
    """A sweep's counts: right and seen (nodes kept, items) at nodes, persons at each node."""

    def __init__(self, at: Any, right: Any, seen: Any, persons: Any, nodes: Floats) -> None:
        self.at, self.right, self.seen, self.persons, self.nodes = at, right, seen, persons, nodes

    def abilities(self) -> tuple[float, float, float]:
        """Number, sum and sum of squares of the abilities."""
        p, x = self.persons, self.nodes
        return float(p.sum()), float(p @ x), float(p @ x**2)


class FixedMoves:
    """Items that are independent before the data (:class:`irt_dask.ItemPrior`)."""

    def __init__(self, prior: ItemPrior, power: float, n_items: int) -> None:
        self.prior, self.m = prior.tempered(power), n_items
        self._before = n_items * item_draws.WORDS_PER_ITEM
        self.words = self._before + item_draws.WORDS_PER_RESCALE

    def sweep(
        self, counts: Counts, start: Floats, u: Floats, log_a: Floats, d: Floats, accepted: Any,
        *, rescaled: bool,
    ) -> None:  # fmt: skip
        """Draw the items, in place."""
        items, scale = np.split(u, [self._before])
        item_draws.metropolis(
            counts.right, counts.seen, counts.at, counts.nodes, self.prior,
            (np.exp(start[0]), start[1]), items.reshape(self.m, -1), log_a, d, accepted,
        )  # fmt: skip
        if rescaled:
            item_draws.rescale(counts.persons, counts.nodes, self.prior, scale, log_a, d)

    def state(self) -> dict[str, Any]:
        """Nothing but the items."""
        return {}

    def drawn(self) -> dict[str, Floats]:
        """Nothing but the items."""
        return {}


class LearnedMoves:
    """Items whose common mean and covariance are drawn too (:class:`Hierarchy`)."""

    def __init__(self, prior: Hierarchy, power: float, n_items: int, state: dict[str, Any]) -> None:
        self.prior, self.power, self.m = prior, power, n_items
        if "prior_mean" in state:
            self.mean, self.covariance = state["prior_mean"], state["prior_covariance"]
        else:
            self.mean, self.covariance = prior.start(np.stack([state["log_a"], state["d"]]))
        self._beyond = prior.beyond(power)
        self._ends = np.cumsum(
            [n_items * learned_item_draws.WORDS_PER_ITEM, WORDS_MOVE, WORDS_MEAN, WORDS_COVARIANCE]
        )
        self.words = int(self._ends[-1])

    def sweep(
        self, counts: Counts, start: Floats, u: Floats, log_a: Floats, d: Floats, accepted: Any,
        *, rescaled: bool,
    ) -> None:  # fmt: skip
        """Draw the items, in place, then scale and place, mean and covariance."""
        assert rescaled
        items, scale, mean, covariance = np.split(u, self._ends[:-1])
        learned_item_draws.metropolis(
            counts.right, counts.seen, counts.at, counts.nodes, self.mean,
            self.power * np.linalg.inv(self.covariance), self._beyond, (start[0], start[1]),
            items.reshape(self.m, -1), log_a, d, accepted,
        )  # fmt: skip
        x, self.mean = self.prior.move(
            np.stack([log_a, d]), self.mean, self.covariance, self.power, counts.abilities(), scale
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

    def _outside(self, log_a: Floats, mean: Floats) -> float:
        """Log density of slopes that are beyond where the prior's power ends."""
        limit, precision = self._beyond
        out = np.maximum(np.abs(log_a - mean[0]) - limit, 0.0)
        return -0.5 * precision * float(out @ out)

    def state(self) -> dict[str, Any]:
        """Mean and covariance, which the next sweep needs."""
        return {"prior_mean": self.mean, "prior_covariance": self.covariance}

    def drawn(self) -> dict[str, Floats]:
        """Mean and covariance of a draw, where they are learned."""
        return {} if self.prior.held is not None else self.state()


Moves = FixedMoves | LearnedMoves


def moves_for(
    prior: ItemPrior | Hierarchy, power: float, n_items: int, state: dict[str, Any]
) -> Moves:
    """Return what moves items under this prior to a power, from a chain's state."""
    if isinstance(prior, Hierarchy):
        return LearnedMoves(prior, power, n_items, state)
    return FixedMoves(prior, power, n_items)
