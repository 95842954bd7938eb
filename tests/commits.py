"""Commits checked out beside each other, each run by processes of its own on this machine."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@contextmanager
def checked_out(commit: str | None) -> Iterator[Path]:
    """Root of a commit's files; of the working tree for None."""
    if commit is None:
        yield ROOT
        return
    git = ["git", "-C", str(ROOT), "worktree"]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve() / "tree"
        subprocess.run([*git, "add", "--quiet", "--detach", str(root), commit], check=True)
        try:
            yield root
        finally:
            subprocess.run([*git, "remove", "--force", str(root)], check=True)


def environment(root: Path, *more: Path) -> dict[str, str]:
    """Environment of a process that imports the package under ``root``."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (root, *more)))}


def check(root: Path) -> None:
    """Stop a process that would import another package."""
    spec = importlib.util.find_spec("irt_dask")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).resolve().parents[1]
    if package != root.resolve():
        sys.exit(f"this environment's irt_dask is that of {package}, not that of {root}")
