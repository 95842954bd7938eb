"""Checksums of the content of single blocks, which do not change when persons are appended."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from irt_dask.kernels.layouts import Dense
from irt_dask.store.responses import SAMPLING, BlockRef, sha256
from irt_dask.store.stored import StoredBlock
from irt_dask.store.weights import WeightedRef


def block_digest(ref: BlockRef) -> str:
    """Checksum of responses, identifiers, weights, groups and covariates of a block.

    That of a stored block follows from the manifest, without reading the block; others are read.
    The same content in another layout, or cut into other blocks, has another checksum.
    """
    if isinstance(ref, WeightedRef):  # a scale is that of a method; whom rows stand for is not
        inner = block_digest(ref.ref)
        return inner if ref.kind == SAMPLING else sha256(inner.encode(), ref.kind.encode())
    if isinstance(ref, StoredBlock):
        return sha256(*(part.encode() for part in ref.checksums()))
    block = ref.read()
    data = block.data
    arrays: list[NDArray[Any]] = [data.values]
    if not isinstance(data, Dense):
        arrays += [data.indptr, data.indices]
    parts = [f"{a.dtype.str}{a.shape}".encode() for a in arrays]
    parts += [np.ascontiguousarray(a).tobytes() for a in arrays]
    for labels in (ref.person_ids(), ref.groups()):
        parts.append(repr(None if labels is None else list(map(str, labels))).encode())
    for numbers in (block.weight, ref.covariates()):
        parts.append(b"none" if numbers is None else np.asarray(numbers, dtype=float).tobytes())
    return sha256(*(sha256(p).encode() for p in parts))
