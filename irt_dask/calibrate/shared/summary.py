"""Counts of responses, before anything is estimated."""

from __future__ import annotations

from typing import Any

import xarray as xr

from irt_dask.calibrate.shared.start_values import response_counts
from irt_dask.engine import Engine, ProgressOption, as_responses, dataset


def summarise(responses: Any, *, client: Any = None, progress: ProgressOption = None) -> xr.Dataset:
    """Count persons, responses and right answers by item (one pass).

    Raises
    ------
    EstimationError
        If nobody answered some item; it lists them.
    """
    responses = as_responses(responses, "the summary of a run", graded=True)
    with Engine(
        responses, client=client, progress=progress, stage="summary", graded=True
    ) as engine:
        right, seen = response_counts(engine)[:2]
    cells = engine.n_persons * responses.n_items
    return dataset(
        {"item_n_responses": seen, "item_n_right": right},
        item_id=responses.item_id,
        attrs={
            "method": "summary",
            "n_persons": engine.n_persons,
            "n_responses": int(seen.sum()),
            "observed": float(seen.sum()) / cells,
        },
    )
