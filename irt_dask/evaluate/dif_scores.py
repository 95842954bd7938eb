"""Scores of groups of persons, and how these vary, for tests of differential functioning."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from irt_dask.arrays import Bools, Floats, Ints, Words
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine import Engine
from irt_dask.engine.cache import keep
from irt_dask.errors import InputError
from irt_dask.evaluate import dif_directions, weight_views
from irt_dask.evaluate.abilities import Known
from irt_dask.kernels.base import keyed_random
from irt_dask.kernels.base.lanes import LANES
from irt_dask.kernels.misfit import replicated_responses, residual_products
from irt_dask.kernels.posterior import at_ability
from irt_dask.kernels.responses import response_counts
from irt_dask.kernels.responses.layouts import Layout
from irt_dask.population import em
from irt_dask.population.population import NOBODY_APART
from irt_dask.store import Block, Responses
from irt_dask.store.responses import sha256
from irt_dask.store.weights import Sums

#: Responses of a group to each item from which on the squares of the scores that it has say how
#: these vary; with fewer the scores of simulated persons do.
_MANY = 5000
#: Of those so many, or more for each parameter; and at most so many, or as many as there are.
_SIMULATED, _FOR_EACH, _AT_MOST = 20_000, 20, 200_000
#: Answers outside of the most frequent category, of persons whose products are taken: with fewer,
#: there may be none, and all scores are alike, which looks like certainty.
_LEAST_OTHERS = 5.0
#: Bits of the persons that sums of products hold, and of weights next to their mean.
_PERSON_BITS, _MOST_PLACES, _FEWEST_PLACES = 30, 16, 6


class Group(NamedTuple):
    """Score of a group and its sum of squares and products: by direction, then mean and SD."""

    known: Known
    n_persons: int
    score: Floats
    products: Floats
    #: Products of weighted scores, where weights are those of a sample.
    squares: Floats | None
    #: Persons who answered each item, in effect: (sum w)^2 / sum w^2 of sampling weights w.
    seen: Ints
    #: The same of all persons.
    n_effective: float
    #: How many times each person was simulated for the products; 0: they are the persons' own.
    n_replicates: int
    #: Items on which next to nobody of those whose products these are answers otherwise than most.
    one_sided: Bools

    @property
    def tells(self) -> Bools:
        """Items of which the group says something."""
        m = self.seen.size
        return (np.diag(self.products)[:m] > 0.0) & ~self.one_sided


class Scores(NamedTuple):
    """Groups, the reference first, and what was done for them."""

    groups: list[Group]
    #: Divisors of the scores, (directions, items).
    bound: Floats
    n_steps: int
    converged: bool
    #: What results say of weights, and whether these are of a sample.
    weight_attrs: dict[str, Any]
    sampled: bool


class _Part(NamedTuple):
    """Persons whose weights are added up, and their ability."""

    responses: Responses
    known: Known
    #: Persons that the rows stand for, and the binary places of their weights; None: as they are.
    n_persons: int
    places: int | None
    sums: Sums | None
    estimate: em.Estimate


def _counts(block: Block, places: int | None) -> Ints | None:
    """How many persons each row is, in units of their weights."""
    if block.weight is None or places is None:
        return block.times
    return np.rint(block.weight * 2.0**places).astype(np.int64)


def _scores(block: Block, known: Known, bound: Floats, places: int | None) -> tuple[Any, ...]:
    """Sum of the persons' scores and of their products, and how many answered each item."""
    times, first = _counts(block, places), known.items.first
    if times is None:
        seen = response_counts.response_counts(block.data)[1]
    else:
        by_category = response_counts.category_counts(block.data, first, times)
        seen = np.add.reduceat(by_category, first[:-1])
    return (*_products(block.data, known, bound, times), seen)


def _simulated(
    block: Block, known: Known, bound: Floats, places: int | None, drawn: tuple[float, float],
    keys: tuple[Words, ...],
) -> tuple[Any, ...]:  # fmt: skip
    """Sum of products of scores of persons who are simulated as the block's, once for each key.

    ``drawn`` are mean and SD of their abilities.
    """
    products: Any = 0
    mean, sd = drawn
    reach, times = keyed_random.FARTHEST_NORMAL * sd, _counts(block, places)
    ends = mean - reach, mean + reach
    curves = keep(
        ("simulated", known.items.digest, *ends), lambda: at_ability.between(known.items, *ends)
    )
    for key in keys:
        words = keyed_random.words(key, block.start, block.n_persons, 2)
        u = keyed_random.uniforms(key, block.start, block.n_persons)[:, 0]  # of the first word
        theta = mean + sd * ndtri(u)
        answers = replicated_responses.responses(block.data, theta, curves, words[:, 1])
        products = products + _products(answers, known, bound, times)[1]
    return (products,)


def _products(data: Layout, known: Known, bound: Floats, times: Ints | None) -> tuple[Ints, Ints]:
    key = ("derivatives", known.items.digest, sha256(known.nodes, bound))
    # Derivatives of log P, in units of ``bound``, (directions, items).
    table = keep(
        key,
        lambda: (
            dif_directions.tables(known.items, known.nodes)
            / np.repeat(bound, known.items.n_categories, axis=1)[:, :, None]
        ),
    )
    return residual_products.score_products(
        *known.posteriors(data).arguments, known.items.first, table, known.mean, known.sd, times
    )


class Asked(NamedTuple):
    """Where and how scores are computed; ``seed`` of the persons who are simulated."""

    seed: int
    client: Any
    progress: Any

    def engine(self, responses: Responses, stage: str) -> Engine:
        """A computation over these."""
        return Engine(
            responses, client=self.client, progress=self.progress, graded=True, stage=stage
        )


def of_parts(parts: list[Responses], items: ItemSet, asked: Asked) -> Scores:
    """Ability and scores of each group."""
    fitted = [_fitted(part, items, asked) for part in parts]
    steep = [dif_directions.tables(items, part.known.nodes[:-LANES]) for part in fitted]
    largest = np.max([np.abs(x).max(axis=2) for x in steep], axis=0)
    largest = np.maximum.reduceat(largest, items.first[:-1], axis=1)
    bound = 2.0 ** np.ceil(np.log2(np.where(largest > 0.0, largest, 1.0)))
    groups = [_group(part, bound, asked, min(k, 1)) for k, part in enumerate(fitted)]
    about: dict[str, Any] = {}
    sums, sampled = [f.sums for f in fitted if f.sums is not None], fitted[0].places is not None
    if sums:
        about["weight_kind"] = parts[0].weight_kind
        about["mean_weight"] = functools.reduce(Sums.plus, sums).mean if sampled else None
    return Scores(
        groups, bound, max(f.estimate.passes for f in fitted),
        all(f.estimate.converged for f in fitted), about, sampled,
    )  # fmt: skip


def _fitted(responses: Responses, items: ItemSet, asked: Asked) -> _Part:
    with asked.engine(responses, "abilities") as engine:
        found = em.one_normal(engine, items)
        n, places = engine.n_persons, None
        if engine.sampled:
            places = min(_MOST_PLACES, _PERSON_BITS - math.ceil(math.log2(n)))
        if n > 1 << _PERSON_BITS or (places is not None and places < _FEWEST_PLACES):
            most = _PERSON_BITS - (0 if places is None else _FEWEST_PLACES)
            raise InputError(
                f"{n} persons of a group: dif adds up the scores of {1 << most} at most "
                f"({'with' if places is not None else 'without'} sampling weights); select fewer"
            )
        return _Part(
            responses, Known.of(items, found.population), n, places, engine.weight_sums, found
        )


def _group(part: _Part, bound: Floats, asked: Asked, place: int) -> Group:
    """Scores of a group, the first (``place`` 0) or one that is compared with it.

    Random numbers are those that it would have without a third group.
    """
    score, products, answers = _own(part, bound, asked)
    squared, squares, n_effective = None, None, float(part.n_persons)
    if part.places is not None:
        assert part.sums is not None
        squared = _squared(part, asked)
        _, squares, of_squares = _own(squared, bound, asked)
        spread = squared.sums.mean  # type: ignore[union-attr]  # of squares, the mean weight being 1
        n_effective, squares = n_effective / spread, squares * spread
        with np.errstate(invalid="ignore"):
            answers = np.nan_to_num(answers**2 / (of_squares * spread))
    seen = np.rint(answers).astype(np.int64)
    times = _n_replicates(part.n_persons, seen, int(score.size))
    if times:
        keys = tuple(keyed_random.key(asked.seed, "dif", place, r) for r in range(times))
        products = _expected(part, (part.known.mean, part.known.sd), bound, keys, asked)
        if squared is not None:
            squares = _expected(squared, _ability(squared, asked), bound, keys, asked) * spread
    one_sided = (seen > 0) & (_others(part.known) * seen * max(times, 1) < _LEAST_OTHERS)
    return Group(
        part.known, part.n_persons, score, products, squares, seen, n_effective, times, one_sided
    )


def _others(known: Known) -> Floats:
    """Share of the group that is expected outside of each item's most frequent category."""
    mass = np.exp(known.population.prior(known.nodes, NOBODY_APART)[0].log_mass[0])
    share = np.exp(known.items.log_p(known.nodes)) @ (mass / mass.sum())
    share[known.items.empty] = 0.0
    return np.asarray(1.0 - np.maximum.reduceat(share, known.items.first[:-1]))


def _own(part: _Part, bound: Floats, asked: Asked) -> tuple[Floats, Floats, Floats]:
    """Score of the persons, its products and persons who answered, weights 1 in the mean."""
    with asked.engine(part.responses, "scores") as engine:
        found = engine.map_reduce(_scores, part.known, bound, part.places, report=True)
    one, score, products, seen = 2.0 ** (part.places or 0), *found
    score = score / (residual_products.SUM_UNIT * one)
    return score, products / (residual_products.UNIT**2 * one), seen / one


def _squared(part: _Part, asked: Asked) -> _Part:
    """The same persons and ability, with the squares of their weights."""
    assert part.sums is not None
    responses = weight_views.squared(part.responses, part.sums.mean)
    with asked.engine(responses, "weights") as engine:
        return part._replace(responses=responses, sums=engine.weight_sums)


def _ability(part: _Part, asked: Asked) -> tuple[float, float]:
    """Mean and SD of ability in the population that the part's weights are of."""
    with asked.engine(part.responses, "abilities by squared weights") as engine:
        found = Known.of(part.known.items, em.one_normal(engine, part.known.items).population)
    return found.mean, found.sd


def _expected(
    part: _Part, drawn: tuple[float, float], bound: Floats, keys: tuple[Words, ...], asked: Asked
) -> Floats:
    """Products of scores of persons who are simulated, each as often as there are keys."""
    responses = part.responses
    if part.sums is not None and part.places is None:  # frequencies: everybody answers anew
        responses = weight_views.repeated(responses, asked.client)
    with asked.engine(responses, "simulated scores") as engine:
        (products,) = engine.map_reduce(
            _simulated, part.known, bound, part.places, drawn, keys, report=True
        )
    found: Floats = products / (residual_products.UNIT**2 * len(keys) * 2.0 ** (part.places or 0))
    return found


def _n_replicates(n_persons: int, seen: Ints, size: int) -> int:
    """How often persons are simulated, of a group that gave so many responses to each item."""
    fewest = int(seen[seen > 0].min(initial=_MANY))
    if fewest >= _MANY:
        return 0
    wanted = max(math.ceil(_SIMULATED / fewest), math.ceil(_FOR_EACH * size / n_persons))
    return max(1, min(wanted, _AT_MOST // n_persons))
