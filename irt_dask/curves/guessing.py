"""Three parameters: ``P = c + (1 - c) sigma(a theta + d)``."""

from __future__ import annotations

import numpy as np

from irt_dask.arrays import Bools, Floats
from irt_dask.curves.base import Parameter
from irt_dask.curves.coordinates import Asymptotes
from irt_dask.curves.logistic import INTERCEPT, SLOPE, TwoParameters, halves, log_add, logits

#: The prior has its mode at .2, and the weight of 20 persons who know nothing.
GUESSING = Parameter(
    "c", "item_guessing", "guessing parameter", (1e-6, 0.6), 0.2, neutral=0.0, answer=1e-6,
    prior=(5.0, 17.0), joint=(0.0, 0.5 - 1e-4),
    joint_starts=(0.1, 0.0, 0.08, 0.16, 0.24, 0.32, 0.42), always_written=True,
)  # fmt: skip


class ThreeParameters(TwoParameters):
    """The 3PL: those who do not know guess right with probability c."""

    name = "3pl"
    parameters = (SLOPE, INTERCEPT, GUESSING)
    rule = "discriminations must not be 0, guessing parameters at least 0 and below 1, all finite"
    log_odds = False
    coordinates = Asymptotes(3)
    asymptotes = (2, None)

    def log_p(self, x: Floats, nodes: Floats) -> Floats:
        """See :class:`ItemModel`."""
        z, c = logits(x, nodes), x[2][:, None]
        with np.errstate(divide="ignore"):  # log 0: nobody guesses
            chance = log_add(np.log(c), z)
        above = log_add(0.0, z)
        return np.stack([np.log1p(-c) - above, chance - above], axis=1)

    def by_logit(self, x: Floats, nodes: Floats) -> tuple[Floats, Floats]:
        """First and second derivative of ``log_p`` by z."""
        p, q, _, right = _parts(x, nodes)
        return np.stack([-p, right], axis=1), np.stack([-p * q, right * (q - p - right)], axis=1)

    def by_parameter(self, x: Floats, nodes: Floats) -> Floats:
        """See :class:`ItemModel`."""
        p, q, chance, right = _parts(x, nodes)
        out = np.empty((3, len(p), 2, nodes.size))
        np.negative(p, out=out[1, :, 0])
        out[1, :, 1] = right
        np.multiply(out[1], nodes, out=out[0])
        out[2, :, 0] = -1.0 / (1.0 - x[2][:, None])
        with np.errstate(divide="ignore", over="ignore"):
            np.divide(q, chance, out=out[2, :, 1])
        return out

    def floor(self, x: Floats) -> Floats:
        """See :class:`ItemModel`."""
        return x[2]

    def valid(self, x: Floats) -> Bools:
        """See :class:`ItemModel`."""
        return super().valid(x) & (x[2] >= 0.0) & (x[2] < 1.0)

    def scores(self, x: Floats) -> Floats | None:
        """None: right answers to a hard item say less."""
        return None


def _parts(x: Floats, nodes: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Logistic curves and what they leave of 1, P, and the slope of log P by z."""
    p, q = halves(logits(x, nodes))
    c = x[2][:, None]
    known = (1.0 - c) * p
    chance = c + known
    with np.errstate(invalid="ignore"):
        known /= chance
    known[x[2] == 0.0] = 1.0  # where nobody guesses, also where p underflows
    return p, q, chance, known * q
