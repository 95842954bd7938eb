"""Items as a sample, slopes of any sign: (a, d) normal, with a mean and a covariance learned.

As :mod:`irt_dask.calibrate.bayes.hierarchy`, in other coordinates.  A stretch of the ability scale
multiplies the slopes, so that their mean *and* their covariance have to go along if the items'
density is not to outvote the persons: ``a e^v, mu_a e^v``, and Sigma's row and column of a.  A
shift adds a multiple of a to d: with slopes of both signs it would be the items' to say how far,
did not mean and covariance shear along, which leaves their density as it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from irt_dask.arrays import Floats
from irt_dask.calibrate.bayes.hierarchy import Hierarchy, Orbit


@dataclass(frozen=True)
class SignedHierarchy(Hierarchy):
    """Prior of mean and covariance of (a, d).

    The density is the same for all slopes turned: a mean of N(0, 1), and a covariance whose slopes
    have an SD of about .5.
    """

    scale: tuple[tuple[float, float], tuple[float, float]] = ((1.25, 0.0), (0.0, 10.0))

    @property
    def names(self) -> tuple[str, str]:
        """See :class:`Hierarchy`."""
        return "discrimination", "intercept"

    @property
    def signed(self) -> bool:
        """See :class:`Hierarchy`."""
        return True

    def slopes(self, x: Floats) -> Floats:
        """See :class:`Hierarchy`."""
        return x[..., 0, :]

    def beyond(self, power: float) -> tuple[float, float]:
        """See :class:`Hierarchy`: slopes near 0 are nowhere near an end."""
        return math.inf, 0.0

    def log_density_of_slopes(self, a: Floats, d: Floats) -> tuple[float, Floats]:
        """See :class:`Hierarchy`."""
        return self.log_density(np.stack([a, d]))

    def _shifted(
        self, x: Floats, mean: Floats, covariance: Floats, power: float,
        abilities: tuple[float, float, float], z: float,
    ) -> tuple[Floats, Floats, Floats, float]:  # fmt: skip
        """See :class:`Hierarchy`; a covariance that is held cannot go along."""
        if self.held is not None:
            return super()._shifted(x, mean, covariance, power, abilities, z)
        own = power / np.square(self.mean_sd[1:])
        x, rows, covariances, s2 = sheared(
            x, mean[None], covariance[None], own, own * (self.mean[1] - mean[1]), self.scale[0],
            abilities, z,
        )  # fmt: skip
        return x, rows[0], covariances[0], s2

    def _on_orbit(
        self, x: Floats, mean: Floats, covariance: Floats, power: float, n: float, s2: float
    ) -> Orbit:
        """``-k v - A e^-2v / 2 - C e^-v - B e^2v / 2 + E e^v``, see ``docs/methods.md``.

        Where the covariance is learned the items' density moves along, and the Jacobians of mu
        (e^v) and of Sigma (e^3v) meet its inverse Wishart density; where it is held the deviations
        of slopes are stretched, with the Jacobian of J slopes and mu.
        """
        by_mean, at = power / self.mean_sd[0] ** 2, self.mean[0]
        own = by_mean * mean[0] ** 2
        inner = np.linalg.inv(covariance)
        towards = by_mean * mean[0] * at
        if self.held is None:
            (scale, both), _ = self.scale
            k = n - 1.0 + self.df
            narrow, cross = s2 + scale * inner[0, 0], both * inner[0, 1]
        else:
            away = x - mean[:, None]
            k, narrow, cross = n - x.shape[1] - 1.0, s2, 0.0
            own += power * inner[0, 0] * float(away[0] @ away[0])
            towards -= power * inner[0, 1] * float(away[0] @ away[1])
        return along_slopes(k, narrow, cross, own, towards)

    def _stretched(
        self, x: Floats, mean: Floats, covariance: Floats, v: float
    ) -> tuple[Floats, Floats, Floats]:
        e = math.exp(v)
        x[0] *= e
        mean[0] *= e
        if self.held is None:
            covariance = covariance * np.array([[e * e, e], [e, 1.0]])
        return x, mean, covariance

    def pulls(self, drawn: dict[str, Floats], a: Floats) -> tuple[float, float]:
        """See :class:`Hierarchy`."""
        mean = drawn["item_prior_mean_draw"]
        (scale, both), _ = self.scale
        inner = np.linalg.inv(drawn["item_prior_covariance_draw"])
        pull = (self.mean - mean) / np.square(self.mean_sd)
        stretched = 1.0 - self.df + scale * inner[:, 0, 0] + both * inner[:, 0, 1]
        stretched = stretched + mean[:, 0] * pull[:, 0]
        place = mean[:, 0] * pull[:, 1] + scale * inner[:, 0, 1] + both * inner[:, 1, 1]
        return float(stretched.mean()), float(place.mean())


def sheared(
    x: Floats, mean: Floats, covariance: Floats, own: Floats, pull: Floats,
    scale: tuple[float, float], abilities: tuple[float, float, float], z: float,
) -> tuple[Floats, Floats, Floats, float]:  # fmt: skip
    """``theta - m`` and ``d + m a``, coefficients (q, 2) and covariances (groups, 2, 2) alike.

    The items' density is the same along this orbit, whose Jacobian is 1.  Abilities, coefficients'
    priors (of precision ``own``, slope ``pull``) and inverse Wishart densities with a ``scale`` of
    this first row make the density of m normal: tr(scale L^-T Sigma^-1 L^-1) for a shear L.
    """
    (n, s1, s2), (aa, ad) = abilities, scale
    a, inner = mean[:, 0], np.linalg.inv(covariance)
    precision = n + float(own @ a**2) + aa * float(inner[:, 1, 1].sum())
    slope = s1 + float(pull @ a) + aa * float(inner[:, 0, 1].sum())
    slope += ad * float(inner[:, 1, 1].sum())
    m = slope / precision + z / math.sqrt(precision)
    shear = np.array([[1.0, 0.0], [m, 1.0]])
    x, mean, covariance = shear @ x, mean @ shear.T, shear @ covariance @ shear.T
    return x, mean, covariance, s2 + n * m * m - 2.0 * m * s1


def along_slopes(k: float, narrow: float, cross: float, square: float, towards: float) -> Orbit:
    """``-k v - narrow e^-2v / 2 - cross e^-v - square e^2v / 2 + towards e^v``."""

    def log_density(v: float) -> float:
        e = math.exp(v)
        inwards = 0.5 * narrow / (e * e) + cross / e
        return -k * v - inwards - 0.5 * square * e * e + towards * e

    def slope(v: float) -> tuple[float, float]:
        e = math.exp(v)
        rise = narrow / (e * e) + cross / e - k - square * e * e + towards * e
        return rise, 2.0 * narrow / (e * e) + 2.0 * square * e * e + abs(towards) * e + 1e-12

    return log_density, slope
