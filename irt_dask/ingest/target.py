"""The store that is to be made, and the options of making it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from os import PathLike, fspath
from pathlib import Path

from irt_dask.errors import InputError

LAYOUTS = ("auto", "dense")


@dataclass(frozen=True)
class Target:
    """A path that is free, and the persons per block (None: choose by the number of items)."""

    path: Path
    rows_per_block: int | None

    @classmethod
    def checked(
        cls, store: str | PathLike[str], *, layout: str, rows_per_block: int | None
    ) -> Target:
        """Check the options before anything is read: a long file takes time."""
        path = Path(fspath(store))
        if path.exists() or path.is_symlink():
            raise InputError(
                f"{path}: exists already, and ingest makes a new store; "
                "give another path or remove this one"
            )
        if layout not in LAYOUTS:
            raise InputError(f"layout={layout!r} is unknown; it is one of {', '.join(LAYOUTS)}")
        if rows_per_block is not None and (
            isinstance(rows_per_block, bool)
            or not isinstance(rows_per_block, Integral)
            or rows_per_block < 1
        ):
            raise InputError(
                f"rows_per_block={rows_per_block!r} must be a whole number of at least 1, or None"
            )
        return cls(path, None if rows_per_block is None else int(rows_per_block))

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Make a temporary folder beside the store (or above, while its folder is not there)."""
        beside = next(p for p in self.path.absolute().parents if p.is_dir())
        folder = beside / f".{self.path.name}.ingest"
        shutil.rmtree(folder, ignore_errors=True)  # left by an ingest that was killed
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def rows(self, n_items: int, n_persons: int | None = None) -> int:
        """Persons per block: what the caller said, else what suits the number of items."""
        from irt_dask.store import default_rows_per_block

        if self.rows_per_block is not None:
            return self.rows_per_block
        return default_rows_per_block(n_items, n_persons)
