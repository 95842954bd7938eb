"""Blocks that items belong to, and covariates of items, as callers give them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irt_dask.arrays import Floats, Ints
from irt_dask.errors import InputError, listed, repeated
from irt_dask.variables import identifier

#: SDs of a covariate, in its largest value, below which it is the same for all items.
_FLAT = 1e-9


class Blocks(NamedTuple):
    """Labels of blocks, in the order in which items have them, and each item's block."""

    labels: tuple[str, ...]
    of_item: Ints


#: What is asked for, in every error.
_WANTED = "give a dict from item identifiers to labels, or a list with the label of each item"


def blocks(given: Any, item_id: Sequence[str]) -> Blocks:
    """Which block each item is in.

    Parameters
    ----------
    given : mapping or Series of labels by item identifier, which may have other items too; or
        labels of all items in their order.

    Raises
    ------
    InputError
        That names the items without a label.
    """
    if isinstance(given, pd.Series):
        given = _once(given.index, given.tolist())
    if isinstance(given, Mapping):
        of = _once(given, list(given.values()))
        labels = [of.get(i) for i in item_id]
    else:
        labels = _of_list(given, len(item_id))
    if lacking := [i for i, label in zip(item_id, labels, strict=True) if not _is_label(label)]:
        raise InputError(
            f"item_blocks has no label (a word or a number) for {len(lacking)} item(s): "
            f"{listed(lacking)}; give an item that belongs to no block a label of its own"
        )
    each = [identifier(label) for label in labels]
    place = {label: k for k, label in enumerate(dict.fromkeys(each))}
    return Blocks(tuple(place), np.array([place[label] for label in each], dtype=np.int64))


def _once(items: Iterable[Any], labels: Sequence[Any]) -> dict[str, Any]:
    """Labels by item, each of which stands there once."""
    ids = [identifier(i) for i in items]
    if twice := repeated(ids):
        raise InputError(
            f"item_blocks names {len(twice)} item(s) more than once: {listed(twice)}; name each "
            f"item once"
        )
    return dict(zip(ids, labels, strict=True))


def _of_list(given: Any, n_items: int) -> list[Any]:
    """Labels as they stand."""
    if isinstance(given, np.ndarray) and given.ndim == 1:
        given = given.tolist()
    if not isinstance(given, (list, tuple)):
        raise InputError(f"item_blocks is of the type {type(given).__name__}; {_WANTED}")
    if len(given) != n_items:
        raise InputError(
            f"item_blocks has {len(given)} labels, and the responses have {n_items} items; "
            f"{_WANTED}"
        )
    return list(given)


def _is_label(label: Any) -> bool:
    """Whether it is a word or a number; None, not a number and an empty word are none."""
    return bool(np.isscalar(label) and label == label and label != "")


class Covariates(NamedTuple):
    """Names; values (covariates, items) of mean 0 and variance 1; the SDs that they had."""

    names: tuple[str, ...]
    values: Floats
    sd: Floats


def covariates(table: Any, item_id: Sequence[str]) -> Covariates:
    """Covariates of items, standardised.

    Parameters
    ----------
    table : DataFrame by item identifier, which may have other items too; columns of numbers.

    Raises
    ------
    InputError
        For items without a row or with several, values that are no finite numbers, and columns that
        are the same for all items.
    """
    if not isinstance(table, pd.DataFrame) or not table.shape[1]:
        raise InputError(
            "item_covariates must be a DataFrame with item identifiers as its index and a column "
            "of numbers for each covariate"
        )
    index, names = pd.Index(map(identifier, table.index)), tuple(map(str, table.columns))
    if lacking := [i for i in item_id if i not in set(index)]:
        raise InputError(
            f"item_covariates has no row for {len(lacking)} item(s): {listed(lacking)}"
        )
    own = table.set_axis(index).loc[index.isin(list(item_id))]
    if not own.index.is_unique or len(set(names)) < len(names):
        raise InputError("item_covariates has several rows of an item, or columns of one name")
    odd = [n for n, kind in zip(names, own.dtypes, strict=True) if kind.kind not in "biuf"]
    if odd:
        raise InputError(
            f"item_covariates: column(s) {', '.join(odd)} are not numbers; code categories as 0 "
            f"and 1"
        )
    x = own.loc[list(item_id)].to_numpy(dtype=float).T
    for name, row in zip(names, x, strict=True):
        for j in np.flatnonzero(~np.isfinite(row))[:1]:
            raise InputError(f"item_covariates: {name} of item {item_id[j]} is {row[j]}")
    away = x - x.mean(axis=1, keepdims=True)
    sd = away.std(axis=1)
    flat = [n for n, s, row in zip(names, sd, x, strict=True) if s <= _FLAT * np.abs(row).max()]
    if flat:
        raise InputError(f"item_covariates: {', '.join(flat)} are the same for all items")
    return Covariates(names, away / sd[:, None], sd)
