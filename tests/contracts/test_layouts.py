"""Dense and sparse blocks hold the same responses and give the same bits from every kernel."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parts import both

import irt_dask as irt
from irt_dask.curves.grids import grid_for
from irt_dask.curves.item_set import ItemSet
from irt_dask.kernels.gibbs import person_draws, person_layout
from irt_dask.kernels.joint import ability_axis, modes
from irt_dask.kernels.joint.parameters import Items
from irt_dask.kernels.pairs import pair_counts
from irt_dask.kernels.posterior import leave_one_out, tables
from irt_dask.kernels.responses import layouts, response_counts
from irt_dask.population.population import NOBODY_APART, STANDARD, expectations, posteriors
from irt_dask.store import Block, Responses


@st.composite
def responses(draw, most_persons=12, most_items=9):
    """Random responses: any share missing, some persons and items without any response."""
    n, m = draw(st.integers(1, most_persons)), draw(st.integers(1, most_items))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    y = rng.integers(0, 2, (n, m)).astype(np.int8)
    y[rng.random((n, m)) < draw(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]))] = -1
    if draw(st.booleans()):
        y[rng.integers(0, n)] = -1
    if draw(st.booleans()):
        y[:, rng.integers(0, m)] = -1
    return y


def parameters(m, seed=0):
    rng = np.random.default_rng(seed)
    return rng.lognormal(0.1, 0.5, m), rng.normal(0.0, 1.5, m)


def same_bits(left, right):
    for x, y in zip(left, right, strict=True):
        assert x.dtype == y.dtype
        assert x.shape == y.shape
        assert np.ascontiguousarray(x).tobytes() == np.ascontiguousarray(y).tobytes()


def kernels(y, scale=2.0**20):
    """Every kernel over responses, as a function of the data alone."""
    n, m = y.shape
    a, d = parameters(m)
    nodes = tables.padded(grid_for(a, d).nodes)
    items = ItemSet.of("2pl", a, d)
    prior, _ = STANDARD.prior(nodes, NOBODY_APART)
    others = leave_one_out.inverse(items, tables.tables(items, nodes))
    rng = np.random.default_rng(1)
    u, weight = rng.random(n), rng.random(n) + 0.5
    two, three = Items.of("2pl", a, d), Items.of("3pl", a, d, rng.uniform(0.0, 0.4, m))
    theta = modes.modes(layouts.Dense(y), modes.tables(two, 6.0))[0]
    place = (theta, weight, 6.0, 41, scale)
    once, other = rng.integers(0, 1000, n), rng.integers(-1000, 1000, n)
    return {
        "modes": lambda x: modes.modes(x, modes.tables(two, 6.0)),
        "modes of a 3PL": lambda x: modes.modes(x, modes.tables(three, 6.0)),
        "axis.responses": lambda x: ability_axis.responses(x, *place, with_right=True),
        "axis.sums_right": lambda x: ability_axis.sums_right(x, once, other),
        "draw_counts": lambda x: person_draws.draw_counts(person_layout.prepare(x), a, d, nodes, u),
        "expectations": lambda x: expectations(x, items, nodes),
        "left_out": lambda x: (
            leave_one_out.left_out(*posteriors(x, items, nodes, prior).arguments, others),
        ),
        "pair_counts": pair_counts.pair_counts,
        "response_counts": response_counts.response_counts,
        "responses_per_person": lambda x: (response_counts.responses_per_person(x),),
    }


@given(responses())
@settings(max_examples=60, deadline=None)
def test_every_kernel_gives_the_same_bits(y):
    dense, sparse = both(y)
    for kernel in kernels(y).values():
        same_bits(kernel(dense), kernel(sparse))


@pytest.mark.parametrize(
    "missing",
    [pytest.param(0.0, marks=pytest.mark.slow), pytest.param(0.4, marks=pytest.mark.slow), 0.95],
)
def test_many_items(missing):
    rng = np.random.default_rng(2)
    y = rng.integers(0, 2, (30, 800)).astype(np.int8)
    y[rng.random(y.shape) < missing] = -1
    dense, sparse = both(y)
    for kernel in kernels(y).values():
        same_bits(kernel(dense), kernel(sparse))


# --- the layouts themselves -----------------------------------------------------------------------


def check_sparse(x):
    """What every sparse block keeps to."""
    assert x.indptr.dtype == np.int64
    assert x.indices.dtype == np.int32
    assert x.values.dtype == np.int8
    assert x.indptr[0] == 0
    assert x.indptr[-1] == x.indices.size == x.values.size == x.n_observed
    assert ((x.values == 0) | (x.values == 1)).all()
    for lo, hi in zip(x.indptr[:-1], x.indptr[1:], strict=True):
        assert (np.diff(x.indices[lo:hi]) > 0).all()


def same(data, expected):
    """Both layouts of ``data`` hold ``expected``."""
    assert data.shape == expected.shape
    assert data.n_observed == (expected >= 0).sum()
    np.testing.assert_array_equal(layouts.to_dense(data).values, expected)
    if isinstance(data, layouts.Sparse):
        check_sparse(data)


@given(responses(), st.data())
@settings(max_examples=80, deadline=None)
def test_taking_and_stacking(y, data):
    n, m = y.shape
    rows = np.array(data.draw(st.lists(st.integers(0, n - 1), max_size=2 * n)), dtype=np.intp)
    items = np.array(data.draw(st.permutations(range(m))), dtype=np.intp)
    items = items[: data.draw(st.integers(0, m))]
    lo = data.draw(st.integers(0, m))
    hi = data.draw(st.integers(lo, m))
    for x in both(y):
        same(x, y)
        same(layouts.to_sparse(x), y)
        same(layouts.take(x, rows), y[rows])
        same(layouts.columns(x, items), y[:, items])
        same(layouts.item_range(x, lo, hi), y[:, lo:hi])
        cut = data.draw(st.integers(0, n))
        same(layouts.row_range(x, 0, cut), y[:cut])
        parts = [layouts.row_range(x, 0, cut), layouts.row_range(x, cut, n), x]
        same(layouts.concatenate(parts), np.concatenate([y, y]))
    dense, sparse = both(y)
    same(layouts.concatenate([dense, sparse]), np.concatenate([y, y]))
    assert isinstance(layouts.concatenate([dense, dense]), layouts.Dense)
    assert isinstance(layouts.concatenate([dense, sparse]), layouts.Sparse)


# --- whole methods --------------------------------------------------------------------------------


class _Ref:
    """A block in memory, in a given layout."""

    cache_key = None

    def __init__(self, block):
        self.block = block

    @property
    def start(self):
        return self.block.start

    def read(self):
        return self.block

    def person_ids(self):
        start = self.block.start
        return np.array([str(start + i) for i in range(self.block.n_persons)], dtype=object)

    def groups(self):
        return None

    def covariates(self):
        return None


def in_layout(y, layout, rows_per_block):
    """Responses in blocks of one layout."""
    refs = []
    for k, start in enumerate(range(0, len(y), rows_per_block)):
        data = layouts.Dense(y[start : start + rows_per_block].copy())
        data = layouts.to_sparse(data) if layout == "csr" else data
        refs.append(_Ref(Block(k, start, data)))
    item_id = tuple(f"q{j}" for j in range(y.shape[1]))
    return Responses(refs, len(y), item_id, f"{layout} {y.shape}", layout=layout)


@pytest.mark.filterwarnings("ignore::irt_dask.errors.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::irt_dask.errors.ApproximationWarning")
@pytest.mark.parametrize("n, m", [(60, 12), pytest.param(40, 400, marks=pytest.mark.slow)])
def test_methods_give_the_same_bits(bits, n, m):
    rng = np.random.default_rng(3)
    y = (rng.random((n, m)) < 0.3 + 0.4 * rng.random((n, 1))).astype(np.int8)
    y[rng.random(y.shape) < 0.3] = -1
    dense, sparse = in_layout(y, "dense", 64), in_layout(y, "csr", 64)
    items = irt.fit_joint(dense, max_iterations=3)
    methods = [
        lambda r: irt.fit_joint(r, max_iterations=3),
        lambda r: irt.fit_joint(r, model="3pl", max_iterations=3),
        lambda r: irt.fit_joint(r, max_iterations=8, coreset=irt.Coreset(50)),
        lambda r: irt.fit_bayes(r, n_shards=2 if n > m else 1, n_draws=100, n_warmup=50),
        irt.pair_counts,
        lambda r: irt.score(r, items),
        lambda r: irt.evaluate(r, items),
    ]
    for method in methods:
        assert bits(method(dense)) == bits(method(sparse))
