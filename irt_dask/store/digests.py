"""Checksums of content: of single blocks, of all responses, and of options.

Whoever keeps something for later (a checkpoint, a private release, scores, a block in memory) keeps
it under such a checksum of all that it was made from, never under a name.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irt_dask.kernels.responses.layouts import Dense
from irt_dask.store.blocks import Block, BlockRef, WrappedRef
from irt_dask.store.empty_categories import WithoutRef
from irt_dask.store.responses import SAMPLING, Responses, sha256
from irt_dask.store.stored import StoredBlock
from irt_dask.store.weights import UnweightedRef, WeightedRef


def _read(ref: BlockRef) -> Block:
    return ref.read()


def block_digest(ref: BlockRef, read: Callable[[BlockRef], Block] = _read) -> str:
    """Checksum of responses, identifiers, weights, groups and covariates of a block.

    That of a stored block follows from the manifest, without reading the block; it does not change
    when other persons or items are appended: which items there are, whoever uses it has to say
    besides (:func:`responses_digest` does, and scores by the parameters they are made with).
    Others are read, by ``read``.  The same content in another layout, or cut into other blocks,
    has another checksum.
    """
    if isinstance(ref, WithoutRef) or (isinstance(ref, WrappedRef) and ref.adds_only):
        return block_digest(ref.ref, read)
    if isinstance(ref, WeightedRef):  # a scale is that of a method; whom rows stand for is not
        inner = block_digest(ref.ref, read)
        return inner if ref.kind == SAMPLING else sha256(inner.encode(), ref.kind.encode())
    if isinstance(ref, UnweightedRef) and isinstance(ref.ref, StoredBlock):
        return sha256(block_digest(ref.ref).encode(), b"without weights")
    if isinstance(ref, StoredBlock):
        return sha256(*(part.encode() for part in ref.checksums()))
    block = read(ref)
    data = block.data
    arrays: list[NDArray[Any]] = [data.values]
    if not isinstance(data, Dense):
        arrays += [data.indptr, data.indices]
    parts: list[Any] = [f"{a.dtype.str}{a.shape}".encode() for a in arrays]
    parts += [np.ascontiguousarray(a).data for a in arrays]
    for labels in (ref.person_ids(), ref.groups()):
        parts.append(repr(None if labels is None else list(map(str, labels))).encode())
    for numbers in (ref.weights(), ref.covariates()):
        parts.append(b"none" if numbers is None else np.asarray(numbers, dtype=float).tobytes())
    return sha256(*(hashlib.sha256(p).hexdigest().encode() for p in parts))


def earlier_digests(ref: BlockRef) -> list[str]:
    """Checksums that a stored block had before later parts added responses to it."""
    if isinstance(ref, WithoutRef) or (isinstance(ref, WrappedRef) and ref.adds_only):
        return earlier_digests(ref.ref)
    if isinstance(ref, WeightedRef):
        inner = earlier_digests(ref.ref)
        if ref.kind == SAMPLING:
            return inner
        return [sha256(one.encode(), ref.kind.encode()) for one in inner]
    if isinstance(ref, UnweightedRef):
        return [sha256(one.encode(), b"without weights") for one in earlier_digests(ref.ref)]
    return [block_digest(one) for one in ref.earlier()] if isinstance(ref, StoredBlock) else []


def responses_digest(responses: Responses, blocks: Iterable[str]) -> str:
    """Checksum of all responses, from those of their blocks."""
    r = responses
    named: tuple[Any, ...] = (r.n_persons, r.item_id, r.covariate_names, r.weight_kind)
    if r.graded:  # of two categories the checksum is what it was before there were others
        named += (r.n_categories,)
    return digest(("responses", *named, tuple(blocks)))


def digest(content: Any) -> str:
    """Checksum of nested tuples, lists, dicts, dataclasses, arrays and scalars.

    Each enters with its type and size, so that no two contents read alike; what is none of these
    is a TypeError, since its text may leave something out.
    """
    h = hashlib.sha256()
    add(h, content)
    return h.hexdigest()


def add(h: Any, x: Any) -> None:
    """Feed content, as :func:`digest` takes it, to a hash."""
    if isinstance(getattr(x, "digest", None), str):  # what knows its own checksum
        x = x.digest
    if dataclasses.is_dataclass(x):
        x = tuple(getattr(x, f.name) for f in dataclasses.fields(x))
    if isinstance(x, np.generic):
        x = x.item()
    if isinstance(x, (tuple, list)):
        h.update(f"({len(x)}".encode())
        for one in x:
            add(h, one)
    elif isinstance(x, dict):
        h.update(f"{{{len(x)}".encode())
        for name in sorted(x):
            add(h, name)
            add(h, x[name])
    elif isinstance(x, np.ndarray):
        if x.dtype.hasobject:
            raise TypeError("no checksum of an array of objects")
        h.update(f"[{x.dtype.str}{x.shape}".encode())
        h.update(np.ascontiguousarray(x).data)
    elif x is None or isinstance(x, (str, int, float)):
        text = repr(x).encode()
        h.update(f"'{type(x).__name__}{len(text)}".encode() + text)
    else:
        raise TypeError(f"no checksum of {type(x)}")
