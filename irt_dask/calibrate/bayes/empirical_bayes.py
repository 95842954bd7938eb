"""The covariance of the items from all persons, before they are dealt to shards.

A shard cannot learn the covariance: with priors to the power w = n_k / n, items integrated out
leave ``|Sigma|^{J (1 - w) / 2}``, and the variance runs away.  So it is held in the shards, near
its posterior mean, and corrected afterwards (:func:`irt_dask.calibrate.bayes.hierarchy.learn`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from irt_dask.arrays import Floats
from irt_dask.calibrate.bayes.full_data_mode import Posterior, on_line
from irt_dask.calibrate.bayes.hierarchy import Hierarchy
from irt_dask.engine import Engine
from irt_dask.kernels.gibbs import learned_item_draws

#: Rounds end when the covariance changes by less than this share of the product of the SDs.
_SMALL_CHANGE = 0.003
_MOST_ROUNDS = 100


def covariance(engine: Engine, prior: Hierarchy, x: Floats) -> tuple[Floats, Floats]:
    """Covariance of the items, and the items, (2, items), from a start.

    EM: given mean and covariance, one step of each item to the mode of its conditional density on
    expected counts; the covariance is that of the items and their own uncertainty together, as seen
    with abilities known (a joint mode of items and covariance need not exist).

    Notes
    -----
    One pass over the data a round, some 10 to 30 of them.  After 100 it is taken as it is: what is
    held need only be near, and the weights of the draws say whether it was.  The driver holds
    expected counts, 16 bytes x items x nodes.
    """
    posterior = Posterior(engine, prior)

    def step(x: Floats, mean: Floats, held: Floats) -> tuple[Floats, Floats]:
        items = np.stack([prior.slopes(x), x[1]])
        nodes = posterior.nodes(items)
        scales = posterior.scales(items, nodes)
        right, seen, _ = engine.map_reduce(on_line, *items, nodes, scales)
        normals = prior.normals(mean, held, 1.0, x.shape[1])
        return learned_item_draws.modes(
            right / scales.weight, seen / scales.weight, nodes, normals, x, signed=prior.signed
        )

    return settled(prior, x, step)


def settled(
    prior: Hierarchy, x: Floats, step: Callable[[Floats, Floats, Floats], tuple[Floats, Floats]]
) -> tuple[Floats, Floats]:
    """Covariance and items after rounds of ``step(x, mean, covariance)``.

    It returns items, of which the first two rows are (log a, d), or (a, d) if signed, and
    covariances of these.
    """
    mean, held = prior.start(x[:2])
    for _ in range(_MOST_ROUNDS):
        x, own = step(x, mean, held)
        mean, _ = prior.mean_given(x[:2], held)
        new = prior.covariance_given(x[:2], mean, own)
        sd = np.sqrt(np.diagonal(new, axis1=-2, axis2=-1))
        change = float((np.abs(new - held) / (sd[..., :, None] * sd[..., None, :])).max())
        held = new
        if change < _SMALL_CHANGE:
            break
    return held, x
