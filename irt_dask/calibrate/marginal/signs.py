"""Where searches for slopes of any sign begin, and which way ability points in the end."""

from __future__ import annotations

import numpy as np
import xarray as xr

from irt_dask.arrays import Floats
from irt_dask.calibrate.marginal.model import Model
from irt_dask.calibrate.marginal.rounds import Rounds
from irt_dask.calibrate.shared import climb, first_component, orientation
from irt_dask.calibrate.shared.start_values import ResponseCounts, start_values
from irt_dask.engine import Checkpoint

#: Searches from several starts end when they gain less than this, relative to the likelihood.
_ROUGHLY, _MOST_ROUNDS = 1e-6, 30


def likeliest(fit: Rounds, counts: ResponseCounts, start: xr.Dataset | None) -> Floats:
    """Column to start from: that of a given fit, or the likeliest end of rough searches.

    The likelihood of slopes of any sign has many maxima.  Searches begin at the signs of the first
    component, and where some are negative at slopes that are all positive.
    """
    model, item_id, n = fit.model, fit.engine.responses.item_id, counts.of_each
    if start is not None:
        given = start_values(item_id, model.items, n, start, prior=model.prior.betas, signed=True)
        return model.start(given)
    slopes, weight = first_component.slopes(fit.engine, counts, model.items)
    if model.anchored:
        known = ~model.free[0]
        if float((slopes * weight)[known] @ model.fixed[0, known]) < 0.0:
            slopes = -slopes
    ends = []
    for begin in [slopes] if (slopes > 0.0).all() else [slopes, np.abs(slopes)]:
        x = model.start(
            start_values(item_id, model.items, n, None, slope=begin, prior=model.prior.betas)
        )
        end = climb.full(fit, x, _MOST_ROUNDS, _ROUGHLY, Checkpoint(None, {}), "start")
        ends.append((end.trace[-1], end.x))
    return max(ends, key=lambda e: e[0])[1]


def upright(model: Model, x: Floats) -> Floats:
    """The column, or that of ability turned around where responses fall with ability."""
    common = model.prior.common  # one whose slopes have a mean would not turn along
    if common is not None and (common.mean[:, 0] != 0.0).any():
        return x
    if not model.signed or model.anchored or orientation.rise(model.item_set(x)) >= 0.0:
        return x
    return model.turned(x)
