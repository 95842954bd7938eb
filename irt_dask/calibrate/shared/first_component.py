"""Which items rise with ability and which fall, before anything is fitted.

Slopes of any sign have likelihoods with many maxima, and searches that start from slopes which are
all positive stay at one of the first.  The first principal component of the standardised responses
tells signs well, by powers of their cross-products, which are never formed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from irt_dask.arrays import Floats
from irt_dask.calibrate.shared.start_values import ResponseCounts
from irt_dask.engine import Engine
from irt_dask.items.mixture import Mixture
from irt_dask.kernels.base import keyed_random
from irt_dask.kernels.responses import component_scores
from irt_dask.store import Block

#: Powers end when the cosine of a vector and the next is so near 1; rounds at most.
_NEAR, _MOST_ROUNDS = 1e-5, 50
#: Correlations that slopes are taken from: beyond, slopes of the start would have no end.
_LARGEST = 0.75
#: Slopes of a start: closer to 0 a search has no side to go to.
_LEAST = 0.05
#: Logits of one unit of a normal ogive.
_LOGITS = 1.7


def _scores(
    block: Block, unit: Floats, centre: Floats, weight: Floats, scale: float
) -> tuple[Any, ...]:
    found = component_scores.component_scores(block.data, unit, centre, weight, scale, block.times)
    return (found,)


def slopes(engine: Engine, counts: ResponseCounts, models: Mixture) -> tuple[Floats, Floats]:
    """Slopes to start from, (items,), and how much the responses to each item say of its sign.

    The component is turned to where the sum over items of its covariance with responses, as shares
    of the highest category, is positive.  Codes of nominal items say nothing of more or less: they
    take no part where others are there.  Sampling weights do not count.

    Notes
    -----
    One pass over the data for each power, 5 to 20 of most data, 50 at most.  The driver holds some
    vectors of items.
    """
    n, n_categories = counts.of_each.astype(float), models.n_categories
    seen, at = n.sum(axis=1), np.arange(n.shape[1]) / (n_categories - 1.0)[:, None]
    mean = (n * at).sum(axis=1) / seen
    sd = np.sqrt((n * (at - mean[:, None]) ** 2).sum(axis=1) / seen)
    own = np.maximum(sd, 1.0 / component_scores.LARGEST)
    ordered = models.names != "nominal"
    taken = ordered if ordered.any() else ~ordered
    unit, centre = taken / (own * (n_categories - 1.0)), taken * mean / own
    scale = component_scores.scale_of(engine.n_persons, mean.size)
    # Not all alike: that may be at right angles to the component.
    weight = 1.0 + 0.5 * keyed_random.generator(0, "component").standard_normal(mean.size)
    for _ in range(_MOST_ROUNDS):
        weight /= np.linalg.norm(weight)
        (sums,) = engine.map_reduce(_scores, unit, centre, weight, scale)
        new, with_rest, rest, square = sums / scale
        size = float(np.linalg.norm(new))
        near = float(weight @ new) >= (1.0 - _NEAR) * size
        if near or size == 0.0:
            break
        weight = new
    if float((new * own).sum()) < 0.0:  # t falls with more of the responses than it rises with
        with_rest = -with_rest
    with np.errstate(invalid="ignore", divide="ignore"):
        r = np.nan_to_num(with_rest / np.sqrt(rest * square))
    r = np.clip(r, -_LARGEST, _LARGEST)
    found = _LOGITS * r / np.sqrt(1.0 - r * r)
    away = np.where(found < 0.0, -1.0, 1.0) * np.maximum(np.abs(found), _LEAST)
    # Where everybody has the same, half a person has something else.
    return away, np.where(taken, seen * sd**2 + 0.25, 0.0)
