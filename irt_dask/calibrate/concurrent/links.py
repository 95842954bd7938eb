"""What ties the groups to one scale: items that they have in common and that are not freed."""

from __future__ import annotations

import warnings

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from irt_dask.arrays import Bools, Ints
from irt_dask.calibrate.concurrent.sets import Sets
from irt_dask.errors import DataWarning, EstimationError, ItemWarning, listed

#: Common items, and share of the items that a group answered, below which its link is weak.
WEAK, WEAK_SHARE = 3, 1.0 / 3.0


def n_common(there: Bools, freed: Bools) -> Ints:
    """Items of each group that are common to it and another, (groups,)."""
    common = there & ~freed
    return np.asarray((common & (common.sum(axis=0) > 1)).sum(axis=1))


def refuse_apart(
    labels: tuple[str, ...], there: Bools, freed: Bools, sets: Sets, when: str
) -> None:
    """Stop where groups have no items in common, not even through others: they share no scale.

    ``there`` are items that groups answered, (groups, items), ``freed`` those of sets.  Groups of
    a set share what is freed in it too.
    """
    n_groups, m = there.shape
    g, j = np.nonzero(there)
    item = np.where(freed[sets.number][g, j], m * (1 + sets.number[g]), 0) + j
    size = n_groups + m * (1 + len(sets.labels))
    edges = coo_array((np.ones(g.size), (g, n_groups + item)), shape=(size, size))
    _, part = connected_components(edges, directed=False)
    parts = [np.flatnonzero(part[:n_groups] == k) for k in np.unique(part[:n_groups])]
    if len(parts) == 1:
        return
    parts.sort(key=len)
    apart = [labels[k] for k in parts[0]]
    raise EstimationError(
        f"{when} {len(apart)} group(s) have no item in common with the others: {listed(apart, 5)}; "
        f"nothing says how their scales compare. Free fewer items (a lower rate, a larger least or "
        f"cut-off), or calibrate these groups by themselves"
    )


def warn_of_weak(labels: tuple[str, ...], item_id: tuple[str, ...], there: Bools,
                 freed: Bools) -> None:  # fmt: skip
    """Name the groups that few common items hold, and items that most groups have of their own."""
    common, answered = n_common(there, freed), there.sum(axis=1)
    weak = np.flatnonzero((common < WEAK) | (common < WEAK_SHARE * answered))
    if weak.size:
        some = ", ".join(f"{labels[g]!r} ({common[g]} of {answered[g]})" for g in weak[:10])
        warnings.warn(
            f"{weak.size} group(s) are tied to the scale by fewer than {WEAK} items, or by fewer "
            f"than a third of those that they answered: {some}; their means and SDs rest on these "
            f"alone",
            DataWarning,
            stacklevel=3,
        )
    n_freed = (there & freed).sum(axis=0)
    most = np.flatnonzero(2 * n_freed > there.sum(axis=0))
    if most.size:
        some = ", ".join(f"{item_id[j]} ({n_freed[j]} of {there[:, j].sum()})" for j in most[:10])
        warnings.warn(
            f"{most.size} item(s) are freed in more than half of the groups that answered them: "
            f"{some}; they hardly belong to the common scale",
            ItemWarning,
            stacklevel=3,
        )


def warn_of_units(tested: bool) -> None:
    """Say, if there were tests, that they take persons as independent, who are sampled in units."""
    if not tested:
        return
    warnings.warn(
        "standard errors are those of a sample of units, and the tests of items in groups are not: "
        "they take persons as independent, and free too many items where persons of a unit answer "
        "an item alike beyond their ability; use least= or a cut-off of RMSD as free=",
        DataWarning,
        stacklevel=3,
    )
