"""Responses: in memory or in a store, seen as a list of immutable blocks of persons."""

from irt_dask.store.arrays import from_array
from irt_dask.store.blocks import Block
from irt_dask.store.responses import Responses
from irt_dask.store.stored import open_responses
from irt_dask.store.writer import StoreWriter, default_rows_per_block

__all__ = [
    "Block",
    "Responses",
    "StoreWriter",
    "default_rows_per_block",
    "from_array",
    "open_responses",
]
