"""The run directory: its manifest, its files, and the rules of resuming."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import shutil
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import xarray as xr

from irt_dask.banks.files import bank_files
from irt_dask.banks.saved import netcdf
from irt_dask.clusters.checks import versions
from irt_dask.engine import person_files
from irt_dask.engine.lock import LOCK, FolderLock
from irt_dask.errors import ChangedRunError, InputError, MachineWarning, RunError
from irt_dask.store.documents import from_json
from irt_dask.store.manifest import digest, write_atomically, writing
from irt_dask.store.places import Location, checksum, local_path, open_to_append, read_bytes
from irt_dask.workflow.events import NAME as EVENTS
from irt_dask.workflow.identity import DIGEST, changes

_FORMAT = "irt_dask run"
_VERSION = 2
_MANIFEST = "run.json"
_LOG = "log.txt"
#: Folder of the scores, one file a block.
SCORES = "scores"
#: Folder of what unfinished stages keep.
_CHECKPOINTS = "checkpoints"
_REDONE = ("check", "population", "score", "tables", "report")
#: What an earlier run with other tables, or another title, recorded of the stage that makes them.
TABLES_BEFORE = "tables_before"


class RunDirectory:
    """A folder with a manifest that says what was asked, of which data, and what is done.

    Parameters
    ----------
    path : folder, made (readable by its owner alone) if it does not exist.
    identity : configuration (dict), its digest, and the checksum of the data.
    fresh : remove what an earlier run left.
    """

    def __init__(self, path: str | Path, identity: dict[str, Any], *, fresh: bool) -> None:
        self.path = local_path(path, "a run directory").absolute()
        self._written: dict[str, str] = {}
        manifest = self.path / _MANIFEST
        if not manifest.exists() and self.path.exists():
            others = [p.name for p in self.path.iterdir() if p.name != LOCK]
            if others:
                raise InputError(
                    f"{self.path} exists and is not a run directory; choose another directory"
                )
        # Identifiers, responses and abilities of persons are in it.  A directory that is there
        # already keeps its mode: workers of another user may need to write into it.
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._refuse_links()
        self._lock = FolderLock(self.path)
        try:
            self._open(manifest, identity, fresh)
        except BaseException:
            self.close()
            raise

    def _open(self, manifest: Path, identity: dict[str, Any], fresh: bool) -> None:
        if manifest.exists():
            self.content = self._read(manifest, discard=fresh)
            if fresh:
                self._remove()
        if manifest.exists() and not self._made_nothing():
            self._check_same(identity)
            changed = self._take_over(identity)
        else:
            changed = True
            self.content = {
                "format": _FORMAT,
                "format_version": _VERSION,
                **identity,
                "versions": versions(),
                "machines": [],
                "stages": {},
            }
        if changed:
            self._write()
        self.log("run started" if not self.stages else "run resumed")

    def _take_over(self, identity: dict[str, Any]) -> bool:
        """Take title and tables from what is asked for now; whether they were others.

        Nothing else depends on them. Those that are asked for no more, and the page, are removed.
        """
        old, new = ([*of.get("config", {}).get("tables", ())] for of in (self.content, identity))
        changed = old != new or self.content["title"] != identity["title"]
        self.content |= {k: v for k, v in identity.items() if k in ("title", "config", DIGEST)}
        if not changed:
            return False
        self.stages.pop("report", None)  # which has the title as its heading, and all sections
        if (made := self.stages.pop("tables", None)) is not None:
            self.content[TABLES_BEFORE] = made | {"of": old}
        asked_for = [table | {"title": None} for table in new]
        kept = {table["out"] for table in old if table | {"title": None} in asked_for}
        written = {*self.content.get(TABLES_BEFORE, {}).get("files", ())}
        for name in written.union(table["out"] for table in old) - kept:
            self.place(name).unlink(missing_ok=True)
        if not new:
            self.content.pop(TABLES_BEFORE, None)
        return True

    def close(self) -> None:
        """Let other runs use the directory."""
        self._lock.close()

    def _refuse_links(self) -> None:
        """Stop at a link among what the run writes, reads again and removes.

        Of a store its manifest has the checksums of what lies deeper.
        """
        for pattern in ("*", "responses/*", f"{_CHECKPOINTS}/**/*", f"{SCORES}/**/*"):
            for file in self.path.glob(pattern):
                self.place(file.relative_to(self.path).as_posix())

    def place(self, name: str) -> Path:
        """Return the path of a file or folder in the directory, to write to or to remove.

        Raises
        ------
        RunError
            If it is a symbolic link, or is reached through one: what lies elsewhere is not the
            run's.  The directory itself may be one.
        """
        path = self.path
        for part in Path(name).parts:
            path /= part
            if path.is_symlink():
                raise RunError(
                    f"{path} is a symbolic link (to {path.readlink()}): a run writes and removes "
                    f"files in its directory and follows no link out of it; remove the link, or "
                    f"let the run directory itself be one"
                )
        return path

    def checkpoint(self, stage: str) -> Path:
        """Folder for the checkpoints of a stage."""
        return self.place(f"{_CHECKPOINTS}/{stage}")

    def forget(self, stage: str) -> None:
        """Remove the checkpoints of a finished stage, which nobody reads again."""
        folder = self.checkpoint(stage)
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # others are there, or none ever were
            folder.parent.rmdir()

    def computed_on(self, processors: tuple[str, ...], stage: str) -> None:
        """Record on what types of processor the stages from this one on are computed.

        Warns
        -----
        MachineWarning
            If they are others than those of the stages before, whose bits these rest on.
        """
        now, before = list(processors), self.machines[-1]["processors"] if self.machines else []
        old = self.content.get("machine")  # without BLAS, as it was written before
        if now == before or (old and all(kind.startswith(f"{old['cpu']} (") for kind in now)):
            return
        here = {"from": stage, "system": platform.platform(), "processors": now}
        self.content["machines"] = [*self.machines, here]
        self.content.pop("machine", None)
        self._write()
        if before:
            text = (
                f"from {stage} on this run computes on {' and '.join(now)}; before it was "
                f"{' and '.join(before)}: results are the same bits on one type of processor only, "
                f"and an undisturbed run may end with other last bits"
            )
            warnings.warn(text, MachineWarning, stacklevel=2)

    @property
    def machines(self) -> list[dict[str, Any]]:
        """Where stages were computed: the first of them, the system and types of processor."""
        if old := self.content.get("machine"):
            first = next(iter(self.stages), "ingest")
            return [{"from": first, "system": old["system"], "processors": [old["cpu"]]}]
        return list(self.content.get("machines", []))

    def _remove(self) -> None:
        """Remove what an earlier run left, the manifest last."""
        for entry in self.path.iterdir():
            if entry.name in (_MANIFEST, LOCK):
                continue
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        (self.path / _MANIFEST).unlink()

    @property
    def stages(self) -> dict[str, Any]:
        """Finished stages: seconds, warnings and the checksums of what they wrote."""
        return self.content["stages"]

    def _read(self, manifest: Path, *, discard: bool = False) -> dict[str, Any]:
        try:
            content = from_json(read_bytes(manifest))
        except (OSError, ValueError) as error:
            raise RunError(f"the manifest {manifest} cannot be read: {error}") from error
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            raise InputError(f"{manifest} is not the manifest of a run; choose another directory")
        if content.get("format_version") != _VERSION and not discard:
            raise RunError(f"{manifest} was written by another version; use --fresh to start over")
        claimed = content.pop("checksum", None)
        if claimed != digest(content) and not discard:
            raise RunError(
                f"the manifest {manifest} is damaged: its checksum does not match its content; use "
                f"--fresh to start over"
            )
        return content

    def _check_same(self, identity: dict[str, Any]) -> None:
        if changed := changes(self.content, identity):
            raise ChangedRunError(
                f"the run in {self.path} was started with something else: {'; '.join(changed)}. "
                f"Use --fresh to discard it and start over, or another directory"
            )

    def _made_nothing(self) -> bool:
        """Whether a run stopped before it made anything, as at a response that is none."""
        logs = (_MANIFEST, LOCK, _LOG, EVENTS)
        return not self.stages and all(file.name in logs for file in self.path.iterdir())

    def check_data(self, checksum: str) -> None:
        """Stop if the data have another checksum than those that the run was started with."""
        if self.content["data_checksum"] != checksum:
            raise ChangedRunError(
                f"the data of the run in {self.path} changed while it was running: their checksum "
                f"is {checksum[:12]}, it was {self.content['data_checksum'][:12]}; start "
                f"again when nobody writes to them"
            )

    def check_config(self, digest: str, key: str) -> None:
        """Stop if files that the pipeline names say something else than when it was started."""
        if self.content[DIGEST] != digest:
            raise ChangedRunError(
                f"the file {key} of the run in {self.path} changed while it was "
                f"running; start again when nobody writes to it"
            )

    def check_bank(self, checksum: str | None) -> None:
        """Stop if the bank of fixed items has another checksum than when the run was started."""
        if self.content.get("bank_checksum") != checksum:
            raise ChangedRunError(
                f"the bank marginal.fixed_items of the run in {self.path} changed while it was "
                f"running; start again when nobody writes to it"
            )

    def _write(self) -> None:
        content = self.content | {"checksum": digest(self.content)}
        write_atomically(self.place(_MANIFEST), json.dumps(content, indent=1).encode())

    def finished(self, stage: str) -> bool:
        """Whether a stage is done; what it wrote must still be there, unchanged.

        What was removed is made again if no estimate of items depends on it, else it is an error.
        """
        if stage not in self.stages:
            return False
        if stage in _REDONE and not all(
            (self.path / f).exists() for f in self.stages[stage]["files"]
        ):
            return False
        for name, sha256 in self.stages[stage]["files"].items():
            file = self.path / name
            if not file.exists() or checksum(file) != sha256:
                raise _changed(file) if stage in _REDONE else _damaged(file)
        if stage == "score":
            return self._scores_are_whole()
        return True

    def _scores_are_whole(self) -> bool:
        """Whether all files of scores are there; one that is damaged is an error."""
        folder, here = self.path / SCORES, True
        for k in range(
            from_json(read_bytes(folder / person_files.DONE), constants=True)["n_blocks"]
        ):
            file = person_files.file_of(folder, k)
            here &= file.exists()
            if file.exists() and person_files.footer(file) is None:
                raise _changed(file)
        return here

    def finish(self, stage: str, seconds: float, files: list[str], notes: list[str]) -> None:
        """Record a stage as done: the act that makes a resumed run skip it."""
        self.stages[stage] = {
            "seconds": round(seconds, 3),
            "files": {n: self._written.get(n) or checksum(self.path / n) for n in files},
            "notes": notes,
        }
        if stage == "tables":
            self.content.pop(TABLES_BEFORE, None)
        self._write()
        for note in notes:
            self.log(f"{stage}: {note}")
        self.log(f"{stage} finished in {seconds:.1f} s")

    def made_again(self, stage: str) -> None:
        """Record what a stage wrote, if it is done, as it is now."""
        if stage in self.stages:
            files = self.stages[stage]["files"]
            files.update({n: checksum(self.path / n) for n in files})
            self._write()

    def log(self, text: str) -> None:
        """Append a line to the log file."""
        path = self.place(_LOG)
        with writing(path), open_to_append(path) as f:
            f.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {text}\n".encode())

    def save(self, name: str, result: xr.Dataset) -> str:
        """Write a result as netCDF, whole or not at all; return the file's name."""
        return self.write(name, netcdf(result))

    def save_bank(self, items: xr.Dataset) -> list[str]:
        """Write the item bank, and what lies beside it; return the files' names."""
        return [self.write(name, data) for name, data in bank_files(items, "items.csv").items()]

    def write(self, name: str, data: bytes) -> str:
        """Write a file, whole or not at all; return its name."""
        self._written[name] = hashlib.sha256(data).hexdigest()  # not of what a disk makes of it
        write_atomically(self.place(name), data)
        return name

    def load(self, name: str) -> xr.Dataset:
        """Read a result that a finished stage wrote by :meth:`save`; RunError if it has changed."""
        path = self.path / name
        data = read_bytes(path) if path.exists() else b""
        if hashlib.sha256(data).hexdigest() != self._files[name]:
            raise _damaged(path)
        return xr.load_dataset(io.BytesIO(data), engine="scipy")

    def find(self, name: str) -> xr.Dataset | None:
        """As :meth:`load`; None if no finished stage wrote it."""
        return self.load(name) if name in self._files else None

    @property
    def _files(self) -> dict[str, str]:
        """Checksums of the files of finished stages."""
        return {n: sha256 for stage in self.stages.values() for n, sha256 in stage["files"].items()}

    @classmethod
    def existing(cls, path: str | Path) -> RunDirectory:
        """Open the directory of an earlier run as it is."""
        directory = cls.__new__(cls)
        directory.path = local_path(path, "a run directory").absolute()
        manifest = directory.path / _MANIFEST
        if not manifest.exists():
            raise InputError(f"{path} is not a run directory: it has no {_MANIFEST}")
        directory.content = directory._read(manifest)
        return directory

    def clear(self, name: str) -> Path:
        """Return the path of a folder that an interrupted stage may have left, removed."""
        path = self.place(name)
        if path.exists():
            shutil.rmtree(path)
        return path


def _changed(file: Location) -> RunError:
    return RunError(f"{file} is damaged; remove it and run again: it is made anew")


def _damaged(file: Path) -> RunError:
    return RunError(f"{file} is missing or damaged; use --fresh to start over")
