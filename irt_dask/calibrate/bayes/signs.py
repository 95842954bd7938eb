"""Signs of slopes before chains begin: all data tell every chain where ability points.

Items and abilities that are all turned are as likely.  A chain on a shard whose camps of items
balance would wander from one solution to the other, and shards would disagree.  So every chain
draws slopes with ``sum(towards a) > 0`` alone, and ``towards`` is the same for all of them.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from irt_dask.arrays import Bools, Floats
from irt_dask.calibrate.bayes.hierarchy import Hierarchy
from irt_dask.calibrate.bayes.item_density import Shapes
from irt_dask.calibrate.bayes.models import inside
from irt_dask.calibrate.shared import first_component
from irt_dask.calibrate.shared.start_values import ResponseCounts, start_values
from irt_dask.curves.priors import ItemPrior
from irt_dask.engine import Engine


def pilot(
    engine: Engine, shapes: Shapes, prior: ItemPrior | Hierarchy, counts: ResponseCounts,
    start: xr.Dataset | None,
) -> tuple[Floats, tuple[float, ...]]:  # fmt: skip
    """Coordinates (P, items) to start from, and what each slope counts towards the orientation.

    That is the slope of the first principal component, times how much the responses say of it,
    whatever the ``start``, which is turned to it.  A prior of slopes whose mean is not 0 makes the
    two solutions unlike: all is turned to the one that it makes likelier.  One pass over the data
    for each power, 5 to 20 of most data.
    """
    models, item_id = shapes.models, engine.responses.item_id
    slopes, information = first_component.slopes(engine, counts, models)
    x = start_values(
        item_id, models, counts.of_each, start, slope=slopes, prior=shapes.betas, signed=True
    )
    y, towards = inside(shapes, x), information * slopes
    if towards @ y[0] < 0.0:
        y[0] = -y[0]
    if isinstance(prior, ItemPrior) and prior.loading[0] * y[0].sum() < 0.0:
        y[0], towards = -y[0], -towards
    return y, tuple(towards.tolist())


def mask(n_items: int) -> Bools:
    """Which parameters (2, items) of the 2PL may be negative though others are positive."""
    return np.stack([np.ones(n_items, dtype=bool), np.zeros(n_items, dtype=bool)])
