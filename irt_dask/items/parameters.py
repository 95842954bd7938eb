"""Parameters of items out of fits and banks: matched by identifier, checked, by model."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from irt_dask.arrays import Bools, Floats
from irt_dask.curves import MODELS, ItemModel
from irt_dask.curves.grids import GRID_BOUND, LARGEST_LOGIT
from irt_dask.curves.item_set import Group, ItemSet
from irt_dask.errors import InputError
from irt_dask.variables import ITEMS, LATENT_DIMS, unique_ids

#: Models of items that are estimated alone: 1PL is 2PL with given parameters.
_KINDS = [m for m in MODELS.values() if not m.shared]


def item_set(
    items: xr.Dataset, item_id: tuple[str, ...], *, what: str = "items", checked: bool = True
) -> ItemSet:
    """Items of a fit or an item bank, matched by identifier, ``checked`` to be some.

    A fit with difficulties only (Rasch) has slope 1.  Each item is of the simplest model that
    describes it: with a guessing parameter of 0 it is one of the 2PL.
    """
    at = _positions(items, item_id, what)
    refuse_loadings(items, what)
    known = _variables(items, at, what)
    kind = np.full(len(at), -1)
    for k, model in enumerate(_KINDS):
        kind[(kind < 0) & _describes(model, known)] = k
    kind[kind < 0] = len(_KINDS) - 1  # not numbers
    for k in np.unique(kind) if checked else ():
        _refuse_bad(_KINDS[k], known, np.flatnonzero(kind == k), item_id, what)
    return ItemSet(
        tuple(
            Group(_KINDS[k], np.flatnonzero(kind == k), _columns(_KINDS[k], known)[:, kind == k])
            for k in np.unique(kind)
        )
    )


def _variables(items: xr.Dataset, at: list[int], what: str) -> dict[str, Floats]:
    """Parameters by variable, those that may be left out filled in."""
    names = {p.variable for m in _KINDS for p in m.parameters}
    known = {n: items[n].values[at].astype(float) for n in names if n in items}
    known.setdefault("item_discrimination", np.ones(len(at)))
    if "item_intercept" not in known:
        if "item_difficulty" not in items:
            raise InputError(f"{what} has neither item_intercept nor item_difficulty")
        b = items["item_difficulty"].values[at].astype(float)
        known["item_intercept"] = -known["item_discrimination"] * b
    return known


def _describes(model: ItemModel, known: dict[str, Floats]) -> Bools:
    """Items whose parameters beyond those of the model are at their neutral values."""
    own = {p.variable for p in model.parameters}
    out = np.ones(known["item_discrimination"].size, dtype=bool)
    for p in (p for m in _KINDS for p in m.parameters if p.variable not in own):
        if p.variable in known:
            out &= known[p.variable] == p.neutral
    return out


def _columns(model: ItemModel, known: dict[str, Floats]) -> Floats:
    missing = np.ones(known["item_discrimination"].size)
    return np.stack(
        [
            known[p.variable] if p.variable in known else p.neutral * missing  # type: ignore[operator]
            for p in model.parameters
        ]
    )


def _refuse_bad(
    model: ItemModel, known: dict[str, Floats], at: NDArray[np.intp], ids: Any, what: str
) -> None:
    x = _columns(model, known)[:, at]
    bad = np.flatnonzero(~(np.isfinite(x).all(axis=0) & model.valid(x)))
    if bad.size:
        j = bad[0]
        raise InputError(f"{what}: item {ids[at[j]]} has {model.in_words(x[:, j])}; {model.rule}")
    logit = x[0] * GRID_BOUND + np.abs(x[1])
    if logit.size and logit.max() > LARGEST_LOGIT:
        j = int(logit.argmax())
        raise InputError(
            f"{what}: item {ids[at[j]]} has {model.in_words(x[:, j])}: its logit reaches "
            f"{logit[j]:.0f} for abilities up to {GRID_BOUND:.0f}, and probabilities are computed "
            f"up to {LARGEST_LOGIT:.0f}"
        )


def parameters(
    items: xr.Dataset, item_id: tuple[str, ...], model: str = "2pl", *, what: str = "items"
) -> tuple[Floats, ...]:
    """Parameters of one model, in its order, for methods that know this one alone.

    Items of simpler models have the neutral value of what they lack; others are refused.
    """
    own = MODELS[model].parameters
    found = item_set(items, item_id, what=what)
    for g in found.groups:
        more = [k for k, p in enumerate(g.model.parameters) if p not in own]
        if more:
            p = g.model.parameters[more[0]]
            remedy = f"models with it are not available here, fit the {model.upper()}"
            if what == "fixed_items":  # beside which others are estimated, by a model of choice
                having = [m.name for m in _KINDS if {*g.model.parameters} <= {*m.parameters}]
                named = " or ".join(f"model={name!r}" for name in having)
                remedy = f"choose a model that has it ({named}), or leave this item out of the bank"
            raise InputError(
                f"{what}: item {item_id[g.at[0]]} has the {p.name} {g.x[more[0], 0]:.3g}; {remedy}"
            )
    return tuple(found.column(p) for p in own)


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


# --- several abilities ----------------------------------------------------------------------------


def has_loadings(items: Any) -> bool:
    """Whether these items are of several abilities."""
    return isinstance(items, xr.Dataset) and not {"item_loading", "item_loading_draw"}.isdisjoint(
        items.variables
    )


def refuse_loadings(items: xr.Dataset, what: str) -> None:
    """Stop if the items are of several abilities, where one is meant."""
    if has_loadings(items):
        raise InputError(
            f"{what} have item_loading (several abilities, model M2PL), which is not available "
            f"here; give items of the {', '.join(m.name.upper() for m in MODELS.values())}"
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
