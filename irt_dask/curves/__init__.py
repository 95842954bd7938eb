"""Item models: all that a method needs to know of an item, as functions of ability.

A model is one class of :class:`irt_dask.curves.base.ItemModel`, in a file of its own, and one entry
of :data:`MODELS`.  Pure NumPy, (items, categories, nodes) at a time, never a person.
"""

from __future__ import annotations

from irt_dask.curves.base import ItemModel, Parameter
from irt_dask.curves.guessing import ThreeParameters
from irt_dask.curves.logistic import OneSlope, TwoParameters
from irt_dask.curves.upper import FourParameters
from irt_dask.errors import InputError

__all__ = ["MODELS", "MORE_PARAMETERS", "ItemModel", "Parameter", "check_model", "model_named"]

#: Models by name, those with fewer parameters first.
MODELS: dict[str, ItemModel] = {
    m.name: m for m in (OneSlope(), TwoParameters(), ThreeParameters(), FourParameters())
}
#: Parameters that items of some model have beside slope and intercept.
MORE_PARAMETERS: tuple[Parameter, ...] = tuple(
    dict.fromkeys(p for m in MODELS.values() for p in m.parameters if p.neutral is not None)
)


def model_named(name: str) -> ItemModel:
    """Return a model; InputError for a name that there is none of."""
    return MODELS[check_model(name, tuple(MODELS))]


def check_model(model: str, known: tuple[str, ...]) -> str:
    """Return ``model`` if the calling method has it, else say which ones exist."""
    if model not in known:
        raise InputError(f"model={model!r} is not available here; choose one of {', '.join(known)}")
    return model
