"""All of a store; and parts that no public function writes yet: new items, more categories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

import irt_dask as irt
from irt_dask.kernels.responses.layouts import Dense, Sparse, to_dense, to_sparse
from irt_dask.store import StoreWriter
from irt_dask.store.draft import extend


def named(n: int, first: int = 0) -> list[str]:
    """Identifiers of persons."""
    return [f"p{first + i}" for i in range(n)]


def cells(r: irt.Responses) -> np.ndarray:
    """All responses (persons, items), int8."""
    out = np.concatenate([to_dense(r.read_block(k).data).values for k in range(r.n_blocks)])
    assert out.dtype == np.int8
    return out


def person_ids(r: irt.Responses) -> list[str]:
    """Of all persons."""
    return [p for k in range(r.n_blocks) for p in r.person_ids(k)]


def csr_of(y: np.ndarray) -> csr_array:
    """Those observed as entries that are stored: a stored 0 is a wrong answer."""
    at = np.nonzero(y >= 0)
    return csr_array((y[at], at), shape=y.shape)


def both(y: np.ndarray) -> tuple[Dense, Sparse]:
    """The same responses in both layouts."""
    sparse = to_sparse(Dense(y))
    assert isinstance(sparse, Sparse)
    return Dense(y), sparse


def made(
    store: Any, y: np.ndarray, item_id: Any, *, layout: str = "dense", rows: int = 3, **options: Any
) -> irt.Responses:
    """A new store of one part; ``categories=`` as ``from_array`` takes it."""
    with StoreWriter(
        store, item_id=item_id, n_persons=len(y), rows_per_block=rows, layout=layout,
        capacity=rows * y.shape[1], **options,
    ) as writer:  # fmt: skip
        writer.write(y.astype(np.int8), person_id=named(len(y)))
        return writer.commit()


def grown(
    store: str | Path, y: np.ndarray, item_id: Any, *, categories: Any = 2, rows: int = 2
) -> irt.Responses:
    """One more part, whose persons may have seen new items: the last ones of ``item_id``."""
    old = irt.open_responses(store)
    with extend(store) as draft:
        part = draft.part(
            layout=old.layout, n_persons=len(y), n_items=y.shape[1], rows_per_block=rows,
            capacity=rows * y.shape[1],
        )  # fmt: skip
        files = part.create()
        ids = named(len(y), old.n_persons)
        files |= part.write_blocks(0, Dense(y.astype(np.int8)), ids)
        return draft.commit(part, files, item_id=tuple(item_id), categories=categories)
