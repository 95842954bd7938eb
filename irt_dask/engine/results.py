"""Results are Datasets in the vocabulary of :mod:`irt_dask.variables`, with honest attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from irt_dask import variables
from irt_dask._version import __version__


def _named(name: str, values: Any) -> xr.Variable:
    """An array with the dimensions that the vocabulary gives it.

    It is one of NumPy, by the fast path: else xarray would import ``dask.array`` to see whether it
    is one of Dask, which takes longer than a small fit.
    """
    array = np.asarray(values)
    return xr.Variable(variables.describe(name).dims_of(array.ndim), array, fastpath=True)


def dataset(
    data: dict[str, Any],
    *,
    item_id: tuple[str, ...] | None = None,
    coords: dict[str, Any] | None = None,
    attrs: dict[str, Any],
) -> xr.Dataset:
    """Build a result: arrays by name, dimensions from the vocabulary, attributes of the method.

    Truth values become 0/1 and None is left out, so that every file format can hold attributes.
    """
    everything = dict(coords or {})
    if item_id is not None:
        everything["item_id"] = np.array(item_id, dtype=str)
    out = xr.Dataset(
        {name: _named(name, a) for name, a in data.items()},
        coords={name: _named(name, a) for name, a in everything.items()},
    )
    for name, value in {**attrs, "version": __version__}.items():
        if value is not None:
            out.attrs[name] = int(value) if isinstance(value, (bool, np.bool_)) else value
    return variables.check(out)
