"""Right answers in n attempts: ``P(k) = C(n, k) P^k (1 - P)^(n - k)``, P of the 2PL.

An item of n attempts has n + 1 categories and the two parameters of one attempt.  Given ability the
attempts are independent: what a person answers alike every time is for no ability to explain.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from irt_dask.arrays import Floats
from irt_dask.curves.coordinates import Asymptotes
from irt_dask.curves.logistic import INTERCEPT, SLOPE, share_logit, widened
from irt_dask.curves.partial_credit import Numbered


class Binomial(Numbered):
    """Counts of n attempts: ``log P(k) = k (a theta + d) + log C(n, k) - n log(1 + e^z)``.

    The steps are those of partial credit whose intercepts d_k are ``k d + log C(n, k)``, and given
    items are treated as that.
    """

    name, of_two = "binomial", "2pl"
    rule = "discriminations must not be 0, intercepts finite"
    #: A count that nobody has is no parameter, and its probability follows from the others.
    numbered = False
    all_categories = True
    coordinates = Asymptotes(2)

    def __init__(self, n_categories: int) -> None:
        super().__init__(n_categories)
        n = n_categories - 1
        self.parameters = (SLOPE, INTERCEPT)
        self.ways = gammaln(n + 1) - gammaln(self.numbers + 1) - gammaln(n - self.numbers + 1)

    def constants(self, x: Floats) -> Floats:
        """See :class:`DividedByTotal`."""
        return np.asarray(np.multiply.outer(x[1], self.numbers) + self.ways)

    def by_parameter(self, x: Floats, nodes: Floats) -> Floats:
        """See :class:`ItemModel`."""
        out = np.empty((2, x.shape[1], self.n_categories, nodes.size))
        out[1] = self.deviations(np.exp(self.log_p(x, nodes)))
        np.multiply(out[1], nodes, out=out[0])
        return out

    def by_scores(self, x: Floats) -> tuple[Floats, Floats]:
        """See :class:`DividedByTotal`."""
        by_score, by_constant = np.zeros((2, self.n_categories, *x.shape))
        by_score[:, 0] = by_constant[:, 1] = self.numbers[:, None]
        return by_score, by_constant

    def start(self, x: Floats, n: Floats) -> None:
        """See :class:`ItemModel`: as of the 2PL, from the share right of all attempts."""
        attempts = n.sum(axis=1) * self.above[-1]
        x[1] = widened(x[0]) * share_logit(n @ self.numbers, attempts)

    def of_steps(self, scores: Floats, intercepts: Floats) -> Floats:
        """See :class:`ItemModel`: the last step has all of d, as ``C(n, n) = 1``."""
        return np.stack([scores[-1], intercepts[-1]]) / self.above[-1]

    def rescaling(self, mean: float, sd: float) -> Floats:
        """See :class:`ItemModel`."""
        return np.array([[sd, 0.0], [mean, 1.0]])

    def difficulty(self, x: Floats) -> tuple[Floats, Floats]:
        """``-d / a``, where half of the attempts are right, and its gradient."""
        return -x[1] / x[0], np.stack([x[1] / x[0] ** 2, -1.0 / x[0]])
