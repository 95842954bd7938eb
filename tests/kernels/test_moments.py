"""Posterior moments: tables by weighted score, sums that persons share, quadrature, layouts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from irt_dask.curves.grids import grid_of
from irt_dask.curves.item_set import ItemSet
from irt_dask.kernels.base import exponential, lanes
from irt_dask.kernels.posterior import ability_histogram, cells, moments, person_weights, tables
from irt_dask.kernels.responses import item_sets, layouts, words
from irt_dask.kernels.responses.item_sets import common_sets
from irt_dask.population import population
from irt_dask.population.population import Persons, Population, expectations


def of_2pl(m, rng, steep=1.0):
    return ItemSet.of("2pl", steep * rng.uniform(0.3, 1.5, m), rng.normal(size=m))


def everything(y, items, *, log_mass=None, group=None, tabulated=True, alone=False):
    """Mean, variance and log marginal of each person, with or without what persons share."""
    data = layouts.Dense(y) if isinstance(y, np.ndarray) else y
    nodes = tables.padded(grid_of(items).nodes)
    g, sets = tables.tables(items, nodes), common_sets(data)
    mass = person_weights.normal(nodes) if log_mass is None else log_mass(nodes)
    p = person_weights.prior(mass, group)
    s = person_weights.alone(data.shape[0]) if alone else person_weights.shared(sets, g)
    made = cells.extended(cells.NOTHING, g, sets, p) if tabulated and not alone else cells.NOTHING
    return moments.expectations(data, g, s, p, made), made


@settings(max_examples=30, deadline=None)
@given(m=st.integers(1, 25), seed=st.integers(0, 999), steep=st.sampled_from([0.05, 0.3, 1.0, 3.0]))
def test_what_persons_share_does_not_change_a_bit(m, seed, steep):
    rng = np.random.default_rng(seed)
    items = of_2pl(m, rng, steep)
    y = rng.integers(0, 2, (3000, m)).astype(np.int8)
    y[2000:2900, : m // 3] = -1  # a second set
    y[2900:] = np.where(rng.random((100, m)) < 0.5, -1, y[2900:])  # many sets of one person
    group = rng.integers(0, 2, 3000)
    options = {
        "log_mass": lambda x: person_weights.normal(x, [0.0, 0.4], [1.0, 0.7]),
        "group": group,
    }
    got, made = everything(y, items, **options)
    if steep < 1.0:
        assert len(made.cumulants)
    for other in ({"tabulated": False}, {"alone": True}):
        assert everything(y, items, **options, **other)[0].tobytes() == got.tobytes()


@pytest.mark.parametrize("model", ["2pl", "3pl"])
def test_tables_are_as_good_as_the_weights_themselves(model):
    rng = np.random.default_rng(1)
    own = [rng.uniform(0.4, 2.0, 20), rng.normal(size=20)]
    items = ItemSet.of(model, *own, *([rng.uniform(0.0, 0.3, 20)] if model == "3pl" else []))
    y = rng.integers(-1, 2, (300, 20)).astype(np.int8)
    got, _ = everything(y, items)
    nodes = tables.padded(grid_of(items).nodes)
    log_p = items.log_p(nodes)
    for i in range(300):
        seen = np.flatnonzero(y[i] >= 0)
        log = log_p[2 * seen + y[i, seen]].sum(axis=0) + person_weights.normal(nodes)[0]
        w = np.exp(log - log.max())
        mean = w @ nodes / w.sum()
        want = [mean, w @ (nodes - mean) ** 2 / w.sum(), log.max() + np.log(w.sum())]
        np.testing.assert_allclose(got[:, i], want, rtol=1e-11, atol=1e-12)


def test_groups_are_persons_of_another_scale():
    """N(mean, sd^2) with these items is N(0, 1) with others."""
    rng = np.random.default_rng(2)
    items, y = of_2pl(12, rng), rng.integers(-1, 2, (40, 12)).astype(np.int8)
    mean, sd = 0.7, 1.6
    one = Population(np.array([[mean]]), np.array([sd]), ("all",))
    got = expectations(layouts.Dense(y), items, one.nodes(items), one)
    moved = items.rescaled(mean, sd)
    m, v, log = expectations(
        layouts.Dense(y), moved, Population(np.zeros((1, 1)), np.ones(1)).nodes(moved)
    )
    np.testing.assert_allclose(got, [mean + sd * m, sd**2 * v, log], rtol=1e-9, atol=1e-10)


def test_exponentials():
    rng = np.random.default_rng(3)
    x = -rng.exponential(12.0, (200, 64))
    x[:, 7], x[:, 9] = 0.0, -np.inf
    for row in x + 5.0:
        w = row.copy()
        peak = lanes.largest(w)
        exponential.exponentials(w, peak)
        want = np.where(row - peak > exponential.LOG_NEGLIGIBLE, np.exp(row - peak), 0.0)
        np.testing.assert_allclose(w, want, rtol=5e-16, atol=0)
        assert lanes.total(w) == pytest.approx(w.sum(), rel=1e-15)
        assert lanes.dot(w, row.clip(-99)) == pytest.approx(w @ row.clip(-99), rel=1e-13)


def test_by_quadrature():
    rng = np.random.default_rng(2)
    a, d = rng.uniform(0.4, 2.0, 12), rng.normal(size=12)
    y = rng.integers(0, 2, (5, 12)).astype(np.int8)
    (mean, variance, log_marginal), _ = everything(y, ItemSet.of("2pl", a, d))
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
        assert variance[i] == pytest.approx(second, abs=1e-8)
        assert log_marginal[i] == pytest.approx(np.log(total), abs=1e-8)


@pytest.mark.parametrize("m", [1, 7, 8, 9, 40, 300])
def test_layouts_and_rows_have_the_same_bits(m):
    """Responses go eight at a time: whoever lacks one, at any place, is seen; 300: a fine grid."""
    rng = np.random.default_rng(m)
    items = of_2pl(m, rng, 0.2 if m == 9 else 1.0)
    y = rng.integers(0, 2, (900, m)).astype(np.int8)
    y[np.arange(m), np.arange(m)] = -1
    want, made = everything(y, items)
    assert len(made.cumulants) or m in (40, 300)
    dense = layouts.Dense(y)
    for data, rows in (
        (layouts.to_sparse(dense), slice(None)),
        (layouts.Dense(y[20:30]), slice(20, 30)),
    ):
        assert everything(data, items)[0].tobytes() == want[:, rows].tobytes()


@pytest.mark.parametrize("m", [1, 7, 8, 9, 20])
def test_who_lacks_a_response_is_seen(m, monkeypatch):
    """One in thousands, at any place: those who answered everything have a table."""
    rng = np.random.default_rng(m)
    items, plain = of_2pl(m, rng), Population(np.zeros((1, 1)), np.ones(1))
    nodes = plain.nodes(items)
    y = rng.integers(0, 2, (3000, m)).astype(np.int8)
    for i, j in ((None, None), (1, 0), (1500, m - 1), (2999, m // 2), (0, 0)):
        some = y.copy()
        if i is not None:
            some[i, j] = -1
        got = expectations(layouts.Dense(some), items, nodes, plain)
        with monkeypatch.context() as alone:  # nothing is kept, so that three have no table
            alone.setattr(population, "keep", lambda key, make: make())
            alone.setattr(population, "renew", lambda key, old, new: None)
            each = [
                expectations(layouts.Dense(three), items, nodes, plain)
                for three in np.split(some, 1000)
            ]
        want = np.concatenate(each, axis=1)
        assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("sparse", [False, True])
def test_sets_are_learned_from_block_to_block(sparse, monkeypatch):
    """Persons of groups and booklets, some with gaps of their own, in blocks too small for any."""
    rng = np.random.default_rng(4)
    items, two = (
        of_2pl(9, rng, 0.4),
        Population(np.array([[0.0], [0.5]]), np.array([1.0, 0.8]), "ab"),
    )
    nodes = two.nodes(items)
    y = rng.integers(0, 2, (4000, 9)).astype(np.int8)
    y[::2, :4], y[1::4, 5:] = -1, -1
    y[rng.random(y.shape) < 0.02] = -1
    group = rng.integers(0, 2, 4000)

    def scored(size):
        kept = {}
        monkeypatch.setattr(population, "keep", lambda key, make: kept.setdefault(key, make()))
        monkeypatch.setattr(population, "renew", lambda key, old, new: kept.update({key: new}))
        parts = []
        for k in range(0, 4000, size):
            data, its = layouts.Dense(y[k : k + size]), Persons(group[k : k + size], None)
            data = layouts.to_sparse(data) if sparse else data
            parts.append(expectations(data, items, nodes, two, its))
        (seen,) = kept.values()
        return np.concatenate(parts, axis=1), seen

    want, _ = scored(1)  # nobody shares anything
    got, seen = scored(50)
    assert got.tobytes() == want.tobytes()
    assert (seen.row[:3] != cells._NONE).all()
    assert 3 <= len(seen.missing) < 9  # gaps of one person's own are never common
    for name, most in (("_MOST_SETS", 2), ("_MOST_NUMBERS", 3000), ("_MOST_NUMBERS", 0)):
        with monkeypatch.context() as m:
            m.setattr(cells, name, most)
            got, seen = scored(50)
            assert got.tobytes() == want.tobytes()
            assert len(seen.missing) == 2 or seen.cumulants.size <= most


@pytest.mark.parametrize("m", [1, 7, 8, 9, 63, 64, 65, 200])
def test_missing_items_are_bits(m):
    rng = np.random.default_rng(m)
    y = rng.integers(-1, 3, (300, m)).astype(np.int8)
    y[:9], y[9:20] = -1, 1
    y[20, :-1], y[20, -1] = 1, -1
    data = layouts.Dense(y)
    bits = words.missing_bits(data)
    assert bits.tobytes() == words.missing_bits(layouts.to_sparse(data)).tobytes()
    place = [64 * (j // 64) + 8 * (j % 8) + j % 64 // 8 for j in range(m)]
    each = np.unpackbits(bits.view(np.uint8).reshape(300, -1), axis=1, bitorder="little")
    np.testing.assert_array_equal(each[:, place], y < 0)
    assert each.sum() == (y < 0).sum()


@pytest.mark.parametrize("m", [3, 64, 130])
def test_sets_are_numbered_as_they_appear(m):
    """Against a dictionary; with one word, two and more, and far more sets than a few."""
    rng = np.random.default_rng(m)
    observed = rng.random((500, m)) < 0.5
    y = np.where(observed[rng.integers(0, 500, 2000)], 1, -1).astype(np.int8)
    there: dict[bytes, int] = {}
    want = [there.setdefault((row >= 0).tobytes(), len(there)) for row in y]
    for data in (layouts.Dense(y), layouts.to_sparse(layouts.Dense(y))):
        number, first = item_sets.sets_of(data)
        assert number.tolist() == want
        assert first.tolist() == [want.index(k) for k in range(len(there))]


def test_nobody_s_responses():
    """The prior, exactly about 0, and log-likelihood 0."""
    items = of_2pl(10, np.random.default_rng(4))
    nodes = Population(np.zeros((1, 1)), np.ones(1)).nodes(items)
    mean, variance, log = expectations(
        layouts.Dense(np.full((3, 10), -1, dtype=np.int8)), items, nodes
    )
    np.testing.assert_allclose([mean, variance, log], [[0.0] * 3, [1.0] * 3, [0.0] * 3], atol=1e-9)
    assert (np.abs(mean) < 1e-15).all()


def test_sums_of_abilities():
    rng = np.random.default_rng(5)
    ability, error = 4.0 * rng.normal(size=(2, 500, 2))
    ability[:9, 0], error[::3, 1], error[1, 0] = np.nan, np.inf, 1e9
    error = np.abs(error)
    classes = ability_histogram.Classes(-6.0, 6.0, 60)
    count, sums_of, n = ability_histogram.sums(ability, error, classes, 50.0, 2.0**30)
    for q in range(2):
        x, e = ability[:, q], error[:, q]
        x, e = x[np.isfinite(x)], np.minimum(e[np.isfinite(e)], 50.0)
        want, _ = np.histogram(np.clip(x, -5.99, 5.99), 60, (-6.0, 6.0))
        np.testing.assert_array_equal(count[:, q], want)
        sums = [x.sum(), (x**2).sum(), (e**2).sum()]
        np.testing.assert_allclose(sums_of[:, q] / 2.0**30, sums, rtol=1e-6)
        assert n[:, q].tolist() == [x.size, e.size]
