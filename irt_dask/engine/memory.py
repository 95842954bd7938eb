"""How a worker process treats memory that it frees."""

from __future__ import annotations

import ctypes
import functools

#: Parameters of glibc's mallopt, and the bytes that they are set to.
_TRIM_THRESHOLD, _TRIM = -1, 64 << 20
_MMAP_THRESHOLD, _MMAP = -3, 32 << 20


@functools.cache
def keep_freed_memory() -> None:
    """Let this process keep up to 64 MB a thread that it frees, for arrays that follow.

    Dask's nannies have workers give back all but 64 kB, and arrays above 128 kB at once.  The
    arrays of the next step then come from the system again, page by page, each filled with zeros:
    that can take longer than the step.  Does nothing where the C library is not glibc.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(_TRIM_THRESHOLD, _TRIM)
    mallopt(_MMAP_THRESHOLD, _MMAP)
