"""Beta densities as priors of the items' parameters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import betaln, xlog1py, xlogy

from irt_dask.arrays import Floats


@dataclass(frozen=True)
class Betas:
    """Beta(alpha, beta) of each parameter, alike for all items; (1, 1) says nothing.

    Parameters ``x`` have shape (parameters, items).
    """

    pairs: tuple[tuple[float, float], ...]

    @property
    def informative(self) -> list[tuple[int, float, float]]:
        """Parameters whose density says something, ``alpha - 1`` and ``beta - 1``."""
        return [(k, a - 1.0, b - 1.0) for k, (a, b) in enumerate(self.pairs) if (a, b) != (1, 1)]

    def log_density(self, x: Floats) -> Floats:
        """Log density of each item's parameters, (items,), without those that are NaN."""
        out = np.zeros(x.shape[1])
        for k, a, b in self.informative:
            density = xlogy(a, x[k]) + xlog1py(b, -x[k]) - betaln(a + 1.0, b + 1.0)
            out += np.where(np.isnan(x[k]), 0.0, density)
        return out

    def gradient(self, x: Floats) -> Floats:
        """First derivatives of the log density, (parameters, items)."""
        out = np.zeros_like(x)
        for k, a, b in self.informative:
            out[k] = a / x[k] - b / (1.0 - x[k])
        return out

    def information(self, x: Floats) -> Floats:
        """Second derivatives of the log density with the sign changed, (parameters, items)."""
        out = np.zeros_like(x)
        for k, a, b in self.informative:
            out[k] = a / x[k] ** 2 + b / (1.0 - x[k]) ** 2
        return out
