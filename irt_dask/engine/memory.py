"""How a worker process treats memory that it frees."""

from __future__ import annotations

import ctypes
import functools

import psutil

from irt_dask.errors import TooLargeError

#: Parameters of glibc's mallopt, and the bytes that they are set to.
_TRIM_THRESHOLD, _TRIM = -1, 64 << 20
_MMAP_THRESHOLD, _MMAP = -3, 32 << 20
#: Bytes that are taken without a look at what there is.
_LITTLE = 1 << 30


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


def refuse_beyond_memory(needed: float, what: str) -> None:
    """Stop before work that needs so many bytes in this process, if it may not take them."""
    if needed <= _LITTLE:
        return
    from distributed.system import MEMORY_LIMIT  # that of a container counts

    own = psutil.Process().memory_info().rss
    free = min(psutil.virtual_memory().available, MEMORY_LIMIT - own)
    if needed > free:
        raise TooLargeError(
            f"{what} takes about {needed / 2**30:.1f} GiB, and this process may take "
            f"{free / 2**30:.1f} GiB more; use a machine with more memory, or fewer items at a time"
        )
