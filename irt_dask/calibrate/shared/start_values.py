"""What the calibration methods share: response counts and start values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from irt_dask.engine import Engine, item_parameters_3pl
from irt_dask.errors import EstimationError
from irt_dask.kernels.responses import response_counts as counts
from irt_dask.models import logit
from irt_dask.store import Block

Floats = NDArray[np.float64]


def _count_responses(block: Block) -> tuple[Any, ...]:
    some = counts.responses_per_person(block.data) > 0
    persons = some.sum() if block.times is None else block.times[some].sum()
    return *counts.response_counts(block.data, block.times), persons


class ResponseCounts(NamedTuple):
    """Persons with each item right, and observed; persons with a response at all."""

    right: NDArray[np.int64]
    seen: NDArray[np.int64]
    n_persons: int


def response_counts(engine: Engine) -> ResponseCounts:
    """Counts of responses (one pass); an unobserved item is an error.

    Sampling weights do not count.
    """
    right, seen, persons = engine.map_reduce(_count_responses)
    refuse_unobserved(engine.responses.item_id, seen)
    return ResponseCounts(right, seen, int(persons))


def refuse_unobserved(item_id: tuple[str, ...], seen: NDArray[np.int64]) -> None:
    """Stop at items without responses, and name them."""
    empty = [item_id[j] for j in np.flatnonzero(seen == 0)]
    if empty:
        raise EstimationError(
            f"{len(empty)} item(s) have no response at all and cannot be estimated; remove: "
            f"{name_some(empty)}"
        )


def name_some(ids: Sequence[str]) -> str:
    """List identifiers for a message, twenty at most."""
    more = f" and {len(ids) - 20} more" if len(ids) > 20 else ""
    return ", ".join(ids[:20]) + more


def list_groups(label: NDArray[Any], item_id: Sequence[str]) -> str:
    """Items of each group for a message, the largest groups first."""
    sizes = np.bincount(label)
    return "Groups: " + "; ".join(
        f"{sizes[c]} item(s): " + ", ".join([item_id[j] for j in np.flatnonzero(label == c)[:10]])
        for c in np.argsort(-sizes, kind="stable")[:10]
    )


def start_values(
    item_id: tuple[str, ...],
    right: NDArray[np.int64],
    seen: NDArray[np.int64],
    start: xr.Dataset | None,
    slope: float = 1.0,
) -> tuple[Floats, Floats, Floats]:
    """Slopes, intercepts and guessing parameters to start from.

    Those of a given fit; else one slope, nobody guesses, and the share of right.  A marginal share
    p of right answers under theta ~ N(0, 1) and slope a belongs to an intercept of about
    ``sqrt(1 + a^2 pi / 8) logit(p)``.
    """
    if start is None:
        d = np.sqrt(1.0 + slope**2 * np.pi / 8.0) * logit((right + 0.5) / (seen + 1.0))
        return np.full_like(d, slope), d, np.zeros_like(d)
    return item_parameters_3pl(start, item_id, what="start")
