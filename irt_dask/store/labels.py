"""Covariates that are labels, such as schools, countries and sexes: numbers that stand for words.

The number of a label is 52 bits of its SHA-256, the same in every store, wherever and in whatever
order labels are met: a fit to one store knows the labels of another.  A part of a store lists the
labels that came with it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from irt_dask.arrays import Floats
from irt_dask.errors import InputError
from irt_dask.variables import identifier

#: Labels of a covariate, at most: a manifest lists them.
MOST = 100_000
#: Bits of a label's number, which a double holds exactly.
_BITS = 52

#: Labels of covariates, ascending, by the names of these.
Labels = Mapping[str, tuple[str, ...]]


def number(label: str) -> float:
    """The number that stands for a label."""
    digest = hashlib.sha256(identifier(label).encode()).digest()
    return float(int.from_bytes(digest[:8], "big") >> (64 - _BITS))


def numbers(labels: Iterable[str]) -> Floats:
    """The numbers of labels."""
    return np.array([number(x) for x in labels], dtype=float)


def by_number(labels: Iterable[str]) -> dict[float, str]:
    """The labels by their numbers."""
    return {number(x): x for x in labels}


def add(found: dict[str, set[str]], more: Mapping[str, Iterable[str]]) -> None:
    """Add labels to those that were found; InputError for more than :data:`MOST` of a covariate."""
    for name, some in more.items():
        own = found.setdefault(name, set())
        own.update(some)
        if len(own) > MOST:
            raise InputError(
                f"covariate {name!r} has more than {MOST:,} labels: leave it out if it tells "
                f"persons apart, or give numbers"
            )


def together(parts: Iterable[Mapping[str, Iterable[str]]]) -> dict[str, tuple[str, ...]]:
    """The labels of all parts.

    Raises
    ------
    InputError
        For more of them than :data:`MOST`, or two of one number (one chance in 10^6 for that many).
    """
    found: dict[str, set[str]] = {}
    for part in parts:
        add(found, part)
    for name, some in found.items():
        if len(by_number(some)) < len(some):
            raise InputError(
                f"two labels of covariate {name!r} have the same number in this package: write one "
                f"of its labels otherwise"
            )
    return {name: tuple(sorted(found[name])) for name in sorted(found)}


def of_parts(parts: Iterable[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """The labels of a store, whose parts these are."""
    return together(part.get("labels", {}) for part in parts)
