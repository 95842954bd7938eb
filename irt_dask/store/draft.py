"""A store in the making: one folder beside it, held by a lock, renamed into place as the last act.

Everything temporary lies in ``.NAME.partial`` beside the store: the new part and, for ingest, what
is spilled to disk.  The folder is locked by the operating system, which lets go when the process
ends, however it ends; whoever comes next removes what a killed process left.

A store in object storage is made in a temporary folder and published from there
(:mod:`irt_dask.store.publish`).
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from irt_dask.errors import InputError, StoreError
from irt_dask.store import manifest
from irt_dask.store.categories import BINARY, Categories, Collapsed, of_each
from irt_dask.store.labels import Labels, of_parts, together
from irt_dask.store.manifest import Files
from irt_dask.store.objects import ObjectPath
from irt_dask.store.parts import Part
from irt_dask.store.places import Location, location, open_to_append
from irt_dask.store.publish import (
    Addition,
    changed_meanwhile,
    check_new,
    exists_already,
    publish,
    settled,
)
from irt_dask.store.responses import FREQUENCY, SAMPLING, Responses
from irt_dask.store.stored import open_responses
from irt_dask.variables import identifier


@dataclass(frozen=True)
class Draft:
    """One part that is being written, and the rest of the manifest that it will join.

    ``folder`` and ``scratch`` are local and vanish with the draft; scratch is empty.
    """

    path: Location
    folder: Path
    scratch: Path
    name: str
    old: dict[str, Any] | None

    def part(self, **fields: Any) -> Part:
        """Describe the part; see :class:`irt_dask.store.parts.Part`."""
        return Part(folder=str(self.folder / self.name), **fields)

    def commit(
        self, part: Part, files: Files, *, item_id: tuple[str, ...],
        categories: Categories = BINARY, collapsed: Collapsed | None = None,
        is_reversed: Callable[[str], bool] = lambda item: False,
        max_weight: float | None = None, weight_kind: str = SAMPLING,
        covariates: tuple[str, ...] = (), labels: Labels | None = None, n_quarantined: int = 0,
        merged: tuple[int, int] = (0, 0), nonresponse: bool = False,
        before: Callable[[], None] = lambda: None,
        uploaded: Callable[[int, int], None] = lambda done, total: None,
    ) -> Responses:  # fmt: skip
        """Make the part belong to the store: until this returns, nothing has changed there.

        ``item_id`` names the part's items: those of the store, and new ones after them, which have
        so many ``categories``, of which some have ``collapsed``; ``is_reversed`` says of an item
        whether its codes were counted back.  ``labels`` are those of the covariates that have
        some, known ones among them.  ``merged`` counts the persons of
        earlier parts to whom this one adds responses, and these.  ``nonresponse`` says that some
        are perhaps codes of what was not answered.  ``before`` is called before the store shows
        the part; ``uploaded`` with the number of files that are in object storage and
        that of all, for a store there.
        """
        known = [] if self.old is None else self.old["item_id"]  # as the store writes them
        new = item_id[len(known) :]
        if [*map(identifier, known), *new] != [*item_id] or part.n_items != len(item_id):
            raise ValueError(
                "a part has the items of its store, in their order, and new ones after"
            )
        entry: dict[str, Any] = {
            "n_persons": part.n_persons,
            "rows_per_block": part.rows_per_block,
            "max_weight": max_weight,
            "n_quarantined": n_quarantined,
        }
        if known and new:
            entry["new_items"] = len(new)
        if merged[1]:
            entry["merged_persons"], entry["merged_responses"] = merged
        if nonresponse:
            entry["nonresponse"] = True
        if new_labels := self._new_labels(labels or {}):
            entry["labels"] = new_labels
        of_known = (self.old or {}).get("n_categories", [BINARY] * len(known))
        content: dict[str, Any] = {
            "layout": part.layout,
            "item_id": [*known, *new],
            "n_categories": [*of_known, *of_each(categories, len(new))],
            "collapsed": (self.old or {}).get("collapsed", {})
            | {item: [*codes] for item, codes in (collapsed or {}).items()},
            "reversed": [*(self.old or {}).get("reversed", ()), *filter(is_reversed, new)],
            "weighted": part.weighted,
            "grouped": part.grouped,
            "covariates": list(covariates),
        }
        if weight_kind == FREQUENCY:
            content["needs"] = [manifest.FREQUENCY_WEIGHTS]
        addition = Addition(part, entry, dict(sorted(files.items())), content)
        if isinstance(self.path, ObjectPath):
            publish(self.path, self.name, self.old, addition, before, uploaded)
        else:
            before()
            with manifest.writing(self.path):
                self._move(self.path, addition)
        return open_responses(self.path)

    def _new_labels(self, labels: Labels) -> dict[str, list[str]]:
        """Labels that the store does not have; of its first part also that there are none."""
        known = {} if self.old is None else of_parts(self.old["parts"])
        together([known, labels])
        new = {name: sorted({*own} - {*known.get(name, ())}) for name, own in labels.items()}
        return {name: own for name, own in new.items() if own or self.old is None}

    def _move(self, path: Path, new: Addition) -> None:
        """Rename the part, or the new store, into its place."""
        for folder, _, _ in os.walk(new.part.folder):
            manifest.sync_folder(Path(folder))
        if self.old is None:
            whole = self.folder / "store"
            whole.mkdir()
            os.rename(new.part.folder, whole / self.name)
            manifest.write(whole, new.after(None, self.name))
            os.rename(whole, path)
            manifest.settle(path)
        else:
            now = manifest.read(path)
            if now["checksum"] != self.old["checksum"]:
                raise changed_meanwhile(path)
            final = path / self.name
            if final.exists():  # of an append that was killed before its commit
                shutil.rmtree(final)
            os.rename(new.part.folder, final)
            manifest.sync_folder(path)
            manifest.write(path, new.after(now, self.name), self.folder)


@contextmanager
def create(path: str | os.PathLike[str]) -> Iterator[Draft]:
    """Begin a store at ``path``, where nothing may be yet."""
    place = _place(path)
    with _working_folder(place) as folder:
        if isinstance(place, ObjectPath):
            check_new(place)
        elif place.exists() or place.is_symlink():
            raise exists_already(place)
        yield _draft(place, folder, "part-00000", None)


@contextmanager
def extend(path: str | os.PathLike[str]) -> Iterator[Draft]:
    """Begin one more part of the store at ``path``."""
    place = _place(path)
    if isinstance(place, ObjectPath):
        old = settled(place) or manifest.read(place)  # the error that says what is not there
        place.require_exclusive()
    else:
        place = place.resolve()  # two names of one store have one lock
        manifest.read(place)  # the same error, before anything is locked
    with _working_folder(place) as folder:
        if isinstance(place, Path):
            old = manifest.read(place)
        yield _draft(place, folder, f"part-{len(old['parts']):05d}", old)


def _place(path: str | os.PathLike[str]) -> Location:
    """Where the store is to be; a path made absolute."""
    try:
        place = location(path)
    except TypeError:
        raise InputError(f"the store must be a path, not {type(path).__name__}") from None
    if isinstance(place, ObjectPath):
        if "/" not in place.url.partition("://")[2].lstrip("/"):
            raise InputError(f"{place} cannot be a store; give the URL of a folder below it")
        return place
    absolute = Path(os.path.abspath(place))
    if not absolute.name:
        raise InputError(f"{absolute} cannot be a store; give the path of a folder below it")
    return absolute


@contextmanager
def _working_folder(place: Location) -> Iterator[Path]:
    """Where a draft is made: beside the store, locked; of one in object storage in TMPDIR."""
    if isinstance(place, Path):
        with _parents(place), _locked(place) as folder:
            yield folder
        return
    with tempfile.TemporaryDirectory(
        prefix="irt_dask-store-", ignore_cleanup_errors=True
    ) as temporary:
        yield Path(temporary)


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


def _draft(path: Location, folder: Path, name: str, old: dict[str, Any] | None) -> Draft:
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
            file = open_to_append(lock)  # closed below
        except FileNotFoundError:
            if not folder.parent.is_dir():
                raise InputError(f"{folder.parent}, the folder of the store, is gone") from None
            continue  # the last holder removed the folder in between: try again
        except OSError as error:
            raise InputError(f"the store {path} cannot be written: {error}") from error
        with file:  # closed, and so unlocked, whatever comes
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                there = os.stat(lock).st_ino == os.fstat(file.fileno()).st_ino
            except FileNotFoundError:
                there = False
            except BlockingIOError:
                raise InputError(
                    f"another process is writing {path}; wait until it is done, or stop it"
                ) from None
            except OSError as error:
                raise StoreError(
                    f"{lock} cannot be locked ({error.strerror}): the file system must have flock; "
                    f"write the store elsewhere and move it"
                ) from error
            if there:  # else likewise: what is locked is gone, so try again
                try:
                    yield folder
                finally:
                    shutil.rmtree(folder, ignore_errors=True)
                return
