"""Comparisons of items within persons: random disjoint pairs, their counts, and scores of persons.

Two items of a person are a comparison if one answer is right and the other wrong.  A comparison is
an integer, ``wrong * n_items + right``; counts are kept for the comparisons that occur alone, so
that neither few nor many items need a matrix.

A person's items are shuffled by Fisher-Yates with splitmix64 (Steele, Lea and Flood 2014) started
from the person's own random word, whatever the answers, and paired in that order; an odd one is
left out.  All pairings are equally likely.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from irt_dask.arrays import Floats, Ints, Words
from irt_dask.kernels.base import fixed_point
from irt_dask.kernels.base.compiled import jit
from irt_dask.kernels.responses import rows
from irt_dask.kernels.responses.layouts import Dense, Layout, Sparse
from irt_dask.kernels.responses.response_counts import responses_per_person
from irt_dask.kernels.responses.rows import item, n_rows, row

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_11, _27, _30, _31 = np.uint64(11), np.uint64(27), np.uint64(30), np.uint64(31)
_UNIT = 2.0**-53
#: Counting by position takes items^2 numbers: worth it up to so many for each comparison.
_CELLS_PER_COMPARISON = 4
#: Scores are whole numbers of so many bits at most, so that sums over _EXACT_ROWS of their products
#: are exact in double precision; cells of a slice.
_SCORE_BITS, _EXACT_ROWS, _SLICE = 20, 1 << 13, 1 << 22


@jit
def observed(items: Any, responses: Any, entries: Any) -> int:
    """Write ``2 item + answer`` for a person's observed items, ascending; return their number."""
    n = 0
    for k in range(responses.size):
        if responses[k] >= 0:
            entries[n] = 2 * item(items, k) + responses[k]
            n += 1
    return n


@jit
def shuffle(entries: Any, n: int, word: Any) -> None:
    """Permute the first n entries, all orders equally likely, by the random word."""
    state = word
    for k in range(n - 1, 0, -1):
        state += _STEP
        z = (state ^ (state >> _30)) * _FIRST
        z = (z ^ (z >> _27)) * _SECOND
        z ^= z >> _31
        # below k + 1: no double lies between (1 - 2^-53) (k + 1) and k + 1
        at = np.int64(np.float64(z >> _11) * _UNIT * (k + 1))
        entries[k], entries[at] = entries[at], entries[k]


@jit
def _compare(
    indptr: Any, indices: Any, values: Any, words: Any, n_items: int, entries: Any, out: Any
) -> int:
    found = 0
    for i in range(n_rows(indptr, values)):
        items, responses = row(indptr, indices, values, i)
        n = observed(items, responses, entries)
        shuffle(entries, n, words[i])
        for k in range(0, n - 1, 2):
            a, b = entries[k], entries[k + 1]
            if (a ^ b) & 1:
                wrong, right = (a >> 1, b >> 1) if b & 1 else (b >> 1, a >> 1)
                out[found] = wrong * n_items + right
                found += 1
    return found


def compare(data: Layout, words: Words) -> Ints:
    """Comparisons of each person's random pairs, by person; ``words`` (persons,) are random."""
    m = data.shape[1]
    out = np.empty(int((responses_per_person(data) // 2).sum()), dtype=np.int64)
    entries = np.empty(m, dtype=np.int64)
    return out[: _compare(*rows.arrays(data), words, m, entries, out)]


def count(comparisons: Ints, n_items: int) -> tuple[Ints, Ints]:
    """Distinct comparisons, ascending, and how often each occurs."""
    if n_items * n_items > _CELLS_PER_COMPARISON * comparisons.size:
        code, times = np.unique(comparisons, return_counts=True)
        return code, times
    times = np.bincount(comparisons, minlength=n_items * n_items)
    code = np.flatnonzero(times)
    return code, times[code]


def merge(left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Ints, Ints]:
    """Add up two counts of comparisons."""
    code = np.concatenate([left[0], right[0]])
    order = np.argsort(code, kind="stable")  # merges two ascending runs
    code = code[order]
    first = np.flatnonzero(np.diff(code, prepend=-1))
    times = np.concatenate([left[1], right[1]])[order]
    return code[first], np.add.reduceat(times, first) if first.size else times


# --- scores ---------------------------------------------------------------------------------------


def score_scale(n_persons: int, largest: float) -> float:
    """Power of two by which scores are multiplied before rounding.

    Scores below ``largest`` in absolute value are rounded to multiples of 1 / scale, with an error
    below 1e-6 ``largest`` up to 10^6 persons, so that sums of their products fit 64 bits.  Scores
    that are rounded each by itself let the products be exact.
    """
    fitting = math.log2(fixed_point.scale_for(n_persons * (largest + 1.0) ** 2)) // 2
    short = _SCORE_BITS - math.ceil(math.log2(largest + 1.0))
    return 2.0 ** min(fitting, short)


@jit
def _write(items: Any, score: Any, scale: float, out: Any) -> None:
    """Round a person's scores, by item, into the places of the responses; they are 0 afterwards."""
    for k in range(out.size):
        j = item(items, k)
        out[k] = np.rint(score[j] * scale)
        score[j] = 0.0


@jit
def _score_random(
    indptr: Any, indices: Any, values: Any, words: Any, strength: Any, scale: float, out: Any
) -> None:
    m = strength.size
    entries, order, score = np.empty(m, dtype=np.int64), np.empty(m, dtype=np.int64), np.zeros(m)
    for i in range(n_rows(indptr, values)):
        items, responses = row(indptr, indices, values, i)
        n = observed(items, responses, entries)
        for s in range(words.shape[0]):
            order[:n] = entries[:n]
            shuffle(order, n, words[s, i])
            for k in range(0, n - 1, 2):
                a, b = order[k], order[k + 1]
                if (a ^ b) & 1:
                    wrong, right = (a >> 1, b >> 1) if b & 1 else (b >> 1, a >> 1)
                    q = strength[right] / (strength[wrong] + strength[right])
                    score[wrong] += q
                    score[right] -= q
        _write(items, score, scale, row(indptr, indices, out, i)[1])


@jit
def _score_all(
    indptr: Any, indices: Any, values: Any, strength: Any, scale: float, out: Any
) -> None:
    m = strength.size
    entries, right, score = np.empty(m, dtype=np.int64), np.empty(m, dtype=np.int64), np.zeros(m)
    strong, lost = np.empty(m), np.empty(m)
    for i in range(n_rows(indptr, values)):
        items, responses = row(indptr, indices, values, i)
        n, n_right = observed(items, responses, entries), 0
        for k in range(n):
            if entries[k] & 1:
                right[n_right], lost[n_right] = entries[k] >> 1, 0.0
                strong[n_right] = strength[entries[k] >> 1]
                n_right += 1
        for k in range(n):
            if entries[k] & 1 == 0:
                weak, gained = strength[entries[k] >> 1], 0.0
                for h in range(n_right):
                    q = strong[h] / (weak + strong[h])
                    gained += q
                    lost[h] += q
                score[entries[k] >> 1] = gained
        for h in range(n_right):
            score[right[h]] = -lost[h]
        _write(items, score, scale, row(indptr, indices, out, i)[1])


@jit
def _add_sparse(indptr: Any, indices: Any, score: Any, lo: int, hi: int, out: Any) -> None:
    for i in range(indptr.size - 1):
        for k in range(indptr[i], indptr[i + 1]):
            if lo <= indices[k] < hi and score[k] != 0.0:
                x = np.int64(score[k])
                for h in range(indptr[i], indptr[i + 1]):
                    out[indices[k] - lo, indices[h]] += x * np.int64(score[h])


def scores(data: Layout, words: Words | None, b: Floats, scale: float) -> Floats:
    """Gradient of each person's comparisons at difficulties b, in multiples of ``1 / scale``.

    Whole numbers, in the places of the responses (not observed: 0).  ``words`` (splits, persons)
    are those of random pairs; None: all pairs.
    """
    values = rows.arrays(data)[2]
    out, strength = np.zeros(values.shape), np.exp(b)
    if words is None:
        _score_all(*rows.arrays(data), strength, scale, out)
    else:
        _score_random(*rows.arrays(data), words, strength, scale, out)
    return out


def score_products(
    data: Layout, words: Words | None, b: Floats, scale: float, lo: int, hi: int
) -> Ints:
    """Sum over persons of ``u u'``, rows ``lo .. hi``, u of :func:`scores`; (hi - lo, items).

    Exact: products of slices of dense data are made in double precision, where sums of whole
    numbers are exact below 2^53.
    """
    n, m = data.shape
    out = np.zeros((hi - lo, m), dtype=np.int64)
    if isinstance(data, Sparse):
        _add_sparse(data.indptr, data.indices, scores(data, words, b, scale), lo, hi, out)
        return out
    size = min(_EXACT_ROWS, max(1, _SLICE // m))
    for start in range(0, n, size):
        part = Dense(data.values[start : start + size])
        drawn = None if words is None else words[:, start : start + size]
        u = scores(part, drawn, b, scale)
        out += (u[:, lo:hi].T @ u).astype(np.int64)
    return out
