"""What users pass in: responses and items, checked the same way by every method."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from irt_dask.errors import InputError
from irt_dask.models import GRID_BOUND, LARGEST_LOGIT
from irt_dask.store import Responses, from_array
from irt_dask.variables import ITEMS, LATENT_DIMS, unique_ids

Floats = NDArray[np.float64]


def as_responses(responses: Any, method: str, *, graded: bool = False) -> Responses:
    """Return Responses as they are, and anything else through ``from_array``.

    The entrance of every public method, under its name.  Items of more than two categories are
    refused unless the method says that it knows them: ``graded``.
    """
    responses = responses if isinstance(responses, Responses) else from_array(responses)
    if not graded:
        refuse_graded(responses, method)
    return responses


def refuse_graded(responses: Responses, method: str) -> None:
    """Stop if some items have more than two categories and the method knows two.

    Nothing has been read then.  Kernels check no bounds, and those for two categories would read
    and write beyond their tables.
    """
    if responses.graded:
        each = zip(responses.item_id, responses.n_categories, strict=True)
        named = [f"{item} ({k})" for item, k in each if k > 2]
        raise InputError(
            f"{method} is for items of two categories (wrong and right), and {len(named)} of these "
            f"{responses.n_items} have more: {', '.join(named[:5])}{' ...' * (len(named) > 5)}; "
            f"leave them out by responses.select(items=[...])"
        )


def refuse_weights(responses: Responses, method: str) -> None:
    """Stop if the persons carry weights and the method has no use for them."""
    if responses.max_weight is not None:
        raise InputError(
            f"{method} does not support person weights, and these responses have "
            f"{responses.weight_kind} weights; use a method that does (fit_marginal, fit_joint "
            f"without a coreset, fit_spectral), or responses without weights"
        )


def item_parameters(
    items: xr.Dataset, item_id: tuple[str, ...], *, what: str = "items"
) -> tuple[Floats, Floats]:
    """Slopes and intercepts of ``item_id`` from a fit or an item bank, matched by identifier.

    A fit with difficulties only (Rasch) has slope 1.  Items that can be guessed (3PL) are refused:
    for methods that know them there is :func:`item_parameters_3pl`.
    """
    a, d, c = item_parameters_3pl(items, item_id, what=what)
    guessed = np.flatnonzero(c > 0.0)
    if guessed.size:
        j = guessed[0]
        raise InputError(
            f"{what}: item {item_id[j]} has the guessing parameter {c[j]:.3g}; models with "
            f"guessing are not available here, fit the 2PL"
        )
    return a, d


def item_parameters_3pl(
    items: xr.Dataset, item_id: tuple[str, ...], *, what: str = "items"
) -> tuple[Floats, Floats, Floats]:
    """As :func:`item_parameters`, with guessing parameters (0 where there are none)."""
    at = _positions(items, item_id, what)
    refuse_loadings(items, what)
    if "item_discrimination" in items:
        a = items["item_discrimination"].values[at].astype(float)
    else:
        a = np.ones(len(at))
    if "item_intercept" in items:
        d = items["item_intercept"].values[at].astype(float)
    elif "item_difficulty" in items:
        d = -a * items["item_difficulty"].values[at].astype(float)
    else:
        raise InputError(f"{what} has neither item_intercept nor item_difficulty")
    bad = np.flatnonzero(~(np.isfinite(a) & np.isfinite(d) & (a > 0)))
    if bad.size:
        j = bad[0]
        raise InputError(
            f"{what}: item {item_id[j]} has discrimination {a[j]} and intercept {d[j]}; "
            f"discriminations must be positive, both finite"
        )
    logit = a * GRID_BOUND + np.abs(d)
    if logit.max() > LARGEST_LOGIT:
        j = int(logit.argmax())
        raise InputError(
            f"{what}: item {item_id[j]} has discrimination {a[j]} and intercept {d[j]}: its logit "
            f"reaches {logit[j]:.0f} for abilities up to {GRID_BOUND:.0f}, and probabilities are "
            f"computed up to {LARGEST_LOGIT:.0f}"
        )
    if "item_guessing" not in items:
        return a, d, np.zeros_like(a)
    c = items["item_guessing"].values[at].astype(float)
    bad = np.flatnonzero(~((c >= 0.0) & (c < 1.0)))
    if bad.size:
        j = bad[0]
        raise InputError(
            f"{what}: item {item_id[j]} has the guessing parameter {c[j]}; it must be at least 0 "
            f"and below 1"
        )
    return a, d, c


def bank_item_ids(items: Any, what: str = "items") -> tuple[str, ...]:
    """Identifiers of the items of a fit or an item bank; InputError unless each stands once."""
    if not isinstance(items, xr.Dataset) or "item_id" not in items.coords:
        raise InputError(f"{what} must be a Dataset with item_id, as the fit functions return")
    return unique_ids(items["item_id"].values, what)


def _positions(items: xr.Dataset, item_id: tuple[str, ...], what: str) -> list[int]:
    """Where the items of the responses stand in a fit or an item bank."""
    known = {i: k for k, i in enumerate(bank_item_ids(items, what))}
    unknown = [i for i in item_id if i not in known]
    if unknown:
        raise InputError(
            f"{len(unknown)} item(s) of the responses are not in {what}: {', '.join(unknown[:20])}"
        )
    return [known[i] for i in item_id]


def calibration_groups(items: xr.Dataset) -> int:
    """Groups of persons that items were calibrated with; 0 if ability was N(0, 1) for everybody."""
    if "group_mean" in items and "group_sd" in items:
        mean, sd = items["group_mean"].values, items["group_sd"].values
        standard = mean.size == 1 and max(abs(mean[0]), abs(sd[0] - 1.0)) < 1e-6
        return 0 if standard else int(mean.size)
    return int(items.attrs.get("calibration_groups", 0))


def has_loadings(items: Any) -> bool:
    """Whether these items are of several abilities."""
    return isinstance(items, xr.Dataset) and not {"item_loading", "item_loading_draw"}.isdisjoint(
        items.variables
    )


def item_loadings(
    items: xr.Dataset, item_id: tuple[str, ...], *, what: str = "items"
) -> tuple[Floats, Floats, float]:
    """Loadings (2, items), intercepts and correlation of two abilities, matched by identifier.

    Without ``ability_correlation`` the abilities are independent.
    """
    at = _positions(items, item_id, what)
    for name in ("item_loading", "item_intercept"):
        if name not in items:
            raise InputError(f"{what} have no {name}")
    if (n_dims := items.sizes[LATENT_DIMS]) != 2:
        raise InputError(
            f"{what} have item_loading of {n_dims} abilities; persons are scored by sums over a "
            f"grid of all abilities, which is available for 2: fit with n_dims=2, or each ability "
            f"by itself from its items"
        )
    a = items["item_loading"].transpose(LATENT_DIMS, ITEMS).values[:, at].astype(float)
    d = items["item_intercept"].values[at].astype(float)
    logit = np.abs(a).sum(axis=0) * GRID_BOUND + np.abs(d)
    bad = np.flatnonzero(~(logit <= LARGEST_LOGIT))
    if bad.size:
        j = bad[0]
        raise InputError(
            f"{what}: item {item_id[j]} has loadings {a[0, j]} and {a[1, j]} and intercept {d[j]}; "
            f"they must be finite, and its logit at most {LARGEST_LOGIT:.0f} for abilities up to "
            f"{GRID_BOUND:.0f}"
        )
    if "item_guessing" in items and bool((items["item_guessing"] > 0.0).any()):
        raise InputError(f"{what} have item_loading and item_guessing; that model is not available")
    correlation = 0.0
    if "ability_correlation" in items:
        correlation = float(items["ability_correlation"].values[0, 1])
    if not abs(correlation) < 1.0:
        raise InputError(
            f"{what}: the abilities' correlation is {correlation}; it must be above -1 and below 1"
        )
    return np.ascontiguousarray(a), d, correlation


def refuse_loadings(items: xr.Dataset, what: str) -> None:
    """Stop if the items are of several abilities, where one is meant."""
    if has_loadings(items):
        raise InputError(
            f"{what} have item_loading (several abilities, model M2PL), which is not available "
            f"here; give items of the 1PL, 2PL or 3PL"
        )


def whole_number(name: str, value: Any, least: int) -> int:
    """Return an option as an integer; InputError if it is none, or below ``least``."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise InputError(f"{name}={value!r} must be a whole number of at least {least}")
    return int(value)
