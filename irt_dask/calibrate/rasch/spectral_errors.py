"""Standard errors of the spectral estimate: a sandwich of its estimating equations.

With e = exp(difficulty) the stationary equations are ``sum_l u_l = 0``, where person l contributes
``u_li = w0_li A_l - e_i w1_li W_l``: A_l the sum of e over the items it has right, W_l the number
it has wrong.  With their derivative J the covariance is ``J^+ M J^+'``.  As ``J' x = c`` reads
``(P - I) x = c / (e d)``, P the accelerated chain, this needs the chain alone.

M is ``sum_l u_l u_l'`` but for one part.  u_l is a sum over the pairs of an item i that the person
has right and an item j that it has wrong, and the square of each is ``e_i^2``: many small ones and,
where an easy item was failed and a hard one solved, a few large ones, which sparse data often lack
altogether, so that their sum is too small just where the estimate is far off.  The Rasch model
knows what to expect of a pair whose answers differ, whatever the ability: ``e_i e_j``.  This takes
the place of ``e_i^2``; products of different pairs of a person remain as they were observed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from irt_dask.arrays import Floats, Ints
from irt_dask.calibrate.rasch.item_chain import DenseChain, FlowChain
from irt_dask.calibrate.rasch.pair_counts import matrices
from irt_dask.engine import Engine
from irt_dask.kernels.base import fixed_point
from irt_dask.kernels.pairs import pair_counts, pair_flows
from irt_dask.kernels.responses.response_counts import share_out
from irt_dask.store import Block

#: M is at least so many times what it would be if all pairs were independent: it is a difference,
#: and could have no root.
_LEAST_SHARE = 0.5
#: A^2, A W and W^2 are counted in units of which the least of them has 2^6, but at most 2^44
#: (dense blocks count each bit by itself).
_LEAST_BITS, _MOST_BITS = 6, 44
#: Squares of person weights are counted in units of the largest over so many bits, and of a mean
#: weight over so many at least.
_SQUARE_BITS, _MEAN_BITS = 24, 12


def _totals(block: Block, e: Floats, inside: Floats) -> tuple[Floats, Floats]:
    """A and W of each person, times sampling weights; frequencies count in the sums instead."""
    a, w = pair_flows.totals(block.data, e, inside)
    if block.weight is None or block.times is not None:
        return a, w
    return a * block.weight, w * block.weight


def _counted(block: Block, x: Ints) -> Ints:
    return x if block.times is None else x * block.times


def _extremes(block: Block, e: Floats, inside: Floats) -> tuple[float, ...]:
    """Largest A and W, and the least, negative, of those who have something right and wrong."""
    a, w = _totals(block, e, inside)
    some = (a > 0.0) & (w > 0.0)
    largest = [float(x[some].max(initial=0.0)) for x in (a, w)]
    return *largest, *(float((-x[some]).max(initial=-np.inf)) for x in (a, w))


def _maximum(left: tuple[float, ...], right: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(max(x, y) for x, y in zip(left, right, strict=True))


def _shares(block: Block, e: Floats, inside: Floats, largest: Floats) -> tuple[Floats, Floats]:
    """A and W over the largest ones; 0 of those who have nothing right or nothing wrong."""
    a, w = _totals(block, e, inside)
    some = (a > 0.0) & (w > 0.0)  # the others say nothing
    return np.where(some, a / largest[0], 0.0), np.where(some, w / largest[1], 0.0)


def _outer(
    block: Block, lo: int, hi: int, e: Floats, inside: Floats, largest: Floats, units: float
) -> tuple[Ints, ...]:
    """Sums of A^2, A W, W^2, in whole units, over pairs wrong-wrong, wrong-right, right-right."""
    a, w = _shares(block, e, inside, largest)
    aa, aw, ww = (_counted(block, fixed_point.fixed(x, units)) for x in (a * a, a * w, w * w))
    wanted = [("wrong", "wrong", aa), ("wrong", "right", aw), ("right", "right", ww)]
    return pair_counts.weighted_strips(block.data, wanted, lo, hi)


def _terms(block: Block, e: Floats, inside: Floats, x: Floats) -> Floats:
    """``u_l' x`` of each person."""
    a, w = _totals(block, e, inside)
    of_right, of_wrong = pair_flows.totals(block.data, e * x, x)
    return a * of_wrong - w * of_right


def _squares(block: Block, e: Floats, inside: Floats, x: Floats) -> tuple[Floats, Floats]:
    """Squares of a person's pairs' terms of ``u_l' x``, summed: as expected, and as observed."""

    def moments(f: Floats, g: Floats) -> list[tuple[Floats, Floats]]:
        return [_totals(block, f * x**k, g * x**k) for k in range(3)]

    (r0, w0), (r1, w1), (r2, w2) = moments(e, e)
    (s0, n0), (s1, n1), (s2, n2) = moments(e * e, inside)
    return r2 * w0 - 2.0 * r1 * w1 + r0 * w2, s2 * n0 - 2.0 * s1 * n1 + s0 * n2


def _parts(block: Block, *args: Floats) -> tuple[Floats, Floats]:
    """What each person adds to ``x' M x``, and to that of independent pairs."""
    expected, observed = _squares(block, *args)
    return _terms(block, *args) ** 2 + expected - observed, expected


def _largest_parts(block: Block, *args: Floats) -> tuple[float, ...]:
    return (max(float(np.abs(part).max(initial=0.0)) for part in _parts(block, *args)),)


def _variance(block: Block, e: Floats, inside: Floats, x: Floats, scale: float) -> tuple[Any, ...]:
    return tuple(
        _counted(block, fixed_point.fixed(part, scale)).sum()
        for part in _parts(block, e, inside, x)
    )


def _sides(
    block: Block, e: Floats, inside: Floats, largest: Floats, scale: float
) -> tuple[Ints, ...]:
    """Sums of A and A^2 over the persons wrong on each item, of W and W^2 over those right."""
    a, w = _shares(block, e, inside, largest)
    return tuple(
        share_out(block.data, which, _counted(block, fixed_point.fixed(x**power, scale)))
        for which, x in ((0, a), (1, w))
        for power in (1, 2)
    )


def _only(items: NDArray[np.intp], e: Floats) -> tuple[Floats, Floats]:
    """Values of some of the items, 0 for the others, and which these are."""
    inside = np.zeros(e.size)
    inside[items] = 1.0
    return e * inside, inside


def effective_persons(engine: Engine, e: Floats, items: NDArray[np.intp]) -> Floats:
    """How many persons of equal weight each item's two sides rest on: the smaller (two passes).

    ``(sum A)^2 / sum A^2`` of the persons wrong on the item, with W for those right on it; 0 for
    items left out.  Shape (all items,).
    """
    e, inside = _only(items, e)
    largest = np.array(engine.map_reduce(_extremes, e, inside, combine=_maximum)[:2])
    if largest[0] == 0.0:
        return np.zeros(e.size)
    scale = fixed_point.scale_for(engine.n_persons)
    sums = engine.map_reduce(_sides, e, inside, largest, scale)
    a, aa, w, ww = (np.asarray(x) / scale for x in sums)
    with np.errstate(divide="ignore", invalid="ignore"):
        least = np.minimum(a**2 / aa, w**2 / ww)
    return np.where((aa > 0.0) & (ww > 0.0), least, 0.0) * inside


def score_covariance(engine: Engine, e: Floats, items: NDArray[np.intp]) -> Floats:
    """``sum_l u_l u_l'`` for some of the items, others left out of A and W (two passes)."""
    e, inside = _only(items, e)
    extremes = np.abs(engine.map_reduce(_extremes, e, inside, combine=_maximum))
    largest, least = extremes[:2], extremes[2:]
    if largest[0] == 0.0:
        return np.zeros((items.size, items.size))
    bits = min(_LEAST_BITS + math.ceil(2.0 * math.log2((largest / least).max())), _MOST_BITS)
    units = min(2.0**bits, fixed_point.scale_for(engine.n_persons))
    sums = matrices(engine, _outer, e, inside, largest, units)
    aa, aw, ww = (x[np.ix_(items, items)] / units for x in sums)
    aa *= largest[0] ** 2
    aw *= (largest[0] * largest[1]) * e[items]
    ww *= largest[1] ** 2 * np.multiply.outer(e[items], e[items])
    return aa - aw - aw.T + ww


def _squared_weights(block: Block, lo: int, hi: int, scale: float) -> tuple[Ints, ...]:
    assert block.weight is not None
    square = np.maximum(fixed_point.fixed(block.weight**2, scale), 1)  # the least counts too
    wanted = [("right", "wrong", square)]
    return pair_counts.weighted_strips(block.data, wanted, lo, hi)


def _pairs_of_squares(engine: Engine, counts: Floats) -> Floats:
    """Persons right on the row item and wrong on the column item, by squares of their weights."""
    if not engine.sampled:
        return counts
    largest = engine.responses.max_weight
    assert largest is not None
    bits = max(_SQUARE_BITS - math.ceil(2.0 * math.log2(largest)), _MEAN_BITS)
    scale = min(2.0**bits, fixed_point.scale_for(engine.n_persons * largest))  # their mean is 1
    return matrices(engine, _squared_weights, scale)[0] / scale


def _laplacian(weight: Floats) -> Floats:
    return np.diag(weight.sum(axis=1)) - weight


def middle(engine: Engine, counts: Floats, e: Floats, items: NDArray[np.intp]) -> Floats:
    """M for some of the items; ``counts`` are of all pairs of items (two passes)."""
    scatter = score_covariance(engine, e, items)
    e = e[items]
    pair = _pairs_of_squares(engine, counts)[np.ix_(items, items)]
    own = pair * (e**2)[:, None]
    independent = _laplacian((pair + pair.T) * np.multiply.outer(e, e))
    return _at_least(scatter - _laplacian(own + own.T) + independent, independent)


def _at_least(matrix: Floats, other: Floats) -> Floats:
    """Raise a matrix where it is less than a share of another, in the order of quadratic forms.

    Both annul constants, of which the other, a Laplacian, is positive everywhere else.
    """
    root = np.sqrt(np.diag(other))
    if not root.all():  # a lone item: nothing to compare with
        return matrix
    by = np.multiply.outer(root, root)
    constant = np.multiply.outer(root, root) / (root @ root)
    x, least = matrix / by + constant, other / by + constant
    try:
        np.linalg.cholesky(x - _LEAST_SHARE * least)
        return matrix
    except np.linalg.LinAlgError:
        value, vector = scipy.linalg.eigh(x, least, check_finite=False)
    side = least @ vector
    return ((side * np.maximum(value, _LEAST_SHARE)) @ side.T - constant) * by


def influence(chain: DenseChain, e: Floats) -> Floats:
    """Return X, items x items: columns x solve ``J' x = c`` for c an item less the mean of all.

    ``I - P + 1 z'``, z the stationary distribution of P, is invertible and solves the equation for
    every right-hand side that z annuls.
    """
    m = e.size
    z = e * chain.d
    system = -(chain.rates / chain.d[:, None])
    system[np.diag_indices(m)] = 1.0
    system += z / z.sum()
    rhs = -(np.eye(m) - 1.0 / m) / (e * chain.d)[:, None]
    return np.asarray(scipy.linalg.solve(system, rhs, check_finite=False))


def contrast_variance(engine: Engine, chain: FlowChain, e: Floats, c: Floats) -> float:
    """Variance of a contrast ``c' difficulty``; a pass for each step of the solver."""
    z = e * chain.d
    x = chain.poisson(np.divide(-c, z, out=np.zeros_like(c), where=z > 0.0), z)
    inside = chain.mask.astype(float)
    (largest,) = engine.map_reduce(_largest_parts, e, inside, x, combine=_maximum)
    if largest == 0.0:
        return 0.0
    scale = fixed_point.scale_for(largest * engine.n_persons)
    total, independent = (
        float(s) / scale for s in engine.map_reduce(_variance, e, inside, x, scale)
    )
    return max(total, _LEAST_SHARE * independent)
