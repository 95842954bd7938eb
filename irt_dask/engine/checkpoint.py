"""Checkpoints: written by the driver alone, whole or not there, checked when read."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np

from irt_dask._version import __version__
from irt_dask.errors import CheckpointError
from irt_dask.store.digests import digest
from irt_dask.store.manifest import write_atomically, writing
from irt_dask.store.places import local_path, read_bytes


class Checkpoint:
    """A folder of named states that belong to one computation.

    Parameters
    ----------
    folder : where to keep them; None keeps nothing.
    identity : what the computation depends on (method, options, start values, checksum of the
        data), as :func:`irt_dask.store.digests.digest` takes it.  States of another identity are
        refused.  See :func:`irt_dask.engine.identity.checkpoint_of`.
    """

    def __init__(self, folder: str | Path | None, identity: dict[str, Any]) -> None:
        self.folder = None if folder is None else local_path(folder, "a checkpoint")
        if self.folder is None:
            return
        self._identity = digest({**identity, "version": __version__})
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)

    def save(self, name: str, arrays: dict[str, Any]) -> None:
        """Write one state; on return it is on disk."""
        if self.folder is None:
            return
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        body = buffer.getvalue()
        head = f"{self._identity} {hashlib.sha256(body).hexdigest()}\n".encode()
        write_atomically(self.folder / f"{name}.checkpoint", head + body)

    def load(self, name: str) -> dict[str, Any] | None:
        """Return a saved state, None if there is none."""
        if self.folder is None:
            return None
        path = self.folder / f"{name}.checkpoint"
        if not path.exists():
            return None
        head, _, body = read_bytes(path).partition(b"\n")
        identity, _, digest = head.decode("ascii", "replace").partition(" ")
        if hashlib.sha256(body).hexdigest() != digest:
            raise CheckpointError(f"the checkpoint {path} is damaged; remove it to start over")
        if identity != self._identity:
            raise CheckpointError(
                f"the checkpoint {path} belongs to another computation (other data, options, seed "
                f"or version of irt_dask); remove it or give another checkpoint folder"
            )
        try:
            with np.load(io.BytesIO(body), allow_pickle=False) as content:
                return {k: content[k] for k in content.files}
        except Exception as error:  # whatever bytes of somebody else's may lead to
            raise CheckpointError(
                f"the checkpoint {path} cannot be read ({error}): unless memory is short, it is "
                f"none that irt_dask writes; remove it to start over"
            ) from error
