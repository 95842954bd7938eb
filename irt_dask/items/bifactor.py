"""Items of a general ability and one ability for each block of items, and grids for both."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.curves.grids import BEYOND, FARTHEST, GRID_BOUND
from irt_dask.engine import Engine
from irt_dask.engine.cache import keep, keep_last
from irt_dask.errors import InputError, listed
from irt_dask.kernels.several import bifactor_counts
from irt_dask.kernels.several import bifactor_posterior as kernel
from irt_dask.kernels.several.bifactor_posterior import Planes
from irt_dask.store import Block
from irt_dask.store.responses import sha256
from irt_dask.variables import ITEMS, LATENT_DIMS

#: Name of the ability of all items.
GENERAL = "general"
#: What results call the model, by whether slopes on abilities of blocks are free or tied.
MODELS = {False: "bifactor", True: "testlet"}
#: Distance of nodes at which it is looked how fine and how far a grid has to be.
_LOOK = 0.25


@dataclass(frozen=True)
class BlockItems:
    """Logit ``a x + s z + d``; items of block -1 have no ability but the general one.

    ``in_part`` says which blocks (that one last) somebody answered some items of, but not all.
    """

    slopes: Floats  # (3, items): a, s, d
    of_item: Ints
    n_blocks: int
    in_part: Bools

    @property
    def n_categories(self) -> Ints:
        """Two of each item."""
        return np.full(self.of_item.size, 2)

    @property
    def n_planes(self) -> int:
        """Blocks, with that of items without one."""
        return self.n_blocks + 1

    @functools.cached_property
    def place(self) -> Ints:
        """Number of each item's plane: its block's, or the last."""
        return np.where(self.of_item < 0, self.n_blocks, self.of_item)

    @functools.cached_property
    def row(self) -> Ints:
        """Rows of items in tables and counts by item, -1 for those that need none."""
        own = self.in_part[self.of_item]  # -1 is the last
        return np.where(own, np.cumsum(own) - 1, -1)

    def planes(self, nodes: Floats, block_nodes: Floats, *, tabled: bool = True) -> Planes:
        """Tables on these nodes."""
        order = np.argsort(self.place, kind="stable")
        first = np.concatenate([[0], np.cumsum(np.bincount(self.place, minlength=self.n_planes))])
        row = self.row if tabled else np.full(self.of_item.size, -1)
        slopes = np.ascontiguousarray(self.slopes)
        return kernel.planes(slopes, order, first, row, nodes, block_nodes)


@dataclass(frozen=True)
class Grids:
    """Nodes of the general ability and of those of blocks."""

    nodes: Floats
    block_nodes: Floats


def grids_of(
    items: BlockItems, *, share: float = 0.5, bound: float | None = None, steepest: float = 0.0
) -> Grids:
    """Grids that resolve every posterior under these items, and go from -bound to bound.

    Nodes of block abilities are at most ``share`` of the smallest SD apart that one can have given
    the general ability, those of the general one ``share`` of the smallest SD that it can have,
    block abilities being unknown, and both at most 1 / the steepest slope (or ``steepest``, that of
    others whose curves are needed) and 1/2.  Without a bound they go to 7, and further by whole
    numbers until no pattern of responses that is as extreme as any (all right, or all of a block
    right and all else wrong) has a millionth of its highest density at an end.
    """
    a, s, _ = np.abs(items.slopes)
    steep = max(float(a.max()), float(s.max()), steepest, 1e-6)
    look = min(_LOOK, 0.5 / steep)
    if bound is None:
        bound = _reach(items, look)
    x = _nodes(bound, look)
    general, both, own = kernel.information(items.slopes, items.place, items.n_planes, x)
    sharp = float((general - both**2 / (1.0 + own)).max(axis=(1, 2)).sum())
    spacing = [share / math.sqrt(1.0 + v) for v in (sharp, float(own.max()))]
    nodes = [_nodes(bound, min(h, 1.0 / steep, 0.5)) for h in spacing]
    return Grids(*nodes)


def _reach(items: BlockItems, spacing: float) -> float:
    """How far posteriors go whatever the responses."""
    bound, patterns = GRID_BOUND, _extreme(items)
    while True:
        x = _nodes(bound, spacing)
        if kernel.largest_share(patterns, items.planes(x, x, tabled=False)) < BEYOND:
            return bound
        bound = further(bound, 1.0)


def further(bound: float, by: float) -> float:
    """A bound of abilities beyond this one, or an error."""
    if bound + by > FARTHEST:
        raise InputError(
            f"under these items abilities may lie more than {bound:.0f} standard deviations from "
            f"0; they are computed up to {FARTHEST:.0f}: leave items out that are this extreme"
        )
    return bound + by


def _nodes(bound: float, spacing: float) -> Floats:
    half = math.ceil(bound / spacing)
    return np.arange(-half, half + 1, dtype=np.float64) * spacing


def _extreme(items: BlockItems) -> NDArray[np.int8]:
    """Patterns of responses that pull most: all, and each block against the others."""
    a, s, _ = items.slopes
    up = np.where(a >= 0.0, 1, -1)
    found = [up]
    for b in range(items.n_blocks):
        own = np.where(s >= 0.0, 1, -1)
        found.append(np.where(items.of_item == b, own, -up))
    both = np.concatenate([found, np.negative(found)])
    return (both > 0).astype(np.int8)


def tables(items: BlockItems, grids: Grids, fit: str | None = None) -> Planes:
    """Tables of items on grids, kept for the same ones; for a ``fit`` the last ones alone."""
    identity = (
        "bifactor",
        sha256(items.slopes, items.of_item, items.in_part, grids.nodes, grids.block_nodes),
    )

    def make() -> Planes:
        return items.planes(grids.nodes, grids.block_nodes)

    return keep(identity, make) if fit is None else keep_last(("tables", fit), identity, make)


def _in_part(block: Block, of_item: Ints, n_planes: int) -> tuple[Ints]:
    return (bifactor_counts.in_part(block.data, of_item, n_planes),)


def in_part(engine: Engine, of_item: Ints, n_blocks: int) -> Bools:
    """Blocks that somebody answered some items of, but not all: one pass."""
    place = np.where(of_item < 0, n_blocks, of_item)
    (n,) = engine.map_reduce(_in_part, place, n_blocks + 1)
    return np.asarray(n > 0)


# --- results --------------------------------------------------------------------------------------


def is_bifactor(items: Any) -> bool:
    """Whether this is a result of ``fit_bifactor``."""
    return isinstance(items, xr.Dataset) and items.attrs.get("model") in MODELS.values()


def block_items(
    fit: xr.Dataset, item_id: tuple[str, ...]
) -> tuple[Floats, Ints, tuple[str, ...]]:  # fmt: skip
    """Slopes (3, items), blocks (-1: none) and names of abilities of a result, by identifier."""
    for name in ("item_loading", "item_intercept", "domain"):
        if name not in fit.variables:
            raise InputError(f"items have no {name}: give the result of fit_bifactor as it is")
    known = {str(i): k for k, i in enumerate(fit["item_id"].values)}
    if lacking := [i for i in item_id if i not in known]:
        raise InputError(
            f"{len(lacking)} item(s) of the responses are not in items: {listed(lacking)}; leave "
            f"them out by responses.select(items=[...])"
        )
    at = [known[i] for i in item_id]
    loading = fit["item_loading"].transpose(ITEMS, LATENT_DIMS).values[at].astype(float)
    d = fit["item_intercept"].values[at].astype(float)
    if not (np.isfinite(loading).all() and np.isfinite(d).all()):
        raise InputError("items have slopes or intercepts that are not finite")
    own = loading[:, 1:] != 0.0
    if (own.sum(axis=1) > 1).any():
        j = int(np.flatnonzero(own.sum(axis=1) > 1)[0])
        raise InputError(f"item {item_id[j]} has slopes on the abilities of several blocks")
    of_item = np.where(own.any(axis=1), own.argmax(axis=1), -1)
    slopes = np.stack([loading[:, 0], loading[:, 1:].sum(axis=1), d])
    return slopes, of_item, tuple(map(str, fit["domain"].values))
