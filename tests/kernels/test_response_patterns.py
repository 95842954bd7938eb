"""Patterns of responses to neighbouring items: what each stands for, and counts told apart."""

import itertools

import numpy as np
import pytest

from irt_dask.kernels.gibbs import response_patterns
from irt_dask.kernels.gibbs.response_patterns import patterns_of, sums, told_apart

CATEGORIES = np.array([2, 2, 3, 15, 2, 4, 4, 2, 2])
FIRST = np.concatenate([[0], np.cumsum(CATEGORIES - 1)])


def meant(p):
    """Responses of each pattern, by its number: what items' weights say."""
    out = {}
    for g in range(p.first.size):
        items = np.flatnonzero(p.group == g)
        for y in itertools.product(*(range(k) for k in CATEGORIES[items])):
            number = int(p.first[g]) - 1 + int(np.dot(y, p.weight[items]))
            if any(y):
                out[number] = [FIRST[j] + k - 1 for j, k in zip(items, y, strict=True) if k]
    return out


@pytest.mark.parametrize(("n_persons", "most"), [(1, 2), (40, 4), (300, 32), (10_000, 64)])
def test_patterns_are_all_combinations(n_persons, most):
    p, rng = patterns_of(CATEGORIES, n_persons), np.random.default_rng(1)
    of_each = meant(p)
    assert sorted(of_each) == list(range(p.n))
    sizes = np.diff(np.append(p.first, p.n)) + 1
    single = np.bincount(p.group)[np.arange(sizes.size)] == 1
    assert (sizes[~single] <= most).all()
    table = rng.standard_normal((FIRST[-1], 3))
    exact = np.array([table[of_each[r]].sum(axis=0) for r in range(p.n)])
    np.testing.assert_allclose(sums(p, table), exact, rtol=0, atol=1e-13)
    counts = rng.integers(0, 9, (p.n, 3))
    apart = np.zeros((FIRST[-1], 3), dtype=int)
    for r in range(p.n):
        apart[of_each[r]] += counts[r]
    np.testing.assert_array_equal(told_apart(p, counts.copy(), int(FIRST[-1])), apart)


def test_patterns_of_many_items_are_bounded(monkeypatch):
    monkeypatch.setattr(response_patterns, "_MOST", 40)
    assert patterns_of(CATEGORIES, 10_000).n <= 40
