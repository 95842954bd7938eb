"""Predictions from a person's other responses: brute force, grids fine and coarse, equal bits."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from irt_dask.curves.grids import grid_of
from irt_dask.curves.item_set import ItemSet
from irt_dask.kernels.base import lanes
from irt_dask.kernels.posterior import leave_one_out, person_weights, tables
from irt_dask.kernels.responses.item_sets import common_sets
from irt_dask.kernels.responses.layouts import Dense, to_sparse
from irt_dask.population.population import NOBODY_APART, STANDARD


def left_out(data, items, nodes, *, shared=True):
    g = tables.tables(items, nodes)
    sums = person_weights.shared(common_sets(data), g)
    s = sums if shared else person_weights.alone(data.shape[0])
    prior, _ = STANDARD.prior(nodes, NOBODY_APART)
    return leave_one_out.left_out(data, g, s, prior, leave_one_out.inverse(items, g))


def by_logs(y, items, nodes):
    """Sums of logarithms, so that nothing underflows."""
    log_p, out = items.log_p(nodes), []
    for row in y:
        own = [items.first[j] + v for j, v in enumerate(row) if v >= 0]
        every = log_p[own].sum(axis=0) - 0.5 * nodes**2
        for r in own:
            others = np.logaddexp.reduce(every - log_p[r])
            out.append(np.exp(np.logaddexp.reduce(every) - others))
    return np.array(out)


def some_responses(n, m, seed, missing):
    rng = np.random.default_rng(seed)
    y = (rng.random((n, m)) < rng.random((n, 1))).astype(np.int8)
    y[rng.random((n, m)) < missing] = -1
    return y


MODELS = {
    "2pl": lambda a, d: ItemSet.of("2pl", a, d),
    "3pl": lambda a, d: ItemSet.of("3pl", a, d, np.linspace(0.05, 0.4, a.size)),
}


@pytest.mark.parametrize("model", MODELS)
def test_from_the_likelihood_of_the_others(model):
    """On a grid of its own, with each response left out of the sums."""
    rng = np.random.default_rng(8)
    y = some_responses(12, 5, 8, 0.2)
    items = MODELS[model](rng.uniform(0.3, 2.5, 5), rng.normal(0, 1.5, 5))
    p = left_out(Dense(y), items, STANDARD.nodes(items))
    t = np.linspace(-9, 9, 20001)
    like, want = np.exp(items.log_p(t)), []
    for i, j in np.argwhere(y >= 0):
        others = [2 * k + v for k, v in enumerate(y[i]) if v >= 0 and k != j]
        w = like[others].prod(axis=0) * stats.norm.pdf(t)
        want.append(w @ like[2 * j + y[i, j]] / w.sum())
    np.testing.assert_allclose(p, want, atol=1e-7)


@pytest.mark.parametrize("slope, location", [(5.0, 5.0), (10.0, 5.0), (20.0, 3.0)])
def test_a_surprising_answer_to_a_steep_item(slope, location):
    """Alone on the test, the item is predicted from the prior, whatever the answer was."""
    items = ItemSet.of("2pl", np.array([slope]), np.array([-slope * location]))
    p = left_out(Dense(np.array([[1], [0]], dtype=np.int8)), items, STANDARD.nodes(items))
    t = np.linspace(-12, 12, 200001)
    w = stats.norm.pdf(t)
    want = (w / (1 + np.exp(-(slope * (t - location))))).sum() / w.sum()
    np.testing.assert_allclose(p, [want, 1 - want], rtol=1e-3)


KINDS = {
    "plain": ([], []),
    "steep": ([8.0, 20.0, 30.0], [-20.0, 10.0, -90.0]),
    "extreme": ([40.0, 60.0, 90.0], [300.0, -200.0, 69.0]),  # weights of e^-700 and less count
    "negative": ([-1.0, -0.5, -4.0], [0.5, 1.0, -2.0]),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fine", [0, 10**9])
def test_all_nodes_count_that_matter(monkeypatch, kind, fine):
    """Both kinds of tables against sums of logarithms over all nodes; the same bits anyhow."""
    rng = np.random.default_rng(6)
    y = some_responses(40, 60, 5, 0.4)
    y[:15] = np.where(y[0] >= 0, np.abs(y[:15]), -1)  # a common set of items
    y[20], y[21], y[22] = 1, 0, -1  # all right, all wrong, nothing observed
    y[23, 1:], y[24, 1:] = 1, 0
    a, d = rng.lognormal(0.1, 0.5, 60), rng.normal(0.0, 1.5, 60)
    first = KINDS[kind]
    a[: len(first[0])], d[: len(first[1])] = first
    items = ItemSet.of("2pl", a, d)
    nodes = tables.padded(grid_of(items).nodes)
    monkeypatch.setattr(tables, "FINE", fine)
    got = left_out(Dense(y), items, nodes)
    np.testing.assert_allclose(got, by_logs(y, items, nodes), rtol=1e-10)
    for data in (Dense(y), to_sparse(Dense(y))):
        for shared in (False, True):
            assert left_out(data, items, nodes, shared=shared).tobytes() == got.tobytes()
    one_by_one = [left_out(Dense(row[None]), items, nodes, shared=False) for row in y]
    assert np.concatenate(one_by_one).tobytes() == got.tobytes()


@pytest.mark.parametrize("missing", [0.0, 0.5])
def test_other_models_in_any_layout(missing):
    rng = np.random.default_rng(7)
    y = some_responses(40, 30, 3, missing)
    items = MODELS["3pl"](rng.lognormal(0.1, 0.5, 30), rng.normal(0.0, 1.5, 30))
    nodes = STANDARD.nodes(items)
    got = left_out(Dense(y), items, nodes)
    np.testing.assert_allclose(got, by_logs(y, items, nodes), rtol=1e-11)
    other = left_out(to_sparse(Dense(y)), items, nodes, shared=False)
    assert other.tobytes() == got.tobytes()


@pytest.mark.parametrize("model", MODELS)
def test_long_tests(model):
    """More responses of a person than are treated at a time, more nodes than tables hold."""
    rng = np.random.default_rng(9)
    y = some_responses(6, 700, 4, 0.1)
    y[0, -1], y[1] = -1, 1
    items = MODELS[model](rng.lognormal(0.0, 0.3, 700), rng.normal(0.0, 1.5, 700))
    nodes = STANDARD.nodes(items)
    assert nodes.size > tables.FINE
    got = left_out(Dense(y), items, nodes)
    np.testing.assert_allclose(got, by_logs(y, items, nodes), rtol=1e-10)
    assert left_out(to_sparse(Dense(y)), items, nodes).tobytes() == got.tobytes()


@pytest.mark.parametrize("n", [0, 8, 16, 88, 1000])
def test_lanes(n):
    """Sums in the documented order, to the bit, maxima, and sums of whole numbers in place."""
    x, y = np.random.default_rng(n).normal(size=(2, n))
    for got, terms in ((lanes.total(x), x), (lanes.dot(x, y), x * y)):
        lane = np.zeros(8)
        for eight in terms.reshape(-1, 8):
            lane += eight
        lane = lane.reshape(4, 2).sum(axis=1).reshape(2, 2).sum(axis=1)
        assert got == lane.sum()
    assert lanes.largest(x) == x.max(initial=-np.inf)
    whole = np.random.default_rng(n).integers(-(2**62), 2**62, (3, n + 8))
    want, more = whole.copy(), whole[2, :n].copy()
    want[1, 5 : n + 5] += more
    lanes.increase(whole, 1, 5, more)
    np.testing.assert_array_equal(whole, want)
