"""Wheel and source distribution: the same bytes wherever they are built, and whole."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SETUPTOOLS = metadata.version("setuptools") if find_spec("setuptools") else "0"
OLD = int(SETUPTOOLS.partition(".")[0]) < 77
EPOCH = 1_700_000_000


def checkout(folder: Path, *, age: int) -> Path:
    """A copy of the sources whose files have times of their own; other folders, other names."""
    folder.mkdir(parents=True)
    for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"):
        shutil.copy(ROOT / name, folder)
    left_out = shutil.ignore_patterns("__pycache__")
    for name in ("irt_dask", "cluster", "pipelines", "tests", ".ci", ".github"):
        shutil.copytree(ROOT / name, folder / name, ignore=left_out)
    for file in folder.rglob("*"):
        os.utime(file, (EPOCH - age, EPOCH - age))
    return folder


def built(tree: Path, kind: str, umask: int = 0o022) -> Path:
    """Build as pip does, in a process of its own; return the file."""
    script = f"import os; os.umask({umask}); import distributions as d; print(d.build_{kind}('.'))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tree, capture_output=True, text=True, timeout=300,
        env=os.environ | {"PYTHONPATH": "irt_dask/examples", "SOURCE_DATE_EPOCH": str(EPOCH)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return tree / done.stdout.split()[-1]


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.slow
@pytest.mark.skipif(OLD, reason="needs setuptools 77 or later (pip install '.[test]')")
def test_the_same_sources_make_the_same_bytes(tmp_path: Path) -> None:
    """In two folders, by users of other umasks, and after a build of other sources in one."""
    one, two = checkout(tmp_path / "a", age=0), checkout(tmp_path / "b" / "c", age=10**6)
    for file in two.rglob("*"):
        file.chmod(file.stat().st_mode & 0o700)
    left = two / "build" / "lib" / "irt_dask" / "left.py"
    left.parent.mkdir(parents=True)
    left.write_text("of a build before\n")
    wheels = built(one, "wheel"), built(two, "wheel", 0o077)
    assert digest(wheels[0]) == digest(wheels[1])
    sdists = built(one, "sdist"), built(two, "sdist", 0o077)
    assert digest(sdists[0]) == digest(sdists[1])

    unpacked = tmp_path / "unpacked"
    shutil.unpack_archive(sdists[0], unpacked, filter="data")
    (tree,) = unpacked.iterdir()
    for folder in ("irt_dask", "tests", "cluster", "pipelines", ".ci", ".github"):
        files = (p for p in (one / folder).rglob("*") if p.is_file() and p.suffix != ".pyc")
        assert {p.relative_to(one) for p in files} <= {
            p.relative_to(tree) for p in tree.rglob("*")
        }, folder
    assert not list(tree.rglob("*.pyc"))
    assert digest(built(tree, "wheel")) == digest(wheels[0])

    # Another byte of a source is another wheel: the digest means something.
    (one / "irt_dask" / "_version.py").write_text('__version__ = "0.1.1"\n')
    assert digest(built(one, "wheel")) != digest(wheels[0])

    with zipfile.ZipFile(wheels[0]) as archive:
        archive.extractall(tmp_path / "installed")
        modes = {info.external_attr >> 16 & 0o777 for info in archive.infolist()}
        (script,) = (i for i in archive.infolist() if i.filename.endswith("irt_dask.sbatch"))
    assert modes <= {0o644, 0o755}
    assert script.external_attr >> 16 & 0o100 == (
        (ROOT / "cluster" / "slurm" / "irt_dask.sbatch").stat().st_mode & 0o100
    )
    shown = subprocess.run(
        [sys.executable, "-m", "irt_dask.cli", "docs", "stability"], cwd=tmp_path,
        capture_output=True, text=True, timeout=120,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "installed")},
    )  # fmt: skip
    assert shown.stdout.startswith("# Stability"), shown.stderr
