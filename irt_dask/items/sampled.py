"""Draws of item parameters that carry a covariance, or standard errors, and no draws.

What is known of the items of a fit or a bank is taken as a normal distribution in the coordinates
of each model (log a, d, logits of asymptotes, logarithms of distances of ordered steps), with the
covariance that the parameters have to first order, so that no draw is beyond a bound.  What has no
standard error (fixed, or at a bound) is known.  Of errors alone items are independent.
"""

from __future__ import annotations

import warnings

import numpy as np
import xarray as xr

from irt_dask.arrays import Bools, Floats
from irt_dask.curves.base import ItemModel
from irt_dask.curves.coordinates import Coordinates
from irt_dask.curves.item_set import ItemSet
from irt_dask.errors import DataWarning, InputError, listed
from irt_dask.items import checks
from irt_dask.items.covariance import Uncertain, uncertain
from irt_dask.items.described import described
from irt_dask.items.mixture import Mixture
from irt_dask.items.parameters import bank_item_ids, item_set
from irt_dask.kernels.base import keyed_random
from irt_dask.variables import DRAW, ITEMS

#: Items whose standard errors alone are known are drawn so many at a time: their covariance is a
#: matrix of all their parameters.
_AT_ONCE = 256
#: Standard deviation of a draw in a coordinate that bends (log a, a logit), at most.
_MOST_SPREAD = 0.7
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

    Items without a standard error are taken as known, which is warned of; beside a covariance of
    the others those alone whose error could not be found.  InputError where none has one, or a
    model has no such coordinates.
    """
    ids = bank_item_ids(items, what)
    known = item_set(items, ids, what=what)
    models, x = Mixture.of_items(known)
    drawn = np.broadcast_to(x, (n, *x.shape)).copy()
    joint = any(name in items for name in _TOLD)
    told = np.zeros(len(ids), dtype=bool)
    for lo in range(0, len(ids), len(ids) if joint else _AT_ONCE):
        at = np.arange(lo, len(ids) if joint else min(lo + _AT_ONCE, len(ids)))
        some = known.take(at)
        of = uncertain(items, [ids[j] for j in at], some, what, strict=False)
        assert of is not None
        if not np.isfinite(of.matrix).all():
            raise InputError(
                f"{what}: the covariance of the parameters has NaN or infinite entries"
            )
        told[at] = (of.column >= 0).any(axis=0)
        drawn[:, :, at] = _drawn(some, of, n, lo, models.size)
    if not told.any():
        raise InputError(f"{what} carry no draws, and no standard errors to draw by")
    lost = [i for i, ok in zip(ids, told | _fixed(items, joint), strict=True) if not ok]
    if lost:
        warnings.warn(
            f"{len(lost)} of {len(ids)} items have no standard error and are taken as known in "
            f"draws: {listed(lost, 5)}",
            DataWarning,
            stacklevel=5,
        )
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


def _fixed(items: xr.Dataset, joint: bool) -> Bools:
    """Items that a covariance leaves out because they are known, not for want of an error."""
    if not joint:
        return np.zeros(items.sizes[ITEMS], dtype=bool)
    return ~checks.has(checks.of_items(items), {"large_se"})


def _drawn(items: ItemSet, of: Uncertain, n: int, first: int, size: int) -> Floats:
    """Parameters of the draws, (draws, parameters, items)."""
    if not of.matrix.size:
        known = Mixture.of_items(items)[1]
        return np.repeat(np.pad(known, ((0, size - len(known)), (0, 0)))[None], n, axis=0)
    root = _root(of)
    each = [keyed_random.generator(0, "items", first, r) for r in range(n)]
    moves = np.stack([root @ rng.standard_normal(len(root)) for rng in each])
    out = np.zeros((n, size, items.n_items))
    for g in items.groups:
        # of an item with categories that nobody has, those of the others
        coordinates, p = getattr(g.model, "inner", g.model).coordinates, len(g.x)
        if coordinates is None:
            raise InputError(
                f"items of the model {g.model.name!r} cannot be drawn by their errors: take them "
                f"as known (n_item_draws=0)"
            )
        if (g.model.slope(g.x)[0] <= 0.0).any() and not coordinates.scored:
            coordinates = coordinates.signed
        for k, j in enumerate(g.at):
            unknown = of.column[:p, j] >= 0
            at = of.column[:p, j][unknown]
            known = of.matrix[np.ix_(at, at)]
            out[:, :p, j] = _of_item(
                g.model, coordinates, g.x[:, [k]], unknown, moves[:, at], known
            )
    return out


def _root(of: Uncertain) -> Floats:
    """The symmetric root of the covariance, which is one whatever eigenvalues are equal."""
    if of.between:
        return _symmetric_root(of.matrix)
    out = np.zeros_like(of.matrix)
    for column in of.column.T:
        its = column[column >= 0]
        out[np.ix_(its, its)] = _symmetric_root(of.matrix[np.ix_(its, its)])
    return out


def _symmetric_root(a: Floats) -> Floats:
    values, vectors = np.linalg.eigh(a)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)


def _of_item(
    model: ItemModel, coordinates: Coordinates, x: Floats, unknown: Bools, moves: Floats,
    covariance: Floats,
) -> Floats:  # fmt: skip
    """Parameters of an item whose ``unknown`` ones are moved (draws, unknown) to first order.

    ``covariance`` is that of the moves.  In coordinates that bend, one of which is far from known
    is moved less: the first order says nothing there.  What is then no item (an asymptote above the
    other) is drawn together.
    """
    with np.errstate(divide="ignore"):  # nobody guesses: known, and not moved
        y = coordinates.of(x)
    there = np.isfinite(y[:, 0])
    free = np.flatnonzero(unknown & there)
    moves, own = moves[:, there[unknown]], np.ix_(there[unknown], there[unknown])
    slopes = coordinates.slopes(y)[:, :, 0]
    by = np.linalg.inv(slopes[np.ix_(free, free)])
    along = moves @ by.T  # (draws, coordinates)
    spread = np.sqrt(np.diag(by @ covariance[own] @ by.T))
    for c, q in enumerate(free):
        up = y.copy()
        up[q] += 1.0
        straight = x[free, 0] + slopes[np.ix_(free, [q])][:, 0]
        if not np.allclose(coordinates.parameters(up)[free, 0], straight, rtol=1e-9, atol=1e-9):
            along[:, c] *= min(1.0, _MOST_SPREAD / max(float(spread[c]), 1e-300))
    out, share = np.empty((len(moves), len(x))), 1.0
    left = np.arange(len(moves))
    while left.size:  # ends: at share 0 it is the item itself
        moved = np.repeat(y, left.size, axis=1)
        moved[free] += share * along[left].T
        new = coordinates.parameters(moved)
        new[~unknown] = x[~unknown]
        new[~there] = x[~there]
        out[left] = new.T
        left, share = left[~model.valid(new)], 0.5 * share
    return out
