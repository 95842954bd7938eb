"""The scale of joint maximum likelihood estimates: which it is, and what moves with it."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from irt_dask.errors import EstimationError
from irt_dask.models import truncated_normal

Floats = NDArray[np.float64]

#: Ability estimates of less variance than this differ by rounding only.
_LEAST_VARIANCE = 1e-8


def ability_scale(moment: Floats) -> tuple[float, float]:
    """Mean and standard deviation of ability, by which items are standardised.

    From the estimates inside the bounds: in a standard normal they are those between the quantiles
    of the shares at the bounds, whose mean and SD are known.
    """
    n, s1, s2, low, high = moment
    if not n > 0:
        raise EstimationError(
            "no person has an ability inside the bounds: all have everything right, everything "
            "wrong or no response, and there is nothing to fit"
        )
    variance = s2 / n - (s1 / n) ** 2
    if not variance > _LEAST_VARIANCE:
        raise EstimationError(
            "all persons have the same ability estimate: these responses do not determine a scale "
            "(do all persons with responses have the same number right?)"
        )
    inner_mean, inner_sd = truncated_normal(low / (n + low + high), high / (n + low + high))
    sd = math.sqrt(variance) / inner_sd
    return float(s1 / n - sd * inner_mean), sd


def person_scale(x: Floats, moment: Floats, model: str) -> tuple[float, float]:
    """What to subtract from abilities, and then to divide them by, to be on the items' scale."""
    # 1PL: d - mean(d) belongs to theta + mean(d)
    return (-float(x[1].mean()), 1.0) if model == "1pl" else ability_scale(moment)


def standardised(x: Floats, moment: Floats, model: str) -> Floats:
    """Items on the identified scale: ability mean 0 and SD 1, or mean difficulty 0 (1PL)."""
    a, d, c = x
    if model == "1pl":
        return np.stack([a, d - d.mean(), c])
    mean, sd = ability_scale(moment)
    return np.stack([a * sd, d + a * mean, c])


def standard_errors(info: Floats, x: Floats, moment: Floats, model: str) -> dict[str, Floats]:
    """Standard errors of a, b, d, c on the final scale, abilities taken as known.

    Inverse information of (a, d) or (a, d, c), the delta method for ``b = -d / a``, and the change
    of scale ``a sd, (b - mean) / sd, d + a mean``.  What an item's persons do not determine has a
    huge one.
    """
    if model == "1pl":
        se = 1.0 / np.sqrt(info[:, 1, 1])
        return {"a": np.zeros_like(se), "b": se, "d": se, "c": np.zeros_like(se)}
    mean, sd = ability_scale(moment)
    cov = _inverse(info if model == "3pl" else info[:, :2, :2])
    items = cov[:, :2, :2]
    a, d, _ = x
    g = np.stack([d / a**2, -1.0 / a], axis=1)
    shift = np.array([mean, 1.0])
    return {
        "a": np.sqrt(cov[:, 0, 0]) * sd,
        "b": np.sqrt(np.einsum("ji,jik,jk->j", g, items, g)) / sd,
        "d": np.sqrt(np.einsum("i,jik,k->j", shift, items, shift)),
        "c": np.sqrt(cov[:, 2, 2]) if model == "3pl" else np.zeros_like(a),
    }


def _inverse(info: Floats) -> Floats:
    """Invert positive semidefinite matrices; the variance without information is 1 / rounding."""
    values, vectors = np.linalg.eigh(info)
    least = np.finfo(float).eps * values[:, -1:] + np.finfo(float).tiny
    return np.asarray((vectors / np.maximum(values, least)[:, None, :]) @ vectors.mT)
