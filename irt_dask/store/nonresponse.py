"""Why there is no response: omitted or not reached, as a store remembers it, and how it is read.

Blocks of a store hold codes of their own for both, above those of all categories, where the files
said so.  Nothing but this room and ingest sees them: a block that is read has "not observed" or
"wrong" there, as the user wants it, which may differ between a calibration and its scores.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irt_dask.errors import InputError
from irt_dask.kernels.responses.layouts import Dense, Layout, Sparse
from irt_dask.store.categories import NONRESPONSE
from irt_dask.store.responses import Responses, sha256

#: What a block has where a response was omitted or not reached, by the user's word.
TREATMENTS = {"missing": -1, "wrong": 0}
#: Codes that are read for (omitted, not reached).
Treated = tuple[int, int]
MISSING: Treated = (-1, -1)


def treated(data: Layout, to: Treated) -> Layout:
    """A block as it is read."""
    codes = np.arange(-1, max(NONRESPONSE.values()) + 1, dtype=np.int8)
    codes[[code + 1 for code in NONRESPONSE.values()]] = to
    values = codes[data.values + 1]
    if isinstance(data, Dense):
        return Dense(values)
    seen = values >= 0
    if seen.all():
        return Sparse(data.indptr, data.indices, values, data.n_items)
    kept = np.concatenate([[0], np.cumsum(seen)]).astype(data.indptr.dtype)
    return Sparse(kept[data.indptr], data.indices[seen], values[seen], data.n_items)


def in_categories(codes: NDArray[Any]) -> NDArray[np.bool_]:
    """Which codes of a store are none of these."""
    return ~np.isin(codes, [*NONRESPONSE.values()])


def says_nonresponse(responses: Responses) -> bool:
    """Whether an opened store says which responses were omitted or not reached."""
    return bool(getattr(responses.refs, "marked", False))


def select(responses: Responses, omitted: str | None, not_reached: str | None) -> Responses:
    """See :meth:`irt_dask.Responses.select`."""
    from irt_dask.store.stored import StoredBlocks

    for name, word in (("omitted", omitted), ("not_reached", not_reached)):
        if word is not None and word not in TREATMENTS:
            raise InputError(
                f"{name}={word!r} is not available; choose one of {', '.join(TREATMENTS)}"
            )
    refs = responses.refs
    if not isinstance(refs, StoredBlocks):
        raise InputError(
            "omitted= and not_reached= are for an opened store; say them before items, persons or "
            "categories are selected"
        )
    if not refs.marked:
        raise InputError(
            f"the store {responses.path} does not say what was omitted or not reached; its "
            f"files have to be ingested with recode={{'9': 'omitted', '8': 'not reached'}}, or "
            f"--recode 9=omitted, whatever they have for it"
        )
    now = [was if word is None else TREATMENTS[word]
           for was, word in zip(refs.treated, (omitted, not_reached), strict=True)]  # fmt: skip
    to = (now[0], now[1])
    if to == refs.treated:
        return responses
    name = sha256(refs.checksum.encode(), b"nonresponse", repr(to).encode())
    return replace(
        responses, refs=refs.read_as(to), checksum=refs.checksum if to == MISSING else name
    )
