"""A store in the making: one folder beside it, held by a lock, renamed into place as the last act.

Everything temporary lies in ``.NAME.partial`` beside the store: the new part and, for ingest, what
is spilled to disk.  The folder is locked by the operating system, which lets go when the process
ends, however it ends; whoever comes next removes what a killed process left.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from irt_dask.errors import InputError, StoreError
from irt_dask.store import manifest
from irt_dask.store.manifest import Files
from irt_dask.store.parts import Part
from irt_dask.store.responses import Responses
from irt_dask.store.stored import open_responses


@dataclass(frozen=True)
class Draft:
    """One part that is being written, and the rest of the manifest that it will join.

    ``scratch`` is an empty folder that vanishes with the draft.
    """

    path: Path
    folder: Path
    scratch: Path
    name: str
    old: dict[str, Any] | None

    def part(self, **fields: Any) -> Part:
        """Describe the part; see :class:`irt_dask.store.parts.Part`."""
        return Part(folder=str(self.folder / self.name), **fields)

    def commit(
        self,
        part: Part,
        files: Files,
        *,
        item_id: tuple[str, ...],
        max_weight: float | None = None,
        covariates: tuple[str, ...] = (),
        n_quarantined: int = 0,
    ) -> Responses:
        """Make the part belong to the store: until this returns, nothing has changed there."""
        entry = {
            "name": self.name,
            "n_persons": part.n_persons,
            "rows_per_block": part.rows_per_block,
            "max_weight": max_weight,
            "n_quarantined": n_quarantined,
        }
        for folder, _, _ in os.walk(part.folder):
            manifest.sync_folder(Path(folder))
        if self.old is None:
            content: dict[str, Any] = {
                "layout": part.layout,
                "item_id": list(item_id),
                "weighted": part.weighted,
                "grouped": part.grouped,
                "covariates": list(covariates),
                "parts": [entry],
                "files": dict(sorted(files.items())),
            }
            whole = self.folder / "store"
            whole.mkdir()
            os.rename(part.folder, whole / self.name)
            manifest.write(whole, content)
            os.rename(whole, self.path)
            manifest.sync_folder(self.path.parent)
        else:
            now = manifest.read(self.path)
            if now["checksum"] != self.old["checksum"]:
                raise StoreError(
                    f"the store {self.path} was changed by another process while this one was "
                    f"working; start again"
                )
            final = self.path / self.name
            if final.exists():  # of an append that was killed before its commit
                shutil.rmtree(final)
            os.rename(part.folder, final)
            manifest.sync_folder(self.path)
            for field in ("format", "format_version", "checksum"):
                del now[field]
            content = {
                **now,
                "parts": [*now["parts"], entry],
                "files": {**now["files"], **dict(sorted(files.items()))},
            }
            manifest.write(self.path, content)
        return open_responses(self.path)


@contextmanager
def create(path: str | os.PathLike[str]) -> Iterator[Draft]:
    """Begin a store at ``path``, where nothing may be yet."""
    path = _absolute(path)
    with _parents(path), _locked(path) as folder:
        if path.exists() or path.is_symlink():
            raise InputError(
                f"{path} exists already, and a new store is to be made; "
                f"give another path, remove it, or add to it with append"
            )
        yield _draft(path, folder, "part-00000", None)


@contextmanager
def extend(path: str | os.PathLike[str]) -> Iterator[Draft]:
    """Begin one more part of the store at ``path``."""
    path = _absolute(path).resolve()  # two names of one store have one lock
    manifest.read(path)  # the error that says what is not there, before anything is locked
    with _locked(path) as folder:
        old = manifest.read(path)
        yield _draft(path, folder, f"part-{len(old['parts']):05d}", old)


def _absolute(path: str | os.PathLike[str]) -> Path:
    try:
        absolute = Path(os.path.abspath(os.fspath(path)))
    except TypeError:
        raise InputError(f"the store must be a path, not {type(path).__name__}") from None
    if not absolute.name:
        raise InputError(f"{absolute} cannot be a store; give the path of a folder below it")
    return absolute


@contextmanager
def _parents(path: Path) -> Iterator[None]:
    """Make the folders above the store; remove those that stay empty."""
    missing = [p for p in path.parents if not p.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"the folder of the store {path} cannot be made: {error}") from error
    try:
        yield
    finally:
        for folder in missing:
            with suppress(OSError):
                folder.rmdir()


def _draft(path: Path, folder: Path, name: str, old: dict[str, Any] | None) -> Draft:
    for left in folder.iterdir():
        if left.is_dir():
            shutil.rmtree(left)
    # A new name each time: a worker that still serves a killed run writes to a folder that is gone.
    word = secrets.token_hex(4)
    draft = Draft(path, folder / f"draft-{word}", folder / f"scratch-{word}", name, old)
    draft.scratch.mkdir()
    draft.folder.mkdir()
    return draft


@contextmanager
def _locked(path: Path) -> Iterator[Path]:
    """Hold the folder ``.NAME.partial`` beside the store, by a lock on a file in it."""
    folder = path.with_name(f".{path.name}.partial")
    lock = folder / "lock"
    while True:
        try:
            folder.mkdir(exist_ok=True)
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:
            if not folder.parent.is_dir():
                raise InputError(f"{folder.parent}, the folder of the store, is gone") from None
            continue  # the last holder removed the folder in between: try again
        except OSError as error:
            raise InputError(f"the store {path} cannot be written: {error}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.stat(lock).st_ino == os.fstat(descriptor).st_ino:
                break
        except FileNotFoundError:
            pass  # likewise: what is locked is no longer there, so close it and try again
        except BlockingIOError:
            os.close(descriptor)
            raise InputError(
                f"another process is writing {path}; wait until it is done, or stop it"
            ) from None
        except OSError as error:
            os.close(descriptor)
            raise StoreError(
                f"{lock} cannot be locked ({error.strerror}): the file system must have flock; "
                f"write the store elsewhere and move it"
            ) from error
        os.close(descriptor)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)
