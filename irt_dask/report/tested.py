"""What tests say of all items together: for each result a sentence, and a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from irt_dask.evaluate import doubted_keys
from irt_dask.report import figures, fit_plots, flags
from irt_dask.report.common import item_ids
from irt_dask.report.figures import Image

#: Focal groups of a result that have a picture, at most; the page of an item has them all.
_MOST_GROUPS = 4


@dataclass(frozen=True)
class Tested:
    """A result over the items: its name, what it says of them, its pictures."""

    name: str
    words: str
    images: list[Image]
    lines: Sequence[str] = ()


def tested(results: Mapping[str, xr.Dataset] | None) -> list[Tested]:
    """Tell of each result of ``item_fit``, ``dif`` and ``option_analysis``; of others nothing."""
    found = []
    for name, result in (results or {}).items():
        if "item_infit" in result and "item_outfit" in result:
            found.append(_fit(name, result))
        elif "item_dif_class" in result:
            found.append(_dif(name, result))
        elif "item_option_flag" in result:
            found.append(_options(name, result))
    return found


def _fit(name: str, tests: xr.Dataset) -> Tested:
    """Tell how many items do not follow their curves."""
    n, bad = tests.sizes["items"], int(flags.misfits(tests).sum())
    words = (
        f"Of {n:,} items {bad:,} {'does' if bad == 1 else 'do'} not follow "
        f"{'its curve' if bad == 1 else 'their curves'} (flag misfit). If all did, and "
        f"abilities were distributed as the test assumes, its p-values would reject one or more in "
        f"some {100 * flags.LEVEL:.0f}% of tests; skewed abilities are rejected as misfit, too."
    )
    known = np.isfinite(tests["item_infit"].values) & np.isfinite(tests["item_outfit"].values)
    images = []
    if known.any():
        alt = f"Infit and outfit of {int(known.sum()):,} items; the page of each item has both."
        caption = (
            "Mean squares of residuals: above 1 responses are less predictable than the model "
            "says, below 1 more."
        )
        images.append(figures.inline(fit_plots.item_fit(tests), alt, caption))
    return Tested(name, words, images)


def _dif(name: str, result: xr.Dataset) -> Tested:
    """Tell how many items favour somebody, a sentence for each focal group."""
    several = "focal" in result.dims
    groups = [str(x) for x in np.atleast_1d(result["focal"].values)] if several else [None]
    words, images = [], []
    for k, group in enumerate(groups):
        one = result.isel(focal=k) if several else result
        classes = one["item_dif_class"].values.astype(str)
        count = {c: int((classes == c).sum()) for c in "ABC"}
        focal = group if several else str(result.attrs.get("focal", ""))
        untested = len(classes) - sum(count.values())
        words.append(
            f"{focal}: {count['C']:,} of {len(classes):,} items of class C (large), "
            f"{count['B']:,} of class B (moderate)"
            + (f", {untested:,} not tested" if untested else "")
            + f"; {_certain(one)}."
        )
        both = one["item_dif_shift"].values + one["item_dif_shift_se"].values
        if k < _MOST_GROUPS and np.isfinite(both).any():
            alt = f"Shift of {len(item_ids(one)):,} items between groups, with 95% intervals."
            caption = (
                f"With 95% intervals: right of 0 an item is easier for {focal} than for equally "
                f"able persons of {result.attrs.get('reference', 'the reference group')}."
            )
            images.append(figures.inline(fit_plots.dif(result, group), alt, caption))
    words.append(
        "Classes rest on single tests at 5%, so that of many items that favour nobody some are of "
        "class B by chance; q-values allow for the number of items."
    )
    if len(groups) > _MOST_GROUPS:
        words.append(f"The first {_MOST_GROUPS} groups are drawn.")
    return Tested(name, " ".join(words), images)


def _certain(one: xr.Dataset) -> str:
    """How many items favour somebody however many were tested."""
    q = one["item_dif_uniform_q_value"].values if "item_dif_uniform_q_value" in one else np.empty(0)
    low = int((q < flags.LEVEL).sum())
    return f"{low:,} with a q-value below {flags.LEVEL:.2f}"


def _options(name: str, result: xr.Dataset) -> Tested:
    """Tell which keys are to be read again, as the shell does, and of other options how many."""
    doubts = doubted_keys.doubted_keys(result)
    doubted = {d.item for d in doubts}
    said = dict(zip(item_ids(result), result["item_option_flag"].values.astype(str), strict=True))
    bad = sum(
        i not in doubted and not doubted_keys.MINOR.issuperset(flags.split("|"))
        for i, flags in said.items()
    )
    others = f"Of {'the other ' * bool(doubts)}{len(said) - len(doubts):,} items {bad:,} "
    others += f"{'has' if bad == 1 else 'have'} an option to look at; the page of an item has who "
    others += "chose what."
    words = [doubted_keys.headline(doubts)] if doubts else ["No key is to be read again."]
    return Tested(name, " ".join([*words, others]), [], doubted_keys.lines(doubts))
