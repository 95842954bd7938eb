"""The run directory: its manifest, its files, and the rules of resuming."""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import shutil
import time
from pathlib import Path
from typing import Any

import pandas as pd
import xarray as xr

from irt_dask.clusters.checks import versions
from irt_dask.engine import person_files
from irt_dask.engine.lock import LOCK, FolderLock
from irt_dask.errors import ChangedRunError, InputError, RunError
from irt_dask.store.manifest import digest, write_atomically, writing
from irt_dask.store.places import checksum, local_path

_FORMAT = "irt_dask run"
_VERSION = 2
_MANIFEST = "run.json"
#: Folder of the scores, one file a block.
SCORES = "scores"
_REDONE = ("check", "score", "report")
_INT32 = 2**31 - 1


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
        if manifest.exists():
            self._check_same(identity)
            renamed = self.content["title"] != identity["title"]
            self.content["title"] = identity["title"]
        else:
            renamed = True
            self.content = {
                "format": _FORMAT,
                "format_version": _VERSION,
                **identity,
                "versions": versions(),
                "machine": {"system": platform.platform(), "cpu": _cpu()},
                "stages": {},
            }
        if renamed:
            self._write()
        self.log("run started" if not self.stages else "run resumed")

    def close(self) -> None:
        """Let other runs use the directory."""
        self._lock.close()

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
            content = json.loads(manifest.read_bytes())
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
        old = self.content
        changed = []
        if old["config_digest"] != identity["config_digest"]:
            changed.append(f"the configuration changed ({_differences(old, identity)})")
        if old["data_checksum"] != identity["data_checksum"]:
            changed.append("the data changed")
        if old["versions"] != versions():
            now = versions()
            other = [f"{k} {old['versions'].get(k)} -> {v}" for k, v in now.items()
                     if old["versions"].get(k) != v]  # fmt: skip
            changed.append(f"versions changed ({', '.join(other)})")
        if changed:
            raise ChangedRunError(
                f"the run in {self.path} was started with something else: {'; '.join(changed)}. "
                f"Use --fresh to discard it and start over, or another directory"
            )

    def check_data(self, checksum: str) -> None:
        """Stop if the data have another checksum than those that the run was started with."""
        if self.content["data_checksum"] != checksum:
            raise ChangedRunError(
                f"the data of the run in {self.path} changed while it was running: their checksum "
                f"is {checksum[:12]}, it was {self.content['data_checksum'][:12]}; start "
                f"again when nobody writes to them"
            )

    def _write(self) -> None:
        content = self.content | {"checksum": digest(self.content)}
        write_atomically(self.path / _MANIFEST, json.dumps(content, indent=1).encode())

    def finished(self, stage: str) -> bool:
        """Whether a stage is done; what it wrote must still be there, unchanged.

        Check, scores and report are made again if they were removed: no estimate depends on them.
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
                raise _damaged(file)
        if stage == "score":
            return self._scores_are_whole()
        return True

    def _scores_are_whole(self) -> bool:
        """Whether all files of scores are there; one that is damaged is an error."""
        folder, here = self.path / SCORES, True
        for k in range(json.loads((folder / person_files.DONE).read_bytes())["n_blocks"]):
            file = person_files.file_of(folder, k)
            here &= file.exists()
            if file.exists() and person_files.footer(file) is None:
                raise RunError(f"{file} is damaged; remove it and run again: it is made anew")
        return here

    def finish(self, stage: str, seconds: float, files: list[str], notes: list[str]) -> None:
        """Record a stage as done: the act that makes a resumed run skip it."""
        self.stages[stage] = {
            "seconds": round(seconds, 3),
            "files": {n: self._written.get(n) or checksum(self.path / n) for n in files},
            "notes": notes,
        }
        self._write()
        self.log(f"{stage} finished in {seconds:.1f} s")

    def log(self, text: str) -> None:
        """Append a line to the log file."""
        path = self.path / "log.txt"
        with writing(path), open(path, "a", encoding="utf-8") as f:
            f.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {text}\n")

    def save(self, name: str, result: xr.Dataset) -> str:
        """Write a result as netCDF, whole or not at all; return the file's name.

        NetCDF 3 needs no library beyond SciPy and opens in xarray, R (ncdf4) and ArviZ.  It has no
        integers above 2^31, which are written as doubles (exact to 2^53).
        """
        result = result.copy()
        for key, value in result.attrs.items():
            if isinstance(value, int) and abs(value) > _INT32:
                result.attrs[key] = float(value)
        for key, array in result.variables.items():
            if array.dtype.kind == "i" and array.size and int(abs(array).max()) > _INT32:
                result[key] = array.astype(float)
        return self.write(name, bytes(result.to_netcdf(engine="scipy")))

    def write(self, name: str, data: bytes) -> str:
        """Write a file, whole or not at all; return its name."""
        self._written[name] = hashlib.sha256(data).hexdigest()  # not of what a disk makes of it
        write_atomically(self.path / name, data)
        return name

    def load(self, name: str) -> xr.Dataset:
        """Read a result that a finished stage wrote by :meth:`save`; RunError if it has changed."""
        path = self.path / name
        data = path.read_bytes() if path.exists() else b""
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
        path = self.path / name
        if path.exists():
            shutil.rmtree(path)
        return path


def _damaged(file: Path) -> RunError:
    return RunError(f"{file} is missing or damaged; use --fresh to start over")


def load_result(path: Path) -> xr.Dataset | None:
    """A result file of a run, None if the run did not write it."""
    return xr.load_dataset(path, engine="scipy") if path.exists() else None


def _differences(old: dict[str, Any], new: dict[str, Any]) -> str:
    (a,), (b,) = (pd.json_normalize(of["config"]).to_dict("records") for of in (old, new))
    keys = [k for k in {**a, **b} if a.get(k) != b.get(k)]
    return ", ".join(f"{k}: {a.get(k)!r} -> {b.get(k)!r}" for k in keys)


def _cpu() -> str:
    """The CPU type: results are the same bits on one type, not across types."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        return platform.processor()
    return platform.processor() or os.uname().machine
