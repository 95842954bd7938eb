"""What a marginal fit is asked for: groups, models, fixed items and priors, all checked."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xarray as xr
from scipy.special import log_ndtr

from irt_dask.arrays import Floats
from irt_dask.calibrate.marginal import learned
from irt_dask.calibrate.marginal.model import Model
from irt_dask.calibrate.shared.groups import grouped
from irt_dask.calibrate.shared.shape_priors import guessing_priors
from irt_dask.curves.priors import ItemPrior, check_of_signs
from irt_dask.engine.inputs import one_of
from irt_dask.errors import InputError
from irt_dask.items import checks
from irt_dask.items.densities import Common, ItemDensity
from irt_dask.items.known_models import parameters_of
from irt_dask.items.mixture import Mixture
from irt_dask.items.parameters import bank_item_ids
from irt_dask.store import Responses


def in_groups(
    responses: Responses, groups: bool | None, client: Any
) -> tuple[Responses, tuple[str, ...]]:
    """Responses whose blocks know their groups, and the labels of these."""
    if groups is None:
        groups = responses.has_groups
    if groups and not responses.has_groups:
        raise InputError("groups=True, but the responses have no person_group")
    return grouped(responses, client) if groups else (responses, ())


def specified(
    responses: Responses, models: Mixture, labels: tuple[str, ...], reference: str | None,
    latent: str, bank: xr.Dataset | None, guessing_prior: tuple[float, float] | None, positive: str,
    prior: str | ItemPrior | None,
) -> Model:  # fmt: skip
    """Say what is estimated; every complaint about it is made here."""
    if latent not in ("normal", "histogram"):
        raise InputError(f"latent={latent!r} is not available; choose normal or histogram")
    if reference is not None and reference not in labels:
        known = ", ".join(labels[:10]) if labels else "without groups there is none"
        raise InputError(f"reference_group={reference!r} is not a group: {known}")
    if reference is not None and bank is not None:
        raise InputError("reference_group has no meaning with fixed_items, which fix the scale")
    fixed = np.where(models.has, np.nan, 0.0)
    if bank is not None:
        _fix(fixed, responses.item_id, bank, models)
    signed = _signed(positive, models)
    if prior is not None and prior != "empirical" and not isinstance(prior, ItemPrior):
        raise InputError(f"prior={prior!r} is not available; give 'empirical' or an ItemPrior")
    if prior is not None:
        learned.refuse(models, latent)
    common = _common(prior, models, signed) if isinstance(prior, ItemPrior) else None
    return Model(
        models, fixed, ItemDensity(guessing_priors(models, guessing_prior), common),
        max(1, len(labels)), labels.index(reference) if reference else 0, bank is not None,
        latent == "histogram", signed,
    )  # fmt: skip


def _common(prior: ItemPrior, models: Mixture, signed: bool) -> Common:
    """Density of slopes and intercepts: independent normals, that of positive slopes truncated."""
    check_of_signs(prior, signed)
    if signed and prior.loading[0] != 0.0:
        raise InputError(
            f"prior=ItemPrior(loading={prior.loading}): with positive='none' ability is turned to "
            f"where responses rise, so that the slopes' mean before the data has to be 0; use "
            f"prior='empirical', or fit_bayes"
        )
    mean, precision = prior.tempered(1.0, signed=signed).reshape(2, 2).T
    cut = 0.0 if signed else -float(log_ndtr(mean[0] * math.sqrt(precision[0])))
    return Common.of(models, mean, np.diag(precision), log=False, constant=cut)


def _signed(positive: str, models: Mixture) -> bool:
    """Whether slopes may be negative."""
    one_of("positive", positive, ("all", "none"))
    one_slope = {p.model.name for p in models.parts if "a" in p.model.shared}
    if positive == "none" and one_slope:
        raise InputError(
            f"positive='none' lets each slope have a sign of its own; items of "
            f"{', '.join(sorted(one_slope))} share one slope: use 2pl or gpcm"
        )
    return positive == "none"


def _fix(fixed: Floats, item_id: tuple[str, ...], bank: xr.Dataset, models: Mixture) -> None:
    """Fill in the parameters of the items that the bank has."""
    known = set(bank_item_ids(bank, "fixed_items"))
    at = [j for j, i in enumerate(item_id) if i in known]
    if not at:
        raise InputError("fixed_items has none of the items of the responses: no scale to join")
    ids = tuple(item_id[j] for j in at)
    own = parameters_of(models.take(at), bank, ids, what="fixed_items", strict=True)
    fixed[: len(own), at] = own
    flagged = {i: str(f) for i, f in zip(ids, checks.unsound(bank, ids), strict=True) if f}
    checks.left_out(
        flagged, len(ids), "of fixed_items are flagged, and stay fixed as given", stacklevel=4
    )
