"""What the calibration methods share: response counts and start values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from irt_dask.arrays import Floats, Ints
from irt_dask.curves import ItemModel
from irt_dask.curves.betas import Betas
from irt_dask.engine import Engine
from irt_dask.errors import EstimationError
from irt_dask.items.parameters import item_set
from irt_dask.kernels.responses import response_counts as counts
from irt_dask.store import Block


def _count_responses(block: Block) -> tuple[Any, ...]:
    some = counts.responses_per_person(block.data) > 0
    persons = some.sum() if block.times is None else block.times[some].sum()
    return *counts.response_counts(block.data, block.times), persons


class ResponseCounts(NamedTuple):
    """Persons with each item right, and observed; persons with a response at all."""

    right: Ints
    seen: Ints
    n_persons: int


def response_counts(engine: Engine) -> ResponseCounts:
    """Counts of responses (one pass); an unobserved item is an error.

    Sampling weights do not count.
    """
    right, seen, persons = engine.map_reduce(_count_responses)
    refuse_unobserved(engine.responses.item_id, seen)
    return ResponseCounts(right, seen, int(persons))


def refuse_unobserved(item_id: tuple[str, ...], seen: Ints) -> None:
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


def logit(p: Floats) -> Floats:
    """Return ``log(p / (1 - p))``."""
    return np.log(p) - np.log1p(-p)


def start_values(
    item_id: tuple[str, ...], model: ItemModel, right: Ints, seen: Ints,
    start: xr.Dataset | None, *, slope: float | None = None, prior: Betas | None = None,
) -> Floats:  # fmt: skip
    """Parameters of a model to start from, (parameters, items).

    Those of a given fit; what it does not have is neutral.  Else the modes of the ``prior``, usual
    values, and the share of right: a marginal share p under theta ~ N(0, 1) and slope a belongs to
    an intercept of about ``sqrt(1 + a^2 pi / 8) logit(p)``.
    """
    own = model.parameters
    if start is not None:
        found = item_set(start, item_id, what="start")
        return np.stack([found.column(p) for p in own])
    x = np.tile([[p.usual] for p in own], (1, len(item_id)))
    for k, a, b in [] if prior is None else prior.informative:
        x[k] = a / (a + b) if a > 0.0 else x[k]
    x[0] = own[0].usual if slope is None else slope
    x[1] = np.sqrt(1.0 + x[0] ** 2 * np.pi / 8.0) * logit((right + 0.5) / (seen + 1.0))
    return x
