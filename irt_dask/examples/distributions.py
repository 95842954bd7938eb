"""The build backend: setuptools', but distributions hold the example files as well.

In a checkout the examples are the folders ``cluster`` and ``pipelines`` beside the package; wheels
and source distributions have copies of them in this folder, and the latter also the tests.  With
``SOURCE_DATE_EPOCH`` the same sources make the same bytes, wherever and by whomever they are built.
"""

import gzip
import io
import os
import shutil
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
KINDS = ("cluster", "pipelines")
#: What a source distribution has beside the package: its tests pass, and say what they test.
MANIFEST = """\
graft tests
graft cluster
graft pipelines
graft .ci
graft .github
include CHANGELOG.md .gitattributes .gitignore .pre-commit-config.yaml
global-exclude *.py[cod] *.nb[ci]
"""


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    """Build a source distribution, with examples and tests in it."""
    with _copies(), _manifest():
        name = build_meta.build_sdist(sdist_directory, config_settings)
    if epoch := os.environ.get("SOURCE_DATE_EPOCH"):
        _settle_sdist(Path(sdist_directory, name), int(epoch))
    return str(name)


def build_wheel(
    wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None
) -> str:
    """Build a wheel, from a checkout or from a source distribution."""
    # What an earlier build left there setuptools would take for a part of this one.
    shutil.rmtree(ROOT / "build" / "lib", ignore_errors=True)
    with _copies():
        name = build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
    _settle_wheel(Path(wheel_directory, name))
    return str(name)


@contextmanager
def _copies() -> Iterator[None]:
    """Copy the examples here for as long as a build takes; a source distribution has them."""
    kinds = [kind for kind in KINDS if (ROOT / kind).is_dir()]
    try:
        for kind in kinds:
            shutil.rmtree(HERE / kind, ignore_errors=True)  # of a build that was killed
            shutil.copytree(ROOT / kind, HERE / kind)
        yield
    finally:
        for kind in kinds:
            shutil.rmtree(HERE / kind, ignore_errors=True)


@contextmanager
def _manifest() -> Iterator[None]:
    """Tell setuptools what else to take, by the file that it reads."""
    file = ROOT / "MANIFEST.in"
    try:
        file.write_text(MANIFEST)
        yield
    finally:
        file.unlink(missing_ok=True)


def _mode(mode: int) -> int:
    """What everybody may do with a file or a folder, whatever the umask of who builds."""
    return 0o755 if mode & 0o100 else 0o644


def _settle_wheel(path: Path) -> None:
    """Give the files of a wheel the modes that they have for everybody; setuptools sets times."""
    with zipfile.ZipFile(path) as old:
        files = [(info, old.read(info)) for info in old.infolist()]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for info, data in files:
            kind = info.external_attr >> 16 & ~0o7777
            info.external_attr = (kind | _mode(info.external_attr >> 16)) << 16
            new.writestr(info, data)


def _settle_sdist(path: Path, epoch: int) -> None:
    """Write a source distribution anew, with nothing in it of who built it, or when."""
    with tarfile.open(path) as old:
        files = [(m, old.extractfile(m) if m.isfile() else None) for m in old]
        entries = [(m, None if f is None else f.read()) for m, f in files]
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member, data in sorted(entries, key=lambda entry: entry[0].name):
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime, member.mode, member.pax_headers = epoch, _mode(member.mode), {}
            new.addfile(member, None if data is None else io.BytesIO(data))
    with open(path, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=epoch) as packed:
        packed.write(whole.getvalue())
