"""Graded responses: ``P(y >= k) = sigma(a theta + d_k)``, d_1 > d_2 > ... (Samejima 1969)."""

from __future__ import annotations

import numpy as np

from irt_dask.arrays import Bools, Floats
from irt_dask.curves.base import CUMULATIVE, ItemModel
from irt_dask.curves.coordinates import Gaps
from irt_dask.curves.logistic import SLOPE, halves, share_logit, widened
from irt_dask.curves.partial_credit import step_intercepts


class Graded(ItemModel):
    """The graded response model: a discrimination and falling step intercepts for each item.

    With ``z_k = a theta + d_k``, ``P(k) = sigma(z_k) sigma(-z_{k+1}) (1 - e^{d_{k+1} - d_k})``: a
    product, in which nothing cancels; sigma(z_0) = sigma(-z_K) = 1, and the last factor is 1 for
    the first and the last category.
    """

    name = "graded"
    steps, of_two = CUMULATIVE, "2pl"
    rule = "discriminations must not be 0, step intercepts finite and falling"

    def __init__(self, n_categories: int) -> None:
        self.n_categories = n_categories
        self.parameters = (SLOPE, *step_intercepts(n_categories))
        self.coordinates = Gaps(n_categories)

    def _steps(self, x: Floats, nodes: Floats) -> Floats:
        """z_1 to z_{K-1}, (items, steps, nodes)."""
        return (x[0][:, None] * nodes)[:, None] + x[1:].T[:, :, None]

    def log_p(self, x: Floats, nodes: Floats) -> Floats:
        """See :class:`ItemModel`; NaN where step intercepts do not fall."""
        z = self._steps(x, nodes)
        low = np.log1p(np.exp(-np.abs(z)))
        out = np.zeros((z.shape[0], self.n_categories, nodes.size))
        out[:, 1:] -= np.maximum(-z, 0.0) + low  # log sigma(z_k)
        out[:, :-1] -= np.maximum(z, 0.0) + low  # log sigma(-z_{k+1})
        with np.errstate(invalid="ignore", divide="ignore"):
            out[:, 1:-1] += np.log(-np.expm1(np.diff(x[1:], axis=0))).T[:, :, None]
        return out

    def _sides(self, x: Floats, nodes: Floats) -> tuple[Floats, Floats, Floats]:
        """sigma(-z_k), and sigma(z_{k+1}), by category; their products with the rest of 1."""
        z = self._steps(x, nodes)
        p, q = halves(z)
        below, above = np.zeros((2, z.shape[0], self.n_categories, nodes.size))
        below[:, 1:], above[:, :-1] = q, p
        bent = np.zeros_like(below)
        bent[:, 1:] += p * q
        bent[:, :-1] += p * q
        return below, above, bent

    def by_ability(self, x: Floats, nodes: Floats) -> tuple[Floats, Floats]:
        """See :class:`ItemModel`."""
        below, above, bent = self._sides(x, nodes)
        a = x[0][:, None, None]
        return a * (below - above), -a * a * bent

    def by_parameter(self, x: Floats, nodes: Floats) -> Floats:
        """See :class:`ItemModel`."""
        below, above, _ = self._sides(x, nodes)
        out = np.zeros((len(x), *below.shape))
        out[0] = (below - above) * nodes
        for k in range(1, self.n_categories):  # categories k - 1 and k know of d_k
            out[k, :, k] += below[:, k]
            out[k, :, k - 1] -= above[:, k - 1]
        with np.errstate(divide="ignore", over="ignore"):
            gap = 1.0 / np.expm1(-np.diff(x[1:], axis=0))[:, :, None]
        for k in range(1, self.n_categories - 1):
            out[k, :, k] += gap[k - 1]
            out[k + 1, :, k] -= gap[k - 1]
        return out

    def rescaling(self, mean: float, sd: float) -> Floats:
        """See :class:`ItemModel`."""
        out = np.eye(len(self.parameters))
        out[0, 0], out[1:, 0] = sd, mean
        return out

    def difficulty(self, x: Floats) -> tuple[Floats, Floats]:
        """Mean of ``b_k = -d_k / a``, and its gradient."""
        steps, gradient = self.n_categories - 1, np.empty_like(x)
        middle = x[1:].mean(axis=0)
        gradient[0], gradient[1:] = middle / x[0] ** 2, -1.0 / (steps * x[0])
        return -middle / x[0], gradient

    def step_intercepts(self, x: Floats) -> tuple[Floats, Floats]:
        """See :class:`ItemModel`."""
        gradient, steps = np.zeros((len(x) - 1, *x.shape)), np.arange(len(x) - 1)
        gradient[steps, steps + 1] = 1.0
        return x[1:], gradient

    def step_difficulties(self, x: Floats) -> tuple[Floats, Floats]:
        """``b_k = -d_k / a``: where category k or a higher one is as likely as not."""
        d, gradient = self.step_intercepts(x)
        gradient /= -x[0]
        gradient[:, 0] = d / x[0] ** 2
        return -d / x[0], gradient

    def thresholds(self, x: Floats) -> tuple[Floats, Floats]:
        """See :class:`ItemModel`: the step difficulties."""
        return self.step_difficulties(x)

    def start(self, x: Floats, n: Floats) -> None:
        """See :class:`ItemModel`: as items of two categories, k or higher and below."""
        n = n + 0.5 / self.n_categories  # intercepts fall strictly
        higher = n[:, ::-1].cumsum(axis=1)[:, -2::-1]
        x[1:] = widened(x[0]) * share_logit(higher, n.sum(axis=1, keepdims=True)).T

    def of_steps(self, scores: Floats, intercepts: Floats) -> Floats:
        """See :class:`ItemModel`."""
        return np.concatenate([scores[-1:] / (self.n_categories - 1), intercepts])

    def valid(self, x: Floats) -> Bools:
        """See :class:`ItemModel`."""
        return np.asarray((x[0] != 0.0) & (np.diff(x[1:], axis=0) < 0.0).all(axis=0))

    def steepness(self, x: Floats) -> Floats:
        """See :class:`ItemModel`: no P has a zero, and its poles lie pi / |a| off the real line."""
        return np.abs(x[0])
