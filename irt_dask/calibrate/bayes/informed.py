"""Spread of a combined posterior by the information of all persons, where shards know too little.

What a few thousand persons say of an asymptote may be next to nothing in one shard and much in
another, and no power of a skewed posterior has the spread of another one: the barycenter averages
standard deviations, and 4 shards of 5,000 persons made those of guessing 1.1 times too large, of
single items 1.7 times.  So of items with asymptotes deviations are carried to the inverse of the
observed information at the mode on all persons, in the coordinates in which shards are combined;
the shape of their distribution stays that of the shards.
"""

from __future__ import annotations

import functools
import warnings

import numpy as np

from irt_dask.arrays import Floats
from irt_dask.calibrate.bayes import weighted
from irt_dask.calibrate.bayes.coordinates import Inform, Space, by_item
from irt_dask.calibrate.bayes.hierarchy import Hierarchy
from irt_dask.calibrate.bayes.item_density import Shapes
from irt_dask.calibrate.bayes.model_posterior import Posterior
from irt_dask.calibrate.bayes.samplers import Options
from irt_dask.curves.priors import ItemPrior
from irt_dask.engine import Engine
from irt_dask.errors import ApproximationWarning

#: Step of central differences of what coordinates bend, of coordinates of the size of 1.
_STEP = 1e-4


def chosen(
    engine: Engine, o: Options, shapes: Shapes, prior: ItemPrior | Hierarchy
) -> Inform | None:
    """What finds the covariance of a combination; None: the barycenter has it.

    Of several shards of items with asymptotes, where it is derived: persons without sampling
    weights, powering="shrink", location="refined", no parameters that items share, and at most as
    many coordinates as there is room for.
    """
    bent = any(part.model.asymptotes for part in shapes.models.parts)
    room = int(shapes.free.sum()) <= weighted.MOST and not shapes.models.shares
    derived = o.n_dims == 1 and o.powering == "shrink" and o.location == "refined"
    if o.n_shards > 1 and not o.sampled and bent and room and derived:
        return functools.partial(_covariance_at, Posterior(engine, prior, shapes))
    return None


def _covariance_at(posterior: Posterior, space: Space, x: Floats) -> Floats | None:
    h = information(posterior, space, x)
    unit = np.sqrt(np.maximum(np.diagonal(h), np.finfo(float).tiny))
    if np.linalg.eigvalsh(h / np.outer(unit, unit))[0] > weighted.LEAST:
        return np.asarray(np.linalg.inv(h))
    warnings.warn(
        "the information of all persons is singular at the mode, so that standard deviations are "
        "averages over shards, too large as a rule; use fewer shards, or priors that say more",
        ApproximationWarning,
        stacklevel=6,
    )
    return None


def information(posterior: Posterior, space: Space, x: Floats) -> Floats:
    """Observed information by the coordinates x, free ones item by item; three passes."""
    y = space.parameters(x)
    h, _ = weighted.information(posterior, y)
    _, gradient = posterior(y, posterior.nodes(y))

    def slopes(at: Floats) -> Floats:
        return space.gradient(at, gradient) + space.volume(at)[1]

    curved = (slopes(x + _STEP) - slopes(x - _STEP)) / (2.0 * _STEP)
    own = by_item(posterior.shapes.free, 1)[0]
    slope, bend = (by_item(v, 1)[0][own] for v in (space.slope(x), curved))
    return np.asarray(slope[:, None] * h * slope - np.diag(bend))
