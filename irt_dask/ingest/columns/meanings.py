"""What texts mean, whichever item they answer: codes, not observed, and what the caller says."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from irt_dask.errors import InputError, listed
from irt_dask.ingest.columns.numbers import alike, number_of, spellings, truths
from irt_dask.store.categories import BINARY, MOST, NONRESPONSE
from irt_dask.variables import identifier

#: Codes as they are written; which of them an item has is another matter (``limits``).
CODES = {text: code for code in range(MOST) for text in spellings(code)}
#: What spreadsheets, R and pandas write for scores; T and F are more often answers to items.
TRUE_FALSE = {text: int(value) for value in (False, True) for text in truths(value)}
NOT_OBSERVED = (
    "", "NA", "NaN", "nan", "-1", ".", "N/A", "n/a", "#N/A", "<NA>", "NULL", "null", "None",
)  # fmt: skip
#: Among answers as they were given, these may be one, or stand for none: not taken unsaid.
_IN_DOUBT = ("None", "-")
WORDS = {"right": 1, "wrong": 0, "missing": -1, **NONRESPONSE}
#: Labels that say which is right, and the other of the two: offered, never taken unsaid.
_OPPOSITES = (("right", "wrong"), ("correct", "incorrect"), ("pass", "fail"), ("passed", "failed"),
              ("richtig", "falsch"), ("korrekt", "inkorrekt"), ("correcto", "incorrecto"),
              ("juste", "faux"), ("corretto", "sbagliato"),
              ("yes", "no"), ("ja", "nein"), ("oui", "non"))  # fmt: skip
_PLAIN = {word: ("right", other) for word, other in _OPPOSITES}
_PLAIN |= {word: ("wrong", other) for other, word in _OPPOSITES}
MISSING = -1
UNKNOWN = -2
#: What stands for the code of a label until somebody has said it.
UNDECIDED = "?"


def table_of(missing: Any, recode: Any, decimal: str | None, *, keyed: bool) -> dict[str, int]:
    """Check ``missing`` and ``recode``; return the code of each text that has one.

    Without a key (``keyed``), numbers stand for themselves; with one they are answers.
    """
    table: dict[str, int] = dict.fromkeys(NOT_OBSERVED, MISSING)
    table |= dict.fromkeys(_IN_DOUBT, UNKNOWN) if keyed else CODES | TRUE_FALSE
    codes = missing_codes(missing)
    said = dict.fromkeys(codes, MISSING)
    for text, code in recoded(recode).items():
        if text in codes:
            raise InputError(f"{text!r} is in missing= and in recode=; leave it out of one")
        said[text] = code
    for text, code in said.items():
        table |= dict.fromkeys(alike(text, decimal), code)
    table |= said  # what was said of one way to write a number goes before others
    if decimal == ",":
        for text in [text for text in table if "." in text and math.isfinite(number_of(text))]:
            table.setdefault(text.replace(".", ","), table[text])
    return table


def texts_of(code: object, option: str) -> list[str]:
    """Return the strings that a code stands for, given as string or number; stripped."""
    if isinstance(code, str):
        return [code.strip()]
    if isinstance(code, bool) or not isinstance(code, Real):
        raise InputError(f"{option}: {code!r} must be a string or a number")
    return [str(int(code))] if isinstance(code, Integral) else spellings(float(code))


def plainly(text: str) -> str | None:
    """Return "right" or "wrong" for a label that says it in words, None for others."""
    found = _PLAIN.get(text.casefold())
    return None if found is None else found[0]


def opposite(text: str) -> str:
    """Return the label that stands for the other of right and wrong, written alike."""
    other = _PLAIN[text.casefold()][1]
    return other.upper() if text.isupper() else other.title() if text.istitle() else other


def missing_codes(missing: Any) -> list[str]:
    """Return the texts that mean not observed."""
    if isinstance(missing, (str, Real)):
        missing = [missing]
    try:
        codes = [text for code in missing for text in texts_of(code, f"missing={missing!r}")]
    except TypeError:
        raise InputError(f"missing={missing!r} must be a list of codes") from None
    refuse_responses(codes, BINARY)
    return codes


def refuse_responses(missing: Sequence[str], n_categories: int) -> None:
    """Refuse texts for not observed that are a response where items have so many categories."""
    for text in missing:
        if CODES.get(text, MOST) < n_categories:
            some = "(0 wrong, 1 right)"
            if n_categories > BINARY:
                some = f"where items have {n_categories} categories, 0 to {n_categories - 1},"
            raise InputError(
                f"missing={[*missing]!r}: {text!r} is a response {some} and cannot mean missing; "
                f"if it does in this file, recode it: recode={{{text!r}: 'missing'}}"
            )


def recoded(recode: Any) -> dict[str, int]:
    """Return the code that each text is said to mean whatever the item."""
    if recode is None:
        return {}
    if not isinstance(recode, Mapping):
        raise InputError(
            f"recode must be a dict like {{'9': 'wrong'}}, or a table with the columns item, label "
            f"and code, not {type(recode).__name__}"
        )
    if (what := undecided(recode)) is not None:
        raise InputError(f"recode: {what}")
    return _codes({k: v for k, v in recode.items() if not isinstance(v, Mapping)}, "")


def recoded_by_item(recode: Any, decimal: str | None) -> dict[str, dict[str, int]]:
    """Return the code of each text by item, as the items were listed: the dicts in ``recode``."""
    found: dict[str, dict[str, int]] = {}
    for given, meanings in ({} if recode is None else recode).items():
        if not isinstance(meanings, Mapping):
            continue
        item = identifier(texts_of(given, "recode")[0])
        if item in found:
            raise InputError(f"recode names the item {item!r} twice")
        if not meanings:
            raise InputError(
                f"recode of the item {item!r} has no label: say codes, or leave it out"
            )
        said = _codes(meanings, f" of the item {item!r}")
        ways = {way: code for text, code in said.items() for way in alike(text, decimal)}
        found[item] = ways | said  # what was said of one way to write a number goes before others
        if decimal == ",":
            for text in [t for t in ways if "." in t]:
                found[item].setdefault(text.replace(".", ","), ways[text])
    return found


def _codes(recode: Mapping[Any, Any], where: str) -> dict[str, int]:
    codes: dict[str, int] = {}
    for given, meaning in recode.items():
        code = _meant(meaning)
        if code is None:
            raise InputError(
                f"recode{where or '='}{': ' * bool(where)}{{{given!r}: {meaning!r}}}: a code means "
                f"{', '.join(map(repr, WORDS))}, or a whole number from 0 to {MOST - 1}"
            )
        for text in texts_of(given, "recode"):
            if codes.setdefault(text, code) != code:
                raise InputError(
                    f"recode{where}: {text!r} has two meanings, {meaning_of(codes[text])!r} and "
                    f"{meaning_of(code)!r}"
                )
    return codes


def undecided(recode: Mapping[Any, Any]) -> str | None:
    """Say for which labels somebody has still to say the code; None if for none."""
    every = [
        *recode.items(),
        *(p for v in recode.values() if isinstance(v, Mapping) for p in v.items()),
    ]
    of = list(dict.fromkeys(str(label) for label, meaning in every if meaning == UNDECIDED))
    if not of:
        return None
    return (
        f"{listed(of)} still {'means' if len(of) == 1 else 'mean'} {UNDECIDED!r}: say the code of "
        f"each, 0 for the lowest category, then 1, 2, ..., or a word such as 'missing'"
    )


def _meant(meaning: object) -> int | None:
    """Return the code that a word or a number says, None for what says none."""
    if isinstance(meaning, str):
        return WORDS.get(meaning)
    whole = isinstance(meaning, Integral) and not isinstance(meaning, bool)
    return int(meaning) if whole and 0 <= meaning < MOST else None  # type: ignore[call-overload,operator]


def meaning_of(code: int) -> str | int:
    """Return the word of a code of two categories, else the number."""
    return {code: word for word, code in WORDS.items()}.get(code, code)
