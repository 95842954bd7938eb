"""Beta densities as priors of the items' parameters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, xlog1py, xlogy

from irt_dask.arrays import Floats


@dataclass(frozen=True)
class Betas:
    """Beta(alpha, beta) of each parameter of each item; (1, 1) says nothing.

    ``alpha`` and ``beta`` have shape (parameters, items), or (parameters, 1) where all items have
    the same; parameters ``x`` have (parameters, items).
    """

    alpha: Floats
    beta: Floats

    @classmethod
    def of(cls, *pairs: tuple[float, float]) -> Betas:
        """(alpha, beta) of each parameter, alike for all items."""
        return cls(*np.array(pairs).T[:, :, None])

    def take(self, items: NDArray[np.generic]) -> Betas:
        """Those of some items."""
        if self.alpha.shape[1] == 1:
            return self
        return Betas(self.alpha[:, items], self.beta[:, items])

    def first(self, n: int) -> Betas:
        """Those of the first parameters."""
        return Betas(self.alpha[:n], self.beta[:n])

    @property
    def informative(self) -> bool:
        """Whether some density says something."""
        return bool(((self.alpha != 1.0) | (self.beta != 1.0)).any())

    @property
    def modes(self) -> Floats:
        """The modes, NaN where there is none inside."""
        a, b = self.alpha - 1.0, self.beta - 1.0
        return np.divide(a, a + b, out=np.full_like(a, np.nan), where=a > 0.0)

    def _rows(self) -> Iterator[tuple[int, Floats, Floats]]:
        """Parameters with densities that say something, ``alpha - 1`` and ``beta - 1``."""
        a, b = self.alpha - 1.0, self.beta - 1.0
        for k in np.flatnonzero(((a != 0.0) | (b != 0.0)).any(axis=1)):
            yield int(k), a[k], b[k]

    def log_density(self, x: Floats) -> Floats:
        """Log density of each item's parameters, (items,), without those that are NaN."""
        out = np.zeros(x.shape[1])
        for k, a, b in self._rows():
            density = xlogy(a, x[k]) + xlog1py(b, -x[k]) - betaln(a + 1.0, b + 1.0)
            out += np.where(np.isnan(x[k]), 0.0, density)
        return out

    def gradient(self, x: Floats) -> Floats:
        """First derivatives of the log density, (parameters, items)."""
        out = np.zeros_like(x)
        for k, a, b in self._rows():
            out[k] = _over(a, x[k]) - _over(b, 1.0 - x[k])
        return out

    def information(self, x: Floats) -> Floats:
        """Second derivatives of the log density with the sign changed, (parameters, items)."""
        out = np.zeros_like(x)
        for k, a, b in self._rows():
            out[k] = _over(a, x[k] ** 2) + _over(b, (1.0 - x[k]) ** 2)
        return out


def _over(a: Floats, x: Floats) -> Floats:
    """``a / x``, and 0 where a is, whatever x."""
    return np.divide(a, x, out=np.zeros_like(x), where=np.broadcast_to(a != 0.0, x.shape))
