"""One BLAS and OpenMP thread in every process that computes, the caller's included.

OpenBLAS gives other bits on another number of threads; the tasks of a cluster share the cores
between themselves anyway.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dask.system import cpu_count
from threadpoolctl import ThreadpoolController


def n_cores() -> int:
    """Cores that this process may use; a container's quota counts."""
    return cpu_count()


_lock = threading.Lock()
_depth = 0
_limits: Any = None
#: What was found in this process, when it had so many modules: looking takes 2 ms, a task's worth.
_found: tuple[int, ThreadpoolController] | None = None


def _controller() -> ThreadpoolController:
    """Libraries with threads of their own; they come with modules: new ones, another look."""
    global _found
    n = len(sys.modules)
    if _found is None or _found[0] != n:
        _found = n, ThreadpoolController()
    return _found[1]


@contextmanager
def single_threaded() -> Iterator[None]:
    """Hold BLAS and OpenMP to one thread; the last to leave restores what was set before."""
    global _depth, _limits
    with _lock:
        if _depth == 0:
            _limits = _controller().limit(limits=1)
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                _limits.restore_original_limits()
                _limits = None
