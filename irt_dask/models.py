"""The item response models: probabilities, bounds, priors and how each is identified.

``P(right) = sigma(a theta + d)`` with ``d = -a b`` (scaling constant D = 1).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from irt_dask.errors import InputError

Floats = NDArray[np.float64]

#: Bounds of joint maximum likelihood (Frick et al., section 4): ability, intercept, discrimination.
ABILITY_BOUND = 6.0
INTERCEPT_BOUND = 6.0
DISCRIMINATION_BOUNDS = (1e-3, 5.0)
#: Guessing parameters stay below a half.
GUESSING_BOUND = 0.5 - 1e-4

#: Abilities are integrated over [-GRID_BOUND, GRID_BOUND]; a N(0, 1) prior leaves 3e-12 outside.
#: Where posteriors need more (:func:`reach_of`) the integrals go further, to FARTHEST at most.
GRID_BOUND, FARTHEST = 7.0, 80.0
#: Beyond a grid no pattern of responses has this share of its highest posterior density.
BEYOND = 1e-6
#: Beyond this logit a double holds neither exp(z) nor the probability of the unlikely response.
LARGEST_LOGIT = 700.0


def logit(p: Floats) -> Floats:
    """Return ``log(p / (1 - p))``."""
    return np.log(p) - np.log1p(-p)


def probability(ability: Floats, discrimination: Floats, intercept: Floats) -> Floats:
    """Return P(right), shape ``ability.shape + (n_items,)``."""
    z = np.multiply.outer(ability, discrimination) + intercept
    return 1.0 / (1.0 + np.exp(-z))


def difficulty(discrimination: Floats, intercept: Floats) -> Floats:
    """Return ``b = -d / a``."""
    return -intercept / discrimination


def check_model(model: str, known: tuple[str, ...]) -> str:
    """Return ``model`` if the calling method has it, else say which ones exist."""
    if model not in known:
        raise InputError(f"model={model!r} is not available here; choose one of {', '.join(known)}")
    return model


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
    """Priors of a Bayesian 2PL calibration; ability is N(0, 1), which fixes the scale.

    In several dimensions ``discrimination`` is the prior of each loading that is positive.

    Parameters
    ----------
    discrimination : (mean, sd)
        Normal, truncated to positive values.
    intercept : (mean, sd)
        Normal.
    loading : (mean, sd)
        Normal, of the loadings in several dimensions that may be negative.
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

    def tempered(self, power: float) -> Floats:
        """Return ``[mean_a, precision_a, mean_d, precision_d]`` of the prior to a power.

        A normal density to the power p is a normal of p times the precision.
        """
        (ma, sa), (md, sd) = self.discrimination, self.intercept
        return np.array([ma, power / sa**2, md, power / sd**2])

    def tempered_loadings(self, positive: NDArray[np.bool_], power: float) -> tuple[Floats, Floats]:
        """Means and precisions of the loadings' priors to a power, in the shape of ``positive``.

        Those that are positive have the prior of ``discrimination``, the others of ``loading``.
        """
        (ma, sa), (mq, sq) = self.discrimination, self.loading
        return np.where(positive, ma, mq), np.where(positive, power / sa**2, power / sq**2)


@dataclass(frozen=True)
class Grid:
    """Equally spaced abilities ``-bound, ..., bound`` on which a posterior is summed.

    The trapezoidal rule on a smooth posterior of standard deviation s has error about
    ``exp(-2 pi^2 s^2 / h^2)``.
    """

    n_nodes: int
    bound: float = GRID_BOUND

    @property
    def spacing(self) -> float:
        """Distance h between neighbouring nodes."""
        return 2.0 * self.bound / (self.n_nodes - 1)

    @property
    def nodes(self) -> Floats:
        """The abilities, shape (n_nodes,); symmetric about 0 to the bit."""
        half = (self.n_nodes - 1) // 2
        return np.arange(-half, half + 1, dtype=np.float64) * np.float64(self.spacing)


def reach_of(discrimination: Floats, intercept: Floats, *, shift: float = 0.0) -> float:
    """How far from the prior mean posteriors go: GRID_BOUND, or as many whole SDs as needed.

    Under priors N(s, 1), -shift <= s <= shift.  All right is the pattern that leaves most above the
    prior mean, all wrong most below: their log posteriors rise most steeply everywhere, and more
    steeply without guessing than with it.
    """
    a, d = np.asarray(discrimination, dtype=float), np.asarray(intercept, dtype=float)
    reach = max(_highest(a, d - a * shift), _highest(a, -d - a * shift))
    logit = a * (reach + shift) + np.abs(d)
    j = int(logit.argmax())
    if reach > FARTHEST or (reach > GRID_BOUND and logit[j] > LARGEST_LOGIT):
        raise InputError(
            f"under these items abilities may lie {reach:.0f} standard deviations from the mean of "
            f"their distribution; they are computed up to {FARTHEST:.0f}, and logits up to "
            f"{LARGEST_LOGIT:.0f} (here {logit[j]:.0f}, of the item with discrimination {a[j]:.6g} "
            f"and intercept {d[j]:.6g}): leave items out that are this extreme"
        )
    return reach


def _highest(a: Floats, d: Floats) -> float:
    """Where to stop above the mode of who answered all right, under N(0, 1)."""

    def log_posterior(x: Floats) -> Floats:
        right = [np.logaddexp(0.0, -(a * t + d)).sum() for t in x]
        return -0.5 * x * x - np.array(right)

    some = log_posterior(np.array([1.5, 3.0, 4.5, GRID_BOUND]))
    if some[3] - some[:3].max() < math.log(BEYOND):  # a fortiori compared with the mode
        return GRID_BOUND
    low, high = 0.0, float(a.sum())
    for _ in range(60):  # the slope falls
        top = 0.5 * (low + high)
        slope = float((a * np.exp(-np.logaddexp(0.0, a * top + d))).sum()) - top
        low, high = (top, high) if slope > 0.0 else (low, top)
    peak = float(log_posterior(np.array([top]))[0])
    reach = max(GRID_BOUND, math.ceil(top))
    while log_posterior(np.array([reach]))[0] - peak >= math.log(BEYOND):
        reach += 1.0
    return float(reach)


def ability_bound(discrimination: Floats, intercept: Floats, guessing: Floats) -> float:
    """Bound of maximum likelihood abilities: ABILITY_BOUND, or as far as the items inform.

    That is up to the first whole number at which, on both sides, the standard error from all items
    is 1 or more.
    """
    a, d, c = discrimination, intercept, guessing
    bound = ABILITY_BOUND
    while bound < FARTHEST:
        z = a * np.array([[-bound], [bound]]) + d
        right, wrong = np.exp(-np.logaddexp(0.0, -z)), np.exp(-np.logaddexp(0.0, z))
        chance = np.where(c > 0.0, c + (1.0 - c) * right, 1.0)
        share = np.where(c > 0.0, right / chance, 1.0)
        if ((a**2 * (1.0 - c) * right * wrong * share).sum(axis=1) < 1.0).all():
            break
        bound += 1.0
    return bound


def grid_for(
    discrimination: Floats, intercept: Floats, *, margin: float = 1.0, bound: float = GRID_BOUND
) -> Grid:
    """Choose the grid that resolves every posterior under these items.

    Spacing at most half the smallest posterior standard deviation that a person who answers every
    item can have, and at most ``1 / max a``, so that one steep item is resolved too.  ``margin`` is
    the factor by which slopes may still grow (a sampler's draws scatter about these values).  To
    another ``bound`` it is as fine as any stretch of it needs.
    """
    if bound > GRID_BOUND:
        n, a = math.ceil(bound / GRID_BOUND) - 1, np.asarray(discrimination, dtype=float)
        spacing = min(
            grid_for(a, intercept + a * (k * GRID_BOUND), margin=margin).spacing
            for k in range(-n, n + 1)
        )  # stretches overlap by half
        return Grid(2 * math.ceil(bound / spacing) + 1, bound)
    a = np.asarray(discrimination, dtype=float) * margin
    d = np.asarray(intercept, dtype=float)
    # An item informs within about 1 / a of its difficulty: look for the peak that finely.
    n_points = math.ceil(2.0 * GRID_BOUND / min(0.125, 0.25 / float(a.max()))) + 1
    theta = np.linspace(-GRID_BOUND, GRID_BOUND, n_points)
    information = np.ones(n_points)
    for k in range(0, a.size, 64):  # some items at a time: points x items may be large
        p = probability(theta, a[k : k + 64], d[k : k + 64])
        information += (p * (1.0 - p)) @ a[k : k + 64] ** 2
    spacing = min(0.5 / math.sqrt(float(information.max())), 1.0 / float(a.max()), 0.5)
    return Grid(2 * math.ceil(GRID_BOUND / spacing) + 1)
