"""Turning the plane of two abilities, where nearly nothing tells how it lies.

Turning two abilities and the loadings on them together changes neither a likelihood nor a N(0, 1)
prior of the abilities.  What says how they lie are the items with a zero, which cannot turn, and
the loadings' priors.  A sampler that draws abilities and items in turn moves slowly in this
direction, so the angle is drawn from its conditional: generalised Gibbs sampling (Liu and Sabatti
2000; the group of rotations has volume 1).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.responses.layouts import Sparse


class Held(NamedTuple):
    """Responses to items that have a loading fixed at 0 and another that is free."""

    person: Ints
    item: Ints
    right: Bools


def held(cells: Sparse, free: Bools) -> Held:
    """Responses that feel a rotation, of these data and loadings ``free`` (items, Q)."""
    some: Bools = np.logical_and(free.any(axis=1), ~free.all(axis=1))
    at = np.flatnonzero(some[cells.indices])
    person = np.searchsorted(cells.indptr, at, side="right") - 1
    return Held(person, cells.indices[at].astype(np.int64), cells.values[at] == 1)


@jit
def _log_density(
    angle: float, q: int, r: int, items: Any, h: Held, theta: Floats, a: Floats, d: Floats
) -> float:
    """Log density of the angle by which abilities q and r are turned, up to a constant."""
    c, s = math.cos(angle), math.sin(angle)
    total = 0.0
    for j in range(a.shape[0]):
        if items.free[j, q] and items.free[j, r]:
            x, y = c * a[j, q] - s * a[j, r], s * a[j, q] + c * a[j, r]
            if (items.positive[j, q] and x <= 0.0) or (items.positive[j, r] and y <= 0.0):
                return -math.inf
            total -= 0.5 * items.precision[j, q] * (x - items.mean[j, q]) ** 2
            total -= 0.5 * items.precision[j, r] * (y - items.mean[j, r]) ** 2
    for k in range(h.person.size):
        i, j = h.person[k], h.item[k]
        if items.free[j, q] != items.free[j, r]:
            z = d[j]
            for p in range(a.shape[1]):
                if p != q and p != r:
                    z += a[j, p] * theta[i, p]
            if items.free[j, q]:
                z += a[j, q] * (c * theta[i, q] - s * theta[i, r])
            else:
                z += a[j, r] * (s * theta[i, q] + c * theta[i, r])
            z = z if h.right[k] else -z
            total -= max(-z, 0.0) + math.log1p(math.exp(-abs(z)))
    return total


@jit
def _turn(x: Floats, rows: Any, q: int, r: int, angle: float) -> None:
    c, s = math.cos(angle), math.sin(angle)
    for i in rows:
        x[i, q], x[i, r] = c * x[i, q] - s * x[i, r], s * x[i, q] + c * x[i, r]


@jit
def _rotate(items: Any, h: Held, theta: Floats, a: Floats, d: Floats, rng: Any) -> None:
    for r in range(a.shape[1]):
        for q in range(r):
            turned = np.flatnonzero(items.free[:, q] & items.free[:, r])
            if turned.size == 0:  # the angle would say which items are which
                continue
            level = _log_density(0.0, q, r, items, h, theta, a, d) - rng.standard_exponential()
            low, high = -math.pi, math.pi
            while True:
                angle = low + (high - low) * rng.random()
                if angle == 0.0 or _log_density(angle, q, r, items, h, theta, a, d) >= level:
                    break
                if angle < 0.0:
                    low = angle
                else:
                    high = angle
            _turn(a, turned, q, r, angle)
            _turn(theta, np.arange(theta.shape[0]), q, r, angle)


def rotate(
    items: Any, h: Held, theta: Floats, loadings: Floats, intercepts: Floats, rng: Any
) -> None:
    """One slice-sampling step for the angle of each pair of abilities, in place.

    ``items`` are :class:`irt_dask.kernels.several.polya_gamma.Items`.  Abilities are independent
    N(0, 1). The bracket starts as the whole circle and shrinks towards no rotation (Neal 2003).  A
    step costs some evaluations of the responses in ``h``.
    """
    _rotate(items, h, theta, loadings, intercepts, rng)
