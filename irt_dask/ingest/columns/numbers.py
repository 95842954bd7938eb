"""Numbers as files write them: several ways, and two decimal signs."""

from __future__ import annotations

import math


def spellings(number: float) -> list[str]:
    """Return how a number may be written, the usual way first."""
    text = str(float(number))
    return [str(int(number)), text] if math.isfinite(number) and number == int(number) else [text]


def truths(value: bool) -> list[str]:
    """Return how programs write whether something is true."""
    word = str(value)
    return [word, word.upper(), word.lower()]


def number_of(text: str, decimal: str | None = None) -> float:
    """Return the number, NaN where the text is none; with decimal commas no dot is in it."""
    if decimal == ",":
        text = "" if "." in text else text.replace(",", ".", 1)
    try:
        return float(text) if "_" not in text else math.nan
    except ValueError:
        return math.nan


def of_decimal(text: str, decimal: str | None) -> str:
    """Return what to add to a message about a number that has the other decimal sign.

    None says that nobody has said which it is: the dot.
    """
    if decimal == ".":
        return ""
    other = "." if decimal == "," else ","
    if other not in text or math.isnan(number_of(text, other)):
        return ""
    if other == ",":
        return "; if the comma is a decimal sign, say decimal=','"
    return "; with decimal=',' no dot is taken, which may part thousands"


def alike(text: str, decimal: str | None) -> list[str]:
    """Return the ways to write a number or a truth, if this is one: 9 is also 9.0, true TRUE."""
    if text in (words := truths(text.casefold() == "true")):
        return words
    dotted = text.replace(",", ".", 1) if decimal == "," else text
    ways = spellings(number_of(dotted))
    return ways if dotted in ways else []


def shorten(value: str) -> str:
    """Return a value for a message, in quotes and not too long."""
    return repr(value if len(value) <= 80 else value[:77] + "...")
