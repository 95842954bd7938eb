"""Priors of items, and what is known of normal distributions without their ends."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from statistics import NormalDist

import numpy as np

from irt_dask.arrays import Bools, Floats
from irt_dask.errors import InputError


def truncated_normal(below: float, above: float) -> tuple[float, float]:
    """Mean and SD of a standard normal without its lowest and highest shares ``below, above``."""
    low, high = NormalDist().inv_cdf(below) if below else -math.inf, math.inf
    if above:
        high = NormalDist().inv_cdf(1.0 - above)
    f_low, f_high = (math.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi) for x in (low, high))
    inside = 1.0 - below - above
    mean = (f_low - f_high) / inside
    slopes = (low * f_low if below else 0.0) - (high * f_high if above else 0.0)
    return mean, math.sqrt(1.0 + slopes / inside - mean * mean)


@dataclass(frozen=True)
class ItemPrior:
    """Priors of a Bayesian calibration; ability is N(0, 1), which fixes the scale.

    In several dimensions ``discrimination`` is the prior of each loading that is positive.

    Parameters
    ----------
    discrimination : (mean, sd)
        Normal, truncated to positive values.
    intercept : (mean, sd)
        Normal.
    loading : (mean, sd)
        Normal, of slopes, and of loadings in several dimensions, that may be negative.
    """

    discrimination: tuple[float, float] = (1.0, 1.0)
    intercept: tuple[float, float] = (0.0, 2.0)
    loading: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        for name, pair in asdict(self).items():
            if len(pair) != 2 or not all(math.isfinite(x) for x in pair) or pair[1] <= 0:
                raise InputError(
                    f"ItemPrior {name}={pair!r}: give (mean, sd), both finite and sd > 0"
                )

    def tempered(self, power: float, *, signed: bool = False) -> Floats:
        """Return ``[mean_a, precision_a, mean_d, precision_d]`` of the prior to a power.

        A normal density to the power p is a normal of p times the precision.  Signed slopes have
        the prior of loadings that may be negative.
        """
        ma, sa = self.loading if signed else self.discrimination
        md, sd = self.intercept
        return np.array([ma, power / sa**2, md, power / sd**2])

    def tempered_loadings(self, positive: Bools, power: float) -> tuple[Floats, Floats]:
        """Means and precisions of the loadings' priors to a power, in the shape of ``positive``.

        Those that are positive have the prior of ``discrimination``, the others of ``loading``.
        """
        (ma, sa), (mq, sq) = self.discrimination, self.loading
        return np.where(positive, ma, mq), np.where(positive, power / sa**2, power / sq**2)


def check_of_signs(prior: ItemPrior, signed: bool) -> None:
    """Refuse a prior of positive slopes for those that may have any sign."""
    if signed and prior.discrimination != ItemPrior().discrimination:
        raise InputError(
            "ItemPrior(discrimination=) is of positive slopes; those of any sign have the normal "
            "prior ItemPrior(loading=(mean, sd))"
        )
