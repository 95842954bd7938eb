"""Combining the posteriors of shards: a location-scatter Wasserstein barycenter (LS-WASP).

Shard k holds n_k of n persons, and its item priors are tempered to the power n_k / n, so that the
product of the shards' posteriors is the full posterior.

- scale: a shard that was sampled as it is has the spread of n_k persons; its deviations are shrunk
  by sqrt(n_k / n), which is asymptotically the powered posterior.  A shard that was sampled with a
  power has the spread of n persons already;
- shape: the covariance is the Bures-Wasserstein barycenter of these covariances.  A shard of n_k
  persons is wider than the Gaussian at its mode by a share that falls like one over the persons;
  all persons have n_k / n of it.  With one ability and a refined location the rest is taken away,
  item by item, as the third and fourth moments of the draws say.  Of items with asymptotes it is
  that of the information on all persons (:mod:`irt_dask.calibrate.bayes.informed`);
- location: the mode of the posterior of all persons, found by steps on the full data
  (:mod:`irt_dask.calibrate.bayes.full_data_mode`), plus the distance of the mean from the mode.  To
  third order that is half the expectation of the deviation times its squared Mahalanobis length,
  which the shards' draws give; it falls like one over the persons, so a shard's counts n_k / n;
- draws: each shard's draws are carried to the barycenter by the optimal linear map (Theorem 3).

Everything happens in (log a, d), where no draw can have a negative discrimination (loadings that
may be negative enter as they are).  Correlations of the abilities, where they are free, are some
more coordinates: atanh of their canonical partial correlations, which make a positive definite
matrix whatever they are.  Their uniform prior to any power is itself.  Squared W2
distance of the result, with its excess of spread, from the full posterior over the trace of its
covariance, in simulations (4 data sets of 10,000 x 20 with K = 10, and with K = 20; 5 of
3,000 x 15 with K = 6), without the sampling error of the draws: average .10, .47, .12; precision
.21, .92, .30; refined .001, .002, .008, of which all but .001 is the covariance.  In (a, d) the
refined figures are .001, .003, .004; SDs of a come out 1.02 to 1.05 times those of the full
posterior, not 1.01 to 1.04, and with more and smaller shards that gets worse faster (4,000 x 40,
K = 40: 1.48, not 1.12).  Without the distance of mean from mode: .001, .002, .009 in (log a, d) and
.003, .005, .011 in (a, d).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from irt_dask.arrays import Bools, Floats
from irt_dask.calibrate.bayes import narrowing, summaries
from irt_dask.calibrate.bayes.coordinates import Inform, Space, Spread, by_item, from_items
from irt_dask.calibrate.bayes.full_data_mode import Refined
from irt_dask.calibrate.bayes.hierarchy import Learned
from irt_dask.calibrate.bayes.shards import ShardPosterior
from irt_dask.engine.inputs import one_of
from irt_dask.errors import ApproximationWarning, InputError
from irt_dask.kernels.combine import wasserstein

#: The barycenter of estimated covariances shrinks standard deviations by (p + 1) / (8 ESS): use the
#: full matrix only up to this many parameters per effective draw.
_FULL_PER_ESS = 0.1
#: Fewer persons than this per item and shard, and shard posteriors are not near Gaussian: said
#: where no step on the full data tells how far off their combination is.
_PERSONS_PER_ITEM = 5
#: Parameters up to which steps use a covariance of all of them (of 1,000: 8 MB).
_MOST_POOLED = 1000
#: A first step of more posterior SDs than this: the shards are too small.  In simulations of 15 to
#: 40 items, complete, first steps of 2 to 3 went with SDs 2 to 8% too wide, of 4 to 5 with 5 to
#: 16%, of 9 to 10 with 12 to 46%; the location was right (within 0.1 SD) in all of them.  With
#: booklets steps of 4 to 5 went with SDs of slopes 8 to 19% too wide on average (two designs), 28
#: and 40% at worst.
_LARGE_STEP = 3.0

#: Coordinates of an item with one ability, whose excess of spread is known to be small enough.
_NARROWED = 2

#: What :func:`combine` knows, and whether deviations have to be shrunk.
POWERINGS = {"shrink": True, "published": False, "replicate": False}
LOCATIONS = ("average", "precision", "refined")
#: Abilities up to which the score on the full data is available.
MOST_REFINED = 2


@dataclass(frozen=True)
class Combined:
    """The combined posterior: means (P, items) of loadings and intercepts, and the result's arrays.

    ``refined`` says how the location was found, if by steps on the full data; ``learned`` what the
    draws say about the items' mean and covariance, if shards held the latter.
    """

    mean: Floats
    data: dict[str, Any]
    structure: str
    refined: Refined | None = None
    learned: Learned | None = None
    #: Whether deviations were carried to the spread of a sample.
    carried: bool = False

    @property
    def settled(self) -> bool:
        """Whether steps to the location, if there were any, have converged."""
        return self.refined is None or self.refined.converged


#: Finds the mode on the full data: ``locate(space, start, covariance)``.
Locate = Callable[[Space, Floats, Floats], Refined]
#: Learns the items' mean and covariance from draws and their weights.
Learn = Callable[[Floats, Floats], Learned]


def location_for(location: str | None, n_dims: int) -> str:
    """Return the kind of location, by default refined where it can be.

    Raises
    ------
    InputError
        If it does not exist, or not for this number of abilities.
    """
    if location is None:
        return "refined" if n_dims <= MOST_REFINED else "precision"
    one_of("location", location, LOCATIONS)
    if location == "refined" and n_dims > MOST_REFINED:
        raise InputError(
            f"location='refined' sums over a grid of all abilities: at most {MOST_REFINED} of "
            f"them, not n_dims={n_dims}; use location='precision'"
        )
    return location


def combine(
    shards: list[ShardPosterior], n_draws: int, *, powering: str = "shrink",
    location: str = "precision", locate: Locate | None = None, learn: Learn | None = None,
    spread: Spread | None = None, inform: Inform | None = None, space: Space | None = None,
) -> Combined:  # fmt: skip
    """Combine shard posteriors; with one shard, its draws are the result.

    Parameters
    ----------
    shards : ShardPosterior of each, with abilities in one order and direction
    n_draws : int
        Combined draws that are wanted.
    powering : "shrink" | "published" | "replicate"
        How shards were sampled: only the first one's deviations are shrunk.
    location : "average" | "precision" | "refined"
        Shards' means weighted by persons or by precisions, or the mode of the full posterior, which
        ``locate`` finds, and the mean's distance from it.
    learn : callable
        What weighs the combined draws, where shards held the items' covariance.
    spread : callable
        Persons have sampling weights: one shard too is moved to the mode that ``locate`` finds, and
        deviations are carried by what it says there.
    inform : callable
        The covariance at that mode, where shards know too little of it.
    space : Space
        Coordinates, and which loadings are fixed at 0, without correlations of abilities: where
        shards have draws of them these become coordinates too, and ``locate`` finds them.

    Raises
    ------
    EstimationError
        If a covariance is singular or the barycenter does not converge.
    """
    space, carried = space or Space(), False
    n_rows, n_items = shards[0].draws.shape[1:]
    if shards[0].correlation is not None and len(shards) > 1:
        space = space.with_correlations(n_rows, n_items)
        shards = [_with_correlation(s, space) for s in shards]
    share = np.array([s.n_persons for s in shards], dtype=float)
    share /= share.sum()
    free = space.mask(*shards[0].draws.shape[1:])
    ess = min(float(s.ess[free].min()) for s in shards)
    full = int(free.sum()) <= _FULL_PER_ESS * ess
    moved, covariance, refined = [space.of_draws(s.draws) for s in shards], None, None
    if len(shards) > 1 or spread is not None:
        factor = share if POWERINGS[powering] else np.ones(len(shards))
        of_each = [s.ess for s in shards] if location == "refined" else None
        merged = _Merged.of(moved, share, factor, full, free, of_each)
        if location != "refined":
            _warn_small(shards, n_items)
            centre = merged.average() if location == "average" else merged.precise()
        else:
            assert locate is not None
            inverse = merged.covariance if full else merged.pooled(moved, ess)
            refined = locate(space, merged.from_items(merged.start()), inverse)
            _warn_far(refined, len(shards))
            known = inform(space, refined.centre) if inform is not None else None
            merged = merged if known is None else merged.informed(known, free)
            centre = by_item(refined.centre, merged.n_blocks) + merged.skew
        moved, covariance = merged.move(moved, centre), merged.covariance
        if spread is not None and refined is not None:
            by = spread(space, refined.centre)
            carried = by is not None
            if by is not None:
                moved, covariance = _spread(moved, centre, covariance, by, free)
    elif full:
        covariance = wasserstein.covariances(by_item(moved[0], 1))
    named = _named(shards, moved, space, n_items)
    weights = [np.full(len(x), w / len(x)) for x, w in zip(moved, share, strict=True)]
    most = min(n_draws, *(len(x) for x in moved))
    learned = None
    if learn is not None:
        learned = learn(space.items(np.concatenate(moved))[:, :2], np.concatenate(weights))
        drawn = {name: np.concatenate([x[name] for x in named]) for name in named[0]}
        named, weights = [drawn | learned.named], [learned.weight]
    data = summaries.moments(named, weights, any_sign=space.any_sign) | summaries.draws(
        named, weights, most
    )
    if covariance is not None and full and space.of_one_model:
        fixed = ~by_item(free, 1).ravel()[: n_rows * n_items]
        of_items = covariance[0][: fixed.size, : fixed.size]
        if learned is not None:
            of_items = _weighted_covariance(by_item(np.concatenate(moved), 1)[:, 0], learned.weight)
        data["item_covariance"] = np.where(fixed[:, None] | fixed, 0.0, of_items)
    structure = "full" if full else f"{n_rows} x {n_rows} for each item"
    return Combined(space.mean(data), data, structure, refined, learned, carried)


def _spread(
    draws: list[Floats], centre: Floats, covariance: Floats, by: Floats, free: Bools
) -> tuple[list[Floats], Floats]:
    """Draws whose deviations from the centre (blocks, size), as rows, are multiplied by a matrix.

    And their covariance.
    """
    own = by_item(free, 1)[0]
    whole = np.eye(own.size)
    whole[np.ix_(own, own)] = by
    flat = centre.ravel()
    moved = [from_items((flat + (by_item(x, 1)[:, 0] - flat) @ whole)[:, None], len(free))
             for x in draws]  # fmt: skip
    if len(covariance) == 1:
        covariance = (whole.T @ covariance[0] @ whole)[None]
    return moved, covariance


def _named(
    shards: list[ShardPosterior], moved: list[Floats], space: Space, n_items: int
) -> list[dict[str, Floats]]:
    """Quantities of each shard's draws by name, at the coordinates ``moved``."""
    named = []
    for s, x in zip(shards, map(space.parameters, moved), strict=True):
        of = space.named(x[..., :n_items]) | s.learned
        if s.correlation is not None:
            of["ability_correlation"] = s.correlation if len(shards) == 1 else space.correlation(x)
        named.append(of)
    return named


def _weighted_covariance(x: Floats, weight: Floats) -> Floats:
    away = x - weight @ x
    return (away.T * weight) @ away


def _warn_small(shards: list[ShardPosterior], n_items: int) -> None:
    least = min(s.n_persons for s in shards)
    if least < _PERSONS_PER_ITEM * n_items:
        warnings.warn(
            f"the smallest shard has {least} persons for {n_items} items: shard posteriors may be "
            f"too far from Gaussian to be combined; use fewer shards (at least "
            f"{_PERSONS_PER_ITEM} persons per item in each)",
            ApproximationWarning,
            stacklevel=5,
        )


def _warn_far(refined: Refined, n_shards: int) -> None:
    if refined.first_step > _LARGE_STEP:
        what, remedy = "the shards are too small: their combination lies", "use fewer shards"
        if n_shards == 1:
            what = "these persons are too few: the posterior of their replicates lies"
            remedy = "give an ItemPrior that says more"
        warnings.warn(
            f"{what} {refined.first_step:.1f} posterior "
            f"SDs from the posterior of all persons (limit {_LARGE_STEP:g}); it was moved there, "
            f"but its spread may be off likewise; {remedy}",
            ApproximationWarning,
            stacklevel=5,
        )


def _with_correlation(shard: ShardPosterior, space: Space) -> ShardPosterior:
    """Shard whose correlations are among its draws, in coordinates and columns of ``space``."""
    assert shard.correlation is not None
    assert space.partial is not None
    n_more = space.partial.shape[1] - shard.ess.shape[1]
    more = np.where(space.partial[:, -n_more:], shard.other_ess, len(shard.draws))
    return replace(
        shard, draws=space.join(shard.draws, shard.correlation), ess=np.hstack([shard.ess, more])
    )


# --- arrays of blocks -----------------------------------------------------------------------------
# All parameters together are one block, item by item; else each item's parameters are one.  Fixed
# loadings keep their place, with deviations 0 and some variance, and so take no part.


@dataclass(frozen=True)
class _Merged:
    """What shards say together; arrays have leading block axes."""

    mean: Floats  # (shards, blocks, size)
    own: Floats  # covariance of each shard, (shards, blocks, size, size)
    factor: Floats  # by which each shard's covariance is multiplied
    share: Floats
    covariance: Floats  # of the barycenter, narrowed, or of the information
    skews: Floats  # mean minus mode of each shard, (shards, blocks, size)
    skew: Floats  # of the full posterior, (blocks, size)
    n_rows: int

    @classmethod
    def of(
        cls, draws: list[Floats], share: Floats, factor: Floats, full: bool, free: Bools,
        ess: list[Floats] | None,
    ) -> _Merged:  # fmt: skip
        """Moments of the shards' draws and their barycenter.

        ``ess`` (P, items) of each, where what they have in excess is to be taken away.
        """
        n_blocks = 1 if full else free.shape[1]
        x = [by_item(d, n_blocks) for d in draws]
        # A fixed loading gets some variance, the same in all shards once they are shrunk.
        dummy = np.where(by_item(free, n_blocks), 0.0, np.mean([d.var(axis=0) for d in draws]))
        diagonal = np.eye(dummy.shape[1]) * dummy[:, None]
        own = np.stack(
            [wasserstein.covariances(d) + diagonal / f for d, f in zip(x, factor, strict=True)]
        )
        # Of each item by itself: nearly all of it, and little sampling error.
        skew = [wasserstein.mean_less_mode(by_item(d, free.shape[1])) for d in draws]
        skews = np.stack([np.reshape(d, dummy.shape) for d in skew])
        total = sum(s * f * d for s, f, d in zip(share, factor, skews, strict=True))
        covariance = wasserstein.barycenter(own * factor[:, None, None, None], share)
        if ess is not None and len(free) == _NARROWED and free.all() and (factor < 1.0).all():
            covariance = narrowing.narrowed(covariance, narrowing.excess(draws, ess, share, factor))
        mean = np.stack([d.mean(axis=0) for d in x])
        return cls(mean, own, factor, share, covariance, skews, np.asarray(total), len(free))

    def informed(self, known: Floats, free: Bools) -> _Merged:
        """The same with a covariance of the free coordinates that all persons tell.

        To third order a mean's distance from the mode goes with the squared variance: a shard that
        is wider than its persons make it has so much more of it.
        """
        own = by_item(free, 1)[0]
        whole, covariance = np.zeros((own.size, own.size)), self.covariance.copy()
        whole[np.ix_(own, own)] = known
        for b, block in enumerate(covariance):
            at = slice(b * len(block), (b + 1) * len(block))
            block[:] = whole[at, at] + np.diag(np.where(own[at], 0.0, np.diagonal(block)))
        there = np.diagonal(covariance, axis1=1, axis2=2)
        ratio = there / (np.diagonal(self.own, axis1=2, axis2=3) * self.factor[:, None, None])
        skew = np.einsum("k,kbi->bi", self.share * self.factor, self.skews * ratio)
        return replace(self, covariance=covariance, skew=skew)

    @property
    def n_blocks(self) -> int:
        return self.covariance.shape[0]

    def from_items(self, x: Floats) -> Floats:
        """Coordinates (P, items) of blocks."""
        return from_items(x, self.n_rows)

    def average(self) -> Floats:
        """Mean of the shards' means, weighted by persons."""
        return np.einsum("k,kbi->bi", self.share, self.mean)

    def precise(self) -> Floats:
        """Mean weighted by precisions, as for a product of Gaussians."""
        precision = wasserstein.power(self.own, -1.0)
        weighted = (precision @ self.mean[..., None]).sum(axis=0)
        return np.linalg.solve(precision.sum(axis=0), weighted)[..., 0]

    def start(self) -> Floats:
        """Where steps to the mode start."""
        return self.precise() - self.skew

    def pooled(self, draws: list[Floats], ess: float) -> Floats:
        """Covariance of all parameters together, for steps, where the barycenter has blocks.

        It pools the draws of all shards, and its parts between items are pulled towards 0 by as
        much as they are uncertain; the blocks where it would be too large.
        """
        p = self.mean[0].size
        if p > _MOST_POOLED:
            return self.covariance
        out = np.zeros((p, p))
        for s, f, x in zip(self.share, self.factor, draws, strict=True):
            out += s * f * wasserstein.covariances(by_item(x, 1))[0]
        out *= 1.0 / (1.0 + p / (ess * len(draws)))
        for b, block in enumerate(self.covariance):
            at = slice(b * len(block), (b + 1) * len(block))
            out[at, at] = block
        return out[None]

    def move(self, draws: list[Floats], centre: Floats) -> list[Floats]:
        """Draws of each shard carried to the barycenter, about ``centre``."""
        moved = []
        for k, x in enumerate(draws):
            deviation = by_item(x, self.n_blocks) - self.mean[k]
            shrunk = self.own[k] * self.factor[k]
            carry = wasserstein.transport(shrunk, self.covariance) * np.sqrt(self.factor[k])
            y = centre + np.einsum("bij,nbj->nbi", carry, deviation, optimize=True)
            moved.append(self.from_items(y))
        return moved
