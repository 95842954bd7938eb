"""What users pass in: responses and options, checked the same way by every method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from irt_dask.errors import InputError
from irt_dask.store import Responses, from_array
from irt_dask.store.empty_categories import without
from irt_dask.store.freed_items import under_their_names


def as_responses(
    responses: Any, method: str, *, graded: bool = False, items: Any = None, what: str = "items"
) -> Responses:
    """Return Responses as they are, and anything else through ``from_array``.

    The entrance of every public method, under its name.  Items of more than two categories are
    refused unless the method says that it knows them: ``graded``.  Of ``items``, a fit or a bank,
    empty categories are known, and a response of one of them stops whoever reads it; items that
    were freed in a group are that group's (:func:`irt_dask.with_freed_items`).
    """
    responses = responses if isinstance(responses, Responses) else from_array(responses)
    if not graded:
        refuse_graded(responses, method)
    if isinstance(items, xr.Dataset):
        responses = under_their_names(responses, items, method)
    if isinstance(items, xr.Dataset) and {"item_category_map", "item_n_categories"} <= {*items}:
        return without(responses, _empty(items), what)
    return responses


def _empty(items: xr.Dataset) -> dict[str, list[int]]:
    """Categories without a response of the items that have such, by identifier."""
    each = zip(
        items["item_id"].values, items["item_category_map"].values,
        items["item_n_categories"].values, strict=True,
    )  # fmt: skip
    found = {str(i): np.flatnonzero(own[: int(k)] < 0).tolist() for i, own, k in each}
    return {i: codes for i, codes in found.items() if codes}


#: What some methods are told beside leaving items out, for Python.
_MARGINAL = "calibrate them by fit_marginal with model='graded', model='gpcm', ..."
_KNOWING = {
    **dict.fromkeys(("fit_bayes", "fit_joint", "fit_spectral"), _MARGINAL),
    "fit_pairwise": f"{_MARGINAL}, or by fit_conditional with model='pcm'",
    "fit_conditional": "say model='pcm' or model='rating'",
}


def refuse_graded(responses: Responses, method: str, also: str | None = None) -> None:
    """Stop if some items have more than two categories and the method knows two.

    Nothing has been read then.  Kernels check no bounds, and those for two categories would read
    and write beyond their tables.  ``also`` says what would know more, if not its name.
    """
    if responses.graded:
        each = zip(responses.item_id, responses.n_categories, strict=True)
        named = [f"{item} ({k})" for item, k in each if k > 2]
        also = also or _KNOWING.get(method)
        other = f"{also}, or " if also else ""
        raise InputError(
            f"{method} is for items of two categories (wrong and right), and {len(named)} of these "
            f"{responses.n_items} have more: {', '.join(named[:5])}{' ...' * (len(named) > 5)}; "
            f"{other}leave them out by responses.select(items=[...]), or count their higher "
            f"categories as right by responses.dichotomise(at=...)"
        )


def refuse_weights(responses: Responses, method: str) -> None:
    """Stop if the persons carry weights and the method has no use for them."""
    if responses.max_weight is not None:
        other = "use a method that does (fit_marginal), or " if method.startswith("fit_") else ""
        raise InputError(
            f"{method} does not support person weights, and these responses have "
            f"{responses.weight_kind} weights; {other}count "
            f"every person once: select the responses with weights='ignore'"
        )


def one_of(name: str, value: Any, known: Sequence[str]) -> None:
    """Stop at an option that is none of those that are known."""
    if value not in known:
        raise InputError(f"{name}={value!r} is not available; choose one of {', '.join(known)}")


def check_level(level: Any, name: str = "level") -> None:
    """Stop at a confidence level, or a rate, that is none."""
    number = isinstance(level, (int, float, np.integer, np.floating))
    if not (number and 0.0 < level < 1.0):
        usual = "0.95" if name == "level" else "0.05"
        raise InputError(f"{name}={level!r} must be a number between 0 and 1, such as {usual}")


def whole_number(name: str, value: Any, least: int | None = None) -> int:
    """Return an option as an integer; InputError if it is none, or below ``least``."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or (least is not None and value < least):
        bound = "" if least is None else f" of at least {least}"
        raise InputError(f"{name}={value!r} must be a whole number{bound}")
    return int(value)
