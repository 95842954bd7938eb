"""Links that items which have drifted do not pull along: Tukey's bisquare weights.

Where items drift to one side, means follow.  Items far from the line of most of them count less
the farther they are, and those beyond 3 robust SDs not at all.  Weights of this kind are in
Haberman linking (Robitzsch 2020, R sirt: linking.haberman) and, as area weights, in He, Cui and
Osterlind (2015); that of Beaton and Tukey (1974) is used here, from a start by medians.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from irt_dask.arrays import Bools, Floats
from irt_dask.banks.common_items import ordered_places
from irt_dask.banks.link_constants import Constants, Pair, constants
from irt_dask.banks.link_gradient import (
    Moves,
    difficulty_gradient,
    moves,
    slope_gradient,
)
from irt_dask.errors import EstimationError, InputError

#: Robust SDs beyond which an item has no weight: 78% efficiency where nothing drifts.
CUT = 3.0
#: Common items from which on some can be told to be unlike the others.
LEAST = 5
#: Least robust SD: of log discriminations, and of difficulties in units of 1 / a.
_LEAST_SD = 0.01
_ROUNDS, _SAME = 200, 1e-9
#: Differences of robust and plain constants, in SDs by chance, beyond which items have drifted.
APART = 4.0
#: Variance of that difference next to that of a plain mean of normal residuals: 1 / .78 - 1.
_BETWEEN = 0.28
#: Rounds without Newton's steps, and the largest rate of plain ones with which they are taken.
_PLAIN, _STABLE = 3, 0.999


@dataclass(frozen=True)
class Spread:
    """Robust SDs of the residuals of difficulties and of log discriminations."""

    difficulty: float
    slope: float


@dataclass(frozen=True)
class Robust:
    """A link and its weights."""

    pair: Pair
    at: Constants
    spread: Spread


def residuals(pair: Pair, x: Floats) -> tuple[Floats, Floats]:
    """How far items are from the link: in b on the scale of bank_a, and in log a; (items,).

    0 of items whose categories have no order, which have no b.
    """
    slope, shift = x
    at, out = ordered_places(pair.one, pair.two), np.zeros((2, pair.weight.size))
    one, two = pair.one.take(at), pair.two.take(at)
    out[0, at] = one.difficulty() - slope * two.difficulty() - shift
    out[1, at] = np.log(np.abs(one.slope())) - np.log(np.abs(two.slope())) + np.log(slope)
    return out[0], out[1]


def bisquare(u: Floats) -> Floats:
    """Weights of residuals in units of the cut."""
    return np.where(np.abs(u) < 1.0, (1.0 - u**2) ** 2, 0.0)


def weights(pair: Pair, x: Floats, spread: Spread) -> Floats:
    """Of each item: the product of those of its difficulty and its discrimination."""
    b, a = residuals(pair, x)
    w = bisquare(b / (CUT * spread.difficulty))
    return w if pair.one_slope else w * bisquare(a / (CUT * spread.slope))


def _by_medians(pair: Pair) -> tuple[Floats, Spread]:
    """A and B by medians, and the spread of the items about them, which is held from there on."""
    at = ordered_places(pair.one, pair.two)
    if at.size < LEAST:
        raise InputError(
            f"robust='bisquare' has {at.size} common items to compare, and needs {LEAST} at least "
            f"to tell which are unlike the others; link by robust=None"
        )
    sub = pair.take(at)
    log_a = np.log(np.abs(sub.two.slope())) - np.log(np.abs(sub.one.slope()))
    slope = float(np.exp(np.median(log_a)))
    shift = float(np.median(sub.one.difficulty() - slope * sub.two.difficulty()))
    x = np.array([slope, shift])
    b, a = (1.4826 * float(np.median(np.abs(r))) for r in residuals(sub, x))
    unit = 1.0 / float(np.median(np.abs(sub.one.slope())))
    return x, Spread(max(b, _LEAST_SD * unit), max(a, _LEAST_SD))


def robust_constants(pair: Pair, near: Constants | None = None) -> Robust:
    """Link, weigh, and link again until nothing changes.

    Raises
    ------
    InputError
        Too few items.
    EstimationError
        Weights that do not settle.
    """
    x, spread = _by_medians(pair)
    at = near
    for k in range(_ROUNDS):
        now = pair.weighed(weights(pair, x, spread))
        if (now.weight > 0.0).sum() < 2:
            break
        at = constants(now, at)
        step: Floats = at.both - x
        if np.abs(step).max() < _SAME:
            return Robust(now, at, spread)
        if k >= _PLAIN:  # Newton's step to where links and weights agree: plain ones are slow
            by_x = _of_weights(now, x, spread)[0]
            change = moves(now, at).weight @ by_x.T
            if np.linalg.eigvals(change).real.max() < _STABLE:
                newton = np.asarray(np.linalg.solve(np.eye(2) - change, step), dtype=float)
                step = newton if np.abs(newton).max() < spread.difficulty * at.slope else step
        x = np.asarray(x + step, dtype=float)
    raise EstimationError(
        f"robust='bisquare': the weights of the {pair.weight.size} common items do not settle; "
        f"most differ between the banks. Compare their curves (item_link_rmsd of robust=None)"
    )


def between_links(found: Robust) -> float:
    """How far B of a robust link is from that of a plain one by chance, residuals being normal."""
    n = ordered_places(found.pair.one, found.pair.two).size
    return found.spread.difficulty * float(np.sqrt(_BETWEEN / n))


def robust_moves(found: Robust) -> Moves:
    """Derivatives of A and B, the weights moving along; the robust SDs are taken as known."""
    pair, at = found.pair, found.at
    held = moves(pair, at)
    by_x, of_one, of_two = _of_weights(pair, at.both, found.spread)
    more = np.linalg.inv(np.eye(2) - held.weight @ by_x.T)
    one = held.one + held.weight[:, None] * of_one
    two = held.two + held.weight[:, None] * of_two
    return Moves(
        np.tensordot(more, one, axes=1), np.tensordot(more, two, axes=1), more @ held.weight
    )


def _of_weights(pair: Pair, x: Floats, spread: Spread) -> tuple[Floats, Floats, Floats]:
    """Derivatives of the weights by A and B (2, items), and by both banks' parameters."""
    slope, ordered = x[0], _is_ordered(pair)
    b, a = residuals(pair, x)
    cut = CUT * np.array([spread.difficulty, spread.slope])
    u = b / cut[0], a / cut[1]
    own = [bisquare(v) for v in u]
    slopes = [np.where(np.abs(v) < 1.0, -4.0 * v * (1.0 - v**2), 0.0) for v in u]
    of_b = slopes[0] / cut[0] * (1.0 if pair.one_slope else own[1]) * ordered
    of_a = 0.0 * of_b if pair.one_slope else slopes[1] / cut[1] * own[0] * ordered
    by_x = np.stack([of_a / slope - of_b * pair.two.difficulty(), -of_b])
    log_1, log_2 = (  # a nominal item's discrimination may be 0
        slope_gradient(i) / np.where(ordered, i.slope(), 1.0) for i in (pair.one, pair.two)
    )
    one = of_b * difficulty_gradient(pair.one) + of_a * log_1
    two = -slope * of_b * difficulty_gradient(pair.two) - of_a * log_2
    return by_x, one, two


def _is_ordered(pair: Pair) -> Bools:
    out = np.zeros(pair.weight.size, dtype=bool)
    out[ordered_places(pair.one, pair.two)] = True
    return out
