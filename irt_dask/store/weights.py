"""Person weights: their kinds, their sum without rounding, and the scale that methods see.

Sampling weights say how many persons of the population somebody stands for, up to a factor that
nobody knows: they are divided by their mean.  Frequency weights count equal persons: whole numbers,
taken as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irt_dask.arrays import Floats
from irt_dask.errors import InputError
from irt_dask.store.blocks import Block, BlockRef, Refs, WrappedRef
from irt_dask.store.responses import FREQUENCY, SAMPLING, Responses, sha256

#: Every double is a whole multiple of 2^-_UNIT_BITS.
_UNIT_BITS = 1126
_LOW_BITS = 26
#: Bits of weights that methods see.
_DIGITS = 32
#: Sampling weights next to their mean: beyond, sums of 64 bits do not hold both.
_LARGEST, _SMALLEST = 2.0**20, 2.0**-40
#: Persons that whole numbers may count: doubles hold every one of them.
_MOST = 1 << 53


def check_kind(kind: str) -> str:
    """Return the kind; InputError if there is none of this name."""
    if kind not in (SAMPLING, FREQUENCY):
        raise InputError(
            f"weight_kind={kind!r} is unknown; say 'sampling' (persons of a sample with unequal "
            f"probabilities) or 'frequency' (how many persons a row stands for)"
        )
    return kind


class Sums(NamedTuple):
    """Persons, their weights' exact sum in multiples of ``2^-_UNIT_BITS``, largest, smallest."""

    n: int
    total: int
    largest: float
    smallest: float

    @classmethod
    def of(cls, weight: Floats) -> Sums:
        """Add up the weights of some persons, finite and positive."""
        mantissa, exponent = np.frexp(weight)
        digits, total = (mantissa * 2.0**53).astype(np.int64), 0
        for e in np.unique(exponent):
            mine = digits[exponent == e]
            low = int((mine & ((1 << _LOW_BITS) - 1)).sum())
            whole = (int((mine >> _LOW_BITS).sum()) << _LOW_BITS) + low
            total += whole << (int(e) - 53 + _UNIT_BITS)
        return cls(weight.size, total, float(weight.max()), float(weight.min()))

    def plus(self, other: Sums) -> Sums:
        """These persons and others: the same whatever the order and the grouping."""
        return Sums(
            self.n + other.n,
            self.total + other.total,
            max(self.largest, other.largest),
            min(self.smallest, other.smallest),
        )

    @property
    def mean(self) -> float:
        """Mean weight, rounded once."""
        return self.total / (self.n << _UNIT_BITS)

    @property
    def n_counted(self) -> int:
        """Sum of frequency weights."""
        return self.total >> _UNIT_BITS

    @property
    def nbytes(self) -> int:
        """Memory held, bytes."""
        return 256


def checked(sums: Sums, kind: str) -> Sums:
    """Refuse weights that sums cannot hold side by side.

    Raises
    ------
    InputError
        Sampling weights of which one is more than 2^20 times the mean or less than 2^-40 times it;
        frequency weights of more than 2^53 persons.
    """
    if kind == FREQUENCY:
        if sums.n_counted > _MOST:
            raise InputError(
                f"the frequency weights count {sums.n_counted} persons; at most "
                f"{_MOST} can be counted"
            )
    elif sums.largest / sums.mean > _LARGEST or sums.smallest / sums.mean < _SMALLEST:
        raise InputError(
            f"person weights from {sums.smallest:.3g} to {sums.largest:.3g} with mean "
            f"{sums.mean:.3g}: a weight may be 2^20 times the mean at most and 2^-40 times at "
            f"least; trim the weights, or leave such persons out"
        )
    return sums


def relative(weight: Floats, mean: float) -> Floats:
    """Weights by their mean, with 32 significant bits.

    Two sets of weights that differ by a factor differ in last bits then, which iterations would
    amplify; rounded they are the same.
    """
    mantissa, exponent = np.frexp(weight / mean)
    return np.ldexp(np.rint(np.ldexp(mantissa, _DIGITS)), exponent - _DIGITS)


def refused(weight: Floats, kind: str) -> NDArray[np.intp]:
    """Return the persons whose weight is none: not finite, not positive, or no whole count."""
    bad = ~(np.isfinite(weight) & (weight > 0.0))
    if kind == FREQUENCY:
        bad |= weight != np.rint(weight)
    return np.flatnonzero(bad)


def rule(kind: str) -> str:
    """What a weight must be, for messages."""
    if kind == FREQUENCY:
        return "a frequency weight is a whole number of at least 1"
    return "a weight is a finite number above 0"


# --- the scale that methods see -------------------------------------------------------------------


@dataclass(frozen=True)
class WeightedRef(WrappedRef):
    """A block's reference whose block has weights on the scale that methods use.

    Sampling weights are divided by ``mean``; frequency weights say that they count persons.
    """

    ref: Any
    kind: str
    mean: float

    @property
    def cache_key(self) -> Any:
        """Identity of the block with its weights on this scale."""
        key = self.ref.cache_key
        return None if key is None else (*key, self.kind, self.mean)

    def read(self) -> Block:
        """Return the block, weights on their scale."""
        block: Block = self.ref.read()
        assert block.weight is not None
        if self.kind == FREQUENCY:
            return replace(block, times=block.weight.astype(np.int64))
        return replace(block, weight=relative(block.weight, self.mean))


@dataclass(frozen=True, eq=False)
class UnweightedRef(WrappedRef):
    """A block's reference whose block has no weights."""

    @property
    def cache_key(self) -> Any:
        """Identity of the block without its weights."""
        key = self.ref.cache_key
        return None if key is None else (*key, "without weights")

    def read(self) -> Block:
        """Return the block, without weights."""
        block: Block = self.ref.read()
        return replace(block, weight=None, times=None)

    def column(self, name: str) -> NDArray[Any] | None:
        """Return a variable of the block's persons, who have no weights."""
        return None if name == "person_weight" else super().column(name)


class _UnweightedRefs(Refs):
    """References made when asked for."""

    def __init__(self, refs: Sequence[BlockRef]) -> None:
        self.refs = refs

    def __len__(self) -> int:
        return len(self.refs)

    def at(self, k: int) -> UnweightedRef:
        """Return the reference of block ``k``."""
        return UnweightedRef(self.refs[k])


def without(responses: Responses) -> Responses:
    """Return the responses as if nobody had a weight."""
    if responses.max_weight is None:
        return responses
    known = responses.checksum
    return replace(
        responses,
        refs=_UnweightedRefs(responses.refs),
        max_weight=None,
        weight_kind=SAMPLING,
        checksum=None if known is None else sha256(known.encode(), b"without weights"),
    )


class _WeightedRefs(Refs):
    """References made when asked for."""

    def __init__(self, refs: Sequence[BlockRef], kind: str, mean: float) -> None:
        self.refs, self.kind, self.mean = refs, kind, mean

    def __len__(self) -> int:
        return len(self.refs)

    def at(self, k: int) -> WeightedRef:
        """Return the reference of block ``k``."""
        return WeightedRef(self.refs[k], self.kind, self.mean)


def on_scale(responses: Responses, sums: Sums) -> Responses:
    """Return the responses with weights as methods use them."""
    mean = 1.0 if responses.weight_kind == FREQUENCY else sums.mean
    refs = _WeightedRefs(responses.refs, responses.weight_kind, mean)
    largest = float(relative(np.array([sums.largest]), mean)[0])
    return replace(responses, refs=refs, max_weight=largest)
