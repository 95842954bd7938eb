"""Columns of banks that say how items were calibrated: groups, the latent distribution."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import xarray as xr

from irt_dask.banks.tables import ItemTable
from irt_dask.errors import InputError
from irt_dask.items.parameters import calibration_groups
from irt_dask.store.freed_items import groups_of_set
from irt_dask.variables import as_labels

#: Column: groups of persons in the calibration, where there were several.
_GROUPS = "calibration_groups"
#: Column: the distribution of ability that was estimated, where it was not normal.
_LATENT, _HISTOGRAM = "calibration_latent", "histogram"
#: Column: the group of persons in which an item was freed; nothing of common ones.
_FREED = "freed_group"
#: Column: the groups of the set in which an item was freed, as a JSON list.
_SET = "set_groups"
#: Column: labels of all groups of a concurrent calibration, in the row of its first item.
_KNOWN = "calibrated_groups"
NAMES = (_GROUPS, _LATENT, _FREED, _SET, _KNOWN)


def columns(items: xr.Dataset) -> dict[str, Any]:
    """Columns of a bank."""
    table: dict[str, Any] = {}
    if n := calibration_groups(items):
        table[_GROUPS] = n
    if items.attrs.get("latent") == _HISTOGRAM:
        table[_LATENT] = _HISTOGRAM
    if "item_freed_group" in items:
        table[_FREED] = as_labels(items["item_freed_group"].values)
        if "item_set_groups" in items:
            table[_SET] = as_labels(items["item_set_groups"].values)
        if "group_label" in items:
            labels = json.dumps(items["group_label"].values.astype(str).tolist())
            table[_KNOWN] = [labels, *[None] * (items.sizes["items"] - 1)]
    return table


def read(table: ItemTable) -> tuple[dict[str, Any], dict[str, Any]]:
    """Variables and attributes of a bank with such columns."""
    data: dict[str, Any] = {}
    attrs: dict[str, Any] = {}
    if _FREED in table:
        data["item_freed_group"] = np.array(table.words(_FREED))
    if _SET in table:
        data["item_set_groups"] = np.array(_sets(table))
    if _KNOWN in table and (given := {*table.words(_KNOWN)} - {""}):
        data["group_label"] = np.array(_labels(table, given))
    if _GROUPS in table:  # blank: rows from elsewhere
        n = table.numbers(_GROUPS, may_lack=True)
        if most := int(np.nan_to_num(n).max()):
            attrs[_GROUPS] = most
    if _LATENT in table and (named := {*table.words(_LATENT)} - {""}):
        if named != {_HISTOGRAM}:
            raise InputError(f"{table.path}: {_LATENT} is 'histogram' or empty, not {min(named)!r}")
        attrs["latent"] = _HISTOGRAM
    return data, attrs


def _sets(table: ItemTable) -> list[str]:
    """Groups of the set of each item, as they stand there: lists in JSON."""
    texts = table.words(_SET)
    for j, text in enumerate(texts):
        if text and groups_of_set(text) is None:
            raise table.fault(j, _SET, f'{text!r} is no list of labels such as ["a", "b"]')
    return texts


def _labels(table: ItemTable, given: set[str]) -> list[str]:
    """All labels of lists in JSON, of one calibration or of several."""
    out: dict[str, None] = {}
    for text in sorted(given):
        try:
            labels = json.loads(text)
        except ValueError:
            labels = None
        if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
            raise InputError(f"{table.path}: {_KNOWN} is {text!r}, no list of labels in JSON")
        out |= dict.fromkeys(labels)
    return list(out)
