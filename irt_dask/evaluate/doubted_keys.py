"""Items of an option analysis whose key is in doubt, the most doubtful first, with their numbers.

What the shell prints and what the report page shows: the rule and its words stand here alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr

from irt_dask.arrays import Bools, Floats
from irt_dask.errors import InputError

#: Persons who chose an option, and who did not, from whom on it is tested.
LEAST = 5
#: Flags that accuse nothing: with few persons most items have them.
MINOR = frozenset({"ok", "unused_option", "untested"})
#: Flags of options that speak against the key, beyond chance.
AGAINST_KEYS = ("better_option", "negative_key", "nobody_right")
#: Lines that are written of them.
_MOST = 40


class Choice(NamedTuple):
    """An option of an item: its name, share of who answered, correlation with other answers."""

    name: str
    share: float
    correlation: float


class Doubt(NamedTuple):
    """An item whose key is in doubt: the option that goes before it, if one does, and the key.

    ``reasons`` are flags, beyond chance; ``against`` is by how many standard errors those who chose
    the option did better on the other items than those who chose the key.
    """

    item: str
    option: Choice | None
    key: Choice
    reasons: tuple[str, ...]
    against: float


def doubted_keys(found: xr.Dataset) -> list[Doubt]:
    """Return the items of a result of ``option_analysis`` whose key is to be read again.

    Those where another option, of five persons or more, has a higher correlation with the other
    answers than the key, which may be chance, and those with a flag that speaks against the key;
    first those with such a flag, then by how much speaks against the key.  InputError where the
    result has fewer labels than options.

    Examples
    --------
    >>> import irt_dask as irt, numpy as np
    >>> right = irt.simulate(30, 15, seed=1).to_xarray()["response"].values
    >>> right[:, 3] = 1 - right[:, 3]  # a wrong key
    >>> found = irt.option_analysis(irt.from_array(right, categories=2), 1, labels="BA")
    >>> doubted_keys(found)[0].item
    '3'
    """
    labels = labels_of(found)
    count, share, r = (
        found[f"item_option_{name}"].values for name in ("count", "share", "correlation")
    )
    each, key = np.arange(len(count)), found["item_option_key"].values.astype(int)
    others = (count >= LEAST) & np.isfinite(r)
    others[each, key] = False
    best = np.where(others, r, -np.inf).argmax(axis=1)
    has = others.any(axis=1)
    before = has & (r[each, best] > np.nan_to_num(r[each, key], nan=np.inf))
    flags = found["item_option_flag"].values.astype(str)
    reasons = [tuple(f for f in AGAINST_KEYS if f in flag.split("|")) for flag in flags]
    against = _against(count, share, r, key, best, has)
    ids = found["item_id"].values.astype(str)

    def choice(j: int, c: int) -> Choice:
        return Choice(labels[c], float(share[j, c]), float(r[j, c]))

    doubts = [
        Doubt(
            str(ids[j]), choice(j, best[j]) if has[j] else None, choice(j, key[j]), reasons[j],
            float(against[j]),
        )
        for j in each.tolist() if before[j] or reasons[j]
    ]  # fmt: skip
    return sorted(doubts, key=lambda d: (not d.reasons, -d.against))


def _against(
    count: Floats, share: Floats, r: Floats, key: Floats, best: Floats, has: Bools
) -> Floats:
    """How many standard errors lie between who chose the best other option and who the key."""
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = r * np.sqrt((1.0 - share) / share)  # in SDs of the other answers
    at = np.arange(len(count))
    option, right = (
        np.nan_to_num(mean[at, best]) * has, np.nan_to_num(mean[at, key])
    )  # fmt: skip
    n = np.where(has, count[at, best], np.inf), np.where(count[at, key] > 0, count[at, key], np.inf)
    error = np.sqrt(1.0 / n[0] + 1.0 / n[1])
    return np.divide(option - right, error, out=np.zeros(len(count)), where=error > 0.0)


def labels_of(found: xr.Dataset, name: str = "the option analysis") -> list[str]:
    """Names of the options of a result, also of one that comes from a file."""
    labels = found.attrs["labels"]  # in files one text
    labels = labels.split(",") if isinstance(labels, str) else list(map(str, labels))
    if len(labels) < (k := found["item_option_share"].shape[1]):
        raise InputError(f"{name} has {k} options, and labels of {len(labels)}")
    return labels


# --- words ----------------------------------------------------------------------------------------


def numbers(doubt: Doubt) -> str:
    """Say who chose what: ``B chosen by 68%, r .25; the key C by 18%, r -.11``."""
    key = f"the key {doubt.key.name} {_chosen(doubt.key)}"
    if doubt.option is None:
        return key
    return f"{doubt.option.name} chosen {_chosen(doubt.option)}; {key}"


def _chosen(of: Choice) -> str:
    if not of.share > 0.0:
        return "by nobody"
    r = "" if np.isnan(of.correlation) else f", r {of.correlation:.2f}".replace("0.", ".")
    return f"by {100 * of.share:.0f}%{r}"


def lines(doubts: Sequence[Doubt]) -> list[str]:
    """A line for each item, of many the first."""
    said = [
        f"{d.item!r}: {numbers(d)}" + f" ({', '.join(d.reasons)})" * bool(d.reasons)
        for d in doubts[:_MOST]
    ]
    left = len(doubts) - len(said)
    return [*said, f"and {left:,} more"] if left else said


def headline(doubts: Sequence[Doubt]) -> str:
    """Say what the lines are about."""
    n = len(doubts)
    whose = "The key of 1 item is" if n == 1 else f"The keys of {n:,} items are"
    return (
        f"{whose} to be read again{', the most doubtful first' * (n > 1)}: another option, of "
        f"five persons or more, has a higher correlation r with the other answers than the key, or "
        f"its right option attracts the less able or nobody. Where no flag stands in brackets it "
        f"may be chance."
    )
