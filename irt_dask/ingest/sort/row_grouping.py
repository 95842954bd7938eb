"""Grouping of rows: hashes of strings, and stable orders by counting."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from irt_dask.arrays import Bytes, Ints, Words
from irt_dask.errors import TooLargeError
from irt_dask.kernels.base.compiled import jit


@jit
def _partitions(offsets: NDArray[np.int32], data: Bytes, n: int, out: NDArray[np.uint16]) -> None:
    for i in range(out.size):
        h = np.uint64(14695981039346656037)  # FNV-1a, then a finalizer that spreads its low bits
        for k in range(offsets[i], offsets[i + 1]):
            h = (h ^ np.uint64(data[k])) * np.uint64(1099511628211)
        h ^= h >> np.uint64(32)
        h *= np.uint64(0x9E3779B97F4A7C15)
        out[i] = np.uint16((h >> np.uint64(32)) % np.uint64(n))


def partitions(offsets: NDArray[np.int32], data: Bytes, n: int) -> NDArray[np.uint16]:
    """Deal strings to ``n`` partitions by a hash of their bytes.

    String i is ``data[offsets[i]:offsets[i + 1]]``.  Equal strings go to the same partition.
    """
    out = np.empty(max(offsets.size - 1, 0), dtype=np.uint16)
    _partitions(offsets, data, n, out)
    return out


# A row on its way is one 64-bit word, so that it is moved by one access to memory: the key of the
# pass to come in the upper half, below it the row and, in the last five bits, its code plus one.
_CODE_BITS = 5
_CODE = np.uint64((1 << _CODE_BITS) - 1)
#: Rows that the rest of the lower half can number.
_MOST_ROWS = 1 << (32 - _CODE_BITS)


@jit
def _by_item(
    person: NDArray[np.int32], item: NDArray[np.int32], code: NDArray[np.int8], start: Ints,
    out: Words,
) -> None:  # fmt: skip
    for row in range(item.size):
        j = item[row]
        if j >= 0:
            low = (np.uint64(row) << np.uint64(_CODE_BITS)) | np.uint64(code[row] + 1)
            out[start[j]] = (np.uint64(person[row]) << np.uint64(32)) | low
            start[j] += 1


@jit
def _by_person(words: Words, stop: Ints, indptr: Ints, end: Ints, out: Words) -> int:
    """Append words, which come by item, to their persons; return how many repeat a pair."""
    again = 0
    at = 0
    low = np.uint64(0xFFFFFFFF)
    for j in range(stop.size):
        key = np.uint64(j) << np.uint64(32)
        while at < stop[j]:
            p = words[at] >> np.uint64(32)
            place = end[p]
            if place > indptr[p] and (out[place - 1] >> np.uint64(32)) == np.uint64(j):
                again += 1
            out[place] = key | (words[at] & low)
            end[p] = place + 1
            at += 1
    return again


class Grouped(NamedTuple):
    """Rows by person, then by item, then as they came; person p has ``indptr[p]:indptr[p + 1]``."""

    indptr: Ints
    row: NDArray[np.int32]
    item: NDArray[np.int32]
    code: NDArray[np.int8]
    n_repeated: int  # rows with the person and the item of an earlier row


def group(
    person: NDArray[np.int32], item: NDArray[np.int32], code: NDArray[np.int8], n_persons: int,
    n_items: int,
) -> Grouped:  # fmt: skip
    """Group rows by person and item (two counting sorts); rows of item -1 are left out.

    Codes are -1 to 30.  TooLargeError for more than 2^27 rows, which a partition of a source below
    half a terabyte does not have.
    """
    if item.size > _MOST_ROWS:
        raise TooLargeError(
            f"{item.size} responses fall into one partition of the persons, of at most "
            f"{_MOST_ROWS}; cut the file into several by person, ingest one, append the others"
        )
    inside = item >= 0
    every = bool(inside.all())
    start = ends_of(np.bincount(item if every else item[inside], minlength=n_items))
    words = np.empty(int(start[-1]), dtype=np.uint64)
    stop = start[1:].copy()
    _by_item(person, item, code, start, words)
    indptr = ends_of(np.bincount(person if every else person[inside], minlength=n_persons))
    out = np.empty_like(words)
    again = _by_person(words, stop, indptr, indptr[:-1].copy(), out)
    row = ((out & np.uint64(0xFFFFFFFF)) >> np.uint64(_CODE_BITS)).astype(np.int32)
    codes = (out & _CODE).astype(np.int8) - np.int8(1)
    return Grouped(indptr, row, (out >> np.uint64(32)).astype(np.int32), codes, again)


def first_rows(keys: NDArray[np.int32], n_keys: int) -> Ints:
    """Return the first row of each key; the number of rows for a key that does not occur."""
    first = np.full(n_keys, keys.size, dtype=np.int64)
    first[keys[::-1]] = np.arange(keys.size - 1, -1, -1)  # the last to be assigned stays
    return first


def ends_of(counts: NDArray[np.integer]) -> Ints:
    """Return where each of consecutive stretches begins, given their lengths, and the last ends."""
    ends = np.zeros(counts.size + 1, dtype=np.int64)
    np.cumsum(counts, out=ends[1:])
    return ends


def by_appearance(keys: NDArray[np.int32], n_keys: int) -> tuple[Ints, Ints, NDArray[np.int32]]:
    """Put keys in the order in which rows use them first.

    Returns the keys that occur, their first rows, and the place of each key in that order; -1 for
    a key that does not occur, and in one more entry, for key -1.
    """
    first = first_rows(keys, n_keys)
    order = np.argsort(first, kind="stable")[: int((first < keys.size).sum())]
    place = np.full(n_keys + 1, -1, dtype=np.int32)
    place[order] = np.arange(order.size, dtype=np.int32)
    return order, first[order], place
