"""What facets name: levels and numbers in names of columns, covariates of items, pairs of these.

rater                    levels, in the names of columns: item@rater
number(position)         numbers there, with one coefficient
rater:format             effects of levels that differ by a covariate of items
item ~ format + words    difficulties of items that covariates alone make
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irt_dask.arrays import Floats
from irt_dask.errors import InputError, listed, repeated
from irt_dask.variables import identifier

#: What stands between an item and the levels of facets in the name of a column.
AT = "@"
#: The column of a table that names items; what stands before a tilde.
ITEM = "item"
_NUMBER = re.compile(r"number\(\s*([^()]+?)\s*\)")
#: Factors of a term at most.
_MOST = 2


class Factor(NamedTuple):
    """Labels (text) or numbers of the columns; ``of_items``: all columns of an item have one."""

    name: str
    values: Any
    of_items: bool = False

    @property
    def numeric(self) -> bool:
        """Whether it has numbers, and no levels."""
        return bool(self.values.dtype.kind == "f")


class Term(NamedTuple):
    """One factor or a pair; ``makes_items``: it is a part of the items' difficulties."""

    factors: tuple[Factor, ...]
    makes_items: bool = False

    @property
    def name(self) -> str:
        """As results call it."""
        return ":".join(f.name for f in self.factors) or ITEM

    @property
    def levels(self) -> list[Factor]:
        """Factors with levels."""
        return [f for f in self.factors if not f.numeric]


class Formula(NamedTuple):
    """Names of terms; ``of_items`` None: items have difficulties of their own."""

    terms: list[tuple[str, ...]]
    of_items: list[tuple[str, ...]] | None
    numbers: set[str]

    @property
    def names(self) -> list[str]:
        """All factors, as they come."""
        return list(dict.fromkeys(n for t in (*self.terms, *(self.of_items or ())) for n in t))


def parsed(facets: Sequence[str]) -> Formula:
    """Read a list of terms."""
    terms: list[tuple[str, ...]] = []
    of_items: list[tuple[str, ...]] | None = None
    numbers: set[str] = set()
    plain: set[str] = set()

    def read(text: str) -> tuple[str, ...]:
        parts = [part.strip() for part in text.split(":")]
        odd = [p for p in parts if {*"()"} & {*p} and not _NUMBER.fullmatch(p)]
        if odd or "" in parts or len(parts) > _MOST:
            raise InputError(
                f"facets={list(facets)!r}: {text.strip()!r} is no term: give a name or "
                f"number(name), or two with a colon"
            )
        out = []
        for part in parts:
            found = _NUMBER.fullmatch(part)
            name = identifier(found[1] if found else part)
            (numbers if found else plain).add(name)
            out.append(name)
        return tuple(out)

    for text in facets:
        left, tilde, right = text.partition("~")
        if not tilde:
            terms.append(read(text))
        elif left.strip() != ITEM or of_items is not None:
            raise InputError(
                f"facets={list(facets)!r}: {text!r} is no term; covariates that make the "
                f"difficulties of items are named once, as in 'item ~ format + words'"
            )
        else:
            of_items = [read(part) for part in right.split("+")]
    every = [":".join(t) for t in (*terms, *(of_items or ()))]
    twice = [*repeated([*every, ITEM]), *(n for t in (*terms, *(of_items or ())) for n in
             repeated(t)), *sorted(numbers & plain)]  # fmt: skip
    if twice:
        raise InputError(f"facets={list(facets)!r}: {twice[0]!r} is no name of its own")
    return Formula(terms, of_items, numbers)


# --- values ---------------------------------------------------------------------------------------


def values(column: pd.Series[Any], name: str, what: str = "facets=") -> Any:
    """Levels as text, or finite numbers."""
    number = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
    if not number or name == ITEM:
        _refuse_mixed(column, name, what)
        return np.array([identifier(v) for v in column], dtype=object)
    out = column.to_numpy(dtype=float)
    if not np.isfinite(out).all():
        raise InputError(f"{what} has numbers in {name!r} that are not finite")
    return out


def _refuse_mixed(column: pd.Series[Any], name: str, what: str) -> None:
    """Stop at numbers of which some are texts: each of them would be a level."""
    is_number = np.array([isinstance(v, Real) and not isinstance(v, bool) for v in column])
    if name != ITEM and 2 * is_number.sum() > is_number.size:
        for k in np.flatnonzero(~is_number)[:1]:
            raise InputError(
                f"{what} has {column.iloc[k]!r} in {name!r} for {column.index[k]!r}, which is no "
                f"number, and {is_number.sum()} of {is_number.size} values are: correct it, or "
                f"give levels as texts, all of them"
            )


def numbers(labels: Any, name: str, of: Sequence[str], what: str) -> Floats:
    """Labels as finite numbers; ``of`` says whose each is."""
    out = pd.to_numeric(pd.Series(labels), errors="coerce").to_numpy(dtype=float)
    for k in np.flatnonzero(~np.isfinite(out))[:1]:
        raise InputError(f"number({name}): {what} {of[k]!r} has {labels[k]!r}, which is no number")
    return out


def of_item_table(table: Any, needed: Sequence[str], item_id: Sequence[str]) -> dict[str, Any]:
    """Columns of a table of items, which may have others too, in the order of ``item_id``."""
    frame = table.rename(index=identifier, columns=identifier)
    if twice := repeated(frame.columns):
        raise InputError(f"item_covariates has the column {twice[0]!r} twice; leave one out")
    own = frame.loc[frame.index.isin(list(item_id))]
    if twice := repeated(own.index):
        raise InputError(f"item_covariates has several rows of the item {twice[0]!r}")
    if lacking := [i for i in item_id if i not in own.index]:
        raise InputError(
            f"item_covariates has no row for {len(lacking)} item(s): {listed(lacking, 5)}"
        )
    own = own.loc[list(item_id)]
    for name in needed:
        for i in own.index[own[name].isna()][:1]:
            raise InputError(f"item_covariates says nothing of {name!r} for the item {i!r}")
    return {name: values(own[name], name, "item_covariates") for name in needed}


def columns_of(item_covariates: Any) -> list[str]:
    """Names of covariates."""
    if item_covariates is None:
        return []
    if not isinstance(item_covariates, pd.DataFrame) or not item_covariates.shape[1]:
        raise InputError(
            "item_covariates must be a DataFrame with item identifiers as its index and a column "
            "for each covariate"
        )
    return [identifier(c) for c in item_covariates.columns]


# --- terms of the columns -------------------------------------------------------------------------


def of_names(
    facets: Sequence[str], item_id: tuple[str, ...], item_covariates: Any
) -> tuple[Any, list[Term], bool]:
    """Item of each column, terms, and whether these make the items' difficulties."""
    formula, known = parsed(facets), columns_of(item_covariates)
    _check_covariates(facets, formula, known)
    in_names = [n for n in formula.names if n not in known]
    item, *parts = _split(facets, in_names, item_id)
    whose = dict(zip(in_names, parts, strict=True))
    for name in formula.numbers & whose.keys():
        whose[name] = numbers(whose[name], name, item_id, "the column")
    ids, parent = np.unique(item.astype(str), return_inverse=True)
    needed = [n for n in formula.names if n in known]
    of_items = of_item_table(item_covariates, needed, ids.tolist()) if needed else {}
    for name in formula.numbers & of_items.keys():
        of_items[name] = numbers(of_items[name], name, ids.tolist(), "the item")
    factors = {n: Factor(n, v) for n, v in whose.items()}
    factors |= {n: Factor(n, v[parent], True) for n, v in of_items.items()}
    terms = [Term(tuple(factors[n] for n in t)) for t in formula.terms]
    linear = formula.of_items is not None
    if linear:
        made = [Term(tuple(factors[n] for n in t), True) for t in formula.of_items or ()]
        terms = [Term((), True), *made, *terms]
    return item, terms, linear


def _check_covariates(facets: Sequence[str], formula: Formula, known: Sequence[str]) -> None:
    """Stop at covariates that say nothing, or that no one has."""
    for name in (n for t in formula.of_items or () for n in t if n not in known):
        raise InputError(
            f"facets={list(facets)!r}: no column of item_covariates is {name!r}; there are "
            f"{listed(known) or 'none'}"
        )
    if known and not {*known} & {*formula.names}:
        raise InputError(
            f"item_covariates has {listed(known)}, and facets={list(facets)!r} names none of "
            f"these: name one, as in 'rater:{known[0]}' or 'item ~ {known[0]}'"
        )
    alone = [":".join(t) for t in formula.terms if {*t} <= {*known}]
    if alone and formula.of_items is not None:
        raise InputError(
            f"facets={list(facets)!r}: {alone[0]} is of items alone; write it behind 'item ~'"
        )
    if alone:
        raise InputError(
            f"facets={list(facets)!r}: {alone[0]} is of items alone, which have difficulties of "
            f"their own: no data can tell the two apart. Give 'item ~ {alone[0]}' for difficulties "
            f"that covariates alone make, or an interaction of a facet, such as 'rater:{alone[0]}'"
        )


def _split(facets: Sequence[str], names: Sequence[str], item_id: tuple[str, ...]) -> list[Any]:
    """Items, and levels of each facet, from names of columns."""
    parts = [i.split(AT) if names else [i] for i in item_id]
    wrong = [i for i, p in zip(item_id, parts, strict=True)
             if len(p) != 1 + len(names) or "" in p]  # fmt: skip
    if wrong:
        pattern = AT.join([ITEM, *names])
        raise InputError(
            f"facets={list(facets)!r}: {len(wrong)} of {len(item_id)} columns are not named "
            f"{pattern}: {listed(wrong, 5)}; ingest a long table with facets={list(names)!r}, "
            f"rename them, or give facets as a table with a row for each column; a covariate of "
            f"items is a column of item_covariates"
        )
    return [np.array(v, dtype=object) for v in zip(*parts, strict=True)]


def of_table(facets: Any, item_id: tuple[str, ...]) -> tuple[Any, list[Term]]:
    """Item of each column, and terms, from a table in any order of the columns."""
    table = pd.DataFrame(facets)
    table = table.rename(index=identifier, columns=identifier)
    if ITEM not in table:
        raise InputError(
            f"facets= is a table without a column {ITEM!r}, which says of which item each column "
            f"of the responses is; its columns are {listed(table.columns)}"
        )
    if twice := repeated(table.columns):
        raise InputError(f"facets= has the column {twice[0]!r} twice; leave one out")
    if twice := repeated(table.index):
        raise InputError(f"facets= has {twice[0]!r} twice; give one row for each column")
    if lacking := [i for i in item_id if i not in table.index]:
        raise InputError(
            f"facets= has no row for {len(lacking)} of {len(item_id)} columns of the responses: "
            f"{listed(lacking, 5)}; its index names them"
        )
    if more := sorted({*table.index} - {*item_id}):
        raise InputError(
            f"facets= has {len(more)} row(s) that the responses have no column of: "
            f"{listed(more, 5)}; leave these out"
        )
    table = table.loc[list(item_id)]
    if table.isna().any(axis=None):
        name = table.columns[table.isna().any()][0]
        i = table.index[table[name].isna()][0]
        raise InputError(f"facets= says nothing of {name!r} for {i!r}: give each a value")
    names = [c for c in table.columns if c != ITEM]
    return values(table[ITEM], ITEM), [Term((Factor(n, values(table[n], n)),)) for n in names]


def names_of(terms: Iterable[Term]) -> set[frozenset[str]]:
    """Names of the factors of each term."""
    return {frozenset(f.name for f in t.factors) for t in terms}


def is_table(facets: Any) -> bool:
    """Whether facets are given as a table with a row for each column."""
    return isinstance(facets, (pd.DataFrame, Mapping))
