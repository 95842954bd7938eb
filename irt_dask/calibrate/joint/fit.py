"""Joint maximum likelihood by alternating optimisation, on all persons or on coresets.

Frick, Krivosija and Munteanu, "Scalable Learning of Item Response Theory Models": abilities given
items, items given abilities, bounds on both, standardisation at the end.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from irt_dask.arrays import Bools, Floats
from irt_dask.calibrate.joint import person_step
from irt_dask.calibrate.joint.coreset_spec import LABELS, LABELS_MODEL, Coreset
from irt_dask.calibrate.joint.item_step import is_small
from irt_dask.calibrate.joint.overview import Overview
from irt_dask.calibrate.joint.person_step import Scales
from irt_dask.calibrate.joint.rounds import Rounds
from irt_dask.calibrate.joint.scale import person_scale, standard_errors, standardised
from irt_dask.calibrate.shared import climb
from irt_dask.calibrate.shared.start_values import start_values
from irt_dask.curves import MODELS, ItemModel, check_model, model_named
from irt_dask.engine import (
    Checkpoint,
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
from irt_dask.items.mixture import Mixture
from irt_dask.kernels.joint.item_maximum import Box
from irt_dask.kernels.joint.parameters import Items
from irt_dask.store import Responses

#: Below this slope an item hardly tells persons apart: its logit moves by 0.06 over six units.
_FLAT = 0.01
#: Slopes that fits of small data start from besides 1.
_OTHER_SLOPES = (4.0, 2.0, 0.5)
_NORMAL = "ability estimates, standard normal between the shares at the bounds; a > 0"
_ONE_SLOPE = "mean difficulty 0, discrimination 1"


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
    1PL or 2PL, else nodes x items (481 x items x 8 bytes, twice for 3PL, whose tables take up to 26
    kB an item in each process), with a coreset also ``size`` rows.  Data smaller than that are not
    counted: tasks over ranges of items read all of them.  Small data (up to 2^17 cells) are
    maximised at the abilities themselves, without nodes, and 2PL and 3PL from slopes of 0.5, 1, 2
    and 4 in turn; the best end counts, as the likelihood may have several maxima.  Person weights
    are used without a coreset and refused with one.

    Standard errors take abilities as known, and are too small where tests are short, however many
    persons there are; so is bias not a matter of persons.  2PL, slopes about 1, 500 to 2,000
    persons: with 20 items slopes are 1.2 times too large, and standard errors .58 (slopes) and .66
    to .79 (difficulties) of the spread of estimates; with 60 items 1.08, .88 and .87.  1PL: 1.01,
    but difficulties are too large by items / (items - 1).  Of a coreset's draws they know nothing:
    with 200 of 20,000 persons and 60 items they were half of the spread over draws, and a fourth
    (Poisson) to an eighth of the distance from the fit to all persons.  For tests and intervals use
    ``fit_marginal``; ``lord_dif`` warns.
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
    what = model_named(check_model(model, _available()))
    _check_options(responses, model, coreset, max_iterations, tolerance)
    box = _box(what, guessing_min)
    folder = None if persons is None else new_folder(persons)  # before the work, not after it
    options = {
        "method": "joint", "model": model, "coreset": coreset and asdict(coreset), "seed": seed,
        "tolerance": tolerance, "guessing_min": guessing_min,
    }  # fmt: skip
    with Engine(
        responses, client=client, progress=progress, stage="joint ML",
        prepare=person_step.preparation(what),
    ) as engine:  # fmt: skip
        data = Overview(engine)
        if bias_correction:
            _check_bias_correction(what, data)
        starts = _starts(engine, what, data, start, box)
        right_wrong = data.right, data.seen - data.right
        fit = Rounds(engine, what, box, coreset=coreset, seed=seed, right_wrong=right_wrong)
        saved = checkpoint_of(engine, checkpoint, {**options, "start": starts})
        end = _run(fit, starts, max_iterations, tolerance, saved)
        found = _found(fit, end, bias_correction)
        items = _items(fit, found, end, data)
        attrs = _attrs(fit, found, end)
        if folder is not None:
            engine.map_refs(person_step.write_abilities, *found.persons, str(folder))
            finish(folder, identified(engine), attrs)
    data.warn()
    checks.warn(items["item_flag"], responses.item_id)
    _warn_unless_converged(end, max_iterations, coreset)
    return dataset(
        {**items, "item_linked_group": data.group, "iteration_objective": np.array(end.trace)},
        item_id=responses.item_id,
        attrs={
            **attrs,
            "n_flat_items": int((found.x[0] < _FLAT).sum()),
            **data.attrs,
            "bias_correction": bias_correction,
            **({} if coreset is None else _coreset_attrs(coreset) | end.extra),
        },
    )


# --- what is checked and looked at first ----------------------------------------------------------


def _available() -> tuple[str, ...]:
    """Models whose parameters have bounds here."""
    return tuple(k for k, m in MODELS.items() if np.isfinite([p.joint for p in m.parameters]).all())


def _box(model: ItemModel, guessing_min: float) -> Box:
    """Bounds of the parameters; a slope that items share is held."""
    low, high = np.array([p.joint for p in model.parameters]).T
    for k in np.flatnonzero(np.isin(model.letters, model.shared)):
        low[k] = high[k] = model.parameters[k].usual
    more = _further(model)
    if guessing_min > 0.0 and not more:
        those = " or ".join(repr(k) for k in _available() if _further(MODELS[k]))
        raise InputError(f"guessing_min={guessing_min} needs model={those}, not {model.name!r}")
    if not 0.0 <= guessing_min < (high[more[0]] if more else 0.5):
        raise InputError(f"guessing_min={guessing_min} must be at least 0 and below 0.5")
    low[more[:1]] = guessing_min
    return Box(low, high)


def _further(model: ItemModel) -> list[int]:
    """Parameters beyond slope and intercept."""
    return [k for k, p in enumerate(model.parameters) if p.neutral is not None]


def _check_options(
    responses: Responses, model: str, coreset: Coreset | None, max_iterations: int, tolerance: float
) -> None:
    if max_iterations < 1 or (coreset is not None and max_iterations < 8):
        least = 8 if coreset is not None else 1
        raise InputError(f"max_iterations={max_iterations} must be at least {least}")
    if math.isnan(tolerance):
        raise InputError("tolerance is not a number")
    if coreset is not None:
        refuse_weights(responses, "fit_joint with a coreset")
        if coreset.method == LABELS and model != LABELS_MODEL:
            raise InputError(
                f"Coreset method={LABELS!r} belongs to model={LABELS_MODEL!r}, not {model!r}; take "
                f"'root-leverage'"
            )


def _starts(
    engine: Engine, model: ItemModel, data: Overview, start: xr.Dataset | None, box: Box
) -> list[Floats]:
    """Items to start from, (parameters, items): several where that costs little and may matter."""
    r = engine.responses
    slopes: tuple[float, ...] = (1.0,)
    if start is None and not model.shared and is_small(engine.n_persons, r.n_items):
        slopes += _OTHER_SLOPES
    starts = []
    models = Mixture.of(model, r.n_items)
    n = np.stack([data.seen - data.right, data.right], axis=1)
    for slope in slopes:
        x = start_values(r.item_id, models, n, start, slope=slope)
        for k, p in enumerate(model.parameters):
            if start is None and p.joint_starts:
                x[k] = p.joint_starts[0]
        starts.append(np.clip(x, box.low[:, None], box.high[:, None]))
    return starts


def _check_bias_correction(model: ItemModel, data: Overview) -> None:
    if not model.shared or not data.complete:
        raise InputError(
            "bias_correction is known for the 1PL on complete data only: take it out, or use "
            "fit_bayes or fit_spectral, which need none"
        )


# --- what is found --------------------------------------------------------------------------------


def _run(
    fit: Rounds, starts: list[Floats], max_iterations: int, tolerance: float, saved: Checkpoint
) -> climb.Fitted:
    """On all persons the best of all starts; on coresets the first."""
    if fit.coreset is None:
        ends = [
            climb.full(fit, x, max_iterations, tolerance, saved, f"joint-{k}")
            for k, x in enumerate(starts)
        ]
        return max(ends, key=lambda e: e.trace[-1])
    return climb.on_coresets(
        fit, starts[0], max_iterations, tolerance, saved,
        lambda x, moment: standardised(fit.model, x, moment),
    )  # fmt: skip


@dataclass(frozen=True)
class _Found:
    """Parameters on the scale of the result, with their standard errors, and those of difficulties.

    ``persons`` are items, scales of sums, and the mean and SD that bring abilities to the scale.
    """

    objective: float
    x: Floats
    se: Floats
    difficulty_se: Floats
    persons: tuple[Items, Scales, float, float]


def _found(fit: Rounds, end: climb.Fitted, bias_correction: bool) -> _Found:
    """What the last items say of all persons, and what these say of the items."""
    model, box = fit.model, fit.box
    objective, moment, seen = fit.round(end.x)
    info = fit.information(seen, end.x)
    se, of_b = standard_errors(model, info, end.x, moment, box.low < box.high)
    x = standardised(model, end.x, moment)
    if not bias_correction:
        scale = person_scale(model, end.x, moment)
        return _Found(objective, x, se, of_b, (*fit.items(end.x), *scale))
    shrink = (x.shape[1] - 1) / x.shape[1]
    x[1], se[1] = x[1] * shrink, se[1] * shrink  # abilities: at the corrected difficulties
    return _Found(objective, x, se, of_b * shrink, (*fit.items(x), 0.0, 1.0))


def _items(fit: Rounds, found: _Found, end: climb.Fitted, data: Overview) -> dict[str, Any]:
    """What is said of the items."""
    items: dict[str, Any] = {}
    for p, x, se in zip(fit.model.parameters, found.x, found.se, strict=True):
        items |= {p.variable: x, f"{p.variable}_se": se}
    items |= {
        "item_difficulty": fit.model.difficulty(found.x)[0],
        "item_difficulty_se": found.difficulty_se,
        "item_at_bound": _at_bound(fit, end.last),
        "item_n_responses": data.seen,
        "item_n_right": data.right,
    }
    items["item_flag"] = checks.of_fit(fit.engine.unprepared(), items)
    return items


def _at_bound(fit: Rounds, last: Floats) -> Bools:
    """Whether a free parameter of an item ended at a bound; nobody guesses: that is an answer."""
    out = np.zeros(last.shape[1], dtype=bool)
    for p, x, low, high in zip(fit.model.parameters, last, *fit.box, strict=True):
        if low < high:
            out |= (x <= low) & (p.neutral is None or not p.neutral <= low)
            out |= (x >= high) & (p.neutral is None or not p.neutral >= high)
    return out


def _attrs(fit: Rounds, found: _Found, end: climb.Fitted) -> dict[str, Any]:
    """What is said of the fit as a whole."""
    return {
        "method": "joint maximum likelihood",
        "model": fit.model.name,
        "seed": fit.seed,
        "converged": end.converged,
        "n_iterations": len(end.trace),
        "objective": found.objective,
        "identification": _ONE_SLOPE if fit.model.shared else _NORMAL,
        "n_persons": fit.engine.n_persons,
        **fit.engine.weight_attrs,
    }


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
