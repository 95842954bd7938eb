"""Four parameters: ``P = c + (u - c) sigma(a theta + d)``."""

from __future__ import annotations

import numpy as np

from irt_dask.arrays import Bools, Floats
from irt_dask.curves.base import Parameter
from irt_dask.curves.coordinates import Asymptotes
from irt_dask.curves.guessing import GUESSING
from irt_dask.curves.logistic import INTERCEPT, SLOPE, TwoParameters, halves, log_add, logits

#: The mirror image of guessing, prior too (Loken and Rulison 2010): those who know slip.
UPPER = Parameter(
    "u", "item_upper_asymptote", "upper asymptote", (0.65, 1.0 - 1e-6), 0.95, neutral=1.0,
    answer=1.0 - 1e-6, prior=(17.0, 5.0),
)  # fmt: skip


class FourParameters(TwoParameters):
    """The 4PL: those who do not know are right with probability c, those who do with u."""

    name = "4pl"
    parameters = (SLOPE, INTERCEPT, GUESSING, UPPER)
    rule = "discriminations must not be 0, 0 <= guessing < upper asymptote <= 1, all finite"
    log_odds = False
    coordinates = Asymptotes(4)
    asymptotes = (2, 3)

    def log_p(self, x: Floats, nodes: Floats) -> Floats:
        """See :class:`ItemModel`."""
        z, c, u = logits(x, nodes), x[2][:, None], x[3][:, None]
        with np.errstate(divide="ignore"):  # log 0: nobody guesses, nobody slips
            right, wrong = (
                log_add(np.log(c), np.log(u) + z),
                log_add(np.log1p(-c), np.log1p(-u) + z),
            )
        return np.stack([wrong, right], axis=1) - log_add(0.0, z)[:, None]

    def by_logit(self, x: Floats, nodes: Floats) -> tuple[Floats, Floats]:
        """First and second derivative of ``log_p`` by z."""
        p, q = halves(logits(x, nodes))
        c, u = x[2][:, None], x[3][:, None]
        # shares of those who know (do not) among the right (wrong): 1 where there are no others
        knew = np.divide((u - c) * p, c * q + u * p, out=np.ones_like(p), where=c > 0.0)
        lost = np.divide(
            (u - c) * q, (1.0 - c) * q + (1.0 - u) * p, out=np.ones_like(p), where=u < 1.0
        )
        first = np.stack([-p * lost, q * knew], axis=1)
        return first, first * ((q - p)[:, None] - first)

    def by_parameter(self, x: Floats, nodes: Floats) -> Floats:
        """See :class:`ItemModel`."""
        first = self.by_logit(x, nodes)[0]
        p, q = halves(logits(x, nodes))
        c, u = x[2][:, None], x[3][:, None]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            wrong, right = -1.0 / ((1.0 - c) * q + (1.0 - u) * p), 1.0 / (c * q + u * p)
            by_asymptotes = [np.stack([by * wrong, by * right], axis=1) for by in (q, p)]
        return np.stack([first * nodes, first, *by_asymptotes])

    def valid(self, x: Floats) -> Bools:
        """See :class:`ItemModel`."""
        return super().valid(x) & (x[2] >= 0.0) & (x[2] < x[3]) & (x[3] <= 1.0)

    def scores(self, x: Floats) -> Floats | None:
        """None: right answers to a hard item say less, and wrong ones to an easy item."""
        return None
