"""Curves of items between nodes: quintic Hermite polynomials of log P.

A curve is known at equally spaced nodes by its value, slope and curvature; between two nodes it is
the polynomial of degree 5 that agrees there.  With spacing h values err by ``h^6 |f^(6)| / 46080``,
slopes by some ``h^5 |f^(6)| / 2000``: at h = .025 / a below 1e-10 of a slope a, curvatures below
2e-9.  All curves at one ability are sums with the same six weights.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.curves.item_set import ItemSet
from irt_dask.kernels.base.compiled import jit

#: Spacing, times the slope of the steepest item.
SPACING = 0.025


class Curves(NamedTuple):
    """Log P of the categories of all items; category k of item j has row ``first[j] + k``."""

    first: Ints  # (items + 1,)
    at: Floats  # value, slope and curvature, (nodes, rows, 3)
    low: float  # the first node
    step: float

    @property
    def nbytes(self) -> int:
        """Memory held, bytes."""
        return self.first.nbytes + self.at.nbytes


def curves(items: ItemSet, low: float, high: float, spacing: float = SPACING) -> Curves:
    """Tabulate; 24 bytes a row and node.  ``spacing`` is in units of 1 / the steepest slope."""
    n = math.ceil((high - low) * items.steepest / spacing) + 1
    nodes = np.linspace(low, high, max(n, 2))
    at = np.stack([items.log_p(nodes), *items.by_ability(nodes)], axis=2)
    return Curves(
        items.first, np.ascontiguousarray(at.transpose(1, 0, 2)), low,
        (high - low) / (nodes.size - 1),
    )  # fmt: skip


@jit
def weights(curves: Curves, x: float, w: Floats) -> int:
    """Node below x; weights (3, 6) that make value, slope and curvature of all curves at x.

    They are those of value, slope and curvature at this node and at the next.
    """
    h = curves.step
    place = (x - curves.low) / h
    q = min(max(math.floor(place), 0), curves.at.shape[0] - 2)
    u = place - q
    u2 = u * u
    u3 = u2 * u
    w[0, 3] = u3 * (10.0 + u * (-15.0 + 6.0 * u))
    w[0, 0] = 1.0 - w[0, 3]
    w[0, 1] = h * (u + u3 * (-6.0 + u * (8.0 - 3.0 * u)))
    w[0, 4] = h * u3 * (-4.0 + u * (7.0 - 3.0 * u))
    w[0, 2] = 0.5 * h * h * u2 * (1.0 + u * (-3.0 + u * (3.0 - u)))
    w[0, 5] = 0.5 * h * h * u3 * (1.0 + u * (-2.0 + u))
    w[1, 3] = u2 * (30.0 + u * (-60.0 + 30.0 * u)) / h
    w[1, 0] = -w[1, 3]
    w[1, 1] = 1.0 + u2 * (-18.0 + u * (32.0 - 15.0 * u))
    w[1, 4] = u2 * (-12.0 + u * (28.0 - 15.0 * u))
    w[1, 2] = h * u * (1.0 + u * (-4.5 + u * (6.0 - 2.5 * u)))
    w[1, 5] = h * u2 * (1.5 + u * (-4.0 + 2.5 * u))
    w[2, 3] = u * (60.0 + u * (-180.0 + 120.0 * u)) / (h * h)
    w[2, 0] = -w[2, 3]
    w[2, 1] = u * (-36.0 + u * (96.0 - 60.0 * u)) / h
    w[2, 4] = u * (-24.0 + u * (84.0 - 60.0 * u)) / h
    w[2, 2] = 1.0 + u * (-9.0 + u * (18.0 - 10.0 * u))
    w[2, 5] = u * (3.0 + u * (-12.0 + 10.0 * u))
    return q


@jit
def combine(left: Floats, right: Floats, w: Floats) -> float:
    """One of value, slope and curvature, by its weights, of a curve at two nodes."""
    return (left[0] * w[0] + right[0] * w[3]) + (
        (left[1] * w[1] + left[2] * w[2]) + (right[1] * w[4] + right[2] * w[5])
    )
