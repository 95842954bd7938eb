"""Signs of slopes before chains begin: all data tell every chain where ability points.

Items and abilities that are all turned are as likely.  A chain on a shard whose camps of items
balance would wander from one solution to the other, and shards would disagree.  So every chain
draws slopes with ``sum(towards a) > 0`` alone, and ``towards`` is the same for all of them.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from irt_dask.arrays import Bools, Floats
from irt_dask.calibrate.bayes.item_density import Shapes
from irt_dask.calibrate.bayes.models import inside
from irt_dask.calibrate.shared import first_component, orientation
from irt_dask.calibrate.shared.start_values import ResponseCounts, start_values
from irt_dask.engine import Engine


def pilot(
    engine: Engine, shapes: Shapes, counts: ResponseCounts, start: xr.Dataset | None
) -> tuple[Floats, tuple[float, ...]]:
    """Coordinates (P, items) to start from, and what each slope counts towards the orientation.

    Slopes are those of the first principal component, or of a given ``start``, times how much the
    responses say of them.  One pass over the data for each power, 5 to 20 of most data.
    """
    models, item_id = shapes.models, engine.responses.item_id
    slopes, information = first_component.slopes(engine, counts, models.n_categories)
    x = start_values(
        item_id, models, counts.of_each, start, slope=slopes, prior=shapes.betas, signed=True
    )
    y = inside(shapes, x)
    if orientation.rise(shapes.items(y)) < 0.0:
        y[0] = -y[0]
    return y, tuple((information * y[0]).tolist())


def mask(n_items: int) -> Bools:
    """Which parameters (2, items) of the 2PL may be negative though others are positive."""
    return np.stack([np.ones(n_items, dtype=bool), np.zeros(n_items, dtype=bool)])
