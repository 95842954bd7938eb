"""Items of the responses that the bank does not have."""

from __future__ import annotations

import warnings

import xarray as xr

from irt_dask.errors import InputError, Notice, listed
from irt_dask.items.parameters import bank_item_ids
from irt_dask.store import Responses

_LISTED = 10


def of_bank(responses: Responses, items: xr.Dataset, unknown_items: str) -> Responses:
    """The responses to the items of the bank; others are an error, or ignored with a notice."""
    there = set(bank_item_ids(items))
    outside = [i for i in responses.item_id if i not in there]
    if not outside:
        return responses
    text = f"{len(outside)} item(s) of the responses are not in items"
    if unknown_items == "raise":
        raise InputError(
            f"{text}: {', '.join(outside[:20])}; calibrate them, or leave them out: "
            f"unknown_items='ignore'"
        )
    inside = [i for i in responses.item_id if i in there]
    if not inside:
        raise InputError(f"none of the responses' {len(outside)} item(s) is in items")
    warnings.warn(
        f"{text} and are ignored: {listed(outside, _LISTED)}; abilities rest on the other "
        f"{len(inside)}",
        Notice,
        stacklevel=4,
    )
    return responses.select(items=inside)
