"""Which items two banks have in common, and what keeps them from linking the banks."""

from __future__ import annotations

import numpy as np
import xarray as xr

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.curves.item_set import ItemSet
from irt_dask.errors import EstimationError, InputError, listed
from irt_dask.items import checks
from irt_dask.items.known_models import words
from irt_dask.items.mixture import Mixture
from irt_dask.items.parameters import bank_item_ids
from irt_dask.variables import as_labels

#: Common items from which on the order of their difficulties says whether the scales agree.
_LEAST_FOR_ORDER = 3


def common(bank_a: xr.Dataset, bank_b: xr.Dataset) -> tuple[str, ...]:
    """Identifiers that both banks have, in the order of bank_b; an error if they are too few.

    Items that are freed in a group are left out: they are what the group's persons alone made of an
    item that is there already, and drift with it.
    """
    known, of_b = set(bank_item_ids(bank_a, "bank_a")), bank_item_ids(bank_b, "bank_b")
    freed = freed_in_groups(bank_a) | freed_in_groups(bank_b)
    common = tuple(i for i in of_b if i in known - freed)
    if len(common) < 2:
        but = " that are common to all groups" if freed else ""
        raise InputError(
            f"the banks have {len(common)} item(s) in common{but} and linking needs at least 2; "
            f"items are matched by item_id"
        )
    return common


def freed_in_groups(bank: xr.Dataset) -> set[str]:
    """Items that a concurrent calibration freed in a group."""
    if "item_freed_group" not in bank:
        return set()
    ids, group = bank["item_id"].values, as_labels(bank["item_freed_group"].values)
    return {str(i) for i, g in zip(ids, group, strict=True) if g}


def check_order(b_a: Floats, b_b: Floats) -> None:
    """Stop if items that are hard in one bank are easy in the other."""
    if b_a.size < _LEAST_FOR_ORDER or b_a.std() == 0.0 or b_b.std() == 0.0:
        return
    r = float(np.corrcoef(b_a, b_b)[0, 1])
    if r < 0.0:
        raise EstimationError(
            f"the difficulties of the {b_a.size} common items correlate {r:.2f} between the banks, "
            f"and a link needs the same order: check that the same item_id means the same item and "
            f"that no bank is scored in reverse"
        )


def sound(bank_a: xr.Dataset, bank_b: xr.Dataset, common: tuple[str, ...]) -> Bools:
    """Which common items link the banks; warns of the others."""
    flags = [checks.unsound(bank, common) for bank in (bank_a, bank_b)]
    reasons = {
        i: ", ".join(
            f"{f} in {name}" for f, name in zip(of, ("bank_a", "bank_b"), strict=True) if f
        )
        for i, *of in zip(common, *flags, strict=True)
        if any(of)
    }
    used = np.array([i not in reasons for i in common])
    if used.sum() < 2:
        raise EstimationError(
            f"{int(used.sum())} of the {len(common)} common items can link the banks, and at least "
            f"2 must; the others are flagged: {checks.reasons_in_words(reasons)}"
        )
    checks.left_out(
        reasons, len(common), "in common do not link the banks, being flagged", stacklevel=3
    )
    return used


def check_signs(one: ItemSet, two: ItemSet, common: list[str]) -> None:
    """Stop at items that rise with ability in one bank and fall in the other."""
    at = np.flatnonzero(~(nominal(one) | nominal(two)))
    differ = at[one.slope()[at] * two.slope()[at] < 0.0]
    if differ.size:
        remedy = "leave them out of one bank, or reverse their scoring in it"
        if differ.size == at.size:
            remedy = (
                "one of the banks is scored in reverse, or its ability runs the other way (its a "
                "and b have other signs then)"
            )
        raise InputError(
            f"the discriminations of {differ.size} of {at.size} common items have other signs in "
            f"bank_b than in bank_a: {listed([common[j] for j in differ], 10)}; {remedy}"
        )


def nominal(items: ItemSet) -> Bools:
    """Items whose categories have no order, and slopes any sign."""
    out = np.zeros(items.n_items, dtype=bool)
    for g in items.groups:
        out[g.at] = g.model.name == "nominal"
    return out


def ordered_places(one: ItemSet, two: ItemSet) -> Ints:
    """Where the common items are whose categories have an order."""
    return np.flatnonzero(~(nominal(one) | nominal(two)))


def ordered(one: ItemSet, two: ItemSet) -> tuple[ItemSet, ItemSet]:
    """The common items whose categories have an order."""
    kept = ordered_places(one, two)
    return one.take(kept), two.take(kept)


def check_models(method: str, one: ItemSet, two: ItemSet, common: tuple[str, ...]) -> None:
    """Stop at items whose categories differ between the banks, or what moments are taken of."""
    if method.startswith("mean"):
        named = [{int(j): g.model for g in items.groups for j in g.at} for items in (one, two)]
        for j, item in enumerate(common):
            of = [models[j] for models in named]
            if of[0].steps != of[1].steps:
                raise InputError(
                    f"method={method!r}: the item {item} is {of[0].name} in bank_a and "
                    f"{of[1].name} in bank_b, whose steps are others; use method='haebara'"
                )
        if ordered(one, two)[0].n_items < 2:
            raise InputError(
                f"method={method!r} needs two common items at least that are not nominal; use "
                f"method='haebara'"
            )
    differ = np.flatnonzero(one.n_categories != two.n_categories)
    if differ.size:
        j = differ[0]
        raise InputError(
            f"{differ.size} common item(s) have other categories in bank_b than in bank_a: "
            f"{common[j]} has {two.n_categories[j]} and {one.n_categories[j]}"
        )
    maps = [Mixture.of_items(items)[0].category_map for items in (one, two)]
    other = np.flatnonzero((maps[0] != maps[1]).any(axis=1))
    if other.size:
        j, (a, b) = other[0], (words(m[other[0], : one.n_categories[other[0]]]) for m in maps)
        raise InputError(
            f"{other.size} common item(s) have other empty categories in bank_b than in bank_a, or "
            f"other numbers: {common[j]} has the category map {b} there and {a} here; leave them "
            f"out of one bank"
        )
