"""Persons grouped by the set of items they answered: what conditional likelihoods need of them."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irt_dask.arrays import Bools, Ints, Words
from irt_dask.kernels.base.compiled import jit, jit_inline
from irt_dask.kernels.responses import layouts, rows
from irt_dask.kernels.responses.layouts import Dense, Layout, Sparse
from irt_dask.kernels.responses.words import missing_bits

#: Persons of a block from whom on a set of items is common.
COMMON = 8
#: Sets whose items are looked at together.
_AT_ONCE = 1024


class Sets(NamedTuple):
    """Persons by the set of items they answered; what their conditional likelihood needs of them.

    Set g has the items ``items[indptr[g]:indptr[g + 1]]``, which ascend; ``right`` lies like
    ``items`` (persons right; with more categories the sum of responses), and the persons of the set
    with each score, from 0 to the highest, are ``scores[first[g]:first[g + 1]]``.  With two
    categories ``first[g]`` is ``indptr[g] + g``.
    """

    indptr: Ints
    items: NDArray[np.int32]
    right: Ints
    scores: Ints
    first: Ints

    @property
    def n_sets(self) -> int:
        """Number of sets."""
        return self.indptr.size - 1


@jit
def _equal(indptr: Any, indices: Any, values: NDArray[np.int8], i: int, j: int) -> bool:
    items, one = rows.row(indptr, indices, values, i)
    others, two = rows.row(indptr, indices, values, j)
    if one.size != two.size:
        return False
    for k in range(one.size):
        if (one[k] >= 0) != (two[k] >= 0) or rows.item(items, k) != rows.item(others, k):
            return False
    return True


@jit
def _number(
    indptr: Any, indices: Any, values: NDArray[np.int8], table: Ints, first: Ints, number: Ints
) -> int:
    """Number rows by their set of items in a hash table of 2^b places; return how many sets."""
    n_sets = 0
    last = np.uint64(table.size - 1)
    for i in range(number.size):
        items, x = rows.row(indptr, indices, values, i)
        h = np.uint64(14695981039346656037)
        for k in range(x.size):
            if x[k] >= 0:
                h = (h ^ np.uint64(rows.item(items, k))) * np.uint64(1099511628211)
        h ^= h >> np.uint64(32)
        h *= np.uint64(0x9E3779B97F4A7C15)
        at = (h >> np.uint64(32)) & last
        while table[at] >= 0 and not _equal(indptr, indices, values, first[table[at]], i):
            at = (at + np.uint64(1)) & last
        if table[at] < 0:
            table[at] = n_sets
            first[n_sets] = i
            n_sets += 1
        number[i] = table[at]
    return n_sets


@jit_inline
def seek(words: Words, i: int, table: Ints, others: Words) -> np.uint64:
    """Place in a hash table of the row that equals row i, or of -1, where it belongs."""
    last = np.uint64(table.size - 1)
    h = np.uint64(14695981039346656037)
    for k in range(words.shape[1]):
        h = (h ^ words[i, k]) * np.uint64(0x9E3779B97F4A7C15)
        h ^= h >> np.uint64(29)
    at = (h >> np.uint64(32)) & last
    while True:  # words are compared without an early end: this form takes a fifth of the time
        other = table[at]
        if other < 0:
            break
        differ = np.uint64(0)
        for k in range(words.shape[1]):
            differ |= words[i, k] ^ others[other, k]
        if differ == 0:
            break
        at = (at + np.uint64(1)) & last
    return at


def _places(n: int) -> Ints:
    """Hash table for so many sets, 2^b places."""
    return np.full(1 << max(1, (2 * n).bit_length()), -1, dtype=np.int64)


@jit
def _enter(words: Words, table: Ints) -> None:
    for i in range(words.shape[0]):
        table[seek(words, i, table, words)] = i


def hash_table(words: Words) -> Ints:
    """Table in which :func:`seek` finds these rows, which differ."""
    table = _places(len(words))
    _enter(words, table)
    return table


@jit
def _number_words(words: Words, table: Ints, first: Ints, number: Ints) -> int:
    """As :func:`_number`, for rows whose missing items are bits of words."""
    n_sets = 0
    for i in range(number.size):
        at = seek(words, i, table, words)
        if table[at] < 0:
            table[at] = i
            first[n_sets] = i
            number[i] = n_sets
            n_sets += 1
        number[i] = number[table[at]]
    return n_sets


def is_complete(data: Layout) -> bool:
    """Whether there are persons, and all answered every item: often so, and seen fast."""
    n, m = data.shape
    if isinstance(data, Sparse):
        return n > 0 and data.n_observed == n * m
    return n > 0 and bool(data.values.min() >= 0)


def sets_of(data: Layout) -> tuple[Ints, Ints]:
    """Set of items of each person, numbered in order of appearance; first person of each set."""
    n = data.shape[0]
    if is_complete(data):
        return np.zeros(n, dtype=np.int64), np.zeros(1, dtype=np.int64)
    table = _places(n)
    first, number = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    if isinstance(data, Dense):
        n_sets = _number_words(missing_bits(data), table, first, number)
    else:
        n_sets = _number(*rows.arrays(data), table, first, number)
    return number, first[:n_sets]


class CommonSets(NamedTuple):
    """Sets of items that many persons of a block answered; -1 is the number of the others."""

    number: NDArray[np.int32]
    observed: Bools  # (sets, items)

    @property
    def nbytes(self) -> int:
        """Memory held, bytes."""
        return self.number.nbytes + self.observed.nbytes


def common_sets(data: Layout) -> CommonSets:
    """Sets of at least :data:`COMMON` persons, in order of appearance."""
    number, first = sets_of(data)
    kept = np.flatnonzero(np.bincount(number, minlength=first.size) >= COMMON)
    place = np.full(first.size, -1, dtype=np.int32)
    place[kept] = np.arange(kept.size, dtype=np.int32)
    return CommonSets(place[number], _observed(data, first[kept]))


# --- sets that are common in all data -------------------------------------------------------------


def buckets_for(n_persons: int, n_items: int) -> int:
    """Buckets that sets of items fall into: some for every thousand persons, and 2 MB at most."""
    most = min(4096, (1 << 18) // (n_items + 1), n_persons // 32)
    return 1 << max(0, most.bit_length() - 1)


def tally(data: Layout, n_buckets: int) -> Ints:
    """Persons with each item observed and persons, by bucket of their set, (buckets, items + 1).

    Sums over blocks are those of all persons, in whatever blocks.
    """
    number, first = sets_of(data)
    count = np.bincount(number, minlength=first.size)
    out = np.zeros((n_buckets, data.shape[1] + 1), dtype=np.int64)
    for k, observed in _some(data, first):
        bucket = [zlib.crc32(name) % n_buckets for name in _names(observed)]
        each = np.append(observed, np.ones((len(observed), 1), dtype=bool), axis=1)
        np.add.at(out, bucket, count[k : k + len(observed), None] * each)
    return out


def majorities(tallied: Ints, least: int) -> Bools:
    """Sets of the buckets with so many persons, those of most persons first, (sets, items).

    The set of more than half of a bucket's persons is what more than half of them answered; where
    there is no such set there may be no person of the one that is given.
    """
    n, observed = tallied[:, -1], tallied[:, :-1]
    sets = 2 * observed > n[:, None]
    order = np.argsort(-n, kind="stable")
    sets = sets[order[(n[order] >= least) & sets[order].any(axis=1)]]
    return np.asarray(sets[np.sort(np.unique(sets, axis=0, return_index=True)[1])])


def number_among(data: Layout, sets: Bools) -> Ints:
    """Which of these sets, which differ, each person answered; -1: another one."""
    place = {name: k for k, name in enumerate(_names(sets))}
    number, first = sets_of(data)
    mine = [place.get(name, -1) for _, some in _some(data, first) for name in _names(some)]
    return np.array(mine, dtype=np.int64)[number]


def _observed(data: Layout, who: Ints) -> Bools:
    """What some persons answered, (persons, items)."""
    return np.asarray(layouts.to_dense(layouts.take(data, who)).values >= 0)


def _some(data: Layout, who: Ints) -> Iterator[tuple[int, Bools]]:
    """Where some of these persons begin, and what they answered."""
    for k in range(0, who.size, _AT_ONCE):
        yield k, _observed(data, who[k : k + _AT_ONCE])


def _names(observed: Bools) -> list[bytes]:
    return [row.tobytes() for row in np.packbits(observed, axis=1)]


# --- what conditional likelihoods need ------------------------------------------------------------


@jit
def _tally(
    indptr: Any, indices: Any, values: NDArray[np.int8], number: Ints, start: Ints, right: Ints,
    scores: Ints, first: Ints,
) -> None:  # fmt: skip
    for i in range(number.size):
        _, x = rows.row(indptr, indices, values, i)
        g = number[i]
        at, score = start[g], 0
        for k in range(x.size):
            if x[k] >= 0:
                right[at] += x[k]
                score += x[k]
                at += 1
        scores[first[g] + score] += 1


def observed_sets(data: Layout, steps: Ints | None = None) -> Sets:
    """Group the persons of a block by the items they answered.

    ``steps`` are the categories of each item less one; None: all items have two.
    """
    arrays = rows.arrays(data)
    number, person = sets_of(data)
    sets = layouts.to_sparse(layouts.take(data, person))
    highest = np.diff(sets.indptr)
    if steps is not None:
        before = np.concatenate([[0], np.cumsum(steps[sets.indices])])
        highest = np.diff(before[sets.indptr])
    first = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(highest + 1)])
    right = np.zeros(sets.indices.size, dtype=np.int64)
    scores = np.zeros(first[-1], dtype=np.int64)
    _tally(*arrays, number, sets.indptr, right, scores, first)
    return Sets(sets.indptr, sets.indices.astype(np.int32), right, scores, first)


@jit
def _add(old: Ints, values: Ints, number: Ints, new: Ints, out: Ints) -> None:
    for i in range(number.size):
        lo, g = old[i], number[i]
        for k in range(old[i + 1] - lo):
            out[new[g] + k] += values[lo + k]


def merge(left: Sets, right: Sets) -> Sets:
    """Add up two lists of sets."""
    indptr = np.concatenate([left.indptr, right.indptr[1:] + left.indptr[-1]])
    before = np.concatenate([left.first, right.first[1:] + left.first[-1]])
    items = np.concatenate([left.items, right.items])
    values = np.zeros(items.size, dtype=np.int8)
    both = layouts.Sparse(indptr, items, values, 0)
    number, one = sets_of(both)
    kept = layouts.take(both, one)
    assert isinstance(kept, layouts.Sparse)
    first = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(np.diff(before)[one])])
    n_right = np.zeros(kept.indices.size, dtype=np.int64)
    scores = np.zeros(first[-1], dtype=np.int64)
    _add(indptr, np.concatenate([left.right, right.right]), number, kept.indptr, n_right)
    _add(before, np.concatenate([left.scores, right.scores]), number, first, scores)
    return Sets(kept.indptr, kept.indices, n_right, scores, first)


@jit
def _link(
    indptr: Ints, items: Any, right: Ints, scores: Ints, first: Ints, steps: Ints, linked: Bools
) -> None:
    for g in range(indptr.size - 1):
        lo, k = indptr[g], indptr[g + 1] - indptr[g]
        mine = items[lo : lo + k]
        share = right[lo : lo + k] / steps[mine]
        order = np.argsort(-share)
        start = level = above = got = most = points = 0  # the level above is order[above:level]
        reached = scores[first[g] : first[g + 1]].sum()
        for t in range(k):
            got += right[lo + order[t]]
            for _ in range(steps[mine[order[t]]]):
                reached -= scores[first[g] + points]  # persons with a score of points + 1 or more
                most += reached
                points += 1
            if got < most:
                continue
            # Items order[start:t + 1] are linked in a circle.
            for u in range(start, t + 1):
                v = u + 1 if u < t else start
                linked[mine[order[u]], mine[order[v]]] = True
            tied = start > 0 and share[order[start]] == share[order[start - 1]]
            if not tied:
                above, level = level, start
            for u in range(above, level):
                for v in range(start, t + 1):
                    linked[mine[order[u]], mine[order[v]]] = True
            start = t + 1


def links(sets: Sets, n_items: int, steps: Ints | None = None) -> Bools:
    """Links i -> j with the same connections as "somebody was right on i and wrong on j".

    In a set the t items solved most often got ``sum_r n_r min(r, t)`` right answers at most, and so
    many if and only if nobody was right outside them and wrong inside: no link leads back.  These
    cuts part the items of the set into levels; inside one, items are linked both ways (or were
    answered alike by everybody, and are linked through others alone).

    With more categories right is above the lowest, wrong below the highest, t the sum of the items'
    ``steps``, and items are ordered by the mean response as a share of the highest: where nobody is
    above the lowest outside and below the highest inside, everybody's shares are as high inside.
    """
    linked = np.zeros((n_items, n_items), dtype=bool)
    if steps is None:
        steps = np.ones(n_items, dtype=np.int64)
    _link(*sets, steps, linked)
    return linked
