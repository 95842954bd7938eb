"""Combining the posteriors of shards: a location-scatter Wasserstein barycenter (LS-WASP).

Shard k holds n_k of n persons, and its item priors are tempered to the power n_k / n, so that the
product of the shards' posteriors is the full posterior.  Its spread is then that of n_k persons:

- scale: deviations are shrunk by sqrt(n_k / n), which is asymptotically the powered posterior;
- shape: the covariance is the Bures-Wasserstein barycenter of the shrunk covariances;
- location: the shards' means weighted by their precisions, as for a product of Gaussians (a plain
  average keeps the O(1 / n_k) bias of the shards);
- draws: each shard's draws are carried to the barycenter by the optimal linear map (Theorem 3).

Everything happens in (log a, d): no draw can have a negative discrimination.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irt_dask.errors import ApproximationWarning
from irt_dask.kernels import wasserstein

Floats = NDArray[np.float64]

#: The barycenter of estimated covariances shrinks standard deviations by (p + 1) / (8 ESS): use the
#: full matrix only up to this many parameters per effective draw.
_FULL_PER_ESS = 0.1
#: Fewer persons than this per item and shard, and shard posteriors are not near Gaussian.
_PERSONS_PER_ITEM = 5


@dataclass(frozen=True)
class ShardPosterior:
    """Posterior of one shard: draws (draw, 2, items) of (log a, d), and diagnostics (2, items)."""

    draws: Floats
    n_persons: int
    rhat: Floats
    ess: Floats
    acceptance: float
    spacing: float


@dataclass(frozen=True)
class Combined:
    """The combined posterior."""

    mean_a: Floats
    mean_d: Floats
    data: dict[str, Any]
    structure: str

    def variables(self) -> dict[str, Any]:
        """Arrays by name, for the result."""
        return self.data

    def n_flat(self, ratio: float) -> int:
        """Items whose discrimination has a mean below ``ratio`` standard deviations."""
        return int((self.mean_a < ratio * self.data["item_discrimination_sd"]).sum())


def combine(shards: list[ShardPosterior], n_draws: int, n_items: int) -> Combined:
    """Combine shard posteriors; with one shard, its draws are the result.

    Raises
    ------
    EstimationError
        If a covariance is singular or the barycenter does not converge.
    """
    share = np.array([s.n_persons for s in shards], dtype=float)
    share /= share.sum()
    p = 2 * n_items
    full = p <= _FULL_PER_ESS * min(float(s.ess.min()) for s in shards)
    if len(shards) == 1:
        moved = [shards[0].draws]
        covariance = _covariance(shards[0].draws) if full else None
    else:
        _warn_small(shards, n_items)
        moved, covariance = _barycenter(shards, share, full)
    data = _moments(moved, share)
    data |= _take_draws(moved, share, min(n_draws, *(len(x) for x in moved)))
    if full:
        data["item_covariance"] = covariance
    structure = "full" if full else "2 x 2 for each item"
    return Combined(data["item_discrimination"], data["item_intercept"], data, structure)


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


def _flat(draws: Floats) -> Floats:
    """Draws as (draw, parameter), parameters item by item, log a before d."""
    return draws.transpose(0, 2, 1).reshape(len(draws), -1)


def _covariance(draws: Floats) -> Floats:
    return np.atleast_2d(np.cov(_flat(draws), rowvar=False))


def _blocks(draws: Floats) -> Floats:
    """Covariance of (log a, d) of each item, shape (items, 2, 2)."""
    x = (draws - draws.mean(axis=0)).transpose(2, 1, 0)
    return x @ x.transpose(0, 2, 1) / (len(draws) - 1)


def _barycenter(
    shards: list[ShardPosterior], share: Floats, full: bool
) -> tuple[list[Floats], Floats]:
    """Draws of each shard moved to the barycenter, and its covariance.

    ``full`` treats all parameters together; otherwise each item's (log a, d) by itself, on arrays
    with a leading item axis.
    """
    cov = np.stack([_covariance(s.draws)[None] if full else _blocks(s.draws) for s in shards])
    mean = np.stack(
        [_flat(s.draws).mean(axis=0).reshape(cov.shape[1], cov.shape[2]) for s in shards]
    )
    precision = wasserstein.power(cov, -1.0)
    weighted = (precision @ mean[..., None]).sum(axis=0)
    centre = np.linalg.solve(precision.sum(axis=0), weighted)[..., 0]
    shrunk = cov * share[:, None, None, None]
    target = wasserstein.barycenter(shrunk, share)
    moved = []
    for k, s in enumerate(shards):
        deviation = _flat(s.draws).reshape(len(s.draws), *mean.shape[1:]) - mean[k]
        carry = wasserstein.transport(shrunk[k], target) * np.sqrt(share[k])
        x = centre + np.einsum("bij,nbj->nbi", carry, deviation, optimize=True)
        moved.append(x.reshape(len(x), -1, 2).transpose(0, 2, 1))
    return moved, target[0]


def _moments(moved: list[Floats], share: Floats) -> dict[str, Any]:
    """Posterior means and standard deviations of a, d and b, shards weighted by their persons."""
    out = {}
    for name, of in (
        ("item_discrimination", lambda x: np.exp(x[:, 0])),
        ("item_difficulty", lambda x: -x[:, 1] * np.exp(-x[:, 0])),
        ("item_intercept", lambda x: x[:, 1]),
    ):
        first = [of(x).mean(axis=0) for x in moved]
        mean = np.average(first, axis=0, weights=share)
        spread = [((of(x) - mean) ** 2).mean(axis=0) for x in moved]
        out[name] = mean
        out[f"{name}_sd"] = np.sqrt(np.average(spread, axis=0, weights=share))
    return out


def _take_draws(moved: list[Floats], share: Floats, n_draws: int) -> dict[str, Any]:
    """``n_draws`` combined draws, from each shard evenly and in proportion to its persons."""
    ends = np.rint(np.cumsum(share) * n_draws).astype(int)
    counts = np.diff(ends, prepend=0)
    taken = [
        x[np.linspace(0, len(x) - 1, c).astype(int)] for x, c in zip(moved, counts, strict=True)
    ]
    draws = np.concatenate(taken)
    return {"item_discrimination_draw": np.exp(draws[:, 0]), "item_intercept_draw": draws[:, 1]}
