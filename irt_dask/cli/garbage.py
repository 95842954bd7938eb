"""Garbage is collected seldom while modules are imported, whose objects all stay."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collected_seldom() -> Iterator[None]:
    """Look for cycles after 10^5 new objects, not 700: a sixth of the time of a short command."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
