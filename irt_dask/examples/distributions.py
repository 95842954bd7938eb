"""The build backend: setuptools', but distributions hold the example files as well.

In a checkout the examples are the folders ``cluster`` and ``pipelines`` beside the package; wheels
and source distributions have copies of them in this folder.
"""

import shutil
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


def build_sdist(*args: Any, **kwargs: Any) -> str:
    """Build a source distribution, with the examples in it."""
    with _copies():
        return build_meta.build_sdist(*args, **kwargs)


def build_wheel(*args: Any, **kwargs: Any) -> str:
    """Build a wheel, from a checkout or from a source distribution."""
    with _copies():
        return build_meta.build_wheel(*args, **kwargs)


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
