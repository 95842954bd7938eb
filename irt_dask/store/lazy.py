"""Responses as a lazy xarray Dataset."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from irt_dask import variables
from irt_dask.errors import InputError
from irt_dask.kernels.responses.layouts import to_dense

if TYPE_CHECKING:
    import xarray as xr

    from irt_dask.store.blocks import BlockRef
from irt_dask.store.responses import Responses


def _read(ref: BlockRef, name: str, dtype: Any) -> Any:
    """A copy of a variable: of blocks in memory it would be the blocks' own."""
    if name == "response":
        return to_dense(ref.read().data).values.copy()
    return np.array(ref.column(name), dtype=dtype)


def to_xarray(responses: Responses) -> xr.Dataset:
    """See :meth:`irt_dask.Responses.to_xarray`."""
    if responses.layout != "dense":
        raise InputError(
            "to_xarray needs the dense layout, and this store is sparse; read blocks with "
            "read_block(k), or ingest with layout='dense' if the full matrix is what you want"
        )
    import dask.array as da
    import xarray as xr
    from dask import delayed

    starts = [ref.start for ref in responses.refs]
    lengths = [b - a for a, b in itertools.pairwise([*starts, responses.n_persons])]

    made = delayed(_read, pure=not responses.lazy)

    def lazy(name: str, dtype: Any, *columns: int) -> Any:
        return da.concatenate(
            [
                da.from_delayed(made(ref, name, dtype), (n, *columns), dtype=dtype)
                for ref, n in zip(responses.refs, lengths, strict=True)
            ]
        )

    persons, items = (variables.PERSONS,), (variables.ITEMS,)
    cells = lazy("response", np.int8, responses.n_items)
    data: dict[str, Any] = {"response": (persons + items, cells)}
    if responses.max_weight is not None:
        data["person_weight"] = (persons, lazy("person_weight", np.float64))
    if responses.has_groups:
        data["person_group"] = (persons, lazy("person_group", object))
    coords = {
        "person_id": (persons, lazy("person_id", object)),
        "item_id": (items, np.array(responses.item_id, dtype=str)),
    }
    if responses.graded:
        coords["item_n_categories"] = (items, np.array(responses.n_categories))
    return variables.check(xr.Dataset(data, coords=coords))
