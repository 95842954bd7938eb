"""Partial credit: ``log P(k) = k a theta + d_k - log Z(theta)``, d_0 = 0 (Masters; Muraki).

The step from k - 1 to k has the log odds ``a (theta - b_k)``, ``b_k = -(d_k - d_{k-1}) / a``.
"""

from __future__ import annotations

import numpy as np

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.curves.base import ADJACENT, ItemModel, Parameter
from irt_dask.curves.coordinates import LocatedShifts, Shifts
from irt_dask.curves.logistic import SLOPE, widened


def step_intercepts(n_categories: int) -> tuple[Parameter, ...]:
    """d_1 to d_{K-1}."""
    return tuple(
        Parameter(f"d{k}", "item_step_intercept", f"intercept of step {k}", (-120.0, 120.0), 0.0,
                  step=k)
        for k in range(1, n_categories)
    )  # fmt: skip


def log_shares(u: Floats) -> Floats:
    """``u - log sum e^u`` over the second axis, in place."""
    u -= u.max(axis=1, keepdims=True)
    u -= np.log(np.exp(u).sum(axis=1, keepdims=True))
    return u


def log_odds_of(n: Floats) -> Floats:
    """Log odds of each higher category against the first, (steps, items), of counts."""
    n = n + 0.5
    return np.asarray(np.log(n[:, 1:] / n[:, :1]).T)


class DividedByTotal(ItemModel):
    """``log P(k) = s_k theta + c_k - log Z(theta)``: what follows from scores and constants.

    ``log Z`` is convex in ability whatever the scores, so that every posterior under a log-concave
    prior has one mode.
    """

    steps = ADJACENT

    def scores(self, x: Floats) -> Floats:
        """See :class:`ItemModel`."""
        raise NotImplementedError

    def constants(self, x: Floats) -> Floats:
        """Constants c, (items, categories)."""
        raise NotImplementedError

    def log_p(self, x: Floats, nodes: Floats) -> Floats:
        """See :class:`ItemModel`."""
        return log_shares(self.scores(x)[:, :, None] * nodes + self.constants(x)[:, :, None])

    def by_ability(self, x: Floats, nodes: Floats) -> tuple[Floats, Floats]:
        """See :class:`ItemModel`: the score less its mean, and minus its variance."""
        s, p = self.scores(x)[:, :, None], np.exp(self.log_p(x, nodes))
        first = s - (s * p).sum(axis=1, keepdims=True)
        second = -(p * first**2).sum(axis=1, keepdims=True)
        return first, np.broadcast_to(second, first.shape).copy()

    def by_constants(self, p: Floats, out: Floats) -> None:
        """Fill in derivatives of ``log_p`` by c_1 to c_{K-1}, (steps, items, categories, nodes)."""
        np.negative(p.transpose(1, 0, 2)[1:, :, None], out=out)
        for k in range(len(out)):
            out[k, :, k + 1] += 1.0

    def ends(self, x: Floats) -> tuple[Ints, Ints]:
        """See :class:`ItemModel`."""
        scores = self.scores(x)
        return scores.argmin(axis=1), scores.argmax(axis=1)

    def by_scores(self, x: Floats) -> tuple[Floats, Floats]:
        """Gradients of scores and of constants of categories, (categories, parameters, items)."""
        raise NotImplementedError

    def step_intercepts(self, x: Floats) -> tuple[Floats, Floats]:
        """See :class:`ItemModel`."""
        return self.constants(x).T[1:], self.by_scores(x)[1][1:]

    def step_difficulties(self, x: Floats) -> tuple[Floats, Floats]:
        """``b_k = -(c_k - c_{k-1}) / (s_k - s_{k-1})``: where both categories are as likely."""
        by_score, by_constant = self.by_scores(x)
        rise = np.diff(self.scores(x).T, axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):  # nowhere, or everywhere
            b = -np.diff(self.constants(x).T, axis=0) / rise
            gradient = -np.diff(by_constant, axis=0) - b[:, None] * np.diff(by_score, axis=0)
            return b, gradient / rise[:, None]

    def steepness(self, x: Floats) -> Floats:
        """See :class:`ItemModel`: ``Z`` has no zero within pi / (its range) of the real line."""
        return np.asarray(np.ptp(self.scores(x), axis=1))


class Numbered(DividedByTotal):
    """Scores are the discrimination, the first parameter, times numbers of the categories.

    They are 0, 1, ..., K - 1 unless a category between them is left out.
    """

    numbered = True

    def __init__(self, n_categories: int, numbers: tuple[int, ...] = ()) -> None:
        self.n_categories = n_categories
        self.numbers = np.array(numbers or range(n_categories), dtype=float)
        self.above = self.numbers[1:].copy()

    def scores(self, x: Floats) -> Floats:
        """See :class:`ItemModel`."""
        return np.multiply.outer(x[0], self.numbers)

    def deviations(self, p: Floats) -> Floats:
        """Numbers less their mean, (items, categories, nodes)."""
        mean = np.einsum("k,mkq->mq", self.numbers, p)
        return np.asarray(self.numbers[:, None] - mean[:, None])

    def valid(self, x: Floats) -> Bools:
        """See :class:`ItemModel`."""
        return np.asarray(x[0] != 0.0)


class GeneralisedPartialCredit(Numbered):
    """The GPCM (Muraki 1992): a discrimination and K - 1 step intercepts for each item."""

    name, of_two = "gpcm", "2pl"
    rule = "discriminations must not be 0, step intercepts finite"

    def __init__(self, n_categories: int, numbers: tuple[int, ...] = ()) -> None:
        super().__init__(n_categories, numbers)
        self.parameters = (SLOPE, *step_intercepts(n_categories))
        self.coordinates = Shifts(n_categories)

    def constants(self, x: Floats) -> Floats:
        """See :class:`DividedByTotal`."""
        return np.concatenate([np.zeros((1, x.shape[1])), x[1:]]).T

    def by_parameter(self, x: Floats, nodes: Floats) -> Floats:
        """See :class:`ItemModel`."""
        p = np.exp(self.log_p(x, nodes))
        out = np.empty((len(x), *p.shape))
        np.multiply(self.deviations(p), nodes, out=out[0])
        self.by_constants(p, out[1:])
        return out

    def by_scores(self, x: Floats) -> tuple[Floats, Floats]:
        """See :class:`DividedByTotal`."""
        by_score, by_constant = np.zeros((2, self.n_categories, *x.shape))
        by_score[:, 0] = self.numbers[:, None]
        steps = np.arange(1, self.n_categories)
        by_constant[steps, steps] = 1.0
        return by_score, by_constant

    def start(self, x: Floats, n: Floats) -> None:
        """See :class:`ItemModel`."""
        x[1:] = widened(x[0]) * log_odds_of(n)

    def of_steps(self, scores: Floats, intercepts: Floats) -> Floats:
        """See :class:`ItemModel`."""
        return np.concatenate([scores[-1:] / self.above[-1], intercepts])

    def rescaling(self, mean: float, sd: float) -> Floats:
        """See :class:`ItemModel`: ``k a (mean + sd theta') + d_k``."""
        out = np.eye(len(self.parameters))
        out[0, 0] = sd
        out[1:, 0] = mean * self.above
        return out

    def difficulty(self, x: Floats) -> tuple[Floats, Floats]:
        """Mean of the step difficulties, ``-d_{K-1} / ((K - 1) a)``, and its gradient.

        A step that leaves out a number counts twice.
        """
        steps, gradient = self.above[-1], np.zeros_like(x)
        gradient[0], gradient[-1] = x[-1] / (steps * x[0] ** 2), -1.0 / (steps * x[0])
        return -x[-1] / (steps * x[0]), gradient


class PartialCredit(GeneralisedPartialCredit):
    """The PCM (Masters 1982): one discrimination for all items, which is estimated."""

    name, of_two = "pcm", "1pl"
    shared = ("a",)


class RatingScale(Numbered):
    """The rating scale model (Andrich 1978): ``d_k = k d + t_k``, one t for all items, one slope.

    A location d for each item, and shared t_1 to t_{K-2}; t_0 = t_{K-1} = 0.
    """

    name, of_two = "rating", "1pl"
    rule = "discriminations must not be 0, intercepts and shifts of steps finite"

    def __init__(self, n_categories: int, numbers: tuple[int, ...] = ()) -> None:
        super().__init__(n_categories, numbers)
        shifts = tuple(
            Parameter(f"t{k}", "item_step_shift", f"shift of step {k}", (-120.0, 120.0), 0.0,
                      step=k)
            for k in range(1, n_categories - 1)
        )  # fmt: skip
        location = Parameter("d", "item_intercept", "intercept", (-40.0, 40.0), 0.0)
        self.parameters = (SLOPE, location, *shifts)
        self.shared = ("a", *(p.letter for p in shifts))
        self.coordinates = LocatedShifts(n_categories)

    def constants(self, x: Floats) -> Floats:
        """See :class:`DividedByTotal`."""
        out = np.multiply.outer(x[1], self.numbers)
        out[:, 1:-1] += x[2:].T
        return out

    def by_parameter(self, x: Floats, nodes: Floats) -> Floats:
        """See :class:`ItemModel`."""
        p = np.exp(self.log_p(x, nodes))
        out = np.empty((len(x), *p.shape))
        out[1] = self.deviations(p)
        np.multiply(out[1], nodes, out=out[0])
        self.by_constants(p[:, :-1], out[2:, :, :-1])
        out[2:, :, -1] = -p.transpose(1, 0, 2)[1:-1]
        return out

    def by_scores(self, x: Floats) -> tuple[Floats, Floats]:
        """See :class:`DividedByTotal`."""
        by_score, by_constant = np.zeros((2, self.n_categories, *x.shape))
        by_score[:, 0] = by_constant[:, 1] = self.numbers[:, None]
        inner = np.arange(1, self.n_categories - 1)
        by_constant[inner, inner + 1] = 1.0
        return by_score, by_constant

    def start(self, x: Floats, n: Floats) -> None:
        """See :class:`ItemModel`: the line through the intercepts, and what is left on average."""
        d, steps = widened(x[0]) * log_odds_of(n), self.above
        x[1] = steps @ d / (steps @ steps)
        x[2:] = (d - np.multiply.outer(steps, x[1]))[:-1].mean(axis=1, keepdims=True)

    def of_steps(self, scores: Floats, intercepts: Floats) -> Floats:
        """See :class:`ItemModel`: shifts are what a line from 0 to the last intercept leaves."""
        last, steps = self.above[-1], self.above[:-1]
        location = intercepts[-1:] / last
        shifts = intercepts[:-1] - steps[:, None] * location
        return np.concatenate([scores[-1:] / last, location, shifts])

    def rescaling(self, mean: float, sd: float) -> Floats:
        """See :class:`ItemModel`."""
        out = np.eye(len(self.parameters))
        out[0, 0], out[1, 0] = sd, mean
        return out

    def difficulty(self, x: Floats) -> tuple[Floats, Floats]:
        """``-d / a``, the mean of the step difficulties, and its gradient."""
        gradient = np.zeros_like(x)
        gradient[0], gradient[1] = x[1] / x[0] ** 2, -1.0 / x[0]
        return -x[1] / x[0], gradient
