"""Persons who answered everything: their moments from curves over the weighted score."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from irt_dask.kernels.posterior import ability_histogram, linear_tables, moments_by_score
from irt_dask.kernels.posterior import moments as posterior
from irt_dask.kernels.responses import layouts
from irt_dask.models import grid_for


def both(y, a, d):
    """With curves and without, and who answered everything."""
    g = linear_tables.tables(a, d, grid_for(a, d).nodes)
    data = layouts.Dense(y)
    curves = moments_by_score.curves(g)
    with_curves = posterior.expectations(data, g, curves)
    return with_curves, posterior.expectations(data, g), (y >= 0).all(axis=1), curves


@settings(max_examples=40, deadline=None)
@given(m=st.integers(1, 25), seed=st.integers(0, 999), steep=st.sampled_from([0.05, 0.3, 1.0, 3.0]))
def test_as_person_by_person(m, seed, steep):
    rng = np.random.default_rng(seed)
    a = steep * rng.uniform(0.1, 1.5, m)
    d = rng.normal(size=m) * 2
    y = rng.integers(-1, 2, (60, m)).astype(np.int8)
    y[:40] = rng.integers(0, 2, (40, m))
    y[0], y[1] = 0, 1
    got, want, whole, curves = both(y, a, d)
    if curves.values.size == 0:
        return
    for x, z in zip(got, want, strict=True):
        np.testing.assert_allclose(x, z, atol=1e-11)
        np.testing.assert_array_equal(x[~whole], z[~whole])  # those go the other way


def test_by_quadrature():
    rng = np.random.default_rng(2)
    a, d = rng.uniform(0.4, 2.0, 12), rng.normal(size=12)
    y = rng.integers(0, 2, (5, 12)).astype(np.int8)
    (mean, sd, log_marginal), *_ = both(y, a, d)
    for i, row in enumerate(y):

        def weight(t, row=row):
            z = a * t + d
            return np.exp((row * z - np.logaddexp(0, z)).sum() - t**2 / 2) / np.sqrt(2 * np.pi)

        def integral(f, weight=weight):
            return quad(lambda t: f(t) * weight(t), -9, 9, epsabs=1e-14, epsrel=1e-12)[0]

        total = integral(lambda t: 1.0)
        first = integral(lambda t: t) / total
        second = integral(lambda t: (t - first) ** 2) / total  # noqa: B023 (used at once)
        assert mean[i] == pytest.approx(first, abs=1e-8)
        assert sd[i] == pytest.approx(np.sqrt(second), abs=1e-8)
        assert log_marginal[i] == pytest.approx(np.log(total), abs=1e-8)


def test_layouts_and_rows_have_the_same_bits():
    rng = np.random.default_rng(3)
    a, d = rng.uniform(0.4, 2.0, 9), rng.normal(size=9)
    y = rng.integers(0, 2, (50, 9)).astype(np.int8)
    y[::7, 3] = -1
    g = linear_tables.tables(a, d, grid_for(a, d).nodes)
    curves = moments_by_score.curves(g)
    i, j = np.nonzero(y >= 0)
    indptr = np.concatenate([[0], np.cumsum((y >= 0).sum(axis=1))])
    sparse = layouts.Sparse(indptr, j.astype(np.int32), y[i, j], 9)
    want = posterior.expectations(layouts.Dense(y), g, curves)
    for data, rows in ((sparse, slice(None)), (layouts.Dense(y[20:30]), slice(20, 30))):
        for x, z in zip(posterior.expectations(data, g, curves), want, strict=True):
            assert x.tobytes() == z[rows].tobytes()


def test_no_curves_for_a_fine_grid():
    a = np.full(300, 1.5)
    g = linear_tables.tables(a, np.zeros(300), grid_for(a, np.zeros(300)).nodes)
    assert g.wrong.size == 0
    assert moments_by_score.curves(g) is moments_by_score.NONE


@pytest.mark.parametrize("m", [1, 7, 8, 9, 40])
def test_any_number_of_items(m):
    """Responses go eight at a time: whoever lacks one, at any place, is seen."""
    rng = np.random.default_rng(m)
    a, d = rng.uniform(0.4, 1.2, m), rng.normal(size=m)
    y = rng.integers(0, 2, (m + 1, m)).astype(np.int8)
    y[np.arange(m), np.arange(m)] = -1
    got, want, whole, _ = both(y, a, d)
    assert whole.tolist() == [False] * m + [True]
    for x, z in zip(got, want, strict=True):
        np.testing.assert_array_equal(x[:-1], z[:-1])
        assert x[-1] == pytest.approx(z[-1], abs=1e-11)


def test_sums_of_abilities():
    rng = np.random.default_rng(5)
    ability, error = 4.0 * rng.normal(size=(2, 500, 2))
    ability[:9, 0], error[::3, 1], error[1, 0] = np.nan, np.inf, 1e9
    error = np.abs(error)
    classes = ability_histogram.Classes(-6.0, 6.0, 60)
    count, moments, n = ability_histogram.sums(ability, error, classes, 50.0, 2.0**30)
    for q in range(2):
        x, e = ability[:, q], error[:, q]
        x, e = x[np.isfinite(x)], np.minimum(e[np.isfinite(e)], 50.0)
        want, _ = np.histogram(np.clip(x, -5.99, 5.99), 60, (-6.0, 6.0))
        np.testing.assert_array_equal(count[:, q], want)
        sums = [x.sum(), (x**2).sum(), (e**2).sum()]
        np.testing.assert_allclose(moments[:, q] / 2.0**30, sums, rtol=1e-6)
        assert n[:, q].tolist() == [x.size, e.size]
