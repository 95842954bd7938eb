"""Persons of one group, as responses of their own."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irt_dask.engine import Engine
from irt_dask.errors import InputError
from irt_dask.kernels.responses import layouts
from irt_dask.store import Block, Responses
from irt_dask.store.blocks import BlockRef
from irt_dask.store.responses import sha256

#: Groups that are looked at one by one, each by passes of its own.
_MOST_GROUPS = 200


@dataclass(frozen=True, eq=False)
class GroupBlock(BlockRef):
    """The persons of a block who belong to a group."""

    ref: BlockRef
    label: str
    index: int
    start: int

    def _rows(self) -> NDArray[np.intp]:
        groups = self.ref.groups()
        return np.flatnonzero(np.asarray(groups, dtype=object) == self.label)

    @property
    def cache_key(self) -> tuple[Any, ...] | None:
        """Identity of the block and the group."""
        key = self.ref.cache_key
        return None if key is None else (key, "group", self.label)

    def read(self) -> Block:
        """Return the persons' responses."""
        block, rows = self.ref.read(), self._rows()
        weight = None if block.weight is None else block.weight[rows]
        return Block(self.index, self.start, layouts.take(block.data, rows), weight)

    def column(self, name: str) -> NDArray[Any] | None:
        """Return a variable of the persons, None without it."""
        column = self.ref.column(name)
        return None if column is None else column[self._rows()]


def _count(ref: Any) -> Counter[str]:
    return Counter(ref.groups())


def labels_of(responses: Responses, client: Any) -> tuple[str, ...]:
    """Labels of the groups in alphabetical order; one pass over the labels."""
    with Engine(responses, client=client, progress=False, graded=True) as engine:
        found = engine.map_refs(_count)
    labels = tuple(sorted({str(k) for c in found for k in c}))
    if len(labels) > _MOST_GROUPS:
        raise InputError(
            f"person_group has {len(labels)} labels, the first {', '.join(labels[:3])}; at most "
            f"{_MOST_GROUPS} groups are looked at one by one"
        )
    return labels


def of_groups(
    responses: Responses, labels: tuple[str, ...], client: Any, progress: Any
) -> list[Responses]:
    """Responses of the persons of each label, in their order; reads the labels of all blocks."""
    if not responses.has_groups:
        raise InputError(
            "the responses have no groups of persons; give persons= with a column group to "
            "from_array or ingest, or say by which covariate: select(groups=NAME)"
        )
    with Engine(responses, client=client, progress=progress, stage="groups", graded=True) as engine:
        found = engine.map_refs(_count)
    out, of_all = [], responses.checksum
    for label in labels:
        sizes = [c[label] for c in found]
        if not any(sizes):
            known = ", ".join(sorted({str(k) for c in found for k in c})[:20])
            raise InputError(f"nobody belongs to group {label!r}; the groups are {known}")
        chosen = [k for k, n in enumerate(sizes) if n]
        starts = np.cumsum([0, *(sizes[k] for k in chosen)])
        refs = [
            GroupBlock(responses.refs[k], label, i, int(starts[i])) for i, k in enumerate(chosen)
        ]
        out.append(
            replace(
                responses,
                refs=refs,
                n_persons=int(starts[-1]),
                checksum=of_all and sha256(f"{of_all} group {label}".encode()),
                truth=None,
            )
        )
    return out
