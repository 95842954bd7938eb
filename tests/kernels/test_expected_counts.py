"""Expected counts of responses: against brute force, whatever persons share, on a coarser axis."""

from __future__ import annotations

import numpy as np
import pytest
from parts import csr_of

import irt_dask as irt
from irt_dask.calibrate.marginal import expected
from irt_dask.calibrate.marginal.model import Model
from irt_dask.curves import model_named
from irt_dask.curves.betas import Betas
from irt_dask.curves.grids import grid_of
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine import Engine
from irt_dask.items.mixture import Mixture
from irt_dask.kernels.posterior import coarse_axis, expected_counts, person_weights, tables
from irt_dask.kernels.responses import layouts
from irt_dask.kernels.responses.item_sets import common_sets


def items_of(model, m, seed, steep=1.0):
    rng = np.random.default_rng(seed)
    x = [steep * rng.uniform(0.4, 2.0, m), steep * rng.normal(size=m)]
    return ItemSet.of(model, *x, *([rng.uniform(0.0, 0.3, m)] if model == "3pl" else []))


def responses(n, m, seed):
    """A third complete, a third with a booklet, the others with sets of their own, one empty."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, (n, m)).astype(np.int8)
    y[n // 3 : 2 * n // 3, : m // 2] = -1
    y[2 * n // 3 :][rng.random((n - 2 * n // 3, m)) < 0.5] = -1
    y[-1] = -1
    return y


def brute(y, items, nodes, log_mass, weight):
    """Posterior weights of each person, (persons, nodes), times their weight; log-likelihood."""
    log_p = items.log_p(nodes).reshape(items.n_items, 2, -1)
    seen = (y >= 0)[:, :, None]
    log = np.where(y[:, :, None] == 1, log_p[:, 1], log_p[:, 0])
    log = np.where(seen, log, 0.0).sum(axis=1) + log_mass
    top = log.max(axis=1, keepdims=True)
    w = np.exp(log - top)
    total = w.sum(axis=1, keepdims=True)
    some = weight * (y >= 0).any(axis=1)
    return some[:, None] * w / total, some @ (top + np.log(total))[:, 0]


def counted(data, items, nodes, log_mass, *, group=None, alone=False, **options):
    """Counts of a block, as real numbers."""
    n = data.shape[0]
    g, sets = tables.tables(items, nodes), common_sets(data)
    s = person_weights.alone(n) if alone else person_weights.shared(sets, g)
    scales = expected_counts.scales_for(4 * n, 10.0, 1000.0)
    p = person_weights.prior(log_mass, group)
    return expected_counts.counts(data, g, s, sets, p, scales, **options), scales


@pytest.mark.parametrize("model", ["2pl", "3pl"])
@pytest.mark.parametrize("n_nodes", [61, 301])  # linear tables of many nodes are another path
@pytest.mark.parametrize("kind", ["plain", "groups", "weights", "frequencies", "everything"])
def test_counts(model, n_nodes, kind):
    n, m = 120, 10
    rng, y, items = np.random.default_rng(5), responses(n, m, 6), items_of(model, m, 7)
    nodes = tables.padded(np.linspace(-7.0, 7.0, n_nodes))
    log_mass, group, options, weight = person_weights.normal(nodes), None, {}, np.ones(n)
    if kind in ("groups", "everything"):
        log_mass, group = person_weights.normal(nodes, [0.0, 0.6], [1.0, 0.7]), np.arange(n) % 2
    if kind in ("weights", "everything"):
        options["weight"] = rng.uniform(0.0, 2.0, n) * (rng.random(n) < 0.9)
        weight = options["weight"]
    if kind in ("frequencies", "everything"):
        options["times"] = rng.integers(1, 4, n)
        weight = weight * options["times"]
    dense = layouts.Dense(y)
    results = [
        counted(data, items, nodes, log_mass, group=group, alone=alone, **options)
        for data in (dense, layouts.to_sparse(dense))
        for alone in (False, True)
    ]
    (got, scales), *others = results
    for other, _ in others:
        for one, two in zip(got, other, strict=True):
            np.testing.assert_array_equal(one, two)
    own = np.zeros(n, dtype=int) if group is None else group
    w, value = brute(y, items, nodes, log_mass[own], weight)
    for counts, want in (
        (got.higher, (y == 1).T @ w),
        (got.seen, (y >= 0).T @ w),
        (got.persons, np.stack([w[own == k].sum(axis=0) for k in range(len(log_mass))])),
    ):
        np.testing.assert_allclose(counts / scales.weight, want, rtol=0, atol=1e-10)
    assert got.log_marginal / scales.log_marginal == pytest.approx(value, rel=1e-11)


@pytest.mark.parametrize("model", ["2pl", "3pl"])
def test_counts_do_not_depend_on_blocks_or_order(model):
    y, items = responses(90, 6, 1), items_of(model, 6, 2)
    nodes = tables.padded(grid_of(items).nodes)
    log_mass = person_weights.normal(nodes)
    g, scales = tables.tables(items, nodes), expected_counts.scales_for(90, 10.0, 1000.0)

    def of(rows):
        data = layouts.Dense(np.ascontiguousarray(y[rows]))
        sets = common_sets(data)
        shared, p = person_weights.shared(sets, g), person_weights.prior(log_mass)
        return expected_counts.counts(data, g, shared, sets, p, scales)

    order = np.random.default_rng(4).permutation(90)
    parts = [of(order[k : k + 7]) for k in range(0, 90, 7)]
    for got, want in zip(zip(*parts, strict=True), of(np.arange(90)), strict=True):
        np.testing.assert_array_equal(np.sum(got, axis=0), want)


# --- the coarse axis ------------------------------------------------------------------------------


def axis(nodes, slope):
    return coarse_axis.axis_for(nodes, slope, np.arange(slope.size + 1) * 2)


def test_interpolation_is_exact_for_polynomials():
    nodes = np.linspace(-6.0, 6.0, 2001)
    a = axis(nodes, np.full(40, 1.3))
    assert 0 < a.nodes.size < nodes.size / 2
    np.testing.assert_allclose(a.share.sum(axis=1), 1.0, rtol=1e-13)
    at = a.first[:, None] + np.arange(coarse_axis.POINTS)
    # A node is in the middle of those that it goes to.
    middle = a.nodes[at[:, coarse_axis.POINTS // 2 - 1 : coarse_axis.POINTS // 2 + 1]]
    assert ((middle[:, 0] <= nodes + 1e-12) & (nodes <= middle[:, 1] + 1e-12)).all()
    for k in range(coarse_axis.POINTS):
        got = (a.share * a.nodes[at] ** k).sum(axis=1)
        np.testing.assert_allclose(got, nodes**k, rtol=0, atol=1e-11 * 6.0**k)


@pytest.mark.parametrize("slope", [0.3, 1.0, 4.0])
def test_the_error_is_within_its_bound_and_near_it(slope):
    """Of log P of an item as steep as the axis allows, at any node: 1.2e-3 (a h)^8."""
    nodes = np.linspace(-7.0, 7.0, 9001)
    a = axis(nodes, np.full(40, slope))
    h = a.nodes[1] - a.nodes[0]
    assert slope * h == pytest.approx(coarse_axis.WIDTH)
    at = a.first[:, None] + np.arange(coarse_axis.POINTS)
    worst = 0.0
    for b in np.linspace(-0.5, 0.5, 41) * h:
        of_fine, of_coarse = (-np.logaddexp(0.0, slope * (x - b)) for x in (nodes, a.nodes))
        worst = max(worst, np.abs((a.share * of_coarse[at]).sum(axis=1) - of_fine).max())
    bound = (105.0 / 16.0) ** 2 / 40320.0 * 1.0625 * coarse_axis.WIDTH**8
    assert 0.5 * bound < worst < bound


def test_few_nodes_need_no_coarse_ones():
    assert axis(np.linspace(-7.0, 7.0, tables.FINE), np.ones(9)) is coarse_axis.FINE_ALONE
    assert axis(np.linspace(-7.0, 7.0, 400), np.full(9, 9.0)) is coarse_axis.FINE_ALONE


@pytest.mark.parametrize("model", ["2pl", "3pl"])
@pytest.mark.parametrize("sparse", [False, True])
def test_counts_on_a_coarse_axis(model, sparse):
    """Expected log-likelihoods are those of the fine nodes to the bound; of steep items exactly."""
    n, m = 60, 50
    y, items = responses(n, m, 3), items_of(model, m, 4)
    items.groups[0].x[0, [4, 17]] = 19.0, 14.0
    nodes = tables.padded(np.linspace(-7.0, 7.0, 1200))
    a = coarse_axis.axis_for(nodes, items.groups[0].x[0], items.first)
    np.testing.assert_array_equal(np.flatnonzero(a.steep >= 0), [4, 17])
    data = layouts.to_sparse(layouts.Dense(y)) if sparse else layouts.Dense(y)
    log_mass = person_weights.normal(nodes)
    weight = np.random.default_rng(8).uniform(0.2, 2.0, n)
    c, scales = counted(data, items, nodes, log_mass, weight=weight, axis=a)
    fine, _ = counted(data, items, nodes, log_mass, weight=weight)
    np.testing.assert_array_equal(c.persons, fine.persons)
    np.testing.assert_array_equal(c.steep_higher, fine.higher[[4, 17]])
    np.testing.assert_array_equal(c.steep_seen, fine.seen[[4, 17]])
    assert c.log_marginal == fine.log_marginal
    flat = np.setdiff1d(np.arange(m), [4, 17])
    log_p, coarse = (items.log_p(x).reshape(m, 2, -1) for x in (nodes, a.nodes))
    for counts, of_fine in ((c.higher, fine.higher), (c.seen, fine.seen)):
        got = (counts[flat, None] * coarse[flat]).sum(axis=2) / scales.weight
        want = (of_fine[flat, None] * log_p[flat]).sum(axis=2) / scales.weight
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-8 * weight.sum())


def test_a_coarse_axis_changes_no_estimate(monkeypatch):
    """The E-step of many items, with and without it."""
    rng = np.random.default_rng(2)
    m = 1500
    a, d = rng.uniform(0.5, 1.5, m), rng.normal(size=m)
    a[7] = 12.0
    y = np.where(rng.random((30, m)) < 0.3, -1, rng.integers(0, 2, (30, m))).astype(np.int8)
    flat = Betas.of(*((1.0, 1.0),) * 2)
    model = Model(Mixture.of(model_named("2pl"), m), np.full((2, m), np.nan), flat)
    x = model.start(np.stack([a, d]))
    with Engine(irt.from_array(csr_of(y), observed="stored")) as engine:
        value, coarse = expected.expect(engine, "one", model, x)
        monkeypatch.setattr(expected, "axis_for", lambda *_: coarse_axis.FINE_ALONE)
        again, fine = expected.expect(engine, "two", model, x)
    assert value == again
    assert [c.items.size for c in coarse.counts] == [1, m - 1]
    assert coarse.counts[1].nodes.size < fine.nodes.size / 2
    (all_fine,) = fine.counts
    for c in coarse.counts:
        for k in range(8):  # moments up to the degree of the polynomials
            got, want = ((e.higher[:, 0] @ (e.nodes / 7.0) ** k) for e in (c, all_fine))
            np.testing.assert_allclose(got, want[c.items], rtol=0, atol=1e-9)
