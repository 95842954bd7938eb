"""What is known of items before the data: densities of asymptotes, of slopes and of intercepts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.curves.betas import Betas
from irt_dask.items.mixture import Mixture
from irt_dask.kernels.joint.item_maximum import Normal


@dataclass(frozen=True)
class Common:
    """Normal density of what items of any model have: (log a, d), or with ``log=False`` (a, d).

    d is the intercept, of steps their mean: ``weight`` (parameters, items) times parameters.

    Parameters
    ----------
    mean, precision : (items, 2), (items, 2, 2)
    constant : float
        Of each item's log density, besides that of a normal.
    """

    mean: Floats
    precision: Floats
    weight: Floats
    log: bool = True
    constant: float = 0.0

    @classmethod
    def of(
        cls, models: Mixture, mean: Floats, precision: Floats, *, log: bool, constant: float = 0.0
    ) -> Common:
        """Density of items of these models; mean (2,) and precision (2, 2) are those of all."""
        weight, m = np.zeros((models.size, models.n_items)), models.n_items
        for part in models.parts:
            assert part.model.coordinates is not None
            own = part.model.coordinates.place
            weight[: own.size, part.at] = own[:, None]
        means = np.broadcast_to(np.asarray(mean, dtype=float), (m, 2))
        return cls(means, np.broadcast_to(precision, (m, 2, 2)), weight, log, constant)

    def take(self, items: Ints) -> Common:
        """Those of some items."""
        mean, precision, weight = self.mean[items], self.precision[items], self.weight[:, items]
        return replace(self, mean=mean, precision=precision, weight=weight)

    @property
    def normal(self) -> Normal:
        """That of items with a slope and one intercept."""
        mean, precision = np.ascontiguousarray(self.mean), np.ascontiguousarray(self.precision)
        return Normal(mean, precision, self.log)

    def coordinates(self, x: Floats) -> Floats:
        """(log a, d) or (a, d) of parameters, (2, items)."""
        return np.stack([np.log(x[0]) if self.log else x[0], (self.weight * x).sum(axis=0)])

    def slopes(self, x: Floats) -> Floats:
        """Derivatives of coordinates by parameters, (items, 2, parameters)."""
        out = np.zeros((x.shape[1], 2, len(x)))
        out[:, 0, 0] = 1.0 / x[0] if self.log else 1.0
        out[:, 1] = self.weight.T
        return out

    def _away(self, x: Floats) -> tuple[Floats, Floats]:
        """Distances from the mean, and precision times these, (items, 2)."""
        away = self.coordinates(x).T - self.mean
        return away, (self.precision @ away[:, :, None])[:, :, 0]

    def log_density(self, x: Floats) -> Floats:
        """Log density of each item's coordinates; 0 where they are NaN."""
        away, pull = self._away(x)
        normal = 0.5 * np.linalg.slogdet(self.precision)[1] - np.log(2.0 * np.pi) + self.constant
        value = normal - 0.5 * (away * pull).sum(axis=1)
        return np.where(np.isnan(x[0]), 0.0, value)

    def gradient(self, x: Floats) -> Floats:
        """First derivatives by parameters, (parameters, items)."""
        return -np.einsum("mip,mi->pm", self.slopes(x), self._away(x)[1])

    def information(self, x: Floats, *, upwards: bool = False) -> Floats:
        """Second derivatives with the sign changed, (items, parameters, parameters).

        With ``upwards`` those of the normal density in its own coordinates where (log a, d) bends
        the other way: no step along them leads down.
        """
        slopes = self.slopes(x)
        out = slopes.transpose(0, 2, 1) @ self.precision @ slopes
        if self.log:  # d^2 log a / da^2 = -1 / a^2
            bend, p = self._away(x)[1][:, 0], self.precision
            own = p[:, 0, 0] - p[:, 0, 1] ** 2 / p[:, 1, 1]
            out[:, 0, 0] -= np.where(upwards & (bend >= own), 0.0, bend) / x[0] ** 2
        return out


@dataclass(frozen=True)
class ItemDensity:
    """Density of the items' parameters (parameters, items) before the data."""

    betas: Betas
    common: Common | None = None

    def take(self, items: Ints) -> ItemDensity:
        """That of some items."""
        return ItemDensity(self.betas.take(items), self.common and self.common.take(items))

    def first(self, n: int) -> ItemDensity:
        """That of the first parameters."""
        common = self.common and replace(self.common, weight=self.common.weight[:n])
        return ItemDensity(self.betas.first(n), common)

    @property
    def informative(self) -> bool:
        """Whether it says something."""
        return self.common is not None or self.betas.informative

    def log_density(self, x: Floats) -> Floats:
        """Log density of each item, (items,), without parameters that are NaN."""
        value = self.betas.log_density(x)
        if self.common is not None:
            with np.errstate(divide="ignore", invalid="ignore"):  # a = 0: minus infinity
                value += self.common.log_density(x)
        return value

    def gradient(self, x: Floats) -> Floats:
        """First derivatives of the log density, (parameters, items)."""
        value = self.betas.gradient(x)
        if self.common is not None:
            with np.errstate(divide="ignore", invalid="ignore"):
                value += self.common.gradient(x)
        return value

    def information(self, x: Floats, *, upwards: bool = False) -> Floats:
        """Second derivatives with the sign changed, (items, parameters, parameters).

        See :meth:`Common.information`.
        """
        size, m = x.shape
        diagonal, out = np.arange(size), np.zeros((m, size, size))
        out[:, diagonal, diagonal] = self.betas.information(x).T
        if self.common is not None:
            with np.errstate(divide="ignore", invalid="ignore"):
                out += self.common.information(x, upwards=upwards)
        return out
