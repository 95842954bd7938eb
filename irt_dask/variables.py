"""The vocabulary: every named array of stores and results, once.

A variable is ``owner_quantity`` (``item_difficulty``); uncertainty and diagnostics are the same
name with a suffix (``item_difficulty_se``).  :func:`check` refuses a Dataset that uses a name, a
dimension or a dtype that is not listed here, so that documentation and results cannot drift apart.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from irt_dask.errors import InputError, repeated

if TYPE_CHECKING:
    import xarray as xr

PERSONS, ITEMS, ITEMS_ = "persons", "items", "items_"
LATENT_DIMS, LATENT_DIMS_ = "latent_dims", "latent_dims_"
DRAW, SHARDS, ITERATION = "draw", "shards", "iteration"


@dataclass(frozen=True)
class Variable:
    """One named array: its dimensions, kind of dtype, unit and meaning."""

    name: str
    dims: tuple[str, ...]
    kind: str  # NumPy dtype kinds that are allowed
    unit: str
    doc: str
    #: Dimensions that follow where there are several abilities.
    more: tuple[str, ...] = ()
    #: Dimensions that go before where there are several groups.
    before: tuple[str, ...] = ()

    def dims_of(self, n: int) -> tuple[str, ...]:
        """Names of the ``n`` dimensions of an array."""
        return self.before + self.dims + self.more if n > len(self.dims) else self.dims


#: A line for each variable: name and dimensions (in brackets those that there are with several
#: groups, before the others, or several abilities, after them), NumPy kinds of dtype, unit or "-",
#: meaning; a long one goes on below,
#: indented.
_TABLE = Path(__file__).with_name("vocabulary.txt").read_text(encoding="utf-8")
_LINE = re.compile(r"(\w+)\((\[\w+\] )?([^[)]*)(.*?)\) +(\w+) +(\S+) +(.+)")
_WORD = re.compile(r"\w+")


def _read(line: str) -> Variable:
    name, before, dims, more, kind, unit, doc = _LINE.fullmatch(line).groups()  # type: ignore[union-attr]
    first, own, others = (tuple(_WORD.findall(names or "")) for names in (before, dims, more))
    return Variable(name, own, kind, unit.strip("-"), doc, others, first)


VARIABLES = {v.name: v for v in map(_read, _TABLE.replace("\n    ", " ").splitlines())}

#: What ``item_flag`` can name, joined by "|" in this order (alphabetical); "ok" is none of them.
ITEM_FLAGS = {
    "all_right": "everybody who answered has it right",
    "all_wrong": "everybody who answered has it wrong",
    "at_bound": "a parameter ended at a bound of the estimation",
    "empty_category": "a category that nobody has, which is taken to have probability 0",
    "extreme": "the difficulty lies where no person is",
    "few_responses": "few persons answered",
    "flat": "the discrimination cannot be told from 0",
    "large_se": "a standard error is large, or it or the estimate could not be found",
    "reversed": "able persons get it wrong more often",
}

SUFFIXES = {
    "se": "standard error",
    "sd": "posterior standard deviation",
    "lower": "lower end of the interval",
    "upper": "upper end of the interval",
    "rhat": "split R-hat, the largest over shards",
    "ess": "effective sample size, summed over shards",
}


def describe(name: str) -> Variable:
    """Return the entry for ``name``, a suffix like ``_se`` taken into account."""
    if name in VARIABLES:
        return VARIABLES[name]
    base, _, suffix = name.rpartition("_")
    if base in VARIABLES and suffix in SUFFIXES:
        doc = f"{SUFFIXES[suffix]} of {base}"
        return replace(VARIABLES[base], name=name, kind="f", doc=doc)
    raise KeyError(f"{name!r} is not in the vocabulary of irt_dask.variables")


def identifier(x: Any) -> str:
    """Return an identifier as text in Unicode's normal form C.

    Identifiers that look the same are the same: an accented letter may be written as one character
    or as two.
    """
    text = str(x)
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def as_labels(values: Iterable[Any]) -> NDArray[np.str_]:
    """Labels as text, "" where there is none: NaN in items that were put together with others."""
    return np.array(["" if x is None or x != x else str(x) for x in values], dtype=str)


def unique_ids(item_id: Iterable[Any], what: str) -> tuple[str, ...]:
    """Return item identifiers as text; InputError that names those that stand twice."""
    ids = tuple(identifier(i) for i in item_id)
    if twice := repeated(ids):
        raise InputError(
            f"{what}: {len(twice)} item(s) listed more than once: {', '.join(twice[:10])}; items "
            f"are matched by item_id: keep one of each, or give them identifiers of their own"
        )
    return ids


def check(dataset: xr.Dataset) -> xr.Dataset:
    """Verify names, dimensions and dtypes of a result, add units and descriptions, return it."""
    for name, array in dataset.variables.items():
        v = describe(str(name))
        if array.dims != v.dims_of(array.ndim) or array.dtype.kind not in v.kind:
            raise TypeError(
                f"{name}: has dims {array.dims} and dtype {array.dtype}, "
                f"the vocabulary says {v.dims_of(array.ndim)} and kind {v.kind!r}"
            )
        array.attrs["description"] = v.doc
        if v.unit:
            array.attrs["units"] = v.unit
    return dataset
