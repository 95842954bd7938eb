"""What the calibration methods share: input, response counts, start values."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from irt_dask.engine import Engine
from irt_dask.errors import EstimationError, InputError
from irt_dask.kernels import layouts
from irt_dask.models import logit
from irt_dask.store import Block, Responses, from_array

Floats = NDArray[np.float64]


def as_responses(responses: Any) -> Responses:
    """Return Responses as they are, and anything else through ``from_array``."""
    return responses if isinstance(responses, Responses) else from_array(responses)


def refuse_weights(responses: Responses, method: str) -> None:
    """Stop if the persons carry weights and the method has no use for them."""
    if responses.max_weight is not None:
        raise InputError(
            f"{method} does not support person weights, and these responses have them; use "
            f"fit_joint without a coreset, or responses without weights"
        )


def _count_responses(block: Block) -> tuple[Any, ...]:
    return tuple(layouts.of(block.data).response_counts(block.data))


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


def item_parameters(
    items: xr.Dataset, item_id: tuple[str, ...], *, what: str = "items"
) -> tuple[Floats, Floats]:
    """Slopes and intercepts of ``item_id`` from a fit or an item bank, matched by identifier.

    A fit with difficulties only (Rasch) has slope 1.
    """
    if not isinstance(items, xr.Dataset) or "item_id" not in items.coords:
        raise InputError(f"{what} must be a Dataset with item_id, as the fit functions return")
    known = {str(i): k for k, i in enumerate(items["item_id"].values)}
    unknown = [i for i in item_id if i not in known]
    if unknown:
        raise InputError(
            f"{len(unknown)} item(s) of the responses are not in {what}: {', '.join(unknown[:20])}"
        )
    at = [known[i] for i in item_id]
    if "item_discrimination" in items:
        a = items["item_discrimination"].values[at].astype(float)
    else:
        a = np.ones(len(at))
    if "item_intercept" in items:
        d = items["item_intercept"].values[at].astype(float)
    elif "item_difficulty" in items:
        d = -a * items["item_difficulty"].values[at].astype(float)
    else:
        raise InputError(f"{what} has neither item_intercept nor item_difficulty")
    bad = np.flatnonzero(~(np.isfinite(a) & np.isfinite(d) & (a > 0)))
    if bad.size:
        j = bad[0]
        raise InputError(
            f"{what}: item {item_id[j]} has discrimination {a[j]} and intercept {d[j]}; "
            f"discriminations must be positive, both finite"
        )
    return a, d
