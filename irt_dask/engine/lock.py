"""One run at a time in a folder: a lock that the operating system lets go of at death."""

from __future__ import annotations

import fcntl
from pathlib import Path
from types import TracebackType

from irt_dask.errors import BusyError

#: Name of the file that is locked; it stays, empty.
LOCK = ".lock"


class FolderLock:
    """Hold a folder for this process, until :meth:`close` or the end of a ``with`` block.

    Raises
    ------
    BusyError
        If another process holds it.
    """

    def __init__(self, folder: Path) -> None:
        self._file = open(folder / LOCK, "a")  # noqa: SIM115 (held until close)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise BusyError(f"another run is working in {folder}; wait for it to end") from None

    def close(self) -> None:
        """Let others use the folder."""
        self._file.close()

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
