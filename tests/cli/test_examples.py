"""The command docs, and the example files that come with the package."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest

from irt_dask.cli import examples

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", examples.KINDS)
def test_examples_are_the_files_beside_the_package(kind):
    here = {p.relative_to(ROOT / kind) for p in (ROOT / kind).rglob("*") if p.is_file()}
    there = {p.relative_to(examples.folder(kind)) for p in examples.folder(kind).rglob("*")
             if p.is_file()}  # fmt: skip
    assert here == there != set()


def test_docs_lists_shows_and_copies_examples(typed):
    page = typed("docs", "cluster").out
    assert page.startswith("# Where to run")
    assert "  slurm/\n" in page
    assert "large_assessment.toml" in typed("docs", "pipelines").out
    shown = typed("docs", "cluster", "slurm").out
    assert shown.startswith("==> README.md <==")
    assert 'kind = "slurm"' in shown
    assert "[scoring]" in typed("docs", "pipelines", "nightly_scoring.toml").out
    made = typed("docs", "cluster", "slurm/", "--copy", "mine").out.split()
    assert "mine/cluster.toml" in made
    source = ROOT / "cluster" / "slurm" / "irt_dask.sbatch"
    copied = Path("mine/irt_dask.sbatch")
    assert copied.read_bytes() == source.read_bytes()
    assert copied.stat().st_mode == source.stat().st_mode
    assert "not overwritten" in typed("docs", "cluster", "slurm", "--copy", "mine", code=2).err
    typed("docs", "cluster", "--copy", "all")
    assert Path("all/slurm/cluster.toml").exists()
    assert Path("all/local.toml").exists()
    assert "there are" in typed("docs", "cluster", "cray", code=2).err
    assert "has no examples" in typed("docs", "fit", "x", code=2).err
    assert "topics: architecture, assessment, " in typed("docs", "cooking", code=2).err


SETUPTOOLS = metadata.version("setuptools") if find_spec("setuptools") else "0"
OLD = int(SETUPTOOLS.partition(".")[0]) < 77


@pytest.mark.slow
@pytest.mark.skipif(OLD, reason="needs setuptools 77 or later (pip install '.[test]')")
def test_distributions_hold_the_examples(tmp_path):
    """Wheel, sdist, and a wheel that is made from the sdist."""
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    for name in ("irt_dask", *examples.KINDS):
        shutil.copytree(ROOT / name, tree / name, ignore=_no_caches)
    beside = [p for kind in examples.KINDS for p in (ROOT / kind).rglob("*") if p.is_file()]
    wanted = {f"irt_dask/examples/{p.relative_to(ROOT)}" for p in beside}
    sdist, wheel = built(tree, "sdist"), built(tree, "wheel")
    with tarfile.open(sdist) as archive:
        there = {m.name.partition("/")[2] for m in archive if m.isfile()}
        assert wanted <= there
        archive.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    for made in (wheel, built(unpacked, "wheel")):
        with zipfile.ZipFile(made) as archive:
            assert wanted <= set(archive.namelist())
            pages = {n for n in archive.namelist() if n.startswith("irt_dask/docs/")}
            kinds = {".md", ".png", ".css", ".js", ".svg", ".py"}  # no results
            assert {Path(n).suffix for n in pages} <= kinds
            assert {"irt_dask/docs/tutorials/classroom.md", "irt_dask/docs/conf.py"} <= pages
        assert made.stat().st_size < 3_000_000


def _no_caches(folder, names):
    return [n for n in names if n == "__pycache__"]


def built(tree, kind):
    """Build a distribution as pip does, in a process of its own; return its file."""
    out = tree / "dist"
    out.mkdir(exist_ok=True)
    script = f"import distributions; print(distributions.build_{kind}('dist'))"
    backend = {**os.environ, "PYTHONPATH": "irt_dask/examples"}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tree, env=backend, capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return out / done.stdout.split()[-1]
