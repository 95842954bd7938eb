"""The constants A and B of a link, ``theta_a = A theta_b + B``, from items that both banks have."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from irt_dask.arrays import Floats, Ints
from irt_dask.banks.common_items import ordered, ordered_places
from irt_dask.curves.item_set import ItemSet
from irt_dask.errors import EstimationError

METHODS = ("haebara", "stocking-lord", "mean-sigma", "mean-mean")
#: Abilities at which curves are compared, and their weights: an even grid under N(0, 1).
NODES = np.linspace(-5.0, 5.0, 101)
WEIGHTS = np.exp(-0.5 * NODES**2) / np.exp(-0.5 * NODES**2).sum()
#: A slope this many times larger or smaller than the median ratio of the common items'
#: discrimination is none.
_FARTHEST = 5.0
#: Starts whose neighbourhood is searched: the best ones.
_SEARCHED = 3
#: Step in log A, and in B times the median discrimination, that must not lower the criterion; by
#: how much of itself it may for rounding.
_STEP, _ROUNDING = 1e-3, 1e-9


@dataclass(frozen=True)
class Pair:
    """Items of two banks that link them, in the same order, how, and how much each counts."""

    method: str
    one: ItemSet
    two: ItemSet
    #: Whether all items of each bank have one discrimination, so that these alone give A.
    one_slope: bool
    #: Of each item, from 0 to 1.
    weight: Floats

    @property
    def by_moments(self) -> bool:
        """Whether A and B are functions of means and SDs."""
        return self.method.startswith("mean")

    def weighed(self, weight: Floats) -> Pair:
        """The same items, counting otherwise."""
        return replace(self, weight=weight)

    def take(self, items: NDArray[np.integer]) -> Pair:
        """Some of the items."""
        return replace(
            self, one=self.one.take(items), two=self.two.take(items), weight=self.weight[items]
        )

    def in_order(self) -> Pair:
        """The items whose categories have an order."""
        return self.take(ordered_places(self.one, self.two))


@dataclass(frozen=True)
class Constants:
    """A and B, and the criterion they reach; NaN of moments."""

    slope: float
    shift: float
    criterion: float

    @property
    def both(self) -> Floats:
        """A and B as an array (2,)."""
        return np.array([self.slope, self.shift])


def moved(items: ItemSet, slope: float, shift: float) -> ItemSet:
    """Items on the scale of ``slope theta + shift``."""
    return items.rescaled(-shift / slope, 1.0 / slope)


def of_steps(items: ItemSet) -> Ints:
    """The item of each of the step difficulties."""
    n, groups = np.zeros(items.n_items, dtype=np.int64), items.groups
    for g in groups:
        n[g.at] = (~np.isnan(g.model.step_difficulties(g.x)[0])).sum(axis=0)
    return np.repeat(np.arange(items.n_items), n)


def mean_and_sd(items: ItemSet, weight: Floats) -> tuple[float, float]:
    """Of the difficulties of all steps, each counting as its item does."""
    b, w = items.step_difficulties(), weight[of_steps(items)]
    if np.all(w == 1.0):
        return float(b.mean()), float(b.std())
    mean = float(np.average(b, weights=w))
    return mean, math.sqrt(np.average((b - mean) ** 2, weights=w))


def moments(method: str, given: Pair) -> tuple[float, float]:
    """A and B from means and standard deviations of the items that link."""
    pair = given.in_order()
    (m_a, sd_a), (m_b, sd_b) = (mean_and_sd(items, pair.weight) for items in (pair.one, pair.two))
    if method == "mean-mean":
        total = [(pair.weight * np.abs(items.slope())).mean() for items in (pair.two, pair.one)]
        slope = float(total[0] / total[1])
    else:
        if sd_a == 0.0 or sd_b == 0.0:
            raise EstimationError(
                "the common items of a bank are all equally difficult, so that mean-sigma has no "
                "slope; use method='haebara' or 'mean-mean'"
            )
        slope = sd_a / sd_b
    return slope, m_a - slope * m_b


def residuals(pair: Pair) -> Callable[..., Floats]:
    """Differences of the curves on both scales, weighted, as a function of A and B."""
    root, weight = np.sqrt(WEIGHTS)[:, None], pair.weight
    of_rows = np.sqrt(0.5 * np.repeat(weight, pair.one.n_categories))[:, None]

    def curves(items: ItemSet) -> Floats:
        if pair.method == "stocking-lord":  # expected score of all items, (nodes, 1)
            return np.asarray((weight[:, None] * items.expected(NODES)).sum(axis=0)[:, None])
        # halves: the squares of two categories add up to that of one; (nodes, rows)
        return np.asarray((np.exp(items.log_p(NODES)) * of_rows).T)

    given = curves(pair.one), curves(pair.two)

    def differences(slope: float, shift: float) -> Floats:
        on_a = given[0] - curves(moved(pair.two, slope, shift))
        on_b = given[1] - curves(moved(pair.one, 1.0 / slope, -shift / slope))
        return (root * np.stack([on_a, on_b])).ravel()

    return differences


def _starts(given: Pair) -> list[tuple[float, float]]:
    """Links by moments and by medians, and slopes on both sides of them."""
    pair = given.in_order()
    factors = (1.0, 0.25, 0.5, 0.75, 1.33, 2.0, 4.0)
    if pair.one.n_items < 2:  # nominal items: scales that are not far apart
        return [(s, 0.0) for s in factors]
    b_a, b_b = pair.one.step_difficulties(), pair.two.step_difficulties()
    ratio = float(np.median(pair.two.slope() / pair.one.slope()))
    slopes = [ratio * factor for factor in factors]
    starts = [moments("mean-mean", pair)]
    if b_a.std() > 0.0 and b_b.std() > 0.0:
        starts.append(moments("mean-sigma", pair))
    return starts + [(s, float(np.median(b_a - s * b_b))) for s in slopes]


def constants(given: Pair, near: Constants | None = None) -> Constants:
    """A, B and the criterion they reach; ``near`` others, as those of nearly the same items.

    An item of weight 0 takes no part in anything.

    Raises
    ------
    EstimationError
        No minimum, or a slope that the discriminations contradict.
    """
    pair = given.take(np.flatnonzero(given.weight > 0.0))
    method, slope, shift = pair.method, 1.0, 0.0
    if ordered(pair.one, pair.two)[0].n_items:
        by_means = pair.one_slope or not pair.by_moments
        slope, shift = moments("mean-mean" if by_means else method, pair)
    if pair.by_moments:
        _check_slope(pair, slope)
        return Constants(slope, shift, math.nan)
    of_both = residuals(pair)

    def of(x: Any) -> Floats:  # a slope as its logarithm stays positive
        return of_both(slope if pair.one_slope else math.exp(x[1]), x[0])

    def value(x: Any) -> float:
        return float((of(x) ** 2).sum())

    if near is not None:
        starts = [[near.shift, math.log(near.slope)]]
    else:
        starts = [[b, math.log(s)] for s, b in _starts(pair)] + [[shift, 0.0]] * pair.one_slope
    best = sorted((start[: 2 - pair.one_slope] for start in starts), key=value)
    found = [
        least_squares(of, x, jac="3-point", xtol=1e-14, ftol=1e-14, gtol=1e-14, max_nfev=200).x
        for x in best[:_SEARCHED]
    ]
    x = min([x for x in found if np.isfinite(x).all()] + [best[0]], key=value)
    _check_minimum(method, value, x, float(np.median(np.abs(pair.one.slope()))))
    slope = slope if pair.one_slope else math.exp(x[1])
    _check_slope(pair, slope)
    return Constants(slope, float(x[0]), value(x))


def _check_minimum(method: str, value: Callable[[Any], float], x: Any, unit: float) -> None:
    """Stop where a step to either side in A or B leads lower."""
    at = value(x)
    for k, step in enumerate((_STEP / unit, _STEP)[: len(x)]):
        for sign in (-1.0, 1.0):
            near = np.array(x, dtype=float)
            near[k] += sign * step
            if not value(near) >= at * (1.0 - _ROUNDING):
                raise EstimationError(
                    f"no minimum of the {method} criterion was found; compare the common items of "
                    f"the banks, or use method='mean-mean'"
                )


def _check_slope(pair: Pair, slope: float) -> None:
    """Stop at a slope that the discriminations of the items contradict."""
    one, two = ordered(pair.one, pair.two)
    if not one.n_items:
        return
    ratio = float(np.median(two.slope() / one.slope()))
    if not ratio / _FARTHEST <= slope <= ratio * _FARTHEST:
        raise EstimationError(
            f"method={pair.method!r} gives A = {slope:.3g}, but the discriminations of the common "
            f"items have a median ratio of {ratio:.3g}: some items are not the same in both banks; "
            f"compare their curves, and leave out those that differ"
        )
