"""What the caller of an adaptive test says: when it ends, and answers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from irt_dask.engine.inputs import whole_number
from irt_dask.errors import InputError
from irt_dask.selection.bank_tables import Bank


@dataclass(frozen=True)
class Stops:
    """When a test ends; None: not for this reason."""

    max_items: int | None
    min_items: int
    ability_se: float | None
    total_se: float | None


def stops_of(max_items: Any, min_items: Any, ability_se: Any, total_se: Any) -> Stops:
    """Read and check the rules by which a test ends."""
    if max_items is not None:
        max_items = whole_number("max_items", max_items, 1)
    min_items = whole_number("min_items", min_items, 0)
    if max_items is not None and min_items > max_items:
        raise InputError(f"min_items={min_items} is above max_items={max_items}")
    for name, value in (("ability_se", ability_se), ("total_se", total_se)):
        number = isinstance(value, (int, float, np.integer, np.floating))
        if value is not None and not (number and 0.0 < value < math.inf):
            raise InputError(f"{name}={value!r} must be a number above 0, or None")
    return Stops(max_items, min_items, ability_se, total_se)


def code_of(value: Any, name: str, bank: Bank, place: int) -> int:
    """The category of an answer, which the question has."""
    k = int(bank.items.n_categories[place])
    whole = isinstance(value, (bool, np.bool_, int, np.integer)) or (
        isinstance(value, (float, np.floating)) and float(value).is_integer()
    )
    if not (whole and 0 <= value < k):
        raise InputError(
            f"item {name!r}: the answer {value!r} is no category; give 0 to {k - 1} (what was "
            f"asked and not answered counts as 0)"
        )
    if bank.items.empty[bank.items.first[place] + int(value)]:
        raise InputError(
            f"item {name!r}: the category {int(value)} was empty when the items were calibrated, "
            f"and has probability 0; recode it to one that has answers, or calibrate anew"
        )
    return int(value)
