"""One person's responses, from either layout, for compiled loops.

A kernel takes the three arrays of :func:`arrays` and is compiled once for each layout.  Loops over
a row visit the observed items in ascending order either way, so both layouts give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types
from numba.extending import overload

from irt_dask.kernels.responses.layouts import Dense, Layout


def arrays(data: Layout) -> tuple[Any, Any, Any]:
    """Return ``indptr, indices, values``; a dense block has only values."""
    if isinstance(data, Dense):
        return None, None, data.values
    return data.indptr, data.indices, data.values


def n_rows(indptr: Any, values: Any) -> int:
    """Return the number of persons."""
    return values.shape[0] if indptr is None else indptr.size - 1


def row(indptr: Any, indices: Any, values: Any, i: int) -> tuple[Any, Any]:
    """Items (None: all of them) and responses of person i; a response below 0 is none."""
    if indptr is None:
        return None, values[i]
    return indices[indptr[i] : indptr[i + 1]], values[indptr[i] : indptr[i + 1]]


def item(items: Any, k: int) -> int:
    """Item of the k-th entry of a row."""
    return k if items is None else items[k]


# The same for numba, which needs one type for what a function returns: chosen when it compiles.


@overload(n_rows, strict=False)
def _n_rows(indptr: Any, values: Any) -> Callable[..., Any]:
    if isinstance(indptr, types.NoneType):
        return lambda indptr, values: values.shape[0]
    return lambda indptr, values: indptr.size - 1


@overload(row, strict=False)
def _row(indptr: Any, indices: Any, values: Any, i: Any) -> Callable[..., Any]:
    if isinstance(indptr, types.NoneType):
        return lambda indptr, indices, values, i: (None, values[i])
    return lambda indptr, indices, values, i: (
        indices[indptr[i] : indptr[i + 1]],
        values[indptr[i] : indptr[i + 1]],
    )


@overload(item, strict=False)
def _item(items: Any, k: Any) -> Callable[..., Any]:
    if isinstance(items, types.NoneType):
        return lambda items, k: k
    return lambda items, k: items[k]
