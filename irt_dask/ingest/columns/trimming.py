"""Spaces around strings, which are dropped, and characters, which are composed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from irt_dask.ingest.text.bundles import string_buffers
from irt_dask.kernels.base.strings import may_need_trimming
from irt_dask.variables import identifier


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
        column = _with_entries(column, stripped)  # what differed by spaces alone becomes one
    place = pc.index(column.dictionary, "").as_py() if len(column.dictionary) else -1
    if place < 0:
        return column, None
    return column, (column.indices.fill_null(-1).to_numpy(zero_copy_only=False) == place)


def filled(column: pa.StringArray) -> np.ndarray:
    """Tell which rows have more than spaces."""
    return pc.not_equal(pc.utf8_trim_whitespace(column), "").to_numpy(zero_copy_only=False)


def has(column: pa.StringArray | pa.DictionaryArray, text: str) -> np.ndarray:
    """Tell which rows have a text within them."""
    if not hasattr(column, "dictionary"):
        return pc.match_substring(column, text).to_numpy(zero_copy_only=False)
    found = pc.match_substring(column.dictionary, text).take(column.indices)
    return found.fill_null(False).to_numpy(zero_copy_only=False)


def composed(
    column: pa.StringArray | pa.DictionaryArray,
) -> pa.StringArray | pa.DictionaryArray:
    """Bring identifiers into Unicode's normal form C, as :func:`irt_dask.variables.identifier`.

    Python's normal form: that of Arrow (``utf8_normalize``) leaves texts as they are up to 23.0.
    """
    whole = not hasattr(column, "dictionary")
    entries = column if whole else column.dictionary
    if string_buffers(entries)[1].max(initial=0) < 128:
        return column
    texts = (None if text is None else identifier(text) for text in entries.to_pylist())
    normal = pa.array(texts, entries.type)
    if whole:
        return normal
    return column if normal.equals(entries) else _with_entries(column, normal)


def _with_entries(column: pa.DictionaryArray, entries: pa.StringArray) -> pa.DictionaryArray:
    """The column with other entries, of which those that are the same now become one."""
    encoded = entries.dictionary_encode()
    indices = encoded.indices.take(column.indices)
    return pa.DictionaryArray.from_arrays(indices, encoded.dictionary)


def _size(strings: pa.StringArray) -> int:
    return pc.sum(pc.binary_length(strings)).as_py() or 0
