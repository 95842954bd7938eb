"""Nominal categories: ``log P(k) = s_k theta + d_k - log Z(theta)``, s_0 = d_0 = 0 (Bock 1972).

Bock's model in the parameters of Thissen, Cai and Bock (2010) is ``s_k = a alpha_k`` with
``alpha_{K-1} = K - 1``: ``a = s_{K-1} / (K - 1)``.
"""

from __future__ import annotations

import math

import numpy as np

from irt_dask.arrays import Bools, Floats
from irt_dask.curves.base import Parameter
from irt_dask.curves.betas import Betas
from irt_dask.curves.coordinates import STEPS_SD, Coordinates, Density, Shifts, nothing
from irt_dask.curves.partial_credit import DividedByTotal, log_odds_of, step_intercepts

#: SD of a step of scores from their mean, before the data.
_SCORES_SD = 1.0


class Scores(Coordinates):
    """Scores and intercepts of K categories without order: a, d, then what departs from a line.

    ``s_k = k a + u_k`` and ``d_k = k d + t_k`` with no u or t of the last category: u_1 to u_{K-2},
    t_1 to t_{K-2}.  Before the data steps of u are independent N(0, 1) given that their sum is 0,
    those of t as of :class:`irt_dask.curves.coordinates.Shifts`.  a and u are in units of ability,
    and of any sign: a change of its scale, ``(theta - m) e^-v``, multiplies both by e^v, and adds
    ``a m`` to d and ``u m`` to t.
    """

    scored = True

    def __init__(self, n_categories: int) -> None:
        steps = Shifts(n_categories)
        n, self.steps, self.size = n_categories - 1, steps, 2 * n_categories - 2
        self.rising, self.level = slice(2, n + 1), slice(n + 1, self.size)
        self.matrix = np.zeros((self.size, self.size))  # of parameters by coordinates
        self.matrix[:n, 0] = self.matrix[n:, 1] = steps.numbers
        self.matrix[:n, self.rising] = self.matrix[n:, self.level] = np.eye(n, n - 1)
        self.inverse = np.linalg.inv(self.matrix)
        self.precision = np.zeros((self.size, self.size))
        self.precision[self.level, self.level] = steps.precision
        ratio = (STEPS_SD / _SCORES_SD) ** 2
        self.precision[self.rising, self.rising] = ratio * steps.precision
        self.constant = 2.0 * steps.constant + 0.5 * (n - 1) * math.log(ratio)

    @property
    def signed(self) -> Coordinates:
        """See :class:`Coordinates`: they are."""
        return self

    @property
    def place(self) -> Floats:
        """See :class:`Coordinates`."""
        return self.inverse[1]

    def of(self, x: Floats) -> Floats:
        """See :class:`Coordinates`."""
        return self.inverse @ x

    def parameters(self, y: Floats) -> Floats:
        """See :class:`Coordinates`."""
        return self.matrix @ y

    def slopes(self, y: Floats) -> Floats:
        """See :class:`Coordinates`."""
        return np.repeat(self.matrix[:, :, None], y.shape[1], axis=2)

    def log_prior(self, y: Floats, betas: Betas, power: float = 1.0) -> Density:
        """See :class:`Coordinates`."""
        out = nothing(y)
        pull = power * self.precision @ y
        constant = self.constant + 0.5 * (len(y) - 2) * math.log(power)
        out.value[:] = constant - 0.5 * (y * pull).sum(axis=0)
        out.gradient[:] = -pull
        out.information[:] = power * self.precision
        return out

    def draw_shapes(self, u: Floats, betas: Betas) -> Floats:
        """See :class:`Coordinates`."""
        scores, steps = np.split(u, 2, axis=-2)
        scale = _SCORES_SD / STEPS_SD
        return np.concatenate(
            [scale * self.steps.draw_shapes(scores, betas), self.steps.draw_shapes(steps, betas)],
            axis=-2,
        )


class Nominal(DividedByTotal):
    """A score and an intercept for each category but the first, of any sign and order."""

    name = "nominal"
    rule = "category scores and step intercepts must be finite, and some score not 0"

    def __init__(self, n_categories: int) -> None:
        self.n_categories = n_categories
        scores = tuple(
            Parameter(f"s{k}", "item_category_score", f"score of category {k}", (-50.0, 50.0),
                      float(k), step=k)
            for k in range(1, n_categories)
        )  # fmt: skip
        self.parameters = (*scores, *step_intercepts(n_categories))
        self.coordinates = Scores(n_categories)

    def scores(self, x: Floats) -> Floats:
        """See :class:`ItemModel`."""
        steps = self.n_categories - 1
        return np.concatenate([np.zeros((1, x.shape[1])), x[:steps]]).T

    def constants(self, x: Floats) -> Floats:
        """See :class:`DividedByTotal`."""
        steps = self.n_categories - 1
        return np.concatenate([np.zeros((1, x.shape[1])), x[steps:]]).T

    def by_parameter(self, x: Floats, nodes: Floats) -> Floats:
        """See :class:`ItemModel`."""
        p, steps = np.exp(self.log_p(x, nodes)), self.n_categories - 1
        out = np.empty((len(x), *p.shape))
        self.by_constants(p, out[steps:])
        np.multiply(out[steps:], nodes, out=out[:steps])
        return out

    def by_scores(self, x: Floats) -> tuple[Floats, Floats]:
        """See :class:`DividedByTotal`."""
        by_score, by_constant = np.zeros((2, self.n_categories, *x.shape))
        steps = np.arange(1, self.n_categories)
        by_score[steps, steps - 1] = by_constant[steps, steps + self.n_categories - 2] = 1.0
        return by_score, by_constant

    def start(self, x: Floats, n: Floats) -> None:
        """See :class:`ItemModel`."""
        x[self.n_categories - 1 :] = log_odds_of(n)

    def of_steps(self, scores: Floats, intercepts: Floats) -> Floats:
        """See :class:`ItemModel`."""
        return np.concatenate([scores, intercepts])

    def category_scores(self, x: Floats) -> tuple[Floats, Floats]:
        """Scores s_0 = 0 to s_{K-1}, (categories, items), and their gradients."""
        return self.scores(x).T, self.by_scores(x)[0]

    def slope(self, x: Floats) -> tuple[Floats, Floats]:
        """``s_{K-1} / (K - 1)``, the mean rise of a score, and its gradient."""
        steps, gradient = self.n_categories - 1, np.zeros_like(x)
        gradient[steps - 1] = 1.0 / steps
        return x[steps - 1] / steps, gradient

    def intercept(self, x: Floats) -> tuple[Floats, Floats]:
        """``d_{K-1} / (K - 1)``, also where the last category's score is 0."""
        steps, gradient = self.n_categories - 1, np.zeros_like(x)
        gradient[-1] = 1.0 / steps
        return x[-1] / steps, gradient

    def thresholds(self, x: Floats) -> tuple[Floats, Floats]:
        """See :class:`ItemModel`: none, as categories need not follow each other."""
        return np.full((self.n_categories - 1, x.shape[1]), np.nan), np.full(
            (self.n_categories - 1, *x.shape), np.nan
        )

    def rescaling(self, mean: float, sd: float) -> Floats:
        """See :class:`ItemModel`: ``s_k (mean + sd theta') + d_k``."""
        steps, out = self.n_categories - 1, np.eye(len(self.parameters))
        out[:steps, :steps] *= sd
        out[steps:, :steps] = mean * np.eye(steps)
        return out

    def difficulty(self, x: Floats) -> tuple[Floats, Floats]:
        """Ability at which the last category is as likely as the first, and its gradient."""
        steps, gradient = self.n_categories - 1, np.zeros_like(x)
        s, d = x[steps - 1], x[-1]
        with np.errstate(divide="ignore", invalid="ignore"):  # they are nowhere, or everywhere
            gradient[steps - 1], gradient[-1] = d / s**2, -1.0 / s
            return -d / s, gradient

    def valid(self, x: Floats) -> Bools:
        """See :class:`ItemModel`."""
        return np.asarray((x[: self.n_categories - 1] != 0.0).any(axis=0))
