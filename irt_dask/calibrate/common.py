"""What the calibration methods share: response counts and start values."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from irt_dask.engine import Engine, item_parameters
from irt_dask.errors import EstimationError
from irt_dask.kernels import counts
from irt_dask.models import logit
from irt_dask.store import Block

Floats = NDArray[np.float64]


def _count_responses(block: Block) -> tuple[Any, ...]:
    return tuple(counts.response_counts(block.data))


def response_counts(engine: Engine) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Persons with each item right, and observed (one pass); an unobserved item is an error."""
    right, seen = engine.map_reduce(_count_responses)
    if not seen.all():
        item_id = engine.responses.item_id
        empty = [item_id[j] for j in np.flatnonzero(seen == 0)]
        raise EstimationError(
            f"{len(empty)} item(s) have no response at all and cannot be estimated; remove: "
            f"{', '.join(empty[:20])}"
        )
    return right, seen


def start_values(
    engine: Engine, right: NDArray[np.int64], seen: NDArray[np.int64], start: xr.Dataset | None
) -> tuple[Floats, Floats]:
    """Slopes and intercepts to start from: a given fit's, else slope 1 and the share of right.

    A marginal share p of right answers under theta ~ N(0, 1) and slope 1 belongs to an intercept
    of about ``sqrt(1 + pi / 8) logit(p)``.
    """
    m = engine.responses.n_items
    if start is None:
        return np.ones(m), np.sqrt(1.0 + np.pi / 8.0) * logit((right + 0.5) / (seen + 1.0))
    a, d = item_parameters(start, engine.responses.item_id, what="start")
    return a, d
