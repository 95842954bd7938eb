"""One and two parameters: ``P = sigma(z)``, ``z = a theta + d``, ``d = -a b`` (D = 1)."""

from __future__ import annotations

import numpy as np

from irt_dask.arrays import Bools, Floats
from irt_dask.curves.base import ADJACENT, ItemModel, Parameter
from irt_dask.curves.coordinates import Asymptotes

#: Bounds of joint maximum likelihood: Frick et al., section 4.
SLOPE = Parameter(
    "a", "item_discrimination", "discrimination", (1e-3, 25.0), 1.0, joint=(1e-3, 5.0)
)
INTERCEPT = Parameter("d", "item_intercept", "intercept", (-40.0, 40.0), 0.0, joint=(-6.0, 6.0))


def logits(x: Floats, nodes: Floats) -> Floats:
    """``a theta + d``, (items, nodes)."""
    return np.multiply.outer(x[0], nodes) + x[1][:, None]


def halves(z: Floats) -> tuple[Floats, Floats]:
    """``sigma(z)`` and ``sigma(-z)``, neither by subtraction from 1."""
    e = np.exp(-np.abs(z))
    large, small = 1.0 / (1.0 + e), e / (1.0 + e)
    return np.where(z >= 0.0, large, small), np.where(z >= 0.0, small, large)


def log_add(x: Floats | float, y: Floats) -> Floats:
    """``log(e^x + e^y)``, as ``np.logaddexp``, which takes one number at a time."""
    return np.asarray(np.maximum(x, y) + np.log1p(np.exp(-np.abs(x - y))))


def widened(a: Floats) -> Floats:
    """Logits at the mean ability, as multiples of those of shares under N(0, 1)."""
    return np.asarray(np.sqrt(1.0 + a**2 * np.pi / 8.0))


def logit(p: Floats) -> Floats:
    """``log(p / (1 - p))``."""
    return np.asarray(np.log(p) - np.log1p(-p))


def share_logit(right: Floats, seen: Floats) -> Floats:
    """Logits of shares, with half a person added on each side."""
    return logit((right + 0.5) / (seen + 1.0))


class TwoParameters(ItemModel):
    """The 2PL: a discrimination and an intercept for each item."""

    name = "2pl"
    parameters: tuple[Parameter, ...] = (SLOPE, INTERCEPT)
    rule = "discriminations must not be 0, both finite"
    log_odds = True
    steps = ADJACENT
    coordinates = Asymptotes(2)

    def log_p(self, x: Floats, nodes: Floats) -> Floats:
        """See :class:`ItemModel`."""
        z = logits(x, nodes)
        both = np.stack([z, -z], axis=1)
        np.maximum(both, 0.0, out=both)
        both += np.log1p(np.exp(-np.abs(z)))[:, None]  # log(1 + e^z) and log(1 + e^-z)
        return np.negative(both, out=both)

    def by_logit(self, x: Floats, nodes: Floats) -> tuple[Floats, Floats]:
        """First and second derivative of ``log_p`` by z."""
        p, q = halves(logits(x, nodes))
        return np.stack([-p, q], axis=1), np.stack([-p * q, -p * q], axis=1)

    def by_ability(self, x: Floats, nodes: Floats) -> tuple[Floats, Floats]:
        """See :class:`ItemModel`."""
        first, second = self.by_logit(x, nodes)
        a = x[0][:, None, None]
        return a * first, a * a * second

    def by_parameter(self, x: Floats, nodes: Floats) -> Floats:
        """See :class:`ItemModel`."""
        p, q = halves(logits(x, nodes))
        out = np.empty((2, len(p), 2, nodes.size))
        np.negative(p, out=out[1, :, 0])
        out[1, :, 1] = q
        np.multiply(out[1], nodes, out=out[0])
        return out

    def sharpness(self, x: Floats, nodes: Floats) -> Floats:
        """See :class:`ItemModel`: that of the lower category, of others no larger."""
        e = np.exp(-np.abs(logits(x, nodes)))
        return x[0][:, None] ** 2 * e / (1.0 + e) ** 2

    def scores(self, x: Floats) -> Floats | None:
        """See :class:`ItemModel`."""
        return np.stack([np.zeros_like(x[0]), x[0]], axis=1)

    def rescaling(self, mean: float, sd: float) -> Floats:
        """See :class:`ItemModel`: ``a theta + d`` with ``theta = mean + sd theta'``."""
        out = np.eye(len(self.parameters))
        out[0, 0], out[1, 0] = sd, mean
        return out

    def valid(self, x: Floats) -> Bools:
        """See :class:`ItemModel`."""
        return np.asarray(x[0] != 0.0)

    def steepness(self, x: Floats) -> Floats:
        """See :class:`ItemModel`."""
        return np.abs(x[0])

    def difficulty(self, x: Floats) -> tuple[Floats, Floats]:
        """``b = -d / a``, where P is halfway between its asymptotes, and its gradient."""
        a, d = x[:2]
        gradient = np.zeros_like(x)
        gradient[0], gradient[1] = d / a**2, -1.0 / a
        return -d / a, gradient

    def step_intercepts(self, x: Floats) -> tuple[Floats, Floats]:
        """See :class:`ItemModel`."""
        gradient = np.zeros_like(x)
        gradient[1] = 1.0
        return x[1:2], gradient[None]

    def step_difficulties(self, x: Floats) -> tuple[Floats, Floats]:
        """See :class:`ItemModel`."""
        b, gradient = self.difficulty(x)
        return b[None], gradient[None]

    def intercept(self, x: Floats) -> tuple[Floats, Floats]:
        """See :class:`ItemModel`."""
        value, gradient = self.step_intercepts(x)
        return value[0], gradient[0]

    def thresholds(self, x: Floats) -> tuple[Floats, Floats]:
        """See :class:`ItemModel`: the difficulty, unless there are asymptotes."""
        return super().thresholds(x) if self.asymptotes else self.step_difficulties(x)

    def start(self, x: Floats, n: Floats) -> None:
        """See :class:`ItemModel`.

        A marginal share p under N(0, 1) and slope a belongs to an intercept of about
        ``sqrt(1 + a^2 pi / 8) logit(p)``.
        """
        x[1] = widened(x[0]) * share_logit(n[:, 1], n.sum(axis=1))

    def where(self, difficulty: Floats, discrimination: Floats) -> Floats:
        """See :class:`ItemModel`."""
        return -discrimination * difficulty


class OneSlope(TwoParameters):
    """The 1PL: one discrimination for all items, which is estimated or 1."""

    name = "1pl"
    shared = ("a",)
