"""What the stages of one run share: its configuration, its directory, its responses."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xarray as xr

from irt_dask.store import Responses, open_responses
from irt_dask.workflow.config import RunConfig
from irt_dask.workflow.directory import RunDirectory


@dataclass
class Context:
    """What the stages of one run share."""

    config: RunConfig
    directory: RunDirectory
    client: Any
    progress: Any
    #: What the input's files looked like before their checksum was taken.
    looked: tuple[tuple[int, int, int], ...] = ()
    _stored: Responses | None = None

    @property
    def responses(self) -> Responses:
        """The responses that the run is about, for all stages those that it began with.

        Raises ChangedRunError if the store has changed since the run looked at it first.
        """
        if self.config.data.store is None:
            return open_responses(self.directory.path / "responses")
        if self._stored is None:
            found = open_responses(self.config.data.store)
            self.directory.check_data(found.fingerprint)
            self._stored = found
        return self._stored

    def checkpoint(self, stage: str) -> Path:
        """Folder for the checkpoints of a stage."""
        return self.directory.path / "checkpoints" / stage

    def forget(self, stage: str) -> None:
        """Remove the checkpoints of a finished stage, which nobody reads again."""
        shutil.rmtree(self.checkpoint(stage), ignore_errors=True)
        with suppress(OSError):  # others are there, or none ever were
            self.checkpoint(stage).parent.rmdir()

    def load(self, name: str) -> xr.Dataset | None:
        """A result of an earlier stage, None if the run does not have it."""
        return self.directory.find(name)
