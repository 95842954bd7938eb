"""Why a value is no response, and what to do: the messages about single values."""

from __future__ import annotations

import math
from collections.abc import Iterable

from irt_dask.errors import listed
from irt_dask.ingest.columns.limits import Limits
from irt_dask.ingest.columns.meanings import UNKNOWN, opposite, plainly
from irt_dask.ingest.columns.numbers import number_of, of_decimal, shorten
from irt_dask.store.categories import BINARY, MOST

#: Whole numbers from here on are codes for missing more often than scores of one item.
_FEWEST_MISSING = 7
#: More letters than these are no code, but what somebody has written.
LONGEST_CODE = 40
#: What is said of a key whose letters no answer has in its case.
OTHER_CASE = "the key's letters differ in case from the data's"
#: Names that are shown of a key and of data that have nothing in common.
_FIRST = 3


def reason(
    value: str, item: str, limits: Limits, *, code: int, keyed: bool, decimal: str | None,
    of_file: str | None, trials: int = 0,
) -> str:  # fmt: skip
    """Say why the value of an item is refused, and what to do.

    ``code`` is what it means, beyond the item's categories, or UNKNOWN.  ``decimal`` is the sign in
    numbers that was said, ``of_file`` that of the file, where it can have another one than a dot.
    ``trials`` is how many attempts responses are a share of, if they are.
    """
    if len(value) > LONGEST_CODE or len(value.splitlines()) > 1:  # nobody would type it
        return rule_of(limits, item)
    if code != UNKNOWN:
        beyond = _beyond(value, item, limits, code, number_of(value, decimal) == code)
        if beyond:
            return beyond
    said = shorten(value)
    if keyed:
        return (
            f"it may be an answer, or mean that there is none; say missing=[{said}] or "
            f"recode={{{said}: 'wrong'}}"
        )
    hint = of_decimal(value, of_file)
    if hint:
        return f"{rule_of(limits, item)}{hint}"
    number = number_of(value, decimal)
    if math.isfinite(number) and trials:
        return _of_trials(number, said, trials)
    if math.isfinite(number):
        found = _number(number, said, item, limits, digits={*value})
        if found:
            return found
    rule, missing = rule_of(limits, item), f"missing=[{said}]"
    if value.startswith("#"):
        rule = "this is an error of a spreadsheet's formula; mend it there, or"
        return f"{rule} say {missing} where it means not observed"
    if limits.most == BINARY and (meant := plainly(value)):
        other = opposite(value)
        both = {value: meant, other: "wrong" if meant == "right" else "right"}
        return f"{rule}; if the words mean that, say recode={both}"
    if len(value) == 1 and value.isalpha():
        rule += "; if answers stand as they were given, say which are right by key="
    more = ""
    if limits.most == BINARY and not math.isfinite(number) and item not in limits.stored:
        more = (
            f"; where items have more than two categories, say categories= and, for each label, "
            f"recode={{{said}: CODE}}"
        )
    remedy = f"say {missing}, else {_recode(said, limits)}{more}"
    return f"{rule}; if the value means not observed, {remedy}"


def dropped(value: str, item: str, code: int) -> str:
    """Say of a value that it is of a category that the store has dropped."""
    said = shorten(value)
    return (
        f"it is of category {code} of the item {item!r}, which had no response when the item came "
        f"into the store, by null_categories='collapse', and is none there; say "
        f"recode={{{said}: CODE}} or missing=[{said}]"
    )


def unlike(key: Iterable[str], data: Iterable[str], columns: bool = True) -> str:
    """Say of a key none of whose items is in the data what it has to name; ``columns`` are items.

    >>> unlike(["1", "2"], ["Frage 1", "Frage 2"])[:51]
    "none of the key's 2 item(s) is in the data: the key"
    """
    named, there = [*key], [*data]
    return (
        f"none of the key's {len(named)} item(s) is in the data: the key has "
        f"{listed(named, _FIRST)}, the data {listed(there, _FIRST)}; the key's column 'item' has "
        f"to have the names of the data's {'columns' if columns else 'items'}"
    )


def rule_of(limits: Limits, item: str) -> str:
    """Say what a response of an item is."""
    k = limits.of(item)
    return "a response is 0 (wrong) or 1 (right)" if k == BINARY else f"a response is 0 to {k - 1}"


def _recode(said: str, limits: Limits) -> str:
    words = f"recode={{{said}: 'right'}} or recode={{{said}: 'wrong'}}"
    return f"recode={{{said}: CODE}}" if limits.most > BINARY else words


def _beyond(value: str, item: str, limits: Limits, code: int, plain: bool) -> str | None:
    """Say of a code that is one of other items what this one has; None where nobody said."""
    if plain and not (limits.declared or limits.keyed or limits.stored):
        return None
    meaning = "" if plain else f"it means {code}, and "
    said = shorten(value)
    remedy = "say" if item in limits.stored else "say categories= if it has more, or"
    return f"{meaning}{limits.said(item)}; {remedy} recode={{{said}: CODE}} or missing=[{said}]"


def _of_trials(number: float, said: str, n: int) -> str:
    """Say what to do with a number that is no share of attempts."""
    rule = f"a response is the share right of {n} attempts: 0, {1 / n:.3g}, ... 1"
    if number == int(number) and 0 < number <= n:
        return (
            f"{rule}; if responses are counts, 0 to {n}, say categories={n + 1} in place of trials="
        )
    return f"{rule}; say trials= with another number, or missing=[{said}] for what is not observed"


def _number(number: float, said: str, item: str, limits: Limits, *, digits: set[str]) -> str | None:
    """Say what to do with a number that is no code of the item."""
    rule, missing = rule_of(limits, item), f"missing=[{said}]"
    whole = number == int(number)
    if number in (0.0, 1.0):
        word = "right" if number else "wrong"
        return f"a response is written 0 (wrong) or 1 (right); say recode={{{said}: {word!r}}}"
    if whole and 0 < number < limits.of(item):
        return f"a response is written as a whole number; say recode={{{said}: {int(number)}}}"
    of_trials = "; a share right of n attempts: trials=n" if 0.0 < number < 1.0 else ""
    if limits.of(item) == BINARY and 0.0 < number < MOST and not (whole and digits <= {*"789"}):
        return (
            f"a partial score: if items have more than two categories, say categories=, the number "
            f"K of each (codes 0 to K - 1); else {_recode(said, limits)}, which makes two of them, "
            f"or leave the item out{of_trials}"
        )
    if number < 0.0 or digits <= {*"789"}:
        k = int(number) + 1
        more = f", or categories={k} where it is a category" if _FEWEST_MISSING < k <= MOST else ""
        return (
            f"{rule}, and such codes mean different things "
            f"in different files: say {missing} for what was not observed, or "
            f"recode={{{said}: 'wrong'}} where an omitted answer counts as wrong{more}"
        )
    return None
