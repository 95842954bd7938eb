"""Which item each column of a store is, and which effects its difficulty has: a sparse design."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse
from scipy.sparse.csgraph import connected_components

from irt_dask.arrays import Bools, Floats, Ints
from irt_dask.calibrate.marginal.facets import scaled
from irt_dask.calibrate.marginal.facets.terms import Term, is_table, names_of, of_names, of_table
from irt_dask.errors import InputError

_NONE = "facets= names no facet: give one at least, or leave facets out"


@dataclass(frozen=True)
class Design:
    """Columns of a store as items at levels of facets.

    ``terms`` (columns, effects) times the effects is what is added to the difficulty of a column;
    ``made`` (items, effects) the part that makes an item's own where it has none (``linear``).
    Numbers have mean 0 and SD 1 here (:mod:`.scaled`): ``given`` (effects, effects) times the
    effects is those of numbers as they were given, and ``at_zero`` (items, effects) places items
    where these are 0.  A facet is a term: its effects follow each other, those of numbers alone
    are one, whose level is "" (``numeric``: what effects are multiplied by).
    """

    parent_id: tuple[str, ...]
    parent: Ints  # of each column, its place among the items
    facets: tuple[str, ...]
    facet: Ints  # of each effect, its place among the facets
    level: tuple[str, ...]
    terms: Any  # sparse, by row
    made: Any
    at_zero: Any
    given: Any
    numeric: Bools  # of each facet
    plain: Bools  # of each facet: levels, no interaction
    sums: Any  # sparse (constraints, effects): these sums are 0
    within: Ints  # of each effect: compared with those of the same number alone
    linear: bool

    @property
    def n_effects(self) -> int:
        """Number of effects."""
        return self.facet.size

    @functools.cached_property
    def centred(self) -> Any:
        """Ones at the effects of each facet with levels, sparse (facets, effects)."""
        has = np.flatnonzero(self.plain)
        at = np.flatnonzero(np.isin(self.facet, has))
        row = np.searchsorted(has, self.facet[at])
        shape = has.size, self.n_effects
        return scipy.sparse.csr_array((np.ones(at.size), (row, at)), shape=shape)

    @property
    def names(self) -> list[str]:
        """Effects for messages."""
        return [
            f"{self.facets[f]} {level}" if level else self.facets[f]
            for f, level in zip(self.facet, self.level, strict=True)
        ]

    @functools.cached_property
    def of_columns(self) -> tuple[Ints, Floats]:
        """Effects of each column, one a facet, and what these are multiplied by."""
        shape = self.parent.size, len(self.facets)
        return self.terms.indices.reshape(shape).astype(np.int64), self.terms.data.reshape(shape)

    @functools.cached_property
    def of_items(self) -> Design:
        """The items as columns, without facets: where numbers as they were given are 0."""
        return replace(self, parent=np.arange(len(self.parent_id)), terms=self.at_zero)

    @functools.cached_property
    def of_middle(self) -> Design:
        """The same where numbers are at their mean."""
        return replace(self, parent=np.arange(len(self.parent_id)), terms=self.made)

    def touched(self, some: Bools) -> Bools:
        """Effects of numbers as they were given that rest on some of these."""
        return np.asarray(abs(self.given) @ some.astype(float) > 0.0)

    @functools.cached_property
    def together(self) -> Any:
        """Ones at effects that a column has together, sparse (effects, effects)."""
        some = self.terms.copy()
        some.data[:] = 1.0
        return scipy.sparse.csr_array(some.T @ some)

    @functools.cached_property
    def n_sums(self) -> Ints:
        """Constraints of each facet."""
        first = self.sums.indices[self.sums.indptr[:-1]]
        return np.bincount(self.facet[first], minlength=len(self.facets))

    @property
    def constant(self) -> Floats:
        """1 at the constant of items that covariates make, which comes first, else 0."""
        return np.asarray((np.arange(self.n_effects) == 0) & self.linear, dtype=float)

    @property
    def interacting(self) -> bool:
        """Whether there is more than facets beside items: interactions, or items that are made."""
        return self.linear or any(":" in name for name in self.facets)

    def shifts(self, effects: Floats) -> Floats:
        """What is added to the difficulty of each column."""
        return np.asarray(self.terms @ effects)

    @property
    def identity(self) -> tuple[Any, ...]:
        """What a checkpoint rests on."""
        t = self.terms
        out = self.parent_id, self.parent, self.facets, self.level, t.indptr, t.indices, t.data
        return (*out, self.linear, self.made.data) if self.interacting else out


def designed(facets: Any, item_id: tuple[str, ...], item_covariates: Any = None) -> Design:
    """The design of the columns ``item_id`` of a store.

    ``facets`` are terms (:mod:`.terms`), and the columns' names are item@level, with a level of
    each facet in this order; or a table with a row for each column of the store.
    """
    if isinstance(facets, str):
        facets = [facets]
    if isinstance(facets, Sequence) and not facets:
        raise InputError(_NONE)
    linear = False
    if is_table(facets):
        if item_covariates is not None:
            raise InputError(
                "item_covariates goes with facets as a list of names; a table has a row for each "
                "column of the responses, and may have products of its own"
            )
        item, terms = of_table(facets, item_id)
    elif isinstance(facets, Sequence) and all(isinstance(f, str) for f in facets):
        item, terms, linear = of_names(facets, item_id, item_covariates)
    else:
        raise InputError(
            f"facets={facets!r}: give names of facets, whose levels follow the item's name as "
            f"item@level, or a table with a row for each column of the responses"
        )
    if not terms:
        raise InputError(_NONE)
    return _design(item, terms, linear)


class _Effects(NamedTuple):
    """Effects of a term: which one of each column; by level factor the level of each."""

    level: list[str]
    of_column: Ints
    keys: list[Ints]


def _effects(term: Term, n: int) -> _Effects:
    if not term.levels:
        return _Effects([""], np.zeros(n, dtype=np.int64), [])
    each = [pd.factorize(f.values) for f in term.levels]
    for f, (_, labels) in zip(term.levels, each, strict=True):
        if len(labels) < 2:
            raise InputError(
                f"the facet {f.name!r} has one level alone, {labels[0]!r}, which is a part of the "
                f"items' difficulties; leave the facet out"
            )
    if len(each) == 1:
        ((code, labels),) = each
        return _Effects(list(map(str, labels)), code, [np.arange(len(labels))])
    (one, of_one), (other, of_other) = each
    pair, pairs = pd.factorize(one.astype(np.int64) * len(of_other) + other)
    first, second = np.divmod(pairs, len(of_other))
    level = [f"{of_one[a]}:{of_other[b]}" for a, b in zip(first, second, strict=True)]
    return _Effects(level, pair, [first, second])


def _matrix(found: Sequence[_Effects], times: Sequence[Floats]) -> Any:
    """What effects of each column are multiplied by, sparse; one effect a term, 0 or not."""
    blocks = []
    for e, x in zip(found, times, strict=True):
        at = np.arange(x.size), e.of_column
        blocks.append(scipy.sparse.csr_array((x, at), shape=(x.size, len(e.level))))
    out = scipy.sparse.csr_array(scipy.sparse.hstack(blocks, format="csr"))
    out.sum_duplicates()
    return out


def _sums(term: Term, found: _Effects, there: Any) -> Any:
    """Sums of effects that are 0, sparse: over what other terms, or items, have already."""
    n, numbers = len(found.level), [f.name for f in term.factors if f.numeric]
    if not term.levels or not term.factors:
        return scipy.sparse.csr_array((0, n))
    if len(term.levels) == 1:
        key = [np.zeros(n, dtype=np.int64)] if there(*numbers) else []
    else:
        key = [k for f, k in zip(term.levels, found.keys, strict=True) if there(f.name)]
        key = key or [np.zeros(n, dtype=np.int64)]
    rows = [scipy.sparse.csr_array((np.ones(n), (k, np.arange(n)))) for k in key]
    if len(rows) == 2:  # both sum up to the same in each set of levels that meet
        meet = scipy.sparse.csr_array(rows[0] @ rows[1].T)
        _, part = connected_components(scipy.sparse.block_array([[None, meet], [meet.T, None]]))
        _, first = np.unique(part[meet.shape[0] :], return_index=True)
        rows[1] = rows[1][np.setdiff1d(np.arange(rows[1].shape[0]), first)]
    out = scipy.sparse.vstack(rows, format="csr") if rows else scipy.sparse.csr_array((0, n))
    return scipy.sparse.csr_array(out)


def _design(item: Any, terms: list[Term], linear: bool) -> Design:
    """The design of items and terms of the columns."""
    parent, parent_id = pd.factorize(item)
    n = parent.size
    made_by, by_columns = (names_of(t for t in terms if t.makes_items is m) for m in (True, False))
    of_items = {f.name for t in terms for f in t.factors if f.of_items}

    def there(*names: str) -> bool:  # whether columns have such effects without the term
        if {*names} <= of_items:
            return not linear or frozenset(names) in made_by
        return frozenset(names) in by_columns

    found = [_effects(t, n) for t in terms]
    sums = [_sums(t, e, there) for t, e in zip(terms, found, strict=True)]
    moved = [scaled.scaled(t, n, there, linear) for t in terms]
    within = []
    for t, e in zip(terms, found, strict=True):
        by = [k for f, k in zip(t.levels, e.keys, strict=True) if f.of_items and len(t.levels) > 1]
        within.append(by[0] if len(by) == 1 else np.zeros(len(e.level), dtype=np.int64))
    size = [len(e.level) for e in found]
    facet = np.repeat(np.arange(len(terms)), size)
    matrix = _matrix(found, [m.of_columns for m in moved])
    at_zero = _matrix(found, [scaled.at_zero(m, n) for m in moved])
    first = np.unique(parent, return_index=True)[1]
    made, at_zero = matrix[first], at_zero[first]
    of_made = np.array([t.makes_items for t in terms])[facet[made.indices]]
    at_zero.data = np.where(of_made, made.data, at_zero.data)
    made.data = np.where(of_made, made.data, 0.0)
    return Design(
        tuple(map(str, parent_id)), parent.astype(np.int64), tuple(t.name for t in terms),
        facet, tuple(level for e in found for level in e.level), matrix, made, at_zero,
        scaled.given(moved, size, linear),
        np.array([len(t.levels) < len(t.factors) or not t.factors for t in terms]),
        np.array([len(t.levels) == len(t.factors) == 1 for t in terms]),
        scipy.sparse.csr_array(scipy.sparse.block_diag(sums, format="csr")),
        np.concatenate(within), linear,
    )  # fmt: skip


def categories(design: Design, item_id: Iterable[str], n_categories: Sequence[int]) -> list[int]:
    """Categories of each item, which all its columns have."""
    k = np.array(n_categories)
    most = np.zeros(len(design.parent_id), dtype=np.int64)
    np.maximum.at(most, design.parent, k)
    other = np.flatnonzero(k != most[design.parent])
    if other.size:
        j = int(other[0])
        name = tuple(item_id)[j]
        raise InputError(
            f"{other.size} column(s) have fewer categories than others of their item: {name} has "
            f"{k[j]}, another of {design.parent_id[design.parent[j]]} has "
            f"{most[design.parent[j]]}; declare categories= for all columns of an item alike"
        )
    return most.tolist()
