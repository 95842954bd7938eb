"""How A and B of a link move with the parameters of the items, and with the items' weights.

The constants of moments are functions of them; those of curves are where two derivatives of a
criterion are 0, which says how they move (the theorem of implicit functions).  Ogasawara (2000,
2001) and Battauz (2013) do so for each method and model; here the curves' own derivatives serve.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.banks.common_items import ordered_places
from irt_dask.banks.link_constants import NODES, WEIGHTS, Constants, Pair, of_steps
from irt_dask.curves.item_set import ItemSet
from irt_dask.items.mixture import Mixture

#: Step in ability, and in A and B, of differences of derivatives.
_H = 1e-5


@dataclass(frozen=True)
class Moves:
    """Derivatives of A and B, first axis."""

    #: By the parameters of the items of each bank, (2, parameters, items).
    one: Floats
    two: Floats
    #: By the items' weights, (2, items).
    weight: Floats


def moves(pair: Pair, at: Constants) -> Moves:
    """Derivatives of the constants of a pair at their values."""
    if pair.by_moments:
        return _of_moments(pair, at, pair.one_slope or pair.method == "mean-mean")
    of_slope = _of_moments(pair, at, True) if pair.one_slope else None
    return _of_curves(pair, at, of_slope)


# --- moments --------------------------------------------------------------------------------------


def slope_gradient(items: ItemSet) -> Floats:
    """Of each item's discrimination, (parameters, items)."""
    out = np.zeros_like(Mixture.of_items(items)[1])
    for g in items.groups:
        out[: len(g.x), g.at] = g.model.slope(g.x)[1]
    return out


def difficulty_gradient(items: ItemSet) -> Floats:
    """Of each item's difficulty, (parameters, items)."""
    out = np.zeros_like(Mixture.of_items(items)[1])
    for g in items.groups:
        out[: len(g.x), g.at] = g.model.difficulty(g.x)[1]
    return out


def _step_gradient(items: ItemSet, of_step: Floats) -> Floats:
    """Gradient of a function whose derivatives by the steps' difficulties are ``of_step``."""
    out, item = np.zeros_like(Mixture.of_items(items)[1]), of_steps(items)
    for g in items.groups:
        value, gradient = g.model.step_difficulties(g.x)
        for i, j in enumerate(g.at):
            there = ~np.isnan(value[:, i])
            out[: len(g.x), j] = of_step[item == j] @ gradient[there, :, i]
    return out


def _of_moments(given: Pair, at: Constants, mean_mean: bool) -> Moves:
    """Where A is a ratio of mean discriminations (else of SDs of b), and B a difference of means.

    Of log A each bank has a part, of B too: B = mean_1 - A mean_2.
    """
    pair, places = given.in_order(), ordered_places(given.one, given.two)
    (_, mean_1, log_1), (m_2, mean_2, log_2) = (
        _parts(items, pair.weight, mean_mean) for items in (pair.one, pair.two)
    )
    sign = at.slope if mean_mean else -at.slope  # A = a_2 / a_1, or SD_1 / SD_2
    slope = -sign * log_1[0], sign * log_2[0], sign * (log_2[1] - log_1[1])
    shift = (
        mean_1[0] - m_2 * slope[0],
        -at.slope * mean_2[0] - m_2 * slope[1],
        mean_1[1] - at.slope * mean_2[1] - m_2 * slope[2],
    )
    one, two, weight = (np.stack(both) for both in zip(slope, shift, strict=True))
    by_weight = np.zeros((2, given.weight.size))
    by_weight[:, places] = weight
    return Moves(_spread(one, given.one, places), _spread(two, given.two, places), by_weight)


def _parts(
    items: ItemSet, weight: Floats, mean_mean: bool
) -> tuple[float, tuple[Floats, Floats], tuple[Floats, Floats]]:
    """Mean difficulty; gradients by parameters and weights, of it and of log a or log SD."""
    b, item = items.step_difficulties(), of_steps(items)
    total = weight[item].sum()
    share = weight[item] / total
    mean = float(share @ b)
    of_weights = np.bincount(item, (b - mean) / total, weight.size).astype(float)
    of_mean = _step_gradient(items, share), of_weights
    if mean_mean:
        a = items.slope()
        unit = float(weight @ np.abs(a))
        return mean, of_mean, (slope_gradient(items) * np.sign(a) * weight / unit, np.abs(a) / unit)
    variance = float(share @ (b - mean) ** 2)
    by_weight = ((b - mean) ** 2 - variance) / (2.0 * variance * total)
    of_log = _step_gradient(items, share * (b - mean) / variance)
    return mean, of_mean, (of_log, np.bincount(item, by_weight, weight.size).astype(float))


def _spread(gradient: Floats, items: ItemSet, places: Ints) -> Floats:
    """Gradients of some of the items among all of them."""
    out = np.zeros((len(gradient), *Mixture.of_items(items)[1].shape))
    out[:, : gradient.shape[1], places] = gradient
    return out


# --- curves ---------------------------------------------------------------------------------------


class _Curves:
    """What is compared of items at some abilities: of each row, a category or an item.

    ``value`` and its derivative ``slope`` by ability, (rows, nodes); ``by`` its derivatives by the
    items' parameters, (parameters, rows, nodes).
    """

    def __init__(self, items: ItemSet, nodes: Floats, of_items: bool) -> None:
        p = np.exp(items.log_p(nodes))
        n = len(Mixture.of_items(items)[1])
        with np.errstate(invalid="ignore"):  # empty categories
            slope = np.where(p > 0.0, p * items.by_ability(nodes)[0], 0.0)
            by = np.where(p > 0.0, p * items.by_parameter(nodes, n), 0.0)
        if of_items:
            score = np.arange(items.first[-1]) - np.repeat(items.first[:-1], items.n_categories)
            p, slope, by = (
                np.add.reduceat(x * score[:, None], items.first[:-1], axis=-2)
                for x in (p, slope, by)
            )
        else:  # halves: the squares of two categories add up to that of one
            p, slope, by = (math.sqrt(0.5) * x for x in (p, slope, by))
        self.value, self.slope, self.by = p, slope, by


@dataclass(frozen=True)
class _Side:
    """Differences e = given - moved on one scale, and what they do with A and B."""

    given: ItemSet
    moved: ItemSet
    #: Where the moved curves stand, (nodes,), and its derivatives by A and B, (2, nodes).
    ability: Floats
    by: Floats
    of_items: bool

    def difference(self) -> tuple[Floats, Floats, _Curves, _Curves]:
        """e (rows, nodes), its derivatives by A and B (2, rows, nodes), and both curves."""
        given = _Curves(self.given, NODES, self.of_items)
        moved = _Curves(self.moved, self.ability, self.of_items)
        return given.value - moved.value, -moved.slope * self.by[:, None], given, moved

    def slope_by(self) -> Floats:
        """Derivatives of the moved curves' slopes by parameters, (parameters, rows, nodes)."""
        up, down = (_Curves(self.moved, self.ability + h, self.of_items).by for h in (_H, -_H))
        return np.asarray((up - down) / (2.0 * _H))


def _sides(pair: Pair, x: Floats) -> tuple[_Side, _Side]:
    """Both scales at A and B: the curves of two on the scale of one, and the reverse."""
    (slope, shift), of_items = x, pair.method == "stocking-lord"
    u, v, one = (NODES - shift) / slope, slope * NODES + shift, np.ones_like(NODES)
    return (
        _Side(pair.one, pair.two, u, np.stack([-u, -one]) / slope, of_items),
        _Side(pair.two, pair.one, v, np.stack([NODES, one]), of_items),
    )


def _row_weights(pair: Pair) -> Floats:
    """Of each row of curves."""
    if pair.method == "stocking-lord":
        return pair.weight
    return np.repeat(pair.weight, pair.one.n_categories)


def _together(pair: Pair, e: Floats, d: Floats) -> tuple[Floats, Floats]:
    """What is squared, and its derivatives: each row, or the sum of all (1, nodes)."""
    if pair.method != "stocking-lord":
        return e, d
    w = pair.weight[:, None]
    return (w * e).sum(axis=0, keepdims=True), (w * d).sum(axis=1, keepdims=True)


def _score(pair: Pair, x: Floats) -> Floats:
    """Derivatives g of half the criterion by A and B, (2,)."""
    out, w = np.zeros(2), _row_weights(pair)
    for side in _sides(pair, x):
        e, d, *_ = side.difference()
        total, by = _together(pair, e, d)
        weight = w[:, None] if total.shape == e.shape else 1.0
        out += (weight * total * by * WEIGHTS).sum(axis=(1, 2))
    return out


def _cross(pair: Pair, x: Floats) -> tuple[Floats, Floats, Floats]:
    """Derivatives of g by the parameters of either bank and by weights, as :class:`Moves`."""
    w, found = _row_weights(pair), []
    of_weight = np.zeros((2, pair.weight.size))
    for side in _sides(pair, x):
        e, d, given, moved = side.difference()
        total, by = _together(pair, e, d)
        by_given = np.einsum("krn,prn,n,r->pkr", given.by, _like(by, d), WEIGHTS, w)
        by_moved = -np.einsum("krn,prn,n,r->pkr", moved.by, _like(by, d), WEIGHTS, w)
        by_moved -= np.einsum(
            "krn,pn,rn,n,r->pkr", side.slope_by(), side.by, _like(total, e), WEIGHTS, w
        )
        found.append((_by_item(pair, by_given), _by_item(pair, by_moved)))
        rows = (total * d * WEIGHTS).sum(axis=2)
        if pair.method == "stocking-lord":
            rows = rows + (e * by * WEIGHTS).sum(axis=2)
        of_weight += _by_item(pair, rows)
    (one, two), (two_too, one_too) = found
    return one + one_too, two + two_too, of_weight


def _like(x: Floats, rows: Floats) -> Floats:
    return np.broadcast_to(x, rows.shape)


def _by_item(pair: Pair, x: Floats) -> Floats:
    """Sums over the rows of each item, the last axis."""
    if pair.method == "stocking-lord":
        return x
    return np.asarray(np.add.reduceat(x, pair.one.first[:-1], axis=-1))


def _of_curves(pair: Pair, at: Constants, of_slope: Moves | None) -> Moves:
    """Where g is 0: the constants move by -H^-1 dg.

    With ``of_slope`` A is a function of the discriminations, and B alone makes the criterion least.
    """
    steps = _H * np.eye(2)
    hessian = np.stack(
        [_score(pair, at.both + h) - _score(pair, at.both - h) for h in steps], axis=1
    ) / (2.0 * _H)
    found = _cross(pair, at.both)
    if of_slope is None:
        inverse = np.linalg.inv(hessian)
        return Moves(*(-np.tensordot(inverse, g, axes=1) for g in found))
    of_a = of_slope.one[0], of_slope.two[0], of_slope.weight[0]
    shift = (-(g[1] + hessian[1, 0] * a) / hessian[1, 1] for g, a in zip(found, of_a, strict=True))
    return Moves(*(np.stack(both) for both in zip(of_a, shift, strict=True)))
