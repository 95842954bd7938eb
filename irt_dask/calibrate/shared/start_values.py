"""What the calibration methods share: response counts and start values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.curves.betas import Betas
from irt_dask.engine import Engine
from irt_dask.errors import EstimationError
from irt_dask.items.known_models import parameters_of
from irt_dask.items.mixture import Mixture
from irt_dask.kernels.responses import response_counts as counts
from irt_dask.store import Block


def _count_responses(block: Block) -> tuple[Any, ...]:
    some = counts.responses_per_person(block.data) > 0
    persons = some.sum() if block.times is None else block.times[some].sum()
    return *counts.response_counts(block.data, block.times), persons


def _count_categories(block: Block, first: Ints) -> tuple[Any, ...]:
    some = counts.responses_per_person(block.data) > 0
    persons = some.sum() if block.times is None else block.times[some].sum()
    return counts.category_counts(block.data, first, block.times), persons


class ResponseCounts(NamedTuple):
    """Persons with each item right, and observed; persons with a response at all.

    Where items have more than two categories the highest is right, and ``by_category`` counts them
    all, (items, categories), 0 beyond an item's.
    """

    right: Ints
    seen: Ints
    n_persons: int
    by_category: Ints | None = None

    @property
    def complete(self) -> bool:
        """Whether all persons with a response answered all items."""
        return bool((self.seen == self.n_persons).all())

    @property
    def of_each(self) -> Ints:
        """Persons by item and category."""
        if self.by_category is not None:
            return self.by_category
        return np.stack([self.seen - self.right, self.right], axis=1)

    def score(self, n_categories: Ints) -> Floats:
        """Sum of the responses to each item, as shares of its highest category."""
        n = self.of_each
        return np.asarray(n @ np.arange(float(n.shape[1])) / (n_categories - 1))


def response_counts(engine: Engine) -> ResponseCounts:
    """Counts of responses (one pass); an unobserved item is an error.

    Sampling weights do not count.
    """
    if engine.responses.graded:
        return _response_counts(engine)
    right, seen, persons = engine.map_reduce(_count_responses)
    refuse_unobserved(engine.responses.item_id, seen)
    return ResponseCounts(right, seen, int(persons))


def _response_counts(engine: Engine) -> ResponseCounts:
    k = np.array(engine.responses.n_categories)
    first = np.concatenate([[0], np.cumsum(k)])
    found, persons = engine.map_reduce(_count_categories, first)
    out, own = np.zeros((k.size, k.max()), dtype=np.int64), np.arange(k.max()) < k[:, None]
    out[own] = found
    seen = out.sum(axis=1)
    refuse_unobserved(engine.responses.item_id, seen)
    return ResponseCounts(out[np.arange(k.size), k - 1], seen, int(persons), out)


def refuse_null_categories(
    item_id: tuple[str, ...], n: Ints, n_categories: Ints, estimated: Bools, remedy: str
) -> None:
    """Stop at categories of items to be estimated that nobody has, and name them."""
    null = (n == 0) & (np.arange(n.shape[1]) < n_categories[:, None])
    null &= (estimated & (n_categories > 2))[:, None]  # of two, flags say so
    if null.any():
        those = items_with(item_id, null)
        raise EstimationError(
            f"{len(those)} item(s) have a category that nobody has, whose parameters no data can "
            f"tell: {name_some(those)}; declare fewer categories, recode, ingest with "
            f"null_categories='collapse', or {remedy}"
        )


def items_with(item_id: tuple[str, ...], categories: Bools) -> list[str]:
    """Items of which some categories are meant, (items, categories), and which, in words."""
    found = []
    for j in np.flatnonzero(categories.any(axis=1)).tolist():
        which = ", ".join(map(str, np.flatnonzero(categories[j])))
        found.append(f"{item_id[j]} ({which})")
    return found


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


def start_values(
    item_id: tuple[str, ...], models: Mixture, n: Ints, start: xr.Dataset | None, *,
    slope: float | Floats | None = None, prior: Betas | None = None, signed: bool = False,
) -> Floats:  # fmt: skip
    """Parameters of items to start from, (parameters, items).

    Those of a given fit; what it does not have is neutral.  Else the modes of the ``prior``, usual
    values (``slope``, where given), and intercepts that belong to the counts ``n`` of categories,
    (items, categories).
    """
    if start is not None:
        return parameters_of(models, start, item_id, what="start", signed=signed)
    x = models.table(lambda p: p.usual)
    if prior is not None:
        x = np.where(np.isnan(prior.modes), x, prior.modes)
    if slope is not None:  # scores of nominal items are no slopes
        x[0] = np.where(models.names == "nominal", x[0], slope)
    for part in models.parts:
        own = models.own(part, x).copy()
        part.model.start(own, n[part.at, : part.model.n_categories].astype(float))
        x[: len(own), part.at] = own
    return x
