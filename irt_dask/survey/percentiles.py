"""Percentiles of more persons than memory holds, by passes that look at fewer and fewer values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import sqrt
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from irt_dask.arrays import Floats
from irt_dask.engine.progress import ProgressOption
from irt_dask.survey.plan import Plan
from irt_dask.survey.sample import Cell
from irt_dask.survey.statistics import reached
from irt_dask.survey.sums import Gathered, read
from irt_dask.survey.tables import Table

#: Bytes of sums, and then of values, that a pass may hold.
MOST_BYTES = 1 << 30
#: Bins of n persons are sqrt(this x percentiles x n): sums of bins then take as much memory as the
#: values of the bins that hold a percentile.
_BALANCE = 5.0
#: A bin that is looked into again is parted in so many.
_PARTS = 16
#: Bytes of a value that is held, with its weight and which weight it is.
_HELD = 20


class Search:
    """Percentiles `at` of one plausible value in one group, under each weight.

    Bin b holds values from edges[b - 1] to below edges[b]. Weights of bins say in which of them a
    percentile lies under each weight: values of that bin, with that weight, are held and sorted;
    a bin of a single value is the percentile.
    """

    def __init__(self, edges: Floats, at: Sequence[float], n_weights: int) -> None:
        self._edges = edges
        self._at = np.asarray(at)[:, None]
        #: (percentiles, weights); NaN without weight.
        self.found = np.full((len(at), n_weights), np.nan)
        self._open = np.ones(self.found.shape, dtype=bool)
        self._sums: Floats | None = None
        self._kept: list[tuple[Floats, np.ndarray, Floats]] = []
        #: Bytes of the values that :meth:`keep` would hold.
        self.held = 0

    @property
    def summed(self) -> int:
        """Bytes of the sums of bins."""
        return 8 * (len(self._edges) + 1) * (1 + self.found.shape[1])

    def count(self, x: Floats, weights: Floats) -> None:
        """Add values (persons,) and their weights (persons, W) to their bins."""
        if self._sums is None:
            self._sums = np.zeros((len(self._edges) + 1, 1 + weights.shape[1]))
        bins, at = np.unique(np.searchsorted(self._edges, x, "right"), return_inverse=True)
        there = csr_array((np.ones(len(x)), (at, np.arange(len(x)))), shape=(len(bins), len(x)))
        self._sums[bins, 0] += np.bincount(at)
        self._sums[bins, 1:] += there @ weights

    def bracket(self) -> None:
        """Find the bin of each percentile, once all persons are counted."""
        assert self._sums is not None
        n, below = self._sums[:, 0], np.cumsum(self._sums[:, 1:], axis=0)
        self._sums = None
        each = np.broadcast_to(np.arange(below.shape[1]), self.found.shape)
        self._open &= below[-1] > 0
        self._wanted = self._at * reached(below[-1], int(n.sum()))
        bins = np.stack([(below < of).sum(axis=0) for of in self._wanted])
        self._before = np.where(bins > 0, below[bins - 1, each], 0.0)
        self._from = np.concatenate([[-np.inf], self._edges])[bins]
        self._to = np.concatenate([self._edges, [np.inf]])[bins]
        alone = self._open & (np.nextafter(self._from, np.inf) == self._to)
        self.found[alone] = self._from[alone]
        self._open &= ~alone
        self._needed = np.zeros(below.shape, dtype=bool)
        self._needed[bins[self._open], each[self._open]] = True
        self.held = _HELD * int((n @ self._needed).sum())

    def refine(self) -> None:
        """Part the bins that hold a percentile by the numbers that there are between their ends."""
        limits = np.stack([self._from[self._open], self._to[self._open]], axis=1)
        points: set[int] = set()
        for low, high in {*map(tuple, _whole(limits).tolist())}:
            points |= {low + (high - low) * k // _PARTS for k in range(_PARTS + 1)}
        edges = _real(np.array(sorted(points), dtype=np.int64)) + 0.0
        self._edges = np.unique(edges[np.isfinite(edges)])

    def keep(self, x: Floats, weights: Floats) -> None:
        """Hold the values of bins that hold a percentile, with the weights for which they do."""
        bins = np.searchsorted(self._edges, x, "right")
        some = np.flatnonzero(np.asarray(self._needed.any(axis=1))[bins])
        rows, each = np.nonzero(self._needed[bins[some]])
        of, rows = weights[some[rows], each], some[rows]
        weighs = of > 0
        self._kept.append((x[rows[weighs]], each[weighs].astype(np.int32), of[weighs]))

    def finish(self) -> None:
        """Find percentiles among what is held."""
        x, each, of = (np.concatenate(parts) for parts in zip(*self._kept, strict=True))
        self._kept.clear()
        order = np.lexsort((x, each))
        x, of = x[order], of[order]
        first = np.searchsorted(each[order], np.arange(self.found.shape[1] + 1))
        for p, w in np.argwhere(self._open):
            own = x[first[w] : first[w + 1]]
            i, j = np.searchsorted(own, [self._from[p, w], self._to[p, w]]) + first[w]
            below = self._before[p, w] + np.cumsum(of[i:j])
            # sums in another order may miss the whole of the bin by rounding
            at = np.searchsorted(below, min(self._wanted[p, w], below[-1]))
            self.found[p, w] = x[i + at]
        self._edges, self._needed = np.empty(0), np.zeros((0, 0), dtype=bool)


def _whole(x: Floats) -> np.ndarray:
    """Whole numbers in the order of x, one after another for numbers one after another."""
    bits = x.view(np.int64)
    return bits ^ ((bits >> 63) & np.int64(2**63 - 1))


def _real(whole: np.ndarray) -> Floats:
    """Numbers of which :func:`_whole` made these."""
    return (whole ^ ((whole >> 63) & np.int64(2**63 - 1))).view(np.float64)


def by_passes(
    table: Table, plan: Plan, gathered: Gathered, progress: ProgressOption = None
) -> dict[Cell, Floats]:
    """Percentiles (percentiles, weights, plausible values) of every group, as `plan` asks for them.

    They are those of :func:`irt_dask.survey.statistics.percentiles`. Groups are taken as many at a
    time as memory holds sums of bins of; these take a pass, and the values of bins that hold a
    percentile another, or some. A group that has too many of these even so is taken again, with
    its bins parted.
    """
    at = [s.at / 100 for s in plan.statistics if s.kind == "percentile"]
    n_weights = 1 if plan.replicates is None else 1 + plan.replicates.n
    searches: dict[Cell, list[Search]] = {}
    assert gathered.sample is not None
    for name, groups in gathered.groups.items():
        most = max(MOST_BYTES // (8 * (1 + n_weights) * len(plan.variables[name])), 1)
        for key, group in groups.items():
            n_bins = min(1 + int(sqrt(_BALANCE * len(at) * group.n)), most)
            edges = gathered.sample.edges((name, key), n_bins)
            searches[name, key] = [Search(e, at, n_weights) for e in edges]
    to_do = list(searches)
    while to_do:
        again: list[Cell] = []
        for some in _portions(to_do, {c: sum(s.summed for s in searches[c]) for c in to_do}):
            _pass(table, plan, {c: searches[c] for c in some}, Search.count, progress)
            for search in (s for c in some for s in searches[c]):
                search.bracket()
            held = {c: sum(s.held for s in searches[c]) for c in some}
            large = [c for c in some if held[c] > MOST_BYTES]
            for search in (s for c in large for s in searches[c]):
                search.refine()
            again += large
            few = [c for c in some if 0 < held[c] <= MOST_BYTES]
            for part in _portions(few, held):
                _pass(table, plan, {c: searches[c] for c in part}, Search.keep, progress)
                for search in (s for c in part for s in searches[c]):
                    search.finish()
        to_do = again
    return {c: np.stack([s.found for s in of], axis=2) for c, of in searches.items()}


def _portions(cells: Sequence[Cell], sizes: Mapping[Cell, int]) -> Iterator[list[Cell]]:
    """Groups one after another, as many at a time as memory holds."""
    some: list[Cell] = []
    total = 0
    for cell in cells:
        if some and total + sizes[cell] > MOST_BYTES:
            yield some
            some, total = [], 0
        some.append(cell)
        total += sizes[cell]
    if some:
        yield some


def _pass(
    table: Table, plan: Plan, searches: Mapping[Cell, Sequence[Search]],
    each: Callable[[Search, Floats, Floats], Any], progress: ProgressOption,
) -> None:  # fmt: skip
    """One reading of the table, for these groups."""
    for batch in read(table, plan, progress, "percentiles"):
        for name, (x, there) in batch.observed.items():
            for key, rows in batch.parts:
                if (name, key) in searches and (rows := rows[there[rows]]).size:
                    weights = batch.weights[rows]
                    for search, values in zip(searches[name, key], x[rows].T, strict=True):
                        each(search, values, weights)
