"""The coordinates in which posteriors of shards are combined, and arrays of them as blocks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irt_dask.arrays import Bools, Floats
from irt_dask.calibrate.bayes import summaries
from irt_dask.kernels.several import correlations

#: A step changes no logarithm of a loading, and no atanh of a correlation, by more than this.
_LARGEST_STEP = 1.0


@dataclass(frozen=True, eq=False)
class Space:
    """The coordinates in which posteriors are combined.

    Item parameters are arrays (..., P, items): loadings first, the intercept in the last row.

    Parameters
    ----------
    log : bool
        Whether positive loadings enter by their logarithms.
    free : (P, items), optional
        False where a loading is fixed at 0; it takes no part.
    signed : (P, items), optional
        True where a loading may be negative: it enters as it is.
    partial : (P, items), optional
        True where there is no item parameter but a partial correlation of the abilities, which
        enters by its atanh; see :meth:`with_correlations`.
    """

    log: bool = True
    free: Bools | None = None
    signed: Bools | None = None
    partial: Bools | None = None

    @property
    def of_one_model(self) -> bool:
        """Whether all items have the same coordinates, whose covariance can be named."""
        return True

    @property
    def any_sign(self) -> bool:
        """Whether the slopes of one ability may be negative."""
        return self.signed is not None and bool(self.signed[0].all())

    def with_correlations(self, n_rows: int, n_items: int) -> Space:
        """Space with columns for the partial correlations of ``n_rows - 1`` abilities.

        They follow the items as if they were some more, of which only these entries are free.
        """
        n = (n_rows - 1) * (n_rows - 2) // 2
        more = np.zeros((n_rows, math.ceil(n / n_rows)), dtype=bool)
        more.T.flat[:n] = True
        none = np.zeros((n_rows, n_items), dtype=bool)
        signed = none if self.signed is None else self.signed
        return Space(
            self.log,
            np.hstack([self.mask(n_rows, n_items), more]),
            np.hstack([signed, more]),
            np.hstack([none, more]),
        )

    def join(self, items: Floats, correlation: Floats) -> Floats:
        """Draws (draw, P, items) and correlation matrices (draw, Q, Q) in the columns of both."""
        assert self.partial is not None
        out = np.zeros((len(items), *self.partial.shape))
        out[..., : items.shape[-1]] = items
        out[:, self.partial] = np.arctanh(correlations.partials(correlation))
        return out

    def correlation(self, parameters: Floats) -> Floats:
        """Correlation matrices (..., Q, Q) among parameters."""
        assert self.partial is not None
        return correlations.matrices(parameters[..., self.partial])

    def mask(self, n_rows: int, n_items: int) -> Bools:
        """Return which parameters are free, shape (P, items)."""
        return np.ones((n_rows, n_items), dtype=bool) if self.free is None else self.free

    def _positive(self, n_rows: int, n_items: int) -> Bools:
        out = np.ones((n_rows, n_items), dtype=bool)
        out[-1] = False
        return out if self.signed is None else out & ~self.signed

    def _unlogged(self, x: Floats) -> Floats:
        """Positive loadings from their logarithms; the others as they are."""
        if self.signed is None:
            return np.concatenate([np.exp(x[..., :-1, :]), x[..., -1:, :]], axis=-2)
        positive = self._positive(*x.shape[-2:])
        return np.where(positive, np.exp(np.where(positive, x, 0.0)), x)

    def of_draws(self, draws: Floats) -> Floats:
        """Coordinates of draws, which hold positive loadings as logarithms; 0 where fixed."""
        x = draws if self.free is None else np.where(self.free, draws, 0.0)
        if self.log:
            return x
        x = self._unlogged(x)
        return x if self.free is None else np.where(self.free, x, 0.0)

    def parameters(self, x: Floats) -> Floats:
        """Loadings, intercepts and partial correlations at coordinates; 0 where fixed."""
        if self.log:
            x = self._unlogged(x)
        if self.partial is not None:
            x = np.where(self.partial, np.tanh(x), x)
        return x if self.free is None else np.where(self.free, x, 0.0)

    def named(self, parameters: Floats) -> dict[str, Floats]:
        """Variables of the items at parameters (draw, P, items)."""
        return summaries.by_name(parameters)

    def mean(self, data: dict[str, Any]) -> Floats:
        """Parameters (P, items) of posterior means among the result's arrays."""
        return summaries.parameters_of(data)

    def slope(self, x: Floats) -> Floats:
        """Derivative of each parameter by its coordinate; 0 where fixed."""
        out = np.ones_like(x)
        if self.log:
            out = np.where(self._positive(*x.shape[-2:]), self._unlogged(x), out)
        if self.partial is not None:
            out = np.where(self.partial, 1.0 - np.tanh(x) ** 2, out)
        return out if self.free is None else np.where(self.free, out, 0.0)

    def items(self, x: Floats) -> Floats:
        """Coordinates (..., P, items) of the items, without other columns."""
        return x

    def gradient(self, x: Floats, by_parameter: Floats) -> Floats:
        """Gradient by the coordinates of one by the parameters."""
        return by_parameter * self.slope(x)

    def volume(self, x: Floats) -> tuple[float, Floats]:
        """Log of the volume change from coordinates to parameters, and its gradient."""
        gradient = np.zeros_like(x)
        if self.log:
            gradient[self._positive(*x.shape) & self.mask(*x.shape)] = 1.0
        value = float((gradient * x).sum())
        if self.partial is not None:
            at = x[self.partial]
            value -= 2.0 * float(np.log(np.cosh(at)).sum())
            gradient[self.partial] = -2.0 * np.tanh(at)
        return value, gradient

    def within(self, x: Floats, step: Floats) -> Floats:
        """Return the step, cut for each loading so that it stays positive and moves moderately."""
        low = -_LARGEST_STEP if self.log else -0.5 * x  # at most halved
        high = _LARGEST_STEP if self.log else np.inf
        if self.partial is not None:
            step = np.where(self.partial, np.clip(step, -_LARGEST_STEP, _LARGEST_STEP), step)
        return np.where(self._positive(*x.shape), np.clip(step, low, high), step)


def by_item(x: NDArray[Any], n_blocks: int) -> NDArray[Any]:
    """Parameters (..., P, items), item by item, as (..., n_blocks, size)."""
    return np.swapaxes(x, -1, -2).reshape(*x.shape[:-2], n_blocks, -1)


def from_items(x: Floats, n_rows: int) -> Floats:
    """Inverse of :func:`by_item`."""
    return np.swapaxes(x.reshape(*x.shape[:-2], -1, n_rows), -1, -2)


#: What deviations from a mode (P, items), as rows, are multiplied by, (free, free); None: as they
#: are.
Spread = Callable[[Space, Floats], Floats | None]
#: Covariance of the free coordinates about a mode, (free, free); None: it is not known.
Inform = Callable[[Space, Floats], Floats | None]
