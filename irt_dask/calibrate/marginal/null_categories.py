"""Categories that nobody has: what becomes of them in a fit, one map for all persons."""

from __future__ import annotations

import warnings

import numpy as np
import xarray as xr

from irt_dask.arrays import Bools, Ints
from irt_dask.calibrate.shared.start_values import items_with, name_some, refuse_null_categories
from irt_dask.curves import FAMILIES
from irt_dask.engine.inputs import one_of
from irt_dask.errors import DataWarning, EstimationError
from irt_dask.items.mixture import Mixture
from irt_dask.items.parameters import bank_item_ids, category_maps

RAISE, KEEP, COLLAPSE = "raise", "keep", "collapse"
_OF_MAP = {"item_category_map", "item_n_categories"}


def check(how: str) -> None:
    """Stop at an option that is none."""
    one_of("null_categories", how, (RAISE, KEEP, COLLAPSE))


def of_bank(models: Mixture, item_id: tuple[str, ...], bank: xr.Dataset | None) -> Mixture:
    """The models where items of a bank have the empty categories that they have there."""
    if not isinstance(bank, xr.Dataset) or not {*bank} >= _OF_MAP:
        return models
    place = {i: k for k, i in enumerate(bank_item_ids(bank, "fixed_items"))}
    those = [j for j, i in enumerate(item_id) if i in place]
    at = np.array([place[item_id[j]] for j in those], dtype=np.int64)
    found = category_maps(bank, at, bank["item_n_categories"].values[at].astype(int))
    maps = models.category_map.copy()
    numbered = _numbered(models)
    for k, own in found.items():
        j, left = those[k], [n for n in own if n >= 0]
        fits = len(own) == models.n_categories[j] and (numbered[j] or max(left) < len(left))
        if fits:  # others are refused with their parameters
            maps[j, : len(own)] = own
    return models.mapped(maps)


def settled(
    models: Mixture, item_id: tuple[str, ...], counts: Ints, estimated: Bools, how: str
) -> Mixture:
    """The models without the categories that nobody has, of items that are ``estimated``.

    Both "keep" and "collapse" leave codes as they are.  They number categories otherwise, by which
    discriminations are multiplied: "keep" by their codes, from the lowest one that somebody has.
    """
    n = models.in_common(counts)
    if how == RAISE:
        remedy = "say null_categories='keep' or null_categories='collapse' here"
        refuse_null_categories(item_id, n, models.n_categories, estimated, remedy)
        return models
    maps, own = models.category_map.copy(), np.arange(n.shape[1]) < models.n_categories[:, None]
    several = estimated & (models.n_categories > 2)
    lone = np.flatnonzero(several & ((n > 0).sum(axis=1) < 2))
    if lone.size:
        raise EstimationError(
            f"{lone.size} item(s) have one category that anybody has, from which nothing can be "
            f"estimated; leave them out: {name_some([item_id[j] for j in lone])}"
        )
    numbered = _numbered(models)
    for j in np.flatnonzero(several & ((n == 0) & own).any(axis=1)):
        there = np.flatnonzero(n[j])
        maps[j] = -1
        by_code = how == KEEP and numbered[j]
        maps[j, there] = there - there[0] if by_code else np.arange(there.size)
    return models.mapped(maps) if (maps != models.category_map).any() else models


def _numbered(models: Mixture) -> Bools:
    """Items whose scores are numbers of their categories times the discrimination."""
    return np.array([getattr(FAMILIES.get(x), "numbered", False) for x in models.names])


def warn(models: Mixture, item_id: tuple[str, ...], estimated: Bools, how: str) -> None:
    """Name the items that are taken to have empty categories."""
    empty = models.empty & estimated[:, None]
    if empty.any():
        those = items_with(item_id, empty)
        warnings.warn(
            f"{len(those)} item(s) have a category that nobody has, whose probability is taken to "
            f"be 0 (null_categories={how!r}): {name_some(those)}",
            DataWarning,
            stacklevel=3,
        )
