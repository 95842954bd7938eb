"""Where things are: what a path means, and one that is a URL (``s3://bucket/folder``)."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader, BufferedWriter
from os import PathLike
from pathlib import Path, PurePath
from typing import Any

from irt_dask.errors import DiskError, InputError, StoreError, without_credentials
from irt_dask.store.objects import ObjectPath, opened

#: Protocols that are the file system, and those without writing and listing.
_LOCAL, _WEB = ("file", "local"), ("http", "https", "ftp", "data")

#: What says that a disk or a network file system fails, whatever was asked of it.
_FAILING = {
    errno.EIO, errno.ESTALE, errno.ENXIO, errno.ENODEV, errno.EREMOTEIO, errno.ETIMEDOUT,
    errno.ENOTCONN, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.EBADMSG, errno.EUCLEAN,
}  # fmt: skip

#: User and password of what is a URL and nothing else, whatever signs the password has.
_LOGIN = re.compile(r"://[^/@]*:.*@")

#: Where a store, or a folder of scores, is.
Location = Path | ObjectPath


def is_url(path: Any) -> bool:
    """Whether a path is a URL of object storage, or of a file."""
    return isinstance(path, ObjectPath) or (isinstance(path, str) and "://" in path)


def location(path: str | PathLike[str] | ObjectPath) -> Location:
    """Return the place that a path or URL names; ``file:///folder`` is a path.

    Raises
    ------
    InputError
        If the URL has a protocol that cannot be used, or that needs a package which is not there,
        or holds a password or a token: addresses are written to logs and results.
    """
    if isinstance(path, ObjectPath):
        return path
    if not is_url(path):
        if isinstance(path, PurePath):
            _refuse_mangled(path)
        return Path(path)
    text = str(path)
    shown = _LOGIN.sub("://***@", text)
    if without_credentials(shown) != text:
        raise InputError(
            f"{shown}: a URL with a password or a token is not taken, because addresses are "
            f"written to logs and results; give credentials in the environment "
            f"(AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, ...), and the URL without them"
        )
    protocol, _, rest = text.partition("://")
    if protocol.lower() in _LOCAL:
        if not rest.startswith("/"):
            raise InputError(f"{text}: write file:///folder/name, or the path alone")
        return Path(rest)
    _check_protocol(text, protocol)
    rest = rest.rstrip("/")
    if not rest.strip("/"):
        raise InputError(f"{text}: the URL names no bucket; write {protocol}://bucket/folder")
    where = ObjectPath(f"{protocol}://{rest}")
    opened(where.url)
    return where


def local_path(path: str | PathLike[str], what: str) -> Path:
    """Return the path of something that only a file system can hold; InputError for a URL."""
    where = location(path)
    if isinstance(where, ObjectPath):
        raise InputError(f"{what} must be on a file system; {path} is a URL")
    return where


def placed(folder: Path, text: str) -> str:
    """A path in a file of ``folder``, made absolute; a URL as it is."""
    return text if is_url(text) else str(folder / text)


def lies_in(place: Location, folder: Location) -> bool:
    """Whether a place is a folder, or in it, whatever links lead there."""
    if isinstance(place, Path) and isinstance(folder, Path):
        return place.resolve().is_relative_to(folder.resolve())
    return f"{place}/".startswith(f"{folder}/")


def checksum(file: Location) -> str:
    """SHA-256 of the bytes of a file, in hexadecimal."""
    if isinstance(file, ObjectPath):
        h = hashlib.sha256()
        for piece in file.pieces():
            h.update(piece)
        return h.hexdigest()
    with open_file(file) as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def names(folder: Location) -> set[str]:
    """Names of what is in a folder; none if there is no such folder."""
    if isinstance(folder, ObjectPath):
        return folder.names()
    with reading(folder):
        return {p.name for p in folder.iterdir()} if folder.exists() else set()


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn the failure of a file system into an error that names what was to be read.

    What the user may have caused (a file that is not there, or not theirs) stays an OSError.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _FAILING:
            raise
        raise DiskError(
            f"{path} cannot be read: {error.strerror}; the disk or the network file system fails: "
            f"start again when it answers"
        ) from error


@contextmanager
def open_file(path: Path) -> Iterator[BufferedReader]:
    """Open a file to be read; a StoreError for a pipe or a device, which may have no end."""
    with reading(path), open(_descriptor(path, os.O_RDONLY), "rb") as file:
        yield file


def open_to_append(path: Path) -> BufferedWriter:
    """Open a file to be locked or written at its end, made if need be; else as open_file.

    A symbolic link is no such file: who put it there would have us make files elsewhere.
    """
    try:
        return open(_descriptor(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW), "ab")
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise StoreError(f"{path} is a symbolic link, which is not followed; remove it") from None


def _descriptor(path: Path, flags: int) -> int:
    # Without waiting for who is at the other end of a pipe; of a file it changes nothing.
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except IsADirectoryError:
        is_file = False
    else:
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        if not is_file:
            os.close(descriptor)
    if not is_file:
        raise StoreError(f"{path} is no file, but a folder, a pipe or a device")
    return descriptor


def read_bytes(path: Location, size: int | None = None) -> bytes:
    """Bytes of a file or an object; of a file at most one more than ``size``, where it is said."""
    if isinstance(path, ObjectPath):
        return path.read_bytes()
    with open_file(path) as file:
        # no memory for more than there is, whatever was said
        there = os.fstat(file.fileno()).st_size
        return file.read(-1 if size is None else min(size, there) + 1)


def _refuse_mangled(path: PurePath) -> None:
    """Stop at Path("s3://bucket"), which has become the folder "s3:"."""
    from fsspec import available_protocols

    protocol, colon, _ = str(path).partition(":/")
    if colon and protocol in available_protocols():
        raise InputError(
            f"a Path that begins with {protocol}: : give a URL as text, not as a Path, which "
            f"drops a slash of it"
        )


def _check_protocol(text: str, protocol: str) -> None:
    if "::" in text or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", protocol):
        raise InputError(f"{text}: is no URL of object storage such as s3://bucket/folder")
    if protocol.lower() in _WEB:
        raise InputError(
            f"{text}: {protocol} cannot be used; download it, or give the URL of object storage "
            f"such as s3://bucket/folder"
        )
