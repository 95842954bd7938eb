"""Items in coordinates without bounds, in which posteriors are near normal.

The first two coordinates of an item of any model are log a and its intercept ``d = -a b``, of steps
their mean: a change of the scale of ability, ``(theta - m) e^-v``, adds v to the first and ``a m``
to the second, and leaves the others alone.  These are the shape of the item: logits of its
asymptotes, shifts of its steps, or logarithms of the distances between them.  Categories without
order have slopes of any sign, and some of their shape has the unit of ability too
(:class:`irt_dask.curves.nominal.Scores`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import (
    betainc,
    betaincinv,
    betaln,
    digamma,
    expit,
    log_expit,
    logit,
    ndtri,
    polygamma,
)

from irt_dask.arrays import Floats
from irt_dask.curves.betas import Betas


class Density(NamedTuple):
    """Log densities of items, (items,), gradients and negative Hessians by coordinates.

    These have shape (coordinates, items) and (items, coordinates, coordinates).
    """

    value: Floats
    gradient: Floats
    information: Floats


def nothing(y: Floats) -> Density:
    """Density of which nothing is said yet."""
    size, m = y.shape
    return Density(np.zeros(m), np.zeros((size, m)), np.zeros((m, size, size)))


class Coordinates:
    """Coordinates of the items of one model, (parameters, items)."""

    #: Number of parameters: a model that adds one to another's needs coordinates of its own.
    size: int
    #: Coordinates of the shape that are in units of ability, as the slope is, and those that a
    #: change of its place adds them to, as the slope to the intercept.
    rising: slice = slice(0)
    level: slice = slice(0)
    #: Whether there are such, or could be with more categories: the first parameter is no slope.
    scored: bool = False

    @property
    def signed(self) -> Coordinates:
        """The same, if slopes may be negative."""
        return Signed(self)

    @property
    def place(self) -> Floats:
        """What d is of the parameters: weights, (parameters,)."""
        raise NotImplementedError

    def of(self, x: Floats) -> Floats:
        """Coordinates of parameters."""
        raise NotImplementedError

    def parameters(self, y: Floats) -> Floats:
        """Parameters at coordinates."""
        raise NotImplementedError

    def slopes(self, y: Floats) -> Floats:
        """Derivatives of parameters p by coordinates q, (p, q, items)."""
        raise NotImplementedError

    def log_prior(self, y: Floats, betas: Betas, power: float = 1.0) -> Density:
        """Density of the shape before the data, in coordinates; asymptotes have those of betas.

        To a ``power``, it is that of a shard: of the normal density with the same moments, as
        what shards say is combined by moments.
        """
        raise NotImplementedError

    def log_density(self, y: Floats, betas: Betas, power: float = 1.0) -> Floats:
        """The value alone."""
        return self.log_prior(y, betas, power).value

    def draw_shapes(self, u: Floats, betas: Betas) -> Floats:
        """Shapes drawn from that density, (..., parameters - 2, items), of as many uniforms."""
        raise NotImplementedError


#: Parameters of items with two asymptotes, and places between which their shares are interpolated.
_BOTH, _FINE = 4, 4097


class Asymptotes(Coordinates):
    """Slope, intercept, and asymptotes: log a, d, and logits."""

    def __init__(self, size: int) -> None:
        self.size = size

    @property
    def place(self) -> Floats:
        """See :class:`Coordinates`."""
        return np.eye(self.size)[1]

    def of(self, x: Floats) -> Floats:
        """See :class:`Coordinates`."""
        return np.concatenate([np.log(x[:1]), x[1:2], np.log(x[2:]) - np.log1p(-x[2:])])

    def parameters(self, y: Floats) -> Floats:
        """See :class:`Coordinates`."""
        return np.concatenate([np.exp(y[:1]), y[1:2], expit(y[2:])])

    def slopes(self, y: Floats) -> Floats:
        """See :class:`Coordinates`."""
        out = np.zeros((len(y), *y.shape))
        out[0, 0], out[1, 1] = np.exp(y[0]), 1.0
        for k in range(2, len(y)):
            out[k, k] = expit(y[k]) * expit(-y[k])
        return out

    def log_prior(self, y: Floats, betas: Betas, power: float = 1.0) -> Density:
        """See :class:`Coordinates`: of a logit z, ``c^alpha (1 - c)^beta / B(alpha, beta)``.

        To a power its tails would be so long that chains of few persons are lost in them.  Where
        there are two asymptotes the density is cut off, and not made anew, at c = u: beyond the
        curve would fall.
        """
        out, m = nothing(y), y.shape[1]
        for k in range(2, len(y)):
            alpha, beta = (np.broadcast_to(v[k], m) for v in (betas.alpha, betas.beta))
            if power != 1.0:
                mean = digamma(alpha) - digamma(beta)
                precision = power / (polygamma(1, alpha) + polygamma(1, beta))
                away = y[k] - mean
                out.value[:] += 0.5 * (np.log(precision / (2.0 * math.pi)) - precision * away**2)
                out.gradient[k], out.information[:, k, k] = -precision * away, precision
                continue
            p, q = expit(y[k]), expit(-y[k])
            out.gradient[k] = alpha * q - beta * p
            out.information[:, k, k] = (alpha + beta) * p * q
        if power == 1.0:
            out.value[:] = self.log_density(y, betas)
        elif self.size == _BOTH:
            out.value[y[2] >= y[3]] = -np.inf
        return out

    def log_density(self, y: Floats, betas: Betas, power: float = 1.0) -> Floats:
        """See :class:`Coordinates`."""
        if power != 1.0:
            return self.log_prior(y, betas, power).value
        z, alpha, beta = y[2:], betas.alpha[2 : self.size], betas.beta[2 : self.size]
        value = (alpha * log_expit(z) + beta * log_expit(-z) - betaln(alpha, beta)).sum(axis=0)
        if self.size == _BOTH:
            value[y[2] >= y[3]] = -np.inf
        return np.asarray(value)

    def draw_shapes(self, u: Floats, betas: Betas) -> Floats:
        """See :class:`Coordinates`."""
        rows, m = slice(2, self.size), u.shape[-1]
        alpha, beta = (np.repeat(v[rows], m // v.shape[1], 1) for v in (betas.alpha, betas.beta))
        if self.size != _BOTH:
            return np.asarray(logit(betaincinv(alpha, beta, u)))
        share, out = np.linspace(0.0, 1.0, _FINE), np.empty_like(u)
        for j in range(m):
            (a, a_upper), (b, b_upper) = alpha[:, j], beta[:, j]
            # Of the lower one's shares: as many as have an upper one above.
            above = 1.0 - betainc(a_upper, b_upper, betaincinv(a, b, share))
            sums = np.append(0.0, np.cumsum(above[1:] + above[:-1]))
            out[:, 0, j] = betaincinv(a, b, np.interp(u[:, 0, j], sums / sums[-1], share))
            least = betainc(a_upper, b_upper, out[:, 0, j])
            out[:, 1, j] = betaincinv(a_upper, b_upper, least + u[:, 1, j] * (1.0 - least))
        return np.asarray(logit(out))


class Signed(Coordinates):
    """Those of others with the slope itself, which may be negative, in place of its logarithm."""

    def __init__(self, positive: Coordinates) -> None:
        self.positive, self.size = positive, positive.size

    @property
    def place(self) -> Floats:
        """See :class:`Coordinates`."""
        return self.positive.place

    def of(self, x: Floats) -> Floats:
        """See :class:`Coordinates`."""
        y = self.positive.of(np.concatenate([np.ones_like(x[:1]), x[1:]]))
        y[0] = x[0]
        return y

    def parameters(self, y: Floats) -> Floats:
        """See :class:`Coordinates`."""
        x = self.positive.parameters(np.concatenate([np.zeros_like(y[:1]), y[1:]]))
        x[0] = y[0]
        return x

    def slopes(self, y: Floats) -> Floats:
        """See :class:`Coordinates`."""
        out = self.positive.slopes(np.concatenate([np.zeros_like(y[:1]), y[1:]]))
        out[0, 0] = 1.0
        return out

    def log_prior(self, y: Floats, betas: Betas, power: float = 1.0) -> Density:
        """See :class:`Coordinates`: shapes know nothing of slopes."""
        return self.positive.log_prior(y, betas, power)

    def log_density(self, y: Floats, betas: Betas, power: float = 1.0) -> Floats:
        """See :class:`Coordinates`."""
        return self.positive.log_density(y, betas, power)

    def draw_shapes(self, u: Floats, betas: Betas) -> Floats:
        """See :class:`Coordinates`."""
        return self.positive.draw_shapes(u, betas)


#: SD of a step intercept's deviation from their mean, before the data.
STEPS_SD = 2.0


class Shifts(Coordinates):
    """Adjacent steps of K categories: log a, d, and t_1 to t_{K-2}, with ``d_k = k d + t_k``.

    The step intercepts ``d_k - d_{k-1}`` less their mean d are independent N(0, 2^2) before the
    data, given that their sum is 0.
    """

    def __init__(self, n_categories: int) -> None:
        n, self.size = n_categories - 1, n_categories
        self.numbers = np.arange(1.0, n + 1.0)
        steps = np.eye(n, n - 1) - np.eye(n, n - 1, -1)  # d_k - d_{k-1} - d of t
        self.precision = steps.T @ steps / STEPS_SD**2
        _, log_det = np.linalg.slogdet(self.precision)
        self.constant = 0.5 * float(log_det) - 0.5 * (n - 1) * math.log(2.0 * math.pi)
        self.matrix = np.eye(n + 1)  # of parameters, but for the slope, by coordinates
        self.matrix[1:, 1:] = np.concatenate([self.numbers[:, None], np.eye(n, n - 1)], axis=1)

    @property
    def place(self) -> Floats:
        """See :class:`Coordinates`."""
        return np.eye(self.size)[-1] / self.numbers[-1]

    def of(self, x: Floats) -> Floats:
        """See :class:`Coordinates`."""
        d = x[-1:] / self.numbers[-1]
        return np.concatenate([np.log(x[:1]), d, x[1:-1] - self.numbers[:-1, None] * d])

    def parameters(self, y: Floats) -> Floats:
        """See :class:`Coordinates`."""
        x = self.matrix @ y
        x[0] = np.exp(y[0])
        return x

    def slopes(self, y: Floats) -> Floats:
        """See :class:`Coordinates`."""
        out = np.repeat(self.matrix[:, :, None], y.shape[1], axis=2)
        out[0, 0] = np.exp(y[0])
        return out

    def log_prior(self, y: Floats, betas: Betas, power: float = 1.0) -> Density:
        """See :class:`Coordinates`."""
        out = nothing(y)
        pull = power * self.precision @ y[2:]
        constant = self.constant + 0.5 * (len(y) - 2) * math.log(power)
        out.value[:] = constant - 0.5 * (y[2:] * pull).sum(axis=0)
        out.gradient[2:] = -pull
        out.information[:, 2:, 2:] = power * self.precision
        return out

    def draw_shapes(self, u: Floats, betas: Betas) -> Floats:
        """See :class:`Coordinates`."""
        return np.linalg.solve(np.linalg.cholesky(self.precision).T, ndtri(u))


class LocatedShifts(Shifts):
    """The same, of parameters a, d and t_1 to t_{K-2} themselves."""

    def __init__(self, n_categories: int) -> None:
        super().__init__(n_categories)
        self.matrix = np.eye(n_categories)

    @property
    def place(self) -> Floats:
        """See :class:`Coordinates`."""
        return np.eye(self.size)[1]

    def of(self, x: Floats) -> Floats:
        """See :class:`Coordinates`."""
        return np.concatenate([np.log(x[:1]), x[1:]])


#: Logits between the first and the last step, before the data, and SD of the logarithms.
_SPREAD, _GAPS_SD = 4.0, 1.0


class Gaps(Coordinates):
    """Falling steps of K categories: log a, d, and the logarithms of ``d_k - d_{k+1}``.

    They are independent N(log(4 / (K - 1)), 1) before the data.
    """

    def __init__(self, n_categories: int) -> None:
        n, self.size = n_categories - 1, n_categories
        below = np.arange(n)[:, None] > np.arange(n - 1)  # steps that a distance takes down
        self.places = below.mean(axis=0) - below
        self.usual = math.log(_SPREAD / n)

    @property
    def place(self) -> Floats:
        """See :class:`Coordinates`."""
        return np.append(0.0, np.full(self.size - 1, 1.0 / (self.size - 1)))

    def of(self, x: Floats) -> Floats:
        """See :class:`Coordinates`."""
        steps = x[1:]
        mean = steps.mean(axis=0, keepdims=True)
        return np.concatenate([np.log(x[:1]), mean, np.log(-np.diff(steps, axis=0))])

    def parameters(self, y: Floats) -> Floats:
        """See :class:`Coordinates`."""
        return np.concatenate([np.exp(y[:1]), y[1] + self.places @ np.exp(y[2:])])

    def slopes(self, y: Floats) -> Floats:
        """See :class:`Coordinates`."""
        out = np.zeros((len(y), *y.shape))
        out[0, 0], out[1:, 1] = np.exp(y[0]), 1.0
        out[1:, 2:] = self.places[:, :, None] * np.exp(y[2:])
        return out

    def log_prior(self, y: Floats, betas: Betas, power: float = 1.0) -> Density:
        """See :class:`Coordinates`."""
        out, size = nothing(y), len(y) - 2
        away, precision = y[2:] - self.usual, power / _GAPS_SD**2
        constant = 0.5 * size * math.log(precision / (2.0 * math.pi))
        out.value[:] = constant - 0.5 * precision * (away * away).sum(axis=0)
        out.gradient[2:] = -precision * away
        out.information[:, 2:, 2:] = precision * np.eye(size)
        return out

    def draw_shapes(self, u: Floats, betas: Betas) -> Floats:
        """See :class:`Coordinates`."""
        return self.usual + _GAPS_SD * np.asarray(ndtri(u))
