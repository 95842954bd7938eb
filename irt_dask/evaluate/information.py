"""Information of items and of the test by ability, and marginal reliability."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from irt_dask.curves.grids import grid_of
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine import dataset
from irt_dask.errors import InputError
from irt_dask.items.parameters import bank_item_ids, item_set


def information(items: xr.Dataset, ability: Any = None) -> xr.Dataset:
    """Information of each item and of the test, by ability.

    Parameters
    ----------
    items : Dataset
        A fit or an item bank of one ability.
    ability : array, optional
        Abilities on the scale of the items, finite.  Default: 81 from -4 to 4.

    Returns
    -------
    Dataset over ability
        ``item_information`` (items, ability), ``sum P'^2 / P`` over the categories, whatever the
        items' models; ``test_information``, its sum over the items; ``ability_se``, one over its
        root (infinite where there is none).
        ``attrs["marginal_reliability"]``: the mean of ``I / (I + 1)`` over abilities N(0, 1), the
        share of the variance of ability that the test explains.  It means something on a scale on
        which abilities are N(0, 1) only (marginal and Bayesian fits; not a Rasch fit of mean
        difficulty 0).

    Raises
    ------
    InputError
        If the abilities are not finite, or the items no calibrated items of one ability.

    Notes
    -----
    On the driver; memory ``16 x items x abilities`` bytes.
    Source: Birnbaum (1968); marginal reliability: Green, Bock, Humphreys, Linn and Reckase (1984),
    with the posterior variance 1 / (I + 1) in place of 1 / I, which a short test makes infinite.

    Examples
    --------
    >>> import irt_dask as irt
    >>> test = irt.information(irt.fit_marginal(irt.load_lsat()), ability=[-2, 0, 2])
    >>> test["test_information"].round(2).values.tolist()
    [0.58, 0.46, 0.17]
    >>> round(test.attrs["marginal_reliability"], 2)
    0.3
    """
    x = np.linspace(-4.0, 4.0, 81) if ability is None else np.atleast_1d(np.asarray(ability, float))
    if x.ndim != 1 or x.size == 0 or not np.isfinite(x).all():
        raise InputError("ability must be one or more finite numbers, in one dimension")
    item_id = bank_item_ids(items)
    own = item_set(items, item_id)
    each = own.information(x)
    total = each.sum(axis=0)
    with np.errstate(divide="ignore"):
        error = 1.0 / np.sqrt(total)
    return dataset(
        {"item_information": each, "test_information": total, "ability_se": error},
        item_id=item_id,
        coords={"ability": x},
        attrs={
            "method": "information",
            "model": items.attrs.get("model"),
            "marginal_reliability": _reliability(own),
        },
    )


def _reliability(items: ItemSet) -> float:
    """Mean of I / (I + 1) over N(0, 1)."""
    nodes = grid_of(items).nodes
    total = items.total_information(nodes)
    weight = np.exp(-0.5 * nodes**2)
    return float((total / (total + 1.0)) @ weight / weight.sum())
