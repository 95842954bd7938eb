"""Parts of stores that no public function writes yet: with new items, with more categories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import irt_dask as irt
from irt_dask.kernels.responses.layouts import Dense
from irt_dask.store import StoreWriter
from irt_dask.store.draft import extend


def named(n: int, first: int = 0) -> list[str]:
    """Identifiers of persons."""
    return [f"p{first + i}" for i in range(n)]


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
