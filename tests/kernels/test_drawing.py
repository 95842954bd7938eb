"""Draws of abilities, however persons are laid out, against sums from the definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from items import respond

from irt_dask.curves.grids import Grid, grid_for
from irt_dask.curves.item_set import ItemSet
from irt_dask.kernels.gibbs import person_draws, person_layout
from irt_dask.kernels.posterior.tables import padded
from irt_dask.kernels.responses import layouts
from irt_dask.kernels.responses.layouts import Dense, to_sparse
from irt_dask.population.population import expectations


def by_definition(y, a, d, nodes, u):
    """Node of each person: the first whose cumulated posterior probability is not below u."""
    z = np.multiply.outer(nodes, a) + d
    right, wrong = -np.logaddexp(0.0, -z), -np.logaddexp(0.0, z)
    log_w = (y == 1).astype(float) @ right.T + (y == 0).astype(float) @ wrong.T - 0.5 * nodes**2
    w = np.exp(log_w - log_w.max(axis=1, keepdims=True))
    cdf = np.cumsum(w, axis=1)
    return (cdf < u[:, None] * cdf[:, -1:]).sum(axis=1), cdf / cdf[:, -1:]


def counts_of(y, node, n_nodes):
    right, seen = np.zeros((2, n_nodes, y.shape[1]), dtype=int)
    np.add.at(right, node, y == 1)
    np.add.at(seen, node, y >= 0)
    return right, seen, np.bincount(node, minlength=n_nodes)


def check(y, a, d, nodes, u):
    want, cdf = by_definition(y, a, d, nodes, u)
    # A uniform within rounding of a step may fall on either side of it.
    near = np.abs(cdf - u[:, None]).min(axis=1) < 1e-9
    y, u, want = y[~near], u[~near], want[~near]
    for data in (Dense(y), to_sparse(Dense(y))):
        p = person_layout.prepare(data)
        kept, right, seen, persons = person_draws.draw_counts(p, a, d, nodes, u)
        exact = counts_of(y, want, nodes.size)
        np.testing.assert_array_equal(kept, np.flatnonzero(exact[2]))
        np.testing.assert_array_equal(right, exact[0][kept])
        np.testing.assert_array_equal(seen, exact[1][kept])
        np.testing.assert_array_equal(persons, exact[2])
    return p


def responses(rng, n, m, kind):
    y = rng.integers(0, 2, (n, m)).astype(np.int8)
    if kind == "booklets":
        observed = rng.random((3, m)) < 0.6
        y[~observed[rng.integers(0, 3, n)]] = -1
    elif kind == "any":
        y[rng.random((n, m)) < 0.3] = -1
    elif kind == "both":
        y[: n // 2][rng.random((n // 2, m)) < 0.5] = -1
        y[-3:] = -1
    return y


@given(
    st.integers(0, 10**6),
    st.sampled_from(["complete", "booklets", "any", "both"]),
    st.integers(1, 200),
    st.integers(1, 40),
    st.sampled_from([0.3, 1.0, 8.0, 60.0]),
)
@settings(max_examples=80, deadline=None)
def test_draws_are_those_of_the_definition(seed, kind, n, m, steep):
    rng = np.random.default_rng(seed)
    a, d = steep * rng.lognormal(0.0, 0.5, m), rng.normal(0.0, 2.0, m)
    y = responses(rng, n, m, kind)
    check(
        y, a, d, grid_for(a, d, margin=1.25).nodes if steep < 10 else Grid(141).nodes, rng.random(n)
    )


@pytest.mark.parametrize("kind", ["complete", "booklets", "any", "both"])
@pytest.mark.parametrize("m", [127, 128, 129, 600])
def test_long_tests(kind, m):
    rng = np.random.default_rng(m)
    a, d = rng.lognormal(0.1, 0.4, m), rng.normal(0.0, 1.0, m)
    y = respond(rng, rng.standard_normal(120), a, d)
    y[responses(rng, 120, m, kind) < 0] = -1
    check(y, a, d, grid_for(a, d, margin=1.25).nodes, rng.random(120))


def test_layouts_of_persons():
    """Who is shared, mixed and neither; every person once; 255 and more at one node."""
    rng = np.random.default_rng(1)
    y = responses(rng, 3000, 20, "both")
    p = check(y, np.full(20, 0.01), np.zeros(20), Grid(15).nodes, rng.random(3000))
    assert p.shared.size > 1400
    assert p.mixed.size > 1400
    everyone = np.concatenate([p.shared, p.mixed, p.others])
    np.testing.assert_array_equal(np.sort(everyone), np.arange(p.n))
    wide = person_layout.prepare(Dense(responses(rng, 100, 130, "any")))
    assert wide.others.size == 100
    assert wide.nbytes > wide.data.nbytes


def test_responses_that_contradict_each_other():
    """64 hard items right and 64 easy ones wrong: every product of likelihoods underflows."""
    a, d = np.full(128, 6.0), np.repeat([-20.0, 20.0], 64)
    y = np.repeat([[1] * 64 + [0] * 64], 3, axis=0).astype(np.int8)
    y[1, 5] = y[2, 70] = -1
    check(y, a, d, Grid(141).nodes, np.array([0.2, 0.5, 0.9]))


def test_a_shard_of_nobody_with_responses():
    y = np.full((50, 7), -1, dtype=np.int8)
    rng = np.random.default_rng(2)
    check(y, np.ones(7), np.zeros(7), Grid(61).nodes, rng.random(50))


@pytest.mark.parametrize("m", [5, 40, 300])
def test_halving_the_spacing_changes_nothing(m):
    """Posterior means and SDs on the grid that fits use, and on one twice as fine.

    At h = s / 2 the trapezoidal rule errs by exp(-8 pi^2), about 1e-34, for a normal; slopes of 3
    make some posteriors less smooth.
    """
    rng = np.random.default_rng(m)
    a, d = rng.lognormal(0.1, 0.4, m), rng.normal(0.0, 1.0, m)
    a[:3] = 3.0
    y = responses(rng, 200, m, "any")
    grid = grid_for(a, d)
    fine = Grid(2 * grid.n_nodes - 1)
    got, want = (
        expectations(layouts.Dense(y), ItemSet.of("2pl", a, d), padded(g.nodes))
        for g in (grid, fine)
    )
    for x, z in zip(got, want, strict=True):
        np.testing.assert_allclose(x, z, atol=2e-7)
