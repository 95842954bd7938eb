"""Compilation of the kernels: on first use, without the GIL, cached on disk where possible."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a kernel lazily; machine code is cached on disk unless no folder is writable.

    Floating-point rules stay strict (no ``fastmath``): the bits are part of the result.
    """
    try:
        return njit(cache=True, nogil=True)(function)
    except RuntimeError:  # "no locator available": nowhere to keep the compiled code
        return njit(nogil=True)(function)
