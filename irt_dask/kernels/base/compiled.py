"""Compilation of the kernels: on first use, without the GIL, kept on disk where possible.

numba's own cache notices an edit in a function's file, but none in the files of what it calls, and
would run the old code.  Here machine code lies in a folder named after a digest of all sources that
kernels are made of: beside the package, else in the user's cache (``NUMBA_CACHE_DIR`` comes first).
"""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba.core import caching, config
from numba.core.runtime import rtsys
from numba.misc.appdirs import AppDirs

from irt_dask.errors import InputError

#: Compiled functions and whatever they import: constants become part of the machine code.
SOURCES = ("kernels/**/*.py", "curves/*.py", "arrays.py", "errors.py", "ingest/**/row_grouping.py")
#: Folders of other sources (another branch, another version) that are kept, the last used.
KEPT = 4
PREFIX = "irt_dask-kernels-"

_package = Path(__file__).resolve().parents[2]


def _stamp(files: list[Path]) -> list[tuple[int, int]]:
    """Time and size of files."""
    return [(s.st_mtime_ns, s.st_size) for s in map(os.stat, files)]


def _digest(files: list[Path]) -> str:
    """Digest of the sources and of what makes machine code of them; numba adds the processor."""
    h = hashlib.sha256(f"numba {numba.__version__}, numpy {np.__version__}".encode())
    for file in files:
        code = file.read_bytes()
        h.update(f"\n{file.relative_to(_package).as_posix()} {len(code)}\n".encode())
        h.update(code)
    return h.hexdigest()[:20]


def _unchanged() -> bool:
    """Whether the sources are those that this process may have imported.

    A process whose sources were edited since it began may have either: it reads and keeps no
    machine code.
    """
    try:
        return _stamp(_files) == _imported
    except OSError:  # one is gone, as in the midst of an upgrade
        return False


# Once for a process, when it imports its first kernel.
_files = sorted(file for pattern in SOURCES for file in _package.glob(pattern))
_imported = _stamp(_files)
DIGEST = _digest(_files)


@cache
def folder() -> Path | None:
    """Return where these sources' machine code is kept; None: nowhere may be written."""
    beside = _package / "kernels" / "__pycache__"
    of_user = AppDirs(appname="numba", appauthor=False).user_cache_dir
    for place in (config.CACHE_DIR, beside, of_user):
        if place and _files:  # an archive has no files
            found = Path(place) / f"{PREFIX}{DIGEST}"
            with suppress(OSError):
                found.parent.mkdir(parents=True, exist_ok=True)
                if there := found.is_dir():
                    os.utime(found)  # last used now
                tempfile.TemporaryFile(dir=found if there else found.parent).close()
                return found
    return None


class _Locator(caching._CacheLocator):
    def __init__(self, function: Any, file: str) -> None:
        self._py_file = file  # for numba's messages
        self._name = f"{function.__module__}-{function.__code__.co_firstlineno}"

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _Locator:
        return cls(py_func, py_file)

    def get_cache_path(self) -> str:
        return str(folder())

    def get_source_stamp(self) -> str:
        return DIGEST

    def get_disambiguator(self) -> str:
        return self._name

    def ensure_cache_path(self) -> None:
        """Make the folder, and remove those that were used least recently."""
        path = Path(self.get_cache_path())
        if path.is_dir():
            return
        others = sorted(path.parent.glob(f"{PREFIX}*"), key=os.path.getmtime)
        path.mkdir(exist_ok=True)
        for old in others[: -KEPT or None]:
            shutil.rmtree(old, ignore_errors=True)  # whoever runs it compiles again


class _Implementation(caching.CompileResultCacheImpl):
    _locator_classes = (_Locator,)


class _Entries(caching.IndexDataCacheFile):
    """A file for each signature and processor, named after them and holding their names.

    Each is written under another name and renamed, so that whoever opens it finds all of the right
    code, however many processes write at once (threads take turns, by numba's lock).  numba's own
    index numbers the files: two processes can take the same number for different signatures, and
    all later ones then find the wrong code.
    """

    def _file(self, key: Any) -> str:
        name = hashlib.sha256(repr(key).encode()).hexdigest()[:20]
        return f"{Path(self._index_name).stem}.{name}.nbc"

    def load(self, key: Any) -> Any:
        try:
            stored, code = self._load_data(self._file(key))
        except (OSError, EOFError, pickle.UnpicklingError):  # not there, or cut off by a crash
            return None
        return code if stored == key else None

    def save(self, key: Any, data: Any) -> None:
        self._save_data(self._file(key), (key, data))


class _KernelCache(caching.FunctionCache):
    _impl_class = _Implementation

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self._cache_file = _Entries(self.cache_path, self._impl.filename_base, DIGEST)

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        # The digest again, for folders that NUMBA_CACHE_LOCATOR_CLASSES chooses.
        return (DIGEST, *super()._index_key(sig, codegen))

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        if not _unchanged():
            return None
        # numba's own method makes ready for compiling first, which takes longer than a small fit;
        # where nothing is found, its compiler does so itself.  What runs needs its runtime alone.
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)

    def save_overload(self, sig: Any, data: Any) -> None:
        if _unchanged():
            with suppress(OSError):  # a full disk costs the next process time, not this one its run
                super().save_overload(sig, data)


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a kernel lazily; machine code is kept on disk unless no folder is writable.

    Floating-point rules stay strict (no ``fastmath``): the bits are part of the result.  Raises
    InputError where the environment forbids compiling: some kernels are machine instructions.
    """
    if config.DISABLE_JIT:
        raise InputError(
            "NUMBA_DISABLE_JIT is set in the environment, and irt_dask has no kernels that are not "
            "compiled; unset it, for the workers too"
        )
    kernel = numba.njit(nogil=True)(function)
    if folder() is not None:
        kernel._cache = _KernelCache(function)
    return kernel


def jit_inline(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a step of a hot loop into the loop itself; LLVM leaves some of them outside."""
    return numba.njit(nogil=True, inline="always")(function)
