"""Standard errors of the spectral estimate: the sandwich of its estimating equations.

With e = exp(difficulty) the stationary equations are ``sum_l u_l = 0``, where person l contributes
``u_li = w0_li A_l - e_i w1_li W_l``: A_l the sum of e over the items it has right, W_l the number
it has wrong.  With their derivative J the covariance is ``J^+ (sum_l u_l u_l') J^+'``.  As
``J' x = c`` reads ``(P - I) x = c / (e d)``, P the accelerated chain, this needs the chain alone.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from irt_dask.calibrate.chain import DenseChain, FlowChain
from irt_dask.calibrate.pairs import matrices
from irt_dask.engine import Engine
from irt_dask.kernels import exact, flows, pairs
from irt_dask.store import Block

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: A^2, A W and W^2 are counted in units of which the least of them has 2^6, but at most 2^44
#: (dense blocks count each bit by itself).
_LEAST_BITS, _MOST_BITS = 6, 44


def _totals(block: Block, e: Floats, inside: Floats) -> tuple[Floats, Floats]:
    """A and W of each person, times sampling weights; frequencies count in the sums instead."""
    a, w = flows.totals(block.data, e, inside)
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


def _outer(
    block: Block,
    lo: int,
    hi: int,
    e: Floats,
    inside: Floats,
    largest_a: float,
    largest_w: float,
    units: float,
) -> tuple[Ints, ...]:
    """Sums of A^2, A W, W^2, in whole units, over pairs wrong-wrong, wrong-right, right-right."""
    a, w = _totals(block, e, inside)
    some = (a > 0.0) & (w > 0.0)  # the others say nothing
    a, w = np.where(some, a / largest_a, 0.0), np.where(some, w / largest_w, 0.0)
    aa, aw, ww = (_counted(block, exact.fixed(x, units)) for x in (a * a, a * w, w * w))
    wanted = [("wrong", "wrong", aa), ("wrong", "right", aw), ("right", "right", ww)]
    return pairs.weighted_strips(block.data, wanted, lo, hi)


def _terms(block: Block, e: Floats, inside: Floats, x: Floats) -> Floats:
    """``u_l' x`` of each person."""
    a, w = _totals(block, e, inside)
    of_right, of_wrong = flows.totals(block.data, e * x, x)
    return a * of_wrong - w * of_right


def _largest_term(block: Block, *args: Floats) -> tuple[float, ...]:
    return (float(np.abs(_terms(block, *args)).max(initial=0.0)),)


def _variance(block: Block, e: Floats, inside: Floats, x: Floats, scale: float) -> tuple[Any, ...]:
    """Sum of ``(u_l' x)^2``."""
    return (_counted(block, exact.fixed(_terms(block, e, inside, x) ** 2, scale)).sum(),)


def score_covariance(engine: Engine, e: Floats, items: NDArray[np.intp]) -> Floats:
    """``sum_l u_l u_l'`` for some of the items, others left out of A and W (two passes)."""
    inside = np.zeros(e.size)
    inside[items] = 1.0
    e = e * inside
    extremes = engine.map_reduce(_extremes, e, inside, combine=_maximum)
    largest_a, largest_w, least_a, least_w = np.abs(extremes)
    if largest_a == 0.0:
        return np.zeros((items.size, items.size))
    ratio = max(largest_a / least_a, largest_w / least_w)
    bits = min(_LEAST_BITS + math.ceil(2.0 * math.log2(ratio)), _MOST_BITS)
    units = min(2.0**bits, exact.scale_for(engine.n_persons))
    sums = matrices(engine, _outer, e, inside, largest_a, largest_w, units)
    aa, aw, ww = (x[np.ix_(items, items)] / units for x in sums)
    aa *= largest_a**2
    aw *= (largest_a * largest_w) * e[items]
    ww *= largest_w**2 * np.multiply.outer(e[items], e[items])
    return aa - aw - aw.T + ww


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


def contrast_variance(
    engine: Engine, chain: FlowChain, e: Floats, c: Floats
) -> tuple[float, Floats]:
    """Variance of a contrast ``c' difficulty`` and its x; a pass for each step of the solver."""
    x = chain.poisson(-c / (e * chain.d), e * chain.d)
    inside = np.ones(e.size)
    (largest,) = engine.map_reduce(_largest_term, e, inside, x, combine=_maximum)
    if largest == 0.0:
        return 0.0, x
    scale = exact.scale_for(largest**2 * engine.n_persons)
    total = engine.map_reduce(_variance, e, inside, x, scale)[0]
    return float(total) / scale, x
