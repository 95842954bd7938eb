"""Which item models a Bayesian fit is asked for, and what results say of them."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from irt_dask.arrays import Floats, Ints
from irt_dask.calibrate.bayes.item_density import Shapes
from irt_dask.calibrate.shared.shape_priors import guessing_priors, in_words
from irt_dask.calibrate.shared.start_values import ResponseCounts, items_with, name_some
from irt_dask.curves import FAMILIES, MODELS, model_named
from irt_dask.engine import Engine
from irt_dask.errors import DataWarning, InputError
from irt_dask.items import checks
from irt_dask.items.mixture import mixture_named

#: Start values of coordinates of shapes are within these: those of an asymptote at 0 have no end.
_START = 4.0


def asked(
    model: str | Mapping[str, str], item_id: Sequence[str], n_categories: Sequence[int],
    prior: tuple[float, float] | None, n_dims: int, sampler: str | None, *, signed: bool = False,
) -> Shapes:  # fmt: skip
    """Models of the items, with priors of their asymptotes; InputError if they are not available.

    Or not with what else is asked.
    """
    models = mixture_named(model, item_id, n_categories)
    shapes = Shapes(models, guessing_priors(models, prior), signed=signed)
    _refuse_others(shapes, model, n_dims, sampler)
    if shapes.scored and not signed:
        raise InputError(
            f"model={model!r}: scores of nominal items may have any sign, and so have slopes of "
            f"all items beside them: give positive='none'"
        )
    if signed and models.shares:
        names = sorted({p.model.name for p in models.parts if p.model.shared})
        raise InputError(
            f"positive='none' lets each slope have a sign of its own; items of "
            f"{', '.join(names)} share one slope: use 2pl or gpcm"
        )
    return shapes


def is_2pl(shapes: Shapes) -> bool:
    """Whether all items are of the 2PL, which has chains of its own."""
    return shapes.models.only is model_named("2pl")


def _refuse_others(
    shapes: Shapes, model: str | Mapping[str, str], n_dims: int, sampler: str | None
) -> None:
    for part in shapes.models.parts:
        if not part.model.without_bounds:
            names = (*MODELS, *FAMILIES)
            known = [n for n in names if model_named(n, 2 if n in MODELS else 3).without_bounds]
            raise InputError(
                f"model={model!r}: {part.model.name} is not available in fit_bayes, which has "
                f"{', '.join(known)} and mixtures of these; use fit_marginal"
            )
    if is_2pl(shapes):
        return
    if n_dims > 1:
        raise InputError(f"model={model!r} is for one ability; several are for model='2pl'")
    if sampler not in (None, "grid"):
        raise InputError(f"sampler={sampler!r} is for model='2pl'; others are for sampler='grid'")


def inside(shapes: Shapes, x: Floats) -> Floats:
    """Coordinates of start values, none of them without end."""
    with np.errstate(divide="ignore"):
        y = shapes.of(x)
    models, y = shapes.models, np.concatenate([y[:2], np.clip(y[2:], -_START, _START)])
    for k in np.unique(models.of_all[models.of_all >= 0]):  # of other fits they may differ
        y[models.of_all == k] = y[models.of_all == k].mean()
    return models.tied(y)


def name(model: str | Mapping[str, str], n_dims: int) -> str:
    """What the model is called in the attributes."""
    if n_dims > 1:
        return "m2pl"
    return model if isinstance(model, str) else "by item"


def described(shapes: Shapes, data: dict[str, Any]) -> dict[str, Any]:
    """Models and categories of the items, where they are not of one model and two categories.

    Of a slope that is shared also what is said of it: sums may differ in their last bits.
    """
    models, first = shapes.models, shapes.models.first_of[0]
    slopes = [k for k in data if k.startswith("item_discrimination") and models.shares]
    out = {k: data[k][..., first] for k in slopes}
    if models.only is not None and models.only.name in MODELS:
        return out
    return out | {"item_model": models.names, "item_n_categories": models.n_categories}


def of_items(
    engine: Engine, combined: dict[str, Any], shapes: Shapes, counts: ResponseCounts
) -> dict[str, Any]:
    """What is said of the items, flags too."""
    data = combined | {"item_n_responses": counts.seen, "item_n_right": counts.right}
    data |= described(shapes, data)
    if shapes.signed:
        below = data["item_discrimination_draw"] < 0.0
        ordered = shapes.models.names != "nominal"  # else the codes say nothing of more or less
        data["item_negative_probability"] = np.where(ordered, below.mean(axis=0), np.nan)
    wrong, score = counts.of_each[:, 0], counts.score(shapes.models.n_categories)
    known = _with_difficulties(data) if shapes.signed else data
    of_fit = functools.partial(checks.of_fit, one_slope=shapes.models.of_all[0] >= 0)
    return data | {"item_flag": of_fit(engine, known, wrong=wrong, score=score)}


def _with_difficulties(data: dict[str, Any]) -> dict[str, Any]:
    """The items with -d / a of the means, and its error by the delta method, where b is NaN.

    Errors of a and d are taken as independent, which is good enough for flags: that a slope may
    have either sign is no flag of its own.
    """
    a, d, sd_a, sd_d = (
        data[f"item_{name}"]
        for name in ("discrimination", "intercept", "discrimination_sd", "intercept_sd")
    )
    b, known = -d / a, np.isfinite(data["item_difficulty"])
    sd = np.sqrt(sd_d**2 + (b * sd_a) ** 2) / np.abs(a)
    return data | {
        "item_difficulty": np.where(known, data["item_difficulty"], b),
        "item_difficulty_sd": np.where(known, data["item_difficulty_sd"], sd),
    }


def about(shapes: Shapes, data: dict[str, Any], n_dims: int) -> dict[str, Any]:
    """Attributes that say which priors shapes had, and how many items of one ability are flat."""
    flat = int(checks.has(data["item_flag"], {"flat"}).sum())
    of_all = {"n_flat_items": flat if n_dims == 1 else None}
    return of_all | in_words(shapes.models, shapes.betas)


def warn_null_categories(shapes: Shapes, item_id: tuple[str, ...], n: Ints) -> None:
    """Warn of categories that nobody has, of whose steps priors alone speak."""
    k, n = shapes.models.n_categories, shapes.models.in_common(n)
    null = (n == 0) & (np.arange(n.shape[1]) < k[:, None]) & (k > 2)[:, None]
    if null.any():
        those = items_with(item_id, null)
        warnings.warn(
            f"{len(those)} item(s) have a category that nobody has: what is said of the steps to "
            f"and from it is the prior's: {name_some(those)}",
            DataWarning,
            stacklevel=3,
        )
