"""Zstandard frames: what a chunk says that it holds, checked before it is decoded.

A few bytes may claim any size, or stand for it: a block of 4 bytes repeats one 2^17 times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from numcodecs.zstd import Zstd  # type: ignore[import-untyped]

#: Bytes that the texts of a chunk may take: so many, and more for each.
_TEXTS, _TEXT = 1 << 26, 1 << 12
_BYTES = {"int8": 1, "int32": 4, "int64": 8, "float64": 8}
_MAGIC = b"\x28\xb5\x2f\xfd"
_CHECKSUM = 4  # bytes of the CRC-32C after the frame
_RLE = 1  # the kind of a block that repeats its byte


def fault(data: bytes, dtype: str, shape: Sequence[int]) -> str | None:
    """Say what is wrong with a chunk of this type and shape; None if it may be decoded."""
    frame, n = memoryview(data)[:-_CHECKSUM], math.prod(shape)
    size = content_size(frame)
    if dtype != "str":
        right = size == n * _BYTES[dtype]
    else:  # their number, then length and bytes of each
        right = size is not None and size <= most_text(n) and _number(frame) == n
    return None if right else f"cannot be decoded: it is not one frame of {n} values"


def most_text(n: int) -> int:
    """Bytes that ``n`` texts of a chunk may take, with what says how long they are."""
    return _TEXTS + n * _TEXT


def content_size(frame: memoryview) -> int | None:
    """Bytes that a frame holds, by its header; None if it does not say so, or is not one alone."""
    if frame[:4] != _MAGIC or len(frame) < 5:
        return None
    said = frame[4]
    single, summed = said >> 5 & 1, said >> 2 & 1
    start = 5 + (1 - single) + (0, 1, 2, 4)[said & 3]  # after window and dictionary
    n = (single, 2, 4, 8)[said >> 6]
    at, last = start + n, False
    while not last and at < len(frame):
        block = int.from_bytes(frame[at : at + 3], "little")
        last = bool(block & 1)
        at += 3 + (1 if block >> 1 & 3 == _RLE else block >> 3)
    if not n or not last or at + 4 * summed != len(frame):
        return None
    return int.from_bytes(frame[start : start + n], "little") + 256 * (n == 2)


def _number(frame: memoryview) -> int:
    """The number of texts in a frame of a size that may be decoded."""
    try:
        return int.from_bytes(Zstd().decode(frame)[:4], "little")
    except RuntimeError:
        return -1
