"""Groups of persons by number, for methods whose sums are by group."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irt_dask.engine import Engine
from irt_dask.errors import InputError
from irt_dask.store import Block, Responses
from irt_dask.store.blocks import WrappedRef

#: More groups than this are not groups: every one has parameters of its own.
MOST_GROUPS = 1000


@dataclasses.dataclass(frozen=True)
class GroupedRef(WrappedRef):
    """A block's reference whose block knows the groups of its persons."""

    ref: Any
    labels: tuple[str, ...]

    @property
    def cache_key(self) -> tuple[Any, ...] | None:
        """Identity of the block with its groups."""
        key = self.ref.cache_key
        return None if key is None else (key, "grouped", self.labels)

    def read(self) -> Block:
        """Return the block, groups included."""
        group = np.searchsorted(np.array(self.labels), _labels(self.ref))
        return dataclasses.replace(self.ref.read(), group=group.astype(np.int64))


def _labels(ref: Any) -> NDArray[np.str_]:
    labels = ref.groups()
    assert labels is not None
    return np.asarray(labels).astype(str)


def _distinct(ref: Any) -> list[str]:
    return [str(x) for x in np.unique(_labels(ref))]


def grouped(responses: Responses, client: Any) -> tuple[Responses, tuple[str, ...]]:
    """Return responses whose blocks know their groups, and the labels in order.

    One pass over the labels; the driver holds those that differ.
    """
    with Engine(responses, client=client, progress=False, graded=True) as engine:  # labels alone
        found = sorted({label for part in engine.map_refs(_distinct) for label in part})
    if len(found) > MOST_GROUPS:
        raise InputError(
            f"person_group has {len(found)} labels, the first {', '.join(found[:3])}; at most "
            f"{MOST_GROUPS} groups can be told apart"
        )
    labels = tuple(found)
    refs = [GroupedRef(ref, labels) for ref in responses.refs]
    return dataclasses.replace(responses, refs=refs), labels
