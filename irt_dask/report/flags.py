"""Flags of items, of the fits and of tests: what each says, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray as xr

from irt_dask.arrays import Bools
from irt_dask.evaluate import doubted_keys
from irt_dask.report.common import item_ids
from irt_dask.report.tables import MOST_ITEMS, Table
from irt_dask.variables import ITEM_FLAGS, ITEMS

#: By item its flags, and by flag who says it.
Flags = dict[str, dict[str, list[str]]]

#: Mean squares outside are called misfit (docs/fit.md), p-values below this over the items too.
_LOW, _HIGH, LEVEL = 0.7, 1.3, 0.05
#: A flag that is told once where so large a share of the items has it.
FEW, _NEARLY_ALL = "few_responses", 0.9

_REMEDIES = {
    "all_right": "its difficulty has no lower end: wait for persons who get it wrong",
    "all_wrong": "its difficulty has no upper end: check the key",
    "at_bound": "the search was stopped there, nothing was estimated: check key and data",
    "empty_category": "a response of it cannot be scored: calibrate anew when there are some",
    "extreme": "nobody is near its difficulty: do not link by it",
    "few_responses": "collect more responses before it is used",
    "flat": "it says nothing about ability, and its difficulty is no location: check the key or "
    "leave it out",
    "large_se": "collect more responses, or leave it out of what needs this item's own numbers",
    "reversed": "check the key; reverse its scoring if that is meant",
}
#: Flags of tests.
_OF_TESTS = {
    "misfit": (
        "responses do not follow its curve: a mean square outside 0.7 to 1.3 (with few responses "
        "also of what chance allows: 2 and 6 over their root), or a p-value below "
        "0.05 over the number of items, which with many persons a small departure has",
        "look at its observed curve, then at key and wording; another model may suit it",
    ),
    "favours_a_group": (
        "ETS class B or C: easier or harder for a group than for equally able persons of another",
        "have it read by people who know the groups; where there is a reason leave it out of what "
        "compares them",
    ),
    "attractive_distractor": (
        "a wrong option attracts the able",
        "read it as an able person does: that option may be right too",
    ),
    "better_option": ("another option attracts the able more than the key does", "check the key"),
    "negative_key": ("its right option attracts the less able", "check the key"),
    "nobody_right": ("nobody chose its right option", "check the key"),
    "read_again": (
        "its key is in doubt, by an option that goes more with the other answers than the key "
        "does, or by the key itself; where no other flag of its options says so it may be chance",
        "read it again, and its key",
    ),
}
#: What each flag says, and what to do.
WORDS = {flag: (ITEM_FLAGS[flag], _REMEDIES[flag]) for flag in ITEM_FLAGS} | _OF_TESTS


def flags_of(
    fits: Mapping[str, xr.Dataset | None], results: Mapping[str, xr.Dataset] | None = None
) -> Flags:
    """Return the flags of each flagged item, by the fits' names and by those of tests."""
    found: Flags = {}
    for owner, fit in fits.items():
        if fit is None or "item_flag" not in fit.variables:
            continue
        for i, flags in zip(item_ids(fit), fit["item_flag"].values.astype(str), strict=True):
            for flag in flags.split("|"):
                if flag != "ok":
                    _add(found, i, flag, owner)
    for name, result in (results or {}).items():
        _add_tests(found, name, result)
    return found


def _add(found: Flags, item: str, flag: str, who: str) -> None:
    found.setdefault(item, {}).setdefault(flag, []).append(who)


def _add_tests(found: Flags, name: str, result: xr.Dataset) -> None:
    """Add what a result of ``item_fit``, ``dif`` or ``option_analysis`` says against items."""
    ids = item_ids(result)
    if "item_infit" in result and "item_outfit" in result:
        for j in np.flatnonzero(misfits(result)):
            _add(found, ids[j], "misfit", name)
    if "item_dif_class" in result:
        _add_dif(found, name, result)
    if "item_option_flag" in result:
        for i, flags in zip(ids, result["item_option_flag"].values.astype(str), strict=True):
            for flag in flags.split("|"):
                if flag not in doubted_keys.MINOR:
                    _add(found, i, flag, name)
        for doubt in doubted_keys.doubted_keys(result):
            _add(found, doubt.item, "read_again", f"{name}: {doubted_keys.numbers(doubt)}")


def _add_dif(found: Flags, name: str, result: xr.Dataset) -> None:
    """Add items of class B or C, with the group that each one favours."""
    ids = item_ids(result)
    reference = str(result.attrs.get("reference", "reference"))
    focal = result["focal"].values if "focal" in result else [result.attrs.get("focal", "focal")]
    classes, shift = (
        result[of].transpose(..., ITEMS).values.reshape(-1, len(ids))
        for of in ("item_dif_class", "item_dif_shift")
    )
    for k, row in enumerate(classes.astype(str)):
        for j in np.flatnonzero((row == "B") | (row == "C")):
            whom = str(np.atleast_1d(focal)[k]) if shift[k, j] > 0 else reference
            _add(found, ids[j], "favours_a_group", f"{name}: class {row[j]}, favours {whom}")


def misfits(tests: xr.Dataset) -> Bools:
    """Items of a result of ``item_fit`` whose mean squares or p-values stand out."""
    # a mean square of few responses is off by chance: rules of Smith, Schumacker and Bush (1998)
    seen = tests["item_n_responses"].values if "item_n_responses" in tests else np.inf
    root = np.sqrt(np.maximum(seen, 1.0))
    name = "item_sx2_p_value" if "item_sx2_p_value" in tests else "item_chi2_p_value"
    out = np.zeros(tests.sizes[ITEMS], dtype=bool)
    for of, chance in (("infit", 2.0 / root), ("outfit", 6.0 / root)):
        square = tests[f"item_{of}"].values
        out |= (square < np.minimum(_LOW, 1 - chance)) | (square > np.maximum(_HIGH, 1 + chance))
    if name in tests:
        out |= tests[name].values < LEVEL / out.size
    return out


def told_once(found: Flags, fit: xr.Dataset) -> tuple[Flags, int, str | None]:
    """Part what nearly all items have, few responses, from what is told item by item.

    Returns the flags that are told item by item, how many items have few responses where nearly all
    of ``fit`` have, else 0, and then a sentence about all.
    """
    from irt_dask.items.checks import FEW_RESPONSES  # the engine comes with it

    n, few = len(item_ids(fit)), sum(FEW in found.get(i, ()) for i in item_ids(fit))
    if not few or few < _NEARLY_ALL * n:
        return found, 0, None
    each = {i: {f: by for f, by in of.items() if f != FEW} for i, of in found.items()}
    persons = f"; the fit has {int(fit.attrs['n_persons']):,} persons" * ("n_persons" in fit.attrs)
    which = f"All {n:,} items have" if few == n else f"{few:,} of {n:,} items have"
    words = (
        f"{which} few responses (fewer than {FEW_RESPONSES}{persons}): every number of an item is "
        f"uncertain; see what stands after ±, and take what is said of single items as a reason to "
        f"read them again, not as a finding. This is said here once (flag {FEW}), and neither "
        f"listed nor counted item by item."
    )
    return {i: of for i, of in each.items() if of}, few, words


def flags_table(found: Flags) -> Table | None:
    """Name the flagged items, the reasons and what to do; None without any."""
    if not found:
        return None
    rows = []
    for i, of_item in list(found.items())[:MOST_ITEMS]:
        by = "\n".join(f"{flag} ({', '.join(who)})" for flag, who in sorted(of_item.items()))
        to_do = dict.fromkeys(WORDS[flag][1] for flag in sorted(of_item))
        rows.append([i, by, "\n".join(to_do)])
    remarks: tuple[str, ...] = tuple(
        f"{flag}: {WORDS[flag][0]}." for flag in sorted({f for fs in found.values() for f in fs})
    )
    if left := len(found) - len(rows):
        remarks += (f"{left:,} more flagged items are left out.",)
    return Table(("flagged item", "flags", "what to do"), rows, remarks)
