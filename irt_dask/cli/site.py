"""The documentation as a site: built once into the user's cache, by Sphinx as a process."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import click

import irt_dask
from irt_dask.errors import InputError, IrtDaskError

PACKAGE = Path(irt_dask.__file__).parent
#: What the extra "docs" brings, by the names that are imported.
NEEDED = ("sphinx", "pydata_sphinx_theme", "myst_nb", "sphinx_design", "latex2mathml", "ipykernel")


def cache() -> Path:
    """The folder of this user's sites: IRT_DASK_CACHE, or where the system keeps caches."""
    if given := os.environ.get("IRT_DASK_CACHE"):
        return Path(given)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "irt_dask"


def key() -> str:
    """Version and content: of the pages, and of the sources that the reference is made of."""
    digest = hashlib.sha256()
    kinds = {".py", ".md", ".css", ".png"}
    for path in sorted(p for p in PACKAGE.rglob("*") if p.suffix in kinds):
        digest.update(path.relative_to(PACKAGE).as_posix().encode())
        digest.update(path.read_bytes())
    return f"{irt_dask.__version__}-{digest.hexdigest()[:12]}"


def page() -> Path:
    """The first page of the site, which is built unless it is there.

    Raises
    ------
    InputError
        If what builds it is not installed; the message has the command that installs it.
    IrtDaskError
        If the build failed; the message has the end of what Sphinx said.
    """
    sites = cache() / "docs"
    there = sites / key() / "index.html"
    if not there.exists():
        if missing := [name for name in NEEDED if find_spec(name) is None]:
            raise InputError(
                f"--open builds the site with Sphinx and needs {', '.join(missing)}: "
                "pip install 'irt_dask[docs]'; the pages can be read without, as in "
                "'irt-dask docs methods'"
            )
        click.echo(
            "building the site, once for this version: some minutes, in which its examples are "
            f"run (into {sites})", err=True,
        )  # fmt: skip
        _build(there.parent)
    return there


def _build(to: Path) -> None:
    """Build beside, then rename: a site is whole or not there; those of other versions go."""
    to.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=to.parent, prefix="building-") as work:
        done = subprocess.run(
            [sys.executable, str(PACKAGE / "docs" / "build.py"), work],
            capture_output=True, text=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        made = Path(work) / "html"
        if done.returncode != 0 or not (made / "index.html").exists():
            last = "\n".join((done.stdout + done.stderr).splitlines()[-12:])
            raise IrtDaskError(f"the site could not be built; Sphinx said at last:\n{last}")
        if not to.exists():  # another process may have been faster
            made.rename(to)
    for old in to.parent.iterdir():
        if old != to and not old.name.startswith("building-"):
            shutil.rmtree(old, ignore_errors=True)
