"""Values that a caller gives for the items of a bank: weights, probabilities, labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from irt_dask.arrays import Floats, Ints
from irt_dask.errors import InputError, listed
from irt_dask.variables import ITEMS, identifier


def _given(value: Any, item_id: tuple[str, ...], what: str) -> dict[str, Any] | NDArray[Any]:
    """Values by identifier, or one for each item of the bank in its order."""
    if isinstance(value, xr.DataArray) and "item_id" in value.coords and value.dims == (ITEMS,):
        value = dict(zip(value["item_id"].values, value.values, strict=True))
    if isinstance(value, Mapping):
        found = {identifier(i): v for i, v in value.items()}
        if unknown := sorted(found.keys() - set(item_id)):
            raise InputError(f"{what} names {len(unknown)} item(s) not in items: {listed(unknown)}")
        return found
    array = np.asarray(value)
    if array.shape != (len(item_id),):
        raise InputError(
            f"{what} has shape {array.shape}; give one value for each of the {len(item_id)} items "
            f"in their order, or a mapping of item_id to value"
        )
    return array


def _numbers(values: Any, what: str) -> Floats:
    try:
        return np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise InputError(f"{what} must be numbers") from None


def weights_of(value: Any, item_id: tuple[str, ...]) -> Floats:
    """Weight of each item of the bank; all 1 by default, 0 where a mapping does not name it."""
    if value is None:
        return np.ones(len(item_id))
    found = _given(value, item_id, "item_weights")
    if isinstance(found, dict):
        found = np.array([found.get(i, 0.0) for i in item_id], dtype=object)
    weights = _numbers(found, "item_weights")
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0.0)))
    if bad.size:
        raise InputError(
            f"item_weights: item {item_id[bad[0]]} has {weights[bad[0]]}; weights are finite and "
            f"not negative"
        )
    if not weights.any():
        raise InputError("item_weights are all 0; some question must count")
    return weights


def labels_of(value: Any, item_id: tuple[str, ...], what: str) -> NDArray[np.str_]:
    """Label of each item of the bank; every item has one."""
    found = _given(value, item_id, what)
    if isinstance(found, dict):
        if lacking := [i for i in item_id if i not in found]:
            raise InputError(f"{what} names no label for {len(lacking)} item(s): {listed(lacking)}")
        found = np.array([found[i] for i in item_id], dtype=object)
    return found.astype(str)


def probabilities_of(value: Any, item_id: tuple[str, ...]) -> Floats:
    """Probability with which each item of the bank was asked, above 0 and at most 1."""
    what = "inclusion_probability"
    if isinstance(value, (int, float, np.number)):
        value = np.full(len(item_id), float(value))
    found = _given(value, item_id, what)
    if isinstance(found, dict):
        if lacking := [i for i in item_id if i not in found]:
            raise InputError(
                f"{what} lacks {len(lacking)} item(s) of items: {listed(lacking)}; the total is "
                f"over all of them: leave out of items what was never to be asked"
            )
        found = np.array([found[i] for i in item_id], dtype=object)
    p = _numbers(found, what)
    bad = np.flatnonzero(~((p > 0.0) & (p <= 1.0)))
    if bad.size:
        raise InputError(
            f"{what}: item {item_id[bad[0]]} has {p[bad[0]]}; probabilities are above 0 and at "
            f"most 1.  Questions that were chosen, not drawn, have none: their total is the "
            f"model's alone (leave {what} out)"
        )
    return p


def grouped(labels: NDArray[np.str_]) -> tuple[NDArray[np.str_], Ints, Ints]:
    """Different labels, the number of each item's, and how many items have each."""
    names, number, size = np.unique(labels, return_inverse=True, return_counts=True)
    return names, number.astype(np.int64), size.astype(np.int64)


def shares_of(value: Any, item_id: tuple[str, ...], what: str) -> Floats:
    """A share from 0 to 1 of each item of the bank; 0 where a mapping does not name it."""
    found = _given(value, item_id, what)
    if isinstance(found, dict):
        found = np.array([found.get(i, 0.0) for i in item_id], dtype=object)
    shares = _numbers(found, what)
    bad = np.flatnonzero(~((shares >= 0.0) & (shares <= 1.0)))
    if bad.size:
        raise InputError(
            f"{what}: item {item_id[bad[0]]} has {shares[bad[0]]}; shares are from 0 to 1"
        )
    return shares
