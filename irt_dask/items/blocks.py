"""Blocks that items belong to, and covariates of items, as callers give them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irt_dask.arrays import Floats, Ints
from irt_dask.errors import InputError

#: SDs of a covariate, in its largest value, below which it is the same for all items.
_FLAT = 1e-9


class Blocks(NamedTuple):
    """Labels of blocks, in the order in which items have them, and each item's block."""

    labels: tuple[str, ...]
    of_item: Ints


def blocks(item_blocks: Any, item_id: Sequence[str]) -> Blocks:
    """Which block each item is in.

    Parameters
    ----------
    item_blocks : mapping or Series of labels by item identifier, which may have other items too, or
        labels of all items in their order.

    Raises
    ------
    InputError
        For items without a label.
    """
    own = item_blocks.to_dict() if isinstance(item_blocks, pd.Series) else item_blocks
    if not isinstance(own, Mapping):
        if not isinstance(own, Iterable) or isinstance(own, (str, bytes)):
            raise InputError(
                "item_blocks must be a mapping of item to label, or labels of all items"
            )
        labels = list(own)
        if len(labels) != len(item_id):
            raise InputError(
                f"item_blocks has {len(labels)} label(s) for {len(item_id)} items; give one for "
                f"each, or a mapping of item to label"
            )
        own = dict(zip(item_id, labels, strict=True))
    by_item = {str(item): label for item, label in own.items()}
    _refuse_lacking("item_blocks", [i for i in item_id if pd.isna(by_item.get(i))])
    labels = [str(by_item[item]) for item in item_id]
    names = tuple(dict.fromkeys(labels))
    number = {name: k for k, name in enumerate(names)}
    return Blocks(names, np.array([number[label] for label in labels], dtype=np.int64))


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
    index, names = table.index.astype(str), tuple(map(str, table.columns))
    _refuse_lacking("item_covariates", [i for i in item_id if i not in set(index)])
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


def _refuse_lacking(option: str, items: Sequence[str]) -> None:
    if items:
        some = ", ".join(items[:20]) + (f" and {len(items) - 20} more" if len(items) > 20 else "")
        raise InputError(f"{option} says nothing of {len(items)} item(s): {some}")
