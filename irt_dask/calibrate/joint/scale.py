"""The scale of joint maximum likelihood estimates: which it is, and what moves with it."""

from __future__ import annotations

import math

import numpy as np

from irt_dask.arrays import Bools, Floats
from irt_dask.curves import ItemModel
from irt_dask.curves.priors import truncated_normal
from irt_dask.errors import EstimationError

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


def person_scale(model: ItemModel, x: Floats, moment: Floats) -> tuple[float, float]:
    """What to subtract from abilities, and then to divide them by, to be on the items' scale."""
    return (-float(x[1].mean()), 1.0) if model.shared else ability_scale(moment)


def standardised(model: ItemModel, x: Floats, moment: Floats) -> Floats:
    """Items on the identified scale: ability mean 0 and SD 1, or mean difficulty 0 (one slope)."""
    return model.rescaling(*person_scale(model, x, moment)) @ x


def standard_errors(
    model: ItemModel, info: Floats, x: Floats, moment: Floats, free: Bools
) -> tuple[Floats, Floats]:
    """Standard errors of parameters and difficulties on the final scale, abilities taken as known.

    Inverse ``info`` (P, P, items) of the parameters that are ``free``, (P,), and the delta method.
    What an item's persons do not determine has a huge one.
    """
    at = np.ix_(np.arange(x.shape[1]), free, free)
    cov = np.zeros((x.shape[1], len(x), len(x)))
    cov[at] = _inverse(info.transpose(2, 0, 1)[at])
    moves = model.rescaling(*person_scale(model, x, moment))
    cov = moves @ cov @ moves.T
    gradient = model.difficulty(moves @ x)[1]
    variance = np.einsum("kj,jkl,lj->j", gradient, cov, gradient)
    return np.sqrt(np.diagonal(cov, axis1=1, axis2=2).T), np.sqrt(variance)


def _inverse(info: Floats) -> Floats:
    """Invert positive semidefinite matrices; the variance without information is 1 / rounding."""
    values, vectors = np.linalg.eigh(info)
    least = np.finfo(float).eps * values[:, -1:] + np.finfo(float).tiny
    return np.asarray((vectors / np.maximum(values, least)[:, None, :]) @ vectors.mT)
