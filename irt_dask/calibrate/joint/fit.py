"""Joint maximum likelihood by alternating optimisation, on all persons or on coresets.

Frick, Krivosija and Munteanu, "Scalable Learning of Item Response Theory Models": abilities given
items, items given abilities, bounds on both, standardisation at the end.
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

from irt_dask.calibrate.joint import person_step
from irt_dask.calibrate.joint.coreset_spec import Coreset
from irt_dask.calibrate.joint.item_step import is_small
from irt_dask.calibrate.joint.overview import Overview
from irt_dask.calibrate.joint.rounds import Rounds
from irt_dask.calibrate.joint.scale import person_scale, standard_errors, standardised
from irt_dask.calibrate.shared import climb
from irt_dask.calibrate.shared.start_values import start_values
from irt_dask.engine import (
    Engine,
    ProgressOption,
    as_responses,
    dataset,
    refuse_weights,
)
from irt_dask.engine.identity import checkpoint_of, identified
from irt_dask.engine.person_files import finish, new_folder
from irt_dask.errors import ConvergenceWarning, InputError
from irt_dask.items import checks
from irt_dask.kernels.joint.item_maximum import Box
from irt_dask.models import (
    DISCRIMINATION_BOUNDS,
    GUESSING_BOUND,
    INTERCEPT_BOUND,
    check_model,
    difficulty,
)
from irt_dask.store import Responses

Floats = NDArray[np.float64]

#: Below this slope an item hardly tells persons apart: its logit moves by 0.06 over six units.
_FLAT = 0.01
#: Guessing parameter that a 3PL fit starts from.
_START_GUESSING = 0.1
#: Slopes that fits of small data start from besides 1.
_OTHER_SLOPES = (4.0, 2.0, 0.5)
_NORMAL = "ability estimates, standard normal between the shares at the bounds; a > 0"
_IDENTIFICATION = {"1pl": "mean difficulty 0, discrimination 1"}


def fit_joint(
    responses: Any,
    *,
    model: str = "2pl",
    coreset: Coreset | None = None,
    max_iterations: int = 50,
    tolerance: float = 1e-6,
    seed: int = 0,
    start: xr.Dataset | None = None,
    guessing_min: float = 0.0,
    bias_correction: bool = False,
    persons: str | Path | None = None,
    client: Any = None,
    progress: ProgressOption = None,
    checkpoint: str | Path | None = None,
) -> xr.Dataset:
    """Joint maximum likelihood of abilities and items.

    Alternates the most likely ability of every person (in [-6, 6]) and the most likely parameters
    of every item (discrimination in [0.001, 5], intercept in [-6, 6], guessing in
    [``guessing_min``, 0.5)), accelerated.  The estimates are known to be inflated on short tests
    (abilities are not integrated out): see ``irt-dask docs methods`` and compare ``fit_bayes``.
    2PL and 3PL estimates are standardised at the end, so that the abilities inside the bounds have
    the mean and SD of a standard normal without the shares of persons at the bounds.  (The
    likelihood hardly changes as the scale stretches and these persons stay; to count them at the
    bounds, as the paper does, leaves the scale to where iterations stop.)

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes
    model : {"2pl", "1pl", "3pl"}
        "1pl" holds every discrimination at 1.
    coreset : Coreset, optional
        Fit the items on a weighted sample of persons, fresh in every iteration; the result is the
        average over the second half of the iterations, all of which are run.
    max_iterations, tolerance
        Without a coreset: stop when the log-likelihood has twice in a row grown by less than
        ``tolerance`` relative to its size (a negative one runs all iterations).  With one, all
        iterations are run, and ``converged`` says whether the averages of the last two quarters
        differ by less than their scatter explains.
    seed : int
        Of the coreset's draws.
    start : Dataset, optional
        Start values: a fit with discriminations and intercepts, or difficulties only.
    guessing_min : float
        3PL: lower bound of the guessing parameters, such as one over the number of options.
    bias_correction : bool
        1PL on complete data: multiply difficulties by (items - 1) / items, the usual correction of
        the estimates' inflation (Andersen 1980; exact for two items).
    persons : path, optional
        A folder that is made, with the abilities of all persons on the scale of the result, one
        Parquet file a block: person_id, person_group if the store has groups, person_ability
        (bounded, NaN without responses), n_responses.
    client, progress, checkpoint
        Dask client (default: the current one, else threads); progress bar; folder for checkpoints
        (which take a pass more over arrays, for their checksum).

    Returns
    -------
    Dataset over items
        ``item_discrimination``, ``item_difficulty``, ``item_intercept``, for 3PL
        ``item_guessing``, with ``_se`` (from the item step's information: abilities taken as known,
        so too small), ``item_at_bound`` (whether a parameter ended at a bound), ``item_flag``,
        ``item_linked_group`` (items that some persons link, directly or through others, share a
        number), ``item_n_responses``, ``item_n_right``, ``iteration_objective`` (the log-likelihood
        reached so far; with Poisson coresets the estimate of each).  attrs: ``n_flat_items`` counts
        slopes below 0.01, which is where a > 0 leaves an item that able persons get wrong more
        often; ``n_items_all_right``,
        ``n_items_all_wrong``, ``n_persons_all_right``, ``n_persons_all_wrong`` (their abilities are
        at the bounds), ``n_persons_without_responses``, ``n_linked_groups``; ``objective`` is the
        log-likelihood on all persons at the estimate; for a coreset also ``coreset_objective``, its
        weighted estimate in the last iteration.

    Raises
    ------
    InputError, EstimationError

    Warns
    -----
    ConvergenceWarning
    DataWarning
        Some groups of items are not linked by any person.
    ItemWarning
        Some items are flagged.

    Notes
    -----
    Passes over the data: one per iteration, three more at the ends; with a coreset two or more per
    iteration, a Poisson sample one that looks at few persons more than it draws.  The
    log-likelihood never falls from one iteration to the next by more than twice
    ``3 (a h)^4 / 1024`` a response, h = 0.025 (``(a h)^4 / 192`` next to the bounds): the error of
    sharing abilities out between nodes.  Driver memory: items x 16 numbers for complete data and
    1PL or 2PL, else nodes x items (481 x items x 8 bytes, twice for 3PL), with a coreset also
    ``size`` rows.  Data smaller than that are not counted: tasks over ranges of items read all of
    them.  Small data (up to 2^17 cells) are maximised at the abilities themselves, without nodes,
    and 2PL and 3PL from slopes of 0.5, 1, 2 and 4 in turn; the best end counts, as the likelihood
    may have several maxima.  Person weights are used without a coreset and refused with one.
    Source: Frick et al., sections 2 and 3; leverage scores exact.

    Examples
    --------
    >>> import irt_dask as irt
    >>> responses = irt.simulate(2000, 20, seed=1)
    >>> fit = irt.fit_joint(responses)
    >>> fit["item_difficulty"][:4].round(1).values.tolist()
    [-0.6, 0.8, -0.3, -1.5]
    >>> sampled = irt.fit_joint(responses, coreset=irt.Coreset(500))
    >>> round(sampled.attrs["objective"] / fit.attrs["objective"], 2)
    1.0
    """
    responses = as_responses(responses, "fit_joint")
    check_model(model, ("2pl", "1pl", "3pl"))
    _check_options(responses, model, coreset, max_iterations, tolerance)
    box = _box(model, guessing_min)
    folder = None if persons is None else new_folder(persons)  # before the work, not after it
    options = {
        "method": "joint", "model": model, "coreset": coreset and asdict(coreset), "seed": seed,
        "tolerance": tolerance, "guessing_min": guessing_min,
    }  # fmt: skip
    guessing = model == "3pl"
    with Engine(
        responses,
        client=client,
        progress=progress,
        stage="joint ML",
        prepare=person_step.prepare_3pl if guessing else person_step.prepare,
    ) as engine:
        data = Overview(engine)
        if bias_correction:
            _check_bias_correction(model, data)
        starts = _starts(responses, engine.n_persons, model, data, start, box)
        fit = Rounds(
            engine, box, guessing=guessing, coreset=coreset, seed=seed,
            right_wrong=(data.right, data.seen - data.right),
        )  # fmt: skip
        saved = checkpoint_of(engine, checkpoint, {**options, "start": starts})
        if coreset is None:
            ends = [
                climb.full(fit, x, max_iterations, tolerance, saved, f"joint-{k}")
                for k, x in enumerate(starts)
            ]
            end = max(ends, key=lambda e: e.trace[-1])
        else:
            end = climb.on_coresets(
                fit, starts[0], max_iterations, tolerance, saved,
                lambda x, moment: standardised(x, moment, model),
            )  # fmt: skip
        objective, moment, seen_persons = fit.round(end.x)
        se = standard_errors(fit.information(seen_persons, end.x), end.x, moment, model)
        x = standardised(end.x, moment, model)
        if bias_correction:
            shrink = (responses.n_items - 1) / responses.n_items
            x[1], se["b"], se["d"] = x[1] * shrink, se["b"] * shrink, se["d"] * shrink
        items = {
            "item_discrimination": x[0],
            "item_discrimination_se": se["a"],
            "item_difficulty": difficulty(x[0], x[1]),
            "item_difficulty_se": se["b"],
            "item_intercept": x[1],
            "item_intercept_se": se["d"],
            **({"item_guessing": x[2], "item_guessing_se": se["c"]} if guessing else {}),
            "item_at_bound": _at_bound(end.last, box),
            "item_n_responses": data.seen,
            "item_n_right": data.right,
        }
        items["item_flag"] = checks.of_fit(engine.unprepared(), items)
        attrs = {
            "method": "joint maximum likelihood",
            "model": model,
            "seed": seed,
            "converged": end.converged,
            "n_iterations": len(end.trace),
            "objective": objective,
            "identification": _IDENTIFICATION.get(model, _NORMAL),
            "n_persons": engine.n_persons,
            **engine.weight_attrs,
        }
        if folder is not None:
            at, to_scale = end.x, person_scale(end.x, moment, model)
            if bias_correction:  # abilities at the corrected difficulties
                at, to_scale = x, (0.0, 1.0)
            engine.map_refs(person_step.write_abilities, *fit.items(at), *to_scale, str(folder))
            finish(folder, identified(engine), attrs)
    data.warn()
    checks.warn(items["item_flag"], responses.item_id)
    _warn_unless_converged(end, max_iterations, coreset)
    return dataset(
        {
            **items,
            "item_linked_group": data.group,
            "iteration_objective": np.array(end.trace),
        },
        item_id=responses.item_id,
        attrs={
            **attrs,
            "n_flat_items": int((x[0] < _FLAT).sum()),
            **data.attrs,
            "bias_correction": bias_correction,
            **({} if coreset is None else _coreset_attrs(coreset) | end.extra),
        },
    )


# --- what is checked and looked at first ----------------------------------------------------------


def _box(model: str, guessing_min: float) -> Box:
    if not 0.0 <= guessing_min < GUESSING_BOUND:
        raise InputError(f"guessing_min={guessing_min} must be at least 0 and below 0.5")
    if guessing_min > 0.0 and model != "3pl":
        raise InputError(f"guessing_min={guessing_min} needs model='3pl', not {model!r}")
    low_a, high_a = (1.0, 1.0) if model == "1pl" else DISCRIMINATION_BOUNDS
    high_c = GUESSING_BOUND if model == "3pl" else 0.0
    return Box(
        np.array([low_a, -INTERCEPT_BOUND, guessing_min]),
        np.array([high_a, INTERCEPT_BOUND, high_c]),
    )


def _check_options(
    responses: Responses,
    model: str,
    coreset: Coreset | None,
    max_iterations: int,
    tolerance: float,
) -> None:
    if max_iterations < 1 or (coreset is not None and max_iterations < 8):
        least = 8 if coreset is not None else 1
        raise InputError(f"max_iterations={max_iterations} must be at least {least}")
    if math.isnan(tolerance):
        raise InputError("tolerance is not a number")
    if coreset is not None:
        refuse_weights(responses, "fit_joint with a coreset")
        if coreset.method == "labels-3pl" and model != "3pl":
            raise InputError(
                f"Coreset method='labels-3pl' belongs to model='3pl', not {model!r}; take "
                f"'root-leverage'"
            )


def _starts(
    responses: Responses,
    n_persons: int,
    model: str,
    data: Overview,
    start: xr.Dataset | None,
    box: Box,
) -> list[Floats]:
    """Items to start from, (3, items) each: several where that costs little and may matter."""
    slopes: tuple[float, ...] = (1.0,)
    if start is None and model != "1pl" and is_small(n_persons, responses.n_items):
        slopes += _OTHER_SLOPES
    starts = []
    for slope in slopes:
        a, d, c = start_values(responses.item_id, data.right, data.seen, start, slope)
        if model == "3pl" and start is None:
            c = np.full_like(a, _START_GUESSING)
        starts.append(np.clip(np.stack([a, d, c]), box.low[:, None], box.high[:, None]))
    return starts


def _check_bias_correction(model: str, data: Overview) -> None:
    if model != "1pl" or not data.complete:
        raise InputError(
            "bias_correction is known for the 1PL on complete data only: take it out, or use "
            "fit_bayes or fit_spectral, which need none"
        )


# --- what comes out -------------------------------------------------------------------------------


def _at_bound(last: Floats, box: Box) -> NDArray[np.bool_]:
    """Whether a free parameter of an item ended at a bound."""
    out = (last <= box.low[:, None]) | (last >= box.high[:, None])
    out &= (box.low < box.high)[:, None]
    out[2] &= last[2] >= box.high[2]  # nobody guesses: an answer, not a failure
    return np.asarray(out.any(axis=0))


def _coreset_attrs(coreset: Coreset) -> dict[str, Any]:
    """What was drawn; a pair of sizes as text, since no attribute holds one."""
    size = coreset.size if isinstance(coreset.size, int) else str(coreset.size)
    names = ("method", "reduce", "sampling")
    return {"coreset_size": size, **{f"coreset_{k}": getattr(coreset, k) for k in names}}


def _warn_unless_converged(end: climb.Fitted, max_iterations: int, coreset: Coreset | None) -> None:
    if not end.converged:
        warnings.warn(
            f"joint maximum likelihood did not converge in {max_iterations} iterations; raise "
            f"max_iterations" + (" or the coreset size" if coreset else ""),
            ConvergenceWarning,
            stacklevel=3,
        )
