"""What identifies the data of a computation, for all that is kept: one meaning everywhere.

In a store it is the checksum of the manifest, which covers every byte.  Of data in memory it is a
checksum of responses, identifiers, groups, weights and covariates.  Lazy data (dask arrays) have no
identity without being computed: the name of a dask array may stand for other content at the next
call.  Where something outlives a computation their content is hashed, in one pass over them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from irt_dask.engine.cache import read_block
from irt_dask.engine.checkpoint import Checkpoint
from irt_dask.engine.core import Engine
from irt_dask.store.digests import block_digest, responses_digest
from irt_dask.store.responses import Responses
from irt_dask.store.weights import WeightedRef


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
