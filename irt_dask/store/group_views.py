"""Persons in groups by a covariate, as if they had been read so: a view of their blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irt_dask.errors import InputError, listed
from irt_dask.store.blocks import Block, BlockRef, Refs, WrappedRef
from irt_dask.store.labels import by_number
from irt_dask.store.responses import Responses, sha256

#: The group of those of whom the covariate is not known.
MISSING = "missing"


@dataclass(frozen=True, eq=False)
class ByCovariateRef(WrappedRef):
    """A block's reference whose persons are in groups by the covariate at ``place``."""

    ref: Any
    name: str
    place: int
    labels: dict[float, str] | None  # by number; None: whole numbers

    @property
    def cache_key(self) -> tuple[Any, ...] | None:
        """Identity of the block with these groups."""
        key = self.ref.cache_key
        return None if key is None else (key, "groups by", self.name)

    def read(self) -> Block:
        """Return the block, see :class:`BlockRef`."""
        block: Block = self.ref.read()
        return block

    def column(self, name: str) -> NDArray[Any] | None:
        """Return a variable of the block's persons; groups are those of the covariate."""
        if name != "person_group":
            return super().column(name)
        x = np.asarray(self.ref.covariates()[:, self.place])
        distinct, which = np.unique(x, return_inverse=True)
        return np.array([self._label(v) for v in distinct], dtype=object)[which]

    def _label(self, value: float) -> str:
        if np.isnan(value):
            return MISSING
        if self.labels is not None:
            return self.labels[value]
        if not float(value).is_integer():
            raise InputError(
                f"groups={self.name!r}: a person has the value {value!r}, and groups are labels or "
                f"whole numbers; make classes of it first"
            )
        return str(int(value))


@dataclass(frozen=True, eq=False)
class _Refs(Refs):
    """The blocks of a view, made when asked for."""

    refs: Sequence[BlockRef]
    name: str
    place: int
    labels: dict[float, str] | None

    def __len__(self) -> int:
        return len(self.refs)

    def at(self, k: int) -> ByCovariateRef:
        """Return the reference of block ``k``."""
        return ByCovariateRef(self.refs[k], self.name, self.place, self.labels)


def by_covariate(responses: Responses, name: str) -> Responses:
    """See ``groups`` of :meth:`irt_dask.Responses.select`."""
    known = responses.covariate_names
    if name not in known:
        raise InputError(
            f"groups={name!r} is no covariate of the persons; they have {listed(known) or 'none'}"
        )
    labels = responses.covariate_labels.get(name)
    if labels is not None and MISSING in labels:
        raise InputError(
            f"groups={name!r} has the label {MISSING!r}, which is what those are called of whom "
            f"nothing is known; call it otherwise"
        )
    numbers = None if labels is None else by_number(labels)
    checksum = responses.checksum
    return replace(
        responses,
        refs=_Refs(responses.refs, name, known.index(name), numbers),
        has_groups=True,
        checksum=None if checksum is None else sha256(f"{checksum} groups by {name}".encode()),
    )
