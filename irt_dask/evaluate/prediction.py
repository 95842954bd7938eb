"""Marginal likelihood and predictions of each response from the person's others."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from irt_dask.engine import (
    Engine,
    ProgressOption,
    as_responses,
    dataset,
    item_parameters,
    refuse_weights,
)
from irt_dask.engine.tables import grid_tables
from irt_dask.errors import EstimationError
from irt_dask.kernels import exact, posterior
from irt_dask.models import GRID_BOUND, grid_for
from irt_dask.store import Block

Floats = NDArray[np.float64]

_CLASSES = 1 << 16
_LOGIT_RANGE = 30.0


def _evaluate(block: Block, a: Floats, d: Floats, nodes: Floats, scale: float) -> tuple[Any, ...]:
    g = grid_tables(a, d, nodes)
    marginal = posterior.expectations(block.data, g)[2]
    given, right = posterior.left_out(block.data, g)
    with np.errstate(divide="ignore"):  # a certain response belongs to the outermost class
        logit = np.log(given) - np.log1p(-given)
    place = (np.where(right, logit, -logit) + _LOGIT_RANGE) * (_CLASSES / (2.0 * _LOGIT_RANGE))
    klass = np.clip(place, 0, _CLASSES - 1).astype(np.int64)
    return (
        np.rint(marginal * scale).astype(np.int64).sum(),
        np.rint(np.log(given) * scale).astype(np.int64).sum(),
        np.bincount(klass[right], minlength=_CLASSES),
        np.bincount(klass[~right], minlength=_CLASSES),
    )


def run(responses: Any, items: xr.Dataset, client: Any, progress: ProgressOption) -> xr.Dataset:
    """See :func:`irt_dask.evaluate`."""
    responses = as_responses(responses)
    refuse_weights(responses, "evaluate")
    a, d = item_parameters(items, responses.item_id)
    worst = float((a * GRID_BOUND + np.abs(d)).max()) + 1.0  # largest absolute log probability
    scale = exact.scale_for(responses.n_persons * responses.n_items * worst)
    with Engine(responses, client=client, progress=progress, stage="evaluation") as engine:
        marginal, given, right, wrong = engine.map_reduce(
            _evaluate,
            a,
            d,
            grid_for(a, d).nodes,
            scale,
            report=True,
        )
    n_right, n_wrong = int(right.sum()), int(wrong.sum())
    n = n_right + n_wrong
    if n == 0:
        raise EstimationError("there is no observed response to evaluate")
    below = np.cumsum(wrong) - wrong
    wins = float(right @ (below + 0.5 * wrong))
    return dataset(
        {
            "log_likelihood": float(marginal) / scale,
            "log_likelihood_per_response": float(marginal) / scale / n,
            "log_score": float(given) / scale / n,
            "auc": wins / (n_right * n_wrong) if n_right and n_wrong else math.nan,
            "n_responses": n,
        },
        attrs={
            "method": "evaluate",
            "model": items.attrs.get("model"),
            "n_persons": responses.n_persons,
        },
    )
