"""Counts of responses."""

from __future__ import annotations

from typing import Any

import numpy as np

from irt_dask.arrays import Ints
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Dense, Layout
from irt_dask.kernels.responses.rows import item, n_rows


@jit
def _share_out(indptr: Any, indices: Any, values: Any, which: int, terms: Ints, out: Ints) -> None:
    for i in range(n_rows(indptr, values)):
        if terms[i] != 0:
            items, row = rows.row(indptr, indices, values, i)
            for k in range(row.size):
                if row[k] == which:
                    out[item(items, k)] += terms[i]


def share_out(data: Layout, which: int, terms: Ints) -> Ints:
    """Sum the persons' terms over those whose response to the item is ``which`` (1 or 0)."""
    out = np.zeros(data.shape[1], dtype=np.int64)
    _share_out(*rows.arrays(data), which, terms, out)
    return out


def response_counts(data: Layout, times: Ints | None = None) -> tuple[Ints, Ints]:
    """Persons with each item right, and with each item observed; shapes (n_items,).

    ``times`` says how many persons each row stands for.
    """
    if times is not None:
        right, wrong = (share_out(data, which, times) for which in (1, 0))
        return right, right + wrong
    if isinstance(data, Dense):
        return (data.values == 1).sum(axis=0), (data.values >= 0).sum(axis=0)
    m = data.n_items
    right = np.bincount(data.indices[data.values == 1], minlength=m)
    return right, np.bincount(data.indices, minlength=m)


@jit
def _by_category(
    indptr: Any, indices: Any, values: Any, first: Ints, times: Ints, out: Ints
) -> None:
    for i in range(n_rows(indptr, values)):
        many = times[i] if times.size > 0 else 1
        items, row = rows.row(indptr, indices, values, i)
        for k in range(row.size):
            if row[k] >= 0:
                out[first[item(items, k)] + row[k]] += many


def category_counts(data: Layout, first: Ints, times: Ints | None = None) -> Ints:
    """Persons with each response; category k of item j has row ``first[j] + k``, (rows,)."""
    out = np.zeros(first[-1], dtype=np.int64)
    times = np.empty(0, dtype=np.int64) if times is None else times
    _by_category(*rows.arrays(data), first, times, out)
    return out


def responses_per_person(data: Layout) -> Ints:
    """Observed responses of each person, shape (persons,)."""
    if isinstance(data, Dense):
        seen = data.values >= 0
        if seen.all():  # as often, and ten times faster to see than to count
            return np.full(seen.shape[0], seen.shape[1])
        return seen.sum(axis=1)
    return np.diff(data.indptr)


def score_per_person(data: Layout) -> Ints:
    """Sum of the responses of each person, shape (persons,); of two categories: number right."""
    if isinstance(data, Dense):
        return np.maximum(data.values, 0).sum(axis=1)
    before = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(data.values, dtype=np.int64)])
    return np.diff(before[data.indptr])


def highest_per_person(data: Layout, steps: Ints) -> Ints:
    """Highest sum of the responses that each person could have; items have codes to ``steps``."""
    if isinstance(data, Dense):
        return (data.values >= 0) @ steps
    before = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(steps[data.indices])])
    return np.diff(before[data.indptr])
