"""What every marginal fit goes through, concurrent ones too: from start values to the maximum."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from irt_dask.arrays import Floats
from irt_dask.calibrate.marginal import anchors, learned, sampling
from irt_dask.calibrate.marginal import errors as marginal_errors
from irt_dask.calibrate.marginal import null_categories as nulls
from irt_dask.calibrate.marginal.described import Found
from irt_dask.calibrate.marginal.expected import Expected
from irt_dask.calibrate.marginal.model import Model
from irt_dask.calibrate.marginal.rounds import Rounds
from irt_dask.calibrate.shared import climb
from irt_dask.calibrate.shared.start_values import ResponseCounts, start_values
from irt_dask.curves.priors import ItemPrior
from irt_dask.engine import Checkpoint

#: Newton steps at the end, at most, and the step after which none is needed: the information they
#: take is right to 1e-5 at least.
_POLISHING, _SMALL = 5, 1e-6
#: How often a step that leads down is halved.
_HALVINGS = 5
#: How far they may lead before errors are found again: standard errors change by that share; and
#: how often, as steps by other errors lead further.
_FAR, _ROUNDS = 3e-5, 10


def with_categories(
    what: Model, item_id: tuple[str, ...], counts: ResponseCounts, how: str,
    prior: str | ItemPrior | None,
) -> Model:  # fmt: skip
    """The model without the categories that nobody has, or as it is."""
    estimated = np.asarray(what.free.any(axis=0))
    settled = nulls.settled(what.items, item_id, counts.of_each, estimated, how)
    if settled is what.items:
        return what
    if prior is not None:
        learned.refuse(settled, "normal")
    return what.of_models(settled)


def begun(fit: Rounds, counts: ResponseCounts, start: xr.Dataset | None) -> Floats:
    """Column to start from."""
    model, item_id = fit.model, fit.engine.responses.item_id
    x = start_values(item_id, model.items, counts.of_each, start, prior=model.prior.betas)
    return model.start(x)


def climbed(
    fit: Rounds, x: Floats, start: xr.Dataset | None, max_iterations: int, tolerance: float,
    saved: Checkpoint,
) -> tuple[climb.Fitted, Floats]:  # fmt: skip
    """Where iterations from x end, and the point there whose likelihood is known if they are done.

    Rounds are rough at first, but from a given ``start``: it may be the maximum.
    """
    early = fit.early if start is None else None
    end = climb.full(fit, x, max_iterations, tolerance, saved, "marginal", early=early)
    return end, end.seen_at if end.converged else end.x


def found(
    fit: Rounds, x: Floats, asked: sampling.Sampling | None, bank: xr.Dataset | None
) -> Found:
    """From where the iterations ended to the maximum, its errors, and tests of the bank."""
    value, expected = fit.expect(x)
    covariance = marginal_errors.covariance(fit, x, expected, asked)
    for _ in range(_ROUNDS):
        if not covariance.known:
            break
        end, value, expected = _polished(fit, x, value, expected, covariance)
        far = float(np.abs(end - x).max()) > _FAR
        if not far and marginal_errors.same_columns(fit.model, x, end):
            x = end
            break
        x = end
        covariance = marginal_errors.covariance(fit, x, expected, asked)
        if covariance.large is not None:
            break  # those are found in many passes
    anchored = None
    if bank is not None and covariance.large is not None:
        anchors.warn_untested(covariance.size)
    if bank is not None and covariance.inverse is not None:
        anchored = anchors.test(fit, x, expected, bank, covariance.sampling)
        if anchored is not None and covariance.matrix is not None:
            covariance = replace(covariance, matrix=covariance.matrix + anchored.carried)
    return Found(x, value, expected, covariance, anchored)


def _polished(
    fit: Rounds, x: Floats, value: float, expected: Expected, covariance: marginal_errors.Covariance
) -> tuple[Floats, float, Expected]:
    """Newton steps from where the iterations ended: rounding is all that is left."""
    for _ in range(_POLISHING):
        moved = marginal_errors.newton(fit.model, x, expected, covariance)
        for _ in range(_HALVINGS):
            size = float(np.abs(moved - x).max())
            new, seen = fit.expect(moved)
            if new + fit.log_prior(moved) >= value + fit.log_prior(x) - 1e-12 * abs(value):
                break
            moved = 0.5 * (x + moved)
        else:
            break  # not near enough
        x, value, expected = moved, new, seen
        if size < _SMALL:
            break
    return x, value, expected


def identity(
    what: Model, latent: str, tolerance: float, labels: tuple[str, ...], start: Floats
) -> dict[str, Any]:
    """What a checkpoint rests on, but for data."""
    models = what.items
    some: dict[str, Any] = {"category_map": models.category_map} if models.empty.any() else {}
    some |= {"positive": "none"} if what.signed else {}
    if (common := what.prior.common) is not None:
        some |= {"item_prior": (common.mean, common.precision)}
    return some | {
        "method": "marginal", "tolerance": tolerance, "model": models.names.tolist(),
        "shared": models.of_all, "fixed": what.fixed, "latent": latent, "groups": labels,
        "reference": what.reference, "start": start,
        "prior": (what.prior.betas.alpha, what.prior.betas.beta),
    }  # fmt: skip
