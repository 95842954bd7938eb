"""Blocks of items (testlets, booklets, domains, benchmarks), as users name them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from irt_dask.arrays import Ints
from irt_dask.errors import InputError, listed, repeated
from irt_dask.variables import identifier


class ItemBlocks(NamedTuple):
    """Labels of the blocks, in order of their first items, and the block of each item."""

    labels: tuple[str, ...]
    of_item: Ints


#: What is asked for, in every error.
_WANTED = "give a dict from item identifiers to labels, or a list with the label of each item"


def item_blocks_of(given: Any, item_id: tuple[str, ...]) -> ItemBlocks:
    """Read labels of items; None: no blocks.  InputError that names the items without a label."""
    if given is None:
        return ItemBlocks((), np.empty(0, dtype=np.int64))
    labels = _of_mapping(given, item_id) if isinstance(given, Mapping) else _of_list(given, item_id)
    if lacking := [i for i, label in zip(item_id, labels, strict=True) if not _is_label(label)]:
        raise InputError(
            f"item_blocks has no label (a word or a number) for {len(lacking)} item(s): "
            f"{listed(lacking)}; give an item that belongs to no block a label of its own"
        )
    each = [identifier(label) for label in labels]
    place = {label: k for k, label in enumerate(dict.fromkeys(each))}
    return ItemBlocks(tuple(place), np.array([place[label] for label in each], dtype=np.int64))


def _of_mapping(given: Mapping[Any, Any], item_id: tuple[str, ...]) -> list[Any]:
    """Label of each item; one that is not there has None."""
    ids = [identifier(i) for i in given]
    known = {*item_id}
    for wrong, what in (
        ([i for i in ids if i not in known], "that the responses do not have"),
        (repeated(ids), "more than once"),
    ):
        if wrong:
            raise InputError(
                f"item_blocks names {len(wrong)} item(s) {what}: {listed(wrong)}; name each item "
                f"of the responses once, and no other"
            )
    of = dict(zip(ids, given.values(), strict=True))
    return [of.get(i) for i in item_id]


def _of_list(given: Any, item_id: tuple[str, ...]) -> list[Any]:
    """Labels as they stand; a table's column might be in another order, and is refused."""
    if isinstance(given, np.ndarray) and given.ndim == 1:
        given = given.tolist()
    if not isinstance(given, (list, tuple)):
        raise InputError(f"item_blocks is of the type {type(given).__name__}; {_WANTED}")
    if len(given) != len(item_id):
        raise InputError(
            f"item_blocks has {len(given)} labels, and the responses have {len(item_id)} items; "
            f"{_WANTED}"
        )
    return list(given)


def _is_label(label: Any) -> bool:
    """Whether it is a word or a number; None, not a number and an empty word are none."""
    return np.isscalar(label) and label == label and label != ""
