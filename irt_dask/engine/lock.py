"""One run at a time in a folder.

On a file system a lock that the operating system lets go of at death; in object storage a lease: an
object that its holder changes again and again.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

from irt_dask.errors import BusyError, StoreError
from irt_dask.store.documents import from_json
from irt_dask.store.objects import ObjectPath
from irt_dask.store.places import Location, open_to_append

#: Name of the file that is locked; it stays, empty.
LOCK = ".lock"
#: Seconds until a lock that is held is tried again: whoever only looks (:func:`is_held`) is gone.
_LOOK = 0.1


class FolderLock:
    """Hold a folder for this process, until :meth:`close` or the end of a ``with`` block.

    Raises
    ------
    BusyError
        If another process holds it.
    """

    def __init__(self, folder: Path) -> None:
        self._file = open_to_append(folder / LOCK)  # held until close
        for last in (False, True):
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError:
                if not last:
                    time.sleep(_LOOK)
        self._file.close()
        raise BusyError(f"another run is working in {folder}; wait for it to end")

    def close(self) -> None:
        """Let others use the folder."""
        self._file.close()

    def check(self) -> None:
        """Nothing can take this lock away."""

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def is_held(folder: Path) -> bool:
    """Whether a process of this machine, or one that locks by the same server, holds a folder."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # nobody ever held it, or it is nobody's lock
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except OSError:
        return True
    finally:
        os.close(descriptor)


class ObjectLease:
    """Hold a folder in object storage for this process, until :meth:`close`.

    The object ``.lock`` holds a random word and a number that a thread raises every ``BEAT``
    seconds.  Whoever finds one watches it for ``WATCH`` seconds: if it changes, the holder lives;
    if not, it is of a run that was killed, and is taken over.  A holder that cannot write for so
    long (it was suspended, or cut off) can lose the lease; :meth:`check` notices.

    Raises
    ------
    BusyError
        If another process holds it.
    """

    BEAT = 10.0
    WATCH = 30.0
    SETTLE = 2.0  # a second one that takes over at the same moment has written by then

    def __init__(self, folder: ObjectPath) -> None:
        self._folder, self._object = folder, folder / LOCK
        self._said = {
            "word": secrets.token_hex(16), "host": socket.gethostname(), "pid": os.getpid()
        }  # fmt: skip
        self._beats = 0
        folder.require_exclusive()
        self._take()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="irt_dask lease", daemon=True)
        self._thread.start()

    def _content(self) -> bytes:
        return json.dumps(self._said | {"beat": self._beats}).encode()

    def _take(self) -> None:
        while True:
            try:
                self._object.create(self._content())
                return
            except FileExistsError:
                found = self._read()
            if found is not None and self._stays(found):
                break
        self._object.write_bytes(self._content())
        time.sleep(self.SETTLE)
        if not self._mine():
            raise self._busy(self._read())

    def _stays(self, found: bytes) -> bool:
        """Watch a lease: True if it does not change, False if it is given back."""
        stop = time.monotonic() + self.WATCH
        while time.monotonic() < stop:
            time.sleep(min(1.0, self.BEAT / 4))
            now = self._read()
            if now is None:
                return False
            if now != found:
                raise self._busy(now)
        return True

    def _read(self) -> bytes | None:
        try:
            return self._object.read_bytes()
        except FileNotFoundError:
            return None

    def _mine(self) -> bool:
        return _holder(self._read()).get("word") == self._said["word"]

    def _busy(self, content: bytes | None) -> BusyError:
        other = _holder(content)
        return BusyError(
            f"another run is working in {self._folder} (host {other.get('host', 'unknown')}, "
            f"process {other.get('pid', 'unknown')}); wait for it to end"
        )

    def _beat(self) -> None:
        while not self._closed.wait(self.BEAT):
            with suppress(StoreError):  # the next beat may get through
                if not self._mine():
                    return
                self._beats += 1
                if not self._closed.is_set():
                    self._object.write_bytes(self._content())

    def check(self) -> None:
        """Raise BusyError if another process has taken the lease over."""
        if not self._mine():
            raise self._busy(self._read())

    def close(self) -> None:
        """Let others use the folder."""
        self._closed.set()
        self._thread.join()
        with suppress(StoreError):  # then it is taken over as that of a killed run
            if self._mine():
                self._object.unlink(missing_ok=True)

    def __enter__(self) -> ObjectLease:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _holder(content: bytes | None) -> dict[str, object]:
    try:
        said = from_json(content or b"{}")
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def locked(folder: Location) -> FolderLock | ObjectLease:
    """Hold a folder, wherever it is."""
    return ObjectLease(folder) if isinstance(folder, ObjectPath) else FolderLock(folder)
