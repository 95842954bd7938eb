"""Standard errors of marginal maximum likelihood: the observed information, in one pass."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from irt_dask.calibrate.marginal import lost_information
from irt_dask.calibrate.marginal.rounds import (
    GUESSING,
    HISTOGRAM_NODES,
    INTERCEPTS,
    SLOPES,
    Expected,
    Model,
    Rounds,
)
from irt_dask.errors import DataWarning, InputError
from irt_dask.kernels.posterior import lost_information as marginal_scores
from irt_dask.models import difficulty

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


#: Smallest eigenvalue of the observed information, as a share of that of known abilities: it is
#: known to 1e-7.
_LEAST = 1e-6
#: Information below which there is none: what is left of numbers that underflow.
_NOTHING = 1e-280
#: Parameters whose covariance is found unless the user says otherwise (seconds), and at most
#: (a minute; some GiB on the driver and in each worker).
_MAX_BY_DEFAULT, _MAX = 2000, 6000


@dataclass(frozen=True)
class Covariance:
    """Covariance of the free parameters, if known, and where each of them is: -1 is fixed."""

    matrix: Floats | None
    inverse: Floats | None  # of the observed information: the same without weights
    item_column: Ints
    ability_column: Ints

    @property
    def size(self) -> int:
        """Free parameters of items, means and SDs."""
        return 1 + int(max(self.item_column.max(), self.ability_column.max()))

    def of(self, gradient: Floats, column: Ints) -> Floats:
        """Standard errors of functions whose gradients (functions, k) are by columns (.., k)."""
        if self.matrix is None or not self.matrix.size:
            return np.full(len(column), np.nan)
        known = (column >= 0).all(axis=-1)
        at = np.where(column >= 0, column, 0)
        block = self.matrix[at[..., :, None], at[..., None, :]]
        variance = np.einsum("ni,nij,nj->n", gradient, block, gradient)
        return np.where(known, np.sqrt(np.maximum(variance, 0.0)), np.nan)


def columns(model: Model, x: Floats) -> tuple[Ints, Ints, int]:
    """Number the parameters that are free and inside their bounds, items (3, m), groups (2, G)."""
    items, ability = model.unpack(x)
    free = np.isnan(model.fixed)
    for row, (low, high) in enumerate((SLOPES, INTERCEPTS, GUESSING)):
        free[row] &= (items[row] > low) & (items[row] < high)
    if model.name == "1pl":
        free[0] = False
    order = np.full((3, model.n_items), -1)
    order[free] = np.arange(free.sum())
    size = int(free.sum())
    shared = np.isnan(model.fixed[0])
    if model.name == "1pl" and shared.any():
        order[0, shared] = size  # one slope: the scores of all add up there
        size += 1
    groups = np.full((2, model.n_groups), -1)
    if not model.histogram:
        inside = model.free_groups & ~model.at_group_bound(ability)
        groups[inside] = size + np.arange(inside.sum())
        size += int(inside.sum())
    return order, groups, size


def same_columns(model: Model, x: Floats, other: Floats) -> bool:
    """Whether the same parameters are inside their bounds."""
    one, two = columns(model, x), columns(model, other)
    return all(np.array_equal(a, b) for a, b in zip(one[:2], two[:2], strict=True))


def _complete(model: Model, items: Floats, ability: Floats, e: Expected, at: Any) -> Floats:
    """Information if abilities were known: blocks of items and of groups."""
    item_column, ability_column, size = at
    a, d, c = (row[:, None] for row in items)
    z = a * e.nodes + d
    small = np.exp(-np.abs(z))
    p = np.where(z >= 0.0, 1.0, small) / (1.0 + small)
    q = np.where(z >= 0.0, small, 1.0) / (1.0 + small)
    chance = c + (1.0 - c) * p
    wrong = e.seen - e.right
    # -d2 log-likelihood by logit z and guessing c, without squares of chances, which may underflow
    known = np.divide((1.0 - c) * p, chance, out=np.ones_like(p), where=chance > 0.0)
    guessed = np.isnan(model.fixed[2])[:, None] & (chance > 0.0)
    odds = np.divide(q, chance, out=np.zeros_like(p), where=guessed)
    zz = e.right * (known * q) ** 2 + wrong * p**2 - (e.right * known * q - wrong * p) * (q - p)
    zc = e.right * odds * (known * q + p)
    cc = (e.right * odds**2 + wrong / (1.0 - c) ** 2).sum(axis=1)
    if model.name == "3pl":
        alpha, beta = model.guessing_prior
        free_c = np.where(np.isnan(model.fixed[2]), items[2], 0.5)  # fixed ones may be 0
        cc = cc + (alpha - 1.0) / free_c**2 + (beta - 1.0) / (1.0 - free_c) ** 2
    x = e.nodes
    block = np.empty((3, 3, model.n_items))
    block[0, 0], block[0, 1], block[1, 1] = (zz * x**2).sum(1), (zz * x).sum(1), zz.sum(1)
    block[0, 2], block[1, 2], block[2, 2] = (zc * x).sum(1), zc.sum(1), cc
    out = np.zeros((size, size))
    for i in range(3):
        for j in range(3):
            r, k = item_column[i], item_column[j]
            both = (r >= 0) & (k >= 0)
            np.add.at(out, (r[both], k[both]), block[min(i, j), max(i, j)][both])
    if not model.histogram:
        for g in np.flatnonzero((ability_column >= 0).any(axis=0)):
            sd = np.exp(ability[1, g])
            u = (x - ability[0, g]) / sd
            n, first, second = e.persons[g] @ np.stack([np.ones_like(u), u, u**2], axis=1)
            of_group = np.array([[n / sd**2, 2.0 * first / sd], [2.0 * first / sd, 2.0 * second]])
            inside = np.flatnonzero(ability_column[:, g] >= 0)
            at_g = ability_column[inside, g]
            out[np.ix_(at_g, at_g)] = of_group[np.ix_(inside, inside)]
    return out


def are_wanted(model: Model, x: Floats, standard_errors: bool | None) -> bool:
    """Whether to find standard errors; an error if they are asked for and too many."""
    size = columns(model, x)[2]
    if standard_errors and size > _MAX:
        raise InputError(
            f"standard_errors=True: {size} parameters need a matrix of as many rows and columns, "
            f"and {_MAX} is the most; use standard_errors=False"
        )
    return size <= _MAX_BY_DEFAULT if standard_errors is None else standard_errors


def covariance(fit: Rounds, x: Floats, expected: Expected, wanted: bool) -> Covariance:
    """Inverse of the observed information at x; of a sample with weights the sandwich.

    None unless ``wanted``; and, with a warning, where the information is singular.
    """
    model = fit.model
    at = columns(model, x)
    if not wanted:
        return Covariance(None, None, *at[:2])
    information, squares, size = observed(fit, model, x, expected, fit.engine.sampled)
    values, vectors = np.linalg.eigh(information)
    if values.size and not values[0] > _LEAST:
        warnings.warn(
            "the observed information is singular: the data do not determine all parameters, and "
            "none has a standard error; give more items, more persons, or fix some items",
            DataWarning,
            stacklevel=3,
        )
        return Covariance(None, None, *at[:2])
    inverse = (vectors / values) @ vectors.T / np.outer(size, size)
    matrix = inverse if squares is None else inverse @ squares @ inverse
    return Covariance(matrix, inverse, *at[:2])


def observed(
    fit: Rounds, model: Model, x: Floats, expected: Expected, with_squares: bool
) -> tuple[Floats, Floats | None, Floats]:
    """Observed information of ``model`` at x, squares of the persons' scores, and unit: one pass.

    The information is in shares of what would be known if abilities were: multiply it by the outer
    product of the unit, (parameters,), with itself.  The unit of a parameter of which nothing would
    be known is 1.
    """
    items, ability = model.unpack(x)
    at = columns(model, x)
    lost, squares = lost_information.sums(fit.engine, model, x, at, with_squares)
    complete = _complete(model, items, ability, expected, at)
    of_each = np.diag(complete)
    size = np.sqrt(np.where(of_each > _NOTHING, of_each, 1.0))
    return (complete - 0.5 * (lost + lost.T)) / np.outer(size, size), squares, size


def scores(model: Model, x: Floats, e: Expected, at: tuple[Ints, Ints, int]) -> Floats:
    """Derivatives of the log posterior by the parameters that have a column.

    They are those of the complete data at the expected counts (Fisher's identity).
    """
    items, ability = model.unpack(x)
    item_column, ability_column, size = at
    by_logit, by_guess = marginal_scores.item_scores(items, e.nodes)
    wrong = e.seen - e.right
    slope = e.right * by_logit[0] + wrong * by_logit[1]
    by_c = (e.right * by_guess[0] + wrong * by_guess[1]).sum(axis=1)
    if model.name == "3pl":
        alpha, beta = model.guessing_prior
        known = np.where(np.isnan(model.fixed[2]), items[2], 0.5)
        by_c += (alpha - 1.0) / known - (beta - 1.0) / (1.0 - known)
    score = np.zeros(size)
    for column, part in zip(item_column, (slope @ e.nodes, slope.sum(axis=1), by_c), strict=True):
        np.add.at(score, column[column >= 0], part[column >= 0])
    if not model.histogram:
        sd = np.exp(ability[1])[:, None]
        u = (e.nodes - ability[0][:, None]) / sd
        parts = (e.persons * u / sd).sum(axis=1), (e.persons * (u**2 - 1.0)).sum(axis=1)
        for column, part in zip(ability_column, parts, strict=True):
            score[column[column >= 0]] = part[column >= 0]
    return score


def newton(model: Model, x: Floats, e: Expected, covariance: Covariance) -> Floats:
    """Newton step from x, near the maximum: what iterations left is squared."""
    items, ability = model.unpack(x)
    assert covariance.inverse is not None
    score = scores(
        model, x, e, (covariance.item_column, covariance.ability_column, covariance.size)
    )
    step = np.append(covariance.inverse @ score, 0.0)  # the last one for column -1
    moved_items = items + step[covariance.item_column]
    moved = ability if model.histogram else ability + step[covariance.ability_column]
    box = model.box()
    return np.clip(model.pack(moved_items, moved), box.low[:, None], box.high[:, None])


@dataclass(frozen=True)
class Scale:
    """The scale on which estimates are given: ability is (theta - mean) / sd."""

    model: Model
    mean: float = 0.0
    sd: float = 1.0

    @classmethod
    def of(cls, model: Model, x: Floats) -> Scale:
        """Scale of the reference group's histogram; else abilities are on their scale already."""
        if not model.histogram or model.anchored:
            return cls(model)
        mean, sd = _moments(model.unpack(x)[1][model.reference])
        return cls(model, mean, sd)

    def items(self, x: Floats, covariance: Covariance) -> dict[str, Any]:
        """Item parameters and their standard errors."""
        (a, d, c), _ = self.model.unpack(x)
        a_new, d_new = a * self.sd, d + a * self.mean
        column = covariance.item_column.T
        zero, one = np.zeros_like(a), np.ones_like(a)
        se_a = covariance.of(np.stack([self.sd * one], axis=1), column[:, :1])
        se_d = covariance.of(np.stack([self.mean * one, one], axis=1), column[:, :2])
        # b = (-d / a - mean) / sd
        by_a, by_d = d / a**2 / self.sd, -1.0 / a / self.sd
        se_b = covariance.of(np.stack([by_a, by_d], axis=1), column[:, :2])
        if np.isnan(self.model.fixed[:2]).any():  # a slope that is fixed or at a bound is known
            alone = (column[:, 0] < 0) & (column[:, 1] >= 0)
            se_d = np.where(alone, covariance.of(one[:, None], column[:, 1:2]), se_d)
            se_b = np.where(alone, covariance.of(by_d[:, None], column[:, 1:2]), se_b)
        out = {
            "item_discrimination": a_new,
            "item_discrimination_se": se_a,
            "item_difficulty": difficulty(a_new, d_new),
            "item_difficulty_se": se_b,
            "item_intercept": d_new,
            "item_intercept_se": se_d,
        }
        if self.model.guessing:
            out["item_guessing"] = c + zero
            out["item_guessing_se"] = covariance.of(one[:, None], column[:, 2:])
        return out

    def groups(self, x: Floats, covariance: Covariance) -> dict[str, Any]:
        """Means and SDs of the groups, and histograms."""
        _, ability = self.model.unpack(x)
        if self.model.histogram:
            share = ability / ability.sum(axis=1, keepdims=True)
            found = np.array([_moments(row) for row in share])
            nan = np.full(len(share), np.nan)
            return {
                "group_mean": (found[:, 0] - self.mean) / self.sd,
                "group_mean_se": nan,
                "group_sd": found[:, 1] / self.sd,
                "group_sd_se": nan,
                "group_ability_share": share,
                "ability": (HISTOGRAM_NODES - self.mean) / self.sd,
            }
        sd = np.exp(ability[1])
        column = covariance.ability_column
        one = np.ones((sd.size, 1))
        return {
            "group_mean": ability[0],
            "group_mean_se": covariance.of(one, column[0][:, None]),
            "group_sd": sd,
            "group_sd_se": covariance.of(sd[:, None], column[1][:, None]),
            "group_at_bound": self.model.at_group_bound(ability).any(axis=0),
        }


def _moments(share: Floats) -> tuple[float, float]:
    share = share / share.sum()
    mean = float(share @ HISTOGRAM_NODES)
    return mean, float(np.sqrt(share @ (HISTOGRAM_NODES - mean) ** 2))


def at_bound(model: Model, x: Floats) -> NDArray[np.bool_]:
    """Whether a parameter that was to be estimated ended at a bound; guessing at 0 is an answer."""
    items, _ = model.unpack(x)
    out = np.zeros(model.n_items, dtype=bool)
    for row, (low, high) in enumerate((SLOPES, INTERCEPTS, (-1.0, GUESSING[1]))):
        out |= np.isnan(model.fixed[row]) & ((items[row] <= low) | (items[row] >= high))
    return out
