"""Publishing a part in object storage, where nothing can be locked or renamed.

All files of the part are uploaded first, into a folder whose name holds a digest of them, so that
two writers never mix their files.  Then an object ``part-NNNNN.commit``, written only if there is
none of this name, decides which of several writers has made part NNNNN: it holds the new manifest.
At last ``manifest.json``, which is what readers look at, is replaced by the same bytes; where a
writer was killed before that, the next one does it.  Uploads that nothing names do no harm.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from irt_dask.errors import InputError, StoreError
from irt_dask.store import manifest
from irt_dask.store.manifest import Files
from irt_dask.store.objects import AT_ONCE, ObjectPath
from irt_dask.store.parts import Part
from irt_dask.store.places import Location

#: What an upload that was killed leaves.
_UPLOADED = re.compile(r"part-\d{5}-[0-9a-f]{16}")
_HEAD = b"irt_dask commit 1 "


@dataclass(frozen=True)
class Addition:
    """A part as it was written, and what the manifest says of it."""

    part: Part
    entry: dict[str, Any]
    files: Files
    content: dict[str, Any]

    def after(self, now: dict[str, Any] | None, name: str) -> dict[str, Any]:
        """The manifest with this part, called ``name``; None if there was no store."""
        written = Path(self.part.folder).name
        files = {name + key.removeprefix(written): listed for key, listed in self.files.items()}
        entry = {"name": name, **self.entry}
        if now is None:
            return manifest.settled({**self.content, "parts": [entry], "files": files})
        kept = {k: v for k, v in now.items() if k not in ("format", "format_version", "checksum")}
        return manifest.settled({
            **kept,
            "item_id": self.content["item_id"],
            "n_categories": self.content["n_categories"],
            "collapsed": self.content["collapsed"],
            "reversed": self.content["reversed"],
            "parts": [*now["parts"], entry],
            "files": {**now["files"], **files},
        })  # fmt: skip

    def digest(self) -> str:
        """Digest of the files."""
        h = hashlib.sha256()
        for key, (size, checksum) in sorted(self.files.items()):
            h.update(f"{key} {size} {checksum}\n".encode())
        return h.hexdigest()[:16]


def exists_already(path: Location) -> InputError:
    """Return the error about a new store where one is."""
    return InputError(
        f"{path} exists already, and a new store is to be made; "
        f"give another path, remove it, or add to it with append"
    )


def changed_meanwhile(path: Location) -> StoreError:
    """Return the error about a store to which another process has added a part."""
    return StoreError(
        f"the store {path} was changed by another process while this one was working; start again"
    )


def check_new(root: ObjectPath) -> None:
    """Refuse a place where something is, and storage in which two writers would not see each other.

    Raises
    ------
    InputError
        If there are objects other than what a killed upload left.
    """
    if settled(root) is not None:
        raise exists_already(root)
    others = sorted(name for name in root.names() if not _UPLOADED.fullmatch(name))
    if others or root.kind() == "file":
        raise InputError(
            f"{root} holds other objects ({', '.join(others[:5]) or 'itself'}), and a new store is "
            f"to be made; give another URL, or remove them"
        )
    root.require_exclusive()


def settled(root: ObjectPath) -> dict[str, Any] | None:
    """Return the manifest after every commit is in it, also those of writers that were killed.

    None if there is no store.  Whoever writes the manifest looks for later commits afterwards, so
    a slow writer never leaves an older one behind.
    """
    while True:
        now = manifest.read(root) if (root / manifest.NAME).kind() == "file" else None
        commit = _commit(root, 0 if now is None else len(now["parts"]))
        try:
            head, _, body = commit.read_bytes().partition(b"\n")
        except FileNotFoundError:
            return now
        new = manifest.decoded(commit, body) if head.startswith(_HEAD) else None
        if new is None or not _continues(new, now):
            raise StoreError(
                f"{commit} does not continue the manifest of {root}: one of the two is damaged or "
                f"of another store; remove the commit if the store is as it should be"
            )
        (root / manifest.NAME).write_bytes(body)


def _continues(new: dict[str, Any], now: dict[str, Any] | None) -> bool:
    if now is None:
        return len(new["parts"]) == 1
    more = len(new["parts"]) - len(now["parts"])
    return more == 1 and manifest.as_of(new, now["checksum"]) is not None


def _commit(root: ObjectPath, k: int) -> ObjectPath:
    return root / f"part-{k:05d}.commit"


def publish(
    root: ObjectPath, name: str, old: dict[str, Any] | None, new: Addition,
    before: Callable[[], None], uploaded: Callable[[int, int], None],
) -> None:  # fmt: skip
    """Upload the part and make it belong to the store; see :meth:`Draft.commit`."""
    name = f"{name}-{new.digest()}"
    _upload(root / name, Path(new.part.folder), new.files, uploaded)
    now = settled(root)
    if (now is None) != (old is None) or (now and old and now["checksum"] != old["checksum"]):
        raise exists_already(root) if old is None else changed_meanwhile(root)
    body = manifest.encoded(new.after(now, name))
    head = _HEAD + secrets.token_hex(16).encode()
    try:
        _commit(root, 0 if now is None else len(now["parts"])).create(head + b"\n" + body)
    except FileExistsError:
        raise exists_already(root) if old is None else changed_meanwhile(root) from None
    before()
    settled(root)


def _upload(
    target: ObjectPath, folder: Path, files: Files, uploaded: Callable[[int, int], None]
) -> None:
    """Upload files, many at a time."""

    def upload(key: str) -> None:
        inside = key.partition("/")[2]
        (target / inside).upload(folder / inside)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for done, _ in enumerate(pool.map(upload, files), 1):
            uploaded(done, len(files))
