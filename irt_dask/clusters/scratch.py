"""Folders of schedulers and workers, which Dask puts first among those that modules come from."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Of the command of a worker's job: made where it runs, for its owner alone.
MADE_THERE = '"$(mktemp -d --tmpdir irt_dask-XXXXXXXX)"'


@contextmanager
def scratch(prefix: str = "irt_dask-", parent: Path | None = None) -> Iterator[str]:
    """A folder for its owner alone, as long as a cluster lives.

    Workers spill responses into it.  Left to itself Dask takes one folder for all users of a
    machine; whoever made that could put modules there, which we would import.
    """
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent) as folder:
        try:
            yield folder
        finally:
            # Dask leaves it there if another folder came before; the name is free from now on.
            gone = os.path.abspath(folder)
            sys.path[:] = [path for path in sys.path if not str(path).startswith(gone)]
