"""Standard errors of marginal maximum likelihood: the observed information, in one pass."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.calibrate.marginal import (
    large_errors,
    large_sandwich,
    lost_information,
    sampling,
)
from irt_dask.calibrate.marginal.expected import Expected
from irt_dask.calibrate.marginal.inverse_blocks import SingularError
from irt_dask.calibrate.marginal.large_errors import Complete, Large
from irt_dask.calibrate.marginal.model import HISTOGRAM_NODES, Model
from irt_dask.calibrate.marginal.rounds import Rounds
from irt_dask.calibrate.marginal.sampling import INDEPENDENT, Sampling
from irt_dask.errors import DataWarning
from irt_dask.items import covariance as item_covariance
from irt_dask.items import derivatives
from irt_dask.items.described import described

#: Smallest eigenvalue of the observed information, as a share of that of known abilities: it is
#: known to 1e-7.
_LEAST = 1e-6
#: Information below which there is none: what is left of numbers that underflow.
_NOTHING = 1e-280
#: A relative error of standard errors, beyond these, that is worth a warning.
_DIFFERENCE = 0.005


@dataclass(frozen=True)
class Covariance:
    """Covariance of the free parameters, if known, and where each of them is: -1 is fixed.

    A matrix, or ``large``: what results need of one that is too large.
    """

    matrix: Floats | None
    inverse: Floats | None  # of the observed information: the same but of a sandwich
    item_column: Ints
    ability_column: Ints
    large: Large | None = None
    sampling: Sampling = INDEPENDENT

    @property
    def known(self) -> bool:
        """Whether there is one."""
        return self.inverse is not None or self.large is not None

    @property
    def attrs(self) -> dict[str, Any]:
        """How it was found, if not as the inverse of a matrix."""
        said = self.sampling.attrs if self.known else {}
        if self.large is None:
            return said
        of = f"{said['standard_errors']}: " if self.sampling.robust else ""
        return said | {"standard_errors": f"{of}{self.large.said}"}

    def solved(self, score: Floats) -> Floats:
        """Inverse of the observed information times a score."""
        if self.large is not None:
            return self.large.solver.newton(score)
        assert self.inverse is not None
        return np.asarray(self.inverse @ score)

    @property
    def size(self) -> int:
        """Free parameters of items, means and SDs."""
        return 1 + int(max(self.item_column.max(), self.ability_column.max()))

    def of(self, gradient: Floats, column: Ints) -> Floats:
        """Standard errors of functions whose gradients (functions, k) are by columns (.., k).

        A first parameter without a column, a slope, is taken as known: it is fixed, or at a bound.
        A function of another one has no error then.
        """
        if not self.known or not self.size:
            return np.full(len(column), np.nan)
        used, there = gradient != 0.0, column >= 0
        known = (there | ~used)[:, 1:].all(axis=1) & (there & used).any(axis=1)
        at = np.where(there, column, 0)
        if self.large is not None:
            block = self.large.between(at)
        else:
            assert self.matrix is not None
            block = self.matrix[at[..., :, None], at[..., None, :]]
        of_each = np.where(there, gradient, 0.0)
        variance = np.einsum("ni,nij,nj->n", of_each, block, of_each)
        return np.where(known, np.sqrt(np.maximum(variance, 0.0)), np.nan)


def columns(model: Model, x: Floats) -> tuple[Ints, Ints, int]:
    """Number parameters that are free and inside their bounds, and say how many there are.

    Those of items, (parameters, items), and of groups, (2, groups); -1 is none.
    """
    items, ability = model.unpack(x)
    order = np.full(items.shape, -1)
    own = model.inside(items) & model.own
    size = int(own.sum())
    order[own] = np.arange(size)
    for k in np.unique(model.of_all[model.of_all >= 0]):
        order[model.of_all == k] = size  # one for all: their scores add up there
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
    item_column, ability_column, _ = at
    free = item_column >= 0
    block = derivatives.observed_information(e.counts, items, free) + _of_prior(model, items)
    out = _by_column(block, at)
    for at_g, of_group in e.of_groups(ability, ability_column):
        out[np.ix_(at_g, at_g)] = of_group
    return out


def _by_column(block: Floats, at: Any) -> Floats:
    """Matrix of all columns from blocks of items, (items, parameters, parameters)."""
    item_column, _, size = at
    out = np.zeros((size, size))
    for i, row in enumerate(item_column):
        for j, column in enumerate(item_column):
            both = (row >= 0) & (column >= 0)
            np.add.at(out, (row[both], column[both]), block[both, i, j])
    return out


def _of_prior(model: Model, items: Floats) -> Floats:
    """Information of the items' prior, (items, parameters, parameters)."""
    return model.prior.information(np.where(model.free, items, 0.5))  # fixed ones may be 0


def covariance(fit: Rounds, x: Floats, expected: Expected, asked: Sampling | None) -> Covariance:
    """Inverse of the observed information at x, or the sandwich, as ``asked``.

    None unless something is; and, with a warning, where the information is singular.
    """
    model = fit.model
    at = columns(model, x)
    if asked is None:
        return Covariance(None, None, *at[:2])
    if at[2] > sampling.MAX_MATRIX:
        return _large(fit, x, expected, at, asked)
    information, of_persons, size = observed(
        fit, model, x, expected, asked.of_persons, coarse=not asked.robust
    )
    values, vectors = np.linalg.eigh(information)
    if values.size and not values[0] > _LEAST:
        _warn_singular()
        return Covariance(None, None, *at[:2])
    inverse = (vectors / values) @ vectors.T / np.outer(size, size)
    if not asked.robust:
        return Covariance(inverse, inverse, *at[:2])
    middle = sampling.squares(fit, model, x, at, asked, of_persons)
    # The prior as persons: where these say nothing its SD is left.
    middle = middle + _by_column(_of_prior(model, model.unpack(x)[0]), at)
    return Covariance(inverse @ middle @ inverse, inverse, *at[:2], sampling=asked)


def _large(
    fit: Rounds, x: Floats, expected: Expected, at: tuple[Ints, Ints, int], asked: Sampling
) -> Covariance:
    """What results need of an inverse, or a sandwich, that is too large for a matrix."""
    items, ability = fit.model.unpack(x)
    prior = _of_prior(fit.model, items)
    complete = Complete(
        derivatives.observed_information(expected.counts, items, at[0] >= 0) + prior,
        expected.of_groups(ability, at[1]),
    )
    try:
        known = large_errors.found(
            fit.engine, fit.name, fit.model, x, at, complete, coarse=not asked.robust
        )
        found = known.large
        if asked.robust:
            found = large_sandwich.found(fit.engine, known, asked, prior)
    except SingularError:
        _warn_singular()
        return Covariance(None, None, *at[:2])
    worst = max(found.difference, 3.0 * found.deviation)
    if worst > _DIFFERENCE:
        warnings.warn(
            f"standard errors of {at[2]} parameters are known to about {worst:.1%} at worst: "
            f"there are few persons by item (attrs standard_errors)",
            DataWarning,
            stacklevel=4,
        )
    return Covariance(None, None, *at[:2], found, asked)


def _warn_singular() -> None:
    warnings.warn(
        "the observed information is singular: the data do not determine all parameters, and "
        "none has a standard error; give more items, more persons, or fix some items",
        DataWarning,
        stacklevel=4,
    )


def observed(
    fit: Rounds, model: Model, x: Floats, expected: Expected, with_squares: bool, *, coarse: bool
) -> tuple[Floats, Floats | None, Floats]:
    """Observed information of ``model`` at x, squares of the persons' scores, and unit: one pass.

    The information is in shares of what would be known if abilities were: multiply it by the outer
    product of the unit, (parameters,), with itself.  The unit of a parameter of which nothing would
    be known is 1.  Where the middle of a sandwich amplifies errors a ``coarse`` grid of abilities
    does not do.
    """
    items, ability = model.unpack(x)
    at = columns(model, x)
    lost, squares = lost_information.sums(fit, model, x, at, with_squares, coarse)
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
    of_items = derivatives.gradient(e.counts, items)
    of_items += np.where(model.free, model.prior.gradient(np.where(model.free, items, 0.5)), 0.0)
    score = np.zeros(size)
    np.add.at(score, item_column[item_column >= 0], of_items[item_column >= 0])
    if not model.histogram:
        sd = np.exp(ability[1])[:, None]
        u = (e.nodes - ability[0][:, None]) / sd
        of_groups = np.stack([e.persons * u / sd, e.persons * (u**2 - 1.0)]).sum(axis=2)
        score[ability_column[ability_column >= 0]] = of_groups[ability_column >= 0]
    return score


def newton(model: Model, x: Floats, e: Expected, covariance: Covariance) -> Floats:
    """Newton step from x, near the maximum: what iterations left is squared."""
    items, ability = model.unpack(x)
    score = scores(
        model, x, e, (covariance.item_column, covariance.ability_column, covariance.size)
    )
    step = np.append(covariance.solved(score), 0.0)  # the last one for column -1
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
        """Item parameters and their standard errors.

        What depends on a parameter that ended at a bound, as a difficulty on its slope, has none.
        """
        items, _ = self.model.unpack(x)
        found = described(self.model.items, items, self.mean, self.sd)
        ended = self.model.free & ~self.model.inside(items)
        out: dict[str, Any] = {}
        for name, (value, gradient) in found.items():
            out[name] = value.T
            errors = [
                np.where(
                    ((of_one != 0.0) & ended).any(axis=0),
                    np.nan,
                    covariance.of(of_one.T, covariance.item_column.T),
                )
                for of_one in gradient.reshape(-1, *items.shape)
            ]
            out[f"{name}_se"] = np.array(errors).T.reshape(value.T.shape)
        return out

    def covariance(
        self, x: Floats, covariance: Covariance, item_id: tuple[str, ...]
    ) -> dict[str, Any]:
        """Covariance of the items' parameters, where it is a matrix and not large."""
        items, _ = self.model.unpack(x)
        of = covariance.matrix, covariance.item_column
        return item_covariance.variables(self.model.items, items, *of, item_id, self.mean, self.sd)

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
