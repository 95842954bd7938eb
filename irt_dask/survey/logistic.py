"""Logistic regressions by Newton's method, of all weights and plausible values at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from irt_dask.arrays import Floats
from irt_dask.engine.progress import Progress, ProgressOption
from irt_dask.errors import TooLargeError
from irt_dask.survey.least_squares import FLAT, Solved
from irt_dask.survey.plan import Plan
from irt_dask.survey.predictors import Predictors
from irt_dask.survey.rows import Key
from irt_dask.survey.sums import Group, read
from irt_dask.survey.tables import Table

#: Passes for the full sample, and again for replicates. Each step moves a logit that runs off by
#: about 1, so that 1 in 10^9 is reached in 21.
MOST_PASSES = 30
#: Bytes of coefficients and sums at most.
MOST_BYTES = 8 << 30
#: A step of so many logits, at a predictor's root mean square, is the last: errors are its square.
_SMALL = 1e-5
#: Rounding of a log-likelihood, relative.
_ROUNDING = 1e-10
#: A term runs off if its last step is at least such a share of the largest.
_RUNS_OFF = 1e-3
#: Persons at a time: their probabilities under all weights stay in the cache.
_PERSONS = 128


class Fitted(NamedTuple):
    """Coefficients (weights, terms, M), the terms estimated, and those that have no maximum."""

    b: Floats
    kept: list[int]
    infinite: list[int]


@dataclass
class _Newton:
    """Regressions of a group: a column for each weight and plausible value, p terms estimated."""

    kept: list[int]
    #: Weight and plausible value of each column.
    weight: np.ndarray
    value: np.ndarray
    #: Sums of predictors' products with values, (p, columns): all that is needed of these.
    right: Floats
    #: Root mean squares of predictors, (p, 1).
    scale: Floats
    #: The best coefficients so far, (p, columns), their log-likelihood, the step that is tried.
    best: Floats
    log_likelihood: Floats
    step: Floats
    active: np.ndarray
    failed: np.ndarray

    @property
    def size(self) -> int:
        """Numbers that are summed for a column."""
        p = len(self.kept)
        return 1 + p + p * (p + 1) // 2

    def advance(self, sums: Floats) -> None:
        """Take the steps that raised the likelihood, halve others; `sums` (size, active)."""
        at = np.flatnonzero(self.active)
        p = len(self.kept)
        tried, right = (self.best + self.step)[:, at], self.right[:, at]
        log, gradient = (tried * right).sum(axis=0) - sums[0], right - sums[1 : 1 + p]
        least = self.log_likelihood[at] - _ROUNDING * np.abs(self.log_likelihood[at])
        raised = (log >= least) | np.isneginf(self.log_likelihood[at])
        self.step[:, at[~raised]] /= 2
        at = at[raised]
        self.best[:, at] += self.step[:, at]
        self.log_likelihood[at] = log[raised]
        step, singular = _newton_steps(gradient[:, raised], sums[1 + p :, raised])
        self._fail(at[singular])
        at, step = at[~singular], step[:, ~singular]
        self.step[:, at] = step
        done = at[np.abs(step * self.scale).max(axis=0, initial=0.0) < _SMALL]
        self.best[:, done] += self.step[:, done]
        self.active[done] = False

    def fail(self) -> None:
        """What has not settled has no maximum."""
        self._fail(np.flatnonzero(self.active))

    def _fail(self, columns: np.ndarray) -> None:
        self.failed[columns] = True
        self.active[columns] = False


def logistic(
    table: Table, plan: Plan, groups: Mapping[Key, Group], linear: Mapping[Key, Solved],
    progress: ProgressOption = False,
) -> dict[Key, Fitted]:  # fmt: skip
    """Weighted maximum likelihood for each group, plausible value and weight.

    `linear` has the linear regressions of the same 0 and 1, from which the full sample's begin;
    replicates begin at the full sample's estimates. Coefficients are NaN where the likelihood has
    no maximum (some combination of predictors parts 0 from 1), of a group for all weights if one of
    its plausible values has none.
    """
    assert plan.predictors is not None
    (columns,) = plan.variables.values()
    m, p = len(columns), len(plan.predictors.terms)
    n_weights = 1 if plan.replicates is None else 1 + plan.replicates.n
    if (held := len(groups) * n_weights * m * (1 + 3 * p + p * (p + 1) // 2) * 8) > MOST_BYTES:
        raise TooLargeError(
            f"logistic regressions of {len(groups):,} groups, {n_weights} weights, {m} plausible "
            f"values and {p} terms hold {held >> 30} GiB, more than {MOST_BYTES >> 30}: fit some "
            "of the groups at a time"
        )
    out, fits = {}, {}
    for key, solved in linear.items():
        fits[key] = _begun(
            solved, groups[key], plan, [0], _start(solved, plan.predictors.intercept)
        )
    _run(table, plan, fits, progress, "logistic regressions, passes")
    again = {}
    for key, fit in fits.items():
        if fit.failed.any():
            known = fit.kept and np.isfinite(linear[key].b[0, fit.kept]).all()
            infinite = _running_off(fit, plan.predictors) if known else []
            out[key] = Fitted(np.full((n_weights, p, m), np.nan), fit.kept, infinite)
        elif n_weights > 1:
            start = np.tile(fit.best, n_weights - 1)
            again[key] = _begun(linear[key], groups[key], plan, range(1, n_weights), start)
    _run(table, plan, again, progress, "logistic regressions, passes of replicates")
    for key, fit in fits.items():
        if key not in out:
            b = np.full((n_weights, p, m), np.nan)
            b[0, fit.kept] = fit.best
            if key in again:
                replicate = np.where(again[key].failed, np.nan, again[key].best)
                b[1:, fit.kept] = np.moveaxis(replicate.reshape(len(fit.kept), -1, m), 1, 0)
            out[key] = Fitted(b, fit.kept, [])
    return out


def _start(solved: Solved, intercept: int | None) -> Floats:
    """The first step from 0, (terms, M): probabilities .5, of which .25 is the variance."""
    start = 4 * solved.b[0, solved.kept]
    if intercept not in solved.kept:
        return np.zeros_like(start)
    start[solved.kept.index(intercept)] -= 2
    return start


def _begun(
    solved: Solved, group: Group, plan: Plan, weights: Iterable[int], start: Floats
) -> _Newton:
    """Regressions of a group under some weights, from coefficients (p, columns)."""
    weights, m = np.asarray(list(weights)), solved.b.shape[2]
    weight, value = np.repeat(weights, m), np.tile(np.arange(m), weights.size)
    # without anybody, or terms that follow from others there
    unknown = (np.isnan(solved.b[:, solved.kept]).sum(axis=1) > 0) | (not solved.kept)
    failed = unknown[weight, value]
    assert plan.predictors is not None
    if plan.predictors.intercept in solved.kept:
        total, right = group.sums[:, 0][weight], solved.total[weight, value]
        failed |= (right <= 0) | (right >= total)  # all are 0 or 1
    return _Newton(
        solved.kept, weight, value, solved.right[weight][:, solved.kept, :][
            np.arange(weight.size), :, value].T, solved.scale[solved.kept, None], start.copy(),
        np.full(weight.size, -np.inf), np.zeros_like(start), ~failed, failed,
    )  # fmt: skip


def _run(
    table: Table, plan: Plan, fits: Mapping[Key, _Newton], progress: ProgressOption, stage: str
) -> None:
    """Newton's steps, each for all that have not settled in one pass over the table."""
    with Progress(progress, stage) as shown:
        for k in range(MOST_PASSES):
            live = {key: fit for key, fit in fits.items() if fit.active.any()}
            if not live:
                return
            _step(table, plan, live)
            shown.update(k + 1, None)
    for fit in fits.values():
        fit.fail()


def _step(table: Table, plan: Plan, live: Mapping[Key, _Newton]) -> None:
    """One step of those that have not settled."""
    (name,) = plan.variables
    sums = {key: np.zeros((fit.size, int(fit.active.sum()))) for key, fit in live.items()}
    for batch in read(table, plan):
        _, there = batch.observed[name]
        for key, rows in batch.parts:
            rows = rows[there[rows]]
            if key in live:
                assert batch.predictors is not None
                fit = live[key]
                x = batch.predictors[np.ix_(rows, fit.kept)]
                sums[key] += _sums(fit, x, batch.weights[rows])
    for key, fit in live.items():
        fit.advance(sums[key])


def _sums(fit: _Newton, x: Floats, weights: Floats) -> Floats:
    """Sums of log(1 + exp(logit)), of its gradient and information, (size, active), of persons.

    x (persons, p), weights (persons, weights). The rest of the likelihood is linear in y.
    """
    i, j = np.triu_indices(x.shape[1])
    b, weight = (fit.best + fit.step)[:, fit.active], fit.weight[fit.active]
    out = np.zeros((fit.size, b.shape[1]))
    for first in range(0, len(x), _PERSONS):
        one = x[first : first + _PERSONS]
        w = np.take(weights[first : first + _PERSONS], weight, axis=1)
        logit = one @ b
        e = np.abs(logit)
        np.exp(np.negative(e, out=e), out=e)
        above = 1 + e
        log = np.log(above)
        log += np.maximum(logit, 0)
        out[0] += np.einsum("nc,nc->c", w, log)
        w /= above
        out[1 : 1 + len(b)] += one.T @ (w * np.where(logit > 0, 1.0, e))
        w /= above
        w *= e
        out[1 + len(b) :] += (one[:, i] * one[:, j]).T @ w
    return out


def _newton_steps(gradient: Floats, information: Floats) -> tuple[Floats, np.ndarray]:
    """Steps (p, columns), and where the information is singular."""
    p, n = gradient.shape
    i, j = np.triu_indices(p)
    a = np.empty((n, p, p))
    a[:, i, j] = a[:, j, i] = information.T
    root = np.sqrt(np.einsum("npp->np", a))
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = a / (root[:, :, None] * root[:, None, :])
        known = np.isfinite(scaled).all(axis=(1, 2))
        known[known] = np.linalg.eigvalsh(scaled[known])[:, 0] > FLAT
        step = np.zeros((n, p))
        right = (gradient.T / root)[known][:, :, None]
        step[known] = np.linalg.solve(scaled[known], right)[:, :, 0] / root[known]
    return step.T, ~known


def _running_off(fit: _Newton, predictors: Predictors) -> list[int]:
    """Terms whose coefficients have no maximum, by their last steps."""
    step = fit.step[:, fit.failed].copy()
    at = fit.kept.index(predictors.intercept) if predictors.intercept in fit.kept else None
    if at is not None:  # of the intercept where predictors are not about their means
        step[at] -= predictors.shift[fit.kept] @ step
    size = np.abs(step * fit.scale)
    off = (size > _RUNS_OFF * size.max(axis=0, initial=0.0)).any(axis=1)
    # no step was taken where all are 0 or 1
    return [k for k, runs in zip(fit.kept, off, strict=True) if runs] or [fit.kept[at or 0]]
