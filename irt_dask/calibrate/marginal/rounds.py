"""Rounds of marginal maximum likelihood: expected counts on the workers, then the item step.

One round is one pass: the log-likelihood of the current parameters and the EM step from there.
Parameters are one column: slopes, intercepts and guessing parameters of all items, then what is
known of ability: means and log SDs of the groups, or their histograms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, xlog1py, xlogy

from irt_dask.engine import Engine
from irt_dask.engine.cache import keep
from irt_dask.errors import EstimationError
from irt_dask.kernels.base import fixed_point
from irt_dask.kernels.joint import item_maximum as item_kernels
from irt_dask.kernels.joint.item_maximum import Box, Counts
from irt_dask.kernels.posterior import expected_counts, expected_counts_3pl, linear_tables
from irt_dask.kernels.responses import layouts
from irt_dask.models import GRID_BOUND, grid_for
from irt_dask.store import Block
from irt_dask.store.responses import sha256

Floats = NDArray[np.float64]

#: Bounds of slopes and intercepts, far from what items have; a slope that ends there has none.
SLOPES, INTERCEPTS = (1e-3, 25.0), (-40.0, 40.0)
GUESSING = (1e-6, 0.6)
#: Bounds of the groups' means and SDs.
MEANS, LOG_SDS = (-10.0, 10.0), (math.log(0.05), math.log(10.0))
#: Abilities of a histogram.
HISTOGRAM_NODES: Floats = np.arange(-60, 61, dtype=np.float64) / 10.0
#: An ability at which nobody knows the answer: counts there are a Beta prior on guessing.
_IGNORANT = -1e5


@dataclass(frozen=True)
class Model:
    """What is estimated.

    ``fixed`` are values (3, items) of items that are not, NaN for the others.  ``guessing_prior``
    is (alpha, beta) of a Beta density.  The group ``reference`` has mean 0 and SD 1, unless items
    of a bank fix the scale (``anchored``); with ``histogram`` every group has one.
    """

    name: str
    fixed: Floats
    guessing_prior: tuple[float, float]
    n_groups: int = 1
    reference: int = 0
    anchored: bool = False
    histogram: bool = False

    @property
    def n_items(self) -> int:
        """Number of items."""
        return self.fixed.shape[1]

    @property
    def free_groups(self) -> NDArray[np.bool_]:
        """Groups with a mean and an SD of their own."""
        return (np.arange(self.n_groups) != self.reference) | self.anchored

    @property
    def guessing(self) -> bool:
        """Whether items can be guessed."""
        return self.name == "3pl" or bool(np.nan_to_num(self.fixed[2]).any())

    @property
    def n_parameters(self) -> int:
        """Parameters that are estimated, wherever they end: those of AIC and BIC.

        What ended at a bound counts too: that the data drove it there was not known before.
        """
        free = np.isnan(self.fixed)
        count = int(free[1:].sum())
        count += int(free[0].any()) if self.name == "1pl" else int(free[0].sum())
        if not self.histogram:
            return count + 2 * int(self.free_groups.sum())
        # A mean and an SD of a histogram fix the scale, unless items do.
        masses = self.n_groups * (HISTOGRAM_NODES.size - 1)
        return count + masses - (0 if self.anchored else 2)

    def pack(self, items: Floats, ability: Floats) -> Floats:
        """Return the column of all parameters."""
        return np.concatenate([items.ravel(), ability.ravel()])[:, None]

    def unpack(self, x: Floats) -> tuple[Floats, Floats]:
        """Items (3, items); means and log SDs (2, groups), or histograms (groups, nodes)."""
        items = x[: 3 * self.n_items, 0].reshape(3, -1)
        rows = self.n_groups if self.histogram else 2
        return items, x[3 * self.n_items :, 0].reshape(rows, -1)

    def box(self) -> Box:
        """Bounds of the column."""
        low = np.repeat([SLOPES[0], INTERCEPTS[0], GUESSING[0]], self.n_items)
        high = np.repeat([SLOPES[1], INTERCEPTS[1], GUESSING[1]], self.n_items)
        known = self.fixed.ravel()
        low, high = (np.where(np.isnan(known), bound, known) for bound in (low, high))
        if self.histogram:
            size = self.n_groups * HISTOGRAM_NODES.size
            return Box(np.append(low, np.zeros(size)), np.append(high, np.ones(size)))
        free = self.free_groups
        return Box(
            np.concatenate([low, np.where(free, MEANS[0], 0.0), np.where(free, LOG_SDS[0], 0.0)]),
            np.concatenate([high, np.where(free, MEANS[1], 0.0), np.where(free, LOG_SDS[1], 0.0)]),
        )

    def at_group_bound(self, ability: Floats) -> NDArray[np.bool_]:
        """Which groups' means and log SDs, (2, groups), are at a bound; no histogram is."""
        if self.histogram:
            return np.zeros((2, self.n_groups), dtype=bool)
        low, high = np.array([MEANS, LOG_SDS]).T
        out = (ability <= low[:, None]) | (ability >= high[:, None])
        return np.asarray(out & self.free_groups)

    def start(self, items: Floats) -> Floats:
        """Column to start from."""
        if self.histogram:
            density = np.exp(-0.5 * HISTOGRAM_NODES**2)
            ability = np.tile(density / density.sum(), (self.n_groups, 1))
        else:
            ability = np.zeros((2, self.n_groups))
        return self.pack(np.where(np.isnan(self.fixed), items, self.fixed), ability)


class Expected(NamedTuple):
    """Expected counts: right and observed by item and node, persons by group and node."""

    nodes: Floats
    right: Floats
    seen: Floats
    persons: Floats


class Grid(NamedTuple):
    """Nodes, and the log mass of ability at each, (groups, nodes)."""

    nodes: Floats
    log_mass: Floats

    @classmethod
    def of(cls, model: Model, items: Floats, ability: Floats, *, coarse: bool = False) -> Grid:
        """Grid that resolves the posteriors under these items and holds every group.

        Its spacing is 3/4 of the smallest posterior standard deviation at most (sums over nodes err
        by e^-35 then) and ``1 / max a``.  A coarse one has half the nodes: enough for moments to
        1e-8.
        """
        if model.histogram:
            with np.errstate(divide="ignore"):
                mass = ability / ability.sum(axis=1, keepdims=True)
                return cls(HISTOGRAM_NODES, np.maximum(np.log(mass), -700.0))
        mean, sd = ability[0], np.exp(ability[1])
        bound = max(GRID_BOUND, float((np.abs(mean) + GRID_BOUND * sd).max()))
        finest = min(grid_for(items[0], items[1]).spacing, 0.5 * float(sd.min()))
        if coarse:
            spacing = 2.0 * finest
        else:
            spacing = min(1.5 * finest, 1.0 / float(items[0].max()), 0.5)
        half = math.ceil(bound / spacing)
        nodes = np.arange(-half, half + 1, dtype=np.float64) * np.float64(spacing)
        z = (nodes - mean[:, None]) / sd[:, None]
        return cls(
            nodes, math.log(spacing / math.sqrt(2.0 * math.pi)) - ability[1][:, None] - 0.5 * z**2
        )


def tables(items: Floats, grid: Grid, group: int, general: bool) -> Any:
    """Tables of items and grid, made once in a process."""
    a, d, c = items
    mass = grid.log_mass[group]

    def make() -> Any:
        if general:
            return expected_counts_3pl.tables(a, d, c, grid.nodes, mass)
        return linear_tables.tables(a, d, grid.nodes, mass)

    return keep(("marginal", general, sha256(items, grid.nodes, mass)), make)


class Part(NamedTuple):
    """A group's persons in a block: weights are those of a sample, ``times`` frequencies."""

    group: int
    data: layouts.Layout
    weight: Floats | None
    times: NDArray[np.int64] | None


def by_group(block: Block, n_groups: int) -> list[Part]:
    """Persons of a block by group."""
    weights = block.weight if block.times is None else None
    if block.group is None:
        return [Part(0, block.data, weights, block.times)]
    parts = []
    for g in range(n_groups):
        rows = np.flatnonzero(block.group == g)
        if rows.size:
            weight = None if weights is None else weights[rows]
            times = None if block.times is None else block.times[rows]
            parts.append(Part(g, layouts.take(block.data, rows), weight, times))
    return parts


def _expect(
    block: Block, items: Floats, grid: Grid, general: bool, scales: expected_counts.Scales
) -> tuple[Any, ...]:
    kernel = expected_counts_3pl.counts if general else expected_counts.counts
    n_groups, n_nodes = grid.log_mass.shape
    right, seen = np.zeros((2, items.shape[1], n_nodes), dtype=np.int64)
    persons, value = np.zeros((n_groups, n_nodes), dtype=np.int64), np.int64(0)
    for p in by_group(block, n_groups):
        t = tables(items, grid, p.group, general)
        r, s, mass, v = kernel(p.data, t, scales, weight=p.weight, times=p.times, constant=0.0)
        right += r
        seen += s
        persons[p.group] = mass
        value += v
    return right, seen, persons, value


class Rounds:
    """What the loop of :mod:`irt_dask.calibrate.shared.climb` asks for."""

    def __init__(self, engine: Engine, model: Model) -> None:
        self.engine, self.model, self.box = engine, model, model.box()
        self.total = engine.n_persons
        #: A histogram need not be log-concave, nor is the likelihood of a guessed item.
        self.general = model.guessing or model.histogram

    def round(self, x: Floats) -> tuple[float, None, Expected]:
        """Log-likelihood plus log prior of guessing, and expected counts at x."""
        value, seen = self.expect(x)
        return value + self.log_prior(x), None, seen

    def expect(self, x: Floats) -> tuple[float, Expected]:
        """Log-likelihood and expected counts at x."""
        items, ability = self.model.unpack(x)
        grid = Grid.of(self.model, items, ability)
        reach = float(np.abs(grid.nodes).max())
        worst = float((items[0] * reach + np.abs(items[1])).max()) + 1.0
        scales = expected_counts.Scales(
            fixed_point.scale_for(self.total * reach),
            fixed_point.scale_for(self.total * (items.shape[1] * worst + 700.0)),
        )
        right, seen, persons, value = self.engine.map_reduce(
            _expect, items, grid, self.general, scales
        )
        w = scales.weight
        counts = Expected(grid.nodes, right / w, seen / w, persons / w)
        return float(value) / scales.log_marginal, counts

    def log_prior(self, x: Floats) -> float:
        """Log prior density of the guessing parameters that are estimated; 0 without a prior."""
        if self.model.name != "3pl":
            return 0.0
        alpha, beta = self.model.guessing_prior
        c = self.model.unpack(x)[0][2][np.isnan(self.model.fixed[2])]
        log_density = xlogy(alpha - 1.0, c) + xlog1py(beta - 1.0, -c) - betaln(alpha, beta)
        return float(log_density.sum())

    def item_step(self, seen: Expected, x: Floats, *, everywhere: bool = True) -> Floats:
        """EM step from x.

        It stays with the guessing parameters at hand, ``everywhere`` or not: with other ones an
        item's expected counts would be others too.
        """
        items, ability = self.model.unpack(x)
        free, moved = np.isnan(self.model.fixed).any(axis=0), items.copy()
        if free.all():
            moved = self._maximised(seen, np.ascontiguousarray(items))
        elif free.any():
            counts = Expected(seen.nodes, seen.right[free], seen.seen[free], seen.persons)
            moved[:, free] = self._maximised(counts, np.ascontiguousarray(items[:, free]))
        image = self.model.pack(moved, self._ability_step(seen, ability))
        if not np.isfinite(image).all():
            raise EstimationError("the EM step ended at a value that is not finite")
        return image

    def _maximised(self, e: Expected, items: Floats) -> Floats:
        """Parameters (3, items) of free items that are likeliest at expected counts."""
        if self.model.name == "1pl":
            return self._common_slope(e, items)
        return item_kernels.maximise(self._counts(e), items, self._bounds(), everywhere=False)

    def _bounds(self) -> Box:
        low_c, high_c = GUESSING if self.model.name == "3pl" else (0.0, 0.0)
        low, high = zip(SLOPES, INTERCEPTS, (low_c, high_c), strict=True)
        return Box(np.array(low), np.array(high))

    def _counts(self, e: Expected) -> Counts:
        sums = e.right.sum(axis=1), e.right @ e.nodes
        if self.model.name != "3pl":
            return Counts(e.nodes, e.seen, *sums, np.zeros((0, 0)))
        alpha, beta = self.model.guessing_prior
        m = len(e.right)
        right = np.concatenate([np.full((m, 1), alpha - 1.0), e.right], axis=1)
        seen = np.concatenate([np.full((m, 1), alpha + beta - 2.0), e.seen], axis=1)
        return Counts(np.append(_IGNORANT, e.nodes), seen, *sums, right)

    def _common_slope(self, e: Expected, items: Floats) -> Floats:
        """Newton steps for one slope and all intercepts; the function is concave."""
        a, d = float(items[0, 0]), items[1].copy()
        right, right_ability = e.right.sum(axis=1), float((e.right @ e.nodes).sum())
        for _ in range(100):
            p = 1.0 / (1.0 + np.exp(-(a * e.nodes + d[:, None])))
            expected_right = e.seen * p
            w = expected_right * (1.0 - p)
            gd = right - expected_right.sum(axis=1)
            ga = right_ability - float((expected_right @ e.nodes).sum())
            hdd, had = w.sum(axis=1) + 1e-300, w @ e.nodes
            haa = float((w @ e.nodes**2).sum())
            step_a = (ga - float(had @ (gd / hdd))) / (haa - float(had @ (had / hdd)))
            step_d = (gd - had * step_a) / hdd
            size = min(1.0, 2.0 / max(abs(step_a), float(np.abs(step_d).max()), 1e-300))
            a = min(max(a + size * step_a, SLOPES[0]), SLOPES[1])
            d = np.clip(d + size * step_d, *INTERCEPTS)
            if max(abs(step_a), float(np.abs(step_d).max())) < 1e-9:
                break
        return np.stack([np.full_like(d, a), d, items[2]])

    def _ability_step(self, e: Expected, ability: Floats) -> Floats:
        """Means and SDs, or histograms, of expected persons."""
        n = e.persons.sum(axis=1, keepdims=True)
        if (n <= 0.0).any():
            raise EstimationError("a group has no person with a response; remove it")
        if self.model.histogram:
            return e.persons / n
        mean = e.persons @ e.nodes / n[:, 0]
        variance = (e.persons * (e.nodes - mean[:, None]) ** 2).sum(axis=1) / n[:, 0]
        free = self.model.free_groups
        log_sd = np.clip(0.5 * np.log(variance), *LOG_SDS)
        return np.stack([np.where(free, np.clip(mean, *MEANS), 0.0), np.where(free, log_sd, 0.0)])

    def further(self, image: Floats, e: Expected) -> Floats:
        """From the EM step on to that of a model whose reference group has any mean and SD.

        Bringing that group back to 0 and 1 changes the items and the other groups, not the
        likelihood, and a common shift or stretch, of which few persons with many items say little,
        is found in one step (parameter expansion: Liu, Rubin and Wu 1998).  Items at a bound stay
        there, and pull at mean and SD with what the likelihood would gain beyond; a group at a
        bound could not be moved along, so then there is no further step.
        """
        model = self.model
        if model.histogram or model.anchored:
            return image
        items, ability = model.unpack(image)
        if model.at_group_bound(ability).any():
            return image
        a, d, c = items
        bound_a, bound_d = (a <= SLOPES[0]) | (a >= SLOPES[1]), np.abs(d) >= INTERCEPTS[1]
        pull_a, pull_d = np.zeros((2, a.size))
        at = np.flatnonzero(bound_a | bound_d)
        if at.size:
            if model.guessing:
                return image
            pull_a[at], pull_d[at] = expected_counts.score(
                e.right[at], e.seen[at], e.nodes, a[at], d[at]
            )
        persons = e.persons[model.reference]
        n = float(persons.sum())
        mean = float(persons @ e.nodes) / n
        variance = float(persons @ (e.nodes - mean) ** 2) / n
        held = float((a * pull_a)[bound_a].sum()) / n
        if not abs(held) < 0.5:
            return image
        variance /= 1.0 + held
        mean -= variance * float((a * pull_d)[bound_d].sum()) / n
        sd = math.sqrt(variance)
        moved = np.stack([np.where(bound_a, a, a * sd), np.where(bound_d, d, d + a * mean), c])
        groups = np.stack([(ability[0] - mean) / sd, ability[1] - math.log(sd)])
        groups = np.where(model.free_groups, groups, 0.0)
        return np.clip(model.pack(moved, groups), self.box.low[:, None], self.box.high[:, None])
