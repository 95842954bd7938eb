"""Loadings in several dimensions: which are free, where chains start, how shards are aligned.

With uncorrelated abilities the likelihood does not change when loadings and abilities are rotated
together; loadings that are fixed at 0 forbid it.  They do if dimensions can be put in an order in
which each has an *anchor*, an item that loads on it and on no later one: a rotation that keeps the
zeros of the first anchor keeps the first dimension, up to its sign, and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy.optimize import linear_sum_assignment

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.calibrate.shared.start_values import name_some
from irt_dask.curves.logistic import logit
from irt_dask.engine.inputs import one_of
from irt_dask.errors import InputError

#: Which free loadings are positive.
POSITIVE = ("all", "anchors")
#: Start values scatter by this standard deviation.
_SCATTER = 0.2
#: Where loadings that may be negative start, as a share of those that may not.
_SMALL = 0.25


# --- which loadings are free ----------------------------------------------------------------------


def free_loadings(
    n_items: int, n_dims: int, loadings: Any = None, item_id: Sequence[str] | None = None, *,
    correlated: bool = False,
) -> Bools:  # fmt: skip
    """Return which loadings are not fixed at 0, shape (items, dims), and check that they suffice.

    Parameters
    ----------
    loadings : None, bool array (items, dims), DataFrame or DataArray
        None: item j < n_dims loads on dimensions 0 .. j, the others on all.  A DataFrame has item
        ids as its index, a DataArray has dims (items, latent_dims) and the coordinate ``item_id``:
        both are matched by id.
    correlated : bool
        Whether abilities may be correlated.  Rotations then may be oblique, and what forbids them
        is that every dimension has two items that load on it alone.

    Raises
    ------
    InputError
        If the shape is wrong, a dimension has no item, an item no dimension, or rotations are left.
    """
    if n_dims != int(n_dims) or not 1 <= n_dims <= n_items:
        raise InputError(
            f"n_dims={n_dims!r} must be a whole number from 1 to the {n_items} items: every "
            f"dimension needs an item of its own"
        )
    if loadings is None:
        if correlated and n_dims > 1:
            raise InputError(
                "correlated dimensions need loadings=, a bool array (items, dims) in which every "
                "dimension has at least two items that load on it alone; the default, a triangle "
                "of zeros, holds uncorrelated dimensions only"
            )
        return np.tri(n_items, n_dims, dtype=bool)
    ids = [str(j) for j in range(n_items)] if item_id is None else [str(i) for i in item_id]
    free = _as_mask(loadings, ids, n_dims)
    for q in np.flatnonzero(~free.any(axis=0)):
        raise InputError(f"loadings: no item loads on dimension {q}; give it one, or drop it")
    empty = [ids[j] for j in np.flatnonzero(~free.any(axis=1))]
    if empty:
        raise InputError(
            f"loadings: {len(empty)} item(s) load on no dimension: {name_some(empty)}; give each "
            f"one, or remove them"
        )
    if correlated and n_dims > 1:
        _check_alone(free)
    else:
        anchors(free)
    return free


def _as_mask(loadings: Any, ids: list[str], n_dims: int) -> Bools:
    if isinstance(loadings, xr.DataArray):
        if set(loadings.dims) != {"items", "latent_dims"} or "item_id" not in loadings.coords:
            raise InputError(
                f"loadings: a DataArray has dims items and latent_dims and the coordinate "
                f"item_id, this one has dims {loadings.dims}"
            )
        table = loadings.transpose("items", "latent_dims")
        loadings = pd.DataFrame(table.values, index=table["item_id"].values)
    if isinstance(loadings, pd.DataFrame):
        index = loadings.index.astype(str)
        unknown = [i for i in ids if i not in index]
        if unknown or not index.is_unique:
            raise InputError(
                f"loadings: {len(unknown)} item(s) of the responses have no row"
                f"{': ' if unknown else ''}{name_some(unknown)}; the index must be the item ids, "
                f"each once"
            )
        loadings = loadings.set_axis(index).loc[ids].to_numpy()
    mask = np.asarray(loadings)
    if mask.shape != (len(ids), n_dims) or not np.isin(mask, (0, 1)).all():
        raise InputError(
            f"loadings must be true or false for {len(ids)} items x {n_dims} dimensions, got "
            f"shape {mask.shape} and dtype {mask.dtype}"
        )
    return mask.astype(bool)


def anchors(free: Bools) -> Ints:
    """Return one item for each dimension, such that their zeros forbid every rotation.

    Raises
    ------
    InputError
        If there are none: some dimensions can be rotated into each other.
    """
    item = np.full(free.shape[1], -1)
    while (item < 0).any():
        left = free & (item < 0)
        found = np.flatnonzero(left.sum(axis=1) == 1)
        if not found.size:
            some = ", ".join(str(q) for q in np.flatnonzero(item < 0))
            held = ", ".join(str(q) for q in np.flatnonzero(item >= 0))
            raise InputError(
                f"loadings do not identify dimensions {some}: they can be rotated into each other, "
                f"because no item loads on exactly one of them"
                f"{f' (apart from {held}, which are held)' if held else ''}; fix more loadings at 0"
            )
        item[np.argmax(left[found[0]])] = found[0]
    return item


def _check_alone(free: Bools) -> None:
    alone = free[free.sum(axis=1) == 1].sum(axis=0)
    if (alone < 2).any():
        some = ", ".join(f"{q} ({alone[q]})" for q in np.flatnonzero(alone < 2))
        raise InputError(
            f"correlated dimensions need at least two items each that load on no other dimension; "
            f"there are too few of dimension(s) {some}: fix more loadings at 0"
        )


def positive_loadings(free: Bools, positive: str = "all") -> Bools:
    """Return which free loadings are positive: "all", or one of each dimension ("anchors").

    One of each dimension fixes its direction.
    """
    one_of("positive", positive, POSITIVE)
    if positive == "all":
        return free.copy()
    mask = np.zeros_like(free)
    mask[anchors(free), np.arange(free.shape[1])] = True
    return mask


# --- where chains start ---------------------------------------------------------------------------


def start(right: Ints, seen: Ints, free: Bools, positive: Bools) -> tuple[Floats, Floats]:
    """Start values of loadings (items, dims) and intercepts (items,).

    An item's positive loadings start equal, of length 1 together; those that may be negative start
    small, and follow the abilities that the others shape.  Intercepts are what the share of right
    answers implies at these loadings.
    """
    own = np.where(positive.any(axis=1), positive.sum(axis=1), 4.0 * free.sum(axis=1))
    a = np.where(positive, 1.0, _SMALL * free) / np.sqrt(np.maximum(own, 1.0))[:, None]
    share = (right + 0.5) / (seen + 1.0)
    return a, np.sqrt(1.0 + (a**2).sum(axis=1) * np.pi / 8.0) * logit(share)


def scatter(
    a: Floats, d: Floats, free: Bools, positive: Bools, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Scatter start values by about 0.2 (of their logarithms where they are positive)."""
    noise = rng.normal(0.0, _SCATTER, (a.shape[1] + 1, a.shape[0]))
    moved = np.where(positive, np.maximum(a, _SCATTER) * np.exp(noise[:-1].T), a + noise[:-1].T)
    return np.where(free, moved, 0.0), d + noise[-1]


# --- aligning shards ------------------------------------------------------------------------------


def align(
    means: Sequence[Floats], free: Bools, positive: Bools, n_persons: Sequence[int] | None = None
) -> tuple[Ints, Floats, Floats]:
    """Order and signs of dimensions that bring shards closest to the largest one.

    Only what leaves the posterior as it is may be done: dimensions with the same zeros and the same
    positive loadings may change places, those without a positive one may change sign (loadings that
    may be negative have a prior that is symmetric about 0).  Where zeros forbid rotations and every
    dimension has a positive loading, nothing may be done, and nothing is.

    Parameters
    ----------
    means : shard means of the loadings, each (items, dims).
    n_persons : persons of each shard; without, the first shard counts as the largest.

    Returns
    -------
    order, sign : (shards, dims)
        ``sign[k] * means[k][:, order[k]]`` is shard k, aligned (see :func:`move`).
    rotation : (shards,)
        Angle, degrees, of the rotation that would bring the aligned shard still closer to the
        largest: its largest angle in any plane; 180 where a dimension points the other way.  Far
        from 0: the data say too little of how the dimensions lie, or chains are in different modes.
    """
    reference = np.asarray(means[0 if n_persons is None else int(np.argmax(n_persons))])
    n_dims = free.shape[1]
    pattern = np.concatenate([free, positive])
    same = (pattern[:, :, None] == pattern[:, None, :]).all(axis=0)
    either = np.outer(~positive.any(axis=0), ~positive.any(axis=0))
    order = np.empty((len(means), n_dims), dtype=np.int64)
    sign, rotation = np.empty((len(means), n_dims)), np.empty(len(means))
    for k, mean in enumerate(means):
        product = reference.T @ mean
        gain = np.where(either, np.abs(product), product)
        worst = 1.0 + 2.0 * n_dims * np.abs(product).max()
        order[k] = linear_sum_assignment(np.where(same, -gain, worst))[1]
        matched = product[np.arange(n_dims), order[k]]
        sign[k] = np.where(np.diag(either) & (matched < 0.0), -1.0, 1.0)
        aligned = sign[k] * mean[:, order[k]]
        # A dimension whose loadings point the other way is no rotation of few degrees.
        opposed = ((reference * aligned).sum(axis=0) < 0.0).any()
        rotation[k] = 180.0 if opposed else _angle(reference.T @ aligned)
    return order, sign, rotation


def _angle(product: Floats) -> float:
    """Largest angle, degrees, of the rotation R that maximises the trace of ``product @ R``."""
    u, _, v = np.linalg.svd(product)
    v[-1] *= np.linalg.det(u @ v)  # a rotation, not a reflection
    angles = np.angle(np.linalg.eigvals(u @ v))
    return float(np.degrees(np.abs(angles).max()))


def move(draws: Floats, order: Ints, sign: Floats) -> Floats:
    """Apply order and signs of one shard to its draws (draw, dims + 1, items) of :func:`align`.

    The last row, the intercepts, stays.
    """
    return np.concatenate([sign[:, None] * draws[:, order], draws[:, -1:]], axis=1)


def move_correlation(correlation: Floats, order: Ints, sign: Floats) -> Floats:
    """Apply them to draws (draw, dims, dims) of the correlation matrix."""
    return correlation[:, order][:, :, order] * np.outer(sign, sign)
