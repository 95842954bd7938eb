"""Spaces around strings, which are dropped."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from irt_dask.ingest.text.bundles import string_buffers
from irt_dask.kernels.base.strings import may_need_trimming


def trimmed(
    column: pa.StringArray | pa.DictionaryArray,
) -> tuple[pa.StringArray | pa.DictionaryArray, np.ndarray | None]:
    """Strip strings, or the entries of a dictionary; find the rows that are empty then, if any."""
    if not hasattr(column, "dictionary"):
        if not may_need_trimming(*string_buffers(column)):
            return column, None
        column = pc.utf8_trim_whitespace(column)
        empty = pc.equal(column, "").to_numpy(zero_copy_only=False)
        return column, (empty if empty.any() else None)
    entries = column.dictionary
    stripped = pc.utf8_trim_whitespace(entries)  # the characters that str.strip takes
    if _size(stripped) < _size(entries):
        encoded = stripped.dictionary_encode()  # what differed by spaces alone becomes one
        indices = encoded.indices.take(column.indices)
        column = pa.DictionaryArray.from_arrays(indices, encoded.dictionary)
    place = pc.index(column.dictionary, "").as_py() if len(column.dictionary) else -1
    if place < 0:
        return column, None
    return column, (column.indices.fill_null(-1).to_numpy(zero_copy_only=False) == place)


def _size(strings: pa.StringArray) -> int:
    return pc.sum(pc.binary_length(strings)).as_py() or 0
