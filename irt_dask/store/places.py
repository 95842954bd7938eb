"""Where things are: what a path means, and one that is a URL (``s3://bucket/folder``)."""

from __future__ import annotations

import hashlib
import re
from os import PathLike
from pathlib import Path, PurePath
from typing import Any

from irt_dask.errors import InputError
from irt_dask.store.objects import ObjectPath, opened

#: Protocols that are the file system, and those without writing and listing.
_LOCAL, _WEB = ("file", "local"), ("http", "https", "ftp", "data")

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
        If the URL has a protocol that cannot be used, or that needs a package which is not there.
    """
    if isinstance(path, ObjectPath):
        return path
    if not is_url(path):
        if isinstance(path, PurePath):
            _refuse_mangled(path)
        return Path(path)
    text = str(path)
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
    with open(file, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def names(folder: Location) -> set[str]:
    """Names of what is in a folder; none if there is no such folder."""
    if isinstance(folder, ObjectPath):
        return folder.names()
    return {p.name for p in folder.iterdir()} if folder.exists() else set()


def _refuse_mangled(path: PurePath) -> None:
    """Stop at Path("s3://bucket"), which has become the folder "s3:"."""
    from fsspec import available_protocols

    protocol, colon, _ = str(path).partition(":/")
    if colon and protocol in available_protocols():
        raise InputError(f"{path}: give a URL as text, not as a Path, which drops a slash of it")


def _check_protocol(text: str, protocol: str) -> None:
    if "::" in text or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", protocol):
        raise InputError(f"{text}: is no URL of object storage such as s3://bucket/folder")
    if protocol.lower() in _WEB:
        raise InputError(
            f"{text}: {protocol} cannot be used; download it, or give the URL of object storage "
            f"such as s3://bucket/folder"
        )
