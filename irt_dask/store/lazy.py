"""Responses as a lazy xarray Dataset."""

from __future__ import annotations

import copy
import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from irt_dask import variables
from irt_dask.errors import InputError
from irt_dask.kernels.responses.layouts import to_dense

if TYPE_CHECKING:
    import xarray as xr

    from irt_dask.store.responses import BlockRef, Responses


def _response(ref: BlockRef) -> Any:
    return to_dense(ref.read().data).values.copy()  # of blocks in memory they are the blocks' own


def _weight(ref: BlockRef) -> Any:
    return copy.copy(ref.read().weight)


def _ids(ref: BlockRef) -> Any:
    return ref.person_ids().astype(object)


def _groups(ref: BlockRef) -> Any:
    return copy.copy(ref.groups())


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

    def lazy(read: Any, dtype: Any, *columns: int) -> Any:
        made = delayed(read, pure=not responses.lazy)
        return da.concatenate(
            [
                da.from_delayed(made(ref), (n, *columns), dtype=dtype)
                for ref, n in zip(responses.refs, lengths, strict=True)
            ]
        )

    persons = (variables.PERSONS,)
    data: dict[str, Any] = {
        "response": ((*persons, variables.ITEMS), lazy(_response, np.int8, responses.n_items))
    }
    if responses.max_weight is not None:
        data["person_weight"] = (persons, lazy(_weight, np.float64))
    if responses.has_groups:
        data["person_group"] = (persons, lazy(_groups, object))
    coords = {
        "person_id": (persons, lazy(_ids, object)),
        "item_id": ((variables.ITEMS,), np.array(responses.item_id, dtype=str)),
    }
    if responses.graded:
        each = np.array(responses.n_categories)
        coords["item_n_categories"] = ((variables.ITEMS,), each)
    return variables.check(xr.Dataset(data, coords=coords))
