"""Conditional maximum likelihood: item difficulties and steps without any ability.

Where responses add up to a sufficient statistic of ability (Rasch, partial credit, rating scale),
the probability of a person's responses given the items answered and their sum does not depend on
the ability (Rasch 1960, Andersen 1970, 1972).  Its maximum over all persons is consistent whatever
the distribution of abilities, with few items too.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from irt_dask.arrays import Floats
from irt_dask.calibrate.rasch import conditional_sets
from irt_dask.calibrate.rasch.conditional_likelihoods import Categories, Difficulties, Likelihood
from irt_dask.calibrate.rasch.conditional_maximum import covariance, maximise
from irt_dask.calibrate.rasch.pair_counts import MEAN_ZERO
from irt_dask.calibrate.shared.start_values import (
    ResponseCounts,
    refuse_null_categories,
    refuse_unobserved,
)
from irt_dask.engine import Engine, ProgressOption, as_responses, dataset, refuse_weights
from irt_dask.engine.inputs import whole_number
from irt_dask.errors import ConvergenceWarning, EstimationError, InputError
from irt_dask.items import checks
from irt_dask.items.described import described
from irt_dask.items.mixture import Mixture, mixture_named
from irt_dask.kernels.responses.item_sets import Sets
from irt_dask.store import Responses

#: The information of 5,000 steps takes 200 MB.
_MAX_ITEMS = 5_000
#: Models of items whose sum of responses is sufficient; "1pl" is for two categories.
_OF_ITEMS = ("1pl", "pcm", "rating")
#: What described items have that is known here.
_OF_SLOPES = ("item_discrimination", "item_intercept")
_STEPS_ZERO = "mean of all step difficulties 0, discrimination 1"


def _models_of(model: Any, responses: Responses) -> Mixture | None:
    """Models of the items; None: the Rasch model."""
    if isinstance(model, str) and model == "rasch":
        return None
    named = list(model.values()) if isinstance(model, Mapping) else [model]
    known = _OF_ITEMS if isinstance(model, Mapping) else _OF_ITEMS[1:]
    for name in named:
        if str(name).partition(":")[0] not in known:
            raise InputError(
                f"model={name!r} is not available; choose one of rasch, pcm, rating, or name each "
                f"item's ({', '.join(_OF_ITEMS)}): in others the sum of responses does not say all "
                f"of ability"
            )
    return mixture_named(model, responses.item_id, responses.n_categories)


def _refuse_size(responses: Responses) -> None:
    n = sum(responses.n_categories) - responses.n_items
    if responses.n_items < 2:
        raise EstimationError("difficulties are relative: at least two items are needed")
    if n > _MAX_ITEMS:
        unit, other = "items", "fit_spectral"
        if responses.graded:
            unit, other = "steps of items", "fit_marginal"
        raise InputError(
            f"{n} {unit}: fit_conditional takes {_MAX_ITEMS} at most, whose information matrix the "
            f"driver holds; use {other}, or calibrate subsets of the items"
        )


def _likelihood(
    engine: Engine, models: Mixture | None, sets: Sets, counts: ResponseCounts
) -> Likelihood:
    """What is to be maximised, after checking that it has a maximum."""
    item_id = engine.responses.item_id
    steps = np.array(engine.responses.n_categories) - 1
    informative = conditional_sets.informative(sets, steps)
    if models is None:
        conditional_sets.check_connected(informative, item_id, steps)
        return Difficulties(informative, item_id)
    refuse_unobserved(item_id, counts.seen)
    every = np.ones(steps.size, dtype=bool)
    remedy = "calibrate by fit_marginal, which has null_categories="
    refuse_null_categories(item_id, models.in_common(counts.of_each), steps + 1, every, remedy)
    conditional_sets.check_connected(informative, item_id, steps)
    of_those = conditional_sets.informative_counts(sets, counts.of_each, steps)
    conditional_sets.refuse_silent_categories(item_id, models.in_common(of_those), steps)
    return Categories(informative, item_id, models, of_those)


def _items(what: Likelihood, x: Floats, inverse: Floats) -> dict[str, Any]:
    """Estimates and their standard errors."""
    if not isinstance(what, Categories):
        return {"item_difficulty": x, "item_difficulty_se": np.sqrt(np.diag(inverse))}
    out: dict[str, Any] = {}
    if what.models.n_categories.max() > 2:
        out |= {"item_model": what.models.names, "item_n_categories": what.models.n_categories}
    column = np.maximum(what.column, 0)
    together = inverse[column[:, None], column] * (what.column >= 0)[:, None]
    together *= what.column >= 0  # (parameters, parameters, items)
    for name, (value, gradient) in described(what.models, what.table(x)).items():
        if name not in _OF_SLOPES:
            variance = np.einsum("...pj,pqj,...qj->...j", gradient, together, gradient)
            errors = np.where(np.isnan(value), np.nan, np.sqrt(np.maximum(variance, 0.0)))
            out |= {name: value.T, f"{name}_se": errors.T}
    return out


def _attrs(what: Likelihood, model: Any, sets: Sets, converged: bool) -> dict[str, Any]:
    """What is said of the fit as a whole."""
    low, high = conditional_sets.extreme(sets)
    of_one = {"rasch": "1pl"}.get(model, model) if isinstance(model, str) else "by item"
    return {
        "method": "conditional maximum likelihood", "model": of_one, "converged": converged,
        "identification": MEAN_ZERO if isinstance(what, Difficulties) else _STEPS_ZERO,
        "n_parameters": what.mean.size - 1, "n_informative": int(what.sets.scores.sum()),
        "n_lowest_score": int(low.sum()), "n_highest_score": int(high.sum()),
        "n_patterns": what.sets.n_sets,
    }  # fmt: skip


def fit_conditional(
    responses: Any,
    *,
    model: str | Mapping[str, str] = "rasch",
    max_iterations: int = 50,
    tolerance: float = 1e-8,
    client: Any = None,
    progress: ProgressOption = None,
) -> xr.Dataset:
    """Conditional maximum likelihood of the Rasch, partial credit and rating scale models.

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes; persons without weights.
    model : str, or mapping of item to str
        "rasch" for items of two categories; of any number "pcm" (partial credit) and "rating"
        (rating scale: all items with as many categories have the same steps about their
        difficulties). A mapping names each item's, and blocks with steps of their own:
        "rating:block".
    max_iterations : int
        Newton steps at most; some six suffice.
    tolerance : float
        Stop when no difficulty, of no step, changes by more than this, logits.

    Returns
    -------
    Dataset over items
        ``item_difficulty`` and ``item_difficulty_se``, from the inverse of the observed conditional
        information; ``item_flag``.  Discriminations are 1.  "rasch": difficulties have mean 0.
        Else the difficulties of all steps of all items have, ``item_difficulty`` is the mean of an
        item's, and over ``steps`` there are ``item_step_intercept`` (cumulative),
        ``item_step_difficulty`` and ``item_threshold`` with ``_se``, with ``item_model`` and
        ``item_n_categories``, if items have more than two categories.  ``attrs["objective"]`` is
        the conditional log-likelihood of all persons, of ``n_parameters``; ``n_informative`` counts
        the persons whose score is neither the lowest nor the highest on their items (the others,
        ``n_lowest_score`` and ``n_highest_score``, say nothing), ``n_patterns`` the different sets
        of items that these answered.

    Raises
    ------
    InputError
        For more than 5,000 items (all steps together), or if persons answered so many different
        sets of items that these together have more than 2 * 10^7; for weights; "rasch" for items
        of more than two categories.
    EstimationError
        If the estimates are not finite or not unique.  The links from items that somebody was right
        on to those the same person was wrong on (above the lowest category, below the highest) must
        connect all items both ways (Fischer 1981), and every category must have somebody whose
        score is not extreme, on one of the items that share their steps.  With two categories that
        suffices; with more, difficulties of steps that run away are named when they do.

    Warns
    -----
    ConvergenceWarning
        If ``max_iterations`` steps do not suffice.
    ItemWarning
        Some items are flagged.

    Notes
    -----
    One pass over the data (and one for flags), to responses by item and persons by score for each
    set of items; then the driver alone, some six steps.  A step costs about k^2 (10 + k / 50)
    ns for each set of k items (100 items: 0.1 ms) and 2 k^2 operations for each score that occurs
    in it (1,000 complete items: 0.2 s).  With K categories k^3 K^2 / 2 ns, times the abilities at
    which scores are looked up, mostly one, three for 500 items (40 items, K = 4: 0.4 ms; 100, K =
    5: 8 ms; 500, K = 4: 2 s).  Driver memory: 60 bytes for each step of each set, 40 bytes x
    items^2 and 24 bytes x items^2 of the largest set; with categories 100 bytes x steps^2.  With
    complete data there is one set.
    Weights would need another variance, from more than these counts, and are refused.

    Source: Andersen (1970, 1972); Fischer (1981), *Psychometrika* 46, for existence; Fischer and
    Ponocny (1994), *Psychometrika* 59, for partial credit; the recursions are described in
    ``irt_dask.kernels.pairs.symmetric_functions`` and ``category_functions``.

    Examples
    --------
    >>> import irt_dask as irt
    >>> fit = irt.fit_conditional(irt.load_lsat())
    >>> fit["item_difficulty"].round(2).values.tolist()
    [-1.26, 0.47, 1.24, 0.17, -0.62]
    >>> fit["item_difficulty_se"].round(2).values.tolist()
    [0.1, 0.07, 0.07, 0.07, 0.09]
    >>> graded = irt.simulate(2000, 3, model="pcm", categories=3, seed=1)
    >>> steps = irt.fit_conditional(graded, model="pcm")["item_step_difficulty"]
    >>> steps.shape, abs(float(steps.mean().round(6)))
    ((3, 2), 0.0)
    """
    whole_number("max_iterations", max_iterations, 1)
    if not (np.isfinite(tolerance) and tolerance > 0):
        raise InputError(f"tolerance={tolerance} must be finite and above 0")
    graded = not (isinstance(model, str) and model == "rasch")
    responses = as_responses(responses, "fit_conditional", graded=graded)
    refuse_weights(responses, "fit_conditional")
    models = _models_of(model, responses)
    _refuse_size(responses)
    with Engine(
        responses, client=client, progress=progress, stage="conditional", graded=graded
    ) as engine:
        sets, by_category = conditional_sets.counted(engine)
        highest = np.array(responses.n_categories) - 1
        seen, right = by_category.sum(axis=1), by_category[np.arange(highest.size), highest]
        counts = ResponseCounts(right, seen, responses.n_persons, by_category)
        what = _likelihood(engine, models, sets, counts)
        x, n_iterations, converged = maximise(what, max_iterations, tolerance, engine)
        value, _, information = what.derivatives(x)
        data = _items(what, x, covariance(what, information))
        falls = checks.falling(engine, counts.score(highest + 1), seen)
        data["item_flag"] = checks.flags(
            data, seen=checks.Counts(right, seen, falls, by_category[:, 0])
        )
    checks.warn(data["item_flag"], responses.item_id)
    if not converged:
        warnings.warn(
            f"conditional maximum likelihood did not converge to tolerance={tolerance} in "
            f"{n_iterations} steps; raise max_iterations or tolerance",
            ConvergenceWarning,
            stacklevel=2,
        )
    return dataset(
        data,
        item_id=responses.item_id,
        attrs={
            **_attrs(what, model, sets, converged), "objective": value,
            "n_iterations": n_iterations, "n_persons": responses.n_persons,
        },
    )  # fmt: skip
