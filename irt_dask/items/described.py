"""Items as results name them: variables, and their gradients by the parameters of the models."""

from __future__ import annotations

import numpy as np

from irt_dask.arrays import Floats
from irt_dask.items.mixture import Mixture

#: Values with items last, (items,), (steps, items) or (categories, items); gradients with the
#: models' parameters before them.
Described = dict[str, tuple[Floats, Floats]]


def described(mixture: Mixture, x: Floats, mean: float = 0.0, sd: float = 1.0) -> Described:
    """Variables of items on the scale ``(theta - mean) / sd`` and gradients by x, (.., parameters).

    Those of steps only where some item has more than two categories, or nominal ones; NaN beyond
    an item's.
    """
    most = int(mixture.n_categories.max())
    new, out = mixture.rescaled(x, mean, sd), _empty(mixture, x, most)
    stepwise = "item_step_intercept" in out
    for part in mixture.parts:
        model, own = part.model, mixture.own(part, new)
        rescaling, size = model.rescaling(mean, sd), len(model.parameters)
        found = {
            "item_discrimination": model.slope(own),
            "item_difficulty": model.difficulty(own),
            "item_intercept": model.intercept(own),
        }
        if stepwise:
            found["item_step_intercept"] = model.step_intercepts(own)
            found["item_step_difficulty"] = model.step_difficulties(own)
            found["item_threshold"] = model.thresholds(own)
        if model.name == "nominal":
            found["item_category_score"] = model.category_scores(own)
        for k, p in enumerate(model.parameters):
            if p.neutral is not None:
                found[p.variable] = own[k], _only(k, own)
        for name, (value, gradient) in found.items():
            values, gradients = out[name]
            with np.errstate(invalid="ignore"):  # steps that are nowhere, or everywhere
                by_old = np.swapaxes(np.swapaxes(gradient, -1, -2) @ rescaling, -1, -2)
            if value.ndim == 1:
                values[part.at], gradients[:size, part.at] = value, by_old
            else:
                values[: len(value), part.at] = value
                gradients[: len(value), :size, part.at] = by_old
    return out


def _empty(mixture: Mixture, x: Floats, most: int) -> Described:
    """Nothing known yet: neutral values of what some items have, NaN of the rest."""
    m = mixture.n_items
    more = {p.variable: p.neutral for p in mixture.parameters if p.neutral is not None}
    shape: dict[str, tuple[int, ...]] = {
        "item_discrimination": (m,), "item_difficulty": (m,), "item_intercept": (m,),
    }  # fmt: skip
    shape |= dict.fromkeys(more, (m,))
    nominal = any(p.model.name == "nominal" for p in mixture.parts)
    if most > 2 or nominal:
        steps = ("item_step_intercept", "item_step_difficulty", "item_threshold")
        shape |= dict.fromkeys(steps, (most - 1, m))
    if nominal:
        shape["item_category_score"] = (most, m)
    return {
        name: (np.full(s, more.get(name, np.nan)), np.zeros((*s[:-1], *x.shape)))
        for name, s in shape.items()
    }


def _only(k: int, x: Floats) -> Floats:
    out = np.zeros_like(x)
    out[k] = 1.0
    return out
