"""Draws of item parameters that carry a covariance, or standard errors, and no draws.

What is known of the items of a fit or a bank is taken as a normal distribution in the coordinates
of each model (log a, d, logits of asymptotes, logarithms of distances of ordered steps), in which
no draw is beyond a bound, and with the covariance that the parameters have to first order.  What
has no standard error (fixed, or at a bound) is known.  Of errors alone items are independent.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from irt_dask.arrays import Floats, Ints
from irt_dask.curves.item_set import ItemSet
from irt_dask.errors import InputError
from irt_dask.items.covariance import Uncertain, uncertain
from irt_dask.items.described import described
from irt_dask.items.mixture import Mixture
from irt_dask.items.parameters import bank_item_ids, item_set
from irt_dask.kernels.base import keyed_random
from irt_dask.variables import DRAW, ITEMS

#: Items whose standard errors alone are known are drawn so many at a time: their covariance is a
#: matrix of all their parameters.
_AT_ONCE = 256
#: What says that items are not known for certain.
_TOLD = ("item_parameter_covariance", "item_difficulty_covariance")
_ERRORS = ("item_intercept", "item_difficulty", "item_step_intercept", "item_step_difficulty")


def says_errors(items: xr.Dataset) -> bool:
    """Whether a fit or bank says how well its parameters are known."""
    return any(name in items for name in _TOLD) or any(
        f"{name}_{end}" in items for name in _ERRORS for end in ("se", "sd")
    )


def sampled(items: xr.Dataset, n: int, what: str) -> xr.Dataset:
    """The same items with ``n`` draws of all that described them: the same in every call.

    InputError where items have no standard error, or their model has no such coordinates.
    """
    ids = bank_item_ids(items, what)
    known = item_set(items, ids, what=what)
    models, x = Mixture.of_items(known)
    drawn = np.broadcast_to(x, (n, *x.shape)).copy()
    size = len(ids) if any(name in items for name in _TOLD) else _AT_ONCE
    for lo in range(0, len(ids), size):
        at = np.arange(lo, min(lo + size, len(ids)))
        some = known.take(at)
        of = uncertain(items, [ids[j] for j in at], some, what)
        assert of is not None
        drawn[:, :, at] = _drawn(some, of, n, lo, models.size)
    values = [{name: v for name, (v, _) in described(models, one).items()} for one in drawn]
    out = {}
    for name in values[0].keys() & {*items.variables} | {"item_discrimination", "item_intercept"}:
        stacked = np.stack([np.moveaxis(one[name], -1, 0) for one in values])
        dims = items[name].dims if name in items else (ITEMS,)
        shape = (n, *(items.sizes[d] for d in dims))
        full = np.full(shape, np.nan)
        full[tuple(slice(k) for k in stacked.shape)] = stacked
        out[f"{name}_draw"] = ((DRAW, *dims), full)
    return items.assign(out)


def _drawn(items: ItemSet, of: Uncertain, n: int, first: int, size: int) -> Floats:
    """Parameters of the draws, (draws, parameters, items)."""
    values, vectors = np.linalg.eigh(of.matrix)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    each = [keyed_random.generator(0, "items", first, r) for r in range(n)]
    moves = np.stack([root @ rng.standard_normal(len(root)) for rng in each])
    out = np.zeros((n, size, items.n_items))
    for g in items.groups:
        coordinates = g.model.coordinates
        if coordinates is None:
            raise InputError(f"items of the model {g.model.name!r} cannot be drawn by their errors")
        if (g.model.slope(g.x)[0] <= 0.0).any() and not coordinates.scored:
            coordinates = coordinates.signed
        p = len(g.x)
        with np.errstate(divide="ignore"):  # nobody guesses: known, and not moved
            y = coordinates.of(g.x)
        slopes = coordinates.slopes(y)
        for k, j in enumerate(g.at):
            free: Ints = np.flatnonzero(of.column[:p, j] >= 0)
            by = np.linalg.inv(slopes[:, :, k][np.ix_(free, free)])
            moved = np.repeat(y[:, [k]], n, axis=1)
            moved[free] += by @ moves[:, of.column[free, j]].T
            new = coordinates.parameters(moved)
            new[of.column[:p, j] < 0] = g.x[of.column[:p, j] < 0, k][:, None]
            out[:, :p, j] = new.T
    return out
