"""What identifies the data of a computation, for all that is kept: one meaning everywhere.

In a store it is the checksum of the manifest, which covers every byte.  Of data in memory it is a
checksum of responses, identifiers, groups, weights and covariates.  Lazy data (dask arrays) have no
identity without being computed: the name of a dask array may stand for other content at the next
call.  Where something outlives a computation their content is hashed, in one pass over them; blocks
that a process keeps in memory are those of one computation and never found by another.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from irt_dask.engine.cache import read_block
from irt_dask.engine.checkpoint import Checkpoint
from irt_dask.store.digests import block_digest, responses_digest
from irt_dask.store.responses import Block, Responses
from irt_dask.store.weights import WeightedRef

if TYPE_CHECKING:
    from irt_dask.engine.core import Engine


@dataclass(frozen=True, eq=False)
class LazyBlock:
    """A block of lazy data, under a name that one computation uses."""

    ref: Any
    cache_key: tuple[Any, ...]

    @property
    def index(self) -> int:
        """Number of the block."""
        return int(self.ref.index)

    @property
    def start(self) -> int:
        """Position of the block's first person among all persons."""
        return int(self.ref.start)

    def read(self) -> Block:
        """Compute the block."""
        return self.ref.read()

    def person_ids(self) -> NDArray[Any]:
        """Return the identifiers of the block's persons."""
        return self.ref.person_ids()

    def weights(self) -> NDArray[np.float64] | None:
        """Return the weights of the block's persons, as they were given."""
        return self.ref.weights()

    def groups(self) -> NDArray[np.object_] | None:
        """Return the group labels, None without groups."""
        return self.ref.groups()

    def covariates(self) -> NDArray[np.float64] | None:
        """Return the covariates, None without any."""
        return self.ref.covariates()


def for_one_computation(responses: Responses) -> Responses:
    """Return responses whose blocks, if they are lazy, have names that are never used again."""
    if not responses.lazy:
        return responses
    word = secrets.token_hex(16)
    refs = [LazyBlock(ref, (word, k)) for k, ref in enumerate(responses.refs)]
    return replace(responses, refs=refs)


def _digest(ref: Any) -> str:
    return block_digest(ref.ref if isinstance(ref, WeightedRef) else ref, read_block)


def fingerprint(engine: Engine) -> str:
    """``engine.responses.fingerprint``, computed by the workers: one pass unless it is known."""
    r = engine.responses
    return r.checksum or responses_digest(r, engine.map_refs(_digest))


def identified(engine: Engine) -> Responses:
    """The engine's responses with their fingerprint known."""
    return replace(engine.responses, checksum=fingerprint(engine))


def checkpoint_of(
    engine: Engine, folder: str | Path | None, identity: dict[str, Any]
) -> Checkpoint:
    """Checkpoints of a computation on the engine's data with these options.

    One pass over data that are in no store, unless ``folder`` is None.
    """
    data = None if folder is None else fingerprint(engine)
    return Checkpoint(folder, {**identity, "data": data})
