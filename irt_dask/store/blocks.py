"""The block of persons that kernels see, and the references that travel to workers instead."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.kernels.responses.layouts import Layout


@dataclass(frozen=True)
class Block:
    """Consecutive persons with all items, as it lies in a worker's memory.

    ``group`` and ``unit`` hold the numbers of each person's group and sampling unit, and ``design``
    the person's terms of a regression, for methods that ask for them.  ``times`` says how many
    persons each row stands for, in methods, if the weights are frequencies.
    """

    index: int
    start: int
    data: Layout
    weight: Floats | None = None
    group: Ints | None = None
    times: Ints | None = None
    unit: Ints | None = None
    design: NDArray[np.float32] | None = None

    @property
    def n_persons(self) -> int:
        """Number of persons in the block."""
        return self.data.shape[0]

    @property
    def nbytes(self) -> int:
        """Memory held, bytes."""
        more = (self.weight, self.group, self.times, self.unit, self.design)
        return self.data.nbytes + sum(x.nbytes for x in more if x is not None)

    def weights(self) -> Floats:
        """Weight of each person; 1 where none were given."""
        return np.ones(self.n_persons) if self.weight is None else self.weight

    def by_bits(self) -> Iterator[tuple[int, Bools]]:
        """Sets of rows and how often each counts: one for each bit of frequency weights."""
        if self.times is None:
            yield 1, np.ones(self.n_persons, dtype=bool)
            return
        for bit in range(int(self.times.max(initial=0)).bit_length()):
            yield 1 << bit, (self.times >> bit) & 1 == 1


class BlockRef(ABC):
    """What travels to a worker instead of a block: small, picklable, readable there."""

    if TYPE_CHECKING:  # fields or properties of whoever inherits

        @property
        @abstractmethod
        def index(self) -> int:
            """Number of the block."""

        @property
        @abstractmethod
        def start(self) -> int:
            """Position of the block's first person among all persons."""

        @property
        @abstractmethod
        def cache_key(self) -> tuple[Any, ...] | None:
            """Identity under which a worker may keep the block, None if it is in memory already."""

    @abstractmethod
    def read(self) -> Block:
        """Return the block, every byte checked."""

    @abstractmethod
    def column(self, name: str) -> NDArray[Any] | None:
        """Return a variable of the block's persons as it was given, None where there is none.

        The name is "person_id", "person_weight", "person_group" or "person_covariate".
        """

    def person_ids(self) -> NDArray[Any]:
        """Return the identifiers of the block's persons, as text or as objects."""
        ids = self.column("person_id")
        assert ids is not None
        return ids

    def weights(self) -> Floats | None:
        """Return the weights of the block's persons as they were given, None without any."""
        return self.column("person_weight")

    def groups(self) -> NDArray[np.object_] | None:
        """Return the group labels of the block's persons, None without groups."""
        return self.column("person_group")

    def covariates(self) -> Floats | None:
        """Return the covariates of the block's persons (rows, covariates), None without any."""
        return self.column("person_covariate")


@dataclass(frozen=True, eq=False)
class WrappedRef(BlockRef):
    """A reference to a block that is another one's, ``ref``, but for what is said otherwise."""

    ref: Any
    #: Whether all that it says otherwise follows from the block and from what is said of persons.
    adds_only: ClassVar[bool] = False

    @property
    def index(self) -> int:
        """Number of the block."""
        return int(self.ref.index)

    @property
    def start(self) -> int:
        """Position of the block's first person among all persons."""
        return int(self.ref.start)

    def column(self, name: str) -> NDArray[Any] | None:
        """Return a variable of the block's persons, see :class:`BlockRef`."""
        found: NDArray[Any] | None = self.ref.column(name)
        return found


class Refs(Sequence[Any]):
    """References made when asked for: a list of 10^5 blocks is still small."""

    @abstractmethod
    def at(self, k: int) -> BlockRef:
        """Return the reference of block ``k``."""

    def __getitem__(self, k: int | slice) -> Any:
        if isinstance(k, slice):
            return [self[i] for i in range(*k.indices(len(self)))]
        if not 0 <= k < len(self):
            raise IndexError(f"block {k} of {len(self)}")
        return self.at(k)
