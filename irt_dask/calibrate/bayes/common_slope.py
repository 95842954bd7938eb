"""Items as a sample, some of which share one slope: d normal, with a mean and a variance learned.

As :mod:`irt_dask.calibrate.bayes.hierarchy` for those with slopes of their own, if there are any:
(log a, d) normal.  The others are another sample, of intercepts alone, d ~ N(mu', s^2).  One slope
has no distribution to learn: its logarithm is normal with the mean and SD that mu has there.  Moves
along scale and place carry both means along, so that these rest on the persons here too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import chdtri, ndtri

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.calibrate.bayes.hierarchy import Hierarchy, Orbit, along_logarithms
from irt_dask.kernels.gibbs.learned_item_draws import Normals
from irt_dask.store.responses import sha256


@dataclass(frozen=True, eq=False)
class CommonSlope(Hierarchy):
    """Prior of mu and Sigma of items with slopes of their own, and of mu' and s^2 of the others.

    Means are arrays (..., q), covariances (..., q, q), q = 1 or 3: those of (log a, d), where there
    are such items, then those of the others' d; ``held`` is such a matrix.

    Parameters
    ----------
    sharing : (items,)
        Which items share a slope.
    """

    sharing: Bools = field(default_factory=lambda: np.zeros(0, dtype=bool))

    @classmethod
    def of(cls, plain: Hierarchy, sharing: Bools) -> CommonSlope:
        """Return the prior of items of which these share a slope."""
        known = {f.name: getattr(plain, f.name) for f in fields(Hierarchy)}
        return cls(**known, sharing=sharing)

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave out what is computed again."""
        return type(self), tuple(getattr(self, f.name) for f in fields(self))

    # --- what it is -------------------------------------------------------------------------------

    @cached_property
    def apart(self) -> Ints:
        """Items with a slope of their own."""
        return np.flatnonzero(~self.sharing)

    @cached_property
    def alike(self) -> Ints:
        """Items that share one; the first stands for all."""
        return np.flatnonzero(self.sharing)

    @cached_property
    def mixed(self) -> bool:
        """Whether there are both."""
        return self.apart.size > 0

    @cached_property
    def _own(self) -> Hierarchy:
        """The prior of those with a slope of their own."""
        known = {f.name: getattr(self, f.name) for f in fields(Hierarchy)}
        if self.mixed and self.held is not None:
            known["held"] = tuple(map(tuple, np.array(self.held)[:2, :2].tolist()))
        return Hierarchy(**known)

    @property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]
        """See :class:`Hierarchy`."""
        own = super().names
        return (*own, f"{own[1]}_of_common_slope") if self.mixed else own[1:]

    @property
    def words_mean(self) -> int:
        """See :class:`Hierarchy`."""
        return 3 if self.mixed else 1

    @property
    def words_covariance(self) -> int:
        """See :class:`Hierarchy`."""
        return 4 if self.mixed else 1

    @property
    def identity(self) -> dict[str, Any]:
        """See :class:`Hierarchy`."""
        held = None if self.held is None else np.array(self.held).tolist()
        return super().identity | {"held": held, "sharing": sha256(self.sharing)}

    def holding(self, covariance: Floats) -> CommonSlope:
        """See :class:`Hierarchy`."""
        known = {f.name: getattr(self, f.name) for f in fields(self)}
        return CommonSlope(**known | {"held": np.asarray(covariance, dtype=float)})

    def normals(self, mean: Floats, covariance: Floats, power: float, n_items: int) -> Normals:
        """See :class:`Hierarchy`: of items that share a slope the first has what is known of it."""
        means, group = np.zeros((n_items, 2)), np.ones(n_items, dtype=np.int64)
        precision, ends = np.zeros((3, 2, 2)), np.tile((math.inf, 0.0), (3, 1))
        if self.mixed:
            of_own = self._own.normals(mean[:2], covariance[:2, :2], power, self.apart.size)
            means[self.apart], group[self.apart] = of_own.mean, 0
            precision[0], ends[0] = of_own.precision[0], of_own.beyond[0]
        means[self.alike] = self.mean[0], mean[-1]
        precision[1:, 1, 1] = power / covariance[-1, -1]
        precision[2, 0, 0], group[self.alike[0]] = power / self.mean_sd[0] ** 2, 2
        return Normals(means, precision, ends, group)

    def before(self, u_mean: Floats, u_covariance: Floats) -> tuple[Floats, Floats]:
        """See :class:`Hierarchy`."""
        mean = np.empty(u_mean.shape)
        mean[:, -1] = self.mean[1] + ndtri(u_mean[:, -1]) * self.mean_sd[1]
        if self.mixed:
            mean[:, :2] = self.mean + ndtri(u_mean[:, :2]) * self.mean_sd
        none = np.empty((len(mean), 2, 0))
        return mean, self._drawn(none, none, mean, u_covariance)

    def draw_items(self, mean: Floats, covariance: Floats, z: Floats) -> Floats:
        """See :class:`Hierarchy`."""
        x, first = np.empty_like(z), self.alike[0]
        x[:, 0] = (self.mean[0] + self.mean_sd[0] * z[:, 0, first])[:, None]
        x[:, 1] = mean[:, -1:] + np.sqrt(covariance[:, -1, -1:]) * z[:, 1]
        if self.mixed:
            own = self._own.draw_items(mean[:, :2], covariance[:, :2, :2], z[..., self.apart])
            x[..., self.apart] = own
        return x

    # --- conditionals: of the two samples, which know nothing of each other -----------------------

    def _split(self, x: Floats) -> tuple[Floats, Floats]:
        """Items with slopes of their own, and the others, (..., 2, items)."""
        return x[..., self.apart], x[..., self.alike]

    def _joined(self, own: Floats | None, variance: Floats) -> Floats:
        """Covariance of both, (..., q, q)."""
        if own is None:
            return np.asarray(variance)[..., None, None]
        out = np.zeros((*own.shape[:-2], 3, 3))
        out[..., :2, :2], out[..., 2, 2] = own, variance
        return out

    @property
    def _inverse_chi_square(self) -> tuple[float, float]:
        """Scale and degrees of freedom of s^2 before the data: those of d alone in Sigma's."""
        return self.scale[1][1], self.df - 1.0

    def start(self, x: Floats) -> tuple[Floats, Floats]:
        """See :class:`Hierarchy`."""
        own, others = self._split(x)
        mean = np.append(own.mean(axis=-1), others[1].mean()) if self.mixed else others[1:].mean(-1)
        return mean, self.covariance_given(x, mean) if self.held is None else np.array(self.held)

    def covariance_given(self, x: Floats, mean: Floats, own: Floats | None = None) -> Floats:
        """See :class:`Hierarchy`."""
        (mine, others), (scale, df) = self._split(x), self._inverse_chi_square
        rest = _squares(others, mean)
        if own is not None:
            rest = rest + own[self.alike, 1, 1].sum()
        variance = (scale + rest) / (df + self.alike.size - 2.0)
        if not self.mixed:
            return self._joined(None, variance)
        errors = None if own is None else own[self.apart]
        return self._joined(self._own.covariance_given(mine, mean[..., :2], errors), variance)

    def mean_given(self, x: Floats, covariance: Floats) -> tuple[Floats, Floats]:
        """See :class:`Hierarchy`."""
        own, others = self._split(x)
        known, items = 1.0 / self.mean_sd[1] ** 2, self.alike.size / covariance[..., -1, -1]
        centre = (known * self.mean[1] + items * others[..., 1, :].mean(axis=-1)) / (known + items)
        if not self.mixed:
            return centre[..., None], self._joined(None, known + items)
        both = self._own.mean_given(own, covariance[..., :2, :2])
        together = np.concatenate([both[0], centre[..., None]], axis=-1)
        return together, self._joined(both[1], known + items)

    def draw_covariance(self, x: Floats, mean: Floats, u: Floats) -> Floats:
        """See :class:`Hierarchy`: u (..., 1 or 4), the last one of s^2."""
        return self._drawn(*self._split(x), mean, u)

    def _drawn(self, own: Floats, others: Floats, mean: Floats, u: Floats) -> Floats:
        scale, df = self._inverse_chi_square
        variance = (scale + _squares(others, mean)) / chdtri(df + others.shape[-1], u[..., -1])
        if not self.mixed:
            return self._joined(None, variance)
        return self._joined(self._own.draw_covariance(own, mean[..., :2], u[..., :3]), variance)

    def log_weights(self, x: Floats, mean: Floats) -> Floats:
        """See :class:`Hierarchy`: a sum over both."""
        (own, others), (scale, df) = self._split(x), self._inverse_chi_square
        squares, held = _squares(others, mean), np.array(self.held)[-1, -1]
        out = 0.5 * squares / held - 0.5 * (df + self.alike.size) * np.log(scale + squares)
        return out + self._own.log_weights(own, mean[..., :2]) if self.mixed else out

    def log_density(self, x: Floats, volume: float = 0.0) -> tuple[float, Floats]:
        """See :class:`Hierarchy`."""
        own, others = self._split(x)
        slope, variance, n = np.zeros_like(x), float(np.array(self.held)[-1, -1]), self.alike.size
        (m, centre), (sd, sd_d) = self.mean, self.mean_sd
        known, items = 1.0 / sd_d**2, n / variance
        at = (known * centre + items * others[1].mean()) / (known + items)
        away, z = others[1] - at, (others[0, 0] - m) / sd
        slope[1, self.alike] = -away / variance
        slope[0, self.alike[0]] = -z / sd
        value = -0.5 * (float(away @ away) / variance + known * (at - centre) ** 2 + z * z)
        value -= 0.5 * (n * math.log(2.0 * math.pi * variance) + math.log((known + items) / known))
        value -= 0.5 * math.log(2.0 * math.pi) + math.log(sd) + volume
        if self.mixed:
            more, slope[:, self.apart] = self._own.log_density(own)
            value += more
        return value, slope

    def log_density_of_slopes(self, a: Floats, d: Floats) -> tuple[float, Floats]:
        """See :class:`Hierarchy`: the 2PL alone asks for it, which shares nothing."""
        raise NotImplementedError

    # --- moves along what the likelihood does not see ---------------------------------------------

    def _shifted(
        self, x: Floats, mean: Floats, covariance: Floats, power: float,
        abilities: tuple[float, float, float], z: float,
    ) -> tuple[Floats, Floats, Floats, float]:  # fmt: skip
        """See :class:`Hierarchy`: of one slope d and mu' move by the same, s^2 stays."""
        n, s1, s2 = abilities
        x, mean = x.copy(), mean.copy()
        own, _ = self._split(x)
        outer, a = power / self.mean_sd[1] ** 2, self.slopes(x)
        move = np.full(mean.size, a[self.alike[0]])
        precision, slope = float(n), s1
        if self.mixed:
            inner = power * np.linalg.inv(covariance[:2, :2])
            each = a[self.apart]
            move[:2] = 0.0, each.mean()
            along = each - move[1]
            precision += float(inner[1, 1] * (along @ along))
            slope -= float((inner[1] @ (own - mean[:2, None])) @ along)
            precision += outer * move[1] ** 2
            slope -= outer * move[1] * (mean[1] - self.mean[1])
        precision += outer * move[-1] ** 2
        slope -= outer * move[-1] * (mean[-1] - self.mean[1])
        shift = slope / precision + z / math.sqrt(precision)
        x[1] += a * shift
        mean += move * shift
        return x, mean, covariance, s2 + n * shift * shift - 2.0 * shift * s1

    def _on_orbit(
        self, x: Floats, mean: Floats, covariance: Floats, power: float, n: float, s2: float
    ) -> Orbit:
        """``log a + v, mu_a + v``, the slope that is shared once."""
        stiff = power / self.mean_sd[0] ** 2
        moved = [x[0, self.alike[0]], *mean[: 1 if self.mixed else 0]]
        pull = stiff * (sum(moved) - len(moved) * self.mean[0])
        return along_logarithms(n, s2, float(pull), stiff * len(moved))

    def _stretched(
        self, x: Floats, mean: Floats, covariance: Floats, v: float
    ) -> tuple[Floats, Floats, Floats]:
        x[0] += v
        if self.mixed:
            mean[0] += v
        return x, mean, covariance

    def pulls(self, drawn: dict[str, Floats], a: Floats) -> tuple[float, float]:
        """See :class:`Hierarchy`."""
        mean, (sd, sd_d), common = drawn["item_prior_mean_draw"], self.mean_sd, a[:, self.alike[0]]
        scale = (self.mean[0] - np.log(common)) / sd**2
        place = common * (self.mean[1] - mean[:, -1]) / sd_d**2
        if self.mixed:
            scale = scale + (self.mean[0] - mean[:, 0]) / sd**2
            place = place + a[:, self.apart].mean(axis=1) * (self.mean[1] - mean[:, 1]) / sd_d**2
        return float(scale.mean()), float(place.mean())


def _squares(x: Floats, mean: Floats) -> Floats:
    """Sum of squares of d about the last of the means."""
    away = x[..., 1, :] - mean[..., -1:]
    return (away * away).sum(axis=-1)
