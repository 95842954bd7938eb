"""Item models: all that a method needs to know of an item, as functions of ability.

A model is one class of :class:`irt_dask.curves.base.ItemModel`, in a file of its own, and one entry
of :data:`MODELS`, or of :data:`FAMILIES` if its items may have more than two categories.  Pure
NumPy, (items, categories, nodes) at a time, never a person.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

from irt_dask.curves.base import ItemModel, Parameter
from irt_dask.curves.binomial import Binomial
from irt_dask.curves.gaps import WithGaps
from irt_dask.curves.graded import Graded
from irt_dask.curves.guessing import ThreeParameters
from irt_dask.curves.logistic import OneSlope, TwoParameters
from irt_dask.curves.nominal import Nominal
from irt_dask.curves.partial_credit import GeneralisedPartialCredit, PartialCredit, RatingScale
from irt_dask.curves.upper import FourParameters
from irt_dask.errors import InputError

__all__ = [
    "FAMILIES",
    "MODELS",
    "MORE_PARAMETERS",
    "ItemModel",
    "Parameter",
    "check_model",
    "model_named",
]

#: Models of items with two categories by name, those with fewer parameters first.
MODELS: dict[str, ItemModel] = {
    m.name: m for m in (OneSlope(), TwoParameters(), ThreeParameters(), FourParameters())
}
#: Models of items with any number of categories, which they are made for.
FAMILIES: dict[str, Callable[..., ItemModel]] = {
    f.name: f
    for f in (Graded, GeneralisedPartialCredit, PartialCredit, RatingScale, Nominal, Binomial)
}
#: Parameters that items of two categories have in some model beside slope and intercept.
MORE_PARAMETERS: tuple[Parameter, ...] = tuple(
    dict.fromkeys(p for m in MODELS.values() for p in m.parameters if p.neutral is not None)
)


@functools.cache
def model_named(
    name: str, n_categories: int = 2, category_map: tuple[int, ...] | None = None
) -> ItemModel:
    """Return a model for items of so many categories; InputError if there is none.

    ``category_map`` says which of them are empty, see :class:`ItemModel`; None: none.
    """
    check_model(name, (*MODELS, *FAMILIES))
    if category_map is not None and category_map != tuple(range(n_categories)):
        return _with_gaps(name, n_categories, category_map)
    if name in FAMILIES:
        return FAMILIES[name](n_categories)
    if n_categories != 2:
        raise InputError(
            f"model={name!r} is for items of two categories, not {n_categories}; choose one of "
            f"{', '.join(FAMILIES)}"
        )
    return MODELS[name]


def _with_gaps(name: str, n_categories: int, category_map: tuple[int, ...]) -> ItemModel:
    numbers = tuple(k for k in category_map if k >= 0)
    made: Any = FAMILIES.get(name)
    apart = numbers != tuple(range(len(numbers)))
    rising = all(a < b for a, b in itertools.pairwise(numbers))
    right = made is not None and len(category_map) == n_categories > 2 and min(category_map) >= -1
    right = right and len(numbers) >= 2 and numbers[0] == 0 and rising
    if not right or (apart and not getattr(made, "numbered", False)):
        words = ", ".join(map(str, category_map))
        raise InputError(
            f"the category map {words} does not fit an item of model {name} with {n_categories} "
            f"categories: it has the number of each category, -1 for an empty one; numbers rise "
            f"from 0 (gpcm, pcm, rating: they may leave some out), and two at least are there"
        )
    inner = made(len(numbers), numbers) if apart else made(len(numbers))
    return WithGaps(inner, category_map)


def check_model(model: str, known: tuple[str, ...]) -> str:
    """Return ``model`` if the calling method has it, else say which ones exist."""
    if model not in known:
        raise InputError(f"model={model!r} is not available here; choose one of {', '.join(known)}")
    return model
