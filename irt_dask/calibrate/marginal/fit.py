"""Marginal maximum likelihood (MML): abilities integrated out, items by accelerated EM."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from irt_dask.calibrate.marginal import anchors
from irt_dask.calibrate.marginal import errors as marginal_errors
from irt_dask.calibrate.marginal.rounds import GUESSING, Model, Rounds
from irt_dask.calibrate.shared import climb
from irt_dask.calibrate.shared.groups import grouped
from irt_dask.calibrate.shared.start_values import response_counts, start_values
from irt_dask.engine import Engine, ProgressOption, as_responses, dataset
from irt_dask.engine.identity import checkpoint_of
from irt_dask.engine.inputs import (
    bank_item_ids,
    item_parameters,
    item_parameters_3pl,
    whole_number,
)
from irt_dask.errors import ConvergenceWarning, DataWarning, InputError
from irt_dask.items import checks
from irt_dask.models import check_model
from irt_dask.store import Responses

Floats = NDArray[np.float64]

#: Below this slope an item hardly tells persons apart.
_FLAT = 0.01
#: Mode .2, as much as 20 persons who know nothing.
_GUESSING_PRIOR = (5.0, 17.0)
#: Newton steps at the end, at most, and the step after which none is needed.
_POLISHING, _SMALL = 5, 1e-9


def fit_marginal(
    responses: Any,
    *,
    model: str = "2pl",
    max_iterations: int = 500,
    tolerance: float = 1e-9,
    groups: bool | None = None,
    reference_group: str | None = None,
    latent: str = "normal",
    fixed_items: xr.Dataset | None = None,
    guessing_prior: tuple[float, float] | None = _GUESSING_PRIOR,
    start: xr.Dataset | None = None,
    standard_errors: bool | None = None,
    client: Any = None,
    progress: ProgressOption = None,
    checkpoint: str | Path | None = None,
) -> xr.Dataset:
    """Marginal maximum likelihood: items whose responses are most likely, abilities integrated out.

    Parameters
    ----------
    responses : Responses or anything ``from_array`` takes
        Sampling weights are divided by their mean; standard errors are then those of a sample with
        unequal weights (sandwich).  A row with a frequency weight counts as so many persons.
    model : {"2pl", "1pl", "3pl"}
        "1pl" estimates one slope that all items share.
    max_iterations, tolerance
        EM steps, accelerated; they end when the log-likelihood has twice in a row grown by less
        than ``tolerance`` relative to its size.
    groups : bool, optional
        Whether every ``person_group`` has its own mean and SD of ability.  Default: if the
        responses have groups.
    reference_group : str, optional
        The group with mean 0 and SD 1; default: the first in alphabetical order.
    latent : {"normal", "histogram"}
        Distribution of ability: normal in each group, or 121 free masses from -6 to 6 in each.
    fixed_items : Dataset, optional
        Items of a bank that keep their parameters.  They fix the scale, so that every group has a
        mean and an SD of its own, and the others are calibrated on the bank's scale.
    guessing_prior : (alpha, beta) or None
        3PL: Beta prior on each guessing parameter.  The default, mode .2, weighs as much as 20
        persons who know nothing; guessing is hardly determined by data without one.  Estimates
        then maximise likelihood times prior, and the likelihood reached may lie below that of the
        2PL, which the 3PL contains.  None: no prior, the maximum of the likelihood alone, which
        likelihood-ratio tests need.
    start : Dataset, optional
        Start values, from another fit.  Without a prior a 3PL that starts from the 2PL of the same
        data ends at a likelihood no lower (but for guessing of at least 1e-6).
    standard_errors : bool, optional
        Whether to find them; they need a matrix of parameters x parameters.  Default: with up to
        2,000 parameters; at most 6,000.  Without them the last Newton steps are left out too.
    client, progress, checkpoint
        Dask client (default: the current one, else threads); progress bar; folder for checkpoints
        (which take a pass more over arrays, for their checksum).

    Returns
    -------
    Dataset over items
        ``item_discrimination``, ``item_difficulty``, ``item_intercept``, for 3PL
        ``item_guessing``, with ``_se`` (from the observed information; NaN for what is fixed or at
        a bound, and without ``standard_errors``), ``item_at_bound``, ``item_flag``,
        ``item_n_responses``, ``item_n_right``, ``iteration_objective``.  With groups, fixed items
        or a histogram over ``groups``: ``group_label``, ``group_mean`` and ``group_sd`` with
        ``_se``, and ``group_at_bound``; with fixed items, standard errors and a normal distribution
        score tests of the fixed items, ``item_anchor_chi2`` (2 degrees of freedom, 1PL: 1),
        ``item_anchor_p_value`` and ``item_anchor_rmsd``, by how much the curve would move (all
        together: attrs ``anchor_chi2``, ``anchor_df``, ``anchor_p_value``); a histogram adds
        ``group_ability_share`` over ``ability``.  attrs: ``log_likelihood``, of the data alone, and
        from it ``aic`` and ``bic`` with ``n_parameters`` (all that were to be estimated, those that
        ended at a bound too); ``objective``, what was maximised; ``n_flat_items``; of a 3PL
        ``guessing_prior`` and ``log_prior``, the objective less the log-likelihood.

    Raises
    ------
    InputError, EstimationError

    Warns
    -----
    ConvergenceWarning, DataWarning, ItemWarning
        If the iterations do not end; if the data do not determine all parameters (no standard
        errors then); if the data contradict fixed items; if a group ends at a bound; of flagged
        items.

    Notes
    -----
    Passes over the data: one per iteration (some 10 where plain EM takes 80), one for start
    values, one for standard errors, two to six at the end; two over the labels of groups.  The
    driver holds counts of items x nodes x 16 bytes, and some times parameters^2 x 8 bytes for
    standard errors.
    Abilities are integrated on an even grid that resolves every person's posterior: the
    log-likelihood is exact to rounding.
    Source: Bock and Aitkin (1981); acceleration Walker and Ni (2011); standard errors Louis (1982).

    Examples
    --------
    >>> import irt_dask as irt
    >>> fit = irt.fit_marginal(irt.load_lsat())
    >>> fit["item_discrimination"].round(2).values.tolist()
    [0.83, 0.72, 0.89, 0.69, 0.66]
    >>> round(fit.attrs["log_likelihood"], 2)
    -2466.65
    """
    responses = as_responses(responses, "fit_marginal")
    check_model(model, ("2pl", "1pl", "3pl"))
    labels: tuple[str, ...] = ()
    if groups is None:
        groups = responses.has_groups
    if groups:
        if not responses.has_groups:
            raise InputError("groups=True, but the responses have no person_group")
        responses, labels = grouped(responses, client)
    whole_number("max_iterations", max_iterations, 1)
    what = _model(responses, model, labels, reference_group, latent, fixed_items, guessing_prior)
    options = {
        "method": "marginal", "tolerance": tolerance, "model": model, "fixed": what.fixed,
        "latent": latent, "groups": labels, "reference": reference_group,
        "guessing_prior": what.guessing_prior,
    }  # fmt: skip
    with Engine(responses, client=client, progress=progress, stage="marginal ML") as engine:
        right, seen, _ = response_counts(engine)
        fit = Rounds(engine, what)
        a, d, c = start_values(responses.item_id, right, seen, start)
        if model == "3pl" and start is None:
            alpha, beta = what.guessing_prior
            c = np.full_like(a, (alpha - 1.0) / (alpha + beta - 2.0) if alpha > 1.0 else 0.1)
        elif model == "3pl":
            c = np.clip(c, *GUESSING)  # those of a 2PL are 0
        x = what.start(np.stack([a, d, c]))
        wanted = marginal_errors.are_wanted(what, x, standard_errors)
        saved = checkpoint_of(engine, checkpoint, {**options, "start": x})
        end = climb.full(fit, x, max_iterations, tolerance, saved, "marginal")
        value, expected = fit.expect(end.x)
        covariance = marginal_errors.covariance(fit, end.x, expected, wanted)
        x, value, expected = _polished(fit, end.x, value, expected, covariance)
        if wanted and not marginal_errors.same_columns(what, end.x, x):  # a bound was reached
            covariance = marginal_errors.covariance(fit, x, expected, wanted)
        anchored = None
        if fixed_items is not None and covariance.inverse is not None:
            errors = anchors.bank_errors(fixed_items, responses.item_id)
            anchored = anchors.test(fit, x, expected, errors)
        scale = marginal_errors.Scale.of(what, x)
        items = {
            **scale.items(x, covariance),
            "item_at_bound": marginal_errors.at_bound(what, x),
            "item_n_responses": seen,
            "item_n_right": right,
            **({} if anchored is None else anchored.variables()),
        }
        known = np.asarray(np.isfinite(what.fixed[:2]).all(axis=0))
        items["item_flag"] = checks.of_fit(
            engine, items, fixed=known, own_scale=fixed_items is None, one_slope=model == "1pl"
        )
    if not end.converged:
        warnings.warn(
            f"marginal maximum likelihood did not converge in {max_iterations} iterations; raise "
            f"max_iterations",
            ConvergenceWarning,
            stacklevel=2,
        )
    checks.warn(items["item_flag"], responses.item_id)
    if anchored is not None:
        anchored.warn(responses.item_id)
    groups_found = {}
    if labels or fixed_items is not None or latent == "histogram":
        groups_found = scale.groups(x, covariance)
        groups_found["group_label"] = np.array(labels or ("all",))
        _warn_of_bounds(groups_found)
    n_parameters, log_prior = what.n_parameters, fit.log_prior(x)
    n = float(expected.persons.sum())
    return dataset(
        {
            **items,
            "iteration_objective": np.array(end.trace),
            **groups_found,
        },
        item_id=responses.item_id,
        attrs={
            "method": "marginal maximum likelihood",
            "model": model,
            "converged": end.converged,
            "n_iterations": len(end.trace),
            "objective": value + log_prior,
            "log_likelihood": value,
            **_prior_attrs(what, log_prior),
            **({} if anchored is None else anchored.attrs),
            "identification": _identification(what, labels),
            "n_persons": engine.n_persons,
            **engine.weight_attrs,
            "n_parameters": n_parameters,
            "aic": 2.0 * (n_parameters - value),
            "bic": n_parameters * math.log(n) - 2.0 * value,
            "latent": latent,
            "n_flat_items": int((items["item_discrimination"] < _FLAT).sum()),
        },
    )


def _warn_of_bounds(groups: dict[str, Any]) -> None:
    """Name the groups whose mean or SD ended at a bound."""
    at = np.flatnonzero(groups.get("group_at_bound", np.zeros(0)))
    if at.size:
        some = ", ".join(
            f"{groups['group_label'][g]} (mean {groups['group_mean'][g]:.3g}, SD "
            f"{groups['group_sd'][g]:.3g})"
            for g in at[:10]
        )
        warnings.warn(
            f"{at.size} group(s) ended at a bound of mean or SD, which then has no standard error: "
            f"{some}. All or none of their answers are right, or they are too few or too much "
            f"alike; leave them out or join them with others",
            DataWarning,
            stacklevel=3,
        )


def _polished(
    fit: Rounds, x: Floats, value: float, expected: Any, covariance: marginal_errors.Covariance
) -> tuple[Floats, float, Any]:
    """Newton steps from where the iterations ended: rounding is all that is left."""
    if covariance.inverse is None:
        return x, value, expected
    for _ in range(_POLISHING):
        moved = marginal_errors.newton(fit.model, x, expected, covariance)
        new, seen = fit.expect(moved)
        if not new + fit.log_prior(moved) >= value + fit.log_prior(x) - 1e-12 * abs(value):
            break  # not near enough
        size = float(np.abs(moved - x).max())
        x, value, expected = moved, new, seen
        if size < _SMALL:
            break
    return x, value, expected


def _model(
    responses: Responses,
    model: str,
    labels: tuple[str, ...],
    reference: str | None,
    latent: str,
    fixed_items: xr.Dataset | None,
    guessing_prior: tuple[float, float] | None,
) -> Model:
    """Say what is estimated; every complaint about it is made here."""
    if latent not in ("normal", "histogram"):
        raise InputError(f"latent={latent!r} is not available; choose normal or histogram")
    if reference is not None and reference not in labels:
        known = ", ".join(labels[:10]) if labels else "without groups there is none"
        raise InputError(f"reference_group={reference!r} is not a group: {known}")
    if reference is not None and fixed_items is not None:
        raise InputError("reference_group has no meaning with fixed_items, which fix the scale")
    fixed = np.full((3, responses.n_items), np.nan)
    if model != "3pl":
        fixed[2] = 0.0
    if fixed_items is not None:
        _fix(fixed, responses.item_id, fixed_items, model)
    return Model(
        model, fixed, _prior(model, guessing_prior), max(1, len(labels)),
        labels.index(reference) if reference else 0, fixed_items is not None,
        latent == "histogram",
    )  # fmt: skip


def _fix(fixed: Floats, item_id: tuple[str, ...], bank: xr.Dataset, model: str) -> None:
    """Fill in the parameters of the items that the bank has."""
    known = set(bank_item_ids(bank, "fixed_items"))
    at = [j for j, i in enumerate(item_id) if i in known]
    if not at:
        raise InputError("fixed_items has none of the items of the responses: no scale to join")
    ids = tuple(item_id[j] for j in at)
    if model == "3pl":
        fixed[:, at] = np.stack(item_parameters_3pl(bank, ids, what="fixed_items"))
    else:
        fixed[:2, at] = np.stack(item_parameters(bank, ids, what="fixed_items"))
    flagged = {i: str(f) for i, f in zip(ids, checks.unsound(bank, ids), strict=True) if f}
    checks.left_out(
        flagged, len(ids), "of fixed_items are flagged, and stay fixed as given", stacklevel=4
    )


def _prior(model: str, given: tuple[float, float] | None) -> tuple[float, float]:
    if model != "3pl" and given not in (None, _GUESSING_PRIOR):
        raise InputError(f"guessing_prior={given!r} needs model='3pl', not {model!r}")
    if model != "3pl" or given is None:
        return 1.0, 1.0
    alpha, beta = given
    if not (math.isfinite(alpha) and math.isfinite(beta) and alpha >= 1.0 and beta >= 1.0):
        raise InputError(f"guessing_prior={given!r}: give (alpha, beta), both at least 1, or None")
    return float(alpha), float(beta)


def _prior_attrs(model: Model, log_prior: float) -> dict[str, Any]:
    """The prior of a 3PL, and what it takes off the log-likelihood."""
    if model.name != "3pl":
        return {}
    alpha, beta = model.guessing_prior
    name = "none" if alpha == beta == 1.0 else f"Beta({alpha:g}, {beta:g})"
    return {"guessing_prior": name, "log_prior": log_prior}


def _identification(model: Model, labels: tuple[str, ...]) -> str:
    if model.anchored:
        return "scale of the fixed items; a > 0"
    kind = "has mean 0 and SD 1" if model.histogram else "N(0, 1)"
    if labels:
        return f"ability of group {labels[model.reference]} {kind}; a > 0"
    return f"ability {kind}; a > 0"
