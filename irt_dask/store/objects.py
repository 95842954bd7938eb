"""Objects in object storage, through fsspec: their reading and writing.

An object appears whole or not at all and is never changed in part.  Requests are repeated for a
while where the network or the storage fails; then an error names the object.  Where the storage is
and who may use it comes from the environment, never from a file of ours.
"""

from __future__ import annotations

import errno
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from irt_dask.errors import AccessError, InputError, NoStoreError, StoreError

#: Requests that one process has under way.
AT_ONCE = 16
#: Seconds for which a request is repeated, and those that one waits for a connection or an answer.
PATIENCE = 30.0
_CONNECT, _ANSWER = 5, 10
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
#: Bytes that are asked for at once of an object that need not fit in memory.
_PIECE = 32 << 20
_S3 = ("s3", "s3a")
_PROBE = ".irt_dask-probe-"
#: Errors that no repetition mends.
_FINAL = (errno.EINVAL, errno.EPERM, errno.ENOSYS, errno.ENAMETOOLONG, errno.EMSGSIZE)
#: Exceptions of botocore that mean: no usable credentials.
_NO_CREDENTIALS = (
    "NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "ProfileNotFound",
    "TokenRetrievalError", "SSOError", "UnauthorizedSSOTokenError",
)  # fmt: skip


@dataclass(frozen=True)
class ObjectPath:
    """An object, or the folder of those whose names begin with it; small and picklable.

    Has the methods of :class:`pathlib.Path` that stores and folders of scores need.  It is no
    ``os.PathLike``: code that knows files alone fails on it, rather than write somewhere else.
    """

    url: str

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> ObjectPath:
        return ObjectPath(f"{self.url}/{name}")

    @property
    def name(self) -> str:
        """What follows the last slash."""
        return self.url.rpartition("/")[2]

    def with_name(self, name: str) -> ObjectPath:
        """The object of another name beside this one."""
        return ObjectPath(f"{self.url.rpartition('/')[0]}/{name}")

    def exists(self) -> bool:
        """Whether there is an object of this name, or one in the folder of this name."""
        return self.kind() is not None

    def kind(self) -> str | None:
        """The word "file" or "directory", None where nothing is."""
        try:
            return str(self._call("looked for", "info")["type"])
        except FileNotFoundError:
            return None

    def read_bytes(self) -> bytes:
        """Return the object; FileNotFoundError if there is none."""
        return bytes(self._call("read", "cat_file"))

    def starts_with(self, head: bytes) -> bool:
        """Whether the object begins with these bytes."""
        return bytes(self._call("read", "cat_file", start=0, end=len(head))) == head

    def write_bytes(self, data: bytes) -> None:
        """Write or replace the object as a whole."""
        self._call("written", "pipe_file", data)

    def create(self, data: bytes) -> None:
        """Write the object unless there is one: of several writers exactly one does.

        ``data`` has to hold something that no other writer has, by which this one knows its own: a
        request may have been done though its answer was lost.  Raises FileExistsError.
        """
        try:
            self._call("written", "pipe_file", data, mode="create")
        except FileExistsError as error:
            try:
                mine = self.read_bytes() == data
            except FileNotFoundError:  # removed in between: not by us
                mine = False
            if not mine:
                raise error from None

    def upload(self, path: Path) -> None:
        """Write or replace the object by the content of a file, which need not fit in memory."""
        self._call("written", "put_file", before=(str(path),))

    def touch(self) -> None:
        """Make it an empty object."""
        self.write_bytes(b"")

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the object."""
        try:
            self._call("removed", "rm_file")
        except FileNotFoundError:
            if not missing_ok:
                raise

    def names(self) -> set[str]:
        """Names of what is in the folder, objects and folders."""
        if self.kind() != "directory":
            return set()
        try:
            found = self._call("listed", "ls", detail=False)
        except FileNotFoundError:  # removed in between
            return set()
        names = {str(one).rstrip("/").rpartition("/")[2] for one in found}
        return {n for n in names if not n.startswith(_PROBE)} - {""}

    def pieces(self) -> Iterator[bytes]:
        """The object in pieces; InputError if it is replaced meanwhile."""
        before = self._call("read", "info")
        size = int(before["size"])
        for start in range(0, size, _PIECE):
            stop = min(start + _PIECE, size)
            piece = self._call("read", "cat_file", start=start, end=stop)
            if len(piece) != stop - start:
                raise self._changed()
            yield piece
        after = self._call("read", "info")
        marks = ("size", "ETag", "etag", "LastModified", "last_modified", "mtime", "created")
        if any(before.get(m) != after.get(m) for m in marks):
            raise self._changed()

    def _changed(self) -> InputError:
        return InputError(f"{self}: the object changes while it is read; wait until it is complete")

    def require_exclusive(self) -> None:
        """Make sure that this storage knows "write unless it exists"; try it in this folder.

        Raises
        ------
        StoreError
            If it writes all the same: then two writers would not notice each other.
        """
        probe = self / f"{_PROBE}{secrets.token_hex(8)}"
        probe.create(b"1")
        try:
            probe._call("written", "pipe_file", b"2", mode="create")
        except FileExistsError:
            return
        finally:
            probe.unlink(missing_ok=True)
        raise StoreError(
            f"{self}: this storage replaces objects that were to be new (it ignores "
            f"If-None-Match), so two writers could destroy each other's work; use another one, or "
            f"write to a file system and copy"
        )

    def _call(
        self, done: str, method: str, *args: Any, before: tuple[Any, ...] = (), **options: Any
    ) -> Any:
        """Call a method of the file system, again for a while where that may help.

        Raises FileNotFoundError, FileExistsError, or a StoreError with the object's name.
        """
        stop, pause = time.monotonic() + PATIENCE, _FIRST_PAUSE
        while True:
            try:
                system, path = opened(self.url)
                return getattr(system, method)(*before, path, *args, **options)
            except FileExistsError:
                raise
            except FileNotFoundError as error:
                if _code(error) == "NoSuchBucket":
                    bucket = self.url.partition("://")[2].partition("/")[0]
                    raise NoStoreError(f"{self}: there is no bucket {bucket!r}") from None
                raise FileNotFoundError(
                    errno.ENOENT, "there is no such object", str(self)
                ) from None
            except InputError:
                raise
            except Exception as error:
                if _code(error) == "PreconditionFailed":  # as some versions of s3fs pass it on
                    raise FileExistsError(errno.EEXIST, "there is one", str(self)) from None
                self._refused(done, error)
                if not _may_pass(error) or time.monotonic() + pause > stop:
                    raise StoreError(f"{self} cannot be {done}: {_said(error)}") from error
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _refused(self, done: str, error: Exception) -> None:
        """Raise what says who is refused."""
        kinds = {c.__name__ for c in type(error).__mro__}
        if isinstance(error, PermissionError) or kinds & {*_NO_CREDENTIALS}:
            raise AccessError(
                f"{self} cannot be {done}: {_said(error)}; give credentials that may, in the "
                f"environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_PROFILE, ...), of the "
                f"workers too"
            ) from error


def opened(url: str) -> tuple[Any, str]:
    """The file system of a URL (fsspec keeps one for each process), and the path in it."""
    import fsspec

    protocol = url.partition("://")[0]
    try:
        system = fsspec.filesystem(protocol, use_listings_cache=False, **_options(protocol))
    except ImportError as error:
        package = "install it with: pip install 'irt_dask[s3]'"
        text = package if protocol in _S3 else str(error)
        raise InputError(f"{url}: a package for {protocol}:// is missing; {text}") from None
    except ValueError as error:
        raise InputError(f"{url}: {error}") from None
    if protocol in _S3:
        system.retries = 1  # repeated here
    return system, str(system._strip_protocol(url))


def _options(protocol: str) -> dict[str, Any]:
    """Limits of time for S3, unless fsspec's own configuration says otherwise."""
    if protocol not in _S3:
        return {}
    from fsspec.config import conf

    ours = {
        "connect_timeout": _CONNECT, "read_timeout": _ANSWER,
        "retries": {"total_max_attempts": 1},  # repeated here
        "max_pool_connections": 2 * AT_ONCE,
    }  # fmt: skip
    theirs = conf.get(protocol, {}).get("config_kwargs", {})
    if not isinstance(theirs, dict):
        raise InputError(f"fsspec's configuration of {protocol}: config_kwargs must be a table")
    # An object is one request, without a question for its size before.
    return {"max_concurrency": 1, "config_kwargs": ours | theirs}


def _code(error: BaseException) -> str | None:
    response = getattr(error.__cause__, "response", None) or getattr(error, "response", None)
    return response.get("Error", {}).get("Code") if isinstance(response, dict) else None


def _may_pass(error: Exception) -> bool:
    if isinstance(error, OSError):
        return error.errno not in _FINAL
    return not isinstance(error, (TypeError, ValueError, AttributeError, NotImplementedError))


def _said(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    code = _code(error)
    return text if code is None or code in text else f"{text} ({code})"
