"""Combining the posteriors of shards: a location-scatter Wasserstein barycenter (LS-WASP).

Shard k holds n_k of n persons, and its item priors are tempered to the power n_k / n, so that the
product of the shards' posteriors is the full posterior.

- scale: a shard that was sampled as it is has the spread of n_k persons; its deviations are shrunk
  by sqrt(n_k / n), which is asymptotically the powered posterior.  A shard that was sampled with a
  power has the spread of n persons already;
- shape: the covariance is the Bures-Wasserstein barycenter of these covariances;
- location: the mode of the posterior of all persons, found by steps on the full data
  (:mod:`irt_dask.calibrate.bayes.full_data_mode`), plus the distance of the mean from the mode.  To
  third order that is half the expectation of the deviation times its squared Mahalanobis length,
  which the shards' draws give; it falls like one over the persons, so a shard's counts n_k / n;
- draws: each shard's draws are carried to the barycenter by the optimal linear map (Theorem 3).

Everything happens in (log a, d), where no draw can have a negative discrimination (loadings that
may be negative enter as they are).  Correlations of the abilities, where they are free, are some
more coordinates: atanh of their canonical partial correlations, which make a positive definite
matrix whatever they are.  Their uniform prior to any power is itself.  Squared W2
distance of the result from the full posterior over the trace of its covariance, in simulations
(4 data sets of 10,000 x 20 with K = 10, and with K = 20; 5 of 3,000 x 15 with K = 6), without the
sampling error of the draws: average .10, .47, .12; precision .21, .92, .30; refined .001, .002,
.008, of which all but .001 is the covariance.  In (a, d) the refined figures are .001, .003, .004;
SDs of a come out 1.02 to 1.05 times those of the full posterior, not 1.01 to 1.04, and with more
and smaller shards that gets worse faster (4,000 x 40, K = 40: 1.48, not 1.12).  Without the
distance of mean from mode: .001, .002, .009 in (log a, d) and .003, .005, .011 in (a, d).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irt_dask.calibrate.bayes.coordinates import Space, by_item, from_items
from irt_dask.calibrate.bayes.full_data_mode import Refined
from irt_dask.calibrate.bayes.hierarchy import Learned
from irt_dask.errors import ApproximationWarning, InputError
from irt_dask.kernels.combine import wasserstein

Floats = NDArray[np.float64]

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

#: What :func:`combine` knows, and whether deviations have to be shrunk.
POWERINGS = {"shrink": True, "published": False, "replicate": False}
LOCATIONS = ("average", "precision", "refined")
#: Abilities up to which the score on the full data is available.
MOST_REFINED = 2


@dataclass(frozen=True)
class ShardPosterior:
    """Posterior of one shard: draws (draw, P, items) and diagnostics (P, items).

    The last row of a draw holds intercepts, those before it the loadings, positive ones by their
    logarithms: with one ability, (log a, d).  ``correlation`` (draw, Q, Q) is that of the abilities
    where it is free, ``learned`` are the items' mean and covariance where they are drawn, by name;
    their diagnostics are those of the worst entry.
    """

    draws: Floats
    n_persons: int
    rhat: Floats
    ess: Floats
    acceptance: float
    spacing: float
    correlation: Floats | None = None
    other_rhat: float = 1.0
    other_ess: float = np.inf
    learned: dict[str, Floats] = field(default_factory=dict)

    @property
    def worst_rhat(self) -> float:
        """Largest R-hat of any parameter; not a number where one is not."""
        return float(np.maximum(self.rhat.max(), self.other_rhat))

    @property
    def least_ess(self) -> float:
        """Smallest effective sample size of any parameter; not a number where one is not."""
        return float(np.minimum(self.ess.min(), self.other_ess))


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

    def variables(self) -> dict[str, Any]:
        """Arrays by name, for the result."""
        return self.data


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
    if location not in LOCATIONS:
        raise InputError(
            f"location={location!r} is not available; choose one of {', '.join(LOCATIONS)}"
        )
    if location == "refined" and n_dims > MOST_REFINED:
        raise InputError(
            f"location='refined' sums over a grid of all abilities: at most {MOST_REFINED} of "
            f"them, not n_dims={n_dims}; use location='precision'"
        )
    return location


def combine(
    shards: list[ShardPosterior],
    n_draws: int,
    *,
    powering: str = "shrink",
    location: str = "precision",
    locate: Locate | None = None,
    learn: Learn | None = None,
    space: Space | None = None,
) -> Combined:
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
    space : Space
        Coordinates, and which loadings are fixed at 0, without correlations of abilities: where
        shards have draws of them these become coordinates too, and ``locate`` finds them.

    Raises
    ------
    EstimationError
        If a covariance is singular or the barycenter does not converge.
    """
    space = space or Space()
    n_rows, n_items = shards[0].draws.shape[1:]
    if shards[0].correlation is not None and len(shards) > 1:
        space = space.with_correlations(n_rows, n_items)
        shards = [_with_correlation(s, space) for s in shards]
    share = np.array([s.n_persons for s in shards], dtype=float)
    share /= share.sum()
    draws = [space.of_draws(s.draws) for s in shards]
    free = space.mask(*draws[0].shape[1:])
    ess = min(float(s.ess[free].min()) for s in shards)
    full = int(free.sum()) <= _FULL_PER_ESS * ess
    refined = None
    if len(shards) == 1:
        covariance = wasserstein.covariances(by_item(draws[0], 1)) if full else None
        moved = draws
    else:
        factor = share if POWERINGS[powering] else np.ones(len(shards))
        merged = _Merged.of(draws, share, factor, full, free)
        if location == "refined":
            assert locate is not None
            inverse = merged.covariance if full else merged.pooled(draws, ess)
            refined = locate(space, merged.from_items(merged.start()), inverse)
            centre = by_item(refined.centre, merged.n_blocks) + merged.skew
            _warn_far(refined)
        else:
            _warn_small(shards, n_items)
            centre = merged.average() if location == "average" else merged.precise()
        moved = merged.move(draws, centre)
        covariance = merged.covariance
    parameters = [space.parameters(x) for x in moved]
    items = [x[..., :n_items] for x in parameters]
    named = [_by_name(x) | s.learned for x, s in zip(items, shards, strict=True)]
    if shards[0].correlation is not None:
        one = len(shards) == 1
        matrices = [shards[0].correlation] if one else [space.correlation(x) for x in parameters]
        for x, r in zip(named, matrices, strict=True):
            x["ability_correlation"] = r
    weights = [np.full(len(x), w / len(x)) for x, w in zip(items, share, strict=True)]
    most = min(n_draws, *(len(x) for x in items))
    learned = None
    if learn is not None:
        learned = learn(np.concatenate(moved), np.concatenate(weights))
        drawn = {name: np.concatenate([x[name] for x in named]) for name in named[0]}
        drawn |= {"item_prior_mean": learned.mean, "item_prior_covariance": learned.covariance}
        named, weights = [drawn], [learned.weight]
    data = _moments(named, weights) | _draws(named, weights, most)
    if covariance is not None and full:
        fixed = ~by_item(free, 1).ravel()[: n_rows * n_items]
        of_items = covariance[0][: fixed.size, : fixed.size]
        if learned is not None:
            away = by_item(np.concatenate(moved), 1)[:, 0]
            away = away - learned.weight @ away
            of_items = (away.T * learned.weight) @ away
        data["item_covariance"] = np.where(fixed[:, None] | fixed, 0.0, of_items)
    structure = "full" if full else f"{n_rows} x {n_rows} for each item"
    return Combined(_parameters(data), data, structure, refined, learned)


def _warn_small(shards: list[ShardPosterior], n_items: int) -> None:
    least = min(s.n_persons for s in shards)
    if least < _PERSONS_PER_ITEM * n_items:
        warnings.warn(
            f"the smallest shard has {least} persons for {n_items} items: shard posteriors may be "
            f"too far from Gaussian to be combined; use fewer shards (at least "
            f"{_PERSONS_PER_ITEM} persons per item in each)",
            ApproximationWarning,
            stacklevel=4,
        )


def _warn_far(refined: Refined) -> None:
    if refined.first_step > _LARGE_STEP:
        warnings.warn(
            f"the shards are too small: their combination lies {refined.first_step:.1f} posterior "
            f"SDs from the posterior of all persons (limit {_LARGE_STEP:g}); it was moved there, "
            f"but its spread may be off likewise; use fewer shards",
            ApproximationWarning,
            stacklevel=4,
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
    covariance: Floats  # of the barycenter
    skew: Floats  # mean minus mode of the full posterior, (blocks, size)
    n_rows: int

    @classmethod
    def of(
        cls,
        draws: list[Floats],
        share: Floats,
        factor: Floats,
        full: bool,
        free: NDArray[np.bool_],
    ) -> _Merged:
        """Moments of the shards' draws and their barycenter."""
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
        total = sum(s * f * d for s, f, d in zip(share, factor, skew, strict=True))
        return cls(
            np.stack([d.mean(axis=0) for d in x]),
            own,
            factor,
            share,
            wasserstein.barycenter(own * factor[:, None, None, None], share),
            np.reshape(total, dummy.shape),
            len(free),
        )

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


# --- the result -----------------------------------------------------------------------------------


def _by_name(x: Floats) -> dict[str, Floats]:
    """Named quantities of draws of parameters (draw, P, items), items last but for loadings."""
    if x.shape[1] > 2:
        return {"item_loading": x[:, :-1].transpose(0, 2, 1), "item_intercept": x[:, -1]}
    return {
        "item_discrimination": x[:, 0],
        "item_difficulty": -x[:, 1] / x[:, 0],
        "item_intercept": x[:, 1],
    }


def _parameters(data: dict[str, Any]) -> Floats:
    """Means (P, items) of loadings and intercepts among the result's arrays."""
    if "item_loading" in data:
        return np.vstack([data["item_loading"].T, data["item_intercept"]])
    return np.stack([data["item_discrimination"], data["item_intercept"]])


def _mean(x: list[Floats], weights: list[Floats]) -> Floats:
    """Mean of the draws of all shards; a constant is its own, to the bit, where draws are alike."""
    each = [
        v.mean(axis=0) if (w == w[0]).all() else np.tensordot(w / w.sum(), v, axes=1)
        for v, w in zip(x, weights, strict=True)
    ]
    return np.average(each, axis=0, weights=[w.sum() for w in weights])


def _moments(named: list[dict[str, Floats]], weights: list[Floats]) -> dict[str, Any]:
    """Means and SDs by name."""
    out: dict[str, Any] = {}
    for name in named[0]:
        x = [of_shard[name] for of_shard in named]
        mean = _mean(x, weights)
        out[name] = mean
        out[f"{name}_sd"] = np.sqrt(_mean([(v - mean) ** 2 for v in x], weights))
    return out


def _taken(x: list[Floats], weights: list[Floats], n_draws: int) -> Floats:
    """``n_draws`` draws in proportion to their weights, evenly (systematic resampling)."""
    ends = np.cumsum(np.concatenate(weights))
    at = np.searchsorted(ends, (np.arange(n_draws) + 0.5) / n_draws * ends[-1])
    return np.concatenate(x)[at]


def _draws(named: list[dict[str, Floats]], weights: list[Floats], n_draws: int) -> dict[str, Any]:
    """Combined draws by name; each is of one draw of one shard, whatever the name."""
    names = [name for name in named[0] if name != "item_difficulty"]
    return {f"{n}_draw": _taken([x[n] for x in named], weights, n_draws) for n in names}
