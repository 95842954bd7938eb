"""Strings as Arrow has them: bytes side by side, and where each begins."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from irt_dask.arrays import Bytes
from irt_dask.kernels.base.compiled import jit


@jit
def _trim(offsets: NDArray[np.int32], data: Bytes) -> bool:
    for i in range(offsets.size - 1):
        first, stop = offsets[i], offsets[i + 1]
        if first == stop or not 32 < data[first] < 128 or not 32 < data[stop - 1] < 128:
            return True
    return False


def may_need_trimming(offsets: NDArray[np.int32], data: Bytes) -> bool:
    """Whether some string is empty or has something else than visible ASCII at an end."""
    return bool(_trim(offsets, data))
