"""The example files that come with the package: pipelines, and files for kinds of cluster.

In a checkout they are the folders ``cluster`` and ``pipelines`` beside the package; built
distributions have copies in ``irt_dask/examples``.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import irt_dask
from irt_dask.errors import InputError
from irt_dask.store.places import local_path

#: Kinds of examples, by the topic of ``irt-dask docs`` that lists them.
KINDS = ("cluster", "pipelines")


def folder(kind: str) -> Path:
    """The folder of the examples of a kind."""
    package = Path(irt_dask.__file__).parent
    copies = package / "examples" / kind
    return copies if copies.is_dir() else package.with_name(kind)


def names(kind: str) -> list[str]:
    """Examples of a kind: files and folders of files, without its README."""
    return sorted(
        p.name + "/" * p.is_dir() for p in folder(kind).iterdir() if p.name != "README.md"
    )


def files(kind: str, name: str) -> list[Path]:
    """The files of an example, its README first.

    Raises
    ------
    InputError
        If there is no such example; it lists those that there are.
    """
    name = name.rstrip("/")
    if name not in (known.rstrip("/") for known in names(kind)):
        raise InputError(f"there is no example {name!r}; there are {', '.join(names(kind))}")
    found = folder(kind) / name
    inside = [found] if found.is_file() else sorted(p for p in found.iterdir() if p.is_file())
    return sorted(inside, key=lambda p: p.name != "README.md")


def copy(sources: list[Path], target: str) -> list[Path]:
    """Copy files into a folder, made if it is not there; nothing is overwritten."""
    to = local_path(target, "a folder of examples")
    made = [to / p.name for p in sources]
    if there := [str(p) for p in made if p.exists()]:
        raise InputError(f"{', '.join(there)}: there already, and not overwritten")
    try:
        to.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"the folder {to} cannot be made: {error.strerror}") from error
    for source, new in zip(sources, made, strict=True):
        shutil.copy(source, new)  # with its mode: some are scripts
    return made
