"""Can effects be told apart?  By the items, groups and facets they meet, and by persons in common.

What no data could tell is refused: effects that may change together with items, means of groups or
other effects, without any column changing.  What rests on an assumption is said: levels that have
no persons in common, directly or by way of others, are compared as if their persons were alike.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
from scipy.sparse.csgraph import connected_components

from irt_dask.arrays import Ints
from irt_dask.calibrate.marginal.facets.design import Design
from irt_dask.engine import Engine
from irt_dask.errors import DataWarning, EstimationError, listed
from irt_dask.kernels.base import keyed_random
from irt_dask.kernels.responses.layouts import to_sparse
from irt_dask.store import Block

#: Share of a random vector that is left of it where data tell nothing.
_NOTHING = 1e-4


class Met(NamedTuple):
    """What one pass says of who answered what.

    ``most`` (items,) are answers to an item's columns that a person gave at most, ``label``
    (facets, effects) the first effect of those that persons have in common, ``seen`` (groups,
    columns) whether anybody of a group answered.
    """

    most: Ints
    label: Ints
    seen: Any


def _met(block: Block, parent: Ints, n_items: int, terms: Any, n_groups: int, of: Ints) -> Met:
    data = to_sparse(block.data)
    n, n_columns = data.shape
    kept = data.values >= 0
    person = np.repeat(np.arange(n), np.diff(data.indptr))[kept]
    column = data.indices[kept]
    ones = np.ones(person.size, dtype=np.int64)
    by_item = scipy.sparse.csr_array((ones, (person, parent[column])), shape=(n, n_items))
    most = np.asarray(by_item.max(axis=0).todense()).ravel() if n else np.zeros(n_items, np.int64)
    group = np.zeros(n, dtype=np.int64) if block.group is None else block.group
    seen = np.zeros((n_groups, n_columns), dtype=bool)
    seen[group[person], column] = True
    met = scipy.sparse.csr_array((np.ones(person.size), (person, column)), shape=(n, n_columns))
    label = np.empty((int(of.max()) + 1, of.size), dtype=np.int64)
    for f in range(len(label)):
        own = (terms != 0).astype(float) * (of == f)
        label[f] = _labels(scipy.sparse.csr_array(met @ own), of.size)
    return Met(most.astype(np.int64), label, seen)


def _labels(edges: Any, n: int) -> Ints:
    """The first effect of each connected set, where rows connect effects."""
    n_rows = edges.shape[0]
    edges = edges.tocoo()
    graph = scipy.sparse.coo_array(
        (np.ones(edges.nnz), (edges.row, n_rows + edges.col)), shape=(n_rows + n,) * 2
    )
    _, found = connected_components(graph, directed=False)
    found = found[n_rows:]
    _, first, back = np.unique(found, return_index=True, return_inverse=True)
    return first[back]


def _together(one: Any, other: Any) -> Met:
    label = np.empty_like(one.label)
    n = label.shape[1]
    at = np.tile(np.arange(n), 2)
    for f in range(len(label)):
        to = np.concatenate([one.label[f], other.label[f]])
        rows = scipy.sparse.coo_array((np.ones(at.size), (at, to)), shape=(n, n))
        _, found = connected_components(rows, directed=False)
        _, first, back = np.unique(found, return_index=True, return_inverse=True)
        label[f] = first[back]
    return Met(np.maximum(one.most, other.most), label, one.seen | other.seen)


def met(engine: Engine, design: Design, n_groups: int) -> Met:
    """Who met whom: one pass."""
    found = engine.map_reduce(
        _met, design.parent, len(design.parent_id), design.terms, n_groups, design.facet,
        combine=_together,
    )  # fmt: skip
    return Met(*found)


def check(found: Met, design: Design, labels: tuple[str, ...], reference: int) -> None:
    """Refuse what the design cannot tell, and warn of sets of levels without common persons."""
    _refuse_undetermined(found, design, labels, reference)
    comparable = np.stack([design.facet, design.within])[:, ~design.numeric[design.facet]]
    for f, among in np.unique(comparable, axis=1).T:
        own = np.flatnonzero((design.facet == f) & (design.within == among))
        sets, size = np.unique(found.label[f, own], return_counts=True)
        if sets.size > 1:
            order = np.argsort(-size, kind="stable")
            words = "; ".join(
                listed([design.level[e] for e in own[found.label[f, own] == sets[k]]], 5)
                for k in order[:5]
            )
            warnings.warn(
                f"the levels of {design.facets[f]} fall into {sets.size} sets without persons in "
                f"common ({words}{' ...' * (sets.size > 5)}): between these sets effects are "
                f"compared as if their persons had been drawn from one distribution of ability; "
                f"they are not comparable if they were not",
                DataWarning,
                stacklevel=4,
            )


def _refuse_undetermined(
    found: Met, design: Design, labels: tuple[str, ...], reference: int
) -> None:
    """Stop where items, effects and groups' means may change while all columns stay.

    Difficulties of columns, less the mean of the group that answers, are all that data show.  A
    random vector of parameters less its part in the space of what is shown is what is not.
    """
    matrix = _shown(found, design, reference)
    scale = np.sqrt(np.asarray((matrix**2).sum(axis=0)).ravel())
    matrix = matrix @ scipy.sparse.diags_array(1.0 / np.where(scale > 0.0, scale, 1.0))
    start = keyed_random.generator(0, "facets").standard_normal(matrix.shape[1])
    moved, stop = scipy.sparse.linalg.lsmr(
        matrix, matrix @ start, atol=1e-10, btol=1e-10, conlim=0.0, maxiter=20000
    )[:2]
    if stop == 7:  # not there yet: the information will say
        return
    left = np.abs(start - moved)
    n_items = 0 if design.linear else len(design.parent_id)
    n_effects = design.n_effects
    bad = np.flatnonzero(design.touched(left[n_items : n_items + n_effects] > _NOTHING))
    of_groups = np.flatnonzero(left[n_items + n_effects :] > _NOTHING)
    if bad.size or of_groups.size:
        names = [design.names[e] for e in bad]
        others = [g for k, g in enumerate(labels) if k != reference]
        names += [f"mean of group {others[g]}" for g in of_groups]
        raise EstimationError(
            f"the data cannot tell {len(names)} effect(s) apart from items, groups or other "
            f"facets: {listed(names, 10)}. They meet in such a way that all may change and no "
            f"response is more or less likely: leave a facet or the groups out, or give responses "
            f"that tie them together"
        )


def _shown(found: Met, design: Design, reference: int) -> Any:
    """Difficulties that data show by items, effects and groups' means; one row each.

    Effects of a facet with levels sum to 0: rows say so.  Items that covariates make have no
    difficulties of their own.
    """
    group, column = np.nonzero(found.seen)
    n, n_items = column.size, len(design.parent_id)
    of_item = scipy.sparse.csr_array(
        (np.ones(n), (np.arange(n), design.parent[column])), shape=(n, n_items)
    )[:, : 0 if design.linear else n_items]
    n_groups = len(found.seen)
    place = np.cumsum(np.arange(n_groups) != reference) - 1
    some = group != reference
    of_group = scipy.sparse.csr_array(
        (np.full(int(some.sum()), -1.0), (np.flatnonzero(some), place[group[some]])),
        shape=(n, n_groups - 1),
    )
    top = scipy.sparse.hstack([of_item, design.terms[column], of_group], format="csr")
    sums = design.sums
    left = scipy.sparse.csr_array((sums.shape[0], of_item.shape[1]))
    right = scipy.sparse.csr_array((sums.shape[0], n_groups - 1))
    below = scipy.sparse.hstack([left, sums, right], format="csr")
    return scipy.sparse.csr_array(scipy.sparse.vstack([top, below]))


def answers(design: Design, seen: Ints, lowest: Ints, highest: Ints) -> tuple[Ints, Ints]:
    """Answers under each effect; -1 where all are of the lowest category, 1 of the highest, else 0.

    From counts of the columns: answers, and those of an item's lowest and highest category.
    """
    terms = design.terms.copy()
    terms.data = np.ones(terms.data.size, dtype=np.int64)
    n, low, high = (np.asarray(terms.T @ v) for v in (seen, lowest, highest))
    one_sided = (n == high).astype(np.int64) - (n == low)
    return n, np.where(design.numeric[design.facet], 0, one_sided)
