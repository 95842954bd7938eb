"""Empirical Bayes: mean and covariance of the items' (log a, d), or (a, d), from the items.

EM: items at the modes of their densities, their own covariances added to those among them.  With
many items for few persons the prior and the items hold each other where they are, at any scale and
place of ability, as in :mod:`irt_dask.calibrate.bayes.hierarchy`; so both move along until the
persons expected have mean 0 and variance 1.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.calibrate.bayes.hierarchy import Hierarchy
from irt_dask.calibrate.bayes.signed_hierarchy import SignedHierarchy
from irt_dask.calibrate.marginal import errors as marginal_errors
from irt_dask.calibrate.marginal import sampling, signs
from irt_dask.calibrate.marginal.expected import Expected
from irt_dask.calibrate.marginal.model import Model
from irt_dask.calibrate.marginal.rounds import Rounds
from irt_dask.errors import ConvergenceWarning, EstimationError, InputError
from irt_dask.items import derivatives
from irt_dask.items.densities import Common, ItemDensity
from irt_dask.items.mixture import Mixture

#: Rounds end when mean and covariance change by less, in SDs and products of SDs.
_SMALL_CHANGE, _MOST_ROUNDS = 0.002, 200
#: Rounds in which the items' covariances are those of abilities that are not known, at most, and EM
#: steps in each.
_LAST_ROUNDS, _STEPS = 30, 3
#: Positive slopes begin here at least.
_LEAST_SLOPE = 0.1


@dataclass(frozen=True)
class Learned:
    """Mean (2,) and covariance (2, 2) of the items, and the rounds that it took."""

    mean: Floats
    covariance: Floats
    n_rounds: int


def refuse(models: Mixture, latent: str) -> None:
    """Stop where there is no density of slopes and intercepts, or no scale for it."""
    if models.empty.any():
        raise InputError(
            "prior= is not available for items some of whose categories nobody has; declare fewer "
            "(categories=), join some by recode, or leave the prior out"
        )
    shared = {p.model.name for p in models.parts if p.model.shared}
    if others := shared | {p.model.name for p in models.parts if not p.model.slopes_alone}:
        raise InputError(
            f"prior= is of items with a slope and an intercept of their own, not of "
            f"{', '.join(sorted(others))}; leave it out"
        )
    if latent == "histogram":
        raise InputError(
            "prior= holds on the scale on which ability is N(0, 1); leave it out, or latent"
        )


def settle(fit: Rounds, x: Floats) -> tuple[Model, Floats, Learned]:
    """The model with the prior that its items have, and a column near the maximum.

    Notes
    -----
    One pass over the data a round, some 20 to 60; up to 2,000 parameters, for which the observed
    information is cheap, some rounds more of a pass for that, and 3.
    """
    search = _Search.of(fit)
    if not fit.model.signed:  # where a is 0, log a is nowhere
        items, ability = fit.model.unpack(x)
        items = items.copy()
        items[0, search.at] = np.maximum(items[0, search.at], _LEAST_SLOPE)
        x = fit.model.pack(items, ability)
    start = search.prior.start(search.coordinates(fit.model.unpack(x)[0]))
    x, mean, covariance, n = _rounds(search, fit, x, *start, known=True)
    if marginal_errors.columns(fit.model, x)[2] <= sampling.MAX_BY_DEFAULT:
        x, mean, covariance, more = _rounds(search, fit, x, mean, covariance, known=False)
        n += more
    if (upright := signs.upright(fit.model, x)) is not x:  # the prior turns with the items
        x, turn = upright, np.array([-1.0, 1.0])
        mean, covariance = mean * turn, covariance * np.outer(turn, turn)
    return search.model(mean, covariance), x, Learned(mean, covariance, n)


def _rounds(
    search: _Search, fit: Rounds, x: Floats, mean: Floats, covariance: Floats, *, known: bool
) -> tuple[Floats, Floats, Floats, int]:
    """Column, mean and covariance after EM rounds, and their number.

    The items' own covariances are those of abilities that are ``known``, or not.
    """
    prior, most = search.prior, _MOST_ROUNDS if known else _LAST_ROUNDS
    for k in range(most):
        now = Rounds(fit.engine, search.model(mean, covariance), complete=fit.complete)
        for _ in range(1 if known else _STEPS):
            seen = _expected(now, x)
            x = now.item_step(seen, x)
        seen = seen if known else _expected(now, x)
        own = search.own(now, x, seen, known=known)
        x = search.moved(x, seen)
        y = search.coordinates(fit.model.unpack(x)[0])
        new_mean, _ = prior.mean_given(y, covariance)
        new = prior.covariance_given(y, new_mean, own)
        sd = np.sqrt(np.diag(new))
        change = float((np.abs(new - covariance) / np.outer(sd, sd)).max())
        change = max(change, float((np.abs(new_mean - mean) / sd).max()))
        mean, covariance = new_mean, new
        if change < _SMALL_CHANGE:
            return x, mean, covariance, k + 1
    warnings.warn(
        f"the items' prior did not settle (last change {change:.1%} of an SD, limit "
        f"{_SMALL_CHANGE:.1%}): the items say little of it; give more items, or an ItemPrior",
        ConvergenceWarning,
        stacklevel=4,
    )
    return x, mean, covariance, most


def _expected(fit: Rounds, x: Floats) -> Expected:
    value, seen = fit.expect(x)
    if not math.isfinite(value):
        raise EstimationError("the items' prior cannot be learned: a step led to no items")
    return seen


@dataclass(frozen=True)
class _Search:
    """The items whose prior is learned, and what is known of mean and covariance."""

    start: Model
    at: Ints
    prior: Hierarchy
    common: Common

    @classmethod
    def of(cls, fit: Rounds) -> _Search:
        model = fit.model
        prior = SignedHierarchy() if model.signed else Hierarchy()
        common = Common.of(model.items, np.zeros(2), np.eye(2), log=not model.signed)
        return cls(model, np.flatnonzero(model.free.any(axis=0)), prior, common)

    def coordinates(self, items: Floats) -> Floats:
        """(log a, d) or (a, d) of the items, (2, items)."""
        return self.common.coordinates(items)[:, self.at]

    def model(self, mean: Floats, covariance: Floats) -> Model:
        """The model with this prior of the items."""
        precision = np.asarray(np.linalg.inv(covariance), dtype=float)
        common = Common.of(self.start.items, mean, precision, log=not self.start.signed)
        return replace(self.start, prior=ItemDensity(self.start.prior.betas, common))

    def own(self, fit: Rounds, x: Floats, seen: Expected, *, known: bool) -> Floats:
        """Covariances of the items' coordinates, (items, 2, 2), with abilities known or not."""
        items, _ = fit.model.unpack(x)
        slopes = self.common.slopes(items)[self.at]
        found = None
        if not known:
            found = marginal_errors.covariance(fit, x, seen, sampling.INDEPENDENT).inverse
        if found is None:
            free = fit.model.inside(items)
            information = derivatives.observed_information(seen.counts, items, free)
            information += fit.model.prior.information(np.where(fit.model.free, items, 0.5))
            diagonal = np.arange(len(items))
            block = np.where(free.T[:, :, None] & free.T[:, None, :], information, 0.0)
            block[:, diagonal, diagonal] += ~free.T
            found = np.linalg.inv(block[self.at])
        else:
            column = marginal_errors.columns(fit.model, x)[0][:, self.at].T
            there = column >= 0
            both = there[:, :, None] & there[:, None, :]
            found = np.where(both, found[column[:, :, None], column[:, None, :]], 0.0)
        return np.asarray(slopes @ found @ slopes.transpose(0, 2, 1))

    def moved(self, x: Floats, seen: Expected) -> Floats:
        """Column on the scale on which persons expected have mean 0 and variance 1.

        The items' mean is found anew from there.
        """
        model = self.start
        if model.anchored:
            return x
        items, ability = model.unpack(x)
        _, mean, variance = seen.moments(model.reference)
        sd = math.sqrt(variance)
        to = model.items.rescaled(items, mean, sd)
        groups = model.groups_from(ability, mean, sd)
        low, high = model.box().low[:, None], model.box().high[:, None]
        return np.clip(model.pack(to, groups), low, high)
