"""Parameters of items out of fits and banks: matched by identifier, checked, by model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.curves import (
    FAMILIES,
    MODELS,
    MORE_PARAMETERS,
    ItemModel,
    check_model,
    model_named,
)
from irt_dask.curves.base import ADJACENT
from irt_dask.curves.grids import GRID_BOUND, LARGEST_LOGIT
from irt_dask.curves.item_set import Group, ItemSet
from irt_dask.errors import InputError
from irt_dask.variables import DRAW, ITEMS, LATENT_DIMS, unique_ids

#: Models of items that are estimated alone: 1PL is 2PL with given parameters.
KINDS = [m for m in MODELS.values() if not m.shared]
#: The same of items with more categories: what models that share something, or hold steps fixed,
#: are by themselves.
_AS_GIVEN = {"pcm": "gpcm", "rating": "gpcm", "binomial": "gpcm"}
#: Values of the parameters that items may lack.
_NEUTRAL = {p.variable: p.neutral for p in MORE_PARAMETERS}
#: What says of which model an item is.
OF_MODELS = ("item_model", "item_n_categories", "item_category_map")
#: Where steps are, the first that there is.
_STEPS = ("item_step_intercept", "item_step_difficulty")


def item_set(
    items: xr.Dataset, item_id: tuple[str, ...], *, what: str = "items", checked: bool = True
) -> ItemSet:
    """Items of a fit or an item bank, matched by identifier, ``checked`` to be some.

    A fit with difficulties only (Rasch) has slope 1.  Each item is of the simplest model that
    describes it: with a guessing parameter of 0 it is one of the 2PL.
    """
    items = of_one_draw(items)
    at = np.array(_positions(items, item_id, what), dtype=np.int64)
    refuse_loadings(items, what)
    names, k = _models(items, at, item_id, what)
    maps = category_maps(items, at, k)
    of_two = np.flatnonzero((k == 2) & (names != "nominal"))
    groups = _of_two(items, at, of_two, item_id, what, checked) if of_two.size else []
    rest = np.setdiff1d(np.arange(at.size), of_two)
    of_rest = [(names[j], int(k[j]), maps.get(j)) for j in rest]
    for kind in dict.fromkeys(of_rest):
        own = rest[[one == kind for one in of_rest]]
        try:
            model = model_named(_AS_GIVEN.get(kind[0], str(kind[0])), *kind[1:])
        except InputError as error:
            raise InputError(f"{what}: item {item_id[own[0]]}: {error}") from None
        x = _of_more(items, at[own], model, what)
        if checked:
            _refuse_bad(model, x, [item_id[j] for j in own], what)
        groups.append(Group(model, own, x))
    return ItemSet(tuple(groups))


def of_one_draw(items: Any) -> Any:
    """The draw under the parameters' names, where one was picked: ``posterior.isel(draw=3)``.

    Other items are as they are: of those with draws the means count.
    """
    if not isinstance(items, xr.Dataset):
        return items
    picked = {
        str(name): str(name).removesuffix("_draw")
        for name, values in items.data_vars.items()
        if str(name).endswith("_draw") and DRAW not in values.dims
    }
    return items.drop_vars({*picked.values()} & {*items.variables}).rename(picked)


def _models(items: xr.Dataset, at: Ints, item_id: tuple[str, ...], what: str) -> tuple[Any, Ints]:
    """Name of each item's model, "" where it is one of two categories, and categories."""
    names = np.full(at.size, "", dtype=object)
    if "item_model" in items:
        names = items["item_model"].values[at].astype(str).astype(object)
        for name in dict.fromkeys(names):
            check_model(name, (*MODELS, *FAMILIES))
            lacking = [
                p
                for p in MORE_PARAMETERS
                if name in MODELS and p in MODELS[name].parameters and p.variable not in items
            ]
            if lacking:
                raise InputError(f"{what} has items of model {name}, and no {lacking[0].variable}")
    k = np.full(at.size, 2, dtype=np.int64)
    if "item_n_categories" in items:
        k = items["item_n_categories"].values[at].astype(np.int64)
    elif steps := [v for v in _STEPS if v in items]:
        k = np.maximum(1 + np.isfinite(items[steps[0]].values[at]).sum(axis=1), 2)
    for j in np.flatnonzero((k > 2) & ~np.isin(names, tuple(FAMILIES))):
        given = f"the item_model {names[j]!r}, which has two" if names[j] else "no item_model"
        raise InputError(
            f"{what}: item {item_id[j]} has {k[j]} categories and {given}; give one of "
            f"{', '.join(FAMILIES)}"
        )
    return names, k


def category_maps(items: xr.Dataset, at: Ints, n_categories: Ints) -> dict[int, tuple[int, ...]]:
    """Numbers of the categories of those items that have empty ones, by their places in ``at``."""
    if "item_category_map" not in items:
        return {}
    if "item_n_categories" not in items:
        raise InputError("item_category_map says nothing without item_n_categories")
    given = items["item_category_map"].values[at].astype(int)
    each = ((j, tuple(given[j, :k].tolist())) for j, k in enumerate(n_categories))
    return {j: own for j, own in each if own != tuple(range(len(own)))}


def _of_two(
    items: xr.Dataset, at: Ints, those: Ints, item_id: tuple[str, ...], what: str, checked: bool
) -> list[Group]:
    """Items of two categories by model."""
    known = _variables(items, at[those], what)
    kind = np.full(those.size, -1)
    for k, model in enumerate(KINDS):
        kind[(kind < 0) & _describes(model, known)] = k
    lost = kind < 0
    for j in np.flatnonzero(lost & np.all([np.isfinite(v) for v in known.values()], axis=0)):
        own = ", ".join(n for n, v in known.items() if v[j] != _NEUTRAL.get(n))
        raise InputError(f"{what}: item {item_id[those[j]]} has {own}: no model has all of these")
    kind[lost] = len(KINDS) - 1  # not numbers
    groups = []
    for k in np.unique(kind):
        own = those[kind == k]
        x = _columns(KINDS[k], known)[:, kind == k]
        if checked:
            _refuse_bad(KINDS[k], x, [item_id[j] for j in own], what)
        groups.append(Group(KINDS[k], own, x))
    return groups


def _of_more(items: xr.Dataset, at: Ints, model: ItemModel, what: str) -> Floats:
    """Parameters of items of one model and number of categories, (parameters, items)."""
    steps = model.n_categories - 1
    slope = np.ones(at.size)
    if "item_discrimination" in items:
        slope = items["item_discrimination"].values[at].astype(float)
    if model.name == "nominal":
        if "item_category_score" not in items:
            raise InputError(f"{what} has items of model nominal, and no item_category_score")
        scores = items["item_category_score"].values[at, 1 : steps + 1].astype(float).T
    else:
        scores = np.multiply.outer(numbers(model), slope)
    for name in _STEPS:
        if name in items:
            given = items[name].values[at, :steps].astype(float).T
            break
    else:
        raise InputError(f"{what} has items of more than two categories, and no {_STEPS[0]}")
    if name == "item_step_difficulty":
        if model.steps == ADJACENT:
            there = np.array(model.category_map[1:]) > 0
            rises = np.diff(numbers(model)[there], prepend=0.0)
            given[there] = (rises[:, None] * given[there]).cumsum(axis=0)
        given = -slope * given
    return model.of_steps(scores, given)


def numbers(model: ItemModel) -> Floats:
    """Numbers of the categories but the first, by which discriminations are multiplied."""
    return np.array(model.category_map[1:], dtype=float)


def _variables(items: xr.Dataset, at: Ints, what: str) -> dict[str, Floats]:
    """Parameters by variable, those that may be left out filled in."""
    names = {p.variable for m in KINDS for p in m.parameters}
    known = {n: items[n].values[at].astype(float) for n in names if n in items}
    known.setdefault("item_discrimination", np.ones(len(at)))
    if "item_intercept" not in known:
        if "item_step_intercept" in items:
            known["item_intercept"] = items["item_step_intercept"].values[at, 0].astype(float)
            return known
        if "item_difficulty" not in items:
            raise InputError(f"{what} has neither item_intercept nor item_difficulty")
        b = items["item_difficulty"].values[at].astype(float)
        known["item_intercept"] = -known["item_discrimination"] * b
    return known


def _describes(model: ItemModel, known: dict[str, Floats]) -> Bools:
    """Items whose parameters beyond those of the model are at their neutral values."""
    own = {p.variable for p in model.parameters}
    out = np.ones(known["item_discrimination"].size, dtype=bool)
    for p in (p for m in KINDS for p in m.parameters if p.variable not in own):
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


def _refuse_bad(model: ItemModel, x: Floats, ids: Sequence[str], what: str) -> None:
    with np.errstate(invalid="ignore"):
        bad = np.flatnonzero(~(np.isfinite(x).all(axis=0) & model.valid(x)))
    if bad.size:
        j = bad[0]
        raise InputError(f"{what}: item {ids[j]} has {model.in_words(x[:, j])}; {model.rule}")
    if model.log_odds or model.asymptotes:
        logit = np.abs(x[0]) * GRID_BOUND + np.abs(x[1])
    else:
        logit = model.farthest(x, np.array([-GRID_BOUND, GRID_BOUND]))
    if logit.size and logit.max() > LARGEST_LOGIT:
        j = int(logit.argmax())
        raise InputError(
            f"{what}: item {ids[j]} has {model.in_words(x[:, j])}: its logit (or -log P) reaches "
            f"{logit[j]:.0f} for abilities up to {GRID_BOUND:.0f}, and probabilities are computed "
            f"up to {LARGEST_LOGIT:.0f}"
        )


def models_of(items: xr.Dataset, item_id: tuple[str, ...]) -> NDArray[np.str_] | None:
    """Names of the models that items were fitted by, where their fit says it of each."""
    if "item_model" not in items:
        return None
    return items["item_model"].values[_positions(items, item_id, "items")].astype(str)


class _OfCategories(Protocol):
    """Items that know their numbers of categories."""

    @property
    def n_categories(self) -> Ints: ...


def refuse_other_categories(
    found: _OfCategories, n_categories: Sequence[int], item_id: Sequence[str], what: str
) -> None:
    """Stop at items that have other categories in the responses than in a fit or a bank."""
    differ = np.flatnonzero(found.n_categories != np.array(n_categories))
    if differ.size:
        j = differ[0]
        two = ""
        if (found.n_categories[differ] == 2).all():
            two = "; or take them as right and wrong by responses.dichotomise(at=...)"
        raise InputError(
            f"{differ.size} item(s) have other categories in {what} than in the responses: "
            f"{item_id[j]} has {found.n_categories[j]} there and {n_categories[j]} here; declare "
            f"them by categories=, or trials= where they are k of n attempts, where the responses "
            f"come from{two}"
        )


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


#: How identifications begin that fix the items' mean, not the abilities'.
_ITEMS_AT_ZERO = ("mean difficulty", "mean of all step difficulties 0")


def calibration_groups(items: xr.Dataset) -> int:
    """Groups of persons that items were calibrated with; 0 if ability was N(0, 1) for everybody.

    On a scale of mean difficulty 0 the persons are where they are: one group, not N(0, 1).
    """
    if "group_mean" in items and "group_sd" in items:
        mean, sd = items["group_mean"].values, items["group_sd"].values
        standard = mean.size == 1 and max(abs(mean[0]), abs(sd[0] - 1.0)) < 1e-6
        return 0 if standard else int(mean.size)
    of_items = str(items.attrs.get("identification", "")).startswith(_ITEMS_AT_ZERO)
    return max(int(items.attrs.get("calibration_groups", 0)), int(of_items))


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
    items = of_one_draw(items)
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
