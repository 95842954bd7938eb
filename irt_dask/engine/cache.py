"""Blocks that a process keeps in memory between rounds: always safe to lose."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, Protocol, TypeVar

import psutil

from irt_dask.store.blocks import Block, BlockRef

#: Share of the memory of the worker (or of what the machine has free) that may hold blocks.
_SHARE = 0.25
#: Seconds for which a look at how much memory there is holds: it takes as long as a small table.
_FRESH = 1.0


class _Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


T = TypeVar("T", bound=_Sized)

_lock = threading.Lock()
_held: OrderedDict[Hashable, _Sized] = OrderedDict()
_size = 0
#: When there was a look at the memory, and what it allowed.
_looked, _allowed = -math.inf, 0.0
#: Held while what it names is made: several threads want the same tables at once.
_making: dict[Hashable, threading.Lock] = {}


def _budget() -> float:
    if "distributed" in sys.modules:
        from distributed import get_worker

        try:
            limit = get_worker().memory_manager.memory_limit
        except (ValueError, AttributeError):  # not on a worker
            limit = None
        if limit:
            return _SHARE * float(limit)
    return _SHARE * float(psutil.virtual_memory().available)


def keep(key: Hashable | None, make: Callable[[], T]) -> T:
    """Return what ``make`` returns, from memory if it was made before and still fits."""
    if key is None:
        return make()
    with _lock:
        own = _making.setdefault(key, threading.Lock())
    try:
        with own:
            with _lock:
                if key in _held:
                    _held.move_to_end(key)
                    return _held[key]  # type: ignore[return-value]
            value = make()
            _hold(key, value)
            return value
    finally:
        with _lock:
            _making.pop(key, None)


def renew(key: Hashable, old: _Sized, new: _Sized) -> None:
    """Keep ``new`` in place of ``old``; if another one is there by now, that stays."""
    _drop(key, old)
    _hold(key, new)


class _Last(NamedTuple):
    """What a slot holds."""

    identity: Hashable
    value: Any

    @property
    def nbytes(self) -> int:
        return int(self.value.nbytes)


def keep_last(slot: Hashable, identity: Hashable, make: Callable[[], T]) -> T:
    """As :func:`keep`, where a new one means that nobody wants the last one any more."""
    while True:
        held = keep(slot, lambda: _Last(identity, make()))
        if held.identity == identity:
            return held.value
        _drop(slot, held)


def _drop(key: Hashable, value: _Sized) -> None:
    global _size
    with _lock:
        if _held.get(key) is value:
            _size -= _held.pop(key).nbytes


def _hold(key: Hashable, value: _Sized) -> None:
    global _size, _looked, _allowed
    with _lock:
        if time.monotonic() > _looked + _FRESH:
            _looked, _allowed = time.monotonic(), _budget()
        if key not in _held and value.nbytes <= _allowed:
            _held[key] = value
            _size += value.nbytes
        while _size > _allowed and _held:
            _size -= _held.popitem(last=False)[1].nbytes


def read_block(ref: BlockRef) -> Block:
    """Read a block, or take it from this process's memory."""
    return keep(ref.cache_key, ref.read)
