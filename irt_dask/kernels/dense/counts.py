"""Counts of pairs of items and of responses."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from irt_dask.kernels.layouts import Dense

Ints = NDArray[np.int64]


def pair_counts(data: Dense) -> tuple[Ints, Ints]:
    """Persons right on the row item and wrong on the column item; persons with both observed.

    Matrix products of 0/1 in single precision are exact below 2^24 persons a slice.
    """
    m = data.shape[1]
    differ, both = np.zeros((m, m), dtype=np.int64), np.zeros((m, m), dtype=np.int64)
    for start in range(0, data.shape[0], 1 << 20):
        part = data.values[start : start + (1 << 20)]
        right = (part == 1).astype(np.float32)
        seen = (part >= 0).astype(np.float32)
        differ += (right.T @ (seen - right)).astype(np.int64)
        both += (seen.T @ seen).astype(np.int64)
    return differ, both


def response_counts(data: Dense) -> tuple[Ints, Ints]:
    """Persons with each item right, and with each item observed; shapes (n_items,)."""
    return (data.values == 1).sum(axis=0), (data.values >= 0).sum(axis=0)


def responses_per_person(data: Dense) -> Ints:
    """Observed responses of each person, shape (persons,)."""
    return (data.values >= 0).sum(axis=1)
