"""What a commit names is on the disk before the commit is: a power cut leaves the old or the new.

The calls that make files durable are watched.  A file is durable if it was flushed after its last
change, a name in a folder if the folder was flushed with it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

import irt_dask as irt
from irt_dask.engine.checkpoint import Checkpoint
from irt_dask.store import manifest


class Disk:
    """What would be there after a power cut, and what is wrong with it at each rename."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.files: dict[int, tuple[int, int]] = {}  # by inode: size and time when flushed
        self.names: dict[int, set[str]] = {}  # of a folder, when flushed
        self.commits: list[Path] = []
        self.wrong: list[str] = []
        self._calls = {name: getattr(os, name) for name in ("fsync", "rename", "replace")}
        monkeypatch.setattr(os, "fsync", self.fsync)
        for name in ("rename", "replace"):
            monkeypatch.setattr(os, name, lambda a, b, name=name: self.renamed(name, a, b))

    def fsync(self, descriptor: int) -> None:
        self._calls["fsync"](descriptor)
        found = os.fstat(descriptor)
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            self.names[found.st_ino] = set(os.listdir(descriptor))
        else:
            self.files[found.st_ino] = (found.st_size, found.st_mtime_ns)

    def renamed(self, call: str, source: str | Path, target: str | Path) -> None:
        source, target = Path(source), Path(target)
        seen = target.is_relative_to(self.root) and ".store.partial" not in target.parts
        if seen and source.is_file():
            self.check_file(source)
            if target.name == manifest.NAME:
                self.check_store(target.parent, source)
            self.commits.append(target)
        elif seen and (source / manifest.NAME).exists():
            self.check_file(source / manifest.NAME)
            self.check_name(source / manifest.NAME)
            self.check_store(source, source / manifest.NAME)
            self.commits.append(target)
        self._calls[call](source, target)

    def check_file(self, file: Path) -> None:
        if not file.exists():
            self.wrong.append(f"{file} is not there")
            return
        found = file.stat()
        if self.files.get(found.st_ino) != (found.st_size, found.st_mtime_ns):
            self.wrong.append(f"{file} is not flushed")

    def check_name(self, path: Path) -> None:
        if path.parent.exists() and path.name not in self.names.get(path.parent.stat().st_ino, ()):
            self.wrong.append(f"{path.parent} is not flushed with {path.name}")

    def check_store(self, root: Path, listed: Path) -> None:
        """All that a manifest lists."""
        named = {root / key for key in json.loads(listed.read_bytes())["files"]}
        for file in named:
            self.check_file(file)
        for path in named | {p for f in named for p in f.parents if p.is_relative_to(root)} - {
            root
        }:
            self.check_name(path)

    def ended(self) -> None:
        """Nothing was wrong, and the commits themselves are durable."""
        for path in self.commits:
            self.check_name(path)
        assert not self.wrong, "\n".join(self.wrong)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(tmp_path, monkeypatch)


def write_rows(path: Path, first: int) -> Path:
    rows = [f"p{first + i},{i % 2},{i // 2 % 2},x" for i in range(40)]
    path.write_text("person,a,b,group\n" + "\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_a_store_and_what_is_appended(layout: str, tmp_path: Path, disk: Disk) -> None:
    options = {"rows_per_block": 16, "columns": {"group": "group"}, "progress": False}
    store = tmp_path / "store"
    irt.ingest(write_rows(tmp_path / "a.csv", 0), store, layout=layout, **options)
    assert disk.commits[-1] == store
    irt.append(write_rows(tmp_path / "b.csv", 40), store, **options)
    assert disk.commits[-1] == store / manifest.NAME
    disk.ended()


def test_a_checkpoint_a_ledger_and_a_run_directory(tmp_path: Path, disk: Disk) -> None:
    from irt_dask.workflow.directory import RunDirectory

    Checkpoint(tmp_path / "c", {"seed": 1}).save("x", {"a": np.arange(3)})
    y = np.random.default_rng(1).integers(0, 2, (60, 4))
    irt.fit_private_spectral(y, rho=0.1, ledger=tmp_path / "ledger.json", progress=False)
    run = RunDirectory(
        tmp_path / "run",
        {"title": "t", "config_digest": "", "data_checksum": "", "config": {}},
        fresh=False,
    )
    run.finish("summary", 1.0, [run.write("a.csv", b"text")], [])
    run.close()
    names = ["x.checkpoint", "ledger.json", "run.json", "a.csv", "run.json"]
    assert [path.name for path in disk.commits] == names
    disk.ended()


def test_the_check_can_fail(tmp_path: Path, disk: Disk) -> None:
    (tmp_path / "a").write_text("text")
    os.replace(tmp_path / "a", tmp_path / "b")
    with pytest.raises(AssertionError, match=r"a is not flushed\n.* is not flushed with b"):
        disk.ended()
