"""Few persons, many items: work is shared out by items, and nothing else changes."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import pytest
from items import quiet, simulated_2pl

import irt_dask as irt
from irt_dask.calibrate.joint import item_step
from irt_dask.calibrate.rasch import pair_counts
from irt_dask.curves.grids import grid_for
from irt_dask.curves.item_set import ItemSet
from irt_dask.engine import Engine, executors
from irt_dask.errors import ConvergenceWarning
from irt_dask.kernels.gibbs import person_draws
from irt_dask.kernels.posterior import moments, person_weights, tables
from irt_dask.kernels.responses import layouts
from irt_dask.population.population import NOBODY_APART, STANDARD


@pytest.fixture(scope="module")
def y():
    return simulated_2pl(40, 700, 0, 0.3)


@pytest.fixture(scope="module")
def items(y):
    return irt.fit_joint(y, max_iterations=3, tolerance=1.0)


far = partial(quiet, kinds=(ConvergenceWarning,))  # from convergence
bayes = partial(far, irt.fit_bayes, n_draws=100, n_warmup=50, n_chains=2)
joint = partial(far, irt.fit_joint, max_iterations=8, tolerance=-1.0)
METHODS = {
    "joint": lambda r, _, **o: joint(r, max_iterations=3, **o),
    "coreset": lambda r, _, **o: joint(r, coreset=irt.Coreset(60), **o),
    "bayes": lambda r, _, **o: bayes(r, **o),
    "pair counts": lambda r, _, **o: irt.pair_counts(r, **o),
    "spectral": lambda r, _, **o: irt.fit_spectral(r, **o),
    "score": lambda r, items, **o: irt.score(r, items, **o),
    "evaluate": lambda r, items, **o: irt.evaluate(r, items, **o),
}


@pytest.mark.parametrize("method", METHODS)
def test_same_bits_on_processes_and_in_other_blocks(y, items, client, bits, method):
    run = METHODS[method]
    if method == "bayes":
        y = y[:, :300]
    want = bits(run(irt.from_array(y, rows_per_block=40), items))
    assert bits(run(irt.from_array(y, rows_per_block=7), items)) == want
    assert bits(run(irt.from_array(y, rows_per_block=40), items, client=client)) == want


# --- sharing out by items -------------------------------------------------------------------------


@pytest.fixture
def submitted(monkeypatch):
    """Names of the functions that are submitted to threads."""
    names = []
    submit = executors.Threads.submit

    def counting(self, place, function, *args):
        names.append(function.__name__)
        return submit(self, place, function, *args)

    monkeypatch.setattr(executors.Threads, "submit", counting)
    return names


@pytest.mark.parametrize("options", [{}, {"model": "1pl"}, {"coreset": irt.Coreset(60)}])
def test_joint_fit_of_few_persons_is_shared_out_by_items(y, submitted, options):
    joint(y, **options)
    assert submitted.count("_on_items") >= 4 * 8  # every item step, several ranges each


def same_fit(got, want):
    """Two fits of a few iterations that differ in the last bits of the counts."""
    names = ["item_discrimination", "item_intercept", "item_discrimination_se", "item_intercept_se"]
    for name in [*names, *(["item_guessing"] if got.attrs["model"] == "3pl" else [])]:
        np.testing.assert_allclose(got[name], want[name], rtol=1e-6, atol=1e-6, err_msg=name)
    trace = got["iteration_objective"]
    np.testing.assert_allclose(trace, want["iteration_objective"], rtol=1e-9)


@pytest.mark.parametrize("model", ["1pl", "2pl", "3pl"])
@pytest.mark.parametrize("missing", [pytest.param(0.0, marks=pytest.mark.slow), 0.3])
def test_joint_fit_by_items_is_the_one_from_gathered_counts(monkeypatch, submitted, model, missing):
    """More persons than nodes, so that both count on the axis."""
    y = simulated_2pl(500, 300, 3, missing)
    y[::3, :] = np.abs(y[::3, :])  # some complete rows
    weight = np.random.default_rng(1).uniform(0.5, 3.0, len(y))
    r = irt.from_array(y, persons=pd.DataFrame({"weight": weight}), rows_per_block=110)
    monkeypatch.setattr(item_step, "_SMALL", -1)
    options = {"model": model, "max_iterations": 3}
    got = joint(r, **options)
    assert "_on_items" in submitted
    submitted.clear()
    monkeypatch.setattr(item_step, "_MANY_ITEMS", 10**9)
    same_fit(got, joint(r, **options))
    assert "_on_items" not in submitted


@pytest.mark.parametrize("model", ["1pl", "2pl", "3pl"])
def test_axis_and_abilities_themselves_reach_the_same_maximum(monkeypatch, model):
    """Small data, without an axis, against gathered counts: up to the error of the axis."""
    y = simulated_2pl(600, 30, 4, 0.3)
    options = {"model": model, "max_iterations": 40, "start": irt.fit_spectral(y)}
    got = joint(y, **options)
    monkeypatch.setattr(item_step, "_SMALL", -1)
    assert joint(y, **options).attrs["objective"] == pytest.approx(got.attrs["objective"], rel=1e-4)


def test_pair_counts_by_rows_of_the_matrices(y, bits, monkeypatch, submitted):
    r = irt.from_array(y, rows_per_block=16)
    got = irt.pair_counts(r)
    assert submitted.count("_on_items") >= 4
    monkeypatch.setattr(pair_counts, "_SOME_ITEMS", 10**9)
    assert bits(irt.pair_counts(r)) == bits(got)
    right, wrong = (y == 1).astype(int), (y == 0).astype(int)
    np.testing.assert_array_equal(got["pair_count"], right.T @ wrong)
    np.testing.assert_array_equal(got["pair_observed"], (right + wrong).T @ (right + wrong))
    assert got["pair_count"].dtype == np.int64


def test_one_block_is_cut_into_pieces(items, submitted):
    y = simulated_2pl(300, 700, 2, 0.3)
    n_pieces = 3  # of 65,536 cells or more
    r = irt.from_array(y, rows_per_block=300)
    with Engine(r) as engine:
        seen = engine.map_blocks(lambda block: (block.start, block.data.values))
        assert len(seen) == n_pieces
        assert [start for start, _ in seen] == [0, 100, 200]
        np.testing.assert_array_equal(np.concatenate([v for _, v in seen]), y)
        some = engine.map_some(lambda block, extra: (block.start, extra), {0: "x", 2: "z"})
        assert some == {0: (0, "x"), 2: (200, "z")}
        (total,) = engine.map_reduce(lambda block: (block.data.values == 1).sum())
        assert total == (y == 1).sum()
    submitted.clear()
    irt.evaluate(r, items.assign_coords(item_id=list(r.item_id)))
    assert submitted == ["_sum_blocks"] * n_pieces


def test_weights_follow_their_persons_into_pieces():
    y = simulated_2pl(300, 700, 2, 0.3)
    weight = np.arange(300) + 1.0
    r = irt.from_array(y, persons={"weight": weight}, weight_kind="frequency", rows_per_block=300)
    with Engine(r) as engine:
        np.testing.assert_array_equal(
            np.concatenate(engine.map_blocks(lambda block: block.weights())), weight
        )


def test_ranges_of_items_cover_all_of_them(y):
    with Engine(irt.from_array(y, rows_per_block=16)) as engine:
        got = sorted(engine.map_items(lambda blocks, lo, hi: sum(b.n_persons for b in blocks)))
        ends = [hi for _, hi, _ in got]
        assert [lo for lo, _, _ in got] == [0, *ends[:-1]]
        assert ends[-1] == 700
        assert {n for _, _, n in got} == {40}

        def fail(blocks, lo, hi):
            raise ValueError(f"at {lo}")

        with pytest.raises(ValueError, match="at "):
            list(engine.map_items(fail))


# --- nodes around the mode only -------------------------------------------------------------------


def special(kind, rng):
    n, m = 30, 60
    y = simulated_2pl(n, m, 5, 0.4)
    a, d = rng.lognormal(0.1, 0.5, m), rng.normal(0.0, 1.5, m)
    if kind == "steep":
        a[:3], d[:3] = (8.0, 20.0, 30.0), (-20.0, 10.0, -90.0)
    elif kind == "extreme":  # e^z beyond what is multiplied, and beyond what a double holds
        a[:3], d[:3] = (40.0, 60.0, 90.0), (300.0, -200.0, 69.0)
    elif kind == "one item":
        a, d, y = a[:1], d[:1], y[:, :1]
    y[0], y[1], y[2] = 1, 0, -1  # all right, all wrong, nothing observed
    y[3, 1:], y[4, 1:] = 1, 0
    return y, a, d


@pytest.mark.filterwarnings("ignore:overflow encountered in exp")
@pytest.mark.parametrize(
    "kind",
    ["plain", "steep", *(pytest.param(k, marks=pytest.mark.slow) for k in ("extreme", "one item"))],
)
def test_nodes_around_the_mode_are_enough(monkeypatch, kind):
    """Draws and moments against sums over all nodes."""
    rng = np.random.default_rng(6)
    y, a, d = special(kind, rng)
    nodes, u = tables.padded(grid_for(a, d, margin=1.25).nodes), rng.random(len(y))
    data, items = layouts.Dense(y), ItemSet.of("2pl", a, d)
    got, want = [], []
    for out, fine in ((got, 0), (want, 10**9)):
        monkeypatch.setattr(tables, "FINE", fine)
        p = STANDARD.prior(nodes, NOBODY_APART)[0]
        g = tables.tables(items, nodes)
        assert (g.origin.size > 0) == (fine == 0)
        arguments = data, g, person_weights.alone(len(y)), p
        out += [person_draws.draw_nodes(data, a, d, nodes, u), moments.expectations(*arguments)]
        out.append(moments.central_moments(*arguments))
    np.testing.assert_array_equal(got[0], want[0])
    for x, z in zip(got[1:], want[1:], strict=True):
        np.testing.assert_allclose(x, z, rtol=1e-9, atol=1e-12)


def test_draws_have_the_posterior_on_a_fine_grid():
    """One person, 20,000 draws on even uniforms, against probabilities summed over all nodes."""
    y = simulated_2pl(1, 900, 7, 0.3)
    rng = np.random.default_rng(8)
    a, d = rng.lognormal(0.0, 0.4, 900), rng.normal(0.0, 1.2, 900)
    nodes = tables.padded(grid_for(a, d).nodes)
    assert nodes.size > tables.FINE
    n = 20_000
    many = layouts.Dense(np.repeat(y, n, axis=0))
    node = person_draws.draw_nodes(many, a, d, nodes, (np.arange(n) + 0.5) / n)
    z = np.multiply.outer(nodes, a) + d
    log_w = np.where(y[0] == 1, -np.logaddexp(0, -z), np.where(y[0] == 0, -np.logaddexp(0, z), 0.0))
    log_w = log_w.sum(axis=1) - 0.5 * nodes**2
    p = np.exp(log_w - log_w.max())
    np.testing.assert_allclose(np.bincount(node, minlength=p.size) / n, p / p.sum(), atol=1.1 / n)
