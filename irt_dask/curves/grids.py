"""Grids of ability: how fine and how far, so that every posterior under given items is resolved."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from irt_dask.arrays import Bools, Floats
from irt_dask.curves.item_set import ItemSet
from irt_dask.errors import InputError

#: Bound of abilities of joint maximum likelihood (Frick et al., section 4).
ABILITY_BOUND = 6.0
#: Abilities are integrated over [-GRID_BOUND, GRID_BOUND]; a N(0, 1) prior leaves 3e-12 outside.
#: Where posteriors need more (:func:`reach_of`) the integrals go further, to FARTHEST at most.
GRID_BOUND, FARTHEST = 7.0, 80.0
#: Beyond a grid no pattern of responses has this share of its highest posterior density.
BEYOND = 1e-6
#: Beyond this logit a double holds neither exp(z) nor the probability of the unlikely response.
LARGEST_LOGIT = 700.0


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


# --- how far --------------------------------------------------------------------------------------


def reach_of(
    items: ItemSet, mean: Floats | float = 0.0, sd: Floats | float = 1.0, *, scored: bool = False
) -> float:
    """How far from the prior mean posteriors go, in SDs: GRID_BOUND, or whole SDs as needed.

    Under the priors N(mean, sd^2), (priors,).  The highest response to all items leaves most above
    the mean, the lowest most below: their log posteriors rise most steeply everywhere.  Beyond
    GRID_BOUND logits above LARGEST_LOGIT are refused, unless posteriors of the 2PL are all that is
    asked for (``scored``): they are found from z and log(1 + e^z).
    """
    means, sds = (np.atleast_1d(np.asarray(v, dtype=float)) for v in np.broadcast_arrays(mean, sd))
    reach = max(_reach(items, means, sds, side) for side in (1.0, -1.0))
    steep, far = items.logit_at(reach * sds.max() + np.abs(means).max())
    logarithms = scored and items.of_two and items.scores is not None
    if reach > FARTHEST or (reach > GRID_BOUND and far > LARGEST_LOGIT and not logarithms):
        raise InputError(
            f"under these items abilities may lie {reach:.0f} standard deviations from the mean of "
            f"their distribution; they are computed up to {FARTHEST:.0f}, and logits up to "
            f"{LARGEST_LOGIT:.0f} (here {far:.0f}, of {steep}): leave items out that are this "
            f"extreme"
        )
    return reach


def _reach(items: ItemSet, mean: Floats, sd: Floats, side: float) -> float:
    """Where to stop on one side of who has the most extreme responses."""

    def log_posterior(x: Floats) -> tuple[Floats, Floats]:  # value and slope at x SDs outwards
        at = mean + side * sd * x
        value, slope = (v.reshape(at.shape) for v in items.extreme(at.ravel(), side > 0.0))
        return value - 0.5 * x * x, side * sd * slope - x

    some = log_posterior(np.array([[1.5], [3.0], [4.5], [GRID_BOUND]]))[0]
    if (some[3] - some[:3].max(axis=0) < math.log(BEYOND)).all():  # a fortiori against the mode
        return GRID_BOUND
    low, high = np.zeros(mean.size), np.maximum(log_posterior(np.zeros(mean.size))[1], 1.0)
    while (high - low).max() > 1e-4:  # the slope falls
        top = 0.5 * (low + high)
        rises = log_posterior(top)[1] > 0.0
        low, high = np.where(rises, top, low), np.where(rises, high, top)
    peak = log_posterior(top)[0]
    reach = max(GRID_BOUND, math.ceil(float(top.max())))
    while (log_posterior(np.full(mean.size, float(reach)))[0] - peak >= math.log(BEYOND)).any():
        reach += 1.0
    return float(reach)


def ability_bound(items: ItemSet) -> float:
    """Bound of maximum likelihood abilities: ABILITY_BOUND, or as far as the items inform.

    That is up to the first whole number at which, on both sides, the standard error from all items
    is 1 or more.
    """
    bound = ABILITY_BOUND
    while bound < FARTHEST and (items.total_information(np.array([-bound, bound])) >= 1.0).any():
        bound += 1.0
    return bound


# --- how fine -------------------------------------------------------------------------------------


def spacing_for(
    items: ItemSet, low: float, high: float, sd: float = 1.0, *, share: float = 0.5,
    together: Bools | None = None,
) -> float:  # fmt: skip
    """Distance of nodes that resolves every posterior between two abilities.

    At most this share of the smallest standard deviation that the posterior of a person who answers
    every item can have under a prior of this SD, and at most 1 / the steepest slope, so that one
    steep item is resolved too.  ``together``, (sets, items): nobody answers items that are in no
    set together.
    """
    steepest = items.steepest
    # An item informs within about 1 / a of its difficulty: look for the peak that finely.
    n = math.ceil((high - low) / min(0.125, 0.25 / steepest)) + 1
    look = np.linspace(low, high, n)
    sharp = items.sharpness(look) if together is None else items.sharpness_of(together, look)
    sharpest = 1.0 / sd**2 + float(sharp.max())
    return min(share / math.sqrt(sharpest), 1.0 / steepest, 0.5 * sd)


def grid_of(
    items: ItemSet, *, bound: float = GRID_BOUND, share: float = 0.5, together: Bools | None = None
) -> Grid:
    """Grid about 0 for abilities N(0, 1); ``together`` as in :func:`spacing_for`.

    Beyond GRID_BOUND it is as fine as any stretch of that width needs (they overlap by half).
    """
    n = math.ceil(bound / GRID_BOUND) - 1
    centres = GRID_BOUND * np.arange(-n, n + 1)
    spacing = min(
        spacing_for(items, c - GRID_BOUND, c + GRID_BOUND, share=share, together=together)
        for c in centres
    )
    return Grid(2 * math.ceil(bound / spacing) + 1, bound)


def grid_for(
    discrimination: Floats, intercept: Floats, *, margin: float = 1.0, bound: float = GRID_BOUND,
    share: float = 0.5,
) -> Grid:  # fmt: skip
    """:func:`grid_of` items of the 2PL; ``margin`` is a factor by which slopes may still grow."""
    items = ItemSet.of("2pl", np.asarray(discrimination) * margin, intercept)
    return grid_of(items, bound=bound, share=share)
