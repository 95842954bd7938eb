"""What a bifactor fit says: of items, of blocks, and of itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xarray as xr

from irt_dask.arrays import Floats
from irt_dask.calibrate.bifactor.model import WEAK, Model, Rounds
from irt_dask.calibrate.shared import climb
from irt_dask.calibrate.shared.start_values import ResponseCounts
from irt_dask.curves.priors import ItemPrior
from irt_dask.engine import dataset
from irt_dask.items import checks
from irt_dask.items.bifactor import GENERAL, MODELS
from irt_dask.items.blocks import Blocks


def described(
    fit: Rounds, end: climb.Fitted, counts: ResponseCounts, names: tuple[str, ...], given: Blocks
) -> xr.Dataset:
    """The result, with the likelihood where the iterations ended."""
    model, x = fit.model, fit.model.upright(end.x)
    slopes, _ = model.unpack(x)
    value, _ = fit.expect(x)
    items = {
        "item_intercept": slopes[2],
        "item_at_bound": model.at_bound(slopes),
        "item_n_responses": counts.seen,
        "item_n_right": counts.right,
    }
    # What is said of an item is said of its slope on the general ability.
    flags = checks.of_fit(fit.engine, items | {"item_discrimination": slopes[0]})
    return dataset(
        {
            **items,
            "item_loading": _loadings(model, slopes),
            "item_stratum": np.array(given.labels)[given.of_item],
            "item_flag": flags,
            "block_effect_sd": _effects(model, slopes),
            "iteration_objective": np.array(end.trace),
        },
        item_id=fit.engine.responses.item_id,
        coords={"domain": np.array([GENERAL, *names]), "block": np.array(names)},
        attrs={
            "method": "bifactor marginal maximum likelihood",
            "model": MODELS[model.testlet],
            "converged": end.converged,
            "n_iterations": len(end.trace),
            **_attrs(fit, x, value),
        },
    )


def _loadings(model: Model, slopes: Floats) -> Floats:
    """Slopes on the general ability, and on those of blocks, (items, 1 + blocks)."""
    out = np.zeros((model.n_items, 1 + model.n_blocks))
    out[:, 0] = slopes[0]
    own = np.flatnonzero(model.of_item >= 0)
    out[own, 1 + model.of_item[own]] = slopes[1, own]
    return out


def _effects(model: Model, slopes: Floats) -> Floats:
    """SDs of abilities of blocks about the general one, in its units."""
    squares = [
        [float((slopes[k, model.of_item == b] ** 2).sum()) for k in (1, 0)]
        for b in range(model.n_blocks)
    ]
    return np.array([math.sqrt(s / a) for s, a in squares])


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
