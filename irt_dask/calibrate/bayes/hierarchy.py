"""Items as a sample: (log a, d) normal, with a mean and a covariance that are learned.

Independent priors of items let J items outvote n persons on what all items share.  Along theta ->
theta e^-v, a -> a e^v the likelihood stays the same; n abilities N(0, 1) say ``exp(-S2 e^-2v / 2 -
n v)`` of v, and J slopes with a density of their own ``e^{Jv}`` times that density, so with J of
the order of n the slopes win.  With a mean that is free the items' prior moves along and says
nothing of v, nor of a common shift of abilities: both rest on the persons alone.

Coordinates of an item are x = (log a, d), arrays (2, items).  x_j ~ N(mu, Sigma); mu is normal and
Sigma inverse Wishart, both proper.  This is the case of one block of items.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import chdtri, ndtri

from irt_dask.arrays import Floats
from irt_dask.kernels.gibbs.learned_item_draws import Normals

#: SDs of log a from its mean beyond which the prior of a shard, a power of the whole one, falls as
#: fast as that.
_REACH = 3.0
#: Uniforms that :meth:`Hierarchy.move` uses.
WORDS_MOVE = 3


@dataclass(frozen=True)
class Hierarchy:
    """Prior of the items' mean and covariance.

    Parameters
    ----------
    mean, mean_sd : (log a, d)
        mu is normal with this mean and these standard deviations.
    df, scale : float, 2 x 2
        Sigma is inverse Wishart, of mean ``scale / (df - 3)``: SDs of about 0.4 (log a) and 1.4
        (d), with the weight of five items.
    held : 2 x 2, optional
        A covariance that is not learned (in shards).
    """

    mean: tuple[float, float] = (0.0, 0.0)
    mean_sd: tuple[float, float] = (1.0, 3.0)
    df: float = 8.0
    scale: tuple[tuple[float, float], tuple[float, float]] = ((0.75, 0.0), (0.0, 10.0))
    held: Any = None

    @property
    def names(self) -> tuple[str, str]:
        """What the coordinates are."""
        return "log_discrimination", "intercept"

    @property
    def signed(self) -> bool:
        """Whether slopes may be negative."""
        return False

    @property
    def words_mean(self) -> int:
        """Uniforms that :meth:`draw_mean` uses."""
        return 2

    @property
    def words_covariance(self) -> int:
        """Uniforms that :meth:`draw_covariance` uses."""
        return 3

    @property
    def identity(self) -> dict[str, Any]:
        """What a checkpoint rests on."""
        return {f.name: getattr(self, f.name) for f in fields(Hierarchy)}

    def coords(self) -> dict[str, Any]:
        """Names of the coordinates, by dimension."""
        return dict.fromkeys(("coordinate", "coordinate_"), self.names)

    def named(self, mean: Floats, covariance: Floats) -> dict[str, Floats]:
        """Variables of draws of mean and covariance."""
        return {"item_prior_mean": mean, "item_prior_covariance": covariance}

    def described(self, data: dict[str, Any]) -> dict[str, Any]:
        """The result's arrays, of those that there are of mean and covariance."""
        return data

    def slopes(self, x: Floats) -> Floats:
        """Discriminations of items at x, (..., items)."""
        return np.asarray(np.exp(x[..., 0, :]))

    def holding(self, covariance: Floats) -> Hierarchy:
        """Return this prior with a covariance that is not learned."""
        (uu, ud), (du, dd) = covariance.tolist()
        return replace(self, held=((uu, ud), (du, dd)))

    def beyond(self, power: float) -> tuple[float, float]:
        """Distance of log a from its mean from where on the prior to a power is that no more.

        To a small power it is so wide that slopes near 0, where log a has no end, get mass from
        likelihoods of few persons that reach there: SDs of log a would be those of this tail, which
        the whole prior does not have.  So from some SDs on it falls as the whole one does: a
        further precision, the second value, of what is beyond.
        """
        if self.held is None or power == 1.0:
            return math.inf, 0.0
        (precision, _), _ = np.linalg.inv(np.array(self.held)).tolist()
        return _REACH * math.sqrt(self.held[0][0]), (1.0 - power) * precision

    def normals(self, mean: Floats, covariance: Floats, power: float, n_items: int) -> Normals:
        """What is known of each item, to a power."""
        precision = power * np.linalg.inv(covariance)
        return Normals.of_one(mean, precision, n_items, self.beyond(power))

    @cached_property
    def _mean_precision(self) -> Floats:
        return np.diag(1.0 / np.square(self.mean_sd))

    def before(self, u_mean: Floats, u_covariance: Floats) -> tuple[Floats, Floats]:
        """Draw mean and covariance before there are items, of uniforms (draws, ...)."""
        mean = self.mean + ndtri(u_mean) * self.mean_sd
        none = np.empty((len(mean), 2, 0))
        return mean, self.draw_covariance(none, mean, u_covariance)

    def draw_items(self, mean: Floats, covariance: Floats, z: Floats) -> Floats:
        """Items, of standard normals z (draws, 2, items)."""
        return np.asarray(mean[..., None] + np.linalg.cholesky(covariance) @ z)

    # --- conditionals: items x are (..., 2, items), mu (..., 2), Sigma (..., 2, 2) ----------------

    def start(self, x: Floats) -> tuple[Floats, Floats]:
        """Mean and covariance to start from, given items at x."""
        mean = x.mean(axis=-1)
        if self.held is not None:
            return mean, np.array(self.held)
        return mean, self.covariance_given(x, mean)

    def covariance_given(self, x: Floats, mean: Floats, own: Floats | None = None) -> Floats:
        """Mean of Sigma given items at x, and covariances of their own, (items, 2, 2)."""
        scale = np.array(self.scale) + _scatter(x, mean)
        if own is not None:
            scale += own.sum(axis=0)
        return scale / (self.df + x.shape[-1] - 3.0)

    def mean_given(self, x: Floats, covariance: Floats) -> tuple[Floats, Floats]:
        """Mean and precision of mu given items at x."""
        own, items = self._mean_precision, x.shape[-1] * np.linalg.inv(covariance)
        precision = own + items
        pull = own @ self.mean + (items @ x.mean(axis=-1)[..., None])[..., 0]
        return np.linalg.solve(precision, pull[..., None])[..., 0], precision

    def draw_mean(self, x: Floats, covariance: Floats, power: float, u: Floats) -> Floats:
        """Draw mu given items at x, from its conditional to a power; u (..., 2)."""
        centre, precision = self.mean_given(x, covariance)
        root = np.linalg.cholesky(power * precision)
        return centre + np.linalg.solve(np.swapaxes(root, -1, -2), ndtri(u)[..., None])[..., 0]

    def draw_covariance(self, x: Floats, mean: Floats, u: Floats) -> Floats:
        """Draw Sigma given items at x and mu (Bartlett's decomposition); u (..., 3)."""
        scale = np.array(self.scale) + _scatter(x, mean)
        return inverse_wishart(scale, self.df + x.shape[-1], u)

    def log_weights(self, x: Floats, mean: Floats) -> Floats:
        """Log of the posterior density of items and mu over that with the covariance held.

        Sigma is integrated out: ``-(df + J) / 2 log |scale + S| + tr(held^-1 S) / 2`` with S the
        items' scatter about mu, up to a constant.
        """
        scatter = _scatter(x, mean)
        _, log_det = np.linalg.slogdet(np.array(self.scale) + scatter)
        held = np.einsum("ij,...ji->...", np.linalg.inv(np.array(self.held)), scatter)
        return 0.5 * held - 0.5 * (self.df + x.shape[-1]) * log_det

    def log_density(self, x: Floats, volume: float = 0.0) -> tuple[float, Floats]:
        """Log density of items at x, mu integrated out, and its gradient (2, items).

        The covariance is the one that is held; ``volume`` is the log of that of other coordinates.
        """
        covariance = np.array(self.held)
        inner, own = np.linalg.inv(covariance), self._mean_precision
        centre, precision = self.mean_given(x, covariance)
        deviation, off = x - centre[:, None], centre - self.mean
        slope = -inner @ deviation
        value = 0.5 * float((deviation * slope).sum()) - 0.5 * float(off @ own @ off)
        for matrix, times in ((covariance, x.shape[1]), (precision, 1), (np.linalg.inv(own), 1)):
            value -= 0.5 * times * float(np.linalg.slogdet(matrix)[1])
        return value - (x.shape[1] * math.log(2.0 * math.pi) + volume), slope

    def log_density_of_slopes(self, a: Floats, d: Floats) -> tuple[float, Floats]:
        """:meth:`log_density` as one of slopes and intercepts, and its gradient by these."""
        x = np.stack([np.log(a), d])
        value, slope = self.log_density(x, float(x[0].sum()))
        slope[0] = (slope[0] - 1.0) / a
        return value, slope

    # --- moves along what the likelihood does not see -------------------------------------------

    def move(
        self, x: Floats, mean: Floats, covariance: Floats, power: float,
        abilities: tuple[float, float, float], u: Floats,
    ) -> tuple[Floats, Floats, Floats]:  # fmt: skip
        """Shift and stretch the ability scale together with the prior; x, mean, covariance then.

        ``theta - m, d + a m, mu_d + c m`` with c the mean slope, and ``theta e^-v, a e^v`` and what
        the prior knows of slopes, leave the likelihood alone, and the items' density as far as they
        can; m and v are drawn from their conditionals on the orbit of the group (Liu and Sabatti
        2000), v by a Metropolis-Hastings step.  ``abilities`` are number, sum and sum of squares;
        ``power`` is that of the items' prior and of mu's.
        """
        z = ndtri(u[:2])
        x, mean, covariance, s2 = self._shifted(x, mean, covariance, power, abilities, float(z[0]))
        on_orbit = self._on_orbit(x, mean, covariance, power, abilities[0], s2)
        v = stretch(on_orbit, float(z[1]), float(u[2]))
        return self._stretched(x, mean, covariance, v)

    def _shifted(
        self, x: Floats, mean: Floats, covariance: Floats, power: float,
        abilities: tuple[float, float, float], z: float,
    ) -> tuple[Floats, Floats, Floats, float]:  # fmt: skip
        """What a shift makes of them, and of the sum of squared abilities: a normal density."""
        n, s1, s2 = abilities
        x, mean = x.copy(), mean.copy()
        inner = power * np.linalg.inv(covariance)
        outer = power * self._mean_precision
        a = self.slopes(x)
        c = a.mean()
        along = a - c
        pull = inner[1] @ (x - mean[:, None])
        precision = n + inner[1, 1] * (along @ along) + outer[1, 1] * c * c
        slope = s1 - pull @ along - c * (outer[1] @ (mean - self.mean))
        shift = slope / precision + z / math.sqrt(precision)
        x[1] += a * shift
        mean[1] += c * shift
        return x, mean, covariance, s2 + n * shift * shift - 2.0 * shift * s1

    def _on_orbit(
        self, x: Floats, mean: Floats, covariance: Floats, power: float, n: float, s2: float
    ) -> Orbit:
        """``log a + v, mu_a + v``."""
        outer = power * self._mean_precision
        return along_logarithms(n, s2, float(outer[0] @ (mean - self.mean)), float(outer[0, 0]))

    def _stretched(
        self, x: Floats, mean: Floats, covariance: Floats, v: float
    ) -> tuple[Floats, Floats, Floats]:
        x[0] += v
        mean[0] += v
        return x, mean, covariance

    def pulls(self, drawn: dict[str, Floats], a: Floats) -> tuple[float, float]:
        """Expected score of the prior along stretches and shifts, from draws of mu and slopes."""
        pull = (self.mean - drawn["item_prior_mean_draw"]) / np.square(self.mean_sd)
        return float(pull[:, 0].mean()), float((a.mean(axis=1) * pull[:, 1]).mean())


def inverse_wishart(scale: Floats, df: Any, u: Floats) -> Floats:
    """Draw matrices of scales (..., 2, 2) and degrees of freedom df by Bartlett's decomposition.

    ``u`` are three uniforms for each, in the last axis (of several next to each other).
    """
    root, u = np.linalg.cholesky(np.linalg.inv(scale)), u.reshape(*scale.shape[:-2], 3)
    lower = np.zeros_like(root)
    lower[..., 0, 0] = np.sqrt(chdtri(df, u[..., 0]))
    lower[..., 1, 1] = np.sqrt(chdtri(df - 1.0, u[..., 1]))
    lower[..., 1, 0] = ndtri(u[..., 2])
    inverse = np.linalg.inv(root @ lower)
    return np.asarray(np.swapaxes(inverse, -1, -2) @ inverse)


#: Log density of a stretch; its derivative, and about minus the second one, which is positive.
Orbit = tuple[Callable[[float], float], Callable[[float], tuple[float, float]]]


def along_logarithms(n: float, s2: float, pull: float, stiff: float) -> Orbit:
    """``-n v - s2 e^-2v / 2 - pull v - stiff v^2 / 2``."""

    def log_density(v: float) -> float:
        return -n * v - 0.5 * s2 * math.exp(-2.0 * v) - pull * v - 0.5 * stiff * v * v

    def slope(v: float) -> tuple[float, float]:
        e = s2 * math.exp(-2.0 * v)
        return e - n - pull - stiff * v, 2.0 * e + stiff

    return log_density, slope


def stretch(on_orbit: Orbit, z: float, u: float) -> float:
    """Draw a stretch v by a Metropolis-Hastings step from 0; a normal about the mode is proposed.

    ``z`` is standard normal, ``u`` uniform.
    """
    log_density, slope = on_orbit
    mode, curvature = 0.0, 1.0
    for _ in range(50):
        rise, curvature = slope(mode)
        step = max(-1.0, min(1.0, rise / curvature))
        mode += step
        if abs(step) < 1e-12:
            break
    v = mode + z / math.sqrt(curvature)
    log_ratio = log_density(v) - log_density(0.0)
    log_ratio += 0.5 * z**2 - 0.5 * curvature * mode * mode
    return v if math.log(u) < log_ratio else 0.0


@dataclass(frozen=True)
class Learned:
    """What items that were drawn with a covariance held say when it is not.

    ``weight`` (draws,) sums to 1; ``named`` are variables of mean and covariance, which belong to
    the draws; ``expected`` is the covariance to hold if it has to be done again.
    """

    weight: Floats
    named: dict[str, Floats]
    expected: Floats

    @property
    def efficiency(self) -> float:
        """Effective share of the draws."""
        return 1.0 / (len(self.weight) * float((self.weight**2).sum()))


def learn(prior: Hierarchy, x: Floats, base: Floats, rng: np.random.Generator) -> Learned:
    """Learn mean and covariance from draws x (draws, 2, items) of weights ``base``."""
    held = np.array(prior.held)
    mean = prior.draw_mean(x, held, 1.0, rng.random((len(x), prior.words_mean)))
    log_weight = prior.log_weights(x, mean)
    weight = base * np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    covariance = prior.draw_covariance(x, mean, rng.random((len(x), prior.words_covariance)))
    # A step of EM.  A weighted mean would be that of the draw farthest out where weights are poor.
    again = np.einsum("n,n...->...", base, prior.covariance_given(x, mean))
    return Learned(weight, prior.named(mean, covariance), again)


def _scatter(x: Floats, mean: Floats) -> Floats:
    """Sum over items of the outer product of their deviations."""
    deviation = x - mean[..., None]
    return deviation @ np.swapaxes(deviation, -1, -2)
