"""The maximum of a conditional log-likelihood by Newton's method, and its errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg

from irt_dask.arrays import Floats
from irt_dask.calibrate.rasch.conditional_likelihoods import Likelihood
from irt_dask.calibrate.shared.start_values import name_some
from irt_dask.engine import Engine
from irt_dask.errors import EstimationError

#: Largest change of a difficulty in a step, logits; halvings of a step.
_LONGEST_STEP, _HALVINGS = 3.0, 40
#: Rounding error of the log-likelihood, relative to its terms.
_ROUNDING = 1e-12
#: A step this long, logits, that promises less than so much of log-likelihood runs away: the
#: standard error along it would be above a thousand logits.
_FAR, _NOTHING = 0.5, 1e-7


def _factor(what: Likelihood, information: Floats) -> Any:
    """Cholesky factors of the information, made regular along the flat direction."""
    shift = float(np.trace(information)) / len(information) ** 2
    regular = information + shift * np.outer(what.flat, what.flat)
    try:
        return scipy.linalg.cho_factor(regular)
    except scipy.linalg.LinAlgError:
        least = scipy.linalg.eigh(regular, subset_by_index=[0, 0])[1][:, 0]
        raise EstimationError(
            f"the conditional information of the items is singular to working precision: too few "
            f"persons link some items to the others ({_moving(what, np.abs, least)}); {what.remedy}"
        ) from None


def _moving(what: Likelihood, size: Any, direction: Floats) -> str:
    """Names of the steps that move most along a direction."""
    moves = what.difficulties(direction)
    names = what.step_names()
    return name_some([names[k] for k in np.flatnonzero(size(moves) > 0.5 * np.abs(moves).max())])


def _refuse_runaways(what: Likelihood, step: Floats, gain: float) -> None:
    """Stop where the likelihood rises for ever, ever less: steps do not shrink there."""
    if np.abs(what.difficulties(step)).max() < _FAR or gain > _NOTHING:
        return
    ways = [("up", np.positive), ("down", np.negative)]
    named = [f"{way}: {those}" for way, sign in ways if (those := _moving(what, sign, step))]
    raise EstimationError(
        f"the estimates are not finite: the conditional likelihood rises for ever as some "
        f"difficulties run away ({'; '.join(named)}), because persons of the same score never show "
        f"what would hold them; {what.remedy}"
    )


def maximise(
    what: Likelihood, max_iterations: int, tolerance: float, engine: Engine
) -> tuple[Floats, int, bool]:
    """Newton's method on the concave log-likelihood, steps halved until it does not fall."""
    x = what.start()
    for iteration in range(1, max_iterations + 1):
        value, gradient, information = what.derivatives(x)
        step = what.centred(scipy.linalg.cho_solve(_factor(what, information), gradient))
        _refuse_runaways(what, step, float(step @ gradient))
        longest = max(np.abs(what.difficulties(step)).max(), 1e-300)
        step *= min(1.0, _LONGEST_STEP / longest)
        noise = _ROUNDING * (abs(value) + what.size(x))
        for _ in range(_HALVINGS):
            reached = what.value(x + step)
            if reached >= value - noise:
                break
            step /= 2.0
        else:
            return x, iteration, False
        x = what.centred(x + step)
        engine.progress.update(iteration, max_iterations)
        if np.abs(what.difficulties(step)).max() <= tolerance:
            return x, iteration, True
    return x, max_iterations, False


def covariance(what: Likelihood, information: Floats) -> Floats:
    """Covariance of the estimates whose mean difficulty is 0."""
    inverse = scipy.linalg.cho_solve(_factor(what, information), np.eye(len(information)))
    of_mean = inverse @ what.mean
    along = np.outer(what.flat, of_mean)
    return inverse - along - along.T + np.outer(what.flat, what.flat) * (what.mean @ of_mean)
