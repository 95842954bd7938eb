"""Responses whose items have empty categories by a fit or a bank: a response there is an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irt_dask.arrays import Bools
from irt_dask.errors import InputError
from irt_dask.kernels.responses.layouts import Dense
from irt_dask.store.blocks import Block, BlockRef, Refs, WrappedRef
from irt_dask.store.categories import MOST
from irt_dask.store.responses import Responses, sha256


@dataclass(frozen=True, eq=False)
class WithoutRef(WrappedRef):
    """A block's reference that reads it as it is, and stops at a code that an item does not have.

    ``at`` are the items with such codes, ``empty`` which codes those are, (items at, codes).
    """

    at: NDArray[np.int64]
    empty: Bools
    item_id: tuple[str, ...]  # of the items at
    what: str

    @property
    def cache_key(self) -> Any:
        """Identity of the block, once its codes are known to be right."""
        key = self.ref.cache_key
        name = sha256(self.at, self.empty)
        return None if key is None else (key, "without", name)

    def read(self) -> Block:
        """Return the block; InputError at a response that has probability 0."""
        block: Block = self.ref.read()
        data = block.data
        for j, item, empty in zip(self.at, self.item_id, self.empty, strict=True):
            codes = data.values[:, j] if isinstance(data, Dense) else data.values[data.indices == j]
            n = np.bincount(codes[codes >= 0], minlength=MOST)
            wrong = np.flatnonzero((n > 0) & empty)
            if wrong.size:
                raise InputError(
                    f"item {item} has {n[wrong[0]]} response(s) of category {wrong[0]} in block "
                    f"{block.index}, and by {self.what} that category is empty: nobody had it when "
                    f"the item was calibrated, and its probability is 0; calibrate the item anew, "
                    f"leave it out, or recode these responses"
                )
        return block


class _WithoutRefs(Refs):
    """References made when asked for."""

    def __init__(self, refs: Sequence[BlockRef], *how: Any) -> None:
        self.refs, self.how = refs, how

    def __len__(self) -> int:
        return len(self.refs)

    def at(self, k: int) -> WithoutRef:
        """Return the reference of block ``k``."""
        return WithoutRef(self.refs[k], *self.how)


def without(responses: Responses, empty: Mapping[str, Sequence[int]], what: str) -> Responses:
    """The same responses, which stop where they are read if items have some of these codes."""
    at = [j for j, item in enumerate(responses.item_id) if item in empty]
    if not at:
        return responses
    ids = tuple(responses.item_id[j] for j in at)
    table = np.zeros((len(at), MOST), dtype=bool)
    for row, item in zip(table, ids, strict=True):
        row[list(empty[item])] = True
    return replace(responses, refs=_WithoutRefs(responses.refs, np.array(at), table, ids, what))
