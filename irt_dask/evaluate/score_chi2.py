"""S-X2: responses by the sum of all of them, beside what the model expects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from irt_dask.arrays import Floats, Ints
from irt_dask.curves.item_set import ItemSet
from irt_dask.evaluate.abilities import Known
from irt_dask.kernels.misfit import predicted_scores, sum_scores
from irt_dask.population.population import NOBODY_APART

#: S-X2 counts items x number right: it is made up to this many items, and categories x scores.
MAX_ITEMS, MAX_CELLS = 1000, 10_000_000
#: Cells are pooled until so many right and so many wrong answers are expected.
_LEAST_EXPECTED = 1.0


@dataclass
class ByScore:
    """Counts by the sum of responses and those expected, of groups of persons together.

    Of two categories the right answers (items, scores), else categories (all of them, scores).
    """

    counts: Ints
    persons: Ints
    expected: Floats
    #: Persons who did not answer everything, who are not counted.
    incomplete: int

    def add(self, other: ByScore) -> None:
        """Add persons of another group."""
        self.counts = self.counts + other.counts
        self.persons = self.persons + other.persons
        self.expected = self.expected + other.expected
        self.incomplete += other.incomplete


def by_score(known: Known, counts: Ints, persons: Ints, incomplete: Ints) -> ByScore:
    """Counts of persons of one distribution of ability, with those expected."""
    mass = np.exp(known.population.prior(known.nodes, NOBODY_APART)[0].log_mass[0])
    p = np.exp(known.items.log_p(known.nodes))
    if known.graded:
        share = predicted_scores.expected_by_score(p, known.items.first, mass)
    else:
        share = sum_scores.expected_right(p[1::2], mass)
    expected = np.where(persons > 0, persons * np.nan_to_num(share), 0.0)
    return ByScore(counts, persons, expected, int(incomplete))


def s_x2(items: ItemSet, of: ByScore) -> tuple[Floats, Ints]:
    """S-X2 of each item and the number of its free cells."""
    return _of_categories(items, of) if (items.n_categories > 2).any() else _of_two(of)


def pooled(enough: Floats, least: Floats) -> NDArray[np.intp]:
    """Starts of neighbouring cells pooled until every sum of ``enough`` reaches ``least``.

    ``enough`` has shape (cells, conditions).  Cells that are left over join the last group; without
    any full group there is one of all.
    """
    starts, begin, total = [], 0, np.zeros(enough.shape[1])
    for k, x in enumerate(enough):
        total = total + x
        if (total >= least).all():
            starts.append(begin)
            begin, total = k + 1, np.zeros(enough.shape[1])
    return np.array(starts or [0])


def _of_two(of: ByScore) -> tuple[Floats, Ints]:
    """Of two categories."""
    right, expected = of.counts, of.expected
    m = right.shape[0]
    value, cells = np.zeros(m), np.zeros(m, dtype=np.int64)
    n = of.persons[1:m].astype(float)
    for j in range(m):
        e = np.stack([expected[j, 1:m], n - expected[j, 1:m]], axis=1)
        if m < 2 or (e.sum(axis=0) < _LEAST_EXPECTED).any():
            continue
        at = pooled(e, np.full(2, _LEAST_EXPECTED))
        difference = np.add.reduceat(right[j, 1:m] - e[:, 0], at)
        e_right, e_wrong = np.add.reduceat(e, at).T
        value[j] = (difference**2 * (1.0 / e_right + 1.0 / e_wrong)).sum()
        cells[j] = at.size
    return value, cells


def _of_categories(items: ItemSet, of: ByScore) -> tuple[Floats, Ints]:
    """S-X2 of each item over categories and scores, and the number of its free cells.

    Scores are pooled until two categories at least are expected once, categories of a pool with
    their lower neighbours until each is; a pool of c categories has c - 1 free cells.
    """
    value, cells = np.zeros(items.n_items), np.zeros(items.n_items, dtype=np.int64)
    lowest, highest = items.ends
    inside = slice(int(lowest.sum()) + 1, int(highest.sum()))  # at the ends there is no choice
    for j in range(items.n_items):
        rows = slice(items.first[j], items.first[j + 1])
        for o, e in _pools(of.counts[rows, inside].astype(float), of.expected[rows, inside]):
            value[j] += ((o - e) ** 2 / e).sum()
            cells[j] += e.size - 1
    return value, cells


def _pools(observed: Floats, expected: Floats) -> Iterator[tuple[Floats, Floats]]:
    """Observed and expected counts of pooled categories, for pools of neighbouring scores.

    What is left over at the end joins the last pool.
    """
    begin, pools = 0, []
    for s in range(expected.shape[1]):
        if _joined(expected[:, begin : s + 1].sum(axis=1)).size > 1:
            pools.append(begin)
            begin = s + 1
    if not pools:
        return
    ends = [*pools[1:], expected.shape[1]]
    for lo, hi in zip(pools, ends, strict=True):
        e = expected[:, lo:hi].sum(axis=1)
        at = _joined(e)
        yield np.add.reduceat(observed[:, lo:hi].sum(axis=1), at), np.add.reduceat(e, at)


def _joined(expected: Floats) -> NDArray[np.intp]:
    """Starts of neighbouring categories that are together expected once at least."""
    return pooled(expected[:, None], np.array([_LEAST_EXPECTED]))
