"""What a bifactor fit estimates, and its rounds: expected counts on the workers, an item step."""

from __future__ import annotations

import math
import uuid
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_ndtr

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.calibrate.bifactor.expansion import expanded
from irt_dask.calibrate.shared.start_values import ResponseCounts
from irt_dask.curves.grids import GRID_BOUND
from irt_dask.curves.logistic import INTERCEPT, SLOPE, share_logit, widened
from irt_dask.curves.priors import ItemPrior
from irt_dask.engine import Engine
from irt_dask.engine.memory import refuse_beyond_memory
from irt_dask.errors import EstimationError
from irt_dask.items.bifactor import BlockItems, Grids, further, grids_of, tables
from irt_dask.kernels.joint.item_maximum import Box
from irt_dask.kernels.posterior.expected_counts import Scales, scales_for
from irt_dask.kernels.several import bifactor_counts
from irt_dask.kernels.several import bifactor_items as steps
from irt_dask.store import Block

#: Bounds of slopes: with the steepest P goes from 1% to 99% within one SD.
SLOPES = (SLOPE.bounds[0], 10.0)
#: Bounds of lambda, and what slopes on abilities of blocks start as, next to general ones.
SCALES, _START = (1e-3, 20.0), 0.5
#: What gives free slopes on abilities of blocks their prior, unless another is given.
WEAK = ItemPrior()
#: SDs before the data of log a about its mean over a block's items, and of a times the distance of
#: their difficulties from the block's.
CENTRED = (0.5, 2.0)
#: Nodes are this share of the smallest posterior SD apart: sums over them err by e^-35.
_SHARE = 0.75
#: Share of the largest expected count below which a pair of nodes is left out of the item step.
_NEGLIGIBLE = 1e-12
#: By how much they go further where somebody's abilities may be beyond them.
_FURTHER = 3.0


@dataclass(frozen=True)
class Model:
    """Items of blocks (-1: of none), and how their slopes on the block's ability are tied.

    All parameters are one column: slopes on the general ability, on the block's (``testlet``: none,
    they are lambda times the former), intercepts, and with ``testlet`` the lambdas of blocks.
    """

    testlet: bool
    of_item: Ints
    n_blocks: int
    in_part: Bools
    #: That of given items; "centred" is about the means of a block's own log a and difficulties,
    #: whatever they are, so that it says nothing of the scales of abilities.
    prior: ItemPrior | str | None

    @property
    def n_items(self) -> int:
        """Number of items."""
        return self.of_item.size

    @property
    def n_parameters(self) -> int:
        """Parameters that are estimated."""
        return 2 * self.n_items + (
            self.n_blocks if self.testlet else int((self.of_item >= 0).sum())
        )

    # --- the column -----------------------------------------------------------------------------

    def pack(self, slopes: Floats, scale: Floats) -> Floats:
        """The column of items (3, items) and lambdas (blocks,)."""
        if self.testlet:
            return np.concatenate([slopes[0], slopes[2], scale])[:, None]
        return np.concatenate(slopes)[:, None]

    def unpack(self, x: Floats) -> tuple[Floats, Floats]:
        """Items (3, items); lambdas, empty where slopes are free."""
        m = self.n_items
        if not self.testlet:
            return x[:, 0].reshape(3, m), np.empty(0)
        a, d, scale = x[:m, 0], x[m : 2 * m, 0], x[2 * m :, 0]
        of_each = np.append(scale, 0.0)[self.of_item]  # -1 is the last
        return np.stack([a, of_each * a, d]), scale

    def items(self, x: Floats) -> BlockItems:
        """The items of a column."""
        return BlockItems(self.unpack(x)[0], self.of_item, self.n_blocks, self.in_part)

    def limits(self, slopes: Floats) -> steps.Limits:
        """Bounds of items, and their priors where items are at ``slopes`` (3, items)."""
        ones = np.ones(self.n_items)
        most = np.where(self.of_item >= 0, SLOPES[1], 0.0)
        low = np.stack([SLOPES[0] * ones, -most, INTERCEPT.bounds[0] * ones])
        high = np.stack([SLOPES[1] * ones, most, INTERCEPT.bounds[1] * ones])
        mean, precision = np.zeros((3, self.n_items)), np.zeros((3, self.n_items))
        centred, lean = self.prior == "centred", np.zeros(self.n_items)
        if centred:
            mean[0], lean = self._own_means(slopes)
            precision += np.array([[CENTRED[0]], [WEAK.loading[1]], [CENTRED[1]]]) ** -2.0
        elif isinstance(self.prior, ItemPrior):
            of = (self.prior.discrimination, self.prior.loading, self.prior.intercept)
            mean += np.array([pair[0] for pair in of])[:, None]
            precision += np.array([pair[1] ** -2.0 for pair in of])[:, None]
        return steps.Limits(low, high, mean, precision, centred, lean)

    def _own_means(self, slopes: Floats) -> tuple[Floats, Floats]:
        """Means of log a, and difficulties by least squares, of each item's block."""
        place = np.where(self.of_item < 0, self.n_blocks, self.of_item)
        a, d = slopes[0], slopes[2]

        def sums(x: Floats) -> Floats:
            return np.asarray(np.bincount(place, weights=x)[place], dtype=float)

        return sums(np.log(a)) / sums(np.ones_like(a)), -sums(a * d) / sums(a * a)

    def box(self) -> Box:
        """Bounds of the column."""
        k, n = self.limits(np.ones((3, self.n_items))), np.ones(self.n_blocks)
        low, high = (
            self.pack(b, v * n)[:, 0] for b, v in zip((k.low, k.high), SCALES, strict=True)
        )
        return Box(low, high)

    def at_bound(self, slopes: Floats) -> Bools:
        """Items with a parameter that ended at a bound."""
        k = self.limits(slopes)
        own = k.low < k.high
        if self.testlet:
            own[1] = False
        return np.asarray((((slopes <= k.low) | (slopes >= k.high)) & own).any(axis=0))

    def log_prior(self, x: Floats) -> float:
        """Log prior density of the parameters that have one; 0 without a prior."""
        return self.density(self.unpack(x)[0])[0]

    def density(self, slopes: Floats) -> tuple[float, Floats]:
        """The same of items (3, items), and its gradient."""
        if self.prior is None:
            return 0.0, np.zeros_like(slopes)
        k, own = self.limits(slopes), np.ones((3, self.n_items), dtype=bool)
        own[1] = (self.of_item >= 0) & (not self.testlet)
        a = slopes[0]
        if k.of_log:
            slopes = np.stack([np.log(a), slopes[1], slopes[2] + k.lean * a])
        gradient = -k.precision * (slopes - k.mean) * own
        density = 0.5 * (np.log(k.precision / (2.0 * math.pi)) + gradient * (slopes - k.mean))
        if k.of_log:
            gradient[0] = gradient[0] / a + gradient[2] * k.lean
        else:
            density[0] -= log_ndtr(k.mean[0] * np.sqrt(k.precision[0]))  # a > 0
        return float(density[own].sum()), gradient

    def start(self, counts: ResponseCounts) -> Floats:
        """Column to start from."""
        a = np.ones(self.n_items)
        s: Floats = np.where(self.of_item >= 0, _START, 0.0)
        right, seen = counts.right.astype(float), counts.seen.astype(float)
        d = widened(np.sqrt(a**2 + s**2)) * share_logit(right, seen)
        return self.pack(np.stack([a, s, d]), np.full(self.n_blocks, _START))

    def upright(self, x: Floats) -> Floats:
        """The column with blocks' abilities turned to where slopes on them are positive, in sum."""
        slopes, scale = self.unpack(x)
        slopes = slopes.copy()
        for b in range(self.n_blocks):
            at = self.of_item == b
            if slopes[1, at].sum() < 0.0:
                slopes[1, at] *= -1.0
        return self.pack(slopes, scale)


class Expected(NamedTuple):
    """Expected persons at pairs of nodes, who answered blocks in whole and items of the others."""

    x: Floats  # of each pair
    z: Floats
    whole: Floats  # (planes, pairs)
    some: Floats  # (rows, pairs)
    row: Ints  # of each item, -1 for none
    right: Floats  # (3, items)
    moments: Floats  # sums over persons of 1, x, z, x^2, xz, z^2, (planes + 1, 6)
    grids: Grids


def _expect(
    block: Block, to: tuple[Any, ...] | None, items: BlockItems, grids: Grids, fit: str,
    scales: Scales,
) -> tuple[Any, ...]:  # fmt: skip
    return bifactor_counts.counts(
        block.data, tables(items, grids, fit), scales,
        weight=block.weight if block.times is None else None, times=block.times,
        to=None if to is None else bifactor_counts.Counts(*to),
    )  # fmt: skip


class Rounds:
    """What the loop of :mod:`irt_dask.calibrate.shared.climb` asks for."""

    def __init__(self, engine: Engine, model: Model) -> None:
        self.engine, self.model, self.box = engine, model, model.box()
        self.name = uuid.uuid4().hex  # of what processes keep for it

    def round(self, x: Floats) -> tuple[float, None, Expected]:
        """Log-likelihood plus log prior, and expected counts at x."""
        value, seen = self.expect(x)
        return value + self.model.log_prior(x), None, seen

    def expect(self, x: Floats) -> tuple[float, Expected]:
        """Log-likelihood and expected counts at x, on grids that hold all persons."""
        items, bound = self.model.items(x), GRID_BOUND
        while True:
            value, seen, outside = self._expect(items, bound)
            if not outside:
                return value, seen
            bound = further(bound, _FURTHER)

    def _expect(self, items: BlockItems, bound: float) -> tuple[float, Expected, bool]:
        """Log-likelihood and counts on grids to a bound; whether somebody may be beyond it."""
        grids = grids_of(items, share=_SHARE, bound=bound)
        self._refuse_too_many(items, grids)
        reach = float(max(grids.nodes[-1], grids.block_nodes[-1]))
        logits = (np.abs(items.slopes) * [[reach], [reach], [1.0]]).sum(axis=0) + 1.0
        largest = float(logits.sum()) + reach**2
        scales = scales_for(self.engine.n_persons, reach**2, largest)
        c = bifactor_counts.Counts(*self.engine.map_add(_expect, items, grids, self.name, scales))
        found = self._expected(c, items, grids, scales.weight)
        return float(c.log_marginal) / scales.log_marginal, found, bool(c.outside)

    def _refuse_too_many(self, items: BlockItems, grids: Grids) -> None:
        pairs = float(grids.nodes.size) * grids.block_nodes.size
        rows = int(items.in_part[self.model.of_item].sum())
        needed = 8.0 * pairs * (items.n_planes + rows) * (self.engine.n_held + 3)
        refuse_beyond_memory(
            needed,
            f"a grid of {grids.nodes.size} x {grids.block_nodes.size} pairs of abilities for "
            f"{items.n_planes} blocks, and {rows} items of blocks that some answered in part,",
        )

    def _expected(
        self, c: bifactor_counts.Counts, items: BlockItems, grids: Grids, scale: float
    ) -> Expected:
        x = np.repeat(grids.nodes, grids.block_nodes.size)
        z = np.tile(grids.block_nodes, grids.nodes.size)
        whole, some = (v.reshape(len(v), x.size) / scale for v in (c.whole, c.some))
        return Expected(x, z, whole, some, items.row, c.right / scale, c.moments / scale, grids)

    def item_step(self, seen: Expected, x: Floats, *, everywhere: bool = True) -> Floats:
        """EM step from x."""
        model = self.model
        slopes, scale = (v.copy() for v in model.unpack(x))
        limits = model.limits(slopes)
        for b in [*range(model.n_blocks), -1]:
            at = np.flatnonzero(model.of_item == b)
            if not at.size:
                continue
            n = seen.whole[[b]]
            if seen.row[at[0]] >= 0:
                n = n + seen.some[seen.row[at]]
            kept = (n > _NEGLIGIBLE * n.max()).any(axis=0)
            s = steps.Seen(
                seen.x[kept], seen.z[kept], np.ascontiguousarray(n[:, kept]),
                np.ascontiguousarray(seen.right[:, at]),
            )  # fmt: skip
            low, high, mean, precision = (np.ascontiguousarray(v[:, at]) for v in limits[:4])
            k = steps.Limits(low, high, mean, precision, limits.of_log, limits.lean[at])
            start = np.ascontiguousarray(slopes[:, at])
            if model.testlet and b >= 0:
                slopes[:, at], scale[b] = steps.testlet(s, k, start, scale[b], SCALES[1])
            else:
                slopes[:, at] = steps.free(s, k, start)
        image = np.clip(model.pack(slopes, scale), self.box.low[:, None], self.box.high[:, None])
        if not np.isfinite(image).all():
            raise EstimationError("the EM step ended at a value that is not finite")
        return np.asarray(image)

    def further(self, image: Floats, seen: Expected) -> Floats:
        """From the EM step on to where the moments of abilities say that it leads in the end."""
        slopes, scale = self.model.unpack(image)
        moved = expanded(self.model, slopes, seen.moments)
        if self.model.testlet:
            # All items of a block have moved by the same factors.
            at = [int(np.flatnonzero(self.model.of_item == b)[0]) for b in range(scale.size)]
            scale = moved[1, at] / moved[0, at]
        x = self.model.pack(moved, scale)
        if not np.isfinite(x).all():
            return image
        return np.asarray(np.clip(x, self.box.low[:, None], self.box.high[:, None]))
