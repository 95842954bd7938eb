"""Spaces around strings, which are dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from irt_dask.ingest.text.bundles import string_buffers
from irt_dask.kernels.base.compiled import jit

if TYPE_CHECKING:
    import pyarrow as pa


@jit
def _trim(offsets: NDArray[np.int32], data: NDArray[np.uint8]) -> bool:
    for i in range(offsets.size - 1):
        first, stop = offsets[i], offsets[i + 1]
        if first == stop or not 32 < data[first] < 128 or not 32 < data[stop - 1] < 128:
            return True
    return False


def trimmed(
    column: pa.StringArray | pa.DictionaryArray,
) -> tuple[pa.StringArray | pa.DictionaryArray, np.ndarray | None]:
    """Strip strings, or the entries of a dictionary; find the rows that are empty then, if any."""
    import pyarrow as pa
    import pyarrow.compute as pc

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
    import pyarrow.compute as pc

    return pc.sum(pc.binary_length(strings)).as_py() or 0


def may_need_trimming(offsets: NDArray[np.int32], data: NDArray[np.uint8]) -> bool:
    """Whether some string is empty or has something else than visible ASCII at an end."""
    return bool(_trim(offsets, data))
