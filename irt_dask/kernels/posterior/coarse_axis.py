"""Posterior weights on a coarser axis, for curves that are smooth there.

With many items posteriors are narrow and their grid is fine, but an item's curve f changes over 1 /
(its slope a) only.  So the expectation ``sum_q w_q f(theta_q)`` is found from f at coarse nodes:
``sum_c v_c f(theta_c)`` with ``v_c = sum_q w_q L_c(theta_q)``, L being the Lagrange polynomials of
the :data:`POINTS` = n coarse nodes around theta_q.  The error at theta is ``f^(n)(.) / n! prod
|theta - theta_c|``, the product at most ``(1/2 3/2 ... (n - 1)/2)^2 h^n``, at the middle.  For the
logarithm of a logistic curve ``|f^(n)| <= a^n max |sigma^(n-1)|``, that is 1.0625 a^8 for n = 8, so
that the error is at most

    (105/16)^2 / 8! 1.0625 (a h)^8 = 1.2e-3 (a h)^8,

1.7e-8 for :data:`WIDTH` = a h = 1/4; it is 0 for polynomials of degree 7, so for sums of abilities.
Weights v may be negative.  Items that are steeper keep counts on the fine nodes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.kernels.posterior.tables import FINE

#: Coarse nodes that a weight goes to, and their distance in units of 1 / slope.
POINTS, WIDTH = 8, 0.25
#: Share of the counts on fine nodes from which on it is not worth it.
_WORTH = 0.5


class Axis(NamedTuple):
    """Coarse nodes; the first of those that each fine node goes to, and its shares of these.

    ``steep`` is the place of each item, ``steep_row`` of each higher category, among those that are
    counted on the fine nodes; -1 is none.  Without nodes all are.
    """

    nodes: Floats
    first: Ints  # (fine nodes,)
    share: Floats  # (fine nodes, POINTS)
    steep: Ints
    steep_row: Ints


_NONE = np.empty(0, dtype=np.int64)
#: Everything on the fine nodes.
FINE_ALONE = Axis(np.empty(0), _NONE, np.empty((0, POINTS)), _NONE, _NONE)


def axis_for(nodes: Floats, slope: Floats, first: Ints) -> Axis:
    """Coarse axis for items of these slopes on fine nodes, or none.

    ``first`` are the rows of the items' categories.  Its spacing is the one that needs the fewest
    counts: the wider it is, the more items are too steep for it.
    """
    m, reach = slope.size, float(nodes[-1] - nodes[0])
    if nodes.size <= FINE:
        return FINE_ALONE
    falling = np.sort(slope)[::-1]
    needed = m * (reach * falling / WIDTH + POINTS) + nodes.size * np.arange(m)
    cut = int(needed.argmin())
    if needed[cut] > _WORTH * m * nodes.size:
        return FINE_ALONE
    spacing = WIDTH / float(falling[cut])
    position = nodes / spacing
    left = np.floor(position).astype(np.int64) - (POINTS // 2 - 1)
    coarse = np.arange(left[0], left[-1] + POINTS) * spacing
    steep = slope > falling[cut]
    place = np.where(steep, np.cumsum(steep) - 1, -1)
    row = np.repeat(steep, np.diff(first) - 1)
    return Axis(
        coarse, left - left[0], _lagrange(position - left), place,
        np.where(row, np.cumsum(row) - 1, -1),
    )  # fmt: skip


def _lagrange(x: Floats) -> Floats:
    """Lagrange polynomials of the nodes 0, 1, ... at x, (x, POINTS)."""
    out = np.ones((x.size, POINTS))
    for c in range(POINTS):
        for other in range(POINTS):
            if other != c:
                out[:, c] *= (x - other) / (c - other)
    return out
