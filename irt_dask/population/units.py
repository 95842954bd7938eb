"""Sampling units of persons by number: schools, villages, whatever was drawn before persons were.

Labels stay where the persons are: a block's reference knows those that occur in its block, or, of
an array, the numbers of its persons.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from irt_dask.arrays import Ints
from irt_dask.engine import Engine
from irt_dask.engine.memory import refuse_beyond_memory
from irt_dask.errors import InputError, TooLargeError
from irt_dask.kernels.responses.response_counts import responses_per_person
from irt_dask.store import Block, Responses
from irt_dask.store.blocks import WrappedRef
from irt_dask.store.responses import sha256
from irt_dask.variables import identifier

#: Names of the groups of persons, where no covariate has them.
_GROUPS = ("person_group", "group", "groups")
#: What persons have of whom nothing but responses was read.
_NOTHING = "none: ingest a table of persons with the responses, in which it is a number or a label"
#: Bytes of the sums of all units, at most.
_BYTES = 1 << 30
#: Numbers from here on are no labels: doubles do not hold every one.
_LARGEST = 2.0**53


class Units(NamedTuple):
    """Sampling units: what they are called, and how many labels there are."""

    name: str
    n_labels: int


@dataclasses.dataclass(frozen=True, eq=False)
class UnitRef(WrappedRef):
    """A block's reference whose block knows the sampling units of its persons.

    ``numbers`` are those of the persons, or, where units have a name, of the ``labels`` that occur,
    in order.
    """

    ref: Any
    name: str | None
    labels: NDArray[Any] | None
    numbers: NDArray[np.int32]

    @functools.cached_property
    def cache_key(self) -> tuple[Any, ...] | None:
        """Identity of the block with its units."""
        key = self.ref.cache_key
        return None if key is None else (key, "units", self.name, sha256(self.numbers))

    def read(self) -> Block:
        """Return the block, units included."""
        number = self.numbers
        if self.labels is not None:
            assert self.name is not None
            number = number[np.searchsorted(self.labels, _labels(self.ref, self.name))]
        return dataclasses.replace(self.ref.read(), unit=number.astype(np.int64))


def in_units(
    responses: Responses, sampling_unit: Any, client: Any
) -> tuple[Responses, Units | None]:
    """Return responses whose blocks know the sampling units of their persons, and what these are.

    ``sampling_unit`` is the name of a covariate, "person_group", or has a label for each person;
    None: there are none.  One pass over the labels.

    Raises
    ------
    InputError
        A name that the persons do not have; labels that are empty, or not as many as persons; one
        unit alone.
    """
    if sampling_unit is None:
        return responses, None
    if isinstance(sampling_unit, str):
        refs, n = _by_name(responses, sampling_unit, client)
        name = sampling_unit
    else:
        refs, n = _by_label(responses, sampling_unit)
        name = "an array"
    if n == 1:
        raise InputError(
            f"sampling_unit: all persons have the same one ({name}), and units tell how much "
            f"estimates vary by how they differ; give at least 2, or leave sampling_unit out"
        )
    return dataclasses.replace(responses, refs=refs), Units(name, n)


# --- units with a name ----------------------------------------------------------------------------


def _by_name(responses: Responses, name: str, client: Any) -> tuple[list[UnitRef], int]:
    known = responses.covariate_names
    column = str(known.index(name)) if name in known else ""
    if not column and not (name in _GROUPS and responses.has_groups):
        there = [*known, *(["person_group"] if responses.has_groups else [])]
        have = f"{', '.join(there)}: name one of these" if there else _NOTHING
        raise InputError(
            f"sampling_unit={name!r} is no covariate of the persons; they have {have}, or give an "
            f"array with one label for each person"
        )
    with Engine(responses, client=client, progress=False, graded=True) as engine:  # labels alone
        found = engine.map_refs(_distinct, column)
    _refuse_empty(sum(empty for empty, _ in found), name)
    labels = np.unique(np.concatenate([own for _, own in found]))
    _refuse_large(labels)
    refs = [
        UnitRef(ref, column, own, np.searchsorted(labels, own).astype(np.int32))
        for ref, (_, own) in zip(responses.refs, found, strict=True)
    ]
    return refs, labels.size


def _labels(ref: Any, column: str) -> NDArray[Any]:
    """Labels of a block's persons: a covariate of this number, or of none the groups."""
    if column:
        return np.asarray(ref.covariates()[:, int(column)])
    return np.asarray(ref.groups()).astype(str)


def _distinct(ref: Any, column: str) -> tuple[int, NDArray[Any]]:
    """How many persons of a block have no label, and the labels of the others."""
    labels = _labels(ref, column)
    if not column:
        return 0, np.unique(labels)  # a group is never empty
    empty = np.isnan(labels)
    return int(empty.sum()), np.unique(labels[~empty])


def _refuse_large(labels: NDArray[Any]) -> None:
    if labels.dtype.kind == "f" and (np.abs(labels) >= _LARGEST).any():
        raise InputError(
            f"sampling_unit: a label is {labels[np.abs(labels).argmax()]:.17g}, and numbers from "
            f"2^53 on need not differ where labels did; give shorter ones, or an array of strings "
            f"with one for each person"
        )


def _refuse_empty(n: int, name: str) -> None:
    if n:
        raise InputError(
            f"sampling_unit: {n} person(s) have none (NaN or nothing in {name}); give each person "
            f"one, of their own where nothing else was drawn, or leave these persons out"
        )


# --- a label for each person ----------------------------------------------------------------------


def _by_label(responses: Responses, given: Any) -> tuple[list[UnitRef], int]:
    labels = np.asarray(given)
    if labels.ndim != 1 or labels.size != responses.n_persons:
        raise InputError(
            f"sampling_unit has the shape {labels.shape}; give the name of a covariate, or one "
            f"label for each of {responses.n_persons} persons, in their order"
        )
    _check_index(responses, given)
    empty = pd.isna(labels)
    if labels.dtype.kind not in "biufM":
        text = np.array(["" if e else identifier(x) for x, e in zip(labels, empty, strict=True)])
        labels, empty = text, text == ""
    _refuse_empty(int(empty.sum()), "the array")
    distinct, number = np.unique(labels, return_inverse=True)
    _refuse_large(distinct)
    own: NDArray[np.int32] = number.astype(np.int32)
    starts = [ref.start for ref in responses.refs]
    ends = [*starts[1:], responses.n_persons]
    refs = [
        UnitRef(ref, None, None, own[lo:hi])
        for ref, lo, hi in zip(responses.refs, starts, ends, strict=True)
    ]
    return refs, distinct.size


def _check_index(responses: Responses, given: Any) -> None:
    """Labels with an index of identifiers must be in the order of the persons."""
    if not isinstance(given, pd.Series) or np.array_equal(
        given.index.to_numpy(), np.arange(responses.n_persons)
    ):
        return
    index = given.index.astype(str).to_numpy()
    for k, ref in enumerate(responses.refs):
        ids = responses.person_ids(k).astype(str)
        if not np.array_equal(index[ref.start : ref.start + len(ids)], ids):
            raise InputError(
                "the index of sampling_unit differs from the identifiers of the persons; bring "
                "its rows into their order, or give sampling_unit.to_numpy() if they are already"
            )


# --- who counts -----------------------------------------------------------------------------------


def _answered(block: Block, to: tuple[Ints] | None, n: int) -> tuple[Ints]:
    assert block.unit is not None
    to = (np.zeros(n, dtype=np.int64),) if to is None else to
    some = responses_per_person(block.data) > 0
    times = None if block.times is None else block.times[some]
    np.add.at(to[0], block.unit[some], 1 if times is None else times)
    return to


def n_answered(engine: Engine, units: Units) -> int:
    """Number of units with a person who has a response: one pass.

    Raises
    ------
    InputError
        If there is one alone.
    """
    (persons,) = engine.map_add(_answered, units.n_labels)
    n = int((persons > 0).sum())
    if n < 2:
        raise InputError(
            f"sampling_unit: the persons with a response are all of {n} unit ({units.name}); at "
            f"least 2 units are needed, or standard_errors='sandwich', whose units are persons"
        )
    return n


def refuse_many(engine: Engine, units: Units, size: int, other: str) -> None:
    """Stop before sums of units by ``size`` parameters that are too many; ``other`` remedies."""
    needed = 8.0 * units.n_labels * size
    what = f"sums of scores of {units.n_labels} sampling units by {size} parameters"
    if needed > _BYTES:
        raise TooLargeError(
            f"{what} take {needed / 2**30:.1f} GiB, and {_BYTES / 2**30:.0f} GiB is the most; use "
            f"larger units, or {other}"
        )
    refuse_beyond_memory(needed * (engine.n_held + 3), what)
