"""Signs of slopes before chains begin: all data tell every chain where ability points.

Items and abilities that are all turned are as likely.  A chain on a shard whose camps of items
balance would wander from one solution to the other, and shards would disagree.  So every chain
draws slopes with ``sum(towards a) > 0`` alone, and ``towards`` is the same for all of them.
"""

from __future__ import annotations

import math
import warnings

import numpy as np
import xarray as xr

from irt_dask.arrays import Bools, Floats
from irt_dask.calibrate.bayes.hierarchy import Hierarchy
from irt_dask.calibrate.bayes.item_density import Conditional, Shapes
from irt_dask.calibrate.bayes.item_moves import FixedMoves
from irt_dask.calibrate.bayes.item_step import agreement_of, modes
from irt_dask.calibrate.bayes.model_posterior import Posterior
from irt_dask.calibrate.bayes.models import inside
from irt_dask.calibrate.shared import first_component
from irt_dask.calibrate.shared.orientation import rise
from irt_dask.calibrate.shared.start_values import ResponseCounts, start_values
from irt_dask.curves.priors import ItemPrior
from irt_dask.engine import Engine
from irt_dask.errors import ApproximationWarning

#: Searches from several starts: rounds of EM at most, and the gain in log posterior that ends them.
_MOST_ROUNDS, _ROUGHLY = 30, 0.1
#: Ends of which one is this much likelier leave no doubt; those whose slopes have such a cosine are
#: one and the same.
_DOUBT, _SAME = 10.0, 0.95


def pilot(
    engine: Engine, shapes: Shapes, prior: ItemPrior | Hierarchy, counts: ResponseCounts,
    start: xr.Dataset | None,
) -> tuple[Floats, tuple[float, ...]]:  # fmt: skip
    """Coordinates (P, items) to start from, and what each slope counts towards the orientation.

    That is the slope of the first principal component, times how much the responses say of it,
    whatever the ``start``, which is turned to it.  A prior of slopes whose mean is not 0 makes the
    two solutions unlike: all is turned to the one that it makes likelier.  One pass over the data
    for each power, 5 to 20 of most data.  Where some of these slopes are negative another search
    begins at slopes that are all positive, and the likelier end is taken: some rounds more, 30
    for either at most.  Ends that are unlike and about as likely are warned of.
    """
    models, item_id = shapes.models, engine.responses.item_id
    slopes, information = first_component.slopes(engine, counts, models)
    x = start_values(
        item_id, models, counts.of_each, start, slope=slopes, prior=shapes.betas, signed=True
    )
    y, towards = inside(shapes, x), information * slopes
    if shapes.scored:
        y, towards = _by_scores(engine, shapes, information, slopes, y, start)
    elif start is None and (slopes < 0.0).any():
        other = start_values(
            item_id, models, counts.of_each, None, slope=np.abs(slopes), prior=shapes.betas
        )
        y, towards = _likelier(engine, shapes, information, (y, towards), inside(shapes, other))
    if agreement_of(towards, y) < 0.0:
        y = shapes.stretched(y, -1.0)
    if isinstance(prior, ItemPrior) and prior.loading[0] * y[0].sum() < 0.0:
        y, towards = shapes.stretched(y, -1.0), -towards
    return y, tuple(towards.tolist() if towards.ndim == 1 else map(tuple, towards.tolist()))


def _by_scores(
    engine: Engine, shapes: Shapes, information: Floats, slopes: Floats, y: Floats,
    start: xr.Dataset | None,
) -> tuple[Floats, Floats]:  # fmt: skip
    """Coordinates to start from, and what each counts towards the orientation, (P, items).

    Codes of nominal items may follow each other in any order, so that neither slopes nor the first
    component tell the direction of ability: it is that of all scores where a search ends, from the
    ``start`` alone or from the likelier end of two: all scores rise, or fall where the item's codes
    fall along the component.  It is turned to where the sum over items of its covariance with
    responses is positive.
    """
    falls = np.where((slopes < 0.0) & shapes.rising_items, -1.0, 1.0)
    starts = [y] if start is not None else [y, shapes.stretched(y, falls)]
    ends = sorted((_climbed(engine, shapes, y) for y in starts), key=lambda end: -end[0])
    (value, y), (other, second) = ends[0], ends[-1]
    of_each, of_second = information * shapes.inner(y), information * shapes.inner(second)
    sizes = agreement_of(of_each, y) * agreement_of(of_second, second)
    _warn_of_doubt(value, other, abs(agreement_of(of_each, second)) / math.sqrt(sizes))
    if rise(shapes.items(y)) < 0.0:
        return shapes.stretched(y, -1.0), -of_each
    return y, of_each


def _likelier(
    engine: Engine, shapes: Shapes, information: Floats, first: tuple[Floats, Floats],
    second: Floats,
) -> tuple[Floats, Floats]:  # fmt: skip
    """The first start and its ``towards``, or where the second one ends, if that is likelier."""
    ends = [_climbed(engine, shapes, y) for y in (first[0], second)]
    (value, y), (other, its) = ends
    a, b = np.sqrt(information) * y[0], np.sqrt(information) * its[0]
    cosine = abs(float(a @ b)) / float(np.linalg.norm(a) * np.linalg.norm(b))
    if cosine >= _SAME:
        return first
    _warn_of_doubt(value, other, cosine)
    return first if value >= other else (its, information * its[0])


def _warn_of_doubt(value: float, other: float, cosine: float) -> None:
    if cosine < _SAME and abs(value - other) < _DOUBT:
        warnings.warn(
            f"two different directions of ability are about as likely (log posteriors "
            f"{max(value, other):.1f} and {min(value, other):.1f}; the cosine of their slopes is "
            f"{cosine:.2f}): chains keep to the likelier one; the items may measure two things",
            ApproximationWarning,
            stacklevel=6,
        )


def _climbed(engine: Engine, shapes: Shapes, y: Floats) -> tuple[float, Floats]:
    """Log posterior, under the usual fixed prior, and coordinates where a rough search ends."""
    prior, m = ItemPrior(), y.shape[1]
    posterior, before = Posterior(engine, prior, shapes), -np.inf
    common = FixedMoves(prior, 1.0, m, np.ones(m))
    for _ in range(_MOST_ROUNDS):
        value, counts = posterior.expected(y, posterior.nodes(y))
        value += posterior.log_prior(y)
        if value - before < _ROUGHLY:
            break
        before, kept = value, y
        y, _ = modes(Conditional(shapes, counts, common), y)
    return before, kept


def mask(n_items: int) -> Bools:
    """Which parameters (2, items) of the 2PL may be negative though others are positive."""
    return np.stack([np.ones(n_items, dtype=bool), np.zeros(n_items, dtype=bool)])
