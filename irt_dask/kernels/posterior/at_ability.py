"""Probabilities of the categories of a person's items at that person's own ability."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from irt_dask.arrays import Floats, Ints
from irt_dask.curves.item_set import ItemSet
from irt_dask.kernels.posterior import hermite
from irt_dask.kernels.posterior.hermite import Curves
from irt_dask.kernels.responses import rows


class Lines(NamedTuple):
    """Items of two categories whose log odds are ``slope * ability + constant``."""

    first: Ints  # as of Curves
    slope: Floats
    constant: Floats

    @property
    def nbytes(self) -> int:
        """Memory held, bytes."""
        return sum(x.nbytes for x in self)


Between = Lines | Curves


def between(items: ItemSet, low: float, high: float, spacing: float = hermite.SPACING) -> Between:
    """What is needed of items at any ability from ``low`` to ``high``."""
    linear = items.scores
    if linear is None or not items.of_two:
        return hermite.curves(items, low, high, spacing)
    return Lines(items.first, *(np.ascontiguousarray(x[1::2]) for x in linear))


def probabilities(its: Any, row: Any, g: Any, x: float, w: Floats, p: Floats) -> None:
    """Fill in P of all categories of the items answered, item after item.

    ``w`` is room for (3, 6) numbers, ``p`` for one of each row of ``g``.
    """
    raise NotImplementedError


def slopes(its: Any, row: Any, g: Any, x: float, w: Floats, p: Floats, slope: Floats) -> None:
    """As :func:`probabilities`, and the slopes of log P."""
    raise NotImplementedError


@overload(probabilities, strict=False)
def _probabilities(its: Any, row: Any, g: Any, x: Any, w: Any, p: Any) -> Callable[..., Any]:
    return _p_of_lines if g.instance_class is Lines else _p_of_curves


@overload(slopes, strict=False)
def _slopes(its: Any, row: Any, g: Any, x: Any, w: Any, p: Any, slope: Any) -> Callable[..., Any]:
    return _slopes_of_lines if g.instance_class is Lines else _slopes_of_curves


def _p_of_lines(its: Any, row: Any, g: Any, x: float, w: Floats, p: Floats) -> None:
    n = 0
    for k in range(row.size):
        if row[k] >= 0:
            j = rows.item(its, k)
            z = g.slope[j] * x + g.constant[j]
            e = math.exp(-abs(z))
            large = 1.0 / (1.0 + e)
            small = e * large
            p[n], p[n + 1] = (small, large) if z >= 0.0 else (large, small)
            n += 2


def _slopes_of_lines(
    its: Any, row: Any, g: Any, x: float, w: Floats, p: Floats, slope: Floats
) -> None:
    probabilities(its, row, g, x, w, p)
    n = 0
    for k in range(row.size):
        if row[k] >= 0:
            a = g.slope[rows.item(its, k)]
            slope[n], slope[n + 1] = -a * p[n + 1], a * p[n]
            n += 2


def _p_of_curves(its: Any, row: Any, g: Any, x: float, w: Floats, p: Floats) -> None:
    q = hermite.weights(g, x, w)
    left, right = g.at[q], g.at[q + 1]
    n = 0
    for k in range(row.size):
        if row[k] >= 0:
            j = rows.item(its, k)
            for r in range(g.first[j], g.first[j + 1]):
                p[n] = math.exp(hermite.combine(left[r], right[r], w[0]))
                n += 1


def _slopes_of_curves(
    its: Any, row: Any, g: Any, x: float, w: Floats, p: Floats, slope: Floats
) -> None:
    probabilities(its, row, g, x, w, p)
    q = hermite.weights(g, x, w)
    left, right = g.at[q], g.at[q + 1]
    n = 0
    for k in range(row.size):
        if row[k] >= 0:
            j = rows.item(its, k)
            for r in range(g.first[j], g.first[j + 1]):
                slope[n] = hermite.combine(left[r], right[r], w[1])
                n += 1
