"""The questions that a total is over: items of the bank, weights, and how some were drawn."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from irt_dask.arrays import Floats, Ints
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine import Engine
from irt_dask.engine.cache import keep
from irt_dask.engine.memory import refuse_beyond_memory
from irt_dask.errors import InputError
from irt_dask.items.draws import item_draws, usual_draws
from irt_dask.items.parameters import bank_item_ids, item_set, refuse_other_categories
from irt_dask.kernels.base.lanes import LANES
from irt_dask.kernels.posterior import person_weights, totals
from irt_dask.kernels.posterior.totals import Points, reach_down
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.population.population import STANDARD, Posteriors, posteriors
from irt_dask.selection.by_item import grouped, labels_of, probabilities_of
from irt_dask.store import Responses
from irt_dask.store.responses import sha256

#: Items whose curves are tabulated at a time where only their sums are kept.
_TOGETHER = 1024
#: How far from a whole number of questions a probability times a stratum may be.
_ROUNDING = 0.01


@dataclass(frozen=True, eq=False)
class Design:
    """Simple random samples of a set number of questions, one from each stratum."""

    names: NDArray[np.str_]
    stratum: Ints  # of each item of the bank
    size: Ints  # questions in each stratum
    n: Ints  # of which so many are asked

    @classmethod
    def none(cls, n_items: int) -> Design:
        """One stratum, of which nothing is known."""
        zero = np.zeros(n_items, dtype=np.int64)
        return cls(np.array([""]), zero, np.array([n_items]), np.array([-1]))

    @property
    def df(self) -> int:
        """Degrees of freedom of intervals: questions drawn, less 1; 0 if all were asked."""
        drawn = self.n < self.size
        return max(int(self.n[drawn].sum()) - 1, 0)


def design_of(probability: Any, strata: Any, item_id: tuple[str, ...]) -> Design:
    """Read what the caller says of how questions were drawn."""
    if isinstance(probability, xr.Dataset):
        if "item_inclusion_probability" not in probability:
            raise InputError("inclusion_probability has no item_inclusion_probability")
        if strata is None and "item_stratum" in probability:
            strata = probability["item_stratum"]
        probability = probability["item_inclusion_probability"]
    p = probabilities_of(probability, item_id)
    if strata is None:
        labels = np.array([f"probability {x:.6g}" for x in p])
    else:
        labels = labels_of(strata, item_id, "strata")
    names, stratum, size = grouped(labels)
    n = np.empty(names.size, dtype=np.int64)
    for h, name in enumerate(names):
        own = p[stratum == h]
        if own.max() - own.min() > 1e-9:
            raise InputError(
                f"strata: {str(name)!r} has inclusion probabilities from {own.min():.6g} to "
                f"{own.max():.6g}; within a stratum every question has the same"
            )
        expected = float(own[0]) * int(size[h])
        n[h] = round(expected)
        if abs(expected - n[h]) > _ROUNDING or n[h] < 1:
            raise InputError(
                f"inclusion_probability {own[0]:.6g} of the {size[h]} questions of stratum "
                f"{str(name)!r} is {expected:.4g} questions; give n / {size[h]} with a whole n "
                f"of 1 or more, that of a simple random sample without replacement"
            )
    found = Design(names, stratum, size, n)
    if found.df < 1 and (n < size).any():
        raise InputError("one question was drawn; an interval needs two or more")
    return found


@dataclass(frozen=True, eq=False)
class Questions:
    """Items of the bank, and of these those of the responses, under one set of parameters."""

    at: Ints  # places of the items of the responses in the bank
    weights: Floats
    design: Design

    #: What results say of abilities: how many, and their distribution.
    abilities: ClassVar[str]
    population: ClassVar[str]

    @property
    def n_items(self) -> int:
        """Questions of the bank."""
        return self.weights.size

    @property
    def n_categories(self) -> Ints:
        """Of each question of the bank."""
        raise NotImplementedError

    def look(self, engine: Engine) -> Any:
        """What has to be known of all responses."""
        return None

    def knowing(self, seen: Any) -> Questions:
        """The same with what :meth:`look` found."""
        return self

    def asked(self, at: Ints) -> Questions:
        """The same for persons who answered these and no others of the bank."""
        raise NotImplementedError

    def model_moments(self, data: Layout) -> Floats:
        """See :func:`irt_dask.kernels.posterior.totals.model_moments`."""
        raise NotImplementedError

    def design_moments(self, data: Layout, wanted: Ints) -> tuple[Floats, Ints]:
        """See :func:`irt_dask.kernels.posterior.totals.design_moments`."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class OneAbility(Questions):
    """Questions of items of one ability, from N(0, 1)."""

    bank: ItemSet
    own: ItemSet

    abilities, population = "one ability", "N(0, 1)"

    @property
    def n_categories(self) -> Ints:
        """Of each question of the bank."""
        return self.bank.n_categories

    def asked(self, at: Ints) -> OneAbility:
        """The same for persons who answered these and no others of the bank."""
        return replace(self, own=self.bank.take(at), at=at)

    def model_moments(self, data: Layout) -> Floats:
        """See :func:`irt_dask.kernels.posterior.totals.model_moments`."""
        return totals.model_moments(*self.posteriors(data).arguments, self.points())

    def design_moments(self, data: Layout, wanted: Ints) -> tuple[Floats, Ints]:
        """See :func:`irt_dask.kernels.posterior.totals.design_moments`."""
        return totals.design_moments(*self.posteriors(data).arguments, self.points(), wanted)

    def nodes(self) -> Floats:
        """Nodes that resolve posteriors, and curves of the questions that nobody was asked."""
        key = ("total nodes", self.bank.digest, sha256(self.at))
        return keep(key, lambda: _nodes(self.own, self.bank.steepest))

    def posteriors(self, data: Layout) -> Posteriors:
        """What kernels of the posterior take, of persons from N(0, 1)."""
        nodes = self.nodes()
        prior = person_weights.prior(person_weights.normal(nodes))
        return posteriors(data, self.own, nodes, prior)

    def points(self) -> Points:
        """What kernels take, made once in a process."""
        d, nodes = self.design, self.nodes()
        key = ("points", self.bank.digest, sha256(self.at, self.weights, d.stratum, nodes))
        return keep(key, lambda: self._points(nodes))

    def _points(self, nodes: Floats) -> Points:
        own, d = self.own, self.design
        refuse_beyond_memory(
            8.0 * nodes.size * (3 * own.first[-1] + d.size.size),
            f"a table of {own.n_items} items at {nodes.size} abilities",
        )
        chance = np.exp(own.log_p(nodes))
        chance[own.empty] = 0.0
        expected, spread = np.zeros((d.size.size, nodes.size)), np.zeros(nodes.size)
        for k in range(0, self.bank.n_items, _TOGETHER):
            part = np.arange(k, min(k + _TOGETHER, self.bank.n_items))
            items = self.bank.take(part)
            p, value = np.exp(items.log_p(nodes)), points_of(items, self.weights[part])
            mean = np.add.reduceat(p * value[:, None], items.first[:-1], axis=0)
            square = np.add.reduceat(p * value[:, None] ** 2, items.first[:-1], axis=0)
            spread += np.maximum(square - mean**2, 0.0).sum(axis=0)
            np.add.at(expected, d.stratum[part], mean)
        return Points(
            own.first, chance, points_of(own, self.weights[self.at]), d.stratum[self.at], expected,
            spread, d.size, reach_down(own, nodes),
        )  # fmt: skip


def of_one_ability(
    items: xr.Dataset, responses: Responses, weights: Floats, design: Design
) -> tuple[OneAbility, tuple[OneAbility, ...]]:
    """Point estimates of a bank's items, and the draws over which totals are averaged."""
    own = item_set(items, responses.item_id)  # which says what the bank lacks
    refuse_other_categories(own, responses.n_categories, responses.item_id, "items")
    item_id = bank_item_ids(items)
    at = places(item_id, responses.item_id)
    known = OneAbility(at, weights, design, item_set(items, item_id), own)
    if not (n := usual_draws(items)):
        return known, (known,)
    drawn = item_draws(items, item_id, n, option="item draws")
    return known, tuple(replace(known, bank=one, own=one.take(at)) for one in drawn)


def places(item_id: tuple[str, ...], asked: tuple[str, ...]) -> Ints:
    """Where items stand among those of the bank."""
    place = {i: k for k, i in enumerate(item_id)}
    return np.array([place[i] for i in asked], dtype=np.int64)


def points_of(items: ItemSet, weights: Floats) -> Floats:
    """What each category adds: the weight of the item times its share of the highest score."""
    return points_of_categories(items.n_categories, weights)


def points_of_categories(n_categories: Ints, weights: Floats) -> Floats:
    """The same of items with these numbers of categories, item after item."""
    first = np.cumsum(n_categories) - n_categories
    code = np.arange(n_categories.sum()) - np.repeat(first, n_categories)
    top = np.repeat(n_categories - 1, n_categories)
    return np.asarray(np.repeat(weights, n_categories) * code / top)


def _nodes(own: ItemSet, steepest: float) -> Floats:
    nodes = STANDARD.nodes(own)
    if nodes[1] - nodes[0] <= 1.0 / steepest:
        return nodes
    n = math.ceil((nodes[-1] - nodes[0]) * steepest) + 1
    n += -n % LANES
    return np.asarray((np.arange(n) - 0.5 * (n - 1)) * (2.0 * nodes[-1] / (n - 1)))
