"""The distribution that persons are taken to come from, and what it says of those of a block."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irt_dask.arrays import Floats, Ints
from irt_dask.curves import grids
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine.cache import keep, renew
from irt_dask.items.tables import item_tables
from irt_dask.kernels.base.lanes import LANES
from irt_dask.kernels.posterior import cells, moments, person_weights, tables
from irt_dask.kernels.posterior.tables import Tables
from irt_dask.kernels.responses.item_sets import CommonSets, common_sets
from irt_dask.kernels.responses.layouts import Layout, take
from irt_dask.store.blocks import BlockRef

#: Items whose sharpness is looked at together.
_AT_ONCE = 4096


@dataclass(frozen=True)
class Covariates:
    """Covariates of the regression, by column, and how they are brought to [-1, 1]."""

    names: tuple[str, ...]
    columns: tuple[int, ...]
    middle: Floats
    half: Floats

    def of(self, ref: Any) -> Floats:
        """Covariates of a block's persons as they are."""
        return ref.covariates()[:, list(self.columns)]

    def design(self, ref: Any) -> Floats:
        """Ones and the covariates on [-1, 1]."""
        x = (self.of(ref) - self.middle) / self.half
        return np.concatenate([np.ones((len(x), 1)), x], axis=1)

    def original(self) -> Floats:
        """Matrix from coefficients of the design to those of the covariates as they are."""
        to = np.diag(np.concatenate([[1.0], 1.0 / self.half]))
        to[0, 1:] = -self.middle / self.half
        return to


class Persons(NamedTuple):
    """What a population says of the persons of a block."""

    group: Ints | None  # number of each person's group; None: one group
    design: Floats | None  # row of each person in the regression, (persons, covariates + 1)


NOBODY_APART = Persons(None, None)


@dataclass(frozen=True)
class Population:
    """N(0, 1); a normal for each group; or normal about a linear predictor.

    ``coefficients`` are means of groups, or those of the design; the first index of all arrays is
    that of the group.
    """

    coefficients: Floats
    sd: Floats
    labels: tuple[str, ...] = ()
    covariates: Covariates | None = None
    #: Answers that a person gives at most, where these are far fewer than the items; 0: no bound.
    most_answers: int = 0

    @property
    def plain(self) -> bool:
        """Whether all persons come from one normal distribution."""
        return not self.labels and self.covariates is None

    @property
    def standard(self) -> bool:
        """Whether it is N(0, 1)."""
        return self.plain and not self.coefficients.any() and self.sd[0] == 1.0

    @property
    def key(self) -> tuple[bytes, ...]:
        """What tells it from others."""
        return self.coefficients.tobytes(), self.sd.tobytes()

    @property
    def furthest(self) -> float:
        """Largest absolute prior mean."""
        return float(np.abs(self.coefficients).sum(axis=1).max())

    def ends(self) -> tuple[Floats, Floats]:
        """Smallest and largest prior mean of each group."""
        around = np.abs(self.coefficients[:, 1:]).sum(axis=1)
        return self.coefficients[:, 0] - around, self.coefficients[:, 0] + around

    def persons(self, ref: BlockRef | None) -> Persons:
        """Groups or covariates of a block's persons; its reference is needed unless plain."""
        if self.plain:
            return NOBODY_APART
        assert ref is not None
        if self.covariates is None:
            return Persons(pd.Index(self.labels).get_indexer(pd.Index(ref.groups())), None)
        return Persons(None, self.covariates.design(ref))

    def means(self, persons: Persons) -> Floats | None:
        """Prior mean of each person; None: those of the groups."""
        if persons.design is None:
            return None
        mean = np.full(len(persons.design), self.coefficients[0, 0])
        for k in range(1, persons.design.shape[1]):  # one by one: the same bits in any blocks
            mean += persons.design[:, k] * self.coefficients[0, k]
        return mean

    # --- grids ----------------------------------------------------------------------------------

    def within(self, other: Population, margin: float) -> bool:
        """Whether means and SDs differ from another's by no more than a share of its SD."""
        apart = np.abs(np.array(self.ends()) - np.array(other.ends())).max(axis=0)
        ratio = self.sd / other.sd
        return bool(
            (apart <= margin * other.sd).all()
            and (np.maximum(ratio, 1.0 / ratio) <= 1.0 + margin).all()
        )

    def nodes(self, items: ItemSet, margin: float = 0.0, *, scored: bool = False) -> Floats:
        """Nodes that resolve and hold the posteriors of all persons under these items.

        With a ``margin`` they serve all populations :meth:`within` it; for ``scored`` see
        :func:`irt_dask.curves.grids.reach_of`.
        """
        low, high = self.ends()
        sd = self.sd * (1.0 + margin)
        low, high = low - margin * self.sd, high + margin * self.sd
        reach = grids.reach_of(
            items, np.concatenate([low, high]), np.concatenate([sd, sd]), scored=scored
        )
        if self.standard and margin == 0.0 and not self.most_answers:
            n = grids.grid_of(items, bound=reach).n_nodes
            n += -n % LANES
            centred = np.arange(n, dtype=np.float64) - 0.5 * (n - 1)  # symmetric to the bit
            return centred * np.float64(2.0 * reach / (n - 1))
        first, last = float((low - reach * sd).min()), float((high + reach * sd).max())
        narrowest = float(self.sd.min()) / (1.0 + margin)
        if self.most_answers:
            h = _spacing(items, first, last, narrowest, self.most_answers)
        else:
            h = grids.spacing_for(items, first, last, narrowest)
        return tables.padded(h * np.arange(np.floor(first / h), np.ceil(last / h) + 1.0))

    def prior(self, nodes: Floats, persons: Persons) -> tuple[person_weights.Prior, Floats | float]:
        """Log masses for the persons of a block, and what is to be added to log marginals."""
        mass = person_weights.normal(nodes, self.coefficients[:, 0], self.sd)
        mean = self.means(persons)
        if mean is None:
            return person_weights.prior(mass, persons.group), 0.0
        center, variance = self.coefficients[0, 0], self.sd[0] ** 2
        offset = -0.5 * (mean - center) * (mean + center) / variance
        return person_weights.prior(mass, None, (mean - center) / variance), offset


def _spacing(items: ItemSet, low: float, high: float, sd: float, most: int) -> float:
    """As :func:`irt_dask.curves.grids.spacing_for`, of persons with ``most`` answers at most."""
    n = math.ceil((high - low) / min(0.125, 0.25 / items.steepest)) + 1
    look = np.linspace(low, high, n)
    sharp = np.zeros((0, n))
    for g in items.groups:
        for k in range(0, g.at.size, _AT_ONCE):
            more = g.model.sharpness(g.x[:, k : k + _AT_ONCE], look)
            sharp = np.concatenate([sharp, more])
            if len(sharp) > most:
                sharp = np.partition(sharp, len(sharp) - most, axis=0)[-most:]
    sharpest = 1.0 / sd**2 + float(sharp.sum(axis=0).max())
    return min(0.5 / math.sqrt(sharpest), 1.0 / items.steepest, 0.5 * sd)


STANDARD = Population(np.zeros((1, 1)), np.ones(1))


class Posteriors(NamedTuple):
    """All that kernels need to know of a block's persons, items and where the persons come from."""

    data: Layout
    sets: CommonSets
    tables: Tables
    shared: person_weights.Shared
    prior: person_weights.Prior

    @property
    def arguments(self) -> tuple[Layout, Tables, person_weights.Shared, person_weights.Prior]:
        """What kernels of the posterior take first."""
        return self.data, self.tables, self.shared, self.prior


def posteriors(
    data: Layout, items: ItemSet, nodes: Floats, prior: person_weights.Prior
) -> Posteriors:
    """Tables of a block's persons."""
    g, sets = item_tables(items, nodes), common_sets(data)
    return Posteriors(data, sets, g, person_weights.shared(sets, g), prior)


def expectations(
    data: Layout, items: ItemSet, nodes: Floats, population: Population = STANDARD,
    persons: Persons = NOBODY_APART,
) -> Floats:  # fmt: skip
    """Posterior mean and variance of each ability, and the log marginal likelihood, (3, persons).

    A person without responses has the prior, and log-likelihood 0.
    """
    g = item_tables(items, nodes)
    if persons.design is not None or not cells.has_cells(g):
        prior, offset = population.prior(nodes, persons)
        out = moments.expectations(*posteriors(data, items, nodes, prior).arguments)
        out[2] += offset
        return out
    key = ("cells", items.digest, nodes.tobytes(), *population.key)
    seen = keep(key, lambda: cells.NOTHING)
    out = np.empty((3, data.shape[0]))
    rest = cells.look_up(data, g, persons.group, seen, out)
    if rest.size:
        part, its = _taken(data, persons, rest)
        p = posteriors(part, items, nodes, population.prior(nodes, its)[0])
        more = cells.extended(seen, g, p.sets, p.prior)
        renew(key, seen, more)
        out[:, rest] = moments.expectations(*p.arguments, more)
    return out


def _taken(data: Layout, persons: Persons, who: Ints) -> tuple[Layout, Persons]:
    """Some persons of a block; all of them as they are."""
    if who.size == data.shape[0]:
        return data, persons
    group = None if persons.group is None else persons.group[who]
    return take(data, who), Persons(group, None)
