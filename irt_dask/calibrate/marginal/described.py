"""What a marginal fit says: of the items, of groups of persons, and of itself."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from irt_dask.arrays import Floats
from irt_dask.calibrate.bayes.hierarchy import Hierarchy
from irt_dask.calibrate.bayes.signed_hierarchy import SignedHierarchy
from irt_dask.calibrate.marginal import anchors
from irt_dask.calibrate.marginal import errors as marginal_errors
from irt_dask.calibrate.marginal.expected import Expected
from irt_dask.calibrate.marginal.learned import Learned
from irt_dask.calibrate.marginal.model import Model
from irt_dask.calibrate.marginal.rounds import Rounds
from irt_dask.calibrate.shared import climb
from irt_dask.calibrate.shared.shape_priors import in_words
from irt_dask.calibrate.shared.start_values import ResponseCounts
from irt_dask.curves import MODELS
from irt_dask.curves.priors import ItemPrior
from irt_dask.engine import dataset
from irt_dask.errors import DataWarning
from irt_dask.items import checks

#: Below this slope an item hardly tells persons apart.
_FLAT = 0.01


@dataclass(frozen=True)
class Found:
    """The maximum, the likelihood and the expected counts there, and its errors."""

    x: Floats
    value: float
    expected: Expected
    covariance: marginal_errors.Covariance
    anchored: anchors.Test | None


def described(
    fit: Rounds, found: Found, end: climb.Fitted, items: dict[str, Any], labels: tuple[str, ...],
    model: str, prior: Learned | ItemPrior | None,
) -> xr.Dataset:  # fmt: skip
    """The result, of a model of this name; warns of groups at a bound on behalf of the fit."""
    coords, of_items = None, {}
    if isinstance(prior, Learned):
        names = (SignedHierarchy() if fit.model.signed else Hierarchy()).names
        coords = dict.fromkeys(("coordinate", "coordinate_"), names)
        of_items = {"item_prior_mean": prior.mean, "item_prior_covariance": prior.covariance}
    return dataset(
        {
            **items,
            **of_items,
            "iteration_objective": np.array(end.trace),
            **_about_groups(fit.model, found, labels),
        },
        item_id=fit.engine.responses.item_id,
        coords=coords,
        attrs={
            "method": "marginal maximum likelihood",
            "model": model,
            "converged": end.converged,
            "n_iterations": len(end.trace),
            **_attrs(fit, found, labels),
            **_of_prior(prior, fit.model.signed),
            "n_flat_items": _n_flat(items),
        },
    )


def _of_prior(prior: Learned | ItemPrior | None, signed: bool) -> dict[str, Any]:
    """Which prior slopes and intercepts had."""
    if prior is None:
        return {}
    if isinstance(prior, Learned):
        return {"prior": "empirical", "n_prior_rounds": prior.n_rounds}
    of_slopes = {"prior_loading": list(prior.loading)}
    if not signed:
        of_slopes = {"prior_discrimination": list(prior.discrimination)}
    return {"prior": "fixed", **of_slopes, "prior_intercept": list(prior.intercept)}


def of_items(fit: Rounds, found: Found, counts: ResponseCounts) -> dict[str, Any]:
    """What is said of the items."""
    model, scale = fit.model, marginal_errors.Scale.of(fit.model, found.x)
    joint = found.covariance
    if found.anchored is not None:
        joint = found.anchored.of_items(joint)
    items = {
        **_of_models(model),
        **scale.items(found.x, found.covariance),
        **scale.covariance(found.x, joint, fit.engine.responses.item_id),
        "item_at_bound": model.at_bound(model.unpack(found.x)[0]),
        "item_n_responses": counts.seen,
        "item_n_right": counts.right,
        **({} if found.anchored is None else found.anchored.variables()),
    }
    items["item_flag"] = checks.of_fit(
        fit.engine, items, fixed=np.asarray(~model.free[:2].any(axis=0)), own_scale=not
        model.anchored, one_slope=np.asarray(model.of_all[0] >= 0),
        wrong=counts.of_each[:, 0], score=counts.score(model.items.n_categories),
    )  # fmt: skip
    return items


def _n_flat(items: dict[str, Any]) -> int:
    """Items that hardly tell persons apart, but for nominal ones."""
    slope = np.where(items.get("item_model") == "nominal", np.inf, items["item_discrimination"])
    return int((np.abs(slope) < _FLAT).sum())


def _of_models(model: Model) -> dict[str, Any]:
    """Models and categories of the items, where they are not of one model and two categories."""
    if model.items.only is not None and model.items.only.name in MODELS:
        return {}
    out = {"item_model": model.items.names, "item_n_categories": model.items.n_categories}
    if model.items.empty.any():
        out["item_category_map"] = model.items.category_map
    return out


def _about_groups(model: Model, found: Found, labels: tuple[str, ...]) -> dict[str, Any]:
    """What is said of the groups, where there are any or the distribution is not N(0, 1)."""
    if not (labels or model.anchored or model.histogram):
        return {}
    groups = marginal_errors.Scale.of(model, found.x).groups(found.x, found.covariance)
    groups["group_label"] = np.array(labels or ("all",))
    _warn_of_bounds(groups)
    return groups


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
            stacklevel=5,
        )


def _attrs(fit: Rounds, found: Found, labels: tuple[str, ...]) -> dict[str, Any]:
    """What is said of the fit as a whole."""
    model, value, log_prior = fit.model, found.value, fit.log_prior(found.x)
    of_prior: dict[str, Any] = {**in_words(model.items, model.prior.betas)}
    if of_prior or model.prior.common is not None:
        of_prior["log_prior"] = log_prior
    criteria: dict[str, float] = {}
    if model.prior.common is None:  # which says as much as so many parameters, nobody knows
        bic = model.n_parameters * math.log(float(found.expected.persons.sum())) - 2.0 * value
        criteria = {"aic": 2.0 * (model.n_parameters - value), "bic": bic}
    return {
        "objective": value + log_prior,
        "log_likelihood": value,
        **of_prior,
        **_of_anchors(model, found),
        **_of_errors(model, found),
        "identification": _identification(model, labels),
        "n_persons": fit.engine.n_persons,
        **fit.engine.weight_attrs,
        "n_parameters": model.n_parameters,
        **criteria,
        "latent": "histogram" if model.histogram else "normal",
    }


def _of_errors(model: Model, found: Found) -> dict[str, Any]:
    """How standard errors were found, where it is not as the inverse of a matrix of everything."""
    out = found.covariance.attrs
    if model.histogram and found.covariance.known:
        how = out.get("standard_errors", "information")
        return out | {"standard_errors": f"{how}, the histogram of ability taken as known"}
    return out


def _of_anchors(model: Model, found: Found) -> dict[str, Any]:
    """What is said of fixed items together: their test, and whether their errors are counted."""
    if not model.anchored:
        return {}
    test = found.anchored
    said = "of slopes and difficulties: in the standard errors"
    if test is None or not test.carries:
        said = "taken as known: not in the standard errors"
    elif test.known is not None:
        said = "of the items' parameters, with their covariances: in the standard errors"
    return {**({} if test is None else test.attrs), "anchor_errors": said}


def _identification(model: Model, labels: tuple[str, ...]) -> str:
    if model.anchored and (model.signed or (model.fixed[0] < 0.0).any()):
        return "scale of the fixed items" + ("" if model.signed else "; a > 0 of the others")
    if model.anchored:
        return "scale of the fixed items; a > 0"
    kind, names = "has mean 0 and SD 1" if model.histogram else "N(0, 1)", {*model.items.names}
    signs = "a > 0"
    if names == {"nominal"}:
        signs = "its direction is free, that of most of the codes where the search began"
    elif "nominal" in names:
        signs = "a > 0 but for nominal items"
    if model.signed:
        signs = "the sum over items of cov(ability, response) is positive"
    if labels:
        return f"ability of group {labels[model.reference]} {kind}; {signs}"
    return f"ability {kind}; {signs}"
