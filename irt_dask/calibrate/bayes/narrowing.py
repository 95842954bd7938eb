"""What shards' posteriors are wider than that of all persons, to second order, taken away."""

from __future__ import annotations

import numpy as np

from irt_dask.arrays import Floats
from irt_dask.calibrate.bayes.coordinates import by_item
from irt_dask.kernels.combine import wasserstein

#: Share of a variance that is left at least: where it would be less, moments say little.
_LEAST_LEFT = 0.5


def excess(draws: list[Floats], ess: list[Floats], share: Floats, factor: Floats) -> Floats:
    """What all persons do not have of the shards' excess of spread, (items, P, P).

    ``draws`` (draw, P, items) and ``ess`` (P, items) are those of each shard; ``share`` of the
    persons and ``factor``, by which its covariance is multiplied, have one number for each.

    That of a single item is uncertain: it is pulled towards the mean over items by as much as
    shards disagree about it, against how far items differ.
    """
    n_items = draws[0].shape[2]
    each = np.stack(
        [
            wasserstein.excess_spread(by_item(x, n_items), np.clip(e.min(axis=0), 1.0, len(x)))
            for x, e in zip(draws, ess, strict=True)
        ]
    )
    each *= (1.0 - factor)[:, None, None, None]
    own = np.einsum("k,kjab->jab", share, each)
    rough = share @ share  # the variance of a weighted mean, of one shard's
    noise = np.einsum("k,kjab->jab", share, (each - own) ** 2) * rough / (1.0 - rough)
    middle = own.mean(axis=0)
    apart = np.maximum(((own - middle) ** 2 - noise).mean(axis=0), 0.0)
    trust = apart / np.maximum(apart + noise, np.finfo(float).tiny)
    return middle + trust * (own - middle)


def narrowed(covariance: Floats, of_item: Floats) -> Floats:
    """Covariances (blocks, size, size) less the excess of each item (items, P, P)."""
    value, vector = np.linalg.eigh(np.eye(of_item.shape[1]) - of_item)
    left = np.sqrt(np.clip(value, _LEAST_LEFT, 1.0 / _LEAST_LEFT))
    inner = (vector * left[:, None, :]) @ np.swapaxes(vector, 1, 2)
    p, (n_blocks, size, _) = of_item.shape[1], covariance.shape
    c = covariance.reshape(n_blocks, size // p, p, size // p, p)
    own = np.einsum("biaic->biac", c)
    by = wasserstein.power(own, 0.5) @ inner.reshape(own.shape) @ wasserstein.power(own, -0.5)
    return np.einsum("biac,bicjd,bjed->biaje", by, c, by, optimize=True).reshape(covariance.shape)
