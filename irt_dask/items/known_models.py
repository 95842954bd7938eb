"""Parameters of items whose models are known: those of a method, or of the other items of a fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import xarray as xr

from irt_dask.arrays import Floats
from irt_dask.curves import MODELS, ItemModel
from irt_dask.curves.item_set import Group, ItemSet
from irt_dask.errors import InputError
from irt_dask.items.mixture import Mixture
from irt_dask.items.parameters import KINDS, item_set, numbers


def parameters(
    items: xr.Dataset, item_id: tuple[str, ...], model: str = "2pl", *, what: str = "items",
    signed: bool = False,
) -> tuple[Floats, ...]:  # fmt: skip
    """Parameters of one model, in its order, for methods that know this one alone.

    Items of simpler models have the neutral value of what they lack; others are refused, and
    negative discriminations unless ``signed``.
    """
    own = MODELS[model].parameters
    found = item_set(items, item_id, what=what)
    if not signed:
        refuse_falling(found, item_id, what)
    for g in found.groups:
        if g.model.name not in MODELS:
            raise InputError(
                f"{what}: item {item_id[g.at[0]]} is of model {g.model.name} with "
                f"{g.model.n_categories} categories, and items of the "
                f"{', '.join(m.name.upper() for m in MODELS.values())} are meant here; leave it out"
            )
        more = [k for k, p in enumerate(g.model.parameters) if p not in own]
        if more:
            p = g.model.parameters[more[0]]
            remedy = f"models with it are not available here, fit the {model.upper()}"
            if what == "fixed_items":  # beside which others are estimated, by a model of choice
                having = [m.name for m in KINDS if {*g.model.parameters} <= {*m.parameters}]
                named = " or ".join(f"model={name!r}" for name in having)
                remedy = f"choose a model that has it ({named}), or leave this item out of the bank"
            raise InputError(
                f"{what}: item {item_id[g.at[0]]} has the {p.name} {g.x[more[0], 0]:.3g}; {remedy}"
            )
    return tuple(found.column(p) for p in own)


def parameters_of(
    models: Mixture, items: xr.Dataset, item_id: Sequence[str], *, what: str, strict: bool = False,
    signed: bool = False,
) -> Floats:  # fmt: skip
    """Parameters (parameters, items) of items whose models are known.

    Of two categories: those of simpler models have the neutral value of what they lack; if
    ``strict`` (they stay as they are), others are refused, else what is too much is dropped.
    Where a search starts from them negative discriminations are refused unless it is ``signed``.
    """
    x = np.zeros((models.size, models.n_items))
    for part in models.parts:
        ids, size = tuple(item_id[j] for j in part.at), len(part.model.parameters)
        if part.model.name in MODELS:
            if strict:
                found = parameters(items, ids, part.model.name, what=what, signed=True)
            else:
                as_given = item_set(items, ids, what=what)
                _refuse_others(as_given, part.model, ids, what)
                if not signed:
                    refuse_falling(as_given, ids, what)
                found = tuple(as_given.column(p) for p in part.model.parameters)
            x[:size, part.at] = np.stack(found)
            continue
        for g in item_set(items, ids, what=what).groups:
            _refuse_others(ItemSet((g,)), part.model, tuple(ids[j] for j in g.at), what)
            own = tuple(ids[j] for j in g.at)
            if not (strict or signed or part.model.name == "nominal"):
                refuse_falling(ItemSet((g._replace(at=np.arange(len(own))),)), own, what)
            taken = _as_of(part.model, g, own, what, strict)
            x[:size, part.at[g.at]] = _as_written(part.model, items, own, taken)
    return x


def _as_written(model: ItemModel, items: xr.Dataset, ids: tuple[str, ...], x: Floats) -> Floats:
    """To the last bit as they are written, where a bank has them beside the steps they make."""
    names = [p.variable for p in model.parameters]
    if any(n not in items or items[n].ndim != 1 for n in names):
        return x
    place = {str(i): k for k, i in enumerate(items["item_id"].values)}
    at = [place[i] for i in ids]
    given = np.stack([items[n].values[at].astype(float) for n in names])
    return np.where(np.isclose(given, x, rtol=1e-9, atol=1e-12), given, x)


def _as_of(model: ItemModel, g: Group, ids: tuple[str, ...], what: str, strict: bool) -> Floats:
    """Parameters of a model of steps for given items; if ``strict`` their curves are the same."""
    scores, steps = _scores(g.model, g.x), g.model.step_intercepts(g.x)[0]
    x = model.of_steps(scores, steps)
    if strict:
        again = _scores(model, x), model.step_intercepts(x)[0]
        same = [np.isclose(*pair, rtol=1e-9, atol=1e-12, equal_nan=True).all(axis=0)
                for pair in zip(again, (scores, steps), strict=True)]  # fmt: skip
        other = np.flatnonzero(~(same[0] & same[1] & model.valid(x)) | bool(g.model.asymptotes))
        if other.size:
            raise InputError(
                f"{what}: item {ids[other[0]]} is of model {g.model.name}, and no item of model "
                f"{model.name} has its curves; give that model, for this item by "
                f"model={{item: name}}, or leave it out of {what}"
            )
    return x


def _scores(model: ItemModel, x: Floats) -> Floats:
    """Scores of the higher categories, (steps, items); of graded items and guessing a, 2 a, ..."""
    scores = model.scores(x)
    if scores is None:
        return np.multiply.outer(numbers(model), x[0])
    return scores.T[1:] - scores.T[:1]


def refuse_falling(given: ItemSet, ids: Sequence[str], what: str) -> None:
    """Stop at negative discriminations, for methods whose items all rise with ability."""
    slope = given.slope()
    falling = np.flatnonzero(slope < 0.0)
    if falling.size:
        j = falling[0]
        raise InputError(
            f"{what}: item {ids[j]} has the discrimination {slope[j]:.6g}, and here "
            f"discriminations are positive; reverse the scoring of the item, or leave it out"
        )


def _refuse_others(given: ItemSet, model: ItemModel, ids: tuple[str, ...], what: str) -> None:
    """Stop at items that no parameters of the model describe."""
    for g in given.groups:
        alike = g.model.steps == model.steps
        if model.name in MODELS:
            alike = g.model.name in MODELS
        if g.model.n_categories != model.n_categories or not alike:
            raise InputError(
                f"{what}: item {ids[g.at[0]]} is of model {g.model.name} with "
                f"{g.model.n_categories} categories, and here it is of model {model.name} with "
                f"{model.n_categories}; give that model, for this item by model={{item: name}}, "
                f"or leave it out of {what}"
            )
        if g.model.category_map != model.category_map:
            raise InputError(
                f"{what}: item {ids[g.at[0]]} has the category map {words(g.model.category_map)} "
                f"(-1: an empty category), and here it has {words(model.category_map)}; leave it "
                f"out of {what}"
            )


def words(category_map: Iterable[int]) -> str:
    """Numbers of categories for a message."""
    return ", ".join(map(str, category_map))
