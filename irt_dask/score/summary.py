"""Sums over persons that describe their abilities as a whole, exact in any order."""

from __future__ import annotations

from typing import Any

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.kernels.base import fixed_point
from irt_dask.kernels.posterior import ability_histogram, point_estimates

#: Persons whose moments are added as 64-bit integers.
_CHUNK = 1 << 16
#: Moments that are added up: see :func:`sums`.
MOMENTS = 5
#: Classes of the histogram of abilities.
_CLASSES = ability_histogram.Classes(-6.0, 6.0, 60)


def scale_for(furthest: float) -> float:
    """Scale of the fixed-point moments: not of the number of persons, who may become more."""
    return fixed_point.scale_for(_CHUNK * max(furthest, point_estimates.FURTHEST) ** 2)


def middles() -> Floats:
    """Middles of the classes of the histogram."""
    edges = np.linspace(_CLASSES.first, _CLASSES.last, _CLASSES.n + 1)
    return np.asarray(0.5 * (edges[1:] + edges[:-1]))


def sums(
    ability: Floats, error: Floats, scale: float, times: Ints | None = None
) -> tuple[Any, ...]:
    """Histogram, and fixed-point moments of each ability, which do not depend on the blocks.

    Moments are sums of abilities, their squares and squared errors, and of abilities and squares of
    those with an error; numbers of abilities and of errors.  Persons without an estimate do not
    count; an error beyond every bound counts as the bound.  ``times`` says how many persons a row
    stands for.
    """
    if times is not None:
        each = [(int(k), times == k) for k in np.unique(times)]
        parts = [[k * v for v in sums(ability[at], error[at], scale)] for k, at in each]
        return tuple(np.sum(v, axis=0) for v in zip(*parts, strict=True))
    shape = ability.shape[1:]
    x, e = (v.reshape(len(v), -1) for v in (ability, error))
    count, moments, n = (
        np.zeros((k, x.shape[1]), dtype=np.int64) for k in (_CLASSES.n, MOMENTS, 2)
    )
    moments = moments.astype(object)  # whole numbers beyond 64 bits
    for k in range(0, len(x), _CHUNK):
        rows = slice(k, k + _CHUNK)
        c, m, there = _of_rows(x[rows], e[rows], scale)
        sure = m[:2]
        if (there[0] != there[1]).any():
            known = np.where(np.isfinite(e[rows]), x[rows], np.nan)
            sure = _of_rows(known, e[rows], scale)[1][:2]
        count, moments, n = count + c, moments + np.concatenate([m, sure]), n + there
    return tuple(v.reshape(-1, *shape) for v in (count, moments, n))


def _of_rows(ability: Floats, error: Floats, scale: float) -> tuple[Ints, Ints, Ints]:
    return ability_histogram.sums(ability, error, _CLASSES, point_estimates.FURTHEST, scale)


def described(moments: Floats, n: Ints, points: bool) -> dict[str, Any]:
    """Mean, SD and reliability of the abilities; of several, lists.

    ``points``: they are estimates by likelihood, whose errors are part of their variance.  Those at
    a bound have none, and stand as far out as the bound does: they would make a short test look
    reliable (five items, a quarter of the persons all right or wrong: .88, and .4 is true).
    """
    one = n.ndim == 1
    there, sure = np.maximum(n, 1)
    m1, m2, v = moments[0] / there, moments[1] / there, moments[2] / sure
    spread = m2 - m1**2
    with np.errstate(divide="ignore", invalid="ignore"):
        if points:
            reliability = 1.0 - v / (moments[4] / sure - (moments[3] / sure) ** 2)
        else:
            reliability = spread / (spread + v)
    return {
        "n_estimated": n[0].tolist() if one else int(n[0][0]),
        # who has an estimate without a standard error is at a bound
        "n_at_bound": int(n[0] - n[1]) if one else 0,
        "mean_ability": m1.tolist(),
        "sd_ability": np.sqrt(np.maximum(spread, 0.0)).tolist(),
        "reliability": reliability.tolist(),
    }
