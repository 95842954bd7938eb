"""Persons with sampling weights: the pseudo-posterior, and a spread that is that of the sample.

Chains draw an ability for each replicate of a person (:mod:`irt_dask.engine.replicates`), so that
they have a joint distribution, and shards share prior and spread by their replicates.  What they
find is about where the replicates have it, with the spread of a simple random sample of as many
persons.  So the location is the mode on all persons with the weights themselves, and deviations
are carried by the optimal map from ``N(0, H^-1)`` to ``N(0, H^-1 J H^-1)`` (Williams and Savitsky
2021, whose map is another root): H the observed information of the weighted log posterior at the
mode, J the sum of squares of weighted scores of persons and what H has of the prior.  Where weights
are equal J is about H, and the map about none.

Persons whom rows of frequency weights stand for are persons: the posterior is the ordinary one.
"""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.calibrate.bayes.coordinates import Space, Spread, by_item
from irt_dask.calibrate.bayes.hierarchy import Hierarchy
from irt_dask.calibrate.bayes.item_density import Shapes
from irt_dask.calibrate.bayes.model_posterior import Posterior
from irt_dask.calibrate.bayes.model_space import ModelSpace
from irt_dask.calibrate.bayes.samplers import Options
from irt_dask.curves.grids import grid_of
from irt_dask.curves.item_set import ItemSet
from irt_dask.curves.priors import ItemPrior
from irt_dask.engine import Engine, replicates
from irt_dask.errors import ApproximationWarning, DataWarning, InputError
from irt_dask.items import derivatives
from irt_dask.kernels.base.exact_products import Units
from irt_dask.kernels.posterior import lost_information, person_weights
from irt_dask.kernels.posterior.lost_information import Scores
from irt_dask.kernels.posterior.tables import padded
from irt_dask.population.population import posteriors
from irt_dask.store import Block, Responses
from irt_dask.store.responses import SAMPLING
from irt_dask.store.weights import Sums, relative

#: Persons in effect below which their squares say too little: an SD is known to 1 / sqrt(2 n) of
#: itself at best, 7% with 100.
_FEW = 100
#: Coordinates whose covariance is found as a matrix, as in marginal fits (a minute; some GiB).
MOST = 6000
#: Smallest eigenvalue of the information, as a share of that of each coordinate by itself.
LEAST = 1e-6
#: Step of central differences, of coordinates of the size of 1.
_STEP = 1e-4


# --- what can be asked ----------------------------------------------------------------------------


def refuse(
    responses: Responses, shapes: Shapes, n_dims: int, sampler: str | None, powering: str,
    location: str | None,
) -> None:  # fmt: skip
    """Stop at what is not derived for persons with weights."""
    if responses.max_weight is None:
        return
    size, of_sample = int(shapes.free.sum()), responses.weight_kind == SAMPLING
    asked = (
        (n_dims > 1, f"n_dims={n_dims}", "give one ability"),
        (of_sample and sampler not in (None, "grid"), f"sampler={sampler!r}", "say 'grid'"),
        (of_sample and powering != "shrink", f"powering={powering!r}", "say 'shrink'"),
        (of_sample and location not in (None, "refined"), f"location={location!r}",
         "say 'refined'"),
        (of_sample and shapes.models.shares, "parameters that items share",
         "use 2pl or gpcm, or fit_marginal with its sandwich"),
        (of_sample and size > MOST, f"{size} parameters",
         f"select items of at most {MOST}, whose covariance is found as a matrix"),
    )  # fmt: skip
    for there, what, remedy in asked:
        if there:
            raise InputError(
                f"fit_bayes with {what} does not support person weights, and these responses have "
                f"{responses.weight_kind} weights; {remedy}, or count every person once: select "
                f"the responses with weights='ignore'"
            )


# --- who counts -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Persons:
    """Abilities that chains draw, and persons in effect, ``(sum w)^2 / sum w^2`` (Kish)."""

    n: int
    n_drawn: int
    n_effective: float
    about: dict[str, Any]
    sampled: bool = False

    @property
    def share(self) -> float:
        """Persons in effect as a share of all."""
        return self.n_effective / self.n

    def attrs(self, *, carried: bool) -> dict[str, Any]:
        """What results say of weights; of those of a sample also of what the spread is."""
        spread = {"spread": "sandwich" if carried else "simple random sample"}
        return self.about | (spread if self.sampled else {})

    def warn(self) -> None:
        """Warn where a few persons dominate."""
        if self.n_effective < _FEW:
            warnings.warn(
                f"with these weights persons count as {self.n_effective:.1f} in effect (limit "
                f"{_FEW}): few of them decide, and what they scatter, of which spreads are made, "
                f"is hardly known; trim the weights, or do not rely on standard deviations",
                DataWarning,
                stacklevel=4,
            )


def persons(engine: Engine, o: Options) -> tuple[Persons, Options]:
    """Who counts how often, and options that say so; a warning where a few persons dominate.

    One pass over the weights alone, where they are those of a sample.
    """
    if engine.sampled:
        found = _of_sample(engine, o.seed)
        found.warn()
    else:
        n = engine.n_persons
        found = Persons(n, n, float(n), engine.weight_attrs)
    return found, replace(o, n_persons=found.n_drawn, sampled=engine.sampled)


def _of_sample(engine: Engine, seed: int) -> Persons:
    each = engine.map_refs(_totals, seed)
    first, second = (functools.reduce(Sums.plus, of) for of in list(zip(*each, strict=True))[1:])
    n_effective = first.n * first.mean**2 / second.mean
    about = {**engine.weight_attrs, "n_effective": n_effective}
    return Persons(first.n, sum(n for n, *_ in each), n_effective, about, sampled=True)


def _totals(ref: Any, seed: int) -> tuple[int, Sums, Sums]:
    """Replicates of a block's persons; exact sums of their weights and of the squares."""
    weight = relative(np.asarray(ref.weights(), dtype=float), ref.mean)
    n = int(replicates.rounded(weight, seed, ref.start).sum())
    return n, Sums.of(weight), Sums.of(weight**2)


# --- the spread -----------------------------------------------------------------------------------


def spread(engine: Engine, shapes: Shapes, prior: ItemPrior | Hierarchy) -> Spread:
    """What carries deviations from a mode: the optimal map, (size, size), at coordinates."""
    return functools.partial(_map_at, Posterior(engine, prior, shapes))


def _map_at(posterior: Posterior, space: Space, x: Floats) -> Floats | None:
    bends = isinstance(space, ModelSpace)  # coordinates of the 2PL are those of the chains
    found = optimal_map(*information(posterior, space.parameters(x) if bends else x))
    if found is None:
        warnings.warn(
            "the information of the weighted responses is singular at the mode, so that standard "
            "deviations are those of a simple random sample, too small as a rule; leave out items "
            "of which the data say nothing, or give an ItemPrior",
            ApproximationWarning,
            stacklevel=6,
        )
    if found is None or not bends:
        return found
    slope = by_item(space.slope(x), 1)[0][by_item(posterior.shapes.free, 1)[0]]
    return np.asarray(found * np.divide.outer(slope, slope))


def optimal_map(h: Floats, middle: Floats) -> Floats | None:
    """Symmetric A with ``A h^-1 A = h^-1 middle h^-1``; None where h is not positive definite."""
    unit = np.sqrt(np.maximum(np.diagonal(h), np.finfo(float).tiny))
    if not np.linalg.eigvalsh(h / np.outer(unit, unit))[0] > LEAST:
        return None
    value, vector = np.linalg.eigh(h)
    root, inverse = ((vector * value**k) @ vector.T for k in (-0.5, 0.5))
    # root middle root is V in the units of h^-1; its root, seen from where h^-1 is 1.
    inner = root @ (root @ (root @ middle @ root) @ root) @ root
    own, turned = np.linalg.eigh(0.5 * (inner + inner.T))
    out = inverse @ ((turned * np.sqrt(np.maximum(own, 0.0))) @ turned.T) @ inverse
    return np.asarray(0.5 * (out + out.T))


def information(posterior: Posterior, y: Floats) -> tuple[Floats, Floats]:
    """Observed information of the weighted log posterior, and J, by coordinates item by item.

    Two passes over the data.
    """
    shapes, engine = posterior.shapes, posterior.engine
    _, counts = posterior.expected(y, posterior.nodes(y))
    x, free = shapes.parameters(y), shapes.free
    jacobian = _jacobian(shapes, y)
    of_items = derivatives.observed_information(counts, x, free)
    complete = np.einsum("pqm,mpr,rsm->mqs", jacobian, of_items, jacobian, optimize=True)
    column = np.full(free.shape, -1)
    column.T[free.T] = np.arange(free.sum())
    lost, squares = _sums(engine, shapes.items(y), jacobian, column)
    before = _before(posterior, y, derivatives.gradient(counts, x), column)
    h = _placed(complete, column) - 0.5 * (lost + lost.T) + before
    # The prior as persons, as in marginal fits: where these say nothing its own SD is left.
    value, vector = np.linalg.eigh(before)
    return h, squares + (vector * np.maximum(value, 0.0)) @ vector.T


def _jacobian(shapes: Shapes, y: Floats) -> Floats:
    """Derivatives of parameters p by coordinates q, (p, q, items)."""
    out = np.zeros((len(y), *y.shape))
    for part in shapes.models.parts:
        size = len(part.model.parameters)
        out[:size, :size, part.at] = shapes.slopes(part, y)
    return out


def _before(posterior: Posterior, y: Floats, gradient: Floats, column: Ints) -> Floats:
    """Information of the prior, (size, size), and what bent coordinates make of the data's.

    That is their ``gradient`` by parameters, which the prior's balances, times second derivatives.
    """
    shapes, of_items = posterior.shapes, np.zeros((y.shape[1], len(y), len(y)))

    def own(z: Floats) -> Floats:
        return shapes.by_coordinate(z, gradient) + shapes.log_prior(z).gradient

    for q in range(len(y)):
        step = np.zeros_like(y)
        step[q] = np.where(shapes.free[q], _STEP, 0.0)
        of_items[:, q] = (own(y - step) - own(y + step)).T
    common, of_all = y[:2], np.empty((2 * y.shape[1], 2 * y.shape[1]))
    for k in range(len(of_all)):  # a learned mean is what all items share
        step = np.zeros_like(common)
        step.flat[k] = _STEP
        low, high = (posterior.log_common(z)[1] for z in (common - step, common + step))
        of_all[k] = (low - high).ravel()
    out, at = _placed(of_items, column), column[:2].ravel()
    out[np.ix_(at, at)] += of_all
    return 0.5 * (out + out.T) / (2.0 * _STEP)


def _placed(blocks: Floats, column: Ints) -> Floats:
    """Matrix of blocks of items (items, q, q) at their columns (q, items)."""
    size = int(column.max()) + 1
    out = np.zeros((size, size))
    for j, at in enumerate(column.T):
        own = at >= 0
        out[np.ix_(at[own], at[own])] = blocks[j][np.ix_(own, own)]
    return out


def _sums(engine: Engine, items: ItemSet, jacobian: Floats, column: Ints) -> tuple[Floats, Floats]:
    """Sums over persons of covariances of their scores times w, and of squares of means by w^2."""
    nodes = padded(grid_of(items, share=1.0).nodes)  # moments to 1e-8
    of_row = np.repeat(np.arange(items.n_items), items.n_categories)
    slope = items.by_parameter(nodes, len(column))
    slope = np.einsum("pqr,prn->qrn", jacobian[:, :, of_row], slope)
    none = np.full((2, 1), -1)
    scores = lost_information.scores(slope, items.first, np.zeros((1, 2, nodes.size)), column, none)
    largest, size = float(engine.responses.max_weight or 1.0), int(column.max()) + 1
    units = lost_information.units_for(engine.n_persons, nodes.size, size)
    sums = engine.map_reduce(_add_up, items, nodes, scores, largest, units)
    lost, squares = lost_information.value(list(sums), scores.bound, largest, units)
    return lost, squares


def _add_up(
    block: Block, items: ItemSet, nodes: Floats, scores: Scores, largest: float, units: Units
) -> tuple[Ints, ...]:
    p = posteriors(block.data, items, nodes, person_weights.prior(person_weights.normal(nodes)))
    found = lost_information.sums(
        p.data, p.tables, p.shared, p.sets.observed, p.prior, np.arange(block.n_persons), scores,
        block.weights(), largest, units, True,
    )  # fmt: skip
    return tuple(found)
