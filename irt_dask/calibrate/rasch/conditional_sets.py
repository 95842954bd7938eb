"""What conditional likelihoods need of the responses, and whether they have a maximum."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from irt_dask.arrays import Ints
from irt_dask.calibrate.shared.start_values import list_groups, name_some
from irt_dask.engine import Engine
from irt_dask.errors import EstimationError, InputError
from irt_dask.kernels.responses import item_sets
from irt_dask.kernels.responses.item_sets import Sets
from irt_dask.kernels.responses.response_counts import category_counts
from irt_dask.store import Block

#: Sets of 2 * 10^7 steps in all take 0.5 GB.
MAX_CELLS = 20_000_000


# --- counts of a pass over the data ---------------------------------------------------------------


def _count(block: Block, steps: Ints, first: Ints) -> tuple[Any, ...]:
    sets = _bounded(item_sets.observed_sets(block.data, steps))
    return *sets, category_counts(block.data, first)


def _merge(left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
    sets = _bounded(item_sets.merge(Sets(*left[:-1]), Sets(*right[:-1])))
    return *sets, left[-1] + right[-1]


def _bounded(sets: Sets) -> Sets:
    cells = sets.scores.size - sets.n_sets
    if max(cells, sets.items.size) > MAX_CELLS:
        graded = cells > sets.items.size
        unit, other = ("steps of items", "fit_marginal") if graded else ("items", "fit_spectral")
        raise InputError(
            f"persons answered {sets.n_sets} different sets of items or more, together of "
            f"{cells} {unit}: fit_conditional keeps sets of {MAX_CELLS} {unit} in all; "
            f"use {other}, whose work does not depend on who answered what, or select fewer items"
        )
    return sets


def counted(engine: Engine) -> tuple[Sets, Ints]:
    """Sets of items, and persons by item and category: one pass."""
    k = np.array(engine.responses.n_categories)
    first = np.concatenate([[0], np.cumsum(k)])
    *sets, found = engine.map_reduce(_count, k - 1, first, combine=_merge)
    counts = np.zeros((k.size, k.max()), dtype=np.int64)
    counts[np.arange(k.max()) < k[:, None]] = found
    return Sets(*sets), counts


def _taken(values: NDArray[Any], start: Ints, length: Ints) -> NDArray[Any]:
    """Return pieces of an array, one after the other."""
    ends = np.cumsum(length)
    return values[np.repeat(start - ends + length, length) + np.arange(length.sum())]


def informative(sets: Sets, steps: Ints | None = None) -> Sets:
    """Leave out persons all right or all wrong, and sets of nobody else; in a fixed order.

    With more categories: of the highest or the lowest score.
    """
    start, length = sets.indptr[:-1], np.diff(sets.indptr)
    first, size = sets.first[:-1], np.diff(sets.first)
    last, scores = first + size - 1, sets.scores.copy()
    highest = np.repeat(scores[last], length)
    right = sets.right - highest * (1 if steps is None else steps[sets.items])
    scores[first] = scores[last] = 0
    kept = np.flatnonzero(np.add.reduceat(scores, first))
    key = [sets.items[start[g] : start[g] + length[g]].astype(">i4").tobytes() for g in kept]
    kept = kept[sorted(range(kept.size), key=key.__getitem__)]
    zero = np.zeros(1, dtype=np.int64)
    return Sets(
        np.concatenate([zero, np.cumsum(length[kept])]),
        _taken(sets.items, start[kept], length[kept]),
        _taken(right, start[kept], length[kept]),
        _taken(scores, first[kept], size[kept]),
        np.concatenate([zero, np.cumsum(size[kept])]),
    )


def extreme(sets: Sets) -> tuple[Ints, Ints]:
    """Persons of each set with the lowest score, and with the highest."""
    some = np.diff(sets.indptr) > 0
    return sets.scores[sets.first[:-1]] * some, sets.scores[sets.first[1:] - 1] * some


def informative_counts(sets: Sets, counts: Ints, steps: Ints) -> Ints:
    """Persons by item and category without those of the lowest or highest score on their items."""
    low, high = (
        np.bincount(sets.items, np.repeat(n, np.diff(sets.indptr)), minlength=steps.size)
        for n in extreme(sets)
    )
    out = counts.copy()
    out[:, 0] -= low.astype(np.int64)
    out[np.arange(steps.size), steps] -= high.astype(np.int64)
    return out


# --- whether there are estimates ------------------------------------------------------------------


def check_connected(sets: Sets, item_id: tuple[str, ...], steps: Ints | None = None) -> None:
    """Stop unless the items are on one scale, at finite distances (Fischer 1981); name the groups.

    With two categories the estimates exist then.
    """
    linked = csr_array(item_sets.links(sets, len(item_id), steps))
    n, label = connected_components(linked, directed=True, connection="strong")
    if n == 1:
        return
    graded = steps is not None and steps.max() > 1
    right, wrong = ("above the lowest category", "below the highest") if graded else (
        "right", "wrong")  # fmt: skip
    remedy = "" if graded else ", or use fit_spectral, which regularizes"
    raise EstimationError(
        f"the items fall into {n} groups that the responses do not put on one scale: between two "
        f"groups, everybody who was {right} on some items and {wrong} on others was {right} on the "
        f"same group, or nobody answered both; remove items that all or none solved, or calibrate "
        f"each group by itself{remedy}. " + list_groups(label, item_id)
    )


def refuse_silent_categories(item_id: tuple[str, ...], counts: Ints, steps: Ints) -> None:
    """Stop at categories that only persons have who do not count."""
    null = (counts == 0) & (np.arange(counts.shape[1]) <= steps[:, None])
    null &= (steps > 1)[:, None]
    if null.any():
        those = [f"{item_id[j]} ({', '.join(map(str, np.flatnonzero(null[j])))})"
                 for j in np.flatnonzero(null.any(axis=1))]  # fmt: skip
        raise EstimationError(
            f"{len(those)} item(s) have a category that only persons with the lowest or the "
            f"highest score on their items have, who say nothing of the items: "
            f"{name_some(those)}; declare fewer categories, or recode"
        )
