"""Tests of items for differential functioning, from the scores of groups; classes of DIF."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.special import chdtrc, ndtri

from irt_dask.arrays import Floats, Ints
from irt_dask.curves.item_set import ItemSet
from irt_dask.errors import EstimationError
from irt_dask.evaluate import dif_directions
from irt_dask.evaluate.dif_scores import Group
from irt_dask.population.population import NOBODY_APART

#: Of the ETS delta scale: a logit is -2.35 of it, from easy for the focal group to hard.
DELTA = 2.35
#: Absolute values of delta that part A from B and B from C.
_A, _C = 1.0, 1.5
#: The same of differences of expected scores, in SDs of the score (Zwick, Thayer and Mazzeo 1997).
_A_SCORE, _C_SCORE = 0.17, 0.25
_LEVEL = 0.05


class _Common(NamedTuple):
    """Scores of all common parameters, those that are known, next to the root of their size.

    Parameters are those of the items, then mean and SD of each group but the reference group, whose
    own fix the scale.
    """

    n_all: int
    known: Ints
    size: Floats
    factor: Any
    total: Floats
    #: Products of weighted scores, where weights are those of a sample.
    squares: Floats | None
    #: What sums of squares are multiplied by.
    rest: float

    def crossed(self, own: Floats, place: int, columns: Any) -> Floats:
        """Products with scores of the focal group of that place, of products of its own scores."""
        some, n = own[:, columns], own.shape[0] - 2
        out = np.zeros((self.n_all, some.shape[1]))
        out[:n] = some[:n]
        out[n + 2 * place : n + 2 * place + 2] = some[n:]
        found: Floats = out[self.known] / self.size[:, None]
        return found

    def solve(self, cross: Floats) -> Floats:
        """Coefficients of a regression on these scores."""
        found: Floats = scipy.linalg.cho_solve(self.factor, cross)
        return found

    def left(self, own: Floats, crossed: Floats, solved: Floats) -> Floats:
        """Products of scores less what the common ones explain: the information."""
        return self._scaled(own - crossed.T @ solved)

    def variance(self, own: Floats, crossed: Floats, solved: Floats) -> Floats:
        """The same of squares of weights, explained by the regression without these."""
        assert self.squares is not None
        both = crossed.T @ solved
        return self._scaled(own - both - both.T + solved.T @ (self.squares @ solved))

    def _scaled(self, v: Floats) -> Floats:
        v = self.rest * v
        return 0.5 * (v + v.T)


def _stacked(parts: list[Floats]) -> Floats:
    """Sums for the items of all groups, and for mean and SD of each but the first."""
    size, n = parts[0].shape[0] - 2, len(parts) - 1
    out = np.zeros((size + 2 * n,) * parts[0].ndim)
    for k, own in enumerate(parts[1:]):
        at = np.r_[0:size, size + 2 * k : size + 2 * k + 2]
        out[np.ix_(*(at,) * own.ndim)] += own
    items = (slice(size),) * out.ndim
    out[items] += parts[0][items]
    return out


def _common(groups: list[Group]) -> _Common:
    """Scores of the common parameters of some groups, the reference first."""
    score = _stacked([g.score for g in groups])
    products = _stacked([g.products for g in groups])
    known = np.flatnonzero(np.diag(products) > 0.0)
    size = np.sqrt(np.diag(products)[known])
    n, n_persons = sum(g.n_effective for g in groups), sum(g.n_persons for g in groups)
    if n <= known.size:
        raise EstimationError(
            f"{n:.0f} persons in effect and {known.size} common parameters: there must be more "
            f"persons; select fewer items"
        )
    try:
        factor = scipy.linalg.cho_factor(products[np.ix_(known, known)] / np.outer(size, size))
    except scipy.linalg.LinAlgError:
        raise EstimationError(
            "the scores of the items are linearly dependent: too few persons answered some items; "
            "remove these or give more persons"
        ) from None
    total, squares = score[known] / size, None
    if groups[0].squares is not None:
        squares = _stacked([g.squares for g in groups if g.squares is not None])
        squares = squares[np.ix_(known, known)] / np.outer(size, size)
    # Squares that are left after a regression on so many scores are too small; so is the sum of the
    # persons' own, by the part of it that these scores explain (none at their maximum).
    replicates = max(g.n_replicates for g in groups[1:])
    n_each = max(replicates, 1) * n
    explained = 0.0 if replicates else total @ scipy.linalg.cho_solve(factor, total)
    rest = (n_each - explained * (n / n_persons)) / (n_each - known.size)
    return _Common(score.size, known, size, factor, total, squares, rest)


def _with_place(v: Floats, h: Floats, step: float) -> Floats:
    """Variance of scores with information h if the first parameter is known with that error."""
    return v if step == 0.0 else v + step**2 * np.outer(h[:, 0], h[:, 0])


def of_pair(
    reference: Group, focal: Group, items: ItemSet, bound: Floats, unknown: float
) -> dict[str, Any]:
    """Chi-squares, p-values and effects of a focal group.

    ``unknown`` is the variance of what is not known of the place of its ability, logits.
    """
    m = items.n_items
    common = _common([reference, focal])
    cross = common.crossed(focal.products, 0, slice(None))
    solved = common.solve(cross)
    efficient = focal.score - solved.T @ common.total
    squares = focal.squares
    crossed = None if squares is None else common.crossed(squares, 0, slice(None))
    shift, slope = np.full((2, m), np.nan), np.full((2, m), np.nan)
    uniform, nonuniform, joint = np.full((3, m), np.nan)
    for j, directions in enumerate(dif_directions.numbers(items)):
        at = j + m * np.arange(directions)
        if not (reference.tells[j] and focal.tells[j]):
            continue
        own = np.ix_(at, at)
        v = h = common.left(focal.products[own], cross[:, at], solved[:, at])
        if squares is not None and crossed is not None:
            v = common.variance(squares[own], crossed[:, at], solved[:, at])
        v = _with_place(v, h, math.sqrt(unknown) * bound[0, j])
        u = efficient[at]
        if not h[0, 0] > 1e-9 * focal.products[j, j]:
            continue
        uniform[j], *found = _uniform(u, h, v)
        shift[:, j] = np.array(found) / bound[0, j]
        if np.linalg.det(h[:2, :2]) > 1e-9 * h[0, 0] * h[1, 1]:
            nonuniform[j], *found = _nonuniform(u, h, v, uniform[j])
            slope[:, j] = np.array(found) / bound[1, j]
            joint[j] = _joint(u, v)
    effect, spread = _of_scores([reference, focal], items, shift)
    tests = {"uniform": uniform, "nonuniform": nonuniform, "joint": joint}
    data: dict[str, Any] = {
        "item_dif_shift": shift[0],
        "item_dif_shift_se": shift[1],
        "item_dif_slope": slope[0],
        "item_dif_slope_se": slope[1],
        "item_dif_delta": DELTA * shift[0],
        "item_dif_class": np.where(
            items.n_categories > 2,
            _classes_of_scores(effect[0], effect[1], spread),
            _classes(*shift),
        ),
        "item_dif_score": effect[0],
        "item_dif_score_se": effect[1],
    }
    for name, value in tests.items():
        degrees = dif_directions.numbers(items) if name == "joint" else np.ones(m, dtype=np.int64)
        data[f"item_dif_{name}_chi2"] = value
        data[f"item_dif_{name}_p_value"] = chdtrc(degrees, np.maximum(value, 0.0))
    return data


def of_all(groups: list[Group], items: ItemSet, bound: Floats, unknown: Floats) -> dict[str, Any]:
    """Test whether each item has one curve in all groups that answered it, the reference first.

    Scores of all of them but one, each in a row with the others', in one common model; ``unknown``
    as of a pair, of each group but the first.
    """
    m, common = items.n_items, _common(groups)
    chi2, degrees = np.full(m, np.nan), np.zeros(m, dtype=np.int64)
    for j, directions in enumerate(dif_directions.numbers(items)):
        at = j + m * np.arange(directions)
        which = [k for k, g in enumerate(groups) if g.tells[j]][1:]
        if not which:
            continue
        crossed = np.hstack([common.crossed(groups[k].products, k - 1, at) for k in which])
        solved = common.solve(crossed)
        u = np.concatenate([groups[k].score[at] for k in which]) - solved.T @ common.total
        own = [groups[k].products[np.ix_(at, at)] for k in which]
        v = h = common.left(scipy.linalg.block_diag(*own), crossed, solved)
        weighted = [(k - 1, x) for k in which if (x := groups[k].squares) is not None]
        if weighted:
            crossed = np.hstack([common.crossed(x, place, at) for place, x in weighted])
            own = [x[np.ix_(at, at)] for _, x in weighted]
            v = common.variance(scipy.linalg.block_diag(*own), crossed, solved)
        for n, k in enumerate(which):
            v = _with_place(v, h[:, n * directions :], math.sqrt(unknown[k - 1]) * bound[0, j])
        chi2[j], degrees[j] = _joint(u, v), u.size
    return {
        "item_dif_omnibus_chi2": chi2,
        "item_dif_omnibus_df": degrees,
        "item_dif_omnibus_p_value": chdtrc(degrees, np.maximum(chi2, 0.0)),
    }


def _uniform(u: Floats, h: Floats, v: Floats) -> tuple[float, float, float]:
    """Chi-square of the first direction, one step of it and its error."""
    error = 1.0 / math.sqrt(v[0, 0]) if v is h else math.sqrt(v[0, 0]) / h[0, 0]
    return u[0] ** 2 / v[0, 0], u[0] / h[0, 0], error


def _nonuniform(u: Floats, h: Floats, v: Floats, uniform: float) -> tuple[float, float, float]:
    """The same of the second, the first being free: its step takes it up by the information h.

    With weights the variance v is another one, and a shift would show as a change of the slope
    if it were taken up by that.
    """
    inverse, u = np.linalg.inv(h[:2, :2]), u[:2]
    step = (inverse @ u)[1]
    if v is h:
        return max(float(u @ inverse @ u) - uniform, 0.0), step, math.sqrt(inverse[1, 1])
    variance = (inverse @ v[:2, :2] @ inverse)[1, 1]
    return step**2 / variance, step, math.sqrt(variance)


def _joint(u: Floats, v: Floats) -> float:
    """Chi-square of all directions; NaN where some cannot be told apart."""
    size = np.sqrt(np.diag(v))
    if not (size > 0.0).all() or np.linalg.eigvalsh(v / np.outer(size, size))[0] < 1e-9:
        return math.nan
    return float(u @ np.linalg.solve(v, u))


def adjusted(p: Floats) -> Floats:
    """p-values adjusted for the number of tests by Benjamini and Hochberg; NaN are none."""
    out, known = np.full(p.shape, np.nan), np.flatnonzero(np.isfinite(p))
    order = known[np.argsort(p[known], kind="stable")]
    scaled = p[order] * order.size / np.arange(1, order.size + 1)
    out[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return out


def _of_scores(groups: list[Group], items: ItemSet, shift: Floats) -> tuple[Floats, Floats]:
    """Differences of expected scores over the focal group with errors; SDs of scores, (items,).

    SDs are those in both groups together.
    """
    score = np.arange(items.first[-1]) - np.repeat(items.first[:-1], items.n_categories)
    moments = np.zeros((2, items.n_items))
    slope = np.zeros(items.n_items)
    sizes = [float(g.seen.sum()) for g in groups]
    for group, size in zip(groups, sizes, strict=True):
        nodes = group.known.nodes
        mass = np.exp(group.known.population.prior(nodes, NOBODY_APART)[0].log_mass[0])
        mass /= mass.sum()
        p = np.exp(items.log_p(nodes))
        for k in (1, 2):
            by_row = p @ mass * score**k
            moments[k - 1] += np.add.reduceat(by_row, items.first[:-1]) * size / sum(sizes)
        if group is groups[1]:
            moved = (p * dif_directions.tables(items, nodes)[0] * score[:, None]) @ mass
            slope = np.add.reduceat(moved, items.first[:-1])
    with np.errstate(invalid="ignore"):
        return shift * np.stack([slope, np.abs(slope)]), np.sqrt(moments[1] - moments[0] ** 2)


def _classes(shift: Floats, se: Floats) -> NDArray[np.str_]:
    """ETS classes of uniform DIF."""
    delta, error = np.abs(DELTA * shift), DELTA * se
    small = (delta < _A) | (delta <= ndtri(1.0 - _LEVEL / 2.0) * error)
    large = (delta >= _C) & (delta - _A > ndtri(1.0 - _LEVEL) * error)
    out = np.where(small, "A", np.where(large, "C", "B"))
    return np.where(np.isnan(shift), "", out)


def _classes_of_scores(effect: Floats, se: Floats, spread: Floats) -> NDArray[np.str_]:
    """Classes of items with more categories, of effects next to SDs of the score."""
    with np.errstate(divide="ignore", invalid="ignore"):
        effect, se = effect / spread, se / spread
    small = (np.abs(effect) <= _A_SCORE) | (np.abs(effect) <= ndtri(1.0 - _LEVEL / 2.0) * se)
    out = np.where(small, "A", np.where(np.abs(effect) > _C_SCORE, "C", "B"))
    return np.where(np.isnan(effect), "", out)
