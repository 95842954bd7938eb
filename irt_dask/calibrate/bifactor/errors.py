"""Standard errors of a bifactor fit: the observed information (Louis 1982), or the sandwich.

With it Newton steps lead to the maximum itself, of which EM leaves a small distance.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.special import expit

from irt_dask.arrays import Bools, Floats
from irt_dask.calibrate.bifactor.model import Expected, Model, Rounds
from irt_dask.engine.cache import keep_last
from irt_dask.engine.memory import refuse_beyond_memory
from irt_dask.errors import DataWarning, InputError
from irt_dask.items.bifactor import BlockItems, Grids, tables
from irt_dask.kernels.base import keyed_random
from irt_dask.kernels.base.exact_products import Units
from irt_dask.kernels.several import bifactor_information as kernel
from irt_dask.store import Block

#: Parameters up to which there are standard errors by default, and at all.
_BY_DEFAULT, _MOST = 4000, 6000
#: Smallest eigenvalue of the observed information, as a share of that of known abilities.
_LEAST = 1e-6
#: Newton steps, at most, and the step after which none is needed.
_STEPS, _SMALL = 4, 1e-8
#: How far they may lead before errors are found again, which change by about that share; and how
#: often they are found at most.
_FAR, _ROUNDS = 1e-3, 4
#: Step of differences of the prior's gradient, next to 1 or a parameter.
_STEP = 1e-5


@dataclass
class Maximum:
    """Where a fit ends, and what is known of it there."""

    x: Floats
    value: float
    #: Of the parameters that are free, within their bounds, (free, free); None: not known.
    covariance: Floats | None
    free: Bools  # (parameters,)

    def errors(self, gradient: csr_array) -> Floats:
        """Standard errors of functions with these gradients, (functions, parameters).

        NaN where one depends on a parameter that is at a bound, or on none.
        """
        out = np.full(gradient.shape[0], np.nan)
        if self.covariance is None:
            return out
        held = abs(gradient) @ np.where(self.free, 0.0, 1.0)
        own = gradient[:, np.flatnonzero(self.free)]
        variance = np.asarray((own @ self.covariance * own.toarray()).sum(axis=1)).ravel()
        known = (held == 0.0) & (variance > 0.0)
        out[known] = np.sqrt(variance[known])
        return out


def draws(model: Model, at: Maximum, n: int, seed: int) -> list[Floats]:
    """Columns from the normal distribution about the maximum; none if that is not known.

    It is of log a; what is drawn beyond a bound is at it, as is a lambda below 0.
    """
    if at.covariance is None:
        return []
    x, free, m = at.x[:, 0], np.flatnonzero(at.free), model.n_items
    of_log = np.arange(x.size) < m
    scale = np.where(of_log, 1.0 / np.where(of_log, x, 1.0), 1.0)[free]
    values, vectors = np.linalg.eigh(at.covariance * np.outer(scale, scale))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    rng, box, out = keyed_random.generator(seed, "bifactor draws"), model.box(), []
    for _ in range(n):
        step, drawn = np.zeros(x.size), x.copy()
        step[free] = root @ rng.standard_normal(free.size)
        drawn[of_log] *= np.exp(step[of_log])
        drawn[~of_log] += step[~of_log]
        out.append(np.clip(drawn, box.low, box.high)[:, None])
    return out


def asked(model: Model, standard_errors: bool | None) -> bool:
    """Whether there are to be standard errors; an error before any work where there cannot be."""
    n = model.n_parameters
    if standard_errors and n > _MOST:
        raise InputError(
            f"standard_errors=True: {n} parameters, and {_MOST} is the most; use "
            f"standard_errors=False"
        )
    return n <= _BY_DEFAULT if standard_errors is None else bool(standard_errors)


def found(
    fit: Rounds, x: Floats, with_errors: bool, n_answered: int, *, converged: bool = True
) -> Maximum:
    """The maximum near x, where iterations ended, and errors there, if asked for.

    There are none, with a warning unless the iterations just ended too early, where the information
    is singular.  ``n_answered`` persons have a response.
    """
    value, seen = fit.expect(x)
    free = _free(fit.model, x)
    end = Maximum(x, value, None, free)
    for _ in range(_ROUNDS if with_errors else 0):
        information, squares = _observed(fit, x, seen)
        inverse = _inverse(information[np.ix_(free, free)])
        if inverse is None:
            if converged:
                _warn_singular()
            return Maximum(x, value, None, free)
        begun, (x, value, seen) = x, _polished(fit, x, value, seen, inverse, free)
        if fit.engine.sampled:
            middle = (squares + _of_prior(fit.model, x))[np.ix_(free, free)]
            inverse = inverse @ middle @ inverse * (n_answered / max(n_answered - 1, 1))
        end, free = Maximum(x, value, inverse, free), _free(fit.model, x)
        if np.abs(x - begun).max() <= _FAR and np.array_equal(free, end.free):
            break
    return end


def _free(model: Model, x: Floats) -> Bools:
    """Parameters that are estimated, and inside their bounds."""
    box = model.box()
    return np.asarray((x[:, 0] > box.low) & (x[:, 0] < box.high))


def _inverse(information: Floats) -> Floats | None:
    """Its inverse; None where it is singular."""
    size = np.sqrt(np.maximum(np.diag(information), 1e-280))
    values, vectors = np.linalg.eigh(information / np.outer(size, size))
    if values.size and values[0] > _LEAST:
        return np.asarray((vectors / values) @ vectors.T / np.outer(size, size))
    return None


def _warn_singular() -> None:
    warnings.warn(
        "the observed information is singular: the data do not determine all parameters, and none "
        "has a standard error; use loadings='testlet' or a prior, or join blocks",
        DataWarning,
        stacklevel=4,
    )


def _polished(
    fit: Rounds, x: Floats, value: float, seen: Expected, inverse: Floats, free: Bools
) -> tuple[Floats, float, Expected]:
    """Newton steps from where the iterations ended, as long as the objective does not fall."""
    box = fit.box
    for _ in range(_STEPS):
        step = np.zeros(x.shape)
        step[free, 0] = inverse @ _score(fit.model, x, seen)[free]
        moved = np.clip(x + step, box.low[:, None], box.high[:, None])
        new, there = fit.expect(moved)
        best = value + fit.model.log_prior(x)
        if not new + fit.model.log_prior(moved) >= best - 1e-12 * abs(best):
            break
        size = float(np.abs(moved - x).max())
        x, value, seen = moved, new, there
        if size < _SMALL:
            break
    return x, value, seen


# --- derivatives ----------------------------------------------------------------------------------


def jacobian(model: Model, x: Floats) -> csr_array:
    """Derivatives of a, s, d of each item by the column, (3 items, parameters)."""
    (a, _, _), scale = model.unpack(x)
    m, j = model.n_items, np.arange(model.n_items)
    if not model.testlet:
        at, by, entries = [3 * j, 3 * j + 1, 3 * j + 2], [j, m + j, 2 * m + j], [np.ones(m)] * 3
    else:
        own = np.flatnonzero(model.of_item >= 0)
        b = model.of_item[own]
        at = [3 * j, 3 * j + 2, 3 * own + 1, 3 * own + 1]
        by = [j, m + j, own, 2 * m + b]
        entries = [np.ones(m), np.ones(m), scale[b], a[own]]
    where = np.concatenate(at), np.concatenate(by)
    return csr_array((np.concatenate(entries), where), shape=(3 * m, len(x)))


def _of_items(model: Model, x: Floats, seen: Expected) -> tuple[Floats, Floats]:
    """Gradient (3, items) of items if abilities were known, and their information."""
    slopes, _ = model.unpack(x)
    gradient, blocks = seen.right.copy(), np.empty((model.n_items, 3, 3))
    by = np.stack([seen.x, seen.z, np.ones_like(seen.x)])
    for j, b in enumerate(model.of_item):
        n = seen.whole[b]  # -1 is the last
        if seen.row[j] >= 0:
            n = n + seen.some[seen.row[j]]
        p = expit(slopes[:, j] @ by)
        gradient[:, j] -= by @ (n * p)
        blocks[j] = (by * (n * p * (1.0 - p))) @ by.T
    return gradient, blocks


def _score(model: Model, x: Floats, seen: Expected) -> Floats:
    """Derivatives of the objective by the column (Fisher's identity)."""
    gradient = _of_items(model, x, seen)[0] + model.density(model.unpack(x)[0])[1]
    return np.asarray(jacobian(model, x).T @ gradient.T.ravel())


def _of_prior(model: Model, x: Floats) -> Floats:
    """Information of the prior, by differences of its gradient."""
    size = x.shape[0]
    out = np.zeros((size, size))
    if model.prior is None:
        return out

    def gradient(v: Floats) -> Floats:
        of_items = model.density(model.unpack(v)[0])[1]
        return np.asarray(jacobian(model, v).T @ of_items.T.ravel())

    for k in range(size):
        step = np.zeros(x.shape)
        step[k] = _STEP * max(1.0, abs(float(x[k, 0])))
        out[k] = (gradient(x - step) - gradient(x + step)) / (2.0 * step[k])
    return 0.5 * (out + out.T)


def _observed(fit: Rounds, x: Floats, seen: Expected) -> tuple[Floats, Floats]:
    """Observed information by the column, and sums of squares of persons' scores: one pass."""
    model, by = fit.model, jacobian(fit.model, x)
    gradient, blocks = _of_items(model, x, seen)
    lost, squares = _lost(fit, x, seen)
    j = np.arange(model.n_items)
    complete = np.zeros((model.n_items, 3, model.n_items, 3))
    complete[j, :, j] = blocks
    inner = complete.reshape(lost.shape) - 0.5 * (lost + lost.T)
    out = np.asarray(by.T @ (by.T @ inner).T)
    if model.testlet:  # s = lambda a bends
        own = np.flatnonzero(model.of_item >= 0)
        at = own, 2 * model.n_items + model.of_item[own]
        np.subtract.at(out, at, gradient[1, own])
        np.subtract.at(out, at[::-1], gradient[1, own])
    if squares.size:
        squares = np.asarray(by.T @ (by.T @ squares).T)
    return out + _of_prior(model, x), squares


# --- the pass -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Plan:
    items: BlockItems
    grids: Grids
    fit: str
    units: Units
    largest: float  # weight
    squares: bool


def _sums(block: Block, plan: _Plan) -> tuple[Any, ...]:
    g = tables(plan.items, plan.grids, plan.fit)
    right = keep_last(("shares", plan.fit), plan.items.slopes.tobytes(), lambda: kernel.shares(g))
    weight = np.ones(block.n_persons) if block.times is not None else block.weights()
    out: kernel.Lost | None = None
    for times, chosen in list(block.by_bits()) or [(1, np.zeros(weight.size, dtype=bool))]:
        own = kernel.lost(
            block.data, np.flatnonzero(chosen), g, right, weight / plan.largest, plan.units,
            plan.squares,
        ).times(times)  # fmt: skip
        out = own if out is None else out.plus(own)
    assert out is not None
    return out


def _together(left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
    return kernel.Lost(*left).plus(kernel.Lost(*right))


def _lost(fit: Rounds, x: Floats, seen: Expected) -> tuple[Floats, Floats]:
    """What unknown abilities take away, and squares of scores where there are sampling weights."""
    engine, items, grids = fit.engine, fit.model.items(x), seen.grids
    g, size = tables(items, grids, fit.name), 3 * fit.model.n_items
    units = kernel.units_for(engine.n_persons, g, size)
    held = 8.0 * (size**2 * (2 + engine.sampled) * (3 if units.fine else 1) + units.rows * size * 3)
    refuse_beyond_memory(
        held * (engine.n_held + 3),
        f"standard errors of {fit.model.n_parameters} parameters (standard_errors=False: none)",
    )
    largest = float(engine.responses.max_weight or 1.0) if engine.sampled else 1.0
    plan = _Plan(items, grids, fit.name, units, largest, engine.sampled)
    sums = engine.map_reduce(_sums, plan, combine=_together)
    return kernel.value(kernel.Lost(*sums), g, largest, units)
