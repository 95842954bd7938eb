"""Cycles of garbage are looked for seldom: modules are most of a short command's objects, and stay.

Every look goes through all of them; together they took a fifth of the time of a command on a small
file even where they came after 10^5 new objects.
"""

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Look for no cycles while modules are imported, and never again among what they made."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if before:
            gc.enable()


def collect_seldom() -> None:
    """Look for cycles after 200,000 new objects, not 700, and not once more as the process ends."""
    gc.set_threshold(200_000, *gc.get_threshold()[1:])
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)
