"""Temporary files of named arrays that are checked whenever they are read.

A file is the bytes of its arrays one after the other; then JSON that says where each array begins,
what it is, and the CRC-32 of every stretch of its bytes; then length and CRC-32 of that JSON.  So
any rows of an array can be read alone, and a file that changed since it was written is an error.
"""

from __future__ import annotations

import io
import json
import os
import secrets
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from irt_dask.arrays import Bytes
from irt_dask.errors import DiskError
from irt_dask.store.manifest import replacing, writing

#: Bytes that share a checksum: the least that is read.
_STRETCH = 1 << 16
_TAIL = struct.Struct("<QI")  # length and checksum of the JSON


class _Entry(NamedTuple):
    at: int  # of its first byte in the file
    dtype: str
    shape: tuple[int, ...]
    crc: str  # of each stretch: 32 bits, little-endian, in hexadecimal


class Writer:
    """Adds arrays to a file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._entries: dict[str, _Entry] = {}

    def add(self, name: str, array: NDArray[Any]) -> None:
        """Add an array."""
        whole = np.ascontiguousarray(array)
        at, _, crc = self._write([whole.reshape(-1).view(np.uint8).data])
        self._entries[name] = _Entry(at, whole.dtype.str, whole.shape, crc)

    def add_bytes(self, name: str, pieces: Iterable[bytes]) -> None:
        """Add bytes that come one piece after the other."""
        at, length, crc = self._write(pieces)
        self._entries[name] = _Entry(at, "|u1", (length,), crc)

    def add_strings(self, name: str, strings: pa.StringArray) -> None:
        """Add strings, none of them null."""
        ends, characters = string_buffers(strings)
        self.add(f"{name} ends", ends - ends[0])
        self.add(name, characters[ends[0] : ends[-1]])

    def _write(self, pieces: Iterable[bytes | memoryview]) -> tuple[int, int, str]:
        at = self._file.tell()
        length, sums, crc = 0, [], 0
        for piece in pieces:
            self._file.write(piece)
            for part in _cut(memoryview(piece), length):
                crc = zlib.crc32(part, crc)
                length += len(part)
                if length % _STRETCH == 0:
                    sums.append(crc)
                    crc = 0
        if length % _STRETCH:
            sums.append(crc)
        return at, length, np.array(sums, "<u4").tobytes().hex()

    def end(self) -> None:
        """Write what was added and where."""
        text = json.dumps(self._entries).encode()
        self._file.write(text + _TAIL.pack(len(text), zlib.crc32(text)))


def _cut(data: memoryview, at: int) -> Iterator[memoryview]:
    """Cut what begins at byte ``at`` where stretches end."""
    place = 0
    while place < len(data):
        stop = min(place + _STRETCH - (at + place) % _STRETCH, len(data))
        yield data[place:stop]
        place = stop


@contextmanager
def writer(path: Path) -> Iterator[Writer]:
    """Write a file that appears whole at the end, and not at all after an error."""
    with writing(path), replacing(path) as temporary, open(temporary, "wb") as file:
        to = Writer(file)
        yield to
        to.end()


class Stored:
    """An array in a file, of which rows are read."""

    def __init__(self, path: Path, entry: _Entry) -> None:
        self._path, self._at = path, entry.at
        self.dtype, self.shape = np.dtype(entry.dtype), entry.shape
        self._row = self.dtype.itemsize * int(np.prod(self.shape[1:]))
        self._crc = np.frombuffer(bytes.fromhex(entry.crc), "<u4")
        self.n_bytes = self.shape[0] * self._row

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        """Read consecutive rows."""
        a, b, _ = rows.indices(self.shape[0])
        n = max(b - a, 0)
        data = self.read(a * self._row, (a + n) * self._row)
        return data.view(self.dtype).reshape(n, *self.shape[1:])

    def read(self, a: int, b: int) -> Bytes:
        """Read bytes ``a`` to ``b``; DiskError if they are not what was written."""
        first = a // _STRETCH
        start, stop = first * _STRETCH, min(-(-b // _STRETCH) * _STRETCH, self.n_bytes)
        data = np.empty(max(stop - start, 0), np.uint8)
        try:
            with open(self._path, "rb") as file:
                file.seek(self._at + start)
                read = file.readinto(data.data)
        except OSError as error:
            raise damaged(self._path) from error
        found = [zlib.crc32(part) for part in _cut(data.data, 0)]
        if read < data.size or found != self._crc[first : first + len(found)].tolist():
            raise damaged(self._path)
        return data[a - start : b - start]


class _Raw(io.RawIOBase):
    """The bytes of an array as a file."""

    def __init__(self, stored: Stored) -> None:
        self._stored, self._place = stored, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._stored.n_bytes}
        self._place = base[whence] + offset
        return self._place

    def readinto(self, buffer: Any) -> int:
        stop = min(self._place + len(buffer), self._stored.n_bytes)
        data = self._stored.read(self._place, max(stop, self._place))
        memoryview(buffer).cast("B")[: data.size] = data.data
        self._place += data.size
        return data.size


class Bundle:
    """A file of named arrays."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            with open(path, "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(size - _TAIL.size, 0))
                length, crc = _TAIL.unpack(file.read(_TAIL.size))
                file.seek(size - _TAIL.size - length)
                text = file.read(length)
        except (OSError, ValueError, struct.error) as error:
            raise damaged(path) from error
        if zlib.crc32(text) != crc:
            raise damaged(path)
        self._entries = {name: _Entry(*entry) for name, entry in json.loads(text).items()}

    def __contains__(self, name: str) -> bool:
        """Whether an array of this name was added."""
        return name in self._entries

    def __getitem__(self, name: str) -> Stored:
        """Return an array, nothing of which has been read."""
        return Stored(self._path, self._entries[name])

    def strings(self, name: str, rows: slice = slice(None)) -> pa.StringArray:
        """Read consecutive strings."""
        stored = self[f"{name} ends"]
        a, b, _ = rows.indices(stored.shape[0] - 1)
        ends = stored[a : max(a, b) + 1]
        characters = self[name][int(ends[0]) : int(ends[-1])]
        return pa.StringArray.from_buffers(
            ends.size - 1, pa.py_buffer(ends - ends[0]), pa.py_buffer(characters)
        )

    def open(self, name: str) -> io.BufferedReader:
        """Open the bytes of an array as a file."""
        return io.BufferedReader(_Raw(self[name]), _STRETCH)


@dataclass(frozen=True)
class Copy:
    """A copy of other bytes."""

    path: Path

    @classmethod
    def of(cls, pieces: Iterable[bytes], folder: Path) -> Copy:
        """Write bytes that come one piece after the other to a new file in a folder."""
        path = folder / f"copy-{secrets.token_hex(8)}"
        with writer(path) as to:
            to.add_bytes("copy", pieces)
        return cls(path)

    def open(self) -> io.BufferedReader:
        """Open them as a file."""
        return Bundle(self.path).open("copy")


def damaged(path: Path) -> DiskError:
    """Return the error to raise."""
    return DiskError(
        f"the temporary file {path} is not what was written to it: its disk fails, or something "
        f"else has changed or removed it; start again"
    )


def string_buffers(column: pa.StringArray) -> tuple[NDArray[np.int32], Bytes]:
    """Return offsets and bytes: string i is ``bytes[offsets[i]:offsets[i + 1]]``."""
    if len(column) == 0:
        return np.zeros(1, np.int32), np.zeros(0, np.uint8)
    _, offsets, data = column.buffers()
    content = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return np.frombuffer(offsets, np.int32)[column.offset :][: len(column) + 1], content
