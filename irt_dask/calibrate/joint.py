"""Joint maximum likelihood by alternating optimisation, on all persons or on a coreset.

Frick, Krivosija and Munteanu, "Scalable Learning of Item Response Theory Models": abilities given
items, items given abilities, bounds on both, standardisation at the end.  The item step sees the
persons through counts on a fine ability axis, so it costs items x nodes; a coreset replaces the
counts of all persons by those of a weighted sample.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from irt_dask.calibrate.alternation import Coreset, Rounds
from irt_dask.calibrate.common import response_counts, start_values
from irt_dask.engine import (
    Checkpoint,
    Engine,
    ProgressOption,
    as_responses,
    dataset,
    refuse_weights,
)
from irt_dask.errors import CheckpointError, ConvergenceWarning, EstimationError, InputError
from irt_dask.models import (
    DISCRIMINATION_BOUNDS,
    INTERCEPT_BOUND,
    check_model,
    difficulty,
)
from irt_dask.store.responses import sha256

Floats = NDArray[np.float64]

#: Below this slope an item hardly tells persons apart: its logit moves by 0.06 over six units.
_FLAT = 0.01
#: Ability estimates of less variance than this differ by rounding only.
_LEAST_VARIANCE = 1e-8


def _ability_scale(moment: Floats) -> tuple[float, float]:
    """Mean and standard deviation of the ability estimates."""
    mean = moment[1] / moment[0]
    variance = moment[2] / moment[0] - mean**2
    if not variance > _LEAST_VARIANCE:
        raise EstimationError(
            "all persons have the same ability estimate: these responses do not determine a scale "
            "(do all persons with responses have the same number right?)"
        )
    return float(mean), math.sqrt(variance)


def _standardised(a: Floats, d: Floats, moment: Floats, model: str) -> tuple[Floats, Floats]:
    """Items on the identified scale: ability mean 0 and SD 1 (2PL), mean difficulty 0 (1PL)."""
    if model == "1pl":
        return a, d - d.mean()
    mean, sd = _ability_scale(moment)
    return a * sd, d + a * mean


def fit_joint(
    responses: Any,
    *,
    model: str = "2pl",
    coreset: Coreset | None = None,
    max_iterations: int = 50,
    tolerance: float = 1e-6,
    seed: int = 0,
    start: xr.Dataset | None = None,
    client: Any = None,
    progress: ProgressOption = None,
    checkpoint: str | Path | None = None,
) -> xr.Dataset:
    """Joint maximum likelihood of abilities and items.

    Alternates the most likely ability of every person (in [-6, 6]) and the most likely parameters
    of every item (discrimination in [0.001, 5], intercept in [-6, 6]).  The estimates are known to
    be inflated on short tests (abilities are not integrated out): compare ``fit_bayes``.

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes
    model : {"2pl", "1pl"}
        "1pl" holds every discrimination at 1.
    coreset : Coreset, optional
        Fit the items on a weighted sample of persons, fresh in every iteration; the result is the
        average over the second half of the iterations, all of which are run.
    max_iterations, tolerance
        Without a coreset: stop when the log-likelihood grows by less than ``tolerance`` relative to
        its size (a negative one runs all iterations).  With one, all iterations are run, and
        ``converged`` says whether the averages of the last two quarters differ by less than their
        scatter explains.
    seed : int
        Of the coreset's draws.
    start : Dataset, optional
        Start values: a fit with discriminations and intercepts, or difficulties only.
    client, progress, checkpoint
        Dask client (default: the current one, else threads); progress bar; folder for checkpoints.

    Returns
    -------
    Dataset over items
        ``item_discrimination``, ``item_difficulty``, ``item_intercept`` with ``_se`` (abilities
        taken as known, so too small), ``item_n_responses``, ``item_n_right``,
        ``iteration_objective``.  attrs: ``n_flat_items`` counts slopes below 0.01, which is where
        a > 0 leaves an item that able persons get wrong more often; ``objective`` is the
        log-likelihood on all persons at the estimate; for a coreset also ``coreset_objective``, its
        weighted estimate in the last iteration.

    Raises
    ------
    InputError, EstimationError

    Warns
    -----
    ConvergenceWarning

    Notes
    -----
    Passes over the data: one per iteration, three with a coreset, two more at the ends.  Driver
    memory: nodes x items (481 x items x 16 bytes), with a coreset also ``size`` rows.  Where there
    are fewer than 7,696 persons and 256 items or more, the data are smaller than such counts: every
    task of the item step then reads all of them and treats some items.  Person
    weights are used without a coreset and refused with one.
    Source: Frick et al., sections 2 and 3; leverage scores exact (2 x 2 Gram matrix).
    """
    responses = as_responses(responses)
    check_model(model, ("2pl", "1pl"))
    if max_iterations < 1 or (coreset is not None and max_iterations < 8):
        least = 8 if coreset is not None else 1
        raise InputError(f"max_iterations={max_iterations} must be at least {least}")
    if math.isnan(tolerance):
        raise InputError("tolerance is not a number")
    if coreset is not None:
        refuse_weights(responses, "fit_joint with a coreset")
    options = {
        "method": "joint", "model": model, "coreset": coreset and asdict(coreset), "seed": seed,
        "data": responses.fingerprint, "tolerance": tolerance,
    }  # fmt: skip
    with Engine(responses, client=client, progress=progress, stage="joint ML") as engine:
        right, seen = response_counts(engine)
        a, d = start_values(engine, right, seen, start)
        a = np.ones_like(a) if model == "1pl" else np.clip(a, *DISCRIMINATION_BOUNDS)
        d = np.clip(d, -INTERCEPT_BOUND, INTERCEPT_BOUND)
        fit = Rounds(engine, model, coreset, seed)
        saved = Checkpoint(checkpoint, {**options, "start": sha256(a, d)})
        run = _iterate if coreset is None else _iterate_coreset
        a, d, trace, converged, extra = run(fit, a, d, max_iterations, tolerance, saved)
        objective, moment, counts = fit.round(a, d)
        info = fit.information(counts, a, d)
    se_a, se_b, se_d = _standard_errors(info, a, d, moment, model)
    a, d = _standardised(a, d, moment, model)
    if not converged:
        warnings.warn(
            f"joint maximum likelihood did not converge in {max_iterations} iterations; raise "
            f"max_iterations" + (" or the coreset size" if coreset else ""),
            ConvergenceWarning,
            stacklevel=2,
        )
    return dataset(
        {
            "item_discrimination": a,
            "item_discrimination_se": se_a,
            "item_difficulty": difficulty(a, d),
            "item_difficulty_se": se_b,
            "item_intercept": d,
            "item_intercept_se": se_d,
            "item_n_responses": seen,
            "item_n_right": right,
            "iteration_objective": np.array(trace),
        },
        item_id=responses.item_id,
        attrs={
            "method": "joint maximum likelihood",
            "model": model,
            "seed": seed,
            "converged": converged,
            "n_iterations": len(trace),
            "objective": objective,
            "identification": "mean difficulty 0, discrimination 1"
            if model == "1pl"
            else "ability estimates of mean 0 and standard deviation 1; a > 0",
            "n_persons": responses.n_persons,
            "n_flat_items": int((a < _FLAT).sum()),
            **extra,
        },
    )


def _check_length(trace: list[float], max_iterations: int) -> None:
    if len(trace) > max_iterations:
        raise CheckpointError(
            f"the checkpoint has {len(trace)} iterations, more than max_iterations="
            f"{max_iterations}; remove it or raise max_iterations"
        )


def _iterate(
    fit: Rounds, a: Floats, d: Floats, max_iterations: int, tolerance: float, saved: Checkpoint
) -> tuple[Floats, Floats, list[float], bool, dict[str, Any]]:
    """Alternate on all persons until the log-likelihood stands still."""
    trace: list[float] = []
    if (state := saved.load("joint")) is not None:
        a, d, trace = state["a"], state["d"], list(state["trace"])
        _check_length(trace, max_iterations)
    while len(trace) < max_iterations:
        value, _, counts = fit.round(a, d)
        trace.append(value)
        if len(trace) > 1 and value - trace[-2] < tolerance * abs(value):
            return a, d, trace, True, {}
        a, d = fit.item_step(counts, a, d)
        saved.save("joint", {"a": a, "d": d, "trace": np.array(trace)})
        fit.engine.progress.update(len(trace), max_iterations)
    return a, d, trace, False, {}


def _iterate_coreset(
    fit: Rounds, a: Floats, d: Floats, max_iterations: int, tolerance: float, saved: Checkpoint
) -> tuple[Floats, Floats, list[float], bool, dict[str, Any]]:
    """Alternate with a fresh coreset each time; average the second half of the iterations.

    The path that is averaged is on the standardised scale, so that it is not one over scales.
    """
    assert fit.coreset is not None
    trace: list[float] = []
    path: list[Floats] = []
    estimate = math.nan
    if (state := saved.load("joint")) is not None:
        a, d, trace = state["a"], state["d"], list(state["trace"])
        _check_length(trace, max_iterations)
        path, estimate = list(state["path"]), float(state["estimate"])
    while len(trace) < max_iterations:
        value, moment, counts, estimate = fit.coreset_round(a, d, len(trace))
        trace.append(value)
        a, d = fit.item_step(counts, a, d)
        path.append(np.stack(_standardised(a, d, moment, fit.model)))
        state = {"a": a, "d": d, "trace": np.array(trace), "path": np.array(path)}
        saved.save("joint", {**state, "estimate": estimate})
        fit.engine.progress.update(len(trace), max_iterations)
    quarter = max_iterations // 4
    third, fourth = np.array(path[-2 * quarter : -quarter]), np.array(path[-quarter:])
    noise = np.sqrt((third.var(axis=0, ddof=1) + fourth.var(axis=0, ddof=1)) / quarter)
    shift = np.abs(fourth.mean(axis=0) - third.mean(axis=0))
    converged = bool(np.sqrt(np.mean(shift**2)) <= 3.0 * np.sqrt(np.mean(noise**2)) + tolerance)
    a, d = np.array(path[-(max_iterations // 2) :]).mean(axis=0)
    return a, d, trace, converged, {"coreset_objective": estimate, "coreset_size": fit.coreset.size}


def _standard_errors(
    info: Floats, a: Floats, d: Floats, moment: Floats, model: str
) -> tuple[Floats, Floats, Floats]:
    """Standard errors of a, b, d on the final scale, abilities taken as known.

    Inverse information of (a, d), the delta method for ``b = -d / a``, and the change of scale
    ``a sd, (b - mean) / sd, d + a mean``.
    """
    if model == "1pl":
        se = 1.0 / np.sqrt(info[:, 1, 1])
        return np.zeros_like(se), se, se
    mean, sd = _ability_scale(moment)
    cov = np.linalg.pinv(info)
    g = np.stack([d / a**2, -1.0 / a], axis=1)
    shift = np.array([mean, 1.0])
    return (
        np.sqrt(cov[:, 0, 0]) * sd,
        np.sqrt(np.einsum("ji,jik,jk->j", g, cov, g)) / sd,
        np.sqrt(np.einsum("i,jik,k->j", shift, cov, shift)),
    )
