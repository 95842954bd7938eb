"""What each person would score on all questions of a bank, from answers to some of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from irt_dask.arrays import Floats
from irt_dask.engine import (
    Engine,
    ProgressOption,
    as_responses,
    dataset,
    person_files,
    refuse_weights,
)
from irt_dask.engine.cache import read_block
from irt_dask.engine.identity import identified
from irt_dask.engine.inputs import check_level
from irt_dask.errors import InputError
from irt_dask.items.bifactor import is_bifactor
from irt_dask.items.draws import usual_draws
from irt_dask.items.parameters import bank_item_ids
from irt_dask.kernels.responses import response_counts
from irt_dask.selection import intervals, misfit
from irt_dask.selection.block_questions import of_blocks
from irt_dask.selection.by_item import weights_of
from irt_dask.selection.questions import Design, Questions, design_of, of_one_ability
from irt_dask.selection.warned import warn_of_draws, warn_of_population
from irt_dask.store import Responses

_MAX_IN_MEMORY = 10_000_000


@dataclass(frozen=True, eq=False)
class Plan:
    """What every block has to know."""

    #: Point estimates of the items.
    questions: Questions
    #: Those over which the model's totals are averaged.
    averaged: tuple[Questions, ...]
    level: float
    designed: bool
    #: What :class:`misfit.Misfit` adds to variances.
    misfit: misfit.Misfit

    def prepared(self, engine: Engine) -> Plan:
        """With what has to be known of the responses."""
        seen = self.questions.look(engine)
        known, *averaged = (q.knowing(seen) for q in (self.questions, *self.averaged))
        return replace(self, questions=known, averaged=tuple(averaged))


def _by_model(data: Any, plan: Plan) -> dict[str, Floats]:
    """Expected share of all points, its standard deviation, and an interval."""
    got, mean, variance, most = found = misfit.moments(data, plan.averaged)
    if plan.misfit.share > 0.0:
        mean = mean + plan.misfit.share * (misfit.by_design(data, plan.questions, found) - mean)
    all_points = float(plan.questions.weights.sum())
    n = response_counts.responses_per_person(data)
    variance = variance + plan.misfit.variance(n)
    step = intervals.smallest_step(plan.questions.weights, plan.questions.n_categories)
    left = np.maximum(all_points - most, 0.0)
    low, high = intervals.of_share(mean, variance, left, plan.level, step)
    return {
        "person_total": (got + mean) / all_points,
        "person_total_sd": np.sqrt(variance) / all_points,
        "person_total_lower": (got + low) / all_points,
        "person_total_upper": np.minimum((got + high) / all_points, 1.0),
    }


def _by_design(data: Any, plan: Plan, person_id: NDArray[Any]) -> dict[str, Floats]:
    """Unbiased estimate, its standard error, and an interval within what is still possible."""
    q = plan.questions
    found, differ = q.design_moments(data, q.design.n)
    if (bad := np.flatnonzero(differ >= 0)).size:
        _refuse(data, int(bad[0]), int(differ[bad[0]]), plan, person_id)
    got, _, _, most = q.model_moments(data)
    all_points = float(q.weights.sum())
    share, se = found[0] / all_points, np.sqrt(found[1]) / all_points
    far = intervals.student(q.design.df, plan.level) * se if q.design.df else 0.0 * se
    least, greatest = got / all_points, np.minimum(1.0 - (most - got) / all_points, 1.0)
    return {
        "person_total_design": share,
        "person_total_design_se": se,
        "person_total_design_lower": np.clip(share - far, least, greatest),
        "person_total_design_upper": np.clip(share + far, least, greatest),
    }


def _refuse(data: Any, i: int, h: int, plan: Plan, person_id: NDArray[Any]) -> None:
    """Stop at a person whose questions are not those of the design."""
    q = plan.questions
    row = misfit.observed(data, i)
    n, wanted = int((q.design.stratum[q.at[row]] == h).sum()), int(q.design.n[h])
    raise InputError(
        f"person {person_id[i]} answered {n} of the {q.design.size[h]} questions of stratum "
        f"{str(q.design.names[h])!r}, and inclusion_probability says that {wanted} were drawn. The "
        f"estimate by design needs every question drawn answered, and no others: count what was "
        f"asked and not answered as wrong, remove responses beyond the sample, predict persons "
        f"with other numbers of questions in another call, or leave inclusion_probability out"
    )


def _persons(block: Any, plan: Plan, person_id: NDArray[Any]) -> dict[str, Floats]:
    out = _by_model(block.data, plan)
    return out | _by_design(block.data, plan, person_id) if plan.designed else out


def _of_ref(ref: Any, plan: Plan) -> tuple[dict[str, Floats], NDArray[Any]]:
    person_id = ref.person_ids()
    return _persons(read_block(ref), plan, person_id), person_id


def _write(ref: Any, plan: Plan, folder: str) -> None:
    block = read_block(ref)
    columns: dict[str, Any] = _persons(block, plan, ref.person_ids())
    columns["n_responses"] = response_counts.responses_per_person(block.data)
    person_files.write_block(ref, block.index, columns, folder)


def _plan(
    responses: Responses, items: xr.Dataset, item_weights: Any, probability: Any, strata: Any,
    level: float,
) -> Plan:  # fmt: skip
    """Read items and options; every complaint about them is made here."""
    item_id = bank_item_ids(items)
    if probability is None and strata is not None:
        raise InputError("strata= says how questions were drawn; give inclusion_probability= too")
    designed = probability is not None
    design = design_of(probability, strata, item_id) if designed else Design.none(len(item_id))
    weights = weights_of(item_weights, item_id)
    read = of_blocks if is_bifactor(items) else of_one_ability
    known, averaged = read(items, responses, weights, design)
    return Plan(known, averaged, level, designed, misfit.NOT_MEASURED)


def _attrs(plan: Plan, items: xr.Dataset, n_persons: int, store: Path | None) -> dict[str, Any]:
    d = plan.questions.design
    attrs = {
        "method": "total",
        "model": items.attrs.get("model"),
        "level": plan.level,
        "n_persons": n_persons,
        "n_questions": plan.questions.n_items,
        "n_item_draws": usual_draws(items),
        "ability": plan.questions.population,
        "interval": f"conditional on the model: {plan.misfit.said(plan.questions.abilities)}",
        **plan.misfit.attrs,
        "store": None if store is None else str(store),
    }
    if plan.designed:
        attrs |= {
            "design": "simple random sample" if d.names.size == 1 else "stratified random sample",
            "n_drawn": int(d.n.sum()),
            "degrees_of_freedom": d.df,
        }
    return attrs


def predict_total(
    responses: Any,
    items: xr.Dataset,
    *,
    item_weights: Any = None,
    inclusion_probability: Any = None,
    strata: Any = None,
    calibration: Any = None,
    level: float = 0.95,
    store: str | Path | None = None,
    client: Any = None,
    progress: ProgressOption = None,
) -> xr.Dataset:
    """Share of all questions of a bank that each person would get right, from answers to some.

    With questions of more than two categories it is the share of all points: a category counts as
    its code over the highest.

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes; persons without weights.
        Answers to some questions, the others not observed or not there.
    items : Dataset
        The questions that the total is over: a fit or an item bank, matched by identifier.  Slopes
        may have any sign.  Under a result of ``fit_bifactor`` answers of a block say less of the
        other blocks than of their own, as the fit found it; answers to some benchmarks then
        predict the total of all with an honest deviation.
    item_weights : mapping of item_id to weight, array or DataArray over items, optional
        Not negative; a question that a mapping does not name has weight 0.  Default: 1 each.
    inclusion_probability : number, mapping, array, DataArray or Dataset, optional
        With which probability each question of the bank was asked, where they were drawn at random
        without replacement, a set number from each stratum: n / N there.  Above 0 and at most 1.
        Gives the estimate by design.  A Dataset is that of ``choose_items(method="random")``.
    strata : mapping, array or DataArray, optional
        Label of each question's stratum.  Default: that of ``choose_items``, or questions with the
        same probability are one stratum.
    calibration : Responses or anything ``from_array`` takes, optional
        Persons who answered all questions, such as those the items were calibrated with.  Their
        totals are predicted from the questions that eight of the persons were asked; the errors say
        how far ``person_total`` has to go from the model towards the estimate by design, and by how
        much its intervals are to be wider than the model says.
    level : float
        Of the intervals.
    store : path, optional
        Folder for one Parquet file per block (``person_id``, the values below, ``n_responses``),
        written by the workers.  Without it the values are returned, up to 10^7 persons.
    client, progress
        Dask client (default: the current one, else threads); progress bar.

    Returns
    -------
    Dataset
        Without ``store``, over persons: ``person_total``, the model's expectation (answers as
        observed, of the rest the expected score over the posterior of ability, or of abilities,
        from N(0, 1), and over up to 20 draws of the items where they carry some),
        ``person_total_sd``, its standard deviation, and ``person_total_lower`` and ``_upper``,
        quantiles of a beta distribution with this mean and deviation (0 or everything of the rest
        if less than half a point from it).
        These hold if the model does: attrs ``interval``.  A person without answers has the total of
        somebody from N(0, 1).  With ``calibration`` it is a weighted mean of this and of the
        estimate by design (of chosen questions: of that formula), with the weights that served
        persons who answered everything best.

        With ``inclusion_probability`` also ``person_total_design``, which is right on average over
        samples of questions however wrong the model is, ``person_total_design_se``, and
        ``person_total_design_lower`` and ``_upper``, by Student's t, within what the answers leave
        possible (the estimate itself may lie outside of this, and of 0 to 1: cut off it would be
        biased).  attrs ``design``, ``n_drawn``, ``degrees_of_freedom``.

        attrs ``n_questions``, ``n_item_draws``, ``level``; with ``calibration`` ``n_calibration``,
        ``design_share`` (the weight of the latter), ``misfit_ratio`` (root mean squared error of
        the model's totals over what it expects) and ``misfit_variance``.

    Raises
    ------
    InputError
        If an item of the responses is not among the items; a weight is negative or not finite, or
        all are 0; a probability is not above 0 and at most 1, or times the size of its stratum no
        whole number, or differs within a stratum; a person answered another number of questions of
        a stratum than were drawn; there are more than 10^7 persons and no folder, or it exists;
        calibration lacks items, or fewer than two answered all.

    Warns
    -----
    DataWarning
        If the items were calibrated with groups or a histogram of ability.
    ApproximationWarning
        If fewer than 20 questions were drawn.

    Notes
    -----
    One pass over the data, and with ``calibration`` one over each, eight predictions a person
    there.  Every process holds a table of 16 bytes x items of the responses x nodes (80 nodes for
    50 questions, 1,000 for 5,000), and of each draw at hand; by design also 8 bytes x strata x
    nodes.  A person costs questions answered x nodes; under a bifactor fit two exponentials for
    each question answered and pair of nodes with weight (some thousand).  Driver memory: next to
    none with ``store``, else 32 or 64 bytes a person and the identifiers.

    For a sample s of n of N questions the estimate by design is the mean over j in s of ``T_j =
    sum(y_i, i in s, i != j) + sum(p_i, i = j or not in s) + (N - n + 1)(y_j - p_j)``, p the
    predictions from the answers without j, over N.  Given the others of s, j is any one of the
    N - n + 1 questions left with the same chance, so that the mean of the last term makes good what
    the predictions of these miss.  (Without that factor, 1 in a plain leave-one-out, it would not.)
    The variance is ``(1 - n / N) / n`` times that of the residuals y_j - p_j, to which ten of the
    size that the model expects are added.  Questions that were chosen, not drawn, and answers that
    are missing for a reason have no estimate by design.  The model's estimate takes everybody from
    N(0, 1), and misses where questions of one topic are asked and others count: see "irt-dask docs
    benchmarks".

    Examples
    --------
    >>> import irt_dask as irt
    >>> responses = irt.simulate(500, 60, seed=1)
    >>> fit = irt.fit_marginal(responses)
    >>> drawn = irt.choose_items(fit, 30, method="random", seed=2)
    >>> asked = responses.select(items=fit["item_id"].values[drawn["item_selected"].values])
    >>> totals = irt.predict_total(asked, fit, inclusion_probability=drawn)
    >>> totals["person_total_design"].sizes["persons"]
    500
    """
    check_level(level)
    responses = as_responses(responses, "predict_total", graded=True, items=items)
    refuse_weights(responses, "predict_total")
    if store is None and responses.n_persons > _MAX_IN_MEMORY:
        raise InputError(
            f"{responses.n_persons} persons: more than {_MAX_IN_MEMORY} values are not returned in "
            f"memory; give store=PATH to have them written"
        )
    plan = _plan(responses, items, item_weights, inclusion_probability, strata, level)
    warn_of_population(items)
    if plan.designed:
        warn_of_draws(plan.questions.design)
    persons: dict[str, Any] = {}
    coords: dict[str, Any] = {}
    with Engine(responses, client=client, progress=progress, stage="totals", graded=True) as engine:
        plan = plan.prepared(engine)
        if calibration is not None:
            measured = misfit.measure(
                engine, calibration, bank_item_ids(items), plan.questions, plan.averaged, client
            )
            plan = replace(plan, misfit=measured)
        if store is None:
            folder = None
            blocks = engine.map_refs(_of_ref, plan, report=True)
            persons = {name: np.concatenate([b[0][name] for b in blocks]) for name in blocks[0][0]}
            ids = np.concatenate([b[1] for b in blocks])
            coords["person_id"] = ids.astype(str, copy=False)
        else:
            responses = identified(engine)
            folder = person_files.new_folder(store)
            engine.map_refs(_write, plan, str(folder), report=True)
    attrs = _attrs(plan, items, responses.n_persons, folder)
    if folder is not None:
        person_files.finish(folder, responses, attrs)
    return dataset(persons, coords=coords or None, attrs=attrs)
