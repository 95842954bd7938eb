"""Responses of several categories as right and wrong: views of their blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irt_dask.errors import InputError, listed
from irt_dask.kernels.responses.layouts import Dense, Sparse
from irt_dask.store.blocks import Block, BlockRef, Refs, WrappedRef
from irt_dask.store.categories import BINARY
from irt_dask.store.responses import Responses, sha256
from irt_dask.variables import identifier


@dataclass(frozen=True, eq=False)
class DichotomisedRef(WrappedRef):
    """A block's reference whose block has 1 for codes of at least ``least``, by item, 0 below."""

    least: NDArray[np.int8]
    name: str  # of this view

    @property
    def cache_key(self) -> Any:
        """Identity of the block in this view."""
        key = self.ref.cache_key
        return None if key is None else (*key, self.name)

    def read(self) -> Block:
        """Return the block in two categories."""
        block: Block = self.ref.read()
        data = block.data
        if isinstance(data, Dense):
            right = (data.values >= self.least).astype(np.int8)
            right[data.values < 0] = -1
            return replace(block, data=Dense(right))
        right = (data.values >= self.least[data.indices]).astype(np.int8)
        return replace(block, data=Sparse(data.indptr, data.indices, right, data.n_items))


class _DichotomisedRefs(Refs):
    """References made when asked for."""

    def __init__(self, refs: Sequence[BlockRef], least: NDArray[np.int8], name: str) -> None:
        self.refs, self.least, self.name = refs, least, name

    def __len__(self) -> int:
        return len(self.refs)

    def at(self, k: int) -> DichotomisedRef:
        """Return the reference of block ``k``."""
        return DichotomisedRef(self.refs[k], self.least, self.name)


def dichotomise(responses: Responses, at: int | Mapping[str, int]) -> Responses:
    """See :meth:`irt_dask.Responses.dichotomise`."""
    each = _least(responses, at)
    if not responses.graded:
        return responses
    name = sha256(b"right from", repr(each).encode())
    known = responses.checksum
    return replace(
        responses,
        refs=_DichotomisedRefs(responses.refs, np.array(each, dtype=np.int8), name),
        categories=BINARY,
        checksum=None if known is None else sha256(known.encode(), name.encode()),
        truth=None,  # of the categories as they were
    )


def in_two(responses: Responses, asked: int | Mapping[str, int] | None) -> Responses:
    """The responses as an option or a key ``dichotomise`` asks for them; these if it is None."""
    if asked is None:
        return responses
    try:
        return responses.dichotomise(asked)
    except InputError as error:
        raise InputError(f"dichotomise{str(error).removeprefix('at')}") from None


def _least(responses: Responses, at: Any) -> list[int]:
    """The code from which on a response is right, of each item."""
    of = dict(zip(responses.item_id, responses.n_categories, strict=True))
    if isinstance(at, Mapping):
        given = {identifier(item): code for item, code in at.items()}
        if unknown := [item for item in given if item not in of]:
            raise InputError(f"at= names {len(unknown)} item(s) that do not occur: "
                             f"{listed(unknown, 10)}")  # fmt: skip
        lacking = [item for item, k in of.items() if k > BINARY and item not in given]
        if lacking:
            raise InputError(
                f"at= does not name {len(lacking)} item(s) of more than two categories: "
                f"{listed(lacking, 10)}"
            )
    else:
        given = {item: at for item, k in of.items() if k > BINARY}
    for item, code in given.items():
        whole = isinstance(code, (int, np.integer)) and not isinstance(code, bool)
        if not whole or not 1 <= code < of[item]:
            raise InputError(
                f"at={code!r} for the item {item!r}, which has {of[item]} categories: give a whole "
                f"number from 1 to {of[item] - 1}, the lowest code that counts as right"
            )
    return [int(given.get(item, 1)) for item in of]
