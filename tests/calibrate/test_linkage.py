"""Groups of items that nobody links, against scipy's connected components of persons and items."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from items import respond
from parts import csr_of

import irt_dask as irt
from irt_dask.calibrate.joint.overview import linked_persons
from irt_dask.calibrate.joint.person_step import prepare, prepare_rows
from irt_dask.calibrate.shared.linkage import linked_items
from irt_dask.engine import Engine
from irt_dask.errors import ConvergenceWarning, DataWarning


def expected(y):
    """Label each item with the first item of its component of the graph of persons and items."""
    n, m = y.shape
    i, j = np.nonzero(y >= 0)
    graph = sp.coo_array((np.ones(i.size), (i, n + j)), shape=(n + m, n + m))
    component = sp.csgraph.connected_components(graph, directed=False)[1][n:]
    first = {}
    for k, c in enumerate(component):
        first.setdefault(c, k)
    return np.array([first[c] for c in component])


def sparse(y, rows):
    return irt.from_array(csr_of(y), observed="stored", rows_per_block=rows)


@given(
    n=st.integers(1, 40),
    m=st.integers(1, 30),
    share=st.sampled_from([0.02, 0.05, 0.1, 0.3]),
    whole=st.booleans(),
    rows=st.integers(1, 45),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=30, deadline=None, derandomize=True, database=None)
def test_groups_are_the_connected_components(n, m, share, whole, rows, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, (n, m)).astype(np.int8)
    y[rng.random((n, m)) >= share] = -1
    if whole:  # somebody who links all
        y[rng.integers(0, n)] = 1
    want = expected(y)
    for r in (irt.from_array(y, rows_per_block=rows), sparse(y, rows)):
        for how in (prepare, prepare_rows):
            with Engine(r, prepare=how) as engine:
                np.testing.assert_array_equal(linked_items(engine, linked_persons), want)


def two_tests(seed=0, n=60):
    """Two groups of persons, each with a test of its own: items 0, 2, 4, ... and 1, 3, 5."""
    rng = np.random.default_rng(seed)
    a, d = np.array([1.2, 0.8, 1.0, 1.1, 0.9, 1.0, 1.3, 0.7]), np.linspace(-1, 1, 8)
    y = respond(rng, rng.normal(0, 1, 2 * n), a, d)
    y[:n, [1, 3, 5]] = -1
    y[n:, [0, 2, 4, 6, 7]] = -1
    return y


def fit(r, **options):
    return irt.fit_joint(r, **{"max_iterations": 200, **options})


@pytest.mark.parametrize("model", ["1pl", "2pl", pytest.param("3pl", marks=pytest.mark.slow)])
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.filterwarnings(f"ignore::{ConvergenceWarning.__module__}.ConvergenceWarning")
def test_groups_that_nobody_links_are_named(model, stored):
    y = two_tests()
    ids = [f"item {j}" for j in range(8)]
    if stored:
        r = irt.from_array(csr_of(y), observed="stored", rows_per_block=17, item_id=ids)
    else:
        r = irt.from_array(y, rows_per_block=50, item_id=ids)
    with pytest.warns(DataWarning, match="nobody links 2 groups of items") as caught:
        got = fit(r, model=model)
    message = next(str(w.message) for w in caught if w.category is DataWarning)
    assert message.endswith("the smallest: item 1, item 3, item 5")
    np.testing.assert_array_equal(got["item_linked_group"], [0, 1, 0, 1, 0, 1, 0, 0])
    assert got.attrs["n_linked_groups"] == 2


@pytest.mark.filterwarnings(f"ignore::{ConvergenceWarning.__module__}.ConvergenceWarning")
def test_one_person_links_two_tests():
    """Without a warning, which would be an error here."""
    y = two_tests()
    y[0, 3] = 1
    got = fit(y, model="1pl")
    np.testing.assert_array_equal(got["item_linked_group"], 0)
    assert got.attrs["n_linked_groups"] == 1


def test_many_groups_are_listed_in_part():
    y = np.full((120, 60), -1, dtype=np.int8)
    for k in range(30):  # pairs of items, four persons each
        y[4 * k : 4 * k + 4, 2 * k : 2 * k + 2] = [[1, 0], [0, 1], [1, 1], [0, 1]]
    with pytest.warns(DataWarning, match="nobody links 30 groups") as caught:
        got = fit(y, model="1pl", max_iterations=500)
    np.testing.assert_array_equal(got["item_linked_group"], np.arange(60) // 2)
    assert len([w for w in caught if w.category is DataWarning]) == 1
