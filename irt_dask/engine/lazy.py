"""Lazy data: blocks that a process keeps in memory are those of one computation."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from typing import Any

from irt_dask.store.blocks import Block, WrappedRef
from irt_dask.store.responses import Responses


@dataclass(frozen=True, eq=False)
class LazyBlock(WrappedRef):
    """A block of lazy data, under a name that one computation uses."""

    ref: Any
    cache_key: tuple[Any, ...]

    def read(self) -> Block:
        """Compute the block."""
        return self.ref.read()


def for_one_computation(responses: Responses) -> Responses:
    """Return responses whose blocks, if they are lazy, have names that are never used again."""
    if not responses.lazy:
        return responses
    word = secrets.token_hex(16)
    refs = [LazyBlock(ref, (word, k)) for k, ref in enumerate(responses.refs)]
    return replace(responses, refs=refs)
