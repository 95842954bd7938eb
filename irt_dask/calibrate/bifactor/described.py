"""What a bifactor fit says: of items, of blocks, and of itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xarray as xr
from scipy.sparse import csr_array, lil_array

from irt_dask.arrays import Floats
from irt_dask.calibrate.bifactor.errors import Maximum, jacobian
from irt_dask.calibrate.bifactor.model import WEAK, Model, Rounds
from irt_dask.calibrate.shared import climb
from irt_dask.calibrate.shared.start_values import ResponseCounts
from irt_dask.curves.priors import ItemPrior
from irt_dask.engine import dataset
from irt_dask.items import checks
from irt_dask.items.bifactor import GENERAL, MODELS
from irt_dask.items.blocks import Blocks


def described(
    fit: Rounds, end: climb.Fitted, found: Maximum, counts: ResponseCounts,
    drawn: list[Floats], names: tuple[str, ...], given: Blocks,
) -> xr.Dataset:  # fmt: skip
    """The result, of the maximum near where the iterations ended, with draws (columns)."""
    model, x = fit.model, found.x
    slopes, _ = model.unpack(x)
    by = jacobian(model, x)
    of_items = found.errors(by).reshape(-1, 3).T
    effects, by_effect = _effects(model, slopes)
    items = {
        "item_intercept": slopes[2],
        "item_intercept_se": of_items[2],
        "item_at_bound": model.at_bound(slopes),
        "item_n_responses": counts.seen,
        "item_n_right": counts.right,
    }
    # What is said of an item is said of its slope on the general ability.
    flags = checks.of_fit(fit.engine, items | {"item_discrimination": slopes[0]})
    return dataset(
        {
            **items,
            "item_loading": _loadings(model, slopes, 0.0),
            "item_loading_se": _loadings(model, of_items, np.nan),
            **_drawn(model, drawn),
            "item_stratum": np.array(given.labels)[given.of_item],
            "item_flag": flags,
            "block_effect_sd": effects,
            "block_effect_sd_se": found.errors(csr_array(by_effect @ by)),
            "iteration_objective": np.array(end.trace),
        },
        item_id=fit.engine.responses.item_id,
        coords={"domain": np.array([GENERAL, *names]), "block": np.array(names)},
        attrs={
            "method": "bifactor marginal maximum likelihood",
            "model": MODELS[model.testlet],
            "converged": end.converged,
            "n_iterations": len(end.trace),
            **_attrs(fit, x, found.value),
            **_of_errors(fit, found),
        },
    )


def _loadings(model: Model, slopes: Floats, elsewhere: float) -> Floats:
    """Slopes on the general ability, and on those of blocks, (items, 1 + blocks)."""
    out = np.full((model.n_items, 1 + model.n_blocks), elsewhere)
    out[:, 0] = slopes[0]
    own = np.flatnonzero(model.of_item >= 0)
    out[own, 1 + model.of_item[own]] = slopes[1, own]
    return out


def _drawn(model: Model, drawn: list[Floats]) -> dict[str, Floats]:
    """Draws of slopes and intercepts, if there are any."""
    if not drawn:
        return {}
    of_each = [model.unpack(x)[0] for x in drawn]
    return {
        "item_loading_draw": np.stack([_loadings(model, v, 0.0) for v in of_each]),
        "item_intercept_draw": np.stack([v[2] for v in of_each]),
    }


def _effects(model: Model, slopes: Floats) -> tuple[Floats, csr_array]:
    """SDs of abilities of blocks about the general one, in its units, and their gradients.

    These are by a, s, d of each item, (blocks, 3 items); those of lambdas are the same as if slopes
    were free, as their items' slopes have one ratio.
    """
    effects, gradient = np.empty(model.n_blocks), lil_array((model.n_blocks, 3 * model.n_items))
    for b in range(model.n_blocks):
        at = np.flatnonzero(model.of_item == b)
        a, s = slopes[:2, at]
        of_a, of_s = float(a @ a), float(s @ s)
        effects[b] = math.sqrt(of_s / of_a)
        if of_s > 0.0:
            gradient[[b], 3 * at] = -effects[b] * a / of_a
            gradient[[b], 3 * at + 1] = effects[b] * s / of_s
    return effects, csr_array(gradient)


def _of_errors(fit: Rounds, found: Maximum) -> dict[str, Any]:
    """How standard errors were found, if not from the information."""
    sandwich = found.covariance is not None and fit.engine.sampled
    return {"standard_errors": "sandwich"} if sandwich else {}


def _attrs(fit: Rounds, x: Floats, value: float) -> dict[str, Any]:
    """What is said of the fit as a whole."""
    model, log_prior = fit.model, fit.model.log_prior(x)
    out: dict[str, Any] = {"objective": value + log_prior, "log_likelihood": value}
    if isinstance(prior := model.prior, ItemPrior):
        out |= {
            "prior_discrimination": list(prior.discrimination),
            "prior_intercept": list(prior.intercept),
        }
    if prior is not None:
        out |= {"log_prior": log_prior, "prior": prior if isinstance(prior, str) else "fixed"}
        if not model.testlet:
            out["prior_loading"] = list((prior if isinstance(prior, ItemPrior) else WEAK).loading)
    else:
        n, k = fit.engine.n_persons, model.n_parameters
        out |= {"aic": 2.0 * (k - value), "bic": k * math.log(n) - 2.0 * value}
    return out | {
        "identification": "abilities independent N(0, 1); a > 0; slopes on the ability of a block "
        "are positive in sum",
        "n_persons": fit.engine.n_persons,
        **fit.engine.weight_attrs,
        "n_parameters": model.n_parameters,
    }
